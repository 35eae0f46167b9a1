"""All objects of the kinds that rules read, listed once: for commands that look at a cluster and end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.adapters.kube.client import Client
from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder
from kube_policy_scheduler.adapters.kube.discovery import read_version
from kube_policy_scheduler.adapters.kube.errors import Forbidden, Gone, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.official_client import OfficialClient
from kube_policy_scheduler.adapters.kube.pages import LIST_TIMEOUT_SECONDS, pages
from kube_policy_scheduler.adapters.kube.resources import PODS, RESOURCES, UNFINISHED_PODS, Read, Resource
from kube_policy_scheduler.kubernetes_rules import KubernetesVersion

_FRESH_STARTS = 3
"""Lists restarted because the server forgot where it was: its place in a list lasts about five minutes."""

MOST_OBJECTS = 10_000_000
"""Of one kind: a cluster of 130,000 nodes has about 4 million pods."""
LEAST_PAGE = 100
"""Objects that a page counts as, also an empty one."""

Progress: TypeAlias = Callable[[str, int], None]
"""Called after each page with the resource and how many of it have come."""


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A kind that could not be listed."""

    resource: str
    reason: str
    served: bool
    """False where the server knows no such kind, so that there can be no objects of it."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a cluster holds, as far as it could be read."""

    objects: list[Any]
    """Nodes, unfinished pods, and then everything else that rules read."""
    unlisted: tuple[Unlisted, ...] = ()
    malformed: tuple[str, ...] = ()
    """Objects that could not be decoded, and why."""
    version: KubernetesVersion | None = None
    """Of the API server; None where it does not say it."""


async def survey(*, kubeconfig: str | None, context: str | None, progress: Progress | None = None) -> Listing:
    """List the cluster, page by page, and say what could not be read.

    Raises:
        KubeError: nodes or pods cannot be listed.
        CredentialsError: no usable kubeconfig.
    """
    async with OfficialClient.of(kubeconfig=kubeconfig, context=context) as client:
        return await list_all(client, progress=progress)


async def list_all(client: Client, *, progress: Progress | None = None) -> Listing:
    """List the cluster of a client; see `survey`.

    Raises:
        KubeError: nodes or pods cannot be listed.
    """
    found: list[Any] = []
    unlisted: list[Unlisted] = []
    malformed: list[str] = []
    for resource in RESOURCES:
        if resource.read is Read.WHERE_SERVED and not await _is_served(client, resource):
            continue
        selector = UNFINISHED_PODS if resource is PODS else ""
        try:
            things, broken = await listed(client, resource, field_selector=selector, progress=progress)
        except (Forbidden, NotFound) as error:
            if resource.read is Read.FIRST:
                raise
            unlisted.append(Unlisted(str(resource), str(error), served=isinstance(error, Forbidden)))
            continue
        found += things
        malformed += [f"{resource} {one}" for one in broken]
    return Listing(found, tuple(unlisted), tuple(malformed), await _version(client))


async def raw_objects(
    *, kubeconfig: str | None, context: str | None, kinds: Collection[str], most: int
) -> tuple[list[dict[str, Any]], bool]:
    """Return objects of some kinds as decoded from JSON, at most this many of each, and whether there are more.

    Kinds that are not served, or may not be listed, are left out.

    Raises:
        KubeError: the API server does not answer.
        CredentialsError: no usable kubeconfig.
    """
    found: list[dict[str, Any]] = []
    are_more = False
    async with OfficialClient.of(kubeconfig=kubeconfig, context=context) as client:
        for resource in RESOURCES:
            if resource.type.__name__ not in kinds:
                continue
            path = resource.collection(query={"limit": str(most)})
            try:
                answer = _raw_list.decode(await client.request("GET", path, timeout_seconds=LIST_TIMEOUT_SECONDS))
            except (Forbidden, NotFound):
                continue
            except msgspec.DecodeError as error:
                raise KubeError(f"the list of {resource} cannot be read: {error}") from error
            head = {"apiVersion": resource.root.removeprefix("/apis/").removeprefix("/api/")}
            found += ({**head, "kind": resource.type.__name__, **item} for item in answer.items)
            are_more = are_more or bool(answer.metadata.get("continue"))
    return found, are_more


class _RawList(msgspec.Struct):
    metadata: dict[str, Any] = {}
    items: list[dict[str, Any]] = []


_raw_list = msgspec.json.Decoder(_RawList)


async def _version(client: Client) -> KubernetesVersion | None:
    """Ask for the version, which every account may read."""
    try:
        return read_version(await client.request("GET", "/version", timeout_seconds=LIST_TIMEOUT_SECONDS))
    except KubeError:
        return None


async def _is_served(client: Client, resource: Resource[Any]) -> bool:
    """Ask the server's discovery, which every account may read."""
    try:
        body = await client.request("GET", resource.root, timeout_seconds=LIST_TIMEOUT_SECONDS)
    except (Forbidden, NotFound):
        return False
    return any(one.name == resource.plural for one in _discovered.decode(body).resources)


class _Served(msgspec.Struct):
    name: str


class _Discovery(msgspec.Struct):
    resources: list[_Served] = []


_discovered = msgspec.json.Decoder(_Discovery)


async def listed(
    client: Client, resource: Resource[Any], *, field_selector: str, progress: Progress | None
) -> tuple[list[Any], list[str]]:
    """Return all objects of a resource, and of those that cannot be decoded which and why.

    Raises:
        KubeError: it cannot be listed, or does not end.
    """
    decoder = ObjectDecoder(resource.type)
    for _ in range(_FRESH_STARTS):
        found, broken = list[Any](), list[str]()
        try:
            async with aclosing(pages(client, resource, decoder, field_selector=field_selector)) as found_pages:
                places = 0
                async for page in found_pages:
                    places += max(len(page.objects), LEAST_PAGE)
                    if places > MOST_OBJECTS:
                        raise KubeError(f"the list of {resource} does not end: more than {MOST_OBJECTS:,} objects")
                    found += page.objects
                    broken += [str(one) for one in page.malformed]
                    if progress is not None:
                        progress(str(resource), len(found))
            return found, broken
        except Gone:
            continue
    raise KubeError(
        f"the list of {resource} changes faster than it can be read: the resource version expired repeatedly"
    )
