"""What plugins say that they read: a law that records what they do read, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.framework.default_profile import kubernetes_filters, kubernetes_scores
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Reads, Ready, Scope, ScorePlugin, scope_of
from kube_policy_scheduler.framework.plugins.base import Filter
from tests.framework.worlds import EVENTS, PODS, Event, World, incoming
from tests.simulation.chaos import policies_of

NOW = 2e9


class Recorded:
    """Stands for an object, and notes what is read of it."""

    def __init__(self, real: Any, recorder: Recorder, kind: str) -> None:
        self.__dict__.update(_real=real, _recorder=recorder, _kind=kind)

    def __getattr__(self, name: str) -> Any:
        found, recorder = getattr(self._real, name), self._recorder
        recorder.found |= FACTS[self._kind].get(name, Reads.NOTHING)
        within = WITHIN.get((self._kind, name))
        if within is None or found is None:
            return found
        if isinstance(found, list | tuple):
            return [Recorded(each, recorder, within) for each in found]
        return Recorded(found, recorder, within)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)

    def __hash__(self) -> int:
        return hash(self._real)

    def __eq__(self, other: object) -> bool:
        return bool(self._real == (other._real if isinstance(other, Recorded) else other))


class Recorder:
    """What was read so far."""

    def __init__(self) -> None:
        self.found = Reads.NOTHING

    def frame(self, frame: Frame) -> Frame:
        pod: Any = Recorded(frame.pod, self, "pod")
        cluster: Any = Recorded(frame.cluster, self, "cluster")
        return Frame(pod, cluster, frame.now, frame.rows, frame.signals)


def of(reads: Reads, *names: str) -> dict[str, Reads]:
    return dict.fromkeys(names, reads)


FACTS: Mapping[str, Mapping[str, Reads]] = {
    "pod": {
        **of(Reads.POD, "name", "uid", "node_name", "annotations", "created", "claim_names", "nominated_node"),
        **of(Reads.VOLUMES, "volumes", "local_volumes"),
        **of(Reads.LABELS, "labels", "namespace"),
        **of(Reads.REQUESTS, "demand", "requests"),
    },
    "template": {
        **of(Reads.REQUESTS, "demand", "requests"),
        **of(Reads.LABELS, "labels", "namespace", "controller"),
        **of(Reads.SPEC, "priority", "labels_read"),
    },
    "spec": {
        **of(Reads.REQUESTS, "overhead", "resources"),
        **of(Reads.SPEC, "tolerations", "affinity", "node_selector", "topology_spread_constraints"),
    },
    "container": {**of(Reads.REQUESTS, "resources"), **of(Reads.SPEC, "ports", "image")},
    "cluster": {
        **of(Reads.ELSEWHERE, "counters", "pods", "on_node", "pods_on", "resource_claims", "attached", "disk_users"),
        **of(Reads.PODS, "ports", "devices", "numa"),
    },
    "nodes": {
        **of(Reads.PODS, "requested", "nonzero_cpu", "nonzero_memory", "pod_count", "overflowing", "cpu_and_memory"),
        **of(Reads.PODS, "allocatable"),
        **of(Reads.IMAGES, "images"),
    },
}
"""What it means that an attribute is read, by kind of object."""
WITHIN = {
    ("pod", "template"): "template",
    ("template", "spec"): "spec",
    ("spec", "containers"): "container",
    ("spec", "init_containers"): "container",
    ("cluster", "nodes"): "nodes",
}
CLAUSES = """
filter node.ready and node.label.disk == "ssd"
filter fits(cpu, memory)
filter pod.label.app != "db" or node.zone == "a"
filter pod.priority > 5 or node.free.cpu > 1
filter count(p in node.pods where p.label.app == pod.label.app) < 3
filter count(p in zone.pods) < 50
score least_allocated(cpu, memory)
score normalize(node.free.memory)
score image_locality()
score node.allocatable.cpu - pod.request.cpu
"""


def of_policy() -> list[FilterPlugin | ScorePlugin]:
    profile = policies_of(CLAUSES).policy_set.policies[0].profile
    return [*profile.filters, *(each.plugin for each in profile.scores)]


PLUGINS: list[FilterPlugin | ScorePlugin] = [
    *kubernetes_filters(),
    *(each.plugin for each in kubernetes_scores()),
    *of_policy(),
]


def read_by(plugin: FilterPlugin | ScorePlugin, frame: Frame) -> Reads:
    recorder = Recorder()
    seen = recorder.frame(frame)
    if isinstance(plugin, FilterPlugin):
        found = plugin.pre_filter(seen)
        if isinstance(found, Ready):
            plugin.filter(seen, found.state)
            plugin.rejections(seen, found.state)
    if isinstance(plugin, ScorePlugin):
        scored = plugin.pre_score(seen)
        if isinstance(scored, Ready):
            plugin.normalize(seen, scored.state, plugin.score(seen, scored.state))
    return recorder.found


@given(EVENTS, st.integers(0, len(PODS) - 1))
def test_plugins_read_what_they_declare(events: list[Event], variant: int) -> None:
    world = World()
    for event in events:
        world.happen(event)
    frame = Frame(incoming(world.cluster, variant), world.cluster, NOW)
    for plugin in PLUGINS:
        undeclared = read_by(plugin, frame) & ~plugin.reads
        assert not undeclared, f"{plugin.name} reads {undeclared}"


class _Secretive(Filter):
    name = "Secretive"

    def filter(self, frame: Frame, state: Any) -> Any:
        free = frame.cluster.nodes.pod_count[frame.rows] < 5
        return free if frame.template.labels.get("app") else np.ones(frame.size, np.bool_)


def test_one_that_reads_more_is_found() -> None:
    world = World()
    frame = Frame(incoming(world.cluster, 0), world.cluster, NOW)
    assert read_by(_Secretive(), frame) & ~_Secretive.reads == Reads.PODS | Reads.LABELS


@pytest.mark.parametrize(
    ("reads", "scope", "is_shared", "by_shape"),
    [
        (Reads.NOTHING, Scope.TEMPLATE, True, True),
        (Reads.SPEC, Scope.TEMPLATE, False, True),
        (Reads.REQUESTS | Reads.PODS, Scope.ROW, False, False),
        (Reads.LABELS, Scope.TEMPLATE, False, False),
        (Reads.PODS | Reads.METRICS, Scope.ROW_SIGNAL, True, True),
        (Reads.METRICS, Scope.SIGNAL, True, True),
        (Reads.METRICS | Reads.FEASIBLE, Scope.FEASIBLE, True, True),
        (Reads.PODS | Reads.FEASIBLE, Scope.CLUSTER, True, True),
        (Reads.SPEC | Reads.IMAGES, Scope.TEMPLATE, False, True),
        (Reads.CLOCK, Scope.CLUSTER, False, False),
        (Reads.VOLUMES, Scope.CLUSTER, False, False),
    ],
)
def test_what_is_kept_follows_from_what_is_read(reads: Reads, scope: Scope, is_shared: bool, by_shape: bool) -> None:
    plugin = type("Plugin", (Filter,), {"name": "Plugin", "reads": reads})()

    assert (scope_of(reads), plugin.scope) == (scope, scope)
    assert (plugin.is_shared, plugin.by_shape) == (is_shared, by_shape)
    assert plugin.is_about_volumes is bool(reads & Reads.VOLUMES)
    assert plugin.reads_images is bool(reads & Reads.IMAGES)
