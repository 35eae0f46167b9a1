"""Columns that are patched row by row: a change of one node costs nothing for the others. Knows values, not nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import repeat
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

    def __len__(self) -> int: ...

    def extend(self, values: Sequence[Any]) -> None:
        """Add rows after the last one."""
        ...

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

    def __len__(self) -> int:
        return self._size

    def extend(self, values: Sequence[Any] | NDArray[Any]) -> None:
        """Add rows after the last one."""
        before, self._size = self._size, self._size + len(values)
        if self._size > len(self._data):
            room = max(self._size, before + before // _SPARE_SHARE) - before
            self._data = np.concatenate((self._data[:before], np.zeros(room, self._data.dtype)))
        self._data[before : self._size] = values

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
        self.values: list[T] = []
        """By code. Codes that no row has any more keep their last value until another takes its place."""
        self.index: dict[T, int] = {}
        """Codes by value, of values that some row has."""
        self.changes: Journal[int] = Journal()
        """Codes whose value is new: it was appended, or replaced one that no row had any more."""
        self.state = object()
        """Another object after each change: what is derived from the column is true while it is the same."""
        self._codes = ValueColumn((), np.int32)
        self._uses: list[int] = []
        """By code: rows that have it."""
        self._free: list[int] = []
        self.extend(list(values))

    def __len__(self) -> int:
        return len(self._codes)

    def extend(self, values: Sequence[T | None]) -> None:
        """Add rows after the last one."""
        for value in dict.fromkeys(values):
            if value is not None and value not in self.index:
                self._begin(value)
        codes = np.fromiter(map(self.index.get, values, repeat(-1)), np.int32, len(values))  # type: ignore[arg-type]
        self._codes.extend(codes)
        for code, uses in enumerate(np.bincount(codes + 1)[1:].tolist()):
            self._uses[code] += uses
        self.state = object()

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
            code = self._begin(value)
        self._uses[code] += 1
        return code

    def _begin(self, value: T) -> int:
        """Return the code of a value that no row has."""
        code = self.index[value] = self._free.pop() if self._free else len(self.values)
        if code == len(self.values):
            self.values.append(value)
            self._uses.append(0)
        else:
            self.values[code] = value
        self.changes.note(code)
        return code

    def _drop(self, code: int) -> None:
        if code < 0:
            return
        self._uses[code] -= 1
        if not self._uses[code]:
            del self.index[self.values[code]]
            self._free.append(code)
