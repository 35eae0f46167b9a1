"""Aggregates over nodes, lists and different values are what a recount gives, also after changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Scope, scope_of
from kube_policy_scheduler.lang.compiling.compiled import CompiledScore
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.policy.clauses import events_of, reads_of
from tests.lang.clusters import NOW, cluster, node, pod, policy

# --- lists: one case, one answer ---------------------------------------------------------------------------

IMAGES = ("registry.example/app:1", "registry.example/app:1", "docker.io/tool:2")
TAINTS: dict[str, list[str]] = {"plain": [], "gpu": ["gpu"], "both": ["gpu", "old"]}
ON_NODES = {"plain": [IMAGES[0]], "gpu": [], "both": [IMAGES[0], IMAGES[2]]}

LISTS: list[tuple[str, Any]] = [
    ('all(i matches "registry.example/.*" for i in pod.images)', False),
    ('all(i matches "registry.example/.*" for i in pod.images where not startswith(i, "docker"))', True),
    ('any(startswith(i, "docker.io/") for i in pod.images)', True),
    ('any(i in pod.images where startswith(i, "quay.io/"))', False),
    ("count(i in pod.images)", 3),
    ("count(pod.images)", 3),
    ("length(pod.images)", 3),
    ('length(split("a,b,,c", ","))', 4),
    ("count(distinct i for i in pod.images)", 2),
    ('count(i in pod.images where contains(i, "tool"))', 1),
    ("max(length(i) for i in pod.images)", 22),
    ("min(length(i) for i in pod.images)", 16),
    ('sum(number(x) for x in split("1,2,x,4.5", ","))', 7.5),
    ('avg(number(x) for x in split("1,2,x,6", ","))', 3),
    ('avg(number(x) for x in split("y,x", ","))', None),
    ("sum(x * 2 for x in [1, 2, 3])", 12),
    ("sum(0.1 for x in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])", 1),
    ('all(x == "a" for x in [])', True),
    ('any(x == "a" for x in [])', False),
    ("max(length(x) for x in [])", None),
    ('any(x == pod.label.team for x in ["red", "blue"])', True),
    ("length(node.taints)", [0, 1, 2]),
    ('any(t == "old" for t in node.taints)', [False, False, True]),
    ('all(t in ["gpu"] for t in node.taints)', [True, True, False]),
    ("all(t in pod.tolerations for t in node.taints)", [True, True, False]),
    ("count(distinct t for t in node.taints)", [0, 1, 2]),
    ("max(length(t) for t in node.taints) ?? -1", [-1, 3, 3]),
    ("count(t in node.taints where startswith(node.name, t))", [0, 1, 0]),
    ("count(i in pod.images where i in node.images)", [2, 0, 3]),
    ("all(i in node.images for i in pod.images)", [False, False, True]),
    ("any(i in node.images for i in pod.images)", [True, False, True]),
    ("sum((if i in node.images then 1 else 0) for i in pod.images where not startswith(i, node.name))", [2, 0, 3]),
    ('any(x == "gpu" for x in [node.name, pod.name])', [False, True, False]),
    ('count(distinct x for x in [node.name, "gpu"])', [2, 1, 2]),
]


@pytest.mark.parametrize(("text", "expected"), LISTS, ids=[text for text, _ in LISTS])
def test_a_list_is_gone_through(text: str, expected: Any) -> None:
    made = Cluster()
    for name, keys in TAINTS.items():
        spec = {"taints": [{"key": key, "effect": "PreferNoSchedule"} for key in keys]}
        status = {"images": [{"names": ON_NODES[name], "sizeBytes": 1}]} if ON_NODES[name] else {}
        made.set_node(node(name, spec=spec, status=status))
    containers = [{"name": f"c{at}", "image": image} for at, image in enumerate(IMAGES)]
    me = pod(made, "me", labels={"team": "red"}, spec={"containers": containers, "tolerations": [{"key": "gpu"}]})

    assert value(text, Frame(me, made, NOW)) == (expected if isinstance(expected, list) else [expected] * 3)


def value(text: str, frame: Frame) -> list[Any]:
    """Return what an expression gives on each node, None where it is missing."""
    is_truth = text.startswith(("any", "all"))
    clause = policy(f"score if {text} then 1 else 0" if is_truth else f"score {text}").clauses[0]
    assert isinstance(clause, CompiledScore)
    found = [None if math.isnan(each) else each for each in clause.evaluate(frame).tolist()]
    return [bool(each) for each in found] if is_truth else found


def test_a_list_of_running_pods_is_gone_through() -> None:
    nodes = cluster(node("a"), node("b"))
    for name, image in (("a", "cni:1"), ("b", "app:1")):
        nodes.place(pod(nodes, f"on-{name}", spec={"containers": [{"name": "c", "image": image}]}), name)
    frame = Frame(pod(nodes, "me", spec={"containers": [{"name": "c", "image": "app:1"}]}), nodes, NOW)

    assert value('any(p in node.pods where any(startswith(i, "cni") for i in p.images))', frame) == [True, False]
    assert value("any(p in node.pods where any(i in pod.images for i in p.images))", frame) == [False, True]
    assert value("sum(length(p.images) for p in cluster.pods)", frame) == [2, 2]


def test_a_list_is_gone_through_in_pieces_where_it_is_long() -> None:
    made = cluster(*(node(f"n{at}", status={"images": [{"names": [f"i{at}"], "sizeBytes": 1}]}) for at in range(3000)))
    containers = [{"name": f"c{at}", "image": f"i{at}"} for at in range(500)]
    frame = Frame(pod(made, "me", spec={"containers": containers}), made, NOW)

    assert value("count(i in pod.images where i in node.images)", frame) == [1.0] * 500 + [0.0] * 2500


# --- nodes, and different values: a recount after every change ---------------------------------------------


@dataclass
class World:
    """A cluster, and what is in it in plain Python."""

    cluster: Cluster = field(default_factory=Cluster)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """By name: node, job and millicores."""

    def set_node(self, name: str, zone: str | None, cpu: int, ready: bool, pool: str | None) -> None:
        labels = {key: text for key, text in (("pool", pool), ("topology.kubernetes.io/zone", zone)) if text}
        self.cluster.set_node(node(name, labels=labels, ready=ready, allocatable={"cpu": f"{cpu}m"}))
        self.nodes[name] = {"zone": zone, "cpu": cpu, "ready": ready, "pool": pool}

    def remove_node(self, name: str) -> None:
        for each in [each for each, (on, _, _) in self.pods.items() if on == name]:
            self.remove_pod(each)
        if self.nodes.pop(name, None) is not None:
            self.cluster.remove_node(name)

    def place(self, name: str, on: str, job: str, cpu: int) -> None:
        if on in self.nodes and name not in self.pods:
            labels = {"job": job} if job else {}
            self.cluster.place(pod(self.cluster, name, cpu=f"{cpu}m", labels=labels), on)
            self.pods[name] = on, job, cpu

    def remove_pod(self, name: str) -> None:
        if self.pods.pop(name, None) is not None:
            self.cluster.displace(name)

    def free(self, name: str) -> Fraction:
        used = sum(cpu for on, _, cpu in self.pods.values() if on == name)
        # as the language has it: the float of millicores / 1000
        return Fraction((self.nodes[name]["cpu"] - used) / 1000)


Nodes = list[str]
RECOUNTS: dict[str, tuple[str, Callable[[World, Nodes], Any]]] = {
    "free cpu": ("sum(n.free.cpu for n in {}.nodes)", lambda w, ns: float(sum(map(w.free, ns)))),
    "free cpu of ready nodes": (
        "sum(n.free.cpu for n in {}.nodes where n.ready)",
        lambda w, ns: float(sum(w.free(n) for n in ns if w.nodes[n]["ready"])),
    ),
    "room for the pod": (
        "count(n in {}.nodes where n.free.cpu >= pod.request.cpu)",
        lambda w, ns: sum(w.free(n) >= Fraction(0.5) for n in ns),
    ),
    "least": (
        "min(n.free.cpu for n in {}.nodes where n.ready) ?? -7",
        lambda w, ns: float(min((w.free(n) for n in ns if w.nodes[n]["ready"]), default=-7)),
    ),
    "greatest": ("max(n.free.cpu for n in {}.nodes) ?? -7", lambda w, ns: float(max(map(w.free, ns), default=-7))),
    "mean": (
        "avg(n.allocatable.cpu for n in {}.nodes) ?? -7",
        lambda w, ns: float(sum(Fraction(w.nodes[n]["cpu"] / 1000) for n in ns)) / len(ns) if ns else -7,
    ),
    "different pools": (
        "count(distinct n.label.pool for n in {}.nodes where n.free.cpu > 1)",
        lambda w, ns: len({w.nodes[n]["pool"] for n in ns if w.free(n) > 1} - {None}),
    ),
    "different sizes": (
        "count(distinct n.free.cpu for n in {}.nodes)",
        lambda w, ns: len({float(w.free(n)) for n in ns}),
    ),
    "any": ("any(n in {}.nodes where n.free.cpu < 0)", lambda w, ns: any(w.free(n) < 0 for n in ns)),
    "any of": ("any(n.ready for n in {}.nodes)", lambda w, ns: any(w.nodes[n]["ready"] for n in ns)),
    "all": (
        "all(n.ready for n in {}.nodes where n.free.cpu > 1)",
        lambda w, ns: all(w.nodes[n]["ready"] for n in ns if w.free(n) > 1),
    ),
    "jobs": (
        "count(distinct p.label.job for p in {}.pods)",
        lambda w, ns: len({job for on, job, _ in w.pods.values() if on in ns and job}),
    ),
    "large jobs": (
        "count(distinct p.label.job for p in {}.pods where p.request.cpu >= pod.request.cpu)",
        lambda w, ns: len({job for on, job, cpu in w.pods.values() if on in ns and job and cpu >= 500}),
    ),
    "requests": (
        "count(distinct p.request.cpu for p in {}.pods)",
        lambda w, ns: len({cpu for on, _, cpu in w.pods.values() if on in ns}),
    ),
}

NAMES = st.sampled_from([f"n{at}" for at in range(6)])
POD_NAMES = st.sampled_from([f"p{at}" for at in range(8)])
CPUS = st.sampled_from([100, 300, 500, 700, 1100, 2300])
CHANGES = st.one_of(
    st.tuples(
        st.just("set_node"), NAMES, st.sampled_from(["a", "b", None]), CPUS, st.booleans(),
        st.sampled_from(["x", "y", None]),
    ),
    st.tuples(st.just("place"), POD_NAMES, NAMES, st.sampled_from(["j1", "j2", ""]), CPUS),
    st.tuples(st.just("place"), POD_NAMES, NAMES, st.sampled_from(["j1", "j2", ""]), CPUS),
    st.tuples(st.just("remove_pod"), POD_NAMES),
    st.tuples(st.just("remove_node"), NAMES),
)  # fmt: skip
CLAUSES = {
    (called, where): policy(
        f"score if {text.format(where)} then 1 else 0" if text.startswith("a") and not text.startswith("avg")
        else f"score {text.format(where)}"
    ).clauses[0]
    for called, (text, _) in RECOUNTS.items()
    for where in ("cluster", "zone")
}  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(CHANGES, max_size=10))
def test_aggregates_are_what_a_recount_gives_after_every_change(changes: list[tuple[Any, ...]]) -> None:
    world = World()
    for at in range(4):
        world.set_node(f"n{at}", "ab"[at % 2], 2300, True, "x")
    for kind, *arguments in [("remove_pod", ""), *changes]:
        getattr(world, kind)(*arguments)
        frame = Frame(pod(world.cluster, "me", cpu="500m"), world.cluster, NOW)
        for (called, where), clause in CLAUSES.items():
            assert isinstance(clause, CompiledScore)
            recount = RECOUNTS[called][1]
            expected = []
            for name in world.cluster.nodes.names:
                zone = world.nodes[name]["zone"]
                among = [n for n in world.nodes if where == "cluster" or (zone and world.nodes[n]["zone"] == zone)]
                expected.append(float(recount(world, among)))
            for _ in range(2):  # it is kept from the second time on
                assert clause.evaluate(frame).tolist() == expected, (called, where)


def test_rows_alone_give_what_all_rows_give() -> None:
    world = World()
    for at in range(6):
        world.set_node(f"n{at}", [None, "a", "b"][at % 3], 100 * at, True, "x")
    frame = Frame(pod(world.cluster, "me"), world.cluster, NOW)
    for (called, where), clause in CLAUSES.items():
        assert isinstance(clause, CompiledScore)
        whole = clause.evaluate(frame)
        alone = [clause.evaluate(frame.at(np.array([row])))[0] for row in range(6)]
        assert whole.tolist() == alone, (called, where)


def test_the_nodes_of_the_same_label_are_a_domain() -> None:
    nodes = cluster(*(node(f"n{at}", labels={"rack": "xyx"[at]} if at < 3 else {}) for at in range(4)))
    frame = Frame(pod(nodes, "me"), nodes, NOW)

    for text in (
        "count(n in cluster.nodes where n.label.rack == node.label.rack)",
        "count(n in cluster.nodes where node.label.rack == n.label.rack and n.ready)",
        'count(n in domain("rack").nodes)',
    ):
        assert value(text, frame) == [2, 1, 2, 0], text


def test_a_name_stands_for_the_label_key_that_it_names() -> None:
    key = "example.com/rack"
    nodes = cluster(*(node(f"n{at}", labels={key: "xyx"[at]} if at < 3 else {}) for at in range(4)))
    for at in (0, 1, 2):
        nodes.place(pod(nodes, f"on-{at}", labels={key: "x"}), f"n{at}")
    frame = Frame(pod(nodes, "me", labels={key: "x"}), nodes, NOW)
    names = (
        f'let rack = "{key}"\nlet same = rack\ndef pods_in(k) = count(p in domain(k).pods where p.label[k] == "x")\n'
    )

    for text, expected in (
        ("count(p in domain(rack).pods)", [2, 1, 2, 0]),
        ("count(p in domain(same).pods where p.label[same] == pod.label[rack])", [2, 1, 2, 0]),
        ("pods_in(rack)", [2, 1, 2, 0]),
        ("count(n in domain(rack).nodes)", [2, 1, 2, 0]),
        ("count(n in cluster.nodes where n.label[rack] == node.label[rack])", [2, 1, 2, 0]),
        ('if node.label[rack] == "x" then 1 else 0', [1, 0, 1, 0]),
    ):
        (clause,) = policy(f"{names}score {text}").clauses
        assert isinstance(clause, CompiledScore)
        assert clause.evaluate(frame).tolist() == expected, text


def test_a_sum_does_not_depend_on_what_came_before() -> None:
    """Floats added and subtracted again leave something behind; these do not."""
    world = World()
    for at in range(10):
        world.set_node(f"n{at}", "a", 100, True, None)
    clause = policy("score if sum(n.free.cpu for n in cluster.nodes) == 1 then 1 else 0").clauses[0]
    assert isinstance(clause, CompiledScore)
    frame = Frame(pod(world.cluster, "me"), world.cluster, NOW)
    for step in range(40):
        world.place(f"p{step}", f"n{step % 10}", "", 30 + step)
        clause.evaluate(frame)
    for step in range(40):
        world.remove_pod(f"p{step}")
        clause.evaluate(frame)

    assert clause.evaluate(frame).tolist() == [1.0] * 10


# --- how long answers are kept, and who is woken -------------------------------------------------------------

E = ClusterEvent
READS: list[tuple[str, Scope, set[ClusterEvent], set[ClusterEvent]]] = [
    ("sum(n.free.cpu for n in cluster.nodes) > 4", Scope.CLUSTER, {E.POD_DELETE, E.NODE_ALLOCATABLE}, set()),
    ("count(n in cluster.nodes where n.ready) > 4", Scope.CLUSTER, {E.NODE_CONDITION, E.NODE_DELETE}, {E.POD_DELETE}),
    ("count(distinct n.zone for n in cluster.nodes) > 4", Scope.CLUSTER, {E.NODE_LABEL, E.NODE_DELETE}, {E.POD_ADD}),
    ("max(n.allocatable.cpu for n in zone.nodes) ?? 0 > 4", Scope.CLUSTER, {E.NODE_ALLOCATABLE, E.NODE_LABEL}, set()),
    ("count(distinct p.label.job for p in node.pods) < 4", Scope.ROW, {E.POD_DELETE, E.POD_UPDATE}, set()),
    ("all(t in pod.tolerations for t in node.taints)", Scope.TEMPLATE, {E.NODE_TAINT}, {E.POD_DELETE}),
    ('any(i == "x" for i in pod.images)', Scope.TEMPLATE, set(), {E.NODE_ADD, E.POD_ADD}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "scope", "wakes", "not_by"), READS, ids=[text for text, *_ in READS])
def test_pods_wait_for_what_the_aggregate_reads(
    text: str, scope: Scope, wakes: set[ClusterEvent], not_by: set[ClusterEvent]
) -> None:
    clause = policy(f"filter {text}").clauses[0]

    assert scope_of(reads_of(clause)) is scope
    assert wakes <= events_of(clause)
    assert not not_by & events_of(clause)


def test_evicting_pods_helps_where_pods_take_what_is_added_up() -> None:
    free = policy("require sum(n.free.cpu for n in cluster.nodes) > 4").clauses[0].depends
    ready = policy("require count(n in cluster.nodes where n.ready) > 4").clauses[0].depends

    assert free & Depends.CLUSTER
    assert not ready & Depends.CLUSTER
