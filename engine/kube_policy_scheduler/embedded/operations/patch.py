"""Patches by their media type: JSON patch and merge patch here, the others by the schema. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import orjson
import yaml

from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.operations import strategic

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
ACCEPTED = (JSON_PATCH, MERGE, STRATEGIC, APPLY)


def apply(obj: Json, content: bytes, *, content_type: str, api_version: str, kind: str) -> Json:
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
            return strategic.merge(obj, read, api_version=api_version, kind=kind)
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
