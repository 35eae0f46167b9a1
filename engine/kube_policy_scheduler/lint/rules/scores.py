"""Scores that rank nothing, or that nobody can see beside another."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.diagnostics import Edit, Fix, Label
from kube_policy_scheduler.lang import syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind, Grouping, Test
from kube_policy_scheduler.lang.checking.missing import misplaced_default, missing_part, remedy, why
from kube_policy_scheduler.lang.types import Depends, Shape
from kube_policy_scheduler.lint.rule import Finding, rule, short

_FACTOR = 1000
"""A score whose whole range is below this part of another's decides only between equals."""
_KNOWN = 1e7
"""Bounds beyond are those of a type, not of what is likely: nothing follows from them."""


def _scores(policy: CheckedPolicy) -> list[Test]:
    return [clause for clause in policy.clauses if isinstance(clause, Test) and clause.kind is ClauseKind.SCORE]


def _same_for_all(test: Test) -> bool:
    if test.value.info.shape is Shape.NODE and test.value.info.low < test.value.info.high:
        return False
    return test.condition is None or test.condition.info.shape is not Shape.NODE


@rule("P0321")
def constant_score(policy: CheckedPolicy) -> Iterator[Finding]:
    """The score is the same for every node, so it has no effect.

    Avoid::

        score pod.request.cpu * 10

    Prefer::

        score scale(node.free.cpu - pod.request.cpu, 0, 64)
    """
    for test in _scores(policy):
        if _same_for_all(test):
            shown = short(test.value.span)
            row = policy.subject.row
            yield Finding(test.value.span, f"`{shown}` is the same for every {row}", f"use a value of the {row}")


@rule("P0322")
def missing_score(policy: CheckedPolicy) -> Iterator[Finding]:
    """The score can be missing: a metric without a fresh sample, a label that is not a number, or a division by zero.
    It then adds 0 to the node, which may be much better or much worse than a real value. Add a default value with `??`.

    Avoid::

        score 100 - promql("cpu_usage")

    Prefer::

        score 100 - promql("cpu_usage") ?? 50
    """
    for test in _scores(policy):
        cause = missing_part(test.value, when=test.condition)
        if cause is not None:
            message = f"`{short(cause.span)}` can be missing, and then this score adds 0"
            written = misplaced_default(test.value) or remedy(cause)
            yield Finding(cause.span, message, f"add a default value: `{written}`", notes=why(cause))


@rule("P0323")
def score_without_weight(policy: CheckedPolicy) -> Iterator[Finding]:
    """With weight 0, the score has no effect.

    Avoid::

        score node.free.cpu weight 0

    Prefer::

        score node.free.cpu weight 2
    """
    for clause in policy.clauses:
        if isinstance(clause, Test | Grouping) and clause.weight == 0 and getattr(clause, "max_skew", None) is None:
            yield Finding(clause.tree.span, "with weight 0, this has no effect", "remove it, or raise the weight")


@rule("P0324")
def drowned_score(policy: CheckedPolicy) -> Iterator[Finding]:
    """The range of this score is at most a thousandth of the range of another score. It matters only between nodes
    that are otherwise equal.

    Avoid::

        score scale(node.free.cpu, 0, 64) weight 10000
        score -1 if label node=hello

    Prefer::

        score scale(node.free.cpu, 0, 64)
        score -50 if label node=hello
    """
    ranges = [(clause, low, high) for clause in policy.clauses if (r := _range(clause)) for low, high in (r,)]
    for clause, low, high in ranges:
        span = high - low
        louder = next((other for other, bottom, top in ranges if span and top - bottom >= span * _FACTOR), None)
        if louder is not None:
            message = f"this changes the total by at most {span:g}, another score by a thousand times as much"
            label = Label(louder.tree.span, "the other")
            yield Finding(clause.tree.span, message, "raise its weight, or lower the other's", (label,))


def _range(clause: object) -> tuple[float, float] | None:
    """Return the lowest and highest that a clause adds, where both are known."""
    match clause:
        case Test(kind=ClauseKind.SCORE, value=value, condition=condition, weight=weight):
            low, high = value.info.low * weight, value.info.high * weight
            if condition is not None:
                low, high = min(low, 0.0), max(high, 0.0)
            return (low, high) if -_KNOWN < low <= high < _KNOWN else None
        case Grouping(max_skew=None, weight=weight):
            return 0.0, 100.0 * weight
        case _:
            return None


@rule("P0325")
def repeated_score(policy: CheckedPolicy) -> Iterator[Finding]:
    """The policy contains the same score twice, so it counts twice.

    Avoid::

        score node.free.cpu
        score node.free.cpu

    Prefer::

        score node.free.cpu weight 2
    """
    seen: dict[object, Test] = {}
    for test in _scores(policy):
        tree = test.tree
        assert isinstance(tree, syntax.Score)
        earlier = seen.setdefault((tree.value, tree.condition), test)
        if earlier is not test:
            label = Label(earlier.tree.span, "the first time")
            advice = "give the first one `weight 2`, or remove one"
            yield Finding(tree.span, "this score is counted twice", advice, (label,))


@rule("P0326")
def herding_score(policy: CheckedPolicy) -> Iterator[Finding]:
    """Only a metric ranks the nodes. Until its next sample, all pods of a burst go to the same best node. Add a score
    that changes with each placement, such as free resources or a spread.

    Avoid::

        score 100 - promql("cpu_usage") ?? 50

    Prefer::

        score 100 - promql("cpu_usage") ?? 50
        score least_allocated()
    """
    ranking = [c for c in policy.clauses if c.kind in (ClauseKind.SCORE, ClauseKind.SPREAD, ClauseKind.PACK)]
    scores = [t for t in _scores(policy) if not _same_for_all(t)]
    if policy.kubernetes_scores or len(scores) != len(ranking) or not scores:
        return
    if policy.workloads is not None:
        return  # each cluster has as many replicas as it has room for
    measured = [t for t in scores if t.value.info.depends & Depends.SIGNAL]
    reacting = any(t.value.info.depends & (Depends.ROW | Depends.CLUSTER) for t in scores)
    if measured and not reacting:
        message = "only a metric ranks the nodes: a burst of pods goes to one node until the next sample"
        yield Finding(measured[0].value.span, message, "add `score least_allocated()`, or use `predicted(…)`")


@rule("P0327")
def default_above_negative(policy: CheckedPolicy) -> Iterator[Finding]:
    """The minus belongs to the value alone, not to its default: `-load ?? 20` gives a node with load 30 a score of -30,
    and a node without a sample a score of 20, the best of all. Put the value and its default in parentheses.

    Avoid::

        metric load = promql("node_load1")
        score -load ?? 20
        score least_allocated()

    Prefer::

        metric load = promql("node_load1")
        score -(load ?? 20)
        score least_allocated()
    """
    for test in _scores(policy):
        for part in typed.below(test.value):
            if not isinstance(part, typed.Otherwise) or not isinstance(part.left, typed.Negative):
                continue
            negated, default = part.left.operand, part.right
            # a value that may itself be below 0 has no side on which it belongs
            if not isinstance(default, typed.Constant) or default.info.low <= 0 or negated.info.high <= 0:
                continue
            shown, written = (short(each.span) for each in (default, negated))
            row = policy.subject.row
            message = f"a {row} for which `{written}` is missing gets {shown}, and any other {row} gets `-{written}`"
            meant = f"-({' '.join(negated.span.text.split())} ?? {shown})"
            fix = Fix(f"write `{meant}`", (Edit(part.span, meant),), safe=False)
            yield Finding(part.span, message, f"write `{meant}`", fix=fix)
