"""Worked examples of gangs in topology domains: of kube-scheduler, Kueue, KAI and Volcano, as policies say them.

Nodes offer cores, and each member requests one.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.simulation.run import AssumedPod, SimulatedCluster, Waiting
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.tooling.simulation.scenarios import node, pod, variant

ZONE = "topology.kubernetes.io/zone"


def nodes(**free: str) -> list[objects.Node]:
    """Return nodes by rack: `r1="2 2"` is two nodes with two free cores. The rack's first letter is its block."""
    return [
        node(f"{rack}-{number}", cpu=cpu, labels={"rack": rack, "block": rack[0], ZONE: rack[0]})
        for rack, cores in free.items()
        for number, cpu in enumerate(cores.split())
    ]


class Placed(SimulatedCluster):
    """Notes where the pods of each job start."""

    def __init__(self, scenario: Scenario, who: PolicyVariant) -> None:
        super().__init__(scenario, who, seed=0)
        self.hosts: dict[str, list[str]] = {}

    def bind(self, assumed: AssumedPod) -> Any:
        self.hosts.setdefault(assumed.queued.pod.labels["job"], []).append(assumed.host)
        return super().bind(assumed)


def members(job: str, number: int, *, size: int | None = None, at: float = 0, **labels: str) -> list[Arrival]:
    made = pod()
    made.metadata.labels = {"job": job, "size": str(size or number), **labels}
    return [Arrival(at, f"{job}-{each}-{at:g}-{''.join(labels.values())}", made, None) for each in range(number)]


def started(policy: str, things: list[objects.Node], *arrivals: list[Arrival]) -> dict[str, dict[str, int]]:
    """Return by job how many pods each rack has."""
    return {job: by_rack(hosts) for job, hosts in hosts_of(policy, things, *arrivals).items()}


def by_rack(hosts: list[str]) -> dict[str, int]:
    return dict(Counter(host.partition("-")[0] for host in hosts))


def hosts_of(policy: str, things: list[objects.Node], *arrivals: list[Arrival]) -> dict[str, list[str]]:
    every = sorted((one for each in arrivals for one in each), key=lambda arrival: arrival.at)
    placed = Placed(Scenario([*things], every), variant(policy))
    Waiting(placed).run(progress=lambda done: None)
    return placed.hosts


GANG = "gang by pod.label.job size number(pod.label.size) within one {}\n"
RACK = GANG.format("rack")
THREE = members("train", 3)


def test_kube_scheduler_takes_the_fullest_rack() -> None:
    assert started(RACK, nodes(r1="2 2", r2="2 2 2", r3="2"), THREE) == {"train": {"r1": 3}}
    held = nodes(r1="2 2", r2="2 2 2", r3="2 2 2")
    before = [*members("b2", 2, size=1), *members("b3", 1, size=1)]
    hold = "filter label rack=r2 if pod label job=b2\nfilter label rack=r3 if pod label job=b3\n"
    assert started(RACK + hold, held, before, members("train", 3, at=1))["train"] == {"r2": 3}


def test_members_that_are_placed_fix_the_rack() -> None:
    things = nodes(r1="2 2 2", r2="2 2")
    late = members("train", 1, size=3, at=5), members("train", 1, size=3, at=9)
    assert started(RACK, things, THREE, *late) == {"train": {"r2": 4}}, "the fifth waits, though r1 is empty"


@pytest.mark.parametrize(
    ("number", "levels", "racks"),
    [
        (4, "rack", {"c4": 4}),
        (6, "rack", {"a8": 6}),
        (9, "rack", None),
        (9, "rack or zone or any", {"a8": 8, "c4": 1}),
    ],
)
def test_kueue_takes_the_smallest_rack_that_holds_all(number: int, levels: str, racks: dict[str, int] | None) -> None:
    """If no rack does, its BestFit fills the largest, and puts the rest on the smallest that holds it.

    Pod by pod, a policy says so: join the job's rack while there is room, else take the rack with the most room, but
    for the last pods the smallest that holds them.
    """
    best_fit = """
    let room = sum(n.free.cpu for n in domain("rack").nodes) / 1core
    let left = number(pod.label.size) ?? 1 - count(p in cluster.pods where p.label.job == pod.label.job)
    score if room < left then room - 1000 else -room
    score 2000 if count(p in domain("rack").pods where p.label.job == pod.label.job) > 0
    domains by tightest
    """
    things = nodes(a8="8", b5="5", c4="4")
    for each in things:
        each.metadata.labels = {**(each.metadata.labels or {}), ZONE: "z"}
    found = started(GANG.format(levels) + best_fit, things, members("train", number))
    assert found == ({"train": racks} if racks else {})


@pytest.mark.parametrize(
    ("order", "cores"),
    [("BestFit", [3, 3, 0, 1]), ("LeastFreeCapacity", [3, 1, 2, 1])],
)
def test_kueue_on_nodes(order: str, cores: list[int]) -> None:
    best_fit = """
    let left = number(pod.label.size) ?? 1 - count(p in cluster.pods where p.label.job == pod.label.job)
    let free = node.free.cpu / 1core
    score if free < left then free - 1000 else -free
    score 2000 if count(p in node.pods where p.label.job == pod.label.job) > 0
    ties by name
    """
    least_free = "score -node.free.cpu\nties by name\n"
    policy = GANG.removesuffix(" within one {}\n") + "\n" + (best_fit if order == "BestFit" else least_free)
    found = Counter(hosts_of(policy, nodes(r="3 3 2 1"), members("train", 7))["train"])
    assert [found[f"r-{number}"] for number in range(4)] == cores


def test_kai_bounds_with_the_least_room_and_fills_racks_with_the_most() -> None:
    policy = """
    gang by pod.label.job size number(pod.label.size) within one zone
    domains by tightest
    pack by pod.label.job over rack weight 100
    score sum(n.free.cpu for n in domain("rack").nodes)
    """
    things = nodes(a1="1 1", a2="1", a3="1", a4="1", b1="1 1", b2="1 1", b3="1 1")
    found = started(policy, things, THREE)["train"]
    assert found.pop("a1") == 2
    assert list(found.values()) == [1]
    assert found.keys() <= {"a2", "a3", "a4"}


def test_two_gangs_in_a_rack_each_and_both_in_one_block() -> None:
    """As a CompositePodGroup says it. A block with the room in pieces that no rack holds is left again."""
    policy = """
    gang by pod.label.job size number(pod.label.size) within one block
    gang by pod.label.slice size 5 within one rack
    """
    things = nodes(a3="1 1 1", a5="1 1 1 1 1", b5="1 1 1 1 1", b6="1 1 1 1 1")
    slices = [members("train", 5, size=10, slice=name) for name in ("one", "two")]
    assert started(policy, things, *slices) == {"train": {"b5": 5, "b6": 5}}


def test_volcano_counts_a_minimum() -> None:
    """Four of eight members are enough to start; each fills a node, and the others wait for nodes of that domain."""
    things = nodes(r1="1 1 1 1", r2="1 1 1 1")
    found = started(RACK, things, members("train", 8, size=4))
    assert [*found["train"].values()] == [4]


@pytest.mark.parametrize(
    ("domains", "rack"),
    [
        ("", "r1"),
        ("domains by fullest", "r1"),
        ("domains by emptiest", "r2"),
        ("domains by roomiest", "r2"),
        ("domains by tightest", "r3"),
        ("domains by node.free.cpu", "r2"),
        ("domains by node.free.cpu desc", "r1"),
        ("domains by number(node.label.price)", "r3"),
        ("domains by number(node.label.price) desc", "r1"),
        ("domains by node.label.rack is missing, number(node.label.price)", "r3"),
        ("let price = number(node.label.price)\ndomains by price > 1 desc, price", "r2"),
    ],
)
def test_the_policy_says_which_domain(domains: str, rack: str) -> None:
    things = nodes(r1="10", r2="2 2 2", r3="4")
    price = {"r1": "3", "r2": "2", "r3": "1"}
    for each in things:
        each.metadata.labels = {**(each.metadata.labels or {}), "price": price[each.metadata.name.partition("-")[0]]}
    before = members("full", 5, size=1)
    hold = "filter label rack=r1 if pod label job=full\n"
    found = started(f"{RACK}{hold}{domains}\n", things, before, members("train", 3, at=1))
    assert found["train"] == {rack: 3}


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("domains by fulest", "P0405", "fullest"),
        ("domains by pod.priority", "", "the same for every domain"),
        ("domains by node.name", "", "a number to select domains by"),
        ("domains by device_free()", "", "about one device"),
        ("domains by fullest\ndomains by tightest", "", "twice"),
    ],
)
def test_what_does_not_select_a_domain_is_an_error(text: str, code: str, says: str) -> None:
    found = load([Source("a.policy", f"{RACK}{text}\n")]).diagnostics
    assert any(says in f"{each.message} {each.help}" for each in found), [each.message for each in found]


def test_a_name_stands_for_the_label_of_a_topology() -> None:
    text = (
        'let rack = "topology.example.com/rack"\n'
        "gang by pod.label.job size 8 within one rack or any\n"
        "spread by pod.label.app over rack max skew 1\n"
        "limit count() by pod.label.app to 3 over rack\n"
    )
    loaded = load([Source("t.policy", text)])
    assert loaded.policy_set is not None
    assert {each.code for each in loaded.diagnostics} <= {"P0344"}, "of pods without the label alone"
    (found,) = loaded.policy_set.policies
    keys = [getattr(clause, "levels", None) or clause.topology for clause in found.clauses]
    assert keys == [("topology.example.com/rack", None), "topology.example.com/rack", "topology.example.com/rack"]


@pytest.mark.parametrize(
    ("value", "said"),
    [('"a b"', "`a b` cannot be a label key"), ("7", ""), ("pod.label.rack", "")],
    ids=["no label", "a number", "not constant"],
)
def test_only_a_constant_text_is_taken_for_a_label(value: str, said: str) -> None:
    text = f"let rack = {value}\ngang by pod.label.job size 8 within one rack\n"
    loaded = load([Source("t.policy", text)], rules=False)
    messages = [each.message for each in loaded.diagnostics]
    assert [each for each in messages if "label key" in each] == ([said] if said else [])
    if loaded.policy_set is not None:
        (clause,) = loaded.policy_set.policies[0].clauses
        assert clause.levels == ("rack",)  # type: ignore[union-attr]
