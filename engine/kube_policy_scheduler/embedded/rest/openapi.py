"""The OpenAPI documents, version 2 and 3, built from the schema. Pure.

They hold what clients read: types for validation and `kubectl explain`, merge keys for `kubectl apply`, and for
each kind a PATCH operation that accepts `fieldValidation` and `dryRun`, by which kubectl knows that the server
validates and need not do so itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kube_policy_scheduler.embedded import schema
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.operations import patch
from kube_policy_scheduler.embedded.resources import RESOURCES, Resource
from kube_policy_scheduler.embedded.rest import discovery
from kube_policy_scheduler.embedded.schema import FieldType

_INFO = {"title": "Kubernetes", "version": discovery.VERSION["gitVersion"]}
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


def group_versions() -> list[str]:
    """Return the paths of the documents of version 3: `api/v1`, `apis/apps/v1`, ..."""
    return sorted({_root(resource) for resource in RESOURCES})


def _root(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


@lru_cache(maxsize=64)
def version3(root: str) -> Json | None:
    """Return the document of one group version, None when it is not served."""
    members = [resource for resource in RESOURCES if _root(resource) == root]
    if not members:
        return None
    prefix = "#/components/schemas/"
    names = _reachable({schema.type_name(item.api_version, item.kind) for item in members} - {None})
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": _paths(members, version=3),
        "components": {"schemas": _definitions(names, prefix)},
    }


@lru_cache(maxsize=1)
def version2() -> Json:
    """Return the document of all kinds."""
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": _paths(list(RESOURCES), version=2),
        "definitions": _definitions(set(schema.load().types), "#/definitions/"),
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
    types = schema.load().types
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [kind.name for kind in types[name].values() if not kind.is_scalar]
    return found


def _definitions(names: set[str], prefix: str) -> Json:
    loaded = schema.load()
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
