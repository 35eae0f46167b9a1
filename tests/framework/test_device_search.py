"""The search for devices finds what the plain search finds, whatever it leaves out, and however often it pauses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.resource_claims import TriedDevices
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID, Pool
from kube_policy_scheduler.cluster.search_work import Work
from kube_policy_scheduler.framework.devices import allocator
from kube_policy_scheduler.framework.devices.allocator import TIMED_OUT, NodeAllocation, allocate_in_steps
from kube_policy_scheduler.framework.devices.requests import ClaimRequests, read_claim
from tests.framework.plain_allocator import plain_allocate

Json = dict[str, Any]
DRIVER = "gpu.example.com"
CLASSES = {
    "any": "true",
    "gpu": f'device.attributes["{DRIVER}"].kind == "gpu"',
    "nic": f'device.attributes["{DRIVER}"].?kind.orValue("") == "nic"',
    "big": f'device.attributes["{DRIVER}"].numa > 0',
}


def device_class(name: str) -> objects.DeviceClass:
    expression = CLASSES[name]
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}, objects.DeviceClass
    )


FOUND = {name: device_class(name) for name in CLASSES}


def pools_of(slices: list[Json]) -> tuple[Pool, ...]:
    cluster = Cluster()
    cluster.set_node(msgspec.convert({"metadata": {"name": "n0", "labels": {}}}, objects.Node))
    for body in slices:
        cluster.set_object(msgspec.convert(body, objects.ResourceSlice))
    return cluster.resource_slices.pools_of(0)


def a_slice(name: str, devices: list[Json], counters: list[Json] | None = None) -> Json:
    spec = {"driver": DRIVER, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}}
    where = {"nodeName": "n0", "sharedCounters": counters} if counters else {"nodeName": "n0", "devices": devices}
    return {"metadata": {"name": name + ("-counters" if counters else "")}, "spec": {**spec, **where}}


def in_pieces(claims: list[ClaimRequests], pools: tuple[Pool, ...], used: TriedDevices, piece: float) -> NodeAllocation:
    """Search as the daemon does, in pieces."""
    work = Work(piece)
    steps = allocate_in_steps(claims, pools, used, node_name="n0", labels={}, most_steps=MOST, work=work)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: NodeAllocation = end.value
            return found
        work.left_now = piece


MOST = 20_000
attributes = st.fixed_dictionaries(
    {"kind": st.sampled_from(["gpu", "gpu", "nic"]).map(lambda kind: {"string": kind})},
    optional={"numa": st.integers(0, 2).map(lambda numa: {"int": numa}), "rack": st.just({"string": "r"})},
)
TAINT = [{"key": "t", "effect": "NoSchedule"}]
plain_devices = st.fixed_dictionaries({"attributes": attributes})
devices = st.fixed_dictionaries(
    {"attributes": attributes},
    optional={
        "taints": st.just(TAINT),
        "consumesCounters": st.integers(1, 2).map(
            lambda amount: [{"counterSet": "c", "counters": {"slots": {"value": str(amount)}}}]
        ),
        "allowMultipleAllocations": st.just(True),
        "capacity": st.just({"memory": {"value": "10"}}),
    },
)


def requests(classes: tuple[str, ...], *, plain: bool) -> Any:
    exactly = st.fixed_dictionaries(
        {"deviceClassName": st.sampled_from(classes), "count": st.integers(1, 4)},
        optional={}
        if plain
        else {
            "allocationMode": st.sampled_from(["All", "ExactCount"]),
            "tolerations": st.just([{"operator": "Exists"}]),
            "capacity": st.just({"requests": {"memory": "4"}}),
        },
    ).map(lambda one: {"allocationMode": "ExactCount", **one})
    admin = exactly.flatmap(
        lambda one: st.sampled_from([one, one, one, one if plain else {**one, "adminAccess": True}])
    )
    several = st.lists(exactly, min_size=1, max_size=3).map(
        lambda ones: {"firstAvailable": [{"name": f"s{number}", **one} for number, one in enumerate(ones)]}
    )
    return st.one_of(admin.map(lambda one: {"exactly": one}), several)


constraint = st.fixed_dictionaries(
    {}, optional={"requests": st.lists(st.sampled_from(["r0", "r1", "r1/s0"]), min_size=1, unique=True)}
).flatmap(
    lambda one: st.sampled_from(["matchAttribute", "matchAttribute", "distinctAttribute"]).flatmap(
        lambda kind: st.sampled_from(["numa", "kind"]).map(lambda name: {**one, kind: f"{DRIVER}/{name}"})
    )
)
match_constraint = st.sampled_from(["numa", "kind", "rack"]).map(lambda name: {"matchAttribute": f"{DRIVER}/{name}"})


def claims(classes: tuple[str, ...], rules: Any, *, plain: bool) -> Any:
    one = st.tuples(st.lists(requests(classes, plain=plain), min_size=1, max_size=3), st.lists(rules, max_size=2)).map(
        lambda parts: {
            "devices": {
                "requests": [{"name": f"r{number}", **request} for number, request in enumerate(parts[0])],
                "constraints": parts[1],
            }
        }
    )
    return st.lists(one, min_size=1, max_size=3)


def read(specs: list[Json]) -> list[ClaimRequests]:
    return [
        read_claim(f"ns/c{number}", msgspec.convert(spec, objects.ResourceClaimSpec), FOUND.get)
        for number, spec in enumerate(specs)
    ]


def check(offered: list[Json], wanted: list[Json], used: set[int], piece: float, *, unpruned: int) -> None:
    named = [{"name": f"d{number}", **one} for number, one in enumerate(offered)]
    half = len(named) // 2
    counters = [{"name": "c", "counters": {"slots": {"value": "3"}}}]
    parts = [a_slice("p", named[:half]), a_slice("q", named[half:])]
    for part in parts:
        if any("consumesCounters" in one for one in part["spec"]["devices"]):
            part["spec"]["pool"]["resourceSliceCount"] = 2
    more = [
        a_slice(part["metadata"]["name"], [], counters)
        for part in parts
        if part["spec"]["pool"]["resourceSliceCount"] > 1
    ]
    for one in more:
        one["spec"]["pool"]["resourceSliceCount"] = 2
    pools = pools_of([*parts, *more])
    taken = TriedDevices(None)
    for number in used:
        taken.take(DeviceID(DRIVER, "p" if number < half else "q", f"d{number}"), None, shared=False)
    read_claims = read(wanted)
    expected = plain_allocate(read_claims, pools, taken, node_name="n0", labels={}, most_steps=MOST)
    assume(TIMED_OUT not in expected.error)
    event("allocated" if expected.claims is not None else expected.error[:20] or "nothing")
    before, allocator._STEPS_UNPRUNED = allocator._STEPS_UNPRUNED, unpruned
    try:
        found = in_pieces(read_claims, pools, taken, piece)
        assert msgspec.structs.replace(found, is_long=False) == expected
    finally:
        allocator._STEPS_UNPRUNED = before


EXAMPLES = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("unpruned", [0, 10_000])
@EXAMPLES
@given(
    st.lists(devices, max_size=8),
    claims(("any", "gpu", "nic", "big"), constraint, plain=False),
    st.sets(st.integers(0, 7), max_size=3),
    st.sampled_from([0, 3, float("inf")]),
)
def test_it_finds_what_the_plain_search_finds(
    unpruned: int, offered: list[Json], wanted: list[Json], used: set[int], piece: float
) -> None:
    check(offered, wanted, {number for number in used if number < len(offered)}, piece, unpruned=unpruned)


@EXAMPLES
@given(
    st.lists(plain_devices, min_size=4, max_size=9),
    claims(("any", "gpu", "nic"), match_constraint, plain=True),
    st.sets(st.integers(0, 7), max_size=2),
)
def test_it_finds_what_the_plain_search_finds_among_devices_that_stand_for_each_other(
    offered: list[Json], wanted: list[Json], used: set[int]
) -> None:
    check(offered, wanted, {number for number in used if number < len(offered)}, 5, unpruned=0)
