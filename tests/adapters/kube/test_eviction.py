"""Victims get a condition and are deleted by UID, and only by a replica that may write."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.errors import Fenced
from kube_policy_scheduler.adapters.kube.eviction import Evictor
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.pod_view import PodNow
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer

VICTIM = PodNow("default", "web", "uid-web", "7", 3, "", ())


@contextlib.asynccontextmanager
async def evictor(**options: Any) -> AsyncIterator[tuple[Evictor, ScriptedServer]]:
    def answer(request: Request, peer: Peer) -> None:
        peer.answer(200, {"metadata": {"name": "web", "uid": "uid-web"}})

    async with ScriptedServer(answer) as server:
        transport = Transport(server.credentials())
        yield Evictor(transport, controller="policy-scheduler", clock=lambda: 1.0, **options), server
        await transport.close()


async def test_a_victim_gets_a_condition_and_is_deleted_by_its_uid() -> None:
    async with evictor() as (evicts, server):
        await evicts.evict(VICTIM)
        told, deleted = server.requests
    assert told.path == "/api/v1/namespaces/default/pods/web/status"
    assert told.json["status"]["conditions"][0]["type"] == "DisruptionTarget"
    assert deleted.verb == "DELETE"
    assert deleted.json["preconditions"] == {"uid": "uid-web"}


@pytest.mark.parametrize("allowed", [0, 1])
async def test_behind_the_fence_no_pod_is_evicted(allowed: int) -> None:
    asked: list[None] = []

    def may_evict() -> bool:
        asked.append(None)
        return len(asked) <= allowed

    async with evictor(fence=Fence(may_evict)) as (evicts, server):
        with pytest.raises(Fenced):
            await evicts.evict(VICTIM)
        assert [request.verb for request in server.requests] == ["PATCH"][:allowed]
