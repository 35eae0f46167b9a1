"""A frozen decision is decided the same, is small, and says what it should."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.policy.decision_inputs import Rules
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.capture.freeze import Frozen, NotReproduced, frozen
from kube_policy_scheduler.tooling.capture.reduce import ReducibleInputs
from kube_policy_scheduler.tooling.snapshot.fields import recorded_objects
from kube_policy_scheduler.tooling.snapshot.pseudonyms import Pseudonyms
from tests.framework.worlds import EVENTS, PODS, World, make_node, make_pod

NOW = 2e9
OURS = "policy-scheduler"


def rules(text: str) -> Rules:
    source = Source("a.policy", text)
    made = load([source]).policy_set
    assert made is not None
    (policy,) = made.policies
    return Rules(policy.profile, policy, (source,))


def reducible(
    nodes: list[objects.Node],
    placed: list[objects.Pod],
    pod: objects.Pod,
    text: str,
    *,
    signals: Signals = Signals.EMPTY,
) -> ReducibleInputs:
    made = ReducibleInputs.of([*nodes, *placed, pod], pod, rules(text), seed=0, now=NOW)
    return ReducibleInputs(made.pod, made.nodes, made.placed, made.others, made.rules, signals, NOW)


def freeze(made: ReducibleInputs, **given: Any) -> Frozen:
    return frozen(made, scheduler=OURS, **given)


def on(pod: objects.Pod, node: str) -> objects.Pod:
    pod.spec.node_name = node
    return pod


def ours(name: str, short: Mapping[str, Any]) -> objects.Pod:
    pod = make_pod(name, dict(short))
    pod.spec.scheduler_name = OURS
    return pod


@pytest.mark.long
@given(EVENTS, st.integers(0, len(PODS) - 1))
def test_each_decision_is_reproduced_by_its_test(events: list[Any], variant: int) -> None:
    kept = World()
    for event in events:
        kept.happen(event)
    placed = [on(pod, node) for pod, node in kept.pods.values()]
    things = [*kept.nodes.values(), *placed]
    pod = make_pod("incoming", PODS[variant])
    plain = ReducibleInputs.of(things, pod, Rules(kubernetes_profile()), seed=0, now=NOW)

    made = frozen(plain, scheduler="default-scheduler")

    assert made.verdict.host == plain.verdict().host
    assert made.nodes[1] <= len(kept.nodes)


def test_nodes_and_pods_that_do_not_matter_are_left_out() -> None:
    nodes = [make_node(f"n{i:02}", {"labels": {"zone": "abc"[i % 3]}, "cpu": "8"}) for i in range(60)]
    placed = [on(ours(f"p{i}", {"cpu": "1", "labels": {"app": f"a{i % 7}"}}), f"n{i % 60:02}") for i in range(300)]
    placed.append(on(ours("late", {"cpu": "500m"}), "n17"))
    placed = [pod for pod in placed if pod.metadata.name != "p42"]  # n42 is emptier than all others, n17 fuller

    made = freeze(
        reducible(nodes, placed, ours("web", {"cpu": "1"}), "filter fits(cpu, mem)\nscore 10 * node.free.cpu\n")
    )

    assert made.nodes == (60, 2)
    assert list(made.document) == ["kubernetes", "now", "nodes", "pods", "cases"]
    (case,) = made.document["cases"]
    assert case["expect"] == {"node": "n42", "margin": "10 ± 0.001"}
    assert case["pod"] == {"name": "web", "cpu": "1"}


def test_a_pod_that_fits_nowhere_keeps_its_main_reason_and_one_node_for_each_filter() -> None:
    nodes = [make_node(f"n{i:02}", {"labels": {}, "cpu": "8" if i % 2 else "2"}) for i in range(20)]
    nodes[3] = make_node("n03", {"labels": {}, "cpu": "8", "taints": [{"key": "spot", "effect": "NoSchedule"}]})

    made = freeze(
        reducible(nodes, [], ours("web", {"cpu": "4"}), "filter node.label.disk == 'ssd' as disks\n".replace("'", '"'))
    )

    (case,) = made.document["cases"]
    assert case["expect"]["unschedulable"] == {"clause": "disks"}
    assert {one["clause"] for one in case["expect"]["filtered"].values()} == {
        "disks", "NodeResourcesFit", "TaintToleration",
    }  # fmt: skip
    assert made.nodes == (20, 3)


def test_metrics_are_listed_by_node_name() -> None:
    nodes = [make_node(f"n{i}", {"labels": {}, "cpu": "8"}) for i in range(9)]
    for at, node in enumerate(nodes):
        node.status.addresses = [objects.NodeAddress("InternalIP", f"10.0.0.{at}")]
    series = tuple(Series({"instance": f"10.0.0.{i}:9100"}, 10.0 * i, NOW - 4) for i in range(9))
    signals = Signals.of([Reading("load", series, evaluated_at=NOW, fetched_at=NOW)])
    text = 'score 100 - promql("load") ?? 0\n'

    made = freeze(reducible(nodes, [], ours("web", {}), text, signals=signals))

    assert made.document["metrics"] == {
        "load": {"n0": {"value": 0, "age": "4.000s"}, "n1": {"value": 10, "age": "4.000s"}}
    }
    assert made.document["cases"][0]["expect"] == {"node": "n0", "margin": "10 ± 0.001"}


def test_metrics_that_are_not_of_nodes_keep_what_the_pod_can_ask_for() -> None:
    nodes = [make_node(f"n{i}", {"labels": {}, "cpu": "8"}) for i in range(3)]
    budgets = tuple(Series({"tenant": f"t{i}"}, float(i), NOW - 4) for i in range(100))
    readings = [
        Reading("budget", budgets, evaluated_at=NOW, fetched_at=NOW),
        Reading("price", (Series({}, 40.0, NOW),), evaluated_at=NOW, fetched_at=NOW),
        Reading("tax", (Series({}, 2.0, NOW - 9),), evaluated_at=NOW, fetched_at=NOW),
    ]
    text = """metric budget = promql("budget") default 0 by tenant as pod.label.tenant
metric price = promql("price") for cluster default 0
metric tax = promql("tax") for cluster default 0
require budget > price + tax else "poor"
"""

    made = freeze(reducible(nodes, [], ours("web", {"labels": {"tenant": "t7"}}), text, signals=Signals.of(readings)))

    assert made.document["metrics"] == {
        "budget": {"t7": {"value": 7, "age": "4.000s"}},
        "price": 40,
        "tax": {"value": 2, "age": "9.000s"},
    }
    (case,) = made.document["cases"]
    assert case["expect"]["unschedulable"] == {"clause": "budget > price + tax"}


def test_a_held_pod_needs_no_cluster() -> None:
    nodes = [make_node("n0", {"labels": {}, "cpu": "8"})]
    held = ours("web", {"labels": {"stage": "draft"}})

    made = freeze(reducible(nodes, [], held, 'hold if pod.label.stage == "draft" else "not released"\n'))

    assert made.document["cases"] == [
        {
            "name": "web is held",
            "pod": {"name": "web", "labels": {"stage": "draft"}},
            "expect": {"held": "not released"},
        }
    ]
    assert "nodes" not in made.document


GANG = "gang by pod.label.job size number(pod.label.size) within 60s if pod.label.job\n"


def of_gang(*members: objects.Pod) -> ReducibleInputs:
    """Return the decision about the first member; the others wait."""
    nodes = [make_node(f"n{i}", {"labels": {}, "cpu": "8"}) for i in range(2)]
    return ReducibleInputs.of([*nodes, *members], members[0], rules(GANG), seed=0, now=NOW)


def member(name: str, **labels: str) -> objects.Pod:
    return ours(name, {"cpu": "1", "labels": {"job": "a"} | labels})


def test_a_pod_whose_gang_has_too_few_pods_waits_for_it_in_the_test_too() -> None:
    (case,) = freeze(of_gang(member("m0", size="3"), member("m1", size="3"))).document["cases"]
    assert case["name"] == "m0 waits for its gang"
    assert case["expect"] == {"waits": 'gang "default/a": 1 of 3 members have a node'}


def test_of_a_gang_that_is_complete_the_test_knows_one_pod_and_where_it_goes() -> None:
    (case,) = freeze(of_gang(*(member(f"m{i}", size="3") for i in range(3)))).document["cases"]
    assert case["name"] == "m0 goes to n0"
    assert case["expect"] == {"waits": 'gang "default/a": 1 of 3 members have a node', "node": "n0"}


def test_a_pod_about_whose_gang_nothing_is_decided_is_not_frozen() -> None:
    with pytest.raises(NotReproduced, match="the size has no value for this pod; a test of that is an error"):
        freeze(of_gang(member("m0")))


def test_a_pod_that_fits_nowhere_alone_does_not_say_that_it_waits_for_its_gang() -> None:
    many = (ours(f"m{i}", {"cpu": "9", "labels": {"job": "a", "size": "3"}}) for i in range(2))
    with pytest.raises(NotReproduced, match=r"it is held: waiting for more pods .* and there no node fits \("):
        freeze(of_gang(*many))


def test_a_pod_whose_role_has_enough_members_waits_for_its_gang_whoever_else_waits() -> None:
    text = "gang by pod.label.job size 3 with 1 of role=driver, 2 of role=worker if pod.label.job\n"
    pod, node = member("d1", role="driver"), make_node("n0", {"labels": {}, "cpu": "8"})
    first = on(member("d0", role="driver"), "n0")

    (case,) = freeze(reducible([node], [first], pod, text)).document["cases"]

    assert case["name"] == "d1 is held"
    assert case["expect"]["held"].startswith('gang "default/a": enough members with role=driver have a node')


def test_a_nominated_pod_stays_where_it_takes_the_room() -> None:
    nominated = ours("first", {"cpu": "6"})
    nominated.status.nominated_node_name = "n0"
    nodes = [make_node("n0", {"labels": {}, "cpu": "8"})]

    made = freeze(reducible(nodes, [nominated], ours("web", {"cpu": "4"}), "filter fits(cpu)\n"))

    assert made.document["pods"] == [{"name": "first", "cpu": "6", "status": {"nominatedNodeName": "n0"}}]
    assert made.document["cases"][0]["expect"]["filtered"] == {"n0": {"clause": "NodeResourcesFit"}}


NOT_WAITED = "hold if pod.waiting < 0s\nfilter fits(cpu)\n"


@pytest.mark.parametrize(
    ("text", "created", "queued"),
    [
        (NOT_WAITED, "2033-05-18T03:32:20Z", "60.000s"),
        (NOT_WAITED, None, None),
        ("filter fits(cpu)\n", "2033-05-18T03:32:20Z", None),
        (None, "2033-05-18T03:32:20Z", None),
    ],
)
def test_how_long_the_pod_has_waited_is_said_where_the_policy_reads_it(
    text: str | None, created: str | None, queued: str | None
) -> None:
    pod, node = ours("web", {"cpu": "1"}), make_node("n0", {"labels": {}, "cpu": "8"})
    pod.metadata.creation_timestamp = created
    used = rules(text) if text is not None else Rules(kubernetes_profile())

    (case,) = freeze(ReducibleInputs.of([node, pod], pod, used, seed=0, now=NOW)).document["cases"]

    assert case["expect"] == {"node": "n0"}
    assert case.get("queued") == queued


def equal_nodes(*names: str) -> list[objects.Node]:
    return [make_node(name, {"labels": {}, "cpu": "8"}) for name in names]


def test_a_host_that_was_drawn_among_equals_may_be_another_one_under_other_names() -> None:
    made = reducible(equal_nodes("left", "right"), [], ours("web", {}), "score 1\n")
    for seed in range(8):  # by one after the other either node is drawn
        hidden = freeze(replace(made, seed=seed), names=Pseudonyms())
        (case,) = hidden.document["cases"]
        assert hidden.document["tie"] == "ok"
        assert case["expect"] == {"node": hidden.verdict.host}


@pytest.mark.parametrize("text", ['node.name matches "gold.*"', 'node.name matches "node-1"'])
def test_a_part_of_a_name_that_the_policy_looks_at_cannot_be_hidden(text: str) -> None:
    made = reducible(equal_nodes("gold-1", "left"), [], ours("web", {}), f"score 10 if {text}\n")
    with pytest.raises(NotReproduced, match=r"but under other names .*: the policies look at a part of a name"):
        freeze(made, names=Pseudonyms())


def test_names_can_be_hidden_and_the_decision_stays() -> None:
    nodes = [make_node(f"blade-{i}", {"labels": {"owner": "acme" if i else "corp"}, "cpu": "8"}) for i in range(5)]
    placed = [on(ours("mail", {"cpu": "1"}), "blade-0")]
    made = reducible(nodes, placed, ours("web", {"nodeSelector": {"owner": "corp"}}), "score node.free.cpu\n")

    hidden = freeze(made, names=Pseudonyms())

    assert not [name for name in ("blade", "acme", "corp", "web", "mail") if name in repr(hidden.document)]
    assert hidden.verdict.host is not None


def test_other_objects_stay_where_they_matter() -> None:
    nodes = [make_node("n0", {"labels": {}, "cpu": "8"}), make_node("n1", {"labels": {}, "cpu": "8"})]
    pod = ours("web", {})
    pod.spec.volumes = [objects.Volume("data", persistent_volume_claim=objects.ClaimSource("lost"))]
    claim = objects.PersistentVolumeClaim(metadata=objects.ObjectMeta(name="lost", namespace="default"))
    claim.spec.volume_name = "gone"
    claim.metadata.annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    other = objects.PersistentVolumeClaim(metadata=objects.ObjectMeta(name="other", namespace="default"))
    made = ReducibleInputs.of([*nodes, claim, other, pod], pod, rules("score 1\n"), seed=0, now=NOW)

    kept = freeze(made)

    assert [one["metadata"]["name"] for one in kept.others] == ["lost"]
    assert kept.document["cases"][0]["expect"]["unschedulable"]["clause"].startswith("Volume")


def test_the_same_decision_is_frozen_the_same(tmp_path: Path) -> None:
    nodes = [make_node(f"n{i}", {"labels": {"zone": "ab"[i % 2]}, "cpu": str(2 + i % 3)}) for i in range(12)]
    placed = [on(ours(f"p{i}", PODS[i % 5]), f"n{i % 12}") for i in range(30)]

    made = [
        freeze(reducible(order, placed, ours("web", {"cpu": "1"}), "score node.free.cpu\n"))
        for order in (nodes, nodes[::-1])
    ]

    assert made[0].document == made[1].document
    assert recorded_objects(nodes)  # the decision's own objects are left alone


@pytest.mark.parametrize("text", ["score rank(node.free.cpu)\n", "score normalize(node.free.cpu)\n"])
def test_scores_that_hang_on_all_nodes_still_give_a_small_test(text: str) -> None:
    nodes = [make_node(f"n{i:03}", {"labels": {}, "cpu": str(2 + i)}) for i in range(120)]

    made = freeze(reducible(nodes, [], ours("web", {}), text))

    assert made.verdict.host == "n119"
    assert made.nodes[1] <= 3


@pytest.mark.parametrize(("policy", "kept"), [("filter node.conditions.DiskPressure", True), ("score 1", False)])
def test_conditions_of_nodes_stay_where_they_matter(policy: str, kept: bool) -> None:
    node = make_node("n0", {"labels": {}, "cpu": "8"})
    node.status.conditions = [
        objects.NodeCondition(type="DiskPressure", status="True"),
        objects.NodeCondition(type="Ready", status="True", last_transition_time="2026-01-01T00:00:00Z"),
    ]
    made = freeze(reducible([node], [], ours("web", {"cpu": "1"}), f"{policy}\n"))
    (form,) = made.document["nodes"]
    assert ("DiskPressure" in str(form)) is kept
    assert "Ready" not in str(form), "a node of a test is ready"


def test_short_forms_add_nothing_that_was_not_there() -> None:
    """A short node has its hostname for a label, a short pod two tolerations; neither is so for every real one."""
    spread = objects.TopologySpreadConstraint(
        topology_key="kubernetes.io/hostname", label_selector=objects.LabelSelector()
    )
    nodes = [make_node(f"n{i}", {"labels": {}, "cpu": str(8 - i)}) for i in range(4)]
    for node in nodes[1:]:
        node.metadata.labels = {**(node.metadata.labels or {}), "kubernetes.io/hostname": node.metadata.name}
    nodes[1].spec.taints = [objects.Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")]
    pod = ours("web", {"cpu": "1"})
    pod.spec.topology_spread_constraints = [spread]
    pod.spec.tolerations = [objects.Toleration(key="node.kubernetes.io/not-ready", operator="Exists")]

    made = freeze(reducible(nodes, [], pod, "score node.free.cpu\n"))

    (case,) = made.document["cases"]
    assert case["expect"]["node"] == "n1"
    assert case["expect"]["filtered"] == {"n0": {"clause": "PodTopologySpread"}}
    assert {"name": "n0", "labels": {"kubernetes.io/hostname": None}}.items() <= made.document["nodes"][2].items()


@pytest.mark.parametrize(("version", "short"), [("apps/v1", True), ("v1", False)])
def test_an_owner_of_another_api_is_written_in_full(version: str, short: bool) -> None:
    from kube_policy_scheduler.tooling.capture.draft import short_pod

    owner = {"apiVersion": version, "kind": "ReplicationController", "name": "web", "uid": "u", "controller": True}
    form = short_pod({"metadata": {"name": "web", "ownerReferences": [owner]}, "spec": {}}, scheduler=OURS)

    assert ("owner" in form) is short
    assert ("metadata" in form) is not short
