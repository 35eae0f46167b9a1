"""The daemon does with quotas what `policyctl simulate` says, also where it is killed and starts again."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tests.quotas.invariants import at_rest, violations
from tests.quotas.model import Case
from tests.quotas.product import run
from tests.quotas.random_cases import random_case
from tests.simulation.quota_stories import differences, evicts_again, other_uses, told

SEEDS = (5, 14, 15, 21, 25, 29, 34, 40, 49, 52)
"""In each of them pods are evicted; ties, which the two may break differently, matter in none."""
SLOW_VICTIMS = (24, 278)
"""In these, what is nominated must keep its room for the seconds that victims take to end."""
APART_SECONDS = 60.0
PATIENT_SECONDS = 400.0


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def spread_out(seed: int) -> Case:
    """Return a case in which all that follows from one arrival is done before the next."""
    case = random_case(seed)
    arrivals = sorted(case.arrivals, key=lambda arrival: arrival.at)
    apart = (replace(each, at=APART_SECONDS * number, lasts=None) for number, each in enumerate(arrivals))
    return replace(case, arrivals=tuple(apart), cordons=())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_daemon_does_what_the_simulation_says(seed: int) -> None:
    case = spread_out(seed)
    simulated = run(case, settles=PATIENT_SECONDS)
    trace, lost = told(case)
    assert lost, "nobody is evicted: the case says nothing"
    assert list(differences(simulated, trace, (simulated.evicted, lost))) == []
    assert [*violations(case, trace), *at_rest(case, trace)] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_daemon_that_is_killed_after_evictions_ends_where_one_that_lives_does(seed: int) -> None:
    """Nobody evicts for the same pod again. Whose turn it is may differ: a new daemon knows of no back-off."""
    case = spread_out(seed)
    trace, _ = told(case)
    again, _ = told(case, restarts=True)
    assert list(other_uses(trace, again)) == []
    assert evicts_again(trace, again) == {}


@pytest.mark.parametrize("seed", SLOW_VICTIMS)
def test_while_victims_end_nobody_takes_the_room_that_they_leave(seed: int) -> None:
    case = spread_out(seed)
    trace, lost = told(case)
    assert lost, "nobody is evicted: the case says nothing"
    assert [*violations(case, trace), *at_rest(case, trace)] == []
