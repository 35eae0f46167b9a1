"""What gangs ask for: which pods start together, how many of them at least, and where. Knows no nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules
from kube_policy_scheduler.wording import plural

POD_GROUP = "PodGroup"
"""The rule of groups that are PodGroups of Kubernetes."""
COMPOSITE_POD_GROUP = "CompositePodGroup"
"""The rule of groups that are CompositePodGroups of Kubernetes."""


class Group(NamedTuple):
    """Pods that start together or not at all: of one namespace and scheduler, with one key.

    A tuple, because it is the key of most that is known of gangs: its hash takes a third of a dataclass's time.
    """

    rule: str
    """The policy and its `gang` clause, or the kind of the PodGroup."""
    namespace: str
    scheduler_name: str
    key: str | None
    """None: the pods without a key are a group of their own."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.key}" if self.key is not None else f"{self.namespace} without a key"


class Role(msgspec.Struct, frozen=True):
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


class GroupTree(msgspec.Struct, frozen=True):
    """A group of pods, or a composite group with its children."""

    group: Group
    number: int
    """How many pods the group needs, or how many of its children a composite group needs."""
    group_of: GroupOf
    """The membership of a pod; of composite groups, nothing is counted by it."""
    children: tuple[GroupTree, ...] = ()
    """Of a composite group, at least `number`."""

    def lacking(self, number_of: NumberOf) -> int:
        """Return how many pods are missing at least, in those children that need the fewest."""
        if not self.children:
            return max(0, self.number - number_of(self.group_of, self.group))
        return sum(sorted(child.lacking(number_of) for child in self.children)[: self.number])

    def members(self, number_of: NumberOf) -> int:
        """Return how many members there are."""
        if not self.children:
            return number_of(self.group_of, self.group)
        return sum(child.members(number_of) for child in self.children)

    def leaves(self) -> Iterator[tuple[GroupOf, Group]]:
        """Yield the groups of pods in it."""
        if not self.children:
            yield self.group_of, self.group
        for child in self.children:
            yield from child.leaves()

    def complete(self, number_of: NumberOf) -> int:
        """Return how many children are complete."""
        return sum(not child.lacking(number_of) for child in self.children)

    def includes(self, group: Group) -> bool:
        """Return whether a group is this one, or below it."""
        return group == self.group or any(child.includes(group) for child in self.children)


class GangRequirement(msgspec.Struct, frozen=True):
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
    evicts_whole: bool = False
    """Whether members beyond the size are never evicted without the others."""
    tree: GroupTree | None = None
    """The children of a composite group: as many of them as it needs are complete, or no pod binds."""
    leaf: Group | None = None
    """The group of pods within the tree that the pod is in."""

    def members(self, number_of: NumberOf) -> int:
        """Return how many members there are, needed or not."""
        return number_of(self.group_of, self.group) if self.tree is None else self.tree.members(number_of)

    def leaves(self) -> Iterable[tuple[GroupOf, Group]]:
        """Return the groups whose pods are its members: itself, or those in the composite group.

        Pods are counted by these: to count them by a composite group, all pods would be looked at for each that there
        is.
        """
        return ((self.group_of, self.group),) if self.tree is None else self.tree.leaves()

    def encloses(self, group: Group) -> bool:
        """Return whether all members of a group are members of this one, because it is a child of it or the same."""
        return group == self.group if self.tree is None else self.tree.includes(group)

    def filled(self, number_of: NumberOf, *, joining: int = 0) -> int:
        """Return how many members there are, as far as the gang needs them.

        Below the size it is how many of the places that the gang needs are filled: a second driver fills none, so the
        number is the size only if every role has its number. From the size on it is the size and how many members,
        of any role, the gang can do without. A composite group fills the children that need the fewest pods; from the
        size on it is the size.

        Args:
            number_of: counts the members.
            joining: 1 to include the pod itself.
        """
        if self.tree is not None:
            leaf = self.leaf if joining else None
            return self.size - self.tree.lacking(
                lambda group_of, group: number_of(group_of, group) + joining * (group == leaf)
            )
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
        """Return the groups that the pod is in: its gang, and those with its role, or within the composite group."""
        if self.leaf is not None:
            return self.group, self.leaf
        return (self.group,) if self.role is None else (self.group, self.role.group)

    def role_of(self, template: PodTemplate) -> str:
        """Return the role of pods of a template, as written; "" if they have none."""
        return next((role.text for role in self.roles if role.group_of(template) == role.group), "")

    def __str__(self) -> str:
        rule = f"policy {self.policy}: {self.text}" if self.policy else self.text
        of = f" in {self.tree.number} of its groups" if self.tree is not None else ""
        return f'gang "{self.group}" starts with {plural(self.size, "pod")}{of} ({rule})'


def outermost_first(requirements: Iterable[GangRequirement]) -> list[GangRequirement]:
    """Return the requirements of a pod so that each comes before those whose members it includes."""
    return sorted(requirements, key=lambda each: (-_height(each.tree), -each.size))


def _height(tree: GroupTree | None) -> int:
    return 1 + max(map(_height, tree.children), default=0) if tree is not None else 0


def whole(requirements: Sequence[GangRequirement]) -> GangRequirement | None:
    """Return the requirement that includes all others of a pod; None if there is none."""
    first = outermost_first(requirements)[0]
    return first if all(first.encloses(each.group) for each in requirements) else None


def may_evict_alone(requirements: Sequence[GangRequirement], number_of: NumberOf, rules: KubernetesRules) -> bool:
    """Return whether preemption makes room for a pod of groups by itself.

    By the rules of Kubernetes 1.37, it makes room for PodGroups only: for no pod that its group can do without.

    Args:
        requirements: of the groups of the pod.
        number_of: counts the members that have a place.
        rules: of Kubernetes.
    """
    if Feature.WORKLOAD_AWARE_PREEMPTION not in rules:
        return True
    own = outermost_first(each for each in requirements if each.group.rule in (POD_GROUP, COMPOSITE_POD_GROUP))
    return not own or own[0].filled(number_of) < own[0].size


class MissingGroupError(ValueError):
    """A pod asks for a group of the API that is not there yet."""

    def __init__(self, group: Group, text: str) -> None:
        super().__init__(text)
        self.group = group
