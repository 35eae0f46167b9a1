"""Room for pods that wait: which few pods to move so that a pending pod, or a whole gang, gets its nodes. Pure.

Every pod that gives way has its new place in the plan before anything is evicted: its replacement is decided while all
of them still count where they are, as they terminate. Then the pending pod is decided with them gone. So the plan holds
when it is carried out in its order. Consolidation is the word of KAI Scheduler for this.

How few moves are enough is searched greedily: on each node the pods that need not go stay, the largest first. Beside
the number of moves stands a bound by resources alone; where the two are equal, the plan is the cheapest there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.victims import Budgets
from kube_policy_scheduler.tooling.capacity.seats import Seats, Stop, in_turn, never
from kube_policy_scheduler.tooling.cluster_state import ClusterState, is_of_node
from kube_policy_scheduler.tooling.rebalancing.moves import MoveBudgets, MoveRule, replacement_of, workload_of
from kube_policy_scheduler.tooling.rebalancing.plan import RebalanceOptions, SpentBudgets
from kube_policy_scheduler.tooling.staying import Staying

FITS = "it has a place without any move"
NO_NODE = "no node would take it, whichever pods moved away"
NOWHERE = "the pods that would have to give way have no other place"
BUDGET = "more pods would have to move than the budgets allow"
MOST_NODES = 200
"""Nodes that are tried for one pod, those first where the fewest pods must go."""


@dataclass(frozen=True, slots=True)
class RoomMove:
    """One pod to evict, where its replacement goes, and for whom."""

    pod: str
    uid: str
    workload: str
    source: str
    target: str
    room_for: str
    """`namespace/name` of the pending pod that gets its place."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One pending pod, and its node once the moves are made."""

    pod: str
    node: str
    """"" where no place was found."""
    moves: int
    """How many pods give way to it."""
    at_least: int
    """How many must give way by resources alone, whatever else the rules ask for."""
    why: str
    """Why there is no place, or that it needs no move."""


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """The moves that make room, in their order, and who gets it."""

    moves: tuple[RoomMove, ...]
    seats: tuple[Seat, ...]
    complete: bool

    @property
    def placed(self) -> int:
        """Return how many pending pods have a node in the end."""
        return sum(bool(seat.node) for seat in self.seats)


def plan_room(
    there: ClusterState,
    options: RebalanceOptions,
    pods: Sequence[PodInfo],
    *,
    stop: Stop = never,
    progress: Callable[[int, int], None] = lambda done, whole: None,
) -> RoomPlan:
    """Plan the moves that give pending pods a place; the cluster is as before in the end.

    A gang gets all of its places or none.
    """
    seats = Seats(there, options.ruleset, signals=options.signals, now=options.now, seed=options.seed)
    start = seats.mark()
    others = {pod.uid for pod in pods}
    seats.seat_all(in_turn(pod for pod in there.pending() if pod.uid not in others and not pod.terminating), stop=stop)
    search = _Search(seats, options)
    found: list[Seat] = []
    complete = True
    units: dict[object, list[PodInfo]] = {}
    for pod in in_turn(pods):
        gangs = seats.gangs(pod)
        units.setdefault(gangs[0].group if gangs else pod.uid, []).append(pod)
    for unit in units.values():
        progress(len(found), len(pods))
        if stop():
            complete = False
            break
        found += search.seat_together(unit)
    seats.undo_to(start)
    return RoomPlan(tuple(search.moves), tuple(found), complete)


class _Search:
    """Seats one pending pod after the other, each with all before it in place."""

    def __init__(self, seats: Seats, options: RebalanceOptions) -> None:
        self._seats, self._options = seats, options
        self._staying = Staying(seats.cluster, now=options.now, local_storage=options.local_storage)
        self._spent = SpentBudgets(options.budgets, Budgets(seats.cluster))
        self.moves: list[RoomMove] = []
        self._fresh: set[str] = set()
        """Replacements and pods that were seated: they do not move once more."""

    def seat(self, pod: PodInfo) -> Seat:
        """Return the place of a pod, with the fewest moves that are found; the moves are carried out."""
        decision = self._seats.seat(pod)
        if decision.host is not None:
            self._fresh.add(pod.uid)
            return Seat(pod.key, decision.host, 0, 0, FITS)
        if len(self.moves) >= self._options.budgets.total:
            return Seat(pod.key, "", 0, 0, BUDGET)
        bounds = self._bounds(pod)
        best: tuple[str, list[PodInfo]] | None = None
        why = NO_NODE
        for bound, name in bounds[:MOST_NODES]:
            if best is not None and bound >= len(best[1]):
                break  # no node from here on needs fewer
            found = self._on(pod, name)
            if isinstance(found, str):
                why = found if why == NO_NODE or found == BUDGET else why
            elif best is None or len(found) < len(best[1]):
                best = name, found
        least = bounds[0][0] if bounds else 0
        if best is None:
            return Seat(pod.key, "", 0, least, why)
        name, victims = best
        made = self._carry_out(pod, name, victims)
        assert made is not None, "it was carried out before, and undone"
        self.moves += made
        rule = MoveRule(None)
        for victim in victims:
            self._spent.spend(victim, name, rule)
        host = self._seats.cluster.node_of(pod.uid) or ""
        return Seat(pod.key, host, len(made), least, "")

    def seat_together(self, pods: Sequence[PodInfo]) -> list[Seat]:
        """Return the places of a pod, or of a gang: all of them, or none and no moves."""
        mark, before = self._seats.mark(), len(self.moves)
        found = [self.seat(pod) for pod in pods]
        size_of = self._seats.cluster.counters.group_size
        short = next((gang for gang in self._seats.gangs(pods[0]) if gang.filled(size_of) < gang.size), None)
        if short is None:
            return found
        self._seats.undo_to(mark)
        del self.moves[before:]
        why = f"{short}, and only some of them get a place"
        return [Seat(seat.pod, "", 0, seat.at_least, why if seat.node else seat.why) for seat in found]

    def _movable(self, name: str) -> list[PodInfo]:
        """Return the pods of a node that may give way, the largest first."""
        found = []
        for pod in self._seats.cluster.pods_on(name).values():
            rules = self._options.ruleset.rules(pod)
            if pod.uid in self._fresh or pod.terminating or is_of_node(pod) or rules is None:
                continue
            if pod.template.spec.resource_claims or self._seats.gangs(pod) or not self._options.wanted(pod):
                continue
            if not self._staying.reason(pod):
                found.append(pod)
        return sorted(found, key=lambda pod: (-sum(_sizes(pod, self._seats.cluster.nodes, name)), pod.key))

    def _bounds(self, pod: PodInfo) -> list[tuple[int, str]]:
        """Return nodes by how many of their pods must go at least, by resources alone; not those that are too small.

        Of the pods that may give way, the largest of each resource go first: fewer cannot be enough.
        """
        nodes, found = self._seats.cluster.nodes, []
        needed = {**pod.demand.requests, "pods": 1}
        for info in nodes.infos:
            row, least = nodes.rows[info.name], 0
            movable: list[PodInfo] | None = None
            for resource, amount in needed.items():
                offered = int(nodes.allocatable(resource)[row])
                used = int(nodes.pod_count[row]) if resource == "pods" else int(nodes.requested(resource)[row])
                missing = amount - (offered - used)
                if missing <= 0:
                    continue
                movable = self._movable(info.name) if movable is None else movable
                sizes = sorted((_amount(each, resource) for each in movable), reverse=True)
                enough = np.flatnonzero(np.cumsum(sizes) >= missing) if sizes else np.zeros(0)
                if not len(enough):
                    least = -1
                    break
                least = max(least, int(enough[0]) + 1)
            if least >= 0:
                found.append((least, info.name))
        return sorted(found)

    def _on(self, pod: PodInfo, name: str) -> list[PodInfo] | str:
        """Return the pods that give way on a node, or why that does not help; everything is as before."""
        seats, mark = self._seats, self._seats.mark()
        movable = self._movable(name)
        for victim in movable:
            seats.take_off(victim)
        row = seats.cluster.nodes.rows[name]
        try:
            if row not in seats.ranked(pod)[0]:
                return NO_NODE
            gone = []
            for victim in movable:  # as many as possible stay, the largest first
                seats.put(victim, name)
                if row not in seats.ranked(pod)[0]:
                    seats.take_off(victim)
                    gone.append(victim)
        finally:
            seats.undo_to(mark)
        if len(self.moves) + len(gone) > self._options.budgets.total:
            return BUDGET
        for victim in gone:
            if self._spent.refusal(victim, name, MoveRule(None)):
                return BUDGET
        if _over(gone, self._options.budgets):
            return BUDGET
        made = self._carry_out(pod, name, gone)
        seats.undo_to(mark)
        return gone if made is not None else NOWHERE

    def _carry_out(self, pod: PodInfo, name: str, victims: Sequence[PodInfo]) -> list[RoomMove] | None:
        """Move pods off a node and seat the pending pod; None, with some of it done, where that fails."""
        seats, made = self._seats, []
        for victim in victims:
            replacement = replacement_of(victim, self._options.now)
            decision = seats.decide(replacement)
            if decision.host is None or decision.host == name:
                return None
            seats.place(replacement, decision)
            self._fresh.add(replacement.uid)
            made.append(RoomMove(victim.key, victim.uid, workload_of(victim), name, decision.host, pod.key))
        for victim in victims:
            seats.take_off(victim)
        self._fresh.add(pod.uid)
        return made if seats.seat(pod).host is not None else None


def _over(pods: Sequence[PodInfo], budgets: MoveBudgets) -> bool:
    """Return whether the moves for one pod alone are more than a budget allows."""
    by: dict[tuple[str, str], int] = {}
    for pod in pods:
        for key in (("workload", workload_of(pod)), ("namespace", pod.namespace)):
            by[key] = by.get(key, 0) + 1
    limits = {"workload": budgets.workload, "namespace": budgets.namespace}
    return len(pods) > budgets.node or any(count > limits[kind] for (kind, _), count in by.items())


def _amount(pod: PodInfo, resource: str) -> int:
    return 1 if resource == "pods" else pod.demand.requests.get(resource, 0)


def _sizes(pod: PodInfo, nodes: NodeTable, name: str) -> list[float]:
    """Return what shares of its node a pod takes."""
    row = nodes.rows[name]
    return [amount / max(1, int(nodes.allocatable(each)[row])) for each, amount in pod.demand.requests.items()]
