"""How many more replicas, and whole sets, fit: as many as placing them one by one finds, and nothing stays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.tooling.capacity.counting import Fitting, count_copies, count_sets, place_assumed
from kube_policy_scheduler.tooling.capacity.questions import more_copies
from kube_policy_scheduler.tooling.capacity.seats import Seats
from kube_policy_scheduler.tooling.short_forms import add_claims, add_devices
from tests.tooling.test_capacity import FITS, a_pod, node, on, seats, state
from tests.tooling.worlds import things_of

HOSTNAME = "kubernetes.io/hostname"
POLICIES = [
    "",
    FITS,
    'filter fits(cpu, mem)\nfilter node.label.disk == "ssd"\n',
    "filter fits(cpu, mem)\nfilter node.free.cpu > 1\n",
    "filter fits(cpu, mem)\nfilter count(p in node.pods) < 3\n",
    "filter fits(cpu, mem)\nlimit count() to 5\n",
    'filter fits(cpu, mem)\nscore most_allocated(cpu)\nhold if count(p in cluster.pods) > 6 else "enough"\n',
]


def apart(there: Seats, topology: str = HOSTNAME) -> PodInfo:
    """Return a pod that wants no other of its kind in its domain."""
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": topology}
    made: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "default", "uid": "new", "labels": {"app": "web"}},
        "spec": {
            "schedulerName": "policy-scheduler",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        },
    }
    return there.cluster.templates.pod(msgspec.convert(made, objects.Pod))


def hosts(count: int, cpu: int) -> list[dict[str, Any]]:
    return [node(f"n{at}", cpu, labels={HOSTNAME: f"n{at}"}) for at in range(count)]


def test_two_nodes_of_ten_cores_have_room_for_two_that_keep_apart_and_for_twenty_others() -> None:
    there = seats(hosts(2, 10), policy="")
    assert count_copies(there, apart(there), most=1000) == Fitting(2)
    assert count_copies(there, a_pod(there), most=1000) == Fitting(20)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["ssd", "hdd"]), st.integers(0, 3)), min_size=1, max_size=4),
    st.sampled_from(POLICIES),
    st.integers(0, 3),
)
def test_the_count_is_that_of_placing_one_by_one(nodes: list[tuple[int, str, int]], policy: str, cpu: int) -> None:
    made = [node(f"n{at}", size, labels={"disk": disk}) for at, (size, disk, _) in enumerate(nodes)]
    pods = [on(f"n{at}", 1) for at, (size, _, held) in enumerate(nodes) for _ in range(min(size, held))]
    there = seats(made, pods, policy=policy)
    pod, before = a_pod(there, cpu=cpu), state(there)
    assert count_copies(there, pod, most=500).count == more_copies(there, pod, most=500).count
    assert state(there) == before


def test_what_ends_early_says_so() -> None:
    there = seats(hosts(4, 10), policy="")
    assert count_copies(there, apart(there), most=3) == Fitting(3, complete=False)
    assert count_copies(there, a_pod(there), most=3) == Fitting(3, complete=False)
    assert count_copies(there, apart(there), most=10, stop=lambda: True) == Fitting(0, complete=False)


@pytest.mark.parametrize(("sizes", "sets"), [((4, 4), 2), ((3, 3), 1), ((10,), 2), ((2, 2, 2, 2), 0)])
def test_sets_are_whole(sizes: tuple[int, ...], sets: int) -> None:
    there = seats([node(f"n{at}", size) for at, size in enumerate(sizes)])
    before = state(there)
    parts = [(a_pod(there, cpu=3), 1), (a_pod(there, cpu=1), 1)]
    assert count_sets(there, parts, most=100) == Fitting(sets)
    assert state(there) == before


def test_a_set_of_nothing_has_no_number() -> None:
    there = seats([node("n")])
    assert count_sets(there, [], most=100) == Fitting(0)


def test_each_copy_has_devices_of_its_own_and_gives_its_claims_back() -> None:
    there = seats([node("n", 4)], policy="")
    add_devices(there.cluster, "n", {"gpu": 3})
    add_claims(there.cluster, "default", {"gpu": 1})
    (made,) = things_of((), [{"cpu": "100m", "claims": {"gpu": 1}}])
    made.metadata.uid = "new"
    pod, before = there.cluster.templates.pod(made), claims_of(there)
    assert count_copies(there, pod, most=100) == Fitting(3)
    assert count_sets(there, [(pod, 2)], most=100) == Fitting(1)
    assert claims_of(there) == before


def claims_of(there: Seats) -> list[str]:
    return sorted(claim.metadata.name for claim in there.cluster.resource_claims.all())


def test_pods_on_their_way_take_room() -> None:
    there = seats([node("n", 4)])
    pod = a_pod(there)
    with there.trying():
        place_assumed(there, [(pod, 3)])
        assert count_copies(there, pod, most=100) == Fitting(1)
    assert count_copies(there, pod, most=100) == Fitting(4)


def test_where_changes_are_silent_no_rejection_is_remembered() -> None:
    """While the ledger is silent, it does not tell of new room, so a kept rejection would stay."""
    there = seats([node("n", 4)])
    large, small = a_pod(there, cpu=4), a_pod(there)
    with there.cluster.ledger.silent(), there.trying():
        with there.trying():
            place_assumed(there, [(small, 1)])
            assert count_copies(there, large, most=100) == Fitting(0)
        assert count_copies(there, large, most=100) == Fitting(1)
