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
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.node_identities import IdentityChanges, NodeIdentities
from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray
from kube_policy_scheduler.cluster.signals import LabelSets, Query, Reading, Series, SeriesColumns, Signals
from kube_policy_scheduler.wording import some

DECIDING_LABELS = ("exported_node", "node", "kubernetes_node", "node_name")
LIKELY_LABELS = ("nodename", "kubernetes_io_hostname", "hostname", "host", "instance")


STEP = 512
"""Nodes or series that are looked up between two steps: some 3 ms."""
_MAX_COLUMNS = 1024
_ROUNDING_SECONDS = 1e-6
"""A time is not compared more exactly than this; close to the end of a column it is made again."""


class NodeIndex:
    """Every text that identifies exactly one node, and those that identify more than one."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._aliases: list[tuple[str, ...]] = []
        """By row: the hostname label and the addresses."""
        self._by_name: dict[str, int] = {}
        self._by_alias: dict[str, int | set[int]] = {}
        """The rows with each alias: one, or several."""
        self._as_tuple: tuple[str, ...] | None = None

    @classmethod
    def of(cls, nodes: NodeIdentities) -> NodeIndex:
        """Index the nodes by name, hostname label and addresses."""
        index = cls()
        for _ in index.read(nodes):
            pass
        return index

    def read(self, nodes: NodeIdentities) -> Iterator[None]:
        """Read all nodes in steps. If nodes change between two of them, `follow` the changes afterwards."""
        while (start := len(self._names)) < len(nodes.names):
            part = slice(start, start + STEP)
            for row, (name, hostname, addresses) in enumerate(
                zip(nodes.names[part], nodes.hostnames[part], nodes.addresses[part], strict=True), start
            ):
                self._add(row, name, hostname, addresses)
            self._as_tuple = None
            yield

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names by row."""
        if self._as_tuple is None:
            self._as_tuple = tuple(self._names)
        return self._as_tuple

    @property
    def rows(self) -> Mapping[str, int]:
        """Return the row of each text that identifies exactly one node."""
        aliases = {alias: row for alias, row in self._by_alias.items() if isinstance(row, int)}
        return aliases | self._by_name

    @property
    def ambiguous(self) -> frozenset[str]:
        """Return the texts that identify more than one node."""
        several = (alias for alias, rows in self._by_alias.items() if not isinstance(rows, int))
        return frozenset(several) - self._by_name.keys()

    def look_up(self, text: str) -> int:
        """Return the row of a text; less than 0 if it identifies no node, or more than one."""
        # a node's name is unique in the API: it is never made ambiguous by another node's hostname label
        row = self._by_name.get(text)
        if row is not None:
            return row
        rows = self._by_alias.get(text)
        return _UNMATCHED if rows is None else rows if isinstance(rows, int) else _AMBIGUOUS

    def follow(self, changes: IdentityChanges) -> list[str]:
        """Take over changes; return the texts that identify another node than before, or none, or one again."""
        before = len(self._names)
        gone = [row for row in {*changes.rows, *range(changes.size, before)} if row < before]
        texts = set[str]().union(*(self._texts(row) for row in gone))
        texts.update(*((*_aliases(hostname, addresses), name) for _, name, hostname, addresses in changes.now))
        rows = {text: self.look_up(text) for text in texts}
        for row in gone:
            self._drop(row)
        del self._names[changes.size :], self._aliases[changes.size :]
        for row, name, hostname, addresses in sorted(changes.now):
            self._add(row, name, hostname, addresses)
        self._as_tuple = None
        return [text for text, row in rows.items() if self.look_up(text) != row]

    def _texts(self, row: int) -> tuple[str, ...]:
        return *self._aliases[row], self._names[row]

    def _add(self, row: int, name: str, hostname: str | None, addresses: Iterable[str]) -> None:
        """Add a node, on a row that has none or is the next one."""
        aliases = _aliases(hostname, addresses)
        if row == len(self._names):
            self._names.append(name)
            self._aliases.append(aliases)
        else:
            self._names[row], self._aliases[row] = name, aliases
        self._by_name[name] = row
        for alias in aliases:
            there = self._by_alias.setdefault(alias, row)
            if isinstance(there, set):
                there.add(row)
            elif there != row:
                self._by_alias[alias] = {there, row}

    def _drop(self, row: int) -> None:
        name = self._names[row]
        if self._by_name.get(name) == row:
            del self._by_name[name]
        for alias in self._aliases[row]:
            there = self._by_alias[alias]
            if isinstance(there, int):
                del self._by_alias[alias]
                continue
            there.discard(row)
            if len(there) == 1:
                self._by_alias[alias] = there.pop()


def _aliases(hostname: str | None, addresses: Iterable[str]) -> tuple[str, ...]:
    # no set: the garbage collector would look at each
    return tuple({_canonical(text): None for text in (hostname, *addresses) if text})


class Join(msgspec.Struct, frozen=True, eq=False):
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
    others: object = msgspec.field(default_factory=object)
    """The same object as in the join before if that differs only on rows whose own node changed."""

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


class SeriesRows:
    """The row of the node that each of some series is about, and what says so."""

    __slots__ = ("_by", "_hashes", "_labels", "_series", "_sorted", "row_of")

    def __init__(self, labels: LabelSets, *, by: str | None) -> None:
        """Take series whose nodes are still to be looked up.

        Args:
            labels: of the series.
            by: the only label to read; None: those that usually name a node.
        """
        self._labels, self._by = labels, by
        self.row_of: IntArray = np.full(len(labels), _UNMATCHED, np.int64)
        """`int64[series]`: less than 0 if there is no such node."""
        self._hashes: IntArray = _NO_SERIES
        """Of each text by which a series may find its node."""
        self._series: IntArray = _NO_SERIES
        """The series of each of them."""
        self._sorted = False

    @classmethod
    def of(cls, labels: LabelSets, *, by: str | None, index: NodeIndex) -> SeriesRows:
        """Look up the node of each series at once."""
        rows = cls(labels, by=by)
        for _ in rows.look_up(index, before=None):
            pass
        return rows

    def look_up(self, index: NodeIndex, *, before: SeriesRows | None) -> Iterator[None]:
        """Look up the node of each series in steps.

        Args:
            index: of the nodes.
            before: of an older answer: what is the same there is not looked up again.
        """
        labels, by = self._labels, self._by
        places = np.full(len(labels), -1, np.int64)
        if before is not None:
            places = yield from labels.finding_places_in(before._labels)
        new = np.flatnonzero(places < 0)
        rows, hashes, series = array("q"), array("q"), array("q")
        for number, texts in zip(new.tolist(), _deciding_texts(labels.take(new), by=by), strict=True):
            rows.append(_row_of(texts, index=index))
            for text in texts:
                for spelling in _spellings(text):
                    hashes.append(hash(spelling))
                    series.append(number)
            if not len(rows) % STEP:
                yield
        yield
        self._hashes, self._series = np.frombuffer(hashes, np.int64), np.frombuffer(series, np.int64)
        if before is not None:
            old = np.flatnonzero(places >= 0)
            self.row_of[old] = before.row_of[places[old]]
            now = np.full(len(before._labels), -1, np.int64)
            now[places[old]] = old
            stay = now[before._series] >= 0
            self._hashes = np.concatenate((before._hashes[stay], self._hashes))
            self._series = np.concatenate((now[before._series[stay]], self._series))
        self.row_of[new] = np.frombuffer(rows, np.int64)
        yield
        self._sort()
        yield  # 130,000 series: 10 ms so far, and as much for laying them over the nodes

    def _sort(self) -> None:
        if not self._sorted:
            order = np.argsort(self._hashes, kind="stable")
            self._hashes, self._series, self._sorted = self._hashes[order], self._series[order], True

    def follow(self, texts: Iterable[str], index: NodeIndex) -> tuple[IntArray, IntArray]:
        """Look up the series of some texts again; return their old and their new rows, `int64[found]` each."""
        self._sort()
        wanted = np.array([hash(text) for text in texts], np.int64)
        starts, ends = (np.searchsorted(self._hashes, wanted, side) for side in ("left", "right"))
        runs = [self._series[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        found = np.unique(np.concatenate(runs)) if runs else _NO_SERIES
        before = self.row_of[found]
        looked = (_row_of(each, index=index) for each in _deciding_texts(self._labels.take(found), by=self._by))
        after = np.fromiter(looked, np.int64, len(found))
        self.row_of = self.row_of.copy()  # an older join may be in use
        self.row_of[found] = after
        return before, after


_NO_SERIES: IntArray = np.zeros(0, np.int64)


def _deciding_texts(labels: LabelSets, *, by: str | None) -> Iterator[Sequence[str]]:
    """Yield for each series the texts of which the first that names a node decides."""
    deciding = DECIDING_LABELS if by is None else (by,)
    likely = LIKELY_LABELS if by is None else ()
    split = len(deciding)
    for values in labels.values_of((*deciding, *likely)):
        first = next(filter(None, values[:split]), None)
        yield (first,) if first is not None else [text for text in values[split:] if text]


def _laid(
    rows: IntArray, series: SeriesColumns, placed: IntArray, *, evaluated_at: float, count: int
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Lay series over rows.

    Args:
        rows: `int64[placed]`, the row of each.
        series: all of them.
        placed: `int64[placed]`, which of the series.
        evaluated_at: Unix seconds.
        count: of rows.

    Returns:
        `float64[count]`, the values, NaN where missing; `float64[count]`, the ages of their samples; the rows on which
        series disagree; the rows whose value is not finite.
    """
    values = np.full(count, np.nan)
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
    values[odd] = np.nan
    sample_ages = np.zeros(count)
    np.maximum.at(sample_ages, rows[agrees], evaluated_at - times[agrees])
    return values, sample_ages, conflicting, np.flatnonzero(odd)


def join(reading: Reading, *, by: str | None, index: NodeIndex, row_of: IntArray | None = None) -> Join:
    """Lay a reading over the nodes of the index; `row_of` is `SeriesRows.row_of`, if that is known.

    A PromQL scalar is one value for all nodes. A vector never is, not even one series without labels such as
    `avg(load)` gives: a query that lost its `by (node)` would otherwise pass silently.
    """
    names, series = index.names, SeriesColumns.of(reading.series)
    if row_of is None:
        row_of = SeriesRows.of(series.labels, by=by, index=index).row_of
    placed = np.flatnonzero(row_of >= 0)
    values, sample_ages, conflicting, odd = _laid(
        row_of[placed], series, placed, evaluated_at=reading.evaluated_at, count=len(names)
    )
    if reading.scalar is not None:
        values = np.full(len(names), reading.scalar if np.isfinite(reading.scalar) else np.nan)
        odd = np.zeros(0, np.int64) if np.isfinite(reading.scalar) else np.arange(len(names))
    values.flags.writeable = False
    sample_ages.flags.writeable = False
    return Join(
        names=names,
        values=values,
        sample_ages=sample_ages,
        oldest_sample_age=float(sample_ages.max(initial=0.0)),
        matched=int(np.count_nonzero(~np.isnan(values))),
        unmatched=series.take(np.flatnonzero(row_of == _UNMATCHED)),
        ambiguous=series.take(np.flatnonzero(row_of == _AMBIGUOUS)),
        conflicting=tuple(sorted(names[row] for row in conflicting)),
        not_finite=tuple(sorted(names[row] for row in odd)),
    )


class SignalState(Enum):
    """Whether a query can be used now, and if not, why."""

    FRESH = "fresh"
    STALE = "stale"
    """There was an answer, but it is older than the query allows."""
    ABSENT = "absent"
    """There has been no answer yet."""


class SignalColumn(msgspec.Struct, frozen=True):
    """What a policy reads for one query: a value per node, and why values are missing."""

    values: NDArray[np.float64]
    """float64[nodes], read-only; NaN where missing."""
    state: SignalState
    missing: int
    """Nodes without a value."""
    join: Join | None
    until: float = math.inf
    """Unix seconds by our clock: the next value is too old then."""
    others: object = None
    """The same object as before if values changed only on rows whose own node did."""

    @property
    def serves_until(self) -> float:
        """Return until when the column is not made again; later it may be the same."""
        return self.until - _ROUNDING_SECONDS


class SignalColumns:
    """Lays signals over nodes for decisions, and remembers the columns so that a decision pays for none.

    A join is made once per reading. When nodes are added, changed or removed, the rows that this concerns are joined
    again; the result is the same as that of `join`. A column is made once more when a value grows too old.
    """

    def __init__(self) -> None:
        self._index: NodeIndex | None = None
        self._version = -1
        self._joins: dict[tuple[str, str | None], list[_Made]] = {}
        """Of the two newest readings, the newest first: one is in use while the other is being joined."""
        self._columns: dict[Query, _Laid] = {}
        self._moved: list[set[str]] = []
        """For each join that is being made in steps: the texts that have come to mean another node meanwhile."""

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
        if len(self._joins) > len(signals.readings):
            self._drop_unread(signals)
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
        joined = self.joined(_read_by(query, node_label), reading=reading, nodes=nodes)
        values, missing, oldest = joined.values, len(joined.names) - joined.matched, joined.oldest_sample_age
        others = joined.others
        if oldest > usable_age:
            usable = joined.sample_ages <= usable_age
            values = np.where(usable, values, np.nan)
            values.flags.writeable = False
            missing = int(np.count_nonzero(np.isnan(values)))
            others = object()
            oldest = float(joined.sample_ages[usable].max(initial=0.0))
        until = reading.fetched_at + query.stale_after_seconds - oldest if reading.held_at is None else math.inf
        return SignalColumn(values, SignalState.FRESH, missing, joined, until, others)

    def rows_of(self, names: Iterable[str], nodes: NodeIdentities) -> list[int]:
        """Return the row of the node that each text names; less than 0 if it names none, or several."""
        index = self._follow(nodes)
        return [_look_up(name, index) for name in names]

    def keep_only(self, queries: Container[str]) -> None:
        """Drop what was laid out for other queries than these, by their PromQL."""
        self._joins = {key: made for key, made in self._joins.items() if key[0] in queries}
        self._columns = {query: laid for query, laid in self._columns.items() if query.promql in queries}

    def _drop_unread(self, signals: Signals) -> None:
        """Drop the joins of queries that are no longer sent."""
        self._joins = {key: made for key, made in self._joins.items() if key[0] in signals.readings}

    def joined(self, query: Query, *, reading: Reading, nodes: NodeIdentities) -> Join:
        """Return the join of a reading with the nodes, from memory if it was made before."""
        self._follow(nodes)
        for _ in self._joining(query, reading, nodes):
            pass
        made = self._made(query, reading)
        assert made is not None
        return made.join

    def joining(self, query: Query, *, signals: Signals, nodes: NodeIdentities) -> Iterator[None]:
        """Join a query's reading in steps, so that `column` does not have to; if nothing is left to do, no step.

        Between two steps anything may happen: decisions by other readings, and changes of nodes.
        """
        reading = signals.reading(query)
        if reading is not None:
            yield from self._indexing(nodes)
            yield from self._joining(_read_by(query, signals.node_label), reading, nodes)

    def _made(self, query: Query, reading: Reading) -> _Made | None:
        return next((one for one in self._joins.get((query.promql, query.by), ()) if one.reading is reading), None)

    def _joining(self, query: Query, reading: Reading, nodes: NodeIdentities) -> Iterator[None]:
        key = (query.promql, query.by)
        while self._made(query, reading) is None:
            yield
            index, newest = self._follow(nodes), next(iter(self._joins.get(key, ())), None)
            if newest is not None and _same_labels(newest.reading, reading):
                rows = newest.rows
            else:
                rows = SeriesRows(SeriesColumns.of(reading.series).labels, by=query.by)
                moved = set[str]()
                self._moved.append(moved)
                try:
                    yield from rows.look_up(index, before=newest.rows if newest is not None else None)
                finally:
                    self._moved = [each for each in self._moved if each is not moved]
                if self._follow(nodes) is not index:
                    continue
                if moved:
                    rows.follow(moved, index)
            made = _Made(reading, rows, join(reading, by=query.by, index=index, row_of=rows.row_of))
            self._joins[key] = [made, *self._joins.get(key, ())][:2]

    def _changes(self, nodes: NodeIdentities) -> IdentityChanges | None:
        """Return how the nodes differ from the index; None if there is none, or it is faster to make it again."""
        if self._index is None:
            return None
        changes = nodes.changes_since(self._version)
        return None if changes is None or len(changes.rows) * _REBUILD_SHARE > changes.size else changes

    def _indexing(self, nodes: NodeIdentities) -> Iterator[None]:
        """Make the index in steps, if it would have to be made at once otherwise."""
        version = nodes.identity_version
        if version == self._version or self._changes(nodes) is not None:
            return
        yield
        index = NodeIndex()
        for _ in index.read(nodes):
            yield
            if version < self._version:
                return  # a decision needed it meanwhile
        changes = nodes.changes_since(version)
        if changes is not None:
            index.follow(changes)
            self._use(index, nodes.identity_version)

    def _use(self, index: NodeIndex, version: int) -> None:
        self._index, self._version = index, version
        self._joins.clear()

    def _follow(self, nodes: NodeIdentities) -> NodeIndex:
        """Return the index of the nodes as they are; joins follow nodes that were added, changed or removed."""
        version = nodes.identity_version
        if self._index is not None and self._version == version:
            return self._index
        changes = self._changes(nodes)
        if self._index is None or changes is None:
            index = NodeIndex.of(nodes)
            self._use(index, version)
            return index
        texts = self._index.follow(changes)
        for moved in self._moved:
            moved.update(texts)
        followed: dict[int, tuple[IntArray, IntArray]] = {}
        for made in (one for several in self._joins.values() for one in several):
            rows = made.rows  # two readings with the same labels share them
            if id(rows) not in followed:
                followed[id(rows)] = rows.follow(texts, self._index)
            made.follow(changes, self._index, followed[id(rows)])
        self._version = version
        return self._index


def _read_by(query: Query, node_label: str | None) -> Query:
    return msgspec.structs.replace(query, by=node_label) if query.by is None and node_label is not None else query


class _Laid(msgspec.Struct, frozen=True):
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
            and self.at <= now < self.column.serves_until
            and node_label == self.node_label
        )


_REBUILD_SHARE = 8
"""With more than 1/8 of the nodes changed, all are joined again."""


class _Made(msgspec.Struct):
    """A join that was made, and what it was made from."""

    reading: Reading
    rows: SeriesRows
    join: Join

    def follow(self, changes: IdentityChanges, index: NodeIndex, moved: tuple[IntArray, IntArray]) -> None:
        """Join the rows again that changed, or whose series did; moved: what `SeriesRows.follow` returned."""
        reading, series, before = self.reading, SeriesColumns.of(self.reading.series), self.join
        if reading.scalar is not None:
            self.join = join(reading, by=None, index=index, row_of=self.rows.row_of)
            return
        old_rows, new_rows = moved
        row_of, size, own = self.rows.row_of, changes.size, changes.rows
        touched = own.union(old_rows[old_rows >= 0].tolist(), new_rows[new_rows >= 0].tolist())
        rows = np.array(sorted(row for row in touched if row < size), np.int64)
        placed = np.flatnonzero(np.isin(row_of, rows))
        values, ages, conflicting, odd = _laid(
            np.searchsorted(rows, row_of[placed]), series, placed, evaluated_at=reading.evaluated_at, count=len(rows)
        )
        all_values, all_ages = _resized(before.values, size), _resized(before.sample_ages, size)
        others = np.array([row not in own for row in rows.tolist()], np.bool_)
        same = np.array_equal(all_values[rows][others], values[others], equal_nan=True) and np.array_equal(
            all_ages[rows][others], ages[others]
        )
        all_values[rows], all_ages[rows] = values, ages
        all_values.flags.writeable = False
        all_ages.flags.writeable = False
        names = index.names
        gone = {before.names[row] for row in touched.union(range(size, len(before.names))) if row < len(before.names)}
        self.join = Join(
            names=names,
            values=all_values,
            sample_ages=all_ages,
            oldest_sample_age=float(all_ages.max(initial=0.0)),
            matched=int(np.count_nonzero(~np.isnan(all_values))),
            unmatched=_kept_if_same(before.unmatched, series, row_of, _UNMATCHED, old_rows, new_rows),
            ambiguous=_kept_if_same(before.ambiguous, series, row_of, _AMBIGUOUS, old_rows, new_rows),
            conflicting=_patched(before.conflicting, gone, [names[row] for row in rows[conflicting]]),
            not_finite=_patched(before.not_finite, gone, [names[row] for row in rows[odd]]),
            others=before.others if same else object(),
        )


def _resized(column: FloatArray, size: int) -> FloatArray:
    """Return a copy with another length; new rows are still to be written."""
    result = np.zeros(size)
    common = min(size, len(column))
    result[:common] = column[:common]
    return result


def _kept_if_same(
    before: Sequence[Series], series: SeriesColumns, row_of: IntArray, code: int, old: IntArray, new: IntArray
) -> Sequence[Series]:
    """Return the series with a code; those from before if none joined or left them."""
    if np.array_equal(old == code, new == code):
        return before
    return series.take(np.flatnonzero(row_of == code))


def _patched(names: tuple[str, ...], gone: set[str], come: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted((set(names) - gone).union(come)))


def _same_labels(old: Reading, new: Reading) -> bool:
    """Return whether two readings have the same series in the same order, as those of one query mostly do."""
    return SeriesColumns.of(old.series).labels.same_as(SeriesColumns.of(new.series).labels)


_UNMATCHED = -1
_AMBIGUOUS = -2


def _nothing(count: int, *, state: SignalState) -> SignalColumn:
    values = np.full(count, np.nan)
    values.flags.writeable = False
    return SignalColumn(values=values, state=state, missing=count, join=None)


def _row_of(texts: Iterable[str], *, index: NodeIndex) -> int:
    """Return the row of the first text that names a node, else _AMBIGUOUS or _UNMATCHED."""
    found = _UNMATCHED
    for text in texts:
        row = _look_up(text, index)
        if row >= 0:
            return row
        if row == _AMBIGUOUS:
            found = row  # hostname="localhost" everywhere must not hide a good instance label
    return found


def _look_up(text: str, index: NodeIndex) -> int:
    for spelling in _spellings(text):
        row = index.look_up(spelling)
        if row != _UNMATCHED:
            return row
    return _UNMATCHED


def _spellings(text: str) -> Iterable[str]:
    """Return what a text may stand for: itself, an IPv6 address, and both without a port."""
    if ":" not in text and not text.startswith("["):
        return (text,)
    return [each for each in (text, _canonical(text), _canonical(_without_port(text))) if each]


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
