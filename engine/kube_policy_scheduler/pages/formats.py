"""Numbers and words as pages write them; the filters of the templates."""

from __future__ import annotations


def amount(value: float, /, digits: int = 2) -> str:
    """Return a number with at most some digits behind the point, thousands apart: `1,204`, `0.25`."""
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def signed(value: float, /, digits: int = 2) -> str:
    """Return a difference with its sign: `+3`, `−0.5`, `0`."""
    text = amount(abs(value), digits)
    if text == "0":
        return text
    return f"+{text}" if value > 0 else f"−{text}"


def percent(share: float, /, digits: int = 1) -> str:
    """Return a share of one as per cent: `37.5 %`."""
    return f"{amount(100 * share, digits)} %"


def plural(count: int, /, noun: str, many: str = "") -> str:
    """Return a count with its noun: `1 pod`, `3 pods`."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def duration(seconds: float) -> str:
    """Return a time span with at most two units: `0.2 s`, `14 s`, `3 min`, `2 h 5 min`, `4 d 1 h`."""
    if 0 < seconds < 0.01:
        return f"{1000 * seconds:.2f} ms"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" if whole >= 600 or whole % 60 == 0 else f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ago(seconds: float) -> str:
    """Return how long ago something was: `now`, `14 s ago`."""
    return "now" if seconds < 1 else f"{duration(seconds)} ago"
