"""Which devices claims get, held against every way to give them: the plain words of the API, without a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import msgspec
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.resource_claims import TriedDevices
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.framework.devices.allocator import allocate_in_steps
from kube_policy_scheduler.framework.devices.candidates import NodePools
from kube_policy_scheduler.framework.devices.requests import read_claim
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES
from kube_policy_scheduler.quantities.exact_quantity import parse

Json = dict[str, Any]
DRIVER = "gpu.example.com"
CLASS = msgspec.convert({"metadata": {"name": "gpu"}}, objects.DeviceClass)
ROOM, MEMORY = 3, 10
"""Of the counter that devices share, and of the capacity of each device."""

devices = st.fixed_dictionaries(
    {"numa": st.integers(1, 3), "takes": st.integers(0, 2), "is_tainted": st.booleans(), "is_shared": st.booleans()}
)
rules = st.sampled_from([(), ("matchAttribute",), ("distinctAttribute",), ("matchAttribute", "distinctAttribute")])
requests = st.lists(
    st.fixed_dictionaries({"count": st.integers(1, 3), "memory": st.integers(0, 6)}), min_size=1, max_size=3
)


def published(offered: list[Json]) -> list[Json]:
    """Return slices of one pool with some devices, and with the counter of which they take."""
    listed = [
        {
            "name": f"d{number}",
            "attributes": {"numa": {"int": one["numa"]}, "rack": {"int": one["numa"] % 2}},
            "capacity": {"memory": {"value": str(MEMORY)}},
            "allowMultipleAllocations": one["is_shared"],
            "taints": [{"key": "bad", "effect": "NoSchedule"}] if one["is_tainted"] else [],
            "consumesCounters": [{"counterSet": "c", "counters": {"units": {"value": str(one["takes"])}}}],
        }
        for number, one in enumerate(offered)
    ]
    counters = [{"name": "c", "counters": {"units": {"value": str(ROOM)}}}]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    return [
        {"metadata": {"name": "a"}, "spec": {"driver": DRIVER, "nodeName": "n", "pool": pool, **more}}
        | {"metadata": {"name": name}}
        for name, more in (("a", {"devices": listed}), ("b", {"sharedCounters": counters}))
    ]


def claimed(wanted: list[Json], constraints: tuple[str, ...]) -> Json:
    names = {"matchAttribute": "rack", "distinctAttribute": "numa"}
    return {
        "requests": [
            {
                "name": f"r{number}",
                "exactly": {
                    "deviceClassName": "gpu",
                    "allocationMode": "ExactCount",
                    "count": one["count"],
                    "capacity": {"requests": {"memory": str(one["memory"])}},
                },
            }
            for number, one in enumerate(wanted)
        ],
        "constraints": [{kind: f"{DRIVER}/{names[kind]}"} for kind in constraints],
    }


def ways(offered: list[Json], wanted: list[Json]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Return all ways to give devices to requests: for each the numbers of its devices."""
    return product(*(combinations(range(len(offered)), one["count"]) for one in wanted))


def is_allowed(
    offered: list[Json],
    wanted: list[Json],
    constraints: tuple[str, ...],
    way: tuple[tuple[int, ...], ...],
    held: dict[int, int],
) -> bool:
    """Return whether devices can be given in a way. held: what claims hold already of shared devices."""
    given_to = Counter(number for each in way for number in each)
    if any(times > 1 and not offered[number]["is_shared"] for number, times in given_to.items()):
        return False
    if any(
        offered[number]["is_tainted"] or (number in held and not offered[number]["is_shared"]) for number in given_to
    ):
        return False
    if sum(offered[number]["takes"] for number in {*given_to, *held}) > ROOM:
        return False
    taken = Counter(held)
    for number, one in ((number, one) for each, one in zip(way, wanted, strict=True) for number in each):
        taken[number] += one["memory"]
    if any(taken[number] > MEMORY for number in given_to):
        return False
    values = [offered[number]["numa"] for each in way for number in each]
    if "distinctAttribute" in constraints and len(set(values)) < len(values):
        return False
    return "matchAttribute" not in constraints or len({value % 2 for value in values}) <= 1


@settings(max_examples=150, deadline=None)
@given(
    st.lists(devices, min_size=1, max_size=5),
    requests,
    rules,
    st.dictionaries(st.integers(0, 4), st.integers(0, 8), max_size=2),
)
def test_claims_get_the_first_of_all_ways_that_are_allowed(
    offered: list[Json], wanted: list[Json], constraints: tuple[str, ...], held: dict[int, int]
) -> None:
    held = {number: amount for number, amount in held.items() if number < len(offered)}
    assume(sum(offered[number]["takes"] for number in held) <= ROOM)
    cluster = Cluster()
    cluster.set_node(msgspec.convert({"metadata": {"name": "n"}}, objects.Node))
    for body in published(offered):
        cluster.set_object(msgspec.convert(body, objects.ResourceSlice))
    in_use = TriedDevices(None)
    for number, amount in held.items():
        consumed = {"memory": parse(str(amount))} if amount else None
        in_use.take(DeviceID(DRIVER, "p", f"d{number}"), consumed, shared=True)
    spec = msgspec.convert({"devices": claimed(wanted, constraints)}, objects.ResourceClaimSpec)
    claim = read_claim("ns/c", spec, lambda name: CLASS, DEFAULT_RULES)
    found = now(allocate_in_steps([claim], NodePools("n", {}, cluster.resource_slices.pools_of(0)), in_use))

    allowed = (way for way in ways(offered, wanted) if is_allowed(offered, wanted, constraints, way, held))
    first = next(allowed, None)
    event("a way" if first else "no way")
    assert not found.error
    got = None if found.claims is None else [int(chosen.device.id.device[1:]) for chosen in found.claims[0]]
    assert got == (None if first is None else [number for each in first for number in each])
