"""Numbers, counts and lists in the texts that people read: messages, reports and pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def amount(value: float, /, digits: int = 2) -> str:
    """Return a number with at most some digits behind the point, thousands apart: `1,204`, `0.25`."""
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def signed(value: float, /, digits: int = 2) -> str:
    """Return a difference with its sign: `+3`, `-0.5`, `0`."""
    text = amount(value, digits)
    return f"+{text}" if value > 0 and text != "0" else text


def percent(share: float, /, digits: int = 1) -> str:
    """Return a share of one as per cent: `37.5 %`."""
    return f"{amount(100 * share, digits)} %"


def plural(count: int, /, noun: str, many: str = "") -> str:
    """Return a count with its noun: `1 pod`, `1,204 pods`."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def part_of(count: int, whole: int, /, noun: str, many: str = "") -> str:
    """Return a part of a count with its noun: `1 of 4 pods`, `0 of 1 pod`."""
    return f"{count:,} of {plural(whole, noun, many)}"


def listed(names: Iterable[object], /, word: str = "and") -> str:
    """Return names as a sentence has them: `a`, `a and b`, `a, b and c`."""
    *first, last = [str(name) for name in names] or [""]
    return f"{', '.join(first)} {word} {last}" if first else last


def some(names: Sequence[object], /, limit: int = 3) -> str:
    """Return the first of some names, and how many more there are: `a, b and 3 more`."""
    shown = ", ".join(str(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def shortened(text: str, /, limit: int) -> str:
    """Return a text of at most `limit` characters; what is cut off becomes `…`."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def one_line(text: str, /, limit: int) -> str:
    """Return a text on one line, of at most `limit` characters; what is cut off becomes `…`."""
    return shortened(" ".join(text.split()), limit)
