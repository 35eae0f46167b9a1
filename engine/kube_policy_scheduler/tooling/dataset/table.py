"""A table of rows, as CSV: what takes the rows of a dataset."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

Cell: TypeAlias = str | float | None
"""None is missing."""
TEXT_COLUMNS = ("pod", "node")
"""All others are numbers."""


class TableWriter(Protocol):
    """Takes a table, row by row."""

    def begin(self, columns: Sequence[str]) -> None:
        """Take the names of the columns, before the first row. No two are the same."""

    def add(self, row: Sequence[Cell]) -> None:
        """Take a row, with a cell for each column."""


class CsvTable:
    """Writes a table as CSV, with a line of names."""

    def __init__(self, write: Callable[[str], object]) -> None:
        """write: takes each line, with its end."""
        self._write = write

    def begin(self, columns: Sequence[str]) -> None:
        """Write the line of names."""
        self._write(_line(columns))

    def add(self, row: Sequence[Cell]) -> None:
        """Write a line; a missing value is empty."""
        self._write(_line(row))


def _line(cells: Iterable[Cell]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([_text(cell) for cell in cells])
    return out.getvalue()


def _text(cell: Cell) -> str:
    """Return a cell; a number so that it is read as the same one."""
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else repr(float(cell)).removesuffix(".0")
