"""The judge of backfill: who waits rightly for a reservation is judged by the clock by which it was made."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.backfilled import BackfillSimulation
from tests.simulation.chaos import containers
from tests.simulation.replica import ALONE

HOUR = 3600.0


class _OneWaits(BackfillSimulation):
    """Nothing happens but that a pod waits for another one to end, and a third one would delay it."""

    def __init__(self, *, clock_ahead: float) -> None:
        super().__init__(1, steps=0)
        self._clock_ahead = clock_ahead

    def _begin(self) -> None:
        super()._begin()
        self._election = ALONE
        for name in list(self.server.nodes):
            self.server.delete_node(name)
        self.server.set_node("only", cpu=2, labels={})
        self.server.clock_ahead = self._clock_ahead
        for second, (name, priority, millis) in enumerate((("runs", 9, 1000), ("first", 9, 1500), ("second", 0, 900))):
            spec = {"priority": priority} | containers(millis)
            asyncio.get_running_loop().call_later(2.0 + 3.0 * second, self.server.create_pod, name, spec, {"app": "db"})


@pytest.mark.parametrize("clock_ahead", [0.0, 3 * HOUR, -3 * HOUR], ids=["right", "ahead", "behind"])
def test_who_would_delay_the_first_of_an_order_waits_rightly_whatever_the_clock_shows(clock_ahead: float) -> None:
    met = _OneWaits(clock_ahead=clock_ahead).run()
    assert met["pod waits for a reservation"] == 1
    assert met["bound"] == 1
