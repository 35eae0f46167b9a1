"""`gang` as requirements on Permit: to which groups a pod belongs, and who counts as a member."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import GangRequirement, Group
from kube_policy_scheduler.lang.compiling.compiled import CompiledGang
from kube_policy_scheduler.lang.environment import Item
from kube_policy_scheduler.lang.types import Depends


@dataclass(frozen=True, slots=True)
class GangOf:
    """Tells the gangs of one clause apart: by namespace and scheduler, and by its key."""

    clause: CompiledGang
    policy: str

    def __call__(self, template: PodTemplate) -> Group | None:
        """Return the gang of pods of this template; None where the clause does not concern them."""
        clause, item = self.clause, Item(template)
        if clause.condition is not None and not clause.depends & ~Depends.TEMPLATE and not clause.condition(item):
            return None
        return self.group(template, clause.key(item))

    def group(self, template: PodTemplate, key: str | None) -> Group:
        """Return the gang with a key."""
        return Group(f"{self.policy}/{self.clause.name}", template.namespace, template.spec.scheduler_name, key)


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
    return GangRequirement(
        gang_of.group(frame.template, clause.key(frame)),
        math.ceil(size),
        clause.within_seconds,
        gang_of,
        clause.text,
        policy=policy,
        is_settled=not clause.depends & ~(Depends.TEMPLATE | Depends.POD),
    )
