"""Which rack a gang gets whose members claim devices: what nodes have of them counts, as resources do."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.decide.device_room import claimed_kinds, thrifty_orders
from kube_policy_scheduler.framework.decide.gang_domains import Domain, Rest, Shortfall, choose
from kube_policy_scheduler.framework.decide.gang_room import Members, free_now, places_of
from kube_policy_scheduler.framework.devices.thrift import Thrifty
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.reserve.claim_reservation import ClaimReservation, reserve_on
from tests.policy.claimed_devices import NOW, claiming, device, profile_of

GPU = "gpu"


def racks(**devices: list[Any]) -> Cluster:
    """Return racks of nodes: `a=[8, 2]` is a node with eight devices and one with two; a list: these devices."""
    cluster = Cluster()
    cluster.set_object(msgspec.convert({"metadata": {"name": GPU}, "spec": {}}, objects.DeviceClass))
    for rack, sizes in devices.items():
        for number, size in enumerate(sizes):
            add_node(cluster, f"{rack}{number}", size if isinstance(size, list) else plain(size), rack=rack)
    return cluster


def plain(number: int) -> list[dict[str, Any]]:
    return [device(f"d{each}") for each in range(number)]


def add_node(cluster: Cluster, name: str, devices: list[dict[str, Any]], *, rack: str, **offered: str) -> None:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", **offered}
    body: Any = {"metadata": {"name": name, "labels": {"rack": rack}}, "status": {"allocatable": amounts}}
    cluster.set_node(msgspec.convert(body, objects.Node))
    counters = [{"name": "slices", "counters": {"parts": {"value": "7"}}}]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
    for number, what in enumerate(({"devices": devices}, {"sharedCounters": counters})):
        if devices:
            spec = {"driver": GPU, "nodeName": name, "pool": pool, **what}
            one = {"metadata": {"name": f"{name}-{number}"}, "spec": spec}
            cluster.set_object(msgspec.convert(one, objects.ResourceSlice))


def frame(cluster: Cluster, name: str = "w", **claim: Any) -> Frame:
    return Frame(cluster.templates.pod(claiming(cluster, name, **claim)), cluster, NOW)


def gang(cluster: Cluster, number: int, name: str = "w", **claim: Any) -> Members:
    one = frame(cluster, name, **claim)
    return Members(one.template, number, Cycle().passing(one, profile_of("")), claimed_kinds(one))


def chosen(cluster: Cluster, *kinds: Members) -> str:
    found = choose(cluster, Rest(("rack",), kinds, sum(kind.number for kind in kinds)))
    assert isinstance(found, Domain | Shortfall)
    return found.value if isinstance(found, Domain) else found.message


def take(cluster: Cluster, node_name: str, name: str, order: Thrifty | None = None, **claim: Any) -> bool:
    """Give a pod's claims devices of a node, in memory; return whether there were enough.

    order: of the devices; None: that of kube-scheduler.
    """
    at = frame(cluster, name, **claim).at(np.array([cluster.nodes.rows[node_name]]))
    return isinstance(reserve_on(at.ordered(order)), ClaimReservation)


def test_the_rack_with_devices_for_all_members_is_taken() -> None:
    cluster = racks(a=[8, 2], b=[8, 8], c=[4, 4, 4, 4])
    assert chosen(cluster, gang(cluster, 2, count=8)) == "b"
    assert chosen(cluster, gang(cluster, 4, count=4)) == "b", "as full as c, and first by name"
    assert take(cluster, "b0", "other", count=1)
    assert chosen(cluster, gang(cluster, 4, count=4)) == "c"


def test_the_message_names_the_devices_that_are_missing() -> None:
    cluster = racks(a=[8, 2], b=[8, 8])
    assert chosen(cluster, gang(cluster, 4, count=8)) == (
        "rack b lacks 16 devices of gpu: 32 requested by 4 pods, 16 free"
    )


def test_members_that_claim_other_numbers_of_one_kind_share_the_devices() -> None:
    cluster = racks(a=[8], b=[8, 2])
    large, small = gang(cluster, 1, "large", count=8), gang(cluster, 2, "small", count=1)
    assert chosen(cluster, large, small) == "b"
    lacks = "rack b lacks 1 device of gpu: 11 requested by 4 pods, 10 free"
    assert chosen(cluster, large, gang(cluster, 3, "more", count=1)) == lacks


def test_the_fullest_rack_is_that_with_most_devices_in_use() -> None:
    cluster = racks(a=[8], b=[8], c=[8])
    assert take(cluster, "b0", "other", count=4)
    assert chosen(cluster, gang(cluster, 2, count=2)) == "b"


PARTS = [
    {"name": f"part{each}", "consumesCounters": [{"counterSet": "slices", "counters": {"parts": {"value": size}}}]}
    for each, size in enumerate("1113337")
]


def test_parts_of_one_device_count_as_often_as_its_counters_allow() -> None:
    cluster = racks(a=[PARTS, PARTS], b=[PARTS, PARTS, PARTS])
    assert chosen(cluster, gang(cluster, 4)) == "a", "three parts of one and one of three take six of seven"
    assert chosen(cluster, gang(cluster, 9)) == "b"
    assert chosen(cluster, gang(cluster, 13)) == ("rack b has room for 12 of 13 pods; 1 more requests 1 device of gpu")


def test_shares_of_one_device_count_as_often_as_its_capacity_allows() -> None:
    shared = [device("d", memory="80Gi") | {"allowMultipleAllocations": True}]
    cluster = racks(a=[shared], b=[shared, shared])
    tenth = {"capacity": {"requests": {"memory": "10Gi"}}}
    assert chosen(cluster, gang(cluster, 8, **tenth)) == "a"
    assert take(cluster, "a0", "other", **tenth)
    assert chosen(cluster, gang(cluster, 8, **tenth)) == "b"
    assert chosen(cluster, gang(cluster, 17, **tenth)) == (
        "rack b has room for 16 of 17 pods; 1 more requests 1 device of gpu"
    )


def test_devices_must_have_what_the_members_claim_together() -> None:
    paired = [device(f"d{each}", numa=each // 3) for each in range(6)]
    cluster = racks(a=[paired], b=[paired, paired])
    assert chosen(cluster, gang(cluster, 2, count=2)) == "a", "any two of six"
    together = gang(cluster, 3, "numa", count=2, constraint="gpu/numa")
    assert chosen(cluster, together) == "b", "of each three, two are on one NUMA node"


def test_a_resource_of_a_class_counts_where_a_plugin_or_a_driver_offers_it() -> None:
    cluster = racks()
    provides = {"metadata": {"name": GPU}, "spec": {"extendedResourceName": "example.com/gpu"}}
    cluster.set_object(msgspec.convert(provides, objects.DeviceClass))
    add_node(cluster, "a0", [], rack="a", **{"example.com/gpu": "4"})
    add_node(cluster, "a1", plain(4), rack="a")
    add_node(cluster, "b0", plain(4), rack="b")
    limits = {"example.com/gpu": "4"}
    spec = {"containers": [{"name": "c", "resources": {"requests": limits, "limits": limits}}]}
    body = {"metadata": {"name": "w", "namespace": "default", "uid": "w"}, "spec": spec}
    one = Frame(cluster.templates.pod(msgspec.convert(body, objects.Pod)), cluster, NOW)
    feasible = Cycle().passing(one, profile_of(""))
    assert feasible.all()
    members = Members(one.template, 2, feasible, claimed_kinds(one))
    assert chosen(cluster, members) == "a"
    assert places_of(cluster, members, free=free_now(cluster)).tolist() == [1, 1, 1]


NUMA = '"gpu" in device.attributes && "numa" in device.attributes["gpu"] && device.attributes["gpu"].numa == 1'
KINDS = [
    {"count": 1},
    {"count": 3},
    {"count": 2, "constraint": "gpu/numa"},
    {"allocationMode": "All", "count": 0},
    {"count": 1, "selectors": [{"cel": {"expression": NUMA}}]},
    {"count": 1, "adminAccess": True},
]
NODE = st.lists(st.sampled_from([*PARTS, device("x", numa=0), device("y", numa=1)]), max_size=6)


@given(
    kinds=st.lists(NODE, min_size=1, max_size=2),
    before=st.lists(st.integers(0, 1), max_size=3),
    claim=st.sampled_from(KINDS),
)
@example(kinds=[[PARTS[-1], *PARTS[:3]]], before=[], claim={"count": 3})
@example(kinds=[[PARTS[-1], PARTS[0], PARTS[1]]], before=[], claim={"count": 1})
def test_a_node_has_places_for_as_many_as_get_devices_one_after_another(
    kinds: list[list[Any]], before: list[int], claim: dict[str, Any]
) -> None:
    """Members take devices as thriftily as they can where they would not fit otherwise: so places are counted.

    In kube-scheduler's order the first of them takes the whole device, if that is listed first, and there is one place.
    """
    nodes = [[one | {"name": f"{number}"} for number, one in enumerate(each)] for each in kinds]
    cluster = racks(a=nodes)
    kept = gang(cluster, 4, **claim)
    free_now(cluster)(kept.devices[0][0])
    for number, at in enumerate(before):
        take(cluster, f"a{min(at, len(nodes) - 1)}", f"before{number}")
    ((kind, wanted),) = kept.devices
    counted = (kind.free(cluster) // wanted).tolist()
    orders = thrifty_orders(frame(cluster, **claim))
    for at, number in enumerate(counted):
        most = min(number, 7)
        members = [f"w{at}-{each}" for each in range(most + (number == most))]
        got = [take(cluster, f"a{at}", member, orders[0] if orders else None, **claim) for member in members]
        assert got == [True] * most + [False] * (number == most)


@pytest.mark.parametrize("alike", [{"count": 2}, {"count": 5}])
def test_what_is_kept_follows_allocations(alike: dict[str, int]) -> None:
    cluster = racks(a=[8], b=[8])
    kind = gang(cluster, 1, **alike).devices[0][0]
    assert kind.free(cluster).tolist() == kind.offered(cluster).tolist() == [8, 8]
    assert take(cluster, "b0", "other", count=3)
    assert (kind.free(cluster).tolist(), kind.offered(cluster).tolist()) == ([8, 5], [8, 8])
    add_node(cluster, "c0", plain(2), rack="c")
    assert (kind.free(cluster).tolist(), kind.offered(cluster).tolist()) == ([8, 5, 2], [8, 8, 2])
