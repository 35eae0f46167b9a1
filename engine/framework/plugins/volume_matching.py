"""Volumes for claims that wait for their pod: those that exist, and those that can be provisioned.

Rules: `volume.FindMatchingVolume` and `checkVolumeProvisions` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.cluster import objects
from engine.cluster.claims import requested_storage
from engine.cluster.cluster import Cluster
from engine.cluster.node_lookup import rows_matching, rows_of_topologies, rows_of_volume
from engine.cluster.nodes import BoolArray, IntArray, NodeTable
from engine.cluster.object_store import storage_class
from engine.cluster.quantity import units
from engine.cluster.selectors import SelectorError, label_selector

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Provisioner of storage classes whose volumes are made by hand."""
_NONE = -1


def size(claim: objects.PersistentVolumeClaim) -> int:
    """Return the bytes that a claim asks for; 0 where it asks for none."""
    requested = requested_storage(claim)
    return 0 if requested is None else units(requested)


def bound_to(volume: objects.PersistentVolume, claim: objects.PersistentVolumeClaim) -> bool:
    """Return whether a volume is reserved for a claim: by name and, if it says so, by uid."""
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and reference.name == claim.metadata.name
        and reference.namespace == claim.metadata.namespace
        and reference.uid in ("", claim.metadata.uid)
    )


@dataclass(frozen=True, slots=True)
class Candidates:
    """Existing volumes that a claim could be bound to, node affinity apart."""

    reserved: objects.PersistentVolume | None
    """A volume that is reserved for the claim: this one or none."""
    others: Sequence[objects.PersistentVolume]
    """Smallest first."""


def candidates(claim: objects.PersistentVolumeClaim, volumes: Iterable[objects.PersistentVolume]) -> Candidates:
    """Return what the claim could be bound to; among volumes of one size the name decides.

    kube-scheduler takes any of them there, in the random order of a map.
    """
    wanted = size(claim)
    mode = claim.spec.volume_mode or "Filesystem"
    attributes = claim.spec.volume_attributes_class_name or ""
    try:
        selector = label_selector(claim.spec.selector)
    except SelectorError:
        return Candidates(None, ())
    modes = set(claim.spec.access_modes or ())
    found = []
    for volume in volumes:
        spec = volume.spec
        reserved = spec.claim_ref is not None
        if reserved and not bound_to(volume, claim):
            continue
        if _capacity(volume) < wanted or (spec.volume_mode or "Filesystem") != mode:
            continue
        if (spec.volume_attributes_class_name or "") != attributes:
            continue
        if volume.metadata.deletion_timestamp is not None:
            continue
        if reserved:
            return Candidates(volume, ())
        if volume.status.phase != "Available" or not modes <= set(spec.access_modes or ()):
            continue
        if claim.spec.selector is None or (selector is not None and selector.matches(volume.metadata.labels or {})):
            found.append(volume)
    return Candidates(None, sorted(found, key=lambda v: (_capacity(v), v.metadata.name)))


def _capacity(volume: objects.PersistentVolume) -> int:
    capacity = (volume.spec.capacity or {}).get("storage")
    return 0 if capacity is None else units(capacity)


class Matches:
    """Existing volumes for several claims on each of some rows; no volume twice on one row."""

    def __init__(self, nodes: NodeTable, rows: IntArray) -> None:
        self._nodes = nodes
        self._size = len(rows)
        self._position = np.full(nodes.size, _NONE, np.int64)
        """`int64[nodes]`: the position in `rows`; -1 where a node is not among them."""
        self._position[rows] = np.arange(len(rows))
        self._volumes: list[objects.PersistentVolume] = []
        self._numbers: dict[str, int] = {}
        self._chosen: list[IntArray] = []

    def choose(self, available: Candidates) -> BoolArray:
        """Choose for the next claim, on every row; return `bool[rows]`: where there is a volume for it."""
        chosen = np.full(self._size, _NONE, np.int64)
        left = self._size
        for volume in (available.reserved,) if available.reserved is not None else available.others:
            number = self._numbers.setdefault(volume.metadata.name, len(self._volumes))
            if number == len(self._volumes):
                self._volumes.append(volume)
            where = self._where(volume)
            where = where[chosen[where] == _NONE]
            for earlier in self._chosen:
                where = where[earlier[where] != number]
            chosen[where] = number
            left -= len(where)
            if not left:
                break
        self._chosen.append(chosen)
        result: BoolArray = chosen != _NONE
        return result

    def volume(self, *, claim: int, position: int) -> objects.PersistentVolume | None:
        """Return what was chosen for a claim (by order of `choose`) on a row (by position), or None."""
        number = int(self._chosen[claim][position])
        return None if number == _NONE else self._volumes[number]

    def _where(self, volume: objects.PersistentVolume) -> IntArray:
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return np.arange(self._size)
        found = self._position[rows_of_volume(affinity.required, self._nodes)]
        result: IntArray = found[found != _NONE]
        return result


@dataclass(frozen=True, slots=True)
class Provisionable:
    """Where a volume for a claim can be provisioned."""

    allowed: BoolArray
    """`bool[nodes]`: by the storage class."""
    room: BoolArray
    """`bool[nodes]`: by the capacity that the driver reports."""


def provisionable(claim: objects.PersistentVolumeClaim, cluster: Cluster) -> Provisionable:
    """Return where a volume for a claim could be made."""
    nodes = cluster.nodes
    found = cluster.get(objects.StorageClass, storage_class(claim))
    if found is None or found.provisioner in ("", _NO_PROVISIONER):
        return Provisionable(np.zeros(nodes.size, np.bool_), np.ones(nodes.size, np.bool_))
    allowed = np.zeros(nodes.size, np.bool_)
    allowed[rows_of_topologies(found.allowed_topologies or (), nodes)] = True
    return Provisionable(allowed, _room(claim, found, cluster))


def _room(claim: objects.PersistentVolumeClaim, found: objects.StorageClass, cluster: Cluster) -> BoolArray:
    nodes = cluster.nodes
    driver = cluster.get(objects.CSIDriver, found.provisioner)
    if requested_storage(claim) is None or driver is None or not driver.spec.storage_capacity:
        return np.ones(nodes.size, np.bool_)
    result = np.zeros(nodes.size, np.bool_)
    wanted = size(claim)
    for capacity in cluster.store.group(objects.CSIStorageCapacity, found.metadata.name):
        limit = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
        if limit is None or units(limit) < wanted:
            continue
        try:
            selector = label_selector(capacity.node_topology)
        except SelectorError:
            continue
        if selector is not None:
            result[rows_matching(selector.expressions, nodes)] = True
    return result
