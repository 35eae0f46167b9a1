"""Another scheduler that leads under our lease's name is found wherever one may look, and only while it is alive."""

from __future__ import annotations

from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube import rivals
from kube_policy_scheduler.adapters.kube.rivals import Rival, find_rival
from kube_policy_scheduler.adapters.kube.shard_leases import LABEL
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer

GROUP = "/apis/coordination.k8s.io/v1"


class Api:
    """Leases in namespaces, of which some are renewed between any two requests."""

    def __init__(
        self, *leases: tuple[str, str], alive: bool = True, holder: str = "them", seconds: float = 0.2
    ) -> None:
        self.leases = leases
        self.alive, self.holder, self.seconds = alive, holder, seconds
        self.clock = 0
        self.forbidden: tuple[str, ...] = ()

    def __call__(self, request: Request, peer: Peer) -> None:
        self.clock += self.alive
        if request.path in self.forbidden:
            peer.refuse(403, "Forbidden")
            return
        wanted = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        shards = request.query.get("labelSelector") == f"{LABEL}=ours"
        found = [
            self.lease(namespace, name)
            for namespace, name in self.leases
            if (name == wanted or (shards and "-shard-" in name))
            and request.path in (f"{GROUP}/leases", f"{GROUP}/namespaces/{namespace}/leases")
        ]
        peer.answer(200, {"items": found or None})

    def lease(self, namespace: str, name: str) -> dict[str, Any]:
        return {
            "metadata": {"namespace": namespace, "name": name, "resourceVersion": str(self.clock)},
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.seconds,
                "renewTime": f"2020-01-01T00:00:{self.clock:02}Z",
            },
        }


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "LOOK_EVERY_SECONDS", 0.05)


async def found(api: Api, *, shares: bool | None = False, everywhere: bool = True) -> Rival | None:
    async with ScriptedServer(api) as server:
        transport = Transport(server.credentials())
        try:
            return await find_rival(transport, name="ours", namespace="here", shares=shares, everywhere=everywhere)
        finally:
            await transport.close()


@pytest.mark.parametrize(
    ("lease", "shares", "is_rival"),
    [
        (("there", "ours"), False, True),
        (("there", "ours"), True, True),
        (("there", "ours"), None, True),
        (("here", "ours"), False, False),
        (("here", "ours"), True, True),
        (("here", "ours"), None, True),
        (("there", "ours-shard-a"), False, True),
        (("here", "ours-shard-a"), False, True),
        (("here", "ours-shard-a"), True, False),
        (("here", "ours-shard-a"), None, True),
        (("there", "another"), None, False),
    ],
)
async def test_a_lease_that_is_renewed_and_is_not_ours_is_a_rivals(
    lease: tuple[str, str], shares: bool | None, is_rival: bool
) -> None:
    assert await found(Api(lease), shares=shares) == (Rival(*lease, "them") if is_rival else None)


@pytest.mark.parametrize("api", [Api(), Api(("there", "ours"), alive=False), Api(("there", "ours"), holder="")])
async def test_a_released_or_expired_lease_has_no_leader(api: Api) -> None:
    assert await found(api) is None


@pytest.mark.parametrize("namespace", ["policy-scheduler", "kube-system"])
async def test_without_cluster_wide_access_the_usual_namespaces_are_searched(namespace: str) -> None:
    api = Api((namespace, "ours"))
    api.forbidden = (f"{GROUP}/leases",)
    assert await found(api) == Rival(namespace, "ours", "them")
    assert await found(api, everywhere=False) is None
    api.forbidden += (f"{GROUP}/namespaces/{namespace}/leases",)
    assert await found(api) is None


async def test_an_answer_that_is_not_a_list_has_no_effect() -> None:
    async with ScriptedServer(lambda _, peer: peer.answer(200, {"items": 7})) as server:
        transport = Transport(server.credentials())
        assert await find_rival(transport, name="ours", namespace="here", shares=False, everywhere=True) is None
        await transport.close()
