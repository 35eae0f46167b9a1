"""Laws of dividing replicas: whatever the votes, the bounds and what runs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.fleet.apportion import Claim, apportion, fill
from kube_policy_scheduler.fleet.division import BEST_FIRST, EVENLY, Level, Member, divide

NAMES = "abcdefgh"
WORDS = (EVENLY, BEST_FIRST, "")


@st.composite
def claims(draw: st.DrawFn) -> Mapping[str, Claim]:
    found = {}
    for name in NAMES[: draw(st.integers(1, 8))]:
        least = draw(st.integers(0, 5))
        votes = draw(st.floats(0, 1e6, allow_subnormal=False) | st.integers(0, 9).map(float))
        found[name] = Claim(votes, least, least + draw(st.integers(0, 40)))
    return found


@given(claims(), st.integers(0, 400))
def test_seats_are_within_bounds_and_all_are_given_that_can_be(asked: Mapping[str, Claim], more: int) -> None:
    seats = sum(claim.least for claim in asked.values()) + more
    found = apportion(seats, asked, {name: at for at, name in enumerate(asked)})

    assert all(asked[name].least <= count <= asked[name].limit for name, count in found.items())
    assert sum(found.values()) == min(seats, sum(claim.limit for claim in asked.values()))


@given(claims(), st.integers(0, 400))
def test_no_seat_would_rather_be_somewhere_else(asked: Mapping[str, Claim], more: int) -> None:
    """By Webster's method: who got the last seat has no smaller claim to it than who could still take one."""
    seats = sum(claim.least for claim in asked.values()) + more
    found = apportion(seats, asked, {name: at for at, name in enumerate(asked)})
    last = [asked[name].votes / (2 * count - 1) for name, count in found.items() if count > asked[name].least]
    next_ = [asked[name].votes / (2 * count + 1) for name, count in found.items() if count < asked[name].limit]

    assert min(last, default=math.inf) >= max(next_, default=0.0) * (1 - 1e-12)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(0, 10**9))
def test_many_replicas_are_divided_as_few_are_in_proportion(votes: list[int], seats: int) -> None:
    asked = {name: Claim(float(vote), 0, seats) for name, vote in zip(NAMES, votes, strict=False)}
    found = apportion(seats, asked, {name: at for at, name in enumerate(asked)})
    total = sum(claim.votes for claim in asked.values())

    assert sum(found.values()) == seats
    for name, count in found.items():
        assert abs(count - seats * asked[name].votes / total) <= len(asked) / 2 + 1


def test_equal_claims_come_in_the_order_of_their_places() -> None:
    asked = {name: Claim(1.0, 0, 9) for name in "abc"}

    assert apportion(4, asked, {"a": 0, "b": 1, "c": 2}) == {"a": 2, "b": 1, "c": 1}
    assert apportion(4, asked, {"a": 2, "b": 1, "c": 0}) == {"a": 1, "b": 1, "c": 2}


def test_one_is_filled_after_the_other() -> None:
    assert fill(7, [("a", 1, 4), ("b", 0, 9), ("c", 2, 9)]) == {"a": 4, "b": 1, "c": 2}


@st.composite
def fleets(draw: st.DrawFn) -> list[Member]:
    found = []
    for name in NAMES[: draw(st.integers(1, 8))]:
        has, room = draw(st.integers(0, 9)), draw(st.integers(0, 20))
        votes = draw(st.floats(0, 100, allow_subnormal=False)), draw(st.floats(0, 100, allow_subnormal=False))
        found.append(
            Member(name, has, has + room, draw(st.integers(0, 3)), (draw(st.sampled_from(["x", "y", "z"])),), votes)
        )
    return found


LEVELS = st.tuples(
    st.builds(Level, st.sampled_from([EVENLY, ""]), st.sampled_from([{}, {"x": 0.7, "y": 0.3}, {"x": 0.5}])),
    st.builds(Level, st.sampled_from(WORDS), st.just({})),
).map(list)


def divided(members: list[Member], levels: list[Level], replicas: int, *, keep: bool) -> dict[str, int]:
    return divide(replicas, members, levels, {each.name: at for at, each in enumerate(members)}, keep=keep)


@given(fleets(), LEVELS, st.integers(0, 120), st.booleans())
def test_the_room_is_never_exceeded_and_never_more_is_placed_than_asked_for(
    members: list[Member], levels: list[Level], replicas: int, keep: bool
) -> None:
    found = divided(members, levels, replicas, keep=keep)

    assert all(0 <= found[each.name] <= each.most for each in members)
    assert sum(found.values()) <= replicas


@given(fleets(), st.integers(0, 120), st.booleans())
def test_best_first_places_all_that_has_room(members: list[Member], replicas: int, keep: bool) -> None:
    plain = [Member(each.name, each.has, each.most, 0, (), (0.0,)) for each in members]
    found = divided(plain, [Level(BEST_FIRST, {})], replicas, keep=keep)
    able = sum(each.most for each in members)

    assert sum(found.values()) == min(replicas, able)


@given(fleets(), LEVELS)
def test_nothing_moves_if_nothing_is_lost(members: list[Member], levels: list[Level]) -> None:
    running = {each.name: each.has for each in members}

    assert divided(members, levels, sum(running.values()), keep=True) == running


@given(fleets(), LEVELS, st.integers(0, 120))
def test_what_runs_only_grows_or_only_shrinks(members: list[Member], levels: list[Level], replicas: int) -> None:
    found = divided(members, levels, replicas, keep=True)
    grows = replicas >= sum(each.has for each in members)

    assert all((found[each.name] >= each.has) if grows else (found[each.name] <= each.has) for each in members)


@given(fleets(), st.integers(1, 120))
def test_who_gets_some_gets_at_least_the_floor_unless_there_are_fewer_in_all(
    members: list[Member], replicas: int
) -> None:
    floor = 2
    plain = [Member(each.name, 0, each.most, floor, (), (each.votes[0] + 1,)) for each in members]
    found = divided(plain, [Level("", {})], replicas, keep=False)
    some = [count for count in found.values() if count]

    if any(each.most >= floor for each in plain) and replicas >= floor:
        assert all(count >= floor for count in some)
    else:
        assert len(some) <= 1


EVEN = [Level(EVENLY, {})]
CASES = {
    "at least one each, before the votes": (2, [("a", 0, 90, 1, 90.0), ("b", 0, 10, 1, 10.0)], {"a": 1, "b": 1}),
    "the best two have their floor, the third none": (
        5,
        [("a", 0, 9, 2, 1.0), ("b", 0, 9, 2, 1.0), ("c", 0, 9, 2, 1.0)],
        {"a": 3, "b": 2, "c": 0},
    ),
    "fewer replicas than the floor": (1, [("a", 0, 9, 2, 1.0), ("b", 0, 9, 2, 1.0)], {"a": 1, "b": 0}),
    "a cluster too small for the floor": (6, [("a", 0, 1, 2, 1.0), ("b", 0, 9, 2, 1.0)], {"a": 0, "b": 6}),
    "the worst leaves first": (
        4,
        [("a", 2, 9, 2, 1.0), ("b", 2, 9, 2, 1.0), ("c", 2, 9, 2, 1.0)],
        {"a": 2, "b": 2, "c": 0},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_at_least_comes_first(case: str) -> None:
    replicas, rows, expected = CASES[case]
    members = [Member(name, has, most, floor, (), (votes,)) for name, has, most, floor, votes in rows]

    assert divided(members, [Level("", {})], replicas, keep=True) == expected
