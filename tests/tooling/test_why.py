"""`policyctl why`: what it says is what the cycle decides, and every change that it suggests was tried."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.embedded import EmbeddedCluster
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.decision_inputs import KUBERNETES, DecisionInputs, Rules
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.policy.policy_set import PolicySet, load
from kube_policy_scheduler.tooling.cluster_state import ClusterState, UnknownPod, cluster_state, stored_objects, waiting
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object
from kube_policy_scheduler.tooling.tester.metrics import Metrics
from kube_policy_scheduler.tooling.text_table import Terminal
from kube_policy_scheduler.tooling.why import report
from kube_policy_scheduler.tooling.why.explain import Explanation, explain
from tests.tooling.worlds import EMPTY, SCHEDULER, things_of


def cluster_of(nodes: Sequence[dict[str, Any]], pods: Sequence[dict[str, Any]] = ()) -> ClusterState:
    return cluster_state(things_of(nodes, [{"name": f"pod-{at}", **pod} for at, pod in enumerate(pods)]))


def rules_of(text: str) -> Rules:
    def recompile(sources: Sequence[Source]) -> PolicySet | None:
        return load(sources).policy_set

    source = Source("a.policy", text)
    made = recompile([source])
    assert made is not None
    (policy,) = made.policies
    return Rules(policy.profile, policy, (source,), recompile)


def inputs(there: ClusterState, pod: dict[str, Any], rules: Rules = KUBERNETES, **metrics: Any) -> DecisionInputs:
    form = FixtureObject(pod_object(pod, name="asked", uid="asked"), EMPTY, ())
    (made,) = stored_objects([form], scheduler=SCHEDULER)
    queries = rules.policy.queries if rules.policy is not None else ()
    signals = Metrics().over(metrics).signals(queries, now=0.0) if metrics else Signals.EMPTY
    return DecisionInputs.of(made, there.cluster, rules, signals=signals)


NODES = [
    {"name": "a1", "cpu": 4, "mem": "16Gi", "labels": {"disk": "ssd"}},
    {"name": "b1", "cpu": 8, "mem": "16Gi", "labels": {"disk": "ssd"}, "taints": ["dedicated=gpu:NoSchedule"]},
    {"name": "c1", "cpu": 4, "mem": "16Gi", "unschedulable": True},
]
COOL = 'filter (promql("cpu_usage") ?? 50) < 80 as cool'
SITUATIONS: dict[str, tuple[dict[str, Any], Rules, dict[str, Any]]] = {
    "too big": ({"cpu": 5}, KUBERNETES, {}),
    "wrong label": ({"cpu": 1, "node_selector": {"disk": "nvme"}}, KUBERNETES, {}),
    "both": ({"cpu": 5, "node_selector": {"disk": "nvme"}}, KUBERNETES, {}),
    "too hot": ({"cpu": 1}, rules_of(COOL), {"cpu_usage": {"a1": 83.1, "b1": 90, "c1": 90}}),
    "refused": ({"cpu": 1}, rules_of('require pod.label.tenant is not missing else "no tenant"\nscore 1'), {}),
    "held": ({"cpu": 1}, rules_of("hold if pod.label.tenant is missing\nscore 1"), {}),
}


def explained(name: str) -> tuple[DecisionInputs, Explanation]:
    pod, rules, metrics = SITUATIONS[name]
    asked = inputs(cluster_of(NODES), pod, rules, **metrics)
    return asked, explain(asked)


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_pod_that_fits_nowhere_has_a_cause(name: str) -> None:
    _, found = explained(name)
    assert found.fits == 0
    assert found.host is None
    assert found.cause is not None
    assert found.cause.words


@pytest.mark.parametrize("name", sorted(SITUATIONS.keys() - {"held"}))
def test_the_first_refusers_share_out_all_nodes(name: str) -> None:
    _, found = explained(name)
    assert sum(line.first for line in found.lines if not line.within) == found.nodes


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_filter_refuses_alone_what_it_refuses_as_the_only_one(name: str) -> None:
    asked, found = explained(name)
    by_name = {plugin.name: plugin for plugin in asked.profile.filters}
    for line in found.lines:
        if line.within:
            continue
        alone = evaluate(asked.frame(), Profile("alone", (by_name[line.name],)))
        assert line.alone == found.nodes - len(alone.feasible)


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_cluster_is_as_before(name: str) -> None:
    pod, rules, metrics = SITUATIONS[name]
    there = cluster_of(NODES, [{"cpu": 1, "node": "a1"}])
    before = _state(there)
    explain(inputs(there, pod, rules, **metrics))
    assert _state(there) == before


def _state(there: ClusterState) -> Any:
    nodes = there.cluster.nodes
    columns = {name: (nodes.requested(name).tolist(), nodes.allocatable(name).tolist()) for name in ("cpu", "memory")}
    return nodes.names, columns, [info.node for info in nodes.infos], sorted(there.cluster.pods)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("too big", "request 4 cpu or less, instead of 5"),
        ("too big", "tolerate the taint dedicated=gpu:NoSchedule"),
        ("too big", "remove the taint dedicated=gpu:NoSchedule from b1"),
        ("wrong label", "remove disk=nvme from the node selector"),
        ("wrong label", "label a1 with disk=nvme"),
        ("too hot", '`(promql("cpu_usage") ?? 50) < 80` with 83.2 instead of 80 (a.policy:1:38)'),
    ],
)
def test_the_smallest_change_is_found(name: str, change: str) -> None:
    _, found = explained(name)
    assert change in [one.text for one in found.changes]


def test_the_cause_is_what_keeps_it_from_the_closest_nodes_not_from_most() -> None:
    far = [
        {"name": f"n{at}", "cpu": 8, "taints": ["dedicated=gpu:NoSchedule"], "unschedulable": True} for at in range(3)
    ]
    there = cluster_of([{"name": "near", "cpu": 4}, *far])
    found = explain(inputs(there, {"cpu": 5}))
    assert found.cause is not None
    assert (found.cause.name, found.cause.words) == ("NodeResourcesFit", "too little free cpu")
    assert report.reason(found) == "Main cause: too little free cpu (NodeResourcesFit): 1 of 4 nodes"


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("filter fits(cpu)\n", {"NodeResourcesFit": 0, "fits(cpu)": 0}),
        ("filter fits(cpu)\nfilter fits(mem)\n", {"NodeResourcesFit": 0, "fits(cpu)": 0, "fits(mem)": 0}),
        ("filter label disk=ssd as a\nfilter label disk=ssd as b\n", {"NodeResourcesFit": 1, "a": 0, "b": 0}),
        ("filter label disk=ssd as a\n", {"NodeResourcesFit": 1, "a": 1}),
        (
            "filter node.ready and label disk=ssd as a\n",
            {"NodeResourcesFit": 1, "a": 1, "node.ready": 0, "label disk=ssd": 1},
        ),
        (
            "filter label disk=ssd and label gpu as a\n",
            {"NodeResourcesFit": 0, "a": 1, "label disk=ssd": 0, "label gpu": 0},
        ),
    ],
)
def test_two_lines_never_claim_the_same_node_as_rejected_by_one_of_them_only(text: str, only: dict[str, int]) -> None:
    nodes = [{"name": "a", "cpu": 1, "mem": 9, "labels": {"disk": "ssd"}}, {"name": "b", "cpu": 8, "mem": 9}]
    found = explain(inputs(cluster_of(nodes), {"cpu": 5, "mem": 1}, rules_of(text)))
    assert {line.name: line.only for line in found.lines if line.name in only} == only
    whole = [line for line in found.lines if not line.within]
    assert sum(line.only for line in whole) <= found.nodes


def test_no_change_is_claimed_where_two_are_needed() -> None:
    _, found = explained("both")
    assert not found.changes


@pytest.mark.parametrize("name", ["refused", "held"])
def test_leaving_out_the_clause_that_refuses_the_pod_is_a_change(name: str) -> None:
    _, found = explained(name)
    assert [one.kind for one in found.changes] == ["policy"]
    assert found.changes[0].node == "a1"


def test_the_suggested_lower_request_fits_and_a_little_more_does_not() -> None:
    there = cluster_of(NODES, [{"cpu": "2750m", "node": "a1"}])
    found = explain(inputs(there, {"cpu": 2}))
    assert found.changes[0].text == "request 1250m cpu or less, instead of 2"
    for cpu, host in (("1250m", "a1"), ("1251m", None)):
        asked = inputs(there, {"cpu": cpu})
        assert Cycle().decide(asked.frame(), asked.profile).host == host


def test_fits_and_node_resources_fit_are_one_obstacle() -> None:
    found = explain(inputs(cluster_of(NODES[:1]), {"cpu": 5}, rules_of("filter node.ready and fits(cpu, mem)")))
    assert found.near[0].obstacles == 1
    assert found.cause is not None
    assert (found.cause.name, found.cause.place) == ("fits(cpu, mem)", "a.policy:1:23")


def test_the_ranking_adds_up_and_the_margin_is_the_difference() -> None:
    rules = rules_of('score 100 - promql("cpu_usage") ?? 50\nscore 5 if label disk=ssd')
    nodes = [{"name": name, "cpu": 4, "mem": "8Gi", "labels": {"disk": disk}} for name, disk in
             (("a", "ssd"), ("b", "hdd"), ("c", "hdd"))]  # fmt: skip
    asked = inputs(cluster_of(nodes), {"cpu": 1}, rules, cpu_usage={"a": 20, "b": 10, "c": 70})
    rank = explain(asked).ranking
    assert rank is not None
    assert rank.nodes == ("b", "a", "c")
    for at, total in enumerate(rank.totals):
        assert sum(term.scores[at] for term in rank.terms) == total
    assert rank.margin == rank.totals[0] - rank.totals[1] == 5
    assert rank.ties == 1
    values = {part.text: part.values for term in rank.terms for part in term.parts}
    assert values['promql("cpu_usage")'] == (10.0, 20.0, 70.0)
    assert values["label disk=ssd"] == (False, True, False)


def test_the_value_and_its_age_are_shown_of_metrics_that_are_not_of_nodes() -> None:
    rules = rules_of(
        'metric watts = promql("watts") by rack as node.label.rack\n'
        'metric budget = promql("budget") default 0 by tenant as pod.label.tenant\n'
        "score budget - watts ?? 0 as cool"
    )
    nodes = [{"name": name, "cpu": 4, "mem": "8Gi", "labels": {"rack": name}} for name in ("a", "b")]
    asked = inputs(cluster_of(nodes), {"cpu": 1, "labels": {"tenant": "red"}}, rules)
    at = asked.now - 7
    readings = [
        Reading("watts", (Series({"rack": "a"}, 5.0, at), Series({"rack": "b"}, 9.0, at)), at, at),
        Reading("budget", (Series({"tenant": "red"}, 100.0, at),), at, at),
    ]
    rank = explain(msgspec.structs.replace(asked, signals=Signals.of(readings))).ranking
    assert rank is not None
    parts = {part.text: part for term in rank.terms for part in term.parts}
    assert (rank.nodes, rank.totals) == (("a", "b"), (95.0, 91.0))
    watts, budget = parts['promql("watts")'], parts['promql("budget")']
    assert (watts.values, watts.ages) == ((5.0, 9.0), (7.0, 7.0))
    assert (budget.values[0], budget.ages[0]) == (100.0, 7.0)


def test_clauses_of_one_name_count_each() -> None:
    rules = rules_of("score 5 if label disk=ssd\nscore 5 if label disk=hdd\nscore 1 if label disk=hdd")
    nodes = [{"name": name, "cpu": 4, "mem": "8Gi", "labels": {"disk": disk}} for name, disk in
             (("a", "ssd"), ("b", "hdd"))]  # fmt: skip
    asked = inputs(cluster_of(nodes), {"cpu": 1}, rules)
    rank = explain(asked).ranking
    assert rank is not None
    assert (rank.nodes, rank.totals) == (("b", "a"), (6.0, 5.0))
    assert [term.scores for term in rank.terms] == [(0.0, 5.0), (5.0, 0.0), (1.0, 0.0)]


def test_a_part_that_is_a_label_is_asked_whether_it_holds() -> None:
    found = explain(inputs(cluster_of(NODES), {"cpu": 5}, rules_of("filter fits(cpu, mem) and label disk=ssd")))
    assert {line.name: line.alone for line in found.lines if line.within} == {"fits(cpu, mem)": 2, "label disk=ssd": 1}


def test_a_limit_is_raised_as_far_as_the_pod_needs() -> None:
    rules = rules_of("limit sum(request.cpu) by pod.label.tenant to 1")
    there = cluster_of(NODES, [{"cpu": "900m", "node": "a1", "labels": {"tenant": "t"}}])
    found = explain(inputs(there, {"cpu": "500m", "labels": {"tenant": "t"}}, rules))
    texts = [one.text for one in found.changes]
    assert "`limit sum(request.cpu) by pod.label.tenant to 1` with 1.4 instead of 1 (a.policy:1:47)" in texts
    assert "request 100m cpu or less, instead of 500m" in texts


def test_a_bound_pod_does_not_conflict_with_itself() -> None:
    there = cluster_of(NODES[:1], [{"name": "whole", "cpu": 4, "node": "a1"}])
    pod = there.find("whole")
    with waiting(pod, there.cluster) as (free, bound):
        found = explain(DecisionInputs.of(free, there.cluster, KUBERNETES), bound=bound)
    assert (found.bound, found.host, found.fits) == ("a1", "a1", 1)
    assert there.cluster.node_of(pod.metadata.uid) == "a1"


def test_an_ambiguous_pod_needs_its_namespace() -> None:
    there = cluster_of(NODES, [{"name": "web", "namespace": space} for space in ("a", "b")])
    assert there.find("web", namespace="b").metadata.namespace == "b"
    with pytest.raises(UnknownPod, match="a/web, b/web"):
        there.find("web")


def test_five_thousand_nodes_are_explained() -> None:
    nodes = [{**NODES[at % 2], "name": f"n{at}"} for at in range(5000)]
    there = cluster_of(nodes, [{"name": f"p{at}", "cpu": 2, "node": f"n{at}"} for at in range(5000)])
    text = f"filter node.ready and fits(cpu, mem)\n{COOL}\nspread by pod.label.tenant"
    asked = inputs(there, {"cpu": 7}, rules_of(text), cpu_usage={f"n{at}": at % 100 for at in range(5000)})
    began = time.perf_counter()
    found = explain(asked)
    # a quarter of a second on a quiet machine; this only finds a blow-up
    assert time.perf_counter() - began < 20
    assert found.changes


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    with EmbeddedCluster(kubelets=None, controllers=None).in_thread() as cluster:
        cluster.load([node_object({"name": "a1", "cpu": 4, "mem": "8Gi"})])
        cluster.load([pod_object({"name": "big", "cpu": 8}, name="big", uid="big")])
        cluster.kubeconfig(tmp_path / "kubeconfig")
        yield tmp_path / "kubeconfig"


def test_a_live_cluster_is_read(live: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "big", "--kubeconfig", str(live), "--format=json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["cause"]["words"] == "too little free cpu"
    assert shown["near"][0]["lacks"] == ["needs 4 more cpu: 4 of 4 free"]


def test_a_gang_that_no_rack_holds_is_told_how_much_room_the_best_ones_have() -> None:
    nodes = [
        {"name": f"r{rack}-{at}", "cpu": 2, "labels": {"rack": f"r{rack}"}} for rack in range(7) for at in range(2)
    ]
    there = cluster_of(nodes, [{"node": "r3-0", "cpu": 2}, {"node": "r4-0", "cpu": 1}])
    rules = rules_of("gang by pod.label.job size 5 within one rack\nrequire pod label job")
    asked = inputs(there, {"cpu": 1, "labels": {"job": "train"}}, rules)
    found = explain(msgspec.structs.replace(asked, pending=Pending(_pending(there, "train", 4))))
    assert [(str(each.domain), each.room, each.needed) for each in found.domains] == [
        *((f"rack=r{rack}", 4, 5) for rack in (0, 1, 2, 5, 6)),
    ]
    text = "\n".join(report.lines(found, to=Terminal(width=100)))
    assert "Domains with the most room for the gang:" in text
    assert "rack=r0  4 of 5 pods  1 too few" in text


def _pending(there: ClusterState, job: str, number: int) -> Iterator[PodInfo]:
    for at in range(number):
        form = FixtureObject(pod_object({"cpu": 1, "labels": {"job": job}}, name=f"m{at}", uid=f"m{at}"), EMPTY, ())
        (made,) = stored_objects([form], scheduler=SCHEDULER)
        yield there.cluster.templates.pod(made)


def test_a_gang_that_lost_pods_is_told_what_becomes_of_the_rest() -> None:
    job = {"labels": {"job": "j"}}
    there = cluster_of([{"name": "a", "cpu": 2}], [{**job, "cpu": 1, "node": "a"}, {**job, "cpu": 1, "node": "a"}])
    asked = inputs(there, {**job, "cpu": 1}, rules_of("gang by pod.label.job size 3 within 10min\n"))
    asked = msgspec.structs.replace(asked, pending=Pending([asked.pod]))
    text = "\n".join(report.lines(explain(asked), to=Terminal()))
    goes = "those that run are evicted 10 min after others were lost unless it is complete by then"
    assert goes in " ".join(text.split())
