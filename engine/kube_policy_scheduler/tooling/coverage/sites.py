"""What of a policy can be covered: its clauses, and every place in them that can answer in more than one way.

Knows no decision: what was seen at a site is counted by `tooling.coverage.probe`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind
from kube_policy_scheduler.lang.types import Kind
from kube_policy_scheduler.lint.facts import NO_FACTS, Facts, always, assume, never

SpanKey: TypeAlias = tuple[str, int, int]
"""File, start and end: code in a file that several policies include is covered by any of them."""


class Outcome(Enum):
    """A way in which a site can answer."""

    TRUE = "true"
    FALSE = "false"
    MISSING = "missing"
    EQUAL = "equal"
    """Of a comparison: its two sides are the same number. Noted, but no branch: nothing in the text asks for it."""


class SiteKind(Enum):
    """What kind of place it is, and what is said where an outcome was never seen."""

    CONDITION = "condition"
    """A truth value: an `if`, an operand of `and`, a comparison."""
    FALLBACK = "fallback"
    """The left side of `??` (true: it has a value)."""
    SCORE = "score"
    """A score that can be missing (true: it has a value)."""
    BOUND = "bound"
    """`limit`, `spread` with `max skew`, and the `max` of a queue (true: it lets the pod pass)."""


_NEVER = {
    (SiteKind.FALLBACK, Outcome.TRUE): "always missing",
    (SiteKind.SCORE, Outcome.TRUE): "always missing",
    (SiteKind.BOUND, Outcome.TRUE): "never kept to",
    (SiteKind.BOUND, Outcome.FALSE): "never rejects",
}


@dataclass(frozen=True, slots=True)
class Site:
    """One place with its possible outcomes."""

    kind: SiteKind
    span: Span
    outcomes: tuple[Outcome, ...]

    @property
    def key(self) -> tuple[SiteKind, SpanKey]:
        """Return what tells it from others."""
        return self.kind, span_key(self.span)

    def never(self, outcome: Outcome) -> str:
        """Return what people read where an outcome was never seen."""
        return _NEVER.get((self.kind, outcome), f"never {outcome.value}")


@dataclass(frozen=True, slots=True)
class ClauseSites:
    """One clause (or the `for pods` line) and the sites that it reaches, those of names that it uses included."""

    keyword: str
    name: str
    span: Span
    sites: tuple[Site, ...]


def span_key(span: Span) -> SpanKey:
    """Return a span's place, whatever object it is."""
    return span.source.name, span.start, span.end


def clause_sites(policy: CheckedPolicy, *, alone: bool) -> Iterator[ClauseSites]:
    """Yield the clauses of a policy as written, its `for pods` line first.

    Args:
        policy: what is covered.
        alone: whether no other policy takes the pods that this one does not govern: a test has no such pods then.
    """
    condition = policy.condition
    if condition is not None:
        sites = () if alone else _together(_walk(condition, NO_FACTS))
        word = "for pods" if policy.workloads is None else "for workloads"
        yield ClauseSites(word, word, condition.span, sites)
    for queue in policy.queues if policy.canary is None else ():
        yield ClauseSites("queue", queue.name, queue.tree.span, _together(_of_queue(queue)))
    for reclaim in policy.reclaims if policy.canary is None else ():
        yield ClauseSites("reclaim", "reclaim", reclaim.tree.span, _together(_of_reclaim(reclaim)))
    if policy.backfill is not None:
        sites = _together(_of_backfill(policy.backfill))
        yield ClauseSites("backfill", "backfill", policy.backfill.tree.span, sites)
    for clause in policy.clauses:
        # over clusters, a skew bounds the division: it does not only let pass or reject
        bounds = is_bound(clause) and policy.workloads is None
        sites = _together(_of_clause(clause, bounds=bounds))
        yield ClauseSites(clause.kind.value, clause.name, clause.tree.span, sites)
    if policy.workloads is not None:
        yield from _of_workloads(policy.workloads)


def _of_workloads(rules: checked.OfWorkloads) -> Iterator[ClauseSites]:
    """Yield what only policies of workloads say."""
    for choose in rules.chooses:
        wanted = (choose.fewest, choose.most, choose.least, choose.most_places, choose.most_each)
        yield ClauseSites("choose", "choose", choose.tree.span, _together(_of_values(choose.condition, wanted)))
    for divide in rules.divides:
        values = (*(level.value for level in divide.levels), divide.least, divide.most)
        yield ClauseSites("divide", "divide", divide.tree.span, _together(_of_values(divide.condition, values)))
    for each in rules.rebalances:
        yield ClauseSites("rebalance", "rebalance", each.tree.span, _together(_of_values(each.condition, ())))


def _of_values(condition: typed.Typed | None, values: Sequence[typed.Typed | None]) -> Iterator[Site]:
    """Yield the sites of values that count where a condition holds."""
    given = NO_FACTS
    if condition is not None:
        yield from _walk(condition, NO_FACTS)
        given = assume(condition, True) or NO_FACTS
    for value in values:
        if value is not None:
            yield from _walk(value, given)


def _of_queue(queue: checked.QueueDeclaration) -> Iterator[Site]:
    if queue.maximum:
        yield max_site(queue)
    for value in (queue.pods, queue.key):
        if value is not None:
            yield from _walk(value, NO_FACTS)


def _of_reclaim(reclaim: checked.Reclaim) -> Iterator[Site]:
    given = NO_FACTS
    if reclaim.condition is not None:
        yield from _walk(reclaim.condition, NO_FACTS)
        given = assume(reclaim.condition, True) or NO_FACTS
    if reclaim.evict is not None:
        yield from _walk(reclaim.evict, given)


def _of_backfill(backfill: checked.Backfill) -> Iterator[Site]:
    for value in (backfill.condition, backfill.lasts):
        if value is not None:
            yield from _walk(value, NO_FACTS)


def max_site(queue: checked.QueueDeclaration) -> Site:
    """Return the site of the `max` of a queue."""
    return Site(SiteKind.BOUND, queue.tree.span, (Outcome.TRUE, Outcome.FALSE))


def is_bound(clause: checked.Clause) -> bool:
    """Return whether the clause as a whole lets pods pass or rejects them, without saying so in an expression."""
    return isinstance(clause, checked.Quota) or (isinstance(clause, checked.Grouping) and clause.max_skew is not None)


def bound_site(clause: checked.Clause) -> Site:
    """Return the site of a clause with a bound."""
    return Site(SiteKind.BOUND, clause.tree.span, (Outcome.TRUE, Outcome.FALSE))


def equality_of(value: typed.Typed) -> typed.Compare | None:
    """Return whether the sides of a comparison by order are equal, as a condition; None for other conditions."""
    if not isinstance(value, typed.Compare) or value.operator in ("==", "!="):
        return None
    return typed.Compare(value.info, value.span, "==", value.left, value.right)


def fallback_site(value: typed.Otherwise) -> Site | None:
    """Return the site of a `??`; None where its left side is a site itself, or never missing."""
    left = value.left.info
    if not left.maybe or left.type.kind is Kind.TRUTH:
        return None
    return Site(SiteKind.FALLBACK, value.left.span, (Outcome.TRUE, Outcome.MISSING))


def score_site(clause: checked.Test) -> Site | None:
    """Return the site of a score that can be missing."""
    if clause.kind is not ClauseKind.SCORE or not clause.value.info.maybe:
        return None
    return Site(SiteKind.SCORE, clause.value.span, (Outcome.TRUE, Outcome.MISSING))


def is_condition(value: typed.Typed) -> bool:
    """Return whether a value is a site: a truth that is not made of other sites alone."""
    if value.info.type.kind is not Kind.TRUTH:
        return False
    return not isinstance(
        value, typed.Constant | typed.Reference | typed.Not | typed.Conditional | typed.Otherwise | typed.Unknown
    )


def condition_site(value: typed.Typed, given: Facts = NO_FACTS) -> Site:
    """Return the site of a condition, without the outcomes that are proved to be impossible."""
    outcomes = []
    if not never(value, given=given):
        outcomes.append(Outcome.TRUE)
    if not always(value, given):
        outcomes.append(Outcome.FALSE)
    if value.info.maybe:
        outcomes.append(Outcome.MISSING)
    return Site(SiteKind.CONDITION, value.span, tuple(outcomes))


def _of_clause(clause: checked.Clause, *, bounds: bool) -> Iterator[Site]:
    condition = clause.condition
    given = NO_FACTS
    if condition is not None:
        yield from _walk(condition, NO_FACTS)
        given = assume(condition, True) or NO_FACTS
    if bounds:
        yield bound_site(clause)
    match clause:
        case checked.Test(value=value):
            score = score_site(clause)
            if score is not None:
                yield score
            below: tuple[typed.Typed | None, ...] = (value,)
        case checked.Grouping(key=key):
            below = (key,)
        case checked.Ordering(keys=keys):
            below = tuple(key for key, _ in keys)
        case checked.Quota(measure=measure, key=key, bound=bound, of_pods=of_pods):
            below = (measure, key, bound, of_pods)
        case checked.WorkloadLimit(key=key, bound=bound, of_workloads=of_workloads):
            yield bound_site(clause)
            below = (key, bound, of_workloads)
        case checked.Gang(key=key, size=size, roles=roles):
            below = (key, size, *(value for role in roles for value in (role.number, role.test)))
        case checked.Preemption(evict=evict):
            below = (evict,)
    for value_below in below:
        if value_below is not None:
            yield from _walk(value_below, given)


def _walk(value: typed.Typed, given: Facts) -> Iterator[Site]:
    if is_condition(value):
        yield condition_site(value, given)
    match value:
        case typed.Conditional(condition=condition, then=then, otherwise=otherwise):
            yield from _walk(condition, given)
            yield from _walk(then, assume(condition, True, given) or given)
            yield from _walk(otherwise, assume(condition, False, given) or given)
        case typed.Otherwise(left=left, right=right):
            site = fallback_site(value)
            if site is not None:
                yield site
            yield from _walk(left, given)
            if left.info.maybe:
                yield from _walk(right, given)
        case typed.Aggregate() | typed.NodeAggregate():
            for part in typed.parts(value):
                yield from _walk(part, NO_FACTS)  # what it goes over has nothing to do with what is decided
        case typed.ListAggregate(list=listed):
            yield from _walk(listed, given)  # conditions on single items are no sites
        case _:
            for part in typed.parts(value):
                yield from _walk(part, given)


def _together(sites: Iterator[Site]) -> tuple[Site, ...]:
    """Return each site once, with the outcomes that are possible anywhere, in the order of the text."""
    found: dict[tuple[SiteKind, SpanKey], Site] = {}
    for site in sites:
        known = found.get(site.key)
        found[site.key] = site if known is None else joined(known, site)
    return tuple(sorted(found.values(), key=lambda site: (span_key(site.span)[:2], -site.span.end)))


def joined(one: Site, other: Site) -> Site:
    """Return a site that is reached in two ways."""
    return replace(one, outcomes=tuple(o for o in Outcome if o in one.outcomes or o in other.outcomes))
