"""What happens to a pod's volumes between its decision and its binding: Reserve, PreBind, and Unreserve.

    reservation = reserve(frame)                  # assumed in the cluster, at once
    for patch in patches(reservation): ...        # sent to the API server
        reservation = written(reservation, patch, resource_version=…)
    progress(reservation, cluster)                # called until Bound or Failed
    undo(reservation, cluster)                    # on any failure, also of other plugins

Rules: `volumeBinder` of kube-scheduler 1.36. Pure: the caller sends, waits and keeps the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.node_selectors import node_term
from kube_policy_scheduler.cluster.object_store import Assumable, OutOfSyncError, key_of, object_key
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.cluster.volumes.claims import SELECTED_NODE, claim_uses, fully_bound
from kube_policy_scheduler.cluster.volumes.csi_migration import in_tree_plugin, migrated_affinity, migrated_plugins
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Ready
from kube_policy_scheduler.framework.plugins.volume_binding import NodeVolumes, StaticBinding, VolumeBinding, volumes_on
from kube_policy_scheduler.framework.plugins.volume_matching import bound_to
from kube_policy_scheduler.framework.status import Status

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a volume that a component, not a person, bound to its claim: it may be unbound again."""
BIND_TIMEOUT_SECONDS = 600.0
"""How long kube-scheduler waits for claims to be bound (`bindTimeoutSeconds`)."""
POLL_SECONDS = 1.0
"""How often kube-scheduler checks that."""


class ApiPatch(msgspec.Struct, frozen=True):
    """A JSON merge patch; its `metadata.resourceVersion` makes the API server reject it if the object changed."""

    resource: str
    """`persistentvolumes` or `persistentvolumeclaims`"""
    namespace: str
    """"" for volumes, which have none."""
    name: str
    body: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Return `resource/namespace/name`, or `resource/name`."""
        return "/".join(part for part in (self.resource, self.namespace, self.name) if part)


class VolumeReservation(msgspec.Struct, frozen=True):
    """What was assumed for a pod's volumes on the node it is to run on."""

    pod: PodInfo
    node_name: str
    volumes: NodeVolumes = msgspec.field(default_factory=NodeVolumes)
    """With the volumes and claims as they are assumed to become."""
    resource_versions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Of the objects that were written, by `ApiPatch.key`."""

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to write and nothing to wait for."""
        return not self.volumes.bindings and not self.volumes.provisions


class Bound(msgspec.Struct, frozen=True):
    """All claims are bound: the pod can be bound too."""


class Waiting(msgspec.Struct, frozen=True):
    """Ask again later."""


class Failed(msgspec.Struct, frozen=True):
    """It cannot complete: undo it, and decide the pod again."""

    reason: str


Progress: TypeAlias = Bound | Waiting | Failed


def reserve(frame: Frame) -> VolumeReservation | str:
    """Assume the volumes of the frame's pod on the frame's only row; return why not, if it is impossible.

    The cluster's assumed objects change; if it is impossible, nothing changes.
    """
    row = int(frame.index()[0])
    name = frame.cluster.nodes.infos[row].name
    nothing = VolumeReservation(frame.pod, name)
    if _all_bound(frame):
        return nothing
    plugin = VolumeBinding()
    prepared = plugin.pre_filter(frame)
    if not isinstance(prepared, Ready):
        return ", ".join(prepared.reasons) if isinstance(prepared, Status) else nothing
    rejected = [r.reason for r in plugin.rejections(frame, prepared.state) if r.where[0]]
    if rejected:
        return ", ".join(rejected)
    found = volumes_on(row, prepared.state)
    assumed = NodeVolumes(
        tuple(StaticBinding(b.claim, _claimed(b.volume, b.claim)) for b in found.bindings),
        tuple(_selected(claim, name) for claim in found.provisions),
    )
    store = frame.cluster.store
    for each in found.bindings:
        if store.expected(objects.PersistentVolume, each.volume.metadata.name) is not each.volume:
            return f"persistentvolume {each.volume.metadata.name!r} is out of sync; decide again"
    changed: list[Assumable] = [*(b.volume for b in assumed.bindings), *assumed.provisions]
    done: list[Assumable] = []
    try:
        for thing in changed:
            store.assume(thing)
            done.append(thing)
    except OutOfSyncError as error:
        for thing in done:
            store.restore(thing)
        return str(error)
    return msgspec.structs.replace(nothing, volumes=assumed)


def _all_bound(frame: Frame) -> bool:
    for use in claim_uses(frame.pod):
        claim = frame.cluster.store.expected(objects.PersistentVolumeClaim, key_of(frame.pod.namespace, use.name))
        if claim is None or not fully_bound(claim):
            return False
    return True


def _claimed(volume: objects.PersistentVolume, claim: objects.PersistentVolumeClaim) -> objects.PersistentVolume:
    """Return a volume as it looks when it is bound to a claim (`GetBindVolumeToClaim`)."""
    metadata = volume.metadata
    if not bound_to(volume, claim):
        annotations = {BOUND_BY_CONTROLLER: "yes", **(metadata.annotations or {})}
        metadata = msgspec.structs.replace(metadata, annotations=annotations)
    reference = objects.ObjectReference(
        kind="PersistentVolumeClaim",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
    )
    spec = msgspec.structs.replace(volume.spec, claim_ref=reference)
    return msgspec.structs.replace(volume, metadata=metadata, spec=spec)


def _selected(claim: objects.PersistentVolumeClaim, node_name: str) -> objects.PersistentVolumeClaim:
    """Return a claim as it looks when a volume for it is to be provisioned for a node."""
    annotations = {**(claim.metadata.annotations or {}), SELECTED_NODE: node_name}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))


def undo(reservation: VolumeReservation, cluster: Cluster) -> None:
    """Take back what was assumed, except for objects that were written; doing it twice is harmless."""
    for patch, thing in _writes(reservation):
        if patch.key not in reservation.resource_versions:
            cluster.store.restore(thing)


def patches(reservation: VolumeReservation) -> Sequence[ApiPatch]:
    """Return what has to be written at PreBind, in order; the volume controllers do the rest."""
    return [patch for patch, _ in _writes(reservation)]


def _writes(
    reservation: VolumeReservation,
) -> list[tuple[ApiPatch, Assumable]]:
    return [
        *((_volume_patch(b), b.volume) for b in reservation.volumes.bindings),
        *((_claim_patch(claim, reservation.node_name), claim) for claim in reservation.volumes.provisions),
    ]


def _volume_patch(binding: StaticBinding) -> ApiPatch:
    volume, claim = binding.volume.metadata, binding.claim.metadata
    metadata: dict[str, Any] = {"resourceVersion": volume.resource_version}
    if BOUND_BY_CONTROLLER in (volume.annotations or {}):
        metadata["annotations"] = {BOUND_BY_CONTROLLER: (volume.annotations or {})[BOUND_BY_CONTROLLER]}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }
    return ApiPatch("persistentvolumes", "", volume.name, {"metadata": metadata, "spec": {"claimRef": reference}})


def _claim_patch(claim: objects.PersistentVolumeClaim, node_name: str) -> ApiPatch:
    metadata = claim.metadata
    body = {"metadata": {"resourceVersion": metadata.resource_version, "annotations": {SELECTED_NODE: node_name}}}
    return ApiPatch("persistentvolumeclaims", metadata.namespace, metadata.name, body)


def written(reservation: VolumeReservation, patch: ApiPatch, *, resource_version: str) -> VolumeReservation:
    """Return the reservation with the resource version that the API server answered one of its patches with."""
    versions = {**reservation.resource_versions, patch.key: resource_version}
    return msgspec.structs.replace(reservation, resource_versions=versions)


def progress(reservation: VolumeReservation, cluster: Cluster) -> Progress:
    """Return how far the controllers are, by what the watch has shown so far (`checkBindings`)."""
    info_row = cluster.nodes.rows.get(reservation.node_name)
    if info_row is None:
        return Failed(f'failed to get node "{reservation.node_name}": node "{reservation.node_name}" not found')
    claim_of = {b.volume.metadata.name: b.claim for b in reservation.volumes.bindings}
    for patch, thing in _writes(reservation):
        claim = thing if isinstance(thing, objects.PersistentVolumeClaim) else claim_of[thing.metadata.name]
        step = _step(patch, thing, claim, reservation=reservation, cluster=cluster)
        if not isinstance(step, Bound):
            return step
    return Bound()


def _step(
    patch: ApiPatch,
    thing: Assumable,
    claim: objects.PersistentVolumeClaim,
    *,
    reservation: VolumeReservation,
    cluster: Cluster,
) -> Progress:
    """Return how far one binding or provisioning is."""
    static = isinstance(thing, objects.PersistentVolume)
    key = object_key(claim.metadata)
    current = cluster.get(objects.PersistentVolumeClaim, key)
    if current is None:
        purpose = "binding" if static else "provisioning pvc"
        return Failed(f'failed to check {purpose}: persistentvolumeclaim "{claim.metadata.name}" not found')
    volume_name = thing.metadata.name if static else current.spec.volume_name
    volume = cluster.get(objects.PersistentVolume, volume_name) if volume_name else None
    if static and volume is None:
        return Failed(f'failed to check binding: persistentvolume "{volume_name}" not found')
    seen = volume if static else current
    if seen is not None and _older(seen.metadata, reservation.resource_versions.get(patch.key)):
        return Waiting()
    if not static:
        annotations = current.metadata.annotations
        if not annotations:
            return Failed(f'selectedNode annotation reset for PVC "{current.metadata.name}"')
        if annotations.get(SELECTED_NODE) != reservation.node_name:
            return Failed(f'provisioning failed for PVC "{current.metadata.name}"')
        if volume_name and volume is None:
            return Waiting()  # the volume's own event may arrive later than the claim's
    if volume is not None and not _reaches(volume, reservation.node_name, cluster):
        return Failed(
            f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{reservation.node_name}":'
            " no matching NodeSelectorTerms"
        )
    if static and volume is not None and (volume.spec.claim_ref is None or not volume.spec.claim_ref.uid):
        return Failed(f'ClaimRef got reset for pv "{volume.metadata.name}"')
    return Bound() if fully_bound(current) else Waiting()


def _older(seen: objects.ObjectMeta, written_version: str | None) -> bool:
    """Return whether the state in the cache is from before our own write."""
    seen_number, written_number = version_number(seen.resource_version), version_number(written_version or "")
    return 0 < seen_number < written_number


def _reaches(volume: objects.PersistentVolume, node_name: str, cluster: Cluster) -> bool:
    """Return whether the node has the labels that the volume's node affinity requires."""
    plugin = in_tree_plugin(volume.spec)
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    if plugin is not None and plugin.name in migrated_plugins(cluster.get(objects.CSINode, node_name)):
        required = migrated_affinity(plugin, volume)
    if required is None:
        return True
    labels = cluster.nodes.infos[cluster.nodes.rows[node_name]].labels
    terms = [node_term(term) for term in required.node_selector_terms or ()]
    return any(term is not None and all(e.matches(labels) for e in term.labels) for term in terms)
