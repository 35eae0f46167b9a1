"""Policies of several owners: which one governs a pod, what each may use, and that no owner affects pods of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Severity, Source
from kube_policy_scheduler.lang.owner import ADMINISTRATORS, ALLOWED_BY_DEFAULT, RESTRICTABLE, Owner, SetLimits
from kube_policy_scheduler.lang.statements import BY_KEYWORD
from kube_policy_scheduler.policy.policy_set import PolicySet, load, scope_problem

CLUSTER = Cluster()
TEAM_A = Owner("team-a", ("team-a", "team-a-*"), max_priority=10)
TEAM_B = Owner("team-b", ("team-b",), max_priority=10)


def pod(namespace: str, name: str = "web", **labels: str) -> PodInfo:
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels},
        "spec": {"schedulerName": "policy-scheduler"},
    }
    return CLUSTER.templates.pod(msgspec.convert(body, objects.Pod))


def written(owner: Owner | None, **texts: str) -> PolicySet:
    found = load([Source(f"{name}.policy", text) for name, text in texts.items()], owner=owner)
    assert found.policy_set is not None, found.diagnostics
    return found.policy_set


def rejected(text: str, owner: Owner = TEAM_A) -> list[str]:
    found = load([Source("a.policy", text)], owner=owner).diagnostics
    return [each.code for each in found if each.severity is Severity.ERROR]


def governing(parts: Sequence[PolicySet], of: PodInfo) -> str | None:
    found = PolicySet.together(parts).governing(of)
    return found.name if found is not None else None


def test_a_policy_of_an_owner_governs_the_owners_pods_only() -> None:
    everything = written(TEAM_A, web="filter node.ready\n")

    assert governing([written(None), everything], pod("team-a")) == "team-a/web"
    assert governing([written(None), everything], pod("team-a-dev")) == "team-a/web"
    assert governing([written(None), everything], pod("team-b")) is None
    assert governing([written(None), everything], pod("team-ab")) is None


NAMES = st.text("ab-", min_size=1, max_size=6)


@given(NAMES, st.sampled_from(["true", 'pod.namespace != ""', 'pod.label.app == "web" or true', "not false"]))
def test_no_condition_reaches_a_pod_of_another_namespace(namespace: str, condition: str) -> None:
    text = f"for pods where {condition}\nfilter node.ready\n"
    found = load([Source("a.policy", text)], owner=Owner("o", ("a", "a-*"))).policy_set
    own = namespace == "a" or namespace.startswith("a-")
    assert found is not None
    assert (found.governing(pod(namespace)) is not None) == own


def test_the_administrator_can_narrow_an_owner_by_a_condition() -> None:
    narrow = Owner("team-b", ("*",), pods="pod label tier in (web, api)")

    assert governing([written(None), written(narrow, web="filter node.ready\n")], pod("x", tier="api")) == "team-b/web"
    assert governing([written(None), written(narrow, web="filter node.ready\n")], pod("x", tier="db")) is None


@pytest.mark.parametrize("condition", ["node.ready", "pod.waiting > 1min", 'promql("x") > 1', "1", "pod.nothing"])
def test_the_condition_of_an_owner_is_one_on_pods(condition: str) -> None:
    assert scope_problem(Owner("o", ("a",), pods=condition)) is not None


def test_of_the_same_priority_an_owner_goes_before_the_administrator_and_owners_in_their_order() -> None:
    default = written(None, default="filter node.ready\n")
    both = Owner("second", ("team-a",))
    first, second = written(TEAM_A, z="filter node.ready\n"), written(both, a="filter node.ready\n")

    assert governing([default, first, second], pod("team-a")) == "team-a/z"
    assert governing([default, second, first], pod("team-a")) == "second/a"
    assert governing([default, first, second], pod("other")) == "default"


def test_a_higher_priority_goes_first_for_all_owners() -> None:
    guard = written(None, guard="priority 100\nfilter node.ready\n")
    urgent = written(TEAM_A, urgent="priority 10\nfilter node.ready\n")

    assert governing([guard, urgent], pod("team-a")) == "guard"
    assert governing([written(None, low="priority 9\n"), urgent], pod("team-a")) == "team-a/urgent"


def test_two_owners_may_use_one_name() -> None:
    parts = [written(None, web="filter node.ready\n")]
    parts += [written(owner, web="filter node.ready\n") for owner in (TEAM_A, TEAM_B)]

    assert {policy.name for policy in PolicySet.together(parts).policies} == {"web", "team-a/web", "team-b/web"}


def test_an_owner_has_canaries_of_its_own_policies() -> None:
    texts = {"web": "filter node.ready\n", "next": "canary of web for pods where pod label try=it\nfilter fits()\n"}
    parts = [written(None, web="filter node.ready\n"), written(TEAM_A, **texts)]

    assert governing(parts, pod("team-a", **{"try": "it"})) == "team-a/next"
    assert governing(parts, pod("team-a")) == "team-a/web"
    assert governing(parts, pod("team-b", **{"try": "it"})) == "web"
    assert rejected("canary of web for 10%\nfilter node.ready\n") == ["P0213"]


EXAMPLES = {
    "require": "require pod label a",
    "filter": "filter node.ready",
    "score": "score 1 if label a",
    "hold": 'hold if pod.annotation.paused == "true"',
    "order": "order by pod.queued",
    "spread": "spread by pod.label.a",
    "pack": "pack by pod.label.a",
    "limit": "limit count() by pod.label.a to 4",
    "devices": "devices by fullest",
    "domains": "domains by tightest",
    "use kubernetes scores": "use kubernetes scores",
    "gang": "gang by pod.label.a size 2",
    "preempt": "preempt never",
    "use kubernetes without": "use kubernetes without NodePorts",
    "promql": 'score promql("x") ?? 1',
}


@pytest.mark.parametrize("word", EXAMPLES)
def test_each_statement_is_allowed_by_its_word_alone(word: str) -> None:
    others = frozenset(RESTRICTABLE) - {word}
    if word == "promql":
        others |= {"score"}

    assert "P0216" in rejected(EXAMPLES[word], Owner("o", ("a",), allowed=others))
    assert "P0216" not in rejected(EXAMPLES[word], Owner("o", ("a",), allowed=frozenset({word, "score"})))


def test_what_affects_others_is_denied_unless_allowed() -> None:
    assert set(RESTRICTABLE) - set(ALLOWED_BY_DEFAULT) == {
        "gang",
        "preempt",
        "rebalance",
        "use kubernetes without",
        "promql",
    }
    assert rejected("scheduler default-scheduler\n") == ["P0216"]
    assert rejected("scheduler batch\n", Owner("o", ("a",), schedulers=frozenset({"batch"}))) == []


def test_a_metric_that_is_only_named_is_a_query_too_where_it_is_used() -> None:
    assert rejected('metric load = promql("x") default 1\nscore load\n') == ["P0216"]


def test_every_statement_can_be_allowed_or_needs_no_permission() -> None:
    words = {word.split()[0] for word in RESTRICTABLE} | {"policy", "scheduler", "for", "priority", "ties"}
    assert BY_KEYWORD.keys() - ADMINISTRATORS <= words | {"let", "def", "metric", "use", "language"}


@pytest.mark.parametrize("text", ["filter cluster.ready", "divide evenly", "choose 2 clusters", "keep nothing", ""])
def test_only_the_administrator_chooses_clusters(text: str) -> None:
    assert set(rejected(f"for workloads where true\nuse karmada\n{text}\n")) == {"P0216"}


def test_a_used_file_does_not_hide_what_is_not_allowed() -> None:
    files = [Source("o/a.policy", 'use "b.policy"\nfilter node.ready\n'), Source("o/b.policy", "preempt never\n")]
    assert "P0216" in [each.code for each in load(files, owner=TEAM_A).diagnostics]


def test_a_priority_has_a_limit() -> None:
    assert rejected("priority 11\nfilter node.ready\n") == ["P0217"]
    assert rejected("priority 10\nfilter node.ready\n") == []


@pytest.mark.parametrize("owners", [1, 10, 20, 100])
def test_owners_share_what_all_may_use(owners: int) -> None:
    share, whole = SetLimits().share(owners), SetLimits()
    for field in ("statements", "steps", "governs_cost", "inputs"):
        assert 0 < getattr(share, field) * owners <= getattr(whole, field)
    assert SetLimits().share(1) == SetLimits().share(10)


def test_an_owner_has_a_share_of_the_statements_only() -> None:
    limited = Owner("o", ("a",), limits=SetLimits(statements=3))
    assert rejected("filter node.ready\n" + "filter fits(cpu)\n" * 2, limited) == []
    assert rejected("filter node.ready\n" + "filter fits(cpu)\n" * 3, limited) == ["P0002"]


@pytest.mark.parametrize(
    ("one", "two", "meet"),
    [
        ("a", "a", True), ("a", "b", False), ("a-*", "a-b", True), ("a-*", "b-*", False), ("*", "b", True),
        ("a-*", "a-b-*", True), ("*-x", "*-y", False), ("*-x", "a-*", True),
    ],
)  # fmt: skip
def test_two_owners_may_meet_where_their_namespaces_do(one: str, two: str, meet: bool) -> None:
    assert Owner("x", (one,)).may_meet(Owner("y", (two,))) is meet
    assert Owner("y", (two,)).may_meet(Owner("x", (one,))) is meet
