"""What is written for a Placement of OCM: its PlacementDecisions in groups, and its status."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from kube_policy_scheduler.fleet.model import MESSAGE_CHARACTERS
from kube_policy_scheduler.fleet.ocm.objects import (
    ClusterPlacement,
    DecisionGroupStatus,
    ManagedCluster,
    PlacementCondition,
    PlacementDecision,
    PlacementStatus,
)
from kube_policy_scheduler.fleet.ocm.selecting import MisconfiguredError, matcher
from kube_policy_scheduler.times import rfc3339

GROUP = "cluster.open-cluster-management.io"
PLACEMENT_LABEL = f"{GROUP}/placement"
GROUP_INDEX_LABEL, GROUP_NAME_LABEL = f"{GROUP}/decision-group-index", f"{GROUP}/decision-group-name"
OBJECT = "-decision-"
"""Between the name of a Placement and the number of its object."""
MOST_DECISIONS = 100
"""Of one PlacementDecision."""
SATISFIED, MISCONFIGURED = "PlacementSatisfied", "PlacementMisconfigured"
"""Types of conditions."""
_SIZE = re.compile(r"([0-9]{1,15})|([0-9]{1,3})%")
"""A number, or a share: each short enough that it can be read as a number."""


class Group(msgspec.Struct, frozen=True):
    """Clusters that are to be changed together."""

    name: str
    clusters: tuple[str, ...]


class DecisionObject(msgspec.Struct, frozen=True):
    """A PlacementDecision that there is to be."""

    name: str
    group_index: int
    group_name: str
    clusters: tuple[str, ...]

    def labels(self, placement: str) -> dict[str, str]:
        """Return its labels."""
        return {
            PLACEMENT_LABEL: placement,
            GROUP_INDEX_LABEL: str(self.group_index),
            GROUP_NAME_LABEL: self.group_name,
        }

    def is_written(self, known: PlacementDecision | None, placement: str) -> bool:
        """Return whether an object says just this."""
        if known is None:
            return False
        labels = known.metadata.labels or {}
        same = all(labels.get(key) == value for key, value in self.labels(placement).items())
        return same and tuple(each.cluster_name for each in known.status.decisions or ()) == self.clusters


def groups_of(
    placement: ClusterPlacement, chosen: Sequence[str], clusters: Mapping[str, ManagedCluster]
) -> tuple[Group, ...]:
    """Return the clusters in the groups of the Placement, by name in each; without clusters, one empty group.

    Raises:
        MisconfiguredError: a selector or the size of the groups cannot be used.
    """
    strategy = placement.spec.decision_strategy.group_strategy
    size = _size(strategy.clusters_per_decision_group, len(chosen))
    left, found = sorted(chosen), list[Group]()
    for each in strategy.decision_groups or ():
        matches = matcher(each.group_cluster_selector)
        members = {name: None for name in left if name in clusters and matches(clusters[name])}
        left = [name for name in left if name not in members]
        found += _cut(each.group_name, list(members), size)
    found += _cut("", left, size)
    return tuple(found) or (Group("", ()),)


def _size(written: int | str | None, count: int) -> int:
    """Return the clusters of a group."""
    if written is None or written == "":
        return max(1, count)
    if isinstance(written, int):
        size = written
    else:
        read = _SIZE.fullmatch(written)
        number, share = (read[1], read[2]) if read is not None else ("0", None)
        size = math.ceil(count * int(share) / 100) if share is not None else int(number)
    if size <= 0 and count > 0:
        raise MisconfiguredError(
            f"clustersPerDecisionGroup is {str(written)[:20]!r}; expected a number above 0 or a share such as 25%"
        )
    return max(1, size)


def _cut(name: str, members: Sequence[str], size: int) -> list[Group]:
    return [Group(name, tuple(members[at : at + size])) for at in range(0, len(members), size)]


def objects_of(placement: str, groups: Sequence[Group]) -> tuple[DecisionObject, ...]:
    """Return the objects for the groups: `NAME-decision-1` and so on, with at most 100 clusters each."""
    found: list[DecisionObject] = []
    for index, group in enumerate(groups):
        for at in range(0, max(1, len(group.clusters)), MOST_DECISIONS):
            name = f"{placement}{OBJECT}{len(found) + 1}"
            found.append(DecisionObject(name, index, group.name, group.clusters[at : at + MOST_DECISIONS]))
    return tuple(found)


def groups_status(groups: Sequence[Group], objects: Sequence[DecisionObject]) -> list[DecisionGroupStatus]:
    """Return what the status says of the groups."""
    return [
        DecisionGroupStatus(
            index, group.name, [each.name for each in objects if each.group_index == index], len(group.clusters)
        )
        for index, group in enumerate(groups)
    ]


def condition(kind: str, *, holds: bool, reason: str, message: str) -> PlacementCondition:
    """Return a condition without a time: `status_of` adds it."""
    return PlacementCondition(type=kind, status=str(holds), reason=reason, message=message[:MESSAGE_CHARACTERS])


def status_of(
    before: PlacementStatus,
    *,
    selected: int,
    groups: Sequence[DecisionGroupStatus],
    conditions: Sequence[PlacementCondition],
    now: float,
) -> PlacementStatus:
    """Return the status that a Placement is to have; conditions of other types stay.

    Args:
        before: its status now.
        selected: number of clusters.
        groups: of decisions.
        conditions: that are to be there; a time of transition stays if the status of the condition does.
        now: Unix seconds.
    """
    known = {each.type: each for each in before.conditions or ()}
    for each in conditions:
        old = known.get(each.type)
        stays = old is not None and old.status == each.status and old.last_transition_time is not None
        since = old.last_transition_time if old is not None and stays else rfc3339(now)
        known[each.type] = msgspec.structs.replace(each, last_transition_time=since)
    return PlacementStatus(selected, list(groups), list(known.values()))
