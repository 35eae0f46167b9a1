"""What waits in lines comes in the order of its key at the moment, however many slopes there are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler import lines
from kube_policy_scheduler.lines import Lines, at
from kube_policy_scheduler.times import Steady

SMALL = st.integers(-3, 3).map(float)
WAITING = st.lists(
    st.tuples(st.sampled_from("ab"), st.tuples(SMALL, SMALL), st.tuples(SMALL, SMALL), SMALL), min_size=1, max_size=40
)


def drained(waiting: Lines[str, int], times: list[Steady]) -> list[tuple[str, int]]:
    """Take all, the first of line "a" before that of "b", each at the next time."""
    taken = list[tuple[str, int]]()
    for now in times:
        firsts = waiting.firsts(now)
        assert bool(waiting) is bool(firsts)
        if firsts:
            first = firsts[min(firsts)]
            taken.append((first.line, waiting.take(first)))
    return taken


@given(WAITING, st.integers(0, 5))
def test_the_order_is_that_of_the_keys_at_the_moment(
    all_of_them: list[tuple[str, tuple[float, float], tuple[float, float], float]], seconds: int
) -> None:
    times = [Steady(float(n * seconds)) for n in range(len(all_of_them))]
    waiting: Lines[str, int] = Lines(lambda ticket, item: False)
    left = dict[int, tuple[str, Any, Any]]()
    for ticket, (line, bases, slopes, rest) in enumerate(all_of_them):
        waiting.add(line, (bases, rest), ticket, ticket=ticket, now=Steady(0.0), slopes=slopes)
        left[ticket] = (line, (bases, rest), slopes)
    expected = list[tuple[str, int]]()
    for now in times:
        chosen = min(left, key=lambda each: (left[each][0], at(left[each][1], left[each][2], now), each))
        expected.append((left.pop(chosen)[0], chosen))
    assert drained(waiting, times) == expected


def test_more_slopes_than_heaps_are_sorted_again_from_time_to_time() -> None:
    waiting: Lines[str, int] = Lines(lambda ticket, item: False)
    for n in range(lines.MOST_SLOPES + 10):
        waiting.add("a", ((0.0,),), n, ticket=n, now=Steady(0.0), slopes=(float(-n - 1),))
    ended = list[int]()
    while (item := waiting.ended(Steady(60.0))) is not None:
        ended.append(item)
    assert sorted(ended) == list(range(lines.MOST_SLOPES, lines.MOST_SLOPES + 10))
    assert len(waiting.firsts(Steady(1.0))) == 1


@pytest.mark.parametrize("many", [1 << n for n in range(8, 13)])
def test_entries_that_are_void_do_not_pile_up(many: int) -> None:
    waiting: Lines[str, int] = Lines(lambda ticket, item: ticket < many - 1)
    for n in range(many):
        waiting.add("a", (0,), n, ticket=n, now=Steady(0.0), until=Steady(9.0))
    assert len(waiting.tickets()) < 512
    assert list(waiting) == list(waiting.of("a")) == [many - 1]
    assert waiting.firsts(Steady(0.0))["a"].item == many - 1


def test_what_has_ended_is_told_once_and_only_if_it_still_counts() -> None:
    void = set[int]()
    waiting: Lines[str, str] = Lines(lambda ticket, item: ticket in void)
    for ticket, item in enumerate(("x", "y", "z")):
        waiting.add("a", (ticket,), item, ticket=ticket, now=Steady(0.0), until=float(ticket))
    void.add(1)
    assert [waiting.ended(Steady(2.0)) for _ in range(3)] == ["x", "z", None]
    waiting.clear()
    assert not waiting
