"""Pending pods by the groups that they start together with; pods are gated until their group is large enough.

Every number that is read often is kept, not counted: a group of ten thousand that stays incomplete
costs no more than one of two. What plans know of a group stands in the same record, see `decide.gang_table`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Generic, TypeVar

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


class QueuedGroup(msgspec.Struct, eq=False):
    """The pending pods of one group."""

    group: Group
    pods: dict[str, QueuedPod] = msgspec.field(default_factory=dict)
    """By uid."""
    with_place: int = 0
    """How many of them count on a node."""
    version: int = 0
    """Another number whenever other pods are members, or one of them has changed."""
    requirement: GangRequirement | None = None
    """What one of the gated ones requires; None if that is unknown."""
    gated: dict[int, dict[str, QueuedPod]] = msgspec.field(default_factory=dict)
    """Those that wait until the group is large enough, by the size that they wait for, and uid; 0: for it to exist."""
    sizes: list[int] = msgspec.field(default_factory=list)
    """Of `gated`, ascending."""

    @property
    def without_place(self) -> int:
        """Return how many of them count on no node."""
        return len(self.pods) - self.with_place

    @property
    def is_used(self) -> bool:
        """Return whether the record is kept though no pod is pending."""
        return False


Record_co = TypeVar("Record_co", bound=QueuedGroup, covariant=True)
_NO_PODS: Mapping[str, QueuedPod] = {}


class GroupTable(Generic[Record_co]):
    """One record for each group, and which of its pending pods are gated until it is large enough."""

    def __init__(self, new: type[Record_co]) -> None:
        """new: makes a record."""
        self._new = new
        self._records: dict[Group, Record_co] = {}
        self._versions = count(1)
        self._gated: dict[str, tuple[QueuedPod, Group, int]] = {}
        """The gated pods by uid, each with the group and the size that it waits for."""
        self._schedulers: set[str] = set()
        """The scheduler names of groups so far."""

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record_co]:
        return iter(self._records.values())

    def get(self, group: Group) -> Record_co | None:
        """Return the record of a group; None if there is none."""
        return self._records.get(group)

    # --- members -------------------------------------------------------------------------------------

    def join(self, queued: QueuedPod, groups: tuple[Group, ...]) -> None:
        """Make a pod a member of these groups and of no others."""
        if groups == queued.groups:
            return
        self.quit(queued)
        queued.groups = groups
        for group in groups:
            record = self._records.get(group)
            if record is None:
                record = self._records[group] = self._new(group)
                self._schedulers.add(group.scheduler_name)
            record.pods[queued.pod.uid] = queued
            record.with_place += queued.has_place
            record.version = next(self._versions)

    def quit(self, queued: QueuedPod) -> None:
        """Remove a pod from its groups; it is not gated any more."""
        self.ungate(queued.pod.uid)
        for group in queued.groups:
            record = self._records[group]
            del record.pods[queued.pod.uid]
            record.with_place -= queued.has_place
            record.version = next(self._versions)
            if not record.pods and not record.is_used:
                del self._records[group]
        queued.groups = ()

    def changed(self, queued: QueuedPod) -> None:
        """Note that a member is another one than before, or may be tried again after an error."""
        for group in queued.groups:
            self._records[group].version = next(self._versions)

    def set_place(self, queued: QueuedPod, has_place: bool) -> None:
        """Record whether a member counts on a node."""
        if queued.has_place != has_place:
            queued.has_place = has_place
            for group in queued.groups:
                self._records[group].with_place += 1 if has_place else -1

    def members(self, group: Group) -> Mapping[str, QueuedPod]:
        """Return a group's pending members by uid."""
        record = self._records.get(group)
        return record.pods if record is not None else _NO_PODS

    def version(self, group: Group) -> int:
        """Return a number that is another one whenever other pods are members, or one of them has changed."""
        record = self._records.get(group)
        return record.version if record is not None else 0

    def without_place(self, group: Group) -> int:
        """Return how many pending members of a group count on no node."""
        record = self._records.get(group)
        return record.without_place if record is not None else 0

    def miscounted(self) -> list[str]:
        """Return the numbers that differ from those of the members; empty unless there is a bug."""
        found = []
        for record in self:
            number = sum(queued.has_place for queued in record.pods.values())
            if number != record.with_place:
                found.append(f"gang {record.group}: {record.with_place} are said to have a place, {number} have")
            if not record.pods and not record.is_used:
                found.append(f"gang {record.group} has no members")
        return found

    # --- members that are gated until the group is large enough ----------------------------------------

    @property
    def gated(self) -> list[QueuedPod]:
        """The gated pods."""
        return [queued for queued, _, _ in self._gated.values()]

    def is_gated(self, uid: str) -> bool:
        """Return whether a pod waits until its group exists and is large enough."""
        return uid in self._gated

    def gate(self, queued: QueuedPod, membership: Membership) -> None:
        """Gate a member until its group is large enough; others of that size are found without visiting the rest."""
        group, requirement = membership.waits_for, membership.missing_members
        assert group is not None
        size, members = requirement.size if requirement is not None else 0, self._records[group]
        self._gated[queued.pod.uid] = queued, group, size
        members.requirement = requirement or members.requirement
        if size not in members.gated:
            members.gated[size] = {}
            insort(members.sizes, size)
        members.gated[size][queued.pod.uid] = queued

    def ungate(self, uid: str) -> bool:
        """Return whether a pod was gated; it is not any more."""
        known = self._gated.pop(uid, None)
        if known is None:
            return False
        _, group, size = known
        members = self._records[group]
        del members.gated[size][uid]
        if not members.gated[size]:
            del members.gated[size], members.sizes[bisect_left(members.sizes, size)]
        if not members.gated:
            members.requirement = None
        return True

    def with_gated(self) -> list[Group]:
        """Return the groups that have gated pods."""
        return list(dict.fromkeys(group for _, group, _ in self._gated.values()))

    def gated_requirement(self, group: Group) -> GangRequirement | None:
        """Return what one of the gated pods of a group requires; None if that is unknown."""
        record = self._records.get(group)
        return record.requirement if record is not None else None

    def gated_by(self, rule: str, name: str) -> Iterator[QueuedPod]:
        """Yield the gated pods of the group `namespace/key` of a rule, of whatever scheduler."""
        namespace, _, key = name.partition("/")
        for scheduler in self._schedulers:
            record = self._records.get(Group(rule, namespace, scheduler, key))
            yield from (
                queued for pods in (record.gated if record is not None else {}).values() for queued in pods.values()
            )

    def ready(self, group: Group, number: int) -> Iterator[QueuedPod]:
        """Yield the gated pods for which a group of this size is large enough."""
        record = self._records.get(group)
        enough = record.sizes[: bisect_right(record.sizes, number)] if record is not None else ()
        for size in enough:
            if size and record is not None:
                yield from record.gated[size].values()
