"""Searches that end at their bound: the simulation, and the decision, say so."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.framework.backfill import reservation
from kube_policy_scheduler.framework.preempt import reclaim
from kube_policy_scheduler.tooling.simulation.results import Result, cut_notes, data
from kube_policy_scheduler.tooling.simulation.run import Run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario
from tests.tooling.simulation.scenarios import node, pod, simulated

QUEUES = """
queue a for pods where pod.label.q == "a" min cpu 4
queue b for pods where pod.label.q == "b"
reclaim
"""
STRICT = "order by pod.priority desc strict\nbackfill lasts duration(pod.label.runtime)\n"


def _reclaiming() -> Run:
    borrow = [Arrival(0, f"b{number}", pod(cpu="1", labels={"q": "b"})) for number in range(4)]
    return simulated([*borrow, Arrival(5, "a", pod(cpu="4", labels={"q": "a"}))], nodes=[node("n")], by=QUEUES)


def _backfilling() -> Run:
    short = [Arrival(0, f"s{number}", pod(cpu="1", labels={"runtime": "1h"}), 3600.0) for number in range(4)]
    first = Arrival(5, "big", pod(cpu="4"))
    return simulated([*short, first, Arrival(6, "behind", pod(cpu="1"))], nodes=[node("n")], by=STRICT)


def _notes(run: Run) -> list[str]:
    return list(cut_notes([Result("test", (run,))]))


@pytest.mark.parametrize("most", [3, 4])
def test_a_reclaim_that_would_evict_more_pods_than_are_tried(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "MOST_DISPLACED", most)
    found = _reclaiming()
    assert (found.evicted, bool(found.cut_reclaims)) == ((0, True) if most < 4 else (4, False))
    assert len(_notes(found)) == (1 if most < 4 else 0)


@pytest.mark.parametrize("most", [3, 4])
def test_a_reservation_for_which_more_pods_would_have_to_end_than_are_looked_at(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation, "MOST_ENDS", most)
    found = _backfilling()
    assert bool(found.cut_backfills) == (most < 4)
    assert len(_notes(found)) == (1 if most < 4 else 0)


@pytest.mark.long
def test_what_people_and_programs_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "MOST_DISPLACED", 3)
    monkeypatch.setattr(reservation, "MOST_ENDS", 3)
    made = data([Result("old", (_reclaiming(),)), Result("new", (_backfilling(),))], Scenario([], []))
    runs = [each["runs"][0] for each in made["variants"]]
    assert [bool(run["cutReclaims"]) for run in runs] == [True, False]
    assert [bool(run["cutBackfills"]) for run in runs] == [False, True]
