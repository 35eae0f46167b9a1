"""Devices that pods claim: classes without a device, selectors that no device meets, pools and drivers with gaps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.alpha_fields import with_gate
from kube_policy_scheduler.cluster.devices.device_selectors import CompiledSelector, compile_selector
from kube_policy_scheduler.cluster.devices.resource_slices import PoolID, SlicedDevice
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.diagnostics import closest
from kube_policy_scheduler.framework.decide.device_columns import class_selectors, devices_of, is_of_class
from kube_policy_scheduler.framework.devices.constraints import attribute_of
from kube_policy_scheduler.framework.devices.device_order import number_of
from kube_policy_scheduler.kubernetes_rules import Feature
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.tooling.policy_reads import expressions_of
from kube_policy_scheduler.wording import one_line, plural, some

_MOST_MATCHES = 500_000
"""Devices that are held against selectors, in all."""
_MOST_REQUESTS = 1_000
"""Requests of claims and templates that are looked at."""
_MOST_TEXT = 100
_BY_CLASS = re.compile(r'class_devices\w*\(\s*"([^"]*)"')
_BY_NAME = re.compile(r'(?:claimed|device)_\w+\(\s*"([^"]*)"|class_devices_together\w*\(\s*"[^"]*",\s*"([^"]*)"')


def device_findings(inspection: Inspection) -> Iterator[Finding]:
    """Look at classes, claims, pools and what policies read of devices."""
    cluster = inspection.state.cluster
    classes = {one.metadata.name: one for one in cluster.store.all(objects.DeviceClass)}
    used = _names_in_policies(inspection)
    if not (classes or len(cluster.resource_slices) or used or any(cluster.store.all(objects.DeviceTaintRule))):
        return
    devices = _devices(cluster)
    requests = list(islice(_requests(cluster), _MOST_REQUESTS))
    if len(devices) * (len(classes) + len(requests)) > _MOST_MATCHES:
        text = f"{plural(len(devices), 'device')}, {plural(len(requests), 'request')}: too many to compare all"
        yield Finding("devices", "classes and claims", Status.UNCHECKED, text)
    else:
        claimed = Counter(request.device_class_name for _, request in requests)
        for name in sorted(classes):
            yield _class(cluster, name, devices, claimed[name])
        yield from _selectors(cluster, requests, devices)
    yield from _pools(cluster)
    yield from _gone(cluster)
    yield from _taint_rules(cluster, devices)
    yield from _left_out(devices)
    yield from _of_policies(used, sorted(classes), devices)


def _devices(cluster: Cluster) -> list[tuple[str, SlicedDevice]]:
    """Return the devices that nodes can use, each with one of its nodes."""
    found: dict[object, tuple[str, SlicedDevice]] = {}
    for info in cluster.nodes.infos:
        for device in devices_of(cluster, info):
            found.setdefault(device.id, (info.name, device))
    return list(found.values())


Request = objects.ExactDeviceRequest | objects.DeviceSubRequest


def _requests(cluster: Cluster) -> Iterator[tuple[str, Request]]:
    """Yield the requests of claims without devices, and of templates, each with what it is called."""
    specs = [
        (f"claim {object_key(claim.metadata)}", claim.spec)
        for claim in cluster.resource_claims.all()
        if claim.status.allocation is None
    ]
    for template in cluster.store.all(objects.ResourceClaimTemplate):
        try:
            spec = msgspec.convert(template.spec.get("spec") or {}, objects.ResourceClaimSpec)
        except msgspec.ValidationError:
            continue  # of another version: its claims say more
        specs.append((f"template {object_key(template.metadata)}", spec))
    for name, spec in specs:
        for request in spec.devices.requests or ():
            for one in [request.exactly] if request.exactly is not None else request.first_available or ():
                yield name, one


def _class(cluster: Cluster, name: str, devices: Sequence[tuple[str, SlicedDevice]], claims: int) -> Finding:
    selectors = class_selectors(cluster, name) or ()
    subject = f"class {name}"
    wrong = next((one for one in selectors if one.error), None)
    if wrong is not None:
        text = f"its selector cannot be compiled: {one_line(wrong.error, _MOST_TEXT)}"
        return Finding("devices", subject, Status.PROBLEM, text, advice="correct the selector of the DeviceClass")
    mine = [(node, device) for node, device in devices if is_of_class(device, selectors)]
    if mine:
        free = sum(not cluster.resource_claims.allocated.is_allocated(device.id) for _, device in mine)
        nodes = len({node for node, _ in mine})
        return Finding(
            "devices", subject, Status.OK, f"{plural(len(mine), 'device')} on {plural(nodes, 'node')}, {free} free"
        )
    drivers = sorted({device.id.driver for _, device in devices})
    there = f"drivers publish devices: {some(drivers)}" if drivers else "no driver publishes devices"
    wanted = f", and {plural(claims, 'request')} of claims {'wants' if claims == 1 else 'want'} one" if claims else ""
    text = f"no device meets its selectors{wanted}"
    advice = f"{there}; look whether the driver of this class runs, and what its devices are called"
    return Finding("devices", subject, Status.PROBLEM if claims else Status.WARNING, text, advice=advice)


def _selectors(
    cluster: Cluster, requests: Sequence[tuple[str, Request]], devices: Sequence[tuple[str, SlicedDevice]]
) -> Iterator[Finding]:
    by_class: dict[str, list[SlicedDevice]] = {}
    for name, request in requests:
        class_name = request.device_class_name
        if cluster.get(objects.DeviceClass, class_name) is None:
            known = [one.metadata.name for one in cluster.store.all(objects.DeviceClass)]
            meant = closest(class_name, known)
            advice = f"did you mean `{meant}`?" if meant else "make the class, or correct the claim"
            text = f"there is no class {class_name}"
            yield Finding("devices", name, Status.PROBLEM, text, advice=advice)
            continue
        if class_name not in by_class:
            selectors = class_selectors(cluster, class_name)
            by_class[class_name] = [device for _, device in devices if is_of_class(device, selectors)]
        for one in request.selectors or ():
            selector = compile_selector(one.cel.expression if one.cel is not None else "")
            problem = _problem(selector, by_class[class_name])
            if problem:
                subject = f"{name}, selector `{one_line(selector.expression, _MOST_TEXT)}`"
                advice = "ask `policyctl why` for a pod that waits for it: it shows what the nearest devices have"
                yield Finding("devices", subject, Status.PROBLEM, problem, advice=advice)


def _problem(selector: CompiledSelector, devices: Sequence[SlicedDevice]) -> str:
    if selector.error:
        return f"it cannot be compiled: {one_line(selector.error, _MOST_TEXT)}"
    if not devices:
        return ""  # said of the class
    matches = [device.match(selector) for device in devices]
    failed = next((match.error for match in matches if match.error), "")
    if failed:
        return f"it has an error on a device, which ends each attempt: {one_line(failed, _MOST_TEXT)}"
    return "" if any(match.matches for match in matches) else f"none of {plural(len(devices), 'device')} meets it"


def _pools(cluster: Cluster) -> Iterator[Finding]:
    pools: dict[PoolID, list[tuple[int, int]]] = {}
    for info in cluster.resource_slices:
        pools.setdefault(info.pool, []).append((info.generation, info.slice.spec.pool.resource_slice_count))
    for identity, slices in sorted(pools.items()):
        newest = max(generation for generation, _ in slices)
        counts = [count for generation, count in slices if generation == newest]
        if len(counts) < counts[0]:
            text = f"{len(counts)} of {plural(counts[0], 'slice')} of generation {newest}: its devices cannot be used"
            advice = "look whether the driver is still writing them, or cannot"
            yield Finding("devices", f"pool {identity}", Status.WARNING, text, advice=advice)
    wrong = {
        pool.id: pool.invalid
        for info in cluster.nodes.infos
        for pool in cluster.resource_slices.pools_of(info.row)
        if pool.invalid
    }
    for identity, why in sorted(wrong.items()):
        text = f"its slices contradict each other: {one_line(why, _MOST_TEXT)}"
        yield Finding("devices", f"pool {identity}", Status.PROBLEM, text, advice="correct the driver")


def _gone(cluster: Cluster) -> Iterator[Finding]:
    """Find drivers whose devices are allocated, but that publish none of that pool any more."""
    published = {info.pool for info in cluster.resource_slices}
    lost: dict[PoolID, list[str]] = {}
    for claim in cluster.resource_claims.all():
        allocation = claim.status.allocation
        for result in (allocation.devices.results or ()) if allocation is not None else ():
            identity = PoolID(result.driver, result.pool)
            if identity not in published:
                lost.setdefault(identity, []).append(object_key(claim.metadata))
    for identity, claims in sorted(lost.items()):
        names = sorted(set(claims))
        have = f"{plural(len(names), 'claim')} {'has' if len(names) == 1 else 'have'}"
        text = f"nobody publishes it, but {have} devices of it: {some(names)}"
        advice = f"look whether the driver {identity.driver} runs on its node"
        yield Finding("devices", f"pool {identity}", Status.PROBLEM, text, advice=advice)


def _taint_rules(cluster: Cluster, devices: Sequence[tuple[str, SlicedDevice]]) -> Iterator[Finding]:
    """Say how many devices each DeviceTaintRule taints."""
    known = {rule.metadata.name: rule for rule in cluster.store.all(objects.DeviceTaintRule)}
    tainted = Counter(name for _, device in devices for name, _ in device.slice.taint_rules.taints_of(device.id))
    for name, rule in sorted(known.items()):
        subject = f"DeviceTaintRule {name}"
        if Feature.DRA_DEVICE_TAINT_RULES not in cluster.rules:
            text = f"its feature gate DRADeviceTaintRules is off in Kubernetes {cluster.rules}: it taints no device"
            yield Finding("devices", subject, Status.OK, text)
        elif rule.spec.device_selector is None:
            text = f"it has no deviceSelector, and taints {plural(tainted[name], 'device')}"
            advice = "select devices: without it, Kubernetes 1.37 taints all of them, and later versions none"
            yield Finding("devices", subject, Status.WARNING, text, advice=advice)
        elif not tainted[name]:
            advice = "compare driver, pool and device of its deviceSelector with the ResourceSlices"
            yield Finding("devices", subject, Status.WARNING, "it selects no device", advice=advice)
        else:
            text = f"it taints {plural(tainted[name], 'device')} with {rule.spec.taint.key}:{rule.spec.taint.effect}"
            yield Finding("devices", subject, Status.OK, text)


def _left_out(devices: Sequence[tuple[str, SlicedDevice]]) -> Iterator[Finding]:
    """Find devices that are never chosen, because they have fields that only alpha feature gates use."""
    fields = Counter(device.alpha_field for _, device in devices if device.alpha_field)
    for field, count in sorted(fields.items()):
        text = f"{plural(count, 'device')} with this field {'is' if count == 1 else 'are'} never chosen"
        advice = "let the driver publish devices without it, or leave these devices to kube-scheduler"
        yield Finding("devices", f"field {with_gate(field)}", Status.WARNING, text, advice=advice)


# --- what policies read ----------------------------------------------------------------------------------


def _names_in_policies(inspection: Inspection) -> list[tuple[str, str, str]]:
    """Return the classes, and the attributes and capacities, that policies read: kind, name and place."""
    found: dict[tuple[str, str], str] = {}
    for policy in inspection.policy_set.policies:
        for root in expressions_of(policy):
            for part in typed.below(root):
                if not isinstance(part, typed.Apply):
                    continue
                text = part.span.text
                for kind, pattern in (("class", _BY_CLASS), ("attribute", _BY_NAME)):
                    match = pattern.match(text)
                    name = next((group for group in match.groups() if group), None) if match is not None else None
                    if name is not None:
                        found.setdefault((kind, name), str(part.span))
                together = _BY_NAME.match(text)
                if together is not None and together[2]:
                    found.setdefault(("attribute", together[2]), str(part.span))
    return [(kind, name, place) for (kind, name), place in found.items()]


def _of_policies(
    used: Sequence[tuple[str, str, str]], classes: Sequence[str], devices: Sequence[tuple[str, SlicedDevice]]
) -> Iterator[Finding]:
    for kind, name, place in used:
        if kind == "class":
            if name not in classes:
                meant = closest(name, classes)
                advice = f"did you mean `{meant}`?" if meant else "it counts as a class without devices"
                yield Finding("devices", f"class {name}", Status.PROBLEM, "there is no such class", place, advice)
            continue
        if not devices:
            yield Finding("devices", f"`{name}`", Status.UNCHECKED, "there are no devices", place)
        elif not any(_has(device, name) for _, device in devices):
            known = {
                key for _, one in devices for key in (*(one.device.attributes or ()), *(one.device.capacity or ()))
            }
            meant = closest(name.rpartition("/")[2], known)
            advice = f"did you mean `{meant}`?" if meant else f"there are: {some(sorted(known), limit=8)}"
            text = "no device has this attribute or capacity: it is always missing"
            yield Finding("devices", f"`{name}`", Status.PROBLEM, text, place, advice)


def _has(device: SlicedDevice, name: str) -> bool:
    return attribute_of(device, name) is not None or number_of(device, name) == number_of(device, name)
