"""What `policyctl doctor` shows: text for people, data for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kube_policy_scheduler.tooling.doctor.findings import Finding, Status
from kube_policy_scheduler.tooling.text_table import BOLD, GREEN, MAGENTA, RED, YELLOW, Terminal

_MARKS = {Status.OK: "ok", Status.WARNING: "warning", Status.PROBLEM: "PROBLEM", Status.UNCHECKED: "could not check"}
_STYLES = {Status.OK: GREEN, Status.WARNING: YELLOW, Status.PROBLEM: RED, Status.UNCHECKED: MAGENTA}
_ORDER = (Status.PROBLEM, Status.WARNING, Status.UNCHECKED, Status.OK)


def lines(findings: Sequence[Finding], *, to: Terminal, quiet: bool = False) -> Iterator[str]:
    """Yield the findings kind by kind, the worst first; `quiet` leaves out what is well."""
    width = max(map(len, _MARKS.values()))
    for check in dict.fromkeys(one.check for one in findings):
        mine = [one for one in findings if one.check == check and not (quiet and one.status is Status.OK)]
        if not mine:
            continue
        yield to.paint(BOLD, check)
        for one in sorted(mine, key=lambda one: _ORDER.index(one.status)):
            place = f"  ({one.place})" if one.place and one.status is not Status.OK else ""
            mark = f"  {_MARKS[one.status]:<{width}}  "
            yield from to.item(mark, f"{one.subject}: {one.text}{place}", style=_STYLES[one.status])
            if one.advice:
                yield from to.item(" " * (len(mark) + 2), one.advice)
        yield ""
    yield summary(findings)


def summary(findings: Sequence[Finding]) -> str:
    """Return how many there are of each kind, in one line."""
    counts = Counter(one.status for one in findings)
    plural = {Status.PROBLEM: "problems", Status.WARNING: "warnings"}
    parts = [
        f"{counts[status]} {plural.get(status, _MARKS[status]) if counts[status] != 1 else _MARKS[status].lower()}"
        for status in _ORDER
    ]
    return ", ".join(parts)


def data(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings for programs."""
    counts = Counter(one.status for one in findings)
    return {
        "headline": summary(findings),
        "counts": {status.value: counts[status] for status in _ORDER},
        "findings": [
            {
                "check": one.check,
                "subject": one.subject,
                "status": one.status.value,
                "text": one.text,
                "place": one.place,
                "advice": one.advice,
            }
            for one in findings
        ],
    }
