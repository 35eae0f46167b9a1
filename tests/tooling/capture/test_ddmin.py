"""The smallest part of a list with which something still holds."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.tooling.capture.reduce import grown, minimised


@given(st.sets(st.integers(0, 60)), st.integers(1, 60))
def test_what_is_needed_is_what_is_left(needed: set[int], size: int) -> None:
    needed = {one for one in needed if one < size}

    assert minimised(range(size), lambda part: needed <= set(part)) == sorted(needed)


@given(st.lists(st.sets(st.integers(0, 25), min_size=1), min_size=1, max_size=4))
def test_of_what_is_left_nothing_can_go(any_of: list[set[int]]) -> None:
    """One of several sets is enough, as with reasons that exclude each other."""

    def holds(part: Sequence[int]) -> bool:
        return any(needed <= set(part) for needed in any_of)

    left = minimised(range(26), holds)

    assert holds(left)
    assert not any(holds([one for one in left if one != gone]) for gone in left)


def test_few_of_many_are_found_in_few_trials() -> None:
    trials = 0

    def holds(part: Sequence[int]) -> bool:
        nonlocal trials
        trials += 1
        return {3, 1500, 4999} <= set(part)

    assert minimised(range(5000), holds) == [3, 1500, 4999]
    assert trials < 200


def test_what_is_at_the_beginning_is_found_without_the_rest() -> None:
    asked: list[int] = []

    def holds(part: Sequence[int]) -> bool:
        asked.append(len(part))
        return set(range(6)) <= set(part)

    assert grown(range(5000), holds, first=4) == list(range(8))
    assert max(asked) == 8
