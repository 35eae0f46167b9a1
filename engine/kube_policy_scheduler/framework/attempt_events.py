"""What happened while pods were being decided or bound, so that a rejection which is outdated by then is noticed."""

from __future__ import annotations

from collections import deque

from kube_policy_scheduler.framework.events import ALWAYS, ClusterEvent
from kube_policy_scheduler.framework.queued_pod import QueuedPod

_REMEMBERED_EVENTS = 4096


class AttemptEvents:
    """The last events, numbered. Whose attempt began before the oldest of them is taken to be helped."""

    def __init__(self) -> None:
        self._events: deque[ClusterEvent] = deque(maxlen=_REMEMBERED_EVENTS)
        self._count = 0

    def note(self, event: ClusterEvent) -> None:
        """Remember an event."""
        self._events.append(event)
        self._count += 1

    def begin(self, queued: QueuedPod) -> None:
        """Note that an attempt begins now."""
        queued.seen_events = self._count

    def may_help(self, queued: QueuedPod) -> bool:
        """Return whether anything since the attempt began may help the pod."""
        missed = self._count - queued.seen_events
        recent = list(self._events)[-missed:] if missed else []
        return missed > len(self._events) or any(_helps(queued, event) for event in recent)


def _helps(queued: QueuedPod, event: ClusterEvent) -> bool:
    return event in ALWAYS or queued.wake_events is None or event in queued.wake_events
