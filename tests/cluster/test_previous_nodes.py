"""Where a pod ran before: which pod replaces which, and how much is remembered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects, previous_nodes
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo


def pod(
    cluster: Cluster, name: str, *, uid: str = "", owner: str = "", namespace: str = "shop", **labels: str
) -> PodInfo:
    kind, _, owner_name = owner.partition("/")
    owners: list[Any] = [{"kind": kind, "name": owner_name, "controller": True, "uid": owner}] if owner else []
    metadata = {"name": name, "namespace": namespace, "uid": uid or name, "labels": labels, "ownerReferences": owners}
    return cluster.templates.pod(msgspec.convert({"metadata": metadata}, objects.Pod))


JOB, OTHER_INDEX = ({"batch.kubernetes.io/job-completion-index": index} for index in "34")


@pytest.mark.parametrize(
    ("gone", "comes", "follows"),
    [
        ({"name": "web-0", "owner": "StatefulSet/web"}, {"name": "web-0", "owner": "StatefulSet/web"}, True),
        ({"name": "web-0", "owner": "StatefulSet/web"}, {"name": "web-1", "owner": "StatefulSet/web"}, False),
        ({"name": "a-x", "owner": "Job/a", **JOB}, {"name": "a-y", "owner": "Job/a", **JOB}, True),
        ({"name": "a-x", "owner": "Job/a", **JOB}, {"name": "a-y", "owner": "Job/a"}, False),
        (
            {"name": "d-1-x", "owner": "ReplicaSet/d-1", "pod-template-hash": "1"},
            {"name": "d-2-y", "owner": "ReplicaSet/d-2", "pod-template-hash": "2"},
            True,
        ),
        ({"name": "a-x", "owner": "Job/a", **JOB}, {"name": "a-y", "owner": "Job/a", **OTHER_INDEX}, False),
        (
            {"name": "d-1-x", "owner": "Job/d-1", "pod-template-hash": "1"},
            {"name": "d-2-y", "owner": "Job/d-2", "pod-template-hash": "2"},
            False,
        ),
        (
            {"name": "x", "owner": "ReplicaSet/d"},
            {"name": "y", "owner": "ReplicaSet/d-1", "pod-template-hash": "1"},
            False,
        ),
        (
            {"name": "x", "owner": "ReplicaSet/-1", "pod-template-hash": "1"},
            {"name": "y", "owner": "ReplicaSet/-2", "pod-template-hash": "2"},
            False,
        ),
        ({"name": "bare"}, {"name": "bare"}, True),
        ({"name": "bare"}, {"name": "other"}, False),
        ({"name": "bare", "namespace": "a"}, {"name": "bare", "namespace": "b"}, False),
    ],
)
def test_a_pod_follows_its_predecessor(gone: dict[str, Any], comes: dict[str, Any], follows: bool) -> None:
    cluster = Cluster()
    cluster.confirm(pod(cluster, uid="old", **gone), "n1")
    before = cluster.previous_nodes.of(pod(cluster, uid="new", **comes))
    cluster.remove("old")

    assert before is None
    assert cluster.previous_nodes.of(pod(cluster, uid="new", **comes)) == ("n1" if follows else None)


def test_only_pods_that_ran_are_remembered_and_the_last_one_counts() -> None:
    cluster = Cluster()
    cluster.assume(pod(cluster, "a"), "n1", now=0.0)
    cluster.forget("a")
    nowhere = cluster.previous_nodes.of(pod(cluster, "a"))
    for node in ("n1", "n2"):
        cluster.confirm(pod(cluster, "a"), node)
        cluster.remove("a")
    with cluster.dry_run():
        cluster.displace("a")

    assert nowhere is None
    assert cluster.previous_nodes.of(pod(cluster, "a")) == "n2"


def test_the_oldest_are_forgotten_in_a_namespace_and_then_the_namespace_unused_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(previous_nodes, "_MOST_OF_NAMESPACE", 3)
    monkeypatch.setattr(previous_nodes, "_MOST_BYTES", 6 * previous_nodes._EACH_BYTES)  # as two namespaces take: 3, 1
    cluster, known = Cluster(), previous_nodes.PreviousNodes()

    def nodes(namespace: str, *names: str) -> list[str | None]:
        return [known.of(pod(cluster, name, namespace=namespace)) for name in names]

    for number in range(5):
        known.note(pod(cluster, f"p{number}", namespace="loud"), "n1")
    known.note(pod(cluster, "q", namespace="quiet"), "n2")
    in_loud = nodes("loud", "p0", "p1", "p2", "p3", "p4")
    in_quiet = nodes("quiet", "q")
    known.note(pod(cluster, "r", namespace="third"), "n3")

    assert in_loud == [None, None, "n1", "n1", "n1"]
    assert in_quiet == nodes("quiet", "q") == ["n2"]
    assert nodes("loud", "p2", "p3", "p4") == [None] * 3
    assert nodes("third", "r") == ["n3"]


def test_a_pod_that_is_forgotten_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previous_nodes, "_MOST_BYTES", 4 * previous_nodes._EACH_BYTES)
    cluster, known = Cluster(), previous_nodes.PreviousNodes()
    for name in ("a", "b"):
        known.note(pod(cluster, name), "n1")
    known.forget(pod(cluster, "a"))
    known.note(pod(cluster, "c", namespace="other"), "n1")

    assert known.of(pod(cluster, "a")) is None
    assert known.of(pod(cluster, "b")) == "n1"
    assert known.of(pod(cluster, "c", namespace="other")) == "n1"
