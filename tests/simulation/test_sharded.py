"""Replicas that share the work, under seeded chaos; more of it with `python -m tests.simulation --sharded`."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from tests.simulation.sharded import SharedSimulation


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("seed", range(5))
def test_replicas_that_come_go_and_die_bind_nothing_wrongly_and_forget_nothing(seed: int) -> None:
    SharedSimulation(seed, steps=120).run()


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        (40176, 160),  # a list whose answer took eight seconds had a replica taken for dead that had renewed meanwhile
        (40192, 80),  # a state from before a pod was passed on was taken for its being given back
    ],
)
def test_what_was_wrong_once_stays_right(seed: int, steps: int) -> None:
    SharedSimulation(seed, steps=steps).run()


def test_a_run_has_replicas_that_die_and_pods_that_are_passed_on() -> None:
    done: Counter[str] = SharedSimulation(10, steps=200).run()
    assert done["joined"] > 2
    assert done["passed on"] > 0
    assert done["killed"] + done["left"] + done["lost its lease"] > 0
