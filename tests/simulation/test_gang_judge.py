"""A gang is in one rack as far as the scheduler has a hand in it: the judge sees no fault of it in what others do."""

from __future__ import annotations

from tests.simulation.api_server import Json
from tests.simulation.calm import Calm, story
from tests.simulation.chaos import GANGS, containers

MEMBER = {"job": "j", "size": "2", "near": "yes"}


def create(calm: Calm, name: str, *, rack: str, **labels: str) -> None:
    spec: Json = {"nodeSelector": {"rack": rack}} | containers(1000)
    calm.server.create_pod(name, spec, labels)


async def two_racks(calm: Calm) -> None:
    for name, rack in {"n0": "r1", "n1": "r2"}.items():
        calm.server.set_node(name, cpu=4, labels={"rack": rack})
    await calm.after(1.0)


def test_a_pod_that_joins_a_gang_while_it_is_being_bound_may_be_in_another_rack() -> None:
    """By the time its scheduler knows that it is a member, it is on its node."""

    async def tell(calm: Calm) -> None:
        await two_racks(calm)
        create(calm, "joins", rack="r2", provisioning="10")
        for name in ("m0", "m1"):
            create(calm, name, rack="r1", provisioning="20", **MEMBER)
        await calm.after(3.0)
        pod = calm.server.pods["joins"]
        calm.server.pods["joins"] = {**pod, "metadata": {**pod["metadata"], "labels": MEMBER}}
        calm.server.touch_pod("joins")
        await calm.after(60.0)
        assert calm.on_nodes() == ["joins", "m0", "m1"]

    story(GANGS, tell, cpus=())


def test_a_gang_that_starts_again_may_be_in_another_rack_than_those_of_it_that_end() -> None:
    async def tell(calm: Calm) -> None:
        await two_racks(calm)
        for name in ("m0", "m1"):
            create(calm, name, rack="r2", **MEMBER)
        await calm.after(5.0)
        for name in ("m0", "m1"):
            calm.server.stuck.add(name)
            calm.server.delete_pod(name)
        for name in ("m2", "m3"):
            create(calm, name, rack="r1", **MEMBER)
        await calm.after(60.0)
        assert calm.on_nodes() == ["m0", "m1", "m2", "m3"]

    story(GANGS, tell, cpus=())


def test_a_gang_may_be_in_two_racks_where_a_node_comes_back_with_members_on_it() -> None:
    """While there was no such node, nobody knew in which rack they are."""

    async def tell(calm: Calm) -> None:
        await two_racks(calm)
        for name in ("m0", "m1"):
            create(calm, name, rack="r1", **MEMBER)
        await calm.after(5.0)
        calm.server.delete_node("n0")
        await calm.after(1.0)
        for name in ("m2", "m3"):
            create(calm, name, rack="r2", provisioning="20", **MEMBER)
        await calm.after(5.0)
        calm.server.set_node("n0", cpu=4, labels={"rack": "r1"})
        await calm.after(60.0)
        assert calm.on_nodes() == ["m0", "m1", "m2", "m3"]

    story(GANGS, tell, cpus=())
