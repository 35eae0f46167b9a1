"""What the doctor finds about trained models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES
from kube_policy_scheduler.lang.model_card import InputCard, ModelCard, OutcomeCard
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.doctor.findings import Inspection, Status
from tests.daemon.deciding_stage import reading
from tests.fakes.trained_model import CARDS, names_with_model
from tests.tooling.doctor.test_findings import NOW, found, nodes, pod

POLICY = """\
metric load = promql("node_load1")
score model("load.onnx", load, node.used_fraction.cpu)
"""
LOAD = InputCard("load", low=0.0, high=1.0, edges=(), shares=(1.0,))
USED = InputCard("node.used_fraction.cpu", low=0.0, high=0.5, edges=(), shares=(1.0,))
SUBJECT = "load.onnx of policy web"


@pytest.fixture(autouse=True)
def _cards() -> Iterator[None]:
    CARDS.clear()
    yield
    CARDS.clear()


def models(
    text: str = POLICY, *, loads: dict[str, float] | None = None, things: tuple[Any, ...] | None = None
) -> list[tuple[str, Status, str, str]]:
    loaded = load([Source("web.policy", text)], names_with_model())
    assert loaded.policy_set is not None, loaded.diagnostics
    loads = {f"n{number}": number / 10 for number in range(6)} if loads is None else loads
    signals = Signals({"node_load1": reading("node_load1", loads, at=NOW)})
    state = cluster_state([*nodes(), pod()] if things is None else things, DEFAULT_RULES)
    made = Inspection(state, loaded.policy_set, NOW, signals, counted=environment().pods)
    return found(made, "models")


def test_a_model_within_its_training_is_well() -> None:
    CARDS["load.onnx"] = ModelCard((LOAD, USED), rows=1200, outcome=OutcomeCard("node_load1", 600.0, 0.1))
    assert models() == [(SUBJECT, Status.OK, "2 inputs within what it was trained on, on 1,200 decisions", "")]


def test_values_outside_of_the_training_are_counted() -> None:
    CARDS["load.onnx"] = ModelCard((LOAD, USED))
    assert models(loads={f"n{number}": 0.9 + number / 10 for number in range(6)}) == [
        (
            SUBJECT,
            Status.WARNING,
            "input `load`: 4 of 6 values on nodes are outside of its training, 0 to 1; they are 0.9 to 1.4",
            "train the model on newer data",
        )
    ]
    assert models(loads={})[0][2] == "input `load` has no value on any node"


@pytest.mark.parametrize(
    ("card", "status", "said"),
    [
        (None, Status.UNCHECKED, "the file has no card: drift and errors are not watched"),
        (
            ModelCard((USED, LOAD)),
            Status.PROBLEM,
            "it was trained on node.used_fraction.cpu, load; the policy gives load, node.used_fraction.cpu",
        ),
        (
            ModelCard((LOAD, USED), outcome=OutcomeCard("node_load5", 600.0, 0.1)),
            Status.WARNING,
            "the policy does not read its outcome, `node_load5`: errors of predictions are not watched",
        ),
    ],
)
def test_a_model_that_cannot_be_watched_says_why(card: ModelCard | None, status: Status, said: str) -> None:
    if card is not None:
        CARDS["load.onnx"] = card
    first = models()[0]
    assert first[:3] == (SUBJECT, status, said)
    assert first[3], "with what to do"


def test_without_pods_or_with_inputs_that_compare_nodes_nothing_is_known() -> None:
    CARDS["load.onnx"] = ModelCard((LOAD, USED))
    assert models(things=tuple(nodes())) == [(SUBJECT, Status.UNCHECKED, "its inputs: the policy governs no pods", "")]
    ((_, status, text, _),) = models('score model("load.onnx", normalize(node.free.cpu))\n')
    assert status is Status.UNCHECKED
    assert "compares all nodes that pass the filters" in text
