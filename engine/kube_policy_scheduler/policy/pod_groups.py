"""PodGroups of the API as requirements of gangs: Kubernetes' own, those of the scheduler-plugins, composite groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import key_of, object_key
from kube_policy_scheduler.cluster.objects import (
    CompositePodGroup,
    CompositePodGroupSchedulingPolicy,
    CompositePodGroupSpec,
    CoschedulingPodGroup,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import (
    COMPOSITE_POD_GROUP,
    POD_GROUP,
    GangRequirement,
    Group,
    GroupTree,
    MissingGroupError,
)
from kube_policy_scheduler.framework.preempt.whole_groups import is_evicted_whole
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
NATIVE_WITHIN_SECONDS = 300.0
"""How long kube-scheduler's GangScheduling lets pods wait at Permit."""
COSCHEDULING_WITHIN_SECONDS = 60.0
"""What the plugin takes where a group says nothing."""
_DEFAULT_PREEMPTION_POLICY = "PreemptLowerPriority"
MOST_LEVELS = 4
"""Of a tree of groups, the PodGroups included; the API sets the same limit."""
MOST_POD_GROUPS = 1000
"""In one composite group: a decision looks at each of them."""


class PodGroupOf(NamedTuple):
    """Tells PodGroups of one kind apart: by namespace and name, and by who is to schedule the pods."""

    is_native: bool

    @property
    def rule(self) -> str:
        """Return what the kind is called."""
        return POD_GROUP if self.is_native else "PodGroup.scheduling.x-k8s.io"

    def __call__(self, template: PodTemplate) -> Group | None:
        """Return the group of pods of this template; None where they belong to none of this kind."""
        name = native_group(template) if self.is_native else template.labels.get(COSCHEDULING_LABEL)
        return Group(self.rule, template.namespace, template.spec.scheduler_name, name) if name else None


NATIVE, COSCHEDULING = PodGroupOf(is_native=True), PodGroupOf(is_native=False)


class CompositeOf(msgspec.Struct, frozen=True):
    """Tells the pods of one composite group from all others."""

    group: Group
    leaves: frozenset[Group]
    """Its PodGroups, at any depth."""

    def __call__(self, template: PodTemplate) -> Group | None:
        """Return the composite group if pods of this template belong to it."""
        return self.group if NATIVE(template) in self.leaves else None


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
    found: list[GangRequirement] = []
    for group_of, requirement in ((NATIVE, _native_requirement), (COSCHEDULING, _coscheduling_requirement)):
        group = group_of(frame.template)
        if group is not None:
            found += requirement(group, frame)
    return tuple(found)


def _native_requirement(group: Group, frame: Frame) -> Iterator[GangRequirement]:
    """Yield what a group asks for, after the composite groups that it belongs to, the outermost first."""
    there = frame.cluster.get(PodGroup, str(group))
    if there is None:
        raise _missing(group)
    if (unmet := _not_done(there.spec, frame.pod, frame.cluster.rules)) is not None:
        raise ValueError(f"PodGroup {group} {unmet}")
    key, is_child = _topology(there.spec.scheduling_constraints or {}), bool(there.spec.parent_composite_pod_group_name)
    if is_child:
        yield from _composite_requirements(group, there, frame)
    is_whole = is_evicted_whole(frame.cluster, there)
    # by the rules of 1.37, room is made for all of a gang at once, and for none that it can do without
    is_gang = there.spec.scheduling_policy.gang is not None and Feature.WORKLOAD_AWARE_PREEMPTION in frame.cluster.rules
    requirement = _requirement(
        group,
        NATIVE,
        size=_min_count(there.spec),
        within_seconds=NATIVE_WITHIN_SECONDS,
        always=is_child or is_whole or is_gang or key is not None,
    )
    if requirement is not None:
        levels = (key,) if key is not None else ()
        yield msgspec.structs.replace(requirement, levels=levels, evicts_whole=is_whole)


def _min_count(spec: PodGroupSpec) -> int:
    gang = spec.scheduling_policy.gang
    return max(1, gang.min_count) if gang is not None else 1


def parents_of(cluster: Cluster, group: PodGroup | CompositePodGroup) -> tuple[str, ...]:
    """Return the keys of the composite groups that a group belongs to, the innermost first.

    It ends with one that does not exist, that is among them already, or with which there are too many levels.
    """
    found: list[str] = []
    above: PodGroup | CompositePodGroup | None = group
    while above is not None and (name := above.spec.parent_composite_pod_group_name) and len(found) < MOST_LEVELS:
        key = key_of(above.metadata.namespace, name)
        is_cycle = key in found
        found.append(key)
        above = None if is_cycle else cluster.get(CompositePodGroup, key)
    return tuple(found)


def _composite_requirements(group: Group, there: PodGroup, frame: Frame) -> Iterator[GangRequirement]:
    keys = parents_of(frame.cluster, there)
    if len(set(keys)) < len(keys):
        raise ValueError(f"PodGroup {group} belongs to composite groups that belong to each other: {' of '.join(keys)}")
    if len(keys) >= MOST_LEVELS:
        raise ValueError(f"PodGroup {group} belongs to a tree of groups with more than {MOST_LEVELS} levels")
    trees, requirements = _trees(frame.cluster), list[GangRequirement]()
    for key in keys:
        of = Group(COMPOSITE_POD_GROUP, group.namespace, group.scheduler_name, key.partition("/")[2])
        composite = frame.cluster.get(CompositePodGroup, key)
        if composite is None:
            raise MissingGroupError(of, f"waiting for CompositePodGroup {key}, which does not exist")
        if (unmet := _composite_not_done(composite.spec, frame.pod, frame.cluster.rules)) is not None:
            raise ValueError(f"CompositePodGroup {key} {unmet}")
        if of not in trees:
            trees[of] = _composite_requirement(frame.cluster, of, composite)
        found = trees[of]
        if isinstance(found, str):
            raise MissingGroupError(of, f"waiting for {COMPOSITE_POD_GROUP} {key}: {found}")
        requirements.append(msgspec.structs.replace(found, leaf=group))
    yield from reversed(requirements)


def _trees(cluster: Cluster) -> dict[Group, GangRequirement | str]:
    """Return what composite groups ask for, or what they lack, as far as that was asked since a group changed."""
    versions = cluster.store.version(PodGroup), cluster.store.version(CompositePodGroup)
    return cluster.store.keep("composite groups", versions, dict)


def _composite_requirement(cluster: Cluster, group: Group, composite: CompositePodGroup) -> GangRequirement | str:
    """Return what a composite group asks for, or which groups it waits for."""
    leaves: list[Group] = []
    tree = _tree(cluster, group, composite, leaves, depth=1)
    if len(leaves) > MOST_POD_GROUPS:
        raise ValueError(
            f"{COMPOSITE_POD_GROUP} {group} has more than {MOST_POD_GROUPS} PodGroups, the most that this scheduler"
            " does"
        )
    needed = _min_group_count(composite.spec)
    if tree is None:
        return f"fewer than {needed} of its groups exist"
    key = _topology(composite.spec.scheduling_constraints or {})
    return GangRequirement(
        group,
        tree.lacking(lambda group_of, leaf: 0),
        NATIVE_WITHIN_SECONDS,
        CompositeOf(group, frozenset(leaves)),
        f"{group.rule} {group.key}",
        levels=(key,) if key is not None else (),
        tree=tree,
    )


def _tree(
    cluster: Cluster, group: Group, composite: CompositePodGroup, leaves: list[Group], *, depth: int
) -> GroupTree | None:
    """Return a composite group with its children; None if it has fewer than it needs.

    leaves: its PodGroups are appended, not all if there are too many.
    """
    if depth >= MOST_LEVELS:
        return None
    key = object_key(composite.metadata)
    children: list[GroupTree] = []
    for child in cluster.store.group(PodGroup, key):
        leaf = Group(NATIVE.rule, group.namespace, group.scheduler_name, child.metadata.name)
        leaves.append(leaf)
        children.append(GroupTree(leaf, _min_count(child.spec), NATIVE))
        if len(leaves) > MOST_POD_GROUPS:
            return None
    for below in cluster.store.group(CompositePodGroup, key):
        inner = Group(COMPOSITE_POD_GROUP, group.namespace, group.scheduler_name, below.metadata.name)
        tree = _tree(cluster, inner, below, leaves, depth=depth + 1)
        if len(leaves) > MOST_POD_GROUPS:
            return None
        if tree is not None:
            children.append(tree)
    needed = _min_group_count(composite.spec)
    if len(children) < needed:
        return None
    return GroupTree(group, needed, CompositeOf(group, frozenset()), tuple(children))


def _min_group_count(spec: CompositePodGroupSpec) -> int:
    """Return how many groups are needed; of a basic one, one: they are scheduled independently."""
    gang = spec.scheduling_policy.gang
    return max(1, gang.min_group_count) if gang is not None else 1


def _composite_not_done(spec: CompositePodGroupSpec, pod: PodInfo, rules: KubernetesRules) -> str | None:
    """Return what a composite group asks for that this scheduler does not do for a pod; None: nothing."""
    unmet = _unknown(spec.scheduling_policy, spec.scheduling_constraints)
    return unmet or _other_priority(spec, pod) or _other_policy(spec, pod, rules)


def _not_done(spec: PodGroupSpec, pod: PodInfo, rules: KubernetesRules) -> str | None:
    """Return what a group asks for that this scheduler does not do, so that a pod must wait; None: nothing."""
    if (unmet := _unknown(spec.scheduling_policy, spec.scheduling_constraints)) is not None:
        return unmet
    if spec.resource_claims and (gate := Feature.DRA_WORKLOAD_RESOURCE_CLAIMS) not in rules:
        names = ", ".join(claim.name for claim in spec.resource_claims)
        return f"shares resource claims among its pods ({names}), which needs the feature gate {gate.entry.name}"
    other = _other_priority(spec, pod) if Feature.POD_GROUP_PRIORITY_COUNTS in rules else None
    return other or _other_policy(spec, pod, rules)


def _other_priority(spec: PodGroupSpec | CompositePodGroupSpec, pod: PodInfo) -> str | None:
    if spec.priority is None or spec.priority == pod.priority:
        return None
    return f"has priority {spec.priority}, but this pod has priority {pod.priority}; give both the same priority class"


def _other_policy(spec: PodGroupSpec | CompositePodGroupSpec, pod: PodInfo, rules: KubernetesRules) -> str | None:
    if spec.preemption_policy is None:
        return None
    if (gate := Feature.POD_GROUP_PREEMPTION_POLICY) not in rules:
        return f"has a preemptionPolicy, which needs the feature gate {gate.entry.name}"
    own = pod.template.spec.preemption_policy or _DEFAULT_PREEMPTION_POLICY
    if own == spec.preemption_policy:
        return None
    return f"has the preemptionPolicy {spec.preemption_policy}, but this pod has {own}; give both the same"


def _unknown(
    policy: PodGroupSchedulingPolicy | CompositePodGroupSchedulingPolicy, constraints: Mapping[str, Any] | None
) -> str | None:
    """Return what the policy and the constraints of a group ask for that is not known; None: nothing."""
    constraints = constraints or {}
    if policy.gang is None and policy.basic is None:
        return "has a scheduling policy other than `basic` and `gang`, which this scheduler does not know"
    if constraints.get("topology") and _topology(constraints) is None:
        return "has a topology constraint that this scheduler does not know: it knows one, with a `key`"
    if unknown := sorted(kind for kind, value in constraints.items() if value and kind != "topology"):
        return f"has scheduling constraints that this scheduler does not know: {', '.join(unknown)}"
    return None


def _topology(constraints: Mapping[str, Any]) -> str | None:
    """Return the label in one of whose domains all pods of a group must be; None if none, or if that is not all."""
    match constraints.get("topology"):
        case [{"key": str(key), **others}] if key and not others:
            return key
        case _:
            return None


def _coscheduling_requirement(group: Group, frame: Frame) -> Iterator[GangRequirement]:
    """Yield the requirement of a group of the scheduler-plugins; in a cluster without any the label means nothing."""
    there = frame.cluster.get(CoschedulingPodGroup, str(group))
    if there is None:
        if any(True for _ in frame.cluster.all(CoschedulingPodGroup)):
            raise _missing(group)
        return
    within = float(there.spec.schedule_timeout_seconds or COSCHEDULING_WITHIN_SECONDS)
    requirement = _requirement(group, COSCHEDULING, size=there.spec.min_member, within_seconds=within)
    if requirement is not None:
        yield requirement


def _requirement(
    group: Group, group_of: PodGroupOf, *, size: int, within_seconds: float, always: bool = False
) -> GangRequirement | None:
    """always: whether a group that one pod completes asks for something too."""
    if size <= 1 and not always:
        return None
    return GangRequirement(group, max(1, size), within_seconds, group_of, f"{group.rule} {group.key}")
