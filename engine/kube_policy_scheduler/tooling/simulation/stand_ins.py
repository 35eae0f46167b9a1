"""Pods that are refused alike wait behind the first of them, which is tried for all.

Many pods of one template that fit nowhere would each be tried at each event, which makes pods times events. All of them
get the same decision at one moment, so one is enough: once it has a node, the next one is tried. Pods of which that is
not certain wait on their own: members of gangs, pods with volumes or claims or a nomination, and those whose rules read
the pod itself or the clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.cycle import Decision
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue import QueuedPod, QueuePosition, SchedulingQueue
from kube_policy_scheduler.framework.queue_quota import RECLAIM
from kube_policy_scheduler.framework.reclaim import PATIENCE
from kube_policy_scheduler.framework.refusal_memo import is_alike

_BEHIND = "behind a pod that is refused alike"
_CALLED = ClusterEvent.TIMEOUT
"""What wakes a pod that waits behind another one, by name; in virtual time no such event reaches all pods."""

_Kind: TypeAlias = tuple[PodTemplate, Profile]


@dataclass(slots=True)
class _Line:
    """Pods of one template under one profile."""

    first: QueuedPod
    rejectors: frozenset[str]
    """Of the first."""
    behind: list[tuple[Any, int, QueuedPod]] = field(default_factory=list)
    """A heap in the order of the queue."""


class StandIns:
    """Puts refused pods back into the queue."""

    def __init__(
        self, queue: SchedulingQueue, turn: Callable[[QueuedPod], QueuePosition], *, each_reason: bool
    ) -> None:
        """Make one.

        Args:
            queue: of the pods.
            turn: returns the position of a pod.
            each_reason: whether each pod must be tried again when the reason why it does not fit has changed.
        """
        self._queue, self._turn, self._each_reason = queue, turn, each_reason
        self._lines: dict[_Kind, _Line] = {}
        self._line_of: dict[str, _Kind] = {}
        """By the uid of those that are tried for others."""
        self._numbers = count()

    def refused(self, queued: QueuedPod, profile: Profile, decision: Decision, now: float) -> None:
        """Put a refused pod back: it waits for an event, or behind one that is refused alike."""
        rejectors, wakes = decision.rejectors, profile.wakes
        key = (queued.pod.template, profile)
        line = self._lines.get(key)
        if self._waits_alone(queued, profile, decision):
            self.settled(queued, now)
            self._queue.rejected(queued, rejectors, now, wakes=wakes)
            return
        if line is None:
            line = self._lines[key] = _Line(queued, rejectors)
            self._line_of[queued.pod.uid] = key
        if line.first is queued:
            self._queue.rejected(queued, rejectors, now, wakes=wakes)
            self._keeps_its_turn(queued)
            if self._each_reason and line.rejectors != rejectors:
                behind, line.behind = line.behind, []
                for _, _, other in sorted(behind, key=lambda entry: entry[:2]):
                    self._queue.wake(other.pod.uid, _CALLED, now)
            line.rejectors = rejectors
            return
        self._queue.rejected(queued, frozenset((_BEHIND,)), now, wakes={_BEHIND: frozenset((_CALLED,))})
        self._keeps_its_turn(queued)
        heapq.heappush(line.behind, (self._turn(queued).key, next(self._numbers), queued))

    def settled(self, queued: QueuedPod, now: float) -> None:
        """Take note that a pod is tried for no other one any more: it has a node, or keeps room on one."""
        key = self._line_of.pop(queued.pod.uid, None)
        if key is None:
            return
        line = self._lines.pop(key)
        if line.behind:
            _, _, line.first = heapq.heappop(line.behind)
            self._lines[key] = line
            self._line_of[line.first.pod.uid] = key
            self._queue.wake(line.first.pod.uid, _CALLED, now)

    def first_of(self, queued: QueuedPod) -> QueuedPod:
        """Return the pod behind which one waits; itself if it waits behind none."""
        if queued.rejectors != frozenset((_BEHIND,)):
            return queued
        return next(
            (line.first for (template, _), line in self._lines.items() if template is queued.pod.template), queued
        )

    def _waits_alone(self, queued: QueuedPod, profile: Profile, decision: Decision) -> bool:
        found = decision.preemption
        if queued.groups or decision.refused_by - {RECLAIM} or not is_alike(queued.pod, profile):
            return True
        if RECLAIM in decision.refused_by and PATIENCE in decision.message:
            return True  # how long it has waited is its own
        if found is not None and (found.victims or found.nominated_node or found.keeps_nomination):
            return True
        if any(ClusterEvent.CLOCK in profile.wakes.get(name, ()) for name in decision.rejectors - {RECLAIM}):
            return True
        turn = self._turn(queued)
        return turn.strict or bool(turn.slopes)

    def _keeps_its_turn(self, queued: QueuedPod) -> None:
        """Let a pod wait as one that has not been tried: among equals, who came first is tried first."""
        queued.timestamp, queued.rejections = queued.queued, 0
