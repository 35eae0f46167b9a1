"""Which events wake a pod that a clause rejected."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.framework.events import ClusterEvent
from tests.policy.worlds import policy

E = ClusterEvent


@pytest.mark.parametrize(
    ("clause", "wakes", "sleeps"),
    [
        ('filter node.label.disk == "ssd"', {E.NODE_ADD, E.NODE_LABEL}, {E.POD_DELETE, E.SIGNALS, E.CLOCK}),
        ("filter node.free.cpu > 2", {E.NODE_ADD, E.NODE_ALLOCATABLE, E.POD_DELETE}, {E.CLOCK, E.SIGNALS}),
        ('filter (promql("cpu_usage") ?? 0) < 80', {E.SIGNALS}, {E.POD_DELETE, E.NODE_LABEL, E.CLOCK}),
        ('require between("22:00", "06:00", "UTC")', {E.CLOCK}, {E.POD_DELETE, E.NODE_ADD}),
        ("require pod.label.tenant", set(), {E.POD_DELETE, E.NODE_ADD, E.CLOCK}),
        ("limit count() by pod.label.tenant to 3", {E.POD_DELETE}, {E.SIGNALS, E.CLOCK, E.NODE_CONDITION}),
        ("spread by pod.label.app over zone max skew 1", {E.POD_ADD, E.POD_DELETE, E.NODE_ADD}, {E.SIGNALS}),
    ],
)
def test_a_clause_is_woken_by_what_it_depends_on(clause: str, wakes: set[E], sleeps: set[E]) -> None:
    profile = policy(clause).profile
    (name,) = profile.clauses
    events = profile.wakes[name]

    assert events is not None
    assert wakes <= events
    assert not sleeps & events
