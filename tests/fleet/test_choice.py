"""Laws of choosing clusters: how many, where, and which stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.fleet.choice import Option, TooFewError, Wanted, choose

OPTIONS = st.lists(
    st.builds(
        lambda runs, most, place: (runs, most, place),
        st.booleans(),
        st.integers(0, 20),
        st.sampled_from(["x", "y", "z", None]),
    ),
    max_size=8,
).map(lambda rows: [Option(f"c{number}", *row) for number, row in enumerate(rows)])
WANTED = st.builds(
    lambda fewest, more, places, replicas: Wanted(fewest, fewest + more, places, replicas),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 60),
)


@given(OPTIONS, WANTED)
def test_as_many_are_chosen_as_are_asked_for_in_enough_places(options: list[Option], wanted: Wanted) -> None:
    able = [each for each in options if each.place is not None or not wanted.places]
    try:
        chosen = choose(options, wanted)
    except TooFewError:
        assert len(able) < wanted.fewest or len({each.place for each in able}) < wanted.places
        return
    by_name = {each.name: each for each in options}
    running = [each.name for each in able if each.runs]

    assert len(set(chosen)) == len(chosen) == min(len(able), max(wanted.most, len(running)))
    assert set(running) <= set(chosen)
    within = len(running) + wanted.places <= wanted.most
    if within:
        assert len({by_name[name].place for name in chosen}) >= wanted.places


@given(OPTIONS, WANTED)
def test_with_enough_room_the_best_are_chosen(options: list[Option], wanted: Wanted) -> None:
    plain = Wanted(wanted.fewest, wanted.most)
    fresh = [Option(each.name, False, each.most, each.place) for each in options]
    if len(fresh) >= plain.fewest:
        assert choose(fresh, plain) == [each.name for each in fresh[: plain.most]]


CASES = {
    "another one of the place has more room": (
        [("a", False, 7, "x"), ("b", False, 3, "y"), ("c", False, 7, "y")], Wanted(2, 2, 2, 14), ["a", "c"],
    ),
    "one that runs stays, though it has little room": (
        [("a", True, 1, "x"), ("b", False, 3, "y"), ("c", False, 7, "y")], Wanted(2, 2, 0, 9), ["a", "c"],
    ),
    "who runs counts as a place": (
        [("a", False, 9, "x"), ("b", True, 9, "y")], Wanted(2, 2, 2, 0), ["b", "a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_which_are_chosen(case: str) -> None:
    rows, wanted, expected = CASES[case]

    assert choose([Option(*row) for row in rows], wanted) == expected
