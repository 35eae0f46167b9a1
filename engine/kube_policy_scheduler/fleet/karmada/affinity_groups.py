"""Where the members of workload affinity groups run, whichever scheduler decides them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from kube_policy_scheduler.fleet.karmada.objects import ResourceBinding, WorkloadAffinityGroups
from kube_policy_scheduler.fleet.model import Groups, Identity

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a binding."""
_NO_GROUPS = WorkloadAffinityGroups()
_Members: TypeAlias = dict[tuple[str, str], dict[Identity, frozenset[str]]]
"""Clusters by namespace and group, and then by workload."""


class AffinityGroups:
    """The groups of all bindings, by namespace and group; each member with its clusters."""

    def __init__(self) -> None:
        self._together: _Members = {}
        self._apart: _Members = {}
        self._members: dict[Key, ResourceBinding] = {}

    @property
    def together(self) -> Groups:
        """Return the affinity groups; they follow each change."""
        return self._together

    @property
    def apart(self) -> Groups:
        """Return the anti-affinity groups; they follow each change."""
        return self._apart

    def put(self, key: Key, binding: ResourceBinding, *, decided: Iterable[str] = ()) -> None:
        """Take a binding as it is now; one that is in no group, or runs nowhere, is no member.

        decided: clusters in which it is about to run, too.
        """
        self.remove(key)
        if binding.spec.workload_affinity_groups is None:
            return
        clusters = frozenset((*(each.name for each in binding.spec.clusters or ()), *decided))
        if clusters:
            self._members[key] = binding
            for groups, place, member in self._places(binding):
                groups.setdefault(place, {})[member] = clusters

    def remove(self, key: Key) -> None:
        """Take note that a binding is gone."""
        before = self._members.pop(key, None)
        if before is None:
            return
        for groups, place, member in self._places(before):
            groups[place].pop(member, None)
            if not groups[place]:
                del groups[place]

    def keep(self, keys: Iterable[Key], *, namespaced: bool) -> None:
        """Take note that of all bindings with a namespace, or of all without one, only these are there."""
        listed = frozenset(keys)
        for key in [key for key in self._members if bool(key[0]) is namespaced and key not in listed]:
            self.remove(key)

    def _places(self, binding: ResourceBinding) -> list[tuple[_Members, tuple[str, str], Identity]]:
        resource, named = binding.spec.resource, binding.spec.workload_affinity_groups or _NO_GROUPS
        member = resource.api_version, resource.kind, resource.namespace, resource.name
        return [
            (groups, (resource.namespace, group), member)
            for groups, group in ((self._together, named.affinity_group), (self._apart, named.anti_affinity_group))
            if group
        ]
