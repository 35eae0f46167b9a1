"""What a policy says without effect: never an error, and `--fix` removes it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kube_policy_scheduler.diagnostics import Edit, Fix, Span
from kube_policy_scheduler.lang import syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, Grouping, queue_values_of, values_of
from kube_policy_scheduler.lang.checking.missing import default_of_all
from kube_policy_scheduler.lint.rule import Finding, removal, rule, short


@rule("P0118", syntactic=True)
def default_never_used(policy: CheckedPolicy) -> Iterator[Finding]:
    """The left side of `??` always has a value, so what follows is never used. `??` binds tighter than any other
    operator, so it may stand in the wrong place: `a < b ?? c` is `a < (b ?? c)`.

    Avoid::

        score 100 - pod.priority ?? 0 if label disk=ssd

    Prefer::

        score 100 - pod.priority if label disk=ssd
    """
    roots = [*(value for clause in policy.clauses for value in values_of(clause)), *queue_values_of(policy)]
    roots += [] if policy.condition is None else [policy.condition]
    reported: set[Span] = set()
    for root in roots:
        for part in typed.below(root):
            for value in (part, *typed.parts(part)):
                if isinstance(value, typed.Otherwise) and not value.left.info.maybe and value.span not in reported:
                    reported.add(value.span)
                    yield _never_used(value, part)


def _never_used(value: typed.Otherwise, around: typed.Typed) -> Finding:
    source, text = value.span.source, value.span.source.text
    start = text.find("??", value.left.span.end)
    place = Span(source, start, start + 2)
    message = f"`{short(value.left.span)}` is never missing, so its default is never used"
    written = default_of_all(around)
    if written and isinstance(around, typed.Arithmetic | typed.Compare | typed.Same):
        sign = around.operator if not isinstance(around, typed.Same) else "!=" if around.negated else "=="
        return Finding(place, message, f"`??` binds tighter than `{sign}`: write `{written}`")
    rest = Span(source, value.left.span.end, value.right.span.end)
    fix = Fix("remove the default", (Edit(rest, ""),))
    return Finding(place, message, f"remove `{short(Span(source, start, rest.end))}`", fix=fix)


@rule("P0313")
def part_without_effect(policy: CheckedPolicy) -> Iterator[Finding]:
    """A `spread` with `max skew` is a filter: it forbids, and no weight changes that. A `spread` without `max skew` is
    a score: it never refuses a pod, so no reason is ever given. Where both are wanted, write two statements.

    Avoid::

        spread by pod.label.app over zone max skew 1 weight 50

    Prefer::

        spread by pod.label.app over zone max skew 1
        spread by pod.label.app weight 50
    """
    for clause in policy.clauses:
        tree = clause.tree
        if not isinstance(clause, Grouping) or not isinstance(tree, syntax.Spread):
            continue
        if clause.max_skew is not None and tree.weight is not None:
            message = "a `spread` with `max skew` forbids, so its weight has no effect"
            yield _part(tree.span, "weight", tree.weight.span, message, "a second `spread` without `max skew` has one")
        if clause.max_skew is None and tree.reason is not None:
            found = list(re.finditer(r'else\s+"(?:[^"\\]|\\.)*"', tree.span.text))
            last = found[-1]
            span = Span(tree.span.source, tree.span.start + last.start(), tree.span.start + last.end())
            message = "a `spread` without `max skew` refuses no pod, so its reason is never given"
            yield _part(tree.span, "else", span, message, "`max skew 1` makes a rule of it")


def _part(statement: Span, word: str, value: Span, message: str, more: str) -> Finding:
    """Return the finding of a part of a statement, with the fix that removes it and the space before it."""
    source = statement.source
    at = value.start if word == "else" else source.text.rindex(word, statement.start, value.start)
    part = Span(source, at, value.end)
    before, after = source.text[:at].rstrip(" \t"), source.text[value.end :].lstrip(" \t")
    if before.endswith("\n") and (not after or after.startswith(("\n", "\r"))):
        fix = removal(f"remove {word}", part)
    else:
        fix = Fix(f"remove {word}", (Edit(Span(source, len(before), value.end), ""),))
    return Finding(part, message, f"remove `{short(part)}`; {more}", fix=fix)
