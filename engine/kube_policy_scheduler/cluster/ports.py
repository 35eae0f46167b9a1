"""Host ports in use, by node. Rules: NodePorts of kube-scheduler 1.36."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from kube_policy_scheduler.cluster.pods import PodTemplate

WILDCARD = "0.0.0.0"


class HostPort(NamedTuple):
    """A port on the node that a pod requests or has."""

    protocol: str
    port: int
    ip: str


def host_ports(template: PodTemplate) -> tuple[HostPort, ...]:
    """Return the host ports of regular containers and sidecars; ordinary init containers do not count."""
    ports: tuple[HostPort, ...] | None = template.shape.get("host-ports")
    if ports is None:
        spec = template.spec
        counting = spec.containers or []
        if spec.init_containers:
            counting = [*[c for c in spec.init_containers if c.restart_policy == "Always"], *counting]
        declared = [port for container in counting if container.ports for port in container.ports]
        ports = template.shape["host-ports"] = tuple(
            [
                HostPort(port.protocol or "TCP", port.host_port, port.host_ip or WILDCARD)
                for port in declared
                if port.host_port > 0
            ]
        )
    return ports


class PortTable:
    """Which host ports are taken on which rows."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, int], dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))

    def conflicts(self, wanted: HostPort) -> set[int]:
        """Return the rows on which the port is not free: same address, or one of the two is the wildcard."""
        by_ip = self._taken.get((wanted.protocol, wanted.port))
        if not by_ip:
            return set()
        if wanted.ip == WILDCARD:
            return {row for rows in by_ip.values() for row in rows}
        return {*by_ip.get(wanted.ip, ()), *by_ip.get(WILDCARD, ())}

    def update(self, ports: tuple[HostPort, ...], row: int, step: int) -> None:
        """Count ports on a row (`step` 1) or no longer (-1)."""
        for port in ports:
            rows = self._taken[port.protocol, port.port][port.ip]
            left = rows.get(row, 0) + step
            if left:
                rows[row] = left
                continue
            del rows[row]
            if not rows:
                by_ip = self._taken[port.protocol, port.port]
                del by_ip[port.ip]
                if not by_ip:
                    del self._taken[port.protocol, port.port]
