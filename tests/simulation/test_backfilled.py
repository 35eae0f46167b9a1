"""The judge of backfill accepts that a pod waits for a reservation, whatever the clock of the scheduler shows."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.backfilled import BackfillSimulation
from tests.simulation.chaos import containers

HOURS = 3 * 3600.0


class _OneWaits(BackfillSimulation):
    """One node, on which `long` would fit, but would delay `big`. The only event is that somebody sets the clock."""

    clock_ahead = 0.0

    def _begin(self) -> None:
        super()._begin()
        for name in list(self.server.nodes):
            self.server.delete_node(name)
        self.server.set_node("n0", cpu=2, labels={})
        for name, app, millis, priority in (("runs", "web", 1000, 9), ("big", "db", 2000, 8), ("long", "db", 500, 0)):
            self.server.create_pod(name, {"priority": priority} | containers(millis), {"app": app})
        asyncio.get_running_loop().call_later(8.0, setattr, self.server, "clock_ahead", self.clock_ahead)


@pytest.mark.parametrize("ahead", [0.0, 40.0, -40.0, HOURS, -HOURS])
def test_a_pod_that_waits_for_a_reservation_is_not_lost_where_a_clock_is_set(ahead: float) -> None:
    simulation = _OneWaits(1, steps=0)
    simulation.clock_ahead = ahead
    met = simulation.run()
    assert (met["pod waits for a reservation"], met["bound"]) == (1, 1)
