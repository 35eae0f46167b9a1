"""A scheduler with quotas, as slow and as plain as it can be, with virtual time: what becomes of pods that arrive.

Evictions take no time here: victims are gone at once, come again as pending pods, and the evictor starts. The scheduler
under test takes its time; where the rules leave a choice it may choose otherwise. What must be the same is what the
rules determine: `invariants.py` has that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice, product

from tests.quotas.accounts import Budget, Node, Pod, Queue, State, Unit, workload
from tests.quotas.evictions import (
    Asker,
    Reclaim,
    divide,
    over_kept,
    over_max,
    rule_for,
    shortage,
    victim_units,
    why_illegal,
)
from tests.quotas.trace import Evicted, Rested, Started, Trace

MOST_EVICTIONS = 2_000
MOST_PLACES = 3_000
"""Ways to place a gang that are looked at."""


class NoRestError(AssertionError):
    """Evictions go on and on."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Pods that come at one moment."""

    at: float
    pods: tuple[Pod, ...]
    lasts: float | None = None


@dataclass(frozen=True)
class Case:
    """A cluster, a policy, and what arrives."""

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    arrivals: tuple[Arrival, ...]
    reclaim: Reclaim = Reclaim.NO
    by_share: bool = False
    """Whether the queue with the smallest share has its turn first; then priority, then who came first."""
    cordons: tuple[tuple[float, str], ...] = ()
    """Nodes that become unusable, and when."""
    budgets: tuple[Budget, ...] = ()
    backfill: bool = False
    """Whether pods that came later may start before the first one that waits, if they do not delay it."""

    @cached_property
    def kinds(self) -> dict[str, Pod]:
        """Return the pods as they come, by name."""
        return {pod.name: pod for arrival in self.arrivals for pod in arrival.pods}

    @cached_property
    def came(self) -> dict[str, float]:
        """Return when the pods came first, by name."""
        return {pod.name: arrival.at for arrival in self.arrivals for pod in arrival.pods}

    @cached_property
    def lasts(self) -> dict[str, float | None]:
        """Return for how many seconds the pods run, by name; None: they never end."""
        return {pod.name: arrival.lasts for arrival in self.arrivals for pod in arrival.pods}


# --- admission ------------------------------------------------------------------------------------------------


def within_quota(state: State, unit: Unit) -> bool:
    """Return whether quotas allow a unit, beside those that were promised room."""
    after = state.promised(unit)
    return not any(
        over_max(state, unit, queue, resource) or over_kept(state, after, resource)
        for queue in state.path(unit.queue)
        for resource in unit.resources()
    )


def placements(state: State, unit: Unit) -> Iterator[dict[str, str]]:
    """Yield the ways to put the pods of a unit on usable nodes, full or not."""
    nodes = [node for node in state.nodes if node.usable]
    racks: Sequence[Sequence[Node]] = [nodes]
    if unit.pods[0].rack:
        names = sorted({node.rack for node in nodes if node.rack})
        racks = [[node for node in nodes if node.rack == name] for name in names]
    for rack in racks:
        for chosen in product(rack, repeat=len(unit.pods)):
            yield {pod.name: node.name for pod, node in zip(unit.pods, chosen, strict=True)}


def fits(state: State, unit: Unit, places: Mapping[str, str]) -> bool:
    """Return whether a unit can start there without evictions."""
    return within_quota(state, unit) and not shortage(state, unit, places).nodes


def place(state: State, unit: Unit) -> dict[str, str] | None:
    """Return nodes for all pods of a unit, or None; pods of a gang that are alike are put on nodes one by one."""
    if not within_quota(state, unit):
        return None
    if len({tuple(sorted(pod.requests.items())) for pod in unit.pods}) == 1 and not unit.pods[0].rack:
        return _one_by_one(state, unit)
    return next((p for p in islice(placements(state, unit), MOST_PLACES) if not shortage(state, unit, p).nodes), None)


def _one_by_one(state: State, unit: Unit) -> dict[str, str] | None:
    places: dict[str, str] = {}
    for pod in unit.pods:
        single = Unit((pod,))
        node = next(
            (n for n in state.nodes if n.usable and not shortage(state, single, {pod.name: n.name}).nodes), None
        )
        if node is None:
            return None
        places[pod.name] = node.name
        state = state.changed([replace(pod, promised=node.name)])
    return places


# --- plans with evictions -------------------------------------------------------------------------------------


def plan(state: State, unit: Unit, reclaim: Reclaim, *, shares: bool = True) -> tuple[list[str], dict[str, str]] | None:
    """Return whom to evict for a unit and where it goes then, with the fewest victims; None: there is no legal way.

    shares: see `Asker`.
    """
    best: tuple[list[str], dict[str, str]] | None = None
    if reclaim is Reclaim.NO and all(each.priority >= unit.priority for each in state.units()):
        return None
    for places in islice(placements(state, unit), MOST_PLACES):
        asker = Asker(unit, shortage(state, unit, places), reclaim, shares)
        victims = victims_for(state, asker, places)
        if victims and (best is None or len(victims) < len(best[0])):
            best = victims, places
    return best


def victims_for(state: State, asker: Asker, places: Mapping[str, str], *, spares: bool = False) -> list[str]:
    """Return the victims that make room at these places; [] where no legal ones do.

    spares: whether nobody goes whom a budget protects.
    """
    unit, taken = asker.unit, list[Unit]()
    now = state
    while not fits(now, unit, places):
        after = now.promised(unit)
        legal = [each for each in victim_units(now, asker.short) if rule_for(now, asker, each, after) is not None]
        gone = {name for each in taken for name in each.names}
        violates = {each.names: state.violations(gone | each.names) > state.violations(gone) for each in legal}
        legal = [each for each in legal if not (spares and violates[each.names])]
        if not legal:
            return []
        victim = min(legal, key=lambda each: (violates[each.names], *_turn(now, asker, each)))
        taken.append(victim)
        now = now.evicted(victim.names)
    names = _without_needless(state, asker, places, taken)
    return names if not why_illegal(state, asker, names) else []


def _without_needless(state: State, asker: Asker, places: Mapping[str, str], taken: Sequence[Unit]) -> list[str]:
    """Return the victims without those that may stay: the last first, a gang before its surplus."""
    stays: set[str] = set()
    last_first = taken[::-1]
    gangs_first = sorted(last_first, key=lambda unit: unit.surplus)
    everyone = {name for unit in taken for name in unit.names}
    for unit in gangs_first:
        gang_goes = unit.surplus and any(
            other.gang == unit.gang and not other.surplus and not other.names <= stays for other in taken
        )
        left = everyone - stays - unit.names
        if not gang_goes and fits(state.evicted(left), asker.unit, places):
            stays |= unit.names
    return sorted(everyone - stays)


def _turn(state: State, asker: Asker, victim: Unit) -> tuple[object, ...]:
    """Return the place of a victim in the line of those that may go."""
    _, theirs, _ = divide(state, asker.unit.queue, victim.queue)
    counted = [resource for resource in asker.short.resources if resource in state.counted]
    left = state.evicted(victim.names)
    below = any(left.will(queue, r) < state.minimum(queue, r) for queue in theirs for r in counted)
    shares = [-state.share(queue, counted) for queue in reversed(theirs)]
    return below, shares, victim.priority, not victim.surplus, -victim.started, sorted(victim.names)


# --- time -----------------------------------------------------------------------------------------------------


class Model:
    """One run."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.now = 0.0
        self.state = State(case.queues, case.nodes, {}, budgets=case.budgets)
        self.trace = Trace()
        self._changes = 0
        self._lasts: dict[str, float | None] = {}
        self._ends: list[tuple[float, str]] = []
        self._sharing: set[str] = set()
        """Pods for which others were evicted so that shares become fairer."""
        self._shared: set[tuple[object, ...]] = set()
        """The workloads of those that were evicted since the last change that was not the work of evictions."""
        self._evicted: set[str] = set()

    def run(self) -> Trace:
        """Go on until nothing happens any more."""
        coming = sorted(self.case.arrivals, key=lambda arrival: arrival.at)
        cordons = sorted(self.case.cordons)
        while coming or self._ends or cordons:
            times = [each.at for each in coming[:1]] + [at for at, _ in [*self._ends[:1], *cordons[:1]]]
            self.now = min(times)
            while cordons and cordons[0][0] <= self.now:
                _, name = cordons.pop(0)
                nodes = tuple(replace(node, usable=node.usable and node.name != name) for node in self.state.nodes)
                self.state = replace(self.state, nodes=nodes)
            while self._ends and self._ends[0][0] <= self.now:
                self._end(heappop(self._ends)[1])
            while coming and coming[0].at <= self.now:
                arrival = coming.pop(0)
                for pod in arrival.pods:
                    self._lasts[pod.name] = arrival.lasts
                self.state = self.state.changed(replace(pod, queued=self.now) for pod in arrival.pods)
            self._changes += 1
            self._shared.clear()
            self._decide_all()
            self.trace.steps.append(Rested(self.now, self.state))
        return self.trace

    def _end(self, name: str) -> None:
        self.state = replace(self.state, pods={key: pod for key, pod in self.state.pods.items() if key != name})

    def _decide_all(self) -> None:
        while any(self._decide(unit) for unit in self._line()):
            if self.trace.evicted.total() > MOST_EVICTIONS:
                raise NoRestError(f"no rest after {MOST_EVICTIONS} evictions")

    def _line(self) -> list[Unit]:
        return sorted(pending_units(self.state), key=self._place_in_line)

    def _place_in_line(self, unit: Unit) -> tuple[object, ...]:
        shares = list[object]()
        if self.case.by_share:
            after = self.state.promised(unit)
            shares = [after.share(queue, after.counted) for queue in reversed(after.path(unit.queue))]
        return shares, -unit.priority, min(pod.queued for pod in unit.pods), sorted(unit.names)

    def _decide(self, unit: Unit) -> bool:
        places = place(self.state, unit)
        if places is not None and self._evicted.isdisjoint(unit.names):
            self._shared.clear()  # it starts in free room, which happens once
        if places is None:
            found = plan(self.state, unit, self.case.reclaim, shares=self._shared.isdisjoint(map(workload, unit.pods)))
            if found is None:
                return False
            victims, places = found
            self._remember(unit, victims, places)
            self._evict(unit, victims, places)
        self._start(unit, places)
        return True

    def _remember(self, unit: Unit, victims: Sequence[str], places: Mapping[str, str]) -> None:
        """Note who evicts whom, and whether shares become fairer so."""
        self._shared |= {workload(self.state.pods[name]) for name in self._sharing.intersection(victims)}
        self._sharing.difference_update(victims)
        self._evicted.update(victims)
        asker = Asker(unit, shortage(self.state, unit, places), self.case.reclaim, shares=False)
        if self.case.reclaim is Reclaim.FAIR and why_illegal(self.state, asker, victims):
            self._sharing |= unit.names

    def _evict(self, unit: Unit, names: Sequence[str], places: Mapping[str, str]) -> None:
        before, by = self.state, unit.pods[0].name
        self._ends = [(end, name) for end, name in self._ends if name not in names]
        back = before.evicted(names)
        self.state = back.changed(replace(back.pods[name], queued=self.now, is_back=True) for name in names)
        after = self.state.promised(unit, places)
        self.trace.steps.append(Evicted(self.now, by, tuple(names), places[by], before, after, self._changes))

    def _start(self, unit: Unit, places: Mapping[str, str]) -> None:
        before = self.state
        self.state = before.changed(replace(p, node=places[p.name], started=self.now) for p in unit.pods)
        self.trace.steps.append(Started(self.now, tuple(sorted(unit.names)), before, self.state))
        for pod in unit.pods:
            lasts = self._lasts[pod.name]
            if lasts is not None:
                heappush(self._ends, (self.now + lasts, pod.name))


def pending_units(state: State) -> Iterator[Unit]:
    """Yield what waits, in units: a gang that has too few pods, or too few of a role, is none yet."""
    gangs: dict[str, list[Pod]] = {}
    running: dict[str, list[Pod]] = {}
    for pod in state.pods.values():
        if pod.gang:
            (gangs if pod.pending else running).setdefault(pod.gang, []).append(pod)
        elif pod.pending:
            yield Unit((pod,))
    for gang, members in gangs.items():
        line = sorted(members, key=lambda pod: (-pod.priority, pod.queued, pod.name))
        there, needed, lacking = running.get(gang, []), list[Pod](), 0
        open_to_all, others = members[0].size, len(there)
        for role, number in members[0].needs:
            has = min(number, sum(pod.role == role for pod in there))
            needed += [pod for pod in line if pod.role == role][: number - has]
            lacking += number - has
            open_to_all -= number
            others -= has
        missing = lacking + max(0, open_to_all - others)
        rest = [pod for pod in line if pod not in needed]
        if not missing:
            yield from (Unit((pod,), surplus=True) for pod in members)
        elif len(needed) == lacking and len(line) >= missing:
            yield Unit(tuple((needed + rest)[:missing]))
