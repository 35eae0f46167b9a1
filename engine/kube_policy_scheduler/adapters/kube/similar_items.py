"""Items of a list that are like an earlier one: they are compared with it, and not decoded again.

Pods of one workload differ in a few strings: names, identifiers, times, the node; and so do nodes. Once two of them
were decoded, what differs is known as *holes*. A further one needs to be the same bytes between the holes, with plain
strings in them: then it is the same object with these strings in their places. A compiled loop compares, at the speed
of memory.

What the decoder makes of an item is the specification, and it is the decoder that shows where what is written in a
hole arrives: it gets an item with a mark in each hole. Items are decoded as ever wherever something is not certain:
escapes or characters beyond ASCII in a hole, or a difference in anything else that is read.
"""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np

from kube_policy_scheduler.adapters.kube import item_scan
from kube_policy_scheduler.adapters.kube.item_scan import (
    BEGINNING,
    ELEMENTS,
    ESCAPED,
    INNER_KEY,
    LONGEST_HOLE,
    NUMBER,
    PLAIN,
    Compared,
    Models,
)
from kube_policy_scheduler.adapters.kube.resources import HasMetadata

_MOST_KINDS = 4096
"""Workloads and pools of one list that are remembered."""
_MOST_BYTES = 32 << 20
"""Of the items that are remembered."""
_LARGEST_ITEM = 64 << 10
_MODELS_PER_KIND = 6
"""As many are compared with an item: Running or not, of several versions."""
_FIRST_LOOKS, _ITEMS_PER_LOOK, _HITS_PER_LOOK = 16, 128, 8
"""How often two items are compared token by token. That costs as much as decoding about twenty."""
_FIRST_MISSES = 32
"""Of one kind: it is compared on only if models serve one in two."""
_MOST_FAILURES = 3
"""Pages that have another form than the API server's, or a malformed item; then no further one is tried."""
_BUCKETS = 4 * _MOST_KINDS
_TEXT_BYTES = (10 << 20) + (1 << 12) + (1 << 6)
"""Of one kind of string in a page; memory only as far as it is used. All kinds are written to in turn, and at such a
distance they do not compete for the same lines of a cache."""
_MOST_ITEMS = 1 << 14
"""Of one page."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+":?|[{}\[\],]|[^"{}\[\],\s]++', re.DOTALL)
_SPACED = re.compile(rb'"\s+:')
"""A key that `_TOKEN` would take for a value."""
_INNER = re.compile(rb'"k:\{(?:[ !#-\[\]-~]|\\["\\/bfnrt])*+":')
"""A key as `managedFields` has for elements of lists. No field has such a name."""
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,14}")
_MARK = b"\x7f%d"
_NUMBER_MARKS, _NUMBER_MARK, _MOST_NUMBERS = b"1987654", b"1987654%03d", 1000
"""What is put in holes: nothing else in an item has it, and a decoder takes it as what else might be there: an int32.
"""
_NEXT = b'},{"metadata":{'
_ITEMS = b',"items":['
_LONGEST_HEAD = 4096

Place: TypeAlias = tuple[Any, ...]
"""Of a string in an object: a section and a field of it; of a map also the key, of a list also index and field.

() is the list that is looked up as a whole."""
ELEMENTS_MARK = b'{"names":["\x7fimage"],"sizeBytes":1}'
Item = TypeVar("Item", bound=HasMetadata)


class _Hole(msgspec.Struct, frozen=True):
    """Where items differ: within the quotes of a string, or a whole number."""

    start: int
    end: int
    kind: int
    place: Place | None = None
    """Where it arrives; None where nothing reads it."""


class Model(msgspec.Struct, Generic[Item]):
    """An item, what it was decoded to, and its holes by their number among its tokens."""

    item: bytes
    object: Item
    holes: dict[int, _Hole]


class _Kind(Generic[Item]):
    """What is known of items whose names begin alike."""

    __slots__ = ("bucket", "hits", "last", "misses", "models")

    def __init__(self) -> None:
        self.models: list[int] = []
        """By number, in the order in which they are tried."""
        self.last: Model[Item] | None = None
        self.misses = self.hits = 0
        self.bucket = -1

    @property
    def is_served(self) -> bool:
        """Return whether models serve enough of them."""
        return self.misses < _FIRST_MISSES or self.hits >= self.misses


def _untouched(size: int) -> mmap.mmap:
    """Return zeros of which each page of 4 KiB is made when it is first written to.

    `bytearray` writes to all of them at once, which takes 250 ms for those of nodes. `np.zeros` asks for huge pages,
    and clearing one for each slot takes as long in one turn.
    """
    pages = mmap.mmap(-1, size)
    if sys.platform == "linux":
        with suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_NOHUGEPAGE)
    return pages


class SimilarItems(Generic[Item]):
    """Decodes the pages of one list; it has what it learned from the earlier pages."""

    slots: int
    """How many strings of an item can differ, at most."""
    elements: bytes = b""
    """How a list begins that is looked up as a whole, `"images":[`; b"" for none."""

    def __init__(self, decode: Callable[[bytes], Item], scan: Callable[..., tuple[int, int]]) -> None:
        """Make one.

        Args:
            decode: makes the object of an item.
            scan: `item_scan.scan`, compiled.
        """
        self._decode, self._scan = decode, scan
        self._kinds: dict[bytes, _Kind[Item]] = {}
        self._models: list[Model[Item]] = []
        self._kind_of: list[_Kind[Item]] = []
        self._items = self._hits = self._looks = self._failures = self._bytes = 0
        self._arena, self._arena_used = np.zeros(1 << 16, np.uint8), 0
        self._steps, self._steps_used = np.zeros((256, 4), np.int64), 0
        self._ranges = np.zeros((64, 2), np.int64)
        self._constants = np.zeros((64, self.slots, 2), np.int64)
        self._hashes = np.zeros(_BUCKETS, np.uint64)
        self._chains = np.full((_BUCKETS, _MODELS_PER_KIND), -1, np.int64)
        self._found = np.zeros(_MOST_ITEMS, np.int64)
        self._lists = np.zeros((_MOST_ITEMS, 2), np.int64)
        self._texts = np.frombuffer(_untouched(self.slots * _TEXT_BYTES), np.uint8).reshape(self.slots, -1)
        self._used = np.zeros(self.slots, np.int64)

    def strings(self, obj: Item) -> Iterator[tuple[Place, str]]:
        """Yield the strings that may differ between similar objects."""
        raise NotImplementedError

    def numbers(self, obj: Item) -> Iterator[tuple[Place, int]]:
        """Yield the whole numbers that may differ between similar objects."""
        return iter(())

    def take_elements(self, marked: Item) -> bool:
        """Return whether the list that is looked up as a whole is `ELEMENTS_MARK`, and empty it."""
        raise NotImplementedError

    def slots_of(self, model: Model[Item]) -> dict[Place, int] | None:
        """Return the slot of each place that a model has a hole for; None: it cannot be used."""
        raise NotImplementedError

    def constants_of(self, obj: Item) -> dict[int, str]:
        """Return what is in each slot for which a model has no hole."""
        raise NotImplementedError

    def added(self, model: Model[Item], slots: dict[Place, int]) -> None:
        """Note a model; its number is one more than that of the last one."""
        raise NotImplementedError

    def made(
        self,
        numbers: list[int],
        columns: list[list[str]],
        lists: Iterable[bytes],
        decoded: Sequence[tuple[int, Item]],
    ) -> Sequence[Any]:
        """Return the items of a page in their order.

        Args:
            numbers: of the models, for the items that are like one.
            columns: the strings of these items, by slot.
            lists: the JSON of their lists that are looked up as a whole, without brackets.
            decoded: all other items, in order, each with how many of those of a model are before it.

        Raises:
            msgspec.DecodeError: what is in a list cannot be decoded.
        """
        raise NotImplementedError

    def split(self, body: bytes) -> tuple[bytes, Sequence[Any]] | None:
        """Return a page without its items, and these; None for one that must be decoded as a whole."""
        begin = body.find(_ITEMS, 0, _LONGEST_HEAD)
        if begin < 0 or self._failures >= _MOST_FAILURES:
            return None
        head = body[:begin]
        if b"\\" in head or b'"items"' in head:
            return None
        try:
            found = self._all(body, begin + len(_ITEMS))
        except (msgspec.DecodeError, UnicodeDecodeError):
            found = None
        if found is None:
            self._failures += 1
            return None
        return head + _ITEMS + b"]}", found

    def _all(self, body: bytes, at: int) -> Sequence[Any] | None:
        whole = np.frombuffer(body, np.uint8)
        total = 0
        decoded: list[tuple[int, Item]] = []
        self._used[:] = 0
        while True:
            models = Models(self._arena, self._steps, self._ranges, self._constants, self._hashes, self._chains)
            compared = Compared(self._found[total:], self._lists[total:], self._texts, self._used)
            count, at = self._scan(whole, at, tuple(models), tuple(compared))
            total += count
            if body.startswith(b"]", at):
                break
            item, obj = self._one(body, at)
            decoded.append((total, obj))
            at += len(item)
            if not body.startswith(b",", at):
                break
            at += 1
        if body[at:].rstrip() != b"]}":
            return None
        self._items += total + len(decoded)
        if not total:
            return self.made([], [[] for _ in range(self.slots)], (), decoded)
        self._hits += total
        numbers = self._found[:total]
        for model, hits in enumerate(np.bincount(numbers).tolist()):
            self._kind_of[model].hits += hits
        columns: list[list[str]] = []
        for slot, used in enumerate(self._used.tolist()):
            text = self._texts[slot, : used - 1].tobytes().decode()
            column = text.split("\n")
            if "\\" in text:
                column = [_unescaped(each) for each in column]
            columns.append(column)
        lists = (body[begin:end] for begin, end in self._lists[:total].tolist())
        return self.made(numbers.tolist(), columns, lists, decoded)

    def _one(self, body: bytes, at: int) -> tuple[bytes, Item]:
        """Return the item that begins here, decoded, and learn from it. Raises msgspec.DecodeError."""
        cut = body.find(_NEXT, at)
        item = body[at : cut + 1 if cut >= 0 else body.rfind(b"]", at)]
        obj = self._decode(item)
        if item.startswith(BEGINNING) and len(item) <= _LARGEST_ITEM:
            first = len(BEGINNING)
            name = item[first : item.find(b'"', first, first + LONGEST_HOLE)]
            self._learn(name[: max(name.rfind(b"-", 0, 256), 0)], item, obj)
        return item, obj

    def _learn(self, key: bytes, item: bytes, obj: Item) -> None:
        """Find out in what an item differs from another one of its kind."""
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS or self._bytes >= _MOST_BYTES:
                return
            kind = self._kinds[key] = _Kind()
        kind.misses += 1
        if not kind.is_served:
            if kind.bucket >= 0:
                self._chains[kind.bucket] = -1
            kind.last = None
            return
        last, kind.last = kind.last, self._whole(item, obj)
        self._bytes += len(item) - (len(last.item) if last is not None else 0)
        if last is None or kind.last is None:
            return
        for number in (*kind.models, None):
            if self._looks >= _FIRST_LOOKS + self._items // _ITEMS_PER_LOOK + self._hits // _HITS_PER_LOOK:
                return
            self._looks += 1
            base = self._models[number] if number is not None else last
            fresh = self._widened(base, kind.last)
            if fresh is not None:
                self._add(key, kind, fresh, instead_of=number)
                return

    def _whole(self, item: bytes, obj: Item) -> Model[Item] | None:
        """Return an item without holes, except for the list that is looked up as a whole; None if that is not clear."""
        if not self.elements:
            return Model(item, obj, {})
        at = item.find(self.elements) + len(self.elements)
        if item.count(self.elements) != 1:
            return None
        depth, end = 1, at
        for token in _TOKEN.finditer(item, at):
            depth += (token[0] in b"[{") - (token[0] in b"]}")
            if not depth:
                end = token.start()
                break
        cut = item[:at] + item[end:]
        try:
            return Model(cut, self._decode(cut), {-1: _Hole(at, at, ELEMENTS)})
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _widened(self, base: Model[Item], other: Model[Item]) -> Model[Item] | None:
        """Return a model with holes also where another item differs; None if they differ in anything else."""
        item = base.item
        if b"\x7f" in item or _NUMBER_MARKS in item or _SPACED.search(item):
            return None
        others, tokens = _TOKEN.findall(other.item), list(_TOKEN.finditer(item))
        if len(tokens) != len(others):
            return None
        holes = dict(base.holes)
        for number, (token, text) in enumerate(zip(tokens, others, strict=True)):
            if token[0] != text:
                hole = _hole(token, text, holes.get(number))
                if hole is None:
                    return None
                holes[number] = hole
        places = self._arrivals(base, _in_order(holes))
        if places is None:
            return None
        for number, hole in holes.items():
            holes[number] = msgspec.structs.replace(hole, place=places[hole.start])
        return Model(item, base.object, holes)

    def _arrivals(self, base: Model[Item], holes: list[_Hole]) -> dict[int, Place | None] | None:
        """Return where what is written in each hole arrives, by its start; None if that cannot be said of one."""
        if len(holes) > _MOST_NUMBERS:
            return None
        pieces: list[bytes] = []
        at = 0
        marks: dict[str | int, _Hole] = {}
        for number, hole in enumerate(holes):
            mark = _MARK % number
            marks[mark.decode()] = marks[int(_NUMBER_MARK % number)] = hole
            if hole.kind == INNER_KEY:
                mark = b"k:{" + mark
            elif hole.kind == NUMBER:
                mark = _NUMBER_MARK % number
            elif hole.kind == ELEMENTS:
                mark = ELEMENTS_MARK
            pieces += (base.item[at : hole.start], mark)
            at = hole.end
        places: dict[int, Place | None] = {hole.start: None for hole in holes}
        try:
            marked = self._decode(b"".join([*pieces, base.item[at:]]))
            arrived: list[tuple[Place, str | int]] = [*self.strings(marked), *self.numbers(marked)]
            for place, value in arrived:
                if (found := marks.get(value)) is not None:
                    places[found.start] = place
                    text = base.item[found.start : found.end]
                    write(marked, place, msgspec.json.decode(text if found.kind == NUMBER else b'"%b"' % text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        for hole in holes:
            if hole.kind == ELEMENTS:
                if not self.take_elements(marked):
                    return None
                places[hole.start] = ()
        return places if marked == base.object else None

    def _add(self, key: bytes, kind: _Kind[Item], model: Model[Item], *, instead_of: int | None) -> None:
        slots = self.slots_of(model)
        constants = self.constants_of(model.object)
        if slots is None or self._bytes >= _MOST_BYTES or any("\n" in text for text in constants.values()):
            return
        number = len(self._models)
        self._bytes += 2 * len(model.item)
        self._models.append(model)
        self._kind_of.append(kind)
        self.added(model, slots)
        if instead_of is not None:
            kind.models.remove(instead_of)
        kind.models.insert(0, number)
        del kind.models[_MODELS_PER_KIND:]
        self._ranges = _grown(self._ranges, number + 1)
        self._constants = _grown(self._constants, number + 1)
        begin, at = self._steps_used, 0
        held: set[int] = set()
        for hole in _in_order(model.holes):
            slot = slots.get(hole.place, -1) if hole.place is not None else -1
            held.add(slot)
            self._step(model.item[at : hole.start], hole.kind, slot)
            at = hole.end
        self._step(model.item[at:], item_scan.END, -1)
        self._ranges[number] = begin, self._steps_used
        for slot in range(self.slots):
            self._constants[number, slot] = -1 if slot in held else self._keep(constants.get(slot, "").encode())
        if kind.bucket < 0:
            kind.bucket = _bucket(key, self._hashes)
        self._chains[kind.bucket] = (kind.models + [-1] * _MODELS_PER_KIND)[:_MODELS_PER_KIND]

    def _step(self, literal: bytes, hole: int, slot: int) -> None:
        self._steps = _grown(self._steps, self._steps_used + 1)
        self._steps[self._steps_used] = self._keep(literal)[0], len(literal), hole, slot
        self._steps_used += 1

    def _keep(self, text: bytes) -> tuple[int, int]:
        """Add bytes to the arena; return where they begin and end."""
        begin, end = self._arena_used, self._arena_used + len(text)
        self._arena = _grown(self._arena, end)
        self._arena[begin:end] = np.frombuffer(text, np.uint8)
        self._arena_used = end
        return begin, end


def merged(alike: list[Any], others: Iterable[tuple[int, Any]]) -> list[Any]:
    """Return what is of items that are like a model, with what is of the others, as `SimilarItems.made` gets them."""
    found: list[Any] = []
    before = 0
    for number, other in others:
        found += alike[before:number]
        found.append(other)
        before = number
    return found + alike[before:] if found else alike


def _grown(array: Any, size: int) -> Any:
    """Return an array with room for this many elements."""
    if size <= len(array):
        return array
    more = np.zeros((max(size, 2 * len(array)) - len(array), *array.shape[1:]), array.dtype)
    return np.concatenate((array, more))


def _bucket(key: bytes, hashes: Any) -> int:
    """Return the bucket of a key, taken from now on."""
    value = item_scan.hash_of(key)
    bucket = (value >> 40) & (len(hashes) - 1)
    while hashes[bucket] and int(hashes[bucket]) != value:
        bucket = (bucket + 1) & (len(hashes) - 1)
    hashes[bucket] = value
    return bucket


def _in_order(holes: dict[int, _Hole]) -> list[_Hole]:
    return sorted(holes.values(), key=lambda hole: hole.start)


def _unescaped(text: str) -> str:
    return text if "\\" not in text else str(msgspec.json.decode(f'"{text}"'))


def write(obj: Any, place: Place, text: str | int) -> None:
    """Write a string or a number to its place."""
    match place:
        case (section, field):
            setattr(getattr(obj, section), field, text)
        case (section, field, key):
            getattr(getattr(obj, section), field)[key] = text
        case (section, field, index, inner):
            setattr(getattr(getattr(obj, section), field)[index], inner, text)
        case _:
            raise ValueError(f"{place} is no place")


def _hole(token: re.Match[bytes], other: bytes, known: _Hole | None) -> _Hole | None:
    """Return a hole for two tokens; None if there cannot be one."""
    text, start, end = token[0], token.start(), token.end()
    if max(len(text), len(other)) > LONGEST_HOLE:
        return None
    if text.startswith(b'"') and other.startswith(b'"'):
        if text.endswith(b":") or other.endswith(b":"):
            is_inner = _INNER.fullmatch(text) and _INNER.fullmatch(other)
            return _Hole(start + 1, end - 2, INNER_KEY) if is_inner else None
        has_escapes = b"\\" in text or b"\\" in other or (known is not None and known.kind == ESCAPED)
        return _Hole(start + 1, end - 1, ESCAPED if has_escapes else PLAIN)
    is_number = _NUMBER.fullmatch(text) and _NUMBER.fullmatch(other)
    return _Hole(start, end, NUMBER) if is_number else None
