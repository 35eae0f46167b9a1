"""Filters and conditions that decide nothing, or too much: proved, not guessed."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterator
from itertools import groupby, islice

from kube_policy_scheduler.diagnostics import Edit, Fix, Label, Severity, Span
from kube_policy_scheduler.lang import syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind, Preemption, Test
from kube_policy_scheduler.lang.typed import key
from kube_policy_scheduler.lang.types import Shape
from kube_policy_scheduler.lint.facts import Facts, always, assume, known_of, never, nothing_of
from kube_policy_scheduler.lint.rule import Finding, removal, rule, short


def _tests(policy: CheckedPolicy, *kinds: ClauseKind) -> list[Test]:
    return [clause for clause in policy.clauses if isinstance(clause, Test) and clause.kind in kinds]


@rule("P0301", severity=Severity.ERROR)
def impossible_filter(policy: CheckedPolicy) -> Iterator[Finding]:
    """The condition is never true, so no node passes and no pod of this policy is placed. The same is true for a `hold`
    whose condition is always true: it never releases a pod.

    Avoid::

        filter node.free.cpu > 8 and node.free.cpu < 4

    Prefer::

        filter node.free.cpu > 4 and node.free.cpu < 8
    """
    given = known_of(policy)
    for test in _tests(policy, ClauseKind.FILTER, ClauseKind.REQUIRE):
        if test.condition is not None:
            if never(test.value, given=given) and always(test.condition, given):
                yield Finding(test.value.span, f"`{short(test.value.span)}` is never true", _DELETE)
        elif never(test.value, given=given):
            yield Finding(test.value.span, f"`{short(test.value.span)}` is never true", _DELETE)
    for test in _tests(policy, ClauseKind.HOLD):
        if always(test.value, given) and (test.condition is None or always(test.condition, given)):
            message = f"`{short(test.value.span)}` is always true, so no pod is ever released"
            yield Finding(test.value.span, message, _DELETE)


_DELETE = "correct the condition, or remove the statement"


@rule("P0302")
def filter_without_effect(policy: CheckedPolicy) -> Iterator[Finding]:
    """The condition is always true, so every node passes and the statement has no effect.

    Avoid::

        filter node.requested.cpu >= 0

    Prefer::

        filter node.requested.cpu >= 2
    """
    given = known_of(policy)
    for test in _tests(policy, ClauseKind.FILTER, ClauseKind.REQUIRE):
        if always(test.value, given):
            message = f"`{short(test.value.span)}` is always true"
            yield Finding(test.value.span, message, "remove the statement, or correct it", fix=_removal(test.tree.span))


def _removal(span: Span) -> Fix:
    """Return the fix that removes a statement."""
    return removal("remove the statement", span)


_OTHERS = 60
"""Filters that one is compared with, of those that look at something it looks at, too: more than people write."""


@rule("P0303")
def implied_filter(policy: CheckedPolicy) -> Iterator[Finding]:
    """The filter has no effect: every node that passes the other filters of the policy also passes this one.

    Avoid::

        filter node.free.cpu > 4
        filter node.free.cpu > 2

    Prefer::

        filter node.free.cpu > 4
    """
    tests = [t for t in _tests(policy, ClauseKind.FILTER, ClauseKind.REQUIRE) if t.condition is None]
    given = known_of(policy)
    dropped: set[int] = set()
    inputs = {id(test): _inputs(test.value) for test in tests}
    looking_at: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at, test in enumerate(tests):
        for each in inputs[id(test)]:
            looking_at[each].append(at)
    for test in reversed(tests):
        mine = inputs[id(test)]
        if all(len(looking_at[each]) == 1 for each in mine) or always(test.value, given):
            continue
        beside = (tests[at] for at, _ in groupby(heapq.merge(*(looking_at[each] for each in mine))))
        others = list(islice((o for o in beside if o is not test and id(o) not in dropped), _OTHERS))
        known: Facts | None = given
        for other in others:
            known = assume(other.value, True, known) if known is not None else None
        if known is None or not always(test.value, known):
            continue
        dropped.add(id(test))
        cause = next((o for o in others if _implies(o, test, given)), None)
        labels = (Label(cause.tree.span, "this filter already implies it"),) if cause is not None else ()
        message = f"`{short(test.value.span)}` follows from the other filters"
        yield Finding(test.value.span, message, "remove the statement", labels, fix=_removal(test.tree.span))


def _inputs(value: typed.Typed) -> frozenset[Hashable]:
    """Return the fields and calls that a condition looks at: without any in common, none follows from another."""
    return frozenset(key(part) for part in typed.below(value) if isinstance(part, typed.Read | typed.Apply))


def _implies(cause: Test, effect: Test, given: Facts) -> bool:
    known = assume(cause.value, True, given)
    return known is not None and always(effect.value, known)


@rule("P0304", severity=Severity.ERROR)
def contradicting_filters(policy: CheckedPolicy) -> Iterator[Finding]:
    """Each filter can be true, but never all of them at once, so no node passes.

    Avoid::

        filter node.zone == "a"
        filter node.zone == "b"

    Prefer::

        filter node.zone in ["a", "b"]
    """
    known: Facts | None = known_of(policy)
    earlier: list[Test] = []
    for test in _tests(policy, ClauseKind.FILTER, ClauseKind.REQUIRE):
        if test.condition is not None or never(test.value, given=known_of(policy)):
            continue
        assert known is not None
        after = assume(test.value, True, known)
        if after is None:
            partner = next((o for o in earlier if never(o.value, test.value, given=known_of(policy))), earlier[-1])
            message = f"`{short(test.value.span)}` contradicts the filters before it"
            yield Finding(test.value.span, message, _DELETE, (Label(partner.value.span, "contradicts this"),))
            return
        known = after
        earlier.append(test)


@rule("P0305")
def unreachable_clause(policy: CheckedPolicy) -> Iterator[Finding]:
    """The condition after `if`, `evict where` or `of pods where` is never true, so the statement has no effect.

    Avoid::

        for pods where pod.namespace == "batch"
        score 10 if pod.namespace == "web"

    Prefer::

        for pods where pod.namespace in ["batch", "web"]
        score 10 if pod.namespace == "web" and label disk=ssd
    """
    given = known_of(policy)
    for clause in policy.clauses:
        condition = getattr(clause, "condition", None)
        if condition is not None and never(condition, given=given):
            yield Finding(condition.span, f"`{short(condition.span)}` is never true here", _DELETE)
    for test in _tests(policy, ClauseKind.HOLD):
        if never(test.value, given=given):
            yield Finding(test.value.span, f"`{short(test.value.span)}` is never true here", _DELETE)
    for clause in policy.clauses:
        of_others = clause.evict if isinstance(clause, Preemption) else getattr(clause, "of_pods", None)
        if of_others is not None and never(of_others, given=nothing_of(policy)):
            what = "no pod can be evicted" if isinstance(clause, Preemption) else "no pod counts"
            message = f"`{short(of_others.span)}` is never true, so {what}"
            yield Finding(of_others.span, message, _DELETE)


@rule("P0306", severity=Severity.ERROR)
def policy_without_pods(policy: CheckedPolicy) -> Iterator[Finding]:
    """The condition of `for pods where` is never true, so the policy governs no pods.

    Avoid::

        for pods where pod.namespace == "a" and pod.namespace == "b"
        filter node.ready

    Prefer::

        for pods where pod.namespace in ["a", "b"]
        filter node.ready
    """
    if policy.governs is not None and never(policy.governs, given=nothing_of(policy)):
        if policy.owner:
            message = f"no pod that owner `{policy.owner}` may govern matches this condition"
            advice = "correct the condition, or ask the administrator (`policies.owners` of the configuration)"
            yield Finding(policy.governs.span, message, advice)
        else:
            message = f"no {policy.subject.decided} matches this condition"
            yield Finding(policy.governs.span, message, "correct the condition")


@rule("P0310")
def filter_of_the_pod_alone(policy: CheckedPolicy) -> Iterator[Finding]:
    """The condition is the same for every node: all nodes pass, or none. With `require`, the scheduler checks it once,
    before it considers any node, and the pod gets one reason instead of one for each node.

    Avoid::

        filter pod label tenant else "no tenant"

    Prefer::

        require pod label tenant else "no tenant"
    """
    for test in _tests(policy, ClauseKind.FILTER):
        conditions = [test.value] if test.condition is None else [test.value, test.condition]
        if any(c.info.shape is Shape.NODE or isinstance(_inner(c), typed.Constant) for c in conditions):
            continue
        nothing = nothing_of(policy)
        if not (always(test.value, nothing) or never(test.value, given=nothing)):
            span = Span(test.tree.span.source, test.tree.span.start, test.tree.span.start + len("filter"))
            fix = Fix("write require", (Edit(span, "require"),), safe=False)
            message = f"`{short(test.value.span)}` is the same for every {policy.subject.row}"
            yield Finding(test.value.span, message, "write `require` instead of `filter`", fix=fix)


def _inner(value: typed.Typed) -> typed.Typed:
    while isinstance(value, typed.Reference):
        value = value.value
    return value


@rule("P0308")
def unused_name(policy: CheckedPolicy) -> Iterator[Finding]:
    """The name is defined but never used. It may be left over from an earlier version, or misspelled elsewhere.

    Avoid::

        let busy = node.used_fraction.cpu > 80%
        filter node.ready

    Prefer::

        let busy = node.used_fraction.cpu > 80%
        filter node.ready and not busy
    """
    for name, definition in policy.definitions.items():
        if not definition.used and definition.tree.span.source == policy.source:
            word = {syntax.Let: "let", syntax.Def: "def", syntax.Metric: "metric"}[type(definition.tree)]
            yield Finding(
                definition.tree.name_span,
                f"`{name}` is never used",
                f"remove this `{word}`, or use it",
                fix=_removal(definition.tree.span),
            )
