"""VolumeBinding: a pod's claims are bound to volumes that its node can reach, or can be bound there.

The filter finds, node by node, which existing volumes claims would be bound to and for which claims volumes
would be provisioned; `volumes_on` gives that for the chosen node, and `engine.framework.volume_reservation`
acts on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engine.cluster import objects
from engine.cluster.claims import (
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    claim_uses,
    fully_bound,
    made_for,
    not_made_for,
)
from engine.cluster.cluster import Cluster
from engine.cluster.csi_migration import in_tree_plugin, migrated_affinity, migrated_plugins, volume_handle
from engine.cluster.node_lookup import rows_of_volume
from engine.cluster.nodes import BoolArray
from engine.cluster.object_store import storage_class
from engine.cluster.pods import PodInfo
from engine.framework.frame import Frame
from engine.framework.plugin import SKIP, PreFilterResult, Ready, Scope
from engine.framework.plugins.volume_matching import Candidates, Matches, Provisionable, candidates, provisionable, size
from engine.framework.status import Code, Refusal, Status

OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

Claims = Sequence[objects.PersistentVolumeClaim]


@dataclass(frozen=True, slots=True)
class StaticBinding:
    """A claim and the existing volume to bind it to."""

    claim: objects.PersistentVolumeClaim
    volume: objects.PersistentVolume


@dataclass(frozen=True, slots=True)
class NodeVolumes:
    """What has to happen to a pod's claims before it can run on one node."""

    bindings: tuple[StaticBinding, ...] = ()
    provisions: tuple[objects.PersistentVolumeClaim, ...] = ()
    """Claims for which volumes are to be provisioned."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """A pod's claims, sorted by how they stand."""

    bound: Claims
    selected: Claims
    """Unbound, and a node was selected for them before."""
    matching: Sequence[tuple[objects.PersistentVolumeClaim, Candidates]]
    """Unbound, with the existing volumes that may do; smallest claim first."""
    provisionable: Sequence[Provisionable]
    """Where volumes can be provisioned, for `selected` and then for `matching`."""


@dataclass(frozen=True, slots=True)
class _Findings:
    """What stands against each row, `bool[rows]` each; and what was found where nothing does."""

    out_of_reach: BoolArray
    no_volume: BoolArray
    no_room: BoolArray
    gone: BoolArray
    matches: Matches


@dataclass(frozen=True, slots=True)
class VolumeBinding:
    """Refuses nodes from which the pod's volumes cannot be reached or made."""

    name: ClassVar[str] = "VolumeBinding"
    scope: ClassVar[Scope] = Scope.CLUSTER

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Sort the claims; refuse the pod where one is missing, lost, going, or should be bound but is not."""
        pod, cluster = frame.pod, frame.cluster
        uses = list(claim_uses(pod)) if pod.volumes else []
        if not uses:
            return SKIP
        for use in uses:
            problem = _problem(pod, cluster, name=use.name, ephemeral=use.ephemeral)
            if problem:
                return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (problem,))
        bound: list[objects.PersistentVolumeClaim] = []
        delayed: list[objects.PersistentVolumeClaim] = []
        immediate = False
        for use in uses:
            claim = cluster.store.expected(objects.PersistentVolumeClaim, f"{pod.namespace}/{use.name}")
            assert claim is not None
            if fully_bound(claim):
                bound.append(claim)
                continue
            found = cluster.get(objects.StorageClass, name) if (name := storage_class(claim)) else None
            if found is not None and found.volume_binding_mode is None:
                text = f'VolumeBindingMode not set for StorageClass "{found.metadata.name}"'
                return Status(Code.ERROR, self.name, (text,))
            waits = found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
            if waits and not claim.spec.volume_name:
                delayed.append(claim)
            else:
                immediate = True
        if immediate:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (UNBOUND,))
        return Ready(_prepare(bound, delayed, cluster))

    def filter(self, frame: Frame, state: PodClaims) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        found = _find(frame, state)
        return ~(found.out_of_reach | found.no_volume | found.no_room | found.gone)

    def refusals(self, frame: Frame, state: PodClaims) -> Sequence[Refusal]:
        """Return why nodes are refused; bound and unbound claims may both have something against one."""
        found, code = _find(frame, state), Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return [
            Refusal(code, OUT_OF_REACH, found.out_of_reach),
            Refusal(code, NO_VOLUME, found.no_volume),
            Refusal(code, NO_ROOM, found.no_room),
            Refusal(code, VOLUME_GONE, found.gone),
        ]


def volumes_on(frame: Frame, state: PodClaims) -> NodeVolumes:
    """Return what has to happen to the claims on the frame's only row, which passed the filter."""
    found = _find(frame, state)
    bindings, provisions = [], list(state.selected)
    for position, (claim, _) in enumerate(state.matching):
        volume = found.matches.volume(claim=position, position=0)
        if volume is None:
            provisions.append(claim)
        else:
            bindings.append(StaticBinding(claim, volume))
    return NodeVolumes(tuple(bindings), tuple(provisions))


def _problem(pod: PodInfo, cluster: Cluster, *, name: str, ephemeral: bool) -> str:
    """Return why a claim cannot be used, "" where it can."""
    claim = cluster.get(objects.PersistentVolumeClaim, f"{pod.namespace}/{name}")
    if claim is None and ephemeral:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found'
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if ephemeral and not made_for(claim, pod):
        return not_made_for(claim, pod)
    return ""


def _prepare(bound: Claims, delayed: Claims, cluster: Cluster) -> PodClaims:
    selected = [claim for claim in delayed if SELECTED_NODE in (claim.metadata.annotations or {})]
    matching = sorted((claim for claim in delayed if claim not in selected), key=size)
    return PodClaims(
        bound,
        selected,
        [
            (c, candidates(c, cluster.store.expected_group(objects.PersistentVolume, storage_class(c))))
            for c in matching
        ],
        [provisionable(claim, cluster) for claim in (*selected, *matching)],
    )


def _find(frame: Frame, state: PodClaims) -> _Findings:
    rows, nodes = frame.index(), frame.cluster.nodes
    out_of_reach, gone = _check_bound(frame, state.bound)
    no_volume, no_room = np.zeros(frame.size, np.bool_), np.zeros(frame.size, np.bool_)
    for claim in state.selected:
        no_volume |= rows != nodes.rows.get((claim.metadata.annotations or {})[SELECTED_NODE], -1)
    elsewhere = no_volume.copy()  # nothing more is asked about these nodes
    matches = Matches(nodes, rows)
    needed = [~elsewhere] * len(state.selected)
    needed += [~matches.choose(available) & ~elsewhere for _, available in state.matching]
    judged = elsewhere
    for need, where in zip(needed, state.provisionable, strict=True):
        not_allowed = need & ~judged & ~where.allowed[rows]
        no_volume |= not_allowed
        judged = judged | not_allowed
        full = need & ~judged & ~where.room[rows]
        no_room |= full
        judged = judged | full
    return _Findings(out_of_reach, no_volume, no_room, gone, matches)


def _check_bound(frame: Frame, claims: Claims) -> tuple[BoolArray, BoolArray]:
    """Return `bool[rows]` twice: where a bound volume is out of reach, and where one does not exist."""
    out_of_reach, gone = np.zeros(frame.size, np.bool_), np.zeros(frame.size, np.bool_)
    for claim in claims:
        volume = frame.cluster.store.expected(objects.PersistentVolume, claim.spec.volume_name)
        if volume is None:
            gone = ~out_of_reach
            break  # kube-scheduler looks no further
        out_of_reach |= ~_in_reach(volume, frame)
    return out_of_reach, gone


def _in_reach(volume: objects.PersistentVolume, frame: Frame) -> BoolArray:
    """Return `bool[rows]`: nodes that the volume's node affinity admits."""
    cluster = frame.cluster
    affinity = volume.spec.node_affinity
    result = _admitted(affinity.required if affinity is not None else None, frame)
    plugin = in_tree_plugin(volume.spec)
    if plugin is not None:
        moved = np.fromiter(
            (plugin.name in migrated_plugins(cluster.get(objects.CSINode, info.name)) for info in cluster.nodes.infos),
            np.bool_,
            cluster.nodes.size,
        )[frame.rows]
        # kube-scheduler ends the attempt where a volume cannot be translated; here only those nodes are out
        usable = volume_handle(plugin, volume.spec, volume.metadata.labels) is not None
        result = np.where(moved, _admitted(migrated_affinity(plugin, volume), frame) & usable, result)
    return result


def _admitted(required: objects.NodeSelector | None, frame: Frame) -> BoolArray:
    nodes = frame.cluster.nodes
    if required is None:
        return np.ones(frame.size, np.bool_)
    result = np.zeros(nodes.size, np.bool_)
    result[rows_of_volume(required, nodes)] = True
    return result[frame.rows]
