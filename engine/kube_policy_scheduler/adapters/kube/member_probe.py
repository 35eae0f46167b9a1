"""Looks at member clusters of Karmada as the decision maker reads them: can they be reached, and with what rights."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from kube_policy_scheduler.adapters.kube.access import reviews
from kube_policy_scheduler.adapters.kube.client import Client, Request
from kube_policy_scheduler.adapters.kube.credentials import CredentialSource
from kube_policy_scheduler.adapters.kube.errors import KubeError, error_from_answer
from kube_policy_scheduler.adapters.kube.member_access import MemberAccess, member_access
from kube_policy_scheduler.adapters.kube.official_client import OfficialClient
from kube_policy_scheduler.adapters.kube.resources import RESOURCES, Read
from kube_policy_scheduler.fleet.live_answers import MemberAnswer

SECONDS = 15.0
"""For one member."""
AT_ONCE = 16
REASON_OF_TIME = f"no answer within {SECONDS:g} s"


def needed_of_members() -> tuple[str, ...]:
    """Return the resources without which a member cannot be read."""
    return tuple(str(each) for each in RESOURCES if each.read is Read.FIRST)


async def probe_members(client: Client, clusters: Sequence[str]) -> list[MemberAnswer]:
    """Look at members by the credentials that the control plane of a client has of them. Asks only."""
    permits = asyncio.Semaphore(AT_ONCE)

    async def probe(cluster: str) -> MemberAnswer:
        async with permits:
            try:
                async with asyncio.timeout(SECONDS):
                    return await _look(cluster, await member_access(client, cluster))
            except TimeoutError:
                return MemberAnswer(cluster, REASON_OF_TIME)
            except KubeError as error:
                return MemberAnswer(cluster, str(error))

    return list(await asyncio.gather(*map(probe, clusters)))


async def _look(cluster: str, access: MemberAccess) -> MemberAnswer:
    asked = {(each.group, each.plural, "list", "", ""): str(each) for each in RESOURCES}
    async with OfficialClient(CredentialSource(lambda: access.credentials)) as member:
        began = time.monotonic()
        reply = await member.reply(Request("GET", "/version", timeout_seconds=SECONDS))
        seconds = time.monotonic() - began
        if reply.status == 401:
            raise error_from_answer(reply.status, reply.body)
        answers = await reviews(asked, member)
    return MemberAnswer(cluster, "", seconds, access.verified, {asked[key]: answer for key, answer in answers.items()})
