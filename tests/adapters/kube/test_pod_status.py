"""The PodScheduled condition is written when it changes, and never onto a pod that is bound."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.adapters.kube.binding import LINGER_SECONDS, PATIENCE_SECONDS
from kube_policy_scheduler.adapters.kube.errors import ConnectionLost, KubeError, error_from_answer
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.pod_status import NotPassedOn, PassedOn, PodStatusWriter
from kube_policy_scheduler.adapters.kube.pod_view import PodNow
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import PodCondition
from kube_policy_scheduler.cluster.pods import PASSED_ON
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, pod, until
from tests.simulation.virtual_time import run

NOW = 1_795_000_000.9

pytestmark = pytest.mark.usefixtures("both_protocols")


def web(*conditions: PodCondition, version: str = "7", nominated: str = "") -> PodNow:
    return PodNow("default", "web", "uid-web", version, 3, nominated, conditions)


UNSCHEDULABLE = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="no cpu")


class Api:
    def __init__(self) -> None:
        self.now = pod("web", resourceVersion="7")
        self.patches: list[Any] = []
        self.faults: list[Any] = []

    def __call__(self, request: Request, peer: Peer) -> Any:
        if self.faults:
            return self.faults.pop(0)(request, peer)
        if request.verb == "GET":
            peer.answer(200, self.now)
        elif request.json["metadata"]["resourceVersion"] != self.now["metadata"]["resourceVersion"]:
            peer.refuse(409, "Conflict")
        else:
            assert request.headers["content-type"] == "application/strategic-merge-patch+json"
            assert request.path == "/api/v1/namespaces/default/pods/web/status"
            self.patches.append(request.json)
            peer.answer(200, self.now)
        return None


@contextlib.asynccontextmanager
async def writer_for(api: Api, **options: Any) -> AsyncIterator[tuple[PodStatusWriter, ScriptedServer]]:
    async with ScriptedServer(api) as server:
        transport = Transport(server.credentials())
        writer = PodStatusWriter(transport, random=Random(1), clock=lambda: NOW, **options)
        task = asyncio.create_task(writer.run())
        try:
            yield writer, server
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await transport.close()


async def test_the_condition_is_written_with_the_whole_message() -> None:
    api = Api()
    message = "0/5000 nodes are available: " + "x" * 3000
    async with writer_for(api) as (writer, _):
        writer.unschedulable(web(), reason="Unschedulable", message=message, nominated_node="node-3")
        await until(lambda: bool(api.patches))
        assert api.patches == [
            {
                "metadata": {"uid": "uid-web", "resourceVersion": "7"},
                "status": {
                    "conditions": [
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "reason": "Unschedulable",
                            "message": message,
                            "observedGeneration": 3,
                            "lastProbeTime": None,
                            "lastTransitionTime": "2026-11-18T11:06:40Z",
                        }
                    ],
                    "nominatedNodeName": "node-3",
                },
            }
        ]


async def test_a_condition_that_stays_false_keeps_its_transition_time() -> None:
    api = Api()
    async with writer_for(api) as (writer, _):
        writer.unschedulable(web(UNSCHEDULABLE), reason="Unschedulable", message="no memory")
        await until(lambda: bool(api.patches))
        (condition,) = api.patches[0]["status"]["conditions"]
        assert "lastTransitionTime" not in condition
        assert "nominatedNodeName" not in api.patches[0]["status"]


async def test_an_unchanged_condition_is_not_written() -> None:
    api = Api()
    async with writer_for(api) as (writer, server):
        writer.unschedulable(web(UNSCHEDULABLE), reason="Unschedulable", message="no cpu", nominated_node="")
        writer.nominate(web(nominated="node-3"), node="node-3")
        writer.nominate(web(nominated="node-3"), node="")
        await until(lambda: writer.counts.sent == 1)
        assert len(server.requests) == 1
        assert api.patches[0]["status"] == {"nominatedNodeName": None}


async def test_a_pod_that_was_bound_meanwhile_is_left_alone() -> None:
    api = Api()
    api.now["metadata"]["resourceVersion"] = "8"
    api.now["spec"]["nodeName"] = "node-1"
    async with writer_for(api) as (writer, server):
        writer.unschedulable(web(), reason="Unschedulable", message="no cpu")
        await until(lambda: writer.counts.sent == 1)
        assert [request.verb for request in server.requests] == ["PATCH", "GET"]
        assert api.patches == []


async def test_a_pod_that_changed_otherwise_is_written_at_its_new_version() -> None:
    api = Api()
    api.now["metadata"]["resourceVersion"] = "8"
    async with writer_for(api) as (writer, _):
        writer.unschedulable(web(), reason="Unschedulable", message="no cpu")
        await until(lambda: bool(api.patches))
        assert api.patches[0]["metadata"]["resourceVersion"] == "8"


async def test_another_pod_of_the_same_name_is_left_alone() -> None:
    api = Api()
    api.now = pod("web", uid="uid-other", resourceVersion="8")
    async with writer_for(api) as (writer, _):
        writer.unschedulable(web(), reason="Unschedulable", message="no cpu")
        await until(lambda: writer.counts.sent == 1)
        assert api.patches == []


async def test_failures_are_repeated_and_the_newest_message_wins() -> None:
    api = Api()
    api.faults = [lambda request, peer: peer.refuse(500, "InternalError"), lambda request, peer: peer.abort()]
    async with writer_for(api) as (writer, _):
        writer.unschedulable(web(), reason="Unschedulable", message="one")
        await until(lambda: writer.counts.retried == 1)
        writer.unschedulable(web(), reason="SchedulerError", message="two")
        await until(lambda: bool(api.patches))
        assert api.patches[0]["status"]["conditions"][0]["message"] == "two"
        assert len(api.patches) == 1


async def test_nothing_is_written_while_the_fence_is_closed() -> None:
    api = Api()
    leads = False
    async with writer_for(api, fence=Fence(lambda: leads)) as (writer, server):
        writer.unschedulable(web(), reason="Unschedulable", message="no cpu", nominated_node="node-3")
        await asyncio.sleep(0.05)
        leads = True
        await until(lambda: bool(api.patches))
        leads = False
        writer.unschedulable(web(), reason="Unschedulable", message="no memory")
        assert await writer.drain(timeout_seconds=30)
        assert len(server.requests) == 1
        assert writer.counts.withheld == 1


async def test_behind_the_fence_nothing_is_written_after_a_conflict_either() -> None:
    api = Api()
    api.now["metadata"]["resourceVersion"] = "8"
    answers = iter([True])
    async with writer_for(api, fence=Fence(lambda: next(answers, False))) as (writer, server):
        writer.unschedulable(web(), reason="Unschedulable", message="no cpu")
        await until(lambda: len(server.requests) == 2)
        assert await writer.drain(timeout_seconds=30)
        assert [request.verb for request in server.requests] == ["PATCH", "GET"]


async def test_a_pod_that_is_being_bound_is_forgotten() -> None:
    api = Api()
    busy = True
    async with writer_for(api, defer_while=lambda: busy) as (writer, server):
        writer.unschedulable(web(), reason="Unschedulable", message="one")
        writer.forget("uid-web")
        busy = False
        assert await writer.drain(timeout_seconds=30)
        assert server.requests == []


async def test_a_pod_whose_passing_on_was_not_answered_is_passed_on_again_until_that_is_certain() -> None:
    api = Api()
    api.faults = [lambda _, peer: peer.abort(), lambda _, peer: peer.refuse(503, "ServiceUnavailable")]
    async with writer_for(api) as (writer, server):
        assert await writer.pass_on(web(), node="n2") == PassedOn(7)
        assert len(server.requests) == 3
    (patch,) = api.patches
    assert patch["status"]["nominatedNodeName"] == "n2"
    assert patch["status"]["conditions"][0]["type"] == "policy-scheduler/PassedOn"


async def test_a_pod_that_is_gone_after_a_lost_answer_counts_until_the_watch_shows_it() -> None:
    api = Api()
    api.faults = [lambda _, peer: peer.abort(), lambda _, peer: peer.refuse(404, "NotFound")]
    async with writer_for(api) as (writer, _):
        assert await writer.pass_on(web(version="7"), node="n2") == PassedOn(8)


async def test_a_pod_is_not_taken_for_passed_on_because_a_webhook_answers_conflict_after_a_lost_answer() -> None:
    api = Api()

    def conflict(_: Request, peer: Peer) -> None:
        peer.refuse(409, "Conflict", "denied by a webhook")

    def show(_: Request, peer: Peer) -> None:
        peer.answer(200, api.now)

    api.faults = [lambda _, peer: peer.abort(), *[conflict, show] * 6]
    async with writer_for(api) as (writer, _):
        assert await writer.pass_on(web(), node="n2") == PassedOn(7)
    assert len(api.patches) == 1, "it is said to be passed on, and nothing says so of the pod"


async def test_a_pod_is_given_back_although_each_try_ends_with_a_conflict_for_a_time() -> None:
    api = Api()

    def conflict(_: Request, peer: Peer) -> None:
        peer.refuse(409, "Conflict", "denied by a webhook")

    def show(_: Request, peer: Peer) -> None:
        peer.answer(200, api.now)

    passed = PodCondition(type=PASSED_ON, status="True", message="n1")
    api.now["status"] = {"nominatedNodeName": "n1", "conditions": [msgspec.to_builtins(passed)]}
    api.faults = [conflict, show] * 4
    async with writer_for(api) as (writer, _):
        writer.nominate(web(passed, nominated="n1"), node="")
        await until(lambda: bool(api.patches))
        assert api.patches[0]["status"]["nominatedNodeName"] is None, "nobody would decide the pod any more"
        assert writer.counts.retried == 1


async def test_nothing_is_passed_on_behind_the_fence_or_against_a_refusal() -> None:
    api = Api()
    async with writer_for(api, fence=Fence(lambda: False)) as (writer, server):
        assert isinstance(await writer.pass_on(web(), node="n2"), NotPassedOn)
        assert server.requests == []
    api.faults = [lambda _, peer: peer.refuse(422, "Invalid", "no such node")]
    async with writer_for(api) as (writer, _):
        outcome = await writer.pass_on(web(), node="n2")
    assert isinstance(outcome, NotPassedOn)
    assert "no such node" in outcome.why


# --- in doubt, over minutes of virtual time


LOST = ConnectionLost("cut")


class Way:
    """To an API server with one pod, in place of a Transport: what it answers to each patch, and then to each read."""

    def __init__(self, *patches: KubeError, reads: KubeError | None = None) -> None:
        self.patches, self.reads = iter(patches), reads
        self.last = patches[-1]
        """What each further patch is answered with."""
        self.pod = pod("web", resourceVersion="7")
        self.requests: list[tuple[float, str]] = []
        self.arrives_after: float | None = None
        """How many seconds after its answer was lost the first patch is carried out; None: never."""

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def request(self, verb: str, path: str, *, body: bytes = b"", **_: Any) -> bytes:
        loop = asyncio.get_running_loop()
        self.requests.append((loop.time(), verb))
        await asyncio.sleep(0.01)
        if verb == "PATCH":
            if len(self.requests) == 1 and self.arrives_after is not None:
                loop.call_later(self.arrives_after, self._carry_out, msgspec.json.decode(body)["status"])
            raise next(self.patches, self.last)
        if self.reads is not None:
            raise self.reads
        return msgspec.json.encode(self.pod)

    def _carry_out(self, status: Any) -> None:
        self.pod["status"] = status
        self.pod["metadata"]["resourceVersion"] = "8"


def passing_on(way: Way, *, within: float = 3600.0) -> tuple[PassedOn | NotPassedOn | None, float]:
    """Pass the pod on; return the outcome, None where there is none after so many seconds, and how long it took."""

    async def main() -> tuple[PassedOn | NotPassedOn | None, float]:
        writer = PodStatusWriter(way, random=Random(1))  # type: ignore[arg-type]
        began, outcome = asyncio.get_running_loop().time(), None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                outcome = await writer.pass_on(web(), node="n2")
        return outcome, asyncio.get_running_loop().time() - began

    return run(main())


@pytest.mark.parametrize(
    "refusal",
    [
        error_from_answer(403, b'{"message":"no","reason":"x"}'),
        error_from_answer(422, b'{"message":"no","reason":"x"}'),
        error_from_answer(500, b'{"message":"admission webhook \\"w.x\\" denied the request: no","reason":"x"}'),
    ],
)
def test_after_a_lost_answer_a_pod_is_not_passed_on_once_the_refusal_is_final(refusal: KubeError) -> None:
    way = Way(LOST, refusal)
    outcome, seconds = passing_on(way)
    assert isinstance(outcome, NotPassedOn)
    assert "no" in outcome.why
    assert LINGER_SECONDS <= seconds <= LINGER_SECONDS + 30.0
    assert [verb for _, verb in way.requests].count("PATCH") == 2


@pytest.mark.parametrize("later", [0.0, 58.0])
def test_a_refusal_does_not_hide_that_the_lost_write_has_passed_the_pod_on(later: float) -> None:
    way = Way(LOST, error_from_answer(403, b""))
    way.arrives_after = later
    assert passing_on(way)[0] == PassedOn(8)


def test_a_pod_that_cannot_even_be_read_is_asked_for_seldom_and_until_it_is_gone() -> None:
    way = Way(LOST, error_from_answer(403, b""), reads=error_from_answer(403, b""))
    outcome, _ = passing_on(way)
    assert outcome is None
    assert len(way.requests) < 250, "in an hour"
    way = Way(LOST, error_from_answer(403, b""), reads=error_from_answer(404, b""))
    assert passing_on(way)[0] == PassedOn(8)


def test_a_server_that_breaks_each_time_has_certainly_not_passed_the_pod_on_once_the_last_request_is_over() -> None:
    way = Way(LOST)
    outcome, seconds = passing_on(way)
    assert isinstance(outcome, NotPassedOn)
    last = max(at for at, verb in way.requests if verb == "PATCH")
    assert PATIENCE_SECONDS <= last <= PATIENCE_SECONDS + 6.0
    assert last + LINGER_SECONDS <= seconds <= last + LINGER_SECONDS + 31.0
