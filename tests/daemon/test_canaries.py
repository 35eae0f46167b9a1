"""Canary metrics: what the stable policy would have done with the same pods."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from prometheus_client import CollectorRegistry

from kube_policy_scheduler.daemon.observing.canaries import Canaries, Comparison, compared
from kube_policy_scheduler.daemon.observing.observers import PodBound
from kube_policy_scheduler.framework.evaluate.extender_verdict import ExtenderVerdict
from kube_policy_scheduler.policy.answer import Answers
from kube_policy_scheduler.policy.policy_set import load
from tests.daemon.deciding_stage import NOW, Stage
from tests.lang.texts import sources

FILES = '# in web.policy\nscore if node.name == "n0" then 100 else 0\n'


class Scene:
    """A stage with a canary of `web`, and what is exported of it."""

    def __init__(self, canary: str, *, stopwatch: Callable[[], float] = lambda: 0.0) -> None:
        loaded = load(sources(f"{FILES}# in next.policy\n{canary}\n"))
        assert loaded.policy_set is not None, loaded.diagnostics
        self.stage = Stage(loaded.policy_set)
        self.registry = CollectorRegistry()
        self.canaries = Canaries(self.registry, ask=Answers(cycle=self.stage.cycle).answer, stopwatch=stopwatch)
        self.canaries.use_policies(loaded.policy_set)

    def decide(self, **pod: str) -> None:
        self.stage.decide(self.stage.pod(**pod), self.canaries)

    def decide_allowed(self, verdict: ExtenderVerdict) -> None:
        self.stage.decide(self.stage.pod(), self.canaries, verdict=verdict)

    def compared(self) -> dict[str, float]:
        """Return the results that were counted."""
        name, labels = "policy_scheduler_canary_comparisons_total", {"canary": "next", "policy": "web"}
        values = {r.value: self.registry.get_sample_value(name, labels | {"result": r.value}) for r in Comparison}
        assert None not in values.values()  # each is there before its first event
        return {result: value for result, value in values.items() if value}


@pytest.mark.parametrize(
    ("canary", "cpu", "expected"),
    [
        ('canary of web for 100%\nscore if node.name == "n1" then 100 else 0', "1", "other_node"),
        ('canary of web for 100%\nscore if node.name == "n0" then 50 else 0', "1", "same_node"),
        ('canary of web for 100%\nfilter node.name == "none" or pod.priority > 5', "1", "stable_only"),
        (
            "canary of web for 100%\nuse kubernetes without NodeResourcesFit\nfilter node.free.pods > 0",
            "64",
            "canary_only",
        ),
        ("canary of web for 100%\nfilter node.free.cpu > 1", "64", "neither"),
    ],
)
def test_the_stable_policy_is_asked_about_the_same_pod(canary: str, cpu: str, expected: str) -> None:
    scene = Scene(canary)

    scene.decide(cpu=cpu)

    assert scene.compared() == {expected: 1}


def test_pods_that_stay_with_the_stable_policy_are_not_compared() -> None:
    scene = Scene('canary of web for pods where pod.label.tier == "gold"\nscore if node.name == "n0" then 9 else 0')

    scene.decide(tier="silver")
    scene.decide(tier="gold")

    assert scene.compared() == {"same_node": 1}


@pytest.mark.parametrize(
    ("passed", "refused", "expected"),
    [
        ({"n0": 0.0, "n1": 0.0}, ["n2", "n3"], {"other_node": 1}),
        ({"n1": 0.0}, ["n0", "n2", "n3"], {"same_node": 1}),
        ({"n0": 0.0, "n1": 200.0}, [], {"same_node": 1}),
        ({}, ["n0", "n1", "n2", "n3"], {"neither": 1}),
        ({"n1": 0.0}, ["n2"], {}),
    ],
)
def test_what_extenders_said_holds_for_the_stable_policy_too(
    passed: dict[str, float], refused: list[str], expected: dict[str, float]
) -> None:
    """The stable policy wants n0. If extenders said nothing about it, nobody knows what it would have got."""
    scene = Scene('canary of web for 100%\nscore if node.name == "n1" then 100 else 0')

    scene.decide_allowed(ExtenderVerdict(passed, dict.fromkeys(refused, "no device")))

    assert scene.compared() == expected


def test_comparing_takes_no_more_time_than_its_share() -> None:
    ticks = count()  # each look at the watch is half a second later
    scene = Scene("canary of web for 100%\nfilter node.free.cpu > 0", stopwatch=lambda: next(ticks) / 2)

    for _ in range(150):
        scene.decide()

    took = next(ticks) / 2
    assert 2 <= sum(scene.compared().values()) * 0.5 <= 0.02 * took + 1


def test_the_share_is_exported_until_the_canary_is_gone() -> None:
    scene = Scene("canary of web for 25%\nfilter node.free.cpu > 0")
    labels = {"canary": "next", "policy": "web"}
    name = "policy_scheduler_canary_share"
    assert scene.registry.get_sample_value(name, labels) == 0.25

    alone = load(sources(FILES)).policy_set
    assert alone is not None
    scene.canaries.use_policies(alone)

    scene.decide()
    assert scene.registry.get_sample_value(name, labels) is None
    compared = "policy_scheduler_canary_comparisons_total"
    assert scene.registry.get_sample_value(compared, labels | {"result": "same_node"}) is None


def test_pods_are_timed_by_the_policy_that_placed_them() -> None:
    scene = Scene('canary of web for pods where pod.label.tier == "gold"\nfilter node.free.cpu > 0')

    for tier, seconds in (("gold", 3.0), ("silver", 1.0), ("silver", 1.0)):
        pod = scene.stage.pod(tier=tier)
        scene.canaries.on_bound(PodBound(pod, "n0", at=NOW + seconds, seconds=0.1, attempts=1, queued=NOW))

    name = "policy_scheduler_pod_scheduling_duration_seconds"
    got = {
        policy: (scene.registry.get_sample_value(f"{name}_count", {"policy": policy}),
                 scene.registry.get_sample_value(f"{name}_sum", {"policy": policy}))
        for policy in ("next", "web")
    }  # fmt: skip
    assert got == {"next": (1, 3.0), "web": (2, 2.0)}


@pytest.mark.parametrize("ours", [None, "a", "b"])
@pytest.mark.parametrize("theirs", [None, "a", "b"])
def test_every_pair_of_decisions_has_its_word(ours: str | None, theirs: str | None) -> None:
    found = compared(canary=ours, stable=theirs)

    assert (found in (Comparison.SAME_NODE, Comparison.NEITHER)) == (ours == theirs)
    assert (found is Comparison.STABLE_ONLY) == (ours is None and theirs is not None)
