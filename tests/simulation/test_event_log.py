"""The simulation does with what a daemon's scheduler saw what the daemon did: who starts and is evicted, in order."""

from __future__ import annotations

import logging

import pytest

from tests.quotas.product import policies, policy_text
from tests.simulation.event_log import EventLog, in_kinds, replayed
from tests.simulation.quota_stories import QuotaStory
from tests.simulation.test_quota_stories import spread_out

SEEDS = (1, 5, 14, 34)
"""In each of them pods are evicted."""
OTHERS_OF_THEIR_KIND = {21, 49, 67}
"""In these, of pods that are alike another one is tried first, and the log goes on with the daemon's."""
MANY = [seed for seed in range(80) if seed not in OTHERS_OF_THEIR_KIND]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def check(seed: int) -> EventLog:
    """Compare the two; return what the daemon did."""
    case, log = spread_out(seed), EventLog()
    QuotaStory(case, log=log).run()
    assert in_kinds(replayed(log, policies(policy_text(case)), seed=1)) == in_kinds(log.outcomes)
    return log


@pytest.mark.parametrize("seed", SEEDS)
def test_the_simulation_replays_a_daemon(seed: int) -> None:
    assert any(outcome.victims for outcome in check(seed).outcomes), "nobody is evicted: the case says little"


@pytest.mark.long
@pytest.mark.parametrize("seed", MANY)
def test_the_simulation_replays_many_daemons(seed: int) -> None:
    check(seed)
