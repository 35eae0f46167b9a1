"""A binding ends in the truth: bound, certainly not bound, or honestly unknown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.binding import Begun, Binder, Bound, Outcome, Reason, Refused, Unknown
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, pod, until
from tests.patience import PATIENCE_SECONDS


class Api:
    """A pod store that binds as the API server does, unless a fault is set for the next requests."""

    needs_task = True
    """Whether its pods are bound in a task."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {"web": pod("web")}
        self.faults: dict[str, list[Callable[[Request, Peer], Any]]] = {"POST": [], "GET": []}
        self.bindings: list[tuple[str, str]] = []

    def __call__(self, request: Request, peer: Peer) -> Any:
        if self.faults[request.verb]:
            return self.faults[request.verb].pop(0)(request, peer)
        return self.serve(request, peer)

    def serve(self, request: Request, peer: Peer) -> None:
        name = request.path.split("/")[6]
        found = self.pods.get(name)
        if found is None:
            peer.refuse(404, "NotFound", f'pods "{name}" not found')
        elif request.verb == "GET":
            peer.answer(200, found)
        else:
            self.bind(request, peer, found)

    def bind(self, request: Request, peer: Peer, found: dict[str, Any]) -> None:
        body = request.json
        assert (body["kind"], body["apiVersion"], body["target"]["kind"]) == ("Binding", "v1", "Node")
        node = body["target"]["name"]
        if body["metadata"]["uid"] != found["metadata"]["uid"]:
            peer.refuse(409, "Conflict", "Precondition failed: UID in precondition")
        elif found["metadata"].get("deletionTimestamp"):
            peer.refuse(409, "Conflict", "pod web is being deleted, cannot be assigned to a host")
        elif found["spec"].get("nodeName"):
            peer.refuse(409, "Conflict", f"pod web is already assigned to node {found['spec']['nodeName']!r}")
        elif found["spec"].get("schedulingGates"):
            peer.refuse(409, "Conflict", "pod web has non-empty .spec.schedulingGates")
        else:
            found["spec"]["nodeName"] = node
            self.bindings.append((found["metadata"]["name"], node))
            peer.answer(201, {"kind": "Status", "status": "Success"})


@pytest.fixture(autouse=True, params=["HTTP/1.1", "HTTP/2", "HTTP/2 without a task"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bind in each of the ways that there are."""
    monkeypatch.setattr(ScriptedServer, "speaks_http2", request.param != "HTTP/1.1")
    monkeypatch.setattr(Api, "needs_task", request.param != "HTTP/2 without a task")


@contextlib.asynccontextmanager
async def binder_for(api: Api, **options: Any) -> AsyncIterator[tuple[Binder, ScriptedServer]]:
    async with ScriptedServer(lambda _, peer: peer.answer(201)) as server:
        transport = Transport(server.credentials())
        if not api.needs_task:
            await transport.request("POST", "/")  # there is a connection then
            server.requests.clear()
        server.script = api
        yield Binder(transport, random=Random(1), **options), server
        await transport.close()


async def bind_web(binder: Binder, *, node: str = "node-1", uid: str = "uid-web") -> Outcome:
    async with asyncio.timeout(PATIENCE_SECONDS):
        if Api.needs_task:
            return await binder.bind(namespace="default", name="web", uid=uid, node=node)
        told: asyncio.Future[Bound | Begun] = asyncio.get_running_loop().create_future()
        is_sent = binder.begin(
            namespace="default", name="web", uid=uid, node=node, still_holds=lambda: True, done=told.set_result
        )
        assert is_sent
        found = await told
        return found if isinstance(found, Bound) else await binder.finish(found)


async def test_a_binding_is_one_request() -> None:
    api = Api()
    async with binder_for(api) as (binder, server):
        assert await bind_web(binder) == Bound("node-1")
        assert [request.path for request in server.requests] == ["/api/v1/namespaces/default/pods/web/binding"]
        assert server.requests[0].json["metadata"] == {"name": "web", "namespace": "default", "uid": "uid-web"}


def set_on(path: str, value: Any) -> Callable[[Api], None]:
    def change(api: Api) -> None:
        part, _, field = path.partition(".")
        api.pods["web"][part][field] = value

    return change


def remove(api: Api) -> None:
    api.pods.clear()


REFUSALS: dict[str, tuple[Callable[[Api], None], Reason]] = {
    "the pod is gone": (remove, Reason.GONE),
    "another pod has its name": (set_on("metadata.uid", "uid-other"), Reason.GONE),
    "it is being deleted": (set_on("metadata.deletionTimestamp", "2026-11-21T00:00:00Z"), Reason.DELETING),
    "it is bound elsewhere": (set_on("spec.nodeName", "node-2"), Reason.BOUND_ELSEWHERE),
    "it has gates": (set_on("spec.schedulingGates", [{"name": "quota"}]), Reason.GATED),
}


@pytest.mark.parametrize("case", list(REFUSALS))
async def test_a_refusal_has_a_reason(case: str) -> None:
    change, reason = REFUSALS[case]
    api = Api()
    change(api)
    async with binder_for(api) as (binder, server):
        outcome = await bind_web(binder)
        assert isinstance(outcome, Refused)
        assert outcome.reason is reason
        assert len(server.sent("POST")) == 1
        assert api.bindings == []


@pytest.mark.parametrize(
    ("status", "reason"), [(403, Reason.FORBIDDEN), (400, Reason.INVALID), (422, Reason.INVALID), (405, Reason.INVALID)]
)
async def test_what_cannot_be_helped_is_refused_at_once(status: int, reason: Reason) -> None:
    api = Api()
    api.faults["POST"] = [lambda request, peer: peer.refuse(status, "Nope", "the message")]
    async with binder_for(api) as (binder, server):
        outcome = await bind_web(binder)
        assert isinstance(outcome, Refused)
        assert outcome.reason is reason
        assert "the message" in outcome.message
        assert len(server.requests) == 1


async def test_a_pod_that_is_already_on_the_wanted_node_is_bound_but_not_by_us() -> None:
    api = Api()
    api.pods["web"]["spec"]["nodeName"] = "node-1"
    async with binder_for(api) as (binder, _):
        assert await bind_web(binder) == Bound("node-1", by_us=False)


def done_then(end: Callable[[Request, Peer], None]) -> Callable[[Api], Callable[[Request, Peer], None]]:
    """The binding is carried out, but the answer is replaced."""

    def fault(api: Api) -> Callable[[Request, Peer], None]:
        def script(request: Request, peer: Peer) -> None:
            api.pods["web"]["spec"]["nodeName"] = request.json["target"]["name"]
            api.bindings.append(("web", request.json["target"]["name"]))
            end(request, peer)

        return script

    return fault


def not_done(end: Callable[[Request, Peer], None]) -> Callable[[Api], Callable[[Request, Peer], None]]:
    return lambda api: end


def half_an_answer(request: Request, peer: Peer) -> None:
    peer.raw(b"HTTP/1.1 201 Created\r\nContent-")
    peer.close()


UNCERTAIN: dict[str, Callable[[Request, Peer], None]] = {
    "connection cut": lambda request, peer: peer.abort(),
    "half an answer": half_an_answer,
    "500": lambda request, peer: peer.refuse(500, "InternalError"),
    "503": lambda request, peer: peer.refuse(503, "ServiceUnavailable"),
    "504": lambda request, peer: peer.refuse(504, "Timeout"),
    "no answer": lambda request, peer: None,
    "noise": lambda request, peer: peer.raw(b"!!!\r\n\r\n!!!\r\n\r\n"),
}


@pytest.mark.parametrize("was_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("how", list(UNCERTAIN))
async def test_when_the_answer_is_lost_the_pod_is_asked_and_it_is_bound_once(how: str, was_done: bool) -> None:
    api = Api()
    api.faults["POST"] = [(done_then if was_done else not_done)(UNCERTAIN[how])(api)]
    async with binder_for(api, timeout_seconds=0.1) as (binder, server):
        assert await bind_web(binder) == Bound("node-1")
        assert api.bindings == [("web", "node-1")]
        assert len(server.sent("POST")) == (1 if was_done else 2)
        assert len(server.sent("GET")) == 1


async def test_a_lost_answer_and_then_another_scheduler_is_bound_elsewhere() -> None:
    api = Api()

    def other(request: Request, peer: Peer) -> None:
        api.pods["web"]["spec"]["nodeName"] = "node-9"
        peer.abort()

    api.faults["POST"] = [other]
    async with binder_for(api) as (binder, _):
        assert await bind_web(binder) == Refused(Reason.BOUND_ELSEWHERE, "bound to node-9")


async def test_429_is_waited_out_and_does_not_ask_the_pod() -> None:
    api = Api()
    api.faults["POST"] = [lambda request, peer: peer.refuse(429, "TooManyRequests", retry_after="1")]
    async with binder_for(api) as (binder, server):
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await bind_web(binder) == Bound("node-1")
        assert loop.time() - began >= 1.0
        assert [request.verb for request in server.requests] == ["POST", "POST"]


async def test_a_conflict_without_a_reason_is_tried_again_and_then_given_up() -> None:
    api = Api()
    api.faults["POST"] = [lambda request, peer: peer.refuse(409, "Conflict", "etcd was busy")] * 10
    async with binder_for(api) as (binder, server):
        assert await bind_web(binder) == Refused(Reason.CONFLICT, "etcd was busy")
        assert len(server.sent("POST")) == 3


async def test_a_server_that_was_never_reached_certainly_bound_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Api, "needs_task", True)  # without one, there is a connection already
    api = Api()
    async with binder_for(api, patience_seconds=0.5) as (binder, server):
        await server.stop_listening()
        outcome = await bind_web(binder)
        assert isinstance(outcome, Refused)
        assert outcome.reason is Reason.UNAVAILABLE


async def test_a_server_that_dies_after_the_request_leaves_it_unknown() -> None:
    api = Api()
    async with binder_for(api, patience_seconds=0.5, linger_seconds=0.5) as (binder, server):
        dying: list[asyncio.Task[None]] = []

        def die(request: Request, peer: Peer) -> None:
            dying.append(asyncio.create_task(server.stop_listening()))

        api.faults["POST"] = [die]
        assert isinstance(await bind_web(binder), Unknown)
        await asyncio.gather(*dying)


async def test_a_server_that_comes_back_in_time_is_bound_to() -> None:
    api = Api()
    async with binder_for(api) as (binder, server):
        await server.stop_listening()
        binding = asyncio.create_task(bind_web(binder))
        await asyncio.sleep(0.3)
        assert not binding.done()
        await server.listen()
        assert await binding == Bound("node-1")


async def test_behind_the_fence_nothing_is_sent() -> None:
    api = Api()
    async with binder_for(api, fence=Fence(lambda: False)) as (binder, server):
        assert await bind_web(binder) == Refused(Reason.NOT_LEADER, "no longer the leader")
        assert server.requests == []


async def test_when_the_fence_closes_after_a_lost_answer_the_pod_is_asked_but_not_bound_again() -> None:
    api = Api()
    leading = True

    def lose(request: Request, peer: Peer) -> None:
        nonlocal leading
        leading = False
        peer.abort()

    api.faults["POST"] = [lose]
    async with binder_for(api, fence=Fence(lambda: leading), linger_seconds=0.3) as (binder, server):
        assert await bind_web(binder) == Refused(Reason.NOT_LEADER, "no longer the leader")
        assert len(server.sent("POST")) == 1
        assert server.sent("GET")


async def test_no_more_than_the_limit_are_in_flight_and_all_get_bound() -> None:
    api = Api()
    api.pods = {f"p{n}": pod(f"p{n}") for n in range(60)}
    in_flight = most = 0

    async def slow(request: Request, peer: Peer) -> None:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.005)
        in_flight -= 1
        api.serve(request, peer)

    api.faults["POST"] = [slow] * 60
    async with binder_for(api, concurrency=7) as (binder, _):
        tasks = [
            asyncio.create_task(binder.bind(namespace="default", name=f"p{n}", uid=f"uid-p{n}", node="n"))
            for n in range(60)
        ]
        await until(lambda: binder.unfinished == 60)
        assert await asyncio.gather(*tasks) == [Bound("n")] * 60
        assert most == 7
        assert binder.unfinished == 0


async def test_under_every_kind_of_fault_each_pod_is_bound_exactly_once() -> None:
    random = Random(7)
    api = Api()
    api.pods = {f"p{n}": pod(f"p{n}") for n in range(150)}

    faults_left = {f"p{n}": 3 for n in range(150)}

    def erratic(request: Request, peer: Peer) -> None:
        name = request.path.split("/")[6]
        faults_left[name] -= 1
        match random.randrange(8) if faults_left[name] >= 0 else 8:
            case 0:
                peer.abort()
            case 1:
                peer.refuse(500, "InternalError")
            case 2:
                api.serve(request, Peer(_Nowhere(), 0))  # done, but nobody hears of it
                peer.abort()
            case 3:
                api.serve(request, Peer(_Nowhere(), 0))  # done, and never answered
            case _:
                api.serve(request, peer)

    async with ScriptedServer(lambda request, peer: erratic(request, peer)) as server:
        transport = Transport(server.credentials())
        binder = Binder(transport, random=Random(1), timeout_seconds=0.2)
        outcomes = await asyncio.gather(
            *(binder.bind(namespace="default", name=f"p{n}", uid=f"uid-p{n}", node=f"n{n % 7}") for n in range(150))
        )
        await transport.close()
    assert outcomes == [Bound(f"n{n % 7}") for n in range(150)]
    assert sorted(api.bindings) == sorted((f"p{n}", f"n{n % 7}") for n in range(150))


class _Nowhere(asyncio.Transport):
    def write(self, data: Any) -> None: ...
