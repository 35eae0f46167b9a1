"""One pod, one answer: every command, the playground and a test say the same of a pod, gangs and holds included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.playground.session import OpenedCluster, Origin, PodChoice, RequestError, Session
from kube_policy_scheduler.policy.answer import Answer, Answers, GangWaits, Held, NoDomain, Placed, Unschedulable
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, unbound
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.tooling.capture.freeze import Frozen, NotReproduced, frozen
from kube_policy_scheduler.tooling.capture.reduce import ReducibleInputs
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state, waiting
from kube_policy_scheduler.tooling.drift import GANG_SHORT, HELD, Drift, DriftOptions, drift
from kube_policy_scheduler.tooling.impact.replay import Reason, replay, steps_of
from kube_policy_scheduler.tooling.rulesets import Ruleset
from kube_policy_scheduler.tooling.why.explain import Explanation, explain
from kube_policy_scheduler.tooling.why.report import headline
from tests.tooling.worlds import SCHEDULER, ruleset, things_of

Json = dict[str, Any]
RACKS = (
    {"name": "a1", "cpu": 8, "mem": "16Gi", "labels": {"rack": "r1"}},
    {"name": "b1", "cpu": 8, "mem": "16Gi", "labels": {"rack": "r2", "side": "good"}},
)
IN_ONE_RACK = "gang by pod.label.job size 2 within one rack if pod label job\n"
PREFERS_B = "filter node.ready\n" + IN_ONE_RACK + "score 50 if label side=good\n"
NOW = 1000.0


def member(name: str, **more: Any) -> Json:
    return {"name": name, "namespace": "shop", "cpu": 1, "labels": {"job": "j"}, **more}


@lru_cache
def rules_of(text: str) -> Ruleset:
    return ruleset("p", text)


@dataclass(frozen=True)
class World:
    """A cluster under policies."""

    things: Sequence[Any]
    text: str

    @property
    def rules(self) -> Ruleset:
        return rules_of(self.text)

    def state(self) -> ClusterState:
        return cluster_state(self.things)

    def _inputs(self, key: str, there: ClusterState, free: objects.Pod) -> DecisionInputs:
        rules = self.rules.rules(there.cluster.templates.pod(free))
        assert rules is not None
        return DecisionInputs.of(free, there.cluster, rules, now=NOW, pending=Pending(there.pending()))

    def answer(self, key: str) -> Answer:
        there = self.state()
        with waiting(there.find(key), there.cluster) as (free, _):
            return Answers().answer(self._inputs(key, there, free))

    def why(self, key: str) -> Explanation:
        there = self.state()
        with waiting(there.find(key), there.cluster) as (free, bound):
            return explain(self._inputs(key, there, free), bound=bound)

    def session(self) -> tuple[Session, Mapping[str, str]]:
        files = {"p.policy": self.text}
        return Session(files, OpenedCluster("x", Origin.SNAPSHOT, list(self.things), NOW)), files

    def playground(self, key: str) -> Json:
        session, files = self.session()
        verdict: Json = session.evaluate(dict(files), PodChoice(key=key))["verdict"]
        return verdict

    def captured(self, key: str) -> Frozen:
        there = self.state()
        free = unbound(there.find(key))
        things = [free if thing is there.find(key) else thing for thing in self.things]
        rules = self.rules.rules(there.cluster.templates.pod(free))
        assert rules is not None
        return frozen(ReducibleInputs.of(things, free, rules, seed=0, now=NOW), scheduler=SCHEDULER)

    def drift(self, *, margin: float | None = 10.0) -> Drift:
        return drift(self.state(), DriftOptions(self.rules, margin, NOW))

    def impact(self, other: str) -> dict[str, Reason]:
        new = World(self.things, other).rules
        steps = steps_of(self.state(), (self.rules, new), now=NOW)
        found = replay(self.things, self.rules, new, steps=steps)
        return {change.pod: change.reason for change in found.changes}


def world(text: str, *pods: Json, more: Sequence[Any] = (), nodes: Sequence[Json] = RACKS) -> World:
    return World([*things_of(nodes, pods), *more], text)


# --- a gang that is in a rack ----------------------------------------------------------------------------


def test_a_member_follows_its_gang_in_capture_and_drift_as_in_why() -> None:
    there = world(PREFERS_B, member("m1", node="a1"), member("m2"))
    assert there.answer("shop/m2").host == there.why("shop/m2").host == there.playground("shop/m2")["chosen"] == "a1"
    made = there.captured("shop/m2").document
    assert made["cases"][0]["expect"]["node"] == "a1"
    assert [pod["name"] for pod in made["pods"]] == ["m1"], "without it the gang could be anywhere"
    bound = world(PREFERS_B, member("m1", node="a1"), member("m2", node="a1"))
    assert bound.drift().drifted == ()


def test_impact_names_the_filter_for_the_first_member_that_it_moves() -> None:
    there = world("filter node.ready\n" + IN_ONE_RACK, member("m1", node="a1"), member("m2", node="a1"))
    reasons = there.impact("filter node.ready\n" + IN_ONE_RACK + "filter not label rack=r1\n")
    assert reasons["shop/m1"].clause == "filter not label rack=r1"


def test_impact_names_the_gang_if_it_alone_is_in_another_rack() -> None:
    pods = member("m1", node="a1"), member("m2", node="a1")
    there = world(IN_ONE_RACK + "domains by tightest\n", *pods, nodes=(RACKS[0], {**RACKS[1], "cpu": 16}))
    reasons = there.impact(IN_ONE_RACK + "domains by roomiest\n")
    assert (reasons["shop/m1"].kind, reasons["shop/m1"].clause) == ("gang", IN_ONE_RACK.strip())
    assert reasons["shop/m1"].text == "rejects a1: the gang is in rack=r2"


def test_members_in_two_racks_have_drifted_because_of_their_gang() -> None:
    there = world(PREFERS_B, member("m1", node="a1"), member("m2", node="b1"), member("m3", node="b1"))
    found = there.drift()
    assert {(one.pod, one.rejected) for one in found.drifted} >= {("shop/m2", True), ("shop/m3", True)}
    assert {(one.clause, one.place) for one in found.drifted} == {(IN_ONE_RACK.strip(), "p.policy:2:1")}


# --- a gang that has too few pods, no size, or a pod that is held -----------------------------------------


SHORT = "filter node.ready\ngang by pod.label.job size 5 if pod label job\n"
SIZELESS = "filter node.ready\ngang by pod.label.job size number(pod.label.size) if pod label job\n"
ROLES = "gang by pod.label.job size 2 with 1 role=driver if pod label job\n"


def pod_group(name: str, count: int) -> objects.PodGroup:
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
    return msgspec.convert({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, objects.PodGroup)


IN_A_GROUP = {"spec": {"schedulingGroup": {"podGroupName": "g"}}}


def captured_or_why_not(there: World, key: str) -> Json | str:
    """Return the case of the test, or why there is none; the playground says the same."""
    session, files = there.session()
    found: list[Json | str] = []
    for ask in (lambda: there.captured(key), lambda: session.test_of(dict(files), PodChoice(key=key))):
        try:
            found.append(ask().document["cases"][0])
        except (NotReproduced, RequestError) as error:
            found.append(str(error))
    captured, shown = found
    names = [each if isinstance(each, str) else each["name"] for each in (captured, shown)]
    assert names[0] == names[1]
    return captured


@pytest.mark.parametrize(
    ("there", "kind", "says"),
    [
        (world(SHORT, member("m1"), member("m2")), GangWaits, "2 are pending, 3 are missing"),
        (world(SIZELESS, member("m1"), member("m2")), GangWaits, "the size has no value"),
        (world("score 1\n", member("m2", **IN_A_GROUP)), GangWaits, "pod group"),
        (world("score 1\n", member("m2", **IN_A_GROUP), more=[pod_group("g", 3)]), GangWaits, "2 are missing"),
        (world('hold if pod label job else "night"\n', member("m2")), Held, "night"),
        (world("score 1\n", member("m2", spec={"schedulingGates": [{"name": "quota"}]})), Held, "[quota]"),
        (
            world(
                "gang by pod.label.job size 9 within one rack if pod label job\n",
                *(member(f"m{at}", cpu=2) for at in range(1, 10)),
            ),
            NoDomain,
            "rack r1 lacks 10 cpu: 18 requested by 9 pods, 8 free",
        ),
        (world("filter fits(cpu)\n", member("m2", cpu=9)), Unschedulable, "Insufficient cpu"),
    ],
)  # fmt: skip
def test_a_pod_that_gets_no_node_gets_none_anywhere(there: World, kind: type, says: str) -> None:
    answer = there.answer("shop/m2")
    assert isinstance(answer, kind)
    assert answer.host is None
    assert says in answer.text
    shown = there.playground("shop/m2")
    assert shown["chosen"] is None
    assert says in shown["message"]
    explained = there.why("shop/m2")
    assert explained.cause is not None or says in explained.short
    said = captured_or_why_not(there, "shop/m2")
    if isinstance(said, str):
        assert says in said
    else:
        assert "goes to" not in said["name"]
        assert "node" not in said["expect"]


def test_pods_that_would_be_held_have_not_drifted() -> None:
    found = world('hold if pod label job else "night"\nscore 1 if label side=good\n', member("m1", node="a1")).drift()
    assert (found.checked, dict(found.skipped)) == (0, {HELD: 1})
    found = world(SHORT, member("m1", node="a1"), member("m2", node="a1")).drift()
    assert (found.checked, dict(found.skipped)) == (0, {GANG_SHORT: 2})


def test_what_a_pod_waits_for_is_part_of_its_test() -> None:
    made = world("score 1\n" + IN_ONE_RACK, member("m1"), member("m2")).captured("shop/m2").document["cases"][0]
    assert made["expect"]["waits"] == 'gang "shop/j": 1 of 2 members have a node'


STRICT = "order by -pod.priority strict\nfilter fits(cpu)\n"


def test_a_pod_behind_one_that_fits_nowhere_is_held_in_the_playground_and_no_test() -> None:
    there = world(STRICT, member("big", cpu=99, priority=10), member("m2"))
    answer = there.answer("shop/m2")
    assert isinstance(answer, Held)
    assert isinstance(answer.alone, Placed)
    assert "shop/big" in answer.text
    assert there.playground("shop/m2")["chosen"] is None
    ahead = there.why("shop/m2").ahead
    assert ahead is not None
    assert ahead.pod == "shop/big"
    assert headline(there.why("shop/m2")).startswith("shop/m2 would go to ")
    with pytest.raises(NotReproduced, match="shop/big"):
        there.captured("shop/m2")


# --- drift ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_a_lead_that_is_rounding_is_none(margin: float) -> None:
    nodes = [
        {"name": "x", "cpu": 4, "labels": {"a": "1", "b": "1"}},
        {"name": "y", "cpu": 4, "labels": {"c": "1"}},
    ]
    scores = "score 0.1 if label a\nscore 0.2 if label b\nscore 0.3 if label c\n"
    assert 0.1 + 0.2 > 0.3
    found = world(scores, member("m1", node="y"), nodes=nodes).drift(margin=margin)
    assert (found.drifted, found.could_be_better) == ((), 0)
