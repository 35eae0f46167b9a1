"""Metrics: what was measured about nodes, read before the decision."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.node_identities import TableIdentities
from kube_policy_scheduler.cluster.nodes import FloatArray, NodeTable
from kube_policy_scheduler.cluster.signal_join import SignalColumns
from kube_policy_scheduler.cluster.signals import DEFAULT_EVERY_SECONDS, DEFAULT_STALE_AFTER_SECONDS, Query, Signals
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.queries import size_problem
from kube_policy_scheduler.lang.signature import (
    ConstantDuration,
    ConstantText,
    MaybeNumber,
    MaybeNumberReader,
    Number,
    builtin,
)
from kube_policy_scheduler.lang.types import Depends, Shape

_STARTED_WITHIN_SECONDS = 1.0
"""`status.startTime` is cut to whole seconds: a pod that started just after the sample says that it was just before."""


class _Arrivals:
    """Arrivals since one moment, counted once and then kept up to date from the node table's journal."""

    def __init__(self, cluster: Cluster, since: float) -> None:
        self.since = since
        self.version = cluster.nodes.version
        self.counts: FloatArray = np.zeros(cluster.nodes.size)
        for row, name in enumerate(cluster.nodes.names):
            self.counts[row] = self._on(cluster, name)
        self._position = cluster.nodes.dynamic_changes.end

    def _on(self, cluster: Cluster, name: str) -> int:
        # a pod that no kubelet has started yet uses nothing, however long ago it was bound
        since = self.since - _STARTED_WITHIN_SECONDS
        return sum(1 for pod in cluster.pods_on(name).values() if pod.started is None or pod.started > since)

    def refresh(self, cluster: Cluster) -> bool:
        """Count again on the nodes that pods came to or left; False where too much has changed."""
        changed = cluster.nodes.dynamic_changes.since(self._position)
        if changed is None:
            return False
        self._position = cluster.nodes.dynamic_changes.end
        for row in set(changed):
            if row >= cluster.nodes.size:
                return False
            self.counts[row] = self._on(cluster, cluster.nodes.names[row])
        return True


_KNOWN: WeakKeyDictionary[NodeTable, dict[float, _Arrivals]] = WeakKeyDictionary()
_MOMENTS = 8
"""Sample times remembered: one per metric that policies predict from."""


def arrivals(cluster: Cluster, *, since: float) -> FloatArray:
    """Return `float64[nodes]`: pods on each node that started after a moment (unix seconds), or not at all yet."""
    known = _KNOWN.setdefault(cluster.nodes, {})
    found = known.get(since)
    if found is None or found.version != cluster.nodes.version or not found.refresh(cluster):
        known.pop(since, None)
        while len(known) >= _MOMENTS:
            del known[min(known)]
        found = known[since] = _Arrivals(cluster, since)
    return found.counts


_MOST = 1e100
"""A metric beyond is missing: nothing real is, and sums and products of a few metrics can then not overflow."""


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


class _Joins:
    """Joins of readings with one node table, so that a decision pays for none."""

    __slots__ = ("bounded", "columns", "identities")

    def __init__(self, nodes: NodeTable) -> None:
        self.columns = SignalColumns()
        self.identities = TableIdentities(nodes)
        self.bounded: dict[Query, tuple[FloatArray, FloatArray]] = {}
        """By query: the values last seen, and the same without what is too large."""


_JOINS: WeakKeyDictionary[NodeTable, _Joins] = WeakKeyDictionary()


def whole_column(query: Query, frame: Frame) -> FloatArray:
    """Return `float64[nodes]`, whatever rows the frame looks at."""
    return column_of(query, frame.cluster.nodes, signals=frame.signals, now=frame.now)


def column_of(query: Query, nodes: NodeTable, *, signals: Signals, now: float) -> FloatArray:
    """Return `float64[nodes]`: the values of a query at `now`, Unix seconds; joined once for each reading."""
    joins = _JOINS.get(nodes)
    if joins is None:
        joins = _JOINS[nodes] = _Joins(nodes)
    column = joins.columns.column(query, signals=signals, nodes=joins.identities, now=now)
    if column.join is None:
        return column.values
    known = joins.bounded.get(query)
    if known is None or known[0] is not column.values:
        values = np.where(np.abs(column.values) > _MOST, np.nan, column.values)
        known = joins.bounded[query] = (column.values, values)
    return known[1]


@builtin(
    staged=True,
    shape=Shape.NODE,
    depends=Depends.SIGNAL,
    bounds=(-_MOST, _MOST),
    foreign=("prom", "prometheus", "query", "metrics", "metric"),
    advice='write `promql("…")`',
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
    reads_inputs=True,
    shape=Shape.NODE,
    depends=Depends.SIGNAL | Depends.ROW,
    reads=("node.pods",),
    bounds=lambda x, y, *_: (x[0] + min(0.0, y[0] * _MOST_PODS), x[1] + max(0.0, y[1] * _MOST_PODS)),
)
def predicted(
    frame: Frame,
    inputs: tuple[Query, ...],
    metric: MaybeNumber,
    per_pod: Number,
    *,
    lag: ConstantDuration = 0.0,
) -> MaybeNumber:
    """Return a metric plus per_pod for each pod that was placed on the node after the metric's last sample.

    A metric does not include pods that were placed after its last sample, so a burst of pods could go to one node.
    `predicted(promql("cpu_usage"), 5)` adds 5 for each new pod. If a metric is delayed, as averages and rates are, use
    `lag=2min`: pods then count as new for this much longer.
    """
    reading = frame.signals.reading(inputs[0])
    if reading is None:
        return metric
    newer = arrivals(frame.cluster, since=reading.fetched_at - sample_age(inputs[0], frame) - lag)
    result: FloatArray = metric + per_pod * newer[frame.rows]
    return result


def sample_age(query: Query, frame: Frame) -> float:
    """Return how old the oldest sample of the last reading was when it was fetched, in seconds."""
    joins = _JOINS.get(frame.cluster.nodes)
    reading = frame.signals.reading(query)
    if joins is None or reading is None:
        return 0.0
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
    joined = _JOINS[nodes].columns.joined(query, reading=reading, nodes=_JOINS[nodes].identities)
    ages = joined.sample_ages + reading.age_seconds(frame.now)
    found: FloatArray = np.where(np.isnan(joined.values), np.nan, ages)[frame.rows]
    return found


def query_of(text: str, *, max_age: float, every: float, by: str) -> Query:
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
    return Query(text, by=by or None, every_seconds=float(every), stale_after_seconds=float(max_age))


def queries(inputs: Any) -> tuple[Query, ...]:
    """Return the metric queries among a policy's inputs."""
    return tuple(each for each in inputs if isinstance(each, Query))
