"""Devices as people write them in a test: `devices` of a node and `claims` of a pod, by DeviceClass.

    nodes:
    - {name: a1, devices: {gpu: 8}}
    - {name: b1, devices: {gpu: [{count: 4, memory: 40Gi, numa: 0}, {count: 4, memory: 80Gi, numa: 1}]}}
    pod: {claims: {gpu: {count: 2, where: 'device.attributes["gpu"].numa == 1', same: numa}}}

The driver is named as the class; a class that no `cluster` file has is all devices of that driver. What a text such as
40Gi says is a capacity; numbers, truths and other texts are attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster

Json: TypeAlias = dict[str, Any]
_AMOUNT = re.compile(r"[0-9.]+(Ki|Mi|Gi|Ti|k|M|G|T)")


def add_devices(cluster: Cluster, node_name: str, form: Mapping[str, Any]) -> None:
    """Publish the devices of a node, and make the classes that there are not yet."""
    for name, wanted in form.items():
        _add_class(cluster, name)
        spec = {
            "driver": name,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": list(_devices(name, wanted)),
        }
        made = {"metadata": {"name": f"{node_name}-{name}"}, "spec": spec}
        cluster.set_object(msgspec.convert(made, objects.ResourceSlice))


def add_claims(cluster: Cluster, namespace: str, form: Mapping[str, Any]) -> None:
    """Make what a pod's claims are made of."""
    for name, wanted in form.items():
        _add_class(cluster, name)
        full = wanted if isinstance(wanted, Mapping) else {"count": wanted}
        exactly: Json = {"deviceClassName": name, "allocationMode": "ExactCount", "count": full.get("count", 1)}
        if "where" in full:
            exactly["selectors"] = [{"cel": {"expression": full["where"]}}]
        devices: Json = {"requests": [{"name": "devices", "exactly": exactly}]}
        if "same" in full:
            attribute = full["same"] if "/" in full["same"] else f"{name}/{full['same']}"
            devices["constraints"] = [{"matchAttribute": attribute}]
        metadata = {"name": _template_name(name, wanted), "namespace": namespace}
        made = {"metadata": metadata, "spec": {"spec": {"devices": devices}}}
        cluster.set_object(msgspec.convert(made, objects.ResourceClaimTemplate))


def claim_references(form: Mapping[str, Any]) -> list[Json]:
    """Return `spec.resourceClaims` of a pod with these claims."""
    return [{"name": name, "resourceClaimTemplateName": _template_name(name, form[name])} for name in form]


def _template_name(name: str, wanted: Any) -> str:
    return f"{name}-{blake2b(msgspec.json.encode(wanted), digest_size=6).hexdigest()}"


def _add_class(cluster: Cluster, name: str) -> None:
    if cluster.get(objects.DeviceClass, name) is None:
        selector = {"cel": {"expression": f'device.driver == "{name}"'}}
        made = {"metadata": {"name": name}, "spec": {"selectors": [selector]}}
        cluster.set_object(msgspec.convert(made, objects.DeviceClass))


def _devices(name: str, wanted: Any) -> Iterator[Json]:
    kinds = wanted if isinstance(wanted, list) else [wanted]
    number = 0
    for kind in kinds:
        full = kind if isinstance(kind, Mapping) else {"count": kind}
        said = {key: value for key, value in full.items() if key != "count"}
        for _ in range(full.get("count", 1)):
            yield {
                "name": f"{name}-{number}",
                "attributes": {key: _attribute(value) for key, value in said.items() if not _is_amount(value)},
                "capacity": {key: {"value": value} for key, value in said.items() if _is_amount(value)},
            }
            number += 1


def _is_amount(value: Any) -> bool:
    return isinstance(value, str) and _AMOUNT.fullmatch(value) is not None


def _attribute(value: Any) -> Json:
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case _:
            return {"string": str(value)}
