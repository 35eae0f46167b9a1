"""One node as it is kept outside the columns, and what differs between two states of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from operator import attrgetter, is_
from sys import intern
from typing import Any, TypeVar

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.requests import NATIVE, Amounts, amounts

MOST_RESOURCES = 256
"""Resources of one node that count, besides cpu, memory, ephemeral storage and pods. No real node has so many, and each
costs columns over all nodes. Of more the first by name count."""
HOSTNAME_LABEL = "kubernetes.io/hostname"
PARTS: Mapping[str, tuple[str, ...]] = {
    "identity": (
        "metadata.uid",
        "metadata.creation_timestamp",
        "metadata.deletion_timestamp",
        "metadata.owner_references",
        "metadata.finalizers",
    ),
    "annotations": ("metadata.annotations",),
    "unschedulable": ("spec.unschedulable",),
    "features": ("status.declared_features",),
    "addresses": ("status.addresses",),
    "images": ("status.images",),
    "machine": (
        "spec.provider_id",
        "spec.pod_preemption_policy",
        "status.node_info",
        "status.capacity",
    ),
}
"""What of a node belongs to which change. What is decoded is readable, so each part of `objects.Node` is here, in
`DERIVED` or in `UNREAD`: a test checks it."""
DERIVED: Mapping[str, tuple[str, ...]] = {
    "labels": ("metadata.labels",),
    "taints": ("spec.taints",),
    "conditions": ("status.conditions",),
    "allocatable": ("status.allocatable",),
}
"""Parts of which what `NodeInfo` made of them counts, such as the statuses of conditions (since when they are so is a
change of the machine) and exact amounts; it is right even if somebody has changed the object in place."""
UNREAD = ("metadata.name", "metadata.namespace", "metadata.resource_version", "metadata.generation")
"""The name says which node it is, and the others change with any change."""
CHANGES = frozenset((*PARTS, *DERIVED))
"""What `NodeTable.set` may report to have changed."""
STATIC_CHANGES = (CHANGES - {"allocatable", "images"}) | {"added"}
"""Changes of what pods do not change: static columns and cached results depend on it."""


class NodeInfo(msgspec.Struct, eq=False, gc=False):
    """What is known of one node outside its columns. There may be a million: the garbage collector passes them over."""

    name: str
    row: int
    node: objects.Node
    allocatable: Amounts
    labels: dict[str, str]
    taints: tuple[objects.Taint, ...]
    conditions: dict[str, str]

    @property
    def images(self) -> dict[str, int]:
        """Return the size in bytes by image name, made on each call; of several sizes the first listed."""
        images = self.node.status.images or ()
        return {name: each.size_bytes for each in reversed(images) for name in each.names or ()}

    @property
    def hostname(self) -> str | None:
        """Return the label `kubernetes.io/hostname`."""
        return self.labels.get(HOSTNAME_LABEL)


_MOST_SHARED = 1 << 14
"""Parts of nodes that are kept to be shared; beyond it all are forgotten, and shared again from then on."""
_LONGEST_SHARED = 2_048
"""Characters of a part that is kept to be shared, about."""
SharedT = TypeVar("SharedT")


class SharedParts:
    """Parts that many nodes have in common, such as images, conditions and texts: equal ones become one object."""

    def __init__(self) -> None:
        self._parts: dict[Hashable, Any] = {}
        self._image_lists: dict[int, list[objects.ContainerImage]] = {}
        """Lists whose images are shared, by identity: nodes of a long list may share such lists."""
        self._last = objects.NodeStatus()
        """Parts of the status of the last node: the next one is mostly of the same kind."""
        self._annotations: dict[str, str] = {}
        """Of the last node."""
        self._offered: Amounts = {}
        self._statuses: dict[str, str] = {}
        """By type of condition, of the last conditions."""

    def share(self, node: objects.Node, before: objects.Node | None) -> Amounts:
        """Replace what is equal to a part of another node with that part; return what the node offers, shared too.

        before: its state before.
        """
        meta, status, last = node.metadata, node.status, self._last
        meta.name = intern(meta.name)  # mostly a label, too
        labels = meta.labels or {}
        if before is not None and labels == before.metadata.labels:
            meta.labels = before.metadata.labels
        else:
            for name, text in labels.items():
                labels[name] = intern(text)  # msgspec keeps keys
        if before is not None and meta.annotations == before.metadata.annotations:
            meta.annotations = before.metadata.annotations
        elif meta.annotations:
            meta.annotations = self._annotations = _sharing(meta.annotations, self._annotations)
        images = status.images
        if images and self._image_lists.get(id(images)) is not images:
            known = self._parts
            for number, each in enumerate(images):
                names = each.names
                key = (each.size_bytes, *names) if names else (each.size_bytes,)
                found_image: objects.ContainerImage | None = known.get(key)
                images[number] = self._shared(key, each) if found_image is None else found_image
            if len(self._image_lists) >= _MOST_SHARED:
                self._image_lists.clear()
            self._image_lists[id(images)] = images
        for address in status.addresses or ():
            address.type = intern(address.type)
            if address.address == meta.name:  # the others are the node's alone
                address.address = meta.name
        # those of a list have parts in common, so mostly they are the same objects already
        if (info := status.node_info) is not None and info is not last.node_info:
            if info != last.node_info:
                last.node_info = self._shared(msgspec.structs.astuple(info), info)
            status.node_info = last.node_info
        if (capacity := status.capacity) and capacity is not last.capacity:
            if capacity != last.capacity:
                last.capacity = self._shared(("capacity", *capacity.items()), capacity)
            status.capacity = last.capacity
        if not status.allocatable:
            return {}
        if status.allocatable is not last.allocatable and status.allocatable != last.allocatable:
            whole = ("allocatable", *status.allocatable.items())
            found: tuple[objects.Resources, Amounts] | None = self._parts.get(whole)
            if found is None:
                found = self._shared(whole, (status.allocatable, allocatable(node)))
            last.allocatable, self._offered = found
        status.allocatable = last.allocatable
        return self._offered

    def statuses(self, status: objects.NodeStatus) -> dict[str, str]:
        """Return the status by type of condition, shared too, as the conditions are."""
        conditions = status.conditions
        if conditions is None:
            return self._shared(("statuses",), {})
        if conditions == self._last.conditions:
            status.conditions = self._last.conditions
            return self._statuses
        for condition in conditions:
            condition.type, condition.status = intern(condition.type), intern(condition.status)
            if condition.last_transition_time is not None:
                condition.last_transition_time = intern(condition.last_transition_time)
        found = {each.type: each.status for each in conditions}
        self._last.conditions, self._statuses = conditions, self._shared(("statuses", *found.items()), found)
        return self._statuses

    def _shared(self, key: Hashable, part: SharedT) -> SharedT:
        found: SharedT | None = self._parts.get(key)
        if found is None:
            if len(repr(key)) > _LONGEST_SHARED:
                return part
            if len(self._parts) >= _MOST_SHARED:
                self._parts.clear()
            self._parts[key] = found = part
        return found


def _sharing(texts: dict[str, str], last: dict[str, str]) -> dict[str, str]:
    """Return the same texts, sharing keys with all nodes, and values with the last node where they are equal.

    Other values than the last node's are mostly of one node alone, such as its identifier.
    """
    if not all(map(is_, texts, map(intern, texts))):  # else the dictionary itself may share its keys
        texts = {intern(key): text for key, text in texts.items()}
    for key, text in texts.items():
        known = last.get(key)
        if known is not None and known == text:
            texts[key] = known
    return texts


def allocatable(node: objects.Node) -> Amounts:
    """Return what the node offers. Capacity is ignored: the API server copies it where it applies."""
    found = amounts(node.status.allocatable)
    if len(found) > MOST_RESOURCES:
        others = sorted(found.keys() - NATIVE)
        for resource in others[MOST_RESOURCES:]:
            del found[resource]
    return found


_READERS = [(name, attrgetter(path)) for name, paths in PARTS.items() for path in paths]


def changes_between(old: NodeInfo, new: NodeInfo) -> frozenset[str]:
    """Return what differs, as names from `CHANGES`; an empty list or map is as none."""
    before, after = old.node, new.node
    found = {name for name, read in _READERS if (read(before) or None) != (read(after) or None)}
    found.update(name for name in DERIVED if getattr(old, name) != getattr(new, name))
    if _since(before) != _since(after):
        found.add("machine")
    if "allocatable" in found and not (before.status.capacity and after.status.capacity):
        found.add("machine")  # what a node offers counts as its capacity where it reports none
    return frozenset(found)


def _since(node: objects.Node) -> list[tuple[str, str | None]]:
    return [(each.type, each.last_transition_time) for each in node.status.conditions or ()]
