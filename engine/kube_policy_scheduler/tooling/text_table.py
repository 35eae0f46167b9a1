"""Tables as people read them in a terminal of some width. Asks no terminal what it is like.

A table that is too wide has its texts wrapped between words; where that does not help, each row becomes a few lines of
`title: text`. Nothing is ever cut off. (rich, which draws the demo's picture, breaks words and squeezes columns to
nothing, and its import takes 75 ms.)
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kube_policy_scheduler.diagnostics import printable

BOLD, DIM, RED, GREEN = "\x1b[1m", "\x1b[2m", "\x1b[1;31m", "\x1b[1;32m"
YELLOW, BLUE, MAGENTA = "\x1b[1;33m", "\x1b[1;34m", "\x1b[1;35m"
_RESET = "\x1b[0m"
_GAP = 2
_NARROWEST = 24
"""Columns of a text that is wrapped: with less it is hard to read."""
_NO_STYLES: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where a text goes."""

    colour: bool = False
    width: int | None = None
    """Columns; None: as wide as a line may be, as in files and pipes."""

    def paint(self, style: str, text: str) -> str:
        """Return the text in a style, or plain if colours are off."""
        text = printable(text)
        return f"{style}{text}{_RESET}" if self.colour and style else text

    def item(self, mark: str, text: str, *, style: str = "") -> Iterator[str]:
        """Return a text behind a mark that has a style, its further lines below its beginning.

        Where that leaves too little room, the text begins below the mark.
        """
        mark, text = printable(mark), printable(text)
        indent = _columns(mark)
        if self.width is not None and self.width - indent < _NARROWEST:
            if mark.strip():
                yield self.paint(style, mark.rstrip())
            indent, mark = 2 * _GAP, ""
        lines = [text] if self.width is None else _wrapped(text, self.width - indent, indent=0)
        yield (self.paint(style, mark) if mark else " " * indent) + lines[0]
        yield from (" " * indent + line for line in lines[1:])

    def table(
        self, rows: Sequence[tuple[str, ...]], *, right_from: int, styles: Mapping[int, str] = _NO_STYLES
    ) -> Iterator[str]:
        """Return rows as lines; a column that is empty in all rows is left out.

        Args:
            rows: equally long, the head first; a head without any title is left out.
            right_from: the first column that is set flush right, and never wrapped.
            styles: of rows, by their place in `rows`; the head is dim.
        """
        shown = [at for at in range(len(rows[0])) if any(row[at] for row in rows)]
        kept = [tuple(printable(row[at]) for at in shown) for row in rows]
        right = sum(at < right_from for at in shown)
        widths = _fitting(kept, right, self.width)
        for at, row in enumerate(kept):
            if not at and not any(row):
                continue
            if widths is not None:
                found = _laid_out(row, widths, right)
            elif at:
                found = _folded(kept[0], row, self.width or 0)
            else:
                continue
            style = DIM if not at else styles.get(at, "")
            yield from (self.paint(style, line) for line in found)


def _fitting(rows: Sequence[tuple[str, ...]], right: int, most: int | None) -> list[int] | None:
    """Return the width of each column, texts made as narrow as they must be; None where all do not fit."""
    widths = [max(_columns(row[at]) for row in rows) for at in range(len(rows[0]))]
    if most is None:
        return widths
    over = sum(widths) + _GAP * (len(widths) - 1) - most
    while over > 0:
        least = [max(_NARROWEST, *(_longest_word(row[at]) for row in rows)) for at in range(right)]
        room = [width - low for width, low in zip(widths, least, strict=False)]
        if not room or max(room) <= 0:
            return None
        widths[room.index(max(room))] -= 1
        over -= 1
    return widths


def _laid_out(row: Sequence[str], widths: Sequence[int], right: int) -> Iterator[str]:
    cells = [
        _wrapped(cell, width) if at < right else [cell]
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    for line in range(max(map(len, cells))):
        texts = [cell[line] if line < len(cell) else "" for cell in cells]
        padded = (
            text + " " * (width - _columns(text)) if at < right else " " * (width - _columns(text)) + text
            for at, (text, width) in enumerate(zip(texts, widths, strict=True))
        )
        yield (" " * _GAP).join(padded).rstrip()


def _folded(titles: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    first, *rest = [(title, cell) for title, cell in zip(titles, row, strict=True) if cell]
    yield from _wrapped(first[1], width)
    for title, cell in rest:
        yield from _wrapped(f"    {title}: {cell}" if title else f"    {cell}", width)


def _wrapped(text: str, width: int, *, indent: int = _GAP) -> list[str]:
    """Return the lines of a text, broken between words alone: what is copied from a terminal stays whole."""
    if _columns(text) <= width:
        return [text]
    under = " " * (len(text) - len(text.lstrip()) + indent)
    return textwrap.wrap(text, width, subsequent_indent=under, break_long_words=False, break_on_hyphens=False)


def _longest_word(text: str) -> int:
    indent = len(text) - len(text.lstrip()) + _GAP
    return max((_columns(word) + indent for word in text.split()), default=0)


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
