"""The fence after the machine has slept: closed until the Lease is renewed."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kube_policy_scheduler.daemon.configuration.settings import LeaderElectionSettings, PolicySettings, Settings
from kube_policy_scheduler.daemon.replicas.coordinator import ReplicaCoordinator, ReplicaFence, lease_namespace
from tests.simulation.api_server import ApiServer
from tests.simulation.network import Connection
from tests.simulation.virtual_time import run

SETTINGS = LeaderElectionSettings(lease_duration=15.0, renew_deadline=10.0, retry_period=2.0)


@pytest.mark.parametrize("seconds", [2.0, 3600.0])
def test_nothing_is_bound_after_a_sleep_before_the_lease_is_renewed(
    seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        slept = 0.0
        server = ApiServer(Random(1))
        fence = ReplicaFence(SETTINGS, shares=False, slept=lambda: slept)
        scheduler: Any = SimpleNamespace(lead=lambda leading: None)
        pods: Any = SimpleNamespace(position=0)
        connection: Any = Connection(server)
        leading = ReplicaCoordinator(
            SETTINGS,
            identity="a",
            fence=fence,
            scheduler=scheduler,
            views=[pods, pods],
            transport=connection,
            random=Random(1),
        )
        assert not fence.allows()
        task = asyncio.create_task(leading.run())
        await asyncio.sleep(5.0)
        assert fence.allows()
        connection.is_cut = True
        await asyncio.sleep(1.0)
        assert fence.allows(), "one renewal that fails does no harm"
        slept += seconds
        assert not fence.allows()
        await asyncio.sleep(2.0)
        assert not fence.allows(), "the lease is not renewed yet"
        connection.is_cut = False
        await asyncio.sleep(4.0)
        assert fence.allows()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())
    assert [r.getMessage() for r in caplog.records if "suspended" in r.getMessage()] == [
        f"the machine was suspended for {seconds:.0f} s; no pods are bound until the lease is renewed"
    ]


def test_without_other_replicas_a_sleep_has_no_effect() -> None:
    slept = 0.0
    fence = ReplicaFence(LeaderElectionSettings(enabled=False), shares=False, slept=lambda: slept)
    slept = 3600.0
    assert fence.allows()


@pytest.mark.parametrize(
    ("given", "config_map", "pods", "is_in"),
    [
        ("given", "team/policies", "pods", "given"),
        (None, "team/policies", "pods", "pods"),
        (None, "team/policies", None, "team"),
        (None, None, None, "kube-system"),
    ],
)
def test_the_leases_are_where_they_are_said_to_be_else_at_home(
    given: str | None, config_map: str | None, pods: str | None, is_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside a pod home is where the policies are, so that both elect one leader who have the same settings."""
    monkeypatch.setattr("kube_policy_scheduler.daemon.replicas.coordinator.own_namespace", lambda: pods)
    settings = Settings(
        leader_election=LeaderElectionSettings(lease_namespace=given), policies=PolicySettings(config_map=config_map)
    )
    assert lease_namespace(settings) == is_in
