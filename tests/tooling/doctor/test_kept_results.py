"""Doctor tells how much memory kept results may take in the largest clusters."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster import kept_views, pod_counters
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.doctor import kept_results
from kube_policy_scheduler.tooling.doctor.examine import examine
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from tests.framework.clusters import make_node
from tests.simulation.chaos import policies_of

ADVICE = "leave room for it in the memory limit of the container, or set `scheduling.cacheMebibytes`"


def findings(nodes: int) -> list[Finding]:
    state = cluster_state([make_node(name) for name in "abc"[:nodes]])
    inspection = Inspection(state, policies_of("filter node.ready").policy_set, 0.0)
    return [each for each in examine(inspection, access=None) if each.check == "memory"]


@pytest.mark.parametrize(
    ("nodes", "text"),
    [(1, None), (2, None), (3, "with 3 nodes, they may take 1,536 MiB, if no setting says otherwise")],
)
def test_the_limit_is_told_where_it_follows_from_the_nodes(
    nodes: int, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (kept_views, kept_results):
        monkeypatch.setattr(module, "MIN_KEPT_BYTES", 1024 << 20)
    monkeypatch.setattr(kept_views, "KEPT_BYTES_PER_NODE", 512 << 20)
    found = findings(nodes)

    assert found == ([] if text is None else [Finding("memory", "kept results", Status.OK, text, advice=ADVICE)])


@pytest.mark.parametrize(
    ("nodes", "text"), [(2, None), (3, "with 3 nodes, counts and sums of pods may take 1,536 MiB")]
)
def test_so_is_that_of_counts(nodes: int, text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pod_counters, kept_results):
        monkeypatch.setattr(module, "MIN_COUNTER_BYTES", 1024 << 20)
    monkeypatch.setattr(pod_counters, "COUNTER_BYTES_PER_NODE", 512 << 20)
    found = findings(nodes)

    advice = "leave room for it in the memory limit of the container"
    assert found == ([] if text is None else [Finding("memory", "counts of pods", Status.OK, text, advice=advice)])
