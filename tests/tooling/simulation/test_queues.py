"""Queues in virtual time: what each uses and borrows, who is evicted for a guarantee, and how two runs compare."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.pages.simulation import queue_charts, shares_drawing
from kube_policy_scheduler.tooling.simulation.queue_shares import MOST_QUEUES
from kube_policy_scheduler.tooling.simulation.results import (
    CSV_HEAD,
    QueueUse,
    Result,
    data,
    queue_notes,
    queue_table,
    shares_csv,
)
from kube_policy_scheduler.tooling.simulation.run import Run, run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.tooling.simulation.scenarios import node, pod, simulated, variant
from tests.tooling.simulation.test_gangs import GANG, member

QUEUES = """queue a for pods where pod.label.team == "a" min cpu 4
queue b for pods where pod.label.team == "b" min cpu 4
order by queue.share, pod.queued
"""
RECLAIM = QUEUES + "reclaim after 30s\n"
NODES = [node("one"), node("two")]
GPU = "nvidia.com/gpu"


def of_team(team: str, **pods: Any) -> objects.Pod:
    made = pod(**pods)
    made.metadata.labels = {"team": team}
    return made


def team(name: str, number: int, *, at: float = 0, lasts: float | None = 300) -> list[Arrival]:
    return [Arrival(at, f"{name}-{each}", of_team(name), lasts) for each in range(number)]


def job(name: str, size: int, of: str, *, at: float = 0, lasts: float = 300) -> list[Arrival]:
    return [Arrival(at, f"{name}-{each}", member(name, size, labels={"team": of}), lasts) for each in range(size)]


def uses(found: Run) -> dict[str, QueueUse]:
    return {use.queue: use for use in Result("test", (found,)).queue_uses()}


def test_a_guarantee_is_given_back_after_the_patience_and_the_victims_come_again() -> None:
    found = simulated([*team("a", 8), *team("b", 4, at=60, lasts=100)], nodes=NODES, by=RECLAIM)

    assert (found.evicted, found.placed, found.left, found.unplaced) == (4, 16, 12, 0)
    assert sorted(found.wait_seconds) == [0] * 8 + [30] * 4 + [100] * 4
    assert {name: use.evicted.mean for name, use in uses(found).items()} == {"a": 4, "b": 0}


def test_the_newest_pods_are_evicted_first_and_all_others_end_in_time() -> None:
    running: list[set[str]] = []
    newer = [replace(each, name=f"z{each.name}") for each in team("a", 4, at=10)]
    large = Arrival(60, "large", of_team("b", cpu="2"), 100)
    found = run(
        Scenario(NODES, [*team("a", 4), *newer, large]),
        variant(RECLAIM),
        seed=0,
        stopwatch=lambda: 0.0,
        watch=lambda at, cluster: running.append({pod.name for pod in cluster.pods.values()}),
    )
    assert (found.evicted, found.placed, found.left) == (2, 11, 9)
    stayed = next(names for names in running if "large" in names)
    assert {name for name in stayed if name.startswith("a")} == {f"a-{number}" for number in range(4)}


def test_without_reclaim_the_owner_waits_until_borrowers_end() -> None:
    found = simulated([*team("a", 8), *team("b", 4, at=60, lasts=100)], nodes=NODES, by=QUEUES)
    assert (found.evicted, max(found.wait_seconds)) == (0, 240)


def test_a_gang_gets_its_guarantee_as_a_whole() -> None:
    found = simulated([*team("a", 8), *job("g", 4, "b", at=60, lasts=100)], nodes=NODES, by=RECLAIM + GANG)
    assert (found.evicted, found.placed, found.unplaced) == (4, 16, 0)
    assert found.wait_seconds[8:12] == (30,) * 4


@pytest.mark.parametrize("scheduler", ["policy-scheduler", "default-scheduler"])
def test_a_gang_is_evicted_as_a_whole_whatever_scheduler_its_pods_name(scheduler: str) -> None:
    arrivals = [*job("g", 8, "a"), *team("b", 1, at=60, lasts=100)]
    for arrival in arrivals:
        arrival.pod.spec.scheduler_name = scheduler
    found = simulated(arrivals, nodes=NODES, by=RECLAIM + GANG)
    assert (found.evicted, found.placed, found.unplaced) == (8, 17, 0)


def test_the_shares_are_those_of_the_nodes_over_time() -> None:
    found = simulated([*team("a", 8, lasts=100), *team("b", 2, at=100, lasts=100)], nodes=NODES, by=RECLAIM)
    a, b = uses(found)["a"], uses(found)["b"]

    assert (a.guaranteed.mean, b.guaranteed.mean) == (0.5, 0.5)
    assert (a.peak.mean, b.peak.mean) == (1.0, 0.25)
    assert a.used.mean == pytest.approx(0.5, abs=0.02)
    assert a.borrowed.mean == pytest.approx(0.25, abs=0.02), "half of the nodes for half of the time"
    assert (b.borrowed.mean, a.wait_seconds) == (0, (0, 0, 0))


def test_what_the_nodes_cannot_offer_is_said_and_is_no_share_of_anything() -> None:
    gpus = "".join(f'queue {name} for pods where pod.label.team == "{name}" min {GPU} 4\n' for name in "ab")
    result = Result("test", (simulated(team("a", 2), nodes=NODES, by=gpus),))
    assert queue_notes([result]) == [f"test: {GPU}: 8 are guaranteed in all, but none can be used by queues"]
    assert all(use.guaranteed.high == 0 for use in result.queue_uses())


def test_a_queue_counts_those_below_it() -> None:
    policy = QUEUES.replace("queue a ", "queue top\nqueue a of top ").replace("queue b ", "queue b of top ")
    found = simulated([*team("a", 6), *team("b", 2)], nodes=NODES, by=policy)
    assert {name: use.peak.mean for name, use in uses(found).items()} == {"top": 1, "a": 0.75, "b": 0.25}
    made = queue_table([Result("test", (found,))])
    assert made is not None
    assert [row[0] for row in made.rows] == ["top", "  a", "  b"]


def test_runs_are_compared_and_those_without_queues_are_measured_by_the_queues_of_others() -> None:
    scenario = Scenario(NODES, [*team("a", 8), *team("b", 4, at=60, lasts=100)])
    lends = variant(RECLAIM)
    plain = replace(PolicyVariant("kubernetes"), compared_by=lends.tree)
    results = [
        Result(name, (run(scenario, each, seed=0, stopwatch=lambda: 0.0),))
        for name, each in (("kubernetes", plain), ("lends", lends))
    ]

    assert [run.evicted for result in results for run in result.runs] == [0, 4]
    made = queue_table(results)
    assert made is not None
    assert [row[:4] for row in made.rows] == [
        ("a", "kubernetes", "cpu", "50.00"),
        ("", "lends", "cpu", "50.00"),
        ("b", "kubernetes", "cpu", "50.00"),
        ("", "lends", "cpu", "50.00"),
    ]
    waits = {row[1]: row[-2] for row in made.rows[2:]}
    assert waits == {"kubernetes": "4min", "lends": "30s"}


def test_to_be_measured_changes_no_decision() -> None:
    scenario = Scenario(NODES, [*team("a", 8, lasts=50), *team("b", 9, at=20), *job("g", 4, "b", at=70)])
    plain = PolicyVariant("kubernetes")
    without, measured = (
        run(scenario, each, seed=3, stopwatch=lambda: 0.0)
        for each in (plain, replace(plain, compared_by=variant(RECLAIM).tree))
    )
    assert without.queues is None
    assert replace(measured, queues=None) == without


def test_every_value_is_in_the_csv_and_the_charts_show_the_queues_that_use_most() -> None:
    by_namespace = 'queue team by pod.label.team min cpu 1\nqueue other for pods where pod.label.x == "y" min cpu 1\n'
    arrivals = [each for number in range(8) for each in team(f"t{number}", 1, at=number)]
    result = Result("test", (simulated(arrivals, nodes=NODES, by=by_namespace),))
    rows = list(csv.reader(io.StringIO(shares_csv([result]))))
    samples = result.runs[0].samples

    assert tuple(rows[0]) == CSV_HEAD
    assert {row[3] for row in rows[1:]} == {"other", *(f"team/t{number}" for number in range(8))}
    assert len(rows) - 1 == 9 * len(samples)
    assert max(float(row[6]) for row in rows[1:]) == 0.125

    found = data([result], Scenario(NODES, arrivals))
    (chart,) = queue_charts(found)
    assert chart.title == "cpu by queue: test"
    assert chart.svg.count("team/t") == 6
    assert "other" not in chart.svg
    drawing = shares_drawing(found)
    assert drawing.startswith("<svg xmlns=")
    assert drawing.count("<svg ") == 2


def test_so_many_queues_by_key_are_measured_and_the_others_are_counted() -> None:
    arrivals = [each for number in range(MOST_QUEUES + 6) for each in team(f"t{number}", 1)]
    nodes = [node(f"n{number}") for number in range(20)]
    result = Result("test", (simulated(arrivals, nodes=nodes, by="queue team by pod.label.team min cpu 1\n"),))
    assert len(result.queue_uses()) == MOST_QUEUES
    assert queue_notes([result]) == ["test: 6 queues not measured, only the first 64"]


def test_queues_also_apply_where_pods_are_dropped() -> None:
    policy = QUEUES.replace("min cpu 4", "min cpu 4 max cpu 4")
    found = simulated([*team("a", 8), *team("b", 1)], nodes=NODES, by=policy, drops=True)
    assert (found.placed, dict(found.reasons)) == (5, {"QueueQuota": 4})
    assert uses(found)["a"].peak.mean == 0.5
    assert uses(found)["a"].wait_seconds is None


def test_what_runs_above_a_max_is_evicted_one_by_one_if_a_policy_says_so() -> None:
    running = [of_team("a") for _ in range(4)]
    for number, each in enumerate(running):
        each.metadata.name, each.metadata.uid, each.spec.node_name = f"p{number}", f"p{number}", "one"
    queue = 'queue a for pods where pod.label.team == "a" max cpu 2\n'
    for statement, evicted in (("reclaim above max\n", 2), ("", 0)):
        found = run(Scenario([*NODES, *running], []), variant(queue + statement), seed=0, stopwatch=lambda: 0.0)
        assert found.evicted == evicted
        assert found.samples[-1].at == (60.0 if statement else 0.0), "after each it looks again in 30 s"


def test_amounts_are_parts_of_what_all_nodes_offer_and_shares_of_what_usable_ones_do() -> None:
    cordoned = node("lost")
    cordoned = msgspec.structs.replace(cordoned, spec=msgspec.structs.replace(cordoned.spec, unschedulable=True))
    whole = pod(cpu="4", labels={"q": "a"})
    by = 'queue a for pods where pod.label.q == "a" max cpu 100\n'
    queues = simulated([Arrival(0, "p", whole)], nodes=[node("n"), cordoned], by=by).queues
    assert queues is not None
    assert (queues.used(0, 0)[-1], queues.borrowed(0, 0)[-1], queues.shares(0)[-1]) == (0.5, 0.5, 1.0)
