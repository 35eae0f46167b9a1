"""Pods that are refused alike: one is tried for all, and nobody waits longer for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.tooling.simulation.autoscaling import AutoscaledShape, Autoscaling
from kube_policy_scheduler.tooling.simulation.run import Run, run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.tooling.simulation.scenarios import node, pod, simulated, variant

QUEUES = "queue all max cpu 100\norder by queue.share, pod.queued\nreclaim after 30s"
SIZES = {size: pod(cpu=str(size)) for size in (1, 2, 3)}


def started(arrivals: list[Arrival], who: PolicyVariant) -> dict[str, float]:
    """Return when each pod got its node, after the law was held at each moment: what fits does not wait."""
    found: dict[str, float] = {}
    sizes = {arrival.name: int(arrival.pod.spec.containers[0].resources.requests["cpu"]) for arrival in arrivals}

    def watch(at: float, cluster: Cluster) -> None:
        for one in cluster.pods.values():
            found.setdefault(one.name, at)
        free = (cluster.nodes.allocatable("cpu") - cluster.nodes.requested("cpu")) // 1000
        waiting = [each for each in arrivals if each.at <= at and each.name not in found]
        for one in waiting:
            members = int((one.pod.metadata.labels or {}).get("size", "1"))
            fits = sizes[one.name] <= free.max() if members == 1 else members <= free.sum()
            assert not fits, (at, free, one.name)

    scenario = Scenario([node("a"), node("b", cpu="3")], arrivals)
    run(scenario, who, seed=0, stopwatch=lambda: 0.0, watch=watch)
    return found


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(sorted(SIZES)), st.integers(1, 40)), min_size=1, max_size=25
)


@given(ARRIVALS, st.sampled_from([None, "order by pod.queued desc", "order by pod.request.cpu, pod.queued"]))
def test_no_pod_waits_that_fits(made: list[tuple[int, int, int]], by: str | None) -> None:
    arrivals = [
        Arrival(float(at), f"p{number}", SIZES[size], float(lasts))
        for number, (at, size, lasts) in enumerate(sorted(made))
    ]
    found = started(arrivals, variant(by) if by is not None else PolicyVariant("kubernetes"))
    assert len(found) == len(arrivals)
    if by is None:
        for one in SIZES.values():
            # new pods and those that were tried take turns, so a new one may get what has just been freed
            waited = [found[each.name] for each in arrivals if each.pod is one and found[each.name] > each.at]
            assert waited == sorted(waited), "of pods that are alike and wait, who came first starts first"


JOBS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(sorted(SIZES)), st.integers(1, 40), st.integers(1, 4)),
    min_size=1,
    max_size=12,
)
GANG = "gang by pod.label.job size number(pod.label.size) within 24h if pod label job\n"
SHARES = """queue a for pods where pod.label.team == "a" min cpu 3
queue b for pods where pod.label.team == "b" min cpu 2
order by queue.share, pod.queued
"""


def jobs(made: list[tuple[int, int, int, int]]) -> list[Arrival]:
    """Return single pods and gangs, each with labels of its own."""
    arrivals = []
    for number, (at, size, lasts, members) in enumerate(sorted(made)):
        labels = {"name": f"p{number}", "team": "ab"[number % 2]}
        gang = {"job": f"j{number}", "size": str(members)} if members > 1 else {}
        one = pod(cpu=str(1 if gang else size))
        one.metadata.labels = labels | gang
        arrivals += [Arrival(float(at), f"p{number}-{member}", one, float(lasts)) for member in range(members)]
    return arrivals


@given(JOBS, st.sampled_from([GANG, GANG + "order by pod.queued desc", GANG + SHARES]))
def test_no_pod_or_member_waits_that_fits(made: list[tuple[int, int, int, int]], by: str) -> None:
    arrivals = jobs(made)
    assert len(started(arrivals, variant(by))) == len(arrivals)


@given(JOBS)
def test_what_is_guaranteed_is_not_waited_for(made: list[tuple[int, int, int, int]]) -> None:
    arrivals = jobs(made)
    nodes = [node("a"), node("b", cpu="3")]
    found = simulated(arrivals, nodes=nodes, by=GANG + SHARES + "reclaim after 30s\n")
    assert (found.placed - found.evicted, found.left, found.unplaced) == (len(arrivals), len(arrivals), 0)


def test_pods_and_gangs_with_labels_of_their_own_cost_no_decision_where_nothing_has_room() -> None:
    large = [Arrival(0, "large", pod(cpu="4"), 2000.0)]
    ending = [Arrival(0, f"small-{each}", pod(cpu="500m"), 10.0 * each + 10) for each in range(100)]
    waiting = jobs([(each % 30, 3, 10, 1 + each % 2 * 3) for each in range(40)])
    found = simulated([*large, *ending, *waiting], nodes=[node("a"), node("b", cpu="500m")], by=GANG + SHARES)
    assert found.left == len([*large, *ending, *waiting])
    assert found.decisions < 5 * len([*large, *ending, *waiting])


@pytest.mark.parametrize("by", [None, "order by pod.queued", QUEUES])
def test_many_that_fit_nowhere_cost_one_decision_for_each_event(by: str | None) -> None:
    arrivals = [Arrival(float(number), f"p{number}", SIZES[3], 100.0) for number in range(60)]
    found = simulated(arrivals, nodes=[node("a")], by=by)
    assert (found.placed, found.left) == (60, 60)
    assert found.decisions <= (12 if by == QUEUES else 4) * 60, "with reclaim, pods are tried by time, too"


def test_pods_of_two_kinds_start_in_the_order_in_which_they_came() -> None:
    arrivals = [Arrival(0, "first", pod(cpu="4"), 100)]
    kinds = [pod(cpu="4"), pod(cpu="3500m")]
    arrivals += [Arrival(number, f"p{number}", kinds[number % 2], 10.0) for number in range(1, 9)]
    found = simulated(arrivals, nodes=[node("a")])
    assert found.wait_seconds == (0, *(100 + 10 * number - (number + 1) for number in range(8)))


def autoscaled(arrivals: list[Arrival], by: str) -> Run:
    shapes = Autoscaling((AutoscaledShape("new", node("like"), most=5, delay=60.0, idle=10_000.0),))
    scenario = Scenario([node("a")], arrivals, autoscaling=shapes)
    return run(scenario, variant(by), seed=0, stopwatch=lambda: 0.0)


def test_an_autoscaler_orders_nodes_for_all_of_them() -> None:
    arrivals = [Arrival(0, f"p{number}", SIZES[3], 500.0) for number in range(4)]
    found = autoscaled(arrivals, "filter fits(cpu)")
    assert (found.placed, found.most_nodes(), max(found.wait_seconds)) == (4, 4, 70)


def test_those_behind_have_the_reason_of_the_first() -> None:
    arrivals = [Arrival(0, f"p{number}", pod(cpu="9")) for number in range(5)]
    found = simulated(arrivals, nodes=[node("a")])
    assert dict(found.reasons) == {"NodeResourcesFit": 5}
