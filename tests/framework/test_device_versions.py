"""What differs about devices between versions of Kubernetes, and what is held in all of them."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.device_classes import class_by_resource
from kube_policy_scheduler.tooling.conformance import Case, decide
from tests.test_kubernetes_rules import rules_of

Json = dict[str, Any]
DRIVER = "gpu.example.com"
VERSIONS = ("1.34", "1.35", "1.36", "1.37", "1.38")
SINCE_37, SINCE_38 = VERSIONS[3:], VERSIONS[4:]
SELECTS_ALL = {"metadata": {"name": "gpu"}, "spec": {}}


def a_slice(name: str, devices: list[Json], *, node: str = "n", count: int = 1, **spec: Any) -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    given_spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices, **spec}
    return {"metadata": {"name": name}, "spec": given_spec}


def request(name: str = "r", **exactly: Any) -> Json:
    one = {"deviceClassName": "gpu", "allocationMode": "ExactCount", **exactly}
    return {"name": name, "exactly": one if one["allocationMode"] == "All" else {"count": 1, **one}}


def a_claim(*requests: Json, name: str = "c", status: Json | None = None, **devices: Any) -> Json:
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests), **devices}}, "status": status or {}}


def held(device: str, **result: Any) -> Json:
    """Return a claim of another pod that has a device."""
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": device, **result}]
    return a_claim(request(), name=f"held-{device}", status={"allocation": {"devices": {"results": results}}})


def decided(
    version: str, claims: list[Json], slices: list[Json], gates: dict[str, bool] | None = None, **more: Any
) -> Json:
    """Return what becomes of a pod with the claim `c`, in the form of conformance cases."""
    nodes = sorted({one["spec"].get("nodeName", "n") for one in slices} | {"n"})
    content = {
        "nodes": [{"metadata": {"name": name}, "status": {"allocatable": {"pods": "9", "cpu": "9"}}} for name in nodes],
        "pod": {
            "metadata": {"name": "p", "namespace": "default", "uid": "p"},
            "spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
        },
        "deviceClasses": [SELECTS_ALL],
        "resourceSlices": slices,
        "resourceClaims": claims,
        **more,
    }
    return decide(Case("case", "devices", content, {}, rules_of(version, **(gates or {}))))


def allocation(found: Json, node: str = "n") -> Json:
    assert found["filters"][node]["code"] == "Success", found["filters"][node]
    devices: Json = found["allocations"][node][0]["allocation"]["devices"]
    return devices


def results(found: Json, node: str = "n") -> list[str]:
    return [one["device"] for one in allocation(found, node)["results"]]


def reason(found: Json, node: str = "n") -> tuple[str, str]:
    status = found["filters"][node]
    return status["code"], *status["reasons"]


# --- parameters for drivers --------------------------------------------------------------------------------

PARAMETERS: Json = {"opaque": {"driver": DRIVER, "parameters": {"mode": "x"}}}
ALTERNATIVES: Json = {
    "name": "r0",
    "firstAvailable": [
        {"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1} for name in ("s0", "s1")
    ],
}
PLAIN = [request(f"r{number}") for number in range(3)]
CONFIGS: dict[str, tuple[list[Json], list[str], list[list[str] | None], list[list[str] | None]]] = {
    # the requests of the claim, those of the entry; which the written entries name, and before 1.37
    "some requests": (PLAIN, ["r0", "r1"], [["r0", "r1"]], [["r0", "r1"], ["r0", "r1"]]),
    "all requests": (PLAIN[:2], ["r0", "r1"], [None], [["r0", "r1"], ["r0", "r1"]]),
    "the only request": (PLAIN[:1], ["r0"], [None], [["r0"]]),
    "no request named": (PLAIN[:2], [], [None], [None]),
    "a request without the others": (PLAIN[:2], ["r1"], [["r1"]], [["r1"]]),
    "the chosen alternative and the rest": ([ALTERNATIVES, PLAIN[1]], ["r0/s0", "r1"], [None], [["r0/s0", "r1"]] * 2),
    "the whole request and the rest": ([ALTERNATIVES, PLAIN[1]], ["r0", "r1"], [None], [["r0", "r1"]] * 2),
    "two alternatives": ([ALTERNATIVES, PLAIN[1]], ["r0/s0", "r0/s1"], [["r0/s0", "r0/s1"]], [["r0/s0", "r0/s1"]]),
    "an alternative that is not chosen": ([ALTERNATIVES], ["r0/s1"], [], []),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("requests", "named", "since", "before"), CONFIGS.values(), ids=CONFIGS)
def test_parameters_are_written_for_the_requests_that_they_are_for(
    version: str, requests: list[Json], named: list[str], since: list[Any], before: list[Any]
) -> None:
    entry = PARAMETERS | ({"requests": named} if named else {})
    devices = [{"name": f"d{number}"} for number in range(3)]
    found = decided(version, [a_claim(*requests, config=[entry])], [a_slice("s", devices)])
    written = [one.get("requests") for one in allocation(found).get("config", [])]
    assert written == (since if version in SINCE_37 else before)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("number", [1, 2])
def test_parameters_of_a_class_are_for_all_of_its_requests(version: str, number: int) -> None:
    gpu = {"metadata": {"name": "gpu"}, "spec": {"config": [PARAMETERS]}}
    nic = {"metadata": {"name": "nic"}, "spec": {}}
    more = [request("other", deviceClassName="nic")] if number == 2 else []
    slices = [a_slice("s", [{"name": f"d{at}"} for at in range(3)])]
    found = decided(version, [a_claim(request("a"), request("b"), *more)], slices, deviceClasses=[gpu, nic])
    covers_all = version in SINCE_37 and not more
    assert [one.get("requests") for one in allocation(found)["config"]] == [None if covers_all else ["a", "b"]]


# --- texts -------------------------------------------------------------------------------------------------

HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional"
    " fields"
)
READS = {
    "a missing attribute": (f'device.attributes["{DRIVER}"].numa == 1', "no such key: numa", True),
    "an attribute of another type": (f'device.attributes["{DRIVER}"].model > 1', "no such overload", False),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("of_class", [True, False])
@pytest.mark.parametrize(("expression", "error", "has_hint"), READS.values(), ids=READS)
def test_errors_of_selectors_name_the_device(
    version: str, of_class: bool, expression: str, error: str, has_hint: bool
) -> None:
    selectors = [{"cel": {"expression": expression}}]
    gpu = {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors if of_class else []}}
    wants = request() if of_class else request(selectors=selectors)
    devices = [{"name": "d", "attributes": {"model": {"string": "a100"}}}]
    found = decided(version, [a_claim(wants)], [a_slice("s", devices)], deviceClasses=[gpu])
    whose = "class gpu" if of_class else "claim default/c"
    on, hint = (f" on device {DRIVER}/n/d", HINT if has_hint else "") if version in SINCE_37 else ("", "")
    text = f"{whose}: selector #0{on}: CEL runtime error: {error}{hint}"
    assert found["error"] == [f'running "DynamicResources" filter plugin: {text}']


# --- amounts of capacities ---------------------------------------------------------------------------------


def taken(version: str, capacity: Json, wanted: Json, key: str = "memory") -> Json | None:
    """Return what a share takes of a device with one capacity; None: the device is not suitable."""
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": {key: capacity}}
    claim = a_claim(request(capacity={"requests": wanted} if wanted else {}))
    found = decided(version, [claim], [a_slice("s", [device])])
    if found["filters"]["n"]["code"] != "Success":
        return None
    consumed: Json = allocation(found)["results"][0]["consumedCapacity"]
    return consumed


RANGES = [
    # min, step, max, request; what is taken, and before 1.37
    ("500m", "500m", None, "1250m", "1500m", "2"),
    ("500m", "500m", None, "100m", "500m", "500m"),
    ("500m", "250m", "1", "600m", "750m", "1"),
    ("500m", "250m", "1", "1100m", None, None),
    ("1", "1", "4", "1500m", "2", "2"),
    ("1", None, "2500m", "1250m", "1250m", "1250m"),
    ("1Gi", "512Mi", "4Gi", "1100Mi", "1536Mi", "1536Mi"),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("least", "step", "most", "wanted", "since", "before"), RANGES)
def test_ranges_of_parts_are_counted_in_thousandths(
    version: str, least: str, step: str | None, most: str | None, wanted: str, since: str | None, before: str | None
) -> None:
    valid = {"min": least} | ({"step": step} if step else {}) | ({"max": most} if most else {})
    found = taken(version, {"value": "100Gi", "requestPolicy": {"validRange": valid}}, {"memory": wanted})
    expected = since if version in SINCE_37 else before
    assert found == (None if expected is None else {"memory": expected})


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 3000), st.integers(1, 9000), st.integers(1, 9000))
def test_a_share_takes_the_least_allowed_amount_that_is_enough(least: int, step: int, wanted: int, most: int) -> None:
    valid = {"min": f"{least}m", "step": f"{step}m", "max": f"{most}m"}
    capacity = {"value": "100", "requestPolicy": {"validRange": valid, "default": f"{least}m"}}
    unit = 1000 if all(one % 1000 == 0 for one in (least, step, most)) else 1
    needed = max(0, ceil(Fraction(ceil(Fraction(wanted, unit)) - least // unit, step // unit)))
    amount = least + needed * step
    found = taken("1.37", capacity, {"memory": f"{wanted}m"})
    if wanted >= least and amount > most:
        assert found is None
    else:
        assert found is not None
        got = found["memory"]
        assert Fraction(got.removesuffix("m")) / (1000 if got.endswith("m") else 1) == Fraction(amount, 1000)


OWN = f"{DRIVER}/memory"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("published", ["memory", OWN])
@pytest.mark.parametrize("wanted", ["memory", OWN, "other.example.com/memory"])
def test_a_capacity_of_the_driver_has_two_names(version: str, published: str, wanted: str) -> None:
    found = taken(version, {"value": "8"}, {wanted: "3"}, published)
    is_one = {published, wanted} <= {"memory", OWN} and (published == wanted or version in SINCE_38)
    assert found == ({published: "3"} if is_one else None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("published", ["memory", OWN])
@pytest.mark.parametrize("stored", ["memory", OWN])
def test_what_shares_took_counts_by_any_name_of_the_capacity(version: str, published: str, stored: str) -> None:
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": {published: {"value": "8"}}}
    share = {"shareID": "5c1a2a0e-0000-4000-8000-000000000001", "consumedCapacity": {stored: "6"}}
    claim = a_claim(request(capacity={"requests": {published: "3"}}))
    found = decided(version, [claim, held("d", **share)], [a_slice("s", [device])])
    counts = published == stored or version in SINCE_38
    assert (found["filters"]["n"]["code"] == "Success") is not counts


@pytest.mark.parametrize("wanted", ["memory", OWN])
def test_of_two_published_names_the_qualified_one_counts_in_1_38(wanted: str) -> None:
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {OWN: {"value": "8"}, "memory": {"value": "2"}},
    }
    wants = request(
        capacity={"requests": {wanted: "3"}},
        selectors=[{"cel": {"expression": f'device.capacity["{DRIVER}"].memory == quantity("8")'}}],
    )
    found = decided("1.38", [a_claim(wants)], [a_slice("s", [device])])
    assert allocation(found)["results"][0]["consumedCapacity"] == {OWN: "3"}


LINKS = {"a": {"ints": [1, 2]}, "b": {"ints": [2, 3]}, "c": {"int": 3}, "d": {"ints": [1, 3]}, "e": {"strings": ["2"]}}


@pytest.mark.parametrize(
    ("constraint", "count", "with_gate", "without"),
    [
        ("matchAttribute", 2, ["a", "b"], None),
        ("matchAttribute", 3, ["b", "c", "d"], None),
        ("distinctAttribute", 2, ["a", "c"], ["a", "c"]),
        ("distinctAttribute", 3, ["a", "c", "e"], None),
        ("distinctAttribute", 1, ["a"], ["a"]),
    ],
)
def test_lists_in_constraints_count_for_all_of_their_values_if_the_gate_is_on(
    constraint: str, count: int, with_gate: list[str], without: list[str] | None
) -> None:
    devices = [{"name": name, "attributes": {"links": value}} for name, value in LINKS.items()]
    claim = a_claim(request(count=count), constraints=[{constraint: f"{DRIVER}/links"}])
    for version in SINCE_37:
        on = decided(version, [claim], [a_slice("s", devices)], {"DRAListTypeAttributes": True})
        assert results(on) == with_gate
        off = decided(version, [claim], [a_slice("s", devices)])
        assert (results(off) if off["hosts"] else None) == without


# --- pools and devices that cannot be used -----------------------------------------------------------------

BROKEN = {
    "incomplete": ([a_slice("s", [{"name": "d"}], count=2)], "is currently being updated"),
    "invalid": ([a_slice("s", [{"name": "d"}, {"name": "d"}])], "is currently invalid"),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("slices", "state"), BROKEN.values(), ids=BROKEN)
def test_all_devices_of_a_broken_pool_reject_its_node_or_end_the_attempt(
    version: str, slices: list[Json], state: str
) -> None:
    sound = a_slice("t", [{"name": "d"}], node="sound")
    found = decided(version, [a_claim(request(allocationMode="All"))], [*slices, sound])
    text = f"claim default/c, request r: asks for all devices, but resource pool {DRIVER}/n {state}"
    if version in SINCE_38:
        assert reason(found) == ("UnschedulableAndUnresolvable", text)
        assert found["hosts"] == ["sound"]
    else:
        assert found["error"] == [f'running "DynamicResources" filter plugin: {text}']
        assert found["hosts"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_device_whose_sharing_was_switched_off_is_in_use_while_shares_are_held(version: str) -> None:
    share = {"shareID": "5c1a2a0e-0000-4000-8000-000000000001"}
    slices = [a_slice("s", [{"name": "d"}])]
    assert reason(decided(version, [a_claim(request()), held("d", **share)], slices))[1] == "cannot allocate all claims"
    assert results(decided(version, [a_claim(request())], slices)) == ["d"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [33, 2**31, 2**62, 2**63 - 1])
def test_counts_beyond_all_numbers_are_an_error_that_names_the_claim(version: str, count: int) -> None:
    claim = a_claim(request("a", count=count), request("b", count=count))
    found = decided(version, [claim], [a_slice("s", [{"name": "d"}])])
    text = f"claim default/c: number of requested devices {2 * count} exceeds the claim limit of 32"
    assert found["error"] == [f'running "DynamicResources" filter plugin: {text}']


@pytest.mark.parametrize("count", [33, 2**63 - 1])
def test_an_alternative_that_is_too_large_is_passed_over(count: int) -> None:
    wants: Json = {"name": "r", "firstAvailable": [{**ALTERNATIVES["firstAvailable"][0], "count": count}]}
    wants["firstAvailable"].append({**ALTERNATIVES["firstAvailable"][1], "count": 1})
    found = decided("1.38", [a_claim(wants)], [a_slice("s", [{"name": "d"}])])
    assert [one["request"] for one in allocation(found)["results"]] == ["r/s1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_claims_that_have_devices_score_beside_those_that_get_some(version: str) -> None:
    slices = [a_slice(f"s-{node}", [{"name": name} for name in "de"], node=node) for node in ("n", "m")]
    slices[1]["spec"]["devices"] = [{"name": "d", "attributes": {"old": {"bool": True}}}]
    new = {"cel": {"expression": f'!("old" in device.attributes["{DRIVER}"])'}}
    wants: Json = {"name": "r", "firstAvailable": [dict(one) for one in ALTERNATIVES["firstAvailable"]]}
    wants["firstAvailable"][0]["selectors"] = [new]
    held_results = [{"request": "r0/s1", "driver": DRIVER, "pool": "elsewhere", "device": "x"}]
    before = a_claim(ALTERNATIVES, name="b", status={"allocation": {"devices": {"results": held_results}}})
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"resourceClaims": [{"name": name, "resourceClaimName": name} for name in "bc"]},
    }
    found = decided(version, [before, a_claim(wants)], slices, pod=pod)
    # 7 of the second alternative that is there, and 8 of the first one or 7 of the second one; twice the part of 15
    assert {node: one["DynamicResources"] for node, one in found["scores"].items()} == {
        "n": 200,
        "m": 2 * (14 * 100 // 15),
    }


def test_the_first_alternative_decides_against_a_node_with_a_little_more_room() -> None:
    """Scores of alternatives are parts of 100 of the best one when nodes are compared, too."""
    slices = [
        a_slice(f"s-{node}", [{"name": "d", "attributes": {"old": {"bool": node == "m"}}}], node=node) for node in "nm"
    ]
    wants = {"name": "r", "firstAvailable": [dict(one) for one in ALTERNATIVES["firstAvailable"]]}
    wants["firstAvailable"][0]["selectors"] = [{"cel": {"expression": f'!device.attributes["{DRIVER}"].old'}}]
    nodes = [
        {"metadata": {"name": name}, "status": {"allocatable": {"pods": "9", "cpu": cpu}}}
        for name, cpu in (("n", "9"), ("m", "90"))
    ]
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
        },
    }
    found = decided("1.36", [a_claim(wants)], slices, nodes=nodes, pod=pod)
    room = {node: one["NodeResourcesFit"] for node, one in found["scores"].items()}
    alternatives = {node: one["DynamicResources"] for node, one in found["scores"].items()}
    assert 2 < room["m"] - room["n"] < alternatives["n"] - alternatives["m"]
    assert found["writes"]["host"] == "n"


# --- DeviceTaintRules --------------------------------------------------------------------------------------

BAD = {"key": "bad", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}


def taint_rule(selector: Json | None, name: str = "rule", **taint: Any) -> Json:
    spec = {"taint": {**BAD, **taint}} | ({} if selector is None else {"deviceSelector": selector})
    return {"metadata": {"name": name}, "spec": spec}


SELECTORS: dict[str, tuple[Json | None, list[str]]] = {
    # what a rule selects, and which of the devices d and e of two pools it taints
    "everything": ({}, ["n/d", "n/e", "m/d", "m/e"]),
    "a driver": ({"driver": DRIVER}, ["n/d", "n/e", "m/d", "m/e"]),
    "another driver": ({"driver": "nic.example.com"}, []),
    "a pool": ({"pool": "n"}, ["n/d", "n/e"]),
    "a device of any pool": ({"device": "d"}, ["n/d", "m/d"]),
    "one device": ({"driver": DRIVER, "pool": "m", "device": "e"}, ["m/e"]),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "None"])
@pytest.mark.parametrize(("selector", "tainted"), SELECTORS.values(), ids=SELECTORS)
def test_a_rule_taints_what_it_selects(version: str, effect: str, selector: Json, tainted: list[str]) -> None:
    slices = [a_slice(f"s-{node}", [{"name": name} for name in "de"], node=node) for node in ("n", "m")]
    found = decided(version, [a_claim(request())], slices, deviceTaintRules=[taint_rule(selector, effect=effect)])
    acts = effect != "None" and version in SINCE_37
    for node in ("n", "m"):
        free = [name for name in "de" if not acts or f"{node}/{name}" not in tainted]
        if free:
            assert results(found, node) == free[:1]
        else:
            assert reason(found, node) == ("UnschedulableAndUnresolvable", "cannot allocate all claims")


@pytest.mark.parametrize(("version", "tainted"), [("1.36", False), ("1.37", True), ("1.38", False)])
def test_a_rule_without_a_selector_taints_all_devices_in_1_37_alone(version: str, tainted: bool) -> None:
    slices = [a_slice("s", [{"name": "d"}])]
    found = decided(version, [a_claim(request())], slices, deviceTaintRules=[taint_rule(None)])
    assert (found["filters"]["n"]["code"] != "Success") is tainted


taints = st.fixed_dictionaries(
    {"key": st.sampled_from(["a", "b"]), "effect": st.sampled_from(["NoSchedule", "NoExecute", "None"])},
    optional={"value": st.sampled_from(["x", "y"])},
)
tolerations = st.fixed_dictionaries(
    {"operator": st.sampled_from(["Exists", "Equal"])},
    optional={
        "key": st.sampled_from(["a", "b"]),
        "value": st.sampled_from(["x", "y"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
    },
)
selectors = st.fixed_dictionaries(
    {}, optional={"driver": st.just(DRIVER), "pool": st.sampled_from(["n", "m"]), "device": st.sampled_from(["d", "e"])}
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(selectors, taints), max_size=3),
    st.dictionaries(st.sampled_from(["n/d", "n/e", "m/d", "m/e"]), st.lists(taints, max_size=1), max_size=3),
    st.lists(tolerations, max_size=2),
    st.sampled_from([{}, {"count": 2}, {"allocationMode": "All"}]),
)
def test_rules_act_as_if_their_taints_stood_in_the_slices(
    rules: list[tuple[Json, Json]], own: dict[str, list[Json]], tolerated: list[Json], wants: Json
) -> None:
    def published(*, with_rules: bool) -> list[Json]:
        return [
            a_slice(
                f"s-{node}",
                [
                    {
                        "name": name,
                        "taints": [
                            *own.get(f"{node}/{name}", ()),
                            *(
                                taint
                                for selector, taint in rules
                                if with_rules
                                and selector.get("pool", node) == node
                                and selector.get("device", name) == name
                            ),
                        ],
                    }
                    for name in "de"
                ],
                node=node,
            )
            for node in ("n", "m")
        ]

    claim = a_claim(request(tolerations=tolerated, **wants))
    objects_of_rules = [
        {"metadata": {"name": f"r{number}"}, "spec": {"deviceSelector": selector, "taint": taint}}
        for number, (selector, taint) in enumerate(rules)
    ]
    by_rules = decided("1.37", [claim], published(with_rules=False), deviceTaintRules=objects_of_rules)
    assert by_rules == decided("1.37", [claim], published(with_rules=True))


@pytest.mark.parametrize("zone", ["a", "b"])
def test_an_allocation_can_be_used_where_it_was_made_also_if_a_device_selects_nodes_in_several_ways(zone: str) -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [each]}]} for each in ("a", "b")]
    device = {"name": "d", "nodeSelector": {"nodeSelectorTerms": terms}}
    one = a_slice("s", [device], perDeviceNodeSelection=True)
    del one["spec"]["nodeName"]
    node = {"metadata": {"name": "n", "labels": {"zone": zone}}, "status": {"allocatable": {"pods": "9", "cpu": "9"}}}
    found = decided("1.37", [a_claim(request())], [one], nodes=[node])
    (written,) = found["allocations"]["n"]
    assert written["allocation"]["nodeSelector"] == {"nodeSelectorTerms": [terms["ab".index(zone)]]}


# --- fields of alpha feature gates -------------------------------------------------------------------------

COUNTERS: Json = {"sharedCounters": [{"name": "set", "counters": {"units": {"value": "2"}}}]}
TAKES: Json = {"counterSet": "set", "counters": {"units": {"value": "1"}}}
ALPHA: dict[str, tuple[str, Json, Json]] = {
    # the gate, what is in the slice, and in the device
    "compatibilityGroups": (
        "DRADeviceCompatibilityGroups",
        {},
        {"consumesCounters": [{**TAKES, "compatibilityGroups": ["mig"]}]},
    ),
    "skipNodeOperations": ("DRAOptionalNodeOperations", {"skipNodeOperations": ["*"]}, {}),
    "nodeAllocatableResources": (
        "DRANodeAllocatableResources",
        {},
        {"nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "cores"}}}},
    ),
    "nodeAllocatableResourceMappings": (
        "DRANodeAllocatableResources",
        {},
        {"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores"}}},
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["ExactCount", "All"])
@pytest.mark.parametrize("field", ALPHA)
def test_devices_with_fields_of_alpha_gates_are_left_out_and_the_field_is_named(
    version: str, mode: str, field: str
) -> None:
    gate, of_slice, of_device = ALPHA[field]
    slices = [
        a_slice("a", [{"name": "d", **of_device}], count=2, **of_slice),
        a_slice("b", [], count=2, **COUNTERS),
    ]
    claim = a_claim(request(allocationMode=mode))
    text = f"cannot allocate all claims: devices with {field} (alpha, feature gate {gate}) are left out"
    assert reason(decided(version, [claim], slices)) == ("UnschedulableAndUnresolvable", text)

    slices[0]["spec"]["devices"].append({"name": "e"})
    found = decided(version, [claim], [*slices[:1], a_slice("b", [], count=2, **COUNTERS)])
    if of_slice or mode == "All":
        assert reason(found)[1] == text
    else:
        assert results(found) == ["e"]


def test_an_alternative_without_such_devices_is_taken() -> None:
    devices: list[Json] = [{"name": "d", "nodeAllocatableResources": {"cpu": {}}}, {"name": "e"}]
    every = {"name": "s0", "deviceClassName": "gpu", "allocationMode": "All"}
    wants = {"name": "r", "firstAvailable": [every, ALTERNATIVES["firstAvailable"][1]]}
    found = decided("1.37", [a_claim(wants)], [a_slice("s", devices)])
    assert [(one["request"], one["device"]) for one in allocation(found)["results"]] == [("r/s1", "e")]


def test_a_request_that_selects_no_device_with_such_a_field_does_not_name_it() -> None:
    device = {"name": "d", "nodeAllocatableResources": {"cpu": {}}}
    wants = request(selectors=[{"cel": {"expression": "false"}}])
    assert reason(decided("1.37", [a_claim(wants)], [a_slice("s", [device])]))[1] == "cannot allocate all claims"


def test_devices_do_not_go_with_one_in_use_that_has_compatibility_groups() -> None:
    devices = [{"name": "d", "consumesCounters": [{**TAKES, "compatibilityGroups": ["mig"]}]}]
    devices += [{"name": "e", "consumesCounters": [TAKES]}]
    slices = [a_slice("a", devices, count=2), a_slice("b", [], count=2, **COUNTERS)]
    assert "compatibilityGroups" in reason(decided("1.37", [a_claim(request()), held("d")], slices))[1]
    assert results(decided("1.37", [a_claim(request())], slices)) == ["e"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_with_derived_attributes_is_held(version: str) -> None:
    wants = request(derivedAttributes=[{"name": "half", "expression": "1"}])
    found = decided(version, [a_claim(wants)], [a_slice("s", [{"name": "d"}])])
    text = "derivedAttributes (alpha, feature gate DRADerivedAttributes) is not supported: remove it"
    assert found["prefilter"]["reasons"] == [f"resource claim default/c, request r: {text}"]


# --- classes with one extended resource --------------------------------------------------------------------

CLASSES = st.builds(
    lambda name, created, resource: msgspec.convert(
        {
            "metadata": {"name": name, "creationTimestamp": f"2026-01-0{created}T00:00:00Z"},
            "spec": {"extendedResourceName": resource} if resource else {},
        },
        objects.DeviceClass,
    ),
    st.sampled_from(["a", "b", "c"]),
    st.integers(1, 3),
    st.sampled_from(["", "example.com/gpu", "example.com/nic"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(CLASSES, st.booleans()), max_size=10))
def test_the_class_of_an_extended_resource_is_that_of_a_fresh_look_whatever_changed(
    steps: list[tuple[objects.DeviceClass, bool]],
) -> None:
    kept, there = Cluster(), dict[str, objects.DeviceClass]()
    for one, comes in steps:
        if comes:
            there[one.metadata.name] = one
            kept.set_object(one)
        elif (known := there.pop(one.metadata.name, None)) is not None:
            kept.remove_object(known)
        wanted = {f"deviceclass.resource.kubernetes.io/{name}": name for name in there}
        for each in sorted(there.values(), key=lambda each: (each.metadata.creation_timestamp, each.metadata.name)):
            wanted.pop(each.spec.extended_resource_name or "", None)
        newest = sorted(there.values(), key=lambda each: each.metadata.name)
        newest.sort(key=lambda each: each.metadata.creation_timestamp or "", reverse=True)
        for each in newest:
            if each.spec.extended_resource_name:
                wanted.setdefault(each.spec.extended_resource_name, each.metadata.name)
        assert dict(class_by_resource(kept.store)) == wanted
