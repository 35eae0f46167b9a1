"""Texts in the cells of kubectl's tables: ages, lists, selectors. Pure; the present is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.times import human_duration, parse_rfc3339

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"


def at(obj: Any, *path: str | int, default: Any = None) -> Any:
    """Return the value at a path of keys, or `default` if it is absent or null."""
    for key in path:
        if isinstance(obj, dict):
            obj = obj.get(key)
        elif isinstance(obj, list) and isinstance(key, int) and -len(obj) <= key < len(obj):
            obj = obj[key]
        else:
            return default
    return default if obj is None else obj


def since(text: str | None, *, now: datetime) -> str:
    """Return how long ago a timestamp was."""
    if not text:
        return UNKNOWN
    return human_duration((now - parse_rfc3339(text)).total_seconds())


def age(obj: Json, now: datetime) -> str:
    """Return an object's age."""
    return since(obj["metadata"].get("creationTimestamp"), now=now)


def joined(items: Iterable[Any], *, empty: str = NONE) -> str:
    """Return items separated by commas."""
    return ",".join(str(item) for item in items) or empty


def labels(pairs: Mapping[str, str] | None) -> str:
    """Return labels as `key=value` pairs in key order."""
    return joined(f"{key}={value}" for key, value in sorted((pairs or {}).items()))


def label_selector(selector: Json | None) -> str:
    """Return a LabelSelector object as the text of a selector."""
    if selector is None:
        return NONE
    texts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for item in sorted(selector.get("matchExpressions") or (), key=lambda item: str(item.get("key"))):
        key, values = item.get("key"), ",".join(sorted(item.get("values") or ()))
        match item.get("operator"):
            case "In":
                texts.append(f"{key} in ({values})")
            case "NotIn":
                texts.append(f"{key} notin ({values})")
            case "Exists":
                texts.append(str(key))
            case _:
                texts.append(f"!{key}")
    return joined(texts)


def template_containers(obj: Json) -> list[Json]:
    """Return the containers of a workload's pod template."""
    return list(at(obj, "spec", "template", "spec", "containers", default=[]))


def names(containers: Iterable[Json]) -> str:
    """Return the names of containers."""
    return joined((item.get("name", "") for item in containers), empty="")


def images(containers: Iterable[Json]) -> str:
    """Return the images of containers."""
    return joined((item.get("image", "") for item in containers), empty="")


_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def access_modes(modes: Iterable[str] | None) -> str:
    """Return the access modes of a volume, abbreviated, without repetition, in the usual order."""
    given = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)
