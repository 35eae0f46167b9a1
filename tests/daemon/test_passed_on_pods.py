"""Pods passed on to another replica: old states and new ones are distinguished in any order of arrival."""

from __future__ import annotations

from kube_policy_scheduler.cluster.objects import ObjectMeta, Pod
from kube_policy_scheduler.cluster.pods import PodInfo, Templates
from kube_policy_scheduler.daemon.scheduling.passed_on_pods import PassedOnPods


def pod(version: int) -> PodInfo:
    return Templates().pod(Pod(metadata=ObjectMeta(name="p", uid="u", resource_version=str(version))))


def begun() -> PassedOnPods:
    passes = PassedOnPods()
    passes.begin("u")
    assert not passes.is_shown("u")
    return passes


def test_while_the_answer_is_outstanding_nothing_is_concluded() -> None:
    passes = begun()
    assert not passes.is_since(pod(3))
    assert not passes.is_since(pod(7))
    assert passes.shown() == []


def test_an_older_state_that_arrives_late_is_ignored() -> None:
    passes = begun()
    assert passes.answered("u", version=5) is None
    assert not passes.is_since(pod(4))
    assert passes.is_since(pod(5))
    assert passes.is_since(pod(6))


def test_what_came_before_the_answer_counts_if_it_is_from_after_the_write() -> None:
    passes = begun()
    passes.is_since(pod(4))
    passes.is_since(pod(6))
    since = passes.answered("u", version=5)
    assert since is not None
    assert since.resource_version == "6"


def test_what_came_before_the_answer_and_before_the_write_is_forgotten() -> None:
    passes = begun()
    passes.is_since(pod(4))
    assert passes.answered("u", version=5) is None
    assert passes.drop("u") is None


def test_a_pod_that_could_not_be_passed_on_is_as_the_watch_showed_it_last() -> None:
    passes = begun()
    passes.is_since(pod(4))
    early = passes.drop("u")
    assert early is not None
    assert early.resource_version == "4"
    assert "u" not in passes
    assert passes.answered("u", version=5) is None


def test_once_it_is_shown_each_later_state_counts() -> None:
    passes = begun()
    passes.answered("u", version=5)
    passes.show(pod(5))
    assert passes.is_shown("u")
    assert passes.is_since(pod(8))
    assert [each.resource_version for each in passes.shown()] == ["5"]
