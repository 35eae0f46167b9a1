"""What nodes offer to queues: usable nodes, less what pods of no queue use there.

A node is usable if new pods may come: it is Ready, not cordoned, not being deleted, and has no taint that Kubernetes
sets for its state. What pods of queues use on other nodes goes on to count, and so does the room under them: what is
free there does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from kube_policy_scheduler.cluster.node_info import NodeInfo
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray, NodeTable
from kube_policy_scheduler.cluster.requests import PodRequests

_OF_STATE = "node.kubernetes.io/"
"""How the keys of taints begin that Kubernetes sets for the state of a node."""
_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_USABLE = "usable by queues"
"""The key of the column."""


def is_usable(info: NodeInfo) -> bool:
    """Return whether new pods may come to a node. Taints of administrators do not count: pods may tolerate them.

    A node that says nothing of its state counts as Ready.
    """
    return (
        info.conditions.get("Ready", "True") == "True"
        and not info.node.spec.unschedulable
        and info.node.metadata.deletion_timestamp is None
        and not any(taint.effect in _REPELLING and taint.key.startswith(_OF_STATE) for taint in info.taints)
    )


def find_usable_in_steps(nodes: NodeTable) -> Iterator[None]:
    """Look at all nodes a few at a time, before something counts what the usable ones offer."""
    return nodes.valued_in_steps(_USABLE, is_usable, np.bool_)


class _Held:
    """What pods hold of resources on one node that is not usable, of queues and of none."""

    __slots__ = ("of_none", "of_queues", "pods")

    def __init__(self) -> None:
        self.of_queues: Counter[str] = Counter()
        self.of_none: Counter[str] = Counter()
        self.pods = 0


class UsableCapacity:
    """The capacity that queues share, by resource. Follows pods and nodes."""

    def __init__(self, nodes: NodeTable, resources: Sequence[str]) -> None:
        """Start without pods.

        Args:
            nodes: of the cluster.
            resources: that are counted.
        """
        self._nodes, self._resources = nodes, resources
        unusable = np.flatnonzero(~self._usable()).tolist()
        self._unusable: dict[str, _Held] = {nodes.infos[row].name: _Held() for row in unusable}
        """By node, also those that are not in the table, as far as they have pods."""
        self._of_none: Counter[str] = Counter()
        """What pods of no queue hold on usable nodes."""
        self._stranded: Counter[str] = Counter()
        """What pods of queues hold on other nodes."""
        self._offered: dict[str, int] | None = None

    def count(self, demand: PodRequests, node_name: str, step: int, *, of_queue: bool) -> bool:
        """Count a pod on a node (`step` 1), or no longer (-1); return whether the capacity has changed."""
        held = self._unusable.get(node_name)
        if held is None:
            if node_name in self._nodes.rows:
                if not of_queue:
                    self._add(self._of_none, demand, step)
                return not of_queue
            held = self._unusable[node_name] = _Held()
        self._add(held.of_queues if of_queue else held.of_none, demand, step)
        if of_queue:
            self._add(self._stranded, demand, step)
        held.pods += step
        if not held.pods and node_name not in self._nodes.rows:
            del self._unusable[node_name]  # pods may name any number of nodes
        return of_queue

    def shift(self, amounts: Iterable[tuple[int, int]], step: int) -> None:
        """Count amounts, by the place of their resource, as held by pods of no queue on usable nodes (`step` 1, -1)."""
        for place, amount in amounts:
            self._of_none[self._resources[place]] += step * amount

    def node_changed(self, name: str, pods: Iterable[tuple[PodRequests, bool]]) -> None:
        """Take over the state of a node that came, changed or went.

        Args:
            name: of the node.
            pods: what each counted pod there requests, and whether it is of a queue; read only if the node has become
                usable, or is usable no longer.
        """
        self._offered = None
        row = self._nodes.rows.get(name)
        usable, was_usable = row is not None and is_usable(self._nodes.infos[row]), name not in self._unusable
        if usable == was_usable:
            if row is None and name in self._unusable and not self._unusable[name].pods:
                del self._unusable[name]
            return
        if usable:
            held = self._unusable.pop(name)
            self._of_none.update(held.of_none)
            self._stranded.subtract(held.of_queues)
            return
        held = _Held()
        for demand, of_queue in pods:
            self._add(held.of_queues if of_queue else held.of_none, demand, 1)
            held.pods += 1
        self._of_none.subtract(held.of_none)
        self._stranded.update(held.of_queues)
        if held.pods or row is not None:
            self._unusable[name] = held

    def offered(self, resource: str) -> int:
        """Return how much of a resource usable nodes offer, used or free, in column units."""
        if self._offered is None:
            self._offered = {}
        offered = self._offered.get(resource)
        if offered is None:
            offered = self._offered[resource] = int(self._nodes.allocatable(resource)[self._usable()].sum())
        return offered

    def of(self, resource: str) -> int:
        """Return how much of a resource queues share, in column units; below 0 if pods of no queue use more."""
        offered = self.offered(resource)
        return offered + self._stranded.get(resource, 0) - self._of_none.get(resource, 0)  # 10 times as fast as []

    def rows(self) -> IntArray:
        """Return the rows of usable nodes, `int64[usable nodes]`, ascending."""
        return np.flatnonzero(self._usable())

    def _usable(self) -> BoolArray:
        return self._nodes.valued(_USABLE, is_usable, np.bool_)

    def _add(self, counts: Counter[str], demand: PodRequests, step: int) -> None:
        requests = demand.requests
        for name in self._resources:
            amount = 1 if name == "pods" else requests.get(name, 0)
            if amount:
                counts[name] += step * amount
