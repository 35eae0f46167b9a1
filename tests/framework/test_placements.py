"""The domain of a PodGroup, as kube-scheduler chooses it with the gate TopologyAwareWorkloadScheduling.

All nodes of a rack `r1` are named `r1-0`, `r1-1`, …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import count
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.framework.decide.gang_domains import Shortfall
from kube_policy_scheduler.framework.decide.placements import number_compared
from kube_policy_scheduler.framework.groups.plan import Plan
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, Feature, KubernetesRules
from kube_policy_scheduler.policy.answer import Answer, Answers
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.tooling.cluster_state import cluster_state, waiting
from kube_policy_scheduler.tooling.simulation.run import Waiting
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario
from kube_policy_scheduler.tooling.why.explain import explain
from tests.framework.test_gang_plan import NOW, Stage
from tests.policy.worlds import node, pod
from tests.test_kubernetes_rules import rules_of
from tests.tooling.simulation.scenarios import variant
from tests.tooling.simulation.test_gang_domains import Watched
from tests.tooling.worlds import ruleset, things_of

Json = dict[str, Any]
GATE = Feature.TOPOLOGY_AWARE_WORKLOAD_SCHEDULING.entry.name
ON = rules_of("1.36", **{GATE: True})
NODE_MEMORY, POD_MEMORY = 64, 1
"""GiB of each node, and of each pod."""
PLAIN = "filter node.ready\n"
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "g"}}, "topologyKey": "host"}
            ]
        }
    }
}


class Rack(NamedTuple):
    """The nodes of a rack."""

    cores: tuple[int, ...]
    """Of each node."""
    held: tuple[int, ...] = ()
    """Cores that a running pod holds on each node; 0 or nothing: none runs there."""


def even(nodes: int, held: int = 0) -> Rack:
    """Return a rack of nodes with two cores each, so many of which are held."""
    return Rack((2,) * nodes, tuple(min(2, max(0, held - 2 * at)) for at in range(nodes)))


class World(NamedTuple):
    """Racks, and a PodGroup whose pods wait."""

    racks: Mapping[str, Rack]
    min_count: int | None
    """None: the group is basic."""
    pods: int
    cores: int = 1
    """Of each pod of the group."""
    apart: bool = False
    """Whether no two of these may be on one node."""

    def group(self) -> objects.PodGroup:
        policy: Json = {"basic": {}} if self.min_count is None else {"gang": {"minCount": self.min_count}}
        spec = {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": "rack"}]}}
        return msgspec.convert({"metadata": {"name": "g", "namespace": "default"}, "spec": spec}, objects.PodGroup)

    def there(self, members: Sequence[Json] = ()) -> list[Any]:
        """Return all objects. members: those of the group that are there, in short form."""
        nodes = [
            {
                "name": f"{name}-{at}",
                "cpu": cores,
                "mem": f"{NODE_MEMORY}Gi",
                "labels": {"rack": name, "host": f"{name}-{at}"},
            }
            for name, rack in self.racks.items()
            for at, cores in enumerate(rack.cores)
        ]
        held = [
            {"name": f"held-{name}-{at}", "cpu": cores, "mem": f"{POD_MEMORY}Gi", "node": f"{name}-{at}"}
            for name, rack in self.racks.items()
            for at, cores in enumerate(rack.held)
            if cores
        ]
        return [self.group(), *things_of(nodes, [*held, *members])]

    def members(self, number: int) -> list[Json]:
        spec: Json = {"schedulingGroup": {"podGroupName": "g"}} | (APART if self.apart else {})
        form = {"cpu": self.cores, "mem": f"{POD_MEMORY}Gi", "spec": spec, "labels": {"app": "g"}}
        return [{"name": f"m{at}", **form} for at in range(number)]

    def answers(self, rules: KubernetesRules = ON, *, text: str = PLAIN) -> list[Answer]:
        """Return what becomes of each member if it is decided first."""
        things = self.there(self.members(self.pods))
        return [answer(things, f"default/m{at}", rules, text=text) for at in range(self.pods)]

    def rack(self, rules: KubernetesRules = ON, *, text: str = PLAIN) -> str | None:
        """Return the rack that the group gets, whichever of its members is decided first."""
        (only,) = {answer.host and answer.host.partition("-")[0] for answer in self.answers(rules, text=text)}
        return only

    def simulated(self, *numbers: int, rules: KubernetesRules = ON) -> list[str]:
        """Return the racks where the code of the daemon starts members that arrive in turn, so many at a time."""
        made = things_of([], self.members(1))[0]
        arrivals = [
            Arrival(10.0 * turn, f"m{turn}-{at}", made, None)
            for turn, number in enumerate(numbers or (self.pods,))
            for at in range(number)
        ]
        watched = Watched(Scenario(self.there(), arrivals, kubernetes=rules), variant(PLAIN))
        Waiting(watched).run(progress=lambda done: None)
        return watched.racks.get("g", [])


def answer(things: Sequence[Any], key: str, rules: KubernetesRules = ON, *, text: str = PLAIN) -> Answer:
    """Return what becomes of a pod; if it gets a node, `policyctl why` names the same."""
    there = cluster_state(things, rules)
    with waiting(there.find(key), there.cluster) as (free, bound):
        under = ruleset("p", text).rules(there.cluster.templates.pod(free))
        assert under is not None
        inputs = DecisionInputs.of(free, there.cluster, under, now=1e9, pending=Pending(there.pending()))
        found = Answers().answer(inputs)
        assert found.host in (None, explain(inputs, bound=bound).host)
    return found


# --- kube-scheduler's own cases ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("racks", "rack"),
    [
        ({"r1": even(2), "r2": even(3), "r3": even(1)}, "r1"),
        ({"r1": even(2), "r2": even(3, held=2), "r3": even(3, held=1)}, "r2"),
    ],
    ids=["the fullest with room", "what others hold counts"],
)
def test_a_gang_gets_the_rack_that_is_fullest_with_it(racks: Mapping[str, Rack], rack: str) -> None:
    there = World(racks, 3, 3)

    assert there.rack() == rack
    assert there.simulated() == [rack] * 3


def test_placed_members_fix_the_rack() -> None:
    there = World({"r1": even(3), "r2": even(2)}, 3, 3)

    assert there.simulated(3, 1, 1) == ["r2"] * 4, "the fifth waits, though r1 is empty"


def test_members_in_two_racks_are_an_error() -> None:
    there = World({"r1": even(2), "r2": even(2)}, 3, 1)
    placed = [{**form, "name": f"on-{rack}", "node": f"{rack}-0"} for rack in there.racks for form in there.members(1)]
    found = answer(there.there([*placed, *there.members(1)]), "default/m0")

    assert found.host is None
    assert "its placed members are in 2 domains of rack" in found.text


# --- where it differs from the fullest rack with room --------------------------------------------------------

ROOM_FOR_ALL = {"r1": Rack((4,), (3,)), "r2": Rack((4, 4), (2, 1))}
"""r1 is full with one more core; r2 has room for five."""


def test_a_rack_with_room_for_more_pods_wins_over_a_fuller_one() -> None:
    there = World(ROOM_FOR_ALL, None, 4)

    assert there.rack() == "r2", "r1: (100 + 3) / 2 + 25; r2: (87 + 4) / 2 + 100"
    assert there.simulated() == ["r2"] * 4
    assert there.rack(DEFAULT_RULES) == "r1", "without the gate, the pods that the group needs count"


@pytest.mark.parametrize(("rule", "rack"), [("tightest", "r1"), ("roomiest", "r2")])
def test_what_a_policy_says_comes_first(rule: str, rack: str) -> None:
    there = World(ROOM_FOR_ALL, None, 4)

    assert there.rack(text=f"{PLAIN}domains by {rule}\n") == rack


def test_memory_counts_as_much_as_cpu() -> None:
    there = World({"r1": even(2), "r2": Rack((4,))}, 2, 2)

    assert there.rack() == "r2", "half of the cores in both; of the memory 3 % against 1 %"


def test_members_are_tried_and_not_only_counted() -> None:
    """By resources r1 has room for all, and would be the fullest, but each node takes one of them."""
    there = World({"r1": Rack((3,)), "r2": even(3)}, 3, 3, apart=True)

    assert there.rack() == "r2"
    assert there.simulated() == ["r2"] * 3


def test_a_group_that_fits_nowhere_says_what_is_missing_in_the_best_rack() -> None:
    there = World({"r1": even(2), "r2": even(3)}, 7, 7)

    assert {found.text for found in there.answers()} == {
        'gang "default/g" starts with 7 pods (PodGroup g): rack r2 lacks 1 cpu: 7 requested by 7 pods, 6 free'
    }


def test_since_1_37_only_a_share_of_the_racks_is_compared_in_a_large_cluster() -> None:
    """400 nodes: 92.8 % of 20 racks are 19. The last by the pods that are needed is the best by all of them."""
    racks = {f"r{at:02}": Rack((1,) * 20, (1,) * 19) for at in range(19)} | {"wide": Rack((1,) * 20, (1,) * 10)}
    there = World(racks, None, 4)

    assert set(there.simulated(rules=ON)) == {"wide"}
    assert set(there.simulated(rules=rules_of("1.37", **{GATE: True}))) == {"r00"}


@given(st.integers(34, 38), st.integers(0, 3000), st.integers(0, 20_000))
def test_the_share_falls_with_the_number_of_nodes(minor: int, placements: int, nodes: int) -> None:
    """From all to 10 % at 5,000 nodes, and never below 5 %; rounded up."""
    compared = number_compared(placements, nodes, rules_of(f"1.{minor}"))

    share = max(Fraction(1, 20), 1 - Fraction(9, 10) * nodes / 5000) if minor >= 37 else Fraction(1)
    assert 0 <= compared - placements * share < 1


# --- random clusters -----------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> World:
    racks = {}
    for name in ("r1", "r2", "r3", "r4")[: draw(st.integers(1, 4))]:
        cores = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
        racks[name] = Rack(cores, tuple(draw(st.integers(0, most)) for most in cores))
    min_count = draw(st.none() | st.integers(1, 4))
    return World(racks, min_count, draw(st.integers(min_count or 1, 5)), draw(st.integers(1, 2)))


def room_of(world: World, rack: str) -> int:
    """Return how many pods of the group fit in a rack."""
    cores, held = world.racks[rack]
    used = (*held, *(0 for _ in cores))
    return min(world.pods, sum((most - less) // world.cores for most, less in zip(cores, used, strict=False)))


def scores_of(world: World) -> dict[str, int]:
    """Return the scores of the racks with room for enough pods."""
    fits = {name: room_of(world, name) for name in world.racks}
    possible = {name: pods for name, pods in fits.items() if pods >= (world.min_count or 1)}
    scores = {}
    for name, pods in possible.items():
        rack = world.racks[name]
        cpu = 100 * (sum(rack.held) + pods * world.cores) // sum(rack.cores)
        running = sum(1 for cores in rack.held if cores)
        memory = 100 * (running + pods) * POD_MEMORY // (NODE_MEMORY * len(rack.cores))
        scores[name] = (cpu + memory) // 2 + 100 * pods // max(possible.values())
    return scores


@given(worlds())
def test_a_group_gets_the_rack_with_the_highest_score(world: World) -> None:
    scores = scores_of(world)
    best = min(scores, key=lambda name: (-scores[name], name), default=None)

    assert world.rack() == best
    assert world.simulated() == ([best] * room_of(world, best) if best else [])


def stage_of(
    world: World, *, rules: KubernetesRules = ON, nominated: Mapping[str, str] | None = None
) -> tuple[Stage, QueuedPod, dict[str, int]]:
    """Return a stage with the nodes and the group, its first member, and the cores of the nodes; nothing runs there.

    Nodes without a rack are there so that one that changes is one of many. nominated: the racks to whose first node
    members are nominated, by name.
    """
    stage, cores = Stage({f"n{at}": 1 for at in range(40)}, [], rules=rules), dict[str, int]()
    stage.cluster.set_object(world.group())
    for name, rack in world.racks.items():
        for at, most in enumerate(rack.cores):
            stage.cluster.set_node(node(f"{name}-{at}", cpu=str(most), rack=name))
            cores[f"{name}-{at}"] = most
    for at in range(world.pods):
        requests = {"cpu": str(world.cores), "memory": f"{POD_MEMORY}Gi"}
        containers = [{"name": "c", "resources": {"requests": requests}}]
        group = {"schedulingGroup": {"podGroupName": "g"}}
        member = pod(stage.cluster, f"m{at}", containers=containers, **group)
        if wanted := (nominated or {}).get(f"m{at}"):
            member = msgspec.structs.replace(member, nominated_node=f"{wanted}-0")
            stage.cluster.nominate(member, f"{wanted}-0")
        stage.queue.add(member, NOW)
    first = stage.queue.pop(NOW)
    assert first is not None
    return stage, first, cores


def hosts_of(found: Plan | Shortfall) -> list[str]:
    decisions = found.decisions.values() if isinstance(found, Plan) else ()
    return [decision.host for decision in decisions if decision.host is not None]


@given(worlds(), st.integers(0, 12), st.integers(0, 11))
def test_a_plan_in_turns_holds_though_a_rack_changes_meanwhile(world: World, turn: int, on: int) -> None:
    """A pod that takes a core of some node between two turns, perhaps in a rack that was tried already."""
    stage, first, cores = stage_of(world)
    turns, changed = count(), sorted(cores)[on % len(cores)]

    def between() -> None:
        if next(turns) == turn:
            stage.run("other", changed, cores=1, priority=0)
            cores[changed] -= 1

    hosts = hosts_of(stage.planned(first, most=1, between=between))
    needed = world.min_count or 1
    room = {
        rack: sum(most // world.cores for name, most in cores.items() if name.startswith(rack)) for rack in world.racks
    }
    assert len(hosts) == (needed if max(room.values()) >= needed else 0)
    assert len({name.partition("-")[0] for name in hosts}) <= 1
    assert all(hosts.count(name) * world.cores <= most for name, most in cores.items())


@given(worlds(), st.integers(37, 38), st.data())
def test_since_1_38_the_rack_to_which_most_pods_are_nominated_comes_first(
    world: World, minor: int, data: st.DataObject
) -> None:
    world = world._replace(racks={name: Rack(rack.cores) for name, rack in world.racks.items()})
    numbers, nominated = Counter[str](), dict[str, str]()
    for at in range(world.pods):
        rack = data.draw(st.sampled_from(["", *world.racks]))
        if rack and (numbers[rack] + 1) * world.cores <= world.racks[rack].cores[0]:  # they keep their room
            numbers[rack] += 1
            nominated[f"m{at}"] = rack
    scores = scores_of(world)
    best = min(scores, key=lambda name: (-scores[name], name), default=None)
    first = [name for name in scores if numbers[name] == max(numbers.values(), default=-1)]
    expected = set(first) if minor >= 38 and first else {best} - {None}

    stage, member, _ = stage_of(world, rules=rules_of(f"1.{minor}", **{GATE: True}), nominated=nominated)
    racks = {name.partition("-")[0] for name in hosts_of(stage.planned(member))}

    assert racks <= expected
    assert len(racks) == min(1, len(expected))


@pytest.mark.parametrize("turn", range(12))
def test_the_best_rack_is_left_if_it_lost_room_while_others_were_tried(turn: int) -> None:
    stage, first, _ = stage_of(World({"r1": Rack((2,)), "r2": Rack((2,))}, 2, 2))
    turns = count()

    def between() -> None:
        if next(turns) == turn:
            stage.run("other", "r1-0", cores=1, priority=0)

    hosts = hosts_of(stage.planned(first, most=1, between=between))
    is_changed = next(turns) > turn
    assert hosts == ["r2-0" if is_changed else "r1-0"] * 2
