"""The whole loop under seeded chaos; more of it with `make soak`."""

from __future__ import annotations

import logging

import pytest

from tests.simulation.simulation import Simulation


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("seed", range(24))
def test_no_pod_is_lost_bound_twice_or_wrong(seed: int) -> None:
    Simulation(seed, steps=120).run()


def test_a_run_is_replayed_by_its_seed() -> None:
    assert Simulation(7, steps=100).run() == Simulation(7, steps=100).run()
