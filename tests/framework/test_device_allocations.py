"""Cached allocations equal a fresh search after any change of slices, claims, classes and nodes."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.devices.allocations import Allocations, Outcome, allocations
from kube_policy_scheduler.framework.plugins.dynamic_resources import ClaimOutcome
from tests.test_kubernetes_rules import rules_of

DRIVER = "gpu.example.com"
NODES = ["a", "b", "c"]
SPECS = [
    {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": n}}]}
    for n in (1, 2)
] + [{"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}]


def node(name: str, zone: str) -> objects.Node:
    given = {"metadata": {"name": name, "labels": {"zone": zone}}, "status": {"allocatable": {"pods": "10"}}}
    return msgspec.convert(given, objects.Node)


def device_class(model: str) -> objects.DeviceClass:
    expression = f'device.attributes["{DRIVER}"].model == "{model}"'
    given = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    return msgspec.convert(given, objects.DeviceClass)


def resource_slice(name: str, where: dict[str, Any], models: list[str], generation: int) -> objects.ResourceSlice:
    devices = [{"name": f"d{i}", "attributes": {"model": {"string": model}}} for i, model in enumerate(models)]
    pool = {"name": name, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "devices": devices, **where}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.ResourceSlice)


def claim(name: str, pool: str, device: str) -> objects.ResourceClaim:
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device}]
    status = {"allocation": {"devices": {"results": results}}} if device else {}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return msgspec.convert({"metadata": metadata, "status": status}, objects.ResourceClaim)


def taint_rule(name: str, pool: str, device: str, effect: str) -> objects.DeviceTaintRule:
    selector = {key: value for key, value in {"pool": pool, "device": device, "driver": DRIVER}.items() if value}
    spec = {"deviceSelector": selector, "taint": {"key": "bad", "effect": effect}}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.DeviceTaintRule)


wheres = st.one_of(
    st.sampled_from([{"nodeName": name} for name in NODES]),
    st.just({"allNodes": True}),
    st.sampled_from(["x", "y"]).map(
        lambda zone: {
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
            }
        }
    ),
)
events = st.one_of(
    st.builds(node, st.sampled_from(NODES), st.sampled_from(["x", "y"])),
    st.builds(device_class, st.sampled_from(["h100", "a100"])),
    st.builds(
        resource_slice,
        st.sampled_from(["s", "t", "a"]),
        wheres,
        st.lists(st.sampled_from(["h100", "a100"]), max_size=3),
        st.integers(1, 2),
    ),
    st.builds(
        taint_rule,
        st.sampled_from(["q", "r"]),
        st.sampled_from(["", "s", "t"]),
        st.sampled_from(["", "d0", "d1"]),
        st.sampled_from(["NoSchedule", "NoExecute", "None"]),
    ),
    st.builds(claim, st.sampled_from(["k", "l"]), st.sampled_from(["s", "t"]), st.sampled_from(["", "d0", "d1"])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(events, st.booleans()), max_size=14), st.sampled_from(SPECS))
def test_kept_allocations_are_those_of_a_fresh_search(steps: list[tuple[Any, bool]], wanted: dict[str, Any]) -> None:
    cluster = Cluster(rules_of("1.37"))
    spec = msgspec.convert({"devices": wanted}, objects.ResourceClaimSpec)
    kept = allocations(cluster).of([spec])
    for name in NODES:
        cluster.set_node(node(name, "x"))
    for thing, goes in steps:
        match thing:
            case objects.Node():
                if goes and thing.metadata.name in cluster.nodes.rows and cluster.nodes.size > 1:
                    cluster.remove_node(thing.metadata.name)
                else:
                    cluster.set_node(thing)
            case _ if goes:
                cluster.remove_object(thing)
            case _:
                cluster.set_object(thing)
        fresh = Allocations(cluster, [spec])
        assert kept.outcomes(slice(None)).tolist() == fresh.outcomes(slice(None)).tolist()
        for row in range(cluster.nodes.size):
            assert chosen(kept, row) == chosen(fresh, row)


def chosen(found: Allocations, row: int) -> list[list[str]] | str:
    result = found.on(row)
    if result.claims is None:
        return found.text(row, ["default/k"])
    return [[str(one.device.id) for one in devices] for devices in result.claims]


def test_verdicts_continue_the_outcomes() -> None:
    assert ClaimOutcome.FITS == Outcome.ALLOCATED
    assert {verdict.value for verdict in ClaimOutcome} & {outcome.value for outcome in Outcome} == {1, 2, 3, 4, 5}
