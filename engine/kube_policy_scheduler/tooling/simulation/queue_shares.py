"""What queues use over time: as the policies' own tree counts it, or by the tree of another variant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaTree, QuotaUsage
from kube_policy_scheduler.tooling.unmet_guarantees import UnmetGuarantee

MOST_QUEUES = 64
"""Queues that are measured: those of the tree, then those by key in the order in which they get pods."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueMoment:
    """One moment of all queues known by then, in the order of `QueueRun.queues`."""

    used: FloatArray
    """`float64[queues, resources]`, in column units."""
    capacity: FloatArray
    """`float64[resources]`: what the nodes offer, usable or not."""
    usable: FloatArray
    """`float64[resources]`: what usable nodes offer, of which shares are parts in the fair order."""


@dataclass(frozen=True, slots=True)
class MeasuredQueue:
    """One queue of a run."""

    name: str
    parent: str | None
    guaranteed: tuple[int, ...]
    """By resource, in column units."""
    weight: float
    wait_seconds: tuple[float, ...] = ()
    """From arrival to binding, of each of its pods that was bound; empty where pods do not wait."""
    evicted: int = 0
    """Its pods; those of queues below it count, here as in all else."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueRun:
    """The queues of one run. Shares are parts of what the nodes offer at the moment."""

    queues: tuple[MeasuredQueue, ...]
    resources: tuple[str, ...]
    moments: tuple[QueueMoment, ...]
    """One for each sample of the run."""
    left: int = 0
    """Queues by key that are not measured, because there are too many."""

    def __eq__(self, other: object) -> bool:
        """Return whether the same was measured."""
        return isinstance(other, QueueRun) and list(self._values()) == list(other._values())

    __hash__ = None  # type: ignore[assignment]

    def _values(self) -> Iterator[object]:
        yield from (self.queues, self.resources, self.left)
        for each in self.moments:
            yield each.used.tolist(), each.capacity.tolist(), each.usable.tolist()

    def guaranteed(self, queue: int, resource: int) -> FloatArray:
        """Return `float64[moments]`: the share of a resource that is guaranteed to a queue; 0 where there is none."""
        amount = self.queues[queue].guaranteed[resource]
        offered = (moment.capacity[resource] for moment in self.moments)
        return np.array([amount / most if most else 0.0 for most in offered])

    def used(self, queue: int, resource: int) -> FloatArray:
        """Return `float64[moments]`: the share of a resource that the pods of a queue use."""
        return np.array(
            [
                moment.used[queue, resource] / max(moment.capacity[resource], 1.0) if queue < len(moment.used) else 0.0
                for moment in self.moments
            ]
        )

    def borrowed(self, queue: int, resource: int) -> FloatArray:
        """Return `float64[moments]`: what of it is above the guarantee."""
        result: FloatArray = np.maximum(self.used(queue, resource) - self.guaranteed(queue, resource), 0.0)
        return result

    def shares(self, queue: int) -> FloatArray:
        """Return `float64[moments]`: the largest borrowed share by weight, as the fair order compares queues."""
        of, shares = self.queues[queue], np.zeros(len(self.moments))
        for at, moment in enumerate(self.moments):
            if queue < len(moment.used):
                above = np.maximum(moment.used[queue] - np.array(of.guaranteed, np.float64), 0.0)
                shares[at] = np.max(above / np.maximum(moment.usable, 1.0), initial=0.0) / of.weight
        return shares

    def unmet(self) -> list[UnmetGuarantee]:
        """Return the resources of which the queues at the top are guaranteed more than the nodes ever offered."""
        found = []
        for place, resource in enumerate(self.resources):
            together = sum(queue.guaranteed[place] for queue in self.queues if queue.parent is None)
            there = max((int(moment.capacity[place]) for moment in self.moments), default=0)
            if together > there:
                found.append(UnmetGuarantee(resource, together, there))
        return found

    def busy(self, resource: int) -> list[int]:
        """Return the queues without children that have a guarantee of a resource, or use it, in their order."""
        parents = {queue.parent for queue in self.queues}
        return [
            number
            for number, queue in enumerate(self.queues)
            if queue.name not in parents and (queue.guaranteed[resource] or self.used(number, resource).any())
        ]


class QueueMeasures:
    """Looks at the queues of one cluster."""

    def __init__(self, cluster: Cluster, tree: QuotaTree, *, decides: bool) -> None:
        """Make one; decides: whether the policies of the run have this tree, so that the cluster counts it."""
        self._cluster, self._tree, self._decides = cluster, tree, decides
        self._queues: dict[str, MeasuredQueue] = {}
        self._left: set[str] = set()
        self._waits: dict[str, list[float]] = {}
        self._evicted: Counter[str] = Counter()
        self._moments: list[QueueMoment] = []
        self._usage = self._counted()

    def _counted(self) -> QuotaUsage:
        # a tree that the cluster follows gives precedence by queues, so that of others is counted each time
        if self._decides:
            return self._cluster.track_usage(self._tree)
        return self._cluster.count_queues(self._tree)

    def sample(self) -> None:
        """Look at all queues."""
        usage = self._usage = self._counted()
        used: dict[str, list[int]] = {}
        for queue in usage.queues():
            if queue.name not in self._queues:
                if len(self._queues) >= MOST_QUEUES:
                    self._left.add(queue.name)
                    continue
                above = queue.parent
                parent = above.name if above is not None and above.parent is not None else None
                self._queues[queue.name] = MeasuredQueue(queue.name, parent, queue.minimum, queue.weight)
            used[queue.name] = queue.used
        nothing = [0] * len(self._tree.resources)
        table = [used.get(name, nothing) for name in self._queues]
        shape = len(table), len(nothing)
        usable, nodes, classes = usage.capacity(), self._cluster.nodes, self._tree.classes.values()
        offered = [
            usable[place] if place in classes else float(nodes.allocatable(name).sum(dtype=np.float64))
            for place, name in enumerate(self._tree.resources)
        ]
        self._moments.append(
            QueueMoment(np.array(table, np.float64).reshape(shape), np.array(offered), np.array(usable, np.float64))
        )

    def bound(self, pod: PodInfo, waited: float) -> None:
        """Note that a pod got its node after this many seconds."""
        queue = self._usage.quota_of(pod.template)
        for each in queue.path() if queue is not None else ():
            self._waits.setdefault(each.name, []).append(waited)

    def evicted(self, pod: PodInfo) -> None:
        """Note that a pod was evicted."""
        queue = self._usage.quota_of(pod.template)
        self._evicted.update(each.name for each in (queue.path() if queue is not None else ()))

    def run(self) -> QueueRun:
        """Return what was measured."""
        queues = tuple(
            MeasuredQueue(
                each.name,
                each.parent,
                each.guaranteed,
                each.weight,
                tuple(self._waits.get(each.name, ())),
                self._evicted[each.name],
            )
            for each in self._queues.values()
        )
        return QueueRun(queues, self._tree.resources, tuple(self._moments), len(self._left))
