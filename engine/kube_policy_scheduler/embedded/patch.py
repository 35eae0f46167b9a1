"""Patches by their media type: JSON patch, merge patch, strategic merge patch and server-side apply. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import orjson
import yaml

from kube_policy_scheduler.documents import api_schema
from kube_policy_scheduler.documents.api_schema import FieldType
from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.errors import Json

_ANYTHING = FieldType("any")
_ORDER, _FROM_LIST = "$setElementOrder/", "$deleteFromPrimitiveList/"


def strategic_merge(obj: Json, patch: Mapping[str, Any], *, api_version: str, kind: str) -> Json:
    """Return a strategic merge patch applied to an object.

    Raises:
        ApiError: 500 (as there) for a patch that contradicts the kind's schema.
    """
    done: Json = _merge(copy.deepcopy(obj), dict(patch), _root(api_version, kind))
    return done


def server_side_apply(obj: Json, wanted: Mapping[str, Any], *, api_version: str, kind: str) -> Json:
    """Return an object with all fields of another one set, as server-side apply by a single manager does."""
    done: Json = _apply(copy.deepcopy(obj), dict(wanted), _root(api_version, kind))
    return done


def _root(api_version: str, kind: str) -> FieldType:
    name = api_schema.type_name(api_version, kind)
    return FieldType(name) if name else _ANYTHING


def _field(kind: FieldType, key: str) -> FieldType:
    if kind.containers.startswith("m"):
        return kind.element()
    if kind.is_scalar:
        return _ANYTHING
    return api_schema.load().types[kind.name].get(key, _ANYTHING)


def _merge(value: Any, patch: Any, kind: FieldType) -> Any:
    if not isinstance(patch, dict):
        return patch
    match patch.get("$patch"):
        case "replace":
            return {key: item for key, item in patch.items() if key != "$patch"}
        case "delete":
            return {}
        case _:
            pass
    done = value if isinstance(value, dict) else {}
    if isinstance(patch.get("$retainKeys"), list):
        done = {key: item for key, item in done.items() if key in patch["$retainKeys"]}
    for key, item in patch.items():
        if key.startswith("$"):
            continue
        if item is None:
            done.pop(key, None)
        elif isinstance(item, list):
            done[key] = _merge_list(done.get(key), item, _field(kind, key), key)
        else:
            done[key] = _merge(done.get(key), item, _field(kind, key))
    _carry_out(done, patch, kind)
    return done


def _carry_out(done: Json, patch: Json, kind: FieldType) -> None:
    """Follow the directives of a patch that are about its sibling fields."""
    for key, item in patch.items():
        if key.startswith(_FROM_LIST):
            name = key.removeprefix(_FROM_LIST)
            done[name] = [value for value in done.get(name) or () if value not in item]
        elif key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            merge_key = _field(kind, name).merge_key
            current = done.get(name)
            if isinstance(current, list):
                done[name] = _ordered(current, item, current, merge_key)


def _ordered(merged: list[Any], wanted: list[Any], before: list[Any], merge_key: str) -> list[Any]:
    """Return a merged list in the order of the patch; what the patch does not name keeps its place in front of it.

    An element that only the patch has comes before the elements that only the server had.
    """
    order = [_identity(entry, merge_key) for entry in wanted]
    server = [_identity(entry, merge_key) for entry in before]
    by_patch = sorted(
        (entry for entry in merged if _identity(entry, merge_key) in order),
        key=lambda entry: order.index(_identity(entry, merge_key)),
    )
    rest = [entry for entry in merged if _identity(entry, merge_key) not in order]
    done: list[Any] = []
    while rest and by_patch:
        left, right = _identity(rest[0], merge_key), _identity(by_patch[0], merge_key)
        from_rest = right in server and left in server and server.index(left) < server.index(right)
        done.append(rest.pop(0) if from_rest else by_patch.pop(0))
    return done + rest + by_patch


def _identity(entry: Any, merge_key: str) -> Any:
    return entry.get(merge_key) if isinstance(entry, dict) else entry


def _merge_list(value: Any, patch: list[Any], kind: FieldType, name: str) -> list[Any]:
    current = list(value) if isinstance(value, list) else []
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and "$patch" in item)]
    if not kind.merges:
        return patch
    if not kind.merge_key:
        merged = current + [item for item in patch if item not in current]
        return _ordered(merged, patch, current, "")
    before = list(current)
    element = kind.element()
    for item in patch:
        if not isinstance(item, dict) or kind.merge_key not in item:
            shown = " ".join(f"{key}:{value}" for key, value in item.items()) if isinstance(item, dict) else item
            text = f"map: map[{shown}] does not contain declared merge key: {kind.merge_key}"
            raise errors.ApiError(500, "", text)
        found = _position(current, item, (kind.merge_key,))
        if item.get("$patch") == "delete":
            current = [have for have in current if have.get(kind.merge_key) != item[kind.merge_key]]
        elif found is None:
            current.append(_merge({}, item, element))
        else:
            current[found] = _merge(current[found], item, element)
    return _ordered(current, patch, before, kind.merge_key)


def _position(items: list[Any], wanted: Json, keys: tuple[str, ...]) -> int | None:
    for at, item in enumerate(items):
        if isinstance(item, dict) and all(_keyed(item, key) == _keyed(wanted, key) for key in keys):
            return at
    return None


def _keyed(item: Json, key: str) -> Any:
    return item.get(key) or ("TCP" if key == "protocol" else None)


def _apply(value: Any, wanted: Any, kind: FieldType) -> Any:
    if isinstance(wanted, list):
        return _apply_list(value, wanted, kind)
    if not isinstance(wanted, dict):
        return wanted
    done = value if isinstance(value, dict) else {}
    for key, item in wanted.items():
        done[key] = _apply(done.get(key), item, _field(kind, key))
    return done


def _apply_list(value: Any, wanted: list[Any], kind: FieldType) -> list[Any]:
    current = list(value) if isinstance(value, list) else []
    if kind.is_set:
        return current + [item for item in wanted if item not in current]
    if not kind.list_keys:
        return wanted
    for item in wanted:
        found = _position(current, item, kind.list_keys)
        if found is None:
            current.append(item)
        else:
            current[found] = _apply(current[found], item, kind.element())
    return current


JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
ACCEPTED = (JSON_PATCH, MERGE, STRATEGIC, APPLY)


def apply(obj: Json, content: bytes, *, content_type: str, api_version: str, kind: str) -> Json:
    """Return the object after a patch.

    Raises:
        ApiError: 400 for a patch that cannot be read, 415 for an unknown type, 422 if it does not apply.
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
            return strategic_merge(obj, read, api_version=api_version, kind=kind)
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
        ApiError: 400 for steps that cannot be read, 422 if one does not apply.
    """
    done: Any = copy.deepcopy(obj)
    for step in steps:
        if not isinstance(step, dict) or "op" not in step or "path" not in step:
            raise errors.bad_request("error decoding patch: every operation needs op and path")
        try:
            done = _operate(done, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise _does_not_apply() from error
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
        case _:
            raise _does_not_apply()


def _does_not_apply() -> errors.ApiError:
    return errors.ApiError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


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
