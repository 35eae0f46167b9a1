"""What the pods of one key hold together, from counters: no decision adds up pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from kube_policy_scheduler.builtins.pods import member_anchors
from kube_policy_scheduler.cluster.counter import AmountCounter
from kube_policy_scheduler.cluster.counters import PodCounters
from kube_policy_scheduler.cluster.pod_sets import Anchor, NamespaceLabels, PlainSet, Weighing
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.lang.environment import Members


@dataclass(frozen=True, slots=True)
class _Holders(PlainSet):
    """The pods of a key, each for what its measure is."""

    members: Members
    measure: Members
    weighing: ClassVar[Weighing] = Weighing.AMOUNT

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        return member_anchors(self.members)

    def weight(self, template: PodTemplate, namespaces: NamespaceLabels) -> float | None:
        """Return what a pod of this template counts for; None where it does not belong to the set."""
        return worth(self.measure, template) if self.members(template) else None


def held(counters: PodCounters, members: Members, measure: Members) -> float:
    """Return the sum of a measure over the pods of a key, terminating ones included."""
    counter = counters.counter(_Holders(members, measure), terminating=True)
    assert isinstance(counter, AmountCounter)
    return counter.worth()


def worth(measure: Members, template: PodTemplate) -> float:
    """Return what a pod of a template counts for; a missing measure counts for nothing."""
    value = float(measure(template))
    return value if value == value else 0.0
