"""Replicas that share the work, under seeded chaos; more of it with `python -m tests.simulation --sharded`."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from kube_policy_scheduler.policy.units import COUNTED
from tests.simulation.api_server import ApiServer, cpu_millis
from tests.simulation.chaos import QUEUED, containers, policies_of
from tests.simulation.network import REQUEST_FAULTS
from tests.simulation.replica import Replica
from tests.simulation.sharded import SharedSimulation
from tests.simulation.until import run_until
from tests.simulation.virtual_time import run

SEEDS = (1, 7, 8, 10, 11, 16, 17, 21, 30, 36)
"""Together they meet all faults; more of them with `make soak`."""
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
    run_until(FAULTS, lambda seed: SharedSimulation(seed, steps=180), SEEDS, further=range(100, 130))


@pytest.mark.timeout(300)
def test_a_nomination_that_could_not_be_ended_is_known_to_whom_the_pod_is_passed_by_new_members() -> None:
    """A webhook refuses to end it while the pod is ours; then members change, and the pod waits for our node."""
    SharedSimulation(193, steps=500).run()


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
    took = {seed: run(_seconds_until_all_that_fit_are_bound(seed)) for seed in range(6)}
    assert {seed: seconds for seed, seconds in took.items() if seconds > LATE_SECONDS} == {}


@pytest.mark.parametrize("helps", ["permission", "room"])
def test_a_pod_that_cannot_be_given_back_is_decided_again_where_it_was_passed_on(helps: str) -> None:
    """Its node was filled by others meanwhile, and the API server refuses for minutes that its status is changed."""

    async def main() -> None:
        server, policies = ApiServer(Random(1)), policies_of("score node.free.cpu\n")
        server.lag_seconds = 0.01
        for number in range(6):
            server.set_node(f"n{number}", cpu=1, labels={})
        first, second = (Replica(server, policies, name=f"r{n}", seed=n, shares=True) for n in (1, 2))
        await asyncio.sleep(40.0)
        sharding = first.scheduler.context.sharding
        assert sharding is not None
        theirs = next(name for name in server.nodes if not sharding.owns_node(name))
        for name in server.nodes:
            if name != theirs:
                server.place(f"fills-{name}", name, millis=1000)
        ours = next(n for n in (f"team{n}" for n in range(20)) if sharding.ring.owner(f"namespace/{n}") == "r1")
        await asyncio.sleep(5.0)
        second.connection.is_cut = True
        server.create_pod("p", {"priority": 0} | containers(1000), {}, namespace=ours)
        status = server.pods["p"]["status"]
        while "nominatedNodeName" not in status:  # noqa: ASYNC110 (in virtual time)
            await asyncio.sleep(0.01)
        server.place("fills-theirs", theirs, millis=1000)
        server.forbidden = {"pods"}
        await asyncio.sleep(1.0)
        second.connection.is_cut = False
        await asyncio.sleep(200.0)
        shard = second.coordinator.shard_state()
        assert shard is not None
        assert shard.failed >= 2
        assert "failed to return the pod" in second.told.failures["p"]
        if helps == "permission":
            server.forbidden = set()
            server.finish_pod(next(name for name in server.pods if name.startswith("fills-n")))
        else:
            server.finish_pod("fills-theirs")
        await asyncio.sleep(120.0)
        assert server.pods["p"]["spec"].get("nodeName"), "it is forgotten"
        assert server.violations == []

    run(main())


def test_a_gang_with_members_in_a_queue_and_in_none_starts() -> None:
    """One replica decides the pods of queues, and the other one those of the namespace: each had half of the gang."""

    async def main() -> None:
        server, policies = ApiServer(Random(1)), policies_of(QUEUED)
        server.lag_seconds = 0.01
        for number in range(6):
            server.set_node(f"n{number}", cpu=4, labels={})
        first, _ = (Replica(server, policies, name=f"r{n}", seed=n, shares=True) for n in (1, 2))
        await asyncio.sleep(40.0)
        sharding = first.scheduler.context.sharding
        assert sharding is not None
        ring = sharding.ring
        elsewhere = next(
            n for n in (f"team{n}" for n in range(20)) if ring.owner(f"namespace/{n}") != ring.owner(COUNTED)
        )
        for number in range(4):
            labels = {"job": "j", "size": "4"} | ({"tenant": "a"} if number % 2 else {})
            server.create_pod(f"j-{number}", {"priority": 0} | containers(500), labels, namespace=elsewhere)
        await asyncio.sleep(120.0)
        assert {name for name, pod in server.pods.items() if not pod["spec"].get("nodeName")} == set()
        assert server.violations == []

    run(main())
