"""A policy of 20 clauses with metrics, the metrics it reads, and policies of any number of clauses."""

from __future__ import annotations

import numpy as np

from kube_policy_scheduler.cluster.signals import LabelSets, Reading, SeriesColumns, Signals
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import load

CLAUSES: tuple[str, ...] = (
    'require pod.label.tenant else "pod missing tenant label"',
    "filter node.ready",
    "filter fits(cpu, mem)",
    'filter promql("cpu_usage") ?? 50 < 95',
    'score 2 * (100 - promql("cpu_usage") ?? 50)',
    "filter not label quarantine",
    'score 100 - promql("memory_usage") ?? 50',
    "spread by pod.label.tenant over topology.kubernetes.io/zone",
    "score least_allocated(cpu, mem)",
    "filter node.free.mem > 1Gi",
    "score -1 if label node=hello",
    'filter promql("temperature") ?? 50 < 90',
    "filter node.used_fraction.cpu < 0.95",
    "score balanced(cpu, mem)",
    "filter label pool in (pool-0, pool-1, pool-2) if pod.priority < 1000",
    "score 10 if label disk=ssd",
    "filter count(p in node.pods where p.label.tenant == pod.label.tenant) < 20",
    'score -10 * min(promql("network_errors") ?? 0, 5)',
    "score image_locality()",
    'score normalize(promql("disk_free") ?? 0) weight 2',
)
"""The first n of them are a policy of n clauses, of all kinds for any n."""
FOUR_LINES = """\
filter node.ready and fits(cpu, mem)
score 2 * (100 - promql("cpu_usage") ?? 50)
score -1 if label node=hello
spread by pod.label.tenant
"""
METRICS = ("cpu_usage", "memory_usage", "temperature", "network_errors", "disk_free")


def policy_text(clauses: int) -> str:
    """Return a policy of so many clauses; beyond 20 they are like some of those, with other numbers."""
    more = (
        'score {0} * (100 - promql("cpu_usage") ?? 50)',
        'filter promql("temperature") ?? 50 < {0} + 90',
        "filter node.free.mem > {0}Mi",
        "score {0} if label disk=ssd",
        'score -{0} * min(promql("network_errors") ?? 0, 5)',
    )
    lines = list(CLAUSES[:clauses])
    lines += [more[number % len(more)].format(number) for number in range(len(CLAUSES), clauses)]
    return "\n".join(lines) + "\n"


def policy_of(text: str) -> Policy:
    """Return the only policy of a text."""
    loaded = load([Source("bench.policy", text)])
    assert loaded.policy_set is not None, "\n".join(map(render, loaded.diagnostics))
    return loaded.policy_set.policies[0]


def profile_of(text: str) -> Profile:
    """Return a policy's profile."""
    return policy_of(text).profile


def signals(nodes: int, *, now: float) -> Signals:
    """Return a fresh reading of each metric for all nodes `node-0` and on, as a new answer: no object is shared."""
    generator = np.random.default_rng(0)
    readings = []
    for name in METRICS:
        values = generator.uniform(5, 60, nodes)
        labels = LabelSets.of({"__name__": name, "node": f"node-{row}"} for row in range(nodes))
        series = SeriesColumns(labels, values, np.full(nodes, now))  # as the adapter decodes answers
        readings.append(Reading(name, series, evaluated_at=now, fetched_at=now))
    return Signals.of(readings)
