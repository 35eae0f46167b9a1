"""Which bindings are ours, and whether one is to be decided now."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from enum import Enum
from typing import Any

from kube_policy_scheduler.fleet.karmada import reading
from kube_policy_scheduler.fleet.karmada.objects import Condition, ResourceBinding

APPLIED = "policy.karmada.io/applied-placement"
"""Annotation: the placement that was applied last, as JSON. Karmada's other parts read tolerations in it, too."""
DEFAULT_SCHEDULER = "default-scheduler"
"""The name of Karmada's own scheduler: of bindings that name none."""
OWNED_BY = (
    "propagationpolicy.karmada.io/permanent-id",
    "clusterpropagationpolicy.karmada.io/permanent-id",
    "binding.karmada.io/managed-by",
)
"""Labels: a binding without one of them was made by nobody that Karmada knows."""
SCHEDULED = "Scheduled"
"""The condition that tells how the last decision ended."""


class Trigger(Enum):
    """Why a binding is decided; the first that is true counts."""

    PLACEMENT = "the placement changed"
    REPLICAS = "the number of replicas is not what was asked for"
    RESCHEDULE = "a rescheduling was asked for"
    ALWAYS = "each cluster runs all of it"
    CLUSTER_GONE = "a cluster that it runs in goes away"
    INTERRUPTED = "the last decision was not told"


def is_decided(binding: ResourceBinding) -> bool:
    """Return whether some scheduler decides the binding: it is not suspended, and stays.

    A binding without a placement is of a template that others need: it follows them, and nobody decides it.
    """
    spec = binding.spec
    suspended = spec.suspension is not None and spec.suspension.scheduling is True
    return not suspended and spec.placement is not None and binding.metadata.deletion_timestamp is None


def serves(scheduler_names: Set[str], binding: ResourceBinding) -> bool:
    """Return whether the scheduler of these names decides the binding: it asks for it, and Karmada knows its policy."""
    return (
        (binding.spec.scheduler_name or DEFAULT_SCHEDULER) in scheduler_names
        and is_decided(binding)
        and any((binding.metadata.labels or {}).get(label) for label in OWNED_BY)
    )


def trigger(binding: ResourceBinding, *, is_leaving: Callable[[str], bool]) -> Trigger | None:
    """Return why the binding is to be decided now; None if nothing says so.

    is_leaving: whether a cluster is being deleted, or does not exist.
    """
    spec = binding.spec
    scheduling = (spec.placement or {}).get("replicaScheduling")
    if is_placement_new(binding):
        return Trigger.PLACEMENT
    kind = scheduling.get("replicaSchedulingType") or "Duplicated" if isinstance(scheduling, dict) else ""
    counts = [each.replicas for each in spec.clusters or ()]
    if kind == "Duplicated" and any(count != spec.replicas for count in counts):
        return Trigger.REPLICAS
    if kind == "Divided" and sum(counts) != spec.replicas:
        return Trigger.REPLICAS
    if kind and spec.components and not counts:  # replicas are not counted by cluster; it may have been evicted
        return Trigger.REPLICAS
    if reading.is_fresh(binding):
        return Trigger.RESCHEDULE
    has_pods = spec.replicas > 0 or spec.replica_requirements is not None or bool(spec.components)
    if kind in ("", "Duplicated") or not has_pods:
        return Trigger.ALWAYS
    if any(is_leaving(each.name) for each in spec.clusters or ()):
        return Trigger.CLUSTER_GONE
    found = condition(binding)
    return Trigger.INTERRUPTED if found is None or found.status != "True" else None


def condition(binding: ResourceBinding) -> Condition | None:
    """Return the condition Scheduled, None if there is none yet."""
    return next((each for each in binding.status.conditions or () if each.type == SCHEDULED), None)


def is_placement_new(binding: ResourceBinding) -> bool:
    """Return whether another placement is asked for than was applied last.

    Of several cluster affinities, only the one by which the workload was placed counts, and then `workloadAffinity`
    does not. What is no placement counts as applied, as in Karmada.
    """
    text = (binding.metadata.annotations or {}).get(APPLIED)
    if not text:
        return True
    try:
        written = json.loads(text)
        asked, applied = _meant(binding.spec.placement or {}), _meant({} if written is None else written)
        if asked == applied:
            return False
        reading.placement_object(written)
    except (ValueError, AttributeError, RecursionError):
        return False
    asked_terms, applied_terms = asked.pop("clusterAffinities", []), applied.pop("clusterAffinities", [])
    asked.pop("workloadAffinity", None)
    applied.pop("workloadAffinity", None)
    if asked != applied:
        return True
    observed = binding.status.scheduler_observed_affinity_name
    now, before = _term(asked_terms, observed), _term(applied_terms, observed)
    return not observed or now is None or before is None or now != before


def _term(terms: Any, name: str) -> Any:
    return next((each for each in terms if isinstance(each, dict) and each.get("affinityName") == name), None)


def _meant(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without what Go leaves out when it writes one: nulls, empty texts and lists, zeros, false."""
    return {key: _cleaned(value) for key, value in written.items() if value not in (None, "", 0, False, [])}


def _cleaned(value: Any) -> Any:
    match value:
        case dict():
            return _meant(value)
        case list():
            return [_cleaned(each) for each in value]
    return value
