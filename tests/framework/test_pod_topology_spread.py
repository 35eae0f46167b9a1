"""PodTopologySpread: the facts that are easily got wrong, one small cluster each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.plugins.pod_topology_spread import NO_LABEL, TOO_MANY, PodTopologySpread
from tests.framework.clusters import (
    HOST,
    OK,
    ZONE,
    Body,
    add,
    fill,
    make_cluster,
    make_node,
    pod_body,
    scores,
    verdicts,
    zoned,
)

WEB: Body = {"matchLabels": {"app": "web"}}
SPREAD = PodTopologySpread()


def constraint(key: str = ZONE, **more: Any) -> Body:
    return {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": WEB,
    } | more


def spreading(*constraints: Body, **more: Any) -> Body:
    return pod_body(topologySpreadConstraints=list(constraints), **more)


def two_zones(**counts: int) -> Cluster:
    """Return nodes a1 and a2 in zone a, b1 in zone b and z without a zone, with web pods on them."""
    cluster = make_cluster(zoned(a1="a", a2="a", b1="b", z=""))
    fill(cluster, **counts)
    return cluster


def converted(kind: type, body: Body) -> Any:
    return msgspec.convert(body, kind)


@pytest.mark.parametrize(
    ("what", "declared", "counts", "expected"),
    [
        ("balanced zones take one more each", constraint(), {"a1": 1, "b1": 1}, {"a": OK, "b": OK}),
        ("a zone too full is rejected", constraint(), {"a1": 1, "a2": 1, "b1": 1}, {"a": TOO_MANY, "b": OK}),
        ("a larger skew is allowed", constraint(maxSkew=2), {"a1": 1, "a2": 1, "b1": 1}, {"a": OK, "b": OK}),
        (
            "a pod that its own selector misses adds nothing",
            constraint(labelSelector={"matchLabels": {"app": "db"}}),
            {"a1": 3},
            {"a": OK, "b": OK},
        ),
        (
            "too few domains make the minimum 0",
            constraint(minDomains=3),
            {"a1": 1, "b1": 1},
            {"a": TOO_MANY, "b": TOO_MANY},
        ),
        ("enough domains keep the minimum", constraint(minDomains=2), {"a1": 1, "b1": 1}, {"a": OK, "b": OK}),
        ("no selector matches nothing", constraint(labelSelector=None), {"a1": 5}, {"a": OK, "b": OK}),
        (
            "the empty selector counts no pod but the one to come",
            constraint(labelSelector={}),
            {"a1": 5},
            {"a": OK, "b": OK},
        ),
        (
            "matchLabelKeys narrow the selector to the pod's own labels",
            constraint(labelSelector={}, matchLabelKeys=["app", "absent"]),
            {"a1": 1, "a2": 1},
            {"a": TOO_MANY, "b": OK},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hard_constraint_over_two_zones(
    what: str, declared: Body, counts: dict[str, int], expected: dict[str, str]
) -> None:
    found = verdicts(SPREAD, two_zones(**counts), spreading(declared))
    assert found == {"a1": expected["a"], "a2": expected["a"], "b1": expected["b"], "z": f"!{NO_LABEL}"}, what


def test_pods_that_terminate_or_live_elsewhere_do_not_count() -> None:
    cluster = two_zones()
    for number in range(3):
        going = pod_body(f"going-{number}")
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        add(cluster, going, "a1")
        add(cluster, pod_body(f"other-{number}", namespace="other"), "a1")
    assert verdicts(SPREAD, cluster, spreading(constraint()))["a1"] == OK


def test_a_domain_counts_only_on_nodes_with_all_keys() -> None:
    nodes = [
        make_node("both", {ZONE: "a", "rack": "1"}),
        make_node("zone-only", {ZONE: "b"}),
        make_node("other", {ZONE: "a", "rack": "2"}),
    ]
    cluster = make_cluster(nodes)
    fill(cluster, both=1, **{"zone-only": 0})
    body = spreading(constraint(), constraint("rack"))
    # zone b is no domain, as its only node has no rack: the minimum is that of zone a
    assert verdicts(SPREAD, cluster, body) == {"both": TOO_MANY, "zone-only": f"!{NO_LABEL}", "other": OK}


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({}, OK),  # affinity honoured: zone b is not counted, so that its emptiness does not matter
        ({"nodeAffinityPolicy": "Ignore"}, TOO_MANY),
    ],
)
def test_nodes_that_the_pod_cannot_use_count_by_policy(policies: Body, expected: str) -> None:
    cluster = two_zones(a1=2)
    body = spreading(constraint(**policies), nodeSelector={ZONE: "a"})
    assert verdicts(SPREAD, cluster, body)["a2"] == expected


@pytest.mark.parametrize(("policies", "expected"), [({}, TOO_MANY), ({"nodeTaintsPolicy": "Honor"}, OK)])
def test_tainted_nodes_count_by_policy(policies: Body, expected: str) -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    cluster = make_cluster([*zoned(a1="a"), make_node("b1", {ZONE: "b"}, taints=[taint])])
    fill(cluster, a1=1)
    assert verdicts(SPREAD, cluster, spreading(constraint(**policies)))["a1"] == expected


def test_the_first_constraint_that_fails_gives_the_reason() -> None:
    cluster = make_cluster([make_node("n", {HOST: "n"}), make_node("m", {HOST: "m"})])
    fill(cluster, n=1)
    hard = [constraint(HOST), constraint(ZONE)]
    # no node has both keys, so that no pod counts
    assert verdicts(SPREAD, cluster, spreading(*hard)) == {"n": f"!{NO_LABEL}", "m": f"!{NO_LABEL}"}


def test_a_selector_that_does_not_parse_is_an_error() -> None:
    wrong = {"matchExpressions": [{"key": "app", "operator": "In", "values": []}]}
    found = verdicts(SPREAD, two_zones(), spreading(constraint(labelSelector=wrong)))
    assert found.startswith("error: get constraints from pod: values: Invalid value")


@pytest.mark.parametrize("declared", [(), (constraint(whenUnsatisfiable="ScheduleAnyway"),)])
def test_pods_without_hard_constraints_are_skipped(declared: tuple[Body, ...]) -> None:
    assert verdicts(SPREAD, two_zones(a1=3), spreading(*declared)) == "skip"


# --- what a dry run sees ------------------------------------------------------------------------------


def test_a_dry_run_takes_off_terminating_pods_that_were_never_counted() -> None:
    cluster = two_zones(a1=1, a2=1, b1=1)
    going = pod_body("going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    victim = add(cluster, going, "a1")
    body = spreading(constraint())
    assert verdicts(SPREAD, cluster, body)["a1"] == TOO_MANY
    with cluster.dry_run():
        cluster.displace(victim.uid)
        assert verdicts(SPREAD, cluster, body)["a1"] == OK
    assert verdicts(SPREAD, cluster, body)["a1"] == TOO_MANY


def test_a_dry_run_counts_for_the_empty_selector() -> None:
    cluster = two_zones()
    body = spreading(constraint(labelSelector={}))
    assert verdicts(SPREAD, cluster, body)["a1"] == OK
    with cluster.dry_run():
        add(cluster, pod_body("nominated"), "a1")
        assert verdicts(SPREAD, cluster, body)["a1"] == TOO_MANY


# --- scores -------------------------------------------------------------------------------------------


def soft(key: str = ZONE, **more: Any) -> Body:
    return constraint(key, whenUnsatisfiable="ScheduleAnyway", **more)


def test_emptier_zones_score_higher_and_nodes_without_the_label_nothing() -> None:
    cluster = two_zones(a1=3, b1=1)
    assert scores(SPREAD, cluster, spreading(soft())) == {"a1": 25, "a2": 25, "b1": 100, "z": 0}


def test_pods_on_infeasible_nodes_count_but_their_domains_do_not() -> None:
    cluster = two_zones(a1=2, b1=1)
    assert scores(SPREAD, cluster, spreading(soft()), among=["a2"]) == {"a2": 100}
    assert scores(SPREAD, cluster, spreading(soft()), among=["a2", "b1"]) == {"a2": 33, "b1": 100}


def test_hostname_counts_the_node_alone() -> None:
    cluster = make_cluster([make_node("n", {HOST: "same"}), make_node("m", {HOST: "same"})])
    fill(cluster, n=2)
    assert scores(SPREAD, cluster, spreading(soft(HOST))) == {"n": 0, "m": 100}


def test_nothing_to_spread_scores_all_alike() -> None:
    assert scores(SPREAD, two_zones(), spreading(soft())) == {"a1": 100, "a2": 100, "b1": 100, "z": 0}


SERVICE = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}


def owned(kind: str, api_version: str) -> Body:
    body = pod_body()
    owner = {"kind": kind, "apiVersion": api_version, "name": "owner", "uid": "u", "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    return body


@pytest.mark.parametrize(
    ("things", "body"),
    [
        ([(objects.Service, SERVICE)], pod_body()),
        (
            [(objects.ReplicaSet, {"metadata": {"name": "owner", "namespace": "default"}, "spec": {"selector": WEB}})],
            owned("ReplicaSet", "apps/v1"),
        ),
        (
            [(objects.StatefulSet, {"metadata": {"name": "owner", "namespace": "default"}, "spec": {"selector": WEB}})],
            owned("StatefulSet", "apps/v1"),
        ),
        (
            [
                (
                    objects.ReplicationController,
                    {"metadata": {"name": "owner", "namespace": "default"}, "spec": {"selector": {"app": "web"}}},
                )
            ],
            owned("ReplicationController", "v1"),
        ),
    ],
    ids=["service", "replica set", "stateful set", "replication controller"],
)
def test_pods_without_constraints_are_spread_by_what_selects_them(things: list[Any], body: Body) -> None:
    cluster = make_cluster(zoned(a="a", b="b", c=""), *(converted(kind, thing) for kind, thing in things))
    fill(cluster, a=4)
    # raw: a (4 ln 5 + 2) + (4 ln 5 + 4), b 2 + 4, c 2: a node without a zone is still scored by its hostname
    assert scores(SPREAD, cluster, body) == {"a": 10, "b": 78, "c": 100}


@pytest.mark.parametrize(
    ("things", "body"),
    [
        ([], pod_body()),
        ([(objects.Service, SERVICE | {"spec": {}})], pod_body()),
        ([(objects.Service, SERVICE | {"metadata": {"name": "s", "namespace": "other"}})], pod_body()),
        ([(objects.Service, SERVICE)], pod_body(app="db")),
        ([(objects.Service, SERVICE)], spreading(constraint())),
        (
            [(objects.ReplicaSet, {"metadata": {"name": "owner", "namespace": "default"}, "spec": {"selector": WEB}})],
            owned("ReplicaSet", "extensions/v1beta1"),
        ),
    ],
    ids=["nothing", "no selector", "other namespace", "other labels", "own constraints", "other API group"],
)
def test_pods_that_nothing_selects_are_not_spread(things: list[Any], body: Body) -> None:
    cluster = make_cluster(zoned(a="a", b="b"), *(converted(kind, thing) for kind, thing in things))
    fill(cluster, a=4)
    assert scores(SPREAD, cluster, body) == "skip"


def test_a_changed_service_changes_the_default() -> None:
    cluster = make_cluster(zoned(a="a", b="b"), converted(objects.Service, SERVICE))
    fill(cluster, a=4)
    before = scores(SPREAD, cluster, pod_body())
    cluster.set_object(converted(objects.Service, SERVICE | {"spec": {"selector": {"app": "db"}}}))
    assert before["a"] < before["b"]
    assert scores(SPREAD, cluster, pod_body()) == "skip"


def test_defaults_can_be_set_by_the_operator() -> None:
    defaults = [objects.TopologySpreadConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule")]
    cluster = make_cluster(zoned(a="a", b="b"), converted(objects.Service, SERVICE))
    fill(cluster, a=1)
    assert verdicts(PodTopologySpread(defaults), cluster, pod_body()) == {"a": TOO_MANY, "b": OK}
    assert verdicts(SPREAD, cluster, pod_body()) == "skip"
