"""The table of a pod's states: what it does not have is reported, and who may be deleted follows from it."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.queue.pod_transitions import (
    MOST_REMEMBERED,
    TRANSITIONS,
    Standing,
    move,
    standing,
    validate,
)
from kube_policy_scheduler.framework.queue.queued_pod import PLACES, Place, PodState, QueuedPod
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from tests.framework.test_queue import make_pod

ENDS = (PodState.BOUND, PodState.GONE)


def in_state(state: PodState) -> QueuedPod:
    return QueuedPod(make_pod("web"), 0.0, 0.0, state=state, place=PLACES.get(state, Place.ACTIVE))


@pytest.mark.parametrize("before", PodState, ids=lambda state: state.text)
@pytest.mark.parametrize("after", PodState, ids=lambda state: state.text)
def test_what_the_table_does_not_have_is_made_and_reported(before: PodState, after: PodState) -> None:
    queued = in_state(before)
    move(queued, after)
    assert queued.state is after
    allowed = after in TRANSITIONS[before] or (after in ENDS and before not in ENDS)
    found = list(validate(queued, node_name=None, is_assumed=after is PodState.WAITING))
    assert any(f"went from {before.text} to {after.text}" in each for each in found) != allowed
    if after not in ENDS:
        assert queued.place is PLACES[after]
        assert found == [] or not allowed
    else:
        assert f"pod default/web is {after.text}, and in the queue" in found


def test_each_state_can_be_reached_and_left_but_the_last_two() -> None:
    reached = {state for states in TRANSITIONS.values() for state in states}
    assert reached | {PodState.PENDING, *ENDS} == set(PodState)
    assert {state for state, after in TRANSITIONS.items() if not after} == set(ENDS)


def test_the_last_states_are_kept_where_somebody_wants_them() -> None:
    queue = SchedulingQueue()
    queue.keeps_histories = True
    queue.add(make_pod("web"), 0.0)
    for _ in range(MOST_REMEMBERED):
        queued = queue.pop(0.0)
        assert queued is not None
        queue.resume_attempt(queued, 0.0)
    assert queued.history is not None
    assert queued.history[-2:] == [PodState.IN_CYCLE, PodState.ACTIVE]
    assert len(queued.history) == MOST_REMEMBERED
    assert not queued.impossible
    assert in_state(PodState.PENDING).history is None


STANDINGS = {
    PodState.IN_CYCLE: Standing.CANCELLABLE,
    PodState.ASSUMED: Standing.CANCELLABLE,
    PodState.WAITING: Standing.WAITING,
    PodState.BINDING: Standing.CANCELLABLE,
    PodState.SENT: Standing.SENT,
}


@pytest.mark.parametrize("state", PodState, ids=lambda state: state.text)
def test_in_the_queue_nobody_is_bound(state: PodState) -> None:
    cluster, queue = Cluster(), SchedulingQueue()
    queue.add(make_pod("web"), 0.0)
    queued = queue.get("web")
    assert queued is not None
    assert standing(cluster, "web", queue.get("web")) is Standing.AWAY
    cluster.assume(queued.pod, "n", now=0.0)
    queued.state = state
    assert standing(cluster, "web", queue.get("web")) is STANDINGS.get(state, Standing.SENT)


def test_a_pod_is_bound_once_the_binding_is_answered_or_the_watch_shows_it() -> None:
    cluster, queue = Cluster(), SchedulingQueue()
    pod = make_pod("web")
    cluster.assume(pod, "n", now=0.0)
    assert standing(cluster, "web", queue.get("web")) is Standing.BOUND
    assert standing(cluster, "web", queue.get("web"), is_passed_on=True) is Standing.SENT
    cluster.confirm(pod, "n")
    assert standing(cluster, "web", queue.get("web"), is_passed_on=True) is Standing.BOUND
    cluster.remove("web")
    assert standing(cluster, "web", queue.get("web")) is Standing.AWAY
