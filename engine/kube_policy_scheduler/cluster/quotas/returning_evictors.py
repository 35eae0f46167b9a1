"""A safety net: workloads whose pods are evicted for other queues, and evict in turn, again and again.

The rules of queues make evictions come to an end. What they do not know may still set them going: a webhook, a budget,
a clock. So a workload that was evicted, evicted others, and was evicted again evicts nobody for a while; it may start
in free room. If this ever counts one, there is a fault to be found.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.times import Steady

KEPT_SECONDS = 3600.0
"""An eviction so long ago is forgotten."""
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 10.0, 600.0
MOST_KEPT = 4096
"""Workloads that are known; those whose last eviction is the longest ago are forgotten."""
_Workload = tuple[str, str]


class _Record(msgspec.Struct):
    """What happened to one workload."""

    evicted_at: Steady
    """When one of its pods was evicted last."""
    is_out: bool = True
    """Whether it has evicted nobody since."""
    rounds: int = 0
    """How often it evicted others after it had been evicted."""


class ReturningEvictors:
    """Who was evicted for pods of other queues, and evicted others afterwards."""

    def __init__(self) -> None:
        self._records: OrderedDict[_Workload, _Record] = OrderedDict()
        """The last one to be evicted is the last."""
        self.total = 0
        """How often a workload evicted others after it had been evicted, for the second time or more."""

    def note(self, evictor: PodInfo, victims: Iterable[PodInfo], now: Steady) -> None:
        """Note that pods are evicted for a pod of another queue."""
        self._forget_old(now)
        own = _workload(evictor)
        record = self._records.get(own)
        if record is not None and record.is_out:
            record.is_out = False
            record.rounds += 1
            self.total += record.rounds > 1
        for key in dict.fromkeys(map(_workload, victims)):
            record = self._records.setdefault(key, _Record(now))
            record.evicted_at, record.is_out = now, True
            self._records.move_to_end(key)
        while len(self._records) > MOST_KEPT:
            self._records.popitem(last=False)

    def may_evict(self, pod: PodInfo, now: Steady) -> bool:
        """Return whether a pod may have others evicted: its workload was not evicted after it had evicted others."""
        record = self._records.get(_workload(pod))
        if record is None or not record.rounds or not record.is_out or now - record.evicted_at > KEPT_SECONDS:
            return True
        return now - record.evicted_at >= min(FIRST_PAUSE_SECONDS * 2.0**record.rounds, MOST_PAUSE_SECONDS)

    def _forget_old(self, now: Steady) -> None:
        while self._records:
            key, record = next(iter(self._records.items()))
            if now - record.evicted_at <= KEPT_SECONDS:
                return
            del self._records[key]


def _workload(pod: PodInfo) -> _Workload:
    """Return what stays the same while a pod is replaced: its controller, or its name."""
    controller = pod.template.controller
    return pod.namespace, controller.uid if controller is not None else pod.name
