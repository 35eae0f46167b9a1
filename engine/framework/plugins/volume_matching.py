"""Volumes for claims that wait for their pod: those that exist, and those that can be provisioned.

Rules: `volume.FindMatchingVolume` and `checkVolumeProvisions` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from engine.cluster import objects
from engine.cluster.claims import requested_storage
from engine.cluster.cluster import Cluster
from engine.cluster.node_lookup import rows_matching, rows_of_topologies, rows_of_volume, single_label
from engine.cluster.nodes import BoolArray, IntArray, NodeTable
from engine.cluster.object_store import storage_class
from engine.cluster.quantity import units
from engine.cluster.selectors import SelectorError, label_selector

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Provisioner of storage classes whose volumes are made by hand."""
_NONE = -1
_FORGOTTEN = 64
"""Facts of volumes that are gone, kept beside as many as there are volumes."""


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


@dataclass(frozen=True, slots=True, eq=False)
class VolumeFacts:
    """What matching reads of one existing volume, worked out once."""

    volume: objects.PersistentVolume
    capacity: int
    """Bytes."""
    mode: str
    attributes_class: str
    access_modes: frozenset[str]
    available: bool
    local: tuple[str, str] | None
    """The one label and value that its node affinity asks for, such as a hostname; None for any other affinity."""


def volume_facts(cluster: Cluster, class_name: str) -> list[VolumeFacts]:
    """Return the volumes of a storage class, as they are assumed to be."""
    known: dict[str, VolumeFacts] = cluster.store.keep("volume-facts", None, dict)
    if len(known) > 2 * len(cluster.store.all(objects.PersistentVolume)) + _FORGOTTEN:
        known.clear()
    result = []
    for volume in cluster.store.expected_group(objects.PersistentVolume, class_name):
        facts = known.get(volume.metadata.name)
        if facts is None or facts.volume is not volume:
            facts = known[volume.metadata.name] = _facts(volume)
        result.append(facts)
    return result


def _facts(volume: objects.PersistentVolume) -> VolumeFacts:
    spec = volume.spec
    capacity = (spec.capacity or {}).get("storage")
    affinity = spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else None
    only = terms[0] if terms is not None and len(terms) == 1 and not terms[0].match_fields else None
    return VolumeFacts(
        volume,
        0 if capacity is None else units(capacity),
        spec.volume_mode or "Filesystem",
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes or ()),
        volume.status.phase == "Available",
        single_label(only.match_expressions) if only is not None else None,
    )


@dataclass(frozen=True, slots=True)
class Candidates:
    """Existing volumes that a claim could be bound to, node affinity apart."""

    reserved: VolumeFacts | None
    """A volume that is reserved for the claim: this one or none."""
    others: Sequence[VolumeFacts]
    """Smallest first."""


def candidates(claim: objects.PersistentVolumeClaim, volumes: Iterable[VolumeFacts]) -> Candidates:
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
    modes = frozenset(claim.spec.access_modes or ())
    found = []
    for facts in volumes:
        if facts.capacity < wanted or facts.mode != mode or facts.attributes_class != attributes:
            continue
        volume = facts.volume
        if volume.metadata.deletion_timestamp is not None:
            continue
        if volume.spec.claim_ref is not None:
            if bound_to(volume, claim):
                return Candidates(facts, ())
            continue
        if not facts.available or not modes <= facts.access_modes:
            continue
        if selector is None or selector.matches(volume.metadata.labels or {}):
            found.append(facts)
    return Candidates(None, sorted(found, key=lambda facts: (facts.capacity, facts.volume.metadata.name)))


class Matches:
    """Existing volumes for several claims on each node; no volume twice on one node."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._volumes: list[objects.PersistentVolume] = []
        self._numbers: dict[str, int] = {}
        self._chosen: list[IntArray] = []
        """Per claim, `int64[nodes]`: the number of the volume chosen there, -1 for none."""

    def choose(self, available: Candidates) -> BoolArray:
        """Choose for the next claim, on every node; return `bool[nodes]`: where there is a volume for it."""
        chosen = np.full(self._nodes.size, _NONE, np.int64)
        volumes = (available.reserved,) if available.reserved is not None else available.others
        for key, run in groupby(volumes, lambda facts: facts.local[0] if facts.local is not None else None):
            if key is None:
                for facts in run:
                    self._try(self._number(facts.volume), where=self._where(facts.volume), chosen=chosen)
                    if (chosen != _NONE).all():
                        break
            else:
                self._try_local(key, list(run), chosen)
        self._chosen.append(chosen)
        result: BoolArray = chosen != _NONE
        return result

    def volume(self, *, claim: int, row: int) -> objects.PersistentVolume | None:
        """Return what was chosen for a claim (by order of `choose`) on a node, or None."""
        number = int(self._chosen[claim][row])
        return None if number == _NONE else self._volumes[number]

    def _number(self, volume: objects.PersistentVolume) -> int:
        number = self._numbers.setdefault(volume.metadata.name, len(self._volumes))
        if number == len(self._volumes):
            self._volumes.append(volume)
        return number

    def _where(self, volume: objects.PersistentVolume) -> IntArray:
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return np.arange(self._nodes.size)
        return rows_of_volume(affinity.required, self._nodes)

    def _try(self, number: int | IntArray, *, where: IntArray, chosen: IntArray) -> None:
        """Take volumes (one, or one for each row) on the rows `where` that have none yet and do not use them."""
        numbers = np.broadcast_to(np.asarray(number), where.shape)
        free = (chosen[where] == _NONE) & (numbers != _NONE)
        for earlier in self._chosen:
            free &= earlier[where] != numbers
        chosen[where[free]] = numbers[free]

    def _try_local(self, key: str, volumes: Sequence[VolumeFacts], chosen: IntArray) -> None:
        """Try volumes that are each for one value of the same label, all at once.

        Of the volumes for one value the first is taken; if earlier claims have that one, then the next, and so on.
        """
        column = self._nodes.label(key)
        index = column.index
        codes = np.array([index.get(facts.local[1], _NONE) for facts in volumes if facts.local is not None], np.int64)
        numbers = np.array([self._number(facts.volume) for facts in volumes], np.int64)
        order = np.argsort(codes, kind="stable")
        values = np.arange(len(column.values))
        starts, ends = (np.searchsorted(codes[order], values, side=side) for side in ("left", "right"))
        rows = np.flatnonzero(column.codes >= 0)
        mine = column.codes[rows]
        for rank in range(len(self._chosen) + 1):
            position = starts + rank
            first = np.where(position < ends, numbers[order[np.minimum(position, len(order) - 1)]], _NONE)
            self._try(first[mine], where=rows, chosen=chosen)


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
    domains: dict[str, set[str]] = {}
    for capacity in cluster.store.group(objects.CSIStorageCapacity, found.metadata.name):
        limit = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
        if limit is None or units(limit) < wanted:
            continue
        topology = capacity.node_topology
        if topology is not None and not topology.match_expressions and len(topology.match_labels or ()) == 1:
            # by far the usual form, and there may be one object for each node
            [(key, value)] = (topology.match_labels or {}).items()
            domains.setdefault(key, set()).add(value)
            continue
        try:
            selector = label_selector(topology)
        except SelectorError:
            continue
        if selector is not None:
            result[rows_matching(selector.expressions, nodes)] = True
    for key, values in domains.items():
        result |= nodes.label(key).test(values.__contains__)
    return result
