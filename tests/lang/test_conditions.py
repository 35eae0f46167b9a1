"""Conditions of nodes as truth values, and as the three words that they are."""

from __future__ import annotations

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.framework.frame import Frame
from tests.lang.clusters import NOW, cluster, decide, feasible, pod, policy, scores
from tests.lang.texts import codes, said


def _node(name: str, status: str | None) -> objects.Node:
    conditions = [{"type": "Healthy", "status": status}] if status is not None else []
    body = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "pods": "9"}, "conditions": conditions}}
    return msgspec.convert(body, objects.Node)


STATUSES = {"t": "True", "f": "False", "u": "Unknown", "a": None}
"""By the name of a node; `a` has no such condition."""


@pytest.mark.parametrize(
    ("condition", "passing"),
    [
        ("node.conditions.Healthy", "t"),
        ("not node.conditions.Healthy", "fua"),
        ("node.conditions.Healthy and true", "t"),
        ("(if node.conditions.Healthy then 1 else 0) == 1", "t"),
        ("node.conditions.Healthy ?? true", "ta"),
        ("node.conditions.Healthy ?? false", "t"),
        ('node.conditions.Healthy ?? "True"', "ta"),
        ('node.conditions.Healthy ?? "True" == "True"', "ta"),
        ("node.conditions.Healthy == true", "t"),
        ("node.conditions.Healthy != true", "fua"),
        ("node.conditions.Healthy == false", "f"),
        ("node.conditions.Healthy == (node.name != node.zone)", "t"),
        ('node.conditions.Healthy == "True"', "t"),
        ('node.conditions.Healthy != "True"', "fua"),
        ('node.conditions.Healthy == "False"', "f"),
        ('node.conditions.Healthy == "Unknown"', "u"),
        ('node.conditions.Healthy in ["True", "Unknown"]', "tu"),
        ('node.conditions.Healthy not in ["Unknown"]', "tfa"),
        ("node.conditions.Healthy is missing", "a"),
        ("node.conditions.Healthy is not missing", "tfu"),
        ("(if node.name == node.name then node.conditions.Healthy else false)", "t"),
    ],
)
def test_a_condition_is_a_truth_and_its_status_is_a_text(condition: str, passing: str) -> None:
    nodes = cluster(*(_node(name, status) for name, status in STATUSES.items()))
    result = decide(policy(f"filter {condition}"), pod(nodes, "p", cpu="1m", requests={"memory": "0"}), nodes)

    assert "".join(sorted(feasible(result, nodes), key="tfua".index)) == passing


def test_a_condition_counts_in_scores_and_holds() -> None:
    nodes = cluster(*(_node(name, status) for name, status in STATUSES.items()))
    waiting = pod(nodes, "p", cpu="1m", requests={"memory": "0"})
    rules = policy("score if node.conditions.Healthy then 5 else 1 as health")

    assert scores(decide(rules, waiting, nodes), nodes, "health") == {"t": 5, "f": 1, "u": 1, "a": 1}
    assert Frame(waiting, nodes, NOW).size == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("filter node.conditions.Ready", []),
        ("filter not node.conditions.MemoryPressure", []),
        ('filter node.conditions.Ready and node.conditions.Ready == "False"', ["P0301"]),
        ('filter node.conditions.Ready\nfilter node.conditions.Ready == "True"', ["P0303"]),
        ('filter node.conditions.Ready == "true"', ["P0311"]),
        ("filter node.conditions.Ready == 1", ["P0104"]),
        ("score node.conditions.Ready", ["P0104"]),
        ('let qos = pod.qos\nfilter label a=b if qos == "Gold"', ["P0311"]),
        ('let class = "gold"\nfilter label a=b if pod.qos == class', ["P0311"]),
        ('filter label a=b if pod.qos in ["Guaranteed", "burstable"]', ["P0311"]),
        ("filter label kubernetes.io/os=Windows", ["P0311"]),
        ('filter node.label["kubernetes.io/arch"] == "x86"', ["P0311"]),
        ('filter node.os == "linux" and node.arch != "arm64"', []),
        ('filter (if label a then node.os else "none") == "nothing"', ["P0311"]),
        ('filter (if label a then node.os else "none") == "none"', []),
        ('for pods where pod.qos == "besteffort"\nfilter node.ready', ["P0311"]),
        ("for pods where pod.label.x\nfilter node.ready", ["P0312"]),
        ("filter node.zone", []),
        ("filter label a and not label b\nrequire pod label c", []),
        ("filter node.label.a is not missing", []),
    ],
)
def test_texts_that_decide_nothing_or_something_else_are_findings(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_an_error_in_a_definition_is_reported_once_for_two_uses() -> None:
    text = 'let gold = pod.qos == "gold"\nscore 1 if gold and label a=b\nscore 2 if gold and label a=c'

    (found,) = said(text)
    assert (found.code, found.span.text, found.help) == (
        "P0311",
        '"gold"',
        'it is one of "BestEffort", "Burstable", "Guaranteed"',
    )
