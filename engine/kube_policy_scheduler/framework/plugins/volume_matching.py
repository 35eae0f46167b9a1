"""Volumes for claims that wait for their pod: those that exist, and those that can be provisioned.

Rules: `volume.FindMatchingVolume` and `checkVolumeProvisions` of Kubernetes 1.36. A pod may have thousands of claims,
and a class tens of thousands of volumes: volumes are read as columns, and a taken one is not visited again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.kept_views import KeptView, Stamped
from kube_policy_scheduler.cluster.node_lookup import (
    relevant,
    rows_matching,
    rows_of_topologies,
    rows_of_volume,
    single_label,
)
from kube_policy_scheduler.cluster.nodes import BoolArray, CodeArray, IntArray, NodeTable
from kube_policy_scheduler.cluster.object_store import ObjectStore, key_of, object_key
from kube_policy_scheduler.cluster.selectors import Expression, Selector, SelectorError, label_selector
from kube_policy_scheduler.cluster.static_columns import CodedColumn
from kube_policy_scheduler.cluster.steps import every
from kube_policy_scheduler.cluster.volumes.claims import requested_storage
from kube_policy_scheduler.quantities.quantity import units

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Provisioner of storage classes whose volumes are created manually."""
_NONE = -1
_MOST_CLASSES = 1024
_READ_AT_ONCE = 256
"""Volumes and capacities that are read before other work gets its turn: 3 to 5 ms."""
_FORGOTTEN = 64
"""Stale facts, of deleted volumes, that are kept in addition to an equal number of live ones."""


def size(claim: objects.PersistentVolumeClaim) -> int:
    """Return the bytes that a claim requests; 0 if it requests none."""
    requested = requested_storage(claim)
    return 0 if requested is None else units(requested)


def bound_to(volume: objects.PersistentVolume, claim: objects.PersistentVolumeClaim) -> bool:
    """Return whether a volume is reserved for a claim: by name and, if it gives one, by uid."""
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and reference.name == claim.metadata.name
        and reference.namespace == claim.metadata.namespace
        and reference.uid in ("", claim.metadata.uid)
    )


class VolumePlace(NamedTuple):
    """The nodes from which volumes can be used, by what they have in common."""

    local: str = ""
    """The label whose one value a volume's node affinity requires, such as a hostname; "" for any other affinity."""
    affinity: bytes = b""
    """Any other affinity: volumes where it is equal can be used from the same nodes."""


class VolumeFacts(msgspec.Struct, frozen=True, eq=False):
    """What matching reads of one existing volume, computed once."""

    volume: objects.PersistentVolume
    capacity: int
    """Bytes."""
    mode: str
    attributes_class: str
    access_modes: frozenset[str]
    available: bool
    place: VolumePlace
    value: str = ""
    """Of the label that its place names."""


def class_volumes(cluster: Cluster, class_name: str) -> ClassVolumes:
    """Return the volumes of a storage class, as they are assumed to be; rebuilt when a volume changes."""
    store = cluster.store

    def make() -> ClassVolumes:
        read = _read_by(store, objects.PersistentVolume, _facts)
        return ClassVolumes([read(each) for each in store.expected_group(objects.PersistentVolume, class_name)])

    kept: KeptView[str, Stamped[ClassVolumes]] = cluster.view("volumes of classes", most=_MOST_CLASSES)
    return kept.current(class_name, store.version(objects.PersistentVolume), make)


def read_ahead(class_name: str, cluster: Cluster) -> bool:
    """Read a part of the volumes and capacities of a storage class; return whether all are read, and kept."""
    store, under_way = cluster.store, cluster.nodes.under_way
    versions = (
        store.group_version(objects.PersistentVolume, class_name),
        store.group_version(objects.CSIStorageCapacity, class_name),
    )
    known: dict[str, tuple[int, int]] = store.keep("read-ahead", None, dict)
    if known.get(class_name) == versions:
        return True
    if not under_way.go_on(("storage class", class_name), lambda: every(_READ_AT_ONCE, _reading(class_name, store))):
        return False
    if len(known) >= _MOST_CLASSES:
        known.clear()
    known[class_name] = versions
    return True


def _reading(class_name: str, store: ObjectStore) -> Iterator[None]:
    facts = _read_by(store, objects.PersistentVolume, _facts)
    for volume in list(store.expected_group(objects.PersistentVolume, class_name)):
        if not facts.knows(volume):
            facts(volume)
            yield
    rooms = _read_by(store, objects.CSIStorageCapacity, _room)
    for capacity in list(store.group(objects.CSIStorageCapacity, class_name)):
        if not rooms.knows(capacity):
            rooms(capacity)
            yield


_ThingT = TypeVar("_ThingT", bound=objects.PersistentVolume | objects.CSIStorageCapacity)
_FactsT = TypeVar("_FactsT")


class _Read(Generic[_ThingT, _FactsT]):
    """What was read of objects of a kind, each once."""

    def __init__(self, read: Callable[[_ThingT], _FactsT]) -> None:
        self._read = read
        self.facts: dict[str, tuple[_ThingT, _FactsT]] = {}

    def knows(self, thing: _ThingT) -> bool:
        known = self.facts.get(object_key(thing.metadata))
        return known is not None and known[0] is thing

    def __call__(self, thing: _ThingT) -> _FactsT:
        known = self.facts.get(object_key(thing.metadata))
        if known is None or known[0] is not thing:
            known = self.facts[object_key(thing.metadata)] = thing, self._read(thing)
        return known[1]


def _read_by(store: ObjectStore, kind: type[_ThingT], read: Callable[[_ThingT], _FactsT]) -> _Read[_ThingT, _FactsT]:
    found: _Read[_ThingT, _FactsT] = store.keep(("read", kind), None, lambda: _Read(read))
    if len(found.facts) > 2 * len(store.all(kind)) + _FORGOTTEN:
        found.facts.clear()
    return found


def _capacity(volume: objects.PersistentVolume) -> int:
    """Return the bytes of a volume; 0 if it does not say."""
    capacity = (volume.spec.capacity or {}).get("storage")
    return 0 if capacity is None else units(capacity)


def _facts(volume: objects.PersistentVolume) -> VolumeFacts:
    spec = volume.spec
    affinity = spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else None
    only = terms[0] if terms is not None and len(terms) == 1 and not terms[0].match_fields else None
    label = single_label(only.match_expressions) if only is not None else None
    return VolumeFacts(
        volume,
        _capacity(volume),
        spec.volume_mode or "Filesystem",
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes or ()),
        volume.status.phase == "Available",
        VolumePlace(affinity=msgspec.msgpack.encode(terms)) if label is None else VolumePlace(local=label[0]),
        "" if label is None else label[1],
    )


def _mask(expression: Expression, column: CodedColumn[str]) -> BoolArray:
    """Return `bool[rows]`: whether labels meet a requirement of a label selector."""
    match expression.operator:
        case "Exists":
            return column.codes >= 0
        case "DoesNotExist":
            return column.codes < 0
    codes = [code for value in expression.values if (code := column.index.get(value)) is not None]
    found: BoolArray = np.isin(column.codes, codes)
    return found if expression.operator == "In" else ~found


class ClassVolumes(Measured):
    """The volumes of one storage class: those that are reserved, and as columns those that any claim may get."""

    def __init__(self, volumes: Sequence[VolumeFacts]) -> None:
        self._reserved: dict[str, list[VolumeFacts]] = {}
        """By the key of the claim that they are reserved for."""
        free = []
        for facts in volumes:
            volume, reference = facts.volume, facts.volume.spec.claim_ref
            if volume.metadata.deletion_timestamp is not None:
                continue
            if reference is not None:
                self._reserved.setdefault(key_of(reference.namespace, reference.name), []).append(facts)
            elif facts.available:
                free.append(facts)
        free.sort(key=lambda facts: (facts.capacity, facts.volume.metadata.name))
        self.free: Sequence[VolumeFacts] = free
        """Smallest first; of equal sizes kube-scheduler takes any, in random order; this takes the first."""
        self.capacities: IntArray = np.array([facts.capacity for facts in free], np.int64)
        """`int64[free]`, in bytes."""
        self._mode = CodedColumn([facts.mode for facts in free])
        self._attributes = CodedColumn([facts.attributes_class for facts in free])
        self._access_modes = CodedColumn([facts.access_modes for facts in free])
        self._label_keys = {key for facts in free for key in facts.volume.metadata.labels or ()}
        self._labels: dict[str, CodedColumn[str]] = {}
        places = CodedColumn([facts.place for facts in free])
        self.places: Sequence[VolumePlace] = places.values
        """Of all volumes, each once."""
        self.place_codes: IntArray = places.codes.astype(np.int64)
        """`int64[free]`: an index into `places`."""
        self._codes: tuple[NodeTable | None, int, IntArray] = (None, -1, np.zeros(0, np.int64))

    def are_none_for(self, claim: objects.PersistentVolumeClaim) -> bool:
        """Return whether there is none that the claim might get: its volume is provisioned."""
        return not self.free and object_key(claim.metadata) not in self._reserved

    def reserved(self, claim: objects.PersistentVolumeClaim) -> VolumeFacts | None:
        """Return the volume that is reserved for a claim, if it is suitable."""
        wanted, mode, attributes = _wanted(claim)
        for facts in self._reserved.get(object_key(claim.metadata), ()):
            does = facts.capacity >= wanted and facts.mode == mode and facts.attributes_class == attributes
            if does and bound_to(facts.volume, claim):
                return facts
        return None

    def fitting(self, claim: objects.PersistentVolumeClaim, selector: Selector | None) -> BoolArray:
        """Return `bool[free]`: those that a claim could get, node affinity apart."""
        wanted, mode, attributes = _wanted(claim)
        modes = frozenset(claim.spec.access_modes or ())
        result: BoolArray = self.capacities >= wanted
        result &= self._mode.equal(mode)
        result &= self._attributes.equal(attributes)
        result &= self._access_modes.test(lambda offered: offered is not None and modes <= offered)
        for expression in selector.expressions if selector is not None else ():
            result &= _mask(expression, self._label(expression.key))
        return result

    def _label(self, key: str) -> CodedColumn[str]:
        known = key if key in self._label_keys else ""  # claims may name any number of labels
        column = self._labels.get(known)
        if column is None:
            values = [(facts.volume.metadata.labels or {}).get(known) for facts in self.free]
            column = self._labels[known] = CodedColumn(values)
        return column

    def local_codes(self, nodes: NodeTable) -> IntArray:
        """Return `int64[free]`: the code of the one value of the node label that a volume is for, -1 for none."""
        table, version, codes = self._codes
        if table is not nodes or version != nodes.version:
            places = [
                nodes.label(facts.place.local).index.get(facts.value, _NONE) if facts.place.local else _NONE
                for facts in self.free
            ]
            codes = np.array(places, np.int64)
            self._codes = (nodes, nodes.version, codes)
        return codes


def _wanted(claim: objects.PersistentVolumeClaim) -> tuple[int, str, str]:
    """Return the bytes, the mode and the attributes class that a claim requests."""
    return size(claim), claim.spec.volume_mode or "Filesystem", claim.spec.volume_attributes_class_name or ""


class CandidateVolumes(msgspec.Struct, frozen=True):
    """Existing volumes that a claim could be bound to, node affinity apart."""

    volumes: ClassVolumes
    reserved: VolumeFacts | None
    """A volume that is reserved for the claim: this one or none."""
    fitting: BoolArray
    """`bool[free]`: which of those that any claim may get."""


def candidates(claim: objects.PersistentVolumeClaim, volumes: ClassVolumes) -> CandidateVolumes:
    """Return the volumes to which the claim could be bound."""
    none = np.zeros(len(volumes.free), np.bool_)
    if volumes.are_none_for(claim):
        return CandidateVolumes(volumes, None, none)
    try:
        selector = label_selector(claim.spec.selector)
    except SelectorError:
        return CandidateVolumes(volumes, None, none)
    reserved = volumes.reserved(claim)
    return CandidateVolumes(volumes, reserved, none if reserved is not None else volumes.fitting(claim, selector))


class _Taken:
    """Which volumes of one class earlier claims of the pod have, and where."""

    def __init__(self, volumes: ClassVolumes, first: int) -> None:
        self.first = first
        """The number of its first volume among those of all classes."""
        self.everywhere = np.zeros(len(volumes.free), np.bool_)
        """`bool[free]`: on all nodes that it can be used from."""
        self.on_some: dict[int, BoolArray] = {}
        """`bool[nodes]`: where, of those that are taken on some of these nodes only."""


class Matches:
    """Existing volumes for several claims on each node; no volume twice on one node."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._taken: dict[ClassVolumes, _Taken] = {}
        self._total = 0
        """Volumes of all classes so far."""
        self._reserved: list[objects.PersistentVolume] = []
        """Those that are reserved and chosen; their numbers go down from -2."""
        self._reserved_on: dict[str, tuple[int, BoolArray]] = {}
        """By name: the number, and `bool[nodes]`: where it is taken."""
        self._chosen: list[CodeArray] = []
        """Per claim, `int32[nodes]`: the number of the volume chosen there, -1 for none."""
        self._nothing: CodeArray = np.full(nodes.size, _NONE, np.int32)
        self._nowhere: BoolArray = np.zeros(nodes.size, np.bool_)

    def choose(self, available: CandidateVolumes) -> BoolArray:
        """Choose for the next claim, on every node; return `bool[nodes]`: where there is a volume for it."""
        if available.reserved is None and not available.fitting.any():  # claims to be provisioned share a column
            self._chosen.append(self._nothing)
            return self._nowhere
        chosen = np.full(self._nodes.size, _NONE, np.int32)
        if available.reserved is not None:
            self._take_reserved(available.reserved.volume, chosen)
        else:
            self._take_free(available.volumes, available.fitting, chosen)
        self._chosen.append(chosen)
        result: BoolArray = chosen != _NONE
        return result

    def volume(self, *, claim: int, row: int) -> objects.PersistentVolume | None:
        """Return what was chosen for a claim (by order of `choose`) on a node, or None."""
        number = int(self._chosen[claim][row])
        if number == _NONE:
            return None
        if number < _NONE:
            return self._reserved[_NONE - 1 - number]
        volumes, taken = next(pair for pair in reversed(self._taken.items()) if pair[1].first <= number)
        return volumes.free[number - taken.first].volume

    def capacities(self, *, claim: int) -> IntArray:
        """Return `int64[nodes]`: the bytes of what was chosen for a claim (by order of `choose`), -1 for nothing."""
        chosen = self._chosen[claim]
        result = np.full(self._nodes.size, _NONE, np.int64)
        if chosen is self._nothing:
            return result
        free, reserved = chosen > _NONE, chosen < _NONE
        if free.any():
            result[free] = np.concatenate([volumes.capacities for volumes in self._taken])[chosen[free]]
        if reserved.any():
            bytes_of = np.array([_capacity(volume) for volume in self._reserved], np.int64)
            result[reserved] = bytes_of[_NONE - 1 - chosen[reserved]]
        return result

    def _take_reserved(self, volume: objects.PersistentVolume, chosen: CodeArray) -> None:
        known = self._reserved_on.get(volume.metadata.name)
        if known is None:
            known = _NONE - 1 - len(self._reserved), np.zeros(self._nodes.size, np.bool_)
            self._reserved_on[volume.metadata.name] = known
            self._reserved.append(volume)
        number, taken = known
        where = self._where(volume)
        where = where[~taken[where]]
        chosen[where] = number
        taken[where] = True

    def _take_free(self, volumes: ClassVolumes, fitting: BoolArray, chosen: CodeArray) -> None:
        taken = self._taken.get(volumes)
        if taken is None:
            taken = self._taken[volumes] = _Taken(volumes, self._total)
            self._total += len(volumes.free)
        left = np.flatnonzero(fitting & ~taken.everywhere)
        while len(left) and not (chosen != _NONE).all():
            run, left = self._next_run(volumes, left, taken)
            if volumes.places[int(volumes.place_codes[run[0]])].local and int(run[0]) not in taken.on_some:
                self._take_local(volumes, run, taken, chosen)
            else:
                self._take_one(volumes, int(run[0]), taken, chosen)

    def _next_run(self, volumes: ClassVolumes, left: IntArray, taken: _Taken) -> tuple[IntArray, IntArray]:
        """Return the volumes to try next, all together, and the remaining ones.

        These are the first that are local by the same label, or the first one. Of those that can be used from the
        same nodes the others are left out: no node is without a volume that could use them.
        """
        first = int(left[0])
        codes = volumes.place_codes[left]
        if first in taken.on_some:
            return left[:1], left[1:]
        same = codes == codes[0]
        if taken.on_some:
            same &= ~np.isin(left, list(taken.on_some))
        if volumes.places[int(codes[0])].local:
            others = np.flatnonzero(~same)
            end = int(others[0]) if len(others) else len(left)
            return left[:end], left[end:]
        return left[:1], left[~same]

    def _take_one(self, volumes: ClassVolumes, volume: int, taken: _Taken, chosen: CodeArray) -> None:
        """Take a volume on the rows that have none yet and do not use it."""
        where = self._where(volumes.free[volume].volume)
        if not len(where):
            taken.everywhere[volume] = True
        before = taken.on_some.get(volume)
        free = chosen[where] == _NONE if before is None else (chosen[where] == _NONE) & ~before[where]
        now = where[free]
        if not len(now):
            return
        chosen[now] = taken.first + volume
        taken_on = before if before is not None else np.zeros(self._nodes.size, np.bool_)
        taken_on[now] = True
        if taken_on[where].all():
            taken.everywhere[volume] = True
            taken.on_some.pop(volume, None)
        else:
            taken.on_some[volume] = taken_on

    def _take_local(self, volumes: ClassVolumes, run: IntArray, taken: _Taken, chosen: CodeArray) -> None:
        """Take volumes that are each for one value of the same label, and unclaimed: for each value the first."""
        column = self._nodes.label(volumes.places[int(volumes.place_codes[run[0]])].local)
        codes = volumes.local_codes(self._nodes)[run]
        run, codes = run[codes >= 0], codes[codes >= 0]
        first = np.full(len(column.values) + 1, _NONE, np.int64)
        first[codes[::-1]] = run[::-1]  # the last write stays: the first of the run
        mine = first.take(column.codes)
        now = (mine != _NONE) & (chosen == _NONE)
        chosen[now] = taken.first + mine[now]
        used, all_of_them = (
            np.bincount(column.codes[rows], minlength=len(column.values)) for rows in (now, mine != _NONE)
        )
        taken.everywhere[first[np.flatnonzero((used > 0) & (used == all_of_them))]] = True
        for code in np.flatnonzero((used > 0) & (used < all_of_them)).tolist():
            taken.on_some[int(first[code])] = now & (column.codes == code)

    def _where(self, volume: objects.PersistentVolume) -> IntArray:
        """Return the rows of the nodes that it can be used from."""
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return np.arange(self._nodes.size)
        return rows_of_volume(affinity.required, self._nodes)


class Provisionable(Measured, msgspec.Struct, frozen=True):
    """Where volumes of a storage class can be provisioned."""

    allowed: BoolArray
    """`bool[nodes]`: by the storage class."""
    most: IntArray | None
    """`int64[nodes]`: the largest volume there is room for, by what the driver reports, -1 for none; None: it reports
    nothing."""
    capacity: IntArray | None = None
    """`int64[nodes]`: the bytes of all the storage there that `most` was reported of, 0 if that was not said."""

    def room(self, claim: objects.PersistentVolumeClaim) -> BoolArray:
        """Return `bool[nodes]`: where a claim's volume has enough capacity."""
        if self.most is None or requested_storage(claim) is None:
            return np.ones(len(self.allowed), np.bool_)
        result: BoolArray = self.most >= size(claim)
        return result


_READ_BY_PROVISIONING = (objects.StorageClass, objects.CSIDriver, objects.CSIStorageCapacity)


def provisionable(class_name: str, cluster: Cluster) -> Provisionable:
    """Return where volumes of a storage class can be provisioned; kept until its inputs change."""
    nodes, store = cluster.nodes, cluster.store
    found = cluster.get(objects.StorageClass, class_name)
    if found is None or found.provisioner in ("", _NO_PROVISIONER):
        return Provisionable(np.zeros(nodes.size, np.bool_), None)

    def make() -> Provisionable:
        allowed = np.zeros(nodes.size, np.bool_)
        allowed[rows_of_topologies(found.allowed_topologies or (), nodes)] = True
        reported = _reported(found, cluster)
        return Provisionable(allowed, *(reported or (None, None)))

    kept: KeptView[str, Stamped[Provisionable]] = cluster.view("classes that provision", most=_MOST_CLASSES)
    return kept.current(class_name, (nodes.version, store.versions(_READ_BY_PROVISIONING)), make)


class _Size(NamedTuple):
    """Bytes of the largest volume, -1 for none, and of all the storage that it would be of."""

    most: int
    capacity: int


_NO_SIZE = _Size(-1, 0)


class _Room(NamedTuple):
    """What is read of one capacity that a driver reports."""

    size: _Size
    label: tuple[str, str] | None = None
    """By far the usual form, and there may be one object for each node: nodes with this label."""
    selects: Sequence[Expression] = ()
    """Otherwise: nodes that meet all of these."""


def _room(capacity: objects.CSIStorageCapacity) -> _Room:
    limit = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
    topology = capacity.node_topology
    if limit is None or topology is None:
        return _Room(_NO_SIZE)
    size = _Size(units(limit), 0 if capacity.capacity is None else units(capacity.capacity))
    if not topology.match_expressions and len(topology.match_labels or ()) == 1:
        [label] = (topology.match_labels or {}).items()
        return _Room(size, label)
    try:
        selector = label_selector(topology)
    except SelectorError:
        return _Room(_NO_SIZE)
    return _Room(size, selects=selector.expressions if selector is not None else ())


def _reported(found: objects.StorageClass, cluster: Cluster) -> tuple[IntArray, IntArray] | None:
    """Return `int64[nodes]` twice, see `_Size`; of several that the driver reports for a node, the largest.

    None: the driver reports nothing.
    """
    nodes = cluster.nodes
    driver = cluster.get(objects.CSIDriver, found.provisioner)
    if driver is None or not driver.spec.storage_capacity:
        return None
    most, capacity = np.full(nodes.size, -1, np.int64), np.zeros(nodes.size, np.int64)
    domains: dict[str, dict[str, _Size]] = {}
    others: dict[frozenset[Expression], _Size] = {}
    read = _read_by(cluster.store, objects.CSIStorageCapacity, _room)
    for each in cluster.store.group(objects.CSIStorageCapacity, found.metadata.name):
        room = read(each)
        if room.size.most < 0:
            continue
        if room.label is not None:
            key, value = room.label
            values = domains.setdefault(key, {})
            values[value] = max(values.get(value, _NO_SIZE), room.size)
        elif (left := relevant(room.selects, nodes)) is not None:
            others[left] = max(others.get(left, _NO_SIZE), room.size)
    without = np.ones(nodes.size, np.bool_)
    for expressions, size_of in sorted(others.items(), key=lambda item: item[1], reverse=True):
        rows = rows_matching(tuple(expressions), nodes)
        rows = rows[without[rows]]
        most[rows], capacity[rows] = size_of
        without[rows] = False
        if not without.any():
            break
    for key, values in domains.items():
        column = nodes.label(key)
        by_code = np.array([*(values.get(value, _NO_SIZE) for value in column.values), _NO_SIZE], np.int64)
        mine = by_code[column.codes]
        better = (mine[:, 0] > most) | ((mine[:, 0] == most) & (mine[:, 1] > capacity))
        most[better], capacity[better] = mine[better, 0], mine[better, 1]
    return most, capacity
