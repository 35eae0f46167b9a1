"""`reclaim above max`: who is evicted, for no other pod, because a queue uses more than its `max`.

That happens if the `max` is lowered: no pod is admitted above it. One pod or gang is evicted at a time, so that an
administrator who watches can stop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.guarantees import Guarantees, Unit
from kube_policy_scheduler.cluster.quotas.quota_usage import Quota, QuotaUsage
from kube_policy_scheduler.framework.preempt.units import QueueUnits
from kube_policy_scheduler.framework.preempt.victims import Budgets, Disrupted
from kube_policy_scheduler.framework.quota import QuotaRules, quantity
from kube_policy_scheduler.times import Steady

EVERY_SECONDS = 30.0
"""From one eviction to the next one."""
LOOK_SECONDS = 5.0
"""From one look to the next one, where nobody is to be evicted."""


class AboveMax(msgspec.Struct, frozen=True):
    """A pod or gang that is evicted because of the `max` of a queue."""

    pods: tuple[PodInfo, ...]
    queue: str
    """The one that uses more than its `max`."""
    why: str
    """For people."""


class AboveMaxReclaim:
    """Evictions above the `max` of queues, one after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.look_at = 0.0
        """When `due` has something to do, on the steady clock."""
        self._goes_on = True
        """Whether somebody may have to be evicted at the next look."""

    def due(self, rules_in_force: Callable[[], QuotaRules | None], now: Steady) -> AboveMax | None:
        """Return who is to be evicted now; None: nobody."""
        if now < self.look_at:
            return None
        rules = rules_in_force()
        found = next_above_max(self._cluster, rules, now=now + self._cluster.ahead) if rules is not None else None
        self._goes_on = found is not None
        self.look_at = now + (EVERY_SECONDS if self._goes_on else LOOK_SECONDS)
        return found

    def next_due(self) -> float | None:
        """Return when somebody may have to be evicted though nothing happens; None: nobody."""
        return self.look_at if self._goes_on else None


def next_above_max(
    cluster: Cluster, rules: QuotaRules, *, now: float, disrupted: Disrupted | None = None
) -> AboveMax | None:
    """Return who is evicted next because a queue uses more than its `max`; None: nobody.

    It borrows there, and holds something of what is used too much. Those that a PodDisruptionBudget protects come last,
    then the lowest priority first, members beyond the size of a gang before the gang, the youngest first.

    Args:
        cluster: with its pods.
        rules: the queues.
        now: Unix seconds.
        disrupted: what PodDisruptionBudgets lost by those that are only tried to be gone; None: there are none.
    """
    if not rules.above_max:
        return None
    usage = cluster.track_usage(rules.tree)
    units: QueueUnits | None = None
    for queue in usage.queues():
        over = [place for place, limit in enumerate(queue.maximum) if queue.used[place] - queue.leaving[place] > limit]
        if not over:
            continue
        units = units or QueueUnits(cluster, usage, rules, now=now)
        held = _holding(Guarantees(usage, units.of).of(queue), queue, over)
        candidates = dict.fromkeys(unit for unit in held if not units.are_spared(unit, rules.above_max))
        # surplus that holds none of it goes with its gang
        first = [unit for unit in candidates if not any(other in candidates for other in units.surplus_of(unit))]
        if first:
            budgets, before = Budgets(cluster), disrupted or Disrupted()
            goes = min(first, key=lambda unit: (before.violates(budgets.disruptions(unit.pods)), *_key(unit)))
            return AboveMax(units.going_with(goes), queue.name, _why(usage, queue, over[0]))
    return None


def all_above_max(cluster: Cluster, rules: QuotaRules, *, now: float, most: int) -> list[AboveMax]:
    """Return who is evicted one after the other because queues use more than their `max`; changes nothing.

    Args:
        cluster: with its pods.
        rules: the queues.
        now: Unix seconds.
        most: how many at most.
    """
    found: list[AboveMax] = []
    budgets, disrupted = Budgets(cluster), Disrupted()
    with cluster.dry_run():
        while len(found) < most:
            following = next_above_max(cluster, rules, now=now, disrupted=disrupted)
            if following is None:
                break
            found.append(following)
            disrupted.take(budgets.disruptions(following.pods))
            for pod in following.pods:
                cluster.displace(pod.uid)
    return found


def _holding(ranks: Mapping[Unit, int | None], queue: Quota, over: Sequence[int]) -> Iterator[Unit]:
    """Yield the units on nodes that borrow in a queue and hold one of some resources."""
    for unit, rank in ranks.items():
        held = {place for place, _ in unit.within(queue)}
        if rank is None and unit.is_placed and not held.isdisjoint(over):
            yield unit


def _key(unit: Unit) -> tuple[int, bool, float, str]:
    is_core = unit.gang is not None and not unit.is_surplus
    return unit.priority, is_core, -unit.started, unit.uid


def _why(usage: QuotaUsage, queue: Quota, place: int) -> str:
    resource = usage.tree.resources[place]
    used, most = quantity(resource, queue.used[place]), quantity(resource, queue.maximum[place])
    return f"queue {queue.name} uses {used} {resource}, and its `max` is {most}"
