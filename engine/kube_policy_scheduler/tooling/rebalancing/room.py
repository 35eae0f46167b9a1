"""Room for pods that wait: which few pods to move so that a pending pod, or a whole gang, gets its nodes. Pure.

Every pod that gives way has its new place in the plan before anything is evicted: its replacement is decided while all
of them still count where they are, as they terminate. Then the pending pod is decided with them gone. So the plan holds
when it is carried out in its order. Consolidation is the word of KAI Scheduler for this.

How few moves are enough is searched greedily: on each node the pods that need not go stay, the largest first. Where a
solver is at hand and the cluster is small enough, an integer program chooses the pods that give way; the cycle decides
where each of them goes, and the plan counts only if all of it holds. Beside the number of moves stands a bound by
resources and budgets; where the two are equal, the plan is the cheapest there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.permit import GangRequirement
from kube_policy_scheduler.framework.victims import Budgets
from kube_policy_scheduler.tooling.capacity.room import SLOTS, requests_of
from kube_policy_scheduler.tooling.capacity.seats import Seats, Stop, in_turn, never
from kube_policy_scheduler.tooling.cluster_state import ClusterState, is_of_node
from kube_policy_scheduler.tooling.programs import Solver
from kube_policy_scheduler.tooling.rebalancing.cheapest import RoomProgram
from kube_policy_scheduler.tooling.rebalancing.moves import MoveRule, replacement_of, workload_of
from kube_policy_scheduler.tooling.rebalancing.plan import RebalanceOptions, SpentBudgets
from kube_policy_scheduler.tooling.staying import Staying

FITS = "it fits without a move"
NO_NODE = "it fits on no node, even if all pods that can move leave the node"
NOWHERE = "the pods that would have to move fit on no other node"
BUDGET = "more pods would have to move than the budgets allow"
TAKEN = "the plan with the fewest moves gives the room to other pods"
NO_SOLVER = "the extra `exact` is not installed"
TOO_LARGE = "the cluster is too large for the exact search"
NOT_PROVED = "the scheduling cycle rejected a move of the exact search"
TIMED_OUT = "the exact search found no plan in time"
_ROUNDS = 3
"""So many choices of the solver are proved; after that, the greedy plan is the answer."""
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
    why: str
    """Why there is no place, or that it needs no move."""


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """The moves that make room, in their order, and who gets it."""

    moves: tuple[RoomMove, ...]
    seats: tuple[Seat, ...]
    at_least: int
    """How many pods must move for these places, by resources and budgets alone; with no solver, a weaker bound."""
    search: str
    """What found the plan: `exact` or `greedy`."""
    not_exact: str
    """Why there was no exact search, or why it was in vain; "" if there was one, or none was needed."""
    complete: bool

    @property
    def placed(self) -> int:
        """Return how many pending pods have a node in the end."""
        return sum(bool(seat.node) for seat in self.seats)

    @property
    def having(self) -> frozenset[str]:
        """Return the pending pods that have a node in the end."""
        return frozenset(seat.pod for seat in self.seats if seat.node)

    @property
    def gap(self) -> float:
        """Return by what share of its moves the plan may be above the cheapest one: 0 if it is proved the cheapest."""
        return 1 - self.at_least / len(self.moves) if self.moves else 0.0

    @property
    def order(self) -> tuple[int, int]:
        """Return the key by which plans are ranked, the best first."""
        return -self.placed, len(self.moves)


def plan_room(
    there: ClusterState,
    options: RebalanceOptions,
    pods: Sequence[PodInfo],
    *,
    solve: Solver | None = None,
    stop: Stop = never,
    progress: Callable[[str], None] = lambda text: None,
) -> RoomPlan:
    """Plan the moves that give pending pods a place; the cluster is as before in the end.

    A gang gets all of its places or none. solve: for the exact search; None: the greedy one only.
    """
    seats = Seats(there, options.ruleset, signals=options.signals, now=options.now, seed=options.seed)
    start = seats.mark()
    asked = {pod.uid for pod in pods}
    others = in_turn(pod for pod in there.pending() if pod.uid not in asked and not pod.terminating)
    seated = seats.seat_all(others, stop=stop)
    units: dict[object, list[PodInfo]] = {}
    for pod in in_turn(pods):
        gangs = seats.gangs(pod)
        units.setdefault(gangs[0].group if gangs else pod.uid, []).append(pod)
    search = _Search(seats, options, staying=seated.placed, stop=stop)
    found = search.greedy(list(units.values()), progress=progress)
    if found.complete and (len(found.moves) > found.at_least or found.placed < len(found.seats)):
        if solve is None:
            found = replace(found, not_exact=NO_SOLVER)
        else:
            progress("searching for the fewest moves")
            exact = _Search(seats, options, staying=seated.placed, stop=stop)
            found = exact.better(found, list(units.values()), solve)
    seats.undo_to(start)
    return found


def room_for(
    there: ClusterState,
    options: RebalanceOptions,
    pod: PodInfo,
    *,
    solve: Solver | None = None,
    stop: Stop = never,
) -> RoomPlan | None:
    """Return the moves that give a pending pod, and the pending members of its gang, a place; None if none do.

    A plan that is not complete has no moves: the search was stopped.
    """
    seats = Seats(there, options.ruleset, signals=options.signals, now=options.now, seed=options.seed)
    groups = {gang.group for gang in seats.gangs(pod)}
    together = [
        other
        for other in there.pending()
        if not other.terminating
        and (other.uid == pod.uid or (groups and any(gang.group in groups for gang in seats.gangs(other))))
    ]
    found = plan_room(there, options, together, solve=solve, stop=stop)
    if not found.complete:
        return replace(found, moves=())
    return found if found.moves and any(seat.pod == pod.key and seat.node for seat in found.seats) else None


class _Search:
    """Seats one pending pod after the other, each with all before it in place."""

    def __init__(self, seats: Seats, options: RebalanceOptions, *, staying: Iterable[str], stop: Stop = never) -> None:
        """staying: the uids of pods that have no node yet, and are on one in thought: they cannot be evicted."""
        self._seats, self._options, self._stop = seats, options, stop
        self._staying = Staying(seats.cluster, now=options.now, local_storage=options.local_storage)
        self._spent = SpentBudgets(options.budgets, Budgets(seats.cluster))
        self.moves: list[RoomMove] = []
        self._fresh: set[str] = set(staying)
        """Replacements and pods that were seated: they do not move once more."""

    def greedy(self, units: Sequence[Sequence[PodInfo]], *, progress: Callable[[str], None]) -> RoomPlan:
        """Return the plan that seats one pod after the other; the cluster is as before in the end."""
        start, whole = self._seats.mark(), sum(map(len, units))
        found: list[Seat] = []
        complete = True
        for unit in units:
            progress(f"{len(found):,} of {whole:,} pending pods")
            if self._stop():
                complete = False
                break
            found += self.seat_together(unit)
        complete = complete and not self._stop()
        self._seats.undo_to(start)
        self._fresh -= {pod.uid for unit in units for pod in unit}
        moved_for = {move.room_for for move in self.moves}
        least: dict[PodTemplate, int] = {}
        for pod in (pod for unit in units for pod in unit if pod.key in moved_for):
            if pod.template not in least:
                bounds = self._bounds(pod)
                least[pod.template] = bounds[0][0] if bounds else 0
        return RoomPlan(tuple(self.moves), tuple(found), max(least.values(), default=0), "greedy", "", complete)

    def better(self, known: RoomPlan, units: Sequence[Sequence[PodInfo]], solve: Solver) -> RoomPlan:
        """Return the plan of the integer program if it is better than a known one and holds; else that one."""
        seats = self._seats
        gangs = [(pods, next(iter(seats.gangs(pods[0])), None)) for pods in units]
        nodes = seats.cluster.nodes.infos
        movable = {info.name: self._movable(info.name) for info in nodes}
        bounding = RoomProgram(seats.cluster, gangs, movable, self._options.budgets)
        if bounding.is_too_large:
            return replace(known, not_exact=TOO_LARGE)
        least = bounding.least_moves(solve, known.placed)  # for as many places, whoever gets them
        known = replace(known, at_least=max(known.at_least, least))
        program = self._program(gangs, movable)
        why = ""
        for _ in range(_ROUNDS):
            choice = program.choose(solve) if not self._stop() else None
            if choice is None:
                why = TIMED_OUT
                break
            if (-choice[0], len(choice[1])) >= known.order:
                why = ""
                break  # the greedy plan is as good
            found = self._proved(choice[1], units, known)
            if found is not None and found.order < known.order:
                if found.having == known.having:
                    least = known.at_least
                elif found.placed != known.placed:
                    least = bounding.least_moves(solve, found.placed)
                return replace(found, at_least=least)
            program.avoid(choice[1])
            why = NOT_PROVED
        return replace(known, not_exact=why)

    def _program(
        self, gangs: Sequence[tuple[Sequence[PodInfo], GangRequirement | None]], movable: Mapping[str, list[PodInfo]]
    ) -> RoomProgram:
        """Return the program of plans that the filters seem to allow."""
        seats = self._seats
        names = [info.name for info in seats.cluster.nodes.infos]

        def taken_by(pod: PodInfo) -> frozenset[str]:
            return frozenset(names[row] for row in seats.ranked(pod)[0].tolist())

        def targets(template: PodTemplate, pod: PodInfo) -> frozenset[str]:
            return taken_by(replacement_of(pod, self._options.now))

        hosts: dict[PodTemplate, frozenset[str]] = {}
        mark = seats.mark()
        for leaving in movable.values():
            for pod in leaving:
                seats.take_off(pod)
        for pods, _ in gangs:
            for pod in pods:
                if pod.template not in hosts:
                    hosts[pod.template] = taken_by(pod)
        seats.undo_to(mark)
        return RoomProgram(
            seats.cluster, gangs, movable, self._options.budgets,
            targets=targets, hosts=lambda pod: hosts[pod.template],
        )  # fmt: skip

    def _proved(
        self, chosen: Sequence[tuple[str, PodInfo]], units: Sequence[Sequence[PodInfo]], known: RoomPlan
    ) -> RoomPlan | None:
        """Return the plan that moves these pods, if each has a place before any is gone; everything is as before."""
        seats, mark = self._seats, self._seats.mark()
        nodes = seats.cluster.nodes
        ordered = sorted(chosen, key=lambda one: (-sum(_sizes(one[1], nodes, one[0])), one[1].key))
        targets: dict[str, str] = {}
        waiting = [pod for unit in units for pod in unit]
        try:
            for name, pod in ordered:
                replacement = replacement_of(pod, self._options.now)
                decision = seats.decide(replacement)
                if decision.host is None or decision.host == name:
                    return None
                seats.place(replacement, decision)
                targets[pod.uid] = decision.host
            for _, pod in ordered:
                seats.take_off(pod)
            placed = seats.seat_all(waiting).placed
        finally:
            seats.undo_to(mark)
        moves = self._attributed(ordered, targets, [(pod, placed[pod.uid]) for pod in waiting if pod.uid in placed])
        if len(moves) < len(ordered):
            return None
        before = {seat.pod: seat for seat in known.seats}
        count = Counter(move.room_for for move in moves)
        found = []
        for pod in waiting:
            node, was = placed.get(pod.uid, ""), before[pod.key]
            why = TAKEN if not node and was.node else was.why if not node else "" if count[pod.key] else FITS
            found.append(Seat(pod.key, node, count[pod.key], why))
        return RoomPlan(tuple(moves), tuple(found), 0, "exact", "", True)

    def _attributed(
        self, chosen: Sequence[tuple[str, PodInfo]], targets: Mapping[str, str], placed: Sequence[tuple[PodInfo, str]]
    ) -> list[RoomMove]:
        """Return the moves, by the pod that needs each of them; those of nodes without a new pod are left out."""
        moves: list[RoomMove] = []
        nodes = self._seats.cluster.nodes
        leaving: dict[str, list[PodInfo]] = {}
        for name, pod in chosen:
            leaving.setdefault(name, []).append(pod)
        free: dict[tuple[str, str], int] = {}
        last = {name: pod for pod, name in placed}
        for pod, name in placed:
            row, needs = nodes.rows[name], requests_of(pod)
            for resource in needs:
                taken = nodes.pod_count if resource == SLOTS else nodes.requested(resource)
                free.setdefault((name, resource), int(nodes.allocatable(resource)[row]) - int(taken[row]))
            left = leaving.get(name, [])
            while left and (last[name] is pod or any(free[name, r] < amount for r, amount in needs.items())):
                victim = left.pop(0)
                for resource in needs:
                    free[name, resource] += _amount(victim, resource)
                moves.append(RoomMove(victim.key, victim.uid, workload_of(victim), name, targets[victim.uid], pod.key))
            for resource, amount in needs.items():
                free[name, resource] -= amount
        return moves

    def seat(self, pod: PodInfo) -> Seat:
        """Return the place of a pod, with the fewest moves that are found; the moves are carried out."""
        decision = self._seats.seat(pod)
        if decision.host is not None:
            self._fresh.add(pod.uid)
            return Seat(pod.key, decision.host, 0, FITS)
        if len(self.moves) >= self._options.budgets.total:
            return Seat(pod.key, "", 0, BUDGET)
        bounds = self._bounds(pod)
        best: tuple[str, list[PodInfo]] | None = None
        why = NO_NODE
        for bound, name in bounds[:MOST_NODES]:
            if best is not None and bound >= len(best[1]):
                break  # no node from here on needs fewer
            if self._stop():
                break
            found = self._on(pod, name)
            if isinstance(found, str):
                why = found if why == NO_NODE or found == BUDGET else why
            elif best is None or len(found) < len(best[1]):
                best = name, found
        if best is None:
            return Seat(pod.key, "", 0, why)
        name, victims = best
        made = self._carry_out(pod, name, victims)
        assert made is not None, "it was carried out before, and undone"
        self.moves += made
        rule = MoveRule(None)
        for victim in victims:
            self._spent.spend(victim, name, rule)
        host = self._seats.cluster.node_of(pod.uid) or ""
        return Seat(pod.key, host, len(made), "")

    def seat_together(self, pods: Sequence[PodInfo]) -> list[Seat]:
        """Return the places of a pod, or of a gang: all of them, or none and no moves."""
        mark, before, spent = self._seats.mark(), len(self.moves), self._spent
        self._spent = spent.copy()
        found = [self.seat(pod) for pod in pods]
        size_of = self._seats.cluster.counters.group_size
        short = next((gang for gang in self._seats.gangs(pods[0]) if gang.filled(size_of) < gang.size), None)
        if short is None:
            return found
        self._seats.undo_to(mark)
        del self.moves[before:]
        self._spent = spent
        why = f"{short}, and only some of its pods fit"
        return [Seat(seat.pod, "", 0, why if seat.node else seat.why) for seat in found]

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
            if self._stop():
                break
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
        spent = self._spent.copy()
        for victim in gone:
            if spent.refusal(victim, name, MoveRule(None)):
                return BUDGET
            spent.spend(victim, name, MoveRule(None))
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


def _amount(pod: PodInfo, resource: str) -> int:
    return 1 if resource == "pods" else pod.demand.requests.get(resource, 0)


def _sizes(pod: PodInfo, nodes: NodeTable, name: str) -> list[float]:
    """Return what shares of its node a pod takes."""
    row = nodes.rows[name]
    return [amount / max(1, int(nodes.allocatable(each)[row])) for each, amount in pod.demand.requests.items()]
