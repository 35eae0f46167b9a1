"""The OpenAPI document of version 2 as protobuf, the only form older kubectl reads. Pure.

Field numbers are those of `openapiv2/OpenAPIv2.proto` of github.com/google/gnostic. Only what our documents
contain can be encoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from kube_policy_scheduler.embedded.errors import Json

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OLD_CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_OPERATIONS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def _varint(number: int) -> bytes:
    done = bytearray()
    while number > 0x7F:
        done.append(number & 0x7F | 0x80)
        number >>= 7
    done.append(number)
    return bytes(done)


def _field(number: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _flag(number: int) -> bytes:
    return _varint(number << 3) + b"\x01"


def _named(number: int, items: Iterable[tuple[str, bytes]]) -> bytes:
    return b"".join(_field(number, _field(1, name) + _field(2, value)) for name, value in items)


def _extensions(number: int, holder: Json) -> bytes:
    """Encode `x-...` members; values travel as YAML text, of which JSON is a part."""
    return _named(
        number,
        ((key, _field(2, orjson.dumps(value))) for key, value in holder.items() if key.startswith("x-")),
    )


def encode(document: Json) -> bytes:
    """Return a document of version 2 as `openapi.v2.Document`."""
    info = _field(1, document["info"]["title"]) + _field(2, document["info"]["version"])
    paths = _named(2, ((path, _path(item)) for path, item in document["paths"].items()))
    definitions = _named(1, ((name, _schema(item)) for name, item in document["definitions"].items()))
    return _field(1, document["swagger"]) + _field(2, info) + _field(8, paths) + _field(9, definitions)


def _path(item: Json) -> bytes:
    return b"".join(_field(_OPERATIONS[verb], _operation(operation)) for verb, operation in item.items())


def _operation(operation: Json) -> bytes:
    done = b"".join(_field(8, _field(1, _field(2, _field(3, _query(item))))) for item in operation["parameters"])
    responses = _named(
        1, ((code, _field(1, _field(1, item["description"]))) for code, item in operation["responses"].items())
    )
    return done + _field(9, responses) + _extensions(13, operation)


def _query(parameter: Json) -> bytes:
    return _field(2, parameter["in"]) + _field(4, parameter["name"]) + _field(6, parameter["type"])


def _schema(schema: Json) -> bytes:
    done = b""
    for key, number in (("$ref", 1), ("format", 2)):
        if key in schema:
            done += _field(number, schema[key])
    done += b"".join(_field(19, name) for name in schema.get("required", ()))
    extra: Any = schema.get("additionalProperties")
    if isinstance(extra, dict):
        done += _field(21, _field(1, _schema(extra)))
    elif extra:
        done += _field(21, _flag(2))
    if "type" in schema:
        done += _field(22, _field(1, schema["type"]))
    if "items" in schema:
        done += _field(23, _field(1, _schema(schema["items"])))
    if "properties" in schema:
        done += _field(25, _named(1, ((name, _schema(item)) for name, item in schema["properties"].items())))
    return done + _extensions(31, schema)
