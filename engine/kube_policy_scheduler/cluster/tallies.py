"""How many placed pods are in each of very many groups, such as gangs: one number a group, and no column."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from kube_policy_scheduler.cluster.pods import PodTemplate


class GroupOf(Hashable, Protocol):
    """One way to divide pods into groups."""

    def __call__(self, template: PodTemplate) -> Hashable | None:
        """Return the group of pods of this template; None if they are in none."""
        ...


Sizes = dict[Hashable, int]
"""Pods by group; a group without pods is left out."""


class Tallies:
    """The sizes of groups, by each grouping that was used since the last `forget`."""

    def __init__(self) -> None:
        self._by_way: dict[GroupOf, Sizes] = {}
        self.is_used = False
        """Whether any grouping is followed."""
        self._token = object()
        """Replaced when a grouping is added or removed: what templates keep of an older one is stale."""

    def size(
        self,
        group_of: GroupOf,
        group: Hashable,
        templates: Iterable[PodTemplate],
        count: Callable[[PodTemplate], int],
    ) -> int:
        """Return how many pods are in a group.

        Args:
            group_of: the grouping.
            group: one of its groups.
            templates: of all pods; they are looked at the first time that this grouping is used.
            count: returns how many pods a template has; asked only about those in some group.
        """
        sizes = self._by_way.get(group_of)
        if sizes is None:
            sizes = self._by_way[group_of] = {}
            self.is_used = True
            self._token = object()
            for template in templates:
                if (found := group_of(template)) is not None:
                    _add(sizes, found, count(template))
        return sizes.get(group, 0)

    def update(self, template: PodTemplate, step: int) -> None:
        """Count a pod of a template more (`step` 1) or less (-1)."""
        known: tuple[object, list[tuple[Sizes, Hashable]]] | None = template.memo.get("tallies")
        if known is None or known[0] is not self._token:
            groups = ((sizes, group_of(template)) for group_of, sizes in self._by_way.items())
            known = self._token, [(sizes, group) for sizes, group in groups if group is not None]
            template.memo["tallies"] = known
        for sizes, group in known[1]:
            _add(sizes, group, step)

    def forget(self) -> None:
        """Drop all of them; those used again are recalculated."""
        self._by_way.clear()
        self.is_used = False
        self._token = object()


def _add(sizes: Sizes, group: Hashable, number: int) -> None:
    size = sizes.get(group, 0) + number
    if size:
        sizes[group] = size
    else:
        sizes.pop(group, None)
