"""API objects other than nodes and pods, by kind; with an index, a journal and assumed versions for storage.

An *assumed* object is what the scheduler expects a PersistentVolume or claim to look like once its own request
has succeeded. It hides the stored one until the API server reports another version of the
object, or until it is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias, TypeVar

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.events import ClusterEvent, object_event
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.ledger import Ledger

ObjectT = TypeVar("ObjectT")
ValueT = TypeVar("ValueT")
AssumableT = TypeVar("AssumableT", objects.PersistentVolume, objects.PersistentVolumeClaim)
Assumable: TypeAlias = objects.PersistentVolume | objects.PersistentVolumeClaim

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Annotation that names the storage class of old claims and volumes; it comes before the spec."""
_NOTHING: Mapping[str, Any] = {}


class OutOfSyncError(Exception):
    """The object changed since it was read: assume nothing, decide again."""


def storage_class(thing: Assumable) -> str:
    """Return the name of the storage class of a claim or volume, "" if it has none."""
    named = (thing.metadata.annotations or {}).get(BETA_CLASS)
    return named if named is not None else thing.spec.storage_class_name or ""


def object_key(metadata: objects.ObjectMeta) -> str:
    """Return `namespace/name`, or `name` for objects without a namespace."""
    return key_of(metadata.namespace, metadata.name)


def is_another(known: Any, thing: Any) -> bool:
    """Return whether an object was deleted, and created again under its name."""
    before, after = known.metadata.uid, thing.metadata.uid
    return bool(before and after) and before != after


def key_of(namespace: str, name: str) -> str:
    """Return the key of an object by its namespace, which may be "", and name."""
    return f"{namespace}/{name}" if namespace else name


def parent_group(group: objects.PodGroup | objects.CompositePodGroup) -> str:
    """Return the key of the CompositePodGroup that a group belongs to, "" if it belongs to none."""
    parent = group.spec.parent_composite_pod_group_name
    return key_of(group.metadata.namespace, parent) if parent else ""


_GROUPS: Mapping[type, Callable[[Any], str]] = {
    objects.PodGroup: parent_group,
    objects.CompositePodGroup: parent_group,
    objects.Service: lambda service: service.metadata.namespace,
    objects.PodDisruptionBudget: lambda budget: budget.metadata.namespace,
    objects.PersistentVolume: storage_class,
    objects.CSIStorageCapacity: lambda capacity: capacity.storage_class_name,
    objects.VolumeAttachment: lambda attachment: attachment.spec.node_name,
}
"""The keys by which objects of a kind can be read."""
_JOURNALED: Collection[type] = frozenset(
    {
        objects.PersistentVolume,
        objects.PersistentVolumeClaim,
        objects.StorageClass,
        objects.CSINode,
        objects.VolumeAttachment,
    }
)


def is_same_group(before: Any, group: objects.PodGroup | objects.CompositePodGroup) -> bool:
    """Return whether only the status of a group has changed. before: the group as it was, None if there was none."""
    return before is not None and before.spec == group.spec and before.metadata.uid == group.metadata.uid


class ObjectStore:
    """Objects by kind and key."""

    def __init__(self, ledger: Ledger) -> None:
        """Note in the ledger of the cluster which volumes and claims are taken and given back in memory."""
        self._ledger = ledger
        self._objects: dict[type, dict[str, Any]] = {}
        self._versions: dict[type, int] = {}
        self._groups: dict[tuple[type, str], dict[str, Any]] = {}
        self._group_versions: dict[tuple[type, str], int] = {}
        self._serials = count(1)
        self._assumed: dict[tuple[type, str], Any] = {}
        self._journal: Journal[Any] = Journal()
        self._kept: dict[Hashable, tuple[Hashable, Any]] = {}

    def keep(self, key: Hashable, stamp: Hashable, make: Callable[[], ValueT]) -> ValueT:
        """Return the result of `make`, kept under `key` while the stamp is the same. For few keys: none is dropped."""
        known = self._kept.get(key)
        if known is None or known[0] != stamp:
            known = self._kept[key] = (stamp, make())
        value: ValueT = known[1]
        return value

    def set(self, thing: Any) -> None:
        """Add or update an object."""
        kind, key = type(thing), object_key(thing.metadata)
        kept = self._objects.setdefault(kind, {})
        old = kept.get(key)
        kept[key] = thing
        self._changed(kind, key, thing)
        group_of = _GROUPS.get(kind)
        if group_of is not None:
            group = group_of(thing)
            if old is not None and (before := group_of(old)) != group:
                self._leave(kind, before, key)
            self._groups.setdefault((kind, group), {})[key] = thing
            self._group_versions[kind, group] = next(self._serials)

    def remove(self, thing: Any) -> None:
        """Delete an object."""
        kind, key = type(thing), object_key(thing.metadata)
        old = self._objects.get(kind, {}).pop(key, None)
        self._changed(kind, key, thing)
        group_of = _GROUPS.get(kind)
        if group_of is not None and old is not None:
            self._leave(kind, group_of(old), key)

    def _leave(self, kind: type, group: str, key: str) -> None:
        members = self._groups[kind, group]
        del members[key]
        if members:
            self._group_versions[kind, group] = next(self._serials)
        else:
            del self._groups[kind, group], self._group_versions[kind, group]

    def _changed(self, kind: type, key: str, thing: Any) -> None:
        self._versions[kind] = self._versions.get(kind, 0) + 1
        assumed = self._assumed.get((kind, key))
        if assumed is not None:
            stored = self._objects[kind].get(key)
            if stored is None or stored.metadata.resource_version != assumed.metadata.resource_version:
                del self._assumed[kind, key]
        if kind in _JOURNALED:
            self._journal.note(thing)

    # --- reading -------------------------------------------------------------------------------------

    def get(self, kind: type[ObjectT], key: str) -> ObjectT | None:
        """Return an object by `name` or `namespace/name`, as the API server has it."""
        found: ObjectT | None = self._objects.get(kind, _NOTHING).get(key)
        return found

    def all(self, kind: type[ObjectT]) -> Collection[ObjectT]:
        """Return all objects of a kind, in the order in which they were first seen."""
        return self._objects.get(kind, _NOTHING).values()

    def group(self, kind: type[ObjectT], value: str) -> Collection[ObjectT]:
        """Return the objects of one group: by namespace, parent, storage class or node, depending on the kind."""
        return self._groups.get((kind, value), _NOTHING).values()

    def version(self, kind: type) -> int:
        """Return a number that changes whenever an object of the kind does."""
        return self._versions.get(kind, 0)

    def versions(self, kinds: Iterable[type]) -> tuple[int, ...]:
        """Return the versions of several kinds."""
        return tuple(self._versions.get(kind, 0) for kind in kinds)

    def group_version(self, kind: type, value: str) -> int:
        """Return a number that changes whenever an object of the group does; 0 if there is none."""
        return self._group_versions.get((kind, value), 0)

    @property
    def journal_end(self) -> int:
        """Return the position after the last storage object that changed; positions only grow."""
        return self._journal.end

    def changed_since(self, position: int) -> Sequence[Any] | None:
        """Return the storage objects set or removed after a position; None if that is too long ago to know."""
        return self._journal.since(position)

    # --- assumed versions ----------------------------------------------------------------------------

    def assume(self, thing: Assumable) -> None:
        """Show this version of an object in `expected` from now on.

        Raises:
            OutOfSyncError: the stored object has another resource version, or is gone.
        """
        kind, key = type(thing), object_key(thing.metadata)
        stored = self.get(kind, key)
        if stored is None:
            raise OutOfSyncError(f"{kind.__name__} {key!r} is gone; decide again")
        if stored.metadata.resource_version != thing.metadata.resource_version:
            raise OutOfSyncError(
                f"{key!r} is out of sync (stored: {stored.metadata.resource_version},"
                f" assume: {thing.metadata.resource_version})"
            )
        self._assumed[kind, key] = thing
        self._versions[kind] = self._versions.get(kind, 0) + 1
        self._ledger.note(ClusterEvent.TAKEN)

    def restore(self, thing: Assumable) -> None:
        """Show the stored object again, if this version of it is the one assumed; otherwise do nothing."""
        kind, key = type(thing), object_key(thing.metadata)
        assumed = self._assumed.get((kind, key))
        if assumed is not None and assumed.metadata.resource_version == thing.metadata.resource_version:
            del self._assumed[kind, key]
            self._versions[kind] = self._versions.get(kind, 0) + 1
            self._ledger.note(object_event(kind))

    def expected(self, kind: type[AssumableT], key: str) -> AssumableT | None:
        """Return the assumed version of an object, or else the stored one."""
        assumed: AssumableT | None = self._assumed.get((kind, key))
        return assumed if assumed is not None else self.get(kind, key)

    def expected_group(self, kind: type[AssumableT], value: str) -> Iterable[AssumableT]:
        """Return the objects of a group (by their stored state), in their assumed versions."""
        members: Mapping[str, AssumableT] = self._groups.get((kind, value), _NOTHING)
        if not self._assumed:
            return members.values()
        return [self._assumed.get((kind, key), thing) for key, thing in members.items()]
