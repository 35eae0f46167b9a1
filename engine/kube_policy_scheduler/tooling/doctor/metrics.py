"""Metrics that policies read: on how many nodes each has a value, how old it is, and why the others have none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from kube_policy_scheduler.cluster.node_identities import NodeIdentities
from kube_policy_scheduler.cluster.signal_join import Join, NodeIndex, SignalColumns
from kube_policy_scheduler.cluster.signal_values import value_table
from kube_policy_scheduler.cluster.signals import About, Query, Reading, Series
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.wording import plural, some

_LATE = 0.5
"""Share of the age limit above which one missed scrape makes values missing."""
_SKEW_SECONDS = 5.0


def metric_findings(inspection: Inspection) -> Iterator[Finding]:
    """Look at every query of the policies."""
    columns, nodes = SignalColumns(), NodeIdentities(inspection.state.cluster.nodes)
    index = NodeIndex.of(nodes)
    skews: list[float] = []
    for query in inspection.policy_set.queries:
        reading = inspection.signals.reading(query)
        if reading is None:
            yield _without_answer(inspection, query)
            continue
        for warning in reading.warnings:
            yield _finding(query, Status.WARNING, f"Prometheus warns: {warning}")
        if query.about is not About.NODES:
            yield from _values(query, reading, inspection.now)
            continue
        if reading.scalar is not None:
            finite = bool(np.isfinite(reading.scalar))
            text = f"one value for all nodes: {reading.scalar:g}"
            yield _finding(query, Status.OK if finite else Status.PROBLEM, text)
            continue
        if not reading.series:
            advice = "check the spelling, and that Prometheus scrapes it"
            yield _finding(query, Status.PROBLEM, "Prometheus has no series for it now", advice)
            continue
        skews.append(reading.evaluated_at - reading.fetched_at)
        if not index.names:
            yield _finding(query, Status.UNCHECKED, "the cluster has no nodes")
            continue
        joined = columns.joined(query, reading=reading, nodes=nodes)
        yield _joined(query, reading, joined, index)
        yield from _ages(query, reading, joined, inspection.now)
    if inspection.live_metrics and inspection.policy_set.queries:
        yield from _clock(skews)


def _without_answer(inspection: Inspection, query: Query) -> Finding:
    if query.promql in inspection.refused:
        return _finding(query, Status.PROBLEM, inspection.refused[query.promql])
    if query.promql in inspection.unanswered:
        return _finding(query, Status.UNCHECKED, inspection.unanswered[query.promql])
    if inspection.measured:
        return _finding(query, Status.UNCHECKED, "the metrics file has no value of it")
    return _finding(query, Status.UNCHECKED, "no metrics were queried", "specify --prometheus-url or --metrics")


def _values(query: Query, reading: Reading, now: float) -> Iterator[Finding]:
    """Look at a metric of the cluster, or of values of a label."""
    if reading.scalar is None and not reading.series:
        advice = "check the spelling, and that Prometheus scrapes it"
        yield _finding(query, Status.PROBLEM, "Prometheus has no series for it now", advice)
        return
    table = value_table(reading, query)
    found = int(np.count_nonzero(~np.isnan(table.values)))
    if query.about is About.PAIRS:
        pairs = plural(found, "pair")
        text = f"for {pairs} of the labels `{query.by}` and `{query.value_label}`"
    elif query.about is About.VALUES:
        names = [name for name, row in table.rows.items() if not np.isnan(table.values[row])]
        such = f", such as {some(sorted(names))}" if names else ""
        text = f"for {plural(found, 'value')} of the label `{query.by}`{such}"
    else:
        text = f"one value for the cluster: {table.values[0]:g}" if found else "no value for the cluster"
    status = Status.OK if found and not table.problems else Status.WARNING if found else Status.PROBLEM
    yield _finding(query, status, text, "; ".join(table.problems))
    yield from _late(query, table.oldest_sample_age + reading.age_seconds(now) if found else 0.0)


def _joined(query: Query, reading: Reading, joined: Join, index: NodeIndex) -> Finding:
    total = len(joined.names)
    text = f"on {joined.matched} of {plural(total, 'node')}"
    missing = sorted(joined.missing_names())
    if joined.conflicting:
        advice = f"several series with different values for {some(joined.conflicting)}, which differ in"
        labels = _differing(query, reading, joined)
        advice += (
            f" {', '.join(f'`{label}`' for label in labels)}: aggregate them, as in max by (node) ({query.promql})"
        )
        return _finding(query, Status.PROBLEM, text, advice)
    if missing:
        text += f"; not on {some(missing)}"
    if joined.not_finite:
        text += f"; not a finite number on {some(joined.not_finite)}"
    if joined.ambiguous:
        text += f"; the label of {plural(len(joined.ambiguous), 'series', 'series')} belongs to several nodes"
    status = Status.OK if not missing else Status.WARNING if joined.matched else Status.PROBLEM
    advice = _advice(query, joined.unmatched, index) if missing and joined.unmatched else ""
    if joined.unmatched and not missing:
        text += f"; {plural(len(joined.unmatched), 'more series', 'more series')} match no node"
    return _finding(query, status, text, advice)


def _differing(query: Query, reading: Reading, joined: Join) -> list[str]:
    """Return the labels in which series of one node differ."""
    name = joined.conflicting[0]
    mine = [one for one in reading.series if name in one.labels.values()] or list(reading.series)
    keys = sorted({key for one in mine for key in one.labels})
    return [key for key in keys if len({one.labels.get(key) for one in mine}) > 1 and key != query.by] or keys


def _advice(query: Query, unmatched: Sequence[Series], index: NodeIndex) -> str:
    """Say what labels the series have that match no node, and which of them would match."""
    if all(not one.labels for one in unmatched):
        return "the result has no labels: keep the label of the node in the query, as in avg by (node) (…)"
    fitting: Counter[str] = Counter()
    close: dict[str, tuple[str, str]] = {}
    shorts = {name.partition(".")[0].lower(): name for name in index.names}
    for one in unmatched:
        for label, value in one.labels.items():
            if label == "__name__":
                continue
            if value in index.rows:
                fitting[label] += 1
            elif (name := shorts.get(value.partition(".")[0].partition(":")[0].lower())) is not None:
                close.setdefault(label, (value, name))
    names = sorted({label for one in unmatched for label in one.labels} - {"__name__"})
    said = f"{plural(len(unmatched), 'series', 'series')} match no node, such as {unmatched[0]}"
    if fitting:
        best = max(fitting, key=lambda label: (fitting[label], label))
        return f'{said}: their label `{best}` names nodes: promql("{query.promql}", by="{best}")'
    if close:
        label, (value, name) = sorted(close.items())[0]
        return f"{said}: `{label}` is `{value}`, the node is `{name}`: use label_replace in the query or relabel"
    return f"{said}: none of their labels ({', '.join(names)}) names a node"


def _ages(query: Query, reading: Reading, joined: Join, now: float) -> Iterator[Finding]:
    oldest = joined.oldest_sample_age + reading.age_seconds(now)
    limit = query.stale_after_seconds
    if not joined.matched or oldest <= limit * _LATE:
        return
    late = joined.sample_ages + reading.age_seconds(now)
    yield from _late(query, oldest, [joined.names[row] for row in np.flatnonzero(late > limit * _LATE)])


def _late(query: Query, oldest: float, names: Sequence[str] = ()) -> Iterator[Finding]:
    """Report samples that are soon too old, or are now."""
    limit = query.stale_after_seconds
    if oldest <= limit * _LATE:
        return
    whose = f": {some(sorted(names))}" if names else ""
    text = f"the oldest sample is {oldest:.0f} s old, the limit is {limit:.0f} s{whose}"
    if oldest > limit:
        yield _finding(
            query,
            Status.PROBLEM,
            text,
            "check that Prometheus scrapes the exporter; values older than the limit are missing",
        )
    else:
        yield _finding(
            query, Status.WARNING, text, "after one more missed scrape, the value is missing: increase max_age"
        )


def _clock(skews: Sequence[float]) -> Iterator[Finding]:
    if not skews:
        yield Finding("clocks", "prometheus", Status.UNCHECKED, "its answers contain no time")
        return
    worst = max(skews, key=abs)
    status = Status.OK if abs(worst) <= _SKEW_SECONDS else Status.WARNING
    direction = "ahead of" if worst > 0 else "behind"
    text = (
        f"its clock is {abs(worst):.0f} s {direction} the local clock"
        if status is Status.WARNING
        else "its clock agrees with the local clock"
    )
    yield Finding("clocks", "prometheus", status, text, advice="synchronise them" if status is Status.WARNING else "")


def _finding(query: Query, status: Status, text: str, advice: str = "") -> Finding:
    return Finding("metrics", f'promql("{query.promql}")', status, text, advice=advice)
