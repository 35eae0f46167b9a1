"""Running pods by their names and annotations: what is counted is a recount, after every change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.own_facts import OwnFacts
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Scope, scope_of
from kube_policy_scheduler.lang.compiling.compiled import CompiledScore
from kube_policy_scheduler.policy.clauses import events_of, reads_of
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.preparation import preparing
from tests.lang.clusters import NOW, decide, feasible, node, pod, policy

NODES = ("a", "b", "c")
ZONES = {"a": "x", "b": "x", "c": "y"}
WORDS = (None, "5M", "10M", "soon")
"""Values of an annotation, one of which is no amount."""
AMOUNTS = {"5M": 5e6, "10M": 1e7}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}

Placed = dict[str, tuple[str, str, str | None, bool]]
"""By name: node, app, annotation, and whether it is ready."""


def of_zone(placed: Placed, zone: str) -> Iterator[tuple[str, str, str, str | None, bool]]:
    return ((name, *rest) for name, rest in placed.items() if ZONES[rest[0]] == zone)


RECOUNTS: dict[str, Callable[[list[tuple[str, str, str, str | None, bool]]], float]] = {
    'count(p in {}.pods where p.annotation.rate == "5M")': lambda on: sum(rate == "5M" for *_, rate, _ in on),
    "count(p in {}.pods where p.name == pod.label.peer)": lambda on: sum(name == "p1" for name, *_ in on),
    'count(p in {}.pods where p.name == pod.label.peer and p.label.app == "web" and p.ready)': lambda on: sum(
        name == "p1" and app == "web" and ready for name, _, app, _, ready in on
    ),
    "count(p in {}.pods where p.label.app == pod.label.app and p.annotation.rate is missing)": lambda on: sum(
        app == "web" and rate is None for _, _, app, rate, _ in on
    ),
    'count(p in {}.pods where p.name matches "p[02]")': lambda on: sum(name in ("p0", "p2") for name, *_ in on),
    "sum(quantity(p.annotation.rate) for p in {}.pods) / 1M": lambda on: (
        sum(AMOUNTS.get(rate or "", 0) for *_, rate, _ in on) / 1e6
    ),
    "sum(quantity(p.annotation.rate) for p in {}.pods where p.ready) / 1M": lambda on: (
        sum(AMOUNTS.get(rate or "", 0) for *_, rate, ready in on if ready) / 1e6
    ),
    "(max(quantity(p.annotation.rate) for p in {}.pods) / 1M) ?? -1": lambda on: (
        max((AMOUNTS[rate] for *_, rate, _ in on if rate in AMOUNTS), default=-1e6) / 1e6
    ),
    "count(distinct p.annotation.rate for p in {}.pods)": lambda on: len({rate for *_, rate, _ in on} - {None}),
    "count(distinct p.name for p in {}.pods where p.label.app == pod.label.app)": lambda on: len(
        {name for name, _, app, *_ in on if app == "web"}
    ),
}
COLLECTIONS: dict[str, Callable[[Placed, str], list[tuple[str, str, str, str | None, bool]]]] = {
    "node": lambda placed, name: [(each, *rest) for each, rest in placed.items() if rest[0] == name],
    "zone": lambda placed, name: list(of_zone(placed, ZONES[name])),
    "cluster": lambda placed, name: [(each, *rest) for each, rest in placed.items()],
}


def running(cluster: Cluster, name: str, app: str, rate: str | None, *, ready: bool) -> PodInfo:
    """Return a pod with an annotation that policies read, and one that none reads."""
    annotations = {"other": name} | ({"rate": rate} if rate is not None else {})
    return pod(cluster, name, labels={"app": app}, annotations=annotations, status=READY if ready else {})


def value(policy_: Policy, frame: Frame) -> list[float]:
    (clause,) = policy_.clauses
    assert isinstance(clause, CompiledScore)
    found: list[float] = clause.evaluate(frame).tolist()
    return found


CLAUSES = {(text, where): policy(f"score {text.format(where)}") for text in RECOUNTS for where in COLLECTIONS}
NAMES = tuple(f"p{at}" for at in range(4))
CHANGES = st.one_of(
    st.tuples(
        st.just("place"),
        st.sampled_from(NAMES),
        st.sampled_from(NODES),
        st.sampled_from(["web", "db"]),
        st.sampled_from(WORDS),
        st.booleans(),
    ),
    st.tuples(st.just("annotate"), st.sampled_from(NAMES), st.sampled_from(WORDS)),
    st.tuples(st.just("ready"), st.sampled_from(NAMES)),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("node"), st.sampled_from(NODES)),
)


def change(cluster: Cluster, placed: Placed, what: tuple[Any, ...]) -> None:
    """Make one change, in the cluster and in plain Python."""
    match what:
        case ("place", name, on, app, rate, ready):
            placed[name] = (on, app, rate, ready)
        case ("annotate", name, rate) if name in placed:
            on, app, _, ready = placed[name]
            placed[name] = (on, app, rate, ready)
        case ("ready", name) if name in placed:
            on, app, rate, ready = placed[name]
            placed[name] = (on, app, rate, not ready)
        case ("remove", name):
            placed.pop(name, None)
            cluster.remove(name)
            return
        case ("node", name):
            cluster.remove_node(name)
            cluster.set_node(node(name, zone=ZONES[name]))
            return
        case _:
            return
    on, app, rate, ready = placed[what[1]]
    cluster.confirm(running(cluster, what[1], app, rate, ready=ready), on)


@given(st.lists(CHANGES, max_size=12))
def test_what_pods_say_of_themselves_is_a_recount_after_every_change(changes: list[tuple[Any, ...]]) -> None:
    cluster, placed = Cluster(), dict[str, tuple[str, str, str | None, bool]]()
    for name in NODES:
        cluster.set_node(node(name, zone=ZONES[name]))
    me = pod(cluster, "me", labels={"app": "web", "peer": "p1"})
    for what in (("none",), *changes):
        change(cluster, placed, what)
        frame = Frame(me, cluster, NOW)
        for (text, where), clause in CLAUSES.items():
            rows = [COLLECTIONS[where](placed, name) for name in cluster.nodes.names]
            expected = [float(RECOUNTS[text](on)) for on in rows]
            assert value(clause, frame) == pytest.approx(expected), (text, where, what)


@given(st.lists(CHANGES, max_size=6), st.lists(CHANGES, max_size=6))
def test_counts_that_are_prepared_in_steps_are_those_that_are_made_at_once(
    before: list[tuple[Any, ...]], between: list[tuple[Any, ...]]
) -> None:
    cluster, placed = Cluster(), dict[str, tuple[str, str, str | None, bool]]()
    for name in NODES:
        cluster.set_node(node(name, zone=ZONES[name]))
    for what in before:
        change(cluster, placed, what)
    steps = preparing(CLAUSES.values(), cluster)
    for what in between:
        next(steps, None)
        change(cluster, placed, what)
    for _ in steps:
        pass

    frame = Frame(pod(cluster, "me", labels={"app": "web", "peer": "p1"}), cluster, NOW)
    for (text, where), clause in CLAUSES.items():
        rows = [COLLECTIONS[where](placed, name) for name in cluster.nodes.names]
        assert value(clause, frame) == pytest.approx([float(RECOUNTS[text](on)) for on in rows]), (text, where)


LONG = (
    "limit count() to 2 over node of pods where duration(pod.annotation.walltime) > 4d",
    "limit count() by pod.namespace to 2 of pods where duration(pod.annotation.walltime) > 4d",
    'limit sum(quantity(annotation.slots) ?? 0) to 2 of pods where pod.name != "small"',
)


@pytest.mark.parametrize("text", LONG)
def test_a_limit_counts_by_what_pods_say_of_themselves(text: str) -> None:
    cluster, limit = Cluster(), policy(text)
    cluster.set_node(node("a"))
    said = {"walltime": "7d", "slots": "1"}

    def fits(name: str, annotations: dict[str, str]) -> bool:
        return feasible(decide(limit, pod(cluster, name, annotations=annotations), cluster), cluster) == ["a"]

    assert fits("first", said)
    cluster.place(pod(cluster, "first", annotations=said), "a")
    cluster.place(pod(cluster, "short", annotations={"walltime": "1h"}), "a")
    assert fits("second", said)
    cluster.place(pod(cluster, "second", annotations=said), "a")
    assert not fits("third", said)
    assert fits("small", {"walltime": "1h"})

    cluster.confirm(pod(cluster, "second", annotations={"walltime": "1h"}), "a")
    assert fits("third", said)


def test_only_annotations_that_policies_read_tell_pods_apart() -> None:
    """A pod with ten thousand annotations, and ten thousand pods with one each that nobody reads, cost nothing more."""
    cluster, limit = Cluster(), policy('score count(p in node.pods where p.annotation.rate == "1")')
    cluster.set_node(node("a"))
    many = {f"key-{at}": "x" * 100 for at in range(10_000)}
    cluster.place(pod(cluster, "many", annotations=many), "a")
    for at in range(1_000):
        cluster.place(pod(cluster, f"p{at}", annotations={"own": str(at)}), "a")
    cluster.place(pod(cluster, "one", annotations={"rate": "1"}), "a")
    me = Frame(pod(cluster, "me"), cluster, NOW)

    assert value(limit, me) == [1]
    assert cluster.counters.bytes < 100_000


def test_pods_are_forgotten_with_what_they_say() -> None:
    cluster = Cluster()
    cluster.set_node(node("a"))
    count = policy("score count(p in node.pods where p.name == pod.label.peer)")
    for at in range(300):
        cluster.place(pod(cluster, f"p{at}"), "a")
        me = pod(cluster, "me", labels={"peer": f"p{at}"})
        assert value(count, Frame(me, cluster, NOW)) == [1]
        cluster.counters.make_room()
    for at in range(300):
        cluster.remove(f"p{at}")
    assert value(count, Frame(pod(cluster, "me", labels={"peer": "p1"}), cluster, NOW)) == [0]
    assert not math.isnan(cluster.counters.bytes)
    cluster.counters.make_room()
    assert cluster.counters.bytes < 200_000


def test_pods_that_a_clause_rejected_hear_of_an_annotation() -> None:
    clause = policy('filter count(p in node.pods where p.annotation.draining == "true") == 0').clauses[0]

    assert scope_of(reads_of(clause)) is Scope.ROW
    assert ClusterEvent.POD_UPDATE in events_of(clause)


def test_a_changed_annotation_is_an_event() -> None:
    cluster = Cluster()
    cluster.set_node(node("a"))
    count = policy('filter count(p in node.pods where p.annotation.draining == "true") == 0')
    cluster.confirm(pod(cluster, "p", annotations={"draining": "true"}), "a")
    me = pod(cluster, "me")
    assert feasible(decide(count, me, cluster), cluster) == []

    before = cluster.ledger.epoch
    cluster.confirm(pod(cluster, "p", annotations={"draining": "true", "other": "1"}), "a")
    assert cluster.ledger.epoch == before
    cluster.confirm(pod(cluster, "p", annotations={}), "a")
    assert cluster.ledger.epoch > before
    assert feasible(decide(count, me, cluster), cluster) == ["a"]


def test_what_was_prepared_stays_until_the_rules_that_read_it_are_gone() -> None:
    cluster = Cluster()
    cluster.set_node(node("a"))
    for at in range(10):
        cluster.place(pod(cluster, f"p{at}"), "a")
    count = policy("score count(p in node.pods where p.name == pod.label.peer)")
    alone = cluster.counters.bytes

    for _ in preparing([count], cluster):
        pass
    cluster.forget_rules(has_queues=False)
    facts = OwnFacts(name=True)
    prepared = cluster.counters_reading(facts)
    assert value(count, Frame(pod(cluster, "me", labels={"peer": "p1"}), cluster, NOW)) == [1]
    assert cluster.counters_reading(facts) is prepared

    cluster.forget_rules(has_queues=False)
    cluster.forget_rules(has_queues=False)
    assert cluster.counters.bytes == alone
