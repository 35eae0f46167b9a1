"""The order of decisions, and the pauses between tries."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.fleet.waiting import RECHECK_SECONDS, Position, Waiting, Wake
from kube_policy_scheduler.lines import MOST_SLOPES
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


def test_a_line_keeps_its_own_order_and_lines_compete_by_the_priority_of_their_first() -> None:
    places = {"z": Position("one", ("a",)), "y": Position("one", ("b",)), "x": Position(), "w": Position()}
    waiting: Waiting[str] = Waiting(lambda key, now: places[key])
    for key, priority in (("y", 9), ("z", 5), ("x", 7), ("w", 1)):
        waiting.wake(key, Wake.OWN, at(0), priority=priority)
    assert taken(waiting, 0.0) == ["x", "z", "y", "w"]


def test_what_grows_faster_overtakes() -> None:
    slopes = {"slow": -1.0, "fast": -3.0}
    for now, first in ((1.0, "slow"), (100.0, "fast")):
        waiting: Waiting[str] = Waiting(
            lambda key, now: Position("one", (0.0 if key == "fast" else -10.0,), (slopes[key],))
        )
        for key in slopes:
            waiting.wake(key, Wake.OWN, at(0))
        assert waiting.next(at(now)) == first


def test_a_position_that_expired_is_asked_for_again() -> None:
    waiting: Waiting[str] = Waiting(
        lambda key, now: Position("one", (0.0 if (key == "a") == (now < 5) else 1.0,), until=5.0 if now < 5 else 99.0)
    )
    for key in "ab":
        waiting.wake(key, Wake.OWN, at(0))
    assert waiting.next(at(0)) == "a"
    waiting.settled("a", at(1))
    waiting.wake("a", Wake.OWN, at(2))
    assert taken(waiting, 6.0) == ["b", "a"]


def test_what_must_be_read_first_comes_first() -> None:
    waiting: Waiting[str] = Waiting(lambda key, now: Position(is_asked=key == "unread"))
    waiting.wake("read", Wake.OWN, at(0), priority=9)
    waiting.wake("unread", Wake.OWN, at(1))
    assert taken(waiting, 1.0) == ["unread", "read"]


def test_what_changed_itself_gets_its_new_position() -> None:
    key_of = {"a": 2.0, "b": 1.0}
    waiting: Waiting[str] = Waiting(lambda key, now: Position("one", (key_of[key],)))
    for key in "ab":
        waiting.wake(key, Wake.OWN, at(0))
    assert waiting.next(at(0)) == "b"
    waiting.settled("b", at(0))
    waiting.wake("b", Wake.OWN, at(0))
    waiting.due()
    key_of["a"] = 0.0
    waiting.wake("a", Wake.OWN, at(0))
    assert waiting.next(at(0)) == "a"


def test_all_positions_are_asked_for_again_when_the_order_changes() -> None:
    sign = [1.0]
    waiting: Waiting[int] = Waiting(lambda key, now: Position("one", (sign[0] * key,)))
    for key in range(4):
        waiting.wake(key, Wake.OWN, at(0))
    assert waiting.next(at(0)) == 0
    sign[0] = -1.0
    waiting.look_again(at(0))
    assert [waiting.next(at(0)) for _ in range(4)] == [3, 2, 1, None]


@given(
    st.dictionaries(
        st.integers(0, 200),
        st.tuples(st.floats(-100, 100), st.integers(0, 3 * MOST_SLOPES)),
        min_size=1,
        max_size=150,
    ),
    st.floats(1, 1000),
)
def test_the_order_is_that_of_the_values_now(values: dict[int, tuple[float, int]], now: float) -> None:
    """However many slopes there are: those that have no heap of their own are sorted by what they are now."""
    waiting: Waiting[int] = Waiting(lambda key, now: Position("one", (values[key][0],), (float(values[key][1]),)))
    for key in values:
        waiting.wake(key, Wake.OWN, at(now))
    found = [values[key][0] + values[key][1] * now for key in iter(lambda: waiting.next(at(now)), None)]
    assert found == sorted(found)
    assert len(found) == len(values)


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


def test_what_waits_can_be_looked_at() -> None:
    waiting: Waiting[str] = Waiting()
    for key, now in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        waiting.wake(key, Wake.OWN, at(now))
    assert waiting.next(at(3.0)) == "a"
    assert (waiting.queued(), waiting.failing_since(10), waiting.longest_failing(at(9.0))) == (2, [], 0.0)
    waiting.parked("a", at(4.0))
    waiting.next(at(4.0))
    waiting.parked("b", at(4.0))
    assert (waiting.queued(), waiting.failing_since(1), waiting.longest_failing(at(9.0))) == (1, [("a", 1.0)], 8.0)
    waiting.wake("a", Wake.OWN, at(5.0))
    assert waiting.failing_since(10) == [("b", 2.0)]
    waiting.forget("b")
    assert waiting.longest_failing(at(9.0)) == 0.0
