"""Guarantees of queues that a cluster cannot keep, as `queues`, `doctor` and `simulate` say it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaUsage
from kube_policy_scheduler.framework.quota import quantity


class UnmetGuarantee(msgspec.Struct, frozen=True):
    """A resource of which more is guaranteed than there is. Amounts are in column units."""

    resource: str
    guaranteed: int
    """To all queues at the top together."""
    there: int

    @property
    def text(self) -> str:
        """Return it in words, without the resource: `6 are guaranteed in all, but none can be used by queues`."""
        has = quantity(self.resource, self.there) if self.there > 0 else "none"
        return f"{quantity(self.resource, self.guaranteed)} are guaranteed in all, but {has} can be used by queues"


def unmet_guarantees(usage: QuotaUsage) -> Iterator[UnmetGuarantee]:
    """Yield the resources of which the queues at the top are guaranteed more than usable nodes offer."""
    for place, resource in enumerate(usage.tree.resources):
        together, there = sum(queue.minimum[place] for queue in usage.top.children.values()), usage.usable(place)
        if together > there:
            yield UnmetGuarantee(resource, together, there)
