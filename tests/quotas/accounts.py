"""What queues use, borrow and are guaranteed. Nothing is kept: every number is a sum over the pods of one state.

This is the model that the scheduler is checked against. It imports nothing of it, and is written to be read, not to be
fast. Amounts are integers: cpu in thousandths, everything else in units.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import inf

Amounts = Mapping[str, int]

PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")
"""Resources that are no devices, the strongest first."""


ASKS = "?"
"""To which node a pod is nominated that asks for room."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as a policy declares it."""

    name: str
    parent: str = ""
    minimum: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    lend: Amounts = field(default_factory=dict)
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Node:
    """A node; one that is not usable keeps its pods and takes no others."""

    name: str
    offers: Amounts
    usable: bool = True
    rack: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod in one state. It holds `node`, or is promised room on `promised`, or is pending."""

    name: str
    requests: Amounts
    queue: str = ""
    priority: int = 0
    gang: str = ""
    size: int = 0
    """Members without which the gang does not run."""
    role: str = ""
    needs: tuple[tuple[str, int], ...] = ()
    """How many members of which role the gang needs."""
    rack: bool = False
    """Whether all members must run in one rack."""
    queued: float = 0.0
    node: str = ""
    started: float = inf
    promised: str = ""
    leaving: bool = False
    is_back: bool = False
    """Whether it was evicted, and came again."""
    uid: str = ""
    """What the API server gave it; "": of a made-up case, in which each queue has a namespace of its name."""

    @property
    def rank(self) -> tuple[str, ...]:
        """Return what decides among pods that started at the same moment: the uid, which begins with the namespace."""
        return (self.uid,) if self.uid else (self.queue, self.name)

    @property
    def holds(self) -> bool:
        """Return whether it is on a node."""
        return bool(self.node)

    @property
    def pending(self) -> bool:
        """Return whether it counts nowhere."""
        return not self.node and not self.promised


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget of the pods that came together."""

    covers: frozenset[str]
    """The names of the pods."""
    allows: int
    """How many of them may be missing because they were evicted."""

    def left(self, state: State) -> int:
        """Return how many more of them may be evicted."""
        missing = (name for name in self.covers if name in state.pods)
        return max(0, self.allows - sum(state.pods[name].is_back and not state.pods[name].holds for name in missing))


def workload(pod: Pod) -> tuple[object, ...]:
    """Return what a pod has in common with those that can stand for it."""
    return pod.queue, pod.priority, pod.gang, pod.role, tuple(sorted(pod.requests.items()))


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that are decided together: one pod, a gang at its minimum, or one surplus member."""

    pods: tuple[Pod, ...]
    surplus: bool = False
    core: frozenset[str] = frozenset()
    """Of a gang with all its surplus: the names of those that it needs, by which it is guaranteed or not."""

    @property
    def names(self) -> frozenset[str]:
        """Return the names of its pods."""
        return frozenset(pod.name for pod in self.pods)

    @property
    def queue(self) -> str:
        """Return the queue of its pods; the cases here have no gangs of several queues."""
        return self.pods[0].queue

    @property
    def gang(self) -> str:
        """Return its gang; "" for a single pod."""
        return self.pods[0].gang

    @property
    def priority(self) -> int:
        """Return the highest priority of its pods."""
        return max(pod.priority for pod in self.pods)

    @property
    def started(self) -> float:
        """Return when the last of its pods started; infinite where one has yet to."""
        return max(pod.started for pod in self.pods)

    @property
    def holds(self) -> bool:
        """Return whether all its pods are on nodes."""
        return all(pod.holds for pod in self.pods)

    def wants(self, resource: str) -> int:
        """Return how much of a resource all its pods request."""
        return sum(pod.requests.get(resource, 0) for pod in self.pods)

    def resources(self) -> list[str]:
        """Return what its pods request."""
        return sorted({name for pod in self.pods for name, amount in pod.requests.items() if amount})


@dataclass(frozen=True, eq=False)
class State:
    """Queues, nodes and pods at one moment. A change makes another state."""

    queues: tuple[Queue, ...]
    nodes: tuple[Node, ...]
    pods: Mapping[str, Pod]
    surplus_first: frozenset[str] = frozenset()
    """Pods that come after equal ones: as the surplus of their gang, or where a guarantee does not reach for all."""
    budgets: tuple[Budget, ...] = ()

    # --- other states ---------------------------------------------------------------------------------

    def changed(self, pods: Iterable[Pod]) -> State:
        """Return the state in which these pods are as given."""
        return replace(self, pods={**self.pods, **{pod.name: pod for pod in pods}})

    def evicted(self, names: Collection[str]) -> State:
        """Return the state in which these pods hold nothing."""
        off = [replace(self.pods[name], node="", started=inf, promised="") for name in names]
        return self.changed(off)

    def settled(self) -> State:
        """Return the state when the evictions under way are done."""
        return self.evicted([name for name, pod in self.pods.items() if pod.leaving])

    def promised(self, unit: Unit, places: Mapping[str, str] | None = None) -> State:
        """Return the state in which a unit is nominated; without places, for its queues alone."""
        where = places or {}
        return self.changed(replace(pod, promised=where.get(pod.name, ASKS), node="") for pod in unit.pods)

    def violations(self, names: Collection[str]) -> int:
        """Return how many of some pods go although a budget does not allow it."""
        return sum(max(0, len(budget.covers.intersection(names)) - budget.left(self)) for budget in self.budgets)

    # --- the tree -------------------------------------------------------------------------------------

    @cached_property
    def by_name(self) -> dict[str, Queue]:
        """Return the queues."""
        return {queue.name: queue for queue in self.queues}

    def path(self, name: str) -> list[str]:
        """Return a queue and those above it, the top one last; nothing for pods of no queue."""
        found = []
        while name:
            found.append(name)
            name = self.by_name[name].parent
        return found

    def children(self, name: str) -> list[str]:
        """Return the queues right below one; "" for the top ones."""
        return [queue.name for queue in self.queues if queue.parent == name]

    def within(self, name: str, pod: Pod) -> bool:
        """Return whether a pod is of a queue or one below it."""
        return name in self.path(pod.queue)

    # --- sums -----------------------------------------------------------------------------------------

    @cached_property
    def counted(self) -> list[str]:
        """Return the resources that queues name, the strongest first; cpu and memory where they name none."""
        named = list(dict.fromkeys(r for q in self.queues for of in (q.minimum, q.maximum, q.lend) for r in of))
        if not named:
            return ["cpu", "memory"]
        return [r for r in named if r not in PLAIN] + [r for r in PLAIN if r in named]

    def _total(self, queue: str, resource: str, pods: Iterable[Pod]) -> int:
        return sum(pod.requests.get(resource, 0) for pod in pods if self.within(queue, pod))

    def used(self, queue: str, resource: str) -> int:
        """Return what the pods on nodes use, those that end too."""
        return self._total(queue, resource, (pod for pod in self.pods.values() if pod.holds))

    def will(self, queue: str, resource: str) -> int:
        """Return what a queue uses when the evictions under way are done."""
        return self._total(queue, resource, (pod for pod in self.pods.values() if not pod.pending and not pod.leaving))

    def promised_to(self, queue: str, resource: str) -> int:
        """Return what pods use that have no node yet, but room on one."""
        return self._total(queue, resource, (pod for pod in self.pods.values() if pod.promised and not pod.holds))

    def minimum(self, queue: str, resource: str) -> int:
        """Return a guarantee: declared, else that of the queues below together."""
        declared = self.by_name[queue].minimum.get(resource)
        if declared is not None:
            return declared
        return sum(self.minimum(child, resource) for child in self.children(queue))

    def borrowed(self, queue: str, resource: str) -> int:
        """Return what a queue uses above its guarantee."""
        return max(0, self.will(queue, resource) - self.minimum(queue, resource))

    def usable(self, resource: str) -> int:
        """Return what queues can share: of usable nodes, with what their pods hold elsewhere, less what others hold."""
        usable = {node.name for node in self.nodes if node.usable}
        total = sum(node.offers.get(resource, 0) for node in self.nodes if node.usable)
        for pod in self.pods.values():
            if pod.holds and not pod.queue:
                total -= pod.requests.get(resource, 0) if pod.node in usable else 0
            elif pod.holds and pod.node not in usable:
                total += pod.requests.get(resource, 0)
        return total

    def kept(self, queue: str, resource: str) -> int:
        """Return what a queue never lends."""
        lent = self.by_name[queue].lend.get(resource)
        return max(0, self.minimum(queue, resource) - lent) if lent is not None else 0

    @cached_property
    def keeps(self) -> bool:
        """Return whether any queue keeps something: else what fits on nodes may be used."""
        return any(self.kept(queue.name, resource) for queue in self.queues for resource in queue.lend)

    def charged(self, queue: str, resource: str) -> int:
        """Return what is off limits for others because of a queue."""
        own = sum(pod.requests.get(resource, 0) for pod in self.pods.values() if pod.queue == queue and not pod.pending)
        below = sum(self.charged(child, resource) for child in self.children(queue))
        return max(own + below, self.kept(queue, resource))

    def charged_in_all(self, resource: str) -> int:
        """Return what is charged to all queues."""
        return sum(self.charged(queue, resource) for queue in self.children(""))

    def free(self, node: Node, resource: str) -> int:
        """Return what is free on a node, without what others were promised there."""
        there = (pod for pod in self.pods.values() if node.name in (pod.node, pod.promised if not pod.node else ""))
        return node.offers.get(resource, 0) - sum(pod.requests.get(resource, 0) for pod in there)

    # --- units ----------------------------------------------------------------------------------------

    def units(self) -> Iterator[Unit]:
        """Yield what runs or was promised room, in units; what is leaving is in none."""
        gangs: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            if pod.pending or pod.leaving:
                continue
            if pod.gang:
                gangs.setdefault(pod.gang, []).append(pod)
            else:
                yield Unit((pod,))
        for members in gangs.values():
            minimum, surplus = self._divided(members)
            yield Unit(tuple(minimum))
            yield from (Unit((pod,), surplus=True) for pod in surplus)

    def _divided(self, members: list[Pod]) -> tuple[list[Pod], list[Pod]]:
        """Return the members that a gang needs, and its surplus, which goes in this order."""

        def place(pod: Pod) -> tuple[object, ...]:
            return not pod.holds, pod.name in self.surplus_first, -pod.priority, pod.started, pod.name

        line = sorted(members, key=place)
        needed: list[Pod] = []
        for role, number in members[0].needs:
            needed += [pod for pod in line if pod.role == role][:number]
        rest = [pod for pod in line if pod not in needed]
        more = max(0, members[0].size - len(needed))
        return needed + rest[:more], rest[more:][::-1]

    # --- guaranteed or borrowed -----------------------------------------------------------------------

    def strength(self, resource: str | None) -> int:
        """Return the place of a resource in the order of strength, 0 for the strongest; None is the weakest."""
        return self.counted.index(resource) if resource is not None else len(self.counted)

    def lead(self, queue: str, unit: Unit) -> str | None:
        """Return the strongest resource that a unit requests and a queue is guaranteed."""
        return next((r for r in self.counted if unit.wants(r) and self.minimum(queue, r) > 0), None)

    def guaranteed(self, queue: str) -> dict[frozenset[str], str]:
        """Return the units that are guaranteed in a queue, each with its rank."""
        if queue not in self._guaranteed:
            self._guaranteed[queue] = dict(self._walk(queue))
        return self._guaranteed[queue]

    @cached_property
    def _guaranteed(self) -> dict[str, dict[frozenset[str], str]]:
        return {}

    def _walk(self, queue: str) -> Iterator[tuple[frozenset[str], str]]:
        units = [unit for unit in self.units() if queue in self.path(unit.queue)]
        gangs = {unit.gang: unit for unit in units if unit.gang and not unit.surplus}

        def own(unit: Unit) -> tuple[float, ...]:
            # what runs started before what was promised room, though it be at the same moment
            return self.strength(self.lead(queue, unit)), -unit.priority, not unit.holds, unit.started

        def place(unit: Unit) -> tuple[object, ...]:
            first = max(own(unit), own(gangs[unit.gang])) if unit.surplus else own(unit)
            stands_back = not self.surplus_first.isdisjoint(unit.names)
            asks = any(pod.promised == ASKS for pod in unit.pods)  # after those that were promised room before
            return *first, asks, unit.surplus, stands_back, sorted(pod.rank for pod in unit.pods)

        left = {resource: self.minimum(queue, resource) for resource in self.counted}
        protected: set[frozenset[str]] = set()
        for unit in sorted(units, key=place):
            lead = self.lead(queue, unit)
            if lead is None or unit.wants(lead) > left[lead]:
                continue
            if unit.surplus and gangs[unit.gang].names not in protected:
                continue
            protected.add(unit.names)
            for resource in self.counted:
                left[resource] = max(0, left[resource] - unit.wants(resource))
            yield unit.names, lead

    def rank(self, unit: Unit, queues: Iterable[str]) -> str | None:
        """Return by which resource a unit is guaranteed at most strongly in some of the queues; None: it borrows."""
        ranks = [self.guaranteed(queue).get(unit.core or unit.names) for queue in queues]
        return min((rank for rank in ranks if rank is not None), key=self.strength, default=None)

    def share(self, queue: str, resources: Iterable[str]) -> Fraction:
        """Return the dominant share of what a queue borrows, by its weight."""
        weight = self.by_name[queue].weight
        return max(
            (Fraction(self.borrowed(queue, r), max(1, self.usable(r)) * weight) for r in resources),
            default=Fraction(0),
        )
