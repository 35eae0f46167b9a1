"""Who may evict whom: what is short for a unit, which rule allows a victim, and sets of victims that are legal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

from tests.quotas.accounts import Pod, State, Unit


class Reclaim(StrEnum):
    """What a policy says about `reclaim`."""

    NO = ""
    GUARANTEES = "reclaim"
    FAIR = "reclaim fair"


class Rule(StrEnum):
    """Why a victim may go."""

    RECLAIM = "reclaim"
    FAIR = "fair"
    PRIORITY = "priority"
    OWN = "own"


MOST_ORDERS = 2_000
"""Sets of victims that are looked at before one is called illegal."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is short for a unit and a plan, on the state before any eviction; each with where it is short."""

    nodes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Nodes without room, by resource."""
    queues: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Queues at their max, by resource."""
    kept: frozenset[str] = frozenset()
    """Resources of which others keep what is left."""

    @property
    def resources(self) -> frozenset[str]:
        """Return what is short."""
        return frozenset(chain(self.nodes, self.queues, self.kept))

    def touches(self, state: State, victim: Unit) -> bool:
        """Return whether a victim holds something that is short, where it is short."""
        for pod in victim.pods:
            for resource, amount in pod.requests.items():
                if amount and (
                    pod.node in self.nodes.get(resource, ())
                    or any(state.within(queue, pod) for queue in self.queues.get(resource, ()))
                    or resource in self.kept  # what pods of no queue use there, queues cannot lend either
                ):
                    return True
        return False


def shortage(state: State, unit: Unit, places: Mapping[str, str]) -> Shortage:
    """Return what is short for a pending unit whose pods are to run on these nodes.

    To judge an eviction, `state` is the settled one: what is leaving makes room for those that were promised it. Only
    for evictions by priority it counts as there, see `Asker`.
    """
    nodes: dict[str, set[str]] = {}
    queues: dict[str, set[str]] = {}
    kept = set()
    after = state.promised(unit)
    for resource in unit.resources():
        for node in state.nodes:
            here = sum(pod.requests.get(resource, 0) for pod in unit.pods if places.get(pod.name) == node.name)
            if here and here > state.free(node, resource):
                nodes.setdefault(resource, set()).add(node.name)
        for queue in state.path(unit.queue):
            if over_max(state, unit, queue, resource):
                queues.setdefault(resource, set()).add(queue)
        if unit.queue and over_kept(state, after, resource):
            kept.add(resource)
    return Shortage(
        {r: frozenset(names) for r, names in nodes.items()},
        {r: frozenset(names) for r, names in queues.items()},
        frozenset(kept),
    )


def takes(state: State, pod: Pod, times: int, other: Pod, *, by_share: bool) -> bool:
    """Return whether a pod that asks takes the room that another one was promised.

    A guarantee takes what none of the other queues keeps within its own. Else priorities decide, but not against a pod
    that a queue may guarantee, nor between queues where shares decide.

    Args:
        state: without the unit that asks.
        pod: of that unit.
        times: how many pods of the unit need room, so that each asks for as much as all of them.
        other: was promised room.
        by_share: whether there is a `reclaim fair`.
    """
    asks, wanted = Unit((pod,) * times), Unit((other,))

    def is_within(queue: str, unit: Unit, more: int) -> bool:
        lead = state.lead(queue, unit)
        return lead is not None and state.will(queue, lead) + more * unit.wants(lead) <= state.minimum(queue, lead)

    if not pod.queue or not other.queue:
        return pod.priority > other.priority and not any(is_within(each, wanted, 0) for each in state.path(other.queue))
    ours, theirs, _ = divide(state, pod.queue, other.queue)
    if ours and is_within(ours[-1], asks, 1):
        return not any(is_within(each, wanted, 0) for each in theirs)
    if pod.priority <= other.priority or (by_share and pod.queue != other.queue):
        return False
    leads = ((each, state.lead(each, wanted)) for each in state.path(other.queue))
    return not any(lead is not None and wanted.wants(lead) <= state.minimum(each, lead) for each, lead in leads)


def shortage_beside(state: State, unit: Unit, places: Mapping[str, str], *, by_share: bool) -> Shortage:
    """Return what is short for a pending unit where others were promised room, some of which lose it to the unit.

    On a node, they lose it to any member that is to run there; quota, to the member of the highest priority.

    Args:
        state: as for `shortage`, without the unit.
        unit: that asks.
        places: the nodes of its pods.
        by_share: see `takes`.
    """
    first = max(unit.pods, key=lambda pod: pod.priority)
    of_nodes = shortage(state.evicted(lose_their_nodes(state, unit, places, by_share=by_share)), unit, places)
    of_queues = shortage(state.evicted(_lose(state, unit, [first], _promised(state), by_share=by_share)), unit, places)
    return Shortage(of_nodes.nodes, of_queues.queues, of_queues.kept)


def lose_their_nodes(state: State, unit: Unit, places: Mapping[str, str], *, by_share: bool) -> list[str]:
    """Return the pods whose promised room on its nodes goes to a pending unit; for the arguments see above."""
    there = {node: [pod for pod in unit.pods if places.get(pod.name) == node] for node in places.values()}
    promised = _promised(state)
    return [
        name
        for node, pods in there.items()
        for name in _lose(state, unit, pods, [p for p in promised if p.promised == node], by_share=by_share)
    ]


def _lose(state: State, unit: Unit, pods: Sequence[Pod], others: Iterable[Pod], *, by_share: bool) -> list[str]:
    times = len(unit.pods)
    return [each.name for each in others if any(takes(state, p, times, each, by_share=by_share) for p in pods)]


def _promised(state: State) -> list[Pod]:
    return [pod for pod in state.pods.values() if pod.promised and not pod.holds]


def short_of_its_guarantee(
    state: State, unit: Unit, places: Mapping[str, str], evicted: Sequence[str], *, by_share: bool
) -> Mapping[str, frozenset[str]]:
    """Return the queues, by resource, where pods of the unit's own queue hold what guarantees it room on its nodes.

    With them gone it is guaranteed, and gets the nodes that others were promised, who borrow.
    """
    if not unit.queue:
        return {}
    before = lose_their_nodes(state, unit, places, by_share=by_share)
    after = lose_their_nodes(state.evicted(evicted), unit, places, by_share=by_share)
    leads = {state.lead(queue, unit) for queue in state.path(unit.queue)} - {None}
    return {lead: frozenset((unit.queue,)) for lead in leads if lead} if set(after) > set(before) else {}


def over_max(state: State, unit: Unit, queue: str, resource: str) -> bool:
    """Return whether a unit would put a queue above its max."""
    most = state.by_name[queue].maximum.get(resource)
    if most is None or not unit.wants(resource):
        return False
    return state.used(queue, resource) + state.promised_to(queue, resource) + unit.wants(resource) > most


def over_kept(before: State, after: State, resource: str) -> bool:
    """Return whether a step charges queues more, and more than there is, where some keep what they do not lend."""
    if not before.keeps or resource not in before.counted:
        return False
    return before.charged_in_all(resource) < after.charged_in_all(resource) > before.usable(resource)


def divide(state: State, one: str, other: str) -> tuple[list[str], list[str], list[str]]:
    """Return the queues of one above which both paths meet, those of the other, and those in common; deepest first."""
    first, second = state.path(one), state.path(other)
    common = [name for name in first if name in second]
    return [n for n in first if n not in common], [n for n in second if n not in common], common


def entitled(state: State, unit: Unit, other: str, short: Iterable[str]) -> str | None:
    """Return the resource by which a unit would be guaranteed against a queue; None: it would not be.

    state: without the unit.
    """
    ours, _, _ = divide(state, unit.queue, other)
    counted = [resource for resource in short if resource in state.counted]
    if not ours or not counted:
        return None
    queue = ours[-1]
    lead = state.lead(queue, unit)
    if lead is None:
        return None
    for resource in {lead, *(r for r in counted if state.minimum(queue, r) > 0)}:
        if state.will(queue, resource) + unit.wants(resource) > state.minimum(queue, resource):
            return None
    return lead


def shares_allow(state: State, unit: Unit, victim: Unit, short: Iterable[str]) -> bool:
    """Return whether both inequalities of fair sharing hold."""
    ours, theirs, _ = divide(state, unit.queue, victim.queue)
    counted = [resource for resource in short if resource in state.counted]
    if not ours or not theirs or not counted:
        return False
    grown = state.promised(unit).share(ours[-1], counted)
    return grown <= state.evicted(victim.names).share(theirs[-1], counted) and grown < state.share(theirs[-1], counted)


def keeps_guarantees(state: State, after: State, unit: Unit, victim: Unit) -> bool:
    """Return whether no guaranteed victim goes for a unit that is guaranteed less, in each queue of both.

    after: with the unit, without its victims.
    """
    _, _, common = divide(state, unit.queue, victim.queue)
    for queue in common:
        theirs = state.rank(victim, (queue,))
        if theirs is not None:
            # a gang that it completes is guaranteed as a whole
            ours = next((rank for names, rank in after.guaranteed(queue).items() if unit.names <= names), None)
            if ours is None or after.strength(ours) > after.strength(theirs):
                return False
    return True


@dataclass(frozen=True, slots=True)
class Asker:
    """A unit that wants room, with what is short for it."""

    unit: Unit
    short: Shortage
    reclaim: Reclaim
    shares: bool = True
    """Whether it may evict for a fairer share: not once it has done so and was evicted since, until something changes
    that is not the work of evictions."""
    by_priority: bool = False
    """Whether it evicts by its priority alone. Kubernetes does not wait for what is leaving: it counts as there."""


def rule_for(state: State, asker: Asker, victim: Unit, after: State) -> Rule | None:
    """Return the rule by which a victim may go, or None.

    Args:
        state: without the unit and without the victims before this one.
        asker: who wants the room.
        victim: a unit that runs.
        after: with the unit, without all its victims.
    """
    unit, short = asker.unit, asker.short
    if not short.touches(state, victim):
        return None
    higher = unit.priority > victim.priority
    if not unit.queue or not victim.queue:
        theirs = state.path(victim.queue)
        return Rule.PRIORITY if higher and state.rank(victim, theirs) is None else None
    if unit.queue == victim.queue:
        return Rule.OWN if higher and keeps_guarantees(state, after, unit, victim) else None
    _, theirs, _ = divide(state, unit.queue, victim.queue)
    rank = state.rank(victim, theirs)
    lead = entitled(state, unit, victim.queue, short.resources)
    if lead is not None and asker.reclaim is not Reclaim.NO and not asker.by_priority:
        weaker = state.strength(rank) > state.strength(lead) and lead in short.resources and victim.wants(lead) > 0
        return Rule.RECLAIM if rank is None or weaker else None
    if rank is not None or not keeps_guarantees(state, after, unit, victim):
        return None
    if asker.reclaim is Reclaim.FAIR:  # also where only resources are short of which there are no shares
        allowed = asker.shares and not asker.by_priority and victim.priority <= unit.priority
        return Rule.FAIR if allowed and shares_allow(state, unit, victim, short.resources) else None
    return Rule.PRIORITY if higher else None


def victim_units(state: State, short: Shortage) -> list[Unit]:
    """Return the units that could go next: of a gang its next surplus member, or all that is left of it.

    Surplus members that hold nothing of what is short are passed over. Members that were promised room have nothing to
    lose: they go with nobody, and keep nobody.
    """
    found, surplus = [], dict[str, list[Unit]]()
    units = list(state.units())
    for unit in units:
        if unit.surplus and unit.holds:
            surplus.setdefault(unit.gang, []).append(unit)
    for unit in units:
        there = tuple(pod for pod in unit.pods if pod.holds)
        if unit.surplus or not there:
            continue
        beyond = surplus.get(unit.gang, [])
        found += [each for each in beyond if short.touches(state, each)][:1]
        pods = there + tuple(pod for each in beyond for pod in each.pods)
        found.append(Unit(pods, core=unit.names))
    return found


def why_illegal(state: State, asker: Asker, evicted: Sequence[str]) -> list[str]:
    """Return victims that no rule allows, in whatever order they were taken; [] where all are legal as a whole.

    state: before the eviction, without the unit.
    """
    begin = State(state.queues, state.nodes, state.pods, frozenset(evicted))
    after = begin.evicted(evicted).promised(asker.unit)
    seen: set[frozenset[str]] = set()
    closest = frozenset(evicted)
    todo = [frozenset(evicted)]
    while todo:
        left = todo.pop()
        if not left:
            return []
        if left in seen or len(seen) > MOST_ORDERS:
            continue
        seen.add(left)
        closest = min(closest, left, key=len)
        now = begin.evicted(frozenset(evicted) - left)
        for unit in victim_units(now, asker.short):
            if unit.names <= left and rule_for(now, asker, unit, after) is not None:
                todo.append(left - unit.names)
    return sorted(closest)
