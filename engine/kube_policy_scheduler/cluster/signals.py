"""Measured values about nodes, with their age, as one immutable snapshot. Knows neither HTTP nor PromQL."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

DEFAULT_EVERY_SECONDS = 15.0
"""How often a query is sent again. Scrapes are usually 15 to 60 s apart: faster queries see nothing new."""

DEFAULT_STALE_AFTER_SECONDS = 120.0
"""Age at which a value counts as missing. Twice Prometheus' own default scrape interval (1 min), so that one
missed scrape or a Prometheus restart does not make values flicker, while a dead source is noticed well before
Prometheus itself would stop returning its last sample (5 min)."""


class About(Enum):
    """What the series of an answer are about."""

    NODES = "nodes"
    """Each is about a node."""
    CLUSTER = "the cluster"
    """There is one, about the whole cluster."""
    VALUES = "values of a label"
    """One of its labels names what each is about, such as a tenant."""
    PAIRS = "nodes and values of a label"
    """One of its labels names a node and another one something else: the latency from a node to a service."""


PAIR = "/"
"""What stands between a node and a value in the name of a pair: no name or address of a node has it."""


class Query(msgspec.Struct, frozen=True):
    """A PromQL expression that a policy reads, and what it needs of the result.

    Two queries with the same `promql` share one fetch and one reading; the other attributes are applied when
    the answer is read, except that the shared fetch runs at the shortest `every_seconds` of all.
    """

    promql: str
    by: str | None = None
    """The label whose value names the node; None: find it (see `cluster.signal_join`). Of values: their label."""
    every_seconds: float = DEFAULT_EVERY_SECONDS
    stale_after_seconds: float = DEFAULT_STALE_AFTER_SECONDS
    about: About = About.NODES
    value_label: str | None = None
    """Of pairs: the label of the value."""

    def __hash__(self) -> int:
        return hash(self.promql)  # which a string keeps; a decision looks each query up several times

    def labels_of(self, name: str) -> dict[str, str]:
        """Return the labels of a series about a node, a value or a pair of a name, as files and reports write it."""
        if self.value_label is None:
            return {self.by or "node": name}
        node, _, value = name.partition(PAIR)
        return {self.by or "node": node, self.value_label: value}


class Series(msgspec.Struct, frozen=True):
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float
    """As answered: may be NaN or infinite, which the join turns into missing."""
    timestamp: float
    """Unix seconds by the clock of the metrics server: of the sample itself if that is known, else of the
    evaluation (a computed expression has no sample of its own)."""

    def __str__(self) -> str:
        name = self.labels.get("__name__", "")
        pairs = ", ".join(f'{key}="{value}"' for key, value in sorted(self.labels.items()) if key != "__name__")
        return f"{name}{{{pairs}}}"


class LabelSets(Sequence[Mapping[str, str]]):
    """The labels of many series, kept as the JSON objects they came in and read on access.

    100,000 series of ten labels take 30 MB this way; as dictionaries they would take 150 MB.
    """

    __slots__ = ("__weakref__", "_ends", "_starts", "_text")

    def __init__(self, text: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Keep labels.

        Args:
            text: JSON objects whose values are all strings, with anything between them.
            starts: `int64[series]`: where the object of each series begins in `text`.
            ends: `int64[series]`: where it ends.
        """
        self._text, self._starts, self._ends = text, starts, ends

    @classmethod
    def of(cls, labels: Iterable[Mapping[str, str]]) -> LabelSets:
        """Return the same labels, kept as JSON."""
        texts = [msgspec.json.encode(dict(each)) for each in labels]
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        return cls(b"".join(texts), np.concatenate((_NO_ROWS, ends))[:-1] if len(ends) else ends, ends)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> LabelSets: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, str] | LabelSets:
        if isinstance(index, slice):
            return LabelSets(self._text, self._starts[index], self._ends[index])
        found: Mapping[str, str] = _LABELS.decode(self._text[self._starts[index] : self._ends[index]])
        return found

    def take(self, rows: NDArray[np.int64]) -> LabelSets:
        """Return the labels of some series; the text is shared."""
        return LabelSets(self._text, self._starts[rows], self._ends[rows])

    def same_as(self, other: LabelSets) -> bool:
        """Return whether the other series have the same labels in the same order, written in the same way."""
        return self is other or (
            len(self) == len(other)
            and np.array_equal(self._starts, other._starts)
            and np.array_equal(self._ends, other._ends)
            and self._text == other._text
        )

    def finding_places_in(self, older: LabelSets) -> Generator[None, None, NDArray[np.int64]]:
        """Return `int64[series]`: where the same labels are in an older answer to the same query; -1 if not found.

        Answers keep their order, so few series come or go between two of them: runs of equal ones are found at once.
        What is in another order, or is not found nearby, counts as not found. A step is one look at `_RUN` series.
        """
        found = np.full(len(self), -1, np.int64)
        at, at_older, differences = 0, 0, 0
        while differences < _MOST_DIFFERENCES:
            run = self._equal_run(at, older, at_older)
            found[at : at + run] = np.arange(at_older, at_older + run)
            at, at_older = at + run, at_older + run
            if at == len(self) or at_older == len(older):
                break
            yield
            if run == _RUN:
                continue
            differences += 1
            near = {older._bytes(place): place for place in older._near(at_older)}
            skipped = next((place for place in self._near(at) if self._bytes(place) in near), None)
            if skipped is None:
                at, at_older = min(at + _NEAR, len(self)), min(at_older + _NEAR, len(older))
            else:
                at, at_older = skipped, near[self._bytes(skipped)]
        return found

    def _bytes(self, place: int) -> bytes:
        return self._text[self._starts[place] : self._ends[place]]

    def _near(self, place: int) -> range:
        return range(place, min(place + _NEAR, len(self)))

    def _equal_run(self, at: int, other: LabelSets, at_other: int) -> int:
        """Return how many series from a place on have the same labels as others have from another place on."""
        most = min(len(self) - at, len(other) - at_other, _RUN)
        starts, ends = self._starts[at : at + most], self._ends[at : at + most]
        other_starts, other_ends = (each[at_other : at_other + most] for each in (other._starts, other._ends))
        if not most:
            return 0
        moved = other_starts[0] - starts[0]
        differ = np.flatnonzero((other_starts - starts != moved) | (other_ends - ends != moved))
        low, high = 0, int(differ[0]) if len(differ) else most
        while low < high:
            # the text between series is compared too; it is the same in answers that are written alike
            middle = (low + high + 1) // 2
            first, last = starts[low], ends[middle - 1]
            if self._text[first:last] == other._text[first + moved : last + moved]:
                low = middle
            else:
                high = middle - 1
        return low

    def values_of(self, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield for each series the values of these labels, "" if it has none; the other labels cost nothing."""
        decoder = _decoder_of(names)
        for first in range(0, len(self), _AT_ONCE):
            starts, ends = (each[first : first + _AT_ONCE].tolist() for each in (self._starts, self._ends))
            places = zip(starts, ends, strict=True)
            text = b"[" + b",".join([self._text[start:end] for start, end in places]) + b"]"
            yield from map(msgspec.structs.astuple, decoder.decode(text))

    @property
    def nbytes(self) -> int:
        """Return the bytes that are kept."""
        return len(self._text) + self._starts.nbytes + self._ends.nbytes


_NEAR = 64
"""Series that are looked through where two answers differ."""
_MOST_DIFFERENCES = 1000
"""Places where two answers differ; with more of them they have little in common."""
_RUN = 8192
"""Series that are compared at once."""
_NO_ROWS = np.zeros(1, np.int64)
_AT_ONCE = 1024
_LABELS = msgspec.json.Decoder(dict[str, str])


@lru_cache(maxsize=64)
def _decoder_of(names: tuple[str, ...]) -> msgspec.json.Decoder[list[msgspec.Struct]]:
    fields = {f"label{place}": name for place, name in enumerate(names)}
    labels = msgspec.defstruct("Labels", [(field, str, "") for field in fields], rename=fields, gc=False)
    return msgspec.json.Decoder(list[labels])  # type: ignore[valid-type]


class SeriesColumns(Sequence[Series]):
    """The series of an instant vector, by column: row i of each column is the same series."""

    __slots__ = ("labels", "timestamps", "values")

    def __init__(self, labels: LabelSets, values: NDArray[np.float64], timestamps: NDArray[np.float64]) -> None:
        """Keep columns of the same length.

        Args:
            labels: of each series.
            values: `float64[series]`, see `Series.value`.
            timestamps: `float64[series]`, see `Series.timestamp`.
        """
        assert len(labels) == len(values) == len(timestamps)
        self.labels, self.values, self.timestamps = labels, values, timestamps

    @classmethod
    def of(cls, series: Iterable[Series]) -> SeriesColumns:
        """Return series by column; the same object if they are columns already."""
        if isinstance(series, SeriesColumns):
            return series
        rows = list(series)
        return cls(
            LabelSets.of(one.labels for one in rows),
            np.array([one.value for one in rows], np.float64),
            np.array([one.timestamp for one in rows], np.float64),
        )

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Series: ...
    @overload
    def __getitem__(self, index: slice) -> SeriesColumns: ...
    def __getitem__(self, index: int | slice) -> Series | SeriesColumns:
        if isinstance(index, slice):
            return SeriesColumns(self.labels[index], self.values[index], self.timestamps[index])
        return Series(self.labels[index], float(self.values[index]), float(self.timestamps[index]))

    def take(self, rows: NDArray[np.int64]) -> SeriesColumns:
        """Return some of the series."""
        return SeriesColumns(self.labels.take(rows), self.values[rows], self.timestamps[rows])


class Reading(msgspec.Struct, frozen=True, eq=False):
    """One successful answer to one query. Compared by identity: a new fetch is a new reading."""

    promql: str
    series: Sequence[Series]
    """The instant vector, as `SeriesColumns` if it is large; empty when the answer is a scalar."""
    evaluated_at: float
    """Unix seconds by the clock of the metrics server."""
    fetched_at: float
    """Unix seconds by our clock, taken before the request was sent, so that an age is never too young."""
    scalar: float | None = None
    """Set when the expression is a PromQL scalar, such as `scalar(avg(load))`: one value for all nodes."""
    warnings: tuple[str, ...] = ()
    """What the server reported about a result that may be partial."""
    held_at: float | None = None
    """Unix seconds. If set, the reading has the age of this moment for ever: in a simulation nothing is fetched."""

    def age_seconds(self, now: float) -> float:
        """How long ago the reading was fetched; never negative, also when our clock was set back."""
        return max(0.0, (now if self.held_at is None else self.held_at) - self.fetched_at)


class Failure(msgspec.Struct, frozen=True):
    """Why the latest fetches of a query gave nothing; gone from the snapshot once one succeeds."""

    promql: str
    text: str
    since: float
    """Unix seconds of the first of the failures in a row."""
    attempts: int
    """Failures in a row."""
    refused: bool = False
    """True when the server answered that the query itself is wrong, so that waiting will not help."""


class Signals(msgspec.Struct, frozen=True, eq=False):
    """The last reading of each query and the failures that go on now. Replaced as a whole, never changed."""

    readings: Mapping[str, Reading] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """By PromQL text. A reading stays here while its query fails: whether it is too old is decided on use."""
    failures: Mapping[str, Failure] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """By PromQL text."""
    node_label: str | None = None
    """The label that names the node, for queries that do not name one; None: found automatically."""

    EMPTY: ClassVar[Signals]

    @classmethod
    def of(
        cls, readings: Iterable[Reading] = (), *, failures: Iterable[Failure] = (), node_label: str | None = None
    ) -> Signals:
        """Make a snapshot from readings and failures; the last of the same query wins."""
        return cls(
            readings=MappingProxyType({reading.promql: reading for reading in readings}),
            failures=MappingProxyType({failure.promql: failure for failure in failures}),
            node_label=node_label,
        )

    def reading(self, query: Query) -> Reading | None:
        """Return the last answer to the query, however old."""
        return self.readings.get(query.promql)

    def held(self, *, at: float) -> Signals:
        """Return the same readings, which from a moment on do not grow older."""
        kept = {promql: msgspec.structs.replace(reading, held_at=at) for promql, reading in self.readings.items()}
        return msgspec.structs.replace(self, readings=MappingProxyType(kept))

    def usable(self, query: Query, *, now: float) -> bool:
        """Tell whether the query has an answer young enough for it at `now`."""
        reading = self.reading(query)
        return reading is not None and reading.age_seconds(now) <= query.stale_after_seconds


Signals.EMPTY = Signals()
