"""Nodes that are like earlier ones of their list. See `similar_items`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.shared_keys import with_shared_keys
from kube_policy_scheduler.adapters.kube.similar_items import Model, Place, SimilarItems, merged
from kube_policy_scheduler.cluster import objects

_FIELDS = (
    ("metadata", "name"),
    ("metadata", "uid"),
    ("metadata", "resource_version"),
    ("metadata", "creation_timestamp"),
    ("spec", "provider_id"),
)
_MAPS = (("metadata", "labels"), ("metadata", "annotations"))
_LISTS = (("status", "addresses", "address"), ("status", "conditions", "last_transition_time"))
_MOST_IMAGES, _MOST_IMAGE_BYTES = 4096, 32 << 20
"""Different lists of images that are remembered, and their bytes."""


class _Recipe:
    """How nodes are made of a model and of strings: each part is copied, and then what is in its slots is written."""

    __slots__ = ("_elements", "_entries", "_fields", "_node")

    def __init__(self, node: objects.Node, slots: dict[Place, int]) -> None:
        self._node = node
        self._fields: dict[str, list[tuple[int, str]]] = {"metadata": [], "spec": []}
        self._entries: dict[str, list[tuple[int, str]]] = {}
        self._elements: dict[str, dict[int, list[tuple[int, str]]]] = {}
        for place, slot in slots.items():
            match place:
                case (section, field):
                    self._fields[section].append((slot, field))
                case (_, field, key):
                    self._entries.setdefault(field, []).append((slot, key))
                case (_, field, index, inner):
                    self._elements.setdefault(field, {}).setdefault(index, []).append((slot, inner))
                case _:
                    raise ValueError(f"{place} is no place")
        for field in self._entries:
            setattr(node.metadata, field, with_shared_keys(getattr(node.metadata, field)))

    def make(self, columns: list[list[str]], images: list[list[objects.ContainerImage]]) -> list[objects.Node]:
        """Return the nodes with these strings and images."""
        node, count = self._node, len(images)
        metas = _copies(node.metadata, count, self._fields["metadata"], columns)
        specs = _copies(node.spec, count, self._fields["spec"], columns)
        statuses = _copies(node.status, count, [], columns)
        for status, listed in zip(statuses, images, strict=True):
            status.images = listed
        for field, entries in self._entries.items():
            map_of: dict[str, str] = getattr(node.metadata, field)
            maps = [map_of.copy() for _ in images]
            for slot, key in entries:
                for each, text in zip(maps, columns[slot], strict=True):
                    each[key] = text
            for meta, each in zip(metas, maps, strict=True):
                setattr(meta, field, each)
        for field, changed in self._elements.items():
            list_of: list[Any] = getattr(node.status, field)
            lists = [list_of.copy() for _ in images]
            for index, fields in changed.items():
                for things, element in zip(lists, _copies(list_of[index], count, fields, columns), strict=True):
                    things[index] = element
            for status, things in zip(statuses, lists, strict=True):
                setattr(status, field, things)
        parts = zip(metas, specs, statuses, strict=True)
        return [objects.Node(metadata=meta, spec=spec, status=status) for meta, spec, status in parts]


def _copies(thing: Any, count: int, fields: list[tuple[int, str]], columns: list[list[str]]) -> list[Any]:
    """Return this many copies of a struct, with the strings of slots in fields."""
    copy = thing.__copy__
    copies = [copy() for _ in range(count)]
    for slot, field in fields:
        for each, text in zip(copies, columns[slot], strict=True):
            setattr(each, field, text)
    return copies


class SimilarNodes(SimilarItems[objects.Node]):
    """Decodes the pages of one list of nodes. Equal lists of images are one object, which nobody may change."""

    slots = 28
    elements = b'"images":['

    def __init__(self, decode: Callable[[bytes], objects.Node], scan: Callable[..., tuple[int, int]]) -> None:
        """See `SimilarItems`."""
        super().__init__(decode, scan)
        self._recipes: list[_Recipe] = []
        self._images: dict[bytes, list[objects.ContainerImage]] = {}
        self._image_bytes = 0
        self._decode_images = msgspec.json.Decoder(list[objects.ContainerImage]).decode

    def strings(self, obj: objects.Node) -> Iterator[tuple[Place, str]]:
        """See `SimilarItems`."""
        for section, field in _FIELDS:
            text = getattr(getattr(obj, section), field)
            if text is not None:
                yield (section, field), text
        for section, field in _MAPS:
            for key, text in (getattr(getattr(obj, section), field) or {}).items():
                yield (section, field, key), text
        for section, field, inner in _LISTS:
            for index, element in enumerate(getattr(getattr(obj, section), field) or ()):
                text = getattr(element, inner)
                if text is not None:
                    yield (section, field, index, inner), text

    def take_elements(self, marked: objects.Node) -> bool:
        """See `SimilarItems`."""
        images, marked.status.images = marked.status.images, []
        return images == [objects.ContainerImage(names=["\x7fimage"], size_bytes=1)]

    def slots_of(self, model: Model[objects.Node]) -> dict[Place, int] | None:
        """See `SimilarItems`."""
        places = [hole.place for hole in model.holes.values() if hole.place]
        return {place: slot for slot, place in enumerate(places)} if len(places) <= self.slots else None

    def constants_of(self, obj: objects.Node) -> dict[int, str]:
        """See `SimilarItems`."""
        return {}

    def added(self, model: Model[objects.Node], slots: dict[Place, int]) -> None:
        """See `SimilarItems`."""
        self._recipes.append(_Recipe(model.object, slots))

    def made(
        self,
        numbers: list[int],
        columns: list[list[str]],
        lists: Iterable[bytes],
        decoded: Sequence[tuple[int, objects.Node]],
    ) -> Sequence[objects.Node]:
        """See `SimilarItems`."""
        return merged(self._made(numbers, columns, lists), decoded)

    def _made(self, numbers: list[int], columns: list[list[str]], lists: Iterable[bytes]) -> list[Any]:
        images: list[list[objects.ContainerImage]] = []
        for text in lists:
            listed = self._images.get(text)
            images.append(listed if listed is not None else self._read(text))
        models = set(numbers)
        if len(models) == 1:
            return self._recipes[numbers[0]].make(columns, images)
        made: list[Any] = [None] * len(numbers)
        for model in models:
            places = [place for place, number in enumerate(numbers) if number == model]
            ours = [[column[place] for place in places] for column in columns]
            theirs = self._recipes[model].make(ours, [images[place] for place in places])
            for place, node in zip(places, theirs, strict=True):
                made[place] = node
        return made

    def _read(self, text: bytes) -> list[objects.ContainerImage]:
        try:
            found = self._decode_images(b"[%b]" % text)
        except RecursionError as error:
            raise msgspec.DecodeError("nested too deep") from error
        self._image_bytes += len(text)
        if len(self._images) >= _MOST_IMAGES or self._image_bytes > _MOST_IMAGE_BYTES:
            self._images.clear()
            self._image_bytes = len(text)
        self._images[text] = found
        return found
