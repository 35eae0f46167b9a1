"""What the pods of one key hold together, from counters: one per distinct amount, so that no decision adds up pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from engine.cluster.affinity import NamespaceLabels
from engine.cluster.counters import PodCounters
from engine.cluster.pods import PodTemplate
from engine.lang.environment import Members


@dataclass(frozen=True, slots=True)
class _Worth:
    """The pods of a key whose measure is one amount."""

    members: Members
    measure: Members
    amount: float
    reads_namespaces: ClassVar[bool] = False

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        return bool(self.members(template)) and worth(self.measure, template) == self.amount


@dataclass(frozen=True, slots=True)
class _Key:
    """The pods of a key; notes which amounts there are, as counters ask it once about every template."""

    members: Members
    measure: Members
    amounts: set[float] = field(compare=False)
    reads_namespaces: ClassVar[bool] = False

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        if not self.members(template):
            return False
        self.amounts.add(worth(self.measure, template))
        return True


class Holdings:
    """Sums of a measure over the pods of one key; keeps which amounts it has met, by key."""

    _MOST_KEYS = 4096

    def __init__(self, measure: Members) -> None:
        self._measure = measure
        self._keys: dict[Members, _Key] = {}

    def held(self, counters: PodCounters, members: Members) -> float:
        """Return the sum over the pods on nodes, terminating ones included."""
        key = self._keys.get(members)
        if key is None:
            if len(self._keys) >= self._MOST_KEYS:
                self._keys.clear()
            key = self._keys[members] = _Key(members, self._measure, set())
        if not counters.counter(key, terminating=True).per_node().any():
            return 0.0
        total = 0.0
        for amount in key.amounts:
            if amount:
                counter = counters.counter(_Worth(members, self._measure, amount), terminating=True)
                total += amount * float(counter.per_node().sum())
        return total


def worth(measure: Members, template: PodTemplate) -> float:
    """Return what a pod of a template counts for; a missing measure counts for nothing."""
    value = float(measure(template))
    return value if value == value else 0.0
