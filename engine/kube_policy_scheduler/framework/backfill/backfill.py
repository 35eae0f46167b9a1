"""Which reservation a pod must not delay: of each strict order with `backfill`, the first pod that waits has one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.events import ClusterEvent
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.backfill.beside import BesideReservation
from kube_policy_scheduler.framework.backfill.reservation import (
    Seat,
    StartReservation,
    Unreserved,
    expected_ends,
    reserve,
)
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import Group
from kube_policy_scheduler.framework.plugin import FilterPlugin
from kube_policy_scheduler.framework.queue.backfill_rule import BackfillRule
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from kube_policy_scheduler.times import Steady

LOOK_SECONDS = 5.0
"""How long after a reservation was found it is found again at the earliest, if no pod asks: pods that are late end at
any moment, and events come all the time. Each time takes 0.2 s with 5,000 nodes and 45,000 pods. If a pod asks, it is
found again at once, but for this long not because pods started or ended: see `_holds_for_now`."""
LOOK_PART = 0.01
"""The same, as a part of the time that the first pod has waited: beside pods that are late by days, looks get rare."""
FrameOf = Callable[[QueuedPod], Frame]
FiltersOf = Callable[[QueuedPod], Sequence[FilterPlugin]]
SeatsOf = Callable[[QueuedPod], Sequence[Seat] | None]

_TAKEN = frozenset({ClusterEvent.TAKEN})
_PODS = _TAKEN | {ClusterEvent.POD_ADD, ClusterEvent.POD_UPDATE, ClusterEvent.POD_DELETE, ClusterEvent.CLOCK}
"""Pods start and end, and time passes: that takes no room from a reservation without it being seen."""


class _Kept(msgspec.Struct, frozen=True):
    """What was found for the first pod of an order."""

    first: QueuedPod
    pod: PodInfo
    rule: BackfillRule
    epoch: int
    """Of the ledger."""
    beside: BesideReservation | None
    """None: nothing is reserved."""
    look_at: float
    """When it has to be found again, though nothing happened, Unix seconds."""
    found_at: Steady
    """When it was found, on the steady clock."""
    again_at: float
    """When `look` finds it again at the earliest if something happened, on the steady clock."""
    wake_at: float
    """When the pods that wait are tried again, Unix seconds; some may wait for an earlier reservation of the order."""


class Backfill:
    """The reservations of the orders of a queue. Each is kept until an event may have changed it.

    Almost any event may: if another pod takes the room of the first pod, the first pod will start elsewhere. `look`
    finds the reservations again even if no pod asks for them, and wakes the pods that wait for them.
    """

    def __init__(
        self, cluster: Cluster, queue: SchedulingQueue, *, frame: FrameOf, seats: SeatsOf, filters: FiltersOf
    ) -> None:
        """Make one.

        Args:
            cluster: where the pods run.
            queue: of the pods that wait.
            frame: returns what the rules of a pod look at.
            seats: returns places for a pod, or for all that its gang needs, as the cluster stands; None: it does not
                fit.
            filters: returns the filters of a pod.
        """
        self._cluster, self._queue, self._frame, self._seats = cluster, queue, frame, seats
        self._filters = filters
        self._kept: dict[str, _Kept] = {}
        """By line of the queue."""
        self.cut = 0
        """How often nothing was reserved because not all ends were looked at."""

    def beside(self, queued: QueuedPod) -> BesideReservation | None:
        """Return the filter of a pod that must not delay another one; None: nothing is reserved for one before it."""
        found = self._queue.first_before(queued)
        if found is None:
            return None
        line, first, rule = found
        if not set(first.groups).isdisjoint(queued.groups):
            return None
        kept, frame = self._kept.get(line), self._frame(first)
        if self._cluster.ledger.is_silent:  # something is tried out, which is no news
            return kept.beside if kept is not None and kept.first is first else None
        if kept is None or not self._holds_for_now(kept, first, rule, frame):
            kept = self._find(line, first, rule, frame)
        return kept.beside

    def _holds_for_now(self, kept: _Kept, first: QueuedPod, rule: BackfillRule, frame: Frame) -> bool:
        """Return whether a pod that asks is decided by what was found before.

        Where pods start and end all the time, each pod that asks would cost a search. If pods have only started and
        ended since, the first pod may fit earlier than was found, but not later. A pod that has to wait for more than
        is needed is tried again once `look` has found that out.
        """
        recent = frame.steady - kept.found_at < LOOK_SECONDS
        return self._still_holds(kept, first, rule, frame.now, harmless=_PODS if recent else _TAKEN)

    def _find(self, line: str, first: QueuedPod, rule: BackfillRule, frame: Frame) -> _Kept:
        """Find what is reserved, and keep it, with the time at which pods that wait are tried again."""
        before, found = self._kept.get(line), self._found(first, rule, frame)
        if before is not None:
            wake_at = frame.now if self._lets_more_pass(found.beside, before.beside) else before.wake_at
            found = msgspec.structs.replace(found, wake_at=min(wake_at, found.wake_at))
        self._kept[line] = found
        return found

    def _lets_more_pass(self, beside: BesideReservation | None, before: BesideReservation | None) -> bool:
        """Return whether a pod that had to wait for the reservation before may not have to wait for this one."""
        if before is None:
            return False
        return beside is None or beside.reservation.leaves_more(self._cluster, before.reservation)

    def _still_holds(
        self,
        kept: _Kept,
        first: QueuedPod,
        rule: BackfillRule,
        now: float,
        *,
        harmless: frozenset[ClusterEvent] = _TAKEN,
    ) -> bool:
        """Return whether a reservation still has its room, and nothing but harmless events came since it was found."""
        if kept.first is not first or kept.pod is not first.pod or kept.rule is not rule or now >= kept.look_at:
            return False
        since = self._cluster.ledger.since(kept.epoch)
        if since is None or not harmless.issuperset(since):
            return False
        return not since or kept.beside is None or kept.beside.reservation.holds(self._cluster)

    def _found(self, first: QueuedPod, rule: BackfillRule, frame: Frame) -> _Kept:
        epoch, now, steady = self._cluster.ledger.epoch, frame.now, frame.steady
        found = reserve(
            self._cluster,
            expected_ends(rule, frame),
            lambda: self._seats(first),
            holder=holder_of(first.pod, first.groups),
            now=now,
            most_seconds=rule.most_seconds,
        )
        self.cut += found is Unreserved.CUT
        reservation = found if isinstance(found, StartReservation) else None
        pause = max(LOOK_SECONDS, LOOK_PART * (now - frame.queued))
        look_at = max(reservation.at, now + pause) if reservation is not None else math.inf
        beside = BesideReservation(rule, reservation, self._filters(first)) if reservation is not None else None
        return _Kept(first, first.pod, rule, epoch, beside, look_at, steady, again_at=steady + pause, wake_at=look_at)

    # --- time ----------------------------------------------------------------------------------------

    def look(self, now: Steady) -> None:
        """Wake the pods that wait for a reservation that has changed or begun.

        A reservation that has begun is found again, later, if the pods that it waits for still run.
        """
        if not self._kept:
            return
        ended = [line for line, kept in self._kept.items() if self._has_ended(line, kept, now)]
        for line in ended:
            del self._kept[line]
        if ended:
            self._cluster.ledger.note(ClusterEvent.RESERVATION)

    def _has_ended(self, line: str, kept: _Kept, now: Steady) -> bool:
        """Return whether the pods that wait for a reservation are tried again; find it again if it may have changed."""
        if not self._may_be_another(line, kept, now):
            return False
        found = self._queue.first_of(line)
        if found is None or kept.wake_at <= now + self._cluster.ahead:
            return True
        if now < kept.again_at:
            return False
        first, rule = found
        frame = self._frame(first)
        return self._find(line, first, rule, frame).wake_at <= frame.now

    def _may_be_another(self, line: str, kept: _Kept, now: Steady) -> bool:
        at = now + self._cluster.ahead
        if kept.wake_at <= at or kept.beside is None:  # nobody waits where nothing is reserved
            return kept.wake_at <= at
        found = self._queue.first_of(line)
        return found is None or not self._still_holds(kept, *found, at)

    def has_to_look(self, now: Steady) -> bool:
        """Return whether `look` has work, now or as soon as it may find a reservation again."""
        return any(self._may_be_another(line, kept, now) for line, kept in self._kept.items())

    def next_due(self) -> float | None:
        """Return when `look` has work even if nothing happens until then, on the steady clock; None: never."""
        if not self._kept:
            return None
        times = (kept.wake_at - self._cluster.ahead for kept in self._kept.values())
        return min((at for at in times if at < math.inf), default=None)


def holder_of(first: PodInfo, groups: Sequence[Group]) -> str:
    """Return who room is reserved for, for people: a pod, or its gang."""
    return str(groups[0]) if groups else first.key
