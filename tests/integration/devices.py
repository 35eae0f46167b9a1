"""Device classes, slices, claims and pods that use them, in a line each; and what their drivers and controllers do."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.integration.cluster import Cluster
from tests.integration.objects import OURS, Json, pod

DRIVER = "gpu.example.com"
_VERSION = "resource.k8s.io/v1"


def device_class(name: str, *, extended: str = "") -> Json:
    """A class of all devices of the driver."""
    spec: Json = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"apiVersion": _VERSION, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def resource_slice(node_name: str, *, devices: Sequence[str], more: Json | None = None) -> Json:
    """What the driver publishes for a node: one pool of its name. more: of each device."""
    attributes = {"memory": {"int": 80}}
    spec = {
        "driver": DRIVER,
        "nodeName": node_name,
        "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name, "attributes": attributes, **(more or {})} for name in devices],
    }
    return {"apiVersion": _VERSION, "kind": "ResourceSlice", "metadata": {"name": f"{node_name}-gpus"}, "spec": spec}


def claim(name: str, *, count: int = 1, selector: str = "") -> Json:
    """A claim for devices of the class gpu."""
    exactly: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": _VERSION, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def claim_template(name: str, *, count: int) -> Json:
    """A template from which each pod gets a claim of its own."""
    made = claim(name, count=count)
    return {**made, "kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}}


def left_claim(cluster: Cluster, name: str) -> Json:
    """A claim for extended resources that a scheduler which ended has left to a pod."""
    made = claim(f"{name}-left")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": cluster.pod(name)["metadata"]["uid"]}
    made["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner | {"controller": True}],
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    return made


def claim_pod(name: str, *, claims: Sequence[str] = (), scheduler: str = OURS) -> Json:
    """A pod that uses claims; without any, the claim of its own name."""
    named = claims or (name,)
    made = pod(name, scheduler=scheduler, resourceClaims=[{"name": one, "resourceClaimName": one} for one in named])
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": one} for one in named]
    return made


def extended_pod(name: str, resource: str, amount: int, *, scheduler: str = OURS) -> Json:
    """A pod that requests devices as an extended resource."""
    made = pod(name, scheduler=scheduler)
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"][resource] = str(amount)
    resources["limits"] = {resource: str(amount)}
    return made


def taken(cluster: Cluster) -> list[tuple[str, str]]:
    """Return pool and device of all that is allocated."""
    return [
        (result["pool"], result["device"])
        for one in cluster.api.list("resourceclaims")
        for result in (one.get("status", {}).get("allocation") or {}).get("devices", {}).get("results", ())
    ]


def free(cluster: Cluster, name: str, *, namespace: str = "default") -> None:
    """Deallocate a claim, as its controller does once no pod uses it."""
    change = {"status": {"allocation": None, "reservedFor": None}}
    cluster.api.patch("resourceclaims", name, change, namespace=namespace, subresource="status")


def controlled(cluster: Cluster, name: str, *, node_name: str, device: str, user: str = "") -> None:
    """Allocate a claim on a node, as a scheduler does. user: a pod for which it is reserved."""
    cluster.api.patch(
        "resourceclaims", name, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    )
    result = {"request": "gpus", "driver": DRIVER, "pool": node_name, "device": device}
    on_node = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }
    status: Json = {"allocation": allocation}
    if user:
        uid = cluster.pod(user)["metadata"]["uid"]
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": uid}]
    cluster.api.patch("resourceclaims", name, {"status": status}, subresource="status")


def settle_claims(cluster: Cluster) -> None:
    """Give pods claims of their own and take away those of pods that are gone, as the controller manager does."""
    there = {pod["metadata"]["uid"]: pod for pod in cluster.pods()}
    for uid, one in there.items():
        told = {each["name"] for each in one["status"].get("resourceClaimStatuses", ())}
        wanted = [each for each in one["spec"].get("resourceClaims", ()) if "resourceClaimTemplateName" in each]
        if told >= {each["name"] for each in wanted}:
            continue
        statuses, name = [], one["metadata"]["name"]
        for each in wanted:
            template = cluster.api.get("resourceclaimtemplates", each["resourceClaimTemplateName"])
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
            metadata = {"name": f"{name}-{each['name']}", "ownerReferences": [owner]}
            kind = {"apiVersion": _VERSION, "kind": "ResourceClaim", "metadata": metadata}
            cluster.api.create("resourceclaims", kind | {"spec": template["spec"]["spec"]})
            statuses.append({"name": each["name"], "resourceClaimName": metadata["name"]})
        cluster.api.patch("pods", name, {"status": {"resourceClaimStatuses": statuses}}, subresource="status")
    for one in cluster.api.list("resourceclaims"):
        if {each["uid"] for each in one["metadata"].get("ownerReferences", ())} - there.keys():
            name = one["metadata"]["name"]
            cluster.api.patch("resourceclaims", name, {"metadata": {"finalizers": None}})
            cluster.api.delete("resourceclaims", name)


def watch_line(thing: Json) -> bytes:
    """An object as a watch delivers it; it exists nowhere else, so that no validation has looked at it."""
    metadata = {"uid": f"strange-{thing['metadata']['name']}", "resourceVersion": "1", **thing["metadata"]}
    return json.dumps({"type": "ADDED", "object": {**thing, "metadata": metadata}}).encode()
