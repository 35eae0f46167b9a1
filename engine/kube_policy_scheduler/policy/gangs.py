"""`gang` as requirements on Permit: a pod's groups, who counts as a member, and how far a gang has come."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import GangRequirement, Group
from kube_policy_scheduler.lang.compiling.compiled import CompiledGang
from kube_policy_scheduler.lang.environment import Item
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.times import rfc3339


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
        is_settled=not clause.depends & ~(Depends.TEMPLATE | Depends.POD | Depends.QUEUE),
    )


# --- how far a gang has come -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GangState:
    """The members of one gang at one moment."""

    name: str
    """`NAMESPACE/KEY`."""
    rule: str
    """The clause as it is written, or the PodGroup."""
    size: int
    """No member binds before this many have a place."""
    placed: int
    """Members on nodes, those that hold a place for the others included."""
    holding: int
    """Members that hold a place and do not bind yet."""
    pending: int
    """Members without a place."""
    until: float | None = None
    """Unix seconds at which those that hold places give them back; None where none does, or that is not known."""

    @property
    def missing(self) -> int:
        """Return how many pods there are too few, whatever room there is."""
        return max(0, self.size - self.placed - self.pending)

    def sentence(self) -> str:
        """Return it in one sentence, without an end."""
        parts = [f"{self.placed} of {self.size} members {'has' if self.placed == 1 else 'have'} a node"]
        if self.pending:
            parts.append(f"{self.pending} {'is' if self.pending == 1 else 'are'} pending")
        if self.missing:
            parts.append(f"{self.missing} {'is' if self.missing == 1 else 'are'} missing")
        held = f", held until {rfc3339(self.until)}" if self.until is not None and self.placed < self.size else ""
        return f'gang "{self.name}": {", ".join(parts)}{held} ({self.rule})'


def gang_state(
    requirement: GangRequirement, *, placed: int, pending: int, holding: int = 0, since: float | None = None
) -> GangState:
    """Return the state of a requirement's gang.

    Args:
        requirement: what is asked for its members.
        placed: members on nodes.
        pending: members without a place.
        holding: members that hold a place and do not bind yet.
        since: Unix seconds at which the first of those began, None where there is none.
    """
    until = since + requirement.within_seconds if since is not None else None
    return GangState(str(requirement.group), requirement.text, requirement.size, placed, holding, pending, until)
