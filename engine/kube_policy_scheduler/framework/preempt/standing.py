"""How the units of queues stand, for people: which are guaranteed, by which resource, and which are borrowed."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.quotas.guarantees import WALKED_AT_ONCE, Guarantees, Unit
from kube_policy_scheduler.cluster.quotas.quota_overview import UnitCounts
from kube_policy_scheduler.cluster.quotas.quota_usage import Quota, QuotaUsage
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.reclaim import unit_that_asks
from kube_policy_scheduler.framework.preempt.units import QueueUnits
from kube_policy_scheduler.framework.quota import QuotaRules

_QUEUES_AT_ONCE = 50
"""Queues whose units are found before other work gets its turn: 1 ms."""


class UnitStanding(msgspec.Struct, frozen=True):
    """How one unit stands."""

    unit: Unit
    resource: str = ""
    """By which it is guaranteed; "": it is borrowed in its queue and in all queues above it."""
    queue: str = ""
    """The queue that guarantees it, the nearest one."""

    own: str = ""
    """The queue of its first pod."""

    @property
    def text(self) -> str:
        """Return it in words: `guaranteed by cpu in a`, `borrowed`, `borrowed in a, guaranteed by cpu in all`."""
        guaranteed = f"guaranteed by {self.resource} in {self.queue}" if self.resource else ""
        if guaranteed and self.queue == self.own:
            return guaranteed
        return f"borrowed in {self.own}, {guaranteed}" if guaranteed else "borrowed"


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
    """Return how many units are guaranteed and borrowed in each queue, by its name; those of the queues below count.

    They are counted in steps. Between two of them anything may happen; what is counted already stays as it was.
    now: Unix seconds.
    """
    usage, found = cluster.track_usage(rules.tree), dict[str, UnitCounts]()
    units = QueueUnits(cluster, usage, rules, now=now)
    guarantees, queues = Guarantees(usage, units.of), list(usage.queues())
    for place, queue in enumerate(queues):
        yield from units.preparing(queue)
        if place % _QUEUES_AT_ONCE == _QUEUES_AT_ONCE - 1:
            yield
    resources = usage.tree.resources
    for queue in queues:
        yield from guarantees.preparing(queue)
        counts = found[queue.name] = UnitCounts()
        for place, unit in enumerate(units.of(queue)):
            if place % WALKED_AT_ONCE == WALKED_AT_ONCE - 1:
                yield
            rank = guarantees.rank(unit, queue)
            if rank is not None:
                counts.guaranteed[resources[rank]] += 1
            else:
                counts.borrowed.update(resources[held] for held, _ in unit.within(queue))
        yield
    return found


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
            return UnitStanding(unit, usage.tree.resources[rank], each.name, queue.name)
    return UnitStanding(unit, own=queue.name)


def standing_on(frame: Frame, rules: QuotaRules, node_name: str) -> UnitStanding | None:
    """Return how a pod stands that was taken off its node; None: it belongs to no queue. Changes nothing."""
    cluster = frame.cluster
    usage = cluster.track_usage(rules.tree)
    queue = usage.quota_of(frame.template)
    if queue is None:
        return None
    with cluster.dry_run():
        cluster.place(frame.pod, node_name)
        units = QueueUnits(cluster, usage, rules, now=frame.now)
        return _standing(usage, units.unit_of(frame.pod), queue, Guarantees(usage, units.of))


def _standing(usage: QuotaUsage, unit: Unit, queue: Quota, guarantees: Guarantees) -> UnitStanding:
    for each in queue.path():
        rank = guarantees.rank(unit, each)
        if rank is not None:
            return UnitStanding(unit, usage.tree.resources[rank], each.name, queue.name)
    return UnitStanding(unit, own=queue.name)
