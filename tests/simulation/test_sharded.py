"""Replicas that share the work, under seeded chaos; more of it with `python -m tests.simulation --sharded`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from random import Random

import pytest

from tests.simulation.api_server import ApiServer, cpu_millis
from tests.simulation.chaos import containers, policies_of
from tests.simulation.network import REQUEST_FAULTS
from tests.simulation.replica import Replica
from tests.simulation.sharded import SharedSimulation
from tests.simulation.virtual_time import run

FAULTS = {
    "403 after a restart",
    "API server restarted",
    "lease deleted",
    "others filled the room during a cut",
    "slow link",
    "watch: 410",
    "watch: slow link",
    *(f"binding: {fault}" for fault in REQUEST_FAULTS),
    "cut off",
    "gang bound",
    "joined",
    "killed",
    "lease lost",
    "left in order",
    "most passed on",
    "pod deleted while assumed",
    "preempted",
    "relist while binding",
    "stopped",
    "storm of 410",
}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.timeout(300)
def test_replicas_that_come_go_and_die_bind_nothing_wrongly_and_forget_nothing() -> None:
    met: Counter[str] = Counter()
    for seed in range(16):
        met += SharedSimulation(seed, steps=180).run()
    assert FAULTS - met.keys() == set(), "never happened"


LEASE_SECONDS = 15.0
LATE_SECONDS = LEASE_SECONDS + 7.0
"""For pods of a replica that was killed: its lease, and a few seconds for the others to share its work."""


async def _seconds_until_all_that_fit_are_bound(seed: int, *, pods: int = 150, nodes: int = 30) -> float:
    """Kill one of three replicas in the middle of a burst that nearly fills the nodes; every other time one joins."""
    random, loop = Random(seed), asyncio.get_running_loop()
    server, policies = ApiServer(Random(seed)), policies_of("score node.free.cpu\n")
    server.lag_seconds = random.choice((0.01, 0.05, 0.2))
    for number in range(nodes):
        server.set_node(f"n{number}", cpu=4, labels={})

    def join(name: str) -> Replica:
        return Replica(server, policies, name=name, seed=random.randrange(10**6), shares=True)

    replicas = [join(f"r{number}") for number in range(3)]
    await asyncio.sleep(random.choice((20.0, 40.0)))

    async def burst() -> None:
        for number in range(pods):
            server.create_pod(f"p{number}", {"priority": 0} | containers(random.choice((500, 1000))), {})
            if number % 10 == 0:
                await asyncio.sleep(random.choice((0.0, 0.02, 0.1)))

    bursting = asyncio.create_task(burst())
    await asyncio.sleep(random.random() * 1.5)
    replicas.pop(random.randrange(3)).kill()
    killed = loop.time()
    if seed % 2:
        await asyncio.sleep(random.random() * 3)
        replicas.append(join("r3"))
    await bursting
    while loop.time() - killed < 120.0:
        room = max(server.free_millis(name) for name in server.nodes)
        waiting = [pod for pod in server.pods.values() if not pod["spec"].get("nodeName")]
        if all(cpu_millis(pod) > room for pod in waiting):
            assert server.violations == []
            break
        await asyncio.sleep(0.25)
    return loop.time() - killed


@pytest.mark.timeout(300)
def test_pods_that_fit_are_bound_soon_after_a_replica_is_killed() -> None:
    took = {seed: run(_seconds_until_all_that_fit_are_bound(seed)) for seed in range(10)}
    assert {seed: seconds for seed, seconds in took.items() if seconds > LATE_SECONDS} == {}
