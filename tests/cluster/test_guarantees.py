"""Which units are guaranteed in a queue, and by which resource; and what usable nodes offer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.quotas.guarantees import Guarantees, Unit
from kube_policy_scheduler.framework.preempt.units import QueueUnits
from tests.lang.clusters import policy_set

GPU = "nvidia.com/gpu"


def cluster_with(pods: Sequence[tuple[str, str, int, int]], *, nodes: Sequence[dict[str, object]] = ({},)) -> Cluster:
    """Return a cluster with pods by their names, namespaces, cpu and GPUs on its first node; later ones are younger."""
    cluster = Cluster()
    for number, more in enumerate(nodes):
        status = {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110", GPU: "8"}, **more.get("status", {})}  # type: ignore[dict-item]
        body = {"metadata": {"name": f"n{number}"}, "spec": more.get("spec", {}), "status": status}
        cluster.set_node(msgspec.convert(body, objects.Node))
    for number, (name, namespace, cpu, gpus) in enumerate(pods):
        requests = {"cpu": str(cpu)} | ({GPU: str(gpus)} if gpus else {})
        body = {
            "metadata": {"name": name, "namespace": namespace, "uid": name},
            "spec": {
                "schedulerName": "policy-scheduler",
                "nodeName": "n0",
                "containers": [{"name": "c", "resources": {"requests": requests}}],
            },
            "status": {"startTime": f"2026-01-01T00:00:{number:02}Z"},
        }
        cluster.place(cluster.templates.pod(msgspec.convert(body, objects.Pod)), "n0")
    return cluster


@pytest.mark.parametrize(
    ("minimum", "pods", "ranks"),
    [
        ("cpu 4", [("x", 2, 0), ("y", 3, 0), ("z", 2, 0)], {"x": "cpu", "y": None, "z": "cpu"}),
        (f"{GPU} 1, cpu 3", [("x", 3, 0), ("y", 2, 1)], {"x": None, "y": GPU}),
        (f"{GPU} 1", [("x", 9, 1), ("y", 1, 0)], {"x": GPU, "y": None}),
    ],
    ids=["whole or not at all", "the stronger resource leads", "what is not named comes along"],
)
def test_units_are_guaranteed_by_the_strongest_resource_that_their_queue_guarantees(
    minimum: str, pods: list[tuple[str, int, int]], ranks: dict[str, str | None]
) -> None:
    rules = policy_set(f'queue a for pods where pod.namespace == "a" min {minimum}\n').queues
    assert rules is not None
    cluster = cluster_with([(name, "a", cpu, gpus) for name, cpu, gpus in pods])
    usage = cluster.track_usage(rules.tree)
    guarantees = Guarantees(usage, QueueUnits(cluster, usage, rules, now=2e9).of)
    (queue,) = usage.queues()
    found = {unit.uid: rank for unit, rank in guarantees.of(queue).items()}
    assert {uid: None if rank is None else rules.tree.resources[rank] for uid, rank in found.items()} == ranks
    assert all(guarantees.rank(unit, queue) == found[unit.uid] for unit in guarantees.of(queue))


def test_what_runs_comes_before_what_is_nominated_though_it_started_at_the_same_moment() -> None:
    rules = policy_set('queue a for pods where pod.namespace == "a" min cpu 1\n').queues
    assert rules is not None
    cluster = cluster_with([("y", "a", 1, 0), ("x", "a", 1, 0)])
    runs, nominated = cluster.pods["y"], cluster.pods["x"]
    assert runs.started is not None
    cluster.displace("x")
    nominated.started = None  # as that of a pod that waits
    cluster.nominate(nominated, "n0")
    usage = cluster.track_usage(rules.tree)
    guarantees = Guarantees(usage, QueueUnits(cluster, usage, rules, now=runs.started).of)
    (queue,) = usage.queues()
    assert {unit.uid: rank for unit, rank in guarantees.of(queue).items()} == {"y": 0, "x": None}


@pytest.mark.parametrize(
    ("second", "usable"),
    [
        ({}, 30),
        ({"spec": {"unschedulable": True}}, 14),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, 14),
        ({"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}}, 14),
        ({"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}}, 30),
    ],
    ids=["ready", "cordoned", "not ready", "tainted by Kubernetes", "tainted by an administrator"],
)
def test_queues_share_usable_nodes_less_what_pods_of_no_queue_use(second: dict[str, object], usable: int) -> None:
    rules = policy_set('queue a for pods where pod.namespace == "a" min cpu 4\n').queues
    assert rules is not None
    cluster = cluster_with([("x", "a", 1, 0), ("y", "other", 2, 0)], nodes=({}, second))
    usage = cluster.track_usage(rules.tree)
    assert usage.usable(0) == usable * 1000
    first = cluster.nodes.infos[0].node
    cluster.set_node(msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, unschedulable=True)))
    assert usage.usable(0) == (usable - 14 + 1) * 1000, "room under pods of queues goes on to count"
    assert usage.miscounted(cluster.pods.values()) == []
    cluster.set_node(first)
    assert usage.usable(0) == usable * 1000


@st.composite
def queues_and_units(draw: st.DrawFn) -> tuple[str, list[tuple[int, int, int, str]]]:
    """Draw the guarantees of a queue, and units: cpu, GPUs, priority, and their gang; with a plus, they are surplus."""
    least = draw(st.sampled_from(["cpu {0}", GPU + " {1}", GPU + " {1}, cpu {0}"]))
    minimum = least.format(draw(st.integers(1, 12)), draw(st.integers(1, 4)))
    one = st.tuples(st.integers(1, 5), st.integers(0, 2), st.integers(0, 1), st.sampled_from(["", "", "g", "+g", "h"]))
    return minimum, draw(st.lists(one, min_size=3, max_size=12))


@given(queues_and_units(), st.data())
def test_a_victim_more_is_walked_as_if_all_were_walked_again(
    case: tuple[str, list[tuple[int, int, int, str]]], data: st.DataObject
) -> None:
    minimum, drawn = case
    rules = policy_set(f'queue a for pods where pod.namespace == "a" min {minimum}\n').queues
    assert rules is not None
    cluster = cluster_with([(f"p{number:02}", "a", cpu, gpus) for number, (cpu, gpus, _, _) in enumerate(drawn)])
    usage = cluster.track_usage(rules.tree)
    (queue,) = usage.queues()
    units: list[Unit] = []
    for number, (pod, (_, _, priority, named)) in enumerate(zip(cluster.pods.values(), drawn, strict=True)):
        surplus, gang = named.startswith("+"), named.lstrip("+") or None
        if not surplus and any(unit.gang == gang and not unit.is_surplus for unit in units):
            gang = None  # what a gang needs is one unit
        parts = ((queue, usage.amounts(pod)),)
        units.append(Unit((pod,), parts, priority, float(number), gang, is_surplus=surplus))
    new = units.pop()
    new = msgspec.structs.replace(new, is_placed=False)
    guarantees = Guarantees(usage, lambda queue: units)
    gone: list[Unit] = []
    while left := [unit for unit in units if unit not in gone]:
        for victim in left:
            expected = guarantees.rank_after(new, queue, {*gone, victim})
            assert guarantees.rank_without(new, queue, gone, victim) == expected
        gone.append(data.draw(st.sampled_from(left)))
