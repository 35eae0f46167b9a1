"""Sets of pods that rules count, and how a set and a pod find each other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from kube_policy_scheduler.cluster.pods import PodTemplate

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels by namespace name."""


class Label(NamedTuple):
    """A template is found by each of its labels, in its namespace and in any."""

    namespace: str | None
    """None: any."""
    key: str | None = None
    """None: any labels."""
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """Sets of pods that differ in one value alone, such as the pods of each tenant."""

    name: Hashable
    value_of: Callable[[PodTemplate], Hashable] = field(compare=False)
    """Returns the value that the pods of a template belong to."""


class Value(NamedTuple):
    """A template is found by its value in a family."""

    family: Family
    value: Hashable


Anchor: TypeAlias = Label | Value
"""What templates have in common: sets of pods are found by it, so that a template is not compared with all."""
ANY = Label(None)
"""Common to all templates."""


def labels_of(template: PodTemplate) -> Iterator[Label]:
    """Return all that a template is found by, but for families."""
    for namespace in (template.namespace, None):
        yield Label(namespace)
        for key, value in template.labels.items():
            yield Label(namespace, key, value)


class Weighing(Enum):
    """How pods of a set count."""

    ONE = "one"
    """Each for 1."""
    WHOLE = "whole"
    """A whole number."""
    AMOUNT = "amount"
    """Any number: their sum over all nodes is kept."""
    ROW_AMOUNT = "amount by row"
    """Any number: their sums on each node and in each domain are kept too."""
    EXTREMES = "extremes"
    """Any number: the least and the greatest on each node are kept."""
    DISTINCT = "distinct"
    """A number for each value: each value counts once, however many pods have it."""


class PodSet(Hashable, Protocol):
    """A set of pods that can be counted: membership follows from the template and its namespace's labels."""

    @property
    def reads_namespaces(self) -> bool:
        """Return whether membership depends on the labels of namespaces."""
        ...

    @property
    def weighing(self) -> Weighing:
        """Return what pods count for."""
        ...

    @property
    def is_large(self) -> bool:
        """Return whether it takes long to compare a template with it: it has `weighed`, and weighs whole numbers."""
        ...

    @property
    def terms(self) -> int:
        """Return how many conditions it has, which is the cost of keeping and checking it."""
        ...

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        ...

    def weight(self, template: PodTemplate, namespaces: NamespaceLabels) -> float | None:
        """Return what a pod of this template counts for; None if it does not belong to the set."""
        ...

    def weighed(self, template: PodTemplate, namespaces: NamespaceLabels) -> Generator[None, None, float | None]:
        """Return what `weight` does, in steps."""
        ...


class PlainSet:
    """The common case: one condition, and each pod counts for 1."""

    __slots__ = ()
    weighing: ClassVar[Weighing] = Weighing.ONE

    @property
    def is_large(self) -> bool:
        """Return whether it takes long to compare a template with it: that of most does not."""
        return False

    @property
    def reads_namespaces(self) -> bool:
        """Return whether membership depends on the labels of namespaces: not that of most."""
        return False

    @property
    def terms(self) -> int:
        """Return how many conditions there are."""
        return 1

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        return (ANY,)

    def weight(self, template: PodTemplate, namespaces: NamespaceLabels) -> float | None:
        """Return 1 for pods of the set, else None."""
        return 1 if self.matches(template, namespaces) else None

    def weighed(self, template: PodTemplate, namespaces: NamespaceLabels) -> Generator[None, None, float | None]:
        """Return what `weight` does, in steps."""
        yield from ()
        return self.weight(template, namespaces)

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        raise NotImplementedError
