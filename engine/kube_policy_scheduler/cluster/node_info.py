"""One node as it is kept outside the columns, and what differs between two states of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.requests import NATIVE, Amounts, amounts

MOST_RESOURCES = 256
"""Resources of one node that count, besides cpu, memory, ephemeral storage and pods. No real node has so many, and each
costs columns over all nodes. Of more the first by name count."""
HOSTNAME_LABEL = "kubernetes.io/hostname"
STATIC_CHANGES = frozenset(
    {"added", "labels", "taints", "unschedulable", "conditions", "annotations", "features", "addresses", "machine"}
)
"""Changes of what pods do not change: static columns and cached results depend on it."""
CHANGES = STATIC_CHANGES | {"allocatable", "images"}
"""What `NodeTable.set` may report to have changed."""


@dataclass(eq=False, slots=True)
class NodeInfo:
    """What is known of one node outside its columns."""

    name: str
    row: int
    node: objects.Node
    allocatable: Amounts
    labels: dict[str, str]
    taints: tuple[objects.Taint, ...]
    conditions: dict[str, str]
    images: dict[str, int] = field(default_factory=dict)
    """Size in bytes by image name; of several sizes the first listed."""

    @property
    def hostname(self) -> str | None:
        """Return the label `kubernetes.io/hostname`."""
        return self.labels.get(HOSTNAME_LABEL)


def allocatable(node: objects.Node) -> Amounts:
    """Return what the node offers. Capacity is ignored: the API server copies it where it applies."""
    found = amounts(node.status.allocatable)
    if len(found) > MOST_RESOURCES:
        others = sorted(found.keys() - NATIVE)
        for resource in others[MOST_RESOURCES:]:
            del found[resource]
    return found


def changes_between(old: NodeInfo, new: NodeInfo) -> frozenset[str]:
    """Return what differs, as names from `CHANGES`."""
    pairs = {
        "labels": (old.labels, new.labels),
        "taints": (old.taints, new.taints),
        "unschedulable": (old.node.spec.unschedulable, new.node.spec.unschedulable),
        "allocatable": (old.allocatable, new.allocatable),
        "conditions": (old.conditions, new.conditions),
        "annotations": (old.node.metadata.annotations, new.node.metadata.annotations),
        "images": (old.images, new.images),
        "features": (old.node.status.declared_features, new.node.status.declared_features),
        "addresses": (old.node.status.addresses, new.node.status.addresses),
        "machine": (_machine(old.node), _machine(new.node)),
    }
    return frozenset(name for name, (before, after) in pairs.items() if before != after)


def _machine(node: objects.Node) -> tuple[object, ...]:
    """Return what a node reports that reboots and upgrades change, and the start times of its conditions."""
    status = node.status
    since = [(each.type, each.last_transition_time) for each in status.conditions or ()]
    return status.node_info, status.capacity or status.allocatable, since, node.spec.provider_id
