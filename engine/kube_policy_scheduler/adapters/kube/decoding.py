"""List pages and watch lines to structs. One object that cannot be decoded never costs the others."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from kube_policy_scheduler.adapters.kube.errors import MESSAGE_CHARACTERS, MalformedAnswer
from kube_policy_scheduler.adapters.kube.nesting import bounded, decoder_of
from kube_policy_scheduler.adapters.kube.resources import T
from kube_policy_scheduler.cluster.objects import Node, ObjectMeta, Pod
from kube_policy_scheduler.wording import one_line

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.kube.similar_items import SimilarItems

Decoded = TypeVar("Decoded")

EMPTY_LIST_BYTES = 1 << 10
"""Shorter answers are looked at for objects first: a cluster has none of most kinds."""
MAX_LINE_BYTES = 64 << 20  # etcd stops at 1.5 MiB per object, aggregated APIs may allow more


class Malformed(msgspec.Struct, frozen=True):
    """An object that was passed over; metadata is as much of it as could be read."""

    metadata: ObjectMeta
    problem: str

    def __str__(self) -> str:
        name = "/".join(part for part in (self.metadata.namespace, self.metadata.name) if part)
        return f"{name or 'an object without a name'}: {self.problem}"


class ListMeta(msgspec.Struct, rename="camel"):
    """Metadata of a list page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None
    """Objects of later pages; the API server says so only of lists without selectors."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One decoded page of a list."""

    objects: Sequence[T]
    malformed: list[Malformed]
    metadata: ListMeta


class WatchEvent(msgspec.Struct, Generic[T], gc=False):
    """A line of a watch as it comes: type is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: T


class Bookmark(msgspec.Struct, frozen=True):
    """A BOOKMARK whose object has only metadata."""

    resource_version: str


class WatchFailure(msgspec.Struct, frozen=True):
    """An ERROR line: the `Status` it carries."""

    status: bytes


class MalformedEvent(msgspec.Struct, frozen=True):
    """An event whose object could not be decoded."""

    type: str
    object: Malformed


class _TypedList(msgspec.Struct, Generic[T], gc=False):
    metadata: ListMeta
    items: list[T] | None = None


class _ListHead(msgspec.Struct):
    metadata: ListMeta


class _RawList(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Identified(msgspec.Struct):
    metadata: ObjectMeta


_decode_list_head = decoder_of(_ListHead)
_decode_raw_list = decoder_of(_RawList)
_decode_raw_event = decoder_of(_RawEvent)
_decode_identified = decoder_of(_Identified)


def list_version(body: bytes) -> str:
    """Return the resource version of a list, whatever it lists. Raises MalformedAnswer if it is no list."""
    try:
        return _decode_list_head(body).metadata.resource_version
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedAnswer(f"the answer is not a list: {error}") from error


def _uncollected(decode: Callable[[bytes | msgspec.Raw], Decoded]) -> Callable[[bytes | msgspec.Raw], Decoded]:
    """Return a decoder during which the garbage collector rests: it would look at thousands of lists, all in use."""

    @wraps(decode)
    def decoded(body: bytes | msgspec.Raw) -> Decoded:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return decode(body)
        finally:
            if was_enabled:
                gc.enable()

    return decoded


class ObjectDecoder(Generic[T]):
    """Decodes what the API server sends about objects of one struct."""

    has_loop: ClassVar[bool] = False
    """Whether `similar_items` was called: the next one returns at once."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    # msgspec reads the annotations of all structs within: 0.5 to 4 ms a kind, which a start has no time for

    @cached_property
    def _object(self) -> Callable[[msgspec.Raw], T]:
        return bounded(msgspec.json.Decoder(self._kind).decode)

    @cached_property
    def _list(self) -> Callable[[bytes], _TypedList[T]]:
        kind: Any = self._kind
        return _uncollected(bounded(msgspec.json.Decoder(_TypedList[kind]).decode))

    @cached_property
    def _lines(self) -> Callable[[bytes], list[WatchEvent[T]]]:
        kind: Any = self._kind
        return bounded(msgspec.json.Decoder(WatchEvent[kind]).decode_lines)

    def similar_items(self) -> SimilarItems[Any] | None:
        """Return what decodes the pages of one list faster, for `page`, with pods as `ListedPod`.

        None if it lists neither pods nor nodes, or numba cannot be used.
        """
        if self._kind is not Pod and self._kind is not Node:
            return None
        # most starts do without
        from kube_policy_scheduler.adapters.compute.compiled_kernels import compile_loop
        from kube_policy_scheduler.adapters.kube import item_scan
        from kube_policy_scheduler.adapters.kube.similar_nodes import SimilarNodes
        from kube_policy_scheduler.adapters.kube.similar_pods import SimilarPods

        scan = compile_loop(item_scan.scan, item_scan.SIGNATURE)
        ObjectDecoder.has_loop = True
        decode: Any = self._object
        similar = SimilarPods if self._kind is Pod else SimilarNodes
        return similar(decode, scan) if scan is not None else None

    def page(self, body: bytes, similar: SimilarItems[Any] | None = None) -> Page[T]:
        """Decode a list page. Raises MalformedAnswer if it is no list at all."""
        if similar is not None and (split := _uncollected(similar.split)(body)) is not None:
            try:
                whole = self._list(split[0])
                listed: Any = split[1]
                return Page(listed, [], whole.metadata)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
        if len(body) < EMPTY_LIST_BYTES:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                if not (empty := _decode_raw_list(body)).items:
                    return Page([], [], empty.metadata)
        try:
            whole = self._list(body)
            return Page(whole.items or [], [], whole.metadata)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        try:
            raw = _decode_raw_list(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedAnswer(f"the answer is not a list: {error}") from error
        objects: list[T] = []
        malformed: list[Malformed] = []
        for item in raw.items or ():
            try:
                objects.append(self._object(item))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                malformed.append(_malformed(item, error))
        return Page(objects, malformed, raw.metadata)

    def events(self, lines: bytes) -> Sequence[WatchEvent[T] | Bookmark | WatchFailure | MalformedEvent]:
        """Decode complete watch lines, in order. Raises MalformedAnswer for a line that is no watch event."""
        try:
            events = self._lines(lines)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._one_by_one(lines)
        if any(event.type == "ERROR" for event in events):
            return self._one_by_one(lines)  # its object is a Status
        return events

    def _one_by_one(self, lines: bytes) -> list[WatchEvent[T] | Bookmark | WatchFailure | MalformedEvent]:
        return [self._event(line) for line in lines.split(b"\n") if line.strip()]

    def _event(self, line: bytes) -> WatchEvent[T] | Bookmark | WatchFailure | MalformedEvent:
        try:
            raw = _decode_raw_event(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedAnswer(f"a line is not a watch event: {error}") from error
        match raw.type:
            case "BOOKMARK":
                return Bookmark(_metadata_of(raw.object).resource_version)
            case "ERROR":
                return WatchFailure(bytes(raw.object))
        try:
            return WatchEvent(raw.type, self._object(raw.object))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return MalformedEvent(raw.type, _malformed(raw.object, error))


def _malformed(raw: msgspec.Raw, error: Exception) -> Malformed:
    return Malformed(_metadata_of(raw), one_line(str(error), MESSAGE_CHARACTERS))


def _metadata_of(raw: msgspec.Raw) -> ObjectMeta:
    try:
        return _decode_identified(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ObjectMeta()


def pieces_of_lines(lines: bytes, most_bytes: int) -> Iterator[bytes]:
    """Cut complete lines at line ends into pieces of at most this many bytes; a longer line is a piece of its own."""
    at = 0
    while len(lines) - at > most_bytes:
        cut = lines.rfind(b"\n", at, at + most_bytes) + 1 or lines.index(b"\n", at + most_bytes) + 1
        yield lines[at:cut]
        at = cut
    if at < len(lines):
        yield lines[at:]


class LineBuffer:
    """Cuts a stream of chunks at line ends, in time linear in what passes through."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0

    def feed(self, chunk: bytes) -> bytes:
        """Return all lines that are now complete, b"" if none. Raises MalformedAnswer for an endless line."""
        cut = chunk.rfind(b"\n") + 1
        if cut == 0:
            self._pieces.append(chunk)
            self._bytes += len(chunk)
            if self._bytes > MAX_LINE_BYTES:
                raise MalformedAnswer(f"a line of a watch is longer than {MAX_LINE_BYTES >> 20} MiB")
            return b""
        self._pieces.append(chunk if cut == len(chunk) else chunk[:cut])
        lines = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = [] if cut == len(chunk) else [chunk[cut:]]
        self._bytes = len(chunk) - cut
        return lines
