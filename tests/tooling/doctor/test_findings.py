"""Each problem is found, and named with the probable intention; what could not be checked does not pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.doctor.access import NEEDED, Access, to_keep_past_usage, to_move_pods
from kube_policy_scheduler.tooling.doctor.examine import examine, is_found, meant_key
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from tests.deploy.test_permissions import allowed
from tests.framework.worlds import make_node, make_pod

NOW = 2e9
OURS = "policy-scheduler"
ZONE = "topology.kubernetes.io/zone"


def nodes(number: int = 6) -> list[objects.Node]:
    made = []
    for i in range(number):
        node = make_node(f"n{i}", {"labels": {ZONE: "ab"[i % 2], "disk": "ssd" if i < 4 else "hdd"}, "cpu": str(4 + i)})
        node.status.addresses = [objects.NodeAddress("InternalIP", f"10.0.0.{i}")]
        made.append(node)
    return made


def pod(name: str = "web", *, scheduler: str = OURS, **short: Any) -> objects.Pod:
    made = make_pod(name, {"cpu": "1", "labels": {"app": "web", "tenant": "red"}, **short})
    made.spec.scheduler_name = scheduler
    return made


def inspection(
    *texts: str,
    things: Sequence[Any] = (),
    signals: Signals = Signals.EMPTY,
    rules: KubernetesRules = DEFAULT_RULES,
    **more: Any,
) -> Inspection:
    sources = [Source(f"p{at}.policy", text) for at, text in enumerate(texts)]
    loaded = load(sources)
    assert loaded.policy_set is not None, loaded.diagnostics
    return Inspection(
        cluster_state(things or [*nodes(), pod()], rules),
        loaded.policy_set,
        NOW,
        signals,
        measured=signals is not Signals.EMPTY,
        live_metrics=signals is not Signals.EMPTY,
        **more,
    )


def found(sick: Inspection, check: str) -> list[tuple[str, Status, str, str]]:
    every = examine(sick, access=None)
    return [(one.subject, one.status, one.text, one.advice) for one in every if one.check == check]


# --- labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("topology.kubernetes.io/zon", ZONE),
        ("Topology.Kubernetes.io/Zone", ZONE),
        ("failure-domain.beta.kubernetes.io/zone", ZONE),
        ("dsik", "disk"),
        ("gpu", None),
    ],
)
def test_the_intended_key_is_found(key: str, meant: str | None) -> None:
    assert meant_key(key, {ZONE: 6, "disk": 6, "kubernetes.io/hostname": 6}) == meant


def test_a_label_on_no_node_is_a_problem_if_a_similar_one_exists() -> None:
    (finding,) = found(inspection('score 1 if node.label["topology.kubernetes.io/zon"] == "a"\n'), "labels")

    assert finding == (
        "node label topology.kubernetes.io/zon", Status.PROBLEM, "on 0 of 6 nodes",
        f"did you mean `{ZONE}`? it is on 6",
    )  # fmt: skip


def test_values_are_looked_at_too() -> None:
    found_ = found(inspection('filter node.label.disk in ["SSD", "ssd", "tape"]\n'), "labels")

    assert found_ == [
        ("node label disk", Status.OK, "on 6 of 6 nodes", ""),
        ("node label disk", Status.WARNING, "no node has the value `SSD`", "did you mean `ssd`? 4 have it"),
        ("node label disk", Status.OK, "no node has the value `tape`", "there are: `ssd`, `hdd`"),
    ]


def test_a_label_that_must_be_absent_may_be() -> None:
    ((_, status, text, _),) = found(inspection('filter node.label.retired != "yes"\n'), "labels")

    assert (status, text) == (Status.OK, "on 0 of 6 nodes")


def test_the_labels_of_pods_are_looked_at_on_the_pods_that_the_policy_governs() -> None:
    things = [*nodes(), pod("mine"), pod("other", scheduler="default-scheduler")]

    assert found(inspection("spread by pod.label.tenant\n", things=things), "labels") == [
        ("pod label tenant", Status.OK, "on 1 of 1 pod", "")
    ]


def test_without_pods_the_result_is_unknown() -> None:
    ((_, status, _, _),) = found(inspection("spread by pod.label.tenant\n", things=nodes()), "labels")

    assert status is Status.UNCHECKED


# --- metrics ---------------------------------------------------------------------------------------------


def vector(labels: Sequence[Mapping[str, str]], *, age: float = 0.0, values: Sequence[float] | None = None) -> Signals:
    given = values or [float(i) for i in range(len(labels))]
    series = tuple(Series(one, value, NOW - age) for one, value in zip(labels, given, strict=True))
    return Signals.of([Reading("load", series, evaluated_at=NOW, fetched_at=NOW)])


LOAD = 'score -promql("load") ?? 0\n'


def metric(signals: Signals, **more: Any) -> tuple[Status, str, str]:
    first, *_ = found(inspection(LOAD, signals=signals, **more), "metrics")
    return first[1:]


def test_a_metric_of_every_node_passes() -> None:
    assert metric(vector([{"node": f"n{i}"} for i in range(6)])) == (Status.OK, "on 6 of 6 nodes", "")


def test_nodes_without_a_value_are_named() -> None:
    status, text, _ = metric(vector([{"node": f"n{i}"} for i in range(4)]))

    assert (status, text) == (Status.WARNING, "on 4 of 6 nodes; not on n4, n5")


@pytest.mark.parametrize(
    ("text", "labels", "said"),
    [
        ("for cluster default 0", [{}], (Status.OK, "one value for the cluster: 0", "")),
        (
            "for cluster default 0",
            [{"a": "1"}, {"a": "2"}],
            (
                Status.PROBLEM,
                "no value for the cluster",
                '2 series (such as {a="1"}), expected one for the cluster: aggregate, for example sum(…)',
            ),
        ),
        (
            "default 0 by tenant as pod.label.tenant",
            [{"tenant": "red"}, {"tenant": "blue"}, {"node": "n1"}],
            (
                Status.WARNING,
                "for 2 values of the label `tenant`, such as blue, red",
                "1 series without the label `tenant`",
            ),
        ),
        (
            "default 0 by tenant as pod.label.tenant",
            [{"node": "n1"}],
            (Status.PROBLEM, "for 0 values of the label `tenant`", "1 series without the label `tenant`"),
        ),
    ],
)
def test_metrics_that_are_not_of_nodes_are_looked_at(
    text: str, labels: list[dict[str, str]], said: tuple[Status, str, str]
) -> None:
    sick = inspection(f'metric m = promql("load") {text}\nrequire m < 100\n', signals=vector(labels))

    assert [one[1:] for one in found(sick, "metrics")] == [said]


def test_the_label_that_names_nodes_is_suggested() -> None:
    status, text, advice = metric(vector([{"machine": f"n{i}", "job": "x"} for i in range(6)]))

    assert (status, text) == (Status.PROBLEM, "on 0 of 6 nodes; not on n0, n1, n2 and 3 more")
    assert advice.endswith('their label `machine` names nodes: promql("load", by="machine")')


def test_a_name_with_a_domain_is_shown_beside_the_node() -> None:
    _, _, advice = metric(vector([{"node": f"n{i}.acme.corp"} for i in range(6)]))

    assert "`node` is `n0.acme.corp`, the node is `n0`: use label_replace" in advice


def test_labels_that_name_nothing_are_listed() -> None:
    _, _, advice = metric(vector([{"pod": f"x{i}", "job": "y"} for i in range(3)]))

    assert "none of their labels (job, pod) names a node" in advice


def test_duplicates_are_a_problem_and_the_label_that_differs_is_named() -> None:
    labels = [{"node": "n0", "cpu": "0"}, {"node": "n0", "cpu": "1"}]

    status, _, advice = metric(vector(labels))

    assert status is Status.PROBLEM
    assert advice == (
        "several series with different values for n0, which differ in `cpu`: aggregate them, as in max by (node) (load)"
    )


@pytest.mark.parametrize(("age", "status"), [(50, None), (70, Status.WARNING), (130, Status.PROBLEM)])
def test_old_samples_are_held_against_their_limit(age: float, status: Status | None) -> None:
    signals = vector([{"node": f"n{i}"} for i in range(6)], age=age)

    aged = [one for one in found(inspection(LOAD, signals=signals), "metrics") if "oldest sample" in one[2]]

    assert [one[1] for one in aged] == ([] if status is None else [status])


def test_a_query_that_is_refused_is_a_problem_and_a_server_that_is_away_is_unknown() -> None:
    assert metric(Signals.EMPTY, refused={"load": "no"})[0] is Status.PROBLEM
    assert metric(Signals.EMPTY, unanswered={"load": "no"})[0] is Status.UNCHECKED
    assert metric(Signals.EMPTY)[0] is Status.UNCHECKED
    assert metric(vector([]))[0] is Status.PROBLEM


def test_the_clock_of_prometheus_is_held_against_ours() -> None:
    series = (Series({"node": "n0"}, 1.0, NOW - 60),)
    late = Signals.of([Reading("load", series, evaluated_at=NOW - 60, fetched_at=NOW)])

    assert ("prometheus", Status.WARNING, "its clock is 60 s behind the local clock", "synchronise them") in found(
        inspection(LOAD, signals=late), "clocks"
    )


# --- filters and scores ----------------------------------------------------------------------------------


def test_a_filter_that_refuses_everything_is_a_problem() -> None:
    text = 'filter node.free.cpu > 100 as room\nfilter node.ready or true_ as any\nlet true_ = node.name != ""\n'

    statuses = {subject: status for subject, status, _, _ in found(inspection(text), "filters")}

    assert statuses == {"room": Status.PROBLEM, "any": Status.OK}


@pytest.mark.parametrize(
    ("tenants", "status", "text"),
    [
        (["red", "blue"], Status.OK, "rejects none of 2 kinds of pods"),
        (["red", None], Status.OK, "rejects 1 of 2 kinds of pods, such as default/pod-1"),
        ([None, None], Status.PROBLEM, "rejects each of 2 kinds of pods tried"),
    ],
)
def test_a_require_is_a_problem_where_it_refuses_every_pod(
    tenants: Sequence[str | None], status: Status, text: str
) -> None:
    labels = [{"tenant": tenant} if tenant else {"n": str(at)} for at, tenant in enumerate(tenants)]
    things = [*nodes(), *(pod(f"pod-{at}", labels=each) for at, each in enumerate(labels))]

    ((_, got, said, _),) = found(inspection("require pod.label.tenant as tenants\n", things=things), "filters")

    assert (got, said) == (status, text)


def test_a_filter_that_rejects_everything_for_one_kind_of_pod_alone_is_no_problem() -> None:
    things = [*nodes(), pod("large", cpu="100"), pod("small")]

    ((_, status, text, _),) = found(
        inspection("filter node.free.cpu >= pod.request.cpu as room\n", things=things), "filters"
    )

    assert (status, text) == (Status.OK, "rejects 0 to 6 of 6 nodes")


def test_a_filter_whose_condition_never_holds_refuses_nothing() -> None:
    ((_, status, text, _),) = found(inspection('filter node.ready if pod.namespace == "x" as only\n'), "filters")

    assert (status, text) == (Status.OK, "rejects no node now")


def test_a_score_below_the_smallest_step_of_another_only_breaks_ties() -> None:
    found_ = found(inspection("score node.free.cpu as free\nscore node.free.cpu * 0.001 as tiny\n"), "scores")

    assert [(subject, status) for subject, status, _, _ in found_] == [("free", Status.OK), ("tiny", Status.WARNING)]
    assert "the smallest step of `free` is 1" in found_[1][2]


def test_a_score_that_is_the_same_everywhere_is_a_warning() -> None:
    ((_, status, text, _),) = found(inspection('score 10 if node.label.disk != "tape" as flat\n'), "scores")

    assert status is Status.WARNING
    assert "is the same on every node" in text


def test_without_a_pod_rules_are_not_tried() -> None:
    ((_, status, _, _),) = found(inspection("filter node.ready\n", things=nodes()), "rules")

    assert status is Status.UNCHECKED


# --- pods ------------------------------------------------------------------------------------------------


def test_pods_without_policies_and_policies_without_pods_are_found() -> None:
    text = 'for pods where pod.namespace == "batch"\nfilter node.ready\n'
    things = [*nodes(), pod("lost"), pod("astray", scheduler="policy-schedular")]

    statuses = {
        subject: (status, said, advice)
        for subject, status, said, advice in found(inspection(text, things=things), "pods")
    }

    assert statuses["policy p0"][0] is Status.WARNING
    assert statuses[f"scheduler {OURS}"][:2] == (
        Status.PROBLEM, "1 pod asks for it and is governed by no policy: default/lost",
    )  # fmt: skip
    assert statuses["scheduler policy-schedular"][2] == f"did you mean `{OURS}`?"


# --- access ----------------------------------------------------------------------------------------------


def access(findings: Sequence[Finding], check: str) -> list[tuple[Status, str]]:
    return [(one.status, one.text) for one in findings if one.check == check and one.subject != "prometheus"]


def test_what_is_denied_is_a_problem_and_what_could_not_be_asked_is_not_a_pass() -> None:
    sick = inspection("filter node.ready\n")
    answers: dict[Any, bool | str] = dict.fromkeys(NEEDED, True)

    assert access(examine(sick, access=Access(answers, 0.3)), "permissions") == [
        (Status.OK, "has all permissions that a scheduler needs")
    ]
    denied = {what: what.resource != "nodes" for what in NEEDED}
    assert access(examine(sick, access=Access(denied, -40.0)), "permissions") == [
        (Status.PROBLEM, "may not list/watch nodes")
    ]
    assert access(examine(sick, access=Access(denied, -40.0)), "clocks") == [
        (Status.WARNING, "its clock is 40 s behind the local clock")
    ]
    unknown = {**answers, NEEDED[0]: "500 broken"}
    assert access(examine(sick, access=Access(unknown, "no time")), "permissions") == [
        (Status.UNCHECKED, "whether it may list nodes: 500 broken")
    ]
    assert access(examine(sick, access=None), "clocks") == [(Status.UNCHECKED, "the cluster is a saved one")]


def test_an_account_that_may_not_store_the_past_usage_of_queues_is_a_warning_of_its_own() -> None:
    asked = to_keep_past_usage("policy-scheduler", "policy-scheduler-queues")
    answers: dict[Any, bool | str] = dict.fromkeys(NEEDED, True) | {each: each.verb == "create" for each in asked}
    assert access(examine(inspection("filter node.ready\n"), access=Access(answers, 0.3)), "permissions") == [
        (
            Status.WARNING,
            "may not get/update leases.coordination.k8s.io policy-scheduler/policy-scheduler-queues: the past usage of"
            " queues (`remember`) is lost at a restart",
        )
    ]


def test_an_account_that_may_not_move_pods_or_keep_what_it_moved_is_a_warning_of_its_own() -> None:
    asked = to_move_pods("policy-scheduler", "policy-scheduler-moves")
    answers: dict[Any, bool | str] = dict.fromkeys(NEEDED, True) | {each: each.verb == "get" for each in asked}
    assert access(examine(inspection("filter node.ready\n"), access=Access(answers, 0.3)), "permissions") == [
        (Status.WARNING, "may not create pods/eviction: moves (`rebalance`) are planned only"),
        (
            Status.WARNING,
            "may not create leases.coordination.k8s.io, update leases.coordination.k8s.io"
            " policy-scheduler/policy-scheduler-moves: what was moved (`rebalance`) is lost at a restart, so that"
            " workloads do not rest",
        ),
    ]


def test_the_permissions_asked_for_are_those_of_the_role() -> None:
    assert {(one.group, one.resource, one.verb) for one in NEEDED} == {one for one in allowed() if one[2] != "get"}


@pytest.mark.parametrize(
    ("status", "is_one"),
    [(Status.OK, False), (Status.UNCHECKED, False), (Status.WARNING, True), (Status.PROBLEM, True)],
)
def test_what_could_not_be_checked_is_not_found(status: Status, is_one: bool) -> None:
    well = Finding("labels", "x", Status.OK, "well")

    assert is_found([well, Finding("labels", "y", status, "somehow")]) is is_one
