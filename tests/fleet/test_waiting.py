"""The order of decisions, and the pauses between tries."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.fleet.waiting import RECHECK_SECONDS, Waiting, Wake
from kube_policy_scheduler.times import Steady


def at(seconds: float) -> Steady:
    return Steady(seconds)


def taken(waiting: Waiting[str], now: float) -> list[str]:
    found = []
    while (key := waiting.next(at(now))) is not None:
        found.append(key)
    return found


def test_the_highest_priority_comes_first_then_who_waits_longest() -> None:
    waiting: Waiting[str] = Waiting()
    for key, priority, now in (("late", 0, 2.0), ("early", 0, 1.0), ("high", 7, 3.0)):
        waiting.wake(key, Wake.OWN, at(now), priority=priority)
    assert taken(waiting, 3.0) == ["high", "early", "late"]


def test_what_is_handed_out_is_not_handed_out_again_before_it_is_back() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.wake("a", Wake.OWN, at(0))
    assert waiting.next(at(0)) == "a"
    waiting.wake("a", Wake.OWN, at(0))
    assert waiting.next(at(0)) is None
    waiting.settled("a", at(1))
    assert waiting.next(at(1)) == "a", "it changed meanwhile"
    waiting.settled("a", at(2))
    assert (waiting.next(at(10_000)), waiting.due()) == (None, None)


@pytest.mark.parametrize(
    ("why", "attempts", "pause"),
    [(Wake.OWN, 5, 0.0), (Wake.SPEC, 1, 1.0), (Wake.SPEC, 5, 1.0), (Wake.STATUS, 1, 1.0), (Wake.STATUS, 20, 30.0)],
)
def test_what_failed_is_woken_no_more_often_than_its_pause(why: Wake, attempts: int, pause: float) -> None:
    waiting: Waiting[str] = Waiting()
    waiting.wake("a", Wake.OWN, at(0))
    now = 0.0
    for _ in range(attempts):
        assert waiting.next(at(now)) == "a"
        waiting.parked("a", at(now))
        now += RECHECK_SECONDS
    now -= RECHECK_SECONDS
    for _ in range(100):
        waiting.wake("a", why, at(now))
    assert waiting.due() == now + pause
    assert waiting.next(at(now + pause)) == "a"


def test_what_failed_is_looked_at_again_without_an_event() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.wake("a", Wake.OWN, at(0))
    waiting.next(at(0))
    waiting.parked("a", at(0))
    assert (waiting.failing, waiting.attempts("a"), waiting.due()) == (1, 1, RECHECK_SECONDS)


def test_a_refused_write_is_tried_again_after_growing_pauses() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.wake("a", Wake.OWN, at(0))
    now, pauses = 0.0, []
    for _ in range(6):
        assert waiting.next(at(now)) == "a"
        waiting.refused("a", at(now))
        due = waiting.due()
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_the_status_of_clusters_wakes_only_what_failed() -> None:
    waiting: Waiting[str] = Waiting()
    for key in ("good", "bad"):
        waiting.wake(key, Wake.OWN, at(0))
        waiting.next(at(0))
    waiting.settled("good", at(0))
    waiting.parked("bad", at(0))
    waiting.wake_failing(Wake.STATUS, at(5))
    assert taken(waiting, 5.0) == ["bad"]


def test_what_is_forgotten_does_not_come_back() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.wake("a", Wake.OWN, at(0))
    waiting.forget("a")
    assert (waiting.next(at(1)), len(waiting)) == (None, 0)
    waiting.wake("b", Wake.OWN, at(0))
    waiting.next(at(0))
    waiting.forget("b")
    waiting.parked("b", at(0))
    assert waiting.due() is None


STEPS = st.lists(
    st.tuples(st.sampled_from(["wake", "own", "forget", "next", "park", "settle", "refuse"]), st.sampled_from("abc")),
    max_size=40,
)


@given(STEPS)
def test_nothing_that_is_woken_is_lost(steps: Iterable[tuple[str, str]]) -> None:
    waiting: Waiting[str] = Waiting()
    out: set[str] = set()
    owed: set[str] = set()
    for now, (step, key) in enumerate(steps):
        match step:
            case "wake" | "own":
                waiting.wake(key, Wake.OWN if step == "own" else Wake.SPEC, at(now))
                owed.add(key)
            case "forget":
                waiting.forget(key)
                owed.discard(key)
                out.discard(key)
            case "next":
                found = waiting.next(at(now))
                if found is not None:
                    assert found not in out
                    out.add(found)
                    owed.discard(found)
            case _ if key in out:
                out.discard(key)
                {"park": waiting.parked, "settle": waiting.settled, "refuse": waiting.refused}[step](key, at(now))
            case _:
                pass
    for key in list(out):
        waiting.settled(key, at(100))
    assert owed <= set(taken(waiting, 10_000.0))
