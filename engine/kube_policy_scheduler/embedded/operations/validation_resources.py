"""What the API server refuses in the resource requirements of containers and pods. Pure."""

from __future__ import annotations

from kube_policy_scheduler.cluster.quantity import QuantityError, scaled
from kube_policy_scheduler.embedded.errors import Cause, Json
from kube_policy_scheduler.embedded.operations import causes

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_NANO = 9


def requirements(resources: Json, at: str, *, pod_level: bool = False) -> list[Cause]:
    """Return what is wrong with requests and limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found: list[Cause] = []
    for name, amount in limits.items():
        found += _amount(name, amount, f"{at}.limits[{name}]", pod_level=pod_level)
    for name, amount in requests.items():
        problems = _amount(name, amount, f"{at}.requests[{name}]", pod_level=pod_level)
        found += problems
        if problems or not (name in _STANDARD or "/" in name or name.startswith("hugepages-")):
            continue
        limit = limits.get(name)
        if limit is None:
            if not _overcommits(name):
                found.append(causes.required(f"{at}.limits", "Limit must be set for non overcommitable resources"))
        elif not _overcommits(name) and _nanos(amount) != _nanos(limit):
            text = f"must be equal to {name} limit of {limit}"
            found.append(causes.invalid(f"{at}.requests", amount, text))
        elif _nanos(amount) > _nanos(limit):
            found.append(
                causes.invalid(f"{at}.requests", amount, f"must be less than or equal to {name} limit of {limit}")
            )
    return found


def _overcommits(name: str) -> bool:
    return name in _STANDARD or name.startswith("kubernetes.io/") or "kubernetes.io/" in name.partition("/")[0] + "/"


def _nanos(amount: object) -> int:
    try:
        return scaled(str(amount), _NANO)
    except QuantityError:
        return 0


def _amount(name: str, amount: object, at: str, *, pod_level: bool) -> list[Cause]:
    found: list[Cause] = []
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        found.append(causes.invalid(at, name, "must be a standard resource type or fully qualified"))
        found.append(causes.invalid(at, name, "must be a standard resource for containers"))
        return found
    if "/" in name:
        found += causes.qualified_name(at, name)
    if _nanos(amount) < 0:
        found.append(causes.invalid(at, amount, "must be greater than or equal to 0"))
    if "/" in name and _nanos(amount) % 10**_NANO:
        found.append(causes.invalid(at, amount, "must be an integer"))
    return found
