"""PodGroups of the API as requirements on Permit: Kubernetes' own, and those of the scheduler-plugins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kube_policy_scheduler.cluster.objects import CoschedulingPodGroup, PodGroup, PodGroupSpec
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import GangRequirement, Group, MissingGroupError

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
NATIVE_WITHIN_SECONDS = 300.0
"""How long kube-scheduler's GangScheduling lets pods wait at Permit."""
COSCHEDULING_WITHIN_SECONDS = 60.0
"""What the plugin takes where a group says nothing."""


@dataclass(frozen=True, slots=True)
class PodGroupOf:
    """Tells PodGroups of one kind apart: by namespace and name, and by who is to schedule the pods."""

    is_native: bool

    @property
    def rule(self) -> str:
        """Return what the kind is called."""
        return "PodGroup" if self.is_native else "PodGroup.scheduling.x-k8s.io"

    def __call__(self, template: PodTemplate) -> Group | None:
        """Return the group of pods of this template; None where they belong to none of this kind."""
        name = native_group(template) if self.is_native else template.labels.get(COSCHEDULING_LABEL)
        return Group(self.rule, template.namespace, template.spec.scheduler_name, name) if name else None


NATIVE, COSCHEDULING = PodGroupOf(is_native=True), PodGroupOf(is_native=False)


def native_group(template: PodTemplate) -> str | None:
    """Return the name of the scheduling.k8s.io PodGroup that pods belong to; None where they belong to none."""
    group = template.spec.scheduling_group
    return group.pod_group_name or None if group is not None else None


def is_in_group(template: PodTemplate) -> bool:
    """Return whether pods belong to a PodGroup of either kind."""
    return native_group(template) is not None or bool(template.labels.get(COSCHEDULING_LABEL))


def _missing(group: Group) -> MissingGroupError:
    """Return the error of pods that ask for a PodGroup that is not there yet."""
    if group.rule == NATIVE.rule:
        # kube-scheduler's words, as they are
        return MissingGroupError(group, f'waiting for pods\'s pod group "{group.key}" to appear in scheduling queue')
    return MissingGroupError(group, f"waiting for PodGroup {group} (scheduling.x-k8s.io), which does not exist")


def pod_group_requirements(frame: Frame) -> tuple[GangRequirement, ...]:
    """Return what the PodGroups of a pod ask for.

    Raises:
        MissingGroupError: a group is not there yet.
        ValueError: a group asks for what is not done here.
    """
    found = []
    for group_of, requirement in ((NATIVE, _native_requirement), (COSCHEDULING, _coscheduling_requirement)):
        group = group_of(frame.template)
        if group is not None:
            found.append(requirement(group, frame))
    return tuple(requirement for requirement in found if requirement is not None)


def _native_requirement(group: Group, frame: Frame) -> GangRequirement | None:
    there = frame.cluster.get(PodGroup, str(group))
    if there is None:
        raise _missing(group)
    if (unmet := _not_done(there.spec, frame.pod.priority)) is not None:
        raise ValueError(f"PodGroup {group} {unmet}")
    gang, key = there.spec.scheduling_policy.gang, _topology(there.spec.scheduling_constraints or {})
    requirement = _requirement(
        group,
        NATIVE,
        size=gang.min_count if gang is not None else 1,
        within_seconds=NATIVE_WITHIN_SECONDS,
        always=key is not None,
    )
    return replace(requirement, levels=(key,)) if requirement is not None and key is not None else requirement


def _not_done(spec: PodGroupSpec, priority: int) -> str | None:
    """Return what a group asks for that this scheduler does not do, so that its pods must wait; None: nothing.

    priority: of the pod.
    """
    policy, constraints = spec.scheduling_policy, spec.scheduling_constraints or {}
    if policy.gang is None and policy.basic is None:
        return "has a scheduling policy other than `basic` and `gang`, which this scheduler does not know"
    if constraints.get("topology") and _topology(constraints) is None:
        return "has a topology constraint that this scheduler does not know: it knows one, with a `key`"
    if unknown := sorted(kind for kind, value in constraints.items() if value and kind != "topology"):
        return f"has scheduling constraints that this scheduler does not know: {', '.join(unknown)}"
    if spec.parent_composite_pod_group_name:
        parent = spec.parent_composite_pod_group_name
        return f"belongs to CompositePodGroup {parent}, and this scheduler does not schedule composite groups"
    if spec.resource_claims:
        names = ", ".join(claim.name for claim in spec.resource_claims)
        return f"shares resource claims among its pods ({names}), which this scheduler does not do"
    # 1.37, which a disruption mode that is no text tells, rejects such pods; 1.36 does not
    if isinstance(spec.disruption_mode, dict) and spec.priority is not None and spec.priority != priority:
        return f"has priority {spec.priority}, but this pod has priority {priority}; give both the same priority class"
    return None


def _topology(constraints: Mapping[str, Any]) -> str | None:
    """Return the label in one of whose domains all pods of a group must be; None if none, or if that is not all."""
    match constraints.get("topology"):
        case [{"key": str(key), **others}] if key and not others:
            return key
        case _:
            return None


def _coscheduling_requirement(group: Group, frame: Frame) -> GangRequirement | None:
    """Return the requirement of a group of the scheduler-plugins; in a cluster without any the label means nothing."""
    there = frame.cluster.get(CoschedulingPodGroup, str(group))
    if there is None:
        if any(True for _ in frame.cluster.all(CoschedulingPodGroup)):
            raise _missing(group)
        return None
    within = float(there.spec.schedule_timeout_seconds or COSCHEDULING_WITHIN_SECONDS)
    return _requirement(group, COSCHEDULING, size=there.spec.min_member, within_seconds=within)


def _requirement(
    group: Group, group_of: PodGroupOf, *, size: int, within_seconds: float, always: bool = False
) -> GangRequirement | None:
    """always: whether a group that one pod completes asks for something too."""
    if size <= 1 and not always:
        return None
    return GangRequirement(group, max(1, size), within_seconds, group_of, f"{group.rule} {group.key}")
