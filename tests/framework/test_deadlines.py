"""Deadlines: what pauses, until when, and that those that are over are forgotten."""

from __future__ import annotations

from kube_policy_scheduler.framework.deadlines import Deadlines
from kube_policy_scheduler.times import Steady


def test_something_pauses_for_so_long() -> None:
    deadlines = Deadlines[str]()
    deadlines.pause("a", Steady(100.0), seconds=5.0)

    assert deadlines.pauses("a", Steady(104.9))
    assert not deadlines.pauses("b", Steady(104.9))
    assert not deadlines.pauses("a", Steady(105.0))
    assert len(deadlines) == 0


def test_a_pause_begins_again_and_can_be_ended() -> None:
    deadlines = Deadlines[str]()
    deadlines.pause("a", Steady(100.0), seconds=5.0)
    deadlines.pause("a", Steady(104.0), seconds=5.0)
    assert deadlines.pauses("a", Steady(108.0))
    deadlines.end("a")

    assert not deadlines.pauses("a", Steady(108.0))


def test_pauses_that_are_over_are_forgotten_though_nobody_asks() -> None:
    deadlines = Deadlines[int]()
    for number in range(100_000):
        deadlines.pause(number, Steady(float(number)), seconds=10.0)

    assert len(deadlines) < 1000
