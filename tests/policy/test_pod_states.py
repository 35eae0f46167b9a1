"""Aggregates over the state of running pods: ready, started, for how long running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects, pod_states
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.times import rfc3339
from tests.policy.worlds import node, pod, policy, raw_pod

NOW = 1_800_000_000.0
NODES = ["a", "b", "c"]
ZONES = {"a": "z1", "b": "z1", "c": "z2"}
APPS = ["web", "db"]


def running_pod(
    cluster: Cluster,
    name: str,
    *,
    app: str = "web",
    ready: bool = False,
    started: bool = False,
    since: float | None = None,
    leaving: bool = False,
    restarts: int = 0,
) -> PodInfo:
    raw = raw_pod(name, labels={"app": app}, cpu="100m")
    raw.status = objects.PodStatus(
        start_time=rfc3339(since) if since is not None else None,
        conditions=[objects.PodCondition(type="Ready", status=str(ready))],
        container_statuses=[objects.ContainerStatus(name="c", started=started, restart_count=restarts)],
    )
    raw.metadata.deletion_timestamp = "2027-01-01T00:00:00Z" if leaving else None
    return cluster.templates.pod(raw)


def made(count: int = 3) -> Cluster:
    cluster = Cluster()
    for name in NODES[:count]:
        cluster.set_node(node(name, cpu="64", **{"topology.kubernetes.io/zone": ZONES[name]}))
    return cluster


def passing(text: str, cluster: Cluster, *, now: float = NOW) -> list[str]:
    found = evaluate(Frame(pod(cluster, "new", labels={"app": "web"}), cluster, now), policy(text).profile).feasible
    return [cluster.nodes.names[row] for row in found]


def test_a_node_where_a_daemon_is_ready_passes() -> None:
    cluster, text = made(2), 'filter any(p in node.pods where p.label.app == "cni" and p.ready)'
    cluster.place(running_pod(cluster, "x", app="cni", ready=True, started=True), "a")
    cluster.place(running_pod(cluster, "y", app="cni", started=True), "b")

    assert passing(text, cluster) == ["a"]


def test_at_most_so_many_pods_start_on_a_node_and_assumed_ones_count() -> None:
    cluster, text = made(2), "filter count(p in node.pods where not p.started) < 3"
    for name in ("x", "y"):
        cluster.confirm(running_pod(cluster, name), "a")
    cluster.assume(pod(cluster, "z"), "a", now=NOW)
    before = passing(text, cluster)
    cluster.confirm(running_pod(cluster, "x", started=True), "a")

    assert before == ["b"]
    assert passing(text, cluster) == ["a", "b"]


def test_running_times_pass_their_bound_as_time_passes_and_when_the_clock_is_set_back() -> None:
    cluster, text = made(1), "filter all(p.running > 10min for p in node.pods)"
    cluster.place(running_pod(cluster, "x", since=NOW - 500), "a")
    rule = policy(text).profile

    def passes(now: float) -> bool:
        return len(evaluate(Frame(pod(cluster, "new"), cluster, now), rule).feasible) == 1

    assert [passes(now) for now in (NOW, NOW + 100, NOW + 100.001, NOW + 99, NOW + 500)] == [0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("status", "started"),
    [
        ({}, False),
        ({"containerStatuses": [{"name": "c", "started": True}]}, True),
        ({"containerStatuses": [{"name": "c", "started": True}, {"name": "d", "started": False}]}, False),
        ({"containerStatuses": [{"name": "c", "started": False, "state": {"waiting": {}}}]}, False),
        ({"containerStatuses": [{"name": "c", "started": False, "state": {"terminated": {"exitCode": 0}}}]}, True),
    ],
)
def test_a_pod_has_started_once_each_container_has_or_has_ended(status: dict[str, Any], started: bool) -> None:
    raw = raw_pod("x")
    raw.status = msgspec.convert(status, objects.PodStatus)

    assert Cluster().templates.pod(raw).all_started is started


@pytest.mark.parametrize(
    ("status", "restarts"),
    [
        ({}, 0),
        ({"containerStatuses": [{"name": "c", "restartCount": 2}, {"name": "d", "restartCount": 3}]}, 5),
        ({"containerStatuses": [{"name": "c"}], "initContainerStatuses": [{"name": "i", "restartCount": 4}]}, 0),
        ({"containerStatuses": [{"name": "c"}], "initContainerStatuses": [{"name": "sidecar", "restartCount": 4}]}, 4),
    ],
)
def test_restarts_are_those_of_containers_and_sidecars(status: dict[str, Any], restarts: int) -> None:
    raw = raw_pod("x")
    raw.spec.init_containers = [objects.Container(name="i"), objects.Container(name="sidecar", restart_policy="Always")]
    raw.status = msgspec.convert(status, objects.PodStatus)

    assert Cluster().templates.pod(raw).restarts == restarts


@pytest.mark.parametrize(
    ("text", "wakes", "sleeps"),
    [
        ("filter any(p in node.pods where p.ready)", {ClusterEvent.POD_STATE}, {ClusterEvent.CLOCK}),
        ("filter not any(p in node.pods where p.running < 1min)", {ClusterEvent.POD_STATE, ClusterEvent.CLOCK}, set()),
        ('filter any(p in node.pods where p.label.app == "x")', {ClusterEvent.POD_ADD}, {ClusterEvent.POD_STATE}),
    ],
)
def test_a_clause_that_reads_states_is_woken_by_them(text: str, wakes: set[Any], sleeps: set[Any]) -> None:
    profile = policy(text).profile
    (name,) = profile.clauses

    assert wakes <= profile.wakes[name]
    assert not sleeps & profile.wakes[name]


# --- the law: counts that follow every change are those of a look at each pod -----------------------------


def ran(p: PodInfo, now: float) -> float:
    return max(now - p.started, 0.0) if p.started is not None else 0.0


CLAUSES: list[tuple[str, Callable[[list[PodInfo], float], float]]] = [
    ("count(p in node.pods where p.ready)", lambda ps, now: sum(p.ready for p in ps)),
    (
        "count(p in node.pods where not p.started and p.label.app == pod.label.app)",
        lambda ps, now: sum(not p.all_started and p.labels["app"] == "web" for p in ps),
    ),
    ("count(p in node.pods where p.running > 60s)", lambda ps, now: sum(ran(p, now) > 60 for p in ps)),
    (
        "count(p in node.pods where p.running >= 30s and p.running <= 90s or p.ready and 20s < p.running)",
        lambda ps, now: sum((30 <= ran(p, now) <= 90) or (p.ready and ran(p, now) > 20) for p in ps),
    ),
    ("count(p in node.pods where p.running == 60s)", lambda ps, now: sum(ran(p, now) == 60 for p in ps)),
    ("count(p in node.pods where p.running / 2 > 30s)", lambda ps, now: sum(ran(p, now) / 2 > 30 for p in ps)),
    (
        "if any(p.ready for p in node.pods where p.running > 0s) then 1 else 0",
        lambda ps, now: any(p.ready for p in ps if ran(p, now) > 0),
    ),
    ("(min(p.running for p in node.pods) / 1s) ?? -1", lambda ps, now: min((ran(p, now) for p in ps), default=-1)),
    (
        "(max(p.running for p in node.pods where p.ready or p.running < 45s) / 1s) ?? -1",
        lambda ps, now: max((ran(p, now) for p in ps if p.ready or ran(p, now) < 45), default=-1),
    ),
    (
        "sum(if p.running > 30s then 5 else if p.ready then 2 else 1 for p in node.pods where p.started)",
        lambda ps, now: sum(5 if ran(p, now) > 30 else 2 if p.ready else 1 for p in ps if p.all_started),
    ),
    (
        "(avg(p.running for p in node.pods) / 1s) ?? -1",
        lambda ps, now: sum(ran(p, now) for p in ps) / len(ps) if ps else -1,
    ),
    ("count(p in node.pods where p.restarts > 3)", lambda ps, now: sum(p.restarts > 3 for p in ps)),
    (
        "count(p in node.pods where 1 <= p.restarts and p.restarts < 4 or p.restarts == 9 and p.running > 30s)",
        lambda ps, now: sum(1 <= p.restarts < 4 or (p.restarts == 9 and ran(p, now) > 30) for p in ps),
    ),
    ("sum(p.restarts for p in node.pods where p.ready)", lambda ps, now: sum(p.restarts for p in ps if p.ready)),
    ("max(p.restarts for p in node.pods) ?? -1", lambda ps, now: max((p.restarts for p in ps), default=-1)),
    (
        "count(distinct p.label.app for p in node.pods where p.started)",
        lambda ps, now: len({p.labels["app"] for p in ps if p.all_started}),
    ),
    (
        "sum(p.request.cpu for p in node.pods where p.started)",
        lambda ps, now: 0.1 * sum(p.all_started for p in ps),
    ),
]

events = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["pod", "pod", "pod", "assume"]),
            st.integers(0, 7),
            st.sampled_from(NODES),
            st.fixed_dictionaries(
                {
                    "app": st.sampled_from(APPS),
                    "ready": st.booleans(),
                    "started": st.booleans(),
                    "since": st.sampled_from([None, NOW - 60, NOW - 30, NOW, NOW + 45]),
                    "leaving": st.sampled_from([False, False, False, True]),
                    "restarts": st.sampled_from([0, 0, 1, 3, 4, 9]),
                }
            ),
        ),
        st.tuples(st.just("gone"), st.integers(0, 7)),
        st.tuples(st.just("node"), st.sampled_from(NODES)),
        st.tuples(st.just("no node"), st.sampled_from(NODES)),
        st.tuples(st.just("time"), st.sampled_from([-100.0, 0.0, 0.5, 15.0, 30.0, 60.0])),
        st.tuples(st.just("dry run"), st.integers(0, 7)),
    ),
    min_size=5,
    max_size=40,
)


def apply(cluster: Cluster, event: tuple[Any, ...], now: float) -> None:
    match event:
        case ("pod", number, name, what):
            cluster.confirm(running_pod(cluster, f"p{number}", **what), name)
        case ("assume", number, name, what):
            cluster.assume(pod(cluster, f"p{number}", labels={"app": what["app"]}), name, now=now)
        case ("gone", number):
            cluster.remove(f"p{number}")
        case ("node", name):
            cluster.set_node(node(name, cpu="64", **{"topology.kubernetes.io/zone": ZONES[name]}))
        case ("no node", name):
            cluster.remove_node(name)


@pytest.mark.parametrize("most", [1, 256])
@given(events=events, asked=st.lists(st.integers(0, len(CLAUSES) - 1), min_size=1, max_size=4, unique=True))
def test_counts_by_state_equal_a_look_at_each_pod(most: int, events: list[tuple[Any, ...]], asked: list[int]) -> None:
    cluster, now = made(), NOW
    rule = policy("\n".join(f"score {CLAUSES[at][0]}" for at in asked))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_states, "_MOST_SETS", most)
        patch.setattr(pod_states, "_MOST_STALE", most // 64)

        def check() -> None:
            frame = Frame(pod(cluster, "new", labels={"app": "web"}), cluster, now)
            for at, clause in zip(asked, rule.clauses, strict=True):
                got = clause.evaluate(frame).tolist()  # type: ignore[union-attr]
                there = [[p for p in cluster.pods_on(n).values() if not p.terminating] for n in cluster.nodes.names]
                assert got == pytest.approx([float(CLAUSES[at][1](pods, now)) for pods in there]), CLAUSES[at][0]

        for event in events:
            match event:
                case ("time", seconds):
                    now += seconds
                case ("dry run", number):
                    with cluster.dry_run():
                        cluster.displace(f"p{number}")
                        check()
                case _:
                    apply(cluster, event, now)
            check()


@given(events=events, data=st.data())
def test_kept_answers_follow_the_state_of_pods(events: list[tuple[Any, ...]], data: st.DataObject) -> None:
    cluster, cycle, now = made(), Cycle(), NOW
    rule = policy(
        "filter count(p in node.pods where p.ready) < 2\n"
        "filter count(p in zone.pods where not p.started and p.label.app == pod.label.app) < 3\n"
        "score 10 * count(p in node.pods where p.started)\nscore count(p in node.pods where p.running > 30s)"
    ).profile
    for event in events:
        if event[0] == "time":
            now += event[1]
        apply(cluster, event, now)
        new = pod(cluster, "new", labels={"app": data.draw(st.sampled_from(APPS))})
        frame = Frame(new, cluster, now)
        wanted, decision = evaluate(frame, rule), cycle.decide(frame, rule)
        assert decision.feasible == len(wanted.feasible)
        if len(wanted.feasible) > 1:
            assert decision.score == np.max(wanted.totals)


def test_the_pod_that_started_last_in_a_zone_or_the_cluster_is_known() -> None:
    cluster = made()
    for number, (name, since) in enumerate([("a", 90), ("b", 20), ("b", 40), ("c", 70)]):
        cluster.confirm(running_pod(cluster, f"p{number}", since=NOW - since), name)
    frame = Frame(pod(cluster, "new"), cluster, NOW)

    def values(text: str) -> list[float]:
        (clause,) = policy(f"score ({text} / 1s) ?? -1").clauses
        found: list[float] = clause.evaluate(frame).tolist()  # type: ignore[union-attr]
        return found

    assert values("min(p.running for p in zone.pods)") == [20, 20, 70]
    assert values("max(p.running for p in zone.pods)") == [90, 90, 70]
    assert values("min(p.running for p in cluster.pods where p.ready)") == [-1, -1, -1]
    assert values("max(p.running for p in cluster.pods)") == [90, 90, 90]
