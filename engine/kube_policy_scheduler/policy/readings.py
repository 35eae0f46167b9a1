"""What readings of metrics say about the nodes: how many have no value, and how old the values are."""

from __future__ import annotations

from collections.abc import Iterable

from kube_policy_scheduler.builtins import metrics
from kube_policy_scheduler.builtins.metrics import MetricReader, ValueReader, sample_ages
from kube_policy_scheduler.cluster.nodes import FloatArray, NodeTable
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.compiled import Part
from kube_policy_scheduler.lang.compiling.expressions import ByColumn


def missing_nodes(queries: Iterable[Query], nodes: NodeTable, *, signals: Signals, now: float) -> dict[str, int]:
    """Lay readings over the nodes; return by PromQL how many nodes have no value, the most where queries share it."""
    found: dict[str, int] = {}
    for query in queries:
        missing = metrics.missing_nodes(query, nodes, signals=signals, now=now)
        found[query.promql] = max(missing, found.get(query.promql, 0))
    return found


def unusable(queries: Iterable[Query], nodes: NodeTable, *, signals: Signals, now: float) -> dict[str, str]:
    """Return by PromQL why no node has a value from an answer, for all that read it; see `metrics.why_missing`."""
    found: dict[str, str] = {}
    for query in queries:
        why = metrics.why_missing(query, nodes, signals=signals, now=now)
        found[query.promql] = why if found.get(query.promql, why) else ""
    return {promql: why for promql, why in found.items() if why}


def metric_ages(part: Part, frame: Frame) -> FloatArray | None:
    """Return `float64[rows]`: the age of each node's sample, seconds, NaN where there is none.

    None where the part is no metric by itself, or its query has had no answer yet.
    """
    match part.evaluate:
        case MetricReader(query=query):
            return sample_ages(query, frame)
        case ValueReader() as reader:
            return reader.ages(frame)
        case ByColumn(kernel=ValueReader() as reader, arguments=(key,)):
            return reader.ages(frame, key(frame))
        case _:
            return None
