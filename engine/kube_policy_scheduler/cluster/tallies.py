"""Which placed pods are in each of very many groups, such as gangs: a number and templates a group, and no column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Protocol

import msgspec

from kube_policy_scheduler.cluster.pods import PodTemplate


class GroupOf(Hashable, Protocol):
    """One way to divide pods into groups."""

    def __call__(self, template: PodTemplate) -> Hashable | None:
        """Return the group of pods of this template; None if they are in none."""
        ...


class _Members(msgspec.Struct):
    """The pods of one group."""

    size: int = 0
    templates: dict[PodTemplate, int] = {}
    """How many pods of each template there are; a template without pods is left out."""


_Groups = dict[Hashable, _Members]
"""By group; one without pods is left out."""


class Tallies:
    """The sizes and templates of groups, by each grouping that was used since the last `forget`."""

    def __init__(self) -> None:
        self._by_way: dict[GroupOf, _Groups] = {}
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
        members = self._groups(group_of, templates, count).get(group)
        return members.size if members is not None else 0

    def templates(
        self,
        group_of: GroupOf,
        group: Hashable,
        templates: Iterable[PodTemplate],
        count: Callable[[PodTemplate], int],
    ) -> Collection[PodTemplate]:
        """Return the templates of the pods of a group; the arguments are those of `size`."""
        members = self._groups(group_of, templates, count).get(group)
        return members.templates.keys() if members is not None else ()

    def _groups(
        self, group_of: GroupOf, templates: Iterable[PodTemplate], count: Callable[[PodTemplate], int]
    ) -> _Groups:
        groups = self._by_way.get(group_of)
        if groups is None:
            groups = self._by_way[group_of] = {}
            self.is_used = True
            self._token = object()
            for template in templates:
                if (found := group_of(template)) is not None and (number := count(template)):
                    _add(groups, found, template, number)
        return groups

    def update(self, template: PodTemplate, step: int) -> None:
        """Count a pod of a template more (`step` 1) or less (-1)."""
        known: tuple[object, list[tuple[_Groups, Hashable]]] | None = template.memo.get("tallies")
        if known is None or known[0] is not self._token:
            found = ((groups, group_of(template)) for group_of, groups in self._by_way.items())
            known = self._token, [(groups, group) for groups, group in found if group is not None]
            template.memo["tallies"] = known
        for groups, group in known[1]:
            _add(groups, group, template, step)

    def forget(self) -> None:
        """Drop all of them; those used again are recalculated."""
        self._by_way.clear()
        self.is_used = False
        self._token = object()


def _add(groups: _Groups, group: Hashable, template: PodTemplate, number: int) -> None:
    members = groups.get(group)
    if members is None:
        members = groups[group] = _Members()
    members.size += number
    left = members.templates.get(template, 0) + number
    if left:
        members.templates[template] = left
        return
    del members.templates[template]
    if not members.templates:
        del groups[group]
