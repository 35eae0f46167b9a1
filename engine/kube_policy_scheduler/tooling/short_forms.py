"""Nodes and pods as people write them in a test, to Kubernetes objects and back. Knows no defaults of the API server.

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
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.prices import PRICE_KEY, price_text

Json: TypeAlias = dict[str, Any]

ZONE, REGION, HOSTNAME = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
DEFAULT_NODE_PODS = 110
"""The kubelet's default limit."""
SHORT_RESOURCES: Mapping[str, str] = {"cpu": "cpu", "memory": "mem", "ephemeral-storage": "ephemeral_storage"}
"""Short keys of resources; others stand under `resources`."""
_RESOURCES = {key: resource for resource, key in SHORT_RESOURCES.items()}
_AMOUNT = re.compile(r"[0-9.]+(Ki|Mi|Gi|Ti|k|M|G|T)")
_PARTS = ("metadata", "spec", "status")
_OBJECT_KEYS = ("apiVersion", "kind", *_PARTS)
_PLAIN_CONTAINER = frozenset({"name", "image", "resources"})
_OWNER_API = "apps/v1"
"""The API of the owner that the short form means."""


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
        status = _child(done, "status")
        if "pods" not in (status.get("allocatable") or status.get("capacity") or {}):
            _set_capacity(done, "pods", DEFAULT_NODE_PODS)
        if not any(c.get("type") == "Ready" for c in done["status"].get("conditions") or ()):
            _set_ready(done, ready=True)
    _write(_NODE_KEYS, done, form)
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
    _write(_POD_KEYS, done, form)
    return done


def node_form(node: Mapping[str, Any]) -> Json:
    """Return the short form of a Node; what no short key says stays in its `metadata`, `spec` and `status`."""
    rest = _parts(node)
    name, status = rest["metadata"].pop("name"), rest["status"]
    labels = _child(rest["metadata"], "labels")
    if labels.get(HOSTNAME) == name:
        del labels[HOSTNAME]
    else:
        labels.setdefault(HOSTNAME, None)  # the short form would add it
    status["allocatable"] = status.get("allocatable") or dict(status.get("capacity") or {})
    return {"name": name, **_taken(_NODE_KEYS, rest)}


def pod_form(pod: Mapping[str, Any]) -> Json:
    """Return the short form of a Pod; what no short key says stays in its `metadata`, `spec` and `status`.

    A container that is like that of the short form, apart from its name and how far its limits exceed its requests,
    is said by short keys.
    """
    rest = _parts(pod)
    name, containers = rest["metadata"].pop("name"), rest["spec"].get("containers") or []
    if len(containers) == 1 and not {key for key, value in containers[0].items() if value} - _PLAIN_CONTAINER:
        container = containers[0]
        requests, limits = ((container.get("resources") or {}).get(kind) or {} for kind in ("requests", "limits"))
        if limits.keys() <= requests.keys():
            del rest["spec"]["containers"]
            rest["container"] = {"image": container.get("image"), "requests": requests}
    return {"name": name, **_taken(_POD_KEYS, rest)}


def _parts(obj: Mapping[str, Any]) -> Json:
    """Return a copy of the parts of an object that its short form is taken from."""
    return {part: copy.deepcopy(dict(obj.get(part) or {})) for part in _PARTS}


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


def _nothing(rest: Json) -> None:
    """Take nothing: where it is said otherwise, it stays."""


@dataclass(frozen=True, slots=True)
class _ShortKey:
    """One short key, in both directions."""

    write: Callable[[Json, Any], None]
    """Lays what the key says over an object."""
    take: Callable[[Json], Any] = _nothing
    """Takes out of the parts of an object what the key says, and returns it; None if the key cannot say it."""


def _write(keys: Mapping[str, _ShortKey], obj: Json, form: Mapping[str, Any]) -> None:
    """Lay what a form says over an object; what two keys say is as the first of the table says it."""
    for key in reversed(list(keys)):
        if key in form:
            keys[key].write(obj, form[key])


def _taken(keys: Mapping[str, _ShortKey], rest: Json) -> Json:
    """Return what short keys say of an object, and the parts that they leave."""
    form: Json = {}
    for key, short in keys.items():
        value = short.take(rest)
        if not (value is None or (isinstance(value, str | list | dict) and not value)):
            form[key] = value
    for part in _PARTS:
        left = {key: value for key, value in rest[part].items() if value != {}}
        if left:
            form[part] = left
    return form


def _child(obj: Json, key: str) -> Json:
    child = obj.setdefault(key, {})
    assert isinstance(child, dict)
    return child


def _labels(obj: Json) -> Json:
    return _child(_child(obj, "metadata"), "labels")


def _field(part: str, name: str) -> _ShortKey:
    """Return the key for a field of `metadata`, `spec` or `status`; an empty one is as none."""

    def write(obj: Json, value: Any) -> None:
        _child(obj, part)[name] = value

    return _ShortKey(write, lambda rest: rest[part].pop(name, None))


def _texts(name: str) -> _ShortKey:
    """Return the key for labels or annotations, which are laid over those that are there."""

    def write(obj: Json, value: Mapping[str, str]) -> None:
        meta = _child(obj, "metadata")
        meta[name] = merged(meta.get(name) or {}, value)

    return _ShortKey(write, lambda rest: rest["metadata"].pop(name, None))


def _label(key: str) -> _ShortKey:
    def write(obj: Json, value: Any) -> None:
        _labels(obj)[key] = value

    return _ShortKey(write, lambda rest: _labels(rest).pop(key, None))


def _set_price(obj: Json, value: float) -> None:
    _child(_child(obj, "metadata"), "annotations")[PRICE_KEY] = price_text(value)


def _take_price(rest: Json) -> float | None:
    annotations = rest["metadata"].get("annotations") or {}
    text = annotations.get(PRICE_KEY, "")
    try:
        price = float(text)
    except ValueError:
        return None
    if price_text(price) != text:
        return None
    del annotations[PRICE_KEY]
    return price


def _set_capacity(obj: Json, resource: str, amount: Any) -> None:
    status = _child(obj, "status")
    status.setdefault("allocatable", dict(status.get("capacity") or {}))  # as the API server defaults it
    for kind in ("capacity", "allocatable"):
        _child(status, kind)[resource] = str(amount)


def _take_capacity(rest: Json, resource: str) -> Any:
    """Take how much a node has of a resource, unless it keeps some of it for the system."""
    offered, has = rest["status"]["allocatable"], rest["status"].get("capacity") or {}
    if resource not in offered or has.get(resource, offered[resource]) != offered[resource]:
        return None
    has.pop(resource, None)
    return offered.pop(resource)


def _capacity(resource: str) -> _ShortKey:
    return _ShortKey(
        lambda obj, value: _set_capacity(obj, resource, value), lambda rest: _take_capacity(rest, resource)
    )


def _take_places(rest: Json) -> Any:
    """Take how many pods a node holds: none if it does not say, where the short form would say 110."""
    return _take_capacity(rest, "pods") if "pods" in rest["status"]["allocatable"] else "0"


def _set_capacities(obj: Json, value: Mapping[str, Any]) -> None:
    for resource, amount in value.items():
        _set_capacity(obj, resource, amount)


def _take_capacities(rest: Json) -> Json:
    taken = ((resource, _take_capacity(rest, resource)) for resource in list(rest["status"]["allocatable"]))
    return {resource: amount for resource, amount in taken if amount is not None}


def _request(resource: str) -> _ShortKey:
    def write(obj: Json, value: Any) -> None:
        _set_requests(obj, {resource: value})

    return _ShortKey(write, lambda rest: _take_requests(rest).pop(resource, None))


def _set_requests(obj: Json, value: Mapping[str, Any]) -> None:
    resources = _child(obj["spec"]["containers"][0], "resources")
    for resource, amount in value.items():
        _child(resources, "requests")[resource] = str(amount)
        if "/" in resource:  # an extended resource's limit equals its request, or the API server rejects the pod
            _child(resources, "limits")[resource] = str(amount)


def _take_requests(rest: Json) -> Json:
    requests: Json = rest.get("container", {}).get("requests", {})
    return requests


def _set_ready(obj: Json, ready: Any) -> None:
    status = _child(obj, "status")
    others = [c for c in status.get("conditions") or () if c.get("type") != "Ready"]
    status["conditions"] = [*others, {"type": "Ready", "status": "True" if ready else "False"}]


def _take_ready(rest: Json) -> bool | None:
    """Take the condition Ready if it says no more than that; without one, a node is not ready."""
    conditions = rest["status"].get("conditions") or []
    ready = [one for one in conditions if one.get("type") == "Ready"]
    if any(one.keys() != {"type", "status"} or one["status"] not in ("True", "False") for one in ready):
        return None
    rest["status"]["conditions"] = [one for one in conditions if one.get("type") != "Ready"]
    if not rest["status"]["conditions"]:
        del rest["status"]["conditions"]
    return None if ready and ready[-1]["status"] == "True" else False


def _set_pod_ready(obj: Json, ready: Any) -> None:
    _set_ready(obj, ready)
    if ready:
        _set_started(obj, True)


def _set_started(obj: Json, started: Any) -> None:
    for status in _statuses(obj):
        status["started"] = bool(started)


def _set_restarts(obj: Json, restarts: Any) -> None:
    _statuses(obj)[0]["restartCount"] = restarts


def _statuses(obj: Json) -> list[Json]:
    """Return the status of each container of a pod; they are made where there are none."""
    status = _child(obj, "status")
    if "containerStatuses" not in status:
        status["containerStatuses"] = [{"name": container["name"]} for container in obj["spec"]["containers"]]
    made: list[Json] = status["containerStatuses"]
    return made


def _set_taints(obj: Json, value: list[Any]) -> None:
    _child(obj, "spec")["taints"] = [taint(item) if isinstance(item, str) else item for item in value]


def _take_taints(rest: Json) -> list[Any]:
    return [_taint_text(one) or one for one in rest["spec"].pop("taints", None) or ()]


def _taint_text(one: Json) -> str:
    """Return a taint as `kubectl taint` writes it, "" if it says more."""
    text = _written_taint(one)
    return text if _read_back(taint, text) == {key: value for key, value in one.items() if value} else ""


def _written_taint(one: Json) -> str:
    value, effect = (f"{mark}{one[key]}" if one.get(key) else "" for mark, key in (("=", "value"), (":", "effect")))
    return f"{one.get('key')}{value}{effect}"


def _set_tolerations(obj: Json, value: list[Any]) -> None:
    items = [toleration(item) if isinstance(item, str) else item for item in value]
    _child(obj, "spec")["tolerations"] = [*(_child(obj, "spec").get("tolerations") or ()), *items]


def _take_tolerations(rest: Json) -> list[Any]:
    return [_toleration_text(one) or one for one in rest["spec"].pop("tolerations", None) or ()]


def _toleration_text(one: Json) -> str:
    """Return a toleration as a text, "" if it says more."""
    full = {"operator": "Equal"} | {key: value for key, value in one.items() if value}
    text = _written_taint(one)
    return text if _read_back(toleration, text) == full else ""


def _read_back(read: Callable[[str], Json], text: str) -> Json | None:
    """Return what a text says, None if it cannot be read."""
    try:
        return read(text)
    except ShortFormError:
        return None


def _set_image(obj: Json, value: str) -> None:
    obj["spec"]["containers"][0]["image"] = value


def _set_owner(obj: Json, value: str) -> None:
    kind, slash, name = value.partition("/")
    if not slash or not kind or not name:
        raise ShortFormError("owner", f"{value!r} is not an owner, expected KIND/NAME such as ReplicaSet/web")
    _child(obj, "metadata")["ownerReferences"] = [
        {"apiVersion": _OWNER_API, "kind": kind, "name": name, "uid": value, "controller": True}
    ]


def _take_owner(rest: Json) -> str | None:
    """Take the controller; no rule reads other owners, nor which uid the controller has."""
    owners = rest["metadata"].pop("ownerReferences", None) or []
    chosen = next((one for one in owners if one.get("controller")), None)
    if chosen is None:
        return None
    if chosen.get("apiVersion") != _OWNER_API:
        rest["metadata"]["ownerReferences"] = [chosen]
        return None
    return f"{chosen['kind']}/{chosen['name']}"


def _take_namespace(rest: Json) -> str | None:
    namespace: str = rest["metadata"].pop("namespace", "default")
    return namespace if namespace != "default" else None


def _set_claims(done: Json, value: Any) -> None:
    _child(done, "spec")["resourceClaims"] = claim_references(value)


def _no_part_of_it(done: Json, value: Any) -> None:
    """Devices, NUMA nodes and room for volumes are objects of their own (`add_devices`, `topology_object`,
    `volume_room_objects`); where a pod ran before is not written anywhere."""


_NODE_KEYS: Mapping[str, _ShortKey] = {
    "zone": _label(ZONE),
    "region": _label(REGION),
    **{key: _capacity(resource) for key, resource in _RESOURCES.items()},
    "pods": _ShortKey(_capacity("pods").write, _take_places),
    "resources": _ShortKey(_set_capacities, _take_capacities),
    "labels": _texts("labels"),
    "price": _ShortKey(_set_price, _take_price),
    "annotations": _texts("annotations"),
    "taints": _ShortKey(_set_taints, _take_taints),
    "ready": _ShortKey(_set_ready, _take_ready),
    "unschedulable": _field("spec", "unschedulable"),
    "created": _field("metadata", "creationTimestamp"),
    "devices": _ShortKey(_no_part_of_it),
    "numa": _ShortKey(_no_part_of_it),
    "volume_room": _ShortKey(_no_part_of_it),
}

_POD_KEYS: Mapping[str, _ShortKey] = {
    "namespace": _ShortKey(_field("metadata", "namespace").write, _take_namespace),
    "node": _field("spec", "nodeName"),
    "labels": _texts("labels"),
    "annotations": _texts("annotations"),
    "owner": _ShortKey(_set_owner, _take_owner),
    "scheduler": _field("spec", "schedulerName"),
    "priority": _field("spec", "priority"),
    "image": _ShortKey(_set_image, lambda rest: rest.get("container", {}).pop("image", None)),
    **{key: _request(resource) for key, resource in _RESOURCES.items()},
    "resources": _ShortKey(_set_requests, _take_requests),
    "node_selector": _field("spec", "nodeSelector"),
    "tolerations": _ShortKey(_set_tolerations, _take_tolerations),
    "created": _field("metadata", "creationTimestamp"),
    "running_since": _field("status", "startTime"),
    "ready": _ShortKey(_set_pod_ready),
    "started": _ShortKey(_set_started),
    "restarts": _ShortKey(_set_restarts),
    "claims": _ShortKey(_set_claims),
    "previous_node": _ShortKey(_no_part_of_it),
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
