"""Which CSI volumes are in use on which nodes, per driver, and how many fit there.

Kept up to date lazily: placements and storage objects leave marks, and the next reader resolves just those.
Rules: NodeVolumeLimits of kube-scheduler 1.36, but a volume that is attached already is no further one for the pod that
wants it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray, NodeTable
from kube_policy_scheduler.cluster.object_store import ObjectStore, key_of, object_key, storage_class
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.volumes.claims import claim_uses, made_for
from kube_policy_scheduler.cluster.volumes.csi_migration import in_tree_plugin, provisioning_driver, volume_handle

_MOST_DRIVERS = 64
"""Of which it is kept where they are not installed."""
NO_LIMIT = int(np.iinfo(np.int64).max)


class VolumeId(NamedTuple):
    """A volume as a CSI driver knows it; one that does not exist yet is identified by its claim."""

    driver: str
    handle: str


class FoundVolume(NamedTuple):
    """A volume, and how it is one of a CSI driver."""

    volume: VolumeId
    is_migrated: bool
    """It is of the in-tree plugin that the driver replaced: on nodes without a CSINode it is none of the driver."""


class PodVolumes(NamedTuple):
    """The CSI volumes of one pod, and what that depends on."""

    volumes: frozenset[VolumeId]
    migrated: frozenset[VolumeId]
    """Those of them that are volumes of in-tree plugins."""
    claims: tuple[str, ...]
    """Keys of the claims that were looked up."""
    persistent: tuple[str, ...]
    """Names of the persistent volumes that were looked up."""
    missing: str = ""
    """The name of a claim that does not exist."""
    stranger: objects.PersistentVolumeClaim | None = None
    """A claim with the name of one made for the pod, that was not."""


def csi_volumes(pod: PodInfo, store: ObjectStore) -> PodVolumes:
    """Return the CSI volumes of a pod; what cannot be resolved does not count.

    In-tree volumes count as volumes of the driver that replaced the plugin. kube-scheduler does this where the node
    has a CSINode; without one it has no limits either, so that the number is the same for all nodes.
    """
    volumes, migrated = set[VolumeId](), set[VolumeId]()
    claims, persistent, missing = [], [], ""
    stranger = None
    for use in claim_uses(pod):
        key = key_of(pod.namespace, use.name)
        claims.append(key)
        claim = store.get(objects.PersistentVolumeClaim, key)
        if claim is None:
            missing = missing or use.name
        elif use.ephemeral and not made_for(claim, pod):
            stranger = stranger or claim
        else:
            if claim.spec.volume_name:
                persistent.append(claim.spec.volume_name)
            found = _of_claim(claim, store)
            if found is not None:
                (migrated if found.is_migrated else volumes).add(found.volume)
    for volume in pod.volumes:
        if volume.persistent_volume_claim is None and volume.ephemeral is None:
            plugin = in_tree_plugin(volume)
            handle = volume_handle(plugin, volume, None) if plugin is not None else None
            if plugin is not None and handle is not None:
                migrated.add(VolumeId(plugin.driver, handle))
    return PodVolumes(
        frozenset(volumes | migrated), frozenset(migrated), tuple(claims), tuple(persistent), missing, stranger
    )


def _of_claim(claim: objects.PersistentVolumeClaim, store: ObjectStore) -> FoundVolume | None:
    volume = store.get(objects.PersistentVolume, claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _to_be_provisioned(claim, store)
    csi = volume.spec.csi
    if csi is not None:
        whole = csi.driver and csi.volume_handle
        return FoundVolume(VolumeId(csi.driver, csi.volume_handle), False) if whole else None
    plugin = in_tree_plugin(volume.spec)
    if plugin is None:
        return None
    handle = volume_handle(plugin, volume.spec, volume.metadata.labels)
    return FoundVolume(VolumeId(plugin.driver, handle), True) if handle else None


def _to_be_provisioned(claim: objects.PersistentVolumeClaim, store: ObjectStore) -> FoundVolume | None:
    name = storage_class(claim)
    found = store.get(objects.StorageClass, name) if name else None
    driver = provisioning_driver(found.provisioner) if found is not None else None
    if found is None or not driver:
        return None
    # no driver's handles begin with a NUL: the claim cannot be confused with a volume that exists
    return FoundVolume(VolumeId(driver, f"\0{object_key(claim.metadata)}"), driver != found.provisioner)


class _NodeUse:
    """Volumes in use on one node."""

    __slots__ = ("attached", "by_pod", "references")

    def __init__(self) -> None:
        self.by_pod: dict[str, tuple[PodInfo, PodVolumes]] = {}
        self.references: dict[VolumeId, int] = {}
        """By how many pods each volume is used."""
        self.attached: frozenset[VolumeId] = frozenset()
        """Volumes that a VolumeAttachment names."""

    def counts(self) -> dict[str, int]:
        """Return the number of distinct volumes by driver."""
        counts: dict[str, int] = defaultdict(int)
        for volume in self.references.keys() | self.attached:
            counts[volume.driver] += 1
        return counts


class AttachedVolumes:
    """Volumes in use by node; the cluster reports pods, the store storage objects."""

    def __init__(self, store: ObjectStore, nodes: NodeTable) -> None:
        self._store = store
        self._table = nodes
        self._pods: dict[str, dict[str, PodInfo]] = {}
        """Pods with volumes by node name and uid."""
        self._dirty: set[str] = set()
        """Names of nodes whose pods or attachments changed since the last time."""
        self._nodes: dict[str, _NodeUse] = {}
        self._where: dict[VolumeId, set[str]] = defaultdict(set)
        """Names of the nodes on which pods use a volume, or to which it is attached."""
        self._claim_pods: dict[str, dict[str, str]] = defaultdict(dict)
        """Node name by pod uid, by key of a claim that matters to the pod."""
        self._volume_pods: dict[str, dict[str, str]] = defaultdict(dict)
        self._volume_nodes: dict[str, set[str]] = defaultdict(set)
        """Names of nodes with an attachment of a persistent volume, by its name."""
        self._position = 0
        self._used: dict[str, IntArray] = {}
        self._rows_version = -1
        self._limits: dict[str, IntArray] = {}
        self._limits_version = (-1, -1)
        self._without: dict[tuple[str, bool], BoolArray] = {}
        self._without_version = (-1, -1)

    # --- called by the cluster -------------------------------------------------------------------------

    def place(self, pod: PodInfo, node_name: str) -> None:
        """Note a pod with volumes on a known node."""
        self._pods.setdefault(node_name, {})[pod.uid] = pod
        self._dirty.add(node_name)

    def displace(self, pod: PodInfo, node_name: str) -> None:
        """Note that a pod with volumes has left a known node."""
        there = self._pods[node_name]
        del there[pod.uid]
        if not there:
            del self._pods[node_name]
        self._dirty.add(node_name)

    # --- read by plugins ----------------------------------------------------------------------------

    def used(self, driver: str) -> IntArray:
        """Return `int64[nodes]`: distinct volumes of a driver in use, by pods or by attachments."""
        self._sync()
        column = self._used.get(driver)
        if column is None:
            column = self._used[driver] = np.zeros(self._table.size, np.int64)
            for name, use in self._nodes.items():
                row = self._table.rows.get(name)
                if row is not None:
                    column[row] = use.counts().get(driver, 0)
        return column

    def limit(self, driver: str) -> IntArray | None:
        """Return `int64[nodes]`: how many volumes of a driver fit, `NO_LIMIT` where any; None if no node has one."""
        version = self._nodes_version()
        if self._limits_version != version:
            self._limits_version = version
            self._limits = {}
            for info in self._table.infos:
                node = self._store.get(objects.CSINode, info.name)
                for entry in (node.spec.drivers if node is not None else None) or ():
                    if entry.allocatable is not None and entry.allocatable.count is not None:
                        column = self._limits.get(entry.name)
                        if column is None:
                            column = self._limits[entry.name] = np.full(self._table.size, NO_LIMIT, np.int64)
                        column[info.row] = entry.allocatable.count
        return self._limits.get(driver)

    def without(self, driver: str, *, is_migrated: bool) -> BoolArray:
        """Return `bool[nodes]`: where a driver is not installed; is_migrated: of the nodes that have a CSINode."""
        version, key = self._nodes_version(), (driver, is_migrated)
        known = self._without.get(key)
        if known is None or self._without_version != version:
            if self._without_version != version or len(self._without) >= _MOST_DRIVERS:
                self._without, self._without_version = {}, version
            known = self._without[key] = np.zeros(self._table.size, np.bool_)
            for info in self._table.infos:
                node = self._store.get(objects.CSINode, info.name)
                if node is None:
                    known[info.row] = not is_migrated
                else:
                    known[info.row] = all(entry.name != driver for entry in node.spec.drivers or ())
        return known

    def _nodes_version(self) -> tuple[int, int]:
        return self._store.version(objects.CSINode), self._table.version

    def rows_with(self, volume: VolumeId) -> list[int]:
        """Return the rows of the nodes on which pods use a volume, or to which it is attached: it counts there."""
        self._sync()
        names = self._where.get(volume, ())
        return [row for name in names if (row := self._table.rows.get(name)) is not None]

    # --- catching up ---------------------------------------------------------------------------------

    def _sync(self) -> None:
        if self._rows_version != self._table.version:
            self._rows_version = self._table.version
            self._used = {}
        if self._position != self._store.journal_end:
            self._read_journal()
        if self._dirty:
            dirty, self._dirty = self._dirty, set()
            for name in dirty:
                self._resolve_node(name)

    def _read_journal(self) -> None:
        changes = self._store.changed_since(self._position)
        self._position = self._store.journal_end
        if changes is None or any(isinstance(thing, objects.StorageClass) for thing in changes):
            self._start_over()
            return
        for thing in changes:
            match thing:
                case objects.PersistentVolumeClaim():
                    self._forget(self._claim_pods.get(object_key(thing.metadata), {}))
                case objects.PersistentVolume():
                    self._forget(self._volume_pods.get(thing.metadata.name, {}))
                    self._dirty |= self._volume_nodes.get(thing.metadata.name, set())
                case objects.VolumeAttachment():
                    self._dirty.add(thing.spec.node_name)
                    self._forget_attachment(thing)

    def _start_over(self) -> None:
        self._nodes, self._used = {}, {}
        for index in (self._where, self._claim_pods, self._volume_pods, self._volume_nodes):
            index.clear()
        attached = {a.spec.node_name for a in self._store.all(objects.VolumeAttachment)}
        self._dirty |= self._pods.keys() | attached

    def _forget(self, pods: dict[str, str]) -> None:
        """Mark pods, given as node name by uid, to be resolved again."""
        for uid, name in list(pods.items()):
            self._dirty.add(name)
            use = self._nodes.get(name)
            if use is not None and uid in use.by_pod:
                self._drop(use, name, uid)

    def _forget_attachment(self, attachment: objects.VolumeAttachment) -> None:
        """Forget the volume of an attachment; if it still exists, look it up again."""
        persistent = attachment.spec.source.persistent_volume_name or ""
        names = self._volume_nodes.get(persistent)
        if names is not None:
            names.discard(attachment.spec.node_name)
            if not names:
                del self._volume_nodes[persistent]

    def _resolve_node(self, name: str) -> None:
        use = self._nodes.setdefault(name, _NodeUse())
        wanted = self._pods.get(name, {})
        for uid in [uid for uid, (pod, _) in use.by_pod.items() if wanted.get(uid) is not pod]:
            self._drop(use, name, uid)
        for uid, pod in wanted.items():
            if uid not in use.by_pod:
                self._add(use, name, pod)
        before, use.attached = use.attached, frozenset(self._attachments(name))
        for volume in use.attached - before:
            self._where[volume].add(name)
        for volume in before - use.attached:
            self._leave(use, name, volume)
        after = use.counts()
        row = self._table.rows.get(name)
        if row is not None:
            for driver, column in self._used.items():
                column[row] = after.get(driver, 0)
        if not wanted and not use.attached:
            del self._nodes[name]

    def _add(self, use: _NodeUse, name: str, pod: PodInfo) -> None:
        volumes = csi_volumes(pod, self._store)
        use.by_pod[pod.uid] = (pod, volumes)
        for volume in volumes.volumes:
            use.references[volume] = use.references.get(volume, 0) + 1
            self._where[volume].add(name)
        for key in volumes.claims:
            self._claim_pods[key][pod.uid] = name
        for persistent in volumes.persistent:
            self._volume_pods[persistent][pod.uid] = name

    def _drop(self, use: _NodeUse, name: str, uid: str) -> None:
        _, volumes = use.by_pod.pop(uid)
        for volume in volumes.volumes:
            use.references[volume] -= 1
            if not use.references[volume]:
                del use.references[volume]
                self._leave(use, name, volume)
        for index, keys in ((self._claim_pods, volumes.claims), (self._volume_pods, volumes.persistent)):
            for key in keys:
                if index[key].get(uid) == name:
                    del index[key][uid]
                if not index[key]:
                    del index[key]

    def _leave(self, use: _NodeUse, name: str, volume: VolumeId) -> None:
        """Note that a node may have a volume no longer: no pod uses it there, or it is not attached any more."""
        if volume not in use.references and volume not in use.attached:
            self._where[volume].discard(name)
            if not self._where[volume]:
                del self._where[volume]

    def _attachments(self, name: str) -> Iterator[VolumeId]:
        for attachment in self._store.group(objects.VolumeAttachment, name):
            persistent = attachment.spec.source.persistent_volume_name
            if not attachment.spec.attacher or persistent is None:
                continue
            self._volume_nodes[persistent].add(name)
            volume = self._store.get(objects.PersistentVolume, persistent)
            if volume is not None and volume.spec.csi is not None:
                yield VolumeId(attachment.spec.attacher, volume.spec.csi.volume_handle)
