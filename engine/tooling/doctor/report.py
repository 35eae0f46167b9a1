"""What `policyctl doctor` shows: text for people, data for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from engine.tooling.doctor.findings import Finding, Status

_MARKS = {Status.OK: "ok", Status.WARNING: "warning", Status.PROBLEM: "PROBLEM", Status.UNCHECKED: "could not check"}
_COLOURS = {
    Status.OK: "\x1b[32m",
    Status.WARNING: "\x1b[33m",
    Status.PROBLEM: "\x1b[1;31m",
    Status.UNCHECKED: "\x1b[35m",
}
_ORDER = (Status.PROBLEM, Status.WARNING, Status.UNCHECKED, Status.OK)
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"


def lines(findings: Sequence[Finding], *, colour: bool, quiet: bool = False) -> Iterator[str]:
    """Yield the findings kind by kind, the worst first; `quiet` leaves out what is well."""
    width = max(map(len, _MARKS.values()))
    for check in dict.fromkeys(one.check for one in findings):
        mine = [one for one in findings if one.check == check and not (quiet and one.status is Status.OK)]
        if not mine:
            continue
        yield f"{_BOLD}{check}{_RESET}" if colour else check
        for one in sorted(mine, key=lambda one: _ORDER.index(one.status)):
            mark = f"{_MARKS[one.status]:<{width}}"
            painted = f"{_COLOURS[one.status]}{mark}{_RESET}" if colour else mark
            place = f"  ({one.place})" if one.place and one.status is not Status.OK else ""
            yield f"  {painted}  {one.subject}: {one.text}{place}"
            if one.advice:
                yield f"  {'':<{width}}    {one.advice}"
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
