"""PodGroups that are disrupted as a whole (`disruptionMode`): which stay, and which are evicted as one victim.

Up to Kubernetes 1.36, preemption for a single pod takes victims from one node, so it takes no pod of such a group.
Since 1.37 it takes the whole group, on whatever nodes its pods are. A group below a CompositePodGroup that is disrupted
as a whole stays in all versions, and so do pods of a group that is not known, or whose mode is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True, slots=True, eq=False)
class _Modes:
    """The known PodGroups, as `namespace/name`; compared by identity."""

    single: frozenset[str]
    """Pods of these may be evicted one by one."""
    whole: frozenset[str]
    """These may be evicted, as a whole."""


@dataclass(frozen=True, slots=True)
class _AndWholeGroups:
    """The gangs of a running pod, and its PodGroup if that goes as a whole. Equal ones are of the same groups."""

    others: GangsOf | None
    modes: _Modes

    def __call__(self, frame: Frame) -> Sequence[GangRequirement]:
        """Return them."""
        found = tuple(self.others(frame)) if self.others is not None else ()
        group = _WHOLE(frame.template)
        if group is None or str(group) not in self.modes.whole:
            return found
        text = f"PodGroup {group.key}"
        return (*found, GangRequirement(group, 1, 0.0, _WHOLE, text, evicts_whole=True))


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
    may_be_whole = Feature.POD_GROUPS_EVICTED_WHOLE in cluster.rules
    single, whole = set(), set()
    for group in groups:
        if not _are_single(cluster, parent_group(group)):
            continue
        mode, key = group.spec.disruption_mode, object_key(group.metadata)
        if _is_single(mode):
            single.add(key)
        elif may_be_whole and isinstance(mode, dict) and set(mode) == {"all"}:
            whole.add(key)
    return _Modes(frozenset(single), frozenset(whole))


def _is_single(mode: object) -> bool:
    return mode is None or mode == "Pod" or (isinstance(mode, dict) and set(mode) == {"single"})


def _are_single(cluster: Cluster, parent: str | None) -> bool:
    """Return whether no composite group above is disrupted as a whole, and all are known."""
    seen: set[str] = set()
    while parent:
        above = None if parent in seen else cluster.get(CompositePodGroup, parent)
        if above is None or not _is_single(above.spec.disruption_mode):
            return False
        seen.add(parent)
        parent = parent_group(above)
    return True
