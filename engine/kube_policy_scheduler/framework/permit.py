"""Permit: pods with a node wait here until enough of their group have one. Pure; the time is an argument.

Knows groups and how many of each are placed, not nodes: a waiting pod is assumed on its node elsewhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from kube_policy_scheduler.cluster.tallies import GroupOf


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that start together or not at all: of one namespace and scheduler, with one key."""

    rule: str
    """The policy and its `gang` clause, or the kind of the PodGroup."""
    namespace: str
    scheduler_name: str
    key: str | None
    """None: the pods without a key are a group of their own."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.key}" if self.key is not None else f"{self.namespace} without a key"


@dataclass(frozen=True, slots=True)
class Role:
    """Members of a gang of which it needs a minimum number, such as its driver."""

    text: str
    """Its pods, as written: `role=driver`."""
    number: int
    """No member may bind before this many of them have a node."""
    group: Group
    """The members of the gang that have it."""
    group_of: GroupOf
    """Returns that group for pods that have the role."""


NumberOf = Callable[[GroupOf, Group], int]
"""How many pods of a group there are; the function decides which: on nodes, pending, or both."""


@dataclass(frozen=True, slots=True)
class GangRequirement:
    """What one `gang` clause, or one PodGroup, requires for one of its pods."""

    group: Group
    size: int
    """No member may bind before this many have a node."""
    within_seconds: float
    """How long pods wait for the others, from the first member with a node."""
    group_of: GroupOf
    """The membership of a pod, once it is on a node."""
    text: str
    """The clause as written."""
    policy: str = ""
    """The name of the clause's policy; "" for a PodGroup."""
    is_settled: bool = True
    """Whether the size stays as it is while neither the pod nor its PodGroup changes."""
    roles: tuple[Role, ...] = ()
    """They need at most `size` members together; the others can be any."""
    role: Role | None = None
    """The pod's own role; None if it has no role."""
    levels: tuple[str | None, ...] = ()
    """Keys of node labels in turn: all members are on nodes with one value of the first that has room for all of them.
    None: any nodes. Empty: nothing is asked for."""

    def filled(self, number_of: NumberOf, *, joining: int = 0) -> int:
        """Return how many members there are, as far as the gang needs them.

        Below the size it is how many of the places that the gang needs are filled: a second driver fills none, so the
        number is the size only if every role has its number. From the size on it is the size and how many members,
        of any role, the gang can do without.

        Args:
            number_of: counts the members.
            joining: 1 to include the pod itself.
        """
        total = number_of(self.group_of, self.group) + joining
        if not self.roles:
            return total
        spare, filled = total - self.size, 0
        for role in self.roles:
            number = number_of(role.group_of, role.group) + (joining if role is self.role else 0)
            spare = min(spare, number - role.number)
            filled += min(number, role.number)
        if spare >= 0:
            return self.size + spare
        open_to_all = self.size - sum(role.number for role in self.roles)
        return filled + min(total - filled, open_to_all)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Return the groups that the pod is in: its gang, and those with its role."""
        return (self.group,) if self.role is None else (self.group, self.role.group)

    def __str__(self) -> str:
        rule = f"policy {self.policy}: {self.text}" if self.policy else self.text
        return f'gang "{self.group}" starts with {self.size} pods ({rule})'


class MissingGroupError(ValueError):
    """A pod asks for a group of the API that is not there yet."""

    def __init__(self, group: Group, text: str) -> None:
        super().__init__(text)
        self.group = group


Placed = Callable[[GangRequirement], int]
"""How many members of a requirement's group have a node: they run, are being bound, or wait here."""


class Permit:
    """The waiting pods, with their groups and timeouts."""

    def __init__(self) -> None:
        self._requirements: dict[str, tuple[GangRequirement, ...]] = {}
        self._members: dict[Group, dict[str, None]] = {}
        self._since: dict[Group, float] = {}
        self._due: dict[Group, float] = {}
        self._numbers = count()
        self._next_due: list[tuple[float, int, Group]] = []
        """A heap; an entry is stale where its group is due at another time, or not due."""

    def __len__(self) -> int:
        return len(self._requirements)

    def __contains__(self, uid: str) -> bool:
        return uid in self._requirements

    def __iter__(self) -> Iterator[str]:
        return iter(self._requirements)

    def groups(self) -> tuple[Group, ...]:
        """Return the groups with waiting pods, the longest wait first."""
        return tuple(self._since)

    def since(self, group: Group) -> float | None:
        """Return when the first waiting pod arrived, in Unix seconds; None if no pod waits."""
        return self._since.get(group)

    def members(self, group: Group) -> tuple[str, ...]:
        """Return the uids of a group's waiting pods, in order of arrival."""
        return tuple(self._members.get(group, ()))

    def number(self, group: Group) -> int:
        """Return the number of a group's waiting pods."""
        return len(self._members.get(group, ()))

    def wait(self, uid: str, requirements: tuple[GangRequirement, ...], now: float) -> None:
        """Add a pod that has a node."""
        self.leave(uid)
        self._requirements[uid] = requirements
        for requirement in requirements:
            if requirement.group not in self._since:
                self._since[requirement.group] = now
                due = self._due[requirement.group] = now + requirement.within_seconds
                heapq.heappush(self._next_due, (due, next(self._numbers), requirement.group))
            self._members.setdefault(requirement.group, {})[uid] = None

    def leave(self, uid: str) -> bool:
        """Forget a pod; return whether it waited."""
        requirements = self._requirements.pop(uid, None)
        for requirement in requirements or ():
            members = self._members[requirement.group]
            del members[uid]
            if not members:
                del self._members[requirement.group], self._since[requirement.group], self._due[requirement.group]
        return requirements is not None

    def release(self, uid: str, placed: Placed) -> list[str]:
        """Return the pods that may bind after a pod was added, itself included, and forget them; empty: it waits.

        A pod may bind if every group of it is complete without the pods that must keep waiting.
        """
        if not all(placed(requirement) >= requirement.size for requirement in self._requirements[uid]):
            return []
        together = self._connected(uid)
        staying = self._staying(together, placed)
        released = [other for other in together if other not in staying]
        for other in released:
            self.leave(other)
        return released

    def expire(self, now: float) -> dict[str, GangRequirement]:
        """Forget the pods whose wait timed out, with all of their group; return them with the requirement."""
        gone: dict[str, GangRequirement] = {}
        while (due := self.next_due()) is not None and due <= now:
            group = heapq.heappop(self._next_due)[2]
            for uid in self.members(group):
                gone[uid] = next(requirement for requirement in self._requirements[uid] if requirement.group == group)
                self.leave(uid)
        return gone

    def clock_was_set(self, seconds: float) -> None:
        """Shift all times by the change of the clock."""
        self._since = {group: since + seconds for group, since in self._since.items()}
        self._due = {group: due + seconds for group, due in self._due.items()}
        self._next_due = [(due, next(self._numbers), group) for group, due in self._due.items()]
        heapq.heapify(self._next_due)

    def next_due(self) -> float | None:
        """Return the time of the next group's timeout, Unix seconds."""
        heap = self._next_due
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _connected(self, uid: str) -> list[str]:
        """Return all pods that wait for a group of the pod, or for a group of such a pod, and so on."""
        found, groups = {uid: None}, set[Group]()
        ahead = [uid]
        while ahead:
            for requirement in self._requirements[ahead.pop()]:
                if requirement.group not in groups:
                    groups.add(requirement.group)
                    fresh = [other for other in self._members[requirement.group] if other not in found]
                    found.update(dict.fromkeys(fresh))
                    ahead += fresh
        return list(found)

    def _staying(self, together: list[str], placed: Placed) -> set[str]:
        """Return the pods that must keep waiting: without others that must, a group of theirs is too small."""
        left: dict[Group, int] = {}
        """By group: its members with a node, without those that stay."""
        most: dict[Group, list[tuple[int, int, str]]] = {}
        """By group: heaps of the waiting pods, the largest required size first."""
        for number, uid in enumerate(together):
            for requirement in self._requirements[uid]:
                if requirement.group not in left:
                    left[requirement.group] = placed(requirement)
                most.setdefault(requirement.group, []).append((-requirement.size, number, uid))
        for heap in most.values():
            heapq.heapify(heap)
        staying: set[str] = set()
        ahead = list(most)
        while ahead:
            group = ahead.pop()
            heap = most[group]
            while heap and -heap[0][0] > left[group]:
                uid = heapq.heappop(heap)[2]
                if uid in staying:
                    continue
                staying.add(uid)
                for requirement in self._requirements[uid]:
                    left[requirement.group] -= 1
                    if requirement.group != group:
                        ahead.append(requirement.group)
        return staying
