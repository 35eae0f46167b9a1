"""Clusters of short node and pod forms, as the offline commands see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.cluster_state import stored_objects
from kube_policy_scheduler.tooling.rulesets import Ruleset
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object

EMPTY = parse_document(Source("test", "{}"))
SCHEDULER = "policy-scheduler"
SSD_AND_HDD = (
    {"name": "a", "cpu": 4, "mem": "8Gi", "labels": {"disk": "ssd"}},
    {"name": "b", "cpu": 4, "mem": "8Gi", "labels": {"disk": "hdd"}},
)


def things_of(nodes: Sequence[dict[str, Any]], pods: Sequence[dict[str, Any]]) -> list[Any]:
    """Return API objects: the nodes, then the pods, named `p0`, `p1` … where they say no name."""
    made = [node_object(node) for node in nodes]
    made += [pod_object({"name": f"p{at}", **pod}, name=f"p{at}", uid=f"uid-{at}") for at, pod in enumerate(pods)]
    return stored_objects([FixtureObject(one, EMPTY, ()) for one in made], scheduler=SCHEDULER)


def ruleset(name: str, text: str) -> Ruleset:
    """Return a policy of this text, in a file of this name."""
    source = Source(f"{name}.policy", text)
    made = load([source]).policy_set
    assert made is not None
    return Ruleset(name, made, (source,))


POOL = ({"name": "a", "memory": "24Gi"}, {"name": "b", "memory": "40Gi"}, {"name": "c", "memory": "80Gi"})
"""Devices of one node, in the order of their slice."""


def things_with_devices(pool: Sequence[dict[str, str]], *, held: Mapping[str, str]) -> list[Any]:
    """Return a node `n` with devices of class gpu, and pods on it that each hold one by a claim of a template."""
    devices = [{"name": one["name"], "capacity": {"memory": {"value": one["memory"]}}} for one in pool]
    spec = {"driver": "gpu", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    made: list[Any] = things_of([{"name": "n", "cpu": 64, "mem": "256Gi"}], [])
    made += [
        msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, objects.DeviceClass),
        msgspec.convert({"metadata": {"name": "s"}, "spec": {**spec, "devices": devices}}, objects.ResourceSlice),
    ]
    for name, device in held.items():
        result = {"request": "r", "driver": "gpu", "pool": "n", "device": device}
        claim = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"claim-{name}",
                "ownerReferences": [{"kind": "Pod", "name": name, "uid": name, "controller": True}],
            },
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            "status": {
                "allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
            },
        }
        made.append(msgspec.convert(claim, objects.ResourceClaim))
        pod = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {
                "nodeName": "n",
                "schedulerName": SCHEDULER,
                "containers": [{"name": "main"}],
                "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}],
            },
            "status": {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": name}]},
        }
        made.append(msgspec.convert(pod, objects.Pod))
    return made
