"""What new readings say about the nodes, worked out when they come instead of in the decision that needs them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kube_policy_scheduler.builtins.metrics import column_of
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.signals import Query, Signals


def missing_nodes(queries: Iterable[Query], nodes: NodeTable, *, signals: Signals, now: float) -> dict[str, int]:
    """Lay readings over the nodes; return by PromQL how many nodes have no value, the most where queries share it."""
    found: dict[str, int] = {}
    for query in queries:
        missing = int(np.count_nonzero(np.isnan(column_of(query, nodes, signals=signals, now=now))))
        found[query.promql] = max(missing, found.get(query.promql, 0))
    return found
