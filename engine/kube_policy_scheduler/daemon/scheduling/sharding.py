"""Which pods and which nodes are this replica's. Knows the members; how they are found is not its business.

Every node has one owner, and nothing but its owner places a pod on it: two replicas can't both count on the same
room. Every pod belongs to a unit (its namespace, as a rule), and the owner of the unit decides it, so that pods that
look at each other (spread, affinity, gangs, limits) are decided one after another. It takes a node of its own where
one will do. Else it passes the pod on: the pod is nominated to another's node, with a condition that says so, and the
node's owner looks again and binds it, or gives it back by ending the nomination. Until then it counts where it is
nominated. A nomination without that condition asks a node's owner to count the pod while victims of a preemption
end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, NodeTable
from kube_policy_scheduler.cluster.pods import PASSED_ON, PodInfo
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Code, Rejection
from kube_policy_scheduler.policy.units import COUNTED

_MOST_KEPT = 65536
NOT_OURS = "node(s) belong to another replica of the scheduler"


class Ring:
    """A set of members, and which key belongs to whom. Immutable, but for what it remembers.

    Rendezvous hashing: each member gets a number for a key, the highest has it. The answer is the same everywhere, and
    little of it changes when a member comes or goes. Of two members that know each other one always loses, whichever
    others they know: that is what hand-overs rest on.
    """

    __slots__ = ("_owners", "members")

    def __init__(self, members: Iterable[str] = ()) -> None:
        self.members = frozenset(members)
        self._owners: dict[str, str] = {}

    def owner(self, key: str) -> str | None:
        """Return the member that has a key; None where there are no members."""
        found = self._owners.get(key)
        if found is None and self.members:
            if len(self._owners) >= _MOST_KEPT:
                self._owners.clear()
            found = self._owners[key] = max(self.members, key=lambda member: (_number(member, key), member))
        return found


def _number(member: str, key: str) -> bytes:
    return blake2b(f"{member}\0{key}".encode(), digest_size=8).digest()


class Units(Protocol):
    """Policies, which bind pods together."""

    def unit(self, pod: PodInfo, *, by_pod: bool) -> str:
        """Return the unit of pods that one replica decides alone (`policy.units`)."""
        ...


_MOST_NARROWED = 1024
"""Profiles that are kept narrowed; a policy has one for each domain that its gangs are decided in."""


class Sharding:
    """One replica's part of the pods and nodes."""

    def __init__(self, identity: str, *, by_pod: bool = False) -> None:
        """by_pod: whether pods that no rule of a policy binds together are units of their own."""
        self.identity = identity
        self.ring = Ring()
        self._by_pod = by_pod
        self._policies: Units | None = None
        self._filter = NodeOwnership(self)
        self._narrowed: dict[tuple[Profile, bool], Profile] = {}

    def use(self, members: Iterable[str]) -> None:
        """Share with these from now on; this replica must be one of them."""
        self.ring = Ring(members)

    @property
    def is_alone(self) -> bool:
        """Whether everything is this replica's."""
        return self.ring.members == {self.identity}

    def owns_node(self, name: str) -> bool:
        """Return whether only this replica may place pods on a node."""
        return self.ring.owner(f"node/{name}") == self.identity

    def owns_unit(self, pod: PodInfo) -> bool:
        """Return whether the pod's unit is this replica's."""
        policies = self._policies
        unit = policies.unit(pod, by_pod=self._by_pod) if policies is not None else f"namespace/{pod.namespace}"
        return self.ring.owner(unit) == self.identity

    @property
    def decides_queues(self) -> bool:
        """Whether this replica decides the pods of queues: one does for all of them."""
        return self.ring.owner(COUNTED) == self.identity

    def is_ours(self, pod: PodInfo) -> bool:
        """Return whether a pending pod is this replica's to decide: by the node it was passed on for, or its unit."""
        return self.owns_node(pod.nominated_node) if is_passed_on(pod) else self.owns_unit(pod)

    def is_nominated_to_ours(self, pod: PodInfo) -> bool:
        """Return whether a pending pod of another replica is nominated to one of our nodes."""
        node = pod.nominated_node
        return bool(node) and self.owns_node(node) and not self.is_ours(pod)

    def passed_to(self, pod: PodInfo) -> str | None:
        """Return the node that a pending pod of ours was passed on for, None where it was not."""
        if not is_passed_on(pod) or self.owns_node(pod.nominated_node) or not self.owns_unit(pod):
            return None
        return pod.nominated_node

    def was_passed_here(self, pod: PodInfo) -> bool:
        """Return whether another replica chose one of our nodes for the pod."""
        return is_passed_on(pod) and self.owns_node(pod.nominated_node) and not self.owns_unit(pod)

    def narrowed(self, profile: Profile, *, preempts: bool) -> Profile:
        """Return the profile for nodes of ours alone."""
        found = self._narrowed.get((profile, preempts))
        if found is None:
            if len(self._narrowed) >= _MOST_NARROWED:
                self._narrowed.clear()
            found = profile.narrowed(self._filter, preempts=preempts)
            self._narrowed[profile, preempts] = found
        return found

    def own_nodes(self, nodes: NodeTable) -> BoolArray:
        """Return `bool[nodes]`: which are ours."""
        return self._filter.mask(nodes)

    def count_nodes(self, nodes: NodeTable) -> int:
        """Return how many nodes are ours."""
        return int(self.own_nodes(nodes).sum())

    def use_policies(self, policies: Units) -> None:
        """Divide pods by these policies from now on."""
        self._policies = policies
        self._narrowed.clear()


def is_passed_on(pod: PodInfo) -> bool:
    """Return whether the owner of the node that a pod is nominated to is to bind it.

    The condition names the node: beside it there may be a nomination of our own that the API server does not show yet.
    """
    node = pod.nominated_node
    return bool(node) and any(c.type == PASSED_ON and c.status == "True" and c.message == node for c in pod.conditions)


class NodeOwnership(FilterPlugin):
    """Lets a replica's own nodes pass; for a pod that was passed on, the node that was chosen alone."""

    name = "NodeOwnership"
    reads = Reads.POD | Reads.ELSEWHERE

    def __init__(self, sharding: Sharding) -> None:
        self._sharding = sharding
        self._kept: tuple[Ring, NodeTable, int, BoolArray] | None = None

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Name the only node that can be meant, where there is one."""
        if self._sharding.was_passed_here(frame.pod):
            return Ready(nodes=frozenset((frame.pod.nominated_node,)))
        return Ready()

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes that are ours."""
        found: BoolArray = self.mask(frame.cluster.nodes)[frame.rows]
        return found

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return which nodes are not ours."""
        return [Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, NOT_OURS, ~self.filter(frame, state))]

    def mask(self, nodes: NodeTable) -> BoolArray:
        """Return `bool[nodes]`: which are ours."""
        ring, kept = self._sharding.ring, self._kept
        if kept is not None and kept[0] is ring and kept[1] is nodes and kept[2] == nodes.version:
            return kept[3]
        owns = self._sharding.owns_node
        mask: BoolArray = np.fromiter((owns(name) for name in nodes.names), np.bool_, nodes.size)
        self._kept = (ring, nodes, nodes.version, mask)
        return mask
