"""How the units of queues stand, for people: which are guaranteed, by which resource, and which are borrowed."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.quotas.guarantees import WALKED_AT_ONCE, Guarantees, Unit
from kube_policy_scheduler.cluster.quotas.quota_overview import UnitCounts
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


def counted_units(
    cluster: Cluster, rules: QuotaRules, *, now: float
) -> Generator[None, None, Mapping[str, UnitCounts]]:
    """Return how many units of each queue, without those of the queues below it, are guaranteed and borrowed.

    They are counted in steps. Between two of them anything may happen; what is counted already stays as it was.
    now: Unix seconds.
    """
    usage, found = cluster.track_usage(rules.tree), dict[str, UnitCounts]()
    units = QueueUnits(cluster, usage, rules, now=now)
    guarantees, queues = Guarantees(usage, units.of), list(usage.queues())
    for queue in queues:
        yield from units.preparing(queue)
        units.own(queue)
    for queue in queues:
        yield from guarantees.preparing(queue)
    for queue in queues:
        counts = found[queue.name] = UnitCounts()
        for place, unit in enumerate(units.own(queue)):
            if place % WALKED_AT_ONCE == WALKED_AT_ONCE - 1:
                yield
            counts.add(_standing(usage, unit, queue, guarantees).resource, _held(usage, unit, queue))
        yield
    return found


def unit_counts(usage: QuotaUsage, queue: Quota, there: Iterable[UnitStanding]) -> UnitCounts:
    """Return how many of the units of a queue are guaranteed and borrowed."""
    counts = UnitCounts()
    for each in there:
        counts.add(each.resource, _held(usage, each.unit, queue))
    return counts


def _held(usage: QuotaUsage, unit: Unit, queue: Quota) -> list[str]:
    """Return the counted resources that a unit holds in a queue itself."""
    return [usage.tree.resources[place] for of, amounts in unit.parts if of is queue for place, _ in amounts]


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
