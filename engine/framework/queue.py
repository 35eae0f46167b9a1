"""Where pending pods wait: active, backing off, unschedulable or held. Pure; the time is an argument.

Every pending pod is in exactly one place. A pod that is being decided or bound is in flight: it is in none of
the places, and events that arrive meanwhile are remembered for it, so that none is missed.
Rules: kube-scheduler 1.36's scheduling queue (order, back-off, flush).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any

from engine.cluster.pods import PodInfo
from engine.framework.events import ClusterEvent, wakes

INITIAL_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 10.0
UNSCHEDULABLE_TIMEOUT_SECONDS = 300.0
"""A rejected pod is tried again after this long even if no event concerned it."""
_REMEMBERED_EVENTS = 4096


class Place(Enum):
    """Where a pending pod is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    HELD = "gated"
    IN_FLIGHT = "in flight"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pending pod and its history in the queue."""

    pod: PodInfo
    queued: float
    """Unix seconds at which it was first seen."""
    timestamp: float
    """Unix seconds of the last return to the queue: equal priorities are served in this order."""
    place: Place = Place.ACTIVE
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    """Consecutive internal errors."""
    rejectors: frozenset[str] = frozenset()
    held_because: str = ""
    seen_events: int = 0
    """Position in the event log at which its current attempt began."""
    ticket: int = field(default=0)
    """Number of its newest heap entry; older entries are stale."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When a pod's turn is: among the pods of its line, the smallest key first."""

    line: str
    """Pods of different lines are never compared by key; the heads of the lines compete by PrioritySort."""
    key: Any


TurnOf = Callable[[QueuedPod], Turn]
HoldReason = Callable[[QueuedPod], str | None]
"""PreEnqueue: why a pod must wait outside, or None."""


def priority_turn(queued: QueuedPod) -> Turn:
    """Return the turn that Kubernetes gives a pod."""
    return Turn("", priority_sort(queued))


def priority_sort(queued: QueuedPod) -> tuple[float, float]:
    """Order by priority, then by time of return (PrioritySort)."""
    return (-queued.pod.priority, queued.timestamp)


def gates(queued: QueuedPod) -> str | None:
    """Return why a pod with scheduling gates waits (SchedulingGates)."""
    names = queued.pod.template.spec.scheduling_gates
    return f"waiting for scheduling gates: [{' '.join(g.name for g in names)}]" if names else None


class SchedulingQueue:
    """All pending pods."""

    def __init__(self, *, turn: TurnOf = priority_turn, hold: HoldReason = gates) -> None:
        self._turn = turn
        self._hold = hold
        self._pods: dict[str, QueuedPod] = {}
        self._active: dict[str, list[tuple[Any, int, QueuedPod]]] = {}
        """A heap for each line."""
        self._backoff: list[tuple[float, int, QueuedPod]] = []
        self._waiting: dict[str, QueuedPod] = {}
        self._tickets = count(1)
        self._events: deque[ClusterEvent] = deque(maxlen=_REMEMBERED_EVENTS)
        self._event_count = 0
        self._in_flight = 0

    # --- reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def get(self, uid: str) -> QueuedPod | None:
        """Return a pending pod by uid."""
        return self._pods.get(uid)

    def counts(self) -> dict[Place, int]:
        """Return how many pods are in each place."""
        counts = dict.fromkeys(Place, 0)
        for queued in self._pods.values():
            counts[queued.place] += 1
        return counts

    def has_active(self) -> bool:
        """Return whether a pod could be popped that is not backing off."""
        return self._next_line() is not None

    def next_due(self) -> float | None:
        """Return when a pod may next come out of back-off, unix seconds; None where none backs off."""
        self._drop_stale(self._backoff, Place.BACKOFF)
        return self._backoff[0][0] if self._backoff else None

    # --- pods come, change and go --------------------------------------------------------------------

    def add(self, pod: PodInfo, now: float) -> None:
        """Add a pending pod, or take over its new state."""
        known = self._pods.get(pod.uid)
        if known is None:
            queued = self._pods[pod.uid] = QueuedPod(pod, queued=now, timestamp=now)
            self._enqueue(queued)
            return
        before, known.pod = known.pod, pod
        if known.place is Place.HELD or (known.place is Place.UNSCHEDULABLE and before.template is not pod.template):
            self._leave_waiting(known)
            self._enqueue(known)
        elif known.place is Place.ACTIVE:
            self._push_active(known)

    def remove(self, uid: str) -> QueuedPod | None:
        """Forget a pod (deleted, bound, or no longer ours)."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            if queued.place is Place.IN_FLIGHT:
                self._in_flight -= 1
            self._waiting.pop(uid, None)
            queued.ticket = 0
        return queued

    # --- attempts ------------------------------------------------------------------------------------

    def pop(self, now: float) -> QueuedPod | None:
        """Take the next pod to decide; with nothing active, the pod whose back-off ends first."""
        self.flush(now)
        heap = self._next_line()
        if heap is None:
            self._drop_stale(self._backoff, Place.BACKOFF)
            heap = self._backoff
            if not heap or heap[0][2].errors:
                return None
        queued = heapq.heappop(heap)[2]
        queued.place = Place.IN_FLIGHT
        queued.attempts += 1
        queued.seen_events = self._event_count
        self._in_flight += 1
        return queued

    def rejected(self, queued: QueuedPod, rejectors: frozenset[str], now: float) -> None:
        """Put back a pod that fits nowhere: it waits for an event, or backs off if one came meanwhile."""
        if not self._land(queued, now):
            return
        queued.rejectors = rejectors
        queued.rejections += 1
        queued.errors = 0
        missed = self._event_count - queued.seen_events
        recent = list(self._events)[-missed:] if missed else []
        if missed > len(self._events) or any(wakes(rejectors, event) for event in recent):
            self._back_off(queued)
        else:
            queued.place = Place.UNSCHEDULABLE
            self._waiting[queued.pod.uid] = queued

    def failed(self, queued: QueuedPod, now: float) -> None:
        """Put back a pod whose attempt broke: it backs off."""
        if self._land(queued, now):
            queued.errors += 1
            self._back_off(queued)

    def done(self, uid: str) -> None:
        """Forget a pod that is bound."""
        self.remove(uid)

    def happened(self, event: ClusterEvent, now: float) -> int:
        """Wake the rejected pods that an event may help; return how many."""
        if self._in_flight:
            self._events.append(event)
            self._event_count += 1
        woken = [q for q in self._waiting.values() if q.place is Place.UNSCHEDULABLE and wakes(q.rejectors, event)]
        for queued in woken:
            del self._waiting[queued.pod.uid]
            if _backoff_end(queued) > now:
                self._back_off(queued)
            else:
                self._push_active(queued)
        return len(woken)

    def use(self, *, turn: TurnOf, hold: HoldReason) -> None:
        """Order and hold pods by other rules from now on, those that wait included."""
        self._turn, self._hold = turn, hold
        self._active.clear()  # keys of two orders cannot be compared
        for queued in [q for q in self._pods.values() if q.place is Place.ACTIVE]:
            self._enqueue(queued)
        self.recheck_held()

    def recheck_held(self) -> int:
        """Ask again about held pods; return how many were let in."""
        held = [q for q in self._waiting.values() if q.place is Place.HELD]
        for queued in held:
            self._leave_waiting(queued)
            self._enqueue(queued)
        return sum(q.place is not Place.HELD for q in held)

    def flush(self, now: float) -> None:
        """Make pods active whose back-off is over."""
        while self._backoff and self._backoff[0][0] <= now:
            _, ticket, queued = heapq.heappop(self._backoff)
            if queued.ticket == ticket and queued.place is Place.BACKOFF:
                self._push_active(queued)

    def flush_leftovers(self, now: float) -> int:
        """Try pods again that no event has concerned for long; return how many."""
        left = [
            q
            for q in self._waiting.values()
            if q.place is Place.UNSCHEDULABLE and now - q.timestamp > UNSCHEDULABLE_TIMEOUT_SECONDS
        ]
        for queued in left:
            self._leave_waiting(queued)
            self._push_active(queued)
        return len(left)

    # --- places --------------------------------------------------------------------------------------

    def _enqueue(self, queued: QueuedPod) -> None:
        why = self._hold(queued)
        if why is None:
            self._push_active(queued)
        else:
            queued.place, queued.held_because = Place.HELD, why
            self._waiting[queued.pod.uid] = queued

    def _push_active(self, queued: QueuedPod) -> None:
        queued.place = Place.ACTIVE
        queued.ticket = next(self._tickets)
        turn = self._turn(queued)
        heapq.heappush(self._active.setdefault(turn.line, []), (turn.key, queued.ticket, queued))

    def _next_line(self) -> list[tuple[Any, int, QueuedPod]] | None:
        """Return the heap whose head is the next to be decided; None where no pod is active."""
        found = None
        for line, heap in list(self._active.items()):
            self._drop_stale(heap, Place.ACTIVE)
            if not heap:
                del self._active[line]
            elif found is None or priority_sort(heap[0][2]) < priority_sort(found[0][2]):
                found = heap
        return found

    def _back_off(self, queued: QueuedPod) -> None:
        queued.place = Place.BACKOFF
        queued.ticket = next(self._tickets)
        heapq.heappush(self._backoff, (_backoff_end(queued), queued.ticket, queued))

    def _land(self, queued: QueuedPod, now: float) -> bool:
        """End an attempt; return whether the pod is still ours to place."""
        if self._pods.get(queued.pod.uid) is not queued:
            return False
        self._in_flight -= 1
        queued.timestamp = now
        return True

    def _leave_waiting(self, queued: QueuedPod) -> None:
        self._waiting.pop(queued.pod.uid, None)

    @staticmethod
    def _drop_stale(heap: list[tuple[Any, int, QueuedPod]], place: Place) -> None:
        while heap and (heap[0][2].ticket != heap[0][1] or heap[0][2].place is not place):
            heapq.heappop(heap)


def _backoff_end(queued: QueuedPod) -> float:
    """Return when the pod's back-off ends: 1, 2, 4, 8, 10, 10 … seconds after its last attempt."""
    times = queued.errors or queued.rejections
    if not times:
        return queued.timestamp
    seconds = min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * 2.0 ** min(times - 1, 10))
    return queued.timestamp + seconds
