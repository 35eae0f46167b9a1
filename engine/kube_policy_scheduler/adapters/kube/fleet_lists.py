"""All of a Karmada control plane that a decision reads, listed once: for commands that look at it and end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kube_policy_scheduler.adapters.kube.errors import ApiError, Forbidden, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.fleet_resources import CLUSTER_RESOURCE_BINDINGS, KARMADA
from kube_policy_scheduler.adapters.kube.lists import Progress, Unlisted, listed
from kube_policy_scheduler.adapters.kube.member_access import member_access
from kube_policy_scheduler.adapters.kube.member_lists import read_member
from kube_policy_scheduler.adapters.kube.official_client import AT_ONCE, OfficialClient
from kube_policy_scheduler.adapters.kube.templates import TemplateMetadata
from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ObjectReference, ResourceBinding

MEMBERS_AT_ONCE = 4
"""Each may take half a GiB until its objects are made."""
TemplateKey = tuple[str, str, str, str]
"""API version, kind, namespace and name of a template."""


def template_key(template: ObjectReference) -> TemplateKey:
    """Return what tells a template from all others."""
    return template.api_version, template.kind, template.namespace, template.name


@dataclass(frozen=True, slots=True)
class FleetListing:
    """What a control plane holds, as far as it could be read."""

    clusters: Sequence[KarmadaCluster]
    bindings: Sequence[ResourceBinding]
    templates: Mapping[TemplateKey, ObjectMeta]
    """Metadata of the templates that the bindings name."""
    unlisted: tuple[Unlisted, ...] = ()
    malformed: tuple[str, ...] = ()
    """Objects that could not be decoded, and why."""
    members: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Objects of member clusters by name; only of those that were read."""
    unread_members: Mapping[str, str] = field(default_factory=dict)
    """By name: why the objects of other members could not be read."""


async def survey_fleet(
    *, kubeconfig: str | None, context: str | None, reads_members: bool = False, progress: Progress | None = None
) -> FleetListing:
    """List clusters and bindings, page by page, read the metadata of templates, and say what could not be read.

    Args:
        kubeconfig: of the control plane; None: as kubectl finds it.
        context: in it; None: the current one.
        reads_members: whether the member clusters are read, too, by the credentials that the control plane has.
        progress: told of each page.

    Raises:
        KubeError: clusters or ResourceBindings cannot be listed.
        CredentialsError: no usable kubeconfig.
    """
    clusters: list[KarmadaCluster] = []
    bindings: list[ResourceBinding] = []
    unlisted: list[Unlisted] = []
    malformed: list[str] = []
    async with OfficialClient.of(kubeconfig=kubeconfig, context=context) as client:
        for resource in KARMADA:
            try:
                found, broken = await listed(client, resource, field_selector="", progress=progress)
            except NotFound as error:
                raise KubeError(f"{error}: expected the API server of a Karmada control plane") from error
            except Forbidden as error:
                if resource is not CLUSTER_RESOURCE_BINDINGS:
                    raise
                unlisted.append(Unlisted(str(resource), str(error), served=True))
                continue
            (clusters if resource.type is KarmadaCluster else bindings).extend(found)
            malformed += [f"{resource} {one}" for one in broken]
        templates = await _templates(client, bindings, unlisted, progress)
        names = [each.metadata.name for each in clusters if each.metadata.deletion_timestamp is None]
        read, unread = await _members(client, names, progress) if reads_members else ({}, {})
    return FleetListing(clusters, bindings, templates, tuple(unlisted), tuple(malformed), read, unread)


async def _members(
    client: OfficialClient, names: Sequence[str], progress: Progress | None
) -> tuple[dict[str, Sequence[Any]], dict[str, str]]:
    """Return the objects of members, a few members at a time, and why others could not be read."""
    permits = asyncio.Semaphore(MEMBERS_AT_ONCE)
    read: dict[str, Sequence[Any]] = {}
    unread: dict[str, str] = {}

    async def one(name: str) -> None:
        async with permits:
            try:
                read[name] = (await read_member(await member_access(client, name))).listing.objects
            except KubeError as error:
                unread[name] = str(error)
            if progress is not None:
                progress("member clusters", len(read) + len(unread))

    await asyncio.gather(*map(one, names))
    return read, unread


async def _templates(
    client: OfficialClient, bindings: Sequence[ResourceBinding], unlisted: list[Unlisted], progress: Progress | None
) -> Mapping[TemplateKey, ObjectMeta]:
    """Return the metadata of templates, a few at a time; a kind that may not be read is asked for only once."""
    reader = TemplateMetadata(client)
    wanted = {template_key(each.spec.resource): each.spec.resource for each in bindings}
    found: dict[TemplateKey, ObjectMeta] = {}
    refused: dict[tuple[str, str], str] = {}

    async def read(key: TemplateKey, template: ObjectReference) -> None:
        try:
            meta = await reader.read(template)
        except NotFound:
            return
        except ApiError as error:
            refused.setdefault(key[:2], str(error))
            return
        if meta is not None:
            found[key] = meta

    asked = list(wanted.items())
    for at in range(0, len(asked), AT_ONCE):
        now = asked[at : at + AT_ONCE]
        await asyncio.gather(*(read(*each) for each in now if each[0][:2] not in refused))
        if progress is not None:
            progress("templates", len(found))
    for (version, kind), why in refused.items():
        unlisted.append(Unlisted(f"labels of templates of kind {kind} ({version})", why, served=True))
    return found
