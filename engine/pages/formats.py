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
