"""Sums of any numbers that come and go, by slot: exact, so neither the order nor what was there before shows in them.

Ten times 0.1 is 1, and a sum from which everything was subtracted is 0.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.footprint import Measured

_DENSE_SHARE = 16
"""With a sum in more than one slot of so many, all are kept as a column; of fewer a column is made on demand."""
_FEW = 64
"""Slots that are read one by one where no column is kept."""
_STEP_BITS = 64
"""By how much the unit becomes finer at a time."""
_MOST = 1e308
_MOST_BITS = 1_000
"""Of a unit by which a floating-point number can be divided without another rounding: below `1 / 2**1022` numbers have
fewer digits."""
_MOST_AT_ONCE = 2**62
"""Sums below this in each slot are added up as columns."""


class _Some(Measured, msgspec.Struct, frozen=True):
    """The same amount, a whole number of `1 / 2**bits`, some times in some slots."""

    slots: NDArray[np.int64]
    times: NDArray[np.int64]
    units: int
    bits: int


class ExactSums(Measured):
    """One sum of finite numbers per slot, as a whole number of a unit that is a power of 1/2."""

    __slots__ = ("_bits", "_coarser", "_column", "_pending", "_stale", "_totals", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._bits = 0
        """The unit is `1 / 2**bits`."""
        self._totals: dict[int, int] = {}
        """By slot; a sum of 0 is left out."""
        self._coarser: list[tuple[int, dict[int, int]]] = []
        """Earlier bits, and by slot the sums that were not added to since the unit became finer: to write all of them
        again takes 30 ms with 130,000 slots."""
        self._column: NDArray[np.float64] | None = None
        self._stale: set[int] = set()
        """Slots whose sum is not in the column yet."""
        self._pending: list[_Some] = []
        """What is not in the sums yet."""

    @property
    def _count(self) -> int:
        """Return how many slots have a sum."""
        return len(self._totals) + sum([len(totals) for _, totals in self._coarser])

    @property
    def bytes_to_read(self) -> int:
        """Return how many bytes more it may take once all sums were read."""
        if self._column is not None or (not self._pending and self._count * _DENSE_SHARE <= self.size):
            return 0
        return 8 * self.size

    def add_many(self, slots: NDArray[np.int64], amount: float, times: NDArray[np.int64]) -> None:
        """Add an amount to each of several slots, to each this many times."""
        numerator, denominator = amount.as_integer_ratio()
        self._pending.append(_Some(slots, times, numerator, denominator.bit_length() - 1))

    def settle(self) -> None:
        """Add up what is pending, which who reads next would do: as columns, if whole numbers of 64 bits hold that."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        bits = max(some.bits for some in pending)
        weights = [some.units << (bits - some.bits) for some in pending]
        if not self._fit(pending, weights):
            for some in pending:
                for slot, times in zip(some.slots.tolist(), some.times.tolist(), strict=True):
                    self.add_units(slot, some.units * times, some.bits)
            return
        sums = np.zeros(self.size, np.int64)
        for some, weight in zip(pending, weights, strict=True):
            np.add.at(sums, some.slots, some.times * weight)
        where = sums.nonzero()[0]
        slots, added = where.tolist(), sums[where].tolist()
        self._add_all(slots, added, bits)

    def _add_all(self, slots: list[int], added: list[int], bits: int) -> None:
        """Add to each of several slots, of which none is named twice."""
        if not self._totals and not self._coarser:
            self._totals, self._bits = dict(zip(slots, added, strict=True)), bits
        else:
            if bits > self._bits:
                self._refine(bits)
            totals, shift = self._totals, self._bits - bits
            for slot, units in zip(slots, added, strict=True):
                total = self._total(slot) + (units << shift)
                if total:
                    totals[slot] = total
                else:
                    totals.pop(slot, None)
        if self._column is not None:
            self._stale.update(slots)

    def add_by_place(self, others: ExactSums, places: NDArray[np.intp]) -> None:
        """Add each of other sums to the slot that `places` names for its own slot."""
        if others._pending:
            others.settle()
        for bits, totals in others._by_bits():
            slots = np.fromiter(totals, np.int64, len(totals))
            units = np.fromiter(totals.values(), object, len(totals))
            sums = np.zeros(self.size, object)  # whole numbers of any size
            np.add.at(sums, places[slots], units)
            where = sums.nonzero()[0]
            self._add_all(where.tolist(), sums[where].tolist(), bits)

    def _fit(self, pending: list[_Some], weights: list[int]) -> bool:
        """Return whether whole numbers of 64 bits hold the sum in each slot, and whatever it is added up from."""
        if max(map(abs, weights)) >= _MOST_AT_ONCE:
            return False
        load = np.zeros(self.size)
        for some, weight in zip(pending, weights, strict=True):
            np.add.at(load, some.slots, np.abs(some.times) * float(abs(weight)))
        return bool(load.max(initial=0.0) < _MOST_AT_ONCE)

    def add(self, slot: int, amount: float, times: int = 1) -> None:
        """Add an amount this many times; a negative number of times takes it away."""
        numerator, denominator = amount.as_integer_ratio()
        self.add_units(slot, numerator * times, denominator.bit_length() - 1)

    def units(self, slot: int) -> tuple[int, int]:
        """Return a sum as a whole number of `1 / 2**bits`, and those bits."""
        if self._pending:
            self.settle()
        return self._total(slot), self._bits

    def add_units(self, slot: int, units: int, bits: int) -> None:
        """Add this many times `1 / 2**bits`."""
        if self._pending:
            self.settle()
        if bits > self._bits:
            self._refine(bits)
        total = self._total(slot) + (units << (self._bits - bits))
        if total:
            self._totals[slot] = total
        else:
            self._totals.pop(slot, None)
        if self._column is not None:
            self._stale.add(slot)

    def value(self, slot: int) -> float:
        """Return a sum, rounded once; at most 1e308."""
        if self._pending:
            self.settle()
        return _rounded(self._total(slot), self._bits)

    def _total(self, slot: int) -> int:
        """Return a sum in the unit of now."""
        return self._totals.get(slot) or self._coarse_total(slot)

    def _coarse_total(self, slot: int) -> int:
        """Return a sum that was not added to since the unit became finer, in the unit of now; 0 if there is none."""
        for bits, totals in self._coarser:
            coarse = totals.pop(slot, None)
            if coarse is not None:
                total = self._totals[slot] = coarse << (self._bits - bits)
                return total
        return 0

    def _by_bits(self) -> list[tuple[int, dict[int, int]]]:
        """Return all sums, each once: bits of a unit, and sums in that unit by slot."""
        return [each for each in (*self._coarser, (self._bits, self._totals)) if each[1]]

    def values(self, slots: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """Return `float64[slots]`. All of them: read-only, `slots` is `slice(None)` or begins at 0."""
        if self._pending:
            self.settle()
        if self._column is None and not isinstance(slots, slice) and len(slots) <= _FEW:
            known, find = self._totals.get, self._coarse_total
            return _all_rounded([known(slot) or find(slot) for slot in slots.tolist()], self._bits)
        return self._all()[slots]

    def _all(self) -> NDArray[np.float64]:
        if self._column is None:
            made = np.zeros(self.size)
            filled = 0
            for bits, totals in self._by_bits():
                made[np.fromiter(totals, np.int64, len(totals))] = _all_rounded(totals.values(), bits)
                filled += len(totals)
            if filled * _DENSE_SHARE <= self.size:
                return made
            self._column = made
        for slot in self._stale:
            self._column[slot] = self.value(slot)
        self._stale.clear()
        return self._column

    def move(self, source: int, target: int) -> None:
        """Follow what is in a slot to another one, which is empty."""
        if self._pending:
            self.settle()
        total = self._total(source)
        if total:
            self._totals[target] = self._totals.pop(source)
        if self._column is not None:
            self._stale |= {source, target}

    def extend(self, size: int) -> None:
        """Make room for this many slots."""
        if self._pending:
            self.settle()
        if self._column is not None:
            self._column = np.concatenate((self._column, np.zeros(size - self.size)))
        self.size = size

    def _refine(self, bits: int) -> None:
        if self._totals:
            self._coarser = [(self._bits, self._totals), *(each for each in self._coarser if each[1])]
            self._totals = {}
        self._bits = -(-bits // _STEP_BITS) * _STEP_BITS


def _rounded(total: int, bits: int) -> float:
    try:
        return max(-_MOST, min(_MOST, total / (1 << bits)))
    except OverflowError:
        return _MOST if total > 0 else -_MOST


def _all_rounded(totals: Collection[int], bits: int) -> NDArray[np.float64]:
    """Return `float64[totals]`: sums, rounded once, as `_rounded` does."""
    if bits <= _MOST_BITS:
        try:
            rounded = np.fromiter(map(float, totals), np.float64, len(totals))
        except OverflowError:
            pass
        else:
            rounded *= 0.5**bits  # exact: a power of two
            np.maximum(rounded, -_MOST, out=rounded)
            return np.minimum(rounded, _MOST, out=rounded)
    return np.array([_rounded(total, bits) for total in totals])
