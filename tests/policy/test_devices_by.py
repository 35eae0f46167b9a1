"""`devices by`: which of several devices that fit a pod gets, also for shares; no verdict changes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.decide.device_columns import claimed_devices
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.policy.policy_set import load
from tests.policy.claimed_devices import FOUR, NOW, cluster_of, device, frame_of, place, profile_of

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "abcd"),
        ('devices by device_value("memory")', "bdac"),
        ('devices by device_value("memory") desc', "adbc"),
        ('devices by device_value("gpu/memory")', "bdac"),
        ('devices by device_value("memory") ?? 30Gi', "bcda"),
        ('devices by device_text("model")', "adbc"),
        ('devices by device_text("model") desc', "bdac"),
        ('devices by device_value("group") desc, device_value("memory")', "dbac"),
        ('devices by device_group_free("group")', "dabc"),
        ('devices by if device_text("model") == "y" then 0 else 1', "dabc"),
        ('devices by device_value("memory") >= 40Gi desc', "adbc"),
        ('devices by device_value("nothing")', "abcd"),
        ('let small = device_value("memory")\ndevices by small', "bdac"),
        ("devices by fullest", "abcd"),
        ("devices by emptiest", "abcd"),
        ("devices by fragmentation", "abcd"),
    ],
)
def test_claims_get_devices_in_the_order_of_the_policy(text: str, got: str) -> None:
    cluster, profile = cluster_of(FOUR), profile_of(text)
    assert [place(frame_of(cluster, f"p{at}"), profile) for at in range(4)] == [[name] for name in got]


def test_several_devices_and_a_constraint_in_the_order_of_the_policy() -> None:
    cluster, profile = cluster_of(FOUR), profile_of('devices by device_value("memory")')
    assert place(frame_of(cluster, "p", count=2, constraint="gpu/group"), profile) == ["b", "a"]


def test_a_random_device_follows_from_the_pod_and_all_are_used() -> None:
    profile = profile_of("devices by random")
    got = [place(frame_of(cluster_of(FOUR), f"p{at}"), profile)[0] for at in range(40)]
    assert set(got) == set("abcd")
    assert got == [place(frame_of(cluster_of(FOUR), f"p{at}"), profile)[0] for at in range(40)]


def test_shares_of_a_capacity_fill_a_device_before_the_next_is_begun() -> None:
    shared = [{**device(name, memory="80Gi"), "allowMultipleAllocations": True} for name in "ab"]
    request = {"capacity": {"requests": {"memory": "20Gi"}}}
    for text, got in (
        ("devices by device_free()", "aab"),
        ("devices by emptiest", "aba"),
        ("devices by fullest", "aab"),
    ):
        cluster, profile = cluster_of(shared), profile_of(text)
        assert [place(frame_of(cluster, f"p{at}", **request), profile)[0] for at in range(2)] == list(got[:2]), text
    cluster = cluster_of(shared)
    place(frame_of(cluster, "first", **request), profile_of('devices by device_text("x")'))
    assert place(frame_of(cluster, "p", **request), profile_of("devices by device_free() desc")) == ["b"]
    assert place(frame_of(cluster, "q", **request), profile_of('devices by device_free("memory")')) == ["a"]


def test_a_partition_comes_from_the_device_whose_counters_are_used_most() -> None:
    counters = [{"name": card, "counters": {"memory": {"value": "80Gi"}}} for card in ("one", "two")]
    parts = [
        {
            **device(f"{card}-{number}"),
            "consumesCounters": [{"counterSet": card, "counters": {"memory": {"value": "20Gi"}}}],
        }
        for card in ("one", "two")
        for number in range(3)
    ]
    by_name = profile_of('devices by device_text("none")')
    for text, got in (("devices by fullest", "two-1"), ("devices by emptiest", "one-0")):
        selector = [{"cel": {"expression": 'device.attributes["gpu"].card == "two"'}}]
        marked = [{**part, "attributes": {"card": {"string": part["name"][:3]}}} for part in parts]
        cluster = cluster_of(marked, counters=counters)
        assert place(frame_of(cluster, "first", selectors=selector), by_name) == ["two-0"]
        assert place(frame_of(cluster, "p"), profile_of(text)) == [got]


def test_fragmentation_takes_from_the_smallest_group_of_one_pcie_root() -> None:
    root = {"resource.kubernetes.io/pcieRoot": {"string": "left"}}
    devices = [{**device(f"d{at}"), "attributes": root} for at in range(3)]
    devices.append({**device("alone"), "attributes": {"resource.kubernetes.io/pcieRoot": {"string": "right"}}})
    assert place(frame_of(cluster_of(devices), "p"), profile_of("devices by fragmentation")) == ["alone"]


# --- shares by thousandths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "device_number"),
    [
        ("", 1),
        ("devices by fullest", 1),
        ("devices by emptiest", 2),
        ("devices by device_free()", 1),
        ("devices by device_free() desc", 2),
        ('devices by device_value("memory")', 0),
        ('devices by device_value("memory"), device_free() desc', 2),
    ],
)
def test_the_same_order_selects_the_device_of_a_share(text: str, device_number: int) -> None:
    cluster = cluster_of([], offered={GPU: "3", f"{GPU}-milli": "3000"})
    for name, number, share in (("x", 0, 400), ("y", 1, 600)):
        cluster.place(sharing(cluster, name, share).pod, "n", devices={GPU: (number,)})
    decision = Cycle().decide(sharing(cluster, "p", 300), profile_of(text))
    assert decision.devices == {GPU: (device_number,)}


def sharing(cluster: Cluster, name: str, share: int) -> Frame:
    amounts = {f"{GPU}-milli": str(share)}
    spec = {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return Frame(
        cluster.templates.pod(msgspec.convert({"metadata": metadata, "spec": spec}, objects.Pod)), cluster, NOW
    )


# --- laws --------------------------------------------------------------------------------------------------------

ORDERS = [
    'devices by device_value("memory")',
    'devices by device_value("memory") desc, device_group_free("group")',
    'devices by device_text("model"), device_free()',
    "devices by emptiest",
    "devices by random",
]
_devices = st.lists(
    st.tuples(st.sampled_from(["", "10Gi", "20Gi", "40Gi"]), st.sampled_from([0, 1, 2]), st.sampled_from(["x", "y"])),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40)
@given(
    devices=_devices,
    wanted=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=3),
    order=st.sampled_from(ORDERS),
)
def test_the_order_changes_no_verdict_and_gives_each_device_once(
    devices: list[tuple[str, int, str]], wanted: list[tuple[int, bool]], order: str
) -> None:
    made = [
        device(f"d{at}", memory=memory, group=group, model=model) for at, (memory, group, model) in enumerate(devices)
    ]
    cluster, plain, ordered = cluster_of(made), profile_of(""), profile_of(order)
    used: list[str] = []
    for at, (count, same) in enumerate(wanted):
        frame = frame_of(cluster, f"p{at}", count=count, constraint="gpu/group" if same else "")
        assert np.array_equal(evaluate(frame, plain).feasible, evaluate(frame, ordered).feasible)
        if Cycle().decide(frame, ordered).host is None:
            continue
        shown = [one.device.name for _, _, got in claimed_devices(frame.ordered(ordered.devices)) for one in got]
        got = place(frame, ordered)
        assert got == shown
        assert len(got) == count
        if same:
            assert len({devices[int(name[1:])][1] for name in got}) == 1
        used += got
    assert len(set(used)) == len(used)


def test_what_claims_would_get_follows_the_order() -> None:
    cluster = cluster_of(FOUR)
    frame = frame_of(cluster, "p")
    for order, memory in (("", 80), ('devices by device_value("memory")', 24)):
        profile = profile_of(f'score claimed_most("memory") / 1073741824\n{order}')
        assert evaluate(frame, profile).totals.tolist() == [1 + memory], order


# --- what is not allowed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("devices by bigest", "P0212"),
        ("devices by fullest desc", "P0101"),
        ("devices by fullest, emptiest", "P0101"),
        ("devices by 1", "P0212"),
        ("devices by node.free.cpu", "P0209"),
        ("devices by pod.priority", "P0209"),
        ('score device_value("memory")', "P0114"),
        ("filter device_free() > 0", "P0114"),
        ('order by device_value("memory")', "P0114"),
        ('devices by device_value("memory")\ndevices by fullest', "P0201"),
    ],
)
def test_what_makes_no_sense_is_an_error(text: str, code: str) -> None:
    found = load([Source("p.policy", f"filter node.ready\n{text}")]).diagnostics
    assert code in [one.code for one in found], "\n".join(map(render, found))


def test_a_bare_name_of_an_attribute_is_shown_as_a_value() -> None:
    found = load([Source("p.policy", "filter node.ready\ndevices by memory")]).diagnostics
    assert any('`device_value("memory")`' in render(one) for one in found), "\n".join(map(render, found))
