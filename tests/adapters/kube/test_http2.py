"""Small writes over one HTTP/2 connection: what each of them is told, whatever the server does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.adapters.kube import errors, http2
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.identity import TlsFiles, credentials_of
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import Peer, Request, Script, ScriptedServer, StreamPeer, until
from tests.patience import PATIENCE_SECONDS

PATH = "/api/v1/namespaces/default/pods/web/binding"


@asynccontextmanager
async def talking(
    script: Script, *, settings: dict[int, int] | None = None, **options: Any
) -> AsyncIterator[tuple[Transport, ScriptedServer]]:
    async with ScriptedServer(script, settings=settings or {}) as server:
        transport = Transport(server.credentials(), **options)
        try:
            yield transport, server
        finally:
            await transport.close()


def created(request: Request, peer: Peer) -> None:
    peer.answer(201, request.body)


async def test_many_writes_share_one_connection_and_each_gets_its_own_answer() -> None:
    async with talking(created, max_connections=50) as (transport, server):
        bodies = [b'{"n":%d}' % n for n in range(300)]
        found = await asyncio.gather(*(transport.request("POST", PATH, body=body) for body in bodies))
        assert found == bodies
        assert server.connections == 1
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer secret-token"}
        assert {request.headers["content-type"] for request in server.requests} == {"application/json"}
        assert {request.headers[":authority"] for request in server.requests} == {f"127.0.0.1:{server.port}"}
        assert sorted(request.body for request in server.requests) == sorted(bodies)


async def test_a_connection_that_was_dialled_ahead_takes_the_first_write() -> None:
    async with talking(created) as (transport, server):
        await transport.request("GET", PATH)
        transport.dial_ahead()
        transport.dial_ahead()
        await until(lambda: transport.may_begin)
        assert server.connections == 2
        assert await transport.request("POST", PATH, body=b"x") == b"x"
        transport.dial_ahead()
        assert await transport.request("POST", PATH, body=b"y") == b"y"
        assert server.connections == 2


async def test_a_dial_ahead_of_no_server_fails_no_later_write() -> None:
    async with ScriptedServer(created, settings={}) as server:
        transport = Transport(server.credentials())
        await transport.request("GET", PATH)
    transport.dial_ahead()
    await until(lambda: not transport.is_reachable)
    with pytest.raises(errors.Unreachable):
        await transport.request("POST", PATH, body=b"x")
    await transport.close()


async def test_other_verbs_and_types_arrive_as_they_were_asked_for() -> None:
    async with talking(created) as (transport, server):
        await transport.request("PATCH", PATH, body=b"{}", content_type="application/merge-patch+json")
        await transport.request("DELETE", PATH, accept="application/x")
        first, second = server.requests
        assert (first.verb, first.headers["content-type"]) == ("PATCH", "application/merge-patch+json")
        assert (second.verb, second.headers["accept"], second.body) == ("DELETE", "application/x", b"")


async def test_reads_and_large_bodies_go_over_connections_of_their_own() -> None:
    async with talking(created) as (transport, server):
        await transport.request("GET", PATH)
        large = b"x" * (http2.MOST_SENT_BYTES + 1)
        assert await transport.request("POST", PATH, body=large) == large
        assert ":method" not in server.requests[0].headers | server.requests[1].headers
        assert await transport.request("POST", PATH, body=b"small") == b"small"
        assert ":method" in server.requests[2].headers


async def test_no_more_requests_are_under_way_than_the_server_allows() -> None:
    under_way = most = 0

    async def script(request: Request, peer: Peer) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.002)
        under_way -= 1
        peer.answer(201)

    async with talking(script, settings={3: 4}, max_connections=50) as (transport, server):
        await asyncio.gather(*(transport.request("POST", PATH, body=b"{}") for _ in range(40)))
        assert most == 4
        assert server.connections == 1


@pytest.mark.parametrize("table_bytes", [0, 100, 4096])
async def test_each_request_has_all_its_headers_however_little_the_server_keeps(table_bytes: int) -> None:
    async with talking(created, settings={1: table_bytes}) as (transport, server):
        for _ in range(3):
            await transport.request("POST", PATH, body=b"{}")
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer secret-token"] * 3


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, errors.Unauthorized), (403, errors.Forbidden), (404, errors.NotFound), (409, errors.Conflict),
     (422, errors.Invalid), (429, errors.TooManyRequests), (500, errors.ServerError), (503, errors.ServerError)],
)  # fmt: skip
async def test_a_refusal_is_the_same_error_as_over_http_1(status: int, error: type[errors.ApiError]) -> None:
    def script(request: Request, peer: Peer) -> None:
        peer.refuse(status, "Because", "of that", retry_after="3")

    async with talking(script) as (transport, _):
        with pytest.raises(error) as caught:
            await transport.request("POST", PATH, body=b"{}")
        assert (caught.value.status, caught.value.reason, caught.value.message) == (status, "Because", "of that")
        assert caught.value.retry_after_seconds == 3.0


async def test_what_waits_is_withheld_once_the_fence_is_closed() -> None:
    allowed, held = True, list[Peer]()

    async with talking(lambda _, peer: held.append(peer), settings={3: 1}) as (transport, server):
        fence = Fence(lambda: allowed)
        first = asyncio.create_task(transport.request("POST", PATH, body=b"1", fence=fence))
        await until(lambda: bool(held))
        second = asyncio.create_task(transport.request("POST", PATH, body=b"2", fence=fence))
        await asyncio.sleep(0)
        allowed = False
        held[0].answer(201, b"1")
        assert await first == b"1"
        with pytest.raises(errors.Fenced):
            await second
        assert len(server.requests) == 1


async def test_a_fence_that_breaks_withholds_its_request_and_no_other() -> None:
    def broken() -> bool:
        raise ZeroDivisionError

    async with talking(created) as (transport, server):
        await transport.request("POST", PATH, body=b"0")
        bad, good = await asyncio.gather(
            transport.request("POST", PATH, body=b"bad", fence=Fence(broken)),
            transport.request("POST", PATH, body=b"good"),
            return_exceptions=True,
        )
        assert isinstance(bad, errors.Fenced)
        assert good == b"good"
        assert [request.body for request in server.requests] == [b"0", b"good"]


async def test_a_lost_connection_leaves_the_outcome_of_each_request_open() -> None:
    async with talking(lambda _, peer: peer.abort()) as (transport, server):
        asked = [transport.request("POST", PATH, body=b"{}") for _ in range(20)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(each) for each in found} == {errors.ConnectionLost}
        server.script = created
        assert await transport.request("POST", PATH, body=b"again") == b"again"


async def test_a_request_that_the_server_did_not_look_at_is_sent_again() -> None:
    refused = list[str]()

    def script(request: Request, peer: Peer) -> None:
        assert isinstance(peer, StreamPeer)
        if len(refused) < 2:
            refused.append(request.target)
            peer.reset(0x7)
        else:
            peer.answer(201, request.body)

    async with talking(script) as (transport, server):
        assert await transport.request("POST", PATH, body=b"x") == b"x"
        assert len(server.requests) == 3


async def test_a_server_that_never_looks_is_given_up_as_unreachable() -> None:
    def script(request: Request, peer: Peer) -> None:
        assert isinstance(peer, StreamPeer)
        peer.reset(0x7)

    async with talking(script) as (transport, server):
        with pytest.raises(errors.Unreachable):
            await transport.request("POST", PATH, body=b"x")
        assert len(server.requests) == 1 + http2.MOST_REPEATS


async def test_another_reset_leaves_the_outcome_of_that_request_open_and_of_no_other() -> None:
    def script(request: Request, peer: Peer) -> None:
        assert isinstance(peer, StreamPeer)
        if request.body == b"bad":
            peer.reset(0x2)
        else:
            peer.answer(201, request.body)

    async with talking(script) as (transport, server):
        bad, good = await asyncio.gather(
            transport.request("POST", PATH, body=b"bad"),
            transport.request("POST", PATH, body=b"good"),
            return_exceptions=True,
        )
        assert isinstance(bad, errors.UnknownOutcome)
        assert good == b"good"
        assert server.connections == 1


async def test_what_a_leaving_server_will_not_look_at_goes_to_another_connection() -> None:
    seen = list[bytes]()

    def script(request: Request, peer: Peer) -> None:
        assert isinstance(peer, StreamPeer)
        seen.append(request.body)
        if peer.connection.number == 1:
            if len(seen) == 1:
                peer.answer(201, request.body)
            elif len(seen) == 2:
                peer.go_away(peer.stream - 2)  # the first was looked at, this one was not
        else:
            peer.answer(201, request.body)

    async with talking(script) as (transport, server):
        found = await asyncio.gather(*(transport.request("POST", PATH, body=b"%d" % n) for n in range(10)))
        assert found == [b"%d" % n for n in range(10)]
        assert server.connections == 2


async def test_a_request_without_an_answer_is_given_up_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "SILENCE_CHECK_SECONDS", 0.01)

    def script(request: Request, peer: Peer) -> None:
        if request.body != b"slow":
            peer.answer(201, request.body)

    async with talking(script) as (transport, server):
        slow = asyncio.create_task(transport.request("POST", PATH, body=b"slow", timeout_seconds=0.2))
        while not slow.done():
            assert await transport.request("POST", PATH, body=b"quick") == b"quick"
        with pytest.raises(errors.AnswerTimeout):
            await slow
        await until(lambda: server.resets == 1)
        assert server.connections == 1


async def test_a_connection_on_which_nothing_is_heard_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "SILENCE_CHECK_SECONDS", 0.01)

    def script(request: Request, peer: Peer) -> None:
        if peer.number > 1:
            peer.answer(201, request.body)

    async with talking(script) as (transport, server):
        with pytest.raises(errors.AnswerTimeout):
            await transport.request("POST", PATH, body=b"x", timeout_seconds=0.05)
        await until(lambda: transport.connections == 0)
        assert await transport.request("POST", PATH, body=b"y") == b"y"
        assert server.connections == 2


async def test_a_cancelled_request_is_given_up_on_the_server_too() -> None:
    asked = asyncio.Event()

    async with talking(lambda request, peer: asked.set()) as (transport, server):
        task = asyncio.create_task(transport.request("POST", PATH, body=b"x"))
        await asked.wait()
        task.cancel()
        await until(lambda: server.resets == 1)


async def test_a_new_token_is_presented_on_a_new_connection() -> None:
    async with ScriptedServer(created, settings={}) as server:
        source = server.credentials()
        transport = Transport(source)
        await transport.request("POST", PATH, body=b"1")
        old = await source.get()
        renewed = msgspec.structs.replace(old, headers=(("Authorization", "Bearer renewed"),))
        transport._credentials = type(source)(lambda: renewed)
        await transport.request("POST", PATH, body=b"2")
        assert [each.headers["authorization"] for each in server.requests] == ["Bearer secret-token", "Bearer renewed"]
        await transport.close()


async def test_a_server_without_http_2_is_asked_over_http_1_from_then_on() -> None:
    async with talking(created) as (transport, server):
        assert server._tls is not None
        server._tls.set_alpn_protocols(["http/1.1"])
        try:
            for n in range(3):
                assert await transport.request("POST", PATH, body=b"%d" % n) == b"%d" % n
        finally:
            server._tls.set_alpn_protocols(["h2", "http/1.1"])
        assert all(":method" not in request.headers for request in server.requests)
        assert server.connections == 2  # the one that found it out, and the one for all


class Raw(asyncio.Protocol):
    """A server that sends given bytes once it has heard of a client."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._sent:
            self._transport.write(self._sent)
            self._sent = b""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


SETTINGS = frame(4, 0, 0)


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff" * 64,
        SETTINGS + frame(0, 1, 1, b"a body without a head"),
        SETTINGS + frame(1, 5, 1, b"\xff\xff\xff\xff\xff\xff"),
        SETTINGS + frame(1, 5, 1, b""),
        SETTINGS + frame(1, 0, 1, b"\x20\x88") + frame(6, 0, 0, b"12345678"),
        SETTINGS + frame(9, 4, 1, b"\x88"),
        SETTINGS + frame(1, 0, 1, b"\x20") + frame(9, 0, 1, b"\x00" * 16_384) * 17,
        SETTINGS + frame(5, 4, 1, b"\x00\x00\x00\x02\x88"),
        SETTINGS + frame(1, 0xC, 1, b"\xff\x88"),
        SETTINGS + frame(7, 0, 0, b"short"),
        SETTINGS + frame(4, 0, 0, b"odd"),
        frame(4, 0, 0, b"\x00\x04\x00\x00\x00\x10"),
    ],
    ids=range(13),
)
async def test_what_is_no_http_2_ends_the_connection_with_an_error_and_nothing_hangs(sent: bytes) -> None:
    async with ScriptedServer(created, settings={}) as server:
        raw = await asyncio.get_running_loop().create_server(lambda: Raw(sent), "127.0.0.1", 0, ssl=server._tls)
        port = raw.sockets[0].getsockname()[1]
        transport = Transport(server.credentials(server=f"https://127.0.0.1:{port}"), connect_timeout_seconds=0.5)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                with pytest.raises((errors.UnknownOutcome, errors.Unreachable)):
                    await transport.request("POST", PATH, body=b"x", timeout_seconds=2.0)
        finally:
            await transport.close()
            raw.close()


async def test_a_long_answer_is_received_and_one_that_is_too_long_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "MOST_BODY_BYTES", 40_000)

    def script(request: Request, peer: Peer) -> None:
        peer.answer(201, b"x" * int(request.body))

    async with talking(script) as (transport, _):
        assert len(await transport.request("POST", PATH, body=b"30000")) == 30_000
        with pytest.raises(errors.MalformedAnswer, match="longer than"):
            await transport.request("POST", PATH, body=b"60000")


def test_the_two_kinds_of_tls_offer_what_they_say(tmp_path: Any) -> None:
    made = credentials_of("https://x", source="a test", headers=(), tls=TlsFiles(), files=())
    assert isinstance(made.tls, ssl.SSLContext)
    assert isinstance(made.tls_http2, ssl.SSLContext)
    plain = credentials_of("http://x", source="a test", headers=(), tls=TlsFiles(), files=())
    assert (plain.tls, plain.tls_http2) == (None, None)
