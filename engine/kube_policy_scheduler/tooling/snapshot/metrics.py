"""What the policies' queries answered, as `metrics` of a test file and `--metrics` of commands read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.node_identities import TableIdentities
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.signal_join import SignalColumns
from kube_policy_scheduler.cluster.signals import Query, Reading, Signals


def recorded_metrics(
    queries: Iterable[Query],
    *,
    signals: Signals,
    nodes: NodeTable,
    now: float,
    named: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Return values by node, one for all nodes where the answer is a scalar; queries without answer are `absent`.

    Args:
        queries: what the policies read.
        signals: the answers.
        nodes: the nodes that values belong to.
        now: Unix seconds; ages count from here.
        named: from a node's name to what stands for it in the file.
    """
    done: dict[str, Any] = {}
    absent: list[str] = []
    columns, identities = SignalColumns(), TableIdentities(nodes)
    for query in queries:
        if query.promql in done:
            continue
        reading = signals.reading(query)
        if reading is None:
            absent.append(query.promql)
            continue
        if reading.scalar is not None:
            done[query.promql] = _sample(reading.scalar, reading.age_seconds(now))
            continue
        done[query.promql] = _by_node(query, reading, columns, identities, now, named)
    if absent:
        done["absent"] = sorted(set(absent))
    return done


def _by_node(
    query: Query,
    reading: Reading,
    columns: SignalColumns,
    identities: TableIdentities,
    now: float,
    named: Callable[[str], str],
) -> dict[str, Any]:
    joined = columns.joined(query, reading=reading, nodes=identities)
    age = reading.age_seconds(now)
    rows = np.flatnonzero(~np.isnan(joined.values))
    found = {
        named(joined.names[row]): (float(joined.values[row]), float(joined.sample_ages[row]) + age) for row in rows
    }
    return {name: _sample(value, seconds) for name, (value, seconds) in sorted(found.items())}


def _sample(value: float, age_seconds: float) -> Any:
    plain: float | int = int(value) if value == int(value) and abs(value) < 1e15 else value
    return {"value": plain, "age": f"{age_seconds:.3f}s"} if age_seconds >= 0.001 else plain
