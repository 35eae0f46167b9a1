"""Metrics: what was measured about nodes, read before the decision."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.node_identities import NodeIdentities
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, FloatArray, IntArray, NodeTable
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signal_join import Join, SignalColumns
from kube_policy_scheduler.cluster.signal_values import MAX_VALUE, ValueTable, ValueTables
from kube_policy_scheduler.cluster.signals import (
    DEFAULT_EVERY_SECONDS,
    DEFAULT_STALE_AFTER_SECONDS,
    About,
    Query,
    Signals,
)
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Readings
from kube_policy_scheduler.lang.compiling.columns import as_texts
from kube_policy_scheduler.lang.environment import Item, QueryInput, QueryKey, TextChanges, Texts
from kube_policy_scheduler.lang.queries import size_problem
from kube_policy_scheduler.lang.signature import (
    Builtin,
    ConstantDuration,
    ConstantText,
    MaybeNumber,
    MaybeNumberReader,
    MaybeText,
    Number,
    Receives,
    Words,
    builtin,
)
from kube_policy_scheduler.lang.types import Depends, Shape

_STARTED_WITHIN_SECONDS = 1.0
"""`status.startTime` is cut to whole seconds: a pod that started just after the sample says that it was just before."""


_OfPod = Callable[[Any], Any]
"""From an `Item` to a text of the pod."""


class _Arrivals:
    """Arrivals since one moment, counted once and then kept up to date from the node table's journal."""

    def __init__(self, cluster: Cluster, since: float, rows: Iterable[int]) -> None:
        """Count on some rows; there are none on the others."""
        self.since = since
        nodes = cluster.nodes
        self._capacity: FloatArray = np.zeros(nodes.size)
        self._size = nodes.size
        self.by_text: KeptView[Hashable, tuple[_OfPod, dict[int, Counter[str]], Counter[str]]] = KeptView(most=_MOMENTS)
        """By what is read of each pod: the arrivals on each node by text, and on all of them."""
        self.total = 0.0
        self._position = nodes.dynamic_changes.end
        for row in rows:
            self._count(cluster, row)

    @property
    def counts(self) -> FloatArray:
        """Return `float64[nodes]`; read-only."""
        return self._capacity[: self._size]

    @property
    def rows(self) -> IntArray:
        """Return the rows that have some."""
        return np.flatnonzero(self.counts)

    def _on(self, cluster: Cluster, row: int) -> list[PodInfo]:
        # a pod that no kubelet has started yet uses nothing, however long ago it was bound
        since, pods = self.since - _STARTED_WITHIN_SECONDS, cluster.pods_on(cluster.nodes.infos[row].name)
        return [pod for pod in pods.values() if pod.started is None or pod.started > since]

    def with_text(self, cluster: Cluster, key: QueryKey, text: str | None) -> int:
        """Return the arrivals of which a text is read."""
        known = self.by_text.get(key.name)
        if known is None:
            rows = {row: _texts_of(self._on(cluster, row), key.read) for row in self.rows.tolist()}
            total = sum(rows.values(), Counter())
            known = (key.read, rows, total)
            self.by_text.set(key.name, known)
        return known[2][text] if text is not None else 0

    def refresh(self, cluster: Cluster) -> bool:
        """Count again on the nodes that pods came to or left; False where too much has changed."""
        nodes = cluster.nodes
        changed = nodes.dynamic_changes.since(self._position)
        if changed is None:
            return False
        self._position = nodes.dynamic_changes.end
        if nodes.size > len(self._capacity):
            self._capacity = np.concatenate((self._capacity, np.zeros(nodes.size)))
        for row in {*changed, *range(nodes.size, self._size)}:
            self._count(cluster, row)
        self._size = nodes.size
        return True

    def _count(self, cluster: Cluster, row: int) -> None:
        if row >= len(self._capacity):
            return  # a row that came and went
        pods = self._on(cluster, row) if row < cluster.nodes.size else []
        before = self._capacity.item(row)
        if not pods and not before:
            return
        self.total += len(pods) - before
        self._capacity[row] = len(pods)
        for _, (read, rows, total) in self.by_text.items():
            total.subtract(rows.pop(row, _NO_TEXTS))
            if pods:
                rows[row] = _texts_of(pods, read)
                total.update(rows[row])


_NO_TEXTS: Counter[str] = Counter()


def _texts_of(pods: Iterable[PodInfo], read: _OfPod) -> Counter[str]:
    return Counter(text for pod in pods if (text := read(Item(pod.template))) is not None)


_KNOWN: WeakKeyDictionary[NodeTable, dict[float, _Arrivals]] = WeakKeyDictionary()
_MOMENTS = 8
"""Sample times remembered: one per metric that policies predict from."""


def arrivals(cluster: Cluster, *, since: float) -> _Arrivals:
    """Return the pods that started after a moment (unix seconds), or not at all yet; on each node and in sum."""
    known = _KNOWN.setdefault(cluster.nodes, {})
    found = known.get(since)
    if found is not None and found.refresh(cluster):
        return found
    known.pop(since, None)
    # who came after this moment came after any earlier one too
    earlier = max((moment for moment in known if moment < since), default=None)
    if earlier is not None and known[earlier].refresh(cluster):
        rows: Iterable[int] = known[earlier].rows.tolist()
    else:
        rows = range(cluster.nodes.size)
    while len(known) >= _MOMENTS:
        del known[min(known)]
    known[since] = _Arrivals(cluster, since, rows)
    return known[since]


class MetricReader:
    """Reads one query from a frame."""

    __slots__ = ("inputs", "query")

    def __init__(self, query: Query) -> None:
        self.query = query
        self.inputs = (query,)

    def __call__(self, frame: Frame) -> FloatArray:
        """Return `float64[rows]`; NaN where there is no fresh sample."""
        values: FloatArray = whole_column(self.query, frame)[frame.rows]
        return values

    def of_row(self, frame: Frame) -> float:
        """Return the value of the only row of a frame."""
        return whole_column(self.query, frame).item(frame.only_row)


class _Joins:
    """Joins of readings with one node table, so that a decision pays for none."""

    __slots__ = ("bounded", "columns", "identities", "pairs", "tables")

    def __init__(self, nodes: NodeTable) -> None:
        self.pairs: dict[tuple[Query, str], tuple[ValueTable, int, FloatArray, FloatArray]] = {}
        """By query and text: the table, the version of the nodes, `float64[nodes]` the values and their ages."""
        self.columns = SignalColumns()
        self.tables = ValueTables()
        self.identities = NodeIdentities(nodes)
        self.bounded: dict[Query, tuple[FloatArray, FloatArray]] = {}
        """By query: the values last seen, and the same without what is too large."""

    def pairs_of(self, query: Query, table: ValueTable, text: str) -> tuple[FloatArray, FloatArray]:
        """Return `float64[nodes]` twice, read-only: the values about a text, NaN where missing, and their ages."""
        nodes, key = self.identities, (query, text)
        known = self.pairs.get(key)
        if known is None or known[0] is not table or known[1] != nodes.identity_version:
            known = table, nodes.identity_version, *self._laid(table, text)
            if len(self.pairs) >= _MOST_PAIRS:
                self.pairs.clear()
            self.pairs[key] = known
        return known[2], known[3]

    def _laid(self, table: ValueTable, text: str) -> tuple[FloatArray, FloatArray]:
        """Lay the values about a text over the nodes; a node that two series disagree about has none."""
        size, given = len(self.identities.names), table.of_value.get(text, ())
        values, ages = np.full(size, np.nan), np.zeros(size)
        seen: set[int] = set()
        for row, (_, at) in zip(self.columns.rows_of((name for name, _ in given), self.identities), given, strict=True):
            if row < 0:
                continue
            value = table.values.item(at)
            values[row] = value if row not in seen or values.item(row) == value else np.nan
            ages[row] = max(ages.item(row), table.sample_ages.item(at))
            seen.add(row)
        return values, ages


_MOST_PAIRS = 256
"""Texts of metrics by two labels whose columns are kept: 40 kB each at 2,500 nodes."""


def _joins(nodes: NodeTable) -> _Joins:
    return nodes.attach("joins of readings", lambda: _Joins(nodes))


def whole_column(query: Query, frame: Frame) -> FloatArray:
    """Return `float64[nodes]`, whatever rows the frame looks at."""
    return column_of(query, frame.cluster.nodes, signals=frame.signals, now=frame.now)


def column_of(query: Query, nodes: NodeTable, *, signals: Signals, now: float) -> FloatArray:
    """Return `float64[nodes]`: the values of a query at `now`, Unix seconds; joined once for each reading."""
    joins = _joins(nodes)
    column = joins.columns.column(query, signals=signals, nodes=joins.identities, now=now)
    if column.join is None:
        return column.values
    known = joins.bounded.get(query)
    if known is None or known[0] is not column.values:
        values = np.where(np.abs(column.values) > MAX_VALUE, np.nan, column.values)
        known = joins.bounded[query] = (column.values, values)
    return known[1]


def readings_of(asked: Sequence[Query], frame: Frame) -> Readings:
    """Return what queries read."""
    joins = _joins(frame.cluster.nodes)
    columns = [
        joins.columns.column(query, signals=frame.signals, nodes=joins.identities, now=frame.now) for query in asked
    ]
    states = [column.state if column.join is None else column.others for column in columns]
    return Readings(states, min((column.serves_until for column in columns), default=math.inf))


# --- metrics that are not of nodes -----------------------------------------------------------------------


class ValueReader:
    """Reads one value of a query from a frame: that of the cluster, or that of a text."""

    __slots__ = ("_of_texts", "inputs", "query")

    def __init__(self, query: Query) -> None:
        self.query = query
        self.inputs = (query,)
        self._of_texts: tuple[ValueTable, TextChanges | None, int, IntArray, FloatArray] | None = None
        """For a column of texts: what its values were made from, the row of each text in the table, and
        `float64[texts + 1]`; the last one stands for an absent text."""

    def table(self, frame: Frame) -> tuple[ValueTable, float] | None:
        """Return the values, and how old a sample may have been when it was evaluated; None without an answer."""
        table = _joins(frame.cluster.nodes).tables.table(self.query, signals=frame.signals, now=frame.now)
        if table is None:
            return None
        return table, self.query.stale_after_seconds - table.reading.age_seconds(frame.now)

    def __call__(self, frame: Frame, key: Texts | str | None = "") -> FloatArray | float:
        """Return the value of a text, `float64[rows]` for a column of texts; NaN where there is no fresh sample."""
        found = self.table(frame)
        if isinstance(key, Texts):
            if found is None:
                return np.full(len(key.codes), np.nan)
            of_rows: FloatArray = self._values(*found, key)[key.codes]
            return of_rows
        row = found[0].rows.get(key) if found is not None and key is not None else None
        if found is None or row is None or found[0].sample_ages[row] > found[1]:
            return np.nan
        return float(found[0].values[row])

    def _values(self, table: ValueTable, usable_age: float, texts: Texts) -> FloatArray:
        """Return `float64[texts + 1]`: by code; looked up once as long as neither texts nor reading change."""
        known, end = self._of_texts, texts.changes.end if texts.changes is not None else 0
        if known is None or known[0] is not table or known[1] is not texts.changes or known[2] != end:
            rows = np.array([*(table.rows.get(text, -1) for text in texts.values), -1], np.int64)
            values = np.append(table.values, np.nan)[rows]  # row -1 is the last one
            known = (table, texts.changes, end, rows, values)
            self._of_texts = known if texts.changes is not None else None
        if table.oldest_sample_age <= usable_age:
            return known[4]
        found: FloatArray = np.where(np.append(table.sample_ages, 0.0)[known[3]] > usable_age, np.nan, known[4])
        return found

    def ages(self, frame: Frame, key: Texts | str | None = "") -> FloatArray | None:
        """Return `float64[rows]`: how old each sample is at the decision, seconds; NaN where there is none.

        None where the query has had no answer yet.
        """
        reading = frame.signals.reading(self.query)
        if reading is None:
            return None
        table = _joins(frame.cluster.nodes).tables.of(self.query, reading, frame.signals)
        found = np.where(np.isnan(table.values), np.nan, table.sample_ages) + reading.age_seconds(frame.now)
        texts = key if isinstance(key, Texts) else as_texts(key, frame.size)
        rows = np.array([*(table.rows.get(text, -1) for text in texts.values), -1], np.int64)
        ages: FloatArray = np.append(found, np.nan)[rows][texts.codes]
        return ages


def _of_cluster(
    query: ConstantText,
    *,
    max_age: ConstantDuration = DEFAULT_STALE_AFTER_SECONDS,
    every: ConstantDuration = DEFAULT_EVERY_SECONDS,
) -> MaybeNumberReader:
    """Return the value of a PromQL query for the cluster; missing if it gives no series, or more than one."""
    return ValueReader(query_of(query, max_age=max_age, every=every, about=About.CLUSTER))


def _by_value(
    query: ConstantText,
    key: MaybeText,
    *,
    label: ConstantText,
    max_age: ConstantDuration = DEFAULT_STALE_AFTER_SECONDS,
    every: ConstantDuration = DEFAULT_EVERY_SECONDS,
) -> MaybeNumberReader:
    """Return the value of the series whose label is the key; missing if there is none."""
    return ValueReader(query_of(query, max_age=max_age, every=every, by=label, about=About.VALUES))


class PairReader:
    """Reads the value of each node and of a text of the pod."""

    __slots__ = ("inputs", "query")

    def __init__(self, query: Query) -> None:
        self.query = query
        self.inputs = (query,)

    def __call__(self, frame: Frame, key: str | None = None) -> FloatArray:
        """Return `float64[rows]`; NaN where no fresh sample is about the node and the text."""
        joins = _joins(frame.cluster.nodes)
        table = joins.tables.table(self.query, signals=frame.signals, now=frame.now)
        if table is None or key is None:
            return np.full(frame.size, np.nan)
        values, ages = joins.pairs_of(self.query, table, key)
        usable_age = self.query.stale_after_seconds - table.reading.age_seconds(frame.now)
        found: FloatArray = values[frame.rows]
        return (
            found if table.oldest_sample_age <= usable_age else np.where(ages[frame.rows] > usable_age, np.nan, found)
        )


_FOR_CLUSTER = builtin(staged=True, shape=Shape.DECISION, depends=Depends.SIGNAL, bounds=(-MAX_VALUE, MAX_VALUE))
_BY_VALUE = builtin(staged=True, receives=Receives.COLUMNS, depends=Depends.SIGNAL, bounds=(-MAX_VALUE, MAX_VALUE))
_BY_PAIR = builtin(
    staged=True,
    receives=Receives.COLUMNS,
    shape=Shape.NODE,
    depends=Depends.SIGNAL | Depends.CLUSTER,
    bounds=(-MAX_VALUE, MAX_VALUE),
)


def _by_pair(
    query: ConstantText,
    key: MaybeText,
    *,
    by: ConstantText,
    label: ConstantText,
    max_age: ConstantDuration = DEFAULT_STALE_AFTER_SECONDS,
    every: ConstantDuration = DEFAULT_EVERY_SECONDS,
) -> MaybeNumberReader:
    """Return the value of the series of each node whose label is the key; missing if there is none."""
    asked = query_of(query, max_age=max_age, every=every, by=by, about=About.PAIRS)
    return PairReader(msgspec.structs.replace(asked, value_label=label))


QUERIES: Mapping[str, Builtin] = MappingProxyType(
    {
        "cluster": msgspec.structs.replace(_FOR_CLUSTER(_of_cluster), name="promql"),
        "value": msgspec.structs.replace(_BY_VALUE(_by_value), name="promql"),
        "pair": msgspec.structs.replace(_BY_PAIR(_by_pair), name="promql"),
    }
)
"""What `metric NAME = promql("…") for cluster`, `… by LABEL as TEXT` and `… by LABEL, LABEL as TEXT` are."""


# --- metrics of nodes ------------------------------------------------------------------------------------


@builtin(
    staged=True,
    shape=Shape.NODE,
    depends=Depends.SIGNAL,
    bounds=(-MAX_VALUE, MAX_VALUE),
    words=Words(foreign=("prom", "prometheus", "query", "metrics", "metric"), advice='write `promql("…")`'),
)
def promql(
    query: ConstantText,
    *,
    max_age: ConstantDuration = DEFAULT_STALE_AFTER_SECONDS,
    every: ConstantDuration = DEFAULT_EVERY_SECONDS,
    by: ConstantText = "",
) -> MaybeNumberReader:
    """Return the value of a PromQL query for each node; missing if its sample is older than max_age.

    The scheduler runs the query once for all nodes, every 15 s; `every` changes this. The label `node`, `instance` or a
    similar label assigns a series to a node; `by` selects another label.
    """
    return MetricReader(query_of(query, max_age=max_age, every=every, by=by))


_MOST_PODS = 1e9


@builtin(
    receives=Receives.INPUTS,
    depends=Depends.SIGNAL | Depends.ROW | Depends.CLUSTER,
    reads=("node.pods",),
    bounds=lambda x, y, *_: (x[0] + min(0.0, y[0] * _MOST_PODS), x[1] + max(0.0, y[1] * _MOST_PODS)),
)
def predicted(
    frame: Frame,
    inputs: tuple[QueryInput, ...],
    metric: MaybeNumber,
    per_pod: Number,
    *,
    lag: ConstantDuration = 0.0,
) -> Number:
    """Return a metric plus per_pod for each pod that was placed after the metric's last sample.

    Of a metric of nodes, the pods on the node count; of one of the cluster, all pods; of one by a label, such as a
    tenant, the pods of that tenant. Missing only if the metric is.

    A metric does not include pods that were placed after its last sample, so a burst of pods could go to one node.
    `predicted(promql("cpu_usage"), 5)` adds 5 for each new pod. If a metric is delayed, as averages and rates are, use
    `lag=2min`: pods then count as new for this much longer.
    """
    query, key, of_nodes = inputs[0]
    reading = frame.signals.reading(query)
    if reading is None:
        return metric
    newer = arrivals(frame.cluster, since=reading.fetched_at - sample_age(query, frame) - lag)
    if of_nodes:
        result: FloatArray = metric + per_pod * newer.counts[frame.rows]
        return result
    if key is None:
        return metric + per_pod * newer.total
    text = key.read(frame)
    if not isinstance(text, Texts):
        return metric + per_pod * newer.with_text(frame.cluster, key, text)
    # the pods on all nodes with the same text
    everywhere = key.read(frame.at(ALL_ROWS)).codes + 1
    by_code: FloatArray = np.asarray(
        np.bincount(everywhere, weights=newer.counts, minlength=len(text.values) + 1), np.float64
    )
    by_code[0] = 0.0
    return metric + per_pod * by_code[text.codes + 1]


def missing_nodes(query: Query, nodes: NodeTable, *, signals: Signals, now: float) -> int:
    """Return for how many nodes a query has no value; for all of them where what is not of nodes has none at all."""
    if query.about is About.NODES:
        return int(np.count_nonzero(np.isnan(column_of(query, nodes, signals=signals, now=now))))
    table = _joins(nodes).tables.table(query, signals=signals, now=now)
    if table is None:
        return nodes.size
    usable_age = query.stale_after_seconds - table.reading.age_seconds(now)
    return nodes.size if table.missing(usable_age=usable_age) == len(table.rows) else 0


def why_missing(query: Query, nodes: NodeTable, *, signals: Signals, now: float) -> str:
    """Return why no node has a value of a query that was answered; "" if one has, or if there was no usable answer.

    An answer that is too old, or without series, is none: why that is, only who asked can tell.
    """
    reading = signals.reading(query)
    if reading is None or not signals.usable(query, now=now) or (reading.scalar is None and not len(reading.series)):
        return ""
    if not nodes.size or missing_nodes(query, nodes, signals=signals, now=now) < nodes.size:
        return ""
    joins = _joins(nodes)
    found: Join | ValueTable = (
        joins.columns.joined(query, reading=reading, nodes=joins.identities)
        if query.about is About.NODES
        else joins.tables.of(query, reading, signals)
    )
    ages = found.sample_ages[np.abs(found.values) <= MAX_VALUE]
    if len(ages):
        newest, limit = float(ages.min()) + reading.age_seconds(now), query.stale_after_seconds
        return f"the newest sample is {newest:.0f} s old, and at most {limit:g} s are allowed"
    problems = found.problems() if isinstance(found, Join) else found.problems
    if problems:
        return "; ".join(problems)
    return "the value is not a number that can be used" if len(found.values) else "no series has the label"


def joining(query: Query, nodes: NodeTable, *, signals: Signals) -> Iterator[None]:
    """Lay a query's reading over the nodes in steps, so that a decision does not have to.

    If nothing is left to do, there is no step. Between two steps anything may happen.
    """
    joins = _joins(nodes)
    if query.about is About.NODES:
        return joins.columns.joining(query, signals=signals, nodes=joins.identities)
    return joins.tables.making(query, signals=signals)


def keep_only(queries: Iterable[Query], nodes: NodeTable) -> None:
    """Drop what was laid over the nodes for other queries: no policy asks them any more."""
    joins, kept = _joins(nodes), {query.promql for query in queries}
    joins.columns.keep_only(kept)
    joins.tables.keep_only(kept)
    joins.bounded = {query: found for query, found in joins.bounded.items() if query.promql in kept}
    joins.pairs = {key: found for key, found in joins.pairs.items() if key[0].promql in kept}


def sample_age(query: Query, frame: Frame) -> float:
    """Return how old the oldest sample of the last reading was when it was fetched, in seconds."""
    joins = _joins(frame.cluster.nodes)
    reading = frame.signals.reading(query)
    if reading is None:
        return 0.0
    if query.about is not About.NODES:
        return joins.tables.of(query, reading, frame.signals).oldest_sample_age
    return joins.columns.joined(query, reading=reading, nodes=joins.identities).oldest_sample_age


def sample_ages(query: Query, frame: Frame) -> FloatArray | None:
    """Return `float64[rows]`: how old each node's sample is at the decision, seconds; NaN where there is none.

    None where the query has had no answer yet.
    """
    reading = frame.signals.reading(query)
    if reading is None:
        return None
    whole_column(query, frame)
    nodes = frame.cluster.nodes
    joins = _joins(nodes)
    joined = joins.columns.joined(query, reading=reading, nodes=joins.identities)
    ages = joined.sample_ages + reading.age_seconds(frame.now)
    found: FloatArray = np.where(np.isnan(joined.values), np.nan, ages)[frame.rows]
    return found


def query_of(text: str, *, max_age: float, every: float, by: str = "", about: About = About.NODES) -> Query:
    """Return the query that a policy's arguments make.

    Raises:
        ValueError: the query or one of the times can't be meant.
    """
    if not text.strip():
        raise ValueError('the query is empty; write for example promql("node_load1")')
    if problem := size_problem(text):
        raise ValueError(problem)
    if every < 1:
        raise ValueError(f"every {every:g} s is too often; the shortest interval is 1s")
    if max_age < every:
        raise ValueError(
            f"max_age ({max_age:g} s) is shorter than every ({every:g} s): values would be missing between two"
            " fetches; make max_age at least twice as long"
        )
    return Query(text, by=by or None, every_seconds=float(every), stale_after_seconds=float(max_age), about=about)


def queries(inputs: Any) -> tuple[Query, ...]:
    """Return the metric queries among a policy's inputs."""
    return tuple(each for each in inputs if isinstance(each, Query))
