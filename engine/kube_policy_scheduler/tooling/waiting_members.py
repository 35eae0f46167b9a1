"""Members of gangs that have a node while tools decide pods one by one, until their gangs are complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.gangs import GangRequirement, Group, NumberOf


class WaitingMembers:
    """The members that wait, by uid."""

    def __init__(self) -> None:
        self._requirements: dict[str, tuple[GangRequirement, ...]] = {}
        self._since: dict[Group, float] = {}
        """When the first one of each group began to wait, unix seconds."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._requirements

    def __iter__(self) -> Iterator[str]:
        return iter(self._requirements)

    def wait(self, uid: str, requirements: tuple[GangRequirement, ...], now: float) -> None:
        """Add a pod that has a node."""
        self._requirements[uid] = requirements
        for requirement in requirements:
            self._since.setdefault(requirement.group, now)

    def leave(self, uid: str) -> None:
        """Forget a pod."""
        self._requirements.pop(uid, None)
        waiting = {each.group for requirements in self._requirements.values() for each in requirements}
        self._since = {group: since for group, since in self._since.items() if group in waiting}

    def release(self, placed: NumberOf) -> None:
        """Forget the pods that need not wait: their gangs are complete without those that must.

        placed: counts the members with a node, those that wait here included.
        """
        staying, lost = dict[str, None](), Counter[Group]()

        def left(group_of: GroupOf, group: Group) -> int:
            return placed(group_of, group) - lost[group]

        again = True
        while again:  # a pod that must wait may leave others too few
            again = False
            for uid, requirements in self._requirements.items():
                if uid not in staying and any(each.filled(left) < each.size for each in requirements):
                    staying[uid] = None
                    lost.update({group for each in requirements for group in each.groups})
                    again = True
        for uid in [uid for uid in self._requirements if uid not in staying]:
            del self._requirements[uid]
        self.leave("")

    def expire(self, now: float) -> list[str]:
        """Forget the pods of gangs that were not complete in time, and return them."""
        gone = [
            uid
            for uid, requirements in self._requirements.items()
            if any(self._since[each.group] + each.within_seconds <= now for each in requirements)
        ]
        for uid in gone:
            self.leave(uid)
        return gone
