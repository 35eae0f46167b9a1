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
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.framework.devices import allocator
from kube_policy_scheduler.framework.devices.allocator import TIMED_OUT, NodeAllocation, allocate_in_steps
from kube_policy_scheduler.framework.devices.candidates import NodePools
from kube_policy_scheduler.framework.devices.requests import ClaimRequests, read_claim
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from tests.framework.plain_allocator import plain_allocate
from tests.test_kubernetes_rules import rules_of

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
    steps = allocate_in_steps(claims, NodePools("n0", {}, pools), used, most_steps=MOST, work=work)
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
    optional={
        "numa": st.integers(0, 2).map(lambda numa: {"int": numa}),
        "rack": st.just({"string": "r"}),
        "links": st.one_of(
            st.integers(0, 2).map(lambda link: {"int": link}),
            st.sets(st.integers(0, 3), min_size=1, max_size=3).map(lambda links: {"ints": sorted(links)}),
        ),
    },
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
        lambda kind: st.sampled_from(["numa", "kind", "links"]).map(lambda name: {**one, kind: f"{DRIVER}/{name}"})
    )
)
match_constraint = st.sampled_from(["numa", "kind", "rack", "links"]).map(
    lambda name: {"matchAttribute": f"{DRIVER}/{name}"}
)


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


def read(specs: list[Json], rules: KubernetesRules = DEFAULT_RULES) -> list[ClaimRequests]:
    return [
        read_claim(f"ns/c{number}", msgspec.convert(spec, objects.ResourceClaimSpec), FOUND.get, rules)
        for number, spec in enumerate(specs)
    ]


def check(offered: list[Json], wanted: list[Json], used: set[int], piece: float, *, unpruned: int, lists: bool) -> None:
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
    read_claims = read(wanted, rules_of("1.37", DRAListTypeAttributes=lists))
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
    st.booleans(),
)
def test_it_finds_what_the_plain_search_finds(
    unpruned: int, offered: list[Json], wanted: list[Json], used: set[int], piece: float, lists: bool
) -> None:
    check(offered, wanted, {number for number in used if number < len(offered)}, piece, unpruned=unpruned, lists=lists)


@EXAMPLES
@given(
    st.lists(plain_devices, min_size=4, max_size=9),
    claims(("any", "gpu", "nic"), match_constraint, plain=True),
    st.sets(st.integers(0, 7), max_size=2),
    st.booleans(),
)
def test_it_finds_what_the_plain_search_finds_among_devices_that_stand_for_each_other(
    offered: list[Json], wanted: list[Json], used: set[int], lists: bool
) -> None:
    check(offered, wanted, {number for number in used if number < len(offered)}, 5, unpruned=0, lists=lists)


# --- requests that together want a little more than there is ----------------------------------------------

SLOTS = {"counterSet": "c", "counters": {"slots": {"value": "1"}}}
SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "10"}}}
MORE: dict[str, Json] = {
    "plain": {},
    "different": {},
    "counters": {"consumesCounters": [SLOTS]},
    "in shares": SHARED,
}
MATCHES = {"matchAttribute": f"{DRIVER}/numa"}
DIFFERS = {"distinctAttribute": f"{DRIVER}/rack"}


def alike(number: int, values: int, more: str) -> list[Json]:
    """Return so many devices for each value of `numa`; those that are different have an attribute of their own."""
    return [
        {
            "attributes": {
                "kind": {"string": "gpu"},
                "numa": {"int": at % values},
                "rack": {"string": f"r{at % number}"},
            }
            | ({"own": {"int": at}} if more == "different" else {}),
            **MORE[more],
        }
        for at in range(number * values)
    ]


def singles(number: int, name: str = "gpu", **more: Any) -> list[Json]:
    one = {"deviceClassName": name, "allocationMode": "ExactCount", "count": 1} | more
    return [{"name": f"{name}{at}", "exactly": one} for at in range(number)]


def joined(wanted: list[Json], *more: Json, alone: tuple[Json, ...] = ()) -> Json:
    """Return a claim whose first requests have one value; `alone` are further ones."""
    rule = {**MATCHES, "requests": [one["name"] for one in wanted]}
    return {"devices": {"requests": [*wanted, *alone], "constraints": [rule, *more]}}


@EXAMPLES
@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(sorted(MORE)),
    st.integers(-1, 1),
    st.booleans(),
    st.sampled_from(["none", "another", "admin", "distinct"]),
    st.sampled_from([1, 4, 10]),
)
def test_it_finds_what_the_plain_search_finds_where_all_together_want_a_little_more_or_less(
    number: int, values: int, more: str, beyond: int, is_one_value: bool, beside: str, slots: int
) -> None:
    wanted = singles(max(1, number + beyond))
    alone = {"another": singles(1, "any"), "admin": singles(1, "big", adminAccess=True)}.get(beside, [])
    rules = [DIFFERS] if beside == "distinct" else []
    asked = joined(wanted, *rules, alone=tuple(alone))
    if not is_one_value:
        asked["devices"]["constraints"] = [{**one, "requests": None} for one in rules]
    offered = alike(number, values, more)
    half = len(offered) // 2
    named = [{"name": f"d{at}", **one} for at, one in enumerate(offered)]
    counters = [{"name": "c", "counters": {"slots": {"value": str(slots)}}}]
    slices = [a_slice("p", named[:half]), a_slice("q", named[half:])]
    if more == "counters":
        slices += [a_slice(name, [], counters) for name in ("p", "q")]
        for one in slices:
            one["spec"]["pool"]["resourceSliceCount"] = 2
    pools, asking = pools_of(slices), read([asked])
    expected = plain_allocate(asking, pools, TriedDevices(None), node_name="n0", labels={}, most_steps=MOST)
    assume(TIMED_OUT not in expected.error)
    event("allocated" if expected.claims is not None else expected.error[:20] or "nothing")
    before, allocator._STEPS_UNPRUNED = allocator._STEPS_UNPRUNED, 0
    try:
        found = in_pieces(asking, pools, TriedDevices(None), 5)
        assert msgspec.structs.replace(found, is_long=False) == expected
    finally:
        allocator._STEPS_UNPRUNED = before


SIXTEEN = singles(16)
TOO_MANY = {
    "devices of one value": (1, "plain", joined(SIXTEEN), 99),
    "devices of two values": (2, "plain", joined(SIXTEEN), 99),
    "different devices": (2, "different", joined(SIXTEEN), 99),
    "devices of eight values": (8, "different", joined(SIXTEEN), 99),
    "some requests of a claim": (2, "different", joined(SIXTEEN, alone=tuple(singles(3, "any"))), 99),
    "beside one with admin access": (2, "plain", joined(SIXTEEN, alone=tuple(singles(1, "any", adminAccess=True))), 99),
    "beside another rule": (
        2,
        "plain",
        joined(SIXTEEN, {**DIFFERS, "requests": ["any0"]}, alone=tuple(singles(1, "any"))),
        99,
    ),
    "several of each": (2, "different", joined(singles(6, count=3)), 99),
    "another selector": (2, "plain", joined([*singles(8), *singles(8, "any")]), 99),
    "two claims": (1, "different", None, 99),
    "counters": (2, "counters", joined(SIXTEEN), 99),
    "of counters": (2, "counters", {"devices": {"requests": SIXTEEN}}, 15),
    "of counters, for one value": (1, "counters", joined(singles(15)), 14),
    "shares": (2, "in shares", joined(SIXTEEN), 99),
    "shares, for no value": (1, "in shares", {"devices": {"requests": SIXTEEN}}, 99),
    "values to differ in": (2, "different", {"devices": {"requests": SIXTEEN, "constraints": [DIFFERS]}}, 99),
}


@pytest.mark.parametrize(("values", "more", "asked", "slots"), TOO_MANY.values(), ids=TOO_MANY)
def test_what_all_together_want_too_much_of_is_rejected_after_one_look(
    values: int, more: str, asked: Json | None, slots: int
) -> None:
    named = [{"name": f"d{at}", **one} for at, one in enumerate(alike(15, values, more))]
    slices = [a_slice("p", named)]
    if more == "counters":
        slices.append(a_slice("p", [], [{"name": "c", "counters": {"slots": {"value": str(slots)}}}]))
        for one in slices:
            one["spec"]["pool"]["resourceSliceCount"] = 2
    wanted = [joined(singles(8)), joined(singles(8))] if asked is None else [asked]
    work = Work(1e6)
    steps = allocate_in_steps(
        read(wanted), NodePools("n0", {}, pools_of(slices)), TriedDevices(None), most_steps=400_000, work=work
    )
    found = now(steps)
    assert (found.claims, found.error) == (None, "")
    assert 1e6 - work.left_now < 15_000
