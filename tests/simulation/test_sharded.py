"""Replicas that share the work, under seeded chaos; more of it with `python -m tests.simulation --sharded`."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from tests.simulation.network import REQUEST_FAULTS
from tests.simulation.sharded import SharedSimulation

FAULTS = {
    "403 after a restart",
    "API server restarted",
    "lease deleted",
    "others filled the room during a cut",
    "slow link",
    "watch: 410",
    "watch: slow link",
    *(f"binding: {fault}" for fault in REQUEST_FAULTS),
    "cut off",
    "gang bound",
    "joined",
    "killed",
    "lease lost",
    "left in order",
    "most passed on",
    "pod deleted while assumed",
    "preempted",
    "relist while binding",
    "stopped",
    "storm of 410",
}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.timeout(300)
def test_replicas_that_come_go_and_die_bind_nothing_wrongly_and_forget_nothing() -> None:
    met: Counter[str] = Counter()
    for seed in range(12):
        met += SharedSimulation(seed, steps=180).run()
    assert FAULTS - met.keys() == set(), "never happened"
