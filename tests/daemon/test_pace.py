"""What is measured of a leader that decides late, or not at all."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.daemon.scheduling.pace import Pace
from kube_policy_scheduler.daemon.watching.freshness import AlwaysCurrent
from tests.simulation.calm import Calm, story


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_take_over_lasts_until_something_is_decided(clock: Clock) -> None:
    pace = Pace(clock, leading=False)
    pace.passed(decided=False, has_active=True)
    assert pace.take_over_seconds is None
    clock.now += 60
    assert pace.undecided_seconds(has_active=True) == 0.0, "it does not lead"
    pace.led(True)
    clock.now += 2
    pace.waited()
    pace.passed(decided=False, has_active=True)
    clock.now += 1
    assert (pace.take_over_seconds, pace.undecided_seconds(has_active=True)) == (3.0, 3.0)
    pace.passed(decided=True, has_active=True)
    clock.now += 5
    assert (pace.take_over_seconds, pace.undecided_seconds(has_active=True)) == (3.0, 5.0)
    pace.led(False)
    assert (pace.take_over_seconds, pace.undecided_seconds(has_active=True)) == (None, 0.0)


def test_a_take_over_with_nothing_to_decide_ends_once_something_could_be(clock: Clock) -> None:
    pace = Pace(clock, leading=False)
    pace.led(True)
    clock.now += 0.5
    pace.passed(decided=False, has_active=False)
    clock.now += 3600
    assert pace.take_over_seconds == 0.5


def test_pods_that_come_after_hours_of_rest_have_not_waited_for_hours(clock: Clock) -> None:
    pace = Pace(clock, leading=True)
    pace.passed(decided=False, has_active=False)
    clock.now += 3600
    assert pace.undecided_seconds(has_active=True) == 0.0, "the loop has not heard of them yet"
    pace.waited()
    clock.now += 0.1
    assert pace.undecided_seconds(has_active=True) == pytest.approx(0.1)
    assert pace.undecided_seconds(has_active=False) == 0.0


class Lost(AlwaysCurrent):
    def __call__(self) -> bool:
        return False


def test_while_the_view_is_not_current_a_leader_is_seen_to_decide_nothing() -> None:
    async def tell(calm: Calm) -> None:
        scheduler = calm.process.scheduler
        calm.pod("early")
        await calm.after(5)
        assert scheduler.pace.take_over_seconds is not None
        assert scheduler.pace.undecided_seconds(has_active=scheduler.queue.has_active()) == 0.0
        scheduler.view = Lost()
        scheduler.lead(False)
        scheduler.lead(True)
        calm.pod("late")
        began = scheduler.context.stopwatch()
        await calm.after(5)
        assert scheduler.queue.has_active()
        passed = scheduler.context.stopwatch() - began
        assert scheduler.pace.take_over_seconds == pytest.approx(passed, abs=0.1)
        assert scheduler.pace.undecided_seconds(has_active=True) == pytest.approx(passed, abs=0.1)

    story("", tell, cpus=(4,))
