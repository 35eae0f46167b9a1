"""Laws of the columns: after any events, all rows together equal row by row and a recount."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_filters, kubernetes_profile, kubernetes_scores
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate, score
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Ready
from kube_policy_scheduler.framework.plugins.node_ports import NodePorts
from kube_policy_scheduler.framework.preempt.preemption import DefaultPreemption, Preemption, RejectedPod
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.kubernetes_rules import NEWEST, OLDEST, KubernetesRules, KubernetesVersion
from kube_policy_scheduler.tooling.conformance import verdict
from tests.framework.worlds import EVENTS, PODS, WIDE, WIDE_EVENTS, Event, World, incoming

VARIANTS = st.integers(0, len(PODS) - 1)
NOW = 2e9


def world_after(events: Sequence[Event]) -> World:
    rules = KubernetesRules(KubernetesVersion(NEWEST if len(events) % 2 else OLDEST))
    world = World(cluster=Cluster(rules))
    for event in events:
        world.happen(event)
    return world


def columns(cluster: Cluster) -> dict[str, Any]:
    """Return everything countable, as plain values."""
    nodes = cluster.nodes
    return {
        "names": list(nodes.names),
        "cpu": nodes.requested("cpu").tolist(),
        "gpu": nodes.requested("example.com/gpu").tolist(),
        "nonzero": [nodes.nonzero_cpu.tolist(), nodes.nonzero_memory.tolist()],
        "count": nodes.pod_count.tolist(),
        "held": [cluster.held_from(p, r).tolist() for p in (-1, 0, 5, 99) for r in ("cpu", "memory", "pods")],
        "resources": nodes.resources(),
        "placed": {name: set(pods) for name, pods in cluster.on_node.items()},
        "nominated": {name: set(pods) for name, pods in cluster.nominated.items()},
    }


def decided(cluster: Cluster, variant: int, profile: Profile) -> dict[str, Any]:
    frame = Frame(incoming(cluster, variant), cluster, NOW)
    evaluation = evaluate(frame, profile)
    found: Preemption | None = None
    if not len(evaluation.feasible):
        rejection = RejectedPod(frame, profile, evaluation.pre_filtered, evaluation.diagnosis)
        found = now(DefaultPreemption().post_filter(rejection))
    return verdict(frame, evaluation, found)


@given(EVENTS, VARIANTS)
def test_all_rows_at_once_are_filtered_as_each_row_alone(events: list[Event], variant: int) -> None:
    cluster = world_after(events).cluster
    frame = Frame(incoming(cluster, variant), cluster, NOW)
    for plugin in kubernetes_filters():
        prepared = plugin.pre_filter(frame)
        if not isinstance(prepared, Ready):
            continue
        passing = plugin.filter(frame, prepared.state)
        rejected = np.zeros(cluster.nodes.size, np.bool_)
        for rejection in plugin.rejections(frame, prepared.state):
            rejected |= rejection.where
        alone = [plugin.filter(frame.at(np.array([row])), prepared.state)[0] for row in range(cluster.nodes.size)]

        assert passing.tolist() == alone, plugin.name
        assert passing.tolist() == (~rejected).tolist(), plugin.name


@given(EVENTS, VARIANTS)
def test_all_rows_at_once_are_scored_as_each_row_alone(events: list[Event], variant: int) -> None:
    cluster = world_after(events).cluster
    rows = np.arange(cluster.nodes.size)
    frame = Frame(incoming(cluster, variant), cluster, NOW, rows)
    for weighted in kubernetes_scores():
        plugin = weighted.plugin
        prepared = plugin.pre_score(frame)
        if not isinstance(prepared, Ready):
            continue
        if plugin.name in ("PodTopologySpread", "InterPodAffinity"):
            continue  # their state is made for the very rows of the frame
        scores = plugin.score(frame, prepared.state)

        assert scores.tolist() == [plugin.score(frame.at(rows[i : i + 1]), prepared.state)[0] for i in rows]


@given(EVENTS, VARIANTS)
def test_plugins_that_are_not_asked_about_a_template_have_nothing_to_do(events: list[Event], variant: int) -> None:
    cluster = world_after(events).cluster
    frame = Frame(incoming(cluster, variant), cluster, NOW)
    assert not frame.pod.volumes
    for plugin in kubernetes_filters():
        if not plugin.may_filter(frame.template):
            assert plugin.pre_filter(frame) is SKIP, plugin.name
    for weighted in kubernetes_scores():
        if not weighted.plugin.may_score(frame.template):
            prepared = weighted.plugin.pre_score(frame)
            assert prepared is SKIP or not prepared.adds, weighted.plugin.name


@given(EVENTS, VARIANTS)
def test_plugins_that_are_not_asked_about_volumes_have_nothing_to_do(events: list[Event], variant: int) -> None:
    cluster, profile = world_after(events).cluster, kubernetes_profile()
    pod = incoming(cluster, variant)
    pod.volumes = (msgspec.convert({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, objects.Volume),)
    _, asked = profile.live_filters_of(pod.template)
    for plugin in kubernetes_filters():
        if plugin.scope.is_live and plugin.name not in {each.name for each in asked}:
            assert plugin.pre_filter(Frame(pod, cluster, NOW)) is SKIP, plugin.name
    assert {"VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"} <= {each.name for each in asked}


@given(EVENTS, VARIANTS)
def test_a_cluster_kept_by_events_decides_as_one_built_at_once(events: list[Event], variant: int) -> None:
    world = world_after(events)
    built = world.rebuilt()
    profile = kubernetes_profile()

    assert columns(world.cluster) == columns(built)
    assert decided(world.cluster, variant, profile) == decided(built, variant, profile)


@given(WIDE, WIDE_EVENTS, VARIANTS)
def test_nodes_come_and_go_anywhere_among_many(size: int, events: list[Event], variant: int) -> None:
    world = World(size)
    for number in range(size):
        world.happen(("node", number, number))
    for event in events:
        world.happen(event)
    built = world.rebuilt()

    assert columns(world.cluster) == columns(built)
    assert decided(world.cluster, variant, kubernetes_profile()) == decided(built, variant, kubernetes_profile())


@given(EVENTS, VARIANTS)
def test_rehearsals_leave_no_trace(events: list[Event], variant: int) -> None:
    cluster = world_after(events).cluster
    profile = kubernetes_profile()
    before = columns(cluster)
    first = decided(cluster, variant, profile)

    assert columns(cluster) == before
    assert decided(cluster, variant, profile) == first


class Silent(NodePorts):
    """A rule with nothing to say, but one that pods might change: preemption must rehearse instead of calculating."""

    name = "Silent"

    def pre_filter(self, frame: Frame) -> Ready:
        return Ready(())


@given(EVENTS, VARIANTS)
def test_preemption_by_arithmetic_is_preemption_by_rehearsal(events: list[Event], variant: int) -> None:
    cluster = world_after(events).cluster
    plain = kubernetes_profile()
    rehearsed = Profile("rehearsed", (*plain.filters, Silent()), plain.scores)

    assert decided(cluster, variant, plain)["preemption"] == decided(cluster, variant, rehearsed)["preemption"]


def test_a_failure_within_a_rehearsal_leaves_no_trace() -> None:
    world = World()
    for event in (("node", 1, 0), ("pod", 1, 1), ("pod", 2, 0), ("nominate", 3, 1)):
        world.happen(event)

    class Broken(Silent):
        """A rule that breaks when pods are moved."""

        def filter(self, frame: Frame, state: Any) -> Any:
            if frame.cluster.dry_run_changes:
                raise RuntimeError("broken")
            return super().filter(frame, state)

    before = columns(world.cluster)
    plain = kubernetes_profile()
    with pytest.raises(RuntimeError, match="broken"):
        decided(world.cluster, 11, Profile("broken", (*plain.filters, Broken()), plain.scores))

    assert columns(world.cluster) == before
    assert not world.cluster.dry_run_changes


@given(EVENTS, st.lists(VARIANTS, min_size=1, max_size=3))
def test_what_the_cycle_keeps_between_decisions_stays_true(events: list[Event], variants: list[int]) -> None:
    world, cycle, profile = World(), Cycle(seed=1), kubernetes_profile()
    for event in events:
        world.happen(event)
        for variant in variants:
            frame = Frame(incoming(world.cluster, variant), world.cluster, NOW)
            if not world.cluster.nodes.size:
                continue
            decision, plain = cycle.decide(frame, profile), evaluate(frame, profile)
            names = [world.cluster.nodes.names[row] for row in plain.feasible]

            assert decision.feasible == len(names)
            if decision.host is None:
                assert not names
                rejection = RejectedPod(frame, profile, plain.pre_filtered, plain.diagnosis)
                found = now(DefaultPreemption(seed=1).post_filter(rejection))
                assert decision.message == plain.diagnosis.message(found.message)
            elif decision.score is not None:
                assert decision.score == plain.totals.max() == plain.totals[names.index(decision.host)]


@given(EVENTS, VARIANTS, st.data())
def test_totals_of_all_nodes_and_of_some_are_those_of_an_evaluation(
    events: list[Event], variant: int, data: st.DataObject
) -> None:
    """Scores are normalized over the nodes that are asked for: all that are feasible, or those that a caller has."""
    world, cycle, profile = world_after(events), Cycle(seed=1), kubernetes_profile()
    pod = incoming(world.cluster, variant)
    frame = Frame(pod, world.cluster, 0.0)
    plain = evaluate(Frame(pod, world.cluster, 0.0), profile)

    rows, totals = cycle.ranked(frame, profile)
    assert rows.tolist() == plain.feasible.tolist()
    assert totals.tolist() == plain.totals.tolist()

    if len(rows):
        some = np.array(data.draw(st.lists(st.sampled_from(rows.tolist()), unique=True, min_size=1).map(sorted)))
        among = score(Frame(pod, world.cluster, 0.0), profile, some)
        expected = msgspec.structs.replace(plain, feasible=some, scores=among).totals
        assert cycle.totals(frame, profile, some).tolist() == expected.tolist()
