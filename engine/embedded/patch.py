"""JSON patch, merge patch, strategic merge patch and apply, on plain dictionaries. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import orjson
import yaml

from engine.embedded import errors
from engine.embedded.errors import Json

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
ACCEPTED = (JSON_PATCH, MERGE, STRATEGIC, APPLY)


def apply(obj: Json, content: bytes, *, content_type: str, kind: str) -> Json:
    """Return the object after a patch.

    Raises:
        ApiError: 400 for a patch that cannot be read, 415 for an unknown type, 422 where it does not apply.
    """
    if content_type not in ACCEPTED:
        raise errors.unsupported_media_type(content_type, ACCEPTED)
    try:
        read = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error
    match content_type, read:
        case "application/json-patch+json", list():
            return operations(obj, read)
        case "application/merge-patch+json", dict():
            merged = merge(obj, read)
            assert isinstance(merged, dict)
            return merged
        case "application/strategic-merge-patch+json", dict():
            return strategic(obj, read, kind=kind)
        case _:
            raise errors.bad_request(f"a patch of type {content_type} cannot be a {type(read).__name__}")


def read_apply(content: bytes) -> Json:
    """Read the object of an apply patch.

    Raises:
        ApiError: 400 when it is none.
    """
    try:
        obj = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error decoding YAML: {error}") from error
    if not isinstance(obj, dict):
        raise errors.bad_request("an apply patch must be an object")
    (obj.get("metadata") or {}).pop("managedFields", None)
    return obj


def merge(obj: Any, patch: Any) -> Any:
    """Return a JSON merge patch (RFC 7386) applied to a value."""
    if not isinstance(patch, dict):
        return patch
    done = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            done.pop(key, None)
        else:
            done[key] = merge(done.get(key), value)
    return done


def operations(obj: Json, steps: list[Any]) -> Json:
    """Return a JSON patch (RFC 6902) applied to an object.

    Raises:
        ApiError: 400 for steps that cannot be read, 422 where one does not apply.
    """
    done: Any = copy.deepcopy(obj)
    for step in steps:
        if not isinstance(step, dict) or "op" not in step or "path" not in step:
            raise errors.bad_request("error decoding patch: every operation needs op and path")
        try:
            done = _operate(done, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise errors.ApiError(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request: "
                f"{step['op']} operation does not apply: doc is missing path: {step['path']!r}: {error}",
                details={},
            ) from error
    assert isinstance(done, dict)
    return done


def _operate(root: Any, step: Mapping[str, Any]) -> Any:
    path = _pointer(step["path"])
    match step["op"]:
        case "add":
            return _set(root, path, copy.deepcopy(step["value"]), insert=True)
        case "replace":
            _lookup(root, path)
            return _set(root, path, copy.deepcopy(step["value"]), insert=False)
        case "remove":
            _remove(root, path)
            return root
        case "test":
            if _lookup(root, path) != step.get("value"):
                raise ValueError(f"testing value {step['path']} failed")
            return root
        case "move":
            value = _lookup(root, _pointer(step["from"]))
            _remove(root, _pointer(step["from"]))
            return _set(root, path, value, insert=True)
        case "copy":
            return _set(root, path, copy.deepcopy(_lookup(root, _pointer(step["from"]))), insert=True)
        case other:
            raise errors.bad_request(f"unexpected kind of patch operation: {other}")


def _pointer(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError("a path starts with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _lookup(root: Any, path: list[str]) -> Any:
    at = root
    for part in path:
        at = at[int(part)] if isinstance(at, list) else at[part]
    return at


def _set(root: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    parent, last = _lookup(root, path[:-1]), path[-1]
    if isinstance(parent, list):
        if last == "-":
            parent.append(value)
        elif insert:
            if int(last) > len(parent):
                raise IndexError("index out of bounds")
            parent.insert(int(last), value)
        else:
            parent[int(last)] = value
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise TypeError("neither an object nor a list")
    return root


def _remove(root: Any, path: list[str]) -> None:
    parent, last = _lookup(root, path[:-1]), path[-1]
    del parent[int(last) if isinstance(parent, list) else last]


MERGE_KEYS: Mapping[str, str] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "hostIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""List fields that merge element by element, and by which key; all others are replaced."""
_SET_LISTS = frozenset({"finalizers"})
_ATOMIC_IN: Mapping[str, frozenset[str]] = {}


def strategic(obj: Json, patch: Mapping[str, Any], *, kind: str) -> Json:
    """Return a strategic merge patch applied to an object of a kind."""
    done = _strategic(copy.deepcopy(obj), patch, atomic=_ATOMIC_IN.get(kind, frozenset()), kind=kind)
    assert isinstance(done, dict)
    return done


def _merge_key(field: str, items: list[Any], kind: str) -> str | None:
    if field == "ports":
        return "port" if kind == "Service" else "containerPort"
    return MERGE_KEYS.get(field)


def _strategic(value: Any, patch: Any, *, atomic: frozenset[str], kind: str) -> Any:
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: item for key, item in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    done = value if isinstance(value, dict) else {}
    retain = patch.get("$retainKeys")
    if retain is not None:
        done = {key: item for key, item in done.items() if key in retain}
    for key, item in patch.items():
        if key.startswith("$"):
            _directive(done, key, item, kind)
        elif item is None:
            done.pop(key, None)
        elif isinstance(item, list):
            merge_key = None if key in atomic else _merge_key(key, item, kind)
            done[key] = _merge_list(done.get(key), item, field=key, merge_key=merge_key, atomic=atomic, kind=kind)
        else:
            done[key] = _strategic(done.get(key), item, atomic=atomic, kind=kind)
    return done


def _directive(done: Json, key: str, item: Any, kind: str) -> None:
    if key.startswith("$deleteFromPrimitiveList/"):
        field = key.partition("/")[2]
        done[field] = [value for value in done.get(field) or () if value not in item]
    elif key.startswith("$setElementOrder/"):
        field = key.partition("/")[2]
        merge_key = _merge_key(field, item, kind)
        current = done.get(field)
        if isinstance(current, list) and merge_key:
            order = {entry.get(merge_key): at for at, entry in enumerate(item) if isinstance(entry, dict)}
            current.sort(key=lambda entry: order.get(entry.get(merge_key), len(order)))


def _merge_list(
    value: Any, patch: list[Any], *, field: str, merge_key: str | None, atomic: frozenset[str], kind: str
) -> list[Any]:
    current = list(value) if isinstance(value, list) else []
    if field in _SET_LISTS:
        return current + [item for item in patch if item not in current]
    if merge_key is None or not all(isinstance(item, dict) for item in patch):
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    for item in patch:
        if merge_key not in item:
            continue
        same = [at for at, have in enumerate(current) if have.get(merge_key) == item[merge_key]]
        if item.get("$patch") == "delete":
            current = [have for at, have in enumerate(current) if at not in same]
        elif same:
            current[same[0]] = _strategic(current[same[0]], item, atomic=atomic, kind=kind)
        else:
            current.append({key: part for key, part in item.items() if not key.startswith("$")})
    return current
