"""Unexpected errors and unknown outcomes of bindings: no pod stays in flight or assumed forever."""

from __future__ import annotations

from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.pod_status import PodStatusWriter
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from tests.simulation.calm import Calm, story
from tests.simulation.network import OurFaultError

POLICY = "score node.free.cpu\n"
BEFORE, AFTER = "error of ours, not sent", "error of ours, done"


def places(calm: Calm) -> set[Place]:
    return {queued.place for queued in calm.process.scheduler.queue}


@pytest.mark.parametrize("fault", [BEFORE, AFTER])
def test_pods_whose_bindings_break_take_no_room_of_others(fault: str) -> None:
    async def tell(calm: Calm) -> None:
        calm.process.connection.plan = lambda verb, path: fault if "/bad" in path and verb == "POST" else ""
        for number in range(4):
            calm.pod(f"bad{number}")
        await calm.after(1.0)
        for number in range(4):
            calm.pod(f"good{number}")
        if fault == BEFORE:
            await calm.after(60.0)
            assert set(calm.on_nodes()) == {"good0", "good1", "good2", "good3"}
        calm.process.connection.plan = lambda verb, path: ""
        calm.server.set_node("n1", cpu=4, labels={})
        await calm.after(60.0)
        assert len(calm.on_nodes()) == 8
        assert places(calm) == set()
        assert calm.process.scheduler.in_flight.oldest_seconds == 0.0

    story(POLICY, tell, cpus=(4,))


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_a_binding_that_breaks_whenever_it_is_asked_for_is_seen_and_ends_once_it_no_longer_does(verb: str) -> None:
    async def tell(calm: Calm) -> None:
        def plan(asked: str, path: str) -> str:
            if "/bad" not in path:
                return ""
            return "time-out, not done" if asked == "POST" and verb == "GET" else AFTER if asked == verb else ""

        calm.process.connection.plan = plan
        calm.pod("bad")
        await calm.after(290.0)
        calm.process.connection.plan = lambda verb, path: ""
        if verb == "GET":
            assert calm.process.scheduler.in_flight.oldest_seconds > 280.0
            assert calm.process.scheduler.cluster.assumed
        await calm.after(90.0)
        assert calm.on_nodes() == ["bad"]
        assert places(calm) == set()

    story(POLICY, tell, cpus=(4,))


def test_a_binding_of_another_scheduler_is_not_reported_as_ours(caplog: pytest.LogCaptureFixture) -> None:
    async def tell(calm: Calm) -> None:
        def plan(verb: str, path: str) -> str:
            if verb == "POST" and "/theirs/" in path:
                calm.server.bind_pod("theirs", "n0")
            return ""

        calm.process.connection.plan = plan
        calm.pod("theirs")
        calm.pod("ours")
        await calm.after(5.0)
        assert calm.on_nodes() == ["ours", "theirs"]
        assert places(calm) == set()
        assert (calm.told.told["bound"], calm.told.told["bound by another"]) == (1, 1)

    caplog.set_level("INFO")
    story(POLICY, tell, cpus=(4,))
    told = [r.message for r in caplog.records if getattr(r, "pod", "") == "default/theirs"]
    assert told == ["Pod was already bound to this node by another scheduler"]


def test_a_preemption_that_breaks_puts_its_pod_back() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("low", millis=4000)
        await calm.after(3.0)
        calm.process.connection.plan = lambda verb, path: BEFORE if verb in ("PATCH", "DELETE") else ""
        calm.pod("high", millis=4000, priority=10)
        await calm.after(5.0)
        assert Place.IN_FLIGHT not in places(calm)
        calm.process.connection.plan = lambda verb, path: ""
        await calm.after(30.0)
        assert calm.on_nodes() == ["high"]

    story(POLICY, tell, cpus=(4,))


def test_a_reporter_that_breaks_costs_no_pod_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async def tell(calm: Calm) -> None:
        bad = {"refused", "placed"}

        def breaks(pod: PodInfo, *_: Any) -> None:
            if pod.name in bad:
                raise OurFaultError("drawn")

        told = calm.told
        told.unschedulable = lambda decision: breaks(decision.pod)  # type: ignore[method-assign]
        told.bound = told.failed = breaks  # type: ignore[method-assign]
        calm.pod("refused", millis=9000)
        calm.pod("placed")
        calm.pod("other")
        await calm.after(5.0)
        assert calm.on_nodes() == ["other", "placed"]
        assert places(calm) <= {Place.BACKOFF, Place.UNSCHEDULABLE}
        bad.clear()
        calm.server.set_node("n1", cpu=16, labels={})
        await calm.after(30.0)
        assert calm.on_nodes() == ["other", "placed", "refused"]

    story(POLICY, tell, cpus=(4,))
    assert "unexpected error" in caplog.text


def test_an_attempt_that_breaks_after_the_pod_has_its_place_gives_that_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(calm: Calm) -> None:
        scheduler = calm.process.scheduler
        bind, broken = scheduler.start_binding_cycle, ["bad"]

        def breaks(reserved: Any) -> None:
            if reserved.queued.pod.name in broken:
                raise OurFaultError("drawn")
            bind(reserved)

        monkeypatch.setattr(scheduler, "start_binding_cycle", breaks)
        calm.pod("bad", millis=4000)
        await calm.after(2.0)
        calm.pod("good", millis=4000)
        await calm.after(5.0)
        assert calm.on_nodes() == ["good"]
        broken.clear()
        calm.server.set_node("n1", cpu=4, labels={})
        await calm.after(30.0)
        assert calm.on_nodes() == ["bad", "good"]

    story(POLICY, tell, cpus=(4,))


def test_a_binding_in_doubt_for_minutes_is_never_taken_for_refused() -> None:
    """Carried out, its answer lost, the server out of reach for minutes, and then it answers 403 for a while."""

    async def tell(calm: Calm) -> None:
        server, connection = calm.server, calm.process.connection
        connection.plan = lambda verb, path: "answer lost" if verb == "POST" else ""
        calm.pod("web", millis=4000)
        await calm.after(0.5)
        assert calm.on_nodes() == ["web"]
        for stream in connection.streams:
            stream.spoil("silence")
        connection.plan = lambda verb, path: "unreachable" if "/web" in path else ""
        await calm.after(250.0)
        calm.pod("other", millis=4000)
        server.forbidden = {"bindings", "pods"}
        connection.plan = lambda verb, path: ""
        await calm.after(60.0)
        assert calm.on_nodes() == ["web"]
        server.forbidden = set()
        await calm.after(400.0)
        assert calm.on_nodes() == ["web"]
        assert places(calm) == {Place.UNSCHEDULABLE}

    story(POLICY, tell, cpus=(4,))


def test_a_binding_that_a_webhook_denies_holds_no_room_and_no_other_pod() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(600):  # more than may be under way at a time
            calm.server.denials[f"bad{number}"] = 500
            calm.pod(f"bad{number}", millis=1)
        await calm.after(1.0)
        for number in range(8):
            calm.pod(f"good{number}", millis=500)
        await calm.after(10.0)
        assert len(calm.on_nodes()) == 8
        calm.server.denials.clear()
        await calm.after(60.0)
        assert len(calm.on_nodes()) == 608

    story(POLICY, tell, cpus=(4,) * 80)


def test_statuses_that_a_webhook_refuses_hold_back_those_of_no_other_pod() -> None:
    """Issue: 20 writes that a webhook on pods/status answers with 5xx, and 0 of 300 conditions after 66 s."""

    async def tell(calm: Calm) -> None:
        for number in range(20):
            calm.server.denials[f"bad{number}"] = 503
            calm.pod(f"bad{number}", millis=9000)
        for number in range(300):
            calm.pod(f"good{number}", millis=9000)
        await calm.after(10.0)
        said = {name for name, pod in calm.server.pods.items() if pod["status"].get("conditions")}
        assert len(said) == 300
        statuses: PodStatusWriter = calm.process.statuses
        assert len(statuses) == 20
        calm.server.denials.clear()
        await calm.after(40.0)
        assert all(pod["status"].get("conditions") for pod in calm.server.pods.values())

    story(POLICY, tell, cpus=(4,))
