"""What models get and predict, as metrics: drift of the inputs, errors of the predictions."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.observing import model_watch
from kube_policy_scheduler.daemon.observing.model_watch import LATE_SECONDS, MOST_PENDING, ModelWatch
from kube_policy_scheduler.lang.model_card import ModelCard, OutcomeCard, input_card
from kube_policy_scheduler.policy.policy_set import PolicySet, load
from tests.daemon.deciding_stage import Stage, reading
from tests.daemon.test_metrics import exported
from tests.fakes.trained_model import CARDS, names_with_model
from tests.lang.texts import sources

POLICY = """\
# in web.policy
metric load = promql("node_load1")
score 10 - model("load.onnx", load, node.used_fraction.cpu)
"""
LOADS = np.linspace(0.0, 1.0, 1000)
INPUTS = (input_card("load", LOADS), input_card("node.used_fraction.cpu", LOADS))
AFTER = 600.0
CARD = ModelCard(INPUTS, rows=1000, outcome=OutcomeCard("node_load1", AFTER, mean_absolute_error=0.1))
DRIFT = "policy_scheduler_model_input_drift{{input={},model=load.onnx,policy=web}}"
ERRORS = "policy_scheduler_model_prediction_error_{}{{model=load.onnx,policy=web}}"
TRAINED = "policy_scheduler_model_trained_error{model=load.onnx,policy=web}"


@pytest.fixture(autouse=True)
def _cards() -> Iterator[None]:
    CARDS.clear()
    CARDS["load.onnx"] = CARD
    yield
    CARDS.clear()


def loaded(text: str) -> PolicySet:
    found = load(sources(text), names_with_model())
    assert found.policy_set is not None, found.diagnostics
    return found.policy_set


class Scene:
    """Pods are decided one after the other, and the models of the policies are watched."""

    def __init__(self, text: str = POLICY) -> None:
        self.stage = Stage(loaded(text), nodes=16, cpus=100)
        self.registry = CollectorRegistry()
        self.watch = ModelWatch(self.registry, pods=environment().pods, stopwatch=lambda: self.stage.now)
        self.watch.use_policies(self.stage.policy_set)

    def decide(self, *, load: float = 0.5, after: float = 1.0) -> None:
        """Decide a pod some seconds later, with that load on all nodes."""
        stage = self.stage
        stage.now += after
        values = {f"n{number}": load for number in range(stage.nodes)}
        stage.signals = Signals({"node_load1": reading("node_load1", values, at=stage.now)})
        stage.decide(stage.pod(cpu="1m"), self.watch)

    def samples(self) -> dict[str, float]:
        return exported(self.registry)

    def day(self, low: float, high: float) -> None:
        for value in np.random.default_rng(0).uniform(low, high, 502).tolist():
            self.decide(load=value, after=86_400 / 500)


def test_inputs_unlike_those_of_the_training_drift() -> None:
    found = {}
    for name, low, high in (("same", 0.0, 1.0), ("other", 0.7, 1.3)):
        scene = Scene()
        assert DRIFT.format("load") not in scene.samples(), "not before a day has passed"
        scene.day(low, high)
        found[name] = scene.samples()[DRIFT.format("load")]
        assert scene.samples()[DRIFT.format("node.used_fraction.cpu")] > 0.25, "the nodes are nearly empty"
    assert found["same"] < 0.1
    assert found["other"] > 0.25


def test_a_prediction_is_held_against_the_outcome() -> None:
    scene = Scene()
    scene.decide(load=0.6)
    assert ERRORS.format("count") not in scene.samples()
    scene.decide(load=0.9, after=AFTER)
    found = scene.samples()
    assert found[ERRORS.format("count")] == 1
    # the mean of the load, 0.6, and of what is used of the CPU, about nothing
    assert found[ERRORS.format("sum")] == pytest.approx(0.9 - 0.3, abs=1e-3)
    assert found[TRAINED] == 0.1


@pytest.mark.parametrize(
    "text",
    [
        "score 10 - model('load.onnx', promql('node_load5'), node.used_fraction.cpu)",
        "score 10 - model('load.onnx', promql('node_load1') ?? 0, node.used_fraction.cpu)",
    ],
)
def test_without_the_metric_or_with_other_inputs_nothing_is_known(text: str, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(f"# in web.policy\n{text}\n".replace("'", '"'))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            scene.decide(after=AFTER)
    assert not [name for name in scene.samples() if "_sum" in name or "drift" in name]
    (said,) = [each for each in caplog.records if each.getMessage() == "a model is not watched"]
    assert "it was trained on load, node.used_fraction.cpu; the policy gives promql(" in said.__dict__["why"]


def test_an_outcome_that_comes_late_or_is_older_than_the_decision_is_not_known() -> None:
    scene = Scene()
    scene.decide()
    scene.decide(after=AFTER + LATE_SECONDS + 1)
    assert ERRORS.format("count") not in scene.samples()
    kept = scene.stage.signals
    scene.stage.now += AFTER
    scene.stage.signals = kept
    scene.stage.decide(scene.stage.pod(cpu="1m"), scene.watch)
    assert ERRORS.format("count") not in scene.samples()


def test_one_decision_a_second_is_looked_at_and_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, looks = Scene(), []
    look = model_watch._Watched.look
    monkeypatch.setattr(model_watch._Watched, "look", lambda *given: looks.append(given) or look(*given))
    for _ in range(40):
        scene.decide(after=0.25)
    assert len(looks) == 10
    outcome = OutcomeCard("node_load1", 30 * 86_400.0, mean_absolute_error=0.1)
    CARDS["load.onnx"] = ModelCard(INPUTS, outcome=outcome)
    scene.decide(after=1)
    looks.clear()
    for _ in range(20):
        scene.decide(after=0.25 * 30 * 86_400 / MOST_PENDING)
    assert len(looks) == 5, "as many as can wait for their outcome"


def test_a_model_that_is_trained_again_begins_again() -> None:
    scene = Scene()
    scene.day(0.7, 1.3)
    assert DRIFT.format("load") in scene.samples()
    scene.watch.use_policies(loaded(POLICY))
    assert DRIFT.format("load") in scene.samples(), "new policies with the same call change nothing"
    CARDS["load.onnx"] = ModelCard(INPUTS)
    scene.decide()
    found = scene.samples()
    assert DRIFT.format("load") not in found
    assert TRAINED not in found
    del CARDS["load.onnx"]
    scene.decide()
    assert DRIFT.format("load") not in scene.samples()


def test_policies_without_the_model_export_nothing_of_it() -> None:
    scene = Scene()
    scene.day(0.7, 1.3)
    scene.decide(after=AFTER)
    scene.watch.use_policies(loaded("# in web.policy\nfilter true\n"))
    assert scene.samples() == {}


def test_very_many_inputs_are_not_watched(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(model_watch, "MOST_INPUTS", 1)
    scene = Scene()
    assert "models with more than 1 inputs in all: this one is not watched" in caplog.text
    scene.decide()
    assert scene.samples() == {}
