"""NodePorts: a host port can be used once per node, protocol and address."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.ports import WILDCARD, HostPort, host_ports
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.plugins.base import Filter
from kube_policy_scheduler.framework.status import Code


class NodePorts(Filter):
    """Rejects nodes on which another pod has one of the pod's host ports."""

    name = "NodePorts"
    default = Default(5, needed_by_kubelet=True)
    reads = Reads.SPEC | Reads.PODS
    events = frozenset({ClusterEvent.POD_DELETE, ClusterEvent.NODE_ADD})
    code = Code.UNSCHEDULABLE
    reason = "node(s) didn't have free ports for the requested pod ports"

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Skip pods without host ports."""
        ports = host_ports(frame.pod.template)
        return Ready(ports, key=ports) if ports else SKIP

    def filter(self, frame: Frame, state: tuple[HostPort, ...]) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        cluster = frame.cluster
        taken: set[int] = set()
        for port in state:
            taken |= cluster.ports.conflicts(port)
        for name in {event.node_name for event in cluster.dry_run_changes}:
            row = cluster.nodes.rows.get(name)
            if row in taken and not _conflict(state, _rehearsed_ports(cluster, name)):
                taken.discard(row)
        if isinstance(frame.rows, slice):
            free = np.ones(cluster.nodes.size, np.bool_)
            free[list(taken)] = False
            return free[frame.rows]
        if len(frame.rows) == 1:
            return np.array([int(frame.rows[0]) not in taken])
        return ~np.isin(frame.rows, list(taken))


def _conflict(wanted: Iterable[HostPort], used: set[HostPort]) -> bool:
    """Return whether one of the ports is not free: same address, or one of the two is the wildcard."""
    return any(
        (port.protocol, port.port) == (other.protocol, other.port)
        and (port.ip == other.ip or WILDCARD in (port.ip, other.ip))
        for port in wanted
        for other in used
    )


def _rehearsed_ports(cluster: Cluster, node_name: str) -> set[HostPort]:
    """Return the ports that kube-scheduler would consider in use on a node within a dry run.

    It keeps them as a set: when one of two pods with the same port leaves, it considers the port free. Reproduced in
    dry runs only, where the worst result is a useless eviction; real placements are counted.
    """
    events = [event for event in cluster.dry_run_changes if event.node_name == node_name]
    pods = dict(cluster.pods_on(node_name))
    for event in reversed(events):
        if event.step > 0:
            pods.pop(event.pod.uid, None)
        else:
            pods[event.pod.uid] = event.pod
    used = {port for pod in pods.values() for port in host_ports(pod.template)}
    for event in events:
        if event.step > 0:
            used.update(host_ports(event.pod.template))
        else:
            used.difference_update(host_ports(event.pod.template))
    return used
