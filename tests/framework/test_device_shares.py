"""Shares of devices in the cycle: which pod fits, which node, which device; and what fragmentation is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.choice import Ties
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.default_profile import kubernetes_filters
from kube_policy_scheduler.framework.devices.device_order import DeviceRule
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.fragmentation import COVERED, fragmentation
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.lang.compiling.compiled import DeviceOrder
from kube_policy_scheduler.policy.policy_set import load
from tests.cluster.test_devices import GPU, node, pod


def decide(cluster: Cluster, incoming: PodInfo, *, rule: DeviceRule = DeviceRule.FULLEST, seed: int = 0) -> Decision:
    profile = Profile("test", kubernetes_filters(), ties=Ties.NAME, devices=DeviceOrder(rule.value, rule=rule.value))
    return Cycle(seed=seed).decide(Frame(incoming, cluster, 0.0), profile)


def made(**gpus: int) -> Cluster:
    cluster = Cluster()
    for name, count in gpus.items():
        cluster.set_node(node(name, count))
    return cluster


def test_room_on_several_devices_is_not_room_for_one_share() -> None:
    cluster = made(a=2, b=1)
    for name, place in (("p", 0), ("q", 1)):
        cluster.place(pod(cluster, name, share=600), "a", devices={GPU: (place,)})
    decision = decide(cluster, pod(cluster, "next", share=500))
    assert (decision.host, decision.devices) == ("b", {GPU: (0,)})


def test_whole_devices_must_be_free_although_the_sum_would_do() -> None:
    cluster = made(a=2)
    for name, place in (("p", 0), ("q", 1)):
        cluster.place(pod(cluster, name, share=100), "a", devices={GPU: (place,)})
    assert decide(cluster, pod(cluster, "share", share=500)).host == "a"
    rejected = decide(cluster, pod(cluster, "whole", whole=1))
    assert rejected.host is None
    assert "1 node(s) had too little room on each nvidia.com/gpu device" in rejected.message
    assert rejected.rejectors == {"DeviceShares"}


def test_a_node_with_too_few_devices_has_its_own_reason() -> None:
    cluster = made(a=1)
    rejected = decide(cluster, pod(cluster, "both", whole=1, share=10))
    assert "1 node(s) had too few nvidia.com/gpu" in rejected.message


def test_nodes_whose_devices_are_not_shared_take_no_shares() -> None:
    cluster = made(a=1)
    plain = node("b", 4)
    assert plain.status.allocatable is not None
    del plain.status.allocatable[f"{GPU}-milli"]
    cluster.set_node(plain)
    assert decide(cluster, pod(cluster, "p", share=10)).host == "a"


@pytest.mark.parametrize(
    ("rule", "device"), [(DeviceRule.FULLEST, 1), (DeviceRule.EMPTIEST, 2), (DeviceRule.FRAGMENTATION, 0)]
)
def test_the_device_follows_the_rule(rule: DeviceRule, device: int) -> None:
    cluster = made(a=3)
    cluster.place(pod(cluster, "p", share=400), "a", devices={GPU: (0,)})
    cluster.place(pod(cluster, "q", share=600), "a", devices={GPU: (1,)})
    cluster.workload.declare({pod(cluster, "often", share=300).template: 3, pod(cluster, "whole", whole=1).template: 1})
    # left over by a share of 300: on the first 300, which is of use; on the second 100, on the third 700
    assert decide(cluster, pod(cluster, "next", share=300), rule=rule).devices == {GPU: (device,)}


def test_a_random_device_follows_from_pod_and_seed() -> None:
    cluster = made(a=8)
    chosen = {
        decide(cluster, pod(cluster, f"p{number}", share=10), rule=DeviceRule.RANDOM).devices[GPU]
        for number in range(60)
    }
    assert chosen == {(number,) for number in range(8)}
    one = pod(cluster, "one", share=10)
    again = [decide(cluster, one, rule=DeviceRule.RANDOM, seed=3).devices for _ in range(3)]
    assert again[0] == again[1] == again[2]


def test_ties_by_name_take_the_smallest_name() -> None:
    cluster = made(c=1, b=1, a10=1, a9=1)
    assert decide(cluster, pod(cluster, "p", share=10)).host == "a10"


def test_a_plain_pod_gets_no_devices_and_is_asked_nothing_about_them() -> None:
    cluster = made(a=1)
    assert decide(cluster, pod(cluster, "p")).devices == {}
    assert not cluster.devices.tables


# --- fragmentation ---------------------------------------------------------------------------------------


def expected_fragmentation(
    cluster: Cluster, counts: dict[PodTemplate, int], row: int, free: Sequence[int], cpu: int
) -> float:
    """The definition, one pod of the workload after the other."""
    grouped: dict[tuple[int, int, int], int] = {}
    for template, count in counts.items():
        key = (template.requests.get("cpu", 0), template.requests.get(GPU, 0), template.requests.get(f"{GPU}-milli", 0))
        grouped[key] = grouped.get(key, 0) + count
    kept, covered = [], 0
    for key, count in sorted(grouped.items(), key=lambda item: (-item[1], item[0])):
        if covered >= COVERED * sum(counts.values()):
            break
        kept.append((key, count))
        covered += count
    lost = 0.0
    for (wanted_cpu, whole, share), count in kept:
        room = share or 1000
        enough = sum(f >= room for f in free) >= whole + (share > 0) and sum(f >= 1000 for f in free) >= whole
        fits = cpu >= wanted_cpu and (whole or share) and enough
        lost += count / covered * (sum(f for f in free if f < room) if fits else sum(free))
    return lost


_WANTED = st.sampled_from([(0, 0), (1, 0), (2, 0), (0, 300), (0, 500), (0, 810), (1, 250)])


@given(
    st.lists(st.tuples(_WANTED, st.integers(1, 9)), min_size=1, max_size=6, unique_by=lambda item: item[0]),
    st.lists(_WANTED, max_size=6),
    _WANTED,
)
@example([((1, 250), 1)], [(0, 300), (0, 300), (0, 300), (1, 250)], (0, 300))  # a share of the only empty device
def test_fragmentation_is_what_its_definition_says_before_and_after(
    workload: list[tuple[tuple[int, int], int]], there: list[tuple[int, int]], coming: tuple[int, int]
) -> None:
    cluster = made(a=4, b=2)
    table = cluster.devices.table(GPU)
    counts = {pod(cluster, "w", whole=w, share=s).template: count for (w, s), count in workload}
    cluster.workload.declare(counts)
    for number, (whole, share) in enumerate(there):
        incoming = pod(cluster, f"p{number}", whole=whole, share=share)
        decision = decide(cluster, incoming)
        if decision.host is not None:
            cluster.place(incoming, decision.host, devices=decision.devices)
    incoming = pod(cluster, "next", whole=coming[0], share=coming[1])
    found = fragmentation(Frame(incoming, cluster, 0.0), GPU)
    ways = found.drops(incoming.template, np.arange(2))
    for info in cluster.nodes.infos:
        row, free = info.row, table.free[info.row].tolist()
        cpu = int(cluster.nodes.allocatable("cpu")[row] - cluster.nodes.requested("cpu")[row])
        before = expected_fragmentation(cluster, counts, row, free, cpu)
        assert math.isclose(float(found.before(np.array([row]))[0]), before, abs_tol=1e-6)
        whole, share = coming
        taken = [place for place, room in enumerate(free) if room >= 1000][:whole]
        rest = [0 if place in taken else room for place, room in enumerate(free)]
        for way in range(len(rest) if share else 1):
            after = [room - share * (place == way) for place, room in enumerate(rest)]
            if min(after) < 0:
                assert ways[row, way] == -math.inf
                continue
            wanted = before - expected_fragmentation(cluster, counts, row, after, cpu - 1000)
            assert math.isclose(float(ways[row, way]), wanted, abs_tol=1e-6)


def test_what_is_learned_are_the_pods_on_nodes() -> None:
    cluster = made(a=2)
    cluster.place(pod(cluster, "p", share=600), "a")
    loaded = load([Source("f.policy", "score fragmentation_drop()")])
    assert loaded.policy_set is not None
    profile = loaded.policy_set.policies[0].profile
    Cycle().decide(Frame(pod(cluster, "q", share=300), cluster, 0.0), profile)
    assert list(cluster.workload.counts) == [cluster.pods["p"].template]
    cluster.place(pod(cluster, "q", share=300), "a")
    assert len(cluster.workload.counts) == 2
    cluster.displace("p")
    assert list(cluster.workload.counts) == [cluster.pods["q"].template]
