"""What readings of metrics say about the nodes: how many have no value, and how old the values are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kube_policy_scheduler.builtins.metrics import MetricReader, column_of, sample_ages
from kube_policy_scheduler.cluster.nodes import FloatArray, NodeTable
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.compiled import Part


def missing_nodes(queries: Iterable[Query], nodes: NodeTable, *, signals: Signals, now: float) -> dict[str, int]:
    """Lay readings over the nodes; return by PromQL how many nodes have no value, the most where queries share it."""
    found: dict[str, int] = {}
    for query in queries:
        missing = int(np.count_nonzero(np.isnan(column_of(query, nodes, signals=signals, now=now))))
        found[query.promql] = max(missing, found.get(query.promql, 0))
    return found


def metric_ages(part: Part, frame: Frame) -> FloatArray | None:
    """Return `float64[rows]`: the age of each node's sample, seconds, NaN where there is none.

    None where the part is no metric by itself, or its query has had no answer yet.
    """
    return sample_ages(part.evaluate.query, frame) if isinstance(part.evaluate, MetricReader) else None
