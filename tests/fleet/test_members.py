"""The nodes and pods of clusters that are read themselves, in policies of workloads."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import Fleet, ToldMember
from kube_policy_scheduler.policy.members import ReadMember
from kube_policy_scheduler.tooling.text_table import Terminal
from kube_policy_scheduler.tooling.why.workloads import explain_workload, lines
from kube_policy_scheduler.tooling.workload_record import recorded_clusters
from tests.fleet.fleets import NOW, THREE, policies, workload

REQUESTS = objects.ResourceRequirements(requests={"cpu": "1"})


def member(nodes: Mapping[str, int], pods: Mapping[str, str] | None = None) -> ReadMember:
    """Return a cluster with nodes of so many cores, and with pods of one core and an app on nodes."""
    cluster = Cluster()
    for name, cores in nodes.items():
        cluster.set_node(
            objects.Node(
                metadata=objects.ObjectMeta(name=name, labels={"disk": "ssd" if cores > 8 else "hdd"}),
                status=objects.NodeStatus(allocatable={"cpu": str(cores), "pods": "110"}),
            )
        )
    for app, node in (pods or {}).items():
        pod = objects.Pod(
            metadata=objects.ObjectMeta(name=app, namespace="shop", uid=app, labels={"app": app}),
            spec=objects.PodSpec(containers=[objects.Container(resources=REQUESTS)], node_name=node),
        )
        cluster.place(cluster.templates.pod(pod), node)
    return ReadMember(cluster)


A, B, C = THREE.clusters
READ = Fleet(
    (
        replace(A, member=member({"n1": 16, "n2": 4}, {"db": "n1"})),
        replace(B, member=member({"n1": 16, "n2": 16, "n3": 16})),
        C,
    )
)
SCORES: dict[str, dict[str, float]] = {
    "count(n in cluster.nodes) ?? -1": {"a": 2, "b": 3, "c": -1},
    "count(n in cluster.nodes where n.allocatable.cpu > large) ?? -1": {"a": 1, "b": 3, "c": -1},
    'count(n in cluster.nodes where n.label.disk == "ssd") ?? -1': {"a": 1, "b": 3, "c": -1},
    "sum(n.free.cpu for n in cluster.nodes) ?? -1": {"a": 19, "b": 48, "c": -1},
    "max(n.free.cpu for n in cluster.nodes where n.allocatable.cpu < large) ?? -1": {"a": 4, "b": -1, "c": -1},
    'count(p in cluster.pods where p.label.app == "db") ?? -1': {"a": 1, "b": 0, "c": -1},
    "sum(p.request.cpu for p in cluster.pods) ?? -1": {"a": 1, "b": 0, "c": -1},
    'if any(p in cluster.pods where p.label.app == "db") ?? true then 1 else 0': {"a": 1, "b": 0, "c": 1},
    "2 * (nodes ?? 5) + cluster.has": {"a": 4, "b": 6, "c": 10},
}


@pytest.mark.parametrize("text", SCORES)
def test_what_is_read_of_members_has_a_value_and_else_none(text: str) -> None:
    names = "let large = 8\nlet nodes = count(n in cluster.nodes)\nscore 0 * large * (nodes ?? 0)"
    found = policies(f"{names}\nscore {text}\ndivide best first").decide(workload(3), READ, Given(NOW))

    assert {name: each.score for name, each in found.verdicts.items()} == SCORES[text]


def test_a_filter_without_a_value_rejects() -> None:
    outcome = policies("filter count(n in cluster.nodes) ?? 0 >= 3 as large\ndivide evenly").decide(
        workload(3), READ, Given(NOW)
    )

    assert outcome.targets == {"b": 3}
    assert {outcome.verdicts[name].rejected_by for name in "ac"} == {"large"}


def test_an_explanation_says_how_old_what_was_read_is_and_what_is_not_read() -> None:
    found = policies("score count(n in cluster.nodes) ?? 0\ndivide evenly")
    (asked,) = found.member_values
    told = {"a": ToldMember({asked: 2}, NOW - 40), "b": ToldMember({}, None, "401 Unauthorized: no")}
    fleet = Fleet((replace(A, member=told["a"]), replace(B, member=told["b"]), C))
    why = explain_workload(workload(3), fleet, found, Given(NOW))
    assert list(lines(why, to=Terminal()))[-3:] == [
        "Nodes and pods were read of a 40 s ago.",
        "Nodes and pods are not known of b: 401 Unauthorized: no",
        "Nodes and pods are not known of c: nobody reads them",
    ]
    other = explain_workload(workload(3), fleet, policies("divide evenly"), Given(NOW))
    assert not any("Nodes and pods" in line for line in lines(other, to=Terminal()))
    recorded = recorded_clusters(why.outcome, {})
    assert {each.cluster: (each.read_at, each.unread) for each in recorded} == {
        "a": (NOW - 40, ""), "b": (None, "401 Unauthorized: no"), "c": (None, "nobody reads them"),
    }  # fmt: skip


def test_a_member_that_changes_is_seen_at_once() -> None:
    read = member({"n1": 16})
    fleet = Fleet((replace(A, member=read), B, C))
    found = policies("filter count(n in cluster.nodes) ?? 0 >= 2\ndivide evenly")
    assert not found.decide(workload(3), fleet, Given(NOW)).write
    read.cluster.set_node(
        objects.Node(
            metadata=objects.ObjectMeta(name="n2"),
            status=objects.NodeStatus(allocatable={"cpu": "8", "pods": "110"}),
        )
    )
    assert found.decide(workload(3), fleet, Given(NOW)).targets == {"a": 3}
