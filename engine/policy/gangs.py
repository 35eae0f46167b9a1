"""`gang` as claims on Permit: to which groups a pod belongs, and who counts as a member."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from engine.cluster.affinity import NamespaceLabels
from engine.cluster.pods import PodTemplate
from engine.framework.frame import Frame
from engine.framework.permit import Claim, Group
from engine.lang.compiling.compiled import CompiledGang
from engine.lang.environment import Members
from engine.lang.types import Depends


@dataclass(frozen=True, slots=True)
class GangMembers:
    """The pods of one gang, as the counters know sets: of one namespace and scheduler, with the same key."""

    namespace: str
    scheduler_name: str
    members: Members
    reads_namespaces: ClassVar[bool] = False

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the gang."""
        return (
            template.namespace == self.namespace
            and template.spec.scheduler_name == self.scheduler_name
            and bool(self.members(template))
        )


def claim_of(clause: CompiledGang, frame: Frame, *, policy: str) -> Claim | None:
    """Return what the clause asks for a pod; None where it does not concern the pod, or one pod is enough.

    Raises:
        ValueError: the size has no value.
    """
    if clause.condition is not None and not clause.condition(frame):
        return None
    size = float(clause.size(frame))
    key = clause.key(frame)
    if math.isnan(size):
        raise ValueError(f"{clause.text}: the size has no value for this pod")
    if size <= 1:
        return None
    template = frame.template
    members = GangMembers(template.namespace, template.spec.scheduler_name, _same_gang(clause, key))
    group = Group(f"{policy}/{clause.name}", template.namespace, key)
    return Claim(group, math.ceil(size), clause.within_seconds, members, clause.text)


def _same_gang(clause: CompiledGang, key: str | None) -> Members:
    asked, condition = clause.key, clause.condition
    if condition is None or clause.depends & ~Depends.TEMPLATE:
        return Members(clause, (key,), lambda item: asked(item) == item.captured[0])
    return Members(clause, (key,), lambda item: asked(item) == item.captured[0] and bool(condition(item)))
