"""What checking takes grows with what is checked, not with its square: counted in calls, for each kind of statement."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.policy_set import load

FEW, MANY = 40, 160
MOST = 1.2 * MANY / FEW
"""By which the calls may grow; with the square it would be 16."""
MOST_WITHIN_A_BOUND = {"queues of either": 1.5 * MANY / FEW}
"""Pairs of such conditions are compared, up to a number of them that is not reached with few."""


def lines(line: str, *, end: str = "score 1\n", begin: str = "") -> Callable[[int], str]:
    """Return texts of so many lines; `#` in a line is its number."""
    return lambda count: begin + "".join(line.replace("#", str(number)) + "\n" for number in range(count)) + end


def joined(part: str, separator: str, *, begin: str) -> Callable[[int], str]:
    """Return texts of one long line."""
    return lambda count: begin + separator.join(part.replace("#", str(number)) for number in range(count)) + "\n"


TEXTS: dict[str, Callable[[int], str]] = {
    "queues of texts": lines('queue q# for pods where pod.label.team == "t#" max cpu 5'),
    "queues of labels": lines("queue q# for pods where pod label team=t# min cpu 1 max cpu 5"),
    "queues of numbers": lines("queue q# for pods where pod.priority > # max cpu 5"),
    "queues of a namespace": lines('queue q# for pods where pod.namespace == "x" and pod.priority > # max cpu 5'),
    "queues of either": lines('queue q# for pods where pod.label.a == "x" or pod.label.b == "y#" max cpu 5'),
    "queues that nobody gets to": lines('queue q# for pods where pod.namespace == "m" max cpu 5'),
    "queues of a queue": lines('queue q# of root for pods where pod.namespace == "m#"', begin="queue root max cpu 5\n"),
    "queues of no queue": lines('queue q# of z# for pods where pod.namespace == "m#" max cpu 5'),
    "filters": lines('filter node.allocatable.cpu > # else "no #"'),
    "filters of labels": lines("filter label a#=b# or node.ready"),
    "the same filter": lines("filter node.ready"),
    "scores": lines("score # if label a#=b as s#"),
    "names": lines("let x# = node.allocatable.cpu + #\nfilter x# > #"),
    "names of names": lines("let x# = node.allocatable.cpu + #", end="score x0\n"),
    "functions": lines("def f#(a) = a + #\nfilter f#(1) > node.allocatable.cpu"),
    "metrics": lines('metric m# = promql("m#")\nscore m# ?? 0'),
    "queries": lines('score promql("m#") ?? 0'),
    "spreads": lines("spread by pod.label.a# over zone"),
    "gangs": lines("gang by pod.label.g# size 2"),
    "holds": lines('hold if pod.label.x == "#"'),
    "reclaims": lines("reclaim after 1#s"),
    "comments that ignore": lines("score # if label a#=b  # policy: ignore P0301".replace("  # p", "  \0 p")),
    "unknown fields": lines("filter node.redy#"),
    "unknown names": lines("let long_name_# = #\nscore lang_name_#"),
    "and": joined("label a#=b", " and ", begin="filter "),
    "or": joined("label a#=b", " or ", begin="filter "),
    "a list": joined('"n#"', ", ", begin="filter node.name in ["),
    "an order": joined("pod.label.a#", ", ", begin="order by "),
}


def calls(sources: list[Source]) -> int:
    """Return how many calls it takes to check, lint and compile policies."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        load(sources)
    finally:
        sys.setprofile(before)
    return count


def policy_of(text: str) -> list[Source]:
    return [Source("a.policy", text.replace("\0", "#"))]


@pytest.mark.long
@pytest.mark.parametrize("kind", TEXTS)
def test_statements(kind: str) -> None:
    text = TEXTS[kind]
    calls(policy_of(text(4)))  # what is done once
    few, many = calls(policy_of(text(FEW))), calls(policy_of(text(MANY)))
    assert many < MOST_WITHIN_A_BOUND.get(kind, MOST) * few, f"{kind}: {few:,} calls for {FEW}, {many:,} for {MANY}"


def test_policies() -> None:
    def files(count: int) -> list[Source]:
        text = "policy p#\npriority #\nfor pods where pod label team=t#\nfilter label a=b#\nscore least_allocated()\n"
        return [Source(f"p{number}.policy", text.replace("#", str(number))) for number in range(count)]

    calls(files(4))
    few, many = calls(files(FEW)), calls(files(MANY))
    assert many < MOST * few, f"{few:,} calls for {FEW} policies, {many:,} for {MANY}"
