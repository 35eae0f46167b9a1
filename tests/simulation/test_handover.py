"""A standby that takes over knows everything that its predecessor did, though its own watch was late or hung."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.simulation.api_server import ApiServer
from tests.simulation.chaos import containers, policies_of
from tests.simulation.replica import ELECTED, Replica
from tests.simulation.virtual_time import run


class Pair:
    """A leader that has filled two nodes, with four pods left over, and a standby that has not seen it."""

    async def begin(self, *, seed: int, hangs: bool) -> None:
        self.server = server = ApiServer(Random(seed))
        for number in range(2):
            server.set_node(f"n{number}", cpu=4, labels={})
        policies = policies_of("score node.free.cpu\n")
        self.leader = Replica(server, policies, name="a", seed=1, election=ELECTED)
        await asyncio.sleep(3.0)
        self.standby = Replica(server, policies, name="b", seed=2, election=ELECTED)
        await asyncio.sleep(10.0)
        assert self.leader.fence.allows()
        for number in range(12):
            server.create_pod(f"p{number}", containers(1000), {})
        if hangs:
            await asyncio.sleep(0.2)  # it knows the pods, and hears nothing of them from now on
            for stream in self.standby.connection.streams:
                if stream.kind == "pods":
                    stream.spoil("silence")
        else:
            server.lag_seconds = 3.0
        while self.bound() < 8:  # noqa: ASYNC110 (there is nothing that would tell)
            await asyncio.sleep(0.02)

    def bound(self) -> int:
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.server.pods.values())

    async def see(self) -> None:
        """Let the standby take over and schedule; no further pod fits."""
        await asyncio.sleep(40.0)
        assert self.standby.fence.allows()
        assert self.server.violations == []
        assert self.bound() == 8
        self.server.finish_pod(next(n for n, pod in self.server.pods.items() if pod["spec"].get("nodeName")))
        await asyncio.sleep(30.0)
        assert self.bound() == 8, "and goes on to place pods where there is some again"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("hangs", [False, True], ids=["late", "hangs"])
@pytest.mark.parametrize("dies", [False, True], ids=["leaves", "dies"])
def test_a_new_leader_knows_what_the_last_one_bound(seed: int, hangs: bool, dies: bool) -> None:
    async def main() -> None:
        pair = Pair()
        await pair.begin(seed=seed, hangs=hangs)
        if dies:
            pair.leader.kill()
        else:
            await pair.leader.leave()
        await pair.see()

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_a_replica_that_takes_the_part_of_a_dead_one_knows_what_that_one_bound(seed: int) -> None:
    async def main() -> None:
        server = ApiServer(Random(seed))
        server.lag_seconds = 0.05
        for number in range(4):
            server.set_node(f"n{number}", cpu=4, labels={})
        policies = policies_of('score node.free.cpu\nhold if pod.label.app == "held" and pod.waiting < 20s\n')
        first, other = (Replica(server, policies, name=name, seed=1, shares=True) for name in "ab")
        await asyncio.sleep(10.0)
        for number in range(16):
            server.create_pod(f"held{number}", containers(1000), {"app": "held"}, namespace=f"ns{number % 8}")
        await asyncio.sleep(0.3)
        for stream in other.connection.streams:
            if stream.kind == "pods":
                stream.spoil("silence")
        for number in range(16):
            server.create_pod(f"p{number}", containers(1000), {}, namespace=f"ns{number % 8}")
        await asyncio.sleep(5.0)
        assert any(pod["spec"].get("nodeName") for pod in server.pods.values())
        first.kill()
        await asyncio.sleep(100.0)
        assert server.violations == []
        assert sum(bool(pod["spec"].get("nodeName")) for pod in server.pods.values()) == 16

    run(main())


def test_a_lease_that_is_deleted_ends_no_sooner_than_its_holder_may_act() -> None:
    """The other one was cut off since, and knows nothing of how it was renewed meanwhile."""

    async def main() -> None:
        server = ApiServer(Random(1))
        server.lag_seconds = 0.05
        server.set_node("n0", cpu=4, labels={})
        policies = policies_of("score node.free.cpu\n")
        one, other = (Replica(server, policies, name=name, seed=1, shares=True) for name in "ab")
        await asyncio.sleep(20.0)
        owner, cut = (one, other) if one.scheduler.context.sharding.owns_node("n0") else (other, one)
        cut.connection.is_cut = True
        await asyncio.sleep(8.0)
        cut.connection.is_cut, owner.connection.is_cut = False, True
        server.delete_lease(next(name for name in server.leases if name.endswith(owner.name)))
        both = owned = False
        for _ in range(300):
            await asyncio.sleep(0.1)
            acts = [r.fence.allows() and r.scheduler.context.sharding.owns_node("n0") for r in (owner, cut)]
            both, owned = both or all(acts), acts[1]
        assert not both
        assert owned, "it takes the node in the end"

    run(main())
