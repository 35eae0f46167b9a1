"""Everything that a tenant can write more of into claims, and a driver into slices, so that none of it fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.device_selectors import compile_selector
from tests.growth.axes import TENANT, Axis
from tests.growth.stage import Json, Stage

DRIVER = "gpu.example.com"
FEW = 12
"""Devices of a node where their number does not grow."""


def device(number: int, **more: Any) -> Json:
    values = {"half": number % 2, "kind": number % 3, "number": number}
    return {"name": f"d{number}", "attributes": {name: {"int": value} for name, value in values.items()}, **more}


def publish(stage: Stage, name: str, spec: Json, *, slices: int = 1) -> None:
    """Publish a slice of the pool of its name, up to a dash."""
    pool = {"name": name.partition("-")[0], "generation": 1, "resourceSliceCount": slices}
    body = {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pool, **spec}}
    stage.event_handlers.object_changed(stage.thing(objects.ResourceSlice, body))


def on_each_node(stage: Stage, devices: Sequence[Json]) -> None:
    for row in range(stage.nodes):
        publish(stage, f"s{row}", {"nodeName": f"n{row}", "devices": list(devices)})


def claims(stage: Stage, specs: Sequence[Json]) -> None:
    stage.event_handlers.object_changed(stage.thing(objects.DeviceClass, {"metadata": {"name": "gpu"}, "spec": {}}))
    compile_selector("true")  # the library is loaded by the first selector of all
    for number, spec in enumerate(specs):
        metadata = {"name": f"claim{number}", "namespace": TENANT, "uid": f"claim{number}"}
        body = {"metadata": metadata, "spec": {"devices": spec}}
        stage.event_handlers.object_changed(stage.thing(objects.ResourceClaim, body))


def exactly(count: int = 1, selector: str = "") -> Json:
    found: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {**found, "selectors": [{"cel": {"expression": selector}}]} if selector else found


def requests(*wanted: Json) -> list[Json]:
    return [{"name": f"r{number}", "exactly": one} for number, one in enumerate(wanted)]


def nothing(n: int) -> str:
    """Return what selects no device, another text for each number: what is compiled is kept."""
    return f'device.attributes["{DRIVER}"].number < 0 - {n}'


def pod(claims_of: Callable[[int], int] = lambda n: 1) -> Callable[[int], Json]:
    def body(n: int) -> Json:
        names = [f"claim{number}" for number in range(claims_of(n))]
        return {"spec": {"resourceClaims": [{"name": name, "resourceClaimName": name} for name in names]}}

    return body


ONE_HALF = {"matchAttribute": f"{DRIVER}/half"}


def _few(stage: Stage) -> None:
    on_each_node(stage, [device(number) for number in range(FEW)])


def _devices(stage: Stage, n: int) -> None:
    on_each_node(stage, [device(number) for number in range(n)])
    none = {"requests": ["r1"], "matchAttribute": f"{DRIVER}/none"}
    claims(stage, [{"requests": requests(exactly(3), exactly(1)), "constraints": [ONE_HALF, none]}])


def _claims_of_a_pod(stage: Stage, n: int) -> None:
    _few(stage)
    claims(stage, [{"requests": requests(exactly())} for _ in range(n // 4)])


def _requests(stage: Stage, n: int) -> None:
    on_each_node(stage, [device(number) for number in range(32)])
    claims(stage, [{"requests": requests(*[exactly() for _ in range(n // 8)], exactly(1, nothing(n)))}])


def _alternatives(stage: Stage, n: int) -> None:
    _few(stage)
    ways = [{"name": f"s{way}", **exactly(1 + way % 2)} for way in range(n // 16)]
    several = [{"name": f"r{number}", "firstAvailable": ways} for number in range(4)]
    claims(stage, [{"requests": [*several, {"name": "last", "exactly": exactly(1, nothing(n))}]}])


def _selector(stage: Stage, n: int) -> None:
    _few(stage)
    members = ", ".join(map(str, range(n)))
    claims(stage, [{"requests": requests(exactly(1, f"[{members}].all(m, m + 1 > 0) && {nothing(n)}"))}])


def _slices_for_all(stage: Stage, n: int) -> None:
    for number in range(n):
        publish(stage, f"all{number}", {"allNodes": True, "devices": [device(one) for one in range(4)]})
    claims(stage, [{"requests": requests(exactly(1, nothing(n)))}])


def _slices_for_some(stage: Stage, n: int) -> None:
    for number in range(n):
        expression = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["abc"[number % 3]]}
        where = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        publish(stage, f"some{number}", {"nodeSelector": where, "devices": [device(one) for one in range(4)]})
    claims(stage, [{"requests": requests(exactly(1, nothing(n)))}])


def _counters(stage: Stage, n: int) -> None:
    for row in range(stage.nodes):
        sets = [{"name": f"c{number}", "counters": {"slots": {"value": "1"}}} for number in range(n // 4)]
        takes = [
            device(number, consumesCounters=[{"counterSet": one["name"], "counters": {"slots": {"value": "1"}}}])
            for number, one in enumerate(sets)
        ]
        publish(stage, f"s{row}-counters", {"nodeName": f"n{row}", "sharedCounters": sets}, slices=2)
        publish(stage, f"s{row}-devices", {"nodeName": f"n{row}", "devices": takes}, slices=2)
    claims(stage, [{"requests": requests(exactly(4), exactly(1, nothing(n)))}])


def _constraints(stage: Stage, n: int) -> None:
    _few(stage)
    rules = [ONE_HALF if number % 2 else {"matchAttribute": f"{DRIVER}/kind"} for number in range(n // 8)]
    claims(stage, [{"requests": requests(exactly(2), exactly(2)), "constraints": rules}])


DEVICES = [
    Axis("devices of a node", pod(), _devices),
    Axis("claims of a pod", pod(lambda n: n // 4), _claims_of_a_pod),
    Axis("requests of a claim", pod(), _requests),
    Axis("alternatives of a request", pod(), _alternatives),
    Axis("members that a selector looks at", pod(), _selector),
    Axis("slices for all nodes", pod(), _slices_for_all),
    Axis("slices for some nodes", pod(), _slices_for_some),
    Axis("counters of a node", pod(), _counters),
    Axis("constraints of a claim", pod(), _constraints),
]
"""Axes of claims that fit nowhere, and of the devices that they are looked for among."""
