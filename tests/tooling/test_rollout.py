"""Whether a policy set has come to all replicas: what is judged, and how it reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.tooling.rollout import ReplicaReport, Rollout, State, data, judge, lines, verdict
from kube_policy_scheduler.tooling.text_table import Terminal

NEW, OLD = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
LIVE = ReplicaReport("scheduler-1", NEW, 12.0, 5.0, NEW, "accepted")
WAITS = ReplicaReport("scheduler-2", OLD, 7200.0, 59.0, OLD, "accepted")
REFUSED = ReplicaReport("scheduler-3", OLD, 7200.0, 1.0, NEW, "refused", "web.policy:1:13: error[P0102]: unknown field")


def rollout(*heard: ReplicaReport, expected: int | None = None) -> Rollout:
    return judge(heard, wanted=NEW, expected=expected, stale_seconds=180.0)


@pytest.mark.parametrize(
    ("heard", "state"),
    [
        (LIVE, State.LIVE),
        (WAITS, State.WAITS),
        (REFUSED, State.REFUSED),
        (replace(REFUSED, candidate="cccc"), State.WAITS),  # of an edit before this one
        (replace(LIVE, silent_seconds=181.0), State.SILENT),
        (replace(WAITS, active="", result=""), State.WAITS),
        (replace(WAITS, candidate="", result="unreadable"), State.REFUSED),
        (replace(LIVE, candidate="", result="unreadable"), State.REFUSED),
        # a bad edit was taken back: what decides is what is wanted, whatever the last candidate was
        (replace(LIVE, candidate="cccc", result="refused"), State.LIVE),
    ],
)
def test_each_replica_is_judged_by_what_it_says(heard: ReplicaReport, state: State) -> None:
    assert [each.state for each in rollout(heard).replicas] == [state]


@pytest.mark.parametrize(
    ("made", "done", "refused", "told"),
    [
        (rollout(LIVE), True, False, "1 of 1 replica decide by it"),
        (rollout(LIVE, replace(LIVE, name="b"), expected=2), True, False, "2 of 2 replicas decide by it"),
        (rollout(LIVE, WAITS), False, False, "1 of 2 replicas decide by it"),
        (rollout(LIVE, REFUSED), False, True, "1 of 2 replicas decide by it"),
        (rollout(LIVE, expected=2), False, False, "1 of 2 replicas decide by it; 1 has not been heard of"),
        (rollout(expected=2), False, False, "0 of 2 replicas decide by it; 2 have not been heard of"),
        (rollout(), False, False, "no replica has reported its policies"),
        # while pods are replaced there is one more than there should be, and it counts
        (rollout(LIVE, WAITS, expected=1), False, False, "1 of 2 replicas decide by it"),
        # one that died is not waited for where all that should be there are there
        (rollout(LIVE, replace(WAITS, silent_seconds=500.0), expected=1), True, False, "1 of 1 replica decide by it"),
    ],
)
def test_all_have_to_decide_by_it(made: Rollout, done: bool, refused: bool, told: str) -> None:
    assert (made.is_done, made.is_refused, verdict(made)) == (done, refused, told)


def test_how_it_reads(snapshot: SnapshotAssertion) -> None:
    silent = replace(LIVE, name="scheduler-4", silent_seconds=400.0)
    made = rollout(LIVE, WAITS, REFUSED, silent, replace(WAITS, name="scheduler-5", active=""))
    assert "\n".join(lines(made, where="configMap policy-scheduler/policies", to=Terminal())) == snapshot
    assert data(made) == snapshot
