"""Which versions of an API a server serves, and which fields it knows there: what it would drop from a write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.client import Client
from kube_policy_scheduler.adapters.kube.errors import KubeError, NotFound
from kube_policy_scheduler.fleet.live_answers import NeededApi, ServedApi

TIMEOUT_SECONDS = 15.0
MOST_STEPS = 64
"""References that are followed on the way to a field."""
Json = dict[str, Any]


async def served_apis(client: Client, asked: Iterable[NeededApi]) -> list[ServedApi]:
    """Ask about several kinds; one that cannot be asked about says why. Asks only, changes nothing."""
    return list(await asyncio.gather(*(_ask(client, each) for each in asked)))


async def _ask(client: Client, asked: NeededApi) -> ServedApi:
    try:
        group = await _get(client, f"/apis/{asked.group}")
        versions = tuple(str(each.get("version", "")) for each in _listed(group, "versions"))
        kinds = (
            {
                str(each.get("name", "")): str(each.get("kind", ""))
                for each in _listed(await _get(client, f"/apis/{asked.group}/{asked.version}"), "resources")
            }
            if asked.version in versions
            else {}
        )
    except NotFound:
        return ServedApi()
    except (KubeError, msgspec.MsgspecError) as error:
        return ServedApi(problem=str(error))
    if asked.plural not in kinds:
        return ServedApi(versions)
    if not asked.fields:
        return ServedApi(versions, is_served=True)
    try:
        document = await _get(client, f"/openapi/v3/apis/{asked.group}/{asked.version}")
    except (KubeError, msgspec.MsgspecError) as error:
        return ServedApi(versions, is_served=True, unchecked=str(error))
    schemas = _mapping(_mapping(document.get("components")).get("schemas"))
    schema = _of_kind(schemas, asked, kinds[asked.plural])
    if schema is None:
        return ServedApi(versions, is_served=True, unchecked="the API server publishes no schema of it")
    unknown = tuple(path for path in asked.fields if not _knows(schemas, schema, path.split(".")))
    return ServedApi(versions, is_served=True, unknown=unknown)


async def _get(client: Client, path: str) -> Json:
    body = await client.request("GET", path, resource="discovery", timeout_seconds=TIMEOUT_SECONDS)
    return msgspec.json.decode(body, type=dict[str, Any])


def _mapping(found: Any) -> Json:
    return found if isinstance(found, dict) else {}


def _listed(found: Json, key: str) -> Sequence[Json]:
    listed = found.get(key)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else ()


def _of_kind(schemas: Mapping[str, Any], asked: NeededApi, kind: str) -> Json | None:
    wanted = {"group": asked.group, "version": asked.version, "kind": kind}
    for schema in schemas.values():
        if isinstance(schema, dict) and wanted in _listed(schema, "x-kubernetes-group-version-kind"):
            return schema
    return None


def _knows(schemas: Mapping[str, Any], schema: Json, path: Sequence[str]) -> bool:
    """Return whether a field is in a schema, or anything may be at its place."""
    rest = list(path)
    for _ in range(MOST_STEPS):
        while isinstance(reference := schema.get("$ref") or _only(schema.get("allOf")), str):
            found = schemas.get(reference.rpartition("/")[2])
            if not isinstance(found, dict):
                return True
            schema = found
        if not rest or schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties"):
            return True
        if isinstance(schema.get("items"), dict):
            schema = schema["items"]
            continue
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return False
        inner = properties.get(rest.pop(0))
        if not isinstance(inner, dict):
            return False
        schema = inner
    return True


def _only(parts: Any) -> str | None:
    """Return the one reference of an `allOf`, which has a default beside it."""
    return parts[0].get("$ref") if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict) else None
