"""`gang` as requirements: a pod's groups, and who counts as a member."""

from __future__ import annotations

import math
from typing import NamedTuple

from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement, Group, Role
from kube_policy_scheduler.lang.compiling.compiled import CompiledGang
from kube_policy_scheduler.lang.environment import Item
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.wording import plural


class GangOf(NamedTuple):
    """Tells the gangs of one clause apart: by namespace and scheduler, and by its key."""

    clause: CompiledGang
    policy: str

    def __call__(self, template: PodTemplate) -> Group | None:
        """Return the gang of pods of this template; None where the clause does not concern them."""
        return self.group(template, self.clause.key(Item(template))) if concerns(self.clause, template) else None

    def group(self, template: PodTemplate, key: str | None) -> Group:
        """Return the gang with a key."""
        return Group(f"{self.policy}/{self.clause.name}", template.namespace, template.spec.scheduler_name, key)


def concerns(clause: CompiledGang, template: PodTemplate) -> bool:
    """Return whether pods of a template count as members of a gang of a clause."""
    if clause.condition is None or clause.depends & ~Depends.TEMPLATE:
        return True
    return bool(clause.condition(Item(template)))


class RoleOf(NamedTuple):
    """Tells who has one role of a gang: the first of its clause whose test the pod passes."""

    gang_of: GangOf
    place: int
    """Which role of the clause."""

    def __call__(self, template: PodTemplate) -> Group | None:
        """Return the members of the gang with the role; None where pods of this template do not have it."""
        gang = self.gang_of(template)
        if gang is None or role_of(self.gang_of.clause, template) != self.place:
            return None
        return self.group(gang)

    def group(self, gang: Group) -> Group:
        """Return the members of a gang that have the role."""
        return gang._replace(rule=f"{gang.rule} with {self.gang_of.clause.roles[self.place].text}")


def role_of(clause: CompiledGang, template: PodTemplate) -> int | None:
    """Return which role of a clause pods of a template have; None where they have none."""
    item = Item(template)
    return next((place for place, role in enumerate(clause.roles) if role.holds(item)), None)


def requirement_of(clause: CompiledGang, frame: Frame, *, policy: str) -> GangRequirement | None:
    """Return what the clause asks for a pod; None where it does not concern the pod, or one pod is enough.

    Raises:
        ValueError: the size has no value.
    """
    if clause.condition is not None and not clause.condition(frame):
        return None
    size = float(clause.size(frame))
    if math.isnan(size):
        raise ValueError(f"{clause.text}: the size has no value for this pod")
    if size <= 1:
        return None
    gang_of = GangOf(clause, policy)
    group, most = gang_of.group(frame.template, clause.key(frame)), math.ceil(size)
    roles = _roles(clause, frame, gang_of, group, size=most)
    own = role_of(clause, frame.template)
    return GangRequirement(
        group,
        most,
        clause.within_seconds,
        gang_of,
        clause.text,
        policy=policy,
        is_settled=not clause.depends & ~(Depends.TEMPLATE | Depends.POD | Depends.OWN | Depends.QUEUE),
        roles=roles,
        role=roles[own] if own is not None else None,
        levels=clause.levels,
        evicts_whole=clause.evict_whole,
    )


def _roles(clause: CompiledGang, frame: Frame, gang_of: GangOf, group: Group, *, size: int) -> tuple[Role, ...]:
    """Return the roles of a pod's gang.

    Raises:
        ValueError: a number has no value, or together they are more than the size.
    """
    found = []
    for place, role in enumerate(clause.roles):
        number = float(role.number(frame))
        if math.isnan(number):
            raise ValueError(f"{clause.text}: the number of {role.text} has no value for this pod")
        of_role = RoleOf(gang_of, place)
        found.append(Role(role.text, max(0, math.ceil(number)), of_role.group(group), of_role))
    needed = sum(role.number for role in found)
    if needed > size:
        raise ValueError(f"{clause.text}: the roles need {plural(needed, 'pod')}, but the size is {size} for this pod")
    return tuple(found)
