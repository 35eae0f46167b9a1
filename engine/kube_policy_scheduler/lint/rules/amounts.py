"""Numbers that nothing real is compared with: a unit or a percent sign was forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from kube_policy_scheduler.diagnostics import Edit, Fix
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.checking.units import constant_number
from kube_policy_scheduler.lang.types import CORES
from kube_policy_scheduler.lint.rule import Finding, rule, short


@rule("P0307")
def share_above_one(policy: CheckedPolicy) -> Iterator[Finding]:
    """A share ranges from 0 to 1. A number far above 1 is probably meant as a percentage.

    Avoid::

        filter node.used_fraction.cpu < 80

    Prefer::

        filter node.used_fraction.cpu < 80%
    """
    for value in _comparisons(policy):
        yield from _too_large(value)


@lru_cache(maxsize=1)
def _comparisons(policy: CheckedPolicy) -> tuple[typed.Compare, ...]:
    """Return the comparisons of numbers in conditions and scores, each once."""
    given = (getattr(clause, name, None) for clause in policy.clauses for name in ("value", "condition"))
    parts = (part for root in given if root is not None for part in typed.below(root))
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, typed.Compare)))


def _too_large(value: typed.Compare) -> Iterator[Finding]:
    for share, literal in ((value.left, value.right), (value.right, value.left)):
        if isinstance(share, typed.Arithmetic) and share.operator == "/" and constant_number(share.right) is not None:
            continue  # so many Gi, hours or cores: no share of anything
        if share.info.type.unit.share and isinstance(literal, typed.Constant) and literal.value > 2:
            text = literal.span.text
            yield Finding(
                literal.span,
                f"`{short(share.span)}` ranges from 0 to 1, and {text} is far above",
                f"write `{text}%`",
                fix=Fix(f"write {text}%", (Edit(literal.span, f"{text}%"),), safe=False) if text.isdigit() else None,
            )


@rule("P0309")
def millions_of_cores(policy: CheckedPolicy) -> Iterator[Finding]:
    """The number is larger than the cpu count of any machine. `M` means a million; `m` means a thousandth of a cpu.

    Avoid::

        filter node.free.cpu > 500M

    Prefer::

        filter node.free.cpu > 500m
    """
    for value in _comparisons(policy):
        yield from _too_many_cores(value)


_MOST_CORES = 10_000


def _too_many_cores(value: typed.Compare) -> Iterator[Finding]:
    for amount, literal in ((value.left, value.right), (value.right, value.left)):
        if amount.info.type.unit != CORES or not isinstance(literal, typed.Constant) or literal.value <= _MOST_CORES:
            continue
        text = literal.span.text
        message = f"`{short(amount.span)}` is in cpus, and {text} are {literal.value:,.0f} of them"
        if text.endswith("M"):
            written = f"{text[:-1]}m"
            fix = Fix(f"write {written}", (Edit(literal.span, written),), safe=False)
            yield Finding(literal.span, message, f"write `{written}` for thousandths", fix=fix)
        else:
            yield Finding(literal.span, message, "write the number of cpus, or thousandths like `500m`")


@rule("P0315")
def moment_as_duration(policy: CheckedPolicy) -> Iterator[Finding]:
    """`now()`, `time(…)`, `pod.created` and `pod.queued` are times: durations since 1970. A comparison of one with a
    few minutes or days always has the same result. For the time since then, subtract it from `now()`.

    Avoid::

        hold if pod.created < 10min

    Prefer::

        hold if now() - pod.created < 10min
    """
    for value in _comparisons(policy):
        for moment, literal in ((value.left, value.right), (value.right, value.left)):
            constant = constant_number(literal)
            if constant is not None and 0 < constant < _EARLIEST and _is_moment(moment):
                shown = short(moment.span)
                message = f"`{shown}` is a time, and `{short(literal.span)}` is a duration"
                since = "time(…) - now()" if shown == "now()" else f"now() - {shown}"
                yield Finding(value.span, message, f"compare how long ago it is, `{since}`, or how far off")


_EARLIEST = 3e8
"""Seconds: nine and a half years, which no duration in a policy reaches, and no time that matters precedes."""
_MOMENTS = ("now", "time")


def _is_moment(value: typed.Typed) -> bool:
    value = typed.inner(value)
    if isinstance(value, typed.Otherwise):
        return _is_moment(value.left)
    if isinstance(value, typed.Read):
        return value.field.path in ("pod.created", "pod.queued")
    return isinstance(value, typed.Apply) and value.builtin.name in _MOMENTS
