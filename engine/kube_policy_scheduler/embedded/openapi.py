"""The OpenAPI documents: version 2 as JSON and as protobuf, which older kubectl reads, and version 3. Pure.

They hold what clients read: types for validation and `kubectl explain`, merge keys for `kubectl apply`, and for
each kind a PATCH operation that accepts `fieldValidation` and `dryRun`, by which kubectl knows that the server
validates. Field numbers of the protobuf are those of `openapiv2/OpenAPIv2.proto` of github.com/google/gnostic.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import orjson

from kube_policy_scheduler.documents import api_schema
from kube_policy_scheduler.documents.api_schema import FieldType
from kube_policy_scheduler.embedded import discovery, patch
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.resources import Catalog, Resource

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
    return b"".join(_field(_OPERATIONS[verb], _operation_message(operation)) for verb, operation in item.items())


def _operation_message(operation: Json) -> bytes:
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


_QUERY = ("dryRun", "fieldManager", "fieldValidation", "force")
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_SCALARS: dict[str, Json] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time"},
    "micro-time": {"type": "string", "format": "date-time"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "any": {"type": "object"},
}


def _info(catalog: Catalog) -> Json:
    return {"title": "Kubernetes", "version": discovery.version(catalog)["gitVersion"]}


def group_versions(catalog: Catalog) -> list[str]:
    """Return the paths of the documents of version 3: `api/v1`, `apis/apps/v1`, ..."""
    return sorted({_root(resource) for resource in catalog.resources})


def _root(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


@lru_cache(maxsize=128)
def version3(catalog: Catalog, root: str) -> Json | None:
    """Return the document of one group version, None when it is not served."""
    members = [resource for resource in catalog.resources if _root(resource) == root]
    if not members:
        return None
    prefix = "#/components/schemas/"
    names = _reachable({api_schema.type_name(item.api_version, item.kind) for item in members} - {None})
    return {
        "openapi": "3.0.0",
        "info": _info(catalog),
        "paths": _paths(members, version=3),
        "components": {"schemas": _definitions(names, prefix)},
    }


@lru_cache(maxsize=4)
def version2(catalog: Catalog) -> Json:
    """Return the document of all kinds."""
    return {
        "swagger": "2.0",
        "info": _info(catalog),
        "paths": _paths(list(catalog.resources), version=2),
        "definitions": _definitions(set(api_schema.load().types), "#/definitions/"),
    }


def _paths(members: list[Resource], *, version: int) -> Json:
    paths: Json = {}
    for resource in members:
        if "patch" not in resource.verbs:
            continue
        scope = "namespaces/{namespace}/" if resource.namespaced else ""
        path = f"/{_root(resource)}/{scope}{resource.plural}"
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        for verb, at in (("post", path), ("put", path + "/{name}"), ("patch", path + "/{name}")):
            paths.setdefault(at, {})[verb] = _operation(kind, verb, version=version)
    return paths


def _operation(kind: Json, verb: str, *, version: int) -> Json:
    operation: Json = {
        "parameters": [_parameter(name, version=version) for name in _QUERY],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": kind,
    }
    if version == 3 and verb == "patch":
        operation["requestBody"] = {"content": {media: {"schema": {"type": "object"}} for media in patch.ACCEPTED}}
    return operation


def _parameter(name: str, *, version: int) -> Json:
    parameter: Json = {"name": name, "in": "query"}
    return parameter | ({"schema": {"type": "string"}} if version == 3 else {"type": "string", "uniqueItems": True})


def _reachable(names: set[Any]) -> set[str]:
    types = api_schema.load().types
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [kind.name for kind in types[name].values() if not kind.is_scalar]
    return found


def _definitions(names: set[str], prefix: str) -> Json:
    loaded = api_schema.load()
    kinds: dict[str, list[Json]] = {}
    for (version, kind), name in loaded.kinds.items():
        group, _, short = version.rpartition("/")
        kinds.setdefault(name, []).append({"group": group, "version": short, "kind": kind})
    definitions: Json = {
        _QUANTITY: {"type": "string"},
        _INT_OR_STRING: {"type": "string", "format": "int-or-string"},
    }
    for name in sorted(names):
        fields = loaded.types[name]
        definition: Json = {
            "type": "object",
            "properties": {key: _property(kind, prefix) for key, kind in fields.items()},
        }
        required = [key for key, kind in fields.items() if kind.required]
        if required:
            definition["required"] = required
        if name in kinds:
            definition["x-kubernetes-group-version-kind"] = kinds[name]
        definitions[name] = definition
    return definitions


def _property(kind: FieldType, prefix: str) -> Json:
    done = _bare(kind, prefix)
    if kind.merges:
        done["x-kubernetes-patch-strategy"] = "merge,retainKeys" if kind.retains_keys else "merge"
    if kind.merge_key:
        done["x-kubernetes-patch-merge-key"] = kind.merge_key
    if kind.list_keys:
        done |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(kind.list_keys)}
    elif kind.is_set:
        done["x-kubernetes-list-type"] = "set"
    elif kind.containers.startswith("l"):
        done["x-kubernetes-list-type"] = "atomic"
    return done


def _bare(kind: FieldType, prefix: str) -> Json:
    if kind.containers.startswith("l"):
        return {"type": "array", "items": _bare(kind.element(), prefix)}
    if kind.containers.startswith("m"):
        return {"type": "object", "additionalProperties": _bare(kind.element(), prefix)}
    match kind.name:
        case "quantity":
            return {"$ref": prefix + _QUANTITY}
        case "int-or-string":
            return {"$ref": prefix + _INT_OR_STRING}
        case name if kind.is_scalar:
            return dict(_SCALARS[name])
        case name:
            return {"$ref": prefix + name}
