"""What clauses said, as Prometheus sees it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts, ClauseMetrics
from tests.daemon.status_stage import Scene


def test_each_clause_of_the_policies_in_use_is_counted() -> None:
    scene = Scene(decided=4)
    registry = CollectorRegistry()
    registry.register(ClauseMetrics(scene.counts, policies=lambda: scene.policy_status.policies))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"policy_scheduler_{name}_total", {"policy": "web", **labels})

    assert value("clause_decisions", clause="not_too_busy") == 4
    assert value("clause_nodes", clause="not_too_busy", result="asked") == 48
    assert value("clause_nodes", clause="not_too_busy", result="rejected") == 4
    assert value("clause_nodes", clause="NodeUnschedulable", result="rejected") == 4
    assert value("clause_evaluation_seconds", clause="calm") > 0  # type: ignore[operator]
    assert value("missing_values", statement="calm") == 0
    scene.counts.clear()
    assert value("clause_decisions", clause="not_too_busy") is None


def test_without_policies_there_is_nothing_to_count() -> None:
    registry = CollectorRegistry()
    registry.register(ClauseMetrics(ClauseCounts(), policies=lambda: None))
    assert [family.samples for family in registry.collect()] == [[], [], [], []]
