"""Shadow mode: what another scheduler decides is compared with what we would have decided, and nothing is written."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kube_policy_scheduler.daemon.fleet.engine import FleetDecision
from kube_policy_scheduler.daemon.fleet.karmada_shadow import compared
from kube_policy_scheduler.daemon.observing.observers import ShadowOutcome
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, Key, PlacementAlone, Question, Template
from kube_policy_scheduler.fleet.karmada.shadow import DecidedByAnother, Onlooker
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady
from tests.fleet.fleets import policies
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC
from tests.fleet.karmada.control_plane import ControlPlane

NOW = Steady(0.0)
OWN_FIRST = """\
filter cluster.name != "c"
score 1 if cluster.name == "a"
divide best first
"""


class Stage:
    """A control plane with a scheduler of its own, played by a decision maker, and one that looks on."""

    def __init__(self, policy: str = "", **clusters: int) -> None:
        self.plane = ControlPlane()
        for name, cpu in (clusters or {"a": 6, "b": 12, "c": 18}).items():
            self.plane.set_cluster(name, cpu=cpu)
        self.other = DecisionMaker(["fleet"], rules=PlacementAlone())
        self.plane.show_all(self.other, 0.0)
        rules = FleetRules(policies(policy), clock=lambda: 1.8e9) if policy else PlacementAlone()
        self.maker = DecisionMaker(["fleet"], rules=rules)
        self.onlooker = Onlooker(self.maker)
        self.maker.replace_clusters([self.plane.cluster(name) for name in self.plane.clusters], NOW)

    def add(self, name: str = "web", **given: Any) -> Key:
        key = self.plane.add(name, **given)
        self.onlooker.set_binding(self.plane.binding(key), NOW)
        self.other.set_binding(self.plane.binding(key), NOW)
        return key

    def change(self, key: Key, **spec: Any) -> None:
        self.plane.change(key, spec)
        self.onlooker.set_binding(self.plane.binding(key), NOW)
        self.other.set_binding(self.plane.binding(key), NOW)

    def let_other_decide(self, *, patches: bool = True) -> None:
        """Let the other decide all; each of its writes is seen."""
        while (work := self.other.next(NOW)) is not None:
            assert not isinstance(work, Question)
            seen: list[Any] = []
            patch = self.plane.patch

            def watched(*given: Any, patch: Any = patch, seen: list[Any] = seen, **named: Any) -> Any:
                seen.append(patch(*given, **named))
                return seen[-1]

            self.plane.patch = watched  # type: ignore[method-assign]  # the test watches each write
            self.plane.carry_out(self.other, work, 0.0)
            self.plane.patch = patch  # type: ignore[method-assign]
            for binding in seen if patches else seen[-1:]:
                self.onlooker.set_binding(binding, NOW)
                self.other.set_binding(binding, NOW)

    def compared(self) -> list[FleetDecision]:
        """Return what is compared by now."""
        found = []
        while (work := self.onlooker.next(NOW)) is not None:
            if isinstance(work, Question):
                self.maker.set_template(work.key, Template({}, {}), NOW)
                continue
            assert isinstance(work, DecidedByAnother)
            self.maker.waiting.settled(work.key, NOW)
            found.append(compared(work))
        return found


@pytest.mark.parametrize("patches", [True, False], ids=["each write is seen", "the last write is seen"])
def test_the_same_rules_agree(patches: bool) -> None:
    stage = Stage()
    stage.add(replicas=12)
    stage.add("copies", replicas=2, placement=DUPLICATED)
    assert stage.compared() == []
    stage.let_other_decide(patches=patches)
    found = stage.compared()
    assert {each.key[1]: each.compared for each in found} == {
        "web-deployment": ShadowOutcome.AGREED,
        "copies-deployment": ShadowOutcome.AGREED,
    }
    assert {each.key[1]: dict(each.theirs) for each in found}["web-deployment"] == {"a": 2, "b": 4, "c": 6}
    assert stage.compared() == []


def test_it_decides_by_the_state_before_the_other_wrote() -> None:
    stage = Stage(a=4, b=8)
    key = stage.add(replicas=6)
    stage.let_other_decide()
    (first,) = stage.compared()
    assert (first.compared, dict(first.before)) == (ShadowOutcome.AGREED, {})
    stage.change(key, replicas=9)
    stage.let_other_decide()
    (second,) = stage.compared()
    assert second.compared is ShadowOutcome.AGREED
    assert sum(second.before.values()) == 6
    assert second.outcome.targets == second.theirs


def test_a_policy_that_divides_otherwise_differs_and_says_where() -> None:
    stage = Stage('score 1 if cluster.name == "a"\ndivide best first\n')
    stage.add(replicas=12)
    stage.let_other_decide()
    (found,) = stage.compared()
    assert found.compared is ShadowOutcome.DIFFERED
    assert found.problem.startswith("a: ours 6, theirs 2 (all that it may have), b: ours ")
    assert found.clauses == frozenset()


def test_a_cluster_that_a_policy_rejects_is_named_with_its_clause() -> None:
    stage = Stage(OWN_FIRST)
    stage.add(replicas=12)
    stage.let_other_decide()
    (found,) = stage.compared()
    assert found.compared is ShadowOutcome.REJECTED
    assert found.problem.startswith("c: ")
    assert len(found.clauses) == 1


def test_what_the_policies_would_not_place() -> None:
    stage = Stage('filter cluster.name == "none"\n')
    stage.add(replicas=12)
    stage.let_other_decide()
    (found,) = stage.compared()
    assert found.compared is ShadowOutcome.NOT_PLACED
    assert dict(found.theirs) == {"a": 2, "b": 4, "c": 6}


def test_what_the_other_could_not_place() -> None:
    stage = Stage("divide evenly partly\n", a=2)
    stage.add(replicas=12)
    stage.let_other_decide()
    (found,) = stage.compared()
    assert found.compared is ShadowOutcome.NOT_BOUND
    assert found.problem.endswith("not enough to schedule.")
    assert dict(found.theirs) == {}


def test_neither_can_place_it() -> None:
    stage = Stage(a=2)
    stage.add(replicas=12)
    stage.let_other_decide()
    (found,) = stage.compared()
    assert found.compared is ShadowOutcome.AGREED


def test_an_eviction_is_not_a_decision_of_the_other() -> None:
    stage = Stage()
    key = stage.add(replicas=12)
    stage.let_other_decide()
    stage.compared()
    stage.plane.evict(key, "c")
    stage.onlooker.set_binding(stage.plane.binding(key), NOW)
    stage.other.set_binding(stage.plane.binding(key), NOW)
    assert stage.compared() == []
    stage.let_other_decide()
    (found,) = stage.compared()
    assert (found.compared, dict(found.before)) == (ShadowOutcome.AGREED, {"a": 2, "b": 4})


def test_what_was_placed_before_and_health_is_not_compared() -> None:
    stage = Stage()
    key = stage.plane.add("web", replicas=12)
    stage.other.set_binding(stage.plane.binding(key), NOW)
    stage.let_other_decide()
    listed = Stage()
    listed.onlooker.replace_bindings([stage.plane.binding(key)], NOW, namespaced=True)
    assert listed.compared() == []
    stage.plane.set_health(key, {"a": True})
    listed.onlooker.set_binding(stage.plane.binding(key), NOW)
    assert listed.compared() == []
    listed.onlooker.replace_bindings([], NOW, namespaced=True)
    assert listed.maker.bindings == {}


def test_replicas_that_are_decided_by_the_other_count_but_not_those_of_the_binding_itself() -> None:
    stage = Stage("divide evenly\n", a=12)
    stage.add(replicas=12)
    stage.let_other_decide()
    (found,) = stage.compared()
    assert found.compared is ShadowOutcome.AGREED  # its own 12 replicas do not take its room
    stage.add("more", replicas=1)
    stage.let_other_decide()
    (found,) = stage.compared()
    assert found.compared is ShadowOutcome.NOT_PLACED  # those of another do


AGGREGATED = {"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}}


@pytest.mark.parametrize("seed", range(12))
def test_the_same_rules_agree_whatever_happens(seed: int) -> None:
    random, stage = Random(seed), Stage()
    keys = [
        stage.add(f"w{number}", replicas=random.randint(1, 12), placement=placement)
        for number, placement in enumerate((DYNAMIC, AGGREGATED, DUPLICATED, DYNAMIC))
    ]
    found: list[FleetDecision] = []
    for _ in range(60):
        key = random.choice(keys)
        match random.choice(("scale", "evict", "end", "health", "cluster", "decide", "decide", "list")):
            case "scale":
                stage.plane.change(key, {"replicas": random.randint(1, 40)})
            case "evict" if stage.plane.targets(key):
                stage.plane.evict(key, random.choice(sorted(stage.plane.targets(key))))
            case "end":
                stage.plane.set_health(key, dict.fromkeys(stage.plane.targets(key), True))
                stage.plane.end_evictions(key)
            case "health":
                stage.plane.set_health(key, {name: random.random() < 0.5 for name in stage.plane.targets(key)})
            case "cluster":
                stage.plane.set_cluster(name := random.choice("abc"), cpu=random.randint(1, 30))
                for maker in (stage.maker, stage.other):
                    maker.set_cluster(stage.plane.cluster(name), NOW)
            case "decide":
                stage.let_other_decide(patches=random.random() < 0.7)
                found += stage.compared()
            case "list":
                listed = [stage.plane.binding(each) for each in keys]
                stage.onlooker.replace_bindings(listed, NOW, namespaced=True)
                found += stage.compared()
        for maker in (stage.onlooker, stage.other):
            maker.set_binding(stage.plane.binding(key), NOW)
    assert len(found) > 5
    assert {each.compared for each in found} == {ShadowOutcome.AGREED}
    for key in keys:
        stage.onlooker.delete_binding(key)
    assert (stage.maker.bindings, stage.compared()) == ({}, [])
