"""The score of VolumeBinding against the plain words of its rules, on random claims, volumes and capacities."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.plugin import SKIP, Ready
from kube_policy_scheduler.framework.plugins.storage_scores import MOST_ROOM, ShapeError, along, shape_of
from kube_policy_scheduler.framework.plugins.volume_binding import VolumeBinding
from kube_policy_scheduler.kubernetes_rules import KubernetesRules, KubernetesVersion
from tests.framework.clusters import ZONE, Body, frame_of, pod_body, zoned
from tests.framework.test_volume_plugins import claim, storage_class, thing, using, volume

SINCE_137 = KubernetesRules(KubernetesVersion(37))
GI = 2**30
ZONES = ("a", "b", "c")
DRIVERS = {"fast": "fast.example.com", "slow": "slow.example.com"}


def cluster_of(*things: Any, rules: KubernetesRules = SINCE_137) -> Cluster:
    cluster = Cluster(rules)
    for node in zoned(**{f"n-{zone}": zone for zone in ZONES}):
        cluster.set_node(node)
    for each in things:
        cluster.set_object(each)
    return cluster


def of_class(name: str, *, tracked: bool = True) -> list[Any]:
    driver = thing(objects.CSIDriver, metadata={"name": DRIVERS[name]}, spec={"storageCapacity": tracked})
    return [storage_class(name, provisioner=DRIVERS[name]), driver]


def room(name: str, zone: str, capacity: int) -> objects.CSIStorageCapacity:
    return thing(  # type: ignore[no-any-return]
        objects.CSIStorageCapacity,
        metadata={"name": f"{name}-{zone}", "namespace": "kube-system"},
        storageClassName=name,
        nodeTopology={"matchLabels": {ZONE: zone}},
        capacity=str(capacity),
    )


def scores(cluster: Cluster, body: Body, plugin: VolumeBinding | None = None) -> dict[str, int]:
    """Return the score of each node that passes the filter."""
    plugin, frame = plugin or VolumeBinding(), frame_of(cluster, body)
    prepared = plugin.pre_filter(frame)
    passing = np.ones(frame.size, np.bool_)
    if isinstance(prepared, Ready):
        passing = plugin.filter(frame, prepared.state)
    scored = plugin.pre_score(frame)
    assert isinstance(scored, Ready)
    values = plugin.score(frame, scored.state)
    return {info.name: int(values[info.row]) for info in cluster.nodes.infos if passing[info.row]}


def as_told(used: dict[str, tuple[int, int]]) -> int:
    """Return the score of a node by what is requested of which capacity in each class."""
    if not used:
        return 0
    shares = [100 if not has or asked > has else asked * 100 // has for asked, has in used.values()]
    mean = Fraction(sum(100 - share for share in shares), len(shares))
    return math.floor(mean + Fraction(1, 2))


SIZES = st.integers(1, 12)
CLAIMS = st.lists(st.tuples(st.sampled_from(sorted(DRIVERS)), SIZES), min_size=1, max_size=4)
CAPACITIES = st.dictionaries(st.tuples(st.sampled_from(sorted(DRIVERS)), st.sampled_from(ZONES)), st.integers(0, 40))


@given(CLAIMS, CAPACITIES, st.booleans())
def test_nodes_score_by_what_new_volumes_would_use_of_the_room_of_their_class(
    claims: list[tuple[str, int]], capacities: dict[tuple[str, str], int], fast_is_tracked: bool
) -> None:
    made = [
        claim(f"c{at}", size=str(size * GI), storageClassName=name, meta={"namespace": "default"})
        for at, (name, size) in enumerate(claims)
    ]
    rooms = [room(name, zone, capacity * GI) for (name, zone), capacity in capacities.items()]
    cluster = cluster_of(*of_class("fast", tracked=fast_is_tracked), *of_class("slow"), *rooms, *made)
    got = scores(cluster, using(*(f"c{at}" for at in range(len(claims)))))

    wanted = {}
    for zone in ZONES:
        used: dict[str, tuple[int, int]] = {}
        for name, size in claims:
            if name == "fast" and not fast_is_tracked:
                continue
            has = capacities.get((name, zone), -1)
            if size > has:
                break
            used[name] = used.get(name, (0, 0))[0] + size, has
        else:
            wanted[f"n-{zone}"] = as_told(used)
    assert got == wanted


@given(st.lists(SIZES, min_size=1, max_size=3), st.lists(SIZES, max_size=5), st.integers(1, 40))
def test_existing_volumes_count_alone_where_there_are_any(asked: list[int], offered: list[int], left: int) -> None:
    made = [claim(f"c{at}", size=str(size * GI), storageClassName="fast") for at, size in enumerate(asked)]
    there = [
        volume(f"v{at}", size=str(size * GI), storageClassName="fast", on={ZONE: ["a"]})
        for at, size in enumerate(offered)
    ]
    rooms = [room("fast", zone, left * GI) for zone in ZONES]
    got = scores(cluster_of(*of_class("fast"), *rooms, *made, *there), using(*(f"c{at}" for at in range(len(asked)))))

    free, bound, has = sorted(offered), 0, 0
    for size in sorted(asked):  # each gets the smallest that is large enough
        fitting = [each for each in free if each >= size]
        if fitting:
            free.remove(fitting[0])
            bound, has = bound + size, has + fitting[0]
        elif size > left:
            assert "n-a" not in got
            return
    assert got["n-a"] == as_told({"fast": (bound, has) if has else (sum(asked), left)})


@pytest.mark.parametrize(
    ("asked", "capacity", "score"),
    [(["1Gi"], 33 * GI, 97), (["1Gi"], 12 * GI, 92), (["3G", "3G", "8Gi"], 12 * GI, 0)],
)
def test_examples_of_new_volumes(asked: list[str], capacity: int, score: int) -> None:
    made = [claim(f"c{at}", size=size, storageClassName="fast") for at, size in enumerate(asked)]
    cluster = cluster_of(*of_class("fast"), room("fast", "a", capacity), *made)

    assert scores(cluster, using(*(f"c{at}" for at in range(len(asked))))) == {"n-a": score}


@pytest.mark.parametrize(
    ("asked", "offered", "score"), [(["5Gi"], ["20Gi"], 75), (["1Gi", "5Gi"], ["10Gi", "10Gi"], 70)]
)
def test_examples_of_existing_volumes(asked: list[str], offered: list[str], score: int) -> None:
    made = [claim(f"c{at}", size=size) for at, size in enumerate(asked)]
    there = [volume(f"v{at}", size=size) for at, size in enumerate(offered)]
    got = scores(cluster_of(storage_class(), *made, *there), using(*(f"c{at}" for at in range(len(asked)))))

    assert set(got.values()) == {score}


def test_claims_that_are_bound_and_pods_without_claims_score_nothing() -> None:
    there = [claim("c", volume="v"), volume("v", phase="Bound")]

    assert set(scores(cluster_of(storage_class(), *there), using("c")).values()) == {0}
    assert set(scores(cluster_of(), pod_body()).values()) == {0}


def test_amounts_beyond_any_disk_do_not_wrap_around() -> None:
    made = [claim("c0", size="4Ei", storageClassName="fast"), claim("c1", size="7Ei", storageClassName="fast")]
    cluster = cluster_of(*of_class("fast"), room("fast", "a", 2**63 - 1), *made)

    assert scores(cluster, using("c0")) == {"n-a": 50}
    assert scores(cluster, using("c0", "c1")) == {"n-a": 0}


def test_until_1_36_there_is_no_such_score() -> None:
    frame = frame_of(cluster_of(rules=KubernetesRules(KubernetesVersion(36))), pod_body())

    assert VolumeBinding().pre_score(frame) is SKIP


def test_the_shape_turns_the_score_around() -> None:
    made = [*of_class("fast"), room("fast", "a", 10 * GI), claim("c", size="4Gi", storageClassName="fast")]
    packed = VolumeBinding(shape_of([(0, 0), (100, 10)]))

    assert scores(cluster_of(*made), using("c"), packed) == {"n-a": 40}


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=5, unique_by=lambda p: p[0]))
def test_a_shape_goes_through_its_points_and_stays_between_them(points: list[tuple[int, int]]) -> None:
    points = sorted(points)
    line = along(shape_of(points), np.arange(101)).tolist()

    assert all(line[at] == score * 10 for at, score in points)
    assert line[: points[0][0]] == [points[0][1] * 10] * points[0][0]
    for (low, one), (high, other) in pairwise(points):
        between = line[low : high + 1]
        assert between == sorted(between, reverse=one > other)


@pytest.mark.parametrize(
    ("points", "error"),
    [
        ([], "expected at least one point"),
        ([(101, 1)], "expected a utilization of 0 to 100, got 101"),
        ([(0, 11)], "expected a score of 0 to 10, got 11"),
        ([(50, 1), (50, 2)], "each once; 50 follows 50"),
        ([(60, 1), (50, 2)], "50 follows 60"),
    ],
)
def test_points_that_make_no_line_are_errors(points: list[tuple[int, int]], error: str) -> None:
    with pytest.raises(ShapeError, match=error):
        shape_of(points)


def test_the_default_shape_is_the_most_room_first() -> None:
    assert VolumeBinding().shape == MOST_ROOM
    assert shape_of([(0, 10), (100, 0)]) == MOST_ROOM
