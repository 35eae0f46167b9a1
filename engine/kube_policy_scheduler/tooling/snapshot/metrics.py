"""What the policies' queries answered, as `metrics` of a test file and `--metrics` of commands read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.node_identities import NodeIdentities
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.signal_join import SignalColumns
from kube_policy_scheduler.cluster.signal_values import value_table
from kube_policy_scheduler.cluster.signals import PAIR, About, Query, Reading, Signals


def recorded_metrics(
    queries: Iterable[Query],
    *,
    signals: Signals,
    nodes: NodeTable,
    now: float,
    named: Callable[[str, str], str] = lambda text, kind: text,
    keys: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return values by node or by the value of a label, one where there is only one; without answer: `absent`.

    Args:
        queries: what the policies read.
        signals: the answers.
        nodes: the nodes that values belong to.
        now: Unix seconds; ages count from here.
        named: from the name of a node ("node"), or a value of a label ("v"), to what stands for it in the file.
        keys: values of labels to keep; None: all.
    """
    done: dict[str, Any] = {}
    absent: list[str] = []
    columns, identities = SignalColumns(), NodeIdentities(nodes)
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
        if query.about is not About.NODES:
            table = value_table(reading, query)
            age = reading.age_seconds(now)
            samples = {
                key: _sample(float(table.values[row]), float(table.sample_ages[row]) + age)
                for key, row in sorted(table.rows.items())
                if not np.isnan(table.values[row])
            }
            if query.about is About.PAIRS:
                done[query.promql] = {
                    PAIR.join((named(node, "node"), named(text, "v"))): value
                    for key, value in samples.items()
                    for node, _, text in [key.partition(PAIR)]
                    if keys is None or text in keys
                }
            elif query.about is About.VALUES:
                done[query.promql] = {
                    named(key, "v"): value for key, value in samples.items() if keys is None or key in keys
                }
            elif samples:
                done[query.promql] = samples[""]
            else:
                absent.append(query.promql)  # several series: missing as without an answer
            continue
        done[query.promql] = _by_node(query, reading, columns, identities, now, named)
    if absent:
        done["absent"] = sorted(set(absent))
    return done


def _by_node(
    query: Query,
    reading: Reading,
    columns: SignalColumns,
    identities: NodeIdentities,
    now: float,
    named: Callable[[str, str], str],
) -> dict[str, Any]:
    joined = columns.joined(query, reading=reading, nodes=identities)
    age = reading.age_seconds(now)
    rows = np.flatnonzero(~np.isnan(joined.values))
    found = {
        named(joined.names[row], "node"): (float(joined.values[row]), float(joined.sample_ages[row]) + age)
        for row in rows
    }
    return {name: _sample(value, seconds) for name, (value, seconds) in sorted(found.items())}


def _sample(value: float, age_seconds: float) -> Any:
    plain: float | int = int(value) if value == int(value) and abs(value) < 1e15 else value
    return {"value": plain, "age": f"{age_seconds:.3f}s"} if age_seconds >= 0.001 else plain
