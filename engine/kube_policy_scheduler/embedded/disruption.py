"""PodDisruptionBudgets: how many of the pods under one may be evicted now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kube_policy_scheduler.embedded import selectors
from kube_policy_scheduler.embedded.errors import Json

ReplicasOf = Callable[[Json], int | None]
"""The desired replicas of the controller of a pod; None for a pod without such a controller."""


def selects(budget: Json, pod_labels: dict[str, str]) -> bool:
    """Whether a pod is under a budget; a budget without selector holds for none."""
    selector = selectors.from_object((budget.get("spec") or {}).get("selector"))
    return selector is not None and selectors.matches_labels(selector, pod_labels)


def is_healthy(pod: Json) -> bool:
    """Whether a pod counts for its budget: ready and not on its way out."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def status(budget: Json, pods: Iterable[Json], *, replicas_of: ReplicasOf) -> Json:
    """Return the numbers of a budget's status over the pods it selects."""
    spec = budget.get("spec") or {}
    counted = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    healthy = sum(map(is_healthy, counted))
    minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
    if isinstance(minimum, int) and maximum is None:
        expected, desired = len(counted), minimum
    else:
        expected = _expected(counted, replicas_of)
        if maximum is not None:
            desired = max(expected - _share(maximum, expected), 0)
        else:
            desired = _share(minimum, expected) if minimum is not None else 0
    allowed = max(healthy - desired, 0) if expected > 0 else 0
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }


def _expected(pods: list[Json], replicas_of: ReplicasOf) -> int:
    total = 0
    controllers: set[str] = set()
    for pod in pods:
        owner = next((item for item in pod["metadata"].get("ownerReferences") or () if item.get("controller")), None)
        replicas = replicas_of(pod)
        if owner is None or replicas is None:
            total += 1
        elif owner["uid"] not in controllers:
            controllers.add(owner["uid"])
            total += replicas
    return total


def _share(amount: int | str, whole: int) -> int:
    """Return an amount given as a number or as a percentage, rounded up."""
    if isinstance(amount, int):
        return amount
    return -(-int(amount.removesuffix("%")) * whole // 100)
