"""Objects in Kubernetes' protobuf form to plain dictionaries, by the field numbers of the schema. Pure.

Only reading: clients that send protobuf accept JSON in return.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeAlias

import orjson

from kube_policy_scheduler.documents import api_schema
from kube_policy_scheduler.documents.api_schema import FieldType
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.times import rfc3339

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Raw: TypeAlias = int | bytes


class ProtobufError(ValueError):
    """The bytes are not an object in Kubernetes' protobuf form."""


def decode(content: bytes) -> Json:
    """Return the object in a request body.

    Raises:
        ProtobufError: the body cannot be read, or is of a kind without a schema.
    """
    if not content.startswith(_MAGIC):
        raise ProtobufError("the body does not begin with the mark of the encoding")
    try:
        envelope = dict(read_fields(content[len(_MAGIC) :]))
        kind_of = {number: _text(value) for number, value in read_fields(_bytes(envelope[1]))}
        version, kind = kind_of.get(1, ""), kind_of.get(2, "")
        name = api_schema.type_name(version, kind)
        if name is None and kind == "DeleteOptions":
            name = api_schema.type_name("v1", kind)
        if name is None:
            raise ProtobufError(f"no kind {kind!r} is registered for version {version!r}")
        return {"apiVersion": version, "kind": kind, **_message(_bytes(envelope.get(2, b"")), name)}
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, TypeError) as error:
        raise ProtobufError(f"the body is not readable: {error!r}") from error


@cache
def _numbers(name: str) -> dict[tuple[int, ...], tuple[str, FieldType]]:
    return {kind.numbers: (key, kind) for key, kind in api_schema.load().types[name].items() if kind.numbers}


@cache
def _inlined(name: str) -> frozenset[tuple[int, ...]]:
    """Return the numbers of fields that are messages in protobuf but inline in JSON."""
    return frozenset(path[:depth] for path in _numbers(name) for depth in range(1, len(path)))


def read_fields(content: bytes) -> Iterator[tuple[int, _Raw]]:
    """Yield number and raw value of each field of a message.

    Raises:
        ProtobufError: the bytes are not a message.
    """
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, wire = tag >> 3, tag & 7
        value: _Raw
        if wire == 0:
            value, at = _varint(content, at)
        elif wire == 1:
            value, at = content[at : at + 8], at + 8
        elif wire == 2:
            size, at = _varint(content, at)
            value, at = content[at : at + size], at + size
            if len(value) != size:
                raise ProtobufError("the body ends within a field")
        elif wire == 5:
            value, at = content[at : at + 4], at + 4
        else:
            raise ProtobufError(f"unknown wire type {wire}")
        yield number, value


def _varint(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _bytes(value: _Raw) -> bytes:
    if isinstance(value, int):
        raise TypeError("a message was expected, this is a number")
    return value


def _text(value: _Raw) -> str:
    return _bytes(value).decode()


def _signed(value: _Raw) -> int:
    if not isinstance(value, int):
        raise TypeError("a number was expected, this is a message")
    return value - (1 << 64) if value >> 63 else value


def _message(content: bytes, name: str, *, prefix: tuple[int, ...] = (), into: Json | None = None) -> Json:
    done: Json = {} if into is None else into
    numbers, inlined = _numbers(name), _inlined(name)
    for number, value in read_fields(content):
        path = (*prefix, number)
        if path in inlined:
            _message(_bytes(value), name, prefix=path, into=done)
        elif path in numbers:
            key, kind = numbers[path]
            _put(done, key, value, kind)
    return done


def _put(done: Json, key: str, value: _Raw, kind: FieldType) -> None:
    containers = kind.containers
    if containers == "l" and kind.wrapped:
        done[key] = _wrapped(value)
    elif containers == "l":
        done.setdefault(key, []).extend(_elements(value, kind))
    elif containers.startswith("m"):
        entry = dict(read_fields(_bytes(value)))
        inner = entry.get(2, b"")
        held = _wrapped(inner) if kind.wrapped else _value(inner, kind)
        done.setdefault(key, {})[_text(entry.get(1, b""))] = held
    elif (decoded := _value(value, kind)) is not None:
        done[key] = decoded


def _wrapped(value: _Raw) -> list[str]:
    return [_text(item) for _, item in read_fields(_bytes(value))]


def _elements(value: _Raw, kind: FieldType) -> list[Any]:
    if kind.name in ("int32", "int64", "boolean") and isinstance(value, bytes):
        packed, at = [], 0
        while at < len(value):
            number, at = _varint(value, at)
            packed.append(_value(number, kind))
        return packed
    return [_value(value, kind)]


def _value(value: _Raw, kind: FieldType) -> Any:
    match kind.name:
        case "string":
            return _text(value)
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "int32" | "int64":
            return _signed(value)
        case "number":
            return struct.unpack("<d", _bytes(value))[0]
        case "boolean":
            return bool(value)
        case "quantity":
            return "".join(_text(item) for number, item in read_fields(_bytes(value)) if number == 1) or "0"
        case "int-or-string":
            fields = dict(read_fields(_bytes(value)))
            return _text(fields.get(3, b"")) if fields.get(1) else _signed(fields.get(2, 0))
        case "time" | "micro-time":
            return _moment(value, micro=kind.name == "micro-time")
        case "any":
            return orjson.loads(next((_bytes(item) for _, item in read_fields(_bytes(value))), b"null") or b"null")
        case name:
            return _message(_bytes(value), name)


def _moment(value: _Raw, *, micro: bool) -> str | None:
    fields = dict(read_fields(_bytes(value)))
    if not fields:
        return None
    seconds, nanos = _signed(fields.get(1, 0)), _signed(fields.get(2, 0))
    if seconds < -62_000_000_000:  # the zero time of Go
        return None
    moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    return rfc3339(moment, "microseconds") if micro else rfc3339(moment)
