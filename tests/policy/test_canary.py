"""`canary of`: a share of the workloads, or some pods, are decided by the next version of a policy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.lang.load import check_sources
from kube_policy_scheduler.policy.policy_set import PolicySet, load
from tests.lang.texts import sources

STABLE = """
# in batch.policy
scheduler batch-scheduler
for pods where pod.label.tier == "batch"
priority 10
filter node.ready
# in everything.policy
scheduler batch-scheduler
filter node.ready
"""


def policies(canary: str, *, stable: str = STABLE) -> PolicySet:
    """Return the policies with the canary `next`, which lint finds nothing wrong with."""
    loaded = load(sources(f"{stable}\n# in next.policy\n{canary}\nfilter node.ready and fits(cpu)\n"))
    assert loaded.policy_set is not None
    assert not loaded.diagnostics
    return loaded.policy_set


def pod(
    name: str, *, owner: tuple[str, str] | None = None, namespace: str = "default", tier: str = "batch", **labels: str
) -> PodInfo:
    """Return a pod of the scheduler; `owner` is its controller's kind and name."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": name, "labels": {"tier": tier} | labels}
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    body = {"metadata": metadata, "spec": {"schedulerName": "batch-scheduler"}}
    return Cluster().templates.pod(msgspec.convert(body, objects.Pod))


def governing(found: PolicySet, each: PodInfo) -> str | None:
    policy = found.governing(each)
    return policy.name if policy is not None else None


def taken(found: PolicySet, *, number: int = 1000) -> set[int]:
    """Return which of some Jobs the canary decides."""
    return {n for n in range(number) if governing(found, pod(f"p{n}", owner=("Job", f"job-{n}"))) == "next"}


def test_a_share_of_the_workloads_is_decided_by_the_canary() -> None:
    assert 70 <= len(taken(policies("canary of batch for 10%"))) <= 130


def test_a_larger_share_takes_more_workloads_and_gives_none_back() -> None:
    shares = [taken(policies(f"canary of batch for {share}%")) for share in (1, 10, 50, 100)]

    assert shares[0] < shares[1] < shares[2] < shares[3] == set(range(1000))


def test_another_policys_canary_tries_other_workloads() -> None:
    renamed = STABLE.replace("batch.policy", "bulk.policy")

    assert taken(policies("canary of batch for 20%")) != taken(policies("canary of bulk for 20%", stable=renamed))


@given(job=st.integers(0, 10_000), pods=st.lists(st.text("abc", min_size=1, max_size=5), min_size=2, max_size=4))
def test_all_pods_of_a_workload_are_decided_by_one_policy(job: int, pods: list[str]) -> None:
    found = HALF

    assert len({governing(found, pod(name, owner=("Job", f"job-{job}"))) for name in pods}) == 1


HALF = policies("canary of batch for 50%")


@pytest.mark.parametrize("number", range(8))
def test_a_deployment_stays_with_its_policy_over_its_rollouts(number: int) -> None:
    rollouts = [
        pod("p", owner=("ReplicaSet", f"web{number}-{hash_}"), **{"pod-template-hash": hash_})
        for hash_ in ("5d4f8c7b9", "66b6c48dd5", "7c9d", "f0f0")
    ]

    assert len({governing(HALF, each) for each in rollouts}) == 1


def test_workloads_of_one_name_in_two_namespaces_are_two() -> None:
    names = [f"team-{n}" for n in range(40)]
    found = {governing(HALF, pod("p", owner=("Job", "nightly"), namespace=name)) for name in names}

    assert found == {"batch", "next"}


@pytest.mark.parametrize("label", ["job", "scheduling.x-k8s.io/pod-group"])
def test_pods_that_start_together_are_decided_by_one_policy(label: str) -> None:
    stable = STABLE.replace("priority 10\n", "priority 10\ngang by pod.label.job size 4 if pod label job\n")
    found = policies("canary of batch for 50%\ngang by pod.label.job size 5 if pod label job", stable=stable)
    gangs = [
        {governing(found, pod(f"p{n}", owner=("Pod", f"{gang}-{n}"), **{label: f"g{gang}"})) for n in range(4)}
        for gang in range(12)
    ]

    assert all(len(each) == 1 for each in gangs)
    assert {name for each in gangs for name in each} == {"batch", "next"}


def test_pods_that_the_stable_policy_is_not_for_are_not_the_canarys() -> None:
    assert governing(policies("canary of batch for 100%"), pod("p", tier="web")) == "everything"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('canary of batch for pods where pod.namespace == "team-a"', {"team-a": "next", "team-b": "batch"}),
        ('canary of batch for 100% of pods where pod.namespace == "team-a"', {"team-a": "next", "team-b": "batch"}),
    ],
)
def test_one_namespace_first(line: str, expected: dict[str, str]) -> None:
    found = policies(line)

    assert {name: governing(found, pod("p", namespace=name)) for name in expected} == expected


def test_a_share_of_some_pods() -> None:
    found = policies('canary of batch for 50% of pods where pod.namespace == "team-a"')
    asked = [(name, pod(f"p{n}", namespace=name)) for n in range(20) for name in ("team-a", "team-b")]

    assert {(name, governing(found, each)) for name, each in asked} == {
        ("team-a", "next"),
        ("team-a", "batch"),
        ("team-b", "batch"),
    }


def test_scheduler_and_priority_are_the_stable_policys() -> None:
    found = policies("canary of batch for 10%")
    canary = found.named("next")

    assert canary is not None
    assert (canary.scheduler, canary.priority) == ("batch-scheduler", 10)
    assert [policy.name for policy in found.policies] == ["next", "batch", "everything"]


def test_a_canary_is_found_in_any_file() -> None:
    given_ = sources(STABLE + "\n# in a-next.policy\ncanary of batch for 10%\nfilter fits(cpu)\n")

    for order in (given_, given_[::-1]):
        assert not check_sources(order, environment()).diagnostics
