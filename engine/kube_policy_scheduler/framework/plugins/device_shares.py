"""DeviceShares: whole devices must be entirely free, and a share must fit on one device. Not a rule of Kubernetes'.

kube-scheduler's own filter looks at the sums; see `node_devices` for how nodes and pods declare what they have
and request. On clusters where no pod ever requested a share, pods without one are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_policy_scheduler.cluster.devices.node_devices import SHARE_SUFFIX, Ask, DeviceTable, ask_of
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.plugins.base import Filter
from kube_policy_scheduler.framework.status import Code, Rejection

Wanted = tuple[tuple[DeviceTable, Ask], ...]


def wanted(frame: Frame) -> Wanted:
    """Return what the pod requests of the devices that are tracked one by one."""
    devices, template = frame.cluster.devices, frame.pod.template
    for resource in devices.shared():
        if resource + SHARE_SUFFIX in template.requests:
            devices.table(resource)
    if not devices.tables:
        return ()
    asks = ((table, ask_of(template, table.resource)) for table in devices.tables.values())
    return tuple((table, ask) for table, ask in asks if ask.devices)


class DeviceShares(Filter):
    """Rejects nodes on which no device has enough free capacity."""

    name = "DeviceShares"
    default = Default(17, is_ours=True)
    reads = Reads.SPEC | Reads.PODS
    events = frozenset(
        {ClusterEvent.POD_DELETE, ClusterEvent.POD_UPDATE, ClusterEvent.NODE_ADD, ClusterEvent.NODE_ALLOCATABLE}
    )

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Skip pods that request no device."""
        found = wanted(frame)
        return Ready(found, key=tuple((table.resource, ask) for table, ask in found)) if found else SKIP

    def filter(self, frame: Frame, state: Wanted) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        result = None
        for table, ask in state:
            fits = table.fits(ask, frame.rows)
            result = fits if result is None else result & fits
        assert result is not None
        return result

    def rejections(self, frame: Frame, state: Wanted) -> Sequence[Rejection]:
        """Return what no device of a node has; a node with too few devices is rejected permanently."""
        found = []
        for table, ask in state:
            short = ~table.fits(ask, frame.rows)
            hopeless = short & (table.count[frame.rows] < ask.devices)
            reason = f"node(s) had too little room on each {table.resource} device"
            found.append(Rejection(Code.UNSCHEDULABLE, reason, short & ~hopeless))
            found.append(
                Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, f"node(s) had too few {table.resource}", hopeless)
            )
        return [rejection for rejection in found if rejection.where.any()]
