"""What NUMA nodes have free: what an exporter says, less what pods take that it cannot know of yet."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.requests import quality_of_service
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from tests.policy.worlds import node, policy, raw_pod

FREE = np.iinfo(np.int64).max


def topology(name: str, *zones: dict[str, str], kind: str = "Node", **more: Any) -> objects.NodeResourceTopology:
    made = [
        {
            "name": f"z{number}",
            "type": kind,
            "resources": [{"name": resource, "available": amount} for resource, amount in zone.items()],
        }
        for number, zone in enumerate(zones)
    ]
    return msgspec.convert({"metadata": {"name": name}, "zones": made} | more, objects.NodeResourceTopology)


def managed(**attributes: str) -> dict[str, Any]:
    """Return what an object says about the topology manager."""
    return {"attributes": [{"name": f"topologyManager{key.title()}", "value": at} for key, at in attributes.items()]}


def container(cpu: str, **more: Any) -> dict[str, Any]:
    """Return a container of which the kubelet pins the cores, if they are whole ones and all others are like it."""
    amounts = {"cpu": cpu, "memory": "1Gi"} | more.pop("amounts", {})
    return {"name": "c", "resources": {"requests": amounts, "limits": amounts}} | more


def pod(cluster: Cluster, name: str, *, cpu: str = "1", runs: bool = False, **spec: Any) -> PodInfo:
    raw = raw_pod(name, **({"containers": [container(cpu)]} | spec))
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


SIDECAR = {"restartPolicy": "Always"}
SPLIT = ({"cpu": "8", "memory": "16Gi"}, {"cpu": "2", "memory": "16Gi"})
"""What two NUMA nodes have available."""


@pytest.mark.parametrize(
    ("containers", "init", "by_pod", "by_container"),
    [
        ([("8", {})], [], True, True),
        ([("9", {})], [], False, False),
        ([("8", {}), ("500m", {})], [], True, True),
        ([("8", {})], [("500m", SIDECAR)], True, True),
        ([("8", {}), ("2", {})], [], False, True),
        ([("2", {}), ("8", {})], [], False, False),  # the first takes the first NUMA node that has room
        ([("2", {})], [("8", {})], True, True),
        ([("8", {})], [("2", {})], True, True),
        ([("8", {})], [("2", SIDECAR)], False, False),
        ([("2", {})], [("8", SIDECAR)], False, True),
        ([("6", {}), ("2", {})], [("8", {})], True, True),
        ([("8", {}), ("2", {})], [("8", {})], False, True),
        ([("8", {}), ("2", {}), ("1", {})], [("8", {})], False, False),
        ([("2", {}), ("2", {})], [("8", {})], True, True),
        ([("1", {})], [("2", SIDECAR), ("7", {})], False, False),
        ([("1", {})], [("2", SIDECAR), ("6", {})], True, True),
        ([("500m", {"amounts": {"memory": "17Gi"}})], [], False, False),
        ([("500m", {"amounts": {"memory": "16Gi"}}), ("500m", {"amounts": {"memory": "16Gi"}})], [], False, True),
    ],
)
def test_containers_are_aligned_as_the_kubelet_does_it(
    containers: list[Any], init: list[Any], by_pod: bool, by_container: bool
) -> None:
    cluster = made("pod", "unsaid", "container", "older")
    cluster.set_object(topology("pod", *SPLIT, **managed(scope="pod", policy="single-numa-node")))
    cluster.set_object(topology("unsaid", *SPLIT))
    cluster.set_object(topology("container", *SPLIT, **managed(scope="container", policy="single-numa-node")))
    cluster.set_object(topology("older", *SPLIT, topologyPolicies=["SingleNUMANodeContainerLevel"]))
    spec = {
        "containers": [container(cpu, **more) for cpu, more in containers],
        "initContainers": [container(cpu, **more) for cpu, more in init],
    }

    assert answers(cluster, "fits_numa(cpu, mem)", **spec) == [by_pod, by_pod, by_container, by_container]


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "c", "resources": {"requests": {"cpu": "60", "memory": "60Gi"}}}]},
        {"containers": [container("60") | {"resources": {"limits": {"cpu": "60"}, "requests": {"cpu": "60"}}}]},
        {"containers": [container("60"), {"name": "d"}]},
        {"containers": [container("60")], "resources": container("60")["resources"]},
        {"containers": [container("59500m", amounts={"memory": "1Gi"})]},
    ],
    ids=["requests only", "no memory", "another container without limits", "resources of the pod", "a part of a core"],
)
def test_what_the_kubelet_pins_nothing_of_fits(spec: dict[str, Any]) -> None:
    cluster = made("a")
    cluster.set_object(topology("a", *SPLIT))
    assert answers(cluster, "fits_numa(cpu, mem)", **spec) == [True]


def test_devices_are_aligned_for_pods_of_any_class_and_overhead_is_not() -> None:
    cluster = made("a")
    cluster.set_object(topology("a", {"cpu": "4", "nvidia.com/gpu": "1"}, {"cpu": "4", "nvidia.com/gpu": "2"}))

    def gpus(number: int, **more: Any) -> list[Any]:
        amounts = {"nvidia.com/gpu": str(number)}
        spec = {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]} | more
        return answers(cluster, "fits_numa()", **spec)

    assert (gpus(2), gpus(3)) == ([True], [False])
    assert answers(cluster, "fits_numa(cpu)", cpu="4", overhead={"cpu": "1"}) == [True]
    assert gpus(1, containers=[container("4", amounts={"nvidia.com/gpu": "2"})]) == [True]
    assert gpus(1, containers=[container("4", amounts={"nvidia.com/gpu": "3"})]) == [False]


def test_a_restricted_kubelet_gives_the_fewest_numa_nodes_that_could_ever_hold_a_request() -> None:
    cluster = made("restricted", "single", "container")
    zones = [
        {"name": name, "type": "Node", "resources": [{"name": "cpu", "capacity": "8", "available": free}]}
        for name, free in (("node-10", "8"), ("node-2", "3"), ("node-0", "8"))
    ]
    for name, scope, rule in (
        ("restricted", "pod", "restricted"),
        ("single", "pod", "single-numa-node"),
        ("container", "container", "restricted"),
    ):
        cluster.set_object(topology(name, zones=zones, **managed(scope=scope, policy=rule)))

    def said(*cpus: str) -> list[Any]:
        return answers(cluster, "fits_numa(cpu)", containers=[container(cpu) for cpu in cpus])

    assert said("8") == [True, True, True]
    assert said("12") == [True, False, True]
    assert said("16") == [True, False, True]
    assert said("17") == [True, False, True], "three could hold it, and three have it"
    assert said("20") == [False, False, False]
    assert said("3", "12") == [True, False, True]
    assert said("8", "12") == [False, False, False]


def test_only_what_is_pinned_is_missing_until_the_exporter_knows() -> None:
    cluster = made("a")
    cluster.set_object(topology("a", {"cpu": "8"}, {"cpu": "4"}))
    cluster.assume(pod(cluster, "shared", containers=[container("3500m")]), "a", now=0.0)
    cluster.assume(cluster.templates.pod(raw_pod("burstable", cpu="3")), "a", now=0.0)
    assert cluster.numa.column("cpu").tolist() == [[8000, 4000]]
    cluster.assume(pod(cluster, "pinned", containers=[container("3"), container("500m")]), "a", now=0.0)
    assert cluster.numa.column("cpu").tolist() == [[5000, 1000]]


def test_a_change_of_the_scope_alone_is_seen() -> None:
    cluster = made("a")
    seen = []
    for scope in ("pod", "container", "pod"):
        cluster.set_object(topology("a", {"cpu": "8"}, {"cpu": "8"}, **managed(scope=scope)))
        seen += answers(cluster, "fits_numa(cpu)", containers=[container("8"), container("8")])
    assert seen == [False, True, False]


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


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, "Guaranteed"),
        ({"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "2"}}, "Burstable"),
        ({"requests": {"hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "2Mi"}}, "Guaranteed"),
    ],
)
def test_resources_of_the_pod_decide_its_quality_of_service(own: dict[str, Any], expected: str) -> None:
    raw = raw_pod("a", containers=[container("1")], resources=own)
    assert raw.spec is not None
    assert quality_of_service(raw.spec) == expected
