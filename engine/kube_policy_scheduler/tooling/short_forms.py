"""Nodes and pods as people write them in a test, to Kubernetes objects. Knows no defaults of the API server.

A short form is a mapping whose short keys (`cpu`, `zone`, `labels`, …) are laid over whatever `metadata`, `spec`
and `status` it brings; a full object is a short form without short keys. The published schema says which keys
there are (`policy-test.schema.json`).

Devices are written by DeviceClass, as `devices` of a node and `claims` of a pod:

    nodes:
    - {name: a1, devices: {gpu: 8}}
    - {name: b1, devices: [4 x gpu memory=40Gi numa=0, 4 x gpu memory=80Gi numa=1]}
    - {name: c1, devices: {gpu: [{count: 4, memory: 40Gi, numa: 0}, {count: 4, memory: 80Gi, numa: 1}]}}
    pod: {claims: {gpu: {count: 2, where: 'device.attributes["gpu"].numa == 1', same: numa}}}

The driver is named as the class; a class that no `cluster` file has is all devices of that driver. What a text such as
40Gi says is a capacity; numbers, truths and other texts are attributes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.prices import PRICE_KEY

Json: TypeAlias = dict[str, Any]
_Apply: TypeAlias = Callable[[Json, Any], None]

ZONE, REGION, HOSTNAME = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
DEFAULT_NODE_PODS = 110
"""The kubelet's default limit."""
_RESOURCES = {"cpu": "cpu", "mem": "memory", "ephemeral_storage": "ephemeral-storage"}
_AMOUNT = re.compile(r"[0-9.]+(Ki|Mi|Gi|Ti|k|M|G|T)")
_OBJECT_KEYS = ("apiVersion", "kind", "metadata", "spec", "status")


class ShortFormError(ValueError):
    """A value under a short key makes no sense; `key` names it."""

    def __init__(self, key: str, text: str) -> None:
        self.key = key
        super().__init__(text)


def node_object(form: Mapping[str, Any], *, over: Mapping[str, Any] | None = None) -> Json:
    """Return a Node from its short form, laid over an existing node of the same name where there is one.

    Raises:
        ShortFormError: a taint cannot be read.
    """
    base: Json = {"apiVersion": "v1", "kind": "Node"} if over is None else copy.deepcopy(dict(over))
    done = merged(base, {key: form[key] for key in _OBJECT_KEYS if key in form})
    name = form.get("name")
    if name is not None:
        _child(done, "metadata")["name"] = name
    if over is None:
        _labels(done).setdefault(HOSTNAME, done.get("metadata", {}).get("name", ""))
        allocatable = _child(_child(done, "status"), "allocatable")
        allocatable.setdefault("pods", str(DEFAULT_NODE_PODS))
        if not any(c.get("type") == "Ready" for c in done["status"].get("conditions") or ()):
            _set_ready(done, ready=True)
    for key, apply in _NODE_KEYS.items():
        if key in form:
            apply(done, form[key])
    return done


def pod_object(form: Mapping[str, Any], *, name: str, uid: str) -> Json:
    """Return a Pod from its short form; `name` is used where it has none, `uid` where it has none.

    Raises:
        ShortFormError: a toleration cannot be read.
    """
    done = merged({"apiVersion": "v1", "kind": "Pod"}, {key: form[key] for key in _OBJECT_KEYS if key in form})
    meta = _child(done, "metadata")
    if "name" in form:
        meta["name"] = form["name"]
    meta.setdefault("name", name)
    meta.setdefault("uid", uid)
    containers = _child(done, "spec").setdefault("containers", [])
    if not containers:
        containers.append({"name": "main", "image": form.get("image", "image")})
    for key, apply in _POD_KEYS.items():
        if key in form:
            apply(done, form[key])
    return done


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Json:
    """Return `base` with `over` laid over it: mappings key by key, everything else replaced, null removes."""
    done: Json = copy.deepcopy(dict(base))
    for key, value in over.items():
        if value is None:
            done.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(done.get(key), dict):
            done[key] = merged(done[key], value)
        else:
            done[key] = copy.deepcopy(value)
    return done


def taint(text: str) -> Json:
    """Return a taint from `key=value:Effect` or `key:Effect`, as `kubectl taint` writes it."""
    pair, colon, effect = text.rpartition(":")
    key, equals, value = pair.partition("=")
    if not colon or not key or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise ShortFormError(
            "taints", f"{text!r} is not a taint, expected key=value:NoSchedule, :PreferNoSchedule or :NoExecute"
        )
    return {"key": key, "effect": effect} | ({"value": value} if equals else {})


def toleration(text: str) -> Json:
    """Return a toleration of the taint that the text names; without a value, of any value."""
    parsed = taint(text if ":" in text else f"{text}:NoSchedule")
    done = {"key": parsed["key"], "operator": "Equal" if "value" in parsed else "Exists"}
    if "value" in parsed:
        done["value"] = parsed["value"]
    return done | ({"effect": parsed["effect"]} if ":" in text else {})


# --- short keys ------------------------------------------------------------------------------------------


def _child(obj: Json, key: str) -> Json:
    child = obj.setdefault(key, {})
    assert isinstance(child, dict)
    return child


def _labels(obj: Json) -> Json:
    return _child(_child(obj, "metadata"), "labels")


def _label(key: str) -> _Apply:
    def apply(obj: Json, value: Any) -> None:
        _labels(obj)[key] = value

    return apply


def _set_labels(obj: Json, value: Mapping[str, str]) -> None:
    meta = _child(obj, "metadata")
    meta["labels"] = merged(meta.get("labels") or {}, value)


def _set_annotations(obj: Json, value: Mapping[str, str]) -> None:
    meta = _child(obj, "metadata")
    meta["annotations"] = merged(meta.get("annotations") or {}, value)


def _set_price(obj: Json, value: Any) -> None:
    _set_annotations(obj, {PRICE_KEY: f"{value:.9f}".rstrip("0").rstrip(".")})


def _set_meta(key: str) -> _Apply:
    def apply(obj: Json, value: Any) -> None:
        _child(obj, "metadata")[key] = value

    return apply


def _set_spec(key: str) -> _Apply:
    def apply(obj: Json, value: Any) -> None:
        _child(obj, "spec")[key] = value

    return apply


def _capacity(resource: str) -> _Apply:
    def apply(obj: Json, value: Any) -> None:
        status = _child(obj, "status")
        status.setdefault("allocatable", dict(status.get("capacity") or {}))  # as the API server defaults it
        for kind in ("capacity", "allocatable"):
            _child(status, kind)[resource] = str(value)

    return apply


def _set_capacities(obj: Json, value: Mapping[str, Any]) -> None:
    for resource, amount in value.items():
        _capacity(resource)(obj, amount)


def _request(resource: str) -> _Apply:
    def apply(obj: Json, value: Any) -> None:
        container = obj["spec"]["containers"][0]
        _child(_child(container, "resources"), "requests")[resource] = str(value)

    return apply


def _set_requests(obj: Json, value: Mapping[str, Any]) -> None:
    for resource, amount in value.items():
        _request(resource)(obj, amount)
        if "/" in resource:  # an extended resource's limit equals its request, or the API server refuses the pod
            _child(obj["spec"]["containers"][0]["resources"], "limits")[resource] = str(amount)


def _set_ready(obj: Json, ready: Any) -> None:
    status = _child(obj, "status")
    others = [c for c in status.get("conditions") or () if c.get("type") != "Ready"]
    status["conditions"] = [*others, {"type": "Ready", "status": "True" if ready else "False"}]


def _set_pod_ready(obj: Json, ready: Any) -> None:
    _set_ready(obj, ready)
    if ready:
        _set_started(obj, True)


def _set_started(obj: Json, started: Any) -> None:
    names = [container["name"] for container in obj["spec"]["containers"]]
    _child(obj, "status")["containerStatuses"] = [{"name": name, "started": bool(started)} for name in names]


def _set_start_time(obj: Json, value: Any) -> None:
    _child(obj, "status")["startTime"] = value


def _set_taints(obj: Json, value: list[Any]) -> None:
    _child(obj, "spec")["taints"] = [taint(item) if isinstance(item, str) else item for item in value]


def _set_tolerations(obj: Json, value: list[Any]) -> None:
    items = [toleration(item) if isinstance(item, str) else item for item in value]
    _child(obj, "spec")["tolerations"] = [*(_child(obj, "spec").get("tolerations") or ()), *items]


def _set_image(obj: Json, value: str) -> None:
    obj["spec"]["containers"][0]["image"] = value


def _set_owner(obj: Json, value: str) -> None:
    kind, slash, name = value.partition("/")
    if not slash or not kind or not name:
        raise ShortFormError("owner", f"{value!r} is not an owner, expected KIND/NAME such as ReplicaSet/web")
    _child(obj, "metadata")["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"{kind}/{name}", "controller": True}
    ]


def _set_claims(done: Json, value: Any) -> None:
    _child(done, "spec")["resourceClaims"] = claim_references(value)


def _no_part_of_it(done: Json, value: Any) -> None:
    """Devices, NUMA nodes and room for volumes are objects of their own (`add_devices`, `topology_object`,
    `volume_room_objects`); where a pod ran before is not written anywhere."""


_NODE_KEYS: Mapping[str, _Apply] = {
    "labels": _set_labels,
    "annotations": _set_annotations,
    "zone": _label(ZONE),
    "region": _label(REGION),
    "pods": _capacity("pods"),
    "resources": _set_capacities,
    "ready": _set_ready,
    "unschedulable": _set_spec("unschedulable"),
    "taints": _set_taints,
    "created": _set_meta("creationTimestamp"),
    "price": _set_price,
    "devices": _no_part_of_it,
    "numa": _no_part_of_it,
    "volume_room": _no_part_of_it,
    **{key: _capacity(resource) for key, resource in _RESOURCES.items()},
}

_POD_KEYS: Mapping[str, _Apply] = {
    "namespace": _set_meta("namespace"),
    "labels": _set_labels,
    "annotations": _set_annotations,
    "resources": _set_requests,
    "priority": _set_spec("priority"),
    "scheduler": _set_spec("schedulerName"),
    "node": _set_spec("nodeName"),
    "node_selector": _set_spec("nodeSelector"),
    "tolerations": _set_tolerations,
    "image": _set_image,
    "owner": _set_owner,
    "created": _set_meta("creationTimestamp"),
    "running_since": _set_start_time,
    "started": _set_started,
    "ready": _set_pod_ready,
    "claims": _set_claims,
    "previous_node": _no_part_of_it,
    **{key: _request(resource) for key, resource in _RESOURCES.items()},
}

NODE_KEYS = frozenset({"name", *_NODE_KEYS})
"""Short keys of a node; the schema lists the same, and a test holds the two together."""
POD_KEYS = frozenset({"name", *_POD_KEYS})
"""Short keys of a pod."""


# --- devices ---------------------------------------------------------------------------------------------


def device_kinds(form: Any) -> Mapping[str, Any]:
    """Return the devices of a node by class, from any of their forms.

    Raises:
        ShortFormError: there are more devices of a class than a ResourceSlice can have, or a value is almost an amount.
    """
    if not isinstance(form, Mapping):
        kinds: dict[str, list[Json]] = {}
        for text in [form] if isinstance(form, str) else form:
            count, _, name, *said = text.split(" ")
            pairs = (part.partition("=") for part in said)
            kind = {key: _said(value) for key, _, value in pairs}
            kinds.setdefault(name, []).append({**kind, "count": int(count)})
        form = kinds
    for name, wanted in form.items():
        total = sum(1 for _ in _devices(name, wanted))
        for value in _values(wanted):
            if _ALMOST_AMOUNT.fullmatch(value) is not None:
                raise ShortFormError("devices", f"{value} is not an amount: write {value.removesuffix('B')}")
        if total > _MOST_DEVICES:
            text = f"{total} devices of class {name}: a node can have {_MOST_DEVICES} here, as a ResourceSlice can"
            raise ShortFormError("devices", text)
    known: Mapping[str, Any] = form
    return known


_MOST_DEVICES = 128
_ALMOST_AMOUNT = re.compile(r"[0-9.]+[KMGTPE]i?B")
"""An amount with the unit written out: as a text, no selector would find it."""


def _values(wanted: Any) -> Iterator[str]:
    """Return the texts of some devices of a class."""
    for kind in wanted if isinstance(wanted, list) else [wanted]:
        if isinstance(kind, Mapping):
            yield from (value for value in kind.values() if isinstance(value, str))


def _said(value: str) -> Any:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if re.fullmatch("-?[0-9]{1,18}", value) else value


def add_devices(cluster: Cluster, node_name: str, form: Mapping[str, Any]) -> None:
    """Publish the devices of a node, by class, and make the classes that there are not yet."""
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


def topology_object(node_name: str, zones: list[Mapping[str, Any]]) -> objects.NodeResourceTopology:
    """Return the NodeResourceTopology of a node whose NUMA nodes have these resources available."""
    made = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": _RESOURCES.get(name, name), "available": str(amount)} for name, amount in zone.items()
            ],
        }
        for number, zone in enumerate(zones)
    ]
    return msgspec.convert({"metadata": {"name": node_name}, "zones": made}, objects.NodeResourceTopology)


def volume_room_objects(cluster: Cluster, node_name: str, form: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the objects by which a driver says how large a volume of each StorageClass a node has room for.

    A class or driver that the cluster has already is not made again.
    """
    for name, room in form.items():
        known = cluster.get(objects.StorageClass, name)
        driver = known.provisioner if known is not None else f"{name}.csi.example.com"
        if known is None:
            yield msgspec.convert({"metadata": {"name": name}, "provisioner": driver}, objects.StorageClass)
        if cluster.get(objects.CSIDriver, driver) is None:
            made = {"metadata": {"name": driver}, "spec": {"storageCapacity": True}}
            yield msgspec.convert(made, objects.CSIDriver)
        capacity = {
            "metadata": {"name": f"{node_name}-{name}", "namespace": "default"},
            "storageClassName": name,
            "capacity": str(room),
            "nodeTopology": {"matchLabels": {HOSTNAME: node_name}},
        }
        yield msgspec.convert(capacity, objects.CSIStorageCapacity)


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
