"""PreBind for claims that is cancelled: what was being written is known, and is given back."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.scheduling.claim_binder import ApiClaimBinder
from kube_policy_scheduler.daemon.watching.freshness import AlwaysCurrent
from kube_policy_scheduler.framework.reserve.claim_reservation import ClaimReservation, ReservedClaim
from tests.policy.worlds import pod
from tests.simulation.virtual_time import run

ALLOCATED = {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "gpu0"}]}}}


class Writer:
    """Writes slowly, and keeps what it wrote."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.done: list[str] = []

    async def reserve(self, claim: objects.ResourceClaim, *, user: Any, allocation: Any) -> objects.ResourceClaim:
        self.began.set()
        await asyncio.sleep(5.0)
        self.done.append(f"reserve for {user.name}")
        status = msgspec.structs.replace(claim.status, reserved_for=[user])
        return msgspec.structs.replace(claim, status=status)

    async def release(self, claim: objects.ResourceClaim, *, uid: str) -> None:
        self.done.append(f"release from {uid}")


def test_a_write_that_has_begun_is_brought_to_its_end_and_taken_back() -> None:
    async def tell() -> None:
        cluster, writer = Cluster(), Writer()
        metadata = {"name": "gpu", "namespace": "default", "uid": "c", "resourceVersion": "1"}
        claim = msgspec.convert({"metadata": metadata, "spec": {}, "status": ALLOCATED}, objects.ResourceClaim)
        cluster.set_object(claim)
        web: Any = pod(cluster, "web")
        written: Any = writer
        binds = ApiClaimBinder(written, cluster, view=AlwaysCurrent(), clock=lambda: 0.0)
        user = objects.ResourceClaimConsumerReference(resource="pods", name="web", uid="web")
        reservation = ClaimReservation(web, "n", (ReservedClaim(claim, None, user), ReservedClaim(claim, None, user)))

        binding = asyncio.ensure_future(binds.bind(reservation))
        await writer.began.wait()
        binding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await binding
        assert writer.done == ["reserve for web"], "the first is written, the second is not begun"
        await binds.unreserve(reservation)
        assert writer.done[:2] == ["reserve for web", "release from web"]

    run(tell())
