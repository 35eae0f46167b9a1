"""Pools whose devices share counters: which nodes see what of them, and which nodes a change concerns."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID, Pool

NODES = ["a", "b", "c"]
COUNTERS = [{"name": "parts", "counters": {"n": {"value": "4"}}}]


def slice_of(name: str, pool: str, *, node: str, generation: int, count: int, set_name: str = "") -> Any:
    """Return a slice on a node ("": on all nodes) with a device, or without `set_name` with the pool's counters."""
    spec: dict[str, Any] = {
        "driver": "gpu",
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
    }
    spec |= {"nodeName": node} if node else {"allNodes": True}
    if not set_name:
        spec["sharedCounters"] = COUNTERS
    else:
        consumed = [{"counterSet": set_name, "counters": {"n": {"value": "2"}}}]
        spec["devices"] = [{"name": name, "consumesCounters": consumed}]
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.ResourceSlice)


def cluster() -> Cluster:
    made = Cluster()
    for name in NODES:
        made.set_node(msgspec.convert({"metadata": {"name": name}, "status": {}}, objects.Node))
    return made


def view(cluster: Cluster, name: str) -> list[tuple[Any, ...]]:
    """Return all of the pools of a node that counts: those without devices only if they cannot be used."""
    pools = cluster.resource_slices.pools_of(cluster.nodes.rows[name])
    return [shown(pool) for pool in pools if pool.devices or pool.incomplete or pool.invalid]


def shown(pool: Pool) -> tuple[Any, ...]:
    devices = [[str(device.id) for device in some] for some in (pool.devices, pool.elsewhere)]
    return pool.id, pool.incomplete, pool.invalid, *devices, sorted(pool.counters)


@given(st.permutations([("s0", 2), ("s1", 1), ("s2", 3)]), st.integers(1, 3))
def test_slices_that_contradict_each_other_count_the_same_in_any_order(slices: list[tuple[str, int]], n: int) -> None:
    seen = []
    for order in (slices, sorted(slices)):
        made = cluster()
        for name, count in [each for each in order if each[0] < f"s{n}"]:
            made.set_object(slice_of(name, "p", node="a", generation=1, count=count, set_name="parts"))
        seen.append(view(made, "a"))
    assert seen[0] == seen[1]


SLICES = st.builds(
    slice_of,
    st.sampled_from([f"s{number}" for number in range(5)]),
    st.sampled_from(["p", "q"]),
    node=st.sampled_from([*NODES, ""]),
    generation=st.integers(1, 2),
    count=st.integers(1, 3),
    set_name=st.sampled_from(["", "parts", "parts", "other"]),
)


@given(st.lists(st.tuples(SLICES, st.booleans()), max_size=14))
def test_what_nodes_see_is_what_is_there_and_changes_name_every_node_that_sees_them(
    steps: list[tuple[objects.ResourceSlice, bool]],
) -> None:
    kept = cluster()
    there: dict[str, objects.ResourceSlice] = {}
    for slice_, comes in steps:
        before = {name: view(kept, name) for name in NODES}
        mark = kept.resource_slices.changed.end
        known = there.pop(slice_.metadata.name, None)
        if comes:
            there[slice_.metadata.name] = slice_  # last, as in what is kept: of contradicting slices the first counts
            kept.set_object(slice_)
        elif known is not None:
            kept.remove_object(known)
        fresh = cluster()
        for each in there.values():
            fresh.set_object(each)
        changed = kept.resource_slices.changed.since(mark)
        for name in NODES:
            assert view(kept, name) == view(fresh, name)
            if view(kept, name) != before[name]:
                assert changed is None or None in changed or name in changed


def test_a_pool_of_one_node_concerns_that_node_alone() -> None:
    made = cluster()
    for name in NODES:
        made.set_object(slice_of(f"{name}-counters", name, node=name, generation=1, count=2))
        made.set_object(slice_of(f"{name}-device", name, node=name, generation=1, count=2, set_name="parts"))
    slices = made.resource_slices
    assert [len(slices.pools_of(row)) for row in range(3)] == [1, 1, 1], "counters of others are nothing to a node"
    assert slices.rows_of(DeviceID("gpu", "b", "b-device")) == [1]
    mark = slices.changed.end
    made.set_object(slice_of("b-device", "b", node="b", generation=1, count=2, set_name="parts"))
    assert list(slices.changed.since(mark) or ()) == ["b"]
    assert not slices.sees_labels


def test_counters_that_only_another_node_sees_count_for_the_devices_of_a_pool() -> None:
    made = cluster()
    made.set_object(slice_of("counters", "p", node="a", generation=1, count=3))
    made.set_object(slice_of("here", "p", node="b", generation=1, count=3, set_name="parts"))
    assert [view(made, name) for name in NODES] == [[(("gpu", "p"), True, "", [], [], [])]] * 2 + [[]]
    made.set_object(slice_of("there", "p", node="a", generation=1, count=3, set_name="parts"))
    assert view(made, "b") == [(("gpu", "p"), False, "", ["gpu/p/here"], ["gpu/p/there"], ["parts"])]


def test_a_broken_pool_is_nothing_to_a_node_that_sees_none_of_its_slices() -> None:
    made = cluster()
    made.set_object(slice_of("counters", "p", node="a", generation=1, count=2))
    made.set_object(slice_of("device", "p", node="a", generation=1, count=2, set_name="other"))
    assert [[one[2] for one in view(made, name)] for name in NODES] == [["counter set other not found"], [], []]


def test_a_counter_set_that_two_slices_define_makes_the_pool_invalid_on_every_node_that_sees_a_part_of_it() -> None:
    made = cluster()
    for node in ("a", "b"):
        made.set_object(slice_of(f"counters-{node}", "p", node=node, generation=1, count=3))
    made.set_object(slice_of("device", "p", node="c", generation=1, count=3, set_name="parts"))
    assert {view(made, name)[0][2] for name in NODES} == {"duplicate counter set name parts"}
