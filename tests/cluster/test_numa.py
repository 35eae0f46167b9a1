"""What NUMA nodes have free: what an exporter says, less what pods take that it cannot know of yet."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.evaluation import evaluate
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from tests.policy.worlds import node, policy, raw_pod

FREE = np.iinfo(np.int64).max


def topology(name: str, *zones: dict[str, str], kind: str = "Node") -> objects.NodeResourceTopology:
    made = [
        {
            "name": f"z{number}",
            "type": kind,
            "resources": [{"name": resource, "available": amount} for resource, amount in zone.items()],
        }
        for number, zone in enumerate(zones)
    ]
    return msgspec.convert({"metadata": {"name": name}, "zones": made}, objects.NodeResourceTopology)


def pod(cluster: Cluster, name: str, *, cpu: str = "1", runs: bool = False) -> PodInfo:
    raw = raw_pod(name, cpu=cpu)
    raw.status = objects.PodStatus(start_time="2026-01-01T00:00:00Z" if runs else None)
    return cluster.templates.pod(raw)


def made(*names: str) -> Cluster:
    cluster = Cluster()
    for name in names:
        cluster.set_node(node(name, cpu="64"))
    return cluster


def test_a_pod_that_the_exporter_cannot_know_of_is_missing_from_each_zone() -> None:
    cluster = made("a")
    cluster.set_object(topology("a", {"cpu": "8"}, {"cpu": "4"}))
    seen = [cluster.numa.column("cpu").tolist()]
    cluster.assume(pod(cluster, "x", cpu="3"), "a", now=0.0)
    seen.append(cluster.numa.column("cpu").tolist())
    cluster.confirm(pod(cluster, "x", cpu="3", runs=True), "a")
    seen.append(cluster.numa.column("cpu").tolist())
    cluster.set_object(topology("a", {"cpu": "5"}, {"cpu": "4"}))
    seen.append(cluster.numa.column("cpu").tolist())
    cluster.remove("x")
    seen.append(cluster.numa.column("cpu").tolist())

    assert seen == [[[8000, 4000]], [[5000, 1000]], [[5000, 1000]], [[5000, 4000]], [[5000, 4000]]]


def test_unreported_resources_are_ignored_and_other_zones_are_not_numa_nodes() -> None:
    cluster = made("a", "b", "c")
    cluster.set_object(topology("a", {"cpu": "8", "odd/one": "x"}, {"cpu": "4", "nvidia.com/gpu": "1"}))
    cluster.set_object(topology("b", {"cpu": "8"}, kind="Socket"))

    assert cluster.numa.known().tolist() == [True, False, False]
    assert cluster.numa.column("memory").tolist() == [[FREE, FREE], [-1, -1], [-1, -1]]
    assert cluster.numa.column("nvidia.com/gpu").tolist()[0] == [-1, 1]


def answers(cluster: Cluster, text: str, **wanted: Any) -> list[Any]:
    rule = policy(f"score if {text} then 1 else 2")
    (clause,) = rule.clauses
    values: list[float] = clause.evaluate(Frame(pod(cluster, "new", **wanted), cluster, 0.0)).tolist()  # type: ignore[union-attr]
    return [{1.0: True, 2.0: False}.get(value) for value in values]


def test_one_zone_must_have_room_for_all_that_is_asked_for() -> None:
    cluster = made("a", "b", "c")
    cluster.set_object(topology("a", {"cpu": "8"}, {"cpu": "4"}))
    cluster.set_object(topology("b", {"cpu": "2"}, {"cpu": "2"}, {"cpu": "2"}))

    assert answers(cluster, "fits_numa(cpu)", cpu="3") == [True, False, None]
    assert answers(cluster, "fits_numa()", cpu="9") == [False, False, None]
    assert answers(cluster, "fits_numa(mem) ?? true", cpu="9") == [True, True, True]
    cluster.remove_object(topology("b"))
    assert answers(cluster, "fits_numa(cpu)", cpu="3") == [True, None, None]


def test_without_any_object_nothing_is_known() -> None:
    assert answers(made("a"), "fits_numa(cpu, mem)") == [None]


def test_a_change_of_the_object_wakes_pods() -> None:
    profile = policy("filter fits_numa(cpu, mem) ?? true").profile
    (name,) = profile.clauses
    assert {ClusterEvent.NODE_TOPOLOGY, ClusterEvent.POD_DELETE} <= profile.wakes[name]
    assert ClusterEvent.CLOCK not in profile.wakes[name]


events = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.integers(0, 5), st.sampled_from("abc"), st.booleans(), st.sampled_from("123")),
        st.tuples(st.just("gone"), st.integers(0, 5)),
        st.tuples(st.just("node"), st.sampled_from("abc")),
        st.tuples(st.just("no node"), st.sampled_from("abc")),
        st.tuples(st.just("zones"), st.sampled_from("abc"), st.lists(st.sampled_from("1248"), max_size=3)),
        st.tuples(st.just("no zones"), st.sampled_from("abc")),
    ),
    min_size=5,
    max_size=40,
)


@given(events=events)
def test_kept_answers_are_those_of_a_look_at_all_pods(events: list[tuple[Any, ...]]) -> None:
    cluster, cycle = made("a", "b", "c"), Cycle()
    rule = policy("filter fits_numa(cpu) ?? true").profile
    said: dict[str, tuple[list[int], set[str]]] = {}
    for event in events:
        match event:
            case ("pod", number, name, runs, cpu):
                cluster.confirm(pod(cluster, f"p{number}", cpu=cpu, runs=runs), name)
            case ("gone", number):
                cluster.remove(f"p{number}")
            case ("node", name):
                cluster.set_node(node(name, cpu="64"))
            case ("no node", name):
                cluster.remove_node(name)
            case ("zones", name, cpus):
                cluster.set_object(topology(name, *({"cpu": cpu} for cpu in cpus)))
                known = {uid for uid, each in cluster.pods_on(name).items() if each.started is not None}
                said[name] = [1000 * int(cpu) for cpu in cpus], known
            case ("no zones", name):
                cluster.remove_object(topology(name))
                said.pop(name, None)
        expected = []
        for name in cluster.nodes.names:
            zones, included = said.get(name, ([], set()))
            others = [each for uid, each in cluster.pods_on(name).items() if uid not in included]
            taken = sum(each.demand.requests["cpu"] for each in others)
            expected.append(not zones or max(zones) - taken >= 2000)
        frame = Frame(pod(cluster, "new", cpu="2"), cluster, 0.0)
        feasible = set(evaluate(frame, rule).feasible.tolist())
        assert feasible == {row for row, fits in enumerate(expected) if fits}
        assert set(cycle.feasible(frame, rule).tolist()) == feasible
