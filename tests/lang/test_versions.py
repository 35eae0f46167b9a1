"""The order of versions, and how policies read them from texts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.versions import release_number, version_key
from tests.builtins.test_calls import value_of
from tests.lang.clusters import NOW, cluster, node, pod
from tests.lang.texts import said

ASCENDING = [
    "1", "1.2.3-alpha", "1.2.3-alpha.2", "1.2.3-alpha.10", "1.2.3-beta", "1.2.3-rc.1", "1.2.3-rc2", "1.2.3", "1.2.3-1",
    "1.2.3-2-aws", "1.2.3-10-aws", "1.2.3-gke.5", "1.2.4", "1.10", "v1.33.2", "5.4", "5.15.0-1050-aws",
    "5.15.0-1051-aws", "6.1.0-13-amd64",
]  # fmt: skip
EQUAL = [("5.10", "5.10.0"), ("v1.33.2", "1.33.2"), ("1.33.2+k3s1", "1.33.2"), ("containerd://2.1.4", "2.1.4")]
NO_VERSIONS = ["", "v", "latest", "1.", "1..2", "1.2.x", "-1", "1" * 200, "x" * 200, "٣.١"]


def test_versions_are_ordered() -> None:
    keys = [version_key(text) for text in ASCENDING]
    for left, right in pairwise(keys):
        assert left is not None
        assert right is not None
        assert left < right


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_what_is_written_otherwise_is_equal(one: str, other: str) -> None:
    assert version_key(one) == version_key(other) is not None


@pytest.mark.parametrize("text", NO_VERSIONS)
def test_other_texts_are_not_versions(text: str) -> None:
    assert version_key(text) is None


@given(st.text(max_size=300))
def test_any_text_is_read_or_not(text: str) -> None:
    key = version_key(text)
    assert key is None or (key == key and not key < key)


@given(*[st.lists(st.integers(0, 10**17), min_size=1, max_size=5)] * 2)
def test_numbers_of_releases_are_ordered_as_releases_are(one: list[int], other: list[int]) -> None:
    left, right = (".".join(map(str, numbers)) for numbers in (one, other))
    keys, numbers = (version_key(left), version_key(right)), (release_number(left), release_number(right))
    assert None not in (*keys, *numbers)
    assert (keys[0] < keys[1]) == (numbers[0] < numbers[1])  # type: ignore[operator]


def value(text: str, **facts: Any) -> list[Any]:
    kernels = facts.get("kernels", ["5.4.0-1051-aws", "6.1.0-13-amd64", "odd", ""])
    nodes = [
        node(f"n{at}", status={"nodeInfo": {"kernelVersion": kernel}}, labels={"min": "6.0"} if at else {})
        for at, kernel in enumerate(kernels)
    ]
    world = cluster(*nodes)
    return value_of(text, Frame(pod(world, "p", labels=facts.get("labels", {})), world, NOW))[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('version(node.kernel) >= version("5.10")', [False, True, None, None]),
        ('version(node.kernel) ?? version("0") >= version("5.10")', [False, True, False, False]),
        ('(version(node.kernel) != version("5.4.0-1051-aws")) ?? true', [False, True, True, True]),
        ("version(node.kernel) > version(node.label.min)", [None, True, None, None]),
        ("version(pod.label.min) <= version(node.kernel)", [True, True, None, None]),
        ('version(pod.label.min) == version("5.4")', [True] * 4),
        ("version(node.kernel) is missing", [False, False, True, True]),
        ('(if node.label.min == "6.0" then version(node.kernel) else version("9")) < version("7")',
         [False, True, None, None]),
        ('if version(pod.label.none) ?? version("2") > version("1") then 1 else 0', [1.0] * 4),
    ],
)  # fmt: skip
def test_versions_compare_with_versions(text: str, expected: list[Any]) -> None:
    assert value(text, labels={"min": "5.4"}) == expected


@pytest.mark.parametrize(
    ("text", "problem", "advice"),
    [
        ('filter version(node.kernel) > "5.10"', "expected a version as on the other side", "only with versions"),
        ('filter version("new") > version(node.kernel)', '"new" is not a version', 'version("1.33.2")'),
        ('filter version(node.kernel) > version("5")', "can be missing", '?? version("0")'),
        ("score version(node.kernel)", "expected a number", "compare it with a version"),
        ('filter node.age > duration("10")', '"10" is not a duration', 'duration("1h30m")'),
        ('filter node.free.cpu > quantity("4x")', '"4x" is not a quantity', 'quantity("4Gi")'),
        ('filter node.age < time("tomorrow")', '"tomorrow" is not a time', "2026-11-22T12:53:00Z"),
        ("filter node.age > quantity(pod.label.x) ?? 0", "is cpu, bytes or a plain number", "duration(…)"),
    ],
)
def test_a_wrong_use_says_what_to_write(text: str, problem: str, advice: str) -> None:
    (found,) = said(text)
    assert problem in found.message
    assert advice in (found.help or "")


def test_versions_that_can_never_be_are_found() -> None:
    never = 'let v = version(node.kernel) ?? version("0")\nfilter v > version("6.0") and v < version("5.10")'
    may = never.replace("5.10", "6.10")
    assert [found.code for found in said(never)]
    assert not said(may)


def test_an_amount_takes_the_unit_of_what_it_meets() -> None:
    labels = {"mem": "2Gi", "cpu": "1500m", "n": "3"}
    kernels = ["", ""]
    assert value("node.free.mem > quantity(pod.label.mem)", labels=labels, kernels=kernels) == [True] * 2
    assert value("node.free.mem > 8 * quantity(pod.label.mem)", labels=labels, kernels=kernels) == [False] * 2
    assert value("node.free.cpu - quantity(pod.label.cpu)", labels=labels, kernels=kernels) == [2.5] * 2
    assert value("quantity(pod.label.n) ?? 0 + 1", labels=labels, kernels=kernels) == [4.0] * 2
    assert value("quantity(pod.label.none) ?? 1Gi", labels=labels, kernels=kernels) == [2.0**30] * 2
    assert value("quantity(pod.label.none) > 3", labels=labels, kernels=kernels) == [None] * 2
