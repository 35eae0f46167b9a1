"""Room that is reserved on nodes for the replacements of moved pods, until they come.

A stand-in is nominated to the node: it counts in the filters of pods of its priority and below, as any nominated pod
does. When the replacement is decided, the nomination becomes its own, so it gets the node if it still fits there.
"""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.scheduling.context import SchedulerContext
from kube_policy_scheduler.tooling.rebalancing.moves import Move


class Reservation(msgspec.Struct, eq=False):
    """Room for one replacement."""

    move: Move
    victim: PodInfo
    """The pod that was evicted, or is about to be."""
    stand_in: PodInfo
    until: float
    """Until when it is kept, seconds of the caller's clock."""
    claimed_by: str = ""
    """The uid of the replacement, once it is here."""
    in_doubt: bool = False
    """Whether it is unknown if the victim was evicted."""


class Reservations:
    """All that are kept. One that nobody claims ends when the caller releases it."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._kept: dict[str, Reservation] = {}
        """By the uid of the stand-in."""

    def __len__(self) -> int:
        return len(self._kept)

    def all(self) -> list[Reservation]:
        """Return them, in the order in which they were made."""
        return list(self._kept.values())

    def reserve(self, reservation: Reservation) -> None:
        """Nominate the stand-in to the target, in place of the victim: a queue will not use more with both."""
        stand_in, context = reservation.stand_in, self._context
        self._kept[stand_in.uid] = reservation
        context.cluster.note_evictions((reservation.victim.uid,), context.clock())
        context.cluster.nominate(stand_in, reservation.move.target)

    def release(self, reservation: Reservation) -> None:
        """End the nomination of the stand-in, and that of a replacement that claimed it and has no node yet.

        A victim that is still there stays.
        """
        if self._kept.pop(reservation.stand_in.uid, None) is None:
            return
        context = self._context
        context.cluster.forget_evictions((reservation.victim.uid,))
        context.cluster.nominate(reservation.stand_in, "")
        queued = context.queue.get(reservation.claimed_by) if reservation.claimed_by else None
        if queued is not None and queued.pod.nominated_node == reservation.move.target:
            context.nominate(queued, "")

    def replacement(self, reservation: Reservation) -> PodInfo:
        """Return the pod that the room is for: the replacement once it is here, until then the stand-in."""
        uid, context = reservation.claimed_by, self._context
        queued = context.queue.get(uid)
        return queued.pod if queued is not None else context.cluster.pods.get(uid, reservation.stand_in)

    def settle(self, uid: str) -> Reservation | None:
        """Return the reservation that a bound pod had claimed, and drop it."""
        found = next((each for each in self._kept.values() if each.claimed_by == uid), None) if self._kept else None
        if found is not None:
            del self._kept[found.stand_in.uid]
            self._context.cluster.nominate(found.stand_in, "")
        return found

    def claim(self, pod: PodInfo) -> str | None:
        """Return the node where room is reserved for a pending pod, and note that it is here; None: nowhere."""
        if not self._kept or pod.nominated_node or pod.template.controller is None:
            return None
        for each in self._kept.values():
            if not each.claimed_by and pod.template is each.stand_in.template:
                each.claimed_by = pod.uid
                self._context.cluster.nominate(each.stand_in, "")
                return each.move.target
        return None

    def clear(self) -> None:
        """Release all of them: another replica leads."""
        for each in self.all():
            self.release(each)
