"""Offsets in a text as editors count them: lines from 0, and in a line the code units of an encoding."""

from __future__ import annotations

import re
from bisect import bisect_right
from enum import Enum

_LINE_END = re.compile(r"\r\n|\r|\n")


class Encoding(Enum):
    """How many units a character takes in a column, by the name in the protocol."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"

    def units(self, text: str) -> int:
        """Return how many units a text has."""
        if self is Encoding.UTF32 or text.isascii():
            return len(text)
        if self is Encoding.UTF8:
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text) + sum(1 for character in text if character > "\uffff")


class Lines:
    """The lines of one text. Of a place that does not exist, the nearest one before it is meant."""

    def __init__(self, text: str, encoding: Encoding = Encoding.UTF16) -> None:
        self.text = text
        self._encoding = encoding
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(text))]

    def __len__(self) -> int:
        return len(self._starts)

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset in characters."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset) - 1
        start = self._starts[line]
        return line, self._encoding.units(self.text[start:offset])

    def offset(self, line: int, column: int) -> int:
        """Return the offset in characters of a line and column."""
        if line < 0:
            return 0
        if line >= len(self._starts):
            return len(self.text)
        text = self.line(line)
        if column >= self._encoding.units(text):
            return self._starts[line] + len(text)
        if text.isascii() or self._encoding is Encoding.UTF32:
            return self._starts[line] + max(0, column)
        units = 0
        for index, character in enumerate(text):
            units += self._encoding.units(character)
            if units > column:
                return self._starts[line] + index
        return self._starts[line] + len(text)

    def line(self, number: int) -> str:
        """Return a line without its end."""
        end = self._starts[number + 1] if number + 1 < len(self._starts) else len(self.text)
        return self.text[self._starts[number] : end].rstrip("\r\n")

    def start(self, number: int) -> int:
        """Return the offset at which a line begins."""
        return self._starts[number]
