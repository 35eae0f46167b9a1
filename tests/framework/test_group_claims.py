"""Claims that a PodGroup shares among its pods are reserved for the group."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.devices.pod_claims import waits_for_claims
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.dynamic_resources import ClaimsAfter, DynamicResources
from kube_policy_scheduler.framework.reserve.claim_reservation import ClaimWrite, reserve_on, undo, writes
from kube_policy_scheduler.framework.reserve.claims_in_memory import give_claims_back, make_claims, take_claims
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules, KubernetesVersion
from tests.framework.test_claims_in_memory import NOW, TEMPLATE, add, publish

GATE = Feature.DRA_WORKLOAD_RESOURCE_CLAIMS.entry.name
OF_TEMPLATE = {"name": "gpus", "resourceClaimTemplateName": "two"}
NAMED = {"name": "gpus", "resourceClaimName": "shared"}
GROUP_USER = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "train-uid"}
SPEC = TEMPLATE["spec"]["spec"]  # type: ignore[index]


def cluster_of(claim: dict[str, Any], *nodes: str, is_on: bool = True) -> Cluster:
    """Return nodes with two devices each, and the PodGroup `train` with a claim."""
    cluster = Cluster(KubernetesRules(KubernetesVersion(37), {GATE: is_on}))
    selector = {"cel": {"expression": 'device.driver == "gpu"'}}
    add(cluster, objects.DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
    add(cluster, objects.ResourceClaimTemplate, TEMPLATE)
    shared = {"metadata": {"name": "shared", "namespace": "default", "uid": "shared-uid"}, "spec": SPEC}
    add(cluster, objects.ResourceClaim, shared)
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [claim]}
    meta = {"name": "train", "namespace": "default", "uid": "train-uid"}
    add(cluster, objects.PodGroup, {"metadata": meta, "spec": spec})
    for name in nodes:
        status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
        cluster.set_node(msgspec.convert({"metadata": {"name": name}, "status": status}, objects.Node))
        publish(cluster, name, 2)
    return cluster


def frame_of(cluster: Cluster, name: str, claim: dict[str, Any], group: str = "train") -> Frame:
    spec: dict[str, Any] = {"containers": [{"name": "c"}], "resourceClaims": [claim]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    metadata = {"name": name, "namespace": "default", "uid": name}
    pod = msgspec.convert({"metadata": metadata, "spec": spec}, objects.Pod)
    make_claims(cluster, pod)
    return Frame(cluster.templates.pod(pod), cluster, NOW)


def start(cluster: Cluster, frame: Frame) -> str | None:
    """Place a pod with its claims, if there is a node for it, and return the node."""
    host = Cycle().decide(frame, kubernetes_profile()).host
    if host is not None:
        take_claims(cluster, frame.pod, host, now=NOW)
        cluster.place(frame.pod, host)
    return host


def users(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    claim = cluster.resource_claims.get(f"default/{name}")
    assert claim is not None
    found: list[dict[str, Any]] = msgspec.to_builtins(claim.status.reserved_for or [])
    return found


@pytest.mark.parametrize(("claim", "name"), [(OF_TEMPLATE, "train-gpus"), (NAMED, "shared")])
def test_pods_of_a_group_share_its_claim_which_is_reserved_for_the_group(claim: dict[str, Any], name: str) -> None:
    cluster = cluster_of(claim, "a", "b")
    frames = [frame_of(cluster, pod, claim) for pod in "pqr"]

    hosts = {start(cluster, frame) for frame in frames}

    assert len(hosts) == 1
    assert hosts <= {"a", "b"}
    assert users(cluster, name) == [GROUP_USER]


@pytest.mark.parametrize(
    ("claim", "group", "is_on"),
    [
        ({"name": "mine", "resourceClaimName": "shared"}, "train", True),
        (NAMED, "", True),
        (NAMED, "other", True),
        (NAMED, "train", False),
    ],
    ids=["another name", "no group", "another group", "gate off"],
)
def test_what_is_not_the_claim_of_the_group_is_reserved_for_the_pod(
    claim: dict[str, Any], group: str, is_on: bool
) -> None:
    cluster = cluster_of(NAMED, "a", is_on=is_on)

    assert start(cluster, frame_of(cluster, "p", claim, group)) == "a"

    assert [user["resource"] for user in users(cluster, "shared")] == ["pods"]


def test_a_claim_that_the_pod_takes_from_another_template_is_its_own() -> None:
    cluster = cluster_of(OF_TEMPLATE | {"resourceClaimTemplateName": "other"}, "a", "b")

    assert {start(cluster, frame_of(cluster, pod, OF_TEMPLATE)) for pod in "pq"} == {"a", "b"}


def test_the_last_pod_of_a_group_frees_the_devices_of_its_claim() -> None:
    cluster = cluster_of(NAMED, "a")
    frames = [frame_of(cluster, pod, NAMED) for pod in "pq"]
    for frame in frames:
        start(cluster, frame)

    for frame, left in zip(frames, ([GROUP_USER], []), strict=True):
        cluster.displace(frame.pod.uid)
        give_claims_back(cluster, frame.pod)
        assert users(cluster, "shared") == left


def test_only_the_first_pod_of_a_group_writes_the_claim() -> None:
    cluster = cluster_of(NAMED, "a")
    first, second = (frame_of(cluster, pod, NAMED) for pod in "pq")

    assert written(cluster, first)[-1].body["status"]["reservedFor"] == [GROUP_USER]
    start(cluster, first)
    assert written(cluster, second) == []


def written(cluster: Cluster, frame: Frame) -> list[ClaimWrite]:
    reservation = reserve_on(frame.at(np.array([0])), share_id="")
    assert reservation is not None
    assert not isinstance(reservation, str)
    found = list(writes(reservation, timestamp="", extended_name=""))
    undo(reservation, cluster)
    return found


def test_a_claim_that_was_made_for_somebody_else_holds_the_pod() -> None:
    cluster = cluster_of(OF_TEMPLATE, "a")
    frame = frame_of(cluster, "p", OF_TEMPLATE)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
    meta = {"name": "train-gpus", "namespace": "default", "uid": "u", "ownerReferences": [owner]}
    add(cluster, objects.ResourceClaim, {"metadata": meta, "spec": SPEC})

    assert waits_for_claims(frame.pod, cluster) == (
        "ResourceClaim default/train-gpus was not created for PodGroup default/train (PodGroup is not owner)"
    )


@pytest.mark.parametrize(
    ("what", "after"),
    [
        ("is gone", ClaimsAfter.DEALLOCATED),
        ("runs", ClaimsAfter.STILL_NOT_SCHEDULABLE),
        ("ends", ClaimsAfter.STILL_NOT_SCHEDULABLE),
        ("is on a node that is gone", ClaimsAfter.STILL_NOT_SCHEDULABLE),
    ],
)
def test_devices_are_only_taken_away_from_a_group_that_has_no_pod_on_a_node(what: str, after: ClaimsAfter) -> None:
    cluster = cluster_of(NAMED, "a", "b")
    first, second = (frame_of(cluster, pod, NAMED) for pod in "pq")
    host = start(cluster, first)
    assert host is not None
    match what:
        case "is gone":
            cluster.displace(first.pod.uid)  # the claim stays reserved for the group
        case "ends":
            cluster.place(msgspec.structs.replace(first.pod, terminating=True), host)
        case "is on a node that is gone":
            cluster.place(first.pod, "c")
    plugin, node = DynamicResources(), cluster.nodes.rows[host]
    prepared: Any = plugin.pre_filter(second)
    elsewhere = second.at(np.array([row for row in range(2) if row != node]))

    assert plugin.post_filter(elsewhere, prepared.state).result is after
