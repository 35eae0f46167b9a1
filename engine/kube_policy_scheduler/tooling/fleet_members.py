"""The nodes and pods of the clusters of a fleet in its snapshot: objects as of any cluster, with the name of theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.fleet.model import FleetCluster, Member, ToldMember
from kube_policy_scheduler.policy.members import ReadMember
from kube_policy_scheduler.tooling.cluster_state import cluster_state, stored_objects
from kube_policy_scheduler.tooling.snapshot.fields import Json, recorded_objects

MEMBER = "policyctl/member"
"""Annotation of nodes and pods in the snapshot of a fleet: the cluster that they are of."""
_SCHEDULER = "default-scheduler"

MemberObjects: TypeAlias = Mapping[str, Sequence[Any]]
"""Nodes and pods, as structs of `cluster.objects`, by cluster."""


def is_of_member(each: FixtureObject) -> bool:
    """Return whether an object is a node or a pod of a cluster of a fleet."""
    return each.kind in ("Node", "Pod") and MEMBER in (each.value["metadata"].get("annotations") or {})


def members_in(found: Iterable[FixtureObject]) -> MemberObjects:
    """Return the nodes and pods of clusters among the objects of files.

    Raises:
        DocumentError: one cannot be read; all problems are reported.
    """
    written: dict[str, list[FixtureObject]] = {}
    for each in found:
        if is_of_member(each):
            written.setdefault(each.value["metadata"]["annotations"][MEMBER], []).append(each)
    return {name: stored_objects(things, scheduler=_SCHEDULER) for name, things in written.items()}


def recorded_members(members: MemberObjects, *, annotations: Collection[str]) -> list[Json]:
    """Return nodes and pods as in a fixture file. annotations: keys of annotations that policies read."""
    made: list[Json] = []
    for name in sorted(members):
        for thing in recorded_objects(members[name], annotations=annotations):
            thing["metadata"].setdefault("annotations", {})[MEMBER] = name
            made.append(thing)
    return made


def nodes_and_pods(things: Iterable[Any]) -> list[Any]:
    """Return what of all objects of a cluster policies of workloads can ask about."""
    return [each for each in things if isinstance(each, objects.Node | objects.Pod)]


def with_members(
    clusters: Iterable[FleetCluster], members: MemberObjects, unread: Mapping[str, str], *, at: float | None
) -> list[FleetCluster]:
    """Return clusters with what is known of their nodes and pods.

    Args:
        clusters: without.
        members: of those that were read.
        unread: why others could not be read, by name.
        at: when they were read, Unix seconds; None: that is not known.
    """
    known: dict[str, Member] = {name: ToldMember({}, None, why) for name, why in unread.items()}
    known |= {name: ReadMember(cluster_state(things).cluster, at) for name, things in members.items()}
    return [_with(each, known.get(each.name)) for each in clusters]


def _with(cluster: FleetCluster, member: Member | None) -> FleetCluster:
    return cluster if member is None else msgspec.structs.replace(cluster, member=member)
