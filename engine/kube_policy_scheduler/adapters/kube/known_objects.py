"""The known objects of one resource: only what distinguishes two states of an object. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice
from sys import intern
from typing import Generic

import msgspec

from kube_policy_scheduler.adapters.kube.changes import Change, Deleted, Updated
from kube_policy_scheduler.adapters.kube.resources import T
from kube_policy_scheduler.cluster.objects import ObjectMeta

_PIECE = 5_000
"""Objects looked at at once: a millisecond."""


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

    def changed_among(self, found: Mapping[str, T]) -> dict[str, T]:
        """Return those of a list, by key, that are not known in the state in which they are now."""
        known = self._known
        return {
            key: new
            for key, new in found.items()
            if (old := known.get(key)) is None or old.version != new.metadata.resource_version
        }

    def replace(
        self, changed: Mapping[str, T], *, listed: Container[str], unreadable: Iterable[ObjectMeta]
    ) -> Iterator[list[Change[T]]]:
        """Replace all objects; yield the changes, deletions first.

        They come in pieces, some of them empty: a look at a million objects at once takes too long for others.

        A name may have been reused. An object that exists but cannot be read keeps its last readable state.

        Args:
            changed: what `changed_among` returned, of all pages.
            listed: the keys of all objects that there are.
            unreadable: those of them that cannot be read.
        """
        kept = {key for metadata in unreadable if (key := key_of(metadata)) in self._known}
        known = iter(list(self._known))
        while piece := list(islice(known, _PIECE)):
            missed = [uid for uid in piece if uid not in listed and uid not in kept]
            yield [Deleted(self._remnant(uid, self._known.pop(uid))) for uid in missed]
        self.add(changed)
        yield [Updated(new) for new in changed.values()]

    def _remnant(self, uid: str, old: _Known) -> T:
        """Build an object whose end was missed: all that is left of it is its identity."""
        return self._kind(
            metadata=ObjectMeta(namespace=old.namespace, name=old.name, uid=uid, resource_version=old.version)
        )


def key_of(metadata: ObjectMeta) -> str:
    """Return what tells an object from all others of its kind, also from one of the same name before it."""
    return metadata.uid or f"{metadata.namespace}/{metadata.name}"


def _known(metadata: ObjectMeta) -> _Known:
    return _Known(intern(metadata.namespace), metadata.name, metadata.resource_version)
