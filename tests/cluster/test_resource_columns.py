"""Resource columns: only for resources that nodes offer, and exact for every request."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.node_info import MOST_RESOURCES
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.invariants import node_violations, violations
from kube_policy_scheduler.framework.plugins.node_resources_fit import MOST_REASONS
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue

GPU = "example.com/gpu"
NATIVE = ["cpu", "ephemeral-storage", "memory", "pods"]


def node(name: str, offered: Mapping[str, str] | None = None) -> objects.Node:
    body = {
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"} | dict(offered or {})},
    }
    return msgspec.convert(body, objects.Node)


def pod(cluster: Cluster, name: str, requests: Mapping[str, str], *, priority: int = 0) -> PodInfo:
    container = {"name": "c", "resources": {"requests": requests}}
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [container], "priority": priority},
    }
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


def names(count: int, *, suffix: str = "") -> dict[str, str]:
    return {f"tenant.example/r{number}{suffix}": "1" for number in range(count)}


def decide(cluster: Cluster, info: PodInfo) -> Decision:
    return Cycle().decide(Frame(info, cluster, 0.0), kubernetes_profile())


def wide(nodes: int, offered: Mapping[str, str] | None = None) -> Cluster:
    cluster = Cluster()
    for number in range(nodes):
        cluster.set_node(node(f"n{number}", offered))
    return cluster


@pytest.mark.parametrize("suffix", ["", "-milli"])
def test_what_pods_ask_for_and_no_node_offers_costs_nothing_per_node(suffix: str) -> None:
    def bytes_kept(nodes: int, resources: int) -> int:
        cluster = wide(nodes)
        decide(cluster, pod(cluster, "before", {"cpu": "1"}))
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            greedy = pod(cluster, "greedy", {"cpu": "1"} | names(resources, suffix=suffix))
            assert decide(cluster, greedy).host is None
            cluster.place(greedy, "n0")
            kept = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert cluster.nodes.resources() == NATIVE
        assert not cluster.devices.tables
        return kept

    few, many = (bytes_kept(nodes, 500) - bytes_kept(nodes, 10) for nodes in (500, 2_000))
    assert many < 1.2 * few


def test_a_pod_that_asks_for_thousands_of_resources_is_rejected_in_few_words() -> None:
    cluster = wide(3)
    decision = decide(cluster, pod(cluster, "greedy", names(8_000)))
    assert decision.message.startswith(
        "0/3 nodes are available: 3 Insufficient amounts of 7936 more resources, which no node offers,"
        " 3 Insufficient tenant.example/r0, 3 Insufficient tenant.example/r1, "
    )
    assert decision.message.count("Insufficient") == MOST_REASONS + 1
    assert decision.rejectors == {"NodeResourcesFit"}


def test_of_few_resources_that_no_node_offers_each_is_named_as_by_kube_scheduler() -> None:
    cluster = wide(2)
    decision = decide(cluster, pod(cluster, "p", {"cpu": "8", GPU: "1", "a.example/b": "1"}))
    assert decision.message == (
        "0/2 nodes are available: 2 Insufficient a.example/b, 2 Insufficient cpu, 2 Insufficient example.com/gpu."
        " no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_a_resource_counts_from_when_a_node_offers_it_until_none_does() -> None:
    cluster, profile, cycle = wide(2), kubernetes_profile(), Cycle()

    def host(name: str) -> str | None:
        return cycle.decide(Frame(pod(cluster, name, {GPU: "1"}), cluster, 0.0), profile).host

    cluster.place(
        pod(cluster, "early", {GPU: "1"}, priority=3), "n0"
    )  # its node lost them, or it was put there by name
    assert host("p") is None
    cluster.set_node(node("n0", {GPU: "1"}))
    assert host("p") is None, "the early pod has it"
    assert cluster.held_from(3, GPU).tolist() == [1, 0]
    assert cluster.held_from(4, GPU).tolist() == [0, 0]
    cluster.set_node(node("n1", {GPU: "1"}))
    assert host("p") == "n1"
    cluster.set_node(node("n0"))
    cluster.remove_node("n1")
    assert cluster.nodes.resources() == NATIVE
    assert host("p") is None
    cluster.set_node(node("n0", {GPU: "2"}))
    assert host("p") == "n0"
    assert cluster.nodes.requested(GPU).tolist() == [1]


def test_of_a_node_that_offers_very_many_resources_the_first_by_name_count() -> None:
    offered = {f"agent.example/r{number:04}": "1" for number in range(MOST_RESOURCES + 50)}
    cluster = wide(1, offered)
    assert cluster.nodes.resources() == sorted([*NATIVE, *list(offered)[:MOST_RESOURCES]])
    assert decide(cluster, pod(cluster, "p", {"agent.example/r0000": "1"})).host == "n0"
    assert decide(cluster, pod(cluster, "p", {f"agent.example/r{MOST_RESOURCES:04}": "1"})).host is None


# --- sums beyond int64 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["cpu", "memory", "ephemeral-storage", GPU])
def test_sums_of_enormous_requests_leave_no_room(resource: str) -> None:
    cluster = wide(1, {resource: "8Ei"})
    for number in range(3):
        cluster.place(pod(cluster, f"huge{number}", {resource: "8Ei"}), "n0")
        assert decide(cluster, pod(cluster, "p", {resource: "1"})).host is None
    assert violations(cluster, SchedulingQueue(), {}) == []
    for number in range(3):
        cluster.displace(f"huge{number}")
    assert decide(cluster, pod(cluster, "p", {resource: "1"})).host == "n0"
    assert violations(cluster, SchedulingQueue(), {}) == []


def test_preemption_counts_enormous_requests_exactly() -> None:
    cluster = wide(3, {"memory": "8Ei"})
    for name, priorities in (("n0", (0, 9, 9)), ("n1", (9,)), ("n2", (0, 0, 0))):
        for number, priority in enumerate(priorities):
            cluster.place(pod(cluster, f"{name}-{number}", {"memory": "8Ei"}, priority=priority), name)
    decision = decide(cluster, pod(cluster, "p", {"memory": "1Gi"}, priority=5))
    assert decision.preemption is not None
    assert decision.preemption.nominated_node == "n2"
    assert {victim.uid for victim in decision.preemption.victims} == {"n2-0", "n2-1", "n2-2"}


def test_images_of_impossible_sizes_are_images() -> None:
    cluster = Cluster()
    image = {"names": ["app:1"], "sizeBytes": 2**63 - 1}
    body = {"metadata": {"name": "n0"}, "status": {"allocatable": {"pods": "9"}, "images": [image]}}
    cluster.set_node(msgspec.convert(body, objects.Node))
    body = {"metadata": {"name": "n1"}, "status": {"allocatable": {"pods": "9"}}}
    cluster.set_node(msgspec.convert(body, objects.Node))
    wanted = {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [{"name": "c", "image": "app:1"}] * 3}}
    assert decide(cluster, cluster.templates.pod(msgspec.convert(wanted, objects.Pod))).host == "n0"


AMOUNTS = st.sampled_from(["1", "1Gi", "8Ei", "9223372036854775807", "5Ei"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("place"),
            st.integers(0, 5),
            st.integers(0, 2),
            st.integers(-1, 2),
            st.dictionaries(st.sampled_from(["cpu", "memory", GPU, "other.example/x"]), AMOUNTS),
        ),
        st.tuples(st.just("displace"), st.integers(0, 5)),
        st.tuples(
            st.just("node"),
            st.integers(0, 2),
            st.dictionaries(st.sampled_from([GPU, "memory", "other.example/x"]), AMOUNTS),
        ),
        st.tuples(st.just("remove"), st.integers(0, 2)),
    ),
    max_size=30,
)


@given(STEPS)
def test_columns_are_what_a_recount_of_the_pods_says(steps: list[Any]) -> None:
    cluster = wide(3)
    for step in steps:
        match step:
            case "place", number, where, priority, requests:
                cluster.place(pod(cluster, f"p{number}", requests, priority=priority), f"n{where}")
            case "displace", number:
                cluster.displace(f"p{number}")
            case "node", where, offered:
                cluster.set_node(node(f"n{where}", offered))
            case "remove", where:
                cluster.remove_node(f"n{where}")
        assert violations(cluster, SchedulingQueue(), {}) == []
        for priority in (-1, 0, 1, 2):
            for resource in cluster.nodes.resources():
                expected = [
                    min(
                        sum(
                            1 if resource == "pods" else p.demand.requests.get(resource, 0)
                            for p in cluster.pods_on(info.name).values()
                            if p.priority >= priority
                        ),
                        2**63 - 1,
                    )
                    for info in cluster.nodes.infos
                ]
                assert cluster.held_from(priority, resource).tolist() == expected, (priority, resource)


SPOILT: dict[str, Callable[[Cluster], Any]] = {
    "requested cpu": lambda cluster: cluster.nodes.requested("cpu"),
    "requested gpu": lambda cluster: cluster.nodes.requested(GPU),
    "allocatable memory": lambda cluster: cluster.nodes.allocatable("memory"),
    "nonzero cpu": lambda cluster: cluster.nodes.nonzero_cpu,
    "nonzero memory": lambda cluster: cluster.nodes.nonzero_memory,
    "number": lambda cluster: cluster.nodes.pod_count,
}


@pytest.mark.parametrize("row", [0, 1], ids=["with pods", "without"])
@pytest.mark.parametrize("column", SPOILT)
def test_a_recount_of_all_nodes_finds_what_one_of_each_node_finds(column: str, row: int) -> None:
    cluster = wide(70, {GPU: "8"})
    for number in range(2):
        cluster.place(pod(cluster, f"p{number}", {"cpu": "1", GPU: "1"}, priority=number), "n0")
    assert violations(cluster, SchedulingQueue(), {}) == []
    SPOILT[column](cluster)[row] += 1
    found = violations(cluster, SchedulingQueue(), {})
    assert len(found) == 1
    assert found == list(node_violations(cluster, f"n{row}"))


def test_a_recount_of_all_nodes_finds_priorities_that_are_counted_wrong() -> None:
    cluster = wide(70)
    for number in range(3):
        cluster.place(pod(cluster, f"p{number}", {"cpu": "1"}, priority=number), "n69")
    cluster.priorities.update(0, cluster.nodes.rows["n69"], [("cpu", 500)], 1)
    found = violations(cluster, SchedulingQueue(), {})
    assert found[0] == "n69: 2 pods are said to have priority 0 or less, 1 have"
    assert found == list(node_violations(cluster, "n69"))


@given(st.lists(st.tuples(st.integers(0, 199), st.integers(0, 3), st.booleans()), min_size=100, max_size=300))
def test_priorities_with_few_pods_and_with_many_are_counted_alike(steps: list[tuple[int, int, bool]]) -> None:
    cluster = wide(200)
    for number, priority, leaves in steps:
        if leaves:
            cluster.displace(f"p{number}-{priority}")
        else:
            cluster.place(pod(cluster, f"p{number}-{priority}", {"cpu": "1"}, priority=priority), f"n{number}")
    assert violations(cluster, SchedulingQueue(), {}) == []
    for priority in range(4):
        expected = [
            sum(p.priority >= priority for p in cluster.pods_on(info.name).values()) * 1000
            for info in cluster.nodes.infos
        ]
        assert cluster.held_from(priority, "cpu").tolist() == expected
