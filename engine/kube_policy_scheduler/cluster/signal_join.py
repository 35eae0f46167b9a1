"""From series to nodes: whose value is it? Pure; knows labels and addresses, not where they came from.

How a series finds its node, when the query does not name the label (`by`):

1. `exported_node`, `node`, `kubernetes_node`, `node_name`: labels that can only mean a Kubernetes node. The
   first of them that the series has decides, also when no such node is known: looking further would find the
   machine on which the exporter runs (kube-state-metrics reports a deleted node, from another node).
   `exported_node` comes first: it exists only where the scrape's own `node` label hid the metric's.
2. `nodename`, `kubernetes_io_hostname`, `hostname`, `host`: the first that names a known node.
3. `instance` as it is, then without its port (`10.0.0.7:9100`, `[fd00::7]:9100`).

A value is looked up among node names, then among `kubernetes.io/hostname` labels and every status address;
what two nodes share there identifies neither of them.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.cluster.signals import Query, Reading, Series, SeriesColumns, Signals
from kube_policy_scheduler.wording import some

DECIDING_LABELS = ("exported_node", "node", "kubernetes_node", "node_name")
LIKELY_LABELS = ("nodename", "kubernetes_io_hostname", "hostname", "host", "instance")


_MAX_COLUMNS = 1024
_ROUNDING_SECONDS = 1e-6
"""A time is not compared more exactly than this; close to the end of a column it is made again."""


class NodeIdentities(Protocol):
    """What the join needs of a node table. Row i of each sequence is the same node."""

    @property
    def identity_version(self) -> int:
        """A number that changes whenever one of the sequences below does."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the nodes."""

    @property
    def hostnames(self) -> Sequence[str | None]:
        """The `kubernetes.io/hostname` label; None if absent."""

    @property
    def addresses(self) -> Sequence[Iterable[str]]:
        """Every `status.addresses[].address`."""


@dataclass(frozen=True, slots=True)
class NodeIndex:
    """Every text that identifies exactly one node, and those that identify more than one."""

    rows: Mapping[str, int]
    ambiguous: frozenset[str]
    names: tuple[str, ...]

    @classmethod
    def of(cls, nodes: NodeIdentities) -> NodeIndex:
        """Index the nodes by name, hostname label and addresses."""
        names = tuple(nodes.names)
        aliases: dict[str, int] = {}
        ambiguous: set[str] = set()
        for row, (hostname, addresses) in enumerate(zip(nodes.hostnames, nodes.addresses, strict=True)):
            for alias in {_canonical(text) for text in (hostname, *addresses) if text}:
                if aliases.setdefault(alias, row) != row:
                    ambiguous.add(alias)
        for alias in ambiguous:
            del aliases[alias]
        # a node's name is unique in the API: it is never made ambiguous by another node's hostname label
        by_name = {name: row for row, name in enumerate(names)}
        return cls(rows=aliases | by_name, ambiguous=frozenset(ambiguous - by_name.keys()), names=names)


@dataclass(frozen=True, slots=True)
class Join:
    """One reading laid over the nodes, and what did not fit. Row i belongs to `names[i]`."""

    names: tuple[str, ...]
    values: NDArray[np.float64]
    """float64[nodes], read-only; NaN where missing."""
    sample_ages: NDArray[np.float64]
    """float64[nodes], read-only: seconds between the sample and its evaluation; 0 if that is unknown."""
    oldest_sample_age: float
    """The largest of `sample_ages`."""
    matched: int
    """Nodes that have a value."""
    unmatched: Sequence[Series] = ()
    """Series that name no known node, or have no label that could."""
    ambiguous: Sequence[Series] = ()
    """Series whose label is shared by several nodes."""
    conflicting: tuple[str, ...] = ()
    """Names of nodes for which several series disagree: missing, because taking either would be a guess."""
    not_finite: tuple[str, ...] = ()
    """Names of nodes whose value is NaN or infinite: missing."""

    def missing_names(self) -> tuple[str, ...]:
        """Names of the nodes without a value."""
        return tuple(self.names[row] for row in np.flatnonzero(np.isnan(self.values)))

    def problems(self) -> list[str]:
        """What an operator should know about this join, one sentence each; empty when all is well."""
        found = []
        if self.conflicting:
            found.append(
                f"{some(self.conflicting)}: several series with different values;"
                " aggregate in the query, for example max by (node) (…)"
            )
        if self.ambiguous:
            found.append(f"{some(self.ambiguous)}: the label value belongs to several nodes")
        if self.unmatched:
            bare = len(self.unmatched) == 1 and not self.unmatched[0].labels
            found.append(
                "the answer has no labels: write scalar(…) for one value for all nodes"
                if bare
                else f"{some(self.unmatched)}: no node of that name, hostname or address"
            )
        if self.not_finite:
            found.append(f"{some(self.not_finite)}: the value is not a finite number")
        return found


def rows_of(reading: Reading, *, by: str | None, index: NodeIndex) -> IntArray:
    """Return `int64[series]`: the row of the node that each series is about, or less than 0 if there is none."""
    deciding = DECIDING_LABELS if by is None else (by,)
    likely = LIKELY_LABELS if by is None else ()
    texts = SeriesColumns.of(reading.series).labels.values_of((*deciding, *likely))
    split = len(deciding)
    rows = (_row_of(values[:split], values[split:], index=index) for values in texts)
    return np.fromiter(rows, np.int64, len(reading.series))


def join(reading: Reading, *, by: str | None, index: NodeIndex, row_of: IntArray | None = None) -> Join:
    """Lay a reading over the nodes of the index; `row_of` is the result of `rows_of`, if that is known.

    A PromQL scalar is one value for all nodes. A vector never is, not even one series without labels such as
    `avg(load)` gives: a query that lost its `by (node)` would otherwise pass silently.
    """
    count = len(index.names)
    values = np.full(count, np.nan)
    if reading.scalar is not None and np.isfinite(reading.scalar):
        values.fill(reading.scalar)
    series = SeriesColumns.of(reading.series)
    if row_of is None:
        row_of = rows_of(reading, by=by, index=index)
    placed = np.flatnonzero(row_of >= 0)
    rows = row_of[placed]
    given, times = series.values[placed], series.timestamps[placed]
    first = np.zeros(count, np.int64)
    first[rows[::-1]] = np.arange(len(rows))[::-1]
    expected = given[first[rows]]
    agrees = (given == expected) | (np.isnan(given) & np.isnan(expected))
    values[rows] = expected
    conflicting = np.unique(rows[~agrees])
    values[conflicting] = np.nan
    odd = np.zeros(count, np.bool_)
    odd[rows] = ~np.isfinite(expected)
    odd[conflicting] = False
    if reading.scalar is not None and not np.isfinite(reading.scalar):
        odd[:] = True
    values[odd] = np.nan
    sample_ages = np.zeros(count)
    np.maximum.at(sample_ages, rows[agrees], reading.evaluated_at - times[agrees])
    values.flags.writeable = False
    sample_ages.flags.writeable = False
    return Join(
        names=index.names,
        values=values,
        sample_ages=sample_ages,
        oldest_sample_age=float(sample_ages.max(initial=0.0)),
        matched=int(np.count_nonzero(~np.isnan(values))),
        unmatched=series.take(np.flatnonzero(row_of == _UNMATCHED)),
        ambiguous=series.take(np.flatnonzero(row_of == _AMBIGUOUS)),
        conflicting=tuple(sorted(index.names[row] for row in conflicting)),
        not_finite=tuple(sorted(index.names[row] for row in np.flatnonzero(odd))),
    )


class SignalState(Enum):
    """Whether a query can be used now, and if not, why."""

    FRESH = "fresh"
    STALE = "stale"
    """There was an answer, but it is older than the query allows."""
    ABSENT = "absent"
    """There has been no answer yet."""


@dataclass(frozen=True, slots=True)
class SignalColumn:
    """What a policy reads for one query: a value per node, and why values are missing."""

    values: NDArray[np.float64]
    """float64[nodes], read-only; NaN where missing."""
    state: SignalState
    missing: int
    """Nodes without a value."""
    join: Join | None
    until: float = math.inf
    """Unix seconds by our clock: the next value is too old then."""


class SignalColumns:
    """Lays signals over nodes for decisions, and remembers the columns so that a decision pays for none.

    A join is made once per reading and version of the node table, a column once more when a value grows too old.
    """

    def __init__(self) -> None:
        self._index: NodeIndex | None = None
        self._version: int | None = None
        self._joins: dict[tuple[str, str | None], _Made] = {}
        self._columns: dict[Query, _Laid] = {}

    def column(self, query: Query, *, signals: Signals, nodes: NodeIdentities, now: float) -> SignalColumn:
        """Return the query's values for all nodes at `now` (Unix seconds by our clock).

        Values are missing where the reading, or the sample behind one value, is older than
        `query.stale_after_seconds`.
        """
        reading, version = signals.reading(query), nodes.identity_version
        kept = self._columns.get(query)
        if kept is not None and kept.serves(reading, node_label=signals.node_label, version=version, now=now):
            return kept.column
        column = self._lay(query, reading, node_label=signals.node_label, nodes=nodes, now=now)
        if len(self._columns) >= _MAX_COLUMNS:
            self._columns.clear()
        self._columns[query] = _Laid(column, reading, signals.node_label, version, now)
        return column

    def _lay(
        self, query: Query, reading: Reading | None, *, node_label: str | None, nodes: NodeIdentities, now: float
    ) -> SignalColumn:
        if reading is None:
            return _nothing(len(nodes.names), state=SignalState.ABSENT)
        usable_age = query.stale_after_seconds - reading.age_seconds(now)
        if usable_age < 0:
            return _nothing(len(nodes.names), state=SignalState.STALE)
        if query.by is None and node_label is not None:
            query = replace(query, by=node_label)
        joined = self.joined(query, reading=reading, nodes=nodes)
        values, missing, oldest = joined.values, len(joined.names) - joined.matched, joined.oldest_sample_age
        if oldest > usable_age:
            usable = joined.sample_ages <= usable_age
            values = np.where(usable, values, np.nan)
            values.flags.writeable = False
            missing = int(np.count_nonzero(np.isnan(values)))
            oldest = float(joined.sample_ages[usable].max(initial=0.0))
        until = reading.fetched_at + query.stale_after_seconds - oldest
        return SignalColumn(values=values, state=SignalState.FRESH, missing=missing, join=joined, until=until)

    def joined(self, query: Query, *, reading: Reading, nodes: NodeIdentities) -> Join:
        """Return the join of a reading with the nodes, from memory if it was made before."""
        if self._index is None or self._version != nodes.identity_version:
            self._index = NodeIndex.of(nodes)
            self._version = nodes.identity_version
            self._joins.clear()
        key = (query.promql, query.by)
        remembered = self._joins.get(key)
        if remembered is not None and remembered.reading is reading:
            return remembered.join
        if remembered is not None and _same_labels(remembered.reading, reading):
            row_of = remembered.row_of
        else:
            row_of = rows_of(reading, by=query.by, index=self._index)
        made = join(reading, by=query.by, index=self._index, row_of=row_of)
        self._joins[key] = _Made(reading, row_of, made)
        return made


@dataclass(frozen=True, slots=True)
class _Laid:
    """A column, and what it was made from."""

    column: SignalColumn
    reading: Reading | None
    node_label: str | None
    version: int
    at: float

    def serves(self, reading: Reading | None, *, node_label: str | None, version: int, now: float) -> bool:
        """Return whether the column would be made the same again."""
        return (
            reading is self.reading
            and version == self.version
            and self.at <= now < self.column.until - _ROUNDING_SECONDS
            and node_label == self.node_label
        )


@dataclass(frozen=True, slots=True)
class _Made:
    """A join that was made, and what it was made from."""

    reading: Reading
    row_of: IntArray
    join: Join


def _same_labels(old: Reading, new: Reading) -> bool:
    """Return whether two readings have the same series in the same order, as those of one query mostly do."""
    return SeriesColumns.of(old.series).labels.same_as(SeriesColumns.of(new.series).labels)


_UNMATCHED = -1
_AMBIGUOUS = -2


def _nothing(count: int, *, state: SignalState) -> SignalColumn:
    values = np.full(count, np.nan)
    values.flags.writeable = False
    return SignalColumn(values=values, state=state, missing=count, join=None)


def _row_of(deciding: Sequence[str], likely: Sequence[str], *, index: NodeIndex) -> int:
    """Return the node's row, _AMBIGUOUS, or _UNMATCHED if it names no node; from the values of the labels."""
    for text in deciding:
        if text:
            return _look_up(text, index)
    found = _UNMATCHED
    for text in likely:
        row = _look_up(text, index)
        if row >= 0:
            return row
        if row == _AMBIGUOUS:
            found = row  # hostname="localhost" everywhere must not hide a good instance label
    return found


def _look_up(text: str, index: NodeIndex) -> int:
    row = index.rows.get(text)
    if row is not None:
        return row
    for key in (text, _canonical(text), _canonical(_without_port(text))):
        if not key:
            return _UNMATCHED
        row = index.rows.get(key)
        if row is not None:
            return row
        if key in index.ambiguous:
            return _AMBIGUOUS
    return _UNMATCHED


def _without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, port = text.rpartition(":")
    # more than one colon and no brackets is an IPv6 address without a port
    return host if colon and port.isdigit() and ":" not in host else text


def _canonical(text: str) -> str:
    """Bring the spellings of one IPv6 address together; anything else stays as it is."""
    if text.count(":") < 2:
        return text
    try:
        return str(ipaddress.IPv6Address(text.strip("[]")))
    except ValueError:
        return text
