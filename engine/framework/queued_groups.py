"""Pending pods by the groups that they start together with, such as gangs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from engine.framework.queued_pod import QueuedPod

_NOBODY: Mapping[str, QueuedPod] = {}


class QueuedGroups:
    """Members by uid, by group; a group without members is forgotten."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, dict[str, QueuedPod]] = {}

    def join(self, queued: QueuedPod, groups: tuple[Hashable, ...]) -> None:
        """Make a pod a member of these groups and of no others."""
        self.quit(queued)
        queued.groups = groups
        for group in groups:
            self._groups.setdefault(group, {})[queued.pod.uid] = queued

    def quit(self, queued: QueuedPod) -> None:
        """Take a pod out of its groups."""
        for group in queued.groups:
            members = self._groups[group]
            del members[queued.pod.uid]
            if not members:
                del self._groups[group]
        queued.groups = ()

    def members(self, group: Hashable) -> Mapping[str, QueuedPod]:
        """Return a group's members by uid."""
        return self._groups.get(group, _NOBODY)
