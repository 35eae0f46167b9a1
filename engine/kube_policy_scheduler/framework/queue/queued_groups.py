"""Pending pods by the groups that they start together with; pods are gated until their group is large enough.

Every number that is read often is kept, not counted: a group of ten thousand that stays incomplete
costs no more than one of two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from itertools import count

import msgspec

from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod


class Membership(msgspec.Struct, frozen=True):
    """The groups that a pod starts together with, and why they gate it."""

    groups: tuple[Group, ...] = ()
    requirements: tuple[GangRequirement, ...] = ()
    """What its groups require; none if that is unknown."""
    why: str | None = None
    """None: it is not gated."""
    waits_for: Group | None = None
    """The group that it waits for; None: for something else, so that it is checked again from time to time."""
    missing_members: GangRequirement | None = None
    """The requirement with too few pods; None: the group itself does not exist yet."""


NO_GROUPS = Membership()
"""Of a pod that starts alone, when it can."""


class _Members(msgspec.Struct, eq=False):
    """The pending pods of one group."""

    pods: dict[str, QueuedPod] = msgspec.field(default_factory=dict)
    """By uid."""
    with_place: int = 0
    """How many of them count on a node."""
    version: int = 0
    """Another number whenever other pods are members, or one of them has changed."""


_NOBODY = _Members()


class QueuedGroups:
    """Members by group; a group without members is forgotten."""

    def __init__(self) -> None:
        self._groups: dict[Group, _Members] = {}
        self._versions = count(1)

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, queued: QueuedPod, groups: tuple[Group, ...]) -> None:
        """Make a pod a member of these groups and of no others."""
        if groups == queued.groups:
            return
        self.quit(queued)
        queued.groups = groups
        for group in groups:
            members = self._groups.get(group)
            if members is None:
                members = self._groups[group] = _Members()
            members.pods[queued.pod.uid] = queued
            members.with_place += queued.has_place
            members.version = next(self._versions)

    def quit(self, queued: QueuedPod) -> None:
        """Remove a pod from its groups."""
        for group in queued.groups:
            members = self._groups[group]
            del members.pods[queued.pod.uid]
            members.with_place -= queued.has_place
            members.version = next(self._versions)
            if not members.pods:
                del self._groups[group]
        queued.groups = ()

    def changed(self, queued: QueuedPod) -> None:
        """Note that a member is another one than before, or may be tried again after an error."""
        for group in queued.groups:
            self._groups[group].version = next(self._versions)

    def set_place(self, queued: QueuedPod, has_place: bool) -> None:
        """Record whether a member counts on a node."""
        if queued.has_place != has_place:
            queued.has_place = has_place
            for group in queued.groups:
                self._groups[group].with_place += 1 if has_place else -1

    def members(self, group: Group) -> Mapping[str, QueuedPod]:
        """Return a group's members by uid."""
        return self._groups.get(group, _NOBODY).pods

    def version(self, group: Group) -> int:
        """Return a number that is another one whenever other pods are members, or one of them has changed."""
        return self._groups.get(group, _NOBODY).version

    def without_place(self, group: Group) -> int:
        """Return how many members of a group count on no node."""
        members = self._groups.get(group, _NOBODY)
        return len(members.pods) - members.with_place

    def miscounted(self) -> list[str]:
        """Return the numbers that differ from those of the members; empty unless there is a bug."""
        found = []
        for group, members in self._groups.items():
            number = sum(queued.has_place for queued in members.pods.values())
            if number != members.with_place:
                found.append(f"gang {group}: {members.with_place} are said to have a place, {number} have")
        return found + [f"gang {group} has no members" for group, members in self._groups.items() if not members.pods]


class _Gated(msgspec.Struct, eq=False):
    """The held pods of one group, which is too small, or absent."""

    requirement: GangRequirement | None = None
    """What one of them requires; None if unknown."""
    by_size: dict[int, dict[str, QueuedPod]] = msgspec.field(default_factory=dict)
    """By the size that they wait for, and uid; 0: for the group to exist."""
    sizes: list[int] = msgspec.field(default_factory=list)
    """Of `by_size`, ascending."""

    def pods(self) -> Iterator[QueuedPod]:
        """Yield them."""
        return (queued for pods in self.by_size.values() for queued in pods.values())


class GroupsMissingMembers:
    """Held pods whose group is too small, or absent; those that may continue are found without visiting the others."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[QueuedPod, Group, int]] = {}
        """With the group and size that each waits for."""
        self._groups: dict[Group, _Gated] = {}
        self._named: dict[tuple[str, str], dict[Group, None]] = {}
        """By rule and `namespace/key`."""

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return (queued for queued, _, _ in self._pods.values())

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def add(self, queued: QueuedPod, membership: Membership) -> None:
        """Gate a pod until its group is large enough."""
        group, requirement = membership.waits_for, membership.missing_members
        assert group is not None
        size = requirement.size if requirement is not None else 0
        self._pods[queued.pod.uid] = queued, group, size
        gated = self._groups.get(group)
        if gated is None:
            gated = self._groups[group] = _Gated()
            self._named.setdefault((group.rule, str(group)), {})[group] = None
        if size not in gated.by_size:
            gated.by_size[size] = {}
            insort(gated.sizes, size)
        gated.by_size[size][queued.pod.uid] = queued
        if requirement is not None:
            gated.requirement = requirement

    def remove(self, uid: str) -> None:
        """Release a pod."""
        _, group, size = self._pods.pop(uid)
        gated = self._groups[group]
        del gated.by_size[size][uid]
        if gated.by_size[size]:
            return
        del gated.by_size[size], gated.sizes[bisect_left(gated.sizes, size)]
        if not gated.by_size:
            del self._groups[group]
            named = self._named[group.rule, str(group)]
            del named[group]
            if not named:
                del self._named[group.rule, str(group)]

    def groups(self) -> list[Group]:
        """Return the groups that have waiting pods."""
        return list(self._groups)

    def named(self, rule: str, name: str) -> list[Group]:
        """Return the groups of a rule with the name `namespace/key` that have waiting pods."""
        return list(self._named.get((rule, name), ()))

    def requirement(self, group: Group) -> GangRequirement | None:
        """Return what one of the waiting pods of a group requires; None if unknown."""
        gated = self._groups.get(group)
        return gated.requirement if gated is not None else None

    def waiting(self, group: Group) -> list[QueuedPod]:
        """Return the pods that wait for a group."""
        gated = self._groups.get(group)
        return list(gated.pods()) if gated is not None else []

    def ready(self, group: Group, number: int) -> Iterator[QueuedPod]:
        """Yield the pods for which a group of this size is large enough."""
        gated = self._groups.get(group)
        if gated is None:
            return iter(())
        enough = gated.sizes[: bisect_right(gated.sizes, number)]
        return (queued for size in enough if size for queued in gated.by_size[size].values())
