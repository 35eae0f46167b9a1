"""Which domains a hard `spread` counts: those of nodes that the pod could use, unless the policy says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.events import ClusterEvent
from tests.lang.clusters import cluster, decide, feasible, node, place, pod, policy
from tests.lang.texts import codes

RED = {"app": "red"}
SPREAD = "spread by pod.label.app over zone max skew 1"
TAINT = {"taints": [{"key": "dedicated", "value": "infra", "effect": "NoSchedule"}]}


def three_zones(**third: Any) -> Cluster:
    """Return nodes a, b and c in zones of their own; a and b are alike and have one pod each, c has none."""
    web = {"pool": "web"}
    third = {"labels": web} | third
    made = cluster(node("a", zone="a", labels=web), node("b", zone="b", labels=web), node("c", zone="c", **third))
    place(made, [("a", RED), ("b", RED)])
    return made


def passing(text: str, nodes: Cluster, **spec: Any) -> Sequence[str]:
    return feasible(decide(policy(text), pod(nodes, "p", labels=RED, spec=spec), nodes), nodes)


OUT_OF_USE: Mapping[str, tuple[dict[str, Any], str]] = {
    "tainted": ({"spec": TAINT}, ""),
    "cordoned": ({"spec": {"unschedulable": True}}, ""),
    "another pool": ({"labels": {"pool": "batch"}}, "filter label pool=web"),
    "not ready": ({"ready": False}, "filter node.ready"),
    "too small": ({"allocatable": {"cpu": "2"}}, "filter node.allocatable.cpu >= 4"),
    "another zone": ({}, 'filter node.zone != "c"'),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("why", OUT_OF_USE)
def test_a_zone_that_the_pod_could_never_use_does_not_count(why: str, first: bool) -> None:
    changes, rule = OUT_OF_USE[why]
    nodes = three_zones(**changes)

    assert passing(f"{SPREAD}\n{rule}" if first else f"{rule}\n{SPREAD}", nodes) == ["a", "b"]


def test_a_zone_that_the_pods_own_selector_excludes_does_not_count() -> None:
    nodes = three_zones(labels={"pool": "batch"})

    assert passing(SPREAD, nodes, nodeSelector={"pool": "web"}) == ["a", "b"]
    assert passing(SPREAD, nodes) == ["c"]


def test_a_taint_that_the_pod_tolerates_leaves_the_zone_in_the_count() -> None:
    nodes = three_zones(spec=TAINT)

    assert passing(SPREAD, nodes, tolerations=[{"key": "dedicated", "operator": "Exists"}]) == ["c"]
    assert passing(f"use kubernetes without TaintToleration\n{SPREAD}", nodes) == ["c"], "the policy ignores taints"


@pytest.mark.parametrize(
    "rule", ["filter fits(cpu)", "filter node.free.cpu > 500m", 'filter promql("load") ?? 100 < 50', ""]
)
def test_a_zone_that_is_only_full_or_busy_now_counts(rule: str) -> None:
    nodes = three_zones()
    place(nodes, [("c", {"app": "other"})], cpu="4")

    assert passing(f"{rule}\n{SPREAD}", nodes) == []


@pytest.mark.parametrize(
    ("why", "counting", "expected"),
    [
        ("tainted", "tainted", []),
        ("tainted", "filtered", ["a", "b"]),
        ("tainted", "all", []),
        ("cordoned", "tainted", []),
        ("another pool", "filtered", []),
        ("another pool", "tainted", ["a", "b"]),
        ("another pool", "all", []),
        ("another pool", "tainted, filtered", []),
    ],
)
def test_a_policy_can_count_more(why: str, counting: str, expected: list[str]) -> None:
    changes, rule = OUT_OF_USE[why]

    assert passing(f"{rule}\n{SPREAD} counting {counting} nodes", three_zones(**changes)) == expected


def test_all_counts_zones_that_the_pods_own_selector_excludes() -> None:
    nodes = three_zones(labels={"pool": "batch"})

    assert passing(f"{SPREAD} counting all nodes", nodes, nodeSelector={"pool": "web"}) == []


def test_pods_on_nodes_that_do_not_count_are_counted_in_their_domain() -> None:
    nodes = cluster(node("a1", zone="a"), node("a2", zone="a", spec=TAINT), node("b", zone="b"))
    place(nodes, [("a2", RED)])

    assert passing(SPREAD, nodes) == ["b"]


def test_min_domains_counts_the_same_domains() -> None:
    nodes = three_zones(spec=TAINT)

    assert passing(f"{SPREAD} min domains 2", nodes) == ["a", "b"]
    assert passing(f"{SPREAD} min domains 3", nodes) == []


def test_what_counts_follows_the_nodes() -> None:
    nodes, rules = three_zones(spec=TAINT), policy(SPREAD)
    waiting = pod(nodes, "p", labels=RED)

    assert feasible(decide(rules, waiting, nodes), nodes) == ["a", "b"]
    nodes.set_node(node("c", zone="c"))
    assert feasible(decide(rules, waiting, nodes), nodes) == ["c"]
    nodes.set_node(node("c", zone="c", spec={"unschedulable": True}))
    assert feasible(decide(rules, waiting, nodes), nodes) == ["a", "b"]


def test_a_filter_with_a_condition_counts_for_the_pods_that_it_is_about() -> None:
    nodes = three_zones(labels={"pool": "batch"})
    rule = 'filter label pool=web if pod.label.app == "{}"'

    assert passing(f"{rule.format('red')}\n{SPREAD}", nodes) == ["a", "b"]
    assert passing(f"{rule.format('blue')}\n{SPREAD}", nodes) == ["c"]


def test_what_decides_which_zones_count_wakes_the_pods() -> None:
    wakes = policy(f"{SPREAD} as even\nfilter node.ready").profile.wakes["even"]

    assert {ClusterEvent.NODE_TAINT, ClusterEvent.NODE_CONDITION, ClusterEvent.POD_DELETE} <= wakes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{SPREAD} counting all nodes", []),
        (f"{SPREAD} counting cordoned nodes", ["P0212"]),
        ("spread by pod.label.app over zone counting all nodes", ["P0009"]),
        (f"{SPREAD} counting nodes", ["P0001"]),
        ("pack by pod.label.app counting all nodes", ["P0009"]),
    ],
)
def test_what_can_be_counted_is_checked(text: str, expected: list[str]) -> None:
    assert codes(text) == expected
