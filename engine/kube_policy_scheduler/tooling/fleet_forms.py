"""The short forms of clusters and workloads in test files: what people write, as values of `fleet.model`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

import msgspec

from kube_policy_scheduler.cluster.prices import PRICE_KEY, is_price, price_text
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.fleet.karmada import objects
from kube_policy_scheduler.fleet.karmada.reading import BindingError, placement
from kube_policy_scheduler.fleet.model import (
    HEALTHY,
    ClusterCondition,
    EvictionTask,
    FleetCluster,
    Placement,
    ReplicaScheduling,
    Workload,
)
from kube_policy_scheduler.quantities.quantity import QuantityError, nanos
from kube_policy_scheduler.times import parse_duration
from kube_policy_scheduler.tooling.short_forms import Json, ShortFormError, taint
from kube_policy_scheduler.wording import listed

_RESOURCES: Mapping[str, str] = MappingProxyType(
    {"cpu": "cpu", "mem": "memory", "ephemeral_storage": "ephemeral-storage", "pods": "pods"}
)
_MANY_PODS = nanos("1000000")
"""Of a cluster that says nothing of its pods."""
_READY_SECONDS = 86_400.0
"""For how long a cluster has been ready that says nothing of it."""
CAPACITY = "capacity"
API_VERSIONS: Mapping[str, str] = MappingProxyType(
    {
        "Deployment": "apps/v1",
        "StatefulSet": "apps/v1",
        "DaemonSet": "apps/v1",
        "ReplicaSet": "apps/v1",
        "Job": "batch/v1",
        "CronJob": "batch/v1",
    }
)
"""Of kinds that need not say it; others are `v1`."""
WITHOUT_PODS = frozenset({"ConfigMap", "Secret", "Service", "Namespace", "ServiceAccount"})
"""Kinds without replicas."""
CLUSTER_KEYS = frozenset(
    {"name", "region", "provider", "zone", "zones", "cpu", "mem", "ephemeral_storage", "pods", "resources", "used"}
    | {"labels", "annotations", "price", "taints", "ready", "ready_for", "version", "sync_mode", "nodes", "apis"}
    | {"member", "room", "evicting", "healthy"}
)
"""Short keys of a cluster; the schema lists the same. The last three are about the workload of the case. `member` is
made by who knows how nodes and pods are written."""
WORKLOAD_KEYS = frozenset(
    {"kind", "name", "namespace", "api_version", "uid", "labels", "annotations", "replicas", "cpu", "mem"}
    | {"ephemeral_storage", "resources", "priority", "priority_class", "has", "fresh", "placement", "term", "created"}
    | {"decided", "attempts"}
)
"""Short keys of a workload."""


def fleet_cluster(form: Json, workload: Workload, now: float) -> FleetCluster:
    """Return a cluster from its short form; it serves the kind of the workload unless it lists others.

    Raises:
        ShortFormError: a taint, an amount, a price, a kind or a duration cannot be read, or two keys say the same.
    """
    if "zone" in form and "zones" in form:
        raise ShortFormError("zone", "`zone` and `zones` say the same; expected one of them")
    zones = form.get("zones", [form["zone"]] if "zone" in form else [])
    annotations = {**form.get("annotations", {}), **_price(form)}
    ready_for = _seconds(form, "ready_for", _READY_SECONDS)
    status = "True" if form.get("ready", True) else "False"
    used = form.get("used", {})
    apis = form.get("apis")
    served = {(workload.api_version, workload.kind)} if apis is None else {_api(text) for text in apis}
    nodes = form.get("nodes")
    return FleetCluster(
        name=form["name"],
        labels=form.get("labels", {}),
        annotations=annotations,
        provider=form.get("provider", ""),
        region=form.get("region", ""),
        zones=tuple(zones),
        taints=tuple(map(_taint, form.get("taints", ()))),
        version=form.get("version", ""),
        sync_mode=form.get("sync_mode", ""),
        conditions={"Ready": ClusterCondition(status, now - ready_for)},
        nodes_ready=nodes,
        nodes_total=nodes,
        allocatable={"pods": _MANY_PODS} | _amounts(form),
        allocated=_amounts(used if isinstance(used, dict) else {"cpu": used}, within="used"),
        apis=frozenset(served),
    )


def fleet_workload(form: Json, clusters: Sequence[Json], now: float) -> Workload:
    """Return a workload from its short form, with what the clusters say about it.

    Raises:
        ShortFormError: an amount or a duration cannot be read, the placement is none, or the term is not in it.
    """
    kind = form.get("kind", "Deployment")
    has = form.get("has", {})
    requests = _amounts(form)
    replicas = form.get("replicas", 0 if kind in WITHOUT_PODS else 1)
    healthy = {each["name"]: each.get("healthy", True) for each in clusters}
    asked = _placement(form["placement"]) if "placement" in form else Placement(scheduling=_DIVIDED)
    terms = [each.name for each in asked.terms]
    if "term" in form and form["term"] not in terms:
        known = f"expected {listed(terms, 'or')}" if terms else "`placement` has no `clusterAffinities`"
        raise ShortFormError("term", f"unknown affinity term `{form['term']}`; {known}")
    return Workload(
        kind=kind,
        name=form.get("name", "web"),
        namespace=form.get("namespace", "default"),
        api_version=form.get("api_version", API_VERSIONS.get(kind, "v1")),
        uid=form.get("uid", ""),
        labels=form.get("labels", {}),
        annotations=form.get("annotations", {}),
        replicas=replicas,
        requests=requests if requests or kind not in WITHOUT_PODS else None,
        priority=form.get("priority", 0),
        priority_class=form.get("priority_class", ""),
        has=has,
        evicting=tuple(EvictionTask(each["name"]) for each in clusters if each.get("evicting")),
        health={name: HEALTHY if healthy.get(name, True) else "Unhealthy" for name in has},
        room={each["name"]: {CAPACITY: each["room"]} for each in clusters if "room" in each},
        placement=asked,
        observed_term=form.get("term", ""),
        fresh=form.get("fresh", False),
        created=now - _seconds(form, "created", 0.0),
        decided=now - _seconds(form, "decided", 0.0) if "decided" in form else None,
        attempts=form.get("attempts", 0),
    )


_DIVIDED = ReplicaScheduling("Divided", "Weighted", weighted=True, dynamic="AvailableReplicas")
"""What the PropagationPolicy of a workload says that a test says nothing of: by the room of the clusters."""


def _placement(written: Json) -> Placement:
    unknown = next(unknown_keys(written, objects.Placement), None)
    if unknown is not None:
        raise ShortFormError("placement", f"unknown key `{unknown}` of a placement")
    try:
        return placement(written)
    except BindingError as error:
        raise ShortFormError("placement", str(error)) from error


def unknown_keys(written: Any, form: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of keys, such as `replicaScheduling.weigths`, that an API object of this type does not have."""
    structs = [each for each in (form, *get_args(form)) if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    if isinstance(written, list):
        for each in written:
            for inner in get_args(form):
                yield from unknown_keys(each, inner, path)
    elif isinstance(written, dict) and structs:
        fields = {each.encode_name: each.type for each in msgspec.structs.fields(structs[0])}
        for key, value in written.items():
            here = f"{path}.{key}" if path else str(key)
            if key not in fields:
                yield here
            else:
                yield from unknown_keys(value, fields[key], here)


def _price(form: Json) -> Mapping[str, str]:
    """Return the annotation of the price; 0 is as in Kubernetes: nobody knows it."""
    if "price" not in form:
        return {}
    written = form["price"]
    text = written if isinstance(written, str) else price_text(written)
    if not is_price(text) and str(written) != "0":
        raise ShortFormError("price", f"expected a price per hour such as 0.25, or 0 for none, got {written!r}")
    return {PRICE_KEY: text}


def _api(text: str) -> tuple[str, str]:
    version, slash, kind = text.rpartition("/")
    if not slash or not kind:
        raise ShortFormError("apis", f"expected a kind with its API version, such as apps/v1/Deployment, got {text!r}")
    return version, kind


def _taint(form: str | Json) -> TaintKey:
    parsed = taint(form) if isinstance(form, str) else form
    return TaintKey(parsed.get("key", ""), parsed.get("value", ""), parsed.get("effect", ""))


def _amounts(form: Json, *, within: str = "") -> dict[str, int]:
    """Return billionths by resource."""
    written = {_RESOURCES[key]: (key, form[key]) for key in _RESOURCES if key in form}
    for name in form.get("resources", {}):
        if name in written:
            key = written[name][0]
            raise ShortFormError(within or "resources", f"`{key}` and `{name}` of `resources` say the same")
    written |= {name: ("resources", amount) for name, amount in form.get("resources", {}).items()}
    found = {}
    for resource, (key, amount) in written.items():
        try:
            found[resource] = nanos(str(amount))
        except QuantityError as error:
            raise ShortFormError(within or key, str(error)) from error
    return found


def _seconds(form: Json, key: str, default: float) -> float:
    return parse_duration(form[key]) if key in form else default
