"""Laws over random clusters: all commands, the playground, canaries and the simulated daemon give one answer for a pod.

Gangs with roles and racks, PodGroups, holds, gates, limits, quotas, strict orders, devices and extended resources are
drawn. Ties fall by name, so that no answer hangs on the name that a tool gives a pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.writing import yaml_text
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.policy.answer import Answer, Answers, GangWaits, Held, Placed
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules, unbound
from kube_policy_scheduler.tooling.capacity.seats import Seats
from kube_policy_scheduler.tooling.capture.reduce import ReducibleInputs
from kube_policy_scheduler.tooling.cluster_state import waiting
from kube_policy_scheduler.tooling.drift import DriftOptions, drift
from kube_policy_scheduler.tooling.impact.replay import replay, steps_of
from kube_policy_scheduler.tooling.simulation.run import run as simulate
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from kube_policy_scheduler.tooling.tester.outcome import CompiledPolicies, Outcome
from kube_policy_scheduler.tooling.tester.run import SuiteRun
from kube_policy_scheduler.tooling.tester.suite_file import Fixtures, read_suite
from tests.tooling.test_one_answer import NOW, World, pod_group
from tests.tooling.worlds import EMPTY, SCHEDULER, things_of

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Drawn:
    """A cluster under a policy, with one pod or one gang that waits, and perhaps a pod before it."""

    policy: str
    nodes: tuple[Json, ...]
    placed: tuple[Json, ...]
    pending: tuple[Json, ...]
    """The gang, or one pod."""
    rival: tuple[Json, ...]
    """A pod of higher priority that does not fit now; of no gang."""
    more: tuple[Any, ...]

    @property
    def world(self) -> World:
        made = things_of(self.nodes, (*self.placed, *self.pending, *self.rival))
        return World([*self.more, *made], self.policy)

    @property
    def keys(self) -> list[str]:
        return [f"shop/{form['name']}" for form in self.pending]


GANG = "gang by pod.label.job size {size}{roles}{within} if pod label job\n"


CLAIMS = {"spec": {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]}}
"""Of a pod that claims one device."""


def devices(number: int) -> tuple[Any, ...]:
    """Return devices of the first node, and the template of claims of one of them."""
    made = [{"name": f"d{at}", "capacity": {"memory": {"value": f"{at + 1}Gi"}}} for at in range(number)]
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    claim = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    return (
        msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, objects.DeviceClass),
        msgspec.convert(
            {
                "metadata": {"name": "s"},
                "spec": {"driver": "gpu", "nodeName": "n0", "pool": pool, "devices": made},
            },
            objects.ResourceSlice,
        ),
        msgspec.convert({"metadata": {"name": "t", "namespace": "shop"}, "spec": claim}, objects.ResourceClaimTemplate),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    """Draw one; everything is small, so that there is room for some, and not for others."""
    nodes = [
        {
            "name": f"n{at}",
            "cpu": draw(st.integers(1, 4)),
            "mem": "8Gi",
            "labels": {"rack": draw(st.sampled_from(["r1", "r2"])), **draw(st.sampled_from([{}, {"side": "good"}]))},
            "resources": {GPU: str(draw(st.integers(0, 2)))},
            **draw(
                st.sampled_from([{}, {}, {"taints": ["k=v:NoSchedule"]}, {"unschedulable": True}, {"ready": False}])
            ),
        }
        for at in range(draw(st.integers(1, 4)))
    ]
    kind, claimed = draw(st.sampled_from(["pod", "gang", "group"])), draw(st.sampled_from([None, None, 0, 1, 2]))
    size = draw(st.integers(1, 4))
    member: Json = {"job": "j"} if kind == "gang" else {}
    in_group: Json = {"spec": {"schedulingGroup": {"podGroupName": "g"}}} if kind == "group" else {}
    free = {node["name"]: node["cpu"] for node in nodes}
    placed = []
    for at in range(draw(st.integers(0, 3))):
        on = draw(st.sampled_from(sorted(free)))
        if free[on]:
            free[on] -= 1
            is_member = draw(st.booleans())
            form = {"name": f"p{at}", "namespace": "shop", "cpu": 1, "node": on}
            labels = {"team": "red", **(member if is_member else {})}
            placed.append({**form, "labels": labels, **(in_group if is_member else {})})
    pending = []
    for at in range(1 if kind == "pod" else draw(st.integers(1, 4))):
        labels = {"team": "red", **member, **draw(st.sampled_from([{}, {}, {"role": "driver"}, {"night": "yes"}]))}
        form = {"name": f"m{at}", "namespace": "shop", "cpu": draw(st.integers(1, 2)), "labels": labels}
        extra: Json = draw(st.sampled_from([{}, {}, {}, {"resources": {GPU: "1"}}]))
        spec: Json = {} if kind != "pod" else draw(st.sampled_from([{}, {}, {"schedulingGates": [{"name": "g"}]}]))
        if claimed is not None and kind != "group" and draw(st.booleans()):
            spec = {**spec, **CLAIMS["spec"]}
        pending.append({**form, **extra, **in_group, **({"spec": spec} if spec else {})})
    roles = draw(st.sampled_from(["", " with 1 of role=driver"])) if size > 1 else ""
    within = draw(st.sampled_from(["", " within one rack", " within one rack or any"]))
    lines = ["ties by name\n", draw(st.sampled_from(["", "filter node.ready and fits(cpu, mem)\n"]))]
    lines.append(GANG.format(size=size, roles=roles, within=within) if kind == "gang" else "")
    lines.append(draw(st.sampled_from(["", 'hold if pod.label.night == "yes" else "night"\n'])))
    lines.append(draw(st.sampled_from(["", "", 'limit count() by pod.label.team to 2 else "two"\n'])))
    lines.append(draw(st.sampled_from(["", "", "queue team by pod.label.team max cpu 3\n"])))
    is_strict = draw(st.booleans())
    lines.append("order by -pod.priority strict\n" if is_strict else "")
    lines.append(draw(st.sampled_from(["score least_allocated(cpu)\n", "score most_allocated(cpu)\n"])))
    lines.append(draw(st.sampled_from(["", "score 50 if label side=good\n"])))
    lasts = 'if pod.label.team == "red" then 1h else 2h'
    lines.append(draw(st.sampled_from(["", f"backfill lasts {lasts}\n"])) if is_strict else "")
    rival: list[Json] = []
    if is_strict and draw(st.booleans()):
        largest = max(node["cpu"] for node in nodes)
        fits = any(node["cpu"] == largest == free[node["name"]] for node in nodes)
        cpu = 9 if fits else draw(st.sampled_from([9, largest]))  # it never fits, or once others have ended
        form = {"name": "big", "namespace": "shop", "cpu": cpu, "priority": 10, "labels": {"team": "blue"}}
        rival = [{**form, "spec": {"preemptionPolicy": "Never"}}]
    more: tuple[Any, ...] = (pod_group("g", size),) if kind == "group" and draw(st.integers(0, 4)) else ()
    more += devices(claimed) if claimed is not None else ()
    return Drawn("".join(lines), tuple(nodes), tuple(placed), tuple(pending), tuple(rival), more)


def alone(drawn: Drawn, key: str) -> tuple[Answer, DecisionInputs]:
    """Return the answer if nobody knows of pods that wait."""
    there = drawn.world.state()
    rules = drawn.world.rules.rules(there.cluster.templates.pod(there.find(key)))
    assert rules is not None
    with waiting(there.find(key), there.cluster) as (free, _):
        inputs = DecisionInputs.of(free, there.cluster, rules, now=NOW)
        return Answers().answer(inputs), inputs


def said_by_a_test(drawn: Drawn, form: Json) -> Outcome:
    """Return what `policyctl test` says of the pod."""
    suite: Json = {"policy": "p.policy", "now": "1970-01-01T00:16:40Z", "nodes": list(drawn.nodes)}
    suite |= {"pods": list(drawn.placed)} if drawn.placed else {}
    suite["cases"] = [{"name": "c", "pod": form, "expect": {"schedulable": True}}]
    policy_set = drawn.world.rules.policy_set
    assert policy_set is not None
    fixtures = [
        FixtureObject({"apiVersion": "v1", "kind": type(each).__name__, **msgspec.to_builtins(each)}, EMPTY, ())
        for each in drawn.more
    ]
    read = read_suite(parse_document(Source("t.yaml", yaml_text(suite))))
    made = SuiteRun(read, CompiledPolicies(policy_set), Fixtures(tuple(fixtures)), scheduler=SCHEDULER)
    (case,) = made.result().cases
    (outcome,) = case.outcomes
    return outcome


def simulated(drawn: Drawn) -> dict[str, str]:
    """Return where the simulated daemon puts the pods that wait, by name."""
    world, seen = drawn.world, list[Cluster]()
    pending = [each for each in world.things if isinstance(each, objects.Pod) and not each.spec.node_name]
    standing = [each for each in world.things if each not in pending]
    ordered = sorted(pending, key=lambda pod: -(pod.spec.priority or 0))
    arrivals = [Arrival(0.0, pod.metadata.name, pod) for pod in ordered]
    scenario = Scenario(standing, arrivals, starts_at=NOW, stops_after=1.0)
    variant = PolicyVariant("p", world.rules.policy_set)
    simulate(scenario, variant, seed=0, stopwatch=lambda: 0.0, watch=lambda _, cluster: seen.append(cluster))
    cluster, names = seen[-1], {arrival.name for arrival in arrivals}
    return {pod.name: cluster.node_of(uid) or "" for uid, pod in cluster.pods.items() if pod.name in names}


@given(clusters())
def test_whoever_knows_what_waits_says_the_same(drawn: Drawn) -> None:
    world = drawn.world
    for key in drawn.keys:
        answer = world.answer(key)
        shown = world.playground(key)
        # the playground also says what came of preemption
        said = [text.split(". ")[0].removesuffix(".") for text in (shown["message"], answer.text)]
        assert (shown["chosen"], said[0]) == (answer.host, said[1])
        explained = world.why(key)
        waits = explained.short or explained.is_blocked or explained.cause is not None
        assert answer.host == (None if waits else explained.host)
        there = world.state()
        free = unbound(there.find(key))
        things = [free if thing is there.find(key) else thing for thing in world.things]
        rules = world.rules.rules(there.cluster.templates.pod(free))
        assert rules is not None
        assert ReducibleInputs.of(things, free, rules, seed=0, now=NOW).verdict().host == answer.host


@given(clusters())
def test_whoever_does_not_says_the_same_too(drawn: Drawn) -> None:
    for key, form in zip(drawn.keys, drawn.pending, strict=True):
        answer, inputs = alone(drawn, key)
        policy = inputs.rules.policy
        assert policy is not None
        stable = Rules(msgspec.structs.replace(policy.profile, preempts=False), policy)  # as canaries are compared
        assert Answers().answer(DecisionInputs.at(inputs.frame(), stable)).host == answer.host
        seats = Seats(drawn.world.state(), drawn.world.rules, now=NOW)
        assert seats.answer(seats.cluster.templates.pod(seats.there.find(key))).host == answer.host
        outcome = said_by_a_test(drawn, form)
        assert (outcome.host, outcome.held) == (answer.host, answer.reason if isinstance(answer, Held) else None)
        told = drawn.world.answer(key)
        if not told.requirements and not isinstance(told, Held):
            assert told.host == answer.host
        elif answer.host is None and not isinstance(told, GangWaits):
            assert told.host is None or told.requirements, "only with its gang may a pod get what it does not get alone"


@given(clusters())
def test_the_simulated_daemon_says_the_same(drawn: Drawn) -> None:
    answers = {form["name"]: drawn.world.answer(key) for key, form in zip(drawn.keys, drawn.pending, strict=True)}
    there = simulated(drawn)
    if len(answers) == 1:
        ((name, answer),) = answers.items()
        assert there.get(name) == answer.host
        return
    assert any(isinstance(answer, Placed) for answer in answers.values()) is bool(there.keys() & answers.keys())


@given(clusters())
def test_the_same_policies_change_nothing_and_who_is_where_it_would_go_has_not_drifted(drawn: Drawn) -> None:
    world = drawn.world
    steps = steps_of(world.state(), (world.rules, world.rules), now=NOW)
    found = replay(world.things, world.rules, world.rules, steps=steps)
    assert found.changes == ()
    drifted = {one.pod for one in drift(world.state(), DriftOptions(world.rules, 0.0, NOW)).drifted}
    limited = "limit" in world.text or "queue" in world.text  # whose maximum is exceeded is looked at for all together
    for form in drawn.placed:
        answer = world.answer(f"shop/{form['name']}")
        if answer.host == form["node"] and not limited:
            assert f"shop/{form['name']}" not in drifted
