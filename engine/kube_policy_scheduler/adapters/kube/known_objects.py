"""The known objects of one resource: only what distinguishes two states of an object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from sys import intern
from typing import Any, Generic

import msgspec

from kube_policy_scheduler.adapters.kube.changes import Change, Deleted, Updated
from kube_policy_scheduler.adapters.kube.resources import T
from kube_policy_scheduler.cluster.objects import ListedPods, ObjectMeta

_PIECE = 5_000
"""Objects looked at at once: a millisecond."""


class _Known(msgspec.Struct, gc=False):
    """Identity and version of a known object."""

    namespace: str
    name: str
    version: str
    listed: int = 0
    """The number of the last list that it was in."""


class KnownObjects(Generic[T]):
    """The known objects by UID."""

    def __init__(self, kind: type[T]) -> None:
        """kind: of the objects; one whose end was missed is rebuilt from its identity."""
        self._kind = kind
        self._known: dict[str, _Known] = {}
        self._lists = 0

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forget all."""
        self._known = {}

    def add(self, objects: Sequence[T]) -> None:
        """Add objects: of a first list, a million."""
        pods: Any = objects
        if isinstance(pods, ListedPods) and all(pods.uids):
            namespaces = [like.namespace for like in pods.likes]
            known = map(_Known, namespaces, pods.names, pods.resource_versions)
            self._known.update(zip(pods.uids, known, strict=True))
            return
        for obj in objects:
            self._known[key_of(obj.metadata)] = _known(obj.metadata)

    def changed(self, obj: T) -> Change[T]:
        """Note an object as it is now; return what is to be told."""
        metadata = obj.metadata
        key = key_of(metadata)
        known = self._known.get(key)
        if known is None:
            self._known[key] = _known(metadata)
        else:
            known.version = metadata.resource_version
        return Updated(obj)

    def gone(self, metadata: ObjectMeta, obj: T | None = None) -> Deleted[T] | None:
        """Forget an object; return the change, None if it was not known. obj: its last state, if known."""
        key = key_of(metadata)
        old = self._known.pop(key, None)
        return Deleted(obj or self._remnant(key, old)) if old is not None else None

    def list_begins(self) -> None:
        """Begin a list of all objects: `listed` and `keep` get what is in it, `missed` returns what is not."""
        self._lists += 1

    def listed(self, objects: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
        """Note objects of the list, by key.

        Returns:
            Those that are known in another state, which from now on they are known in; and those that are not known.
            The latter must wait for what is `missed`, since a name may have been reused.
        """
        changed, new = dict[str, T](), dict[str, T]()
        for key, obj in objects.items():
            old = self._known.get(key)
            if old is None:
                new[key] = obj
                continue
            old.listed = self._lists
            if old.version != obj.metadata.resource_version:
                changed[key] = obj
                old.version = obj.metadata.resource_version
        return changed, new

    def keep(self, unreadable: Iterable[ObjectMeta]) -> None:
        """Note objects of the list that cannot be read: they keep their last readable state."""
        for metadata in unreadable:
            if (old := self._known.get(key_of(metadata))) is not None:
                old.listed = self._lists

    def missed(self) -> Iterator[list[Change[T]]]:
        """Forget the known objects that are not in the list; yield the changes.

        They come in pieces, some of them empty: a look at a million objects at once takes too long for others.
        """
        known = iter(list(self._known))
        while piece := list(islice(known, _PIECE)):
            missed = [key for key in piece if self._known[key].listed != self._lists]
            yield [Deleted(self._remnant(key, self._known.pop(key))) for key in missed]

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
