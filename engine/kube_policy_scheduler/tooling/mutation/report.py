"""Mutants that survived, for people and as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.tooling.mutation.trial import MutantResult, MutantStatus
from kube_policy_scheduler.tooling.text_table import GREEN, RED, YELLOW, Terminal


def lines(tried: Sequence[MutantResult], *, to: Terminal) -> Iterator[str]:
    """Yield each survivor as a difference with its place and a hint, and the ratio as last line."""
    for one in tried:
        if one.status is not MutantStatus.SURVIVED:
            continue
        mutant = one.mutant
        removed, added = (printable(text) for text in mutant.removed_and_added())
        yield f"{printable(str(mutant.span))}: {to.paint(YELLOW, 'survived')}: {mutant.kind}"
        yield to.paint(RED, f"  - {removed}")
        yield to.paint(GREEN, f"  + {added or '(nothing)'}")
        yield f"  would be detected by {printable(mutant.hint)}"
    yield summary(tried)


def summary(tried: Sequence[MutantResult]) -> str:
    """Return the last line."""
    counts = Counter(one.status for one in tried)
    counted = counts[MutantStatus.KILLED] + counts[MutantStatus.SURVIVED]
    text = f"mutants {counts[MutantStatus.KILLED]}/{counted} killed ({kill_percent(tried):.1f}%)"
    left_out = [
        f"{counts[status]} {word}"
        for status, word in ((MutantStatus.EQUIVALENT, "equivalent"), (MutantStatus.REFUSED, "refused by the checker"))
        if counts[status]
    ]
    return text + (f"; not counted: {', '.join(left_out)}" if left_out else "")


def kill_percent(tried: Sequence[MutantResult]) -> float:
    """Return how many of the mutants that could be noticed were, 0 to 100; without any, 0."""
    counts = Counter(one.status for one in tried)
    counted = counts[MutantStatus.KILLED] + counts[MutantStatus.SURVIVED]
    return 100.0 * counts[MutantStatus.KILLED] / counted if counted else 0.0


def data(tried: Sequence[MutantResult]) -> dict[str, Any]:
    """Return every mutant as plain values, and the totals."""
    counts = Counter(one.status for one in tried)
    return {
        "mutants": [_mutant(one) for one in tried],
        "summary": {
            **{status.value: counts[status] for status in MutantStatus},
            "percent": round(kill_percent(tried), 2),
        },
    }


def _mutant(one: MutantResult) -> dict[str, Any]:
    span = one.mutant.span
    line, column = span.source.position(span.start)
    removed, added = one.mutant.removed_and_added()
    done: dict[str, Any] = {
        "file": span.source.name,
        "line": line,
        "column": column,
        "kind": one.mutant.kind,
        "status": one.status.value,
        "removed": removed,
        "added": added,
    }
    return done | ({"case": one.by} if one.by else {"hint": one.mutant.hint})
