"""NodePorts: a host port can be had once per node, protocol and address."""

from __future__ import annotations

import numpy as np

from engine.cluster.nodes import BoolArray
from engine.cluster.ports import HostPort, host_ports
from engine.framework.frame import Frame
from engine.framework.plugin import SKIP, PreFilterResult, Ready, Scope
from engine.framework.plugins.base import Filter
from engine.framework.status import Code


class NodePorts(Filter):
    """Refuses nodes on which another pod has one of the pod's host ports."""

    name = "NodePorts"
    scope = Scope.ROW
    code = Code.UNSCHEDULABLE
    reason = "node(s) didn't have free ports for the requested pod ports"

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Skip pods without host ports."""
        ports = host_ports(frame.template)
        return Ready(ports) if ports else SKIP

    def filter(self, frame: Frame, state: tuple[HostPort, ...]) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        taken: set[int] = set()
        for port in state:
            taken |= frame.cluster.ports.conflicts(port)
        if isinstance(frame.rows, slice):
            free = np.ones(frame.cluster.nodes.size, np.bool_)
            free[list(taken)] = False
            return free[frame.rows]
        if len(frame.rows) == 1:
            return np.array([int(frame.rows[0]) not in taken])
        return ~np.isin(frame.rows, list(taken))
