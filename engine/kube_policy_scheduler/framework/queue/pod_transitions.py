"""The states of a pod on its way to a node: one table of what may follow what, one function that makes a transition.

    pending → gated | active → in cycle → assumed → (waiting →) binding → sent → bound
                 ↑       ↑         ↓          ↓          ↓          ↓       ↓
                 └───────┴── backoff, unschedulable ◄────┴──────────┴───────┘

A pod that is deleted is gone, and one that the watch shows on a node is bound, whatever it was before. Only `move`
writes `QueuedPod.state`, and with it `QueuedPod.place`. `standing` is the only answer to the question that everybody
has to ask who takes a pod off its node: is it really there, or can its binding be cancelled?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.queue.queued_pod import PLACES, PodState, QueuedPod

MOST_REMEMBERED = 100
"""Transitions of one pod that are kept, if they are."""

_S = PodState
_BACK = (_S.ACTIVE, _S.GATED, _S.BACKOFF)
TRANSITIONS: Mapping[PodState, tuple[PodState, ...]] = {
    _S.PENDING: (_S.ACTIVE, _S.GATED),
    _S.GATED: (_S.ACTIVE, _S.GATED),
    _S.BACKOFF: (_S.ACTIVE, _S.GATED, _S.IN_CYCLE),
    _S.UNSCHEDULABLE: (*_BACK, _S.IN_CYCLE),
    _S.ACTIVE: (*_BACK, _S.IN_CYCLE),
    _S.IN_CYCLE: (*_BACK, _S.UNSCHEDULABLE, _S.ASSUMED, _S.WAITING, _S.BINDING, _S.SENT),
    _S.ASSUMED: (_S.BACKOFF, _S.WAITING, _S.BINDING, _S.SENT),
    _S.WAITING: (*_BACK, _S.ASSUMED),
    _S.BINDING: (_S.BACKOFF, _S.SENT),
    _S.SENT: (_S.BACKOFF, _S.BINDING, _S.SENT),
    _S.BOUND: (),
    _S.GONE: (),
}
"""What may follow, beside `bound` and `gone`."""


_ENDS = (_S.BOUND, _S.GONE)
_MAY_FOLLOW = [
    [to in TRANSITIONS[before] or (to in _ENDS and before not in _ENDS) for to in PodState] for before in PodState
]
"""By what was before, and what follows."""
_PLACES = [PLACES.get(state) for state in PodState]


def move(queued: QueuedPod, to: PodState) -> None:
    """Make a transition.

    One that the table does not have is made all the same, because the pod must not be lost; `validate` reports it.
    """
    before = queued.state
    if not _MAY_FOLLOW[before][to] and not queued.impossible:
        queued.impossible = f"went from {before.text} to {to.text}"
    queued.state = to
    if (place := _PLACES[to]) is not None:
        queued.place = place
    if queued.history is not None:
        queued.history.append(to)
        del queued.history[:-MOST_REMEMBERED]


def validate(queued: QueuedPod, *, node_name: str | None, is_assumed: bool) -> Iterator[str]:
    """Return what is wrong with the state of a pod that is in the queue.

    Args:
        queued: the pod.
        node_name: the node on which it counts; None: on none.
        is_assumed: whether it counts there as a pod whose binding the watch has not shown.
    """
    key, state = queued.pod.key, queued.state
    if queued.impossible:
        yield f"pod {key} {queued.impossible}"
    if state in (_S.BOUND, _S.GONE):
        yield f"pod {key} is {state.text}, and in the queue"
    elif PLACES[state] is not queued.place:
        yield f"pod {key} is {state.text}, and in the queue it is {queued.place.value}"
    if state is _S.WAITING and not is_assumed:
        yield f"pod {key} waits for its group and holds no place"
    if node_name is not None and (not (state.holds_place or state is _S.IN_CYCLE) or not is_assumed):
        yield f"pod {key} waits ({queued.place.value}) and counts on {node_name}"


class Standing(Enum):
    """What becomes of a pod that is to leave its node."""

    AWAY = "away"
    """It counts on no node: nothing needs to be done."""
    WAITING = "waiting"
    """It waits at Permit: it gives its place back, at once."""
    CANCELLABLE = "cancellable"
    """It is being bound, and its binding was not sent: the binding is cancelled."""
    SENT = "sent"
    """Its binding was sent: nobody knows whether it is bound before the answer comes."""
    BOUND = "bound"
    """It is on its node: only this one is deleted."""


_STANDINGS: Mapping[PodState, Standing] = {
    _S.WAITING: Standing.WAITING,
    _S.IN_CYCLE: Standing.CANCELLABLE,
    _S.ASSUMED: Standing.CANCELLABLE,
    _S.BINDING: Standing.CANCELLABLE,
}


def standing(cluster: Cluster, uid: str, queued: QueuedPod | None, *, is_passed_on: bool = False) -> Standing:
    """Return whether a pod is really on the node on which it counts.

    Args:
        cluster: where it counts.
        uid: of the pod.
        queued: what the queue knows of it; None: it is not in the queue.
        is_passed_on: whether another replica is to bind it.
    """
    if cluster.node_of(uid) is None:
        return Standing.AWAY
    if uid not in cluster.assumed:
        return Standing.BOUND  # the watch has shown it there
    if queued is None:
        return Standing.SENT if is_passed_on else Standing.BOUND  # its binding was answered
    return _STANDINGS.get(queued.state, Standing.SENT)
