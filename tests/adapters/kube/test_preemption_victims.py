"""Victims get a condition and are deleted by UID, and only by a replica that may write."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.errors import ApiError, Fenced
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.pod_view import PodNow
from kube_policy_scheduler.adapters.kube.preemption_victims import Evictor
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer

VICTIM = PodNow("default", "web", "uid-web", "7", 3, "", ())

pytestmark = pytest.mark.usefixtures("both_protocols")


@contextlib.asynccontextmanager
async def evictor(
    status: int = 200, message: str = "", **options: Any
) -> AsyncIterator[tuple[Evictor, ScriptedServer]]:
    def answer(request: Request, peer: Peer) -> None:
        if status == 200:
            peer.answer(200, {"metadata": {"name": "web", "uid": "uid-web"}})
        else:
            peer.answer(status, {"kind": "Status", "code": status, "message": message})

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


@pytest.mark.parametrize(
    ("status", "message", "goes"),
    [
        (200, "", True),
        (404, 'pods "web" not found', True),
        (400, 'admission webhook "keep" does not support dry run', True),
        (400, 'admission webhook "keep" denied the request: never', False),
        (403, "not allowed", False),
        (500, "Internal error occurred: failed calling webhook", False),
    ],
)
async def test_whether_a_pod_would_go_is_asked_without_a_change(status: int, message: str, goes: bool) -> None:
    async with evictor(status, message) as (evicts, server):
        if goes:
            await evicts.try_evict(VICTIM)
        else:
            with pytest.raises(ApiError):
                await evicts.try_evict(VICTIM)
        assert {(request.verb, *request.json["dryRun"]) for request in server.requests} == {("DELETE", "All")}
