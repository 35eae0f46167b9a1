"""Devices of nodes, such as GPUs: how much of each is free, and which of them a pod holds. Knows no policy.

A node declares its devices by an extended resource, `nvidia.com/gpu: 8`, and that they may be shared by a
second one that counts their thousandths, `nvidia.com/gpu-milli: 8000`. A pod requests whole devices by the first and
a share of one device by the second: `nvidia.com/gpu-milli: 460`. So both are in the pod's template, and
kube-scheduler's own filter keeps the sums; what is kept here is that a share must fit on *one* device.

The devices that a pod got are written to its annotation `policy-scheduler/devices` with the binding, so that they
are known after a restart. It counts for bound pods alone, and only while it is believed: anyone who creates a pod can
write it too. Other pods are assumed to have the devices that this scheduler would have given them.

Tables are made on first use, and then kept up to date: without devices this costs nothing. They
are made only of what some node offers: pods may request shares of any resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.nodes import BoolArray, NodeTable, Rows
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate

WHOLE = 1000
"""Thousandths of one device."""
SHARE_SUFFIX = "-milli"
"""The suffix of the resource of shares after the name of the resource of whole devices."""
ANNOTATION = "policy-scheduler/devices"
MOST_DEVICES = 256
"""Devices of one node that are tracked one by one; further devices are not shared."""

_MOST_WANTED = 1024
"""Deleted pods whose devices are remembered."""

RoomArray: TypeAlias = NDArray[np.int32]
Chosen: TypeAlias = tuple[int, ...]
"""Numbers of devices on their node: the whole ones, then that of the share."""


class Ask(NamedTuple):
    """What a pod requests of the devices of one resource."""

    whole: int
    share: int
    """Thousandths of one more device."""

    @property
    def devices(self) -> int:
        """Return how many devices it touches."""
        return self.whole + (self.share > 0)

    @property
    def amount(self) -> float:
        """Return it in devices."""
        return self.whole + self.share / WHOLE


NOTHING = Ask(0, 0)


def ask_of(template: PodTemplate, resource: str) -> Ask:
    """Return what pods of a template request of a device resource."""
    key = ("devices", resource)
    known: Ask | None = template.memo.get(key)
    if known is None:
        requests = template.requests
        whole, share = requests.get(resource, 0), requests.get(resource + SHARE_SUFFIX, 0)
        if share % WHOLE == 0:  # whole devices, in thousandths
            whole, share = whole + share // WHOLE, 0
        known = template.memo[key] = Ask(whole, share) if whole or share else NOTHING
    return known


class DeviceTable:
    """The devices of one resource on all nodes."""

    def __init__(self, resource: str, nodes: NodeTable) -> None:
        self.resource = resource
        self._nodes = nodes
        self._held: dict[str, Chosen] = {}
        self._count: RoomArray = np.clip(nodes.allocatable(resource), 0, MOST_DEVICES).astype(np.int32)
        devices = np.arange(self._count.max(initial=1))
        self._free: RoomArray = np.where(devices < self._count[:, None], WHOLE, 0).astype(np.int32)

    @property
    def free(self) -> RoomArray:
        """Return `int32[nodes, devices]`: free thousandths; 0 where a node lacks the device."""
        return self._free[: self._nodes.size]

    @property
    def count(self) -> RoomArray:
        """Return `int32[nodes]`: how many devices there are."""
        return self._count[: self._nodes.size]

    def held(self, uid: str) -> Chosen | None:
        """Return the devices that a pod has, None if it has none here."""
        return self._held.get(uid)

    def all_held(self) -> Mapping[str, Chosen]:
        """Return the devices of all pods that have some, by uid."""
        return self._held

    def fits(self, ask: Ask, rows: Rows) -> BoolArray:
        """Return `bool[rows]`: whether the devices that are free suffice."""
        free = self.free[rows]
        result: BoolArray = (free >= WHOLE).sum(axis=1) >= ask.whole
        if ask.share:
            result &= (free >= ask.share).sum(axis=1) > ask.whole
        return result

    # --- changes -------------------------------------------------------------------------------------

    def set_row(self, row: int, pods: Iterable[PodInfo]) -> None:
        """Set the number of devices of a node, with the pods that hold some of them."""
        count = max(min(self._nodes.infos[row].allocatable.get(self.resource, 0), MOST_DEVICES), 0)
        rows, width = self._free.shape
        if row >= rows or count > width:
            grown = np.zeros((max(rows, 2 * row if row >= rows else rows, row + 1), max(width, count)), np.int32)
            grown[:rows, :width] = self._free
            self._free = grown
            self._count = np.concatenate((self._count, np.zeros(len(grown) - rows, np.int32)))
        self._count[row] = count
        self._free[row] = 0
        self._free[row, :count] = WHOLE
        for pod in pods:
            self._take(row, ask_of(pod.template, self.resource), self._held.get(pod.uid, ()), 1)

    def move(self, source: int, target: int) -> None:
        """Follow a node into another row."""
        self._free[target], self._count[target] = self._free[source], self._count[source]

    def place(self, pod: PodInfo, row: int, *, wanted: Chosen | None, said: Chosen | None) -> None:
        """Give a pod its devices: those wanted if they are free, else those recorded for it, else the fullest."""
        ask = ask_of(pod.template, self.resource)
        if not ask.devices:
            return
        chosen = wanted if wanted is not None and self._are_free(row, ask, wanted) else None
        if chosen is None:  # a pod has the devices that are recorded for it, no matter which other pod has them
            chosen = said
        if chosen is None or len(chosen) != ask.devices or max(chosen) >= self._count[row]:
            chosen = fullest(self._free[row], ask)
        if chosen is None:  # it was bound without a check whether it fits
            chosen = tuple(int(i) for i in np.argsort(-self._free[row], kind="stable")[: ask.devices])
        self._held[pod.uid] = chosen
        self._take(row, ask, chosen, 1)

    def displace(self, pod: PodInfo, row: int) -> None:
        """Release a pod's devices."""
        chosen = self._held.pop(pod.uid, None)
        if chosen is not None:
            self._take(row, ask_of(pod.template, self.resource), chosen, -1)

    def _are_free(self, row: int, ask: Ask, chosen: Chosen) -> bool:
        if len(chosen) != ask.devices or max(chosen) >= self._count[row]:
            return False
        free = self._free[row]
        return all(free[d] >= (WHOLE if place < ask.whole else ask.share) for place, d in enumerate(chosen))

    def _take(self, row: int, ask: Ask, chosen: Chosen, step: int) -> None:
        for place, device in enumerate(chosen):
            if device < self._count[row]:
                self._free[row, device] -= step * (WHOLE if place < ask.whole else ask.share)


def fullest(free: RoomArray, ask: Ask) -> Chosen | None:
    """Return the first free devices, and for a share the device with the least room that suffices; None: none do.

    Args:
        free: `int32[devices]`
        ask: the request.
    """
    return choose(free, ask, lambda fitting: int(fitting[free[fitting].argmin()]))


def choose(free: RoomArray, ask: Ask, pick: Callable[[NDArray[np.int64]], int]) -> Chosen | None:
    """Return the first free devices, and for a share one of those that it fits on; None if they do not suffice.

    Args:
        free: `int32[devices]`
        ask: the request.
        pick: chooses among the numbers of the devices that a share fits on.
    """
    whole = np.flatnonzero(free >= WHOLE)[: ask.whole] if ask.whole else _NONE
    if len(whole) < ask.whole:
        return None
    chosen = tuple(whole.tolist())
    if not ask.share:
        return chosen
    fitting = np.flatnonzero(free >= ask.share)
    if ask.whole:
        fitting = fitting[~np.isin(fitting, whole)]
    return (*chosen, pick(fitting)) if len(fitting) else None


def in_order(free: RoomArray, ask: Ask, devices: Sequence[int]) -> Chosen | None:
    """Return the first devices of an order that suffice; None if they do not.

    Args:
        free: `int32[devices]`
        ask: the request.
        devices: numbers of devices, the preferred ones first.
    """
    whole = [device for device in devices if free[device] >= WHOLE][: ask.whole]
    if len(whole) < ask.whole:
        return None
    if not ask.share:
        return tuple(whole)
    share = next((device for device in devices if device not in whole and free[device] >= ask.share), None)
    return None if share is None else (*whole, share)


_NONE = np.zeros(0, np.int64)


def annotated(pod: PodInfo) -> dict[str, Chosen]:
    """Return the devices that a pod's annotation names, by resource; what cannot be read is left out."""
    found: dict[str, Chosen] = {}
    for part in pod.annotations.get(ANNOTATION, "").split(";"):
        resource, equals, numbers = part.strip().partition("=")
        items = numbers.split(",")
        if equals and all(item.isascii() and item.isdigit() and len(item) < 6 for item in items):
            chosen = tuple(int(item) for item in items)
            if len(set(chosen)) == len(chosen):
                found[resource] = chosen
    return found


def annotation(devices: Mapping[str, Chosen]) -> str:
    """Return the annotation's text: `nvidia.com/gpu=0,3`."""
    return ";".join(f"{resource}={','.join(map(str, chosen))}" for resource, chosen in sorted(devices.items()))


class Devices:
    """The tables of a cluster, by resource."""

    def __init__(self, nodes: NodeTable, pods_by_node: Mapping[str, Mapping[str, PodInfo]]) -> None:
        self.tables: dict[str, DeviceTable] = {}
        """Those that were requested."""
        self._nodes = nodes
        self._pods_by_node = pods_by_node
        self._wanted: KeptView[str, Mapping[str, Chosen]] = KeptView(most=_MOST_WANTED)
        self._believed = True

    def believe(self, believed: bool) -> None:
        """Set whether annotations count from now on; what is known of a pod by other means does not change."""
        if believed is self._believed:
            return
        self._believed = believed
        for resource, before in self.tables.items():
            self.tables[resource] = self._made(resource, before)
        if self.tables:
            self._nodes.static_changes.note_all()

    def shared(self) -> tuple[str, ...]:
        """Return the device resources that some node offers shares of."""
        return self._nodes.derive("shared-devices", self._shared)

    def _shared(self) -> tuple[str, ...]:
        names = self._nodes.resources()
        return tuple(n.removesuffix(SHARE_SUFFIX) for n in names if n.endswith(SHARE_SUFFIX) and "/" in n)

    def table(self, resource: str) -> DeviceTable:
        """Return the devices of a resource, made on first use; an empty one is not kept if no node has any."""
        table = self.tables.get(resource)
        if table is None and not {resource, resource + SHARE_SUFFIX} & self._nodes.counted:
            return DeviceTable(resource, self._nodes)
        if table is None:
            table = self.tables[resource] = self._made(resource)
            self._nodes.static_changes.note_all()  # whole devices are now tracked one by one
        return table

    def forget(self, resource: str) -> None:
        """Forget the devices that no node offers; pods that return with them get the same ones."""
        table = self.tables.get(resource.removesuffix(SHARE_SUFFIX))
        if table is None or {table.resource, table.resource + SHARE_SUFFIX} & self._nodes.counted:
            return
        del self.tables[table.resource]
        for uid, chosen in table.all_held().items():
            self.want(uid, {**(self._wanted.get(uid) or {}), table.resource: chosen})

    def _made(self, resource: str, before: DeviceTable | None = None) -> DeviceTable:
        table = DeviceTable(resource, self._nodes)
        for info in self._nodes.infos:
            there = self._pods_by_node.get(info.name, {}).values()
            said = {pod.uid: chosen for pod in there if (chosen := self._said(pod).get(resource)) is not None}
            # pods with recorded devices first: the others get the rest
            for pod in sorted(there, key=lambda pod: pod.uid not in said):
                held = before.held(pod.uid) if before is not None and pod.uid not in said else None
                wanted = held or (self._wanted.get(pod.uid) or {}).get(resource)
                table.place(pod, info.row, wanted=wanted, said=said.get(pod.uid))
        return table

    def _said(self, pod: PodInfo) -> dict[str, Chosen]:
        """Return the devices that are recorded for a pod; no scheduler wrote the annotation of a pending pod."""
        return annotated(pod) if self._believed and pod.node_name else {}

    def add_node(self, row: int) -> None:
        """Follow a new node, before its pods are counted."""
        for table in self.tables.values():
            table.set_row(row, ())

    def set_node(self, name: str, row: int) -> None:
        """Follow a change of what a node offers."""
        for table in self.tables.values():
            table.set_row(row, self._pods_by_node.get(name, {}).values())

    def move(self, source: int, target: int) -> None:
        """Follow a node into another row."""
        for table in self.tables.values():
            table.move(source, target)

    def want(self, uid: str, devices: Mapping[str, Chosen]) -> None:
        """Set the devices that a pod gets when it is next added to a node."""
        self._wanted.set(uid, devices)

    def count(self, pod: PodInfo, row: int, step: int) -> None:
        """Count a pod on a node (step 1) or no longer (-1)."""
        if step > 0:
            wanted = self._wanted.pop(pod.uid) or {}
            said = self._said(pod)
            for table in self.tables.values():
                table.place(pod, row, wanted=wanted.get(table.resource), said=said.get(table.resource))
        else:
            held = self.held(pod.uid)
            if held:  # many are restored: after a dry run, or with a newer state
                self.want(pod.uid, held)
            for table in self.tables.values():
                table.displace(pod, row)

    def held(self, uid: str) -> dict[str, Chosen]:
        """Return the devices that a pod has, by resource."""
        if not self.tables:
            return {}
        return {name: chosen for name, table in self.tables.items() if (chosen := table.held(uid)) is not None}
