"""What is written to a binding: no more than what is not there yet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube_policy_scheduler.fleet.karmada.triggers import APPLIED
from kube_policy_scheduler.fleet.karmada.writes import observed_patch, placement_patch, status_patch
from kube_policy_scheduler.fleet.model import Component, Outcome, Reason
from kube_policy_scheduler.times import rfc3339
from tests.fleet.karmada.bindings import DYNAMIC, binding

NOW = 1795165200.0
PLACED = Outcome(
    Reason.SUCCESS, "Binding has been scheduled successfully.", {"b": 1, "a": 2}, write=True, observed=True
)
FULL = Outcome(Reason.UNSCHEDULABLE, "no room", {"a": 1})
NONE = Outcome(Reason.NO_CLUSTER_FITS, "0/1", {}, write=True)
CLUSTERS = [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}]
TEXT = json.dumps(DYNAMIC, separators=(",", ":"))
OTHERS = [{"type": "FullyApplied", "status": "True", "reason": "r", "message": "", "observedGeneration": 4}]


@pytest.mark.parametrize(
    ("given", "outcome", "patch"),
    [
        (
            {}, PLACED,
            {"metadata": {"annotations": {APPLIED: TEXT}, "resourceVersion": "10"}, "spec": {"clusters": CLUSTERS}},
        ),
        ({"applied": DYNAMIC}, PLACED, {"metadata": {"resourceVersion": "10"}, "spec": {"clusters": CLUSTERS}}),
        (
            {"applied": "{", "has": {"a": 2, "b": 1}}, PLACED,
            {"metadata": {"annotations": {APPLIED: TEXT}, "resourceVersion": "10"}},
        ),
        ({"applied": DYNAMIC, "has": {"b": 1, "a": 2}}, PLACED, None),
        ({"applied": DYNAMIC, "has": {"a": 1}}, FULL, None),
        (
            {"applied": DYNAMIC, "has": {"a": 1}}, NONE,
            {"metadata": {"resourceVersion": "10"}, "spec": {"clusters": []}},
        ),
    ],
)  # fmt: skip
def test_the_placement_is_written_with_a_precondition(
    given: dict[str, Any], outcome: Outcome, patch: dict[str, Any] | None
) -> None:
    assert placement_patch(binding(**given), outcome) == patch


def test_components_are_written_with_their_cluster() -> None:
    parts = (Component("jm", 1), Component("tm", 4))
    outcome = Outcome(Reason.SUCCESS, "", {"a": 0}, write=True, components=parts)
    patch = placement_patch(binding(applied=DYNAMIC), outcome)
    assert patch is not None
    written = patch["spec"]["clusters"]
    assert written == [{"name": "a", "components": [{"name": "jm", "replicas": 1}, {"name": "tm", "replicas": 4}]}]
    assert placement_patch(binding(applied=DYNAMIC, clusters=written), outcome) is None


def condition(outcome: Outcome, since: str = "2026-11-20T09:00:00Z") -> dict[str, Any]:
    status = "True" if outcome.placed else "False"
    return {
        "type": "Scheduled", "status": status, "reason": outcome.reason.value, "message": outcome.message,
        "lastTransitionTime": since,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "outcome", "changes"),
    [
        (
            {}, PLACED,
            {
                "conditions": [condition(PLACED)], "schedulerObservedGeneration": 2,
                "lastScheduledTime": "2026-11-20T09:00:00Z",
            },
        ),
        ({}, FULL, {"conditions": [condition(FULL)]}),
        (
            {"conditions": [*OTHERS, condition(FULL, "2026-01-01T00:00:00Z")]}, NONE,
            {"conditions": [*OTHERS, condition(NONE, "2026-01-01T00:00:00Z")]},
        ),
        (
            {"conditions": [condition(PLACED)], "lastScheduledTime": "2026-11-20T08:00:00Z"}, PLACED,
            {"schedulerObservedGeneration": 2, "lastScheduledTime": "2026-11-20T09:00:00Z"},
        ),
        (
            {
                "conditions": [condition(PLACED)], "lastScheduledTime": "2026-11-20T08:00:00Z",
                "schedulerObservedGeneration": 2,
            },
            PLACED, None,
        ),
    ],
)  # fmt: skip
def test_the_status_says_what_became_of_it(
    status: dict[str, Any], outcome: Outcome, changes: dict[str, Any] | None
) -> None:
    patch = status_patch(binding(status=status), outcome, generation=2, now=NOW)
    assert patch == (None if changes is None else {"metadata": {"resourceVersion": "10"}, "status": changes})


def test_who_asks_for_a_rescheduling_with_a_clock_ahead_of_ours_is_answered_once() -> None:
    asked = "2026-11-20T12:00:00Z"
    found = binding(rescheduleTriggeredAt=asked, status={"lastScheduledTime": "2026-11-20T08:00:00Z"})
    patch = status_patch(found, PLACED, generation=2, now=NOW)
    assert patch is not None
    assert patch["status"]["lastScheduledTime"] == asked


def test_the_term_that_worked_is_written() -> None:
    outcome = Outcome(Reason.SUCCESS, "", {"a": 1}, write=True, observed=True, term="own")
    patch = status_patch(binding(), outcome, generation=2, now=NOW)
    assert patch is not None
    assert patch["status"]["schedulerObservingAffinityName"] == "own"


def test_a_very_long_message_is_cut_to_what_the_api_allows() -> None:
    patch = status_patch(binding(), Outcome(Reason.ERROR, "x" * 10**6, {}), generation=1, now=NOW)
    assert patch is not None
    assert len(patch["status"]["conditions"][0]["message"]) == 32_768


@pytest.mark.parametrize(("observed", "patch"), [(0, 1), (1, None)])
def test_what_needs_no_decision_is_only_observed(observed: int, patch: int | None) -> None:
    found = observed_patch(binding(status={"schedulerObservedGeneration": observed}), decided=None)
    assert (found["status"]["schedulerObservedGeneration"] if found is not None else None) == patch


@pytest.mark.parametrize(("last", "told"), [(100.0, 200.0), (300.0, 300.0)], ids=["later", "it never goes back"])
def test_a_generation_without_a_decision_may_tell_when_one_was_last(last: float, told: float) -> None:
    found = observed_patch(binding(status={"lastScheduledTime": rfc3339(last)}), decided=200.0)
    assert found is not None
    assert found["status"] == {"schedulerObservedGeneration": 1, "lastScheduledTime": rfc3339(told)}
