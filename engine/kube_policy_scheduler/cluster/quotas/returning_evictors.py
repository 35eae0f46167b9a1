"""Who was evicted and evicts in turn: what ends evictions that the rules alone would let go on.

Where several resources are counted, or queues stand below each other, shares alone need not come to rest: what is short
differs from pod to pod, so two queues can each have a reason to take from the other. So if a pod evicted others for a
share and was evicted since, its workload does so no more, until something changes that is not the work of evictions:
a pod ends, a new one starts in free room, a node changes, or the queues do. Between two such changes each pod evicts
once for a share, at most, so these evictions end (policies/QUEUES.md).

What the rules do not know may still set evictions going: a webhook, a budget, a clock. As a safety net, a workload that
was evicted, evicted others, and was evicted again evicts nobody for a while; it may start in free room. If this ever
counts one, there is a fault to be found.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

import msgspec

from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.times import Steady

KEPT_SECONDS = 3600.0
"""An eviction so long ago is forgotten."""
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 10.0, 600.0
MOST_KEPT = 4096
"""Workloads that are known, and pods; those of which nothing was heard or asked for the longest time are forgotten."""
AGAIN = "~"
"""Ends the name of a pod that comes again in a simulation. No name in Kubernetes has it."""


class _Record(msgspec.Struct):
    """What happened to one workload."""

    evicted_at: Steady
    """When one of its pods was evicted last."""
    reclaimed_at: Steady | None = None
    """When one was evicted last for a pod of another queue."""
    is_out: bool = False
    """Whether it has evicted nobody since then."""
    rounds: int = 0
    """How often it evicted others after it had been evicted."""
    shared_after: int | None = None
    """After how many changes a pod of it was evicted that had evicted others for a share; None: none was."""


class ReturningEvictors:
    """Who was evicted, and evicted others before or afterwards."""

    def __init__(self) -> None:
        self._records: KeptView[Hashable, _Record] = KeptView(most=MOST_KEPT)
        self._noted_at = Steady(0.0)
        """When pods were evicted last."""
        self._changes = 0
        """What changed that is not the work of evictions, since the first of these."""
        self._sharing: KeptView[str, None] = KeptView(most=MOST_KEPT)
        """The uids of pods that got their room for a share."""
        self._leaving: KeptView[str, None] = KeptView(most=MOST_KEPT)
        """The uids of evicted pods that have not ended."""
        self._awaiting: KeptView[str, None] = KeptView(most=MOST_KEPT)
        """The uids of pods that others were evicted for, and that have not started."""
        self.knows_any = False
        """Whether a pod was evicted; until then, changes need not be noted."""
        self.total = 0
        """How often a workload evicted others after it had been evicted, for the second time or more."""

    def note(
        self,
        evictor: PodInfo,
        victims: Iterable[PodInfo],
        now: Steady,
        *,
        reclaims: bool = True,
        sharing: Collection[str] = (),
    ) -> None:
        """Note that pods are evicted for another one.

        Args:
            evictor: that gets the room.
            victims: who is evicted.
            now: the time.
            reclaims: whether for a pod of another queue, by `reclaim`.
            sharing: the uids of the evictor and its gang, if shares become fairer so; nothing where it is guaranteed.
        """
        self._noted_at = now
        self.knows_any = True
        own = self._known(_workload(evictor)) if reclaims else None
        if own is not None and own.is_out:
            own.is_out = False
            own.rounds += 1
            self.total += own.rounds > 1
        for victim in victims:
            key = _workload(victim)
            record = self._known(key)
            if record is None:
                record = _Record(now)
                self._records.set(key, record)
            record.evicted_at = now
            if reclaims:
                record.reclaimed_at, record.is_out = now, True
            if victim.uid in self._sharing:
                self._sharing.pop(victim.uid)
                record.shared_after = self._changes
            self._leaving.set(victim.uid, None)
        for uid in sharing:
            self._sharing.set(uid, None)
        for uid in (evictor.uid, *sharing):
            self._awaiting.set(uid, None)

    # --- what is not the work of evictions ---------------------------------------------------------------

    def changed(self) -> None:
        """Note that nodes or queues changed."""
        self._changes += 1

    def started(self, pod: PodInfo) -> None:
        """Note that a pod starts: a change, unless others were evicted for it, or pods of its workload were."""
        if pod.uid in self._awaiting:
            self._awaiting.pop(pod.uid)
        else:
            self._changes += self._known(_workload(pod)) is None

    def ended(self, uid: str) -> None:
        """Note that a pod is gone: a change, unless it was evicted."""
        if uid in self._leaving:
            self._leaving.pop(uid)
        else:
            self._changes += 1
        self._sharing.pop(uid)

    # --- who may evict -----------------------------------------------------------------------------------

    def may_share(self, pod: PodInfo) -> bool:
        """Return whether a pod may have others evicted so that shares become fairer."""
        record = self._records.get(_workload(pod))
        return record is None or record.shared_after != self._changes

    def may_evict(self, pod: PodInfo, now: Steady) -> bool:
        """Return whether a pod may have others evicted: its workload was not evicted after it had evicted others."""
        record = self._records.get(_workload(pod))
        if record is None or record.reclaimed_at is None or not record.rounds or not record.is_out:
            return True
        since = now - record.reclaimed_at
        return since > KEPT_SECONDS or since >= min(FIRST_PAUSE_SECONDS * 2.0**record.rounds, MOST_PAUSE_SECONDS)

    def _known(self, key: Hashable) -> _Record | None:
        """Return what happened to a workload, None if its last eviction is too long ago and keeps it from nothing."""
        record = self._records.get(key)
        if record is None or self._noted_at - record.evicted_at <= KEPT_SECONDS:
            return record
        return record if record.shared_after == self._changes else None


def _workload(pod: PodInfo) -> Hashable:
    """Return what a pod has in common with those that may take its place: its controller, or what makes them alike."""
    template = pod.template
    if template.controller is not None:
        return pod.namespace, template.controller.uid
    alike = frozenset(template.labels.items()), frozenset(pod.demand.requests.items())
    return pod.namespace, template.priority, *alike
