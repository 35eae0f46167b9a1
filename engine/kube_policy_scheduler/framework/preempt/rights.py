"""Who may evict whom: what a unit that needs room may take from the queues of others, and from its own.

Only a unit that becomes guaranteed may take what is guaranteed to it from other queues, and only what is borrowed
there, or guaranteed by a weaker resource. Whatever happens between borrowers, what borrows never takes the place of
what is guaranteed. Only resources that are short have a say. With these rules evictions come to an end
(policies/QUEUES.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from kube_policy_scheduler.cluster.quotas.guarantees import Guarantees, Unit, lead, within
from kube_policy_scheduler.cluster.quotas.quota_usage import Quota, QuotaUsage
from kube_policy_scheduler.framework.quota import ReclaimRule


class Rights(msgspec.Struct):
    """What one unit may evict: ranks are those when this is first asked, use and shares those of the present."""

    usage: QuotaUsage
    guarantees: Guarantees
    asks: Unit
    """It is not on a node yet; if it was nominated, that does not count."""
    short: frozenset[int]
    """The counted resources that it is short of, by place."""
    rule: ReclaimRule | None
    """The `reclaim` that applies to it."""
    now: float
    """Unix seconds."""
    _entitled: dict[Quota, int | None] = msgspec.field(default_factory=dict)
    _entitled_at: int = -1
    """How often anything had changed in the queues when these were found."""
    _ranks_after: dict[Quota, int | None] = msgspec.field(default_factory=dict)
    _below: dict[Quota, list[Quota]] = msgspec.field(default_factory=dict)

    def entitled(self, other: Quota) -> int | None:
        """Return the resource by which the unit would be guaranteed against a queue; None: it would not be.

        Against a queue, what counts is the one below the nearest common ancestor on the unit's side: its guarantee
        serves all below it. A unit with pods of several queues is entitled if each part is; the weakest
        resource is returned.
        """
        if self._entitled_at != self.usage.changed.end:  # units have left or returned
            self._entitled_at = self.usage.changed.end
            self._entitled.clear()
        if other not in self._entitled:
            self._entitled[other] = self._lead_against(other)
        return self._entitled[other]

    def shares_a_queue(self, victim: Unit) -> bool:
        """Return whether a queue is above both: what goes there may make the unit guaranteed in it."""
        return any(True for _ in self._common(victim))

    def _lead_against(self, other: Quota) -> int | None:
        usage, weakest = self.usage, None
        if not self.short:
            return None
        for queue, _ in self.asks.parts:
            mine, _ = usage.branch(queue, other)
            if not mine:
                return None
            first = mine[0]
            amounts = within(self.asks.parts, first)
            leads = lead(usage, first, amounts)
            if leads is None:
                return None
            for resource, amount in amounts:
                counts = resource == leads or (resource in self.short and first.minimum[resource] > 0)
                if counts and first.will(resource) + amount > first.minimum[resource]:
                    return None
            if self.asks.is_surplus and not self._gang_is_guaranteed(first):
                return None
            if weakest is None or usage.tree.strength[leads] > usage.tree.strength[weakest]:
                weakest = leads
        return weakest

    def _gang_is_guaranteed(self, queue: Quota) -> bool:
        rank = self.guarantees.rank
        others = (unit for unit in self.guarantees.units_of(queue) if unit.gang == self.asks.gang)
        return any(not unit.is_surplus and rank(unit, queue) is not None for unit in others)

    # --- reclaim -----------------------------------------------------------------------------------------

    def may_reclaim(self, victim: Unit) -> bool:
        """Return whether the unit gets back from a victim what is guaranteed to it."""
        strength = self.usage.tree.strength
        for queue, _ in victim.parts:
            leads = self.entitled(queue)
            if leads is None:
                return False
            rank = self.guarantees.strongest(victim, self._theirs(queue))
            if rank is not None and not (
                strength[rank] > strength[leads] and leads in self.short and holds_counted(victim, (leads,))
            ):
                return False
        return True

    def reclaims_alike(self, victim: Unit) -> bool | None:
        """Return `may_reclaim` of all units alike with one, as the cluster is now; None: it depends on the unit.

        Units are alike that count for the same, and are surplus members of gangs, or are not.
        """
        if any(self.entitled(queue) is None for queue, _ in victim.parts):
            return False
        return self.may_reclaim(victim) if self._rank_alike(victim) else None

    def _rank_alike(self, victim: Unit) -> bool:
        rank_alike = self.guarantees.rank_alike
        return all(rank_alike(victim, each) for queue, _ in victim.parts for each in self._theirs(queue))

    # --- among borrowers ---------------------------------------------------------------------------------

    def may_share(self, victim: Unit) -> bool:
        """Return whether a victim may go so that shares become fairer, whatever they are now; see `fairer`."""
        return self.may_share_now(victim) and self._lends(victim)

    def may_share_now(self, victim: Unit) -> bool:
        """Return whether a victim may go so that shares become fairer by its priority, and by when it started."""
        fair = self.rule is not None and self.rule.fair
        return fair and victim.priority <= self.asks.priority and not self._rests(victim)

    def shares_alike(self, victim: Unit) -> bool | None:
        """Return `may_share` but for `may_share_now` of all units alike with one; None: it depends on the unit."""
        if any(not self._is_across(queue) or self.entitled(queue) is not None for queue, _ in victim.parts):
            return False
        return self._lends(victim) if self._rank_alike(victim) else None

    def _lends(self, victim: Unit) -> bool:
        return all(
            self._is_across(queue) and self._is_borrowed(victim, queue) for queue, _ in victim.parts
        ) and not any(self.entitled(queue) is not None for queue, _ in victim.parts)

    def has_smaller_share(self, other: Quota) -> bool:
        """Return whether the unit's queue would have a smaller share than another one has: else no pod of it may go."""
        usage = self.usage
        for own, _ in self.asks.parts:
            mine, theirs = usage.branch(own, other)
            if not mine or not theirs:
                return False
            if not usage.share_of(mine[0], self.short, within(self.asks.parts, mine[0])) < usage.share_of(
                theirs[0], self.short
            ):
                return False
        return True

    def fairer(self, victim: Unit, gone: Collection[Unit], *, beside: Collection[Unit] = ()) -> bool:
        """Return whether shares become fairer if a victim goes now: the unit's queue stays at or below the other.

        Args:
            victim: what goes.
            gone: who went before, whose places in queues that both have in common are free.
            beside: who goes with it: the surplus of its gang.
        """
        return self.shares_fall(victim, beside) and self.takes_no_guarantee(victim, gone)

    def shares_fall(self, victim: Unit, beside: Collection[Unit] = ()) -> bool:
        """Return whether the unit's share is not above that of a victim afterwards: the same of all that count alike.

        beside: as in `fairer`.
        """
        usage = self.usage
        parts = (*victim.parts, *(part for unit in beside for part in unit.parts))
        for queue, _ in victim.parts:
            for own, _ in self.asks.parts:
                mine, theirs = usage.branch(own, queue)
                if not mine or not theirs:
                    return False
                ours = usage.share_of(mine[0], self.short, within(self.asks.parts, mine[0]))
                after = usage.share_of(theirs[0], self.short, within(parts, theirs[0]), step=-1)
                if ours > after or not ours < usage.share_of(theirs[0], self.short):
                    return False
        return True

    def may_preempt(self, victim: Unit) -> bool:
        """Return whether the unit's higher priority may take the place of a victim."""
        if victim.priority >= self.asks.priority:
            return False
        own = {queue for queue, _ in self.asks.parts}
        for queue, _ in victim.parts:
            if queue in own:
                continue
            if (self.rule is not None and self.rule.fair) or self._rests(victim):
                return False
            if not self._is_borrowed(victim, queue):
                return False
        return self.takes_no_guarantee(victim)

    def takes_no_guarantee(self, victim: Unit, gone: Collection[Unit] = ()) -> bool:
        """Return whether in queues that both have in common, the unit is guaranteed as strongly as a victim was.

        gone: who else goes.
        """
        strength, priority = self.usage.tree.strength, self.asks.priority
        for queue in self._common(victim):
            rank = self.guarantees.rank(victim, queue)
            if rank is None:
                continue
            if any(unit.priority >= priority for unit in (victim, *gone)):
                # these had their place before the unit's; what they leave may go to others that come before it, too
                after = self.guarantees.rank_without(self.asks, queue, gone, victim)
            else:
                after = self._rank_after(queue)
            if after is None or strength[after] > strength[rank]:
                return False
        return True

    def is_guaranteed_in_common(self, victim: Unit) -> bool:
        """Return whether a victim could be guaranteed in a queue that both have in common: then who went counts."""
        return any(self.guarantees.leads(victim, queue) is not None for queue in self._common(victim))

    def _rank_after(self, queue: Quota) -> int | None:
        if queue not in self._ranks_after:
            self._ranks_after[queue] = self.guarantees.rank_after(self.asks, queue, ())
        return self._ranks_after[queue]

    # --- queues ------------------------------------------------------------------------------------------

    def _theirs(self, queue: Quota) -> list[Quota]:
        """Return a queue of a victim and those above it, below the nearest common ancestor with any of the unit's."""
        found = self._below.get(queue)
        if found is None:
            branches = (self.usage.branch(own, queue)[1] for own, _ in self.asks.parts)
            found = self._below[queue] = min(branches, key=len, default=list(queue.path()))
        return found

    def _is_borrowed(self, victim: Unit, queue: Quota) -> bool:
        return self.guarantees.strongest(victim, self._theirs(queue)) is None

    def _is_across(self, queue: Quota) -> bool:
        return all(own is not queue for own, _ in self.asks.parts)

    def _common(self, victim: Unit) -> Iterator[Quota]:
        """Yield the queues that the unit and a victim are both in, or below."""
        theirs = {each for queue, _ in victim.parts for each in queue.path()}
        seen: set[Quota] = set()
        for queue, _ in self.asks.parts:
            for each in queue.path():
                if each in theirs and each not in seen:
                    seen.add(each)
                    yield each

    def _rests(self, victim: Unit) -> bool:
        rest = self.rule.rest_seconds if self.rule is not None else 0.0
        return self.now < victim.started + rest


def holds_counted(victim: Unit, resources: Collection[int]) -> bool:
    """Return whether a unit holds some of these counted resources, by place."""
    return any(resource in resources for _, amounts in victim.parts for resource, _ in amounts)
