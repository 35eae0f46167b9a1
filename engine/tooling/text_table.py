"""Rows of texts as columns of equal width, and numbers as people write them. Knows no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

Paint: TypeAlias = Callable[[str, str], str]
"""From a style and a text to the text in that style, or to the text alone where nobody wants colours."""

BOLD, RED, GREEN, DIM = "\x1b[1m", "\x1b[1;31m", "\x1b[1;32m", "\x1b[2m"
_RESET = "\x1b[0m"


def painter(*, colour: bool) -> Paint:
    """Return what puts a text into a style."""
    return (lambda style, text: f"{style}{text}{_RESET}") if colour else (lambda style, text: text)


def aligned(rows: Sequence[tuple[str, ...]], *, right_from: int) -> Iterator[str]:
    """Return each row as a line; a column that is empty in all rows is left out.

    Args:
        rows: equally long, the head first.
        right_from: the first column that is set flush right.
    """
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (
            f"{cell:>{width}}" if at >= right_from else f"{cell:<{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            if width
        )
        yield "  ".join(cells).rstrip()


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 node`, `1,204 nodes`."""
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def short(value: float) -> str:
    """Return a number with two digits behind the point at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if round(value, 2) else "0"


def signed(value: float) -> str:
    """Return a difference with its sign; 0 has none."""
    return f"+{short(value)}" if round(value, 2) > 0 else short(value)
