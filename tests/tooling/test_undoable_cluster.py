"""What is tried out on a cluster is undone whole: pods, claims, devices, nominations, nodes, and where pods ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state
from kube_policy_scheduler.tooling.undoable_cluster import UndoableCluster
from tests.cluster.test_devices import GPU
from tests.cluster.test_devices import node as shared_node
from tests.cluster.test_devices import pod as shared_pod
from tests.tooling.worlds import POOL, things_of, things_with_devices

NODES = [{"name": name, "cpu": 4, "mem": "8Gi", "resources": {"nvidia.com/gpu": "2"}} for name in ("m", "o")]
STATEFUL = {"owner": "StatefulSet/db"}


def world() -> ClusterState:
    made = things_with_devices(POOL, held={"held": "a"})
    pods = [{"cpu": 1, "node": "m"}, {"cpu": 1, "node": "o", **STATEFUL}, {"cpu": 1}]
    return cluster_state([*made, *things_of(NODES, pods)])


def facts(there: ClusterState) -> Any:
    """Return everything that a decision may see, by value."""
    cluster, nodes = there.cluster, there.cluster.nodes
    claims = sorted(cluster.all(objects.ResourceClaim), key=lambda claim: claim.metadata.name)
    return msgspec.to_builtins(
        {
            "columns": {
                info.name: [int(nodes.requested("cpu")[info.row]), int(nodes.pod_count[info.row])]
                for info in sorted(nodes.infos, key=lambda info: info.name)
            },
            "nodes": {info.name: info.node for info in nodes.infos},
            "pods": {uid: [cluster.node_of(uid), pod.terminating] for uid, pod in sorted(cluster.pods.items())},
            "nominated": {name: sorted(pods) for name, pods in sorted(cluster.nominated.items())},
            "claims": {claim.metadata.name: claim for claim in claims},
            "ran": {pod.uid: cluster.previous_nodes.of(pod) for pod in map(cluster.templates.pod, there.pods.values())},
        }
    )


def pod_of(there: ClusterState, name: str) -> PodInfo:
    made = there.pods[f"default/{name}"]
    return there.cluster.pods.get(made.metadata.uid) or there.cluster.templates.pod(made)


Change = Callable[[UndoableCluster, ClusterState], object]
CHANGES: dict[str, Change] = {
    "take off": lambda tried, there: _counted(tried, there, "held", tried.take_off),
    "end": lambda tried, there: _counted(tried, there, "held", lambda pod: tried.take_off(pod, ends=True)),
    "end one that comes again": lambda tried, there: _counted(
        tried, there, "p1", lambda pod: tried.take_off(pod, ends=True)
    ),
    "terminate": lambda tried, there: _counted(tried, there, "held", tried.terminate),
    "place": lambda tried, there: _free(tried, there, "p2", lambda pod: tried.place(pod, "m")),
    "place one with a claim": lambda tried, there: _free(tried, there, "held", lambda pod: tried.place(pod, "n")),
    "put": lambda tried, there: _free(tried, there, "p2", lambda pod: tried.put(pod, "m")),
    "nominate": lambda tried, there: _free(tried, there, "p2", lambda pod: tried.nominate(pod, "m")),
    "nominate elsewhere": lambda tried, there: _free(tried, there, "p2", lambda pod: tried.nominate(pod, "n")),
    "ran before": lambda tried, there: tried.ran_before(pod_of(there, "p1"), "m"),
    "cordon": lambda tried, there: tried.cordon("n"),
    "remove a node": lambda tried, there: tried.remove_node("n") if "n" in there.cluster.nodes.rows else None,
    "change an object": lambda tried, there: tried.set_object(_freed(there)),
}


def _counted(tried: UndoableCluster, there: ClusterState, name: str, change: Callable[[PodInfo], object]) -> None:
    pod = pod_of(there, name)
    if there.cluster.node_of(pod.uid) is not None:
        change(pod)


def _free(tried: UndoableCluster, there: ClusterState, name: str, change: Callable[[PodInfo], object]) -> None:
    pod = pod_of(there, name)
    if there.cluster.node_of(pod.uid) is None and "n" in there.cluster.nodes.rows:
        change(msgspec.structs.replace(pod, node_name=""))


def _freed(there: ClusterState) -> objects.ResourceClaim:
    claim = next(iter(there.cluster.all(objects.ResourceClaim)), None)
    made = claim or objects.ResourceClaim(metadata=objects.ObjectMeta(name="new", namespace="default", uid="new"))
    return msgspec.structs.replace(made, status=objects.ResourceClaimStatus())


def apply(tried: UndoableCluster, there: ClusterState, name: str) -> None:
    if name == "cordon" and "n" not in there.cluster.nodes.rows:
        return
    CHANGES[name](tried, there)


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_one_and_is_undone(name: str) -> None:
    there = world()
    tried, before = UndoableCluster(there.cluster), facts(there)
    if name == "place one with a claim":
        tried.take_off(pod_of(there, "held"))
        before = facts(there)
    mark = tried.mark()
    apply(tried, there, name)
    assert facts(there) != before or name == "end one that comes again"
    tried.undo_to(mark)
    assert facts(there) == before


@given(names=st.lists(st.sampled_from(sorted(CHANGES)), max_size=8), kept=st.integers(0, 8))
@example(names=["nominate", "nominate elsewhere"], kept=1)
@example(names=["take off", "place one with a claim", "terminate"], kept=1)
def test_any_changes_are_undone_to_any_mark(names: list[str], kept: int) -> None:
    there = world()
    tried = UndoableCluster(there.cluster)
    states = [(tried.mark(), facts(there))]
    for name in names:
        apply(tried, there, name)
        states.append((tried.mark(), facts(there)))
    for mark, state in (states[min(kept, len(names))], states[0]):
        tried.undo_to(mark)
        assert facts(there) == state


def test_what_fails_within_is_undone_too() -> None:
    there = world()
    tried, before = UndoableCluster(there.cluster), facts(there)
    pod = pod_of(there, "held")

    def fails() -> None:
        with tried.trying():
            tried.take_off(pod, ends=True)
            tried.take_off(pod)

    with pytest.raises(AssertionError, match="it counts on a node"):
        fails()
    assert facts(there) == before


def test_devices_are_free_while_their_pod_is_off_and_as_before_then() -> None:
    there = world()
    tried = UndoableCluster(there.cluster)
    with tried.trying():
        tried.take_off(pod_of(there, "held"))
        assert not any(claim.status.allocation for claim in there.cluster.all(objects.ResourceClaim))
        tried.undo_to(0)
        tried.take_off(pod_of(there, "held"), ends=True)
        assert not list(there.cluster.all(objects.ResourceClaim))
        assert there.cluster.previous_nodes.of(pod_of(there, "held")) == "n"
    (claim,) = there.cluster.all(objects.ResourceClaim)
    assert claim.status.allocation is not None
    assert there.cluster.previous_nodes.of(pod_of(there, "held")) is None


@pytest.mark.parametrize("ends", [None, False, True], ids=["terminates", "is taken off", "ends"])
def test_a_share_of_a_device_is_on_the_same_device_as_before(ends: bool | None) -> None:
    cluster = Cluster()
    cluster.set_node(shared_node("a", 2))
    cluster.devices.table(GPU)
    sharing = shared_pod(cluster, "p", share=600)
    cluster.place(sharing, "a", devices={GPU: (1,)})
    tried = UndoableCluster(cluster)
    mark = tried.mark()
    if ends is None:
        tried.terminate(sharing)
    else:
        tried.take_off(sharing, ends=ends)
    tried.undo_to(mark)
    assert cluster.devices.held(sharing.uid) == {GPU: (1,)}
