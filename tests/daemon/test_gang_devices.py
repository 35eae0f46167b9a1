"""Gangs whose members claim parts of devices: what the first member gets must leave enough for the others."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.framework.reserve.claims_in_memory import make_claims
from tests.daemon.gang_stage import GANG, GangStage
from tests.simulation.virtual_time import run

Json = dict[str, Any]
EXACT: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}


class Claims:
    """Writes nothing: what is allocated in memory stays so."""

    def __init__(self) -> None:
        self.bound: dict[str, list[str]] = {}
        """Devices by pod."""

    async def bind(self, reservation: Any) -> str:
        self.bound[reservation.pod.name] = [
            result.device for one in reservation.claims for result in one.allocation.devices.results
        ]
        return ""

    async def unreserve(self, reservation: Any) -> None:
        pass

    def delivered(self, claim: Any, *, gone: bool = False) -> None:
        pass


def part(name: str, amount: int, *, size: str, card: str = "card") -> Json:
    counters = [{"counterSet": card, "counters": {"memory": {"value": str(amount)}}}]
    return {"name": name, "attributes": {"size": {"string": size}}, "consumesCounters": counters}


WHOLE_AND_HALVES = [
    part("whole", 80, size="whole"),
    part("half-0", 40, size="half"),
    part("half-1", 40, size="half"),
]
WITH_QUARTERS = [*WHOLE_AND_HALVES, *(part(f"quarter-{number}", 20, size="quarter") for number in range(4))]


def sized(size: str) -> Json:
    selector = {"cel": {"expression": f'device.attributes["gpu"].size == "{size}"'}}
    return {"name": size, **EXACT, "selectors": [selector]}


class Stage(GangStage):
    """Nodes with cards that can be partitioned, and pods that claim some of them."""

    def __init__(self, devices: list[Json], *, nodes: int = 1, policy: str = GANG) -> None:
        self.claims = Claims()
        super().__init__(nodes=nodes, cpus=64, policy=policy, claims=self.claims)
        handlers = self.scheduler.event_handlers
        handlers.object_changed(msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, objects.DeviceClass))
        for number in range(nodes):
            self.card(f"n{number}", devices)

    def card(self, name: str, devices: list[Json]) -> None:
        """Let the watch show the devices of a node."""
        counters = [{"name": "card", "counters": {"memory": {"value": "80"}}}]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
        for place, what in enumerate(({"devices": devices}, {"sharedCounters": counters})):
            body = {"driver": "gpu", "nodeName": name, "pool": pool, **what}
            one = msgspec.convert({"metadata": {"name": f"{name}-{place}"}, "spec": body}, objects.ResourceSlice)
            self.scheduler.event_handlers.object_changed(one)

    def member(self, name: str, request: Json, *, size: int, job: str = "g") -> None:
        """Let the watch show a member of a gang that claims a device."""
        cluster = self.scheduler.cluster
        devices = {"requests": [{"name": "r", **request}]}
        template = {"metadata": {"name": f"t-{name}", "namespace": "default"}, "spec": {"spec": {"devices": devices}}}
        cluster.set_object(msgspec.convert(template, objects.ResourceClaimTemplate))
        body: Json = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"job": job, "size": str(size)}},
            "spec": {
                "schedulerName": "policy-scheduler",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "resourceClaims": [{"name": "r", "resourceClaimTemplateName": f"t-{name}"}],
            },
        }
        pod = msgspec.convert(body, objects.Pod)
        make_claims(cluster, pod)
        self.pods[name] = pod
        self.scheduler.event_handlers.pod_changed(pod)


IN_ONE_NODE = "gang by pod.label.job size number(pod.label.size) within one node\n"
ANY: Json = {"exactly": EXACT}
WHOLE_OR_HALF: Json = {"firstAvailable": [sized("whole"), sized("half")]}
ALL_SIZES: Json = {"firstAvailable": [sized("whole"), sized("half"), sized("quarter")]}


@pytest.mark.parametrize(
    ("devices", "request_", "size", "expected"),
    [
        (WHOLE_AND_HALVES, ANY, 1, {"whole"}),
        (WHOLE_AND_HALVES, ANY, 2, {"half-0", "half-1"}),
        (WHOLE_AND_HALVES, WHOLE_OR_HALF, 1, {"whole"}),
        (WHOLE_AND_HALVES, WHOLE_OR_HALF, 2, {"half-0", "half-1"}),
        (WITH_QUARTERS, ALL_SIZES, 2, {"half-0", "half-1"}),
        (WITH_QUARTERS, ALL_SIZES, 4, {f"quarter-{number}" for number in range(4)}),
    ],
    ids=[
        "any, alone",
        "any, two",
        "whole or half, alone",
        "whole or half, two",
        "three sizes, two",
        "three sizes, four",
    ],
)
@pytest.mark.parametrize("policy", [GANG, IN_ONE_NODE], ids=["anywhere", "in one node"])
def test_a_gang_takes_parts_of_devices_if_only_so_all_of_it_fits(
    devices: list[Json], request_: Json, size: int, expected: set[str], policy: str
) -> None:
    """kube-scheduler gives the first member the whole device, and the others wait."""

    async def story() -> None:
        stage = Stage(devices, policy=policy)
        for number in range(size):
            stage.member(f"m{number}", request_, size=size)
        await asyncio.sleep(5)
        assert stage.told.times["bound"] == size, dict(stage.told.texts)
        assert {device for got in stage.claims.bound.values() for device in got} == expected
        assert stage.told.times["preempted"] == 0

    run(story())


def test_once_the_gang_is_complete_its_next_members_get_what_they_prefer() -> None:
    async def story() -> None:
        stage = Stage(WHOLE_AND_HALVES)
        for number in range(2):
            stage.member(f"m{number}", WHOLE_OR_HALF, size=2)
        await asyncio.sleep(5)
        assert stage.told.times["bound"] == 2
        stage.add_node("n1", cpus=64)
        stage.card("n1", WHOLE_AND_HALVES)
        stage.member("next", WHOLE_OR_HALF, size=2)
        await asyncio.sleep(5)
        assert stage.claims.bound["next"] == ["whole"]

    run(story())


def test_a_gang_that_fits_in_no_way_waits_and_leaves_the_devices_to_others() -> None:
    async def story() -> None:
        stage = Stage(WHOLE_AND_HALVES)
        for number in range(3):
            stage.member(f"m{number}", WHOLE_OR_HALF, size=3)
        await asyncio.sleep(100)
        assert stage.told.times["bound"] == 0
        stage.member("alone", WHOLE_OR_HALF, size=1, job="h")
        await asyncio.sleep(100)
        assert stage.claims.bound == {"alone": ["whole"]}

    run(story())
