"""Rejected pods that wait for the quota of their queue alone: woken only when something changes in their queues.

The end of any other pod does not help them. This is what kube-scheduler calls a queueing hint.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kube_policy_scheduler.cluster.events import ClusterEvent
from kube_policy_scheduler.cluster.quotas.quota_usage import CLUSTER_QUEUE, Amounts, QuotaUsage
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod

FREE_QUOTA = frozenset({ClusterEvent.POD_DELETE, ClusterEvent.POD_UPDATE, ClusterEvent.RESOURCE_CLAIM})
"""Events of pods that use less of their queues: they ended, were resized in place, or their claims were freed."""


class QuotaWait(msgspec.Struct, frozen=True):
    """What a pod waits for."""

    usage: QuotaUsage
    watched: str
    """The queue whose pods, and those of all queues below it, may make room."""
    queue: str
    """Of the pod."""
    amounts: Amounts
    """What it requests."""
    exact: bool
    """Whether only its admission helps; else any change below `watched` may, as a guarantee may come within reach."""


class PodsOverQuota:
    """The pods that wait, by what they wait for."""

    def __init__(self) -> None:
        self._usage: QuotaUsage | None = None
        self._read = 0
        self._pods: dict[str, dict[QuotaWait, dict[str, QueuedPod]]] = {}
        """By the watched queue, by wait, by uid."""
        self._waits: dict[str, QuotaWait] = {}

    def add(self, queued: QueuedPod, wait: QuotaWait) -> None:
        """Add a pod."""
        if wait.usage is not self._usage:
            self._usage = wait.usage
            self._read = -1 if self._waits else wait.usage.changed.end  # these wait for queues that are no more
        self._waits[queued.pod.uid] = wait
        self._pods.setdefault(wait.watched, {}).setdefault(wait, {})[queued.pod.uid] = queued

    def remove(self, uid: str) -> None:
        """Remove a pod, if it is here."""
        wait = self._waits.pop(uid, None)
        if wait is None:
            return
        there = self._pods[wait.watched]
        del there[wait][uid]
        if not there[wait]:
            del there[wait]
        if not there:
            del self._pods[wait.watched]

    def __contains__(self, uid: str) -> bool:
        return uid in self._waits

    def helped(self) -> list[QueuedPod]:
        """Return the pods that the changes of usage since the last call may help."""
        if not self._waits:
            return []
        found: list[QueuedPod] = []
        for name in self._changed():
            for wait, pods in self._pods.get(name, {}).items():
                if not wait.exact or self._is_admitted(wait, next(iter(pods.values()))):
                    found += pods.values()
        return found

    def _changed(self) -> Iterable[str]:
        assert self._usage is not None, "a pod waits for it"
        queues, self._read = self._usage.changed.since(self._read), self._usage.changed.end
        if queues is None:
            return list(self._pods)
        if not queues:
            return ()
        changed = dict.fromkeys(each.name for queue in dict.fromkeys(queues) for each in queue.path())
        return changed | {CLUSTER_QUEUE: None}

    def _is_admitted(self, wait: QuotaWait, queued: QueuedPod) -> bool:
        if wait.usage is not self._usage:
            return True
        queue = wait.usage.quota_of(queued.pod.template)
        return queue is None or queue.name != wait.queue or wait.usage.rejection(queue, wait.amounts) is None
