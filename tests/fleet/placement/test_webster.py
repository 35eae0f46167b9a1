"""Webster's method: the same seats as one at a time, and what the method promises."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.fleet.placement.webster import fnv1a_32, webster

NAMES = st.sampled_from(["a", "b", "c", "m1", "m10", "m2", "west"])
VOTES = st.dictionaries(NAMES, st.one_of(st.integers(0, 12), st.integers(0, 10**9)), max_size=7)
UIDS = st.sampled_from(["", "uid-0", "uid-1", "uid-2", "uid-3"])


def one_by_one(seats: int, votes: Mapping[str, int], uid: str, most: Mapping[str, int]) -> dict[str, int]:
    given = dict.fromkeys(votes, 0)
    back = bool(uid) and fnv1a_32(uid) % 2 == 1
    names = sorted(votes, reverse=back)
    for _ in range(seats):
        able = [name for name in names if votes[name] > 0 and given[name] < most.get(name, seats)]
        if not able:
            break
        given[min(able, key=lambda name: (-votes[name] / (2 * given[name] + 1), given[name], names.index(name)))] += 1
    return given


@given(st.integers(0, 200), VOTES, UIDS, st.dictionaries(NAMES, st.integers(0, 40)))
def test_it_gives_what_one_seat_at_a_time_gives(
    seats: int, votes: dict[str, int], uid: str, most: dict[str, int]
) -> None:
    assert webster(seats, votes, uid, most=most) == one_by_one(seats, votes, uid, most)


@given(st.integers(0, 10**6), VOTES, UIDS)
def test_no_name_could_take_a_seat_from_another(seats: int, votes: dict[str, int], uid: str) -> None:
    given = webster(seats, votes, uid)
    assert sum(given.values()) == (seats if any(votes.values()) else 0)
    for name, count in given.items():
        for other, held in given.items():
            if held:
                assert votes[name] / (2 * count + 1) <= votes[other] / (2 * held - 1)


@pytest.mark.parametrize(
    ("seats", "votes", "uid", "found"),
    [
        (10, {"a": 1, "b": 1, "c": 1}, "", {"a": 4, "b": 3, "c": 3}),
        (10, {"a": 1, "b": 1, "c": 1}, "uid-1", {"a": 3, "b": 3, "c": 4}),
        (20, {"a": 18, "b": 12}, "", {"a": 12, "b": 8}),
        (2, {"a": 90, "b": 10}, "", {"a": 2, "b": 0}),
        (2**31 - 1, {"a": 2, "b": 1}, "", {"a": 1431655765, "b": 715827882}),
        (2**31 - 1, dict.fromkeys(("a", "b"), 2**63 - 1), "", {"a": 2**30, "b": 2**30 - 1}),
        (5, {}, "", {}),
        (5, {"a": 0}, "", {"a": 0}),
    ],
)
def test_replicas_are_divided_by_votes(seats: int, votes: dict[str, int], uid: str, found: dict[str, int]) -> None:
    assert webster(seats, votes, uid) == found


@pytest.mark.parametrize(("text", "value"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_the_hash_is_that_of_the_reference(text: str, value: int) -> None:
    assert fnv1a_32(text) == value
