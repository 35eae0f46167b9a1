"""What is written to a binding: first the placement, by one patch, then what became of it, by another."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from kube_policy_scheduler.fleet.karmada.objects import Condition, ResourceBinding
from kube_policy_scheduler.fleet.karmada.triggers import APPLIED, SCHEDULED, condition
from kube_policy_scheduler.fleet.model import MESSAGE_CHARACTERS, Outcome
from kube_policy_scheduler.times import rfc3339, unix_seconds

Patch: TypeAlias = dict[str, Any]


def placement_patch(binding: ResourceBinding, outcome: Outcome) -> Patch | None:
    """Return the merge patch of `spec.clusters` and the annotation; None if all of it is there, or nothing is written.

    The API server refuses it (409) if anything in the binding has changed since: another may have taken replicas away.
    """
    if not outcome.write:
        return None
    body: Patch = {}
    asked = binding.spec.placement or {}
    if not _is_applied(binding, asked):
        body["metadata"] = {"annotations": {APPLIED: placement_text(asked)}}
    if not _is_there(binding, outcome):
        body["spec"] = {"clusters": targets(outcome)}
    if not body:
        return None
    body.setdefault("metadata", {})["resourceVersion"] = binding.metadata.resource_version
    return body


def placement_text(placement: dict[str, Any]) -> str:
    """Return a placement as the annotation has it."""
    return json.dumps(placement, separators=(",", ":"))


def _is_applied(binding: ResourceBinding, asked: dict[str, Any]) -> bool:
    try:
        return bool(json.loads((binding.metadata.annotations or {}).get(APPLIED, "null")) == asked)
    except (ValueError, RecursionError):
        return False


def targets(outcome: Outcome) -> list[dict[str, Any]]:
    """Return `spec.clusters`; a cluster without replicas has only its name."""
    parts = [{"name": each.name, "replicas": each.replicas} for each in outcome.components]
    found: list[dict[str, Any]] = []
    for name, count in sorted(outcome.targets.items()):
        target: dict[str, Any] = {"name": name}
        if count:
            target["replicas"] = count
        if parts:
            target["components"] = parts
        found.append(target)
    return found


def _is_there(binding: ResourceBinding, outcome: Outcome) -> bool:
    wanted = {each.name: each.replicas for each in outcome.components}
    there = binding.spec.clusters or ()
    return {each.name: each.replicas for each in there} == dict(outcome.targets) and all(
        {part.name: part.replicas for part in each.components or ()} == wanted for each in there
    )


def status_patch(binding: ResourceBinding, outcome: Outcome, *, generation: int, now: float) -> Patch | None:
    """Return the merge patch of the status; None if all of it is there.

    Args:
        binding: as it is after the placement was written.
        outcome: what was decided.
        generation: that the write of the placement led to; the decision is about it.
        now: Unix seconds.
    """
    status, before = binding.status, condition(binding)
    after = _condition(outcome, before, now)
    changes: Patch = {}
    if before is None or (before.status, before.reason, before.message) != (after.status, after.reason, after.message):
        others = [each for each in status.conditions or () if each.type != SCHEDULED]
        changes["conditions"] = [_written(each) for each in (*others, after)]
    if outcome.observed:
        if status.scheduler_observed_generation != generation:
            changes["schedulerObservedGeneration"] = generation
        if outcome.term is not None and outcome.term != status.scheduler_observed_affinity_name:
            changes["schedulerObservingAffinityName"] = outcome.term
    asked = unix_seconds(binding.spec.reschedule_triggered_at)
    last = unix_seconds(status.last_scheduled_time)
    is_asked = asked is not None and last is not None and asked > last
    if outcome.placed and (changes or is_asked or last is None):
        # whoever asks for a rescheduling may have a clock that is ahead of ours
        changes["lastScheduledTime"] = rfc3339(max(now, asked) if asked is not None else now)
    if not changes:
        return None
    return {"metadata": {"resourceVersion": binding.metadata.resource_version}, "status": changes}


def is_observed(binding: ResourceBinding) -> bool:
    """Return whether the status says of this generation that nothing is to be decided."""
    return binding.status.scheduler_observed_generation == binding.metadata.generation


def observed_patch(binding: ResourceBinding, *, decided: float | None) -> Patch | None:
    """Return the merge patch that says that nothing is to be decided about this generation; None if it says so.

    decided: Unix seconds, if the time of the last decision is to be told, too.
    """
    if is_observed(binding):
        return None
    changes: Patch = {"schedulerObservedGeneration": binding.metadata.generation}
    last = unix_seconds(binding.status.last_scheduled_time)
    if decided is not None and last is not None:
        # it never goes back: then an answered wish for a rescheduling would be asked again
        changes["lastScheduledTime"] = rfc3339(max(decided, last))
    return {"metadata": {"resourceVersion": binding.metadata.resource_version}, "status": changes}


def _condition(outcome: Outcome, before: Condition | None, now: float) -> Condition:
    status = "True" if outcome.placed else "False"
    is_same = before is not None and before.status == status
    return Condition(
        type=SCHEDULED,
        status=status,
        reason=outcome.reason.value,
        message=outcome.message[:MESSAGE_CHARACTERS],
        last_transition_time=before.last_transition_time if before is not None and is_same else rfc3339(now),
    )


def _written(each: Condition) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": each.type,
        "status": each.status,
        "reason": each.reason,
        "message": each.message,
    }
    if each.last_transition_time is not None:
        found["lastTransitionTime"] = each.last_transition_time
    if each.observed_generation:
        found["observedGeneration"] = each.observed_generation
    return found
