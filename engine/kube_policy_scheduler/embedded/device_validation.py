"""What the API server refuses of device claims, classes and slices. Pure: objects in, causes out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from kube_policy_scheduler.cluster.devices.device_selectors import compile_selector
from kube_policy_scheduler.embedded import causes
from kube_policy_scheduler.embedded.cells import at as value_at
from kube_policy_scheduler.embedded.errors import Cause, Json

_MOST_REQUESTS = _MOST_SELECTORS = _MOST_CONSTRAINTS = _MOST_CONFIGS = 32
_MOST_ALTERNATIVES = 8
_MOST_DEVICES = 128
_MOST_DEVICES_WITH_MORE = 64
"""Devices of a slice if any of them has taints or consumes counters."""
_MOST_ATTRIBUTES = 32
_MOST_USERS = 256
_MOST_PARAMETER_BYTES = 10 * 1024
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_NAME_OF_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_FULL_NAME = "a fully qualified name must be a domain and a name separated by a slash"
_VALUES = ("int", "bool", "string", "version")
_EFFECTS = ("NoExecute", "NoSchedule", "None")


def device_class(obj: Json) -> list[Cause]:
    """Return what is wrong with a DeviceClass."""
    spec = obj.get("spec") or {}
    return _selectors(spec.get("selectors"), "spec.selectors") + _configs(spec.get("config"), "spec.config", None)


def resource_claim(obj: Json) -> list[Cause]:
    """Return what is wrong with a ResourceClaim."""
    return _claim_spec(obj.get("spec") or {}, "spec")


def claim_template(obj: Json) -> list[Cause]:
    """Return what is wrong with a ResourceClaimTemplate."""
    return _claim_spec(value_at(obj, "spec", "spec", default={}), "spec.spec")


def _too_many(at: str, number: int, most: int) -> Cause:
    return Cause(at, "FieldValueTooMany", f"Too many: {number}: must have at most {most} items")


def _limited(items: Any, at: str, most: int) -> tuple[list[Any], list[Cause]]:
    found = list(items or ())
    return found, [_too_many(at, len(found), most)] if len(found) > most else []


def _claim_spec(spec: Json, at: str) -> list[Cause]:
    devices = spec.get("devices") or {}
    requests, found = _limited(devices.get("requests"), f"{at}.devices.requests", _MOST_REQUESTS)
    names: list[str] = []
    for number, request in enumerate(requests):
        path = f"{at}.devices.requests[{number}]"
        found += _name(request.get("name"), f"{path}.name", names)
        names.append(request.get("name") or "")
        alternatives = request.get("firstAvailable")
        exactly = request.get("exactly")
        if alternatives and exactly is not None:
            text = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
            found.append(causes.invalid(path, request, text))
        elif exactly is not None:
            found += _request(exactly, f"{path}.exactly")
        elif alternatives:
            listed, more = _limited(alternatives, f"{path}.firstAvailable", _MOST_ALTERNATIVES)
            found += more
            subs: list[str] = []
            for place, sub in enumerate(listed):
                found += _name(sub.get("name"), f"{path}.firstAvailable[{place}].name", subs)
                subs.append(sub.get("name") or "")
                found += _request(sub, f"{path}.firstAvailable[{place}]")
            names += [f"{request.get('name')}/{sub}" for sub in subs]
        else:
            found.append(causes.required(path, "exactly one of `exactly` or `firstAvailable` is required"))
    constraints, more = _limited(devices.get("constraints"), f"{at}.devices.constraints", _MOST_CONSTRAINTS)
    found += more
    for number, constraint in enumerate(constraints):
        path = f"{at}.devices.constraints[{number}]"
        found += _names_of_requests(constraint.get("requests"), f"{path}.requests", names)
        for key in ("matchAttribute", "distinctAttribute"):
            if constraint.get(key) is not None:
                found += _qualified(constraint[key], f"{path}.{key}", needs_domain=True)
        if constraint.get("matchAttribute") is None and constraint.get("distinctAttribute") is None:
            # as the API server says it, though none is set
            known = 'exactly one of "matchAttribute" or "distinctAttribute" is required'
            text = f"{known}, but multiple fields are set"
            found.append(causes.required(path, text))
    return found + _configs(devices.get("config"), f"{at}.devices.config", names)


def _name(name: str | None, at: str, others: Iterable[str]) -> list[Cause]:
    if not name:
        return [causes.required(at)]
    if found := causes.dns_label(at, name):
        return found
    return [causes.duplicate(at.removesuffix(".name"), name)] if name in others else []


def _names_of_requests(requests: Any, at: str, known: Iterable[str]) -> list[Cause]:
    listed, found = _limited(requests, at, _MOST_REQUESTS)
    for number, name in enumerate(listed):
        if name not in known:
            found.append(causes.invalid(f"{at}[{number}]", name, _NAME_OF_REQUEST))
        elif name in listed[:number]:
            found.append(causes.duplicate(f"{at}[{number}]", name))
    return found


def _request(request: Json, at: str) -> list[Cause]:
    name = request.get("deviceClassName")
    path = f"{at}.deviceClassName"
    found = causes.dns_subdomain(path, name) if name else [causes.required(path)]
    found += _selectors(request.get("selectors"), f"{at}.selectors")
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode == "ExactCount":
        if not isinstance(count, int) or count <= 0:
            found.append(causes.invalid(f"{at}.count", count, "must be greater than zero"))
    elif mode == "All":
        if count:
            text = "must not be specified when allocationMode is 'All'"
            found.append(causes.invalid(f"{at}.count", count, text))
    else:
        found.append(causes.unsupported(f"{at}.allocationMode", mode or "", ("All", "ExactCount")))
    for number, toleration in enumerate(request.get("tolerations") or ()):
        found += _toleration(toleration, f"{at}.tolerations[{number}]")
    return found


def _toleration(toleration: Json, at: str) -> list[Cause]:
    found = causes.qualified_name(f"{at}.key", toleration["key"]) if toleration.get("key") else []
    operator = toleration.get("operator", "")
    if operator == "Exists":
        if toleration.get("value"):
            text = "must be empty for operator `Exists`"
            found.append(causes.invalid(f"{at}.value", toleration["value"], text))
    elif operator != "Equal":
        found.append(causes.unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
    return found + causes.one_of(f"{at}.effect", toleration.get("effect"), _EFFECTS)


def _selectors(selectors: Any, at: str) -> list[Cause]:
    listed, found = _limited(selectors, at, _MOST_SELECTORS)
    for number, selector in enumerate(listed):
        path = f"{at}[{number}].cel"
        cel = selector.get("cel")
        if cel is None:
            found.append(causes.required(path))
            continue
        expression = cel.get("expression", "")
        if error := compile_selector(expression).error:
            found.append(causes.invalid(f"{path}.expression", expression, error))
    return found


def _configs(configs: Any, at: str, requests: list[str] | None) -> list[Cause]:
    listed, found = _limited(configs, at, _MOST_CONFIGS)
    for number, config in enumerate(listed):
        path = f"{at}[{number}]"
        if requests is not None:
            found += _names_of_requests(config.get("requests"), f"{path}.requests", requests)
        opaque = config.get("opaque")
        if opaque is None:
            found.append(causes.required(f"{path}.opaque"))
            continue
        driver, parameters = opaque.get("driver"), opaque.get("parameters")
        found += (
            causes.dns_subdomain(f"{path}.opaque.driver", driver)
            if driver
            else [causes.required(f"{path}.opaque.driver")]
        )
        if parameters is None:
            found.append(causes.required(f"{path}.opaque.parameters"))
        elif not isinstance(parameters, dict):
            found.append(causes.invalid(f"{path}.opaque.parameters", "<value omitted>", "must be a valid JSON object"))
        elif len(causes.quoted(parameters)) > _MOST_PARAMETER_BYTES:
            text = f"Too long: may not be more than {_MOST_PARAMETER_BYTES} bytes"
            found.append(Cause(f"{path}.opaque.parameters", "FieldValueTooLong", text))
    return found


def _qualified(name: str, at: str, *, needs_domain: bool = False) -> list[Cause]:
    """Check the name of an attribute or a capacity: a C identifier, behind a domain or not."""
    domain, slash, own = name.rpartition("/")
    if not name:
        return [causes.required(at, "name required")]
    found: list[Cause] = []
    if slash and not domain:
        found.append(causes.required(at, "the domain must not be empty"))
    elif slash:
        found += causes.dns_subdomain(at, domain)
    elif needs_domain:
        found.append(causes.invalid(at, name, _FULL_NAME))
    if not own:
        found.append(causes.required(at, "the name must not be empty"))
    elif not _IDENTIFIER.fullmatch(own):
        found.append(causes.invalid(at, own, _IDENTIFIER_TEXT))
    return found


# --- slices ----------------------------------------------------------------------------------------------


def resource_slice(obj: Json) -> list[Cause]:
    """Return what is wrong with a ResourceSlice."""
    spec = obj.get("spec") or {}
    driver, pool = spec.get("driver"), spec.get("pool") or {}
    found = causes.dns_subdomain("spec.driver", driver) if driver else [causes.required("spec.driver")]
    found += _pool_name(pool.get("name"), "spec.pool.name")
    if pool.get("resourceSliceCount", 0) <= 0:
        text = "must be greater than zero"
        found.append(causes.invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount", 0), text))
    if pool.get("generation", 0) < 0:
        text = "must be greater than or equal to zero"
        found.append(causes.invalid("spec.pool.generation", pool["generation"], text))
    places, more = _places(spec, "spec", is_slice=True)
    found += more
    if not spec.get("sharedCounters") or places:
        allowed = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
        if not places and not spec.get("sharedCounters"):
            found.append(causes.required("spec", allowed))
        elif len(places) > 1:
            found.append(causes.invalid("spec", _set_places(places), f"{allowed}, but multiple fields are set"))
    devices = list(spec.get("devices") or ())
    is_more = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    most = _MOST_DEVICES_WITH_MORE if is_more else _MOST_DEVICES
    if len(devices) > most:
        found.append(_too_many("spec.devices", len(devices), most))
    names: set[str] = set()
    for number, device in enumerate(devices):
        path = f"spec.devices[{number}]"
        found += _device(device, path, names)
        found += _place_of_device(device, path, is_per_device=bool(spec.get("perDeviceNodeSelection")))
        names.add(device.get("name") or "")
    return found


def _pool_name(name: str | None, at: str) -> list[Cause]:
    if not name:
        return [causes.required(at)]
    return [cause for part in name.split("/") for cause in causes.dns_subdomain(at, part)]


def _places(spec: Json, at: str, *, is_slice: bool) -> tuple[list[str], list[Cause]]:
    """Return which fields say where a slice or a device is, and what is wrong with them: those given but empty."""
    places: list[str] = []
    found: list[Cause] = []
    name, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if name:
        places.append("nodeName")
        found += causes.dns_subdomain(f"{at}.nodeName", name)
    elif name is not None:
        text = "must be either unset or set to a non-empty string" if is_slice else "must not be empty"
        found.append(causes.invalid(f"{at}.nodeName", name, text))
    if selector is not None:
        places.append("nodeSelector")
        terms = selector.get("nodeSelectorTerms") or []
        if is_slice and len(terms) != 1:
            text = "must have exactly one node selector term"
            found.append(causes.invalid(f"{at}.nodeSelector.nodeSelectorTerms", terms, text))
    for key in ("allNodes", "perDeviceNodeSelection") if is_slice else ("allNodes",):
        if spec.get(key):
            places.append(key)
        elif spec.get(key) is not None:
            found.append(causes.invalid(f"{at}.{key}", False, "must be either unset or set to true"))
    return places, found


def _set_places(places: Iterable[str]) -> str:
    return "{" + ", ".join(f"`{key}`" for key in places) + "}"


def _place_of_device(device: Json, at: str, *, is_per_device: bool) -> list[Cause]:
    if not is_per_device:
        if all(device.get(key) is None for key in ("nodeName", "nodeSelector", "allNodes")):
            return []
        text = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in"
            " the ResourceSlice spec"
        )
        return [causes.invalid(at, None, text)]
    places, found = _places(device, at, is_slice=False)
    if len(places) != 1:
        text = (
            "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set"
            " to true in the ResourceSlice spec"
        )
        found.append(causes.invalid(at, _set_places(places), text) if places else causes.required(at, text))
    return found


def _device(device: Json, at: str, others: set[str]) -> list[Cause]:
    found = _name(device.get("name"), f"{at}.name", others)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > _MOST_ATTRIBUTES:
        text = f"the total number of attributes and capacities must not exceed {_MOST_ATTRIBUTES}"
        found.append(causes.invalid(at, len(attributes) + len(capacity), text))
    for name, value in attributes.items():
        path = f"{at}.attributes[{name}]"
        found += _qualified(name, path)
        given = [key for key in _VALUES if value.get(key) is not None]
        if not given:
            found.append(causes.required(path, "exactly one value must be specified"))
        elif len(given) > 1:
            found.append(causes.invalid(path, value, "exactly one value must be specified"))
    for name in capacity:
        found += _qualified(name, f"{at}.capacity[{name}]")
    for number, taint in enumerate(device.get("taints") or ()):
        found += _taint(taint, f"{at}.taints[{number}]")
    return found


def _taint(taint: Json, at: str) -> list[Cause]:
    found = causes.qualified_name(f"{at}.key", taint.get("key") or "")
    found += causes.label_value(f"{at}.value", taint.get("value") or "")
    effect = taint.get("effect")
    if not effect:
        return [*found, causes.required(f"{at}.effect")]
    return found + causes.one_of(f"{at}.effect", effect, _EFFECTS)


def device_taint_rule(obj: Json) -> list[Cause]:
    """Return what is wrong with a DeviceTaintRule."""
    spec = obj.get("spec") or {}
    selector, at = spec.get("deviceSelector") or {}, "spec.deviceSelector"
    found: list[Cause] = []
    if (driver := selector.get("driver")) is not None:
        found += causes.dns_subdomain(f"{at}.driver", driver) if driver else [causes.required(f"{at}.driver")]
    if (pool := selector.get("pool")) is not None:
        found += _pool_name(pool, f"{at}.pool")
    if (device := selector.get("device")) is not None:
        found += causes.dns_label(f"{at}.device", device)
    return found + _taint(spec.get("taint") or {}, "spec.taint")


def changed_slice(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with a change of a ResourceSlice."""
    return [
        causes.invalid(f"spec.{'.'.join(path)}", value_at(new, "spec", *path), "field is immutable")
        for path in (("driver",), ("pool", "name"), ("nodeName",))
        if value_at(new, "spec", *path) != value_at(old, "spec", *path)
    ]


# --- the status of claims --------------------------------------------------------------------------------


def claim_status(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with a change of a claim's status."""
    status, before = new.get("status") or {}, old.get("status") or {}
    allocation, users = status.get("allocation"), status.get("reservedFor") or []
    found: list[Cause] = []
    if before.get("allocation") is not None and allocation is not None and allocation != before["allocation"]:
        found.append(causes.invalid("status.allocation", allocation, "field is immutable"))
    if allocation is not None and before.get("allocation") is None:
        found += _allocation(allocation, new.get("spec") or {})
    if len(users) > _MOST_USERS:
        found.append(_too_many("status.reservedFor", len(users), _MOST_USERS))
    seen: set[str] = set()
    for number, user in enumerate(users):
        path = f"status.reservedFor[{number}]"
        found += [causes.required(f"{path}.{key}") for key in ("resource", "name", "uid") if not user.get(key)]
        if user.get("uid") in seen:
            found.append(causes.duplicate(f"{path}.uid" if user.get("uid") else path, user.get("uid")))
        seen.add(user.get("uid") or "")
    if users and allocation is None:
        found.append(causes.forbidden("status.reservedFor", "may not be specified when `allocated` is not set"))
    if "deletionTimestamp" in new["metadata"]:
        known = {user.get("uid") for user in before.get("reservedFor") or ()}
        if any(user.get("uid") not in known for user in users):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            found.append(causes.forbidden("status.reservedFor", text))
    return found


def _allocation(allocation: Json, spec: Json) -> list[Cause]:
    requests = value_at(spec, "devices", "requests", default=[])
    known = {name for one in requests for name in _request_names(one)}
    found: list[Cause] = []
    for number, result in enumerate(value_at(allocation, "devices", "results", default=[])):
        path = f"status.allocation.devices.results[{number}]"
        if result.get("request") not in known:
            found.append(causes.invalid(f"{path}.request", result.get("request", ""), _NAME_OF_REQUEST))
        found += [causes.required(f"{path}.{key}") for key in ("driver", "pool", "device") if not result.get(key)]
    return found


def _request_names(request: Json) -> list[str]:
    alternatives = request.get("firstAvailable") or ()
    name = request.get("name") or ""
    return [f"{name}/{sub.get('name')}" for sub in alternatives] or [name]


def unchanged_spec(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with a change of a claim or a template: its spec cannot change."""
    if new.get("spec") == old.get("spec"):
        return []
    return [causes.invalid("spec", new.get("spec"), "field is immutable")]


NEW: dict[str, Callable[[Json], list[Cause]]] = {
    "DeviceClass": device_class,
    "DeviceTaintRule": device_taint_rule,
    "ResourceClaim": resource_claim,
    "ResourceClaimTemplate": claim_template,
    "ResourceSlice": resource_slice,
}
CHANGED: dict[str, Callable[[Json, Json], list[Cause]]] = {
    "ResourceClaim": unchanged_spec,
    "ResourceClaimTemplate": unchanged_spec,
    "ResourceSlice": changed_slice,
}
