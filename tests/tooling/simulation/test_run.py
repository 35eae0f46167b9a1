"""Pods come, wait, run and leave in virtual time, as the real queue and the real cycle have it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.framework.decide.algorithm import NO_POLICY
from kube_policy_scheduler.tooling.simulation.results import Result, table
from kube_policy_scheduler.tooling.simulation.run import next_look, run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.tooling.simulation.scenarios import node, pod, simulated
from tests.tooling.worlds import POOL, things_with_devices


def test_a_pod_that_fits_nowhere_waits_until_another_leaves() -> None:
    big = pod(cpu="3")
    found = simulated([Arrival(0, "first", big, 60), Arrival(10, "second", big, 60)], nodes=[node("a")])
    assert (found.arrived, found.placed, found.left, found.unplaced) == (2, 2, 2, 0)
    assert found.wait_seconds == (0, 50)
    assert found.samples[-1].at == 120
    assert max(sample.pending for sample in found.samples) == 1
    assert found.last.used["cpu"] == 0


def test_time_in_use_is_weighed_by_how_long_it_lasts() -> None:
    found = simulated([Arrival(0, "p", pod(cpu="4"), 100), Arrival(300, "q", pod(cpu="1"), 100)], nodes=[node("a")])
    assert found.mean_used("cpu") == pytest.approx((100 * 1.0 + 100 * 0.25) / 400, abs=0.01)


def test_pods_that_never_fit_are_pending_in_the_end_with_what_refused_them() -> None:
    found = simulated([Arrival(0, "p", pod(cpu="99")), Arrival(0, "q", pod(cpu="1"))], nodes=[node("a")])
    assert (found.placed, found.unplaced, dict(found.reasons)) == (1, 1, {"NodeResourcesFit": 1})


def test_without_waiting_what_does_not_fit_is_dropped_and_no_pod_leaves() -> None:
    big = pod(cpu="3")
    found = simulated(
        [Arrival(0, "first", big, 1), Arrival(10, "second", big), Arrival(20, "small", pod())],
        nodes=[node("a")],
        drops=True,
    )
    assert (found.placed, found.left, found.unplaced) == (2, 0, 1)
    assert found.last.used["cpu"] == 1


def test_a_pod_that_is_held_is_dropped() -> None:
    policy = 'hold if pod.request.cpu > 3 else "too much"\nfilter true'
    arrivals = [Arrival(0, "held", pod(cpu="3500m")), Arrival(1, "small", pod())]
    found = simulated(arrivals, nodes=[node("a")], by=policy, drops=True)
    assert (found.placed, found.unplaced, dict(found.reasons)) == (1, 1, {"too much": 1})


def test_the_policy_decides_which_pod_is_next_and_which_waits() -> None:
    policy = 'order by pod.request.cpu desc\nhold if pod.request.cpu > 3 else "too much"\nfilter true'
    blocker, small, large, held = pod(cpu="4"), pod(cpu="2"), pod(cpu="3"), pod(cpu="3500m")
    policy = policy.replace("> 3 ", "> 3200m ")
    arrivals = [Arrival(0, "small", small, 50), Arrival(0, "large", large, 50), Arrival(0, "held", held, 50)]
    found = simulated(arrivals, nodes=[node("a")], by=policy)
    assert found.wait_seconds == (0, 50), "the larger one first"
    assert dict(found.reasons) == {"too much": 1}
    assert blocker is not None


def test_pods_held_until_an_hour_are_let_in_when_it_comes() -> None:
    policy = 'hold if hour() < 1 else "not at midnight"'
    found = simulated([Arrival(0, "p", pod(), 10)], nodes=[node("a")], by=policy)
    assert found.wait_seconds == (3600,)


@pytest.mark.parametrize("name", ["hold", "filter"])
@pytest.mark.parametrize("wait", [(5, 5), (420, 420), (1200, 1200), (7 * 3600, 7 * 3600)])
def test_a_policy_sees_how_long_a_pod_has_waited(name: str, wait: tuple[int, float]) -> None:
    statement = "hold if pod.waiting < {}s" if name == "hold" else "filter pod.waiting >= {}s"
    arrivals = [Arrival(at, f"p{at}", pod(), 10) for at in (0, 7)]
    found = simulated(arrivals, nodes=[node("a")], by=statement.format(wait[0]))
    assert (found.placed, found.unplaced) == (2, 0)
    assert all(wait[1] <= waited <= wait[1] * 1.04 + 5 for waited in found.wait_seconds)
    assert wait[1] in found.wait_seconds


@pytest.mark.parametrize(("order", "names"), [("asc", ["first", "second"]), ("desc", ["second", "first"])])
def test_the_queue_is_ordered_by_how_long_pods_have_waited(order: str, names: list[str]) -> None:
    sizes = {"first": "3", "second": "2"}
    arrivals = [Arrival(at, name, pod(cpu=sizes[name]), 50) for at, name in ((1, "first"), (2, "second"))]
    arrivals = [Arrival(0, "blocker", pod(cpu="4"), 100), *arrivals]
    found = simulated(arrivals, nodes=[node("a")], by=f"order by pod.queued {order}\nfilter fits(cpu)")
    waits = {"first": 99, "second": 98}
    assert found.wait_seconds[:2] == (0, waits[names[0]])


def test_pods_that_only_time_could_help_are_given_up_after_a_week() -> None:
    found = simulated([Arrival(0, "p", pod(), 10)], nodes=[node("a")], by="filter pod.waiting > 30d")
    assert (found.placed, found.unplaced) == (0, 1)
    assert 7 <= found.samples[-1].at / 86400 <= 7.1
    assert found.decisions < 1500, "looks become rarer"


def test_a_hold_that_reads_the_cluster_ends_when_a_pod_leaves() -> None:
    policy = 'hold if count(p in cluster.pods) > 0 else "one at a time"'
    arrivals = [Arrival(at, f"p{at}", pod(), 100) for at in (0, 1)]
    assert simulated(arrivals, nodes=[node("a")], by=policy).wait_seconds == (0, 99)


def test_a_pod_that_found_no_room_and_is_held_since_lets_those_behind_it_go_first() -> None:
    policy = 'hold if hour() == 1 and pod.name == "first" else "not now"\nfilter fits(cpu)'
    arrivals = [Arrival(0, "blocker", pod(cpu="4"), 4000)]
    arrivals += [Arrival(at, name, pod(cpu="4"), 10_000) for at, name in ((1, "first"), (2, "second"))]
    assert simulated(arrivals, nodes=[node("a")], by=policy).wait_seconds == (0, 3998, 13_999)

    everybody = policy.replace(' and pod.name == "first"', "")
    assert simulated(arrivals, nodes=[node("a")], by=everybody).wait_seconds == (0, 7199, 17_198)


def test_important_pods_evict_others_that_come_back() -> None:
    arrivals = [Arrival(0, "low", pod(cpu="3"), 100), Arrival(10, "high", pod(cpu="3", priority=10), 100)]
    found = simulated(arrivals, nodes=[node("a")])
    assert (found.evicted, found.placed, found.left, found.unplaced) == (1, 3, 2, 0)
    assert found.samples[-1].at == 210, "the evicted pod started again when the other ended"


@pytest.mark.parametrize(("preempts", "waits"), [("PreemptLowerPriority", (0, 0, 40)), ("Never", (0, 40, 80))])
def test_room_on_a_nominated_node_is_kept_until_preemption_finds_no_node(
    preempts: str, waits: tuple[float, ...]
) -> None:
    """As in the daemon: a pod that may not preempt was never asked, so an earlier nomination remains."""
    first = pod(cpu="2", priority=10)
    nominated = pod(cpu="4", priority=10, preemptionPolicy=preempts)
    nominated.status.nominated_node_name = "a"
    arrivals = [
        Arrival(0, "first", first, 50),
        Arrival(10, "big", nominated, 40),
        Arrival(10, "small", pod(cpu="2"), 5),
    ]
    found = simulated(arrivals, nodes=[node("a")])
    assert tuple(sorted(found.wait_seconds)) == waits


def test_a_pod_of_lower_priority_loses_its_nomination_to_the_node_of_a_preemption() -> None:
    patient = pod(cpu="4", priority=5, preemptionPolicy="Never")
    patient.status.nominated_node_name = "a"
    urgent, small = pod(cpu="3", priority=10), pod(cpu="1")
    runs = Arrival(0, "runs", pod(cpu="4"), 1000)
    arrivals = [
        runs,
        Arrival(5, "patient", patient, 10),
        Arrival(10, "urgent", urgent, 50),
        Arrival(20, "small", small, 5),
    ]
    found = simulated(arrivals, nodes=[node("a")])
    assert found.wait_seconds[:3] == (0, 0, 0), "the last of them uses what the urgent pod leaves"


def test_pods_that_no_policy_governs_are_reported() -> None:
    found = simulated([Arrival(0, "p", pod())], nodes=[node("a")], by='for pods where pod.namespace == "other"')
    assert (found.placed, dict(found.reasons)) == (0, {NO_POLICY: 1})


def test_a_cluster_without_room_for_anything_ends() -> None:
    found = simulated([Arrival(0, "p", pod(), 1)], nodes=[node("a", cpu="0")])
    assert (found.placed, found.unplaced, found.mean_used("cpu")) == (0, 1, 0)


def test_the_same_seed_gives_the_same_run_and_another_one_other_ties() -> None:
    arrivals = [Arrival(float(number), f"p{number}", pod(cpu="1"), 30 + number % 7) for number in range(60)]
    nodes = [node(f"n{number}", cpu="3") for number in range(6)]
    first, again, other = (simulated(arrivals, nodes=nodes, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert [s.spread for s in first.samples] != [s.spread for s in other.samples]


@pytest.mark.parametrize("header", ["", "scheduler batch\n"])
@pytest.mark.parametrize("named", ["default-scheduler", "policy-scheduler", "batch", "somebody-else"])
@pytest.mark.parametrize("policies", [1, 2])
def test_pods_of_a_scheduler_that_no_policy_serves_are_governed_as_the_policies_own(
    header: str, named: str, policies: int
) -> None:
    nodes = [node("a", labels={"size": "big"}), node("b")]
    arrivals = [Arrival(0, "big", pod(cpu="3", schedulerName=named)), Arrival(1, "small", pod(schedulerName=named))]
    large = "priority 5\nfor pods where pod.request.cpu > 2\nfilter label size=big"
    by = (f"{header}{large}", f"{header}filter label size!=big")[:policies]

    found = simulated(arrivals, nodes=nodes, by=by)

    assert found.placed == policies


def test_a_pod_that_names_one_of_the_schedulers_goes_to_the_policies_of_that_one() -> None:
    by = ("scheduler first\npriority 9\nfilter label size=big", "scheduler second\nfilter fits(cpu, mem)")
    arrivals = [Arrival(0, name, pod(schedulerName=name)) for name in ("first", "second")]

    found = simulated(arrivals, nodes=[node("a")], by=by)

    assert (found.placed, dict(found.reasons)) == (1, {"label size=big": 1})


def test_a_policy_sees_how_long_victims_have_run() -> None:
    arrivals = [Arrival(0, "low", pod(cpu="3"), 5000), Arrival(60, "high", pod(cpu="3", priority=10), 100)]
    found = simulated(arrivals, nodes=[node("a")], by="preempt if true evict where victim.running > 10min")
    assert found.evicted == 1
    assert found.wait_seconds[0] == 0
    assert 540 < found.wait_seconds[1] <= 600, "as soon as the other has run for more than ten minutes"


def test_devices_of_classes_are_measured() -> None:
    """Four pods claim one device each, of three."""
    things = things_with_devices(POOL, held={"p0": "a"})
    (held,) = (one for one in things if isinstance(one, objects.Pod))
    rest = [one for one in things if one is not held and not isinstance(one, objects.ResourceClaim)]
    (wanted,) = (one for one in things if isinstance(one, objects.ResourceClaim))
    template = msgspec.convert({"metadata": {"name": "t", "namespace": "default"}}, objects.ResourceClaimTemplate)
    template.spec = {"spec": msgspec.to_builtins(wanted.spec)}
    waiting = msgspec.structs.replace(
        held, spec=msgspec.structs.replace(held.spec, node_name=""), status=objects.PodStatus()
    )
    arrivals = [Arrival(float(number), f"w{number}", waiting) for number in range(4)]
    scenario = Scenario([*rest, template], arrivals)
    found = run(scenario, PolicyVariant("kubernetes"), seed=0, stopwatch=lambda: 0.0)
    assert "gpu devices" in found.resources
    assert [sample.together["gpu"] for sample in found.samples][-1] == 0
    assert found.last.used["gpu devices"] == 1.0
    assert (found.placed, found.unplaced) == (3, 1)
    result = Result("kubernetes", (found,))
    assert result.together()["gpu"].mean == 0
    assert {"gpu devices %", "gpu free on a node"} <= set(table([result], scenario).head)


@given(st.floats(0, 1e5), st.sampled_from([0.0, 1.8e9]), st.integers(0, 500))
def test_the_next_look_is_later_whatever_rounding_does(queued: float, starts_at: float, fives: int) -> None:
    arrived = starts_at + queued
    now = arrived
    for _ in range(fives % 20 + 1):
        following = next_look(arrived, now)
        assert now < following <= now + 3600
        now = following
