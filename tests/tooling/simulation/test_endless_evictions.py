"""Evictions that would go on for ever: the simulation ends, and says so."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.preempt import above_max
from kube_policy_scheduler.framework.quota import QuotaRules
from kube_policy_scheduler.tooling.simulation.results import Result, endless_notes
from kube_policy_scheduler.tooling.simulation.run import LEAST_BOUND, run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario
from tests.tooling.simulation.scenarios import node, pod, simulated, variant

POLICY = "queue all max cpu 4\nreclaim above max\n"


def test_a_run_whose_evictions_have_no_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def anybody(cluster: Cluster, rules: QuotaRules, *, now: float) -> above_max.AboveMax | None:
        """Evict a pod that finds its place again at once: rules that have a fault."""
        found = next(iter(cluster.pods.values()), None)
        return above_max.AboveMax((found,), "all", "a fault") if found is not None else None

    monkeypatch.setattr(above_max, "next_above_max", anybody)
    found = run(Scenario([node("n"), pod(nodeName="n")], []), variant(POLICY), seed=0, stopwatch=lambda: 0.0)

    assert found.evicted == LEAST_BOUND + 1
    assert found.given_up_at == pytest.approx(LEAST_BOUND * above_max.EVERY_SECONDS, abs=above_max.EVERY_SECONDS)
    (note,) = endless_notes([Result("test", (found,))])
    assert "with seed 0: 1,001 pods were evicted, without end" in note


def test_a_run_that_ends_says_nothing() -> None:
    found = simulated([Arrival(0, "a", pod(cpu="4")), Arrival(5, "b", pod(cpu="4"))], nodes=[node("n")], by=POLICY)
    assert found.given_up_at is None
    assert list(endless_notes([Result("test", (found,))])) == []
