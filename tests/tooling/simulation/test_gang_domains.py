"""Gangs in one rack, in virtual time and by the code of the daemon: whole in one domain, or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.tooling.simulation.run import AssumedPod, Run, SimulatedCluster, Waiting, run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.tooling.simulation.scenarios import node, pod, variant

RACK = "topology.kubernetes.io/rack"


def group(name: str, size: int, *, key: str = RACK, **spec: Any) -> objects.PodGroup:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": size}} if size else {"basic": {}},
        "schedulingConstraints": {"topology": [{"key": key}]},
    } | spec
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, objects.PodGroup)


def members(name: str, number: int, *, at: float = 0, lasts: float | None = 100, **spec: Any) -> list[Arrival]:
    made = pod(schedulingGroup={"podGroupName": name}, **spec)
    return [Arrival(at, f"{name}-{each}-{at:g}", made, lasts) for each in range(number)]


def racks(*, cpu: str = "2", **sizes: int) -> list[objects.Node]:
    return [
        node(f"{rack}-{number}", cpu=cpu, labels={RACK: rack}) for rack, size in sizes.items() for number in range(size)
    ]


class Watched(SimulatedCluster):
    """Notes which racks the members of each group start in, and the largest number that runs at a time."""

    def __init__(self, scenario: Scenario, who: PolicyVariant | None = None) -> None:
        super().__init__(scenario, who or PolicyVariant("kubernetes"), seed=0)
        self.racks: dict[str, list[str]] = {}

    def bind(self, assumed: AssumedPod) -> Any:
        template = assumed.queued.pod.template
        if template.spec.scheduling_group is not None:
            name = template.spec.scheduling_group.pod_group_name
            self.racks.setdefault(name, []).append(assumed.host.partition("-")[0])
        return super().bind(assumed)


def started(nodes: list[objects.Node], things: list[Any], arrivals: list[Arrival]) -> Watched:
    arrivals.sort(key=lambda arrival: arrival.at)
    watched = Watched(Scenario([*nodes, *things], arrivals))
    Waiting(watched).run(progress=lambda done: None)
    return watched


def result(nodes: list[objects.Node], things: list[Any], arrivals: list[Arrival]) -> Run:
    scenario = Scenario([*nodes, *things], arrivals)
    return run(scenario, PolicyVariant("kubernetes"), seed=0, stopwatch=lambda: 0.0)


def test_a_gang_gets_the_rack_that_is_fullest_with_it() -> None:
    found = started(racks(r1=2, r2=3, r3=1), [group("train", 3)], members("train", 3))
    assert found.racks == {"train": ["r1"] * 3}


def test_members_that_come_later_join_the_others_or_wait() -> None:
    arrivals = [*members("train", 3, lasts=500), *members("train", 2, at=10, lasts=500)]
    found = started(racks(r1=3, r2=2), [group("train", 3)], arrivals)
    assert found.racks["train"] == ["r2"] * 4, "the fifth waits for room in r2, though r1 is empty"
    assert found.tally.placed == 4


def test_a_gang_that_no_rack_holds_waits_and_says_what_is_missing() -> None:
    found = started(racks(r1=2, r2=3), [group("train", 7)], members("train", 7))
    assert found.racks == {}
    assert found.tally.given_back == 0, "it takes no place that it cannot use"
    (why,) = found.tally.reasons
    assert "rack r2 lacks 1 cpu: 7 requested by 7 pods, 6 free" in why


def test_it_starts_when_a_rack_has_room() -> None:
    blocker = Arrival(0, "blocker", pod(cpu="2"), 60)
    found = started(racks(r1=2), [group("train", 4)], [blocker, *members("train", 4, at=1)])
    assert found.racks == {"train": ["r1"] * 4}
    assert max(found.tally.wait_seconds) == 59


def test_pods_of_a_basic_group_stay_together_too() -> None:
    found = started(racks(r1=2, r2=2), [group("plain", 0)], members("plain", 5, lasts=50))
    assert len(set(found.racks["plain"])) == 1
    assert sorted(found.tally.wait_seconds) == [0, 0, 0, 0, 50]


def test_without_the_label_on_any_node_all_wait() -> None:
    found = result([node("n")], [group("train", 2)], members("train", 2))
    assert found.unplaced == 2
    assert "no node has the label topology.kubernetes.io/rack" in next(iter(found.reasons))


def test_members_that_exclude_each_other_try_the_next_rack() -> None:
    """By resources r1 has room for all, but each node takes one of them."""
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}]}}  # fmt: skip
    nodes = racks(r1=2, r2=3)
    for each in nodes:
        each.metadata.labels = {**(each.metadata.labels or {}), "kubernetes.io/hostname": each.metadata.name}
    arrivals = members("train", 3, affinity=apart)
    for arrival in arrivals:
        arrival.pod.metadata.labels = {"app": "x"}
    found = started(nodes, [group("train", 3)], arrivals)
    assert found.racks == {"train": ["r2"] * 3}


@pytest.mark.parametrize(("size", "evicted"), [(4, 3), (5, 0)])
def test_evictions_make_room_in_one_rack_or_none_happen(size: int, evicted: int) -> None:
    low = [Arrival(0, f"low-{number}", pod(cpu="1"), None) for number in range(6)]
    nodes = racks(r1=2, r2=2)
    found = result(nodes, [group("high", size)], [*low, *members("high", size, at=10, priority=9, lasts=None)])
    assert found.evicted in ((evicted,) if not evicted else (2, 3, 4))
    assert found.placed >= 6


def test_evictions_happen_in_the_rack_where_the_fewest_are_needed() -> None:
    low = [Arrival(0, f"low-{number}", pod(cpu="1", nodeSelector={RACK: rack}), None)
           for number, rack in enumerate(["r1"] * 4 + ["r2"])]  # fmt: skip
    found = result(racks(r1=2, r2=2), [group("high", 4)], [*low, *members("high", 4, at=10, priority=9, lasts=None)])
    assert (found.placed, found.evicted) == (9, 1)


@pytest.mark.parametrize("mode", ["PodGroup", {"all": {}}])
def test_a_group_that_is_disrupted_whole_is_not_evicted_in_part(mode: Any) -> None:
    """In r1 a gang that must be disrupted whole is in the way, in r2 single pods, of which more must give way."""
    whole = group("whole", 2, disruptionMode=mode)
    before = [*members("whole", 2, lasts=None, nodeSelector={RACK: "r1"}),
              *(Arrival(0, f"low-{n}", pod(cpu="1", nodeSelector={RACK: "r2"}), None) for n in range(4))]  # fmt: skip
    high = members("high", 4, at=10, priority=9, lasts=None)
    watched = started(racks(r1=2, r2=2), [whole, group("high", 4)], [*before, *high])
    assert watched.racks == {"whole": ["r1"] * 2, "high": ["r2"] * 4}
    assert watched.tally.evicted == 4


def test_a_gang_on_one_node() -> None:
    """`node` is the node's own label, not any nodes."""
    nodes = [node(f"n{number}", cpu="2", labels={"kubernetes.io/hostname": f"n{number}"}) for number in range(2)]
    made = pod(cpu="1")
    made.metadata.labels = {"job": "j", "size": "3"}
    by = "gang by pod.label.job size number(pod.label.size) within one node\n"
    arrivals = [Arrival(0, f"p{number}", made, 100) for number in range(3)]
    assert run(Scenario(nodes, arrivals), variant(by), seed=0, stopwatch=lambda: 0.0).unplaced == 3
    assert (
        run(Scenario(nodes, arrivals), variant(by.replace("node", "node or any")), seed=0, stopwatch=lambda: 0.0).placed
        == 3
    )


SLICES = """
gang by pod.label.job size 10 within one block if pod label job
gang by pod.label.slice size 5 within one rack if pod label job
"""


@pytest.mark.parametrize(
    ("nodes", "block"),
    [({"a1": 3, "a2": 5, "b1": 5, "b2": 5}, "b"), ({"a1": 4, "a2": 4, "a3": 4, "b1": 5, "b2": 6}, "b")],
    ids=["too little in all", "enough in all, but in pieces"],
)
def test_slices_in_one_rack_each_and_all_of_them_in_one_block(nodes: dict[str, int], block: str) -> None:
    things = racks(cpu="1", **nodes)
    for each in things:
        rack = each.metadata.name.partition("-")[0]
        each.metadata.labels = {"rack": rack, "block": rack[0]}
    arrivals = []
    for number in range(10):
        made = pod(schedulingGroup=None)
        made.metadata.labels = {"job": "j", "slice": str(number // 5)}
        arrivals.append(Arrival(0, f"p{number}", made, 100))
    hosts: dict[str, set[str]] = {}

    class Noted(Watched):
        def bind(self, assumed: AssumedPod) -> Any:
            rack = assumed.host.partition("-")[0]
            hosts.setdefault(assumed.queued.pod.labels["slice"], set()).add(rack)
            return super().bind(assumed)

    noted = Noted(Scenario(things, arrivals), variant(SLICES))
    Waiting(noted).run(progress=lambda done: None)
    assert noted.tally.placed == 10
    assert {len(found) for found in hosts.values()} == {1}
    assert {rack[0] for found in hosts.values() for rack in found} == {block}


@pytest.mark.parametrize("seconds", [1.0, 100.0])
def test_many_gangs_all_run_in_the_end(seconds: float) -> None:
    groups = [group(f"g{number}", 1 + number % 4) for number in range(12)]
    arrivals = [
        each for number in range(12) for each in members(f"g{number}", 1 + number % 4, at=number * seconds, lasts=40)
    ]
    found = started(racks(r1=1, r2=2, r3=2), groups, arrivals)
    assert {name: len(set(where)) for name, where in found.racks.items()} == {f"g{number}": 1 for number in range(12)}
    assert found.tally.placed == len(arrivals)


@given(
    gangs=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2), st.integers(0, 90), st.integers(0, 1)), max_size=8),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_a_gang_starts_whole_in_one_rack_or_not_at_all(
    gangs: list[tuple[int, int, int, int]], sizes: list[int]
) -> None:
    """With surplus members, pods that come apart, priorities and evictions."""
    groups, arrivals = [], []
    for number, (size, more, at, priority) in enumerate(gangs):
        groups.append(group(f"g{number}", size))
        first = members(f"g{number}", size, at=at, lasts=30, priority=priority)
        arrivals += first + members(f"g{number}", more, at=at + 7, lasts=30, priority=priority)
    nodes = racks(**{f"r{number}": size for number, size in enumerate(sizes)})
    arrivals.sort(key=lambda arrival: arrival.at)
    watched = Watched(Scenario([*nodes, *groups], arrivals))
    Waiting(watched).run(progress=lambda done: None)
    evicted = watched.tally.evicted
    for number, (size, _, _, _) in enumerate(gangs):
        where = watched.racks.get(f"g{number}", [])
        assert evicted or not where or len(where) >= size
        if not evicted and size <= 2 * max(sizes):
            assert len(where) >= size, "a rack is large enough, so it runs in the end"
