"""Nothing is bound by a view that is old: after a cut in which others filled the room, and on a slow link."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.simulation.api_server import ApiServer
from tests.simulation.chaos import containers, policies_of
from tests.simulation.replica import ALONE, ELECTED, Replica
from tests.simulation.virtual_time import run

NODES = 20


class Cluster:
    """Nodes with room for four pods each, and one scheduler."""

    def __init__(self, *, seed: int, elected: bool = False, policy: str = "score node.free.cpu") -> None:
        self.server = ApiServer(Random(seed))
        for number in range(NODES):
            self.server.set_node(f"n{number}", cpu=4, labels={})
        self.election = ELECTED if elected else ALONE
        self.policies = policies_of(policy)
        self.replica = self.start("a")

    def start(self, name: str) -> Replica:
        return Replica(self.server, self.policies, name=name, seed=ord(name), election=self.election)

    def create(self, *names: str, app: str = "") -> None:
        for name in names:
            self.server.create_pod(name, containers(1000), {"app": app})

    def fill(self) -> None:
        """Let another scheduler take all the room."""
        for node in self.server.nodes:
            if millis := self.server.free_millis(node):
                self.server.place(f"other-{node}", node, millis=millis)

    def ours(self) -> int:
        return sum("nodeName" in pod["spec"] for name, pod in self.server.pods.items() if not name.startswith("other"))

    def free(self, number: int) -> None:
        for name in [name for name in self.server.pods if name.startswith("other")][:number]:
            self.server.finish_pod(name)

    async def end(self, *, ours: int) -> None:
        """See that nothing was overcommitted, and that places are taken where there are some again."""
        await asyncio.sleep(60.0)
        assert self.server.violations == []
        assert self.ours() == ours
        self.free(2)
        await asyncio.sleep(60.0)
        assert self.server.violations == []
        assert self.ours() == ours + 8


@pytest.mark.parametrize("late", [0.0, 0.4, 1.2, 2.4])
@pytest.mark.parametrize("goes_on", ["silently", "after a break", "410 in the stream", "410 in the next"])
def test_what_others_placed_during_a_cut_counts_before_anything_is_bound(goes_on: str, late: float) -> None:
    async def main() -> None:
        cluster = Cluster(seed=int(late * 10), policy='filter pod.name == "none"')
        connection = cluster.replica.connection
        await asyncio.sleep(5.0)
        cluster.create(*(f"p{number}" for number in range(30)))
        await asyncio.sleep(2.0)
        connection.is_cut = True
        if goes_on != "silently":
            connection.is_slow = True  # so that it takes seconds to read what there is
            for stream in connection.streams:
                stream.spoil("410 in the stream" if goes_on == "410 in the stream" else "cut")
        cluster.fill()
        await asyncio.sleep(7.0)
        cluster.server.remembers = goes_on != "410 in the next"
        connection.is_cut = False
        await asyncio.sleep(late)
        cluster.replica.use_policies(policies_of("score node.free.cpu"))  # now they may be decided
        await cluster.end(ours=0)

    run(main())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trouble", ["broken soon", "refused"])
def test_a_watch_that_could_be_had_again_is_had_before_anything_is_bound_without_it(trouble: str, seed: int) -> None:
    """A pause between two tries does not prove that a watch is unavailable, though many tries before it failed."""

    async def main() -> None:
        cluster = Cluster(seed=seed, policy='filter pod.name == "none"')
        server, connection = cluster.server, cluster.replica.connection
        await asyncio.sleep(5.0)
        cluster.create(*(f"p{number}" for number in range(30)))
        await asyncio.sleep(2.0)
        if trouble == "refused":
            server.knows_roles = False
            for stream in connection.streams:
                stream.spoil("cut")
            await asyncio.sleep(200.0)
            server.knows_roles = True
            await asyncio.sleep(5.0)
        else:
            pods = cluster.replica.reflectors[1]
            for _ in range(10):
                while not pods.is_current:  # noqa: ASYNC110 (in virtual time)
                    await asyncio.sleep(0.01)
                await asyncio.sleep(1.0)
                for stream in connection.streams:
                    if stream.kind == "pods":
                        stream.spoil("cut")
                await asyncio.sleep(0.1)
        cluster.fill()
        await asyncio.sleep(1.0)
        cluster.replica.use_policies(policies_of("score node.free.cpu"))  # now they may be decided
        await cluster.end(ours=0)

    run(main())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("goes_on", ["silently", "after a break"])
def test_what_was_decided_before_a_cut_is_looked_at_again_before_it_is_sent(goes_on: str, seed: int) -> None:
    async def main() -> None:
        cluster = Cluster(seed=seed)
        connection = cluster.replica.connection
        await asyncio.sleep(5.0)
        connection.takes_requests = False
        cluster.create(*(f"p{number}" for number in range(30)))
        await asyncio.sleep(1.0)
        assert cluster.replica.scheduler.cluster.assumed
        connection.is_cut = True
        if goes_on == "after a break":
            for stream in connection.streams:
                stream.spoil("cut")
        else:
            connection.stall(10.0)  # packets that were lost are sent again, but not at once
        cluster.fill()
        await asyncio.sleep(7.0)
        connection.is_cut, connection.takes_requests = False, True
        await cluster.end(ours=0)

    run(main())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ends", ["leaves", "dies"])
@pytest.mark.parametrize("hears", ["slowly", "nothing"])
def test_a_new_leader_has_read_all_that_was_done_before(hears: str, ends: str, seed: int) -> None:
    async def main() -> None:
        cluster = Cluster(seed=seed, elected=True, policy='filter pod.label.app != "late"')
        first = cluster.replica
        await asyncio.sleep(5.0)
        second = cluster.start("b")
        await asyncio.sleep(15.0)
        cluster.create(*(f"late{number}" for number in range(20)), app="late")
        await asyncio.sleep(1.0)
        if hears == "slowly":
            second.connection.is_slow = True
        else:
            for stream in second.connection.streams:
                stream.spoil("silence")
        cluster.create(*(f"p{number}" for number in range(80)))
        while cluster.ours() < 80:  # noqa: ASYNC110 (in virtual time)
            await asyncio.sleep(0.01)
        assert second.coordinator.leader == "a"
        if ends == "leaves":
            await first.leave()
        else:
            first.kill()
        while not second.fence.allows():  # noqa: ASYNC110 (in virtual time)
            await asyncio.sleep(0.01)
        second.use_policies(policies_of("score node.free.cpu"))  # now the others may be decided, too
        await asyncio.sleep(60.0)
        assert cluster.server.violations == []
        assert cluster.ours() == 80
        for _ in range(8):
            cluster.server.finish_pod(next(n for n, p in cluster.server.pods.items() if p["spec"].get("nodeName")))
        await asyncio.sleep(60.0)
        assert cluster.server.violations == []
        assert cluster.ours() == 80

    run(main())


def test_a_leader_that_follows_one_that_left_in_order_decides_at_once() -> None:
    async def main() -> None:
        cluster = Cluster(seed=1, elected=True)
        first = cluster.replica
        await asyncio.sleep(5.0)
        second = cluster.start("b")
        await asyncio.sleep(70.0)
        cluster.create(*(f"p{number}" for number in range(40)))
        await asyncio.sleep(5.0)
        assert cluster.ours() == 40
        await first.leave()
        cluster.create("late")
        await asyncio.sleep(1.0)
        assert second.fence.allows()
        assert cluster.ours() == 41

    run(main())


def test_the_first_leader_of_a_cluster_decides_at_once() -> None:
    async def main() -> None:
        cluster = Cluster(seed=1, elected=True)
        cluster.create(*"abcd")
        await asyncio.sleep(1.5)
        assert cluster.ours() == 4

    run(main())
