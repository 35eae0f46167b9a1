"""Events reach the server once, are aggregated when repeated, and never delay bindings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.events import EventRecorder, Reference, cut_note
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.outbox import OutboxLimits
from kube_policy_scheduler.adapters.kube.pod_view import PodNow
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, until

COLLECTION = "/apis/events.k8s.io/v1/namespaces/default/events"

pytestmark = pytest.mark.usefixtures("both_protocols")


def web(name: str = "web") -> PodNow:
    return PodNow("default", name, f"uid-{name}", "7", 1, "", ())


class Api:
    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.patches: list[dict[str, Any]] = []
        self.faults: list[Any] = []

    def __call__(self, request: Request, peer: Peer) -> Any:
        if self.faults:
            return self.faults.pop(0)(request, peer)
        return self.serve(request, peer)

    def serve(self, request: Request, peer: Peer) -> None:
        name = request.path.removeprefix(COLLECTION).lstrip("/")
        if request.verb == "PATCH":
            if name not in self.events:
                peer.refuse(404, "NotFound")
                return
            assert request.headers["content-type"] == "application/merge-patch+json"
            self.patches.append(request.json)
            self.events[name] |= request.json
            peer.answer(200, self.events[name])
            return
        body = request.json
        if body["metadata"]["name"] in self.events:
            peer.refuse(409, "AlreadyExists")
            return
        self.events[body["metadata"]["name"]] = body
        peer.answer(201, body)

    @property
    def notes(self) -> list[str]:
        return [event["note"] for event in self.events.values()]


class Clock:
    def __init__(self) -> None:
        self.now = 1_795_000_000.123456
        self.set_by = 0.0

    def set(self, seconds: float) -> None:
        self.now, self.set_by = self.now + seconds, self.set_by + seconds

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def recorder_for(api: Api, **options: Any) -> AsyncIterator[tuple[EventRecorder, Clock]]:
    clock = Clock()
    async with ScriptedServer(api) as server:
        transport = Transport(server.credentials())
        recorder = EventRecorder(
            transport,
            controller="policy-scheduler",
            instance="policy-scheduler-host",
            random=Random(1),
            clock=clock,
            steady=lambda: clock.now - clock.set_by,
            **options,
        )
        task = asyncio.create_task(recorder.run())
        try:
            yield recorder, clock
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await transport.close()


async def test_a_scheduled_event_has_the_fields_of_kube_scheduler() -> None:
    api = Api()
    async with recorder_for(api) as (recorder, clock):
        recorder.scheduled(web(), node="node-1")
        await until(lambda: bool(api.events))
        assert list(api.events.values()) == [
            {
                "kind": "Event",
                "apiVersion": "events.k8s.io/v1",
                "metadata": {"name": f"web.{int(clock.now * 1e9):x}", "namespace": "default"},
                "eventTime": "2026-11-18T11:06:40.123456Z",
                "reportingController": "policy-scheduler",
                "reportingInstance": "policy-scheduler-host",
                "action": "Binding",
                "reason": "Scheduled",
                "type": "Normal",
                "note": "Successfully assigned default/web to node-1",
                "regarding": {
                    "kind": "Pod",
                    "namespace": "default",
                    "name": "web",
                    "uid": "uid-web",
                    "apiVersion": "v1",
                    "resourceVersion": "7",
                },
            }
        ]


async def test_a_repeated_event_becomes_a_series() -> None:
    api = Api()
    async with recorder_for(api) as (recorder, clock):
        for second in range(5):
            recorder.failed_scheduling(web(), message="0/3 nodes are available: 3 Insufficient cpu.")
            await until(lambda: len(recorder) == 0)
            clock.now += 10
            assert len(api.events) == 1
            assert len(api.patches) == min(second, 1)  # written at the second time, then seldom
        assert api.patches[0]["series"]["count"] == 2
        clock.now += 300
        recorder.failed_scheduling(web(), message="0/3 nodes are available: 3 Insufficient cpu.")
        await until(lambda: len(api.patches) == 2)
        assert api.patches[1]["series"]["count"] == 6
        assert api.patches[1]["series"]["lastObservedTime"] == "2026-11-18T11:12:30.123456Z"


@pytest.mark.parametrize("seconds", [3 * 3600.0, -3 * 3600.0], ids=["forward", "back"])
async def test_a_clock_that_is_set_stops_no_series(seconds: float) -> None:
    api = Api()
    async with recorder_for(api) as (recorder, clock):
        for _ in range(2):
            recorder.failed_scheduling(web(), message="one")
            await until(lambda: len(recorder) == 0)
        clock.set(seconds)
        clock.now += 300
        recorder.failed_scheduling(web(), message="one")
        await until(lambda: len(api.patches) == 2)
        assert (len(api.events), api.patches[1]["series"]["count"]) == (1, 3)


async def test_another_reason_text_is_another_event() -> None:
    api = Api()
    async with recorder_for(api) as (recorder, _):
        recorder.failed_scheduling(web(), message="one")
        await until(lambda: len(api.events) == 1)
        recorder.failed_scheduling(web(), message="two")
        await until(lambda: len(api.events) == 2)
        assert api.notes == ["one", "two"]
        assert len(set(api.events)) == 2


async def test_after_a_long_silence_it_is_a_new_event() -> None:
    api = Api()
    async with recorder_for(api) as (recorder, clock):
        recorder.failed_scheduling(web(), message="one")
        await until(lambda: recorder.counts.sent == 1)
        clock.now += 400
        recorder.failed_scheduling(web(), message="one")
        await until(lambda: len(api.events) == 2)
        assert api.patches == []


async def test_a_series_whose_event_expired_on_the_server_starts_again() -> None:
    api = Api()
    async with recorder_for(api) as (recorder, _):
        recorder.failed_scheduling(web(), message="one")
        await until(lambda: recorder.counts.sent == 1)
        api.events.clear()
        recorder.failed_scheduling(web(), message="one")
        await until(lambda: len(api.events) == 1)
        assert api.notes == ["one"]


async def test_an_event_whose_answer_was_lost_is_not_made_twice() -> None:
    api = Api()

    def done_but_lost(request: Request, peer: Peer) -> None:
        api.events[request.json["metadata"]["name"]] = request.json
        peer.abort()

    api.faults = [done_but_lost]
    async with recorder_for(api) as (recorder, _):
        recorder.scheduled(web(), node="node-1")
        await until(lambda: recorder.counts.sent == 1)
        assert len(api.events) == 1
        assert recorder.counts.retried == 1


async def test_while_bindings_are_busy_events_wait_and_then_all_go_out() -> None:
    api = Api()
    busy = True
    async with recorder_for(api, defer_while=lambda: busy) as (recorder, _):
        for number in range(200):
            recorder.scheduled(web(f"p{number}"), node="node-1")
        await asyncio.sleep(0.15)
        assert api.events == {}
        busy = False
        await until(lambda: len(api.events) == 200)


async def test_events_are_not_held_back_forever() -> None:
    api = Api()
    async with recorder_for(api, defer_while=lambda: True, limits=OutboxLimits(max_defer_seconds=0.2)) as (recorder, _):
        recorder.scheduled(web(), node="node-1")
        await until(lambda: len(api.events) == 1)


async def test_of_several_that_wait_for_one_pod_the_newest_is_sent() -> None:
    api = Api()
    busy = True
    async with recorder_for(api, defer_while=lambda: busy) as (recorder, _):
        for number in range(10):
            recorder.failed_scheduling(web(), message=f"try {number}")
        recorder.scheduled(web(), node="node-1")
        busy = False
        await until(lambda: len(api.events) == 2)
        assert sorted(api.notes) == ["Successfully assigned default/web to node-1", "try 9"]
        assert recorder.counts.merged == 9


async def test_when_the_queue_is_full_the_oldest_give_way_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
    busy = True
    async with recorder_for(api, defer_while=lambda: busy, limits=OutboxLimits(capacity=10)) as (recorder, _):
        for number in range(25):
            recorder.scheduled(web(f"p{number}"), node="n")
        assert recorder.counts.dropped == 15
        busy = False
        await until(lambda: len(api.events) == 10)
        assert {event["regarding"]["name"] for event in api.events.values()} == {f"p{n}" for n in range(15, 25)}
    assert caplog.text.count("dropping the oldest") == 1


async def test_an_outage_loses_no_event_and_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
    api.faults = [lambda request, peer: peer.refuse(503, "ServiceUnavailable")] * 30
    async with recorder_for(api) as (recorder, _):
        for number in range(50):
            recorder.scheduled(web(f"p{number}"), node="n")
        await until(lambda: len(api.events) == 50)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


async def test_an_event_that_is_refused_holds_back_no_other_and_is_tried_again() -> None:
    api = Api()
    api.faults = [lambda request, peer: peer.refuse(422, "Invalid", "involvedObject.namespace: Invalid value")]
    async with recorder_for(api) as (recorder, _):
        recorder.scheduled(web("a"), node="n")
        recorder.scheduled(web("b"), node="n")
        await until(lambda: len(api.events) == recorder.backlog.refusals == 1)
        await until(lambda: len(api.events) == 2)


async def test_draining_sends_what_waits_even_while_bindings_are_busy() -> None:
    api = Api()
    async with recorder_for(api, defer_while=lambda: True) as (recorder, _):
        for number in range(20):
            recorder.scheduled(web(f"p{number}"), node="n")
        assert await recorder.drain(timeout_seconds=30)
        assert len(api.events) == 20


async def test_without_leadership_only_completed_actions_are_reported() -> None:
    api = Api()
    leads = False
    async with recorder_for(api, fence=Fence(lambda: leads)) as (recorder, _):
        recorder.failed_scheduling(web("a"), message="no cpu")
        recorder.scheduled(web("b"), node="n")
        await until(lambda: bool(api.events))
        assert api.notes == ["Successfully assigned default/b to n"]
        leads = True
        await until(lambda: recorder.counts.sent == 2)  # the answer has come: what is on its way counts no repetition
        recorder.failed_scheduling(web("a"), message="no cpu")
        await until(lambda: bool(api.patches))
        leads = False
        recorder.failed_scheduling(web("c"), message="no cpu")
        recorder.scheduled(web("c"), node="n")
        assert await recorder.drain(timeout_seconds=30)
        assert len(api.events) == 3
        assert recorder.counts.withheld == 1


async def test_draining_ends_in_time_when_the_server_does_not_answer() -> None:
    api = Api()
    api.faults = [lambda request, peer: None] * 10
    async with recorder_for(api) as (recorder, _):
        recorder.scheduled(web(), node="n")
        assert not await recorder.drain(timeout_seconds=0.1)


async def test_an_event_about_something_without_namespace_goes_to_default() -> None:
    api = Api()
    async with recorder_for(api) as (recorder, _):
        policies = Reference("ConfigMap", "policies", "", "", "v1")
        recorder.record(policies, type="Warning", reason="PolicyRejected", action="Reloading", note="E200 at line 3")
        await until(lambda: len(api.events) == 1)
        assert next(iter(api.events.values()))["metadata"]["namespace"] == "default"


async def test_the_name_of_an_event_stays_within_the_limit_of_names() -> None:
    api = Api()
    async with recorder_for(api) as (recorder, _):
        recorder.scheduled(web("x" * 253), node="n")
        await until(lambda: len(api.events) == 1)
        assert len(next(iter(api.events))) <= 253


@pytest.mark.parametrize(
    ("note", "cut"),
    [
        ("short", "short"),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1020 + " ..."),
        ("é" * 600, "é" * 510 + " ..."),
        ("x" + "é" * 600, "x" + "é" * 509 + " ..."),
    ],
)
def test_a_note_is_cut_to_1024_bytes_between_characters(note: str, cut: str) -> None:
    assert cut_note(note) == cut
    assert len(cut_note(note).encode()) <= 1024
