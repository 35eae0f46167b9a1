"""Columns that are patched row by row: a change of one node costs nothing for the others. Knows values, not nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kube_policy_scheduler.cluster.journal import Journal

BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int64]
CodeArray: TypeAlias = NDArray[np.int32]
Rows: TypeAlias = slice | IntArray
"""Which rows to look at: all of them, or an index array."""

ALL_ROWS = slice(None)
T = TypeVar("T", bound=Hashable)


class RowColumn(Protocol):
    """One value per row, rows 0 to size-1."""

    def write(self, row: int, value: Any) -> None:
        """Set a row's value; a row of the column's size is a new one."""
        ...

    def remove(self, row: int) -> None:
        """Drop a row; the last one moves into its place."""
        ...


_SPARE_SHARE = 8
"""A column that is full grows by 1/8."""


class ValueColumn:
    """Numbers or truth values."""

    __slots__ = ("_data", "_size")

    def __init__(self, values: Collection[Any], dtype: DTypeLike) -> None:
        self._data: NDArray[Any] = np.fromiter(values, dtype, len(values))
        self._size = len(values)

    @property
    def values(self) -> NDArray[Any]:
        """Return the values `[rows]`: a view that later changes show in."""
        return self._data[: self._size]

    def write(self, row: int, value: Any) -> None:
        """Set a row's value; a row of the column's size is a new one."""
        if row == len(self._data):
            self._data = np.concatenate((self._data, np.zeros(max(row // _SPARE_SHARE, 64), self._data.dtype)))
        self._data[row] = value
        self._size = max(self._size, row + 1)

    def remove(self, row: int) -> None:
        """Drop a row; the last one moves into its place."""
        self._size -= 1
        self._data[row] = self._data[self._size]


class CodedColumn(Generic[T]):
    """One value or None per row, dictionary coded."""

    __slots__ = ("_codes", "_free", "_uses", "changes", "index", "state", "values")

    def __init__(self, values: Iterable[T | None]) -> None:
        rows = list(values)
        self.values: list[T] = [value for value in dict.fromkeys(rows) if value is not None]
        """By code. Codes that no row has any more keep their last value until another takes its place."""
        self.index: dict[T, int] = {value: code for code, value in enumerate(self.values)}
        """Codes by value, of values that some row has."""
        self.changes: Journal[int] = Journal()
        """Codes whose value is new: it was appended, or replaced one that no row had any more."""
        self.state = object()
        """Another object after each change: what is derived from the column is true while it is the same."""
        self.changes.note_many(range(len(self.values)))
        code_of = self.index.get
        self._codes = ValueColumn([code_of(value, -1) for value in rows], np.int32)  # type: ignore[arg-type]
        self._uses: list[int] = np.bincount(self.codes + 1, minlength=len(self.values) + 1)[1:].tolist()
        """By code: rows that have it."""
        self._free: list[int] = []

    @property
    def codes(self) -> CodeArray:
        """Return `int32[rows]`: indices into `values`, -1 where there is none; later changes show in it."""
        return self._codes.values

    def test(self, predicate: Callable[[T | None], bool], rows: Rows = ALL_ROWS) -> BoolArray:
        """Return `bool[rows]`: the predicate on each value, called once per distinct value."""
        table = np.fromiter(
            (*(predicate(value) for value in self.values), predicate(None)), np.bool_, len(self.values) + 1
        )
        result: BoolArray = table.take(self.codes[rows])
        return result

    def equal(self, value: T, rows: Rows = ALL_ROWS) -> BoolArray:
        """Return `bool[rows]`: whether the value is `value`."""
        result: BoolArray = self.codes[rows] == self.index.get(value, -2)
        return result

    def write(self, row: int, value: T | None) -> None:
        """Set a row's value; a row of the column's size is a new one."""
        codes = self.codes
        before = int(codes[row]) if row < len(codes) else -1
        if row < len(codes) and value == (None if before < 0 else self.values[before]):
            return
        self._codes.write(row, -1 if value is None else self._take(value))
        self._drop(before)
        self.state = object()

    def remove(self, row: int) -> None:
        """Drop a row; the last one moves into its place."""
        self._drop(int(self.codes[row]))
        self._codes.remove(row)
        self.state = object()

    def _take(self, value: T) -> int:
        code = self.index.get(value)
        if code is None:
            code = self.index[value] = self._free.pop() if self._free else len(self.values)
            if code == len(self.values):
                self.values.append(value)
                self._uses.append(0)
            else:
                self.values[code] = value
            self.changes.note(code)
        self._uses[code] += 1
        return code

    def _drop(self, code: int) -> None:
        if code < 0:
            return
        self._uses[code] -= 1
        if not self._uses[code]:
            del self.index[self.values[code]]
            self._free.append(code)
