"""VolumeBinding: a pod's claims are bound to volumes that its node can reach, or can be bound there.

The filter finds, node by node, which existing volumes claims would be bound to and for which claims volumes
would be provisioned; `volumes_on` gives that for the chosen node, and `framework.volume_reservation`
acts on it. The score follows from the same (gate StorageCapacityScoring).
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Hashable, Iterator, Sequence
from functools import partial

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.kept_views import KeptView, Stamped
from kube_policy_scheduler.cluster.node_lookup import has_many_terms, make_rows_of_volume, rows_of_volume
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.cluster.object_store import key_of, storage_class
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.search_work import search_work
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.cluster.volumes.claims import (
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    claim_uses,
    fully_bound,
    made_for,
    not_made_for,
    requested_storage,
    too_many_volumes,
)
from kube_policy_scheduler.cluster.volumes.csi_migration import (
    in_tree_plugin,
    migrated_affinity,
    migrated_plugins,
    volume_handle,
)
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import (
    SKIP,
    Default,
    FilterPlugin,
    PreFilterResult,
    Reads,
    Ready,
    ScorePlugin,
    Skip,
)
from kube_policy_scheduler.framework.plugins.base import same_for_all
from kube_policy_scheduler.framework.plugins.storage_scores import MOST_ROOM, ClassUse, Shape, plus, scores
from kube_policy_scheduler.framework.plugins.volume_matching import (
    Matches,
    candidates,
    class_volumes,
    provisionable,
    read_ahead,
    size,
)
from kube_policy_scheduler.framework.status import Code, Rejection, Status
from kube_policy_scheduler.kubernetes_rules import Feature
from kube_policy_scheduler.quantities.quantity import MAX_INT64

OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

_READ = (
    objects.PersistentVolume,
    objects.PersistentVolumeClaim,
    objects.StorageClass,
    objects.CSINode,
    objects.CSIDriver,
    objects.CSIStorageCapacity,
)
"""What the verdicts depend on, besides the pod and the nodes' labels."""

_VOLUMES_AT_ONCE = 131_072
"""That are looked at for claims before other work gets its turn: 4 ms with local volumes. The attempt begins again with
each turn, so these are as few as can be."""
_VOLUMES_A_CLAIM = 256
"""What a claim costs without any volume, as so many."""
_MOST_PLUGINS = 16
"""Kinds of volumes that drivers took over; there are fewer."""
_MOST_RESTARTS = 8

Claims = Sequence[objects.PersistentVolumeClaim]


class StaticBinding(msgspec.Struct, frozen=True):
    """A claim and the existing volume to bind it to."""

    claim: objects.PersistentVolumeClaim
    volume: objects.PersistentVolume


class NodeVolumes(msgspec.Struct, frozen=True):
    """The changes to a pod's claims that are needed before it can run on one node."""

    bindings: tuple[StaticBinding, ...] = ()
    provisions: tuple[objects.PersistentVolumeClaim, ...] = ()
    """Claims for which to provision volumes."""


class VolumeClaims(msgspec.Struct, frozen=True):
    """A pod's claims, by their state, and what rejects each node: `bool[nodes]` each."""

    bound: Claims
    selected: Claims
    """Unbound, and a node was selected for them before."""
    matching: Claims
    """Unbound, smallest first; existing volumes may match them."""
    matches: Matches
    """The existing volumes for `matching`."""
    out_of_reach: BoolArray
    gone: BoolArray
    no_volume: BoolArray
    no_room: BoolArray


class VolumeBinding(FilterPlugin, ScorePlugin, msgspec.Struct, frozen=True):
    """Rejects nodes from which the pod's volumes cannot be reached or provisioned, and scores by the storage used."""

    shape: Shape = MOST_ROOM
    """The line that scores follow."""

    name = "VolumeBinding"
    default = Default(9, weight=1, needed_by_kubelet=True)
    reads = Reads.SPEC | Reads.VOLUMES | Reads.ELSEWHERE
    events = frozenset({ClusterEvent.STORAGE, ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL})

    def may_filter(self, template: PodTemplate) -> bool:
        """Return False: pods without volumes are skipped."""
        return False

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Sort the claims; reject the pod if one is missing, lost, being deleted, or should be bound but is not."""
        pod, cluster = frame.pod, frame.cluster
        uses = list(claim_uses(pod)) if pod.volumes else []
        if not uses:
            return SKIP
        if problem := too_many_volumes(pod):
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (problem,))
        for use in uses:
            problem = _problem(pod, cluster, name=use.name, ephemeral=use.ephemeral)
            if problem:
                return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (problem,))
        bound: list[objects.PersistentVolumeClaim] = []
        delayed: list[objects.PersistentVolumeClaim] = []
        immediate = False
        for use in uses:
            claim = cluster.store.expected(objects.PersistentVolumeClaim, key_of(pod.namespace, use.name))
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
        # kept, because it is used again within a decision: at Reserve, and row by row at preemption
        stamp = (pod.namespace, tuple(uses), cluster.nodes.version, cluster.store.versions(_READ))
        key = self.name, pod.namespace, tuple(uses)
        return Ready(cluster.store.keep(self.name, stamp, lambda: _judged(key, bound, delayed, cluster)))

    def filter(self, frame: Frame, state: VolumeClaims) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        against: BoolArray = state.out_of_reach | state.no_volume | state.no_room | state.gone
        return ~against[frame.rows]

    def rejections(self, frame: Frame, state: VolumeClaims) -> Sequence[Rejection]:
        """Return why nodes are rejected; bound and unbound claims can both reject one."""
        return [
            Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reason, where[frame.rows])
            for reason, where in (
                (OUT_OF_REACH, state.out_of_reach),
                (NO_VOLUME, state.no_volume),
                (NO_ROOM, state.no_room),
                (VOLUME_GONE, state.gone),
            )
        ]

    # --- Score ---------------------------------------------------------------------------------------

    def may_score(self, template: PodTemplate) -> bool:
        """Return False: pods without volumes get 0 on every node."""
        return False

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Skip all pods where Kubernetes does not score by storage; those without claims to bind get 0."""
        if Feature.STORAGE_CAPACITY_SCORING not in frame.cluster.rules:
            return SKIP
        prepared = self.pre_filter(frame)
        state = prepared.state if isinstance(prepared, Ready) else None
        return Ready(state, adds=state is not None and bool(state.matching or state.selected))

    def score(self, frame: Frame, state: VolumeClaims | None) -> IntArray:
        """Return `int64[rows]`, 0 to 100: what the storage classes of the claims are used for, along the shape."""
        if state is None or not (state.matching or state.selected):
            return same_for_all(0, frame.size)
        return _storage_scores(self.shape, state, frame.cluster)[frame.rows]


def _storage_scores(shape: Shape, state: VolumeClaims, cluster: Cluster) -> IntArray:
    """Return `int64[nodes]`: by existing volumes where any claim would get one, else by the storage for new ones."""
    size_of, nobody = cluster.nodes.size, np.zeros(cluster.nodes.size, np.bool_)
    bound, bound_where, any_bound = dict[str, ClassUse](), dict[str, BoolArray](), nobody
    for position, claim in enumerate(state.matching):
        volumes = state.matches.capacities(claim=position)
        has_one, name = volumes >= 0, storage_class(claim)
        if has_one.any():
            before = bound.get(name, ClassUse(0, np.zeros(size_of, np.int64)))
            requested = plus(before.requested, np.where(has_one, size(claim), 0))
            bound[name] = ClassUse(requested, plus(before.capacity, np.where(has_one, volumes, 0)))
            bound_where[name] = bound_where.get(name, nobody) | has_one
            any_bound = any_bound | has_one
    uses = [(use, bound_where[name]) for name, use in bound.items()]
    provisioned: dict[str, int] = {}
    for claim in (*state.selected, *state.matching):
        if requested_storage(claim) is not None:
            name = storage_class(claim)
            provisioned[name] = min(provisioned.get(name, 0) + size(claim), MAX_INT64)
    for name, total in provisioned.items():
        where = provisionable(name, cluster)
        if where.most is not None and where.capacity is not None:
            uses.append((ClassUse(total, where.capacity), ~any_bound))
    return scores(shape, uses, size_of)


def _read_ahead(bound: Claims, delayed: Claims, cluster: Cluster) -> None:
    """Read what drivers wrote about the volumes of claims, in turns where it is very much.

    Raises:
        OutOfTurn: the turn of the attempt that is under way is over.
    """
    work = search_work(cluster.store)
    volumes = [cluster.store.expected(objects.PersistentVolume, claim.spec.volume_name) for claim in bound]
    for name in dict.fromkeys(map(storage_class, delayed)):
        work.in_turns(partial(read_ahead, name, cluster))
        volumes += cluster.store.expected_group(objects.PersistentVolume, name)
    for required in [each.spec.node_affinity.required for each in volumes if each and each.spec.node_affinity]:
        if required is not None and has_many_terms(required):
            work.in_turns(partial(make_rows_of_volume, required, cluster.nodes))


def volumes_on(row: int, state: VolumeClaims) -> NodeVolumes:
    """Return the changes to the claims for one node, which passed the filter."""
    bindings, provisions = [], list(state.selected)
    for position, claim in enumerate(state.matching):
        volume = state.matches.volume(claim=position, row=row)
        if volume is None:
            provisions.append(claim)
        else:
            bindings.append(StaticBinding(claim, volume))
    return NodeVolumes(tuple(bindings), tuple(provisions))


def _problem(pod: PodInfo, cluster: Cluster, *, name: str, ephemeral: bool) -> str:
    """Return why a claim cannot be used, "" if it can."""
    claim = cluster.get(objects.PersistentVolumeClaim, key_of(pod.namespace, name))
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


def _judged(key: Hashable, bound: Claims, delayed: Claims, cluster: Cluster) -> VolumeClaims:
    """Evaluate all nodes; in turns where there are very many claims, volumes, or terms of volumes.

    Volumes and claims that changed since it began are found out when they are reserved.

    Raises:
        OutOfTurn: the turn of the attempt that is under way is over.
    """
    _read_ahead(bound, delayed, cluster)
    nodes, found = cluster.nodes, cluster.store.keep("judged", None, dict[Hashable, VolumeClaims])

    def judging() -> Iterator[None]:
        for _ in range(_MOST_RESTARTS):
            version = nodes.version
            steps, done = _judge(bound, delayed, cluster), 0
            while True:
                try:
                    done += next(steps)
                except StopIteration as end:
                    found[key] = end.value
                    return
                if done >= _VOLUMES_AT_ONCE:
                    done = 0
                    yield
                    if nodes.version != version:
                        break

    search_work(cluster.store).in_turns(partial(nodes.under_way.go_on, key, judging))
    return found.pop(key, None) or now(_judge(bound, delayed, cluster))


def _judge(bound: Claims, delayed: Claims, cluster: Cluster) -> Generator[int, None, VolumeClaims]:
    """Evaluate all nodes; yields after each claim how many volumes it cost."""
    nodes = cluster.nodes
    selected = [claim for claim in delayed if _selected_node(claim) is not None]
    matching = sorted((claim for claim in delayed if _selected_node(claim) is None), key=size)
    out_of_reach, gone = _check_bound(bound, cluster)
    elsewhere = np.zeros(nodes.size, np.bool_)  # these nodes need no further check
    for claim in selected:
        here = np.zeros(nodes.size, np.bool_)
        row = nodes.rows.get(_selected_node(claim) or "")
        if row is not None:
            here[row] = True
        elsewhere |= ~here
    matches = Matches(nodes)
    judged, no_volume, no_room = elsewhere, elsewhere.copy(), np.zeros(nodes.size, np.bool_)
    # the choice ignores earlier verdicts: a choice on a node that is already rejected has no effect
    chosen = []
    for claim in matching:
        available = candidates(claim, class_volumes(cluster, storage_class(claim)))
        chosen.append(matches.choose(available))
        yield _VOLUMES_A_CLAIM + len(available.fitting)
    missing = ((claim, None) for claim in selected), zip(matching, chosen, strict=True)
    provisioned: set[tuple[str, int, bool]] = set()
    for claim, found in itertools.chain(*missing):
        if found is None or not found.any():  # another claim of the kind, for all nodes, has the same answer
            kind = storage_class(claim), size(claim), requested_storage(claim) is None
            if kind in provisioned:
                continue
            provisioned.add(kind)
        need = ~elsewhere if found is None else ~found & ~elsewhere
        if not need.any():
            continue
        where = provisionable(storage_class(claim), cluster)
        not_allowed = need & ~judged & ~where.allowed
        no_volume |= not_allowed
        judged = judged | not_allowed
        full = need & ~judged & ~where.room(claim)
        no_room |= full
        judged = judged | full
    return VolumeClaims(bound, selected, matching, matches, out_of_reach, gone, no_volume, no_room)


def _selected_node(claim: objects.PersistentVolumeClaim) -> str | None:
    """Return the node for which a volume for the claim is provisioned, None if none was selected."""
    return (claim.metadata.annotations or {}).get(SELECTED_NODE)


def _check_bound(claims: Claims, cluster: Cluster) -> tuple[BoolArray, BoolArray]:
    """Return `bool[nodes]` twice: where a bound volume is out of reach, and where one does not exist."""
    out_of_reach, gone = np.zeros(cluster.nodes.size, np.bool_), np.zeros(cluster.nodes.size, np.bool_)
    for claim in claims:
        volume = cluster.store.expected(objects.PersistentVolume, claim.spec.volume_name)
        if volume is None:
            gone = ~out_of_reach
            break  # kube-scheduler stops here
        out_of_reach |= ~_in_reach(volume, cluster)
    return out_of_reach, gone


def _in_reach(volume: objects.PersistentVolume, cluster: Cluster) -> BoolArray:
    """Return `bool[nodes]`: nodes that the volume's node affinity admits."""
    affinity = volume.spec.node_affinity
    result = _admitted(affinity.required if affinity is not None else None, cluster)
    plugin = in_tree_plugin(volume.spec)
    if plugin is not None:
        # kube-scheduler ends the attempt if a volume cannot be translated; here only those nodes are rejected
        usable = volume_handle(plugin, volume.spec, volume.metadata.labels) is not None
        translated = _admitted(migrated_affinity(plugin, volume), cluster) & usable
        result = np.where(_migrated(plugin.name, cluster), translated, result)
    return result


def _migrated(plugin: str, cluster: Cluster) -> BoolArray:
    """Return `bool[nodes]`: the nodes on which an in-tree plugin is migrated."""
    nodes, store = cluster.nodes, cluster.store

    def look() -> BoolArray:
        found = (plugin in migrated_plugins(store.get(objects.CSINode, info.name)) for info in nodes.infos)
        return np.fromiter(found, np.bool_, nodes.size)

    kept: KeptView[str, Stamped[BoolArray]] = cluster.view("migrated plugins", most=_MOST_PLUGINS)
    return kept.current(plugin, (store.version(objects.CSINode), nodes.version), look)


def _admitted(required: objects.NodeSelector | None, cluster: Cluster) -> BoolArray:
    if required is None:
        return np.ones(cluster.nodes.size, np.bool_)
    result = np.zeros(cluster.nodes.size, np.bool_)
    result[rows_of_volume(required, cluster.nodes)] = True
    return result
