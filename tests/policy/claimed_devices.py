"""A node with devices that pods claim, and pods that get some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.reserve.claims_in_memory import make_claims, take_claims
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.policy.policy_set import load

NOW = 1_800_000_000.0
Json = dict[str, Any]


def profile_of(text: str) -> Profile:
    loaded = load([Source("p.policy", f"score 1\n{text}")])
    assert loaded.policy_set is not None, "\n".join(map(render, loaded.diagnostics))
    (policy,) = loaded.policy_set.policies
    return policy.profile


def device(name: str, *, memory: str = "", taints: Sequence[Json] = (), **attributes: int | str) -> Json:
    return {
        "name": name,
        "attributes": {
            key.replace("__", "/").replace("_", "."): {"int" if isinstance(value, int) else "string": value}
            for key, value in attributes.items()
        },
        "capacity": {"memory": {"value": memory}} if memory else {},
        "taints": list(taints),
    }


def cluster_of(
    devices: Sequence[Json],
    *,
    counters: Sequence[Json] = (),
    offered: Json | None = None,
    rules: KubernetesRules = DEFAULT_RULES,
) -> Cluster:
    cluster = Cluster(rules)
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "110", **(offered or {})}
    node = {"metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    cluster.set_node(msgspec.convert(node, objects.Node))
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1 + bool(counters)}
    spec = {"driver": "gpu", "nodeName": "n", "pool": pool}
    slices = [{**spec, "devices": list(devices)}, *([{**spec, "sharedCounters": list(counters)}] if counters else [])]
    for number, one in enumerate(slices):
        cluster.set_object(msgspec.convert({"metadata": {"name": f"s{number}"}, "spec": one}, objects.ResourceSlice))
    cluster.set_object(msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, objects.DeviceClass))
    return cluster


def claiming(cluster: Cluster, name: str, *, count: int = 1, constraint: str = "", **request: Any) -> objects.Pod:
    """Return a pod that claims devices, with the claim made."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **request}
    devices: Json = {"requests": [{"name": "r", "exactly": exactly}]}
    if constraint:
        devices["constraints"] = [{"matchAttribute": constraint}]
    template = {"metadata": {"name": f"t-{name}", "namespace": "default"}, "spec": {"spec": {"devices": devices}}}
    cluster.set_object(msgspec.convert(template, objects.ResourceClaimTemplate))
    spec = {"containers": [{"name": "c"}], "resourceClaims": [{"name": "r", "resourceClaimTemplateName": f"t-{name}"}]}
    metadata = {"name": name, "namespace": "default", "uid": name}
    pod = msgspec.convert({"metadata": metadata, "spec": spec}, objects.Pod)
    make_claims(cluster, pod)
    return pod


def frame_of(cluster: Cluster, name: str, **claim: Any) -> Frame:
    """Return the decision on a pod that claims devices."""
    return Frame(cluster.templates.pod(claiming(cluster, name, **claim)), cluster, NOW)


def place(frame: Frame, profile: Profile) -> list[str]:
    """Place a pod, and return the devices that it got."""
    decision = Cycle().decide(frame, profile)
    assert decision.host == "n", decision.message
    take_claims(frame.cluster, frame.pod, "n", now=NOW, order=decision.device_order)
    frame.cluster.place(frame.pod, "n", devices=decision.devices)
    (name,) = frame.pod.claim_names.values()
    claim = frame.cluster.resource_claims.get(f"default/{name}")
    assert claim is not None
    assert claim.status.allocation is not None
    return [result.device for result in claim.status.allocation.devices.results or ()]


FOUR = [
    device("a", memory="80Gi", group=1, model="x"),
    device("b", memory="24Gi", group=1, model="z"),
    device("c", group=1),
    device("d", memory="40Gi", group=2, model="y"),
]
