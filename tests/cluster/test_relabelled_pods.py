"""Pods whose labels change on their node, as with each binding: the cluster is as if it had only seen the last ones."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.events import ClusterEvent
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.invariants import violations
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from kube_policy_scheduler.times import Steady

NODES = ("a", "b", "c")
NAMES = ("p0", "p1", "p2")
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def cluster_of_three() -> Cluster:
    """Return a cluster of three nodes; pods may name a fourth."""
    made = Cluster()
    for name in NODES:
        labels = {HOSTNAME: name, ZONE: f"zone-{name}"}
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "3"}}
        made.set_node(msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, objects.Node))
    return made


def pod(cluster: Cluster, name: str, labels: dict[str, str], **more: Any) -> PodInfo:
    """Return a pod; more: `cpu`, `priority`, `port`, `ends` (terminating), `avoids` (value of the label `app`)."""
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": more.get("cpu", "1")}}}
    if more.get("port"):
        container["ports"] = [{"containerPort": 80, "hostPort": more["port"]}]
    spec: dict[str, Any] = {"containers": [container], "priority": more.get("priority", 0)}
    if more.get("avoids"):
        term = {"labelSelector": {"matchLabels": {"app": more["avoids"]}}, "topologyKey": HOSTNAME}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": name, "labels": labels}
    if more.get("ends"):
        metadata["deletionTimestamp"] = "2026-11-20T08:00:00Z"
    return cluster.templates.pod(msgspec.convert({"metadata": metadata, "spec": spec}, objects.Pod))


def answers(cluster: Cluster) -> list[object]:
    """Return what becomes of some pods, and what is held on each node."""
    probes = (
        pod(cluster, "small", {}),
        pod(cluster, "large", {}, cpu="3"),
        pod(cluster, "avoids web", {}, avoids="web"),
        pod(cluster, "is avoided", {"app": "db"}),
        pod(cluster, "port", {}, port=8080),
    )
    found: list[object] = []
    for probe in probes:
        decision = Cycle().decide(Frame(probe, cluster, 0.0), kubernetes_profile())
        found.append((decision.host, decision.feasible, decision.message))
    found += [cluster.held_from(priority, resource).tolist() for priority in (0, 5) for resource in ("cpu", "pods")]
    return found


STATES = st.fixed_dictionaries(
    {
        "labels": st.sampled_from([{"app": "web"}, {"app": "db"}, {"app": "web", ZONE: "zone-a"}, {}]),
        "cpu": st.sampled_from(["1", "2"]),
        "priority": st.sampled_from([0, 5]),
        "port": st.sampled_from([0, 8080]),
        "avoids": st.sampled_from(["", "db"]),
        "ends": st.booleans(),
    }
)
SHOWN = st.tuples(st.sampled_from(NAMES), st.sampled_from([*NODES, "unknown"]), STATES, st.booleans())


@given(st.lists(SHOWN, max_size=10))
def test_what_counts_is_the_last_state_of_each_pod(shown: list[tuple[str, str, dict[str, Any], bool]]) -> None:
    seen, last = cluster_of_three(), dict[str, tuple[str, dict[str, Any]]]()
    for name, node, state, relabels in shown:
        if relabels and name in last:
            node, before = last[name]
            state = before | {"labels": state["labels"]}
        last[name] = node, state
        seen.confirm(pod(seen, name, **state), node)
        answers(seen)  # what is counted for them is kept, and has to follow
    afresh = cluster_of_three()
    for name, (node, state) in last.items():
        afresh.place(pod(afresh, name, **state), node)
    assert answers(seen) == answers(afresh)
    assert violations(seen, SchedulingQueue(), {}) == []


def test_new_labels_are_a_change_that_may_help_others_and_of_which_the_node_is_told_once() -> None:
    cluster = cluster_of_three()
    cluster.assume(pod(cluster, "p0", {"app": "web"}), "a", now=Steady(0.0))
    heard: list[ClusterEvent] = []
    cluster.ledger.follow(heard.append)
    position = cluster.nodes.dynamic_changes.end
    assert cluster.confirm(pod(cluster, "p0", {"app": "web", ZONE: "zone-a"}), "a")
    assert heard == [ClusterEvent.POD_ADD], "it holds what it held, so pods that need room are not tried again"
    assert cluster.nodes.dynamic_changes.since(position) == [cluster.nodes.rows["a"]]
    assert cluster.confirm(pod(cluster, "p0", {"app": "db", ZONE: "zone-a"}), "a")
    assert heard == [ClusterEvent.POD_ADD, ClusterEvent.POD_UPDATE], "on its node it was before"


def test_a_pod_that_is_bound_with_less_than_it_was_decided_with_frees_the_rest() -> None:
    cluster = cluster_of_three()
    cluster.assume(pod(cluster, "p0", {}, cpu="2"), "a", now=Steady(0.0))
    heard: list[ClusterEvent] = []
    cluster.ledger.follow(heard.append)
    assert cluster.confirm(pod(cluster, "p0", {ZONE: "zone-a"}), "a")
    assert heard == [ClusterEvent.POD_ADD, ClusterEvent.POD_UPDATE]
