"""Which policy governs a pod is found once for all pods of a template, however many policies there are to ask."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.policy_set import PolicySet, load

CLUSTER = Cluster()


def policies(count: int, condition: str = 'pod.label.a == "{0}" or pod.label.b == "{0}"') -> PolicySet:
    """Return policies for different pods, and one for what is left."""
    texts = {
        f"p{number}.policy": f"for pods where {condition.format(number)}\npriority {number + 1}\n"
        for number in range(count)
    }
    loaded = load([Source(name, text) for name, text in {**texts, "rest.policy": "filter node.ready\n"}.items()])
    assert loaded.policy_set is not None, loaded.diagnostics
    return loaded.policy_set


def pod(name: str, **labels: str) -> PodInfo:
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {"schedulerName": "policy-scheduler"},
    }
    return CLUSTER.templates.pod(msgspec.convert(body, objects.Pod))


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called: the same on any machine."""
    number = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal number
        number += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return number


def governing(found: PolicySet, each: PodInfo) -> str:
    policy = found.governing(each)
    assert policy is not None
    return policy.name


def test_the_pods_of_one_template_are_asked_about_once() -> None:
    found = policies(200)
    first, others = pod("first", c="x"), [pod(f"other{number}", c="x") for number in range(20)]
    dear = calls(lambda: governing(found, first))
    assert dear > 200
    assert {governing(found, each) for each in others} == {"rest"}
    assert calls(lambda: [governing(found, each) for each in others]) < dear


def test_a_policy_that_distinguishes_pods_of_a_template_is_evaluated_once_per_attempt() -> None:
    found = policies(200, 'pod.name == "web-{0}" or pod.name == "api-{0}"')
    assert governing(found, pod("web-7")) == "p7"
    assert governing(found, pod("api-199")) == "p199"
    same = pod("other")
    dear = calls(lambda: governing(found, same))
    assert calls(lambda: [governing(found, same) for _ in range(10)]) < dear


def test_policies_by_label_and_by_pod_name_interleave() -> None:
    texts = {
        "a.policy": 'for pods where pod.label.tier == "gold"\npriority 3\n',
        "b.policy": 'for pods where pod.name == "one"\npriority 2\n',
        "c.policy": 'for pods where pod.label.tier == "iron"\npriority 1\n',
        "d.policy": 'for pods where pod.name == "two"\n',
    }
    found = load([Source(name, text) for name, text in texts.items()]).policy_set
    assert found is not None

    def name(each: PodInfo) -> str | None:
        policy = found.governing(each)
        return policy.name if policy is not None else None

    for _ in range(2):
        assert [name(pod(each, tier="gold")) for each in ("one", "two")] == ["a", "a"]
        assert [name(pod(each, tier="iron")) for each in ("one", "two")] == ["b", "c"]
        assert [name(pod(each, tier="wood")) for each in ("one", "two", "three")] == ["b", "d", None]


@pytest.mark.parametrize("names", [["policy-scheduler"], ["other"]])
def test_a_change_of_the_watched_schedulers_changes_the_governing_policy(names: list[str]) -> None:
    found = load([Source("a.policy", "scheduler other\nfilter node.ready\n")]).policy_set
    assert found is not None
    web = pod("web")
    assert found.governing(web) is None
    assert (found.standing_in_as(frozenset(names)).governing(web) is not None) == (names == ["other"])
