"""Devices one by one: their free capacity follows pods and nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.node_devices import ANNOTATION, Ask, annotated, annotation, ask_of
from kube_policy_scheduler.cluster.pods import PodInfo

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int, *, labels: dict[str, str] | None = None) -> objects.Node:
    offered = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: str(gpus), f"{GPU}-milli": str(gpus * 1000)}
    body = {"metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": offered}}
    return msgspec.convert(body, objects.Node)


def pod(
    cluster: Cluster, name: str, *, whole: int = 0, share: int = 0, devices: str = "", bound_to: str = ""
) -> PodInfo:
    wanted: dict[str, str] = {"cpu": "1"}
    wanted |= {GPU: str(whole)} if whole else {}
    wanted |= {f"{GPU}-milli": str(share)} if share else {}
    meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": name}
    meta |= {"annotations": {ANNOTATION: devices}} if devices else {}
    body = {"metadata": meta, "spec": {"containers": [{"name": "c", "resources": {"requests": wanted}}]}}
    if bound_to:
        body["spec"]["nodeName"] = bound_to
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


def free(cluster: Cluster, name: str) -> list[int]:
    table = cluster.devices.table(GPU)
    row = cluster.nodes.rows[name]
    rooms: list[int] = table.free[row][: int(table.count[row])].tolist()
    return rooms


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.set_node(node("a", 3))
    made.set_node(node("b", 2))
    return made


def test_a_share_takes_the_fullest_device_and_whole_requests_take_free_ones(cluster: Cluster) -> None:
    cluster.devices.table(GPU)
    for name, wanted in (("one", {"share": 600}), ("two", {"share": 300}), ("three", {"whole": 2})):
        cluster.place(pod(cluster, name, **wanted), "a")
    assert free(cluster, "a") == [100, 0, 0]
    cluster.displace("two")
    assert free(cluster, "a") == [400, 0, 0]


def test_devices_are_known_at_the_first_query(cluster: Cluster) -> None:
    cluster.place(pod(cluster, "early", share=600), "a")
    cluster.place(pod(cluster, "says", share=500, devices=f"{GPU}=0", bound_to="a"), "a")
    assert free(cluster, "a") == [500, 400, 1000], "who says which device it has is believed first"


def test_a_pod_keeps_its_devices_when_a_newer_state_of_it_comes_and_when_it_is_put_back(cluster: Cluster) -> None:
    cluster.devices.table(GPU)
    cluster.place(pod(cluster, "p", share=400), "a", devices={GPU: (2,)})
    assert free(cluster, "a") == [1000, 1000, 600]
    cluster.place(pod(cluster, "p", share=400), "a")
    assert free(cluster, "a") == [1000, 1000, 600]
    with cluster.dry_run():
        cluster.displace("p")
        assert free(cluster, "a") == [1000, 1000, 1000]
        cluster.place(pod(cluster, "other", whole=3), "a")
    assert free(cluster, "a") == [1000, 1000, 600]
    gone = cluster.displace("p")
    assert gone is not None
    cluster.place(gone, "a")
    assert free(cluster, "a") == [1000, 1000, 600]


def test_nodes_that_go_and_come_back_and_change_their_number_of_devices_keep_their_pods_devices(
    cluster: Cluster,
) -> None:
    cluster.devices.table(GPU)
    cluster.place(pod(cluster, "p", share=400), "a", devices={GPU: (1,)})
    cluster.place(pod(cluster, "q", share=250), "b", devices={GPU: (1,)})
    cluster.remove_node("a")
    assert free(cluster, "b") == [1000, 750]
    cluster.set_node(node("a", 2))
    assert free(cluster, "a") == [1000, 600]
    cluster.set_node(node("a", 4))
    assert free(cluster, "a") == [1000, 600, 1000, 1000]
    cluster.set_node(node("a", 1))
    assert free(cluster, "a") == [1000]
    cluster.displace("p")
    assert free(cluster, "a") == [1000]


def test_pods_bound_to_a_full_node_are_counted(cluster: Cluster) -> None:
    cluster.devices.table(GPU)
    for name in ("x", "y", "z"):
        cluster.place(pod(cluster, name, whole=1), "b")
    assert sum(free(cluster, "b")) == -1000
    for name in ("x", "y", "z"):
        cluster.displace(name)
    assert free(cluster, "b") == [1000, 1000]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{GPU}=0,3", {GPU: (0, 3)}),
        (f"{GPU}=2; amd.com/gpu=1", {GPU: (2,), "amd.com/gpu": (1,)}),
        ("", {}),
        (GPU, {}),
        (f"{GPU}=", {}),
        (f"{GPU}=-1", {}),
        (f"{GPU}=1,1", {}),
        (f"{GPU}=9999999999", {}),
        (f"{GPU}=²", {}),
    ],
)
def test_the_annotation_is_read_where_it_can_be(cluster: Cluster, text: str, found: dict[str, Any]) -> None:
    assert annotated(pod(cluster, "p", share=1, devices=text)) == found


def test_what_is_written_is_read_back(cluster: Cluster) -> None:
    devices = {GPU: (1, 0), "amd.com/gpu": (7,)}
    assert annotated(pod(cluster, "p", share=1, devices=annotation(devices))) == devices


@pytest.mark.parametrize(
    ("whole", "share", "ask"),
    [(2, 0, Ask(2, 0)), (0, 460, Ask(0, 460)), (0, 1000, Ask(1, 0)), (0, 2000, Ask(2, 0)), (1, 500, Ask(1, 500))],
)
def test_what_a_pod_asks_for(cluster: Cluster, whole: int, share: int, ask: Ask) -> None:
    assert ask_of(pod(cluster, "p", whole=whole, share=share).template, GPU) == ask


def test_a_share_larger_than_a_device_fits_nowhere(cluster: Cluster) -> None:
    fits = cluster.devices.table(GPU).fits(ask_of(pod(cluster, "p", share=1500).template, GPU), slice(None))
    assert not fits.any()


def test_without_a_query_there_are_no_tables(cluster: Cluster) -> None:
    cluster.place(pod(cluster, "p", whole=1), "a")
    assert not cluster.devices.tables


_STEP = st.one_of(
    st.tuples(
        st.just("place"), st.integers(0, 6), st.sampled_from("abc"), st.integers(0, 2), st.sampled_from([0, 300])
    ),
    st.tuples(st.just("displace"), st.integers(0, 6)),
    st.tuples(st.just("node"), st.sampled_from("abc"), st.integers(0, 4)),
    st.tuples(st.just("remove"), st.sampled_from("abc")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_STEP, max_size=25))
def test_what_is_free_is_always_what_the_pods_there_leave(steps: list[Any]) -> None:
    cluster = Cluster()
    for step in steps:
        cluster.devices.table(GPU)
        match step:
            case "place", number, name, whole, share:
                cluster.place(pod(cluster, f"p{number}", whole=whole, share=share), name)
            case "displace", number:
                cluster.displace(f"p{number}")
            case "node", name, gpus:
                cluster.set_node(node(name, gpus))
            case "remove", name:
                cluster.remove_node(name)
    table = cluster.devices.table(GPU)
    for info in cluster.nodes.infos:
        count = int(table.count[info.row])
        assert count == info.allocatable.get(GPU, 0)
        expected = np.zeros(table.free.shape[1], np.int64)
        expected[:count] = 1000
        for each in cluster.pods_on(info.name).values():
            ask, held = ask_of(each.template, GPU), table.held(each.uid) or ()
            assert len(held) <= ask.devices
            for place, device in enumerate(held):
                if device < count:
                    expected[device] -= 1000 if place < ask.whole else ask.share
        assert table.free[info.row].tolist() == expected.tolist()


def test_what_is_written_on_a_pod_that_waits_counts_for_nothing(cluster: Cluster) -> None:
    cluster.devices.table(GPU)
    cluster.place(pod(cluster, "first", share=900), "b", devices={GPU: (1,)})
    cluster.place(pod(cluster, "wishes", share=600, devices=f"{GPU}=1"), "b")
    assert free(cluster, "b") == [400, 100], "it gets a device with room, not the one of somebody else"


def test_annotations_count_while_they_are_believed(cluster: Cluster) -> None:
    cluster.devices.believe(False)
    cluster.devices.table(GPU)
    cluster.place(pod(cluster, "ours", share=300), "a", devices={GPU: (2,)})
    cluster.place(pod(cluster, "says", share=500, devices=f"{GPU}=1", bound_to="a"), "a")
    assert free(cluster, "a") == [1000, 1000, 200], "it is taken to be where we would have put it"
    cluster.devices.believe(True)
    assert free(cluster, "a") == [1000, 500, 700]
    cluster.place(pod(cluster, "more", share=100, devices=f"{GPU}=0", bound_to="a"), "a")
    assert free(cluster, "a") == [900, 500, 700]
    version = cluster.nodes.version
    cluster.devices.believe(False)
    assert free(cluster, "a") == [900, 500, 700], "what is known of a pod stays known"
    assert cluster.nodes.version > version
