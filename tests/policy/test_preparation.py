"""What policies read of all nodes and pods is there before their first decision."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster import nodes
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import ColumnsAsked, NodeTable
from kube_policy_scheduler.cluster.pod_counters import PodCounters
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling import columns, expressions
from kube_policy_scheduler.lang.environment import Field, Key
from kube_policy_scheduler.lang.types import Depends, Shape
from kube_policy_scheduler.policy.preparation import preparing
from tests.lang.clusters import NOW, cluster, decide, node, place, pod, policy

RULES = {
    "labels": 'filter node.label.disk == "ssd" and node.arch == "amd64"',
    "a label of no node": "score if node.label.none is missing then 1 else 2",
    "fields": "filter node.conditions.MemoryPressure is missing\nscore if node.kernel is missing then 1 else 2",
    "annotations": 'score if node.annotation.a == "b" then 1 else 2',
    "texts": 'filter not (lower(node.name) matches "x.*") and split(node.name, "-")[0] != "x"',
    "texts and pods": 'filter not (node.label.disk matches "h.*") or pod.label.app == "web"',
    "scores of texts": 'score if version(node.kernel) >= version("5.10") then 1 else length(node.arch ?? "")',
    "texts of other nodes": 'score count(n in zone.nodes where n.name matches "n[0-2]")',
    "domains": "score 10 - count(p in zone.pods)",
    "sums": "score 100 - 10 * sum(p.request.cpu for p in node.pods)",
    "extremes": "filter (max(p.priority for p in node.pods) ?? 0) < 9",
    "averages": "score avg(p.request.cpu for p in zone.pods) ?? 1",
    "some pods": 'filter count(p in zone.pods where p.label.app == "web") < 9',
    "any": "filter not any(p.priority > 5 for p in node.pods)",
    "all": "filter all(p.priority < 5 for p in node.pods)",
    "kinds": "filter count(distinct p.label.app for p in node.pods) < 9",
    "nodes": 'score count(n in zone.nodes where n.label.disk == "ssd")',
}


def _world() -> Cluster:
    labels = {"disk": "ssd", "kubernetes.io/arch": "amd64"}
    made = cluster(*(node(f"n{number}", zone="ab"[number % 2], labels=labels) for number in range(4)))
    place(made, [(f"n{number % 3}", {"app": "web" if number % 2 else "db"}) for number in range(6)])
    decide(policy("filter node.ready"), pod(made, "first"), made)  # columns that every decision reads
    return made


@pytest.mark.parametrize("name", RULES)
def test_the_first_decision_makes_nothing_of_all_nodes_or_pods(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules, plain, ready = policy(RULES[name]), _world(), _world()
    expected = decide(rules, pod(plain, "next", labels={"app": "web"}), plain)

    monkeypatch.setattr(nodes, "_ROWS_IN_A_STEP", 1)
    monkeypatch.setattr(expressions, "_TEXTS_IN_A_STEP", 1)
    assert list(preparing([rules], ready))
    assert list(preparing([rules], ready)) == []
    for kind, method in ((NodeTable, "_keep"), (PodCounters, "_count")):
        monkeypatch.setattr(kind, method, lambda *_: pytest.fail("made by a decision"))
    make = columns.KeptTable.make
    monkeypatch.setattr(
        columns.KeptTable, "make", lambda *args, **more: make(*args, **more) and pytest.fail("made by a decision")
    )
    found = decide(rules, pod(ready, "next", labels={"app": "web"}), ready)

    assert found.feasible.tolist() == expected.feasible.tolist()
    assert {key: column.tolist() for key, column in found.scores.items()} == {
        key: column.tolist() for key, column in expected.scores.items()
    }


KEYS = {Key.RESOURCE: "cpu", Key.LABEL: "disk", Key.ANNOTATION: "a", Key.CONDITION: "Ready", None: None}
FIELDS = [
    field for field in environment().fields.values() if field.shape is Shape.NODE and field.depends & Depends.NODE
]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.path)
def test_fields_can_be_asked_of_no_nodes(field: Field) -> None:
    nothing = Cluster()
    nothing.nodes = ColumnsAsked()
    key = KEYS[field.key]
    found = field.read(Frame(pod(nothing, "any"), nothing, NOW), *(() if key is None else (key,)))

    assert len(getattr(found, "codes", found)) == 0
