"""Where pending pods wait: active, backing off, unschedulable, held or at permit. Pure; the time is an argument.

Every pending pod is in exactly one place. A pod that is being decided or bound is in flight: it is in none of
the places, and events that arrive meanwhile are remembered for it, so that none is missed.
Rules: kube-scheduler 1.36's scheduling queue (order, back-off, flush). Places with rules of their own are modules
beside this one; here is how pods come from one to the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import count
from typing import assert_never

from engine.cluster.pods import PodInfo
from engine.framework.active_queue import ActiveQueue
from engine.framework.attempt_events import AttemptEvents
from engine.framework.backoff_queue import BackoffQueue, backoff_end
from engine.framework.events import ClusterEvent, cares
from engine.framework.queued_groups import QueuedGroups
from engine.framework.queued_pod import Place, QueuedPod, Turn, gates, priority_sort, priority_turn
from engine.framework.unschedulable_pods import UnschedulablePods

__all__ = ["Place", "QueuedPod", "SchedulingQueue", "Turn", "gates", "priority_sort", "priority_turn"]

UNSCHEDULABLE_TIMEOUT_SECONDS = 300.0
"""A rejected pod is tried again after this long even if no event concerned it."""

TurnOf = Callable[[QueuedPod], Turn]
HoldReason = Callable[[QueuedPod], str | None]
"""PreEnqueue: why a pod must wait outside, or None."""
GroupsOf = Callable[[QueuedPod], tuple[Hashable, ...]]
_READY = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE)


class SchedulingQueue:
    """All pending pods."""

    def __init__(self, *, turn: TurnOf = priority_turn, hold: HoldReason = gates) -> None:
        self._turn = turn
        self._hold = hold
        self._groups_of: GroupsOf = lambda queued: ()
        self._short: HoldReason = lambda queued: None
        self._pods: dict[str, QueuedPod] = {}
        self._tickets = count(1)
        self._active = ActiveQueue(self._tickets)
        self._backoff = BackoffQueue(self._tickets)
        self._held: dict[str, QueuedPod] = {}
        self._unschedulable = UnschedulablePods()
        self._groups = QueuedGroups()
        """Pods that nothing but their group's number may hold."""
        self._events = AttemptEvents()
        self._in_flight = 0

    # --- reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def get(self, uid: str) -> QueuedPod | None:
        """Return a pending pod by uid."""
        return self._pods.get(uid)

    def held(self) -> Iterator[QueuedPod]:
        """Return the pods that must wait outside."""
        return iter(list(self._held.values()))

    def counts(self) -> dict[Place, int]:
        """Return how many pods are in each place."""
        counts = dict.fromkeys(Place, 0)
        for queued in self._pods.values():
            counts[queued.place] += 1
        return counts

    def rejections(self) -> Counter[tuple[str, str]]:
        """Return how many pods wait that a plugin rejected, by plugin and schedulerName; each counts for all of its."""
        waiting = (q for q in self._pods.values() if q.place in (Place.UNSCHEDULABLE, Place.BACKOFF))
        return Counter((plugin, queued.pod.scheduler_name) for queued in waiting for plugin in queued.rejectors)

    def has_active(self) -> bool:
        """Return whether a pod could be popped that is not backing off."""
        return bool(self._active)

    def group(self, group: Hashable) -> Mapping[str, QueuedPod]:
        """Return the pending pods of a group by uid, without those held for a reason of their own."""
        return self._groups.members(group)

    def misplaced(self) -> list[str]:
        """Return which pods are not where they say they are, and so would never be found; nobody, if all is well."""
        ready = self._active.tickets() | self._backoff.tickets()
        in_flight = sum(queued.place is Place.IN_FLIGHT for queued in self._pods.values())
        found = [f"{self._in_flight} pods are said to be in flight, and {in_flight} are"]
        found = found if in_flight != self._in_flight else []
        for uid, queued in self._pods.items():
            match queued.place:
                case Place.ACTIVE | Place.BACKOFF:
                    right = queued.ticket in ready
                case Place.HELD:
                    right = self._held.get(uid) is queued
                case Place.UNSCHEDULABLE:
                    right = self._unschedulable.would_be_found(queued)
                case Place.IN_FLIGHT | Place.PERMIT:
                    right = True
                case _:
                    assert_never(queued.place)
            if not right:
                found.append(f"pod {queued.pod.key} says that it is {queued.place.value}, and is not there")
        gone = [*(self._held.keys() - self._pods.keys()), *(self._unschedulable.uids() - self._pods.keys())]
        return found + [f"pod {uid} waits and is not pending any more" for uid in sorted(gone)]

    def next_due(self) -> float | None:
        """Return when a pod may next come out of back-off, unix seconds; None where none backs off."""
        return self._backoff.next_due()

    # --- pods come, change and go --------------------------------------------------------------------

    def add(self, pod: PodInfo, now: float) -> None:
        """Add a pending pod, or take over its new state."""
        known = self._pods.get(pod.uid)
        if known is None:
            queued = self._pods[pod.uid] = QueuedPod(pod, queued=now, timestamp=now)
            self._enqueue(queued)
            self._let_in(queued)
            return
        before, known.pod = known.pod, pod
        changed = before.template is not pod.template or before.annotations != pod.annotations
        if known.place is Place.HELD or (changed and known.place in (Place.UNSCHEDULABLE, Place.ACTIVE)):
            self._leave(known)
            self._enqueue(known)
            self._let_in(known)

    def remove(self, uid: str) -> QueuedPod | None:
        """Forget a pod (deleted, bound, or no longer ours)."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._leave(queued)
            self._groups.quit(queued)
            queued.ticket = 0
        return queued

    # --- attempts ------------------------------------------------------------------------------------

    def pop(self, now: float) -> QueuedPod | None:
        """Take the next pod to decide; with nothing active, the pod whose back-off ends first."""
        self.flush(now)
        queued = self._active.pop() or self._backoff.pop_early()
        if queued is not None:
            self._begin(queued)
        return queued

    def take(self, uid: str) -> QueuedPod | None:
        """Take a certain pod to decide out of turn; None where it is held, broken, or being decided already."""
        queued = self._pods.get(uid)
        if queued is None or queued.place not in _READY or queued.errors:
            return None
        self._leave(queued)
        self._begin(queued)
        return queued

    def _begin(self, queued: QueuedPod) -> None:
        queued.place = Place.IN_FLIGHT
        queued.serves_time = False
        queued.attempts += 1
        self._events.begin(queued)
        self._in_flight += 1

    def rejected(
        self,
        queued: QueuedPod,
        rejectors: frozenset[str],
        now: float,
        *,
        wakes: Mapping[str, frozenset[ClusterEvent]] | None = None,
    ) -> None:
        """Put back a pod that fits nowhere: it waits for an event, or backs off if one came meanwhile.

        wakes: which events may help against rejectors that are no plugins of Kubernetes.
        """
        if not self._land(queued, now):
            return
        queued.rejectors = rejectors
        queued.cares = cares(rejectors, wakes or {})
        queued.rejections += 1
        queued.errors = 0
        if self._events.may_help(queued):
            self._backoff.push(queued)
        else:
            self._unschedulable.add(queued)

    def wait(self, queued: QueuedPod) -> None:
        """Let a pod that has a place wait for others; no event concerns it then."""
        self._leave(queued)
        queued.place = Place.PERMIT

    def resume(self, queued: QueuedPod) -> None:
        """Go on with a pod that waited for others: it will be bound, or fail."""
        queued.place = Place.IN_FLIGHT
        self._events.begin(queued)
        self._in_flight += 1

    def returned(self, queued: QueuedPod, now: float) -> None:
        """Put back a pod that had to give its place back to others: it backs off, whatever happens meanwhile."""
        if self._land(queued, now):
            queued.rejections += 1
            queued.errors = 0
            queued.serves_time = True
            self._backoff.push(queued)

    def hold(self, queued: QueuedPod, why: str, now: float) -> None:
        """Put back a pod that must wait outside after all."""
        if self._land(queued, now):
            self._hold_back(queued, why)

    def activate(self, queued: QueuedPod, now: float) -> None:
        """Put back a pod that is to be tried again at once, as if it had not been."""
        if self._land(queued, now):
            self._enqueue(queued)

    def failed(self, queued: QueuedPod, now: float) -> None:
        """Put back a pod whose attempt broke: it backs off."""
        if self._land(queued, now):
            queued.errors += 1
            self._backoff.push(queued)

    def done(self, uid: str) -> None:
        """Forget a pod that is bound."""
        self.remove(uid)

    def happened(self, event: ClusterEvent, now: float) -> int:
        """Wake the rejected pods that an event may help; return how many."""
        if self._in_flight:
            self._events.note(event)
        woken = self._unschedulable.helped_by(event)
        for queued in woken:
            self._leave(queued)
            if backoff_end(queued) > now:
                self._backoff.push(queued)
            else:
                self._push_active(queued)
        return len(woken)

    def use(
        self,
        *,
        turn: TurnOf,
        hold: HoldReason,
        groups: GroupsOf = lambda queued: (),
        short: HoldReason = lambda queued: None,
    ) -> None:
        """Order, hold and group pods by other rules from now on, those that wait included.

        short: why a pod must wait outside until there are more pods of its groups, or None.
        """
        self._turn, self._hold, self._groups_of, self._short = turn, hold, groups, short
        self._active.clear()  # keys of two orders cannot be compared
        for queued in self._pods.values():
            if queued.place is not Place.HELD:
                self._groups.join(queued, self._groups_of(queued))
        for queued in [q for q in self._pods.values() if q.place is Place.ACTIVE]:
            self._enqueue(queued)
        self.recheck_held()

    def recheck_held(self) -> int:
        """Ask again about held pods; return how many were let in."""
        held = [q for q in self._held.values() if gates(q) is None]  # gates go by an update of the pod
        for queued in held:
            if queued.place is Place.HELD:
                self._leave(queued)
                self._enqueue(queued)
                self._let_in(queued)
        return sum(q.place is not Place.HELD for q in held)

    def flush(self, now: float) -> None:
        """Make pods active whose back-off is over."""
        while (queued := self._backoff.pop_due(now)) is not None:
            self._push_active(queued)

    def clock_was_set(self, seconds: float) -> None:
        """Move all times by as much as the clock was set: nobody waits longer for it, or gets ahead of others."""
        for queued in self._pods.values():
            queued.queued += seconds
            queued.timestamp += seconds
        self._backoff.rebuild(q for q in self._pods.values() if q.place is Place.BACKOFF)
        self._active.clear()
        for queued in [q for q in self._pods.values() if q.place is Place.ACTIVE]:
            self._push_active(queued)

    def flush_leftovers(self, now: float) -> int:
        """Try pods again that no event has concerned for long; return how many."""
        left = [q for q in self._unschedulable if now - q.timestamp > UNSCHEDULABLE_TIMEOUT_SECONDS]
        for queued in left:
            self._leave(queued)
            self._push_active(queued)
        return len(left)

    # --- places --------------------------------------------------------------------------------------

    def _enqueue(self, queued: QueuedPod) -> None:
        why = self._hold(queued)
        if why is not None:
            self._groups.quit(queued)
        else:
            self._groups.join(queued, self._groups_of(queued))
            why = self._short(queued) if queued.groups else None
        if why is None:
            self._push_active(queued)
        else:
            self._hold_back(queued, why)

    def _hold_back(self, queued: QueuedPod, why: str) -> None:
        queued.place, queued.held_because = Place.HELD, why
        self._held[queued.pod.uid] = queued

    def _let_in(self, queued: QueuedPod) -> None:
        """Let the other pods of its groups in, now that a pod has come that is not held itself."""
        if queued.place is Place.HELD:
            return
        for group in queued.groups:
            for other in list(self.group(group).values()):
                if other.place is Place.HELD:
                    self._leave(other)
                    self._enqueue(other)

    def _push_active(self, queued: QueuedPod) -> None:
        self._active.push(queued, self._turn(queued))

    def _land(self, queued: QueuedPod, now: float) -> bool:
        """End an attempt; return whether the pod is still ours to place."""
        if self._pods.get(queued.pod.uid) is not queued:
            return False
        self._leave(queued)
        queued.timestamp = now
        return True

    def _leave(self, queued: QueuedPod) -> None:
        """Take a pod out of its place; heap entries are left behind, stale by the pod's next place."""
        match queued.place:
            case Place.IN_FLIGHT:
                self._in_flight -= 1
            case Place.HELD:
                del self._held[queued.pod.uid]
            case Place.UNSCHEDULABLE:
                self._unschedulable.remove(queued)
            case Place.ACTIVE | Place.BACKOFF | Place.PERMIT:
                pass
            case _:
                assert_never(queued.place)
