"""What must hold of a run: after each decision, for each eviction, and at rest. Each finding names its invariant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import inf

from tests.quotas.accounts import State, Unit
from tests.quotas.evictions import (
    Asker,
    Reclaim,
    Rule,
    entitled,
    rule_for,
    shortage,
    shortage_beside,
    victim_units,
    why_illegal,
)
from tests.quotas.model import Case, fits, pending_units, place, placements, plan, victims_for
from tests.quotas.trace import Evicted, Rested, Started, Trace

MOST_PLACES_SEARCHED = 40
MOST_SETS = 3_000
"""Sets of victims tried for one unit at rest."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An invariant that does not hold."""

    invariant: str
    what: str
    at: float = 0.0

    def __str__(self) -> str:
        """Return it as a line."""
        return f"{self.invariant} at {self.at:g} s: {self.what}"


def violations(case: Case, trace: Trace) -> list[Finding]:
    """Return what does not hold of a run; nothing of its end, see `at_rest`."""
    found = list[Finding]()
    for step in trace.steps:
        match step:
            case Started():
                found += _after_start(step)
                if case.backfill:
                    found += _of_backfill(case, step)
            case Evicted():
                found += _of_eviction(case, step)
            case Rested():
                found += _at_each_moment(case, step)
    found += _returns(trace)
    return found


# --- starts ---------------------------------------------------------------------------------------------------


def _after_start(step: Started) -> Iterator[Finding]:
    before, after = step.before, step.after
    for queue in after.by_name.values():
        for resource, most in queue.maximum.items():
            used = after.used(queue.name, resource)
            if used > most and used > before.used(queue.name, resource):
                yield Finding("1 max", f"{queue.name} uses {used} {resource} of {most} after {step.names}", step.at)
    for node in after.nodes:
        for resource in node.offers:
            taken = sum(p.requests.get(resource, 0) for p in after.pods.values() if p.node == node.name)
            if taken > node.offers[resource]:
                yield Finding("0 nodes", f"{node.name} has {taken} {resource} after {step.names}", step.at)
    queued = [name for name in step.names if after.pods[name].queue]
    # those that were promised room may have to wait for who comes before them
    before, after = (state.evicted(_promised(state)) for state in (before, after))
    for resource in after.counted if queued else ():
        if before.charged_in_all(resource) < after.charged_in_all(resource) > after.usable(resource):
            what = f"{after.charged_in_all(resource)} of {after.usable(resource)} {resource} after {step.names}"
            yield Finding("10 lend", what, step.at)


def _promised(state: State) -> list[str]:
    return [pod.name for pod in state.pods.values() if pod.promised and not pod.holds]


# --- backfill -------------------------------------------------------------------------------------------------


def _of_backfill(case: Case, step: Started) -> Iterator[Finding]:
    before = step.before.evicted(step.names)  # some of a gang may have had their places for a moment
    unit = Unit(tuple(before.pods[name] for name in step.names))
    places = {name: step.after.pods[name].node for name in step.names}
    delayed = delayed_by(case, before, unit, places, step.at)
    if delayed is not None:
        yield Finding("23 first is delayed", f"{sorted(unit.names)} starts and delays {sorted(delayed.names)}", step.at)


def delayed_by(case: Case, state: State, unit: Unit, places: Mapping[str, str], now: float) -> Unit | None:
    """Return the first unit that waits, if another one that came later would delay it by running now.

    The first one starts at the earliest when enough of what runs has ended, if each pod runs for as long as it says.
    """

    def came(each: Unit) -> float:
        return min(case.came[pod.name] for pod in each.pods)

    first = min((each for each in pending_units(state) if each.names.isdisjoint(unit.names)), key=came, default=None)
    if first is None or came(first) >= came(unit) or (_is_guaranteed(state, unit) and not _is_guaranteed(state, first)):
        return None
    ends = {pod.name: pod.started + (case.lasts[pod.name] or inf) for pod in state.pods.values() if pod.holds}

    def left(of: State, at: float) -> State:
        return of.evicted([name for name, end in ends.items() if end <= at])

    times = (at for at in sorted({*ends.values(), now}) if at < inf and place(left(state, at), first) is not None)
    starts_at = next(times, None)
    if starts_at is None or starts_at <= now or now + max(case.lasts[n] or inf for n in unit.names) <= starts_at:
        return None
    beside = state.changed(replace(pod, node=places[pod.name], started=now) for pod in unit.pods)
    return first if place(left(beside, starts_at), first) is None else None


def _is_guaranteed(state: State, unit: Unit) -> bool:
    """Return whether a pending unit would be guaranteed in any queue."""
    for queue in state.path(unit.queue):
        lead = state.lead(queue, unit)
        if lead is not None and state.will(queue, lead) + unit.wants(lead) <= state.minimum(queue, lead):
            return True
    return False


# --- evictions ------------------------------------------------------------------------------------------------


def asking_unit(before: State, after: State, by: str) -> Unit:
    """Return the unit for which an eviction was made: of a gang those of its members that are needed."""
    pod = before.pods[by]
    others = [p for p in before.pods.values() if pod.gang and p.gang == pod.gang and p.name != by and not p.pending]
    if pod.gang and len(others) >= pod.size:
        return Unit((replace(pod, promised=""),), surplus=True)
    units = [unit for unit in pending_units(_nobody_promised(before, pod.gang, by)) if by in unit.names]
    if units:
        return units[0]
    same = [u for u in pending_units(_nobody_promised(before, pod.gang, by)) if pod.gang and u.gang == pod.gang]
    if same and not same[0].surplus:
        # any members may stand for those that are needed
        line = [after.pods[by], *(p for p in same[0].pods if p.name != by)][: len(same[0].pods)]
        return Unit(tuple(before.pods[p.name] for p in line))
    return Unit((replace(pod, promised=""),), surplus=bool(pod.gang))


def _nobody_promised(state: State, gang: str, by: str) -> State:
    names = [p.name for p in state.pods.values() if p.promised and (p.name == by or (gang and p.gang == gang))]
    return state.evicted(names)


def _of_eviction(case: Case, step: Evicted) -> Iterator[Finding]:
    unit = asking_unit(step.before, step.after, step.by)
    before = _nobody_promised(step.before, "" if unit.surplus else unit.gang, step.by)
    places = {p.name: step.after.pods[p.name].promised or step.after.pods[p.name].node for p in unit.pods}
    known, settled, by_share = all(places.values()), before.settled(), case.reclaim is Reclaim.FAIR
    askers = list[Asker]()
    for each in [places] if known else islice(placements(before, unit), MOST_PLACES_SEARCHED):
        askers.append(Asker(unit, shortage_beside(settled, unit, each, by_share=by_share), case.reclaim))
        if any(pod.leaving for pod in before.pods.values()):
            now_short = shortage_beside(before, unit, each, by_share=by_share)
            askers.append(Asker(unit, now_short, case.reclaim, by_priority=True))
    who = f"{sorted(unit.names)} of {unit.queue or 'no queue'} evicts {list(step.victims)}"
    yield from _parts_of_gangs(step)
    illegal = [why_illegal(before, asker, step.victims) for asker in askers]
    if not all(illegal):
        asker = askers[illegal.index([])]
        yield from _sufficient_and_minimal(before, asker, step, places if known else None)
        if known and len(unit.pods) == 1:
            yield from _of_budgets(settled, asker, step, places)
        yield from _progress(before, asker, step)
        return
    at = min(range(len(illegal)), key=lambda number: len(illegal[number]))
    asker = askers[at]
    for name in illegal[at]:
        yield Finding(_broken_rule(before, asker, name, step.victims), f"{who}: {facts(before, asker, name)}", step.at)
        break


def _broken_rule(state: State, asker: Asker, name: str, evicted: tuple[str, ...]) -> str:
    """Return the invariant that the eviction of a pod breaks."""
    begin = State(state.queues, state.nodes, state.pods, frozenset(evicted))
    now = begin.evicted([each for each in evicted if each != name])
    victim = next((unit for unit in begin.units() if name in unit.names), None)
    if victim is None or not victim.names <= frozenset(evicted):
        return "9 part of a gang"
    if not asker.short.touches(begin, victim):
        return "4 not short"
    if asker.unit.queue and victim.queue and asker.unit.queue != victim.queue:
        theirs = [q for q in now.path(victim.queue) if q not in now.path(asker.unit.queue)]
        if now.rank(victim, theirs) is not None or begin.rank(victim, theirs) is not None:
            return "5 guaranteed pod evicted"
        if entitled(now, asker.unit, victim.queue, asker.short.resources) is None and asker.reclaim is Reclaim.FAIR:
            return "4f shares do not allow it"
        if entitled(now, asker.unit, victim.queue, asker.short.resources) is None:
            return "3 not entitled, or 6"
    return "6 guarantee in a common queue, or no higher priority"


def facts(state: State, asker: Asker, name: str) -> str:
    """Return what says whether a pod may be evicted."""
    victim = next((unit for unit in state.units() if name in unit.names), None)
    if victim is None:
        return f"{name} does not run"
    ranks = {queue: state.rank(victim, (queue,)) for queue in state.path(victim.queue)}
    short = asker.short
    return (
        f"{name} of {victim.queue or 'no queue'} has ranks {ranks}, priority {victim.priority} against "
        f"{asker.unit.priority}; short: {sorted(short.resources)} {dict(short.nodes)} {dict(short.queues)} "
        f"{set(short.kept) or ''}; entitled by {entitled(state, asker.unit, victim.queue, short.resources)}"
    )


def _parts_of_gangs(step: Evicted) -> Iterator[Finding]:
    for gang in sorted({step.before.pods[name].gang for name in step.victims} - {""}):
        members = [pod for pod in step.before.pods.values() if pod.gang == gang and pod.holds and not pod.leaving]
        left = len([pod for pod in members if pod.name not in step.victims])
        size = members[0].size if members else 0
        if 0 < left < size <= len(members):
            what = f"{left} of {len(members)} members of {gang} are left, which needs {size}"
            yield Finding("9 part of a gang", what, step.at)


def _sufficient_and_minimal(
    before: State, asker: Asker, step: Evicted, places: Mapping[str, str] | None
) -> Iterator[Finding]:
    unit, ending = asker.unit, [pod.name for pod in before.pods.values() if pod.leaving]

    def there(evicted: frozenset[str]) -> bool:
        state = before.evicted([*evicted, *ending])
        return fits(state, unit, places) if places is not None else place(state, unit) is not None

    victims = frozenset(step.victims)
    if not there(victims):
        before = before.evicted(_promised(before))  # who was promised room may have to wait for this one
        if not there(victims):
            yield Finding("7 not sufficient", f"{sorted(unit.names)} does not fit without {sorted(victims)}", step.at)
        return
    begin = State(before.queues, before.nodes, before.pods, victims)
    units = [each for each in begin.units() if each.names <= victims]
    for each in units:
        whole = {u.names for u in units if each.gang and u.gang == each.gang and not u.surplus}
        if each.surplus and whole:
            continue  # goes with its gang
        left = victims - each.names
        if there(left) and (places is not None or _is_legal_anywhere(before, asker, left)):
            yield Finding("7 not minimal", f"{sorted(each.names)} could stay: {sorted(unit.names)} fits", step.at)


def _is_legal_anywhere(before: State, asker: Asker, victims: frozenset[str]) -> bool:
    """Return whether a unit, which may have been meant for any nodes, finds some for which these victims may go."""
    found = place(before.settled().evicted(victims), asker.unit)
    if found is None:
        return False
    short = shortage_beside(before.settled(), asker.unit, found, by_share=asker.reclaim is Reclaim.FAIR)
    return not why_illegal(before, replace(asker, short=short), sorted(victims))


def _of_budgets(before: State, asker: Asker, step: Evicted, places: Mapping[str, str]) -> Iterator[Finding]:
    """Yield where more protected pods go though others could make the same room.

    A guarantee is got from other queues, and not from pods of the own queue instead.
    """
    if before.violations(step.victims):
        others = victims_for(before, asker, places, spares=True)
        own = [any(before.pods[name].queue == asker.unit.queue for name in names) for names in (step.victims, others)]
        if others and own != [False, True] and before.violations(others) < before.violations(step.victims):
            yield Finding("22 budget", f"{step.by} evicts {step.victims} though {others} would do", step.at)


def _progress(before: State, asker: Asker, step: Evicted) -> Iterator[Finding]:
    """Yield where an eviction by priority takes from what is guaranteed.

    Not for reclaim: what becomes guaranteed below may take the place of what was guaranteed in a queue of both. Nor for
    shares: there a small unit may take the place of a large one that is as important, and as guaranteed.
    """
    gang = "" if asker.unit.surplus else asker.unit.gang
    if gang and any(pod.gang == gang and pod.holds for pod in before.pods.values()):
        return  # what is left of its gang becomes a part of a larger unit, which may be guaranteed nothing
    begin = State(before.queues, before.nodes, before.pods, frozenset(step.victims))
    taken = [entitled(begin, asker.unit, begin.pods[name].queue, asker.short.resources) for name in step.victims]
    if any(lead is not None for lead in taken):
        return
    if all(begin.pods[name].priority >= asker.unit.priority for name in step.victims):
        return
    if guarantees(begin.evicted(step.victims).promised(asker.unit)) < guarantees(begin):
        yield Finding("13 what is guaranteed falls", f"{step.by} evicts {step.victims}", step.at)


def guarantees(state: State) -> tuple[int, ...]:
    """Return what is guaranteed: by rank, strongest first; by depth, deepest first; by priority, highest first."""
    priorities = sorted({pod.priority for pod in state.pods.values()}, reverse=True)
    depths = {name: len(state.path(name)) for name in state.by_name}
    found: Counter[tuple[str, int, int]] = Counter()
    units = {unit.names: unit for unit in state.units()}
    for queue in state.by_name:
        for names, rank in state.guaranteed(queue).items():
            unit = units[names]
            found[rank, depths[queue], unit.priority] += unit.wants(rank)
    deepest = sorted(set(depths.values()), reverse=True)
    return tuple(found[rank, depth, each] for rank in state.counted for depth in deepest for each in priorities)


def _returns(trace: Trace) -> Iterator[Finding]:
    """Yield where evictions lead back to what ran before, with no change from outside in between."""
    seen: dict[tuple[int, frozenset[tuple[str, str]]], float] = {}
    for step in trace.evictions:
        runs = frozenset((pod.name, pod.node or pod.promised) for pod in step.before.pods.values() if not pod.pending)
        if (step.changes, runs) in seen:
            yield Finding("13 cycle", f"the same pods run as before {step.by} evicts {step.victims}", step.at)
            return
        seen[step.changes, runs] = step.at


# --- moments --------------------------------------------------------------------------------------------------


def _at_each_moment(case: Case, step: Rested) -> Iterator[Finding]:
    state = step.state
    for wrong in step.miscounted:
        yield Finding("2 miscounted", wrong, step.at)
    for queue, amounts in step.used.items():
        for resource, used in amounts.items():
            if queue in state.by_name and resource in state.counted and used != state.used(queue, resource):
                what = f"{queue}: {used} {resource}, the model counts {state.used(queue, resource)}"
                yield Finding("2 miscounted", what, step.at)
    running = Counter(pod.gang for pod in state.pods.values() if pod.gang and pod.holds)
    for gang, number in running.items():
        size = next(pod.size for pod in state.pods.values() if pod.gang == gang)
        there = sum(pod.gang == gang for pod in state.pods.values())
        has_lost = there < sum(pod.gang == gang for pod in case.kinds.values())
        if number < size <= there and not has_lost:
            yield Finding("8 part of a gang runs", f"{number} of {gang}, which needs {size}", step.at)


# --- at rest --------------------------------------------------------------------------------------------------


def at_rest(case: Case, trace: Trace) -> Iterator[Finding]:
    """Yield what could still be done although nothing happens any more."""
    state, returned = trace.last, trace.returned
    for name in _promised(state):
        yield Finding("13 never comes", f"{name} is nominated to {state.pods[name].promised} in the end")
    state = state.evicted(_promised(state))
    for unit in pending_units(state):
        places = place(state, unit)
        waits = case.backfill and places is not None and delayed_by(case, state, unit, places, trace.ends_at)
        if places is not None and not waits and not _takes_what_is_kept(state, unit):
            yield Finding("12 room is left", f"{sorted(unit.names)} of {unit.queue or 'no queue'} fits at {places}")
        if places is not None:
            continue
        if case.reclaim is Reclaim.NO or not unit.queue:
            continue
        for rule, invariant in ((Rule.RECLAIM, "11 guarantee not served"), (Rule.FAIR, "15 not fair at rest")):
            if rule is Rule.FAIR and (case.reclaim is not Reclaim.FAIR or not unit.names.isdisjoint(returned)):
                continue
            victims = _served_by(state, unit, case.reclaim, rule)
            if victims is not None and _is_missed(state, unit, case.reclaim):
                yield Finding(invariant, f"{sorted(unit.names)} of {unit.queue} may evict {sorted(victims)}")


def _is_missed(state: State, unit: Unit, reclaim: Reclaim) -> bool:
    """Return whether the rules lead to room for a unit, and each of the victims must go for it, wherever it runs.

    Where others must go so that these may, or only another line of victims leads to room, nothing is missed.
    """
    found = plan(state, unit, reclaim)
    if found is None:
        return False
    victims = frozenset(found[0])
    units = (each.names for each in state.units() if each.names <= victims)
    return all(place(state.evicted(victims - names), unit) is None for names in units)


def _takes_what_is_kept(state: State, unit: Unit) -> bool:
    """Return whether a unit would leave less below a max than queues below it keep: it may be rejected."""
    after = state.promised(unit)
    return any(
        after.charged(queue, resource) > most
        for queue in state.path(unit.queue)
        for resource, most in state.by_name[queue].maximum.items()
    )


def _served_by(state: State, unit: Unit, reclaim: Reclaim, rule: Rule) -> frozenset[str] | None:
    """Return victims that all go by one rule and are enough, or None."""
    for places in islice(placements(state, unit), MOST_PLACES_SEARCHED):
        asker = Asker(unit, shortage(state, unit, places), reclaim)
        found = _set_of_victims(state, asker, places, rule)
        if found is not None and not why_illegal(state, asker, sorted(found)):
            return found
    return None


def _set_of_victims(state: State, asker: Asker, places: Mapping[str, str], rule: Rule) -> frozenset[str] | None:
    seen = set[frozenset[str]]()
    todo = [frozenset[str]()]
    while todo and len(seen) < MOST_SETS:
        gone = todo.pop()
        if gone in seen:
            continue
        seen.add(gone)
        now = state.evicted(gone)
        if gone and fits(now, asker.unit, places):
            return gone
        after = now.promised(asker.unit)
        for victim in victim_units(now, asker.short):
            if rule_for(now, asker, victim, after) is rule:
                todo.append(gone | victim.names)
    return None
