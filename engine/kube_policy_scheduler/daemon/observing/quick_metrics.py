"""Counters and histograms that cost a placed pod next to nothing: what is counted is added up when somebody reads it.

The library takes a lock for each number, 1.2 µs, and a pod has some twenty. An append to a deque needs none: it is one
step of the interpreter, from any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import repeat, starmap
from threading import Lock
from typing import Any

import numpy as np
from prometheus_client.metrics import Counter, Histogram
from prometheus_client.samples import Sample

MOST_PENDING = 1_024
"""Numbers that are added up at once, at the latest."""


class Amounts:
    """A sum, as the library's own value of a metric."""

    __slots__ = ("_exemplar", "_lock", "_sum", "pending")

    def __init__(self) -> None:
        self._sum = 0.0
        self.pending: deque[float] = deque()
        """Numbers that are not added up yet."""
        self._lock = Lock()
        self._exemplar: Any = None

    def inc(self, amount: float) -> None:
        """Add a number."""
        self.pending.append(amount)
        if len(self.pending) >= MOST_PENDING:
            self.get()

    def get(self) -> float:
        """Return the sum of all numbers so far."""
        with self._lock:
            self._sum += sum(starmap(self.pending.popleft, repeat((), len(self.pending))))
            return self._sum

    def set(self, value: float, timestamp: float | None = None) -> None:
        """Begin again with this sum."""
        with self._lock:
            self.pending.clear()
            self._sum = value

    def set_exemplar(self, exemplar: Any) -> None:
        """Keep an example."""
        self._exemplar = exemplar

    def get_exemplar(self) -> Any:
        """Return the example."""
        return self._exemplar


class QuickCounter(Counter):
    """A counter that is added up when it is read."""

    _value: Any = None  # one with labels has its values in its children
    _pending: deque[float] | None = None

    def _metric_init(self) -> None:
        super()._metric_init()
        self._value = Amounts()
        self._pending = self._value.pending

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        """Count; as in the library, what is negative or has no label values is an error."""
        pending = self._pending
        if pending is None or amount < 0 or exemplar is not None:
            super().inc(amount, exemplar)
            return
        pending.append(amount)
        if len(pending) >= MOST_PENDING:
            self._value.get()


class QuickHistogram(Histogram):
    """Is added up when it is read, and finds a bucket by bisection: the library compares a value with each bound."""

    _pending: deque[float] | None = None  # one with labels has its values in its children

    def _metric_init(self) -> None:
        super()._metric_init()
        self._pending = deque()
        self._adding = Lock()

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Observe a value; as in the library, one that is not a number is in no bucket."""
        pending = self._pending
        if pending is None or exemplar is not None:
            super().observe(amount, exemplar)
            return
        pending.append(amount)
        if len(pending) >= MOST_PENDING:
            self._add_up(pending)

    def _child_samples(self) -> Iterable[Sample]:
        if self._pending is not None:
            self._add_up(self._pending)
        return super()._child_samples()

    def _add_up(self, pending: deque[float]) -> None:
        with self._adding:
            amounts = list(starmap(pending.popleft, repeat((), len(pending))))
            # what is not a number comes after the last bound, which is infinite
            counts = np.bincount(np.searchsorted(self._upper_bounds, amounts), minlength=len(self._upper_bounds))
            for bucket, count in zip(self._buckets, counts.tolist(), strict=False):
                if count:
                    bucket.inc(count)
            self._sum.inc(sum(amounts))
