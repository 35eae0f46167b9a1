"""What is written to a Workload: its nominations, in the name of Kueue, with all that Kueue says in that name.

Kueue writes a status by server-side apply, as the field manager `kueue-admission`. Nominations of another manager would
stay when it chooses a cluster, and the API server refuses a Workload that has both. So we apply as this manager, too.
What a manager applied before and leaves out is removed, so all of it is applied again, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

FIELD_MANAGER = "kueue-admission"
"""Of Kueue's own writes about admission."""
MOST_NOMINATED = 20
"""Clusters that a Workload may be nominated to at a time."""
MOST_LEVELS = 64
"""Of owned fields that are read; a status has fewer than ten."""
Json: TypeAlias = dict[str, Any]
_NOMINATED = "nominatedClusterNames"


class OwnedFieldsError(ValueError):
    """What a manager owns cannot be read, so nothing may be applied in its name."""


def nomination(written: Mapping[str, Any], names: Sequence[str]) -> Json:
    """Return what is to be applied so that a Workload is nominated to these clusters, and nothing else changes.

    Args:
        written: the Workload as the API server has it, with `metadata.managedFields`.
        names: the clusters, the best first; none takes the nominations back.

    Raises:
        OwnedFieldsError: the Workload does not say in a known form what `kueue-admission` owns.
    """
    meta = written["metadata"]
    status = owned_status(written)
    status.pop(_NOMINATED, None)
    if names:
        status[_NOMINATED] = list(names)
    return {
        "apiVersion": written["apiVersion"],
        "kind": written["kind"],
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "status": status,
    }


def owned_status(written: Mapping[str, Any]) -> Json:
    """Return the part of the status that `kueue-admission` applied.

    Raises:
        OwnedFieldsError: it is not said in a known form.
    """
    found: Json = {}
    for entry in written["metadata"].get("managedFields") or ():
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource")) != (
            FIELD_MANAGER,
            "Apply",
            "status",
        ):
            continue
        fields = (entry.get("fieldsV1") or {}).get("f:status")
        if fields is not None:
            part = _part(written.get("status") or {}, fields, MOST_LEVELS)
            if not isinstance(part, dict):
                raise OwnedFieldsError("fields of the status are owned in a form that is not known")
            found |= part
    return found


def _part(value: Any, fields: Any, levels: int) -> Any:
    """Return what `fieldsV1` says is owned of a value; without further fields, all of it."""
    if levels == 0 or not isinstance(fields, dict):
        raise OwnedFieldsError("fields of the status are owned in a form that is not known")
    inner = {key: each for key, each in fields.items() if key != "."}
    if not inner:
        return value
    if isinstance(value, dict):
        names = _names(inner, "f:")
        return {name: _part(value[name], each, levels - 1) for name, each in names if name in value}
    if isinstance(value, list):
        return list(_elements(value, inner, levels - 1))
    raise OwnedFieldsError("fields of the status are owned that it does not have")


def _names(fields: Json, kind: str) -> list[tuple[str, Any]]:
    if any(not key.startswith(kind) for key in fields):
        raise OwnedFieldsError("fields of the status are owned in a form that is not known")
    return [(key.removeprefix(kind), each) for key, each in fields.items()]


def _elements(value: Sequence[Any], fields: Json, levels: int) -> Iterable[Any]:
    """Yield the owned elements of a list, in its order: those with the keys (`k:`), or the values (`v:`)."""
    by_key = [(_decoded(key[2:]), each) for key, each in fields.items() if key.startswith("k:")]
    by_value = [_decoded(key[2:]) for key in fields if key.startswith("v:")]
    if len(by_key) + len(by_value) != len(fields):
        raise OwnedFieldsError("elements of a list of the status are owned in a form that is not known")
    for item in value:
        if item in by_value:
            yield item
            continue
        for keys, each in by_key:
            if isinstance(item, dict) and isinstance(keys, dict) and keys.items() <= item.items():
                yield keys | _part(item, each, levels)
                break


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise OwnedFieldsError(f"an element of the status is owned by a key that is no JSON: {error}") from error
