"""A fleet of a control plane as a text in the short forms of tests, which the playground shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.cluster.prices import PRICE_KEY
from kube_policy_scheduler.fleet.karmada import reading
from kube_policy_scheduler.fleet.karmada.objects import ResourceBinding
from kube_policy_scheduler.fleet.model import FleetCluster, Workload
from kube_policy_scheduler.quantities.quantity import NANO
from kube_policy_scheduler.tooling.fleet_forms import API_VERSIONS
from kube_policy_scheduler.tooling.short_forms import Json
from kube_policy_scheduler.tooling.tester.suite_file import flow, scalar
from kube_policy_scheduler.wording import plural

MOST_TEXT = 200
"""Characters of an annotation that is kept: longer ones are no facts to decide by."""
TemplateKey: TypeAlias = tuple[str, str, str, str]
"""Group and version, kind, namespace and name."""
_KEYS: Mapping[str, str] = {"cpu": "cpu", "memory": "mem", "ephemeral-storage": "ephemeral_storage", "pods": "pods"}
_IN_BYTES = ("memory", "ephemeral-storage")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti")
_EXAMPLE: Json = {"name": "web", "replicas": 3, "cpu": 1}


class FleetAsText(msgspec.Struct, frozen=True):
    """What was written."""

    text: str
    """YAML with the keys `workload`, `clusters` and `workloads`."""
    left_out: tuple[str, ...] = ()
    """What the text does not say, for people."""


def bound_in(
    bindings: Iterable[ResourceBinding], templates: Mapping[TemplateKey, ObjectMeta]
) -> tuple[list[tuple[ResourceBinding, Workload]], list[str]]:
    """Return bindings with their workloads, and what is wrong with those that cannot be read.

    templates: metadata of what the bindings name.
    """
    found, unread = [], []
    for each in bindings:
        try:
            read = reading.workload(each)
        except reading.BindingError as error:
            unread.append(f"{each.metadata.namespace}/{each.metadata.name}: {error}")
            continue
        of = each.spec.resource
        meta = templates.get((of.api_version, of.kind, of.namespace, of.name))
        if meta is not None:
            read = msgspec.structs.replace(read, labels=meta.labels or {}, annotations=meta.annotations or {})
        found.append((each, read))
    return found, unread


def fleet_as_text(
    clusters: Iterable[FleetCluster],
    bound: Iterable[tuple[ResourceBinding, Workload]],
    *,
    now: float,
    name: str = "",
    most: int,
) -> FleetAsText:
    """Return a fleet as text.

    Args:
        clusters: of the control plane; those that are being deleted are left out.
        bound: bindings with their workloads. One of them is asked about, the others count for limits and spreads.
        now: Unix seconds of the decision.
        name: of the workload to ask about, NAME or NAMESPACE/NAME; "": the first one with pods.
        most: characters that the text may have.

    Raises:
        LookupError: no binding places the workload.
    """
    there = sorted((each for each in clusters if not each.deleting), key=lambda each: each.name)
    listed = sorted(bound, key=lambda each: (each[1].namespace, each[1].name, each[1].kind))
    asked = _asked(listed, name)
    workload = _workload_form(*asked, now) if asked is not None else _EXAMPLE
    api = (asked[1].api_version, asked[1].kind) if asked is not None else (API_VERSIONS["Deployment"], "Deployment")
    lines = ["workload:", *(f"  {scalar(key)}: {flow(value)}" for key, value in workload.items()), "clusters:"]
    size, shown = sum(len(line) + 1 for line in lines), 0
    for each in there:
        line = f"- {flow(_cluster_form(each, api, now))}"
        if size + len(line) + 1 > most:
            break
        lines.append(line)
        size, shown = size + len(line) + 1, shown + 1
    left = [f"{plural(len(there) - shown, 'cluster')} without room in the text"] if shown < len(there) else []
    if not there:
        lines[-1] = "clusters: []"
    others = [pair for pair in listed if pair is not asked and pair[1].has]
    written = list(_others(others, now, most - size))
    if len(written) < len(others):
        left.append(f"{plural(len(others) - len(written), 'other workload')}: limits and spreads do not count them")
    if written:
        lines += ["workloads:", *written]
    graded = sum(bool(each.grades) for each in there)
    if graded:
        left.append(f"the resource models of {plural(graded, 'cluster')}: room follows from what is free in sum")
    return FleetAsText("\n".join(lines) + "\n", tuple(left))


def _asked(listed: list[tuple[ResourceBinding, Workload]], name: str) -> tuple[ResourceBinding, Workload] | None:
    if not name:
        return next((pair for pair in listed if pair[1].has_pods), None)
    for pair in listed:
        if name in (pair[1].name, f"{pair[1].namespace}/{pair[1].name}"):
            return pair
    raise LookupError(f"no binding places a workload `{name}`")


def _others(pairs: Iterable[tuple[ResourceBinding, Workload]], now: float, most: int) -> Iterator[str]:
    left = most - len("workloads:\n")
    for binding, workload in pairs:
        form = _workload_form(binding, workload, now)
        line = f"- {flow({key: value for key, value in form.items() if key not in ('placement', 'uid', 'term')})}"
        left -= len(line) + 1
        if left < 0:
            return
        yield line


def _cluster_form(cluster: FleetCluster, api: tuple[str, str], now: float) -> Json:
    ready = cluster.conditions.get("Ready")
    amounts = {name: max(0, amount) for name, amount in cluster.allocatable.items()} if cluster.summarized else {}
    used = {name: cluster.requested(name) for name in amounts if cluster.requested(name)}
    price = cluster.annotations.get(PRICE_KEY, "")
    form: Json = {
        "name": cluster.name,
        "region": cluster.region,
        "provider": cluster.provider,
        "zone": cluster.zones[0] if len(cluster.zones) == 1 else "",
        "zones": list(cluster.zones) if len(cluster.zones) > 1 else [],
        **_amounts({"pods": 0} | amounts),
        "used": _amounts(used),
        "price": float(price) if _is_price(price) else "",
        "labels": dict(cluster.labels),
        "annotations": {
            key: text
            for key, text in cluster.annotations.items()
            if len(text) <= MOST_TEXT and not (key == PRICE_KEY and _is_price(text))
        },
        "taints": [_taint(each.key, each.value, each.effect) for each in cluster.taints],
        "version": cluster.version,
        "sync_mode": cluster.sync_mode,
        "nodes": cluster.nodes_total,
        "ready_for": f"{max(0, int(now - ready.since))}s" if ready is not None and ready.since is not None else "",
    }
    kept = {key: value for key, value in form.items() if value not in ("", {}, [], None)}
    if not cluster.ready:
        kept["ready"] = False
    if api not in cluster.apis:
        kept["apis"] = []
    return kept


def _workload_form(binding: ResourceBinding, workload: Workload, now: float) -> Json:
    form: Json = {
        "kind": workload.kind,
        "namespace": workload.namespace,
        "name": workload.name,
        "api_version": workload.api_version if workload.api_version != API_VERSIONS.get(workload.kind, "v1") else "",
        "uid": workload.uid,
        "replicas": workload.replicas,
        **_amounts(workload.requests or {}),
        "labels": dict(workload.labels or {}),
        "annotations": {key: text for key, text in (workload.annotations or {}).items() if len(text) <= MOST_TEXT},
        "priority": workload.priority or "",
        "priority_class": workload.priority_class,
        "has": dict(workload.has),
        "placement": binding.spec.placement or {},
        "term": workload.observed_term,
        "decided": f"{max(0, int(now - workload.decided))}s" if workload.decided is not None else "",
    }
    kept = {key: value for key, value in form.items() if value not in ("", {}, [], None)}
    return kept | {"namespace": workload.namespace, "replicas": workload.replicas}


def _amounts(amounts: Mapping[str, int]) -> Json:
    """Return amounts as short keys, and others below `resources`."""
    found: Json = {_KEYS[name]: _quantity(name, amount) for name, amount in amounts.items() if name in _KEYS}
    rest = {name: _quantity(name, amount) for name, amount in amounts.items() if name not in _KEYS}
    return found | ({"resources": rest} if rest else {})


def _quantity(resource: str, billionths: int) -> int | str:
    """Return an amount as people write it, and exactly: 2, 500m, 32Gi."""
    one: int = 10**NANO
    whole, rest = divmod(billionths, one)
    if rest:
        return f"{billionths // 10**6}m" if billionths % 10**6 == 0 else f"{billionths}n"
    if resource not in _IN_BYTES:
        return whole
    power = 0
    while whole and whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}" if power else whole


def _taint(key: str, value: str, effect: str) -> str:
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _is_price(text: str) -> bool:
    try:
        return 0 < float(text) < 1e9
    except ValueError:
        return False
