"""Nodes that are like earlier ones of their list. See `similar_items`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.similar_items import Model, Place, SimilarItems
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.shared_keys import with_shared_keys

_FIELDS = (
    ("metadata", "name"),
    ("metadata", "uid"),
    ("metadata", "resource_version"),
    ("metadata", "creation_timestamp"),
    ("spec", "provider_id"),
)
_MAPS = (("metadata", "labels"), ("metadata", "annotations"))
_LISTS = (("status", "addresses", "address"), ("status", "conditions", "last_transition_time"))
_IMAGES_SLOT = 0
_MOST_IMAGES, _MOST_IMAGE_BYTES = 4096, 32 << 20
"""Different lists of images that are remembered, and their bytes."""


class _Recipe:
    """How a node is made of a model and of strings."""

    __slots__ = ("_elements", "_entries", "_fields", "_node")

    def __init__(self, node: objects.Node, slots: dict[Place, int]) -> None:
        self._node = node
        self._fields: list[tuple[int, str, str]] = []
        self._entries: dict[str, list[tuple[int, str]]] = {}
        self._elements: dict[str, list[tuple[int, int, str]]] = {}
        for place, slot in slots.items():
            match place:
                case (section, field):
                    self._fields.append((slot, section, field))
                case (_, field, key):
                    self._entries.setdefault(field, []).append((slot, key))
                case (_, field, index, inner):
                    self._elements.setdefault(field, []).append((slot, index, inner))
                case _:
                    pass  # the images
        for field in self._entries:
            setattr(node.metadata, field, with_shared_keys(getattr(node.metadata, field)))

    def make(self, number: int, columns: list[list[str]], images: list[objects.ContainerImage]) -> objects.Node:
        """Return the node with the strings that are in this place of the columns."""
        node = self._node
        parts: dict[str, Any] = {"metadata": node.metadata, "spec": node.spec, "status": node.status}
        parts = {section: part.__copy__() for section, part in parts.items()}
        for slot, section, field in self._fields:
            setattr(parts[section], field, _text(columns[slot][number]))
        meta, status = parts["metadata"], parts["status"]
        for field, entries in self._entries.items():
            changed = getattr(meta, field).copy()
            for slot, key in entries:
                changed[key] = _text(columns[slot][number])
            setattr(meta, field, changed)
        for field, elements in self._elements.items():
            things = getattr(status, field).copy()
            for slot, index, inner in elements:
                things[index] = things[index].__copy__()
                setattr(things[index], inner, _text(columns[slot][number]))
            setattr(status, field, things)
        status.images = images
        return objects.Node(**parts)


class SimilarNodes(SimilarItems[objects.Node]):
    """Decodes the pages of one list of nodes. Equal lists of images are one object, which nobody may change."""

    slots = 28
    elements = b'"images":['

    def __init__(self, decode: Callable[[bytes], objects.Node], scan: Callable[..., tuple[int, int]]) -> None:
        """See `SimilarItems`."""
        super().__init__(decode, scan)
        self._recipes: list[_Recipe] = []
        self._images: dict[str, list[objects.ContainerImage]] = {}
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
        if len(places) >= self.slots:
            return None
        slots: dict[Place, int] = {(): _IMAGES_SLOT}
        return slots | {place: slot for slot, place in enumerate(places, _IMAGES_SLOT + 1)}

    def constants_of(self, obj: objects.Node) -> dict[int, str]:
        """See `SimilarItems`."""
        return {}

    def added(self, model: Model[objects.Node], slots: dict[Place, int]) -> None:
        """See `SimilarItems`."""
        self._recipes.append(_Recipe(model.object, slots))

    def made(self, numbers: list[int], columns: list[list[str]]) -> list[Any]:
        """See `SimilarItems`."""
        made: list[objects.Node] = []
        recipes, known = self._recipes, self._images
        for number, (model, text) in enumerate(zip(numbers, columns[_IMAGES_SLOT], strict=True)):
            images = known.get(text)
            if images is None:
                images = self._read(text)
            made.append(recipes[model].make(number, columns, images))
        return made

    def _read(self, text: str) -> list[objects.ContainerImage]:
        try:
            found = self._decode_images(f"[{text}]")
        except RecursionError as error:
            raise msgspec.DecodeError("nested too deep") from error
        self._image_bytes += len(text)
        if len(self._images) >= _MOST_IMAGES or self._image_bytes > _MOST_IMAGE_BYTES:
            self._images.clear()
            self._image_bytes = len(text)
        self._images[text] = found
        return found


def _text(raw: str) -> str:
    """Return the text of a JSON string without its quotes."""
    return raw if "\\" not in raw else str(msgspec.json.decode(f'"{raw}"'))
