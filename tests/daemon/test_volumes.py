"""PreBind for volumes: the writes, the waiting, and that a fenced replica writes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.scheduling.volumes import ApiVolumeBinder
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer
from tests.framework.test_volume_reservation import bound, claim, cluster_with, reserved, volume


@contextlib.asynccontextmanager
async def binder(cluster: Cluster, **options: Any) -> AsyncIterator[tuple[ApiVolumeBinder, ScriptedServer]]:
    """Have a volume controller bind the claim as soon as the volume is written."""

    def answer(request: Request, peer: Peer) -> None:
        peer.answer(200, {"metadata": {"name": "v", "resourceVersion": "21"}})
        reference = {"namespace": "default", "name": "c", "uid": "uid-c"}
        cluster.set_object(volume(version="21", claim_ref=reference))
        cluster.set_object(bound(volume="v"))

    async with ScriptedServer(answer) as server:
        transport = Transport(server.credentials())
        yield ApiVolumeBinder(transport, cluster, **options), server
        await transport.close()


async def test_a_volume_is_written_and_its_claim_waited_for() -> None:
    cluster = cluster_with(claim(), volume())
    async with binder(cluster) as (binds, server):
        assert await binds.bind(reserved(cluster)) == ""
        assert [(r.verb, r.path) for r in server.requests] == [("PATCH", "/api/v1/persistentvolumes/v")]


@pytest.mark.parametrize("things", [(claim(), volume()), (claim(),)], ids=["a volume", "a claim"])
async def test_behind_the_fence_no_volume_is_written_and_the_reservation_is_given_back(things: tuple[Any, ...]) -> None:
    cluster = cluster_with(*things)
    async with binder(cluster, fence=Fence(lambda: False)) as (binds, server):
        assert "was withheld" in await binds.bind(reserved(cluster))
        assert server.requests == []
        assert "was withheld" in await binds.bind(reserved(cluster)), "it could be reserved again"


async def test_a_binding_that_is_cancelled_gives_its_reservation_back() -> None:
    cluster = cluster_with(claim())
    async with binder(cluster) as (binds, server):
        task = asyncio.ensure_future(binds.bind(reserved(cluster)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert server.requests == []
        assert reserved(cluster).volumes.provisions, "it could be reserved again"
