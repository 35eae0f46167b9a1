"""Which queues are shown in metrics and on the status page: all declared ones, and the largest of each namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_overview import QuotaOverview, UnitCounts, others, overview
from kube_policy_scheduler.daemon.observing.live_metrics import MAX_QUEUES, LiveMetrics, LiveState, PendingCensus
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from tests.daemon.deciding_stage import Stage, policies
from tests.exposition import unique_series

RULES = """\
queue all
queue fixed of all for pods where pod.label.team == "fixed" min cpu 2
queue team of all by pod.label.team min cpu 1 max cpu 5
queue rest of all max cpu 3
filter fits(cpu)
"""


class Scene:
    """A cluster of one node, with pods on it and pods that wait."""

    def __init__(self, rules: str = RULES) -> None:
        self.stage = Stage(policies(rules), nodes=1, cpus=10_000)
        self.pending: list[PodInfo] = []
        queues = self.stage.policy_set.queues
        assert queues is not None
        self.cluster: Cluster = self.stage.cluster
        self.usage = self.cluster.track_usage(queues.tree)

    def pods(self, namespace: str, teams: Iterable[str], *, cpu: str = "1m", run: bool = True) -> None:
        for team in teams:
            pod = self.stage.pod(cpu=cpu, team=team)
            pod = msgspec.structs.replace(pod, namespace=namespace)
            if run:
                self.cluster.place(pod, "n0")
            else:
                self.pending.append(pod)

    def shown(self, most: int = MAX_QUEUES, units: Mapping[str, UnitCounts] = MappingProxyType({})) -> QuotaOverview:
        steps = overview(self.usage, self.pending, units=units, most=most)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value


def names(found: QuotaOverview) -> list[str]:
    return [state.name for state in found.states]


@pytest.mark.parametrize("run", [True, False])
def test_pods_of_one_namespace_hide_no_queue_of_another(run: bool) -> None:
    scene = Scene()
    scene.pods("evil", (f"evil-{number}" for number in range(1500)), cpu="9m", run=run)
    scene.pods("good", ["zz-good"], run=run)
    found = scene.shown()
    assert {"all", "fixed", "rest", "team/zz-good", "team (others)"} <= set(names(found))
    assert len(found.states) == 3 + MAX_QUEUES + 1
    assert found.left_out == 501
    assert sum(found.pending.values()) == (0 if run else 2 * 1501), "each counts in its queue, and in the one above"


def test_in_one_namespace_the_largest_are_shown_whoever_came_first() -> None:
    scene = Scene()
    scene.pods("shop", (f"a-{number}" for number in range(20)))
    scene.pods("shop", ["large"], cpu="3")
    scene.pods("shop", ["waits"] * 3, run=False)
    found = scene.shown(most=2)
    assert {state.name: state.used["cpu"] for state in found.states} == {
        "all": 3020, "fixed": 0, "team/large": 3000, "team/a-9": 1, "team (others)": 19, "rest": 0,
    }  # fmt: skip
    assert found.pending == {"team (others)": 3, "all": 3}
    assert found.left_out == 20
    assert names(found) == ["all", "fixed", "team/large", "team/a-9", "team (others)", "rest"]


def test_a_queue_without_pods_on_nodes_is_shown_if_pods_of_it_wait() -> None:
    scene = Scene()
    scene.pods("shop", ["waits"] * 3, run=False)
    found = scene.shown()
    (waits,) = (state for state in found.states if state.name == "team/waits")
    assert (waits.guaranteed, waits.used) == ({"cpu": 1000}, {"cpu": 0}), "an alert compares them"
    assert found.pending == {"team/waits": 3, "all": 3}


def test_a_key_of_any_text_is_a_label_of_its_own() -> None:
    scene = Scene()
    scene.pods("shop", ["a"])
    state = scene.shown().states[2]
    assert state.name == "team/a"
    keys = ["(others)", "x" * 5000 + "1", "x" * 5000 + "2", "a\nb", "a b"]
    states = [msgspec.structs.replace(state, name=f"team/{key}") for key in keys]
    live = LiveState(queues=states, queue_pending={state.name: 1 for state in states})
    registry = CollectorRegistry()
    registry.register(LiveMetrics(lambda: live))
    series = unique_series(generate_latest(registry).decode())
    for metric in ("policy_scheduler_queue_share", "policy_scheduler_queue_pending_pods"):
        labels = [dict(labels)["queue"] for name, labels in series if name == metric]
        assert len(labels) == len(keys)
        assert all(len(label) <= 120 for label in labels)


@pytest.mark.parametrize("run", [True, False])
def test_very_many_queues_are_looked_at_in_many_steps(run: bool) -> None:
    """Nothing of it may hold up the decisions of others, whoever writes 5,000 texts into a label."""
    scene = Scene()
    scene.pods("evil", (f"evil-{number}" for number in range(5000)), run=run)
    few, many = (len(list(overview(scene.usage, scene.pending[:most], most=10))) for most in (0, 5000))
    assert many >= 5000 / 50
    assert many - few >= (0 if run else 5000 / 500)


TEAMS = st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", "z", "fixed", ""]) | st.text("pq", max_size=3))


@given(st.lists(st.tuples(TEAMS, st.integers(1, 900), st.booleans()), max_size=30), st.integers(1, 6))
def test_nothing_is_lost_and_each_namespace_has_its_largest(
    pods: list[tuple[tuple[str, str], int, bool]], most: int
) -> None:
    scene = Scene()
    for (namespace, team), cpu, run in pods:
        scene.pods(namespace, [team], cpu=f"{cpu}m", run=run)
    found, whole = scene.shown(most), scene.shown(1000)
    assert sum(state.used["cpu"] for state in found.states) == sum(state.used["cpu"] for state in whole.states)
    assert Counter(found.pending).total() == Counter(whole.pending).total()
    by_key = [name for name in names(found) if name.startswith("team/")]
    assert len(by_key) <= most
    assert found.left_out == len(names(whole)) - 3 - len(by_key)
    assert (others("team") in names(found)) == bool(found.left_out)
    sizes: dict[str, Counter[str]] = {}
    used: Counter[str] = Counter()
    for (namespace, team), cpu, run in pods:
        used[team] += cpu if run else 0
        sizes.setdefault(namespace, Counter())[team] += 0
    for namespace, teams in sizes.items():
        theirs = [team for team in teams if f"team/{team}" in names(whole)]
        if theirs and most >= len(sizes):
            largest = max(used[team] for team in theirs)
            assert any(used[team] == largest and f"team/{team}" in by_key for team in theirs), namespace


def test_units_of_queues_that_are_left_out_are_shown_together() -> None:
    scene = Scene()
    for team in "abc":
        scene.pods("n", [team] * (2 if team == "a" else 1))
    units = {f"team/{team}": UnitCounts(Counter(cpu=1), Counter(cpu=2, memory=1)) for team in "abc"}
    found = scene.shown(most=1, units={**units, "gone": UnitCounts(Counter(cpu=9))})
    assert found.units == {
        "team/a": units["team/a"],
        others("team"): UnitCounts(Counter(cpu=2), Counter(cpu=4, memory=2)),
    }


def test_a_scrape_counts_the_units_of_the_queues_in_force() -> None:
    scene = Scene()
    scene.pods("n", ["a"] * 3, cpu="1")  # one of them is guaranteed in team/a, two in all
    rules = [scene.stage.policy_set.queues]
    census = PendingCensus(SchedulingQueue(), scene.cluster, rules=lambda: rules[0], clock=lambda: 100.0)
    for _ in census.steps():
        pass
    assert census.queues.units["team/a"] == UnitCounts(Counter(cpu=1), Counter(cpu=2))
    assert census.queues.units["all"] == UnitCounts(Counter(cpu=2), Counter(cpu=1))
    rules[0] = policies("queue other\nfilter fits(cpu)\n").queues  # not those by which pods are counted
    for _ in census.steps():
        pass
    assert census.queues.units == {}
