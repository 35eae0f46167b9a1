"""A function of an installed package in a running scheduler: its faults concern the pods of its policy only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube_policy_scheduler.lang.model_card import CARD_KEY, InputCard, ModelCard, OutcomeCard, encode_card
from tests.extensions.onnx_bytes import field
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod

FOLDER = Path(__file__).parents[1] / "fakes" / "extension"
DAEMON = ("-m", "kube_policy_scheduler.daemon")


def test_a_fault_of_a_package_stops_nothing_else(cluster: Cluster, scheduler: StartScheduler, tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "default.policy").write_text("filter licensed(node.name)\n")
    (folder / "odd.policy").write_text(
        "for pods where pod label odd\npriority 1\nscore broken(node.used_fraction.cpu)\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\npolicies: {extensions: [example]}\n"
    )
    cluster.add_nodes(node("lic-1"), node("other"))
    path = os.pathsep.join((str(FOLDER), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
    arguments = (f"--config={config}", f"--policies={folder}")
    process = scheduler(*arguments, environment={"PYTHONPATH": path}, command=DAEMON).start_ready()
    cluster.add_pods(pod("odd", labels={"odd": "yes"}), pod("plain"))

    assert cluster.wait_bound("plain") == {"plain": "lic-1"}
    eventually(lambda: "function `broken` of extension example failed" in process.log(), else_=process.log)
    assert not cluster.pod("odd")["spec"].get("nodeName")


def test_a_trained_model_scores_nodes(cluster: Cluster, scheduler: StartScheduler, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "rules"
    folder.mkdir()
    linear = (Path(__file__).parents[1] / "extensions" / "models" / "linear.onnx").read_bytes()
    inputs = ("if label tier=good then 5 else 0", "if label tier=bad then 1 else 0")
    card = ModelCard(
        tuple(InputCard(name, low=0.0, high=5.0, edges=(), shares=(1.0,)) for name in inputs),
        outcome=OutcomeCard("node_load1", after_seconds=600.0, mean_absolute_error=0.25),
    )
    (folder / "linear.onnx").write_bytes(linear + field(14, field(1, CARD_KEY) + field(2, encode_card(card))))
    (folder / "default.policy").write_text(f'score model("linear.onnx", {inputs[0]}, {inputs[1]})\n')
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\npolicies: {extensions: [onnx]}\n"
    )
    cluster.add_nodes(node("a", labels={"tier": "bad"}), node("b"), node("c", labels={"tier": "good"}), node("d"))
    process = scheduler(
        f"--config={config}",
        f"--policies={folder}",
        environment={"POLICY_SCHEDULER_MODELS": str(folder)},
    ).start_ready()
    assert process.policies()["accepted"], process.log()
    cluster.add_pods(pod("one"))
    assert cluster.wait_bound("one") == {"one": "c"}
    trained = 'policy_scheduler_model_trained_error{model="linear.onnx",policy="default"} 0.25'
    eventually(lambda: trained in process.get("/metrics")[1], else_=process.log)
