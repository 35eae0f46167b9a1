"""Policies over a cluster: what each statement decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Scope
from kube_policy_scheduler.framework.status import Code, Status
from kube_policy_scheduler.policy.policy_set import load
from tests.lang.clusters import (
    NOW,
    cluster,
    decide,
    feasible,
    node,
    place,
    pod,
    policy,
    policy_set,
    scores,
    signals,
)

RED, BLUE = {"tenant": "red"}, {"tenant": "blue"}


# --- the four lines --------------------------------------------------------------------------------------


def test_filter_keeps_nodes_that_are_ready_and_have_room() -> None:
    nodes = cluster(node("ready"), node("down", ready=False), node("small", allocatable={"cpu": "200m"}))

    result = decide(policy("filter node.ready and fits(cpu, mem)"), pod(nodes, "p"), nodes)

    assert feasible(result, nodes) == ["ready"]


def test_score_follows_the_metric() -> None:
    nodes = cluster(node("cool"), node("hot"))
    result = decide(
        policy('score 2 * (100 - promql("cpu_usage"))'),
        pod(nodes, "p"),
        nodes,
        signals=signals("cpu_usage", {"cool": 10, "hot": 90}),
    )

    assert scores(result, nodes, '2 * (100 - promql("cpu_usage"))') == {"cool": 180, "hot": 20}


def test_score_of_a_label_counts_only_where_the_label_is() -> None:
    nodes = cluster(node("a", labels={"node": "hello"}), node("b"), node("c", labels={"node": "other"}))

    result = decide(policy("score -1 if label node=hello"), pod(nodes, "p"), nodes)

    assert scores(result, nodes, "-1") == {"a": -1, "b": 0, "c": 0}


def test_spread_prefers_nodes_with_fewest_pods_of_the_tenant() -> None:
    nodes = cluster(node("a"), node("b"), node("c"))
    place(nodes, [("a", RED), ("a", RED), ("b", RED), ("c", BLUE), ("c", BLUE), ("c", BLUE)])

    result = decide(policy("spread by pod.label.tenant"), pod(nodes, "p", labels=RED), nodes)

    assert scores(result, nodes, "spread by pod.label.tenant") == {"a": 0, "b": 50, "c": 100}


def test_the_four_lines_together() -> None:
    text = """
filter node.ready and fits(cpu, mem)
score 2 * (100 - promql("cpu_usage"))
score -1 if label node=hello
spread by pod.label.tenant
"""
    nodes = cluster(node("a", labels={"node": "hello"}), node("b"), node("c", ready=False))
    place(nodes, [("b", RED)])
    found = signals("cpu_usage", {"a": 40, "b": 40, "c": 0})

    result = decide(policy(text), pod(nodes, "p", labels=RED), nodes, signals=found)

    assert feasible(result, nodes) == ["a", "b"]
    assert result.totals.tolist() == [219, 120]


# --- spread and pack -------------------------------------------------------------------------------------


def test_spread_over_zones_counts_the_whole_zone() -> None:
    nodes = cluster(node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b"), node("x"))
    place(nodes, [("a1", RED)])

    result = decide(policy("spread by pod.label.tenant over zone"), pod(nodes, "p", labels=RED), nodes)

    name = "spread by pod.label.tenant over zone"
    assert scores(result, nodes, name) == {"a1": 0, "a2": 0, "b1": 100, "x": 0}, "outside every zone is worst"


def test_pack_prefers_where_most_of_them_are() -> None:
    nodes = cluster(node("a"), node("b"), node("c"))
    place(nodes, [("a", RED), ("a", RED), ("b", RED)])

    result = decide(policy("pack by pod.label.tenant"), pod(nodes, "p", labels=RED), nodes)

    assert scores(result, nodes, "pack by pod.label.tenant") == {"a": 100, "b": 50, "c": 0}


def test_one_pod_more_weighs_less_where_there_are_many() -> None:
    nodes = cluster(node("a"), node("b"))
    place(nodes, [("a", RED)] * 100 + [("b", RED)] * 101)

    text = "use kubernetes without NodeResourcesFit\nspread by pod.label.tenant"

    found = scores(decide(policy(text), pod(nodes, "p", labels=RED), nodes), nodes, "spread by pod.label.tenant")

    assert found["a"] == 100
    assert 99 < found["b"] < 100


def test_max_skew_forbids_more_than_that_above_the_emptiest_domain() -> None:
    nodes = cluster(node("a1", zone="a"), node("b1", zone="b"), node("x"))
    place(nodes, [("a1", RED)])
    text = 'spread by pod.label.tenant over zone max skew 1 else "zones uneven"'

    result = decide(policy(text), pod(nodes, "p", labels=RED), nodes)

    assert feasible(result, nodes) == ["b1"]
    plugin = policy(text).profile.filters[-1]
    refusals = plugin.rejections(Frame(pod(nodes, "q", labels=RED), nodes, NOW), None)
    assert [(r.reason, r.where.tolist()) for r in refusals] == [("zones uneven", [True, False, True])]


def test_min_domains_counts_absent_domains_as_empty() -> None:
    nodes = cluster(node("a1", zone="a"), node("b1", zone="b"))
    place(nodes, [("a1", RED), ("b1", RED)])
    text = "spread by pod.label.tenant over zone max skew 1"

    assert feasible(decide(policy(text), pod(nodes, "p", labels=RED), nodes), nodes) == ["a1", "b1"]
    assert feasible(decide(policy(f"{text} min domains 3"), pod(nodes, "q", labels=RED), nodes), nodes) == []


def test_a_cordoned_empty_node_does_not_block_a_spread() -> None:
    nodes = cluster(node("a"), node("b"), node("out", spec={"unschedulable": True}))
    place(nodes, [("a", RED), ("b", RED)])

    result = decide(policy("spread by pod.label.tenant max skew 1"), pod(nodes, "p", labels=RED), nodes)

    assert feasible(result, nodes) == ["a", "b"]


def test_pods_without_the_label_are_a_group_of_their_own() -> None:
    nodes = cluster(node("a"), node("b"))
    place(nodes, [("a", {}), ("b", RED)])

    result = decide(policy("spread by pod.label.tenant"), pod(nodes, "p"), nodes)

    assert scores(result, nodes, "spread by pod.label.tenant") == {"a": 0, "b": 100}


# --- aggregates, held to a recount -----------------------------------------------------------------------

AGGREGATES: list[tuple[str, Any]] = [
    ("count(p in node.pods where p.label.tenant == pod.label.tenant)",
     lambda pods, me: float(sum(_same(p, me) for p in pods))),
    ("count(p in node.pods)", lambda pods, me: float(len(pods))),
    ("sum(p.request.cpu for p in node.pods)", lambda pods, me: sum(p[1] for p in pods)),
    ("max(p.request.cpu for p in node.pods where p.label.tenant != pod.label.tenant) ?? -1",
     lambda pods, me: max([p[1] for p in pods if not _same(p, me)], default=-1.0)),
    ("avg(p.request.cpu for p in node.pods) ?? 0",
     lambda pods, me: sum(p[1] for p in pods) / len(pods) if pods else 0.0),
    ('if any(p in node.pods where p.label.tenant == "red") then 1 else 0',
     lambda pods, me: float(any(p[0] == "red" for p in pods))),
    ("if all(p.request.cpu > 1 for p in node.pods) then 1 else 0", lambda pods, me: float(all(p[1] > 1 for p in pods))),
]  # fmt: skip


def _same(p: tuple[str, float], me: str) -> bool:
    return p[0] == me


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["red", "blue"]), st.sampled_from([1, 2])), max_size=12)
)
def test_aggregates_are_what_a_recount_gives(placed: list[tuple[str, str, int]]) -> None:
    nodes = cluster(*(node(name, zone="z", allocatable={"cpu": "64", "memory": "64Gi"}) for name in "abc"))
    for number, (name, tenant, cpu) in enumerate(placed):
        nodes.place(pod(nodes, f"{name}{number}", cpu=str(cpu), labels={"tenant": tenant}), name)
    me = pod(nodes, "me", labels=RED)
    for text, recount in AGGREGATES:
        result = decide(policy(f"score {text}"), me, nodes)
        by_node = {n: [(t, float(c)) for at, t, c in placed if at == n] for n in "abc"}
        got = dict(zip(feasible(result, nodes), next(iter(result.scores.values())).tolist(), strict=True))
        assert got == pytest.approx({n: recount(by_node[n], "red") for n in got}), text


def test_a_zone_counts_its_nodes_together_and_the_cluster_all_of_them() -> None:
    nodes = cluster(node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b"))
    place(nodes, [("a1", RED), ("a2", RED), ("b1", RED)])
    host = 'count(p in domain("kubernetes.io/hostname").pods)'
    text = f"score count(p in zone.pods) + 10 * count(p in cluster.pods) + 100 * {host}"

    result = decide(policy(text), pod(nodes, "p"), nodes)

    assert next(iter(result.scores.values())).tolist() == [132, 132, 131]


# --- require, limit, hold, order, preempt ----------------------------------------------------------------


def test_require_refuses_the_pod_as_a_whole_with_its_reason() -> None:
    nodes = cluster()
    tenants = policy('require pod.label.tenant else "pod missing tenant label"')

    assert len(decide(tenants, pod(nodes, "p", labels=RED), nodes).feasible) == 6
    refused = decide(tenants, pod(nodes, "q"), nodes)
    assert refused.pre_filtered.rejection == Status(
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "pod.label.tenant", ("pod missing tenant label",)
    )


@pytest.mark.parametrize(("running", "fits"), [(3, True), (4, False)])
def test_limit_adds_up_what_pods_of_the_key_request(running: int, fits: bool) -> None:
    nodes = cluster()
    place(nodes, [(f"n{i}", RED) for i in range(running)] + [("n5", BLUE)] * 3)
    quota = policy('require pod.label.tenant\nlimit sum(request.cpu) by pod.label.tenant to 2 else "quota"')

    result = decide(quota, pod(nodes, "p", labels=RED), nodes)

    assert (result.pre_filtered.rejection is None) is fits


def test_limit_counts_pods_and_its_condition_excepts_some() -> None:
    nodes = cluster()
    place(nodes, [("n0", RED), ("n1", RED)])
    quota = policy("require pod.label.tenant\nlimit count() by pod.label.tenant to 2 if pod.priority < 100")

    assert decide(quota, pod(nodes, "p", labels=RED), nodes).pre_filtered.rejection is not None
    assert decide(quota, pod(nodes, "q", labels=RED, priority=100), nodes).pre_filtered.rejection is None


def test_hold_says_why_a_pod_waits() -> None:
    nodes = cluster()
    paused = policy('hold if pod.annotation.paused == "true" else "paused by its owner"')

    assert paused.hold_reason(Frame(pod(nodes, "p"), nodes, NOW)) is None
    held = pod(nodes, "q", annotations={"paused": "true"})
    assert paused.hold_reason(Frame(held, nodes, NOW)) == "paused by its owner"


def test_order_sorts_by_its_keys() -> None:
    nodes = cluster()
    ordered = policy("order by pod.label.tier desc, pod.priority desc, pod.queued")
    (order,) = ordered.orders
    pods = {
        "gold": Frame(pod(nodes, "1", labels={"tier": "gold"}), nodes, NOW, queued=5),
        "silver-late": Frame(pod(nodes, "2", labels={"tier": "silver"}), nodes, NOW, queued=9),
        "silver-early": Frame(pod(nodes, "3", labels={"tier": "silver"}), nodes, NOW, queued=1),
        "silver-high": Frame(pod(nodes, "4", labels={"tier": "silver"}, priority=7), nodes, NOW, queued=9),
        "none": Frame(pod(nodes, "5"), nodes, NOW, queued=0),
    }

    assert sorted(pods, key=lambda name: order.evaluate(pods[name])) == [
        "silver-high", "silver-early", "silver-late", "gold", "none",
    ]  # fmt: skip


def test_preempt_limits_preemptors_and_victims() -> None:
    nodes = cluster()
    careful = policy(
        'preempt if pod.priority > 1000 evict where victim.label.tier == "batch" and victim.priority < pod.priority'
    )
    high = Frame(pod(nodes, "p", priority=2000), nodes, NOW)

    rule = careful.profile.preemption
    assert rule is not None
    assert rule.spares is not None
    assert rule.allows(high)
    assert not rule.allows(Frame(pod(nodes, "q", priority=5), nodes, NOW))
    assert not rule.spares(high, pod(nodes, "batch", labels={"tier": "batch"}))
    assert rule.spares(high, pod(nodes, "web", labels={"tier": "web"}))
    never = policy("preempt never\nfilter node.ready").profile.preemption
    assert never is not None
    assert not never.allows(high)
    assert policy("filter node.ready").profile.preemption is None


# --- metrics ---------------------------------------------------------------------------------------------


def test_a_stale_metric_takes_its_default_and_a_score_without_one_adds_nothing() -> None:
    nodes = cluster(node("a"), node("b"))
    old = signals("load", {"a": 10, "b": 20}, age=300)

    with_default = decide(policy('score promql("load") ?? 7'), pod(nodes, "p"), nodes, signals=old)
    without = decide(policy('score promql("load") + 7'), pod(nodes, "p"), nodes, signals=old)

    assert next(iter(with_default.scores.values())).tolist() == [7, 7]
    assert next(iter(without.scores.values())).tolist() == [0, 0]


def test_a_metric_too_large_to_be_real_is_missing() -> None:
    nodes = cluster(node("a"), node("b"))
    found = signals("load", {"a": 1e200, "b": 20})

    result = decide(policy('score promql("load") ?? 7'), pod(nodes, "p"), nodes, signals=found)

    assert next(iter(result.scores.values())).tolist() == [7, 20]


def test_predicted_adds_what_was_placed_since_the_sample() -> None:
    nodes = cluster(node("a"), node("b"))
    nodes.place(pod(nodes, "old", status={"startTime": "2027-01-15T07:00:00Z"}), "a")
    found = signals("load", {"a": 10, "b": 10})
    predicting = policy('score -predicted(promql("load"), 5) ?? 0')

    def values() -> list[float]:
        result = decide(predicting, pod(nodes, "p"), nodes, signals=found)
        return list(next(iter(result.scores.values())).tolist())

    assert values() == [-10, -10]
    nodes.place(pod(nodes, "new"), "b")
    assert values() == [-10, -15]
    nodes.place(pod(nodes, "newer", status={"startTime": "2027-01-15T09:00:00Z"}), "b")
    assert values() == [-10, -20]
    nodes.displace("new")
    assert values() == [-10, -15]


def test_predicted_takes_pods_for_new_as_long_as_the_metric_lags() -> None:
    nodes = cluster(node("a"), node("b"))
    nodes.place(pod(nodes, "quiet", status={"startTime": "2027-01-15T07:57:00Z"}), "a")
    nodes.place(pod(nodes, "busy", status={"startTime": "2027-01-15T07:59:00Z"}), "b")
    found = signals("load", {"a": 10, "b": 10})

    def values(lag: str) -> list[float]:
        predicting = policy(f'score -predicted(promql("load"), 5{lag}) ?? 0')
        result = decide(predicting, pod(nodes, "p"), nodes, signals=found)
        return list(next(iter(result.scores.values())).tolist())

    assert values("") == [-10, -10]
    assert values(", lag=2min") == [-10, -15]
    assert values(", lag=10min") == [-15, -15]


def test_a_pod_that_started_within_the_second_of_the_sample_is_new() -> None:
    nodes = cluster(node("a"), node("b"))
    nodes.place(pod(nodes, "new", status={"startTime": "2027-01-15T07:59:59Z"}), "a")
    predicting = policy('score -predicted(promql("load"), 5) ?? 0')
    found = signals("load", {"a": 10, "b": 10}, age=0.5)

    result = decide(predicting, pod(nodes, "p"), nodes, signals=found)

    assert next(iter(result.scores.values())).tolist() == [-15, -10]


def test_a_policy_lists_the_queries_that_it_reads() -> None:
    text = """
metric load = promql("load1") every 30s stale after 5min by instance
score -load ?? 0
score -promql("x") ?? 0
"""

    found = {query.promql: query for query in policy(text).queries}

    assert set(found) == {"load1", "x"}
    assert (found["load1"].every_seconds, found["load1"].stale_after_seconds, found["load1"].by) == (
        30,
        300,
        "instance",
    )


# --- policies together -----------------------------------------------------------------------------------


def test_the_policy_with_the_highest_priority_that_matches_governs() -> None:
    policies = policy_set(
        "policy everything\nfilter node.ready",
        'policy batch\nfor pods where pod.namespace == "batch"\npriority 10\nfilter node.ready',
        "policy other\nscheduler other-scheduler\nfilter node.ready",
    )
    nodes = cluster()

    def governing(**more: Any) -> str | None:
        found = policies.governing(pod(nodes, f"p{more}", **more))
        return found.name if found else None

    assert governing() == "everything"
    assert governing(namespace="batch") == "batch"
    assert governing(scheduler="other-scheduler") == "other"
    assert governing(scheduler="unknown") is None


def test_a_used_file_is_a_part_and_no_policy() -> None:
    loaded = load(
        [
            Source("web.policy", 'use "common.policy"\nfilter fits(cpu) and not busy'),
            Source("common.policy", "let busy = node.used_fraction.cpu > 80%\nfilter node.ready"),
        ]
    )

    assert loaded.policy_set is not None
    assert [p.name for p in loaded.policy_set.policies] == ["web"]
    assert [c.name for c in loaded.policy_set.policies[0].clauses] == ["node.ready", "fits(cpu) and not busy"]


def test_an_error_in_one_policy_leaves_all_of_them_out() -> None:
    loaded = load([Source("a.policy", "filter node.ready"), Source("b.policy", "filter node.redy")])

    assert loaded.policy_set is None
    assert [d.code for d in loaded.diagnostics] == ["P0102"]


def test_default_filters_hold_unless_they_are_left_out() -> None:
    def names(text: str) -> list[str]:
        return [plugin.name for plugin in policy(text).profile.filters]

    assert {"NodeResourcesFit", "TaintToleration", "node.ready"} <= set(names("filter node.ready"))
    assert "NodeAffinity" not in names("use kubernetes without NodeAffinity\nfilter node.ready")


def test_default_scores_hold_only_where_the_policy_has_none_of_its_own() -> None:
    def names(text: str) -> list[str]:
        return [weighted.plugin.name for weighted in policy(text).profile.scores]

    assert "ImageLocality" in names("filter node.ready")
    assert "ImageLocality" not in names("score node.free.cpu")
    weights = {
        w.plugin.name: w.weight for w in policy("score node.free.cpu\nuse kubernetes scores weight 2").profile.scores
    }
    assert (weights["ImageLocality"], weights["TaintToleration"]) == (2, 6)


@pytest.mark.parametrize(
    ("clause", "scope"),
    [
        ("filter node.ready and label a=b", Scope.TEMPLATE),
        ("filter node.ready and fits(cpu)", Scope.ROW),
        ("filter count(p in node.pods) < 5", Scope.ROW),
        ("filter count(p in zone.pods) < 5", Scope.CLUSTER),
        ('filter promql("x") ?? 1 < 5', Scope.SIGNAL),
        ("filter node.age > 1h", Scope.CLUSTER),
        ("filter node.name != pod.name", Scope.CLUSTER),
        ("filter node.zone == pod.label.zone", Scope.TEMPLATE),
    ],
)
def test_answers_are_kept_no_longer_than_what_they_depend_on(clause: str, scope: Scope) -> None:
    assert policy(clause).profile.filters[-1].scope is scope


def test_a_filter_refuses_for_good_where_evicting_pods_would_not_help() -> None:
    nodes = cluster(node("a"))
    frame = Frame(pod(nodes, "p"), nodes, NOW)

    def code(text: str) -> Code:
        plugin = policy(text).profile.filters[-1]
        return plugin.rejections(frame, None)[0].code

    assert code("filter label gpu") is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert code("filter node.free.cpu > 100") is Code.UNSCHEDULABLE


def test_a_clause_explains_each_of_its_parts() -> None:
    nodes = cluster(node("a"), node("b", ready=False))
    clause = policy("filter node.ready and node.free.cpu > 2").clauses[0]
    frame = Frame(pod(nodes, "p"), nodes, NOW)

    values = {part.span.text: np.asarray(part.evaluate(frame)).tolist() for part in clause.parts()}

    assert values["node.ready"] == [True, False]
    assert values["node.free.cpu"] == [4.0, 4.0]
    assert values["node.ready and node.free.cpu > 2"] == [True, False]


def test_what_compares_nodes_differs_by_node_also_where_its_argument_does_not() -> None:
    nodes = cluster(node("a"), node("b"))

    result = decide(policy("score rank(pod.priority) + 1 if normalize(pod.priority) == 0"), pod(nodes, "p"), nodes)

    assert next(iter(result.scores.values())).tolist() == [1, 1]


def test_clauses_that_say_the_same_have_names_of_their_own() -> None:
    found = policy("filter label a\nscore node.free.cpu if label a\nscore node.free.cpu\nrequire pod.label.a")

    assert [clause.name for clause in found.clauses] == [
        "label a",
        "node.free.cpu",
        "node.free.cpu #2",
        "pod.label.a",
    ]


JOINED = {
    "each condition counts": (
        "filter node.ready and node.free.cpu > 100",
        {"node.ready": [False, True], "node.free.cpu > 100": [True, True]},
    ),
    "with a name": (
        "filter node.ready and node.free.cpu > 2 as room",
        {"room: node.ready": [False, True], "room: node.free.cpu > 2": [False, False]},
    ),
    "what is joined with or is one": (
        "filter (node.ready or label gpu) and label disk",
        {"node.ready or label gpu": [False, True], "label disk": [True, True]},
    ),
}


@pytest.mark.parametrize(("text", "expected"), JOINED.values(), ids=JOINED)
def test_conditions_joined_with_and_are_reasons_of_their_own(text: str, expected: dict[str, list[bool]]) -> None:
    nodes = cluster(node("a"), node("b", ready=False))
    plugin = policy(text).profile.filters[-1]
    frame = Frame(pod(nodes, "p"), nodes, NOW)

    refusals = plugin.rejections(frame, None)

    assert {r.reason: r.where.tolist() for r in refusals} == {
        f"node(s) didn't match policy clause {name}": where for name, where in expected.items()
    }
    together = np.any([r.where for r in refusals], axis=0)
    assert together.tolist() == (~plugin.filter(frame, None)).tolist()


@pytest.mark.parametrize(
    "text",
    [
        'filter node.ready and fits(cpu) else "no room"',
        "filter node.ready and fits(cpu) if pod.label.tier",
        'filter node.ready and (promql("x") < 5) ?? true',
        "filter node.ready or fits(cpu)",
    ],
)
def test_a_filter_with_a_reason_a_condition_or_one_operand_has_one_reason(text: str) -> None:
    nodes = cluster(node("a", ready=False))
    plugin = policy(text).profile.filters[-1]

    assert len({r.reason for r in plugin.rejections(Frame(pod(nodes, "p"), nodes, NOW), None) if r.where.any()}) <= 1


def test_of_joined_conditions_one_that_fails_for_good_is_not_worth_evicting_for() -> None:
    nodes = cluster(node("a"))
    plugin = policy("filter label gpu and node.free.cpu > 100").profile.filters[-1]

    codes = [r.code for r in plugin.rejections(Frame(pod(nodes, "p"), nodes, NOW), None)]

    assert codes == [Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.UNSCHEDULABLE]
