"""The machine's clock is set by hours: no pod waits longer or shorter because of it."""

from __future__ import annotations

import asyncio

import pytest

from kube_policy_scheduler.adapters.process.settable_clock import SettableClock
from kube_policy_scheduler.adapters.prometheus.queries import PrometheusEndpoint, PrometheusUnreachableError
from kube_policy_scheduler.adapters.prometheus.signal_source import SignalSource
from kube_policy_scheduler.cluster.signals import Query, Reading, Signals
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from tests.simulation.calm import Calm, story

PLAIN = "score node.free.cpu\n"
JUMPS = pytest.mark.parametrize("seconds", [3 * 3600.0, -3 * 3600.0], ids=["forward", "back"])


@JUMPS
def test_a_pod_whose_binding_broke_is_tried_again_as_soon_as_without(seconds: float) -> None:
    async def tell(calm: Calm) -> None:
        await calm.after(2)
        calm.process.connection.takes_requests = False
        calm.pod("a")
        for _ in range(1000):
            await calm.after(0.2)  # one binding is tried for two minutes
            if calm.told.told["failed"]:
                break
        assert calm.process.scheduler.queue.counts()[Place.BACKOFF] == 1
        calm.server.clock_ahead = seconds
        calm.process.connection.takes_requests = True
        await calm.after(15)
        assert calm.on_nodes() == ["a"]

    story(PLAIN, tell, cpus=(4,))


@JUMPS
def test_what_no_event_concerned_is_looked_at_again_after_five_minutes_all_the_same(seconds: float) -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("a", millis=9000)
        await calm.after(10)
        calm.server.clock_ahead = seconds
        before = calm.told.told["unschedulable"]
        await calm.after(250)
        assert calm.told.told["unschedulable"] == before
        await calm.after(100)
        assert calm.told.told["unschedulable"] == before + 1

    story(PLAIN, tell, cpus=(4,))


@JUMPS
def test_pods_that_came_before_stay_before_those_that_come_after(seconds: float) -> None:
    async def tell(calm: Calm) -> None:
        calm.process.scheduler.lead(False)
        calm.pod("first", millis=4000)
        await calm.after(2)
        calm.server.clock_ahead = seconds
        calm.pod("second", millis=4000)
        await calm.after(2)
        calm.process.scheduler.lead(True)
        await calm.after(5)
        assert calm.on_nodes() == ["first"]

    story(PLAIN, tell, cpus=(4,))


def test_a_hold_until_some_hour_goes_by_the_new_time() -> None:
    # the simulation begins at 08:00 UTC
    async def tell(calm: Calm) -> None:
        calm.pod("a")
        await calm.after(20)
        assert calm.on_nodes() == []
        calm.server.clock_ahead = 3 * 3600.0
        await calm.after(10)
        assert calm.on_nodes() == ["a"]
        calm.server.clock_ahead = 0.0
        calm.pod("b")
        await calm.after(20)
        assert calm.on_nodes() == ["a"]

    story('hold if not between("10:00", "20:00")\n', tell, cpus=(4,))


def test_a_pod_that_is_to_wait_some_seconds_waits_them() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("a")
        await calm.after(10)
        calm.server.clock_ahead = 3 * 3600.0
        await calm.after(20)
        assert calm.on_nodes() == []
        calm.server.clock_ahead = 0.0
        await calm.after(20)
        assert calm.on_nodes() == []
        await calm.after(20)
        assert calm.on_nodes() == ["a"]

    story("hold if pod.waiting < 60s\n", tell, cpus=(4,))


class Machine:
    """A wall clock and one that never jumps."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.set_by = 0.0

    def clock(self) -> SettableClock:
        return SettableClock(wall=lambda: 1e9 + self.passed + self.set_by, steady=lambda: self.passed)


def test_the_clock_counts_evenly_and_says_how_far_ahead_the_wall_clock_is(caplog: pytest.LogCaptureFixture) -> None:
    machine, told = Machine(), list[float]()
    clock = machine.clock()
    clock.on_set(told.append)
    machine.passed = 5000.0
    assert (clock(), clock.wall()) == (1e9 + 5000, 1e9 + 5000)
    machine.set_by = -3600.0
    assert (clock(), clock.wall()) == (1e9 + 5000, 1e9 + 1400)
    assert (clock(), clock.wall()) == (1e9 + 5000, 1e9 + 1400)
    machine.set_by = 0.0
    assert clock.wall() == 1e9 + 5000
    assert told == [-3600.0, 0.0], "how far ahead it is from now on, not by how much it was set"
    assert [record.getMessage() for record in caplog.records] == [
        "the clock was set back by 3600 s: backoff and timeouts use elapsed time",
        "the clock was set forward by 3600 s: backoff and timeouts use elapsed time",
    ]


def test_a_slow_clock_correction_by_ntp_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    machine, told = Machine(), list[float]()
    clock = machine.clock()
    clock.on_set(told.append)
    for _ in range(100):
        machine.passed += 10.0
        machine.set_by += 0.005
        clock()
    assert told == []


@JUMPS
async def test_readings_of_a_prometheus_that_is_gone_are_as_old_as_they_are(seconds: float) -> None:
    machine = Machine()
    clock = machine.clock()
    query = Query("up", every_seconds=15.0, stale_after_seconds=60.0)
    published: list[Signals] = []

    class Client:
        asked = 0

        def fetch(self, asked: Query) -> Reading:
            Client.asked += 1
            if Client.asked > 1:
                raise PrometheusUnreachableError("gone")
            return Reading(asked.promql, (), evaluated_at=clock.wall(), fetched_at=clock.wall(), scalar=1.0)

        def close(self) -> None:
            pass

    source = SignalSource(
        PrometheusEndpoint("http://nowhere"), publish=published.append, clock=clock, connect=lambda _: Client()
    )
    clock.on_set(source.clock_was_set)
    async with source:
        source.set_queries([query])
        await source.prime([query], timeout_seconds=5.0)
        machine.passed, machine.set_by = 30.0, seconds
        assert source.health()[0].age_seconds == pytest.approx(30.0)
        await asyncio.sleep(0)
        machine.passed = 90.0
        assert source.health()[0].age_seconds == pytest.approx(90.0)
        assert source.health()[0].stale
    assert not published[-1].usable(query, now=clock.wall())
