"""PodGroups of the API as claims on Permit: Kubernetes' own, and those of the scheduler-plugins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.cluster.affinity import NamespaceLabels
from engine.cluster.objects import CoschedulingPodGroup, PodGroup
from engine.cluster.pods import PodTemplate
from engine.framework.frame import Frame
from engine.framework.permit import Claim, Group

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
NATIVE_WITHIN_SECONDS = 300.0
"""How long kube-scheduler's GangScheduling lets pods wait at Permit."""
COSCHEDULING_WITHIN_SECONDS = 60.0
"""What the plugin takes where a group says nothing."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The pods of one PodGroup, as the counters know sets."""

    namespace: str
    scheduler_name: str
    name: str
    is_native: bool
    reads_namespaces: ClassVar[bool] = False

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the group."""
        if template.namespace != self.namespace or template.spec.scheduler_name != self.scheduler_name:
            return False
        return (native_group(template) if self.is_native else template.labels.get(COSCHEDULING_LABEL)) == self.name


def native_group(template: PodTemplate) -> str | None:
    """Return the name of the scheduling.k8s.io PodGroup that pods belong to; None where they belong to none."""
    group = template.spec.scheduling_group
    return group.pod_group_name or None if group is not None else None


def is_in_group(template: PodTemplate) -> bool:
    """Return whether pods belong to a PodGroup of either kind."""
    return native_group(template) is not None or bool(template.labels.get(COSCHEDULING_LABEL))


def pod_group_claims(frame: Frame) -> tuple[Claim, ...]:
    """Return what the PodGroups of a pod ask for.

    Raises:
        ValueError: a group is not there yet, or asks for what is not done here.
    """
    template = frame.template
    native, labelled = native_group(template), template.labels.get(COSCHEDULING_LABEL)
    found = []
    if native is not None:
        found.append(_native_claim(native, frame))
    if labelled:
        found.append(_coscheduling_claim(labelled, frame))
    return tuple(claim for claim in found if claim is not None)


def _native_claim(name: str, frame: Frame) -> Claim | None:
    template = frame.template
    group = frame.cluster.get(PodGroup, f"{template.namespace}/{name}")
    if group is None:
        raise ValueError(f"waiting for PodGroup {template.namespace}/{name}, which is not there")
    constraints = group.spec.scheduling_constraints
    if constraints is not None and constraints.topology:
        keys = ", ".join(str(constraint.get("key")) for constraint in constraints.topology)
        raise ValueError(
            f"PodGroup {template.namespace}/{name} wants all pods in one domain of {keys}, which this scheduler does"
            " not do; write it as a rule: required pod affinity, or `pack` in a policy"
        )
    gang = group.spec.scheduling_policy.gang
    size = gang.min_count if gang is not None else 1
    return _claim(name, frame, size=size, within_seconds=NATIVE_WITHIN_SECONDS, is_native=True)


def _coscheduling_claim(name: str, frame: Frame) -> Claim | None:
    """Return the claim of a group of the scheduler-plugins; in a cluster without any the label means nothing."""
    namespace = frame.template.namespace
    group = frame.cluster.get(CoschedulingPodGroup, f"{namespace}/{name}")
    if group is None:
        if any(True for _ in frame.cluster.all(CoschedulingPodGroup)):
            raise ValueError(f"waiting for PodGroup {namespace}/{name} (scheduling.x-k8s.io), which is not there")
        return None
    within = float(group.spec.schedule_timeout_seconds or COSCHEDULING_WITHIN_SECONDS)
    return _claim(name, frame, size=group.spec.min_member, within_seconds=within, is_native=False)


def _claim(name: str, frame: Frame, *, size: int, within_seconds: float, is_native: bool) -> Claim | None:
    if size <= 1:
        return None
    template = frame.template
    members = GroupMembers(template.namespace, template.spec.scheduler_name, name, is_native)
    rule = "PodGroup" if is_native else "PodGroup.scheduling.x-k8s.io"
    group = Group(rule, template.namespace, name)
    return Claim(group, size, within_seconds, members, f"{rule} {name}")
