"""Which rack a gang gets: the worked examples of kube-scheduler and Kueue, and what is missing where none has room."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.domains import topology
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.gang_domains import Domain, DomainRule, Preference, Rest, Shortfall, choose
from kube_policy_scheduler.framework.decide.gang_room import Members, free_now, free_without, kinds_of, rooms

RACK, BLOCK = "rack", "block"


def pod(cluster: Cluster, name: str, *, cpu: int = 1, **requests: Any) -> PodInfo:
    asked = {"cpu": str(cpu)} | requests
    priority = asked.pop("priority", 0)
    spec = {"priority": priority, "containers": [{"name": "c", "resources": {"requests": asked}}]}
    body = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


def racks(*, cpu: int = 2, held: dict[str, int] | None = None, priority: int = 0, **sizes: int) -> Cluster:
    """Return racks of so many nodes, with so many cores held in some; racks that begin alike are one block."""
    cluster = Cluster()
    for rack, size in sizes.items():
        left = (held or {}).get(rack, 0)
        for number in range(size):
            labels = {RACK: rack, BLOCK: rack[0]} if rack != "none" else {}
            node = {
                "metadata": {"name": f"{rack}-{number}", "labels": labels},
                "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110", "gpu.io/x": "8"}},
            }
            cluster.set_node(msgspec.convert(node, objects.Node))
            if there := min(left, cpu):
                cluster.place(pod(cluster, f"low-{rack}-{number}", cpu=there, priority=priority), f"{rack}-{number}")
                left -= there
    return cluster


def members(cluster: Cluster, number: int, *, cpu: int = 1, **requests: Any) -> Members:
    template = pod(cluster, "member", cpu=cpu, **requests).template
    return Members(template, number, np.ones(cluster.nodes.size, np.bool_))


def chosen(
    cluster: Cluster, number: int, *levels: str | None, cpu: int = 1, placed: Any = None, **options: Any
) -> str | None:
    found = choose(cluster, Rest(levels or (RACK,), [members(cluster, number, cpu=cpu)], number, placed), **options)
    return found.value if isinstance(found, Domain) else found.message if isinstance(found, Shortfall) else None


def test_the_domain_of_which_most_is_in_use_afterwards() -> None:
    assert chosen(racks(r1=2, r2=3, r3=1), 3) == "r1", ".75 of r1 against .5 of r2; r3 has no room"
    assert chosen(racks(r1=2, r2=3, r3=3, held={"r2": 2, "r3": 1}), 3) == "r2", ".83 against .75 and .67"


def test_a_policy_can_want_the_emptiest_instead() -> None:
    cluster = racks(r1=2, r2=3, r3=1)
    assert chosen(cluster, 3, prefers=Preference(DomainRule.EMPTIEST)) == "r2"


def test_the_smallest_that_holds_all_then_the_next_level_then_any() -> None:
    cluster = racks(cpu=8, a8=1, a5=1, a4=1, held={"a5": 3, "a4": 4})
    assert chosen(cluster, 4) == "a4"
    assert chosen(cluster, 6) == "a8"
    assert chosen(cluster, 9) == "rack a8 lacks 1 cpu: 9 requested by 9 pods, 8 free"
    assert chosen(cluster, 9, RACK, BLOCK) == "a"
    assert chosen(cluster, 99, RACK, BLOCK, None) is None


def test_placed_members_fix_the_domain() -> None:
    cluster = racks(r1=3, r2=2)
    rows = cluster.nodes.rows
    at = np.array([rows["r2-0"]], np.intp)
    assert chosen(cluster, 3) == "r2"
    assert chosen(cluster, 1, placed=at) == "r2"
    lacks = "rack r2 lacks 1 cpu: 5 requested by 5 pods, 4 free"
    assert chosen(cluster, 5, placed=at) == lacks, "though r1 has room for six"
    two = np.array([rows["r2-0"], rows["r1-0"]], np.intp)
    assert chosen(cluster, 1, placed=two) == "its placed members are in 2 domains of rack"


def test_nodes_without_the_label_are_no_domain() -> None:
    cluster = racks(none=9, r1=1)
    assert chosen(cluster, 2) == "r1"
    assert chosen(cluster, 3) == "rack r1 lacks 1 cpu: 3 requested by 3 pods, 2 free"
    assert chosen(racks(none=9), 3) == "no node has the label rack"
    lost = np.array([cluster.nodes.rows["none-0"]], np.intp)
    assert chosen(cluster, 1, placed=lost) == "its placed members are on nodes without the label rack"


def test_pods_of_lower_priority_can_count_as_gone() -> None:
    cluster = racks(r1=2, r2=1, held={"r1": 3, "r2": 2}, priority=-5)
    lacks = "rack r1 lacks 3 cpu: 4 requested by 4 pods, 1 free"
    assert chosen(cluster, 4) == lacks
    assert chosen(cluster, 4, free=free_without(cluster, 0)) == "r1"
    assert chosen(cluster, 4, free=free_without(cluster, -5)) == lacks


def test_evictions_happen_where_the_fewest_are_needed() -> None:
    cluster = racks(r1=2, r2=2, r3=2, held={"r1": 4, "r2": 1, "r3": 3}, priority=-5)
    gone = {"free": free_without(cluster, 0)}
    assert chosen(cluster, 4, **gone) == "r1"
    assert chosen(cluster, 4, most_free_first=True, **gone) == "r2"


def test_domains_that_were_tried_in_vain_come_last() -> None:
    cluster = racks(r1=2, r2=3)
    assert chosen(cluster, 3, skipped={Domain(RACK, "r1")}) == "r2"
    both = {Domain(RACK, "r1"), Domain(RACK, "r2")}
    assert "has the resources for 3 pods, but not all of them fit there" in str(chosen(cluster, 3, skipped=both))


def test_one_choice_within_another() -> None:
    cluster = racks(a1=1, a2=2, b1=2, b2=2)
    within = Domain(BLOCK, "b").mask(cluster)
    assert chosen(cluster, 4, within=within) == "b1"


def test_members_of_several_kinds_share_the_room() -> None:
    cluster = racks(r1=2, r2=3)
    kinds = [members(cluster, 2, cpu=2), members(cluster, 2, cpu=1)]
    assert choose(cluster, Rest((RACK,), kinds, 4)) == Domain(RACK, "r2"), "r1 is full with the two large ones"
    found = choose(cluster, Rest((RACK,), [members(cluster, 7, cpu=2), members(cluster, 1)], 8))
    assert found == Shortfall("rack r2 lacks 9 cpu: 15 requested by 8 pods, 6 free", key=RACK, missing=5)


def test_the_first_true_sentence_says_what_is_missing() -> None:
    cluster = racks(cpu=3, r1=1, r2=2)
    assert chosen(cluster, 4, cpu=2) == "rack r2 lacks 2 cpu: 8 requested by 4 pods, 6 free"
    assert chosen(cluster, 3, cpu=2) == "rack r2 has room for 2 of 3 pods; 1 more requests 2 cpu"
    assert chosen(cluster, 1, cpu=5) == "rack r1 lacks 2 cpu: 5 requested by 1 pod, 3 free"
    lacks_node = "no rack has a node for any of its pods: 5 cpu requested, at most 3 free"
    assert chosen(racks(cpu=3, r1=3), 1, cpu=5) == lacks_node
    full = msgspec.structs.replace(members(cluster, 1), feasible=np.zeros(cluster.nodes.size, np.bool_))
    found = choose(cluster, Rest((RACK,), [full], 1))
    why = "no rack has a node for any of its pods: none has all that it requests and passes the filters"
    assert isinstance(found, Shortfall)
    assert found.message == why


def test_members_with_roles_that_fit_alone_and_not_together_are_named() -> None:
    cluster = racks(cpu=4, r1=2)
    leader = msgspec.structs.replace(members(cluster, 1, cpu=2), role="role=leader")
    workers = msgspec.structs.replace(members(cluster, 2, cpu=3), role="role=worker")
    found = choose(cluster, Rest((RACK,), [leader, workers], 3), skipped={Domain(RACK, "r1")})
    assert isinstance(found, Shortfall)
    assert found.message == (
        "rack r1 has room for the 2 pods with role=worker or for the pod with role=leader, not for both (best: 2 of 3)"
    )
    giant = msgspec.structs.replace(members(cluster, 1, cpu=6), role="role=leader")
    larger = racks(cpu=5, r1=2)
    found = choose(larger, Rest((RACK,), [giant, members(larger, 1)], 2))
    assert isinstance(found, Shortfall)
    assert found.message == "no rack has a node for the pod with role=leader: 6 cpu requested, at most 5 free"


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    held=st.lists(st.integers(0, 8), min_size=5, max_size=5),
    number=st.integers(1, 12),
    cpu=st.integers(1, 3),
)
def test_the_room_of_a_domain_is_what_its_nodes_have_room_for(
    sizes: list[int], held: list[int], number: int, cpu: int
) -> None:
    names = [f"r{at}" for at in range(len(sizes))]
    cluster = racks(cpu=3, held=dict(zip(names, held, strict=False)), **dict(zip(names, sizes, strict=True)))
    kinds = kinds_of(cluster, [members(cluster, number, cpu=cpu)])
    found = rooms(kinds, topology(cluster.nodes, RACK), free=free_now(cluster), within=None)
    nodes = cluster.nodes
    expected = dict.fromkeys(names, 0)
    for name, row in nodes.rows.items():
        free = int(nodes.allocatable("cpu")[row] - nodes.requested("cpu")[row])
        expected[name.partition("-")[0]] += free // (1000 * cpu)
    assert sorted(found.tolist()) == sorted(min(number, each) for each in expected.values())


@pytest.mark.parametrize("rule", DomainRule)
def test_equal_domains_are_taken_by_name(rule: DomainRule) -> None:
    assert chosen(racks(r2=2, r1=2, r3=2), 2, prefers=Preference(rule)) == "r1"


def plainly(
    cluster: Cluster, kinds: list[Members], *, needed: int, rule: DomainRule, held: set[str]
) -> tuple[str | None, dict[str, int]]:
    """Return the rack by the rule as its words say, and how many members each rack has the resources for."""
    nodes, kind = cluster.nodes, kinds[0]
    asked = dict(kind.template.requests)
    places: dict[str, int] = {}
    used: dict[str, list[float]] = {}
    for name, row in nodes.rows.items():
        rack = name.partition("-")[0]
        free = {of: int(nodes.allocatable(of)[row] - nodes.requested(of)[row]) for of in asked}
        fits = min(free[of] // wanted for of, wanted in asked.items()) if name not in held else 0
        places[rack] = places.get(rack, 0) + max(0, fits)
        sums = used.setdefault(rack, [0.0] * (2 * len(asked)))
        for at, of in enumerate(asked):
            sums[2 * at] += float(nodes.requested(of)[row])
            sums[2 * at + 1] += float(nodes.allocatable(of)[row])

    def share(rack: str) -> float:
        sums = used[rack]
        return sum((sums[2 * at] + asked[of] * needed) / sums[2 * at + 1] for at, of in enumerate(asked)) / len(asked)

    rank = {
        DomainRule.FULLEST: lambda rack: -round(share(rack), 9),
        DomainRule.EMPTIEST: lambda rack: round(share(rack), 9),
        DomainRule.TIGHTEST: lambda rack: places[rack],
        DomainRule.ROOMIEST: lambda rack: -places[rack],
    }[rule]
    fitting = [rack for rack in places if min(places[rack], kind.number) >= needed]
    return min(fitting, key=lambda rack: (rank(rack), rack), default=None), places


@settings(max_examples=80)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    held=st.lists(st.integers(0, 8), min_size=5, max_size=5),
    number=st.integers(1, 8),
    memory=st.sampled_from(["1Gi", "16Gi", "40Gi"]),
    rule=st.sampled_from(DomainRule),
    rejected=st.sets(st.sampled_from(["r0-0", "r1-0", "r2-1", "r4-0"])),
)
def test_the_arrays_choose_as_the_words_say(
    sizes: list[int], held: list[int], number: int, memory: str, rule: DomainRule, rejected: set[str]
) -> None:
    names = [f"r{at}" for at in range(len(sizes))]
    cluster = racks(cpu=3, held=dict(zip(names, held, strict=False)), **dict(zip(names, sizes, strict=True)))
    kind = members(cluster, number, memory=memory)
    for name in rejected & cluster.nodes.rows.keys():
        kind.feasible[cluster.nodes.rows[name]] = False
    found = choose(cluster, Rest((RACK,), [kind], number), prefers=Preference(rule))
    wanted, places = plainly(cluster, [kind], needed=number, rule=rule, held=rejected)
    if wanted is not None:
        assert found == Domain(RACK, wanted)
    else:
        assert isinstance(found, Shortfall)
        most = max(places.values())
        assert (found.missing, found.key) == (max(1, number - most), RACK)
        if " has room for " in found.message:
            assert f"has room for {most} of {number} pod" in found.message


def test_a_policy_can_prefer_domains_by_values_of_their_nodes() -> None:
    cluster = racks(r1=2, r2=3, r3=2)
    price = {"r1": 3.0, "r2": 1.0, "r3": np.nan}
    rack_of = [name.partition("-")[0] for name in cluster.nodes.names]
    prices = np.array([price[rack] for rack in rack_of])
    same = np.ones(len(prices))
    by = lambda *columns: Preference(columns=lambda: columns)  # noqa: E731
    assert chosen(cluster, 3, prefers=by(prices)) == "r2"
    assert chosen(cluster, 3, prefers=by(-prices)) == "r1"
    assert chosen(cluster, 3, prefers=by(same, prices)) == "r2", "the second key decides between equal ones"
    assert chosen(cluster, 3, prefers=by(np.full(len(prices), np.nan))) == "r1", "all without a value: by name"
    in_r3 = Domain(RACK, "r3").mask(cluster) | Domain(RACK, "r1").mask(cluster)
    assert chosen(cluster, 3, prefers=by(prices), within=in_r3) == "r1", "a domain without a value comes last"
