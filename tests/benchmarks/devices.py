"""Devices of the benchmarks: eight on each node, a class, and claims made of one template, with a CEL selector."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.manifests import NAMESPACE, Json, pod

DRIVER = "gpu.example.com"
CLASS = "gpu"
PER_NODE = 8
_VERSION = "resource.k8s.io/v1"
_SELECTOR = (
    f'device.attributes["{DRIVER}"].model == "a100"'
    f' && device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40Gi"))'
)


def device_class() -> Json:
    """Return the class of all devices of the driver."""
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    return {"apiVersion": _VERSION, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": spec}


def resource_slice(node_name: str) -> Json:
    """Return what the driver publishes for a node."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": "a100"}, "index": {"int": number}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for number in range(PER_NODE)
    ]
    spec = {
        "driver": DRIVER,
        "nodeName": node_name,
        "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    metadata = {"name": f"{node_name}-{CLASS}"}
    return {"apiVersion": _VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def claim(name: str, *, owner: str = "", namespace: str = NAMESPACE, allocated: tuple[str, int] | None = None) -> Json:
    """Return a claim for one device.

    Args:
        name: of the claim.
        owner: uid of the pod that it was made for; "": of none.
        namespace: of the claim.
        allocated: the node and the number of the device that it has already.
    """
    exactly: Json = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
    exactly["selectors"] = [{"cel": {"expression": _SELECTOR}}]
    metadata: Json = {"name": name, "namespace": namespace}
    if owner:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": owner, "controller": True}
        metadata |= {"uid": f"claim/{owner}", "ownerReferences": [reference]}
    made: Json = {
        "apiVersion": _VERSION,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }
    if allocated is not None:
        node_name, number = allocated
        result = {"request": "gpus", "driver": DRIVER, "pool": node_name, "device": f"gpu-{number}"}
        only = {"key": "metadata.name", "operator": "In", "values": [node_name]}
        selector = {"nodeSelectorTerms": [{"matchFields": [only]}]}
        made["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}}
    return made


def claiming_pod(name: str, **more: Any) -> Json:
    """Return a pod with a claim of its own name, made of a template that all of them name."""
    made = pod(name, resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "gpus"}], **more)
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    made["status"] = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": name}]}
    return made
