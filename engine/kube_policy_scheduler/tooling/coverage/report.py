"""Coverage for people, and as plain values for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kube_policy_scheduler.diagnostics import Span, excerpt, printable
from kube_policy_scheduler.tooling.coverage.measure import FileCoverage, SiteCoverage, percent, totals
from kube_policy_scheduler.tooling.text_table import BLUE, BOLD, RED, Terminal

WIDTH = 100
"""Columns of source lines where a line may be as wide as it likes."""
_NOT_REACHED = "never reached"


def lines(files: Sequence[FileCoverage], *, to: Terminal) -> Iterator[str]:
    """Yield what is not covered, each with its source line and a caret, and the totals as last line."""
    for file in files:
        head = f"{file.source.name}: clauses {file.clause_ratio}, branches {file.branch_ratio}"
        yield to.paint(BOLD, printable(head))
        before = 0
        for span, text in _gaps(file):
            number, _ = span.source.position(span.start)
            yield from _marked(span, text, repeated=number == before, to=to)
            before = number
    clauses, branches = totals(files)
    yield f"clauses {clauses}, branches {branches}"


def _gaps(file: FileCoverage) -> Iterator[tuple[Span, str]]:
    """Yield the places that are not covered with what is missing, in the order of the text; outermost only."""
    found = [(clause.span, _NOT_REACHED) for clause in file.clauses if not clause.decisions]
    silent = [span for span, _ in found]
    for covered in file.sites:
        span = covered.site.span
        if any(outer.start <= span.start and span.end <= outer.end for outer in silent):
            continue
        if not covered.reached:
            silent.append(span)
            found.append((span, _NOT_REACHED))
        elif covered.unseen:
            found.append((span, _missing(covered)))
    yield from sorted(found, key=lambda gap: (gap[0].start, -gap[0].end))


def _missing(covered: SiteCoverage) -> str:
    return ", ".join(covered.site.never(outcome) for outcome in covered.unseen)


def _marked(span: Span, text: str, *, repeated: bool, to: Terminal) -> Iterator[str]:
    """Yield the line of a span, unless it stands there already, and the marks under it."""
    number, _ = span.source.position(span.start)
    gutter = max(4, len(str(number)))
    line, caret = excerpt(span, "^", (to.width or WIDTH) - gutter - 3)
    if not repeated or line.startswith("…"):
        yield f"{to.paint(BLUE, f'{number:>{gutter}} |')} {line}"
    yield f"{to.paint(BLUE, ' ' * gutter + ' |')} {to.paint(RED, f'{caret} {text}')}"


def data(files: Sequence[FileCoverage]) -> dict[str, Any]:
    """Return the coverage as plain values: files with every clause and every branch, and the totals."""
    clauses, branches = totals(files)
    return {
        "files": [
            {
                "file": file.source.name,
                "clauses": [
                    {"clause": f"{clause.keyword} {clause.name}", **_place(clause.span), "decisions": clause.decisions}
                    for clause in file.clauses
                ],
                "branches": [
                    {
                        "text": covered.site.span.text,
                        "kind": covered.site.kind.value,
                        **_place(covered.site.span),
                        "seen": {outcome.value: count for outcome, count in covered.seen.items()},
                    }
                    for covered in file.sites
                ],
            }
            for file in files
        ],
        "summary": {
            "clauses": {"covered": clauses.covered, "total": clauses.total},
            "branches": {"covered": branches.covered, "total": branches.total},
            "percent": round(percent(files), 2),
        },
    }


def _place(span: Span) -> dict[str, Any]:
    (line, column), (end_line, end_column) = span.source.position(span.start), span.source.position(span.end)
    return {"line": line, "column": column, "end": {"line": end_line, "column": end_column}}
