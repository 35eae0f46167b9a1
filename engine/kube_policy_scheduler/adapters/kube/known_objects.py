"""The known objects of one resource: only what distinguishes two states of an object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic

import msgspec

from kube_policy_scheduler.adapters.kube.changes import Change, Deleted, Updated
from kube_policy_scheduler.adapters.kube.resources import T
from kube_policy_scheduler.cluster.objects import ObjectMeta


class _Known(msgspec.Struct, frozen=True, gc=False):
    """Identity and version of a known object."""

    namespace: str
    name: str
    version: str


class KnownObjects(Generic[T]):
    """The known objects by UID."""

    def __init__(self, kind: type[T]) -> None:
        """kind: of the objects; one whose end was missed is rebuilt from its identity."""
        self._kind = kind
        self._known: dict[str, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forget all."""
        self._known = {}

    def add(self, objects: Mapping[str, T]) -> None:
        """Add objects, by key."""
        self._known.update((key, _known(obj.metadata)) for key, obj in objects.items())

    def changed(self, obj: T) -> Change[T]:
        """Take note of an object as it is now; return what is to be told."""
        self._known[key_of(obj.metadata)] = _known(obj.metadata)
        return Updated(obj)

    def gone(self, metadata: ObjectMeta, obj: T | None = None) -> Deleted[T] | None:
        """Forget an object; return the change, None if it was not known. obj: its last state, if known."""
        key = key_of(metadata)
        old = self._known.pop(key, None)
        return Deleted(obj or self._remnant(key, old)) if old is not None else None

    def replace(self, found: Mapping[str, T], *, unreadable: Iterable[ObjectMeta]) -> list[Change[T]]:
        """Replace all objects; return the changes, deletions first.

        A name may have been reused. An object that exists but cannot be read keeps its last readable state.
        """
        kept = {key for metadata in unreadable if (key := key_of(metadata)) in self._known}
        missed = [uid for uid in self._known if uid not in found and uid not in kept]
        changes: list[Change[T]] = [Deleted(self._remnant(uid, self._known.pop(uid))) for uid in missed]
        for key, new in found.items():
            old = self._known.get(key)
            if old is None or old.version != new.metadata.resource_version:
                changes.append(Updated(new))
        self.add(found)
        return changes

    def _remnant(self, uid: str, old: _Known) -> T:
        """Build an object whose end was missed: all that is left of it is its identity."""
        return self._kind(
            metadata=ObjectMeta(namespace=old.namespace, name=old.name, uid=uid, resource_version=old.version)
        )


def key_of(metadata: ObjectMeta) -> str:
    """Return what tells an object from all others of its kind, also from one of the same name before it."""
    return metadata.uid or f"{metadata.namespace}/{metadata.name}"


def _known(metadata: ObjectMeta) -> _Known:
    return _Known(metadata.namespace, metadata.name, metadata.resource_version)
