"""What a pod asks of a node: laws of adding up, names of resources, and pods that are being resized."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.requests import (
    DEFAULT_CPU_MILLIS,
    DEFAULT_MEMORY_BYTES,
    counted,
    existing,
    incoming,
    is_extended,
)
from kube_policy_scheduler.kubernetes_rules import KubernetesRules, KubernetesVersion

REQUESTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/x"]), st.integers(0, 5000), max_size=3)
CONTAINERS = st.lists(REQUESTS, max_size=3)
SINCE_137 = KubernetesRules(KubernetesVersion(37))
INIT = st.lists(st.tuples(st.booleans(), REQUESTS), max_size=4)
"""Whether it is a sidecar, and its requests."""


def container(requests: dict[str, int], *, sidecar: bool = False, name: str = "c") -> dict[str, Any]:
    body: dict[str, Any] = {"name": name, "resources": {"requests": {k: f"{v}m" for k, v in requests.items()}}}
    return body | ({"restartPolicy": "Always"} if sidecar else {})


def spec(regular: list[dict[str, int]], init: list[tuple[bool, dict[str, int]]], **more: Any) -> objects.PodSpec:
    body = {
        "containers": [container(requests) for requests in regular],
        "initContainers": [container(requests, sidecar=sidecar) for sidecar, requests in init],
    }
    return msgspec.convert(body | more, objects.PodSpec)


def at_any_time(regular: list[dict[str, int]], init: list[tuple[bool, dict[str, int]]], resource: str) -> int:
    """Return the most that runs at the same time, in thousandths: each init container in turn, then the pod."""
    moments = []
    sidecars = 0
    for sidecar, requests in init:
        moments.append(sidecars + requests.get(resource, 0))
        sidecars += requests.get(resource, 0) if sidecar else 0
    moments.append(sidecars + sum(requests.get(resource, 0) for requests in regular))
    return max(moments)


@given(CONTAINERS, INIT)
def test_a_pod_requests_the_most_that_runs_at_the_same_time(
    regular: list[dict[str, int]], init: list[tuple[bool, dict[str, int]]]
) -> None:
    requests = incoming(spec(regular, init)).requests
    for resource in ("cpu", "memory", "example.com/x"):
        thousandths = Fraction(at_any_time(regular, init, resource))
        wanted = thousandths if resource == "cpu" else math.ceil(thousandths / 1000)
        assert requests.get(resource, 0) == wanted


@given(CONTAINERS, INIT)
def test_scoring_defaults_fill_what_a_container_does_not_name(
    regular: list[dict[str, int]], init: list[tuple[bool, dict[str, int]]]
) -> None:
    def filled(requests: dict[str, int]) -> dict[str, int]:
        return {"cpu": DEFAULT_CPU_MILLIS, "memory": DEFAULT_MEMORY_BYTES * 1000} | requests

    plain = incoming(spec(regular, init))
    whole = incoming(spec([filled(r) for r in regular], [(sidecar, filled(r)) for sidecar, r in init]))

    assert plain.nonzero_cpu_millis == whole.requests.get("cpu", 0)
    assert plain.nonzero_memory_bytes == whole.requests.get("memory", 0)


@given(CONTAINERS, INIT)
def test_a_pod_without_resize_counts_for_what_it_requested(
    regular: list[dict[str, int]], init: list[tuple[bool, dict[str, int]]]
) -> None:
    own = spec(regular, init)

    assert existing(objects.Pod(metadata=objects.ObjectMeta(), spec=own)) == incoming(own)


@given(CONTAINERS, REQUESTS, REQUESTS)
def test_pod_level_requests_replace_and_overhead_adds(
    regular: list[dict[str, int]], pod_level: dict[str, int], overhead: dict[str, int]
) -> None:
    texts = {name: f"{value}m" for name, value in pod_level.items()}
    more = {"resources": {"requests": texts}, "overhead": {k: f"{v}m" for k, v in overhead.items()}}
    got = incoming(spec(regular, [], **more)).requests
    for resource in ("cpu", "memory", "example.com/x"):
        total = sum(requests.get(resource, 0) for requests in regular)
        if resource in pod_level and resource != "example.com/x":
            total = pod_level[resource]
        total += overhead.get(resource, 0)
        assert got.get(resource, 0) == (total if resource == "cpu" else math.ceil(Fraction(total, 1000)))


@given(REQUESTS, REQUESTS, REQUESTS, st.booleans())
def test_a_resized_container_counts_for_the_most_it_may_hold(
    wanted: dict[str, int], actuated: dict[str, int], allocated: dict[str, int], infeasible: bool
) -> None:
    reason = "Infeasible" if infeasible else "Deferred"
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [container(wanted)]},
        "status": {
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [
                {
                    "name": "c",
                    "resources": container(actuated)["resources"],
                    "allocatedResources": container(allocated)["resources"]["requests"],
                }
            ],
        },
    }
    got = Cluster().templates.pod(msgspec.convert(body, objects.Pod)).demand.requests
    for resource in ("cpu", "memory", "example.com/x"):
        states = [actuated, allocated] if infeasible else [actuated, allocated, wanted]
        most = max(state.get(resource, 0) for state in states)
        assert got.get(resource, 0) == (most if resource == "cpu" else math.ceil(Fraction(most, 1000)))


RESIZED = st.lists(
    st.tuples(st.booleans(), st.booleans(), REQUESTS, st.none() | REQUESTS, st.none() | REQUESTS),
    min_size=1,
    max_size=4,
)
"""Containers: whether it is an init container, and a sidecar; wanted, allocated and actuated amounts."""


def resized_pod(containers: list[Any], *, infeasible: bool, **status: Any) -> objects.Pod:
    def amounts(requests: dict[str, int]) -> dict[str, str]:
        return {name: f"{value}m" for name, value in requests.items()}

    regular, init, statuses, init_statuses = [], [], [], []
    for number, (is_init, sidecar, wanted, allocated, actuated) in enumerate(containers):
        of, reported = (init, init_statuses) if is_init else (regular, statuses)
        of.append(container(wanted, sidecar=is_init and sidecar, name=f"c{number}"))
        reported.append(
            {"name": f"c{number}"}
            | ({} if allocated is None else {"allocatedResources": amounts(allocated)})
            | ({} if actuated is None else {"resources": {"requests": amounts(actuated)}})
        )
    reason = "Infeasible" if infeasible else "Deferred"
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": regular, "initContainers": init},
        "status": {
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": statuses,
            "initContainerStatuses": init_statuses,
            **status,
        },
    }
    return msgspec.convert(body, objects.Pod)


def peak_of(containers: list[Any], held: Callable[[Any], dict[str, int]], resource: str) -> int:
    """Return what containers need at the same time, each by what `held` returns."""
    regular = [held(each) for each in containers if not each[0]]
    return at_any_time(regular, [(each[1], held(each)) for each in containers if each[0]], resource)


@given(RESIZED, st.booleans())
def test_since_1_37_a_resized_pod_counts_for_the_largest_of_three_sums(containers: list[Any], infeasible: bool) -> None:
    def wanted(each: Any) -> dict[str, int]:
        return each[2]  # type: ignore[no-any-return]

    def allocated(each: Any) -> dict[str, int]:
        return ({} if infeasible else each[2]) if each[3] is None else each[3]

    def actuated(each: Any) -> dict[str, int]:
        return allocated(each) if each[4] is None else each[4]

    got = existing(resized_pod(containers, infeasible=infeasible), SINCE_137).requests
    sums = (allocated, actuated) if infeasible else (wanted, allocated, actuated)
    for resource in ("cpu", "memory", "example.com/x"):
        most = max(peak_of(containers, held, resource) for held in sums)
        assert got.get(resource, 0) == (most if resource == "cpu" else math.ceil(Fraction(most, 1000)))


@given(RESIZED, st.booleans(), REQUESTS, REQUESTS)
def test_since_1_37_what_the_kubelet_reports_of_the_pod_takes_the_place_of_its_sums(
    containers: list[Any], infeasible: bool, allocated: dict[str, int], actuated: dict[str, int]
) -> None:
    status = {
        "allocatedResources": {name: f"{value}m" for name, value in allocated.items()},
        "resources": {"requests": {name: f"{value}m" for name, value in actuated.items()}},
    }
    got = existing(resized_pod(containers, infeasible=infeasible, **status), SINCE_137).requests
    for resource in ("cpu", "memory", "example.com/x"):
        most = max(allocated.get(resource, 0), actuated.get(resource, 0))
        if not infeasible:
            most = max(most, peak_of(containers, lambda each: each[2], resource))
        assert got.get(resource, 0) == (most if resource == "cpu" else math.ceil(Fraction(most, 1000)))


@given(REQUESTS, REQUESTS, st.booleans())
def test_a_resize_of_one_container_counts_the_same_in_all_versions(
    wanted: dict[str, int], held: dict[str, int], infeasible: bool
) -> None:
    pod = resized_pod([(False, False, wanted, held, held)], infeasible=infeasible)

    assert existing(pod, SINCE_137).requests == existing(pod).requests


@pytest.mark.parametrize(
    ("c1", "c2", "infeasible", "before", "since"),
    [
        ((2000, None), (1000, None), False, 3000, 3000),
        ((2000, 2000), (1000, 1000), False, 4000, 3000),
        ((None, None), (None, None), True, 3000, 0),
    ],
)
def test_what_two_resized_containers_count_for_by_version(
    c1: tuple[int | None, int | None], c2: tuple[int | None, int | None], infeasible: bool, before: int, since: int
) -> None:
    def amounts(value: int | None) -> dict[str, int] | None:
        return None if value is None else {"cpu": value}

    containers = [
        (False, False, {"cpu": 1000}, amounts(c1[0]), amounts(c1[1])),
        (False, False, {"cpu": 2000}, amounts(c2[0]), amounts(c2[1])),
    ]
    pod = resized_pod(containers, infeasible=infeasible)

    assert existing(pod).requests.get("cpu", 0) == before
    assert Cluster(SINCE_137).templates.pod(pod).demand.requests.get("cpu", 0) == since


@pytest.mark.parametrize(
    ("resource", "is_counted", "extended"),
    [
        ("cpu", True, False),
        ("pods", True, False),
        ("storage", False, False),
        ("gpu", False, False),
        ("nvidia.com/gpu", True, True),
        ("hugepages-2Mi", True, False),
        ("attachable-volumes-aws-ebs", True, False),
        ("kubernetes.io/batch-cpu", True, False),
        ("example.kubernetes.io/x", True, False),
        ("requests.example.com/x", False, False),
        ("a/b/c", False, False),
        ("UPPER.example/x", False, False),
        ("example..com/x", False, False),
        (f"{'a' * 63}.example/{'b' * 63}", True, True),
        (f"example.com/{'b' * 64}", False, False),
    ],
)
def test_names_of_resources(resource: str, is_counted: bool, extended: bool) -> None:
    assert (counted(resource), is_extended(resource)) == (is_counted, extended)
