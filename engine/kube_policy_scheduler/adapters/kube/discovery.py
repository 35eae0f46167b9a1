"""What the API server says of itself: its version, and in which version it has a resource that changes its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from kube_policy_scheduler.adapters.kube.errors import (
    ApiError,
    MalformedAnswer,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from kube_policy_scheduler.adapters.kube.resources import HasMetadata, Resource
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.kubernetes_rules import KubernetesVersion, VersionError

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMetadata)

TIMEOUT_SECONDS = 5.0


async def served(transport: Transport, resource: Resource[T]) -> Resource[T]:
    """Return the resource in a version that is served: its own if that is, else the first that the server names.

    Where it is served in none, or the server may not or cannot say (403, 404, 405, 415, no list of versions), it is
    returned as it is: a try to read it tells.

    Raises:
        KubeError: the server could not be asked, or is not able to answer now.
    """
    try:
        group = await _get(transport, f"/apis/{resource.group}")
        versions = [str(each["version"]) for each in group["versions"]]
        for version in sorted(versions, key=lambda version: version != resource.version):
            if resource.plural in await _plurals(transport, f"/apis/{resource.group}/{version}"):
                if version != resource.version:
                    logger.info("%s: using version %s", resource, version)
                return msgspec.structs.replace(resource, version=version)
    except (ServerError, TooManyRequests, Unauthorized):
        raise
    except (ApiError, MalformedAnswer) as error:
        logger.debug("cannot discover the versions of %s: %s", resource, error)
    return resource


async def server_version(transport: Transport) -> KubernetesVersion | None:
    """Return the version that the API server says it is; None if it says none that can be read.

    Raises:
        KubeError: the server could not be asked, or refused.
    """
    answer = await transport.request("GET", "/version", resource="version", timeout_seconds=TIMEOUT_SECONDS)
    return read_version(answer)


def read_version(answer: bytes) -> KubernetesVersion | None:
    """Return the version in an answer of `/version`, None if there is none.

    A server that emulates an older version (`--emulated-version`) has the APIs and the feature gates of that one.
    """
    try:
        said = msgspec.json.decode(answer, type=_VersionInfo)
        binary = KubernetesVersion.parse(said.git_version)
        if not said.emulation_minor:
            return binary
        emulated = KubernetesVersion.parse(f"{said.emulation_major}.{said.emulation_minor}")
        return binary if emulated.minor == binary.minor else emulated
    except (msgspec.DecodeError, VersionError) as error:
        logger.debug("cannot read the version of the API server: %s", error)
        return None


class _VersionInfo(msgspec.Struct, rename="camel"):
    git_version: str
    emulation_major: str = "1"
    emulation_minor: str = ""
    """"": the server does not say it (before 1.33)."""


async def _plurals(transport: Transport, path: str) -> Sequence[str]:
    found = await _get(transport, path)
    return [str(each["name"]) for each in found["resources"]]


async def _get(transport: Transport, path: str) -> dict[str, Any]:
    answer = await transport.request("GET", path, resource="discovery", timeout_seconds=TIMEOUT_SECONDS)
    try:
        found = msgspec.json.decode(answer, type=dict[str, Any])
        if not isinstance(found.get("versions", found.get("resources")), list):
            raise MalformedAnswer(f"{path} lists nothing")
    except msgspec.DecodeError as error:
        raise MalformedAnswer(f"{path} is not a list of versions or resources: {error}") from error
    return found
