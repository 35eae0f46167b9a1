"""Changes of objects in Kubernetes' protobuf form, where JSON cannot express that all else stays as it is.

The API server compares parameters of drivers in claims byte by byte, and a JSON answer does not show these bytes:
spaces are gone, and some characters are escaped. So an object that goes back as JSON, or is patched, may count as
changed in a field that is immutable. In protobuf the bytes come and go as they are stored.

The form: `k8s\\0` and a message `Unknown`, of which field 2 is the object; field 1 of an object is its metadata, and
field 14 of that is the list of finalizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_OBJECT, _METADATA = 2, 1
_FINALIZERS = 14 << 3 | 2
"""Tag of the field: its number, and that a length precedes its bytes."""
_FIXED_BYTES = {1: 8, 5: 4}
"""Bytes of a value by the wire types without a length of their own."""


class ProtobufError(ValueError):
    """The bytes are not an object in Kubernetes' protobuf form."""


def with_finalizer(content: bytes, finalizer: str) -> bytes:
    """Return an object with one more finalizer, and all else as it was.

    Raises:
        ProtobufError: the bytes cannot be read.
    """
    if not content.startswith(_MAGIC):
        raise ProtobufError("the object does not begin with the mark of the encoding")
    text = finalizer.encode()
    added = bytes([_FINALIZERS]) + _varint(len(text)) + text
    try:
        return _MAGIC + _replaced(
            content[len(_MAGIC) :],
            _OBJECT,
            lambda found: _replaced(found, _METADATA, lambda metadata: metadata + added),
        )
    except IndexError:
        raise ProtobufError("the object ends in the middle of a field") from None


def _replaced(message: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """Return a message with another value of one field."""
    parts: list[bytes] = []
    is_found = False
    for tag, whole, value in _fields(message):
        if tag >> 3 == number and tag & 7 == 2 and not is_found:
            is_found = True
            fresh = change(value)
            parts += [_varint(tag), _varint(len(fresh)), fresh]
        else:
            parts.append(whole)
    if not is_found:
        raise ProtobufError(f"the object has no field {number}")
    return b"".join(parts)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the tag of each field, all its bytes, and its value without the length."""
    at = 0
    while at < len(message):
        begin = at
        tag, at = _read_varint(message, at)
        first = at
        if tag & 7 == 0:
            _, at = _read_varint(message, at)
        elif tag & 7 == 2:
            length, first = _read_varint(message, at)
            at = first + length
        elif (width := _FIXED_BYTES.get(tag & 7)) is not None:
            at += width
        else:
            raise ProtobufError(f"unknown wire type {tag & 7}")
        if at > len(message):
            raise IndexError
        yield tag, message[begin:at], message[first:at]


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ProtobufError("a number is too long")


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
