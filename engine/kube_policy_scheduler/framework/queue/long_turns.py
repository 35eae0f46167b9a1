"""Pods whose decisions take so long that nothing else runs meanwhile: they wait behind all others.

One long turn may have another cause, so a pod is put last after the second one. The cost comes from what the pod asks
for, which pods of one template share: once some of them had one, all of the template are put last, or each of a
thousand replicas would have its two. A pod with a changed specification has another template and starts from zero.
"""

from __future__ import annotations

from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.times import Steady

MOST_OF_A_POD = 2
MOST_OF_A_TEMPLATE = 4
"""Pods of it that had a long turn."""
WITHIN_SECONDS = 600.0
"""Of the turn before: those that lie further apart are not counted together."""
KEPT = 10_000
_NEVER = (0, 0.0)

_Key = tuple[str, PodTemplate]


class LongTurns:
    """The long turns of pods, by pod and by template."""

    def __init__(self) -> None:
        self._counts: KeptView[_Key, tuple[int, float]] = KeptView(most=KEPT)
        """How many there were, and when the last one was; under no uid, how many pods of the template had one."""
        self._was_any = False
        """Whether there was one; most schedulers never see one, and each pod is asked about three times."""

    def note(self, queued: QueuedPod, now: Steady) -> None:
        """Note that a turn was long because of a pod."""
        self._was_any = True
        of_pod, of_template = self._keys(queued)
        if self._count(of_pod, now) == 1:
            self._count(of_template, now)

    def _count(self, key: _Key, now: Steady) -> int:
        count, last = self._counts.get(key) or _NEVER
        count = count + 1 if now - last <= WITHIN_SECONDS else 1
        self._counts.set(key, (count, now))
        return count

    def waits_last(self, queued: QueuedPod) -> bool:
        """Return whether a pod waits behind all others."""
        if not self._was_any:
            return False
        of_pod, of_template = ((self._counts.get(key) or _NEVER)[0] for key in self._keys(queued))
        return of_pod >= MOST_OF_A_POD or of_template >= MOST_OF_A_TEMPLATE

    def ended(self, queued: QueuedPod) -> None:
        """Forget a pod that waits no more."""
        if self._was_any:
            self._counts.pop(self._keys(queued)[0])

    def placed(self, queued: QueuedPod) -> None:
        """Note that a pod has a node: those of its template may go on."""
        for key in self._keys(queued) if self._was_any else ():
            self._counts.pop(key)

    @staticmethod
    def _keys(queued: QueuedPod) -> tuple[_Key, _Key]:
        template = queued.pod.template
        return (queued.pod.uid, template), ("", template)
