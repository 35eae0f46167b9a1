"""Rejected pods that wait for an event which may help them; who is helped is found without a look at the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_policy_scheduler.framework.events import ALWAYS, ClusterEvent
from kube_policy_scheduler.framework.queued_pod import Place, QueuedPod

_NOBODY: Mapping[str, QueuedPod] = {}


class UnschedulablePods:
    """Pods by uid, and by the events that may help them."""

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPod] = {}
        self._by_event: dict[ClusterEvent | None, dict[str, QueuedPod]] = {}
        """Under None those that any event may help."""

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def add(self, queued: QueuedPod) -> None:
        """Let a pod wait for the events that may help it."""
        queued.place = Place.UNSCHEDULABLE
        self._pods[queued.pod.uid] = queued
        for event in _wake_keys(queued):
            self._by_event.setdefault(event, {})[queued.pod.uid] = queued

    def remove(self, queued: QueuedPod) -> None:
        """Let a pod go."""
        uid = queued.pod.uid
        del self._pods[uid]
        for event in _wake_keys(queued):
            del self._by_event[event][uid]

    def helped_by(self, event: ClusterEvent) -> list[QueuedPod]:
        """Return the pods that an event may help."""
        if event in ALWAYS:
            return list(self._pods.values())
        return [queued for key in (event, None) for queued in self._by_event.get(key, _NOBODY).values()]

    def would_be_found(self, queued: QueuedPod) -> bool:
        """Return whether a pod waits here, and each event that may help it would find it."""
        uid = queued.pod.uid
        return self._pods.get(uid) is queued and all(uid in self._by_event.get(e, ()) for e in _wake_keys(queued))

    def uids(self) -> set[str]:
        """Return who waits here."""
        return set(self._pods)


def _wake_keys(queued: QueuedPod) -> tuple[ClusterEvent | None, ...]:
    return (None,) if queued.wake_events is None else tuple(queued.wake_events)
