"""PodGroups that are disrupted as a whole (`disruptionMode`): which stay, and which are evicted as one victim.

Up to Kubernetes 1.36, preemption for a single pod takes victims from one node, so it takes no pod of such a group.
Since 1.37 it takes the whole group, on whatever nodes its pods are; of a CompositePodGroup with this mode, all groups
in it. Pods of a group that is not known, or whose mode is not, stay in all versions. In a cluster without any PodGroup,
what a pod says of its group means nothing: the API may not serve the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import key_of, object_key, parent_group
from kube_policy_scheduler.cluster.objects import CompositePodGroup, PodGroup
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.preempt.gang_units import GangsOf
from kube_policy_scheduler.kubernetes_rules import Feature


class WholeGroupOf(NamedTuple):
    """Tells the PodGroups apart that are evicted as a whole: by namespace and name."""

    rule: str = "whole PodGroup"

    def __call__(self, template: PodTemplate) -> Group | None:
        """Return the group of pods of this template; None where they belong to none."""
        name = _group_name(template)
        return Group(self.rule, template.namespace, "", name) if name else None


_WHOLE = WholeGroupOf()


class WholeTreeOf(msgspec.Struct, frozen=True):
    """Tells the pods of one CompositePodGroup that is evicted as a whole from all others."""

    group: Group
    leaves: frozenset[str]
    """Its PodGroups, at any depth, as `namespace/name`."""

    def __call__(self, template: PodTemplate) -> Group | None:
        """Return the composite group if pods of this template belong to it."""
        name = _group_name(template)
        return self.group if name and key_of(template.namespace, name) in self.leaves else None


class _Modes(msgspec.Struct, frozen=True, eq=False):
    """The known PodGroups, as `namespace/name`; compared by identity."""

    single: frozenset[str]
    """Pods of these may be evicted one by one."""
    whole: Mapping[str, WholeTreeOf | None]
    """These may be evicted, as a whole: with all of a composite group, or (None) alone."""


class _AndWholeGroups(msgspec.Struct, frozen=True):
    """The gangs of a running pod, and its PodGroup if that goes as a whole. Equal ones are of the same groups."""

    others: GangsOf | None
    modes: _Modes

    def __call__(self, frame: Frame) -> Sequence[GangRequirement]:
        """Return them."""
        found = tuple(self.others(frame)) if self.others is not None else ()
        group = _WHOLE(frame.template)
        if group is None or str(group) not in self.modes.whole:
            return found
        tree = self.modes.whole[str(group)]
        if tree is None:
            return (*found, GangRequirement(group, 1, 0.0, _WHOLE, f"PodGroup {group.key}", evicts_whole=True))
        text = f"CompositePodGroup {tree.group.key}"
        return (*found, GangRequirement(tree.group, 1, 0.0, tree, text, evicts_whole=True))


def with_whole_groups(gangs_of: GangsOf | None, cluster: Cluster) -> GangsOf | None:
    """Return the gangs of running pods, with the PodGroups that are evicted as a whole; None: there are none."""
    modes = _modes(cluster)
    if modes is None or not modes.whole:
        return gangs_of
    return _AndWholeGroups(gangs_of, modes)


def in_group_that_stays(cluster: Cluster) -> Callable[[PodInfo], bool] | None:
    """Return whether a pod belongs to a PodGroup of which preemption takes no pod; None: it may take any."""
    modes = _modes(cluster)
    if modes is None:
        return None

    def stays(pod: PodInfo) -> bool:
        name = _group_name(pod.template)
        if not name:
            return False
        key = key_of(pod.namespace, name)
        return key not in modes.single and key not in modes.whole

    return stays


def is_evicted_whole(cluster: Cluster, group: PodGroup) -> bool:
    """Return whether the pods of a group are evicted together or not at all."""
    modes = _modes(cluster)
    return modes is not None and object_key(group.metadata) in modes.whole


class VictimKind(IntEnum):
    """What is evicted together, as kube-scheduler tells it: of equal priority, a higher one is more important."""

    POD = 0
    POD_GROUP = 1
    """Also one pod of a group whose pods are evicted one by one."""
    COMPOSITE_POD_GROUP = 2


def victim_kind(cluster: Cluster, pods: Sequence[PodInfo]) -> VictimKind:
    """Return what pods are that are evicted together; a gang of a policy counts as a PodGroup."""
    name, modes = _group_name(pods[0].template), _modes(cluster)
    if not name or modes is None:
        return VictimKind.POD_GROUP if len(pods) > 1 else VictimKind.POD
    is_composite = modes.whole.get(key_of(pods[0].namespace, name)) is not None
    return VictimKind.COMPOSITE_POD_GROUP if is_composite else VictimKind.POD_GROUP


def _group_name(template: PodTemplate) -> str:
    group = template.spec.scheduling_group
    return group.pod_group_name if group is not None else ""


def _modes(cluster: Cluster) -> _Modes | None:
    """Return what is known of the groups, None if there are no groups."""
    versions = cluster.store.version(PodGroup), cluster.store.version(CompositePodGroup)
    return cluster.store.keep("modes of disruption", versions, lambda: _read(cluster))


def _read(cluster: Cluster) -> _Modes | None:
    groups = list(cluster.all(PodGroup))
    if not groups:
        return None
    single: set[str] = set()
    units: dict[str, str | None] = {}
    for group in groups:
        key = object_key(group.metadata)
        disruption = _disruption(cluster, group)
        if disruption is _Disruption.SINGLE:
            single.add(key)
        elif disruption is _Disruption.ALONE:
            units[key] = None
        elif isinstance(disruption, str):
            units[key] = disruption
    leaves: dict[str, set[str]] = {}
    for key, tree in units.items():
        if tree is not None:
            leaves.setdefault(tree, set()).add(key)
    trees = {tree: _whole_tree(tree, frozenset(keys)) for tree, keys in leaves.items()}
    whole = {key: trees[tree] if tree is not None else None for key, tree in units.items()}
    return _Modes(frozenset(single), whole)


def _whole_tree(key: str, leaves: frozenset[str]) -> WholeTreeOf:
    namespace, _, name = key.partition("/")
    return WholeTreeOf(Group("whole CompositePodGroup", namespace, "", name), leaves)


class _Disruption(Enum):
    """How pods of a PodGroup may be evicted, if it is not with all of a composite group."""

    SINGLE = "one by one"
    ALONE = "all of the group together"
    NEVER = "not at all"


def _disruption(cluster: Cluster, group: PodGroup) -> _Disruption | str:
    """Return how pods of a group may be evicted; a key: with all of the outermost composite group that wants that."""
    may_be_whole = Feature.POD_GROUPS_EVICTED_WHOLE in cluster.rules
    found: _Disruption | str = _Disruption.SINGLE
    above: PodGroup | CompositePodGroup = group
    seen: set[str] = set()
    while True:
        mode, parent = above.spec.disruption_mode, parent_group(above)
        if may_be_whole and isinstance(mode, dict) and set(mode) == {"all"}:
            found = _Disruption.ALONE if above is group else object_key(above.metadata)
        elif not _is_single(mode):
            return _Disruption.NEVER
        if not parent:
            return found
        composite = None if parent in seen else cluster.get(CompositePodGroup, parent)
        if composite is None:
            return _Disruption.NEVER
        seen.add(parent)
        above = composite


def _is_single(mode: object) -> bool:
    return mode is None or mode == "Pod" or (isinstance(mode, dict) and set(mode) == {"single"})
