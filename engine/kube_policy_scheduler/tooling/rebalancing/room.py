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
from enum import StrEnum

from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.preempt.victims import Budgets
from kube_policy_scheduler.tooling.capacity.room import SLOTS, requests_of
from kube_policy_scheduler.tooling.capacity.seats import Seats, Stop, in_turn, never
from kube_policy_scheduler.tooling.cluster_state import ClusterState, is_of_node
from kube_policy_scheduler.tooling.programs import Solver
from kube_policy_scheduler.tooling.rebalancing.cheapest import Hosts, RoomProgram, Unit, least_leaving
from kube_policy_scheduler.tooling.rebalancing.moves import MoveRule, replacement_of, workload_of
from kube_policy_scheduler.tooling.rebalancing.plan import RebalanceOptions, SpentBudgets
from kube_policy_scheduler.tooling.staying import Staying

FITS = "it fits without a move"
NO_SOLVER = "the extra `exact` is not installed"
TOO_LARGE = "the cluster is too large for the exact search"
NOT_PROVED = "the scheduling cycle rejected a move of the exact search"
TIMED_OUT = "the exact search found no plan in time"
_RULE = MoveRule(None)
_ROUNDS = 4
"""Choices of the solver that are proved; after that, the greedy plan is the answer."""
MOST_NODES = 200
"""Nodes that are tried for one pod, those first where the fewest pods must go."""


class NoRoom(StrEnum):
    """Why a pod gets no place by moves."""

    NO_NODE = "it fits on no node, even if all pods that can move leave the node"
    NOWHERE = "the pods that would have to move fit on no other node"
    BUDGET = "more pods would have to move than the budgets allow"
    TAKEN = "the plan with the fewest moves gives the room to other pods"


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
    """Why there was no exact search, or why it failed; "" if it succeeded, or none was needed."""
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
            exact = _Search(seats, options, staying=seated.placed, stop=stop)
            found = exact.better(found, list(units.values()), solve, progress=progress)
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
        self._movables: dict[str, list[PodInfo]] = {}
        """By node, as long as none of its pods has moved."""
        self._tried: dict[PodTemplate, dict[str, int]] = {}
        """By template and node: how many pods gave way when it was tried last; the node is as it was."""
        self._failed: dict[PodTemplate, Seat] = {}
        """What became of the last pod of a template, if nothing has moved since."""
        self._is_short = False
        """Whether a budget that is spent keeps pods where they are."""

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
        self._movables.clear()
        self._is_short = False  # what the budgets left over is no bound
        placed = {seat.pod for seat in found if seat.node}
        least = 0
        if self.moves:
            having = [pod for unit in units for pod in unit if pod.key in placed]
            least = self._hosts(self._movable_by_node(), [(having, None)]).least(having)
        return RoomPlan(tuple(self.moves), tuple(found), least, "greedy", "", complete)

    def _movable_by_node(self) -> dict[str, list[PodInfo]]:
        return {info.name: self._movable(info.name) for info in self._seats.cluster.nodes.infos}

    def _hosts(self, movable: Mapping[str, list[PodInfo]], units: Sequence[Unit], most: int | None = None) -> Hosts:
        budgets = self._options.budgets
        leaving = min(budgets.node, budgets.total if most is None else most)
        return Hosts(self._seats.cluster, units, movable, leaving=leaving)

    def better(
        self,
        known: RoomPlan,
        units: Sequence[Sequence[PodInfo]],
        solve: Solver,
        *,
        progress: Callable[[str], None] = lambda text: None,
    ) -> RoomPlan:
        """Return the plan of the integer program if it is better than a known one and holds; else that one."""
        seats, budgets = self._seats, self._options.budgets
        gangs = [(pods, next(iter(seats.gangs(pods[0])), None)) for pods in units]
        movable = self._movable_by_node()
        seats_all = known.placed == len(known.seats)
        most = len(known.moves) - 1 if seats_all else budgets.total  # what is no better need not be found
        hosts = self._hosts(movable, gangs, most)
        progress("searching for a bound")
        bounding = RoomProgram(seats.cluster, gangs, movable, budgets, hosts, most=most)
        if bounding.is_too_large:
            return replace(known, not_exact=TOO_LARGE)
        least = bounding.least_moves(solve, known.placed)  # for as many places, for whichever pods
        known = replace(known, at_least=min(len(known.moves), max(known.at_least, least)))
        if seats_all and known.at_least == len(known.moves):
            return known
        progress("searching for the fewest moves")
        taking, targets = self._taking(gangs, movable, hosts), dict[PodTemplate, frozenset[str]]()
        avoided: list[set[str]] = []
        why = ""
        for _ in range(_ROUNDS):
            program = RoomProgram(
                seats.cluster, gangs, movable, budgets, hosts, most=most, targets=targets, taking=taking
            )  # fmt: skip
            for uids in avoided:
                program.avoid(uids)
            choice = program.choose(solve, placed=known.placed if seats_all else None) if not self._stop() else None
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
            unknown = {pod.template: pod for _, pod in choice[1] if pod.template not in targets}
            targets |= {
                template: self._taken_by(replacement_of(pod, self._options.now)) for template, pod in unknown.items()
            }
            avoided.append({pod.uid for _, pod in choice[1]})
            why = NOT_PROVED
        return replace(known, not_exact=why)

    def _taken_by(self, pod: PodInfo) -> frozenset[str]:
        infos = self._seats.cluster.nodes.infos
        return frozenset(infos[row].name for row in self._seats.ranked(pod)[0].tolist())

    def _taking(
        self, units: Sequence[Unit], movable: Mapping[str, list[PodInfo]], hosts: Hosts
    ) -> dict[PodTemplate, frozenset[str]]:
        """Return by template the nodes that take a pending pod if every movable pod is gone."""
        seats, mark = self._seats, self._seats.mark()
        for name in hosts.names:
            for pod in movable[name]:
                seats.take_off(pod)
        pending = {pod.template: pod for pods, _ in units for pod in pods}
        found = {template: self._taken_by(pod) for template, pod in pending.items()}
        seats.undo_to(mark)
        return found

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
                seats.terminate(pod)
                answer = seats.seat(replacement_of(pod, self._options.now))
                if answer.host is None or answer.host == name:
                    return None
                targets[pod.uid] = answer.host
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
            why = NoRoom.TAKEN if not node and was.node else was.why if not node else "" if count[pod.key] else FITS
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
        alike = self._seats.is_alike(pod)
        known = self._failed.get(pod.template) if alike else None
        if known is not None:
            return replace(known, pod=pod.key)
        found = self._seat(pod)
        if found.node:
            self._failed.clear()
        elif alike:
            self._failed[pod.template] = found
        return found

    def _seat(self, pod: PodInfo) -> Seat:
        answer = self._seats.seat(pod)
        if answer.host is not None:
            self._fresh.add(pod.uid)
            self._changed([answer.host])
            return Seat(pod.key, answer.host, 0, FITS)
        budgets = self._options.budgets
        if len(self.moves) >= budgets.total:
            return Seat(pod.key, "", 0, NoRoom.BUDGET)
        allowed = min(budgets.node, budgets.total - len(self.moves))
        best: tuple[str, list[PodInfo]] | None = None
        why = NoRoom.BUDGET if self._is_short else NoRoom.NO_NODE
        tried = self._tried.setdefault(pod.template, {})
        bounds = sorted((max(least, tried.get(name, 0)), name) for least, name in self._bounds(pod))
        for least, name in bounds[:MOST_NODES]:
            if best is not None and least >= len(best[1]):
                break  # no node from here on needs fewer
            if self._stop():
                break
            if least > allowed:
                why = NoRoom.BUDGET
                break
            found = self._on(pod, name)
            if isinstance(found, str):
                why = found if why is NoRoom.NO_NODE or found is NoRoom.BUDGET else why
                continue
            tried[name] = len(found)
            if best is None or len(found) < len(best[1]):
                best = name, found
        if best is None:
            return Seat(pod.key, "", 0, why)
        name, victims = best
        made = self._carry_out(pod, name, victims)
        assert made is not None, "it was carried out before, and undone"
        self.moves += made
        for victim in victims:
            self._spent.spend(victim, name, _RULE)
        if any(self._spent.rejection(victim, "", _RULE) for victim in victims):
            self._is_short = True
            for there, pods in self._movables.items():
                self._movables[there] = [each for each in pods if not self._spent.rejection(each, there, _RULE)]
        host = self._seats.cluster.node_of(pod.uid) or ""
        self._changed([name, host, *(move.target for move in made)])
        return Seat(pod.key, host, len(made), "")

    def _changed(self, names: Iterable[str]) -> None:
        """Forget what was known of nodes that have other pods now."""
        for name in names:
            self._movables.pop(name, None)
            for known in self._tried.values():
                known.pop(name, None)

    def seat_together(self, pods: Sequence[PodInfo]) -> list[Seat]:
        """Return the places of a pod, or of a gang: all of them, or none and no moves."""
        mark, before, spent, is_short = self._seats.mark(), len(self.moves), self._spent, self._is_short
        self._spent = spent.copy()
        together, _ = self._seats.seat_gang(pods[0], pods) if len(pods) > 1 else ({}, "")
        self._fresh |= together.keys()
        self._changed(together.values())
        found = [Seat(pod.key, together[pod.uid], 0, FITS) if pod.uid in together else self.seat(pod) for pod in pods]
        size_of = self._seats.cluster.counters.group_size
        short = next((gang for gang in self._seats.gangs(pods[0]) if gang.filled(size_of) < gang.size), None)
        if short is None:
            return found
        self._seats.undo_to(mark)
        del self.moves[before:]
        self._spent = spent
        self._is_short = is_short
        for kept in (self._movables, self._tried, self._failed):
            kept.clear()
        why = f"{short}, and only some of its pods fit"
        return [Seat(seat.pod, "", 0, why if seat.node else seat.why) for seat in found]

    def _movable(self, name: str) -> list[PodInfo]:
        """Return the pods of a node that may give way, the largest first."""
        known = self._movables.get(name)
        if known is not None:
            return known
        found = []
        for pod in self._seats.cluster.pods_on(name).values():
            rules = self._options.ruleset.rules(pod)
            if pod.uid in self._fresh or pod.terminating or is_of_node(pod) or rules is None:
                continue
            if pod.template.spec.resource_claims or not self._options.wanted(pod):
                continue
            if self._seats.goes_with_others(pod):
                continue
            if not self._staying.reason(pod) and not (self._is_short and self._spent.rejection(pod, name, _RULE)):
                found.append(pod)
        found.sort(key=lambda pod: (-sum(_sizes(pod, self._seats.cluster.nodes, name)), pod.key))
        self._movables[name] = found
        return found

    def _bounds(self, pod: PodInfo) -> list[tuple[int, str]]:
        """Return nodes by how many of their pods must go at least, by resources alone; not those that are too small."""
        nodes, found = self._seats.cluster.nodes, []
        missing: dict[str, list[int]] = {}
        for resource, amount in requests_of(pod).items():
            taken = nodes.pod_count if resource == SLOTS else nodes.requested(resource)
            missing[resource] = (amount - (nodes.allocatable(resource) - taken)).tolist()
        for info in nodes.infos:
            if self._stop():
                break
            row = nodes.rows[info.name]
            least = least_leaving({name: each[row] for name, each in missing.items()}, self._movable(info.name))
            if least is not None:
                found.append((least, info.name))
        return found

    def _on(self, pod: PodInfo, name: str) -> list[PodInfo] | NoRoom:
        """Return the pods that give way on a node, or why that does not help; everything is as before."""
        seats, mark = self._seats, self._seats.mark()
        movable = self._movable(name)
        for victim in movable:
            seats.take_off(victim)
        row = seats.cluster.nodes.rows[name]
        try:
            if row not in seats.ranked(pod)[0]:
                return NoRoom.NO_NODE
            gone = []
            for victim in movable:  # as many as possible stay, the largest first
                seats.put(victim, name)
                if row not in seats.ranked(pod)[0]:
                    seats.take_off(victim)
                    gone.append(victim)
        finally:
            seats.undo_to(mark)
        if len(self.moves) + len(gone) > self._options.budgets.total:
            return NoRoom.BUDGET
        spent = self._spent.copy()
        for victim in gone:
            if spent.rejection(victim, name, _RULE):
                return NoRoom.BUDGET
            spent.spend(victim, name, _RULE)
        made = self._carry_out(pod, name, gone)
        seats.undo_to(mark)
        return gone if made is not None else NoRoom.NOWHERE

    def _carry_out(self, pod: PodInfo, name: str, victims: Sequence[PodInfo]) -> list[RoomMove] | None:
        """Move pods off a node and seat the pending pod; None, with some of it done, where that fails."""
        seats, made = self._seats, []
        for victim in victims:
            replacement = replacement_of(victim, self._options.now)
            seats.terminate(victim)
            answer = seats.seat(replacement)
            if answer.host is None or answer.host == name:
                return None
            self._fresh.add(replacement.uid)
            made.append(RoomMove(victim.key, victim.uid, workload_of(victim), name, answer.host, pod.key))
        for victim in victims:
            seats.take_off(victim)
        self._fresh.add(pod.uid)
        return made if seats.seat(pod).host is not None else None


def _amount(pod: PodInfo, resource: str) -> int:
    return 1 if resource == SLOTS else pod.demand.requests.get(resource, 0)


def _sizes(pod: PodInfo, nodes: NodeTable, name: str) -> list[float]:
    """Return what shares of its node a pod takes."""
    row = nodes.rows[name]
    return [amount / max(1, int(nodes.allocatable(each)[row])) for each, amount in pod.demand.requests.items()]
