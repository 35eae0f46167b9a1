"""How the units of queues stand, for people: which are guaranteed, by which resource, and which are borrowed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.quotas.guarantees import Guarantees, Unit
from kube_policy_scheduler.cluster.quotas.quota_usage import Quota, QuotaUsage
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.reclaim import unit_that_asks
from kube_policy_scheduler.framework.preempt.units import QueueUnits
from kube_policy_scheduler.framework.quota import QuotaRules


class UnitStanding(msgspec.Struct, frozen=True):
    """How one unit stands."""

    unit: Unit
    resource: str = ""
    """By which it is guaranteed; "": it is borrowed in its queue and in all queues above it."""
    queue: str = ""
    """The queue that guarantees it, the nearest one."""

    @property
    def text(self) -> str:
        """Return it in words: `guaranteed by cpu in research`, `borrowed`."""
        return f"guaranteed by {self.resource} in {self.queue}" if self.resource else "borrowed"


def standings(cluster: Cluster, rules: QuotaRules, *, now: float) -> Iterator[tuple[Quota, UnitStanding]]:
    """Yield the units of each queue, without those of the queues below it: the strongest guarantees first.

    A unit that belongs to several queues is yielded once for each of them. now: Unix seconds.
    """
    usage = cluster.track_usage(rules.tree)
    units = QueueUnits(cluster, usage, rules, now=now)
    guarantees = Guarantees(usage, units.of)
    for queue in usage.queues():
        own = set(units.own(queue))
        ordered = (unit for unit in guarantees.of(queue) if unit in own) if own else ()
        for unit in ordered:
            yield queue, _standing(usage, unit, queue, guarantees)


def standing_after(frame: Frame, rules: QuotaRules) -> UnitStanding | None:
    """Return how a pod that waits would stand if it had a node now; None: it belongs to no queue."""
    cluster = frame.cluster
    usage = cluster.track_usage(rules.tree)
    queue = usage.quota_of(frame.template)
    if queue is None:
        return None
    units = QueueUnits(cluster, usage, rules, now=frame.now, without=(frame.pod.uid,))
    guarantees, unit = Guarantees(usage, units.of), unit_that_asks(frame, rules, (frame.pod,))
    for each in queue.path():
        rank = guarantees.rank_after(unit, each, ())
        if rank is not None:
            return UnitStanding(unit, usage.tree.resources[rank], each.name)
    return UnitStanding(unit)


def _standing(usage: QuotaUsage, unit: Unit, queue: Quota, guarantees: Guarantees) -> UnitStanding:
    for each in queue.path():
        rank = guarantees.rank(unit, each)
        if rank is not None:
            return UnitStanding(unit, usage.tree.resources[rank], each.name)
    return UnitStanding(unit)
