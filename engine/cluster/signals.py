"""Measured values about nodes, with their age, as one immutable snapshot. Knows neither HTTP nor PromQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

DEFAULT_EVERY_SECONDS = 15.0
"""How often a query is asked again. Scrapes are usually 15 to 60 s apart: asking faster sees nothing new."""

DEFAULT_STALE_AFTER_SECONDS = 120.0
"""Age at which a value counts as missing. Twice Prometheus' own default scrape interval (1 min), so that one
missed scrape or a Prometheus restart does not make values flicker, while a dead source is noticed well before
Prometheus itself would stop returning its last sample (5 min)."""


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression that a policy reads, and what it asks of the answer.

    Two queries with the same `promql` share one fetch and one reading; the other attributes are applied when
    the answer is read, except that the shared fetch runs at the shortest `every_seconds` of all.
    """

    promql: str
    by: str | None = None
    """The label whose value names the node; None: find it (see `engine.cluster.signal_join`)."""
    every_seconds: float = DEFAULT_EVERY_SECONDS
    stale_after_seconds: float = DEFAULT_STALE_AFTER_SECONDS


@dataclass(frozen=True, slots=True)
class Series:
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float
    """As answered: may be NaN or infinite, which the join turns into missing."""
    timestamp: float
    """Unix seconds by the clock of the metrics server: of the sample itself where that is known, else of the
    evaluation (a computed expression has no sample of its own)."""

    def __str__(self) -> str:
        name = self.labels.get("__name__", "")
        pairs = ", ".join(f'{key}="{value}"' for key, value in sorted(self.labels.items()) if key != "__name__")
        return f"{name}{{{pairs}}}"


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One successful answer to one query. Compared by identity: a new fetch is a new reading."""

    promql: str
    series: tuple[Series, ...]
    """The instant vector; empty when the answer is a scalar."""
    evaluated_at: float
    """Unix seconds by the clock of the metrics server."""
    fetched_at: float
    """Unix seconds by our clock, taken before the request was sent, so that an age is never too young."""
    scalar: float | None = None
    """Set when the expression is a PromQL scalar, such as `scalar(avg(load))`: one value for all nodes."""
    warnings: tuple[str, ...] = ()
    """What the server said about an answer that may be partial."""

    def age_seconds(self, now: float) -> float:
        """How long ago the reading was fetched; never negative, also when our clock was set back."""
        return max(0.0, now - self.fetched_at)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the latest fetches of a query gave nothing; gone from the snapshot once one succeeds."""

    promql: str
    text: str
    since: float
    """Unix seconds of the first of the failures in a row."""
    attempts: int
    """Failures in a row."""
    refused: bool = False
    """True when the server answered that the query itself is wrong, so that waiting will not help."""


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """The last reading of each query and the failures that go on now. Replaced as a whole, never changed."""

    readings: Mapping[str, Reading] = field(default_factory=lambda: MappingProxyType({}))
    """By PromQL text. A reading stays here while its query fails: whether it is too old is decided on use."""
    failures: Mapping[str, Failure] = field(default_factory=lambda: MappingProxyType({}))
    """By PromQL text."""
    node_label: str | None = None
    """The label that names the node, for queries that do not say which; None: found by itself."""

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

    def usable(self, query: Query, *, now: float) -> bool:
        """Tell whether the query has an answer young enough for it at `now`."""
        reading = self.reading(query)
        return reading is not None and reading.age_seconds(now) <= query.stale_after_seconds


Signals.EMPTY = Signals()
