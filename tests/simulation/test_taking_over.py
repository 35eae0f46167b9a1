"""How soon a standby binds: when its leader vanished, ended in order, or was followed again and again."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.simulation.api_server import ApiServer
from tests.simulation.chaos import containers, policies_of
from tests.simulation.replica import ELECTED, Replica
from tests.simulation.virtual_time import run

NOTICED_SECONDS = 0.5
"""A watch shows a renewal so much later at the latest."""


class Pair:
    """One node with much room, and replicas that follow each other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.server = ApiServer(Random(seed))
        self.server.set_node("n1", cpu=1000, labels={})
        self.policies = policies_of("score node.free.cpu")
        self.replicas: list[Replica] = []
        self.created = 0

    def start(self) -> Replica:
        number = len(self.replicas)
        replica = Replica(
            self.server, self.policies, name=f"r{number}", seed=self.random.randrange(1 << 30), election=ELECTED
        )
        self.replicas.append(replica)
        return replica

    async def lead(self, replica: Replica) -> None:
        while not replica.scheduler.leading:  # noqa: ASYNC110 (in virtual time)
            await asyncio.sleep(0.01)

    async def first_binding(self) -> float:
        """Create a pod and return how long it took until it was bound."""
        began, name = asyncio.get_running_loop().time(), f"p{self.created}"
        self.created += 1
        self.server.create_pod(name, containers(1), {})
        while "nodeName" not in self.server.pods[name]["spec"]:  # noqa: ASYNC110 (in virtual time)
            await asyncio.sleep(0.01)
        took = asyncio.get_running_loop().time() - began
        self.server.finish_pod(name)  # a node takes few pods
        return took


@pytest.mark.parametrize("seed", range(20))
def test_a_standby_binds_as_soon_as_the_lease_of_a_leader_that_vanished_is_over(seed: int) -> None:
    """What the old leader did was found out before: no bookmark, list or event is waited for by then."""

    async def main() -> None:
        pair = Pair(seed)
        leader = pair.start()
        await pair.lead(leader)
        standby = pair.start()
        await asyncio.sleep(20.0)
        await pair.first_binding()
        await asyncio.sleep(pair.random.uniform(0.0, 70.0))
        leader.kill()
        took = await pair.first_binding()
        assert took <= ELECTED.lease_duration + NOTICED_SECONDS + 0.5
        assert standby.scheduler.leading
        assert pair.server.violations == []

    run(main())


@pytest.mark.parametrize("how", ["killed", "ended in order"])
def test_of_many_restarts_none_leaves_a_leader_that_waits_for_an_event(how: str) -> None:
    async def main() -> None:
        pair, slowest = Pair(1), 0.0
        leader = pair.start()
        await pair.lead(leader)
        for _ in range(30):
            standby = pair.start()
            await asyncio.sleep(pair.random.choice((0.0, 0.3, 5.0, 30.0)) * pair.random.random())
            if how == "killed":
                leader.kill()
            else:
                await leader.leave()
            binding = asyncio.create_task(pair.first_binding())
            await pair.lead(standby)
            led_at = asyncio.get_running_loop().time()
            await binding
            slowest = max(slowest, asyncio.get_running_loop().time() - led_at)
            leader = standby
        assert slowest < 3.0
        assert pair.server.violations == []

    run(main())
