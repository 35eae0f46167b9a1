"""Races between a decision and the watch event that confirms it, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.calm import Calm, story

POLICY = "score node.free.cpu\n"


async def until_bound(calm: Calm, *names: str, most_seconds: float) -> None:
    """Wait until these are bound and print how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not set(names) <= set(calm.on_nodes()):
        assert loop.time() - began < most_seconds, f"only {calm.on_nodes()} are bound"
        await calm.after(0.05)
    print(f"recovery: {loop.time() - began:.2f} s of virtual time")


def node_of(calm: Calm, name: str) -> str:
    found: str = calm.server.pods[name]["spec"].get("nodeName", "")
    return found


@pytest.mark.parametrize("lag", [0.01, 3.0])
def test_a_recreated_smaller_node_is_not_overcommitted(lag: float) -> None:
    async def tell(calm: Calm) -> None:
        calm.server.lag_seconds = lag
        for number in range(3):
            calm.pod(f"a{number}", millis=1000)
        await calm.after(0.3)  # decided, and on their way
        calm.server.delete_node("n0")
        calm.server.set_node("n0", cpu=3, labels={"zone": "b"})
        await calm.after(2 * lag)  # what it cannot have seen it cannot mind
        for number in range(6):
            calm.pod(f"b{number}", millis=1000)
        await calm.after(60)
        assert len(calm.on_nodes()) == 3, "three processors are there, and what was bound before counts"

    story(POLICY, tell, cpus=(4,))


def test_a_node_that_comes_back_empty_takes_pods_again() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("before", millis=4000)
        await until_bound(calm, "before", most_seconds=5.0)
        calm.pod("waits", millis=4000)
        await calm.after(3)
        calm.server.delete_node("n0")
        await calm.after(40)  # its pods are collected
        assert calm.on_nodes() == []
        calm.server.set_node("n0", cpu=4, labels={})
        await until_bound(calm, "waits", most_seconds=15.0)

    story(POLICY, tell, cpus=(4,))


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.05, 0.1, 0.15, 0.3])
def test_a_pod_deleted_while_it_is_assumed_gives_its_room_back(moment: float) -> None:
    async def tell(calm: Calm) -> None:
        await calm.after(2)
        calm.pod("a", millis=4000)
        await asyncio.sleep(moment)
        was_bound = bool(node_of(calm, "a"))
        calm.server.delete_pod("a")
        again = "c" if was_bound else "a"  # where it can be, another pod under its name
        calm.pod(again, millis=3000)
        calm.pod("b", millis=1000)
        await until_bound(calm, again, "b", most_seconds=40.0)

    story(POLICY, tell, cpus=(4,))


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.1, 0.2, 0.5])
def test_a_relist_in_the_middle_of_bindings_loses_and_doubles_nothing(moment: float) -> None:
    async def tell(calm: Calm) -> None:
        calm.server.lag_seconds = 1.0
        await calm.after(3)
        for number in range(12):
            calm.pod(f"p{number}", millis=1000)
        await asyncio.sleep(moment)
        calm.relist()
        await until_bound(calm, *(f"p{number}" for number in range(12)), most_seconds=20.0)
        calm.pod("more", millis=1000)
        await calm.after(20)
        assert node_of(calm, "more") == "", "the nodes are full"

    story(POLICY, tell, cpus=(6, 6))


def test_in_a_storm_of_410_pods_are_bound_all_the_same() -> None:
    async def tell(calm: Calm) -> None:
        names = [f"p{number}" for number in range(40)]
        for name in names:
            calm.pod(name, millis=200)
            calm.relist()
            await calm.after(0.7)
        await until_bound(calm, *names, most_seconds=10.0)

    story(POLICY, tell, cpus=(4,) * 5)


def test_an_api_server_that_answers_late_or_never_is_bound_to_in_the_end() -> None:
    async def tell(calm: Calm) -> None:
        calm.server.fault_rate = 0.9
        names = [f"p{number}" for number in range(16)]
        for name in names:
            calm.pod(name, millis=500)
        await calm.after(60)
        calm.server.fault_rate = 0.0
        await until_bound(calm, *names, most_seconds=30.0)
        calm.pod("more", millis=500)
        await calm.after(20)
        assert node_of(calm, "more") == "", "the nodes are full"

    story(POLICY, tell, cpus=(4, 4))


def test_one_tenants_flood_of_unschedulable_pods_delays_no_other_tenant() -> None:
    async def tell(calm: Calm) -> None:
        calm.server.lag_seconds = 0.01
        await calm.after(2)
        for number in range(2000):
            spec = {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]}
            calm.server.create_pod(f"flood{number}", spec, {"app": f"a{number}"}, namespace="flood")
        await asyncio.sleep(10.0)
        waits = []
        for number in range(5):
            calm.server.set_node("n1", cpu=4, labels={"touched": str(number)})  # wakes the flood
            calm.pod(f"p{number}", millis=500)
            began = asyncio.get_running_loop().time()
            while f"p{number}" not in calm.on_nodes():
                await asyncio.sleep(0.05)
                assert asyncio.get_running_loop().time() - began < 20
            waits.append(asyncio.get_running_loop().time() - began)
        print(f"waited {', '.join(f'{wait:.2f}' for wait in waits)} s of virtual time")
        assert max(waits) < 2.0

    story(POLICY, tell, cpus=(4, 4))
