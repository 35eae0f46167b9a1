"""Reads all of a member cluster that rules look at, within bounds: it may be broken, or of somebody who means harm."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kube_policy_scheduler.adapters.kube.client import Client, Request
from kube_policy_scheduler.adapters.kube.credentials import CredentialSource
from kube_policy_scheduler.adapters.kube.errors import AnswerTimeout, KubeError
from kube_policy_scheduler.adapters.kube.lists import Listing, list_all
from kube_policy_scheduler.adapters.kube.member_access import MemberAccess
from kube_policy_scheduler.adapters.kube.official_client import OfficialClient


@dataclass(frozen=True)
class ReadingLimits:
    """Of the reading of one member."""

    seconds: float = 60.0
    answer_seconds: float = 10.0
    """Of one answer: a page of a list has about 8 MiB."""
    bytes: int = 512 << 20
    """Of all answers in JSON: 5,000 nodes with 50,000 pods have about 350 MiB."""
    answer_bytes: int = 32 << 20
    answer_braces: int = 1_500_000
    """Of one answer: an object takes many times as much memory as an empty pair of braces in JSON. A page of 2,000 pods
    has up to 500,000."""
    objects: int = 500_000
    """Of one kind."""


@dataclass(frozen=True, slots=True)
class MemberListing:
    """What a member holds."""

    listing: Listing
    bytes: int
    """That were read for it."""
    verified: bool = True
    """False: the certificate of its server was not verified."""


class _Bounded(Client):
    """Sends requests of one reading, as long as its answers stay within limits."""

    def __init__(self, client: Client, limits: ReadingLimits) -> None:
        self._client, self._limits = client, limits
        self.bytes = 0

    async def send(self, request: Request) -> bytes:
        """Send one request; see `Client.send`."""
        limits = self._limits
        seconds = min(request.timeout_seconds, limits.answer_seconds)
        within = Request(
            request.verb, request.path, resource=request.resource, timeout_seconds=seconds, accept=request.accept
        )
        body = await self._client.send(within)
        self.bytes += len(body)
        if self.bytes > limits.bytes:
            raise KubeError(f"its objects take more than {limits.bytes >> 20} MiB, which is the limit")
        if body.count(b"{") > limits.answer_braces:
            raise KubeError(f"an answer has more than {limits.answer_braces:,} parts of objects, which is the limit")
        return body

    def check(self, resource: str, count: int) -> None:
        """Raise KubeError if there are too many objects of a kind."""
        if count > self._limits.objects:
            raise KubeError(f"it has more than {self._limits.objects:,} {resource}, which is the limit")


async def read_member(access: MemberAccess, limits: ReadingLimits = ReadingLimits()) -> MemberListing:
    """Read a member. Raises KubeError."""
    try:
        async with (
            asyncio.timeout(limits.seconds),
            OfficialClient(
                CredentialSource(lambda: access.credentials), most_bytes=min(limits.answer_bytes, limits.bytes)
            ) as official,
        ):
            client = _Bounded(official, limits)
            listing = await list_all(client, progress=client.check)
            return MemberListing(listing, client.bytes, access.verified)
    except TimeoutError:
        raise AnswerTimeout(f"it cannot be read within {limits.seconds:g} s") from None
