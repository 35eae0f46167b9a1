"""Laws of choosing clusters: how many, where, and which stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
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
        different = len({each.place for each in able})
        assert len(able) < wanted.fewest or different < wanted.places or wanted.places > wanted.most
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


def within(names: Sequence[str], places: dict[str, str | None], wanted: Wanted) -> bool:
    """Return whether clusters keep to what is asked for of their places."""
    counts = Counter(places[name] for name in names)
    return (
        len(counts) >= wanted.places
        and (not wanted.most_places or len(counts) <= wanted.most_places)
        and (not wanted.each or max(counts.values(), default=0) <= wanted.each)
    )


BOUNDED = st.builds(
    lambda fewest, more, least, most, each: Wanted(
        fewest, fewest + more, min(least, most or 9, fewest + more), 0, most, each
    ),
    st.integers(1, 4), st.integers(0, 2), st.integers(0, 2), st.integers(0, 3), st.integers(0, 3),
)  # fmt: skip


@given(OPTIONS, BOUNDED)
@settings(max_examples=200)
def test_clusters_are_found_whenever_there_are_enough(options: list[Option], wanted: Wanted) -> None:
    """No set of clusters that keeps to the places is overlooked, and none that does not is chosen."""
    fresh = [Option(each.name, False, each.most, each.place) for each in options]
    able = [each for each in fresh if each.place is not None] if wanted.looks_at_places else fresh
    places = {each.name: each.place for each in able}
    sizes = range(wanted.fewest, wanted.most + 1)
    possible = any(within(names, places, wanted) for size in sizes for names in combinations(places, size))
    try:
        chosen = choose(fresh, wanted)
    except TooFewError:
        assert not possible
        return
    assert possible
    assert wanted.fewest <= len(chosen) <= wanted.most
    assert within(chosen, places, wanted)


@given(OPTIONS, BOUNDED)
def test_what_runs_stays_and_nothing_is_added_where_there_is_too_much(options: list[Option], wanted: Wanted) -> None:
    try:
        chosen = choose(options, wanted)
    except TooFewError:
        return
    able = {each.name: each for each in options if each.place is not None or not wanted.looks_at_places}
    running = Counter(each.place for each in able.values() if each.runs)
    counts = Counter(able[name].place for name in chosen)
    assert {each.name for each in able.values() if each.runs} <= set(chosen)
    assert not wanted.each or all(count <= max(wanted.each, running[place]) for place, count in counts.items())
    assert not wanted.most_places or len(counts) <= max(wanted.most_places, len(running))


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
