"""Running pods by their nodes: what is counted is a recount, after every change of pods and nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.compiled import CompiledPreemption, CompiledScore
from kube_policy_scheduler.policy.clauses import events_of
from tests.lang.clusters import NOW, node, pod, policy

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NODES = ("a", "b", "c", "d")
ZONES = {"a": "x", "b": "x", "c": "y", "d": ""}


class Placed(NamedTuple):
    """A pod in plain Python."""

    on: str
    pool: str | None
    app: str
    millis: int
    ready: bool


class World:
    """A cluster, and what is in it."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.pools: dict[str, str | None] = {}
        self.pods: dict[str, tuple[str, str, int, bool]] = {}
        for name in NODES:
            self.set_node(name, None)

    def set_node(self, name: str, pool: str | None) -> None:
        self.pools[name] = pool
        labels = {"pool": pool} if pool is not None else {}
        cpu = {"cpu": str(NODES.index(name) + 1)}
        self.cluster.set_node(node(name, zone=ZONES[name], labels=labels, allocatable=cpu))

    def remove_node(self, name: str) -> None:
        self.cluster.remove_node(name)
        self.set_node(name, self.pools[name])

    def place(self, name: str, on: str, app: str, millis: int, ready: bool) -> None:
        self.pods[name] = (on, app, millis, ready)
        made = pod(self.cluster, name, cpu=f"{millis}m", labels={"app": app}, status=READY if ready else {})
        self.cluster.confirm(made, on)

    def remove(self, name: str) -> None:
        self.pods.pop(name, None)
        self.cluster.remove(name)

    def seen_from(self, row: int, where: str) -> list[Placed]:
        """Return the pods of a collection of a row's node."""
        name = self.cluster.nodes.names[row]
        placed = [Placed(on, self.pools[on], *rest) for on, *rest in self.pods.values()]
        match where:
            case "node":
                return [each for each in placed if each.on == name]
            case "zone":
                return [each for each in placed if ZONES[name] and ZONES[each.on] == ZONES[name]]
            case _:
                return placed


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else -1


RECOUNTS: dict[str, Callable[[list[Placed]], float]] = {
    'count(p in {}.pods where p.node.label.pool == "spot" and p.label.app == pod.label.app)': lambda on: sum(
        each.pool == "spot" and each.app == "web" for each in on
    ),
    "count(p in {}.pods where p.node.label.pool != pod.label.pool and p.ready)": lambda on: sum(
        each.pool != "spot" and each.ready for each in on
    ),
    'sum(p.request.cpu for p in {}.pods where p.node.label.pool == "spot")': lambda on: (
        sum(each.millis for each in on if each.pool == "spot") / 1000
    ),
    'avg(p.request.cpu for p in {}.pods where p.node.label.pool == "spot") ?? -1': lambda on: mean(
        [each.millis / 1000 for each in on if each.pool == "spot"]
    ),
    'max(p.request.cpu for p in {}.pods where p.node.label.pool == "spot") ?? -1': lambda on: max(
        (each.millis / 1000 for each in on if each.pool == "spot"), default=-1
    ),
    'count(distinct p.label.app for p in {}.pods where p.node.label.pool == "spot")': lambda on: len(
        {each.app for each in on if each.pool == "spot"}
    ),
    "count(distinct p.node.name for p in {}.pods where p.label.app == pod.label.app)": lambda on: len(
        {each.on for each in on if each.app == "web"}
    ),
    "count(distinct p.node.label.pool for p in {}.pods)": lambda on: len({each.pool for each in on} - {None}),
    "sum(p.node.allocatable.cpu for p in {}.pods where p.ready)": lambda on: sum(
        NODES.index(each.on) + 1 for each in on if each.ready
    ),
    "avg(p.node.allocatable.cpu for p in {}.pods) ?? -1": lambda on: mean([NODES.index(each.on) + 1 for each in on]),
    "min(p.node.allocatable.cpu for p in {}.pods where p.node.label.pool is not missing) ?? -1": lambda on: min(
        (NODES.index(each.on) + 1 for each in on if each.pool is not None), default=-1
    ),
    'count(p in {}.pods where p.node.label.pool == "spot" and p.name == pod.label.peer)': lambda on: 0,
}
TRUTHS: dict[str, Callable[[list[Placed]], bool]] = {
    'any(p.node.label.pool == "spot" for p in {}.pods where p.label.app == "web")': lambda on: any(
        each.pool == "spot" for each in on if each.app == "web"
    ),
    'all(p.node.label.pool == "spot" for p in {}.pods where p.label.app == "web")': lambda on: all(
        each.pool == "spot" for each in on if each.app == "web"
    ),
    'any(p.label.app == "web" and p.node.label.pool == "spot" for p in {}.pods)': lambda on: any(
        each.pool == "spot" and each.app == "web" for each in on
    ),
}
CLAUSES = {
    (text, where): policy(f"score {text.format(where)}") for text in RECOUNTS for where in ("node", "zone", "cluster")
} | {
    (text, where): policy(f"score if {text.format(where)} then 1 else 0")
    for text in TRUTHS
    for where in ("node", "zone", "cluster")
}
NAMES = tuple(f"p{at}" for at in range(5))
CHANGES = st.one_of(
    st.tuples(
        st.just("place"),
        st.sampled_from(NAMES),
        st.sampled_from(NODES),
        st.sampled_from(["web", "db"]),
        st.sampled_from([100, 300, 700]),
        st.booleans(),
    ),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("set_node"), st.sampled_from(NODES), st.sampled_from(["spot", "other", None])),
    st.tuples(st.just("remove_node"), st.sampled_from(NODES)),
)


@given(st.lists(CHANGES, max_size=12))
def test_what_is_counted_by_nodes_is_a_recount_after_every_change(changes: list[tuple[Any, ...]]) -> None:
    world = World()
    me = pod(world.cluster, "me", labels={"app": "web", "pool": "spot", "peer": "nobody"})
    for what, *given_ in (("remove", "nobody"), *changes):
        getattr(world, what)(*given_)
        frame = Frame(me, world.cluster, NOW)
        for (text, where), policy_ in CLAUSES.items():
            (clause,) = policy_.clauses
            assert isinstance(clause, CompiledScore)
            recount = RECOUNTS.get(text) or TRUTHS[text]
            expected = [float(recount(world.seen_from(row, where))) for row in range(len(NODES))]
            assert clause.evaluate(frame).tolist() == pytest.approx(expected), (text, where, what)


def test_the_label_of_the_candidate_node_selects_a_domain() -> None:
    nodes = Cluster()
    for name, rack in (("a", "r"), ("b", "r"), ("c", "s"), ("d", None)):
        nodes.set_node(node(name, labels={"rack": rack} if rack else {}))
        nodes.place(pod(nodes, f"on-{name}"), name)
    frame = Frame(pod(nodes, "me"), nodes, NOW)

    for text in (
        "count(p in cluster.pods where p.node.label.rack == node.label.rack)",
        'count(p in domain("rack").pods)',
    ):
        (clause,) = policy(f"score {text}").clauses
        assert isinstance(clause, CompiledScore)
        assert clause.evaluate(frame).tolist() == [2, 2, 1, 0], text


def test_victims_have_the_fields_of_their_nodes() -> None:
    cluster = Cluster()
    for name, pool in (("a", "batch"), ("b", "web")):
        cluster.set_node(node(name, labels={"pool": pool}))
        cluster.place(pod(cluster, f"on-{name}"), name)
    text = 'preempt if true evict where victim.node.label.pool == "batch" and victim.node.allocatable.cpu >= 4'
    (clause,) = policy(text).clauses
    assert isinstance(clause, CompiledPreemption)
    assert clause.evict is not None
    frame = Frame(pod(cluster, "me"), cluster, NOW)

    assert [clause.evict(frame, cluster.pods[f"on-{name}"]) for name in "ab"] == [True, False]


def test_pods_that_a_clause_rejected_hear_of_nodes_and_pods() -> None:
    clause = policy('filter count(p in cluster.pods where p.node.label.pool == "spot") < 3').clauses[0]

    assert {ClusterEvent.NODE_LABEL, ClusterEvent.POD_DELETE, ClusterEvent.NODE_DELETE} <= events_of(clause)
