"""Answers of all kinds of servers, well-behaved or not."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from kube_policy_scheduler.adapters.kube.connection import Answer, Connection, Stream
from kube_policy_scheduler.adapters.kube.errors import AnswerTimeout, ConnectionLost, MalformedAnswer
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, until
from tests.patience import PATIENCE_SECONDS

REQUEST = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


def compressed(body: bytes, *, length: int | None = None) -> bytes:
    """Return an answer with so many bytes of the compressed body, None for all."""
    content = gzip.compress(body, mtime=0)[:length]
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(content) + content


ZEROS = bytes(3_000_000)
GZIPPED = gzip.compress(b"hello ", mtime=0)
COMPLETE = {
    "content length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", True),
    "lower-case header names": (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", 200, b"hello", True),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        200,
        b"hello",
        True,
    ),
    "chunks with extension and trailer": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nDigest: z\r\n\r\n",
        200,
        b"hello",
        True,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "empty body": (b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", 201, b"", True),
    "interim answers before the real one": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
    "server wants to close": (
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        False,
    ),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    "no reason phrase": (b"HTTP/1.1 409 \r\nContent-Length: 2\r\n\r\n{}", 409, b"{}", True),
    "gzip": (compressed(ZEROS), 200, ZEROS, True),
    "gzip in chunks": (
        b"HTTP/1.1 200 OK\r\ncontent-encoding: GZIP\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"2\r\n%b\r\n" % GZIPPED[at : at + 2] for at in range(0, len(GZIPPED), 2))
        + b"0\r\n\r\n",
        200,
        b"hello ",
        True,
    ),
    "gzip of nothing at all": (
        b"HTTP/1.1 204 No Content\r\nContent-Encoding: gzip\r\n\r\n",
        204,
        b"",
        True,
    ),
    "a hundred headers": (
        b"HTTP/1.1 200 OK\r\n"
        + b"".join(b"X-%d: %s\r\n" % (n, b"v" * 100) for n in range(100))
        + b"Content-Length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
}


async def connect(server: ScriptedServer) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", server.port)
    return connection


@pytest.mark.parametrize("step", [1, 7, 10_000], ids=["byte by byte", "in sevens", "at once"])
@pytest.mark.parametrize("name", list(COMPLETE))
async def test_a_complete_answer_is_read_however_it_is_cut(name: str, step: int) -> None:
    raw, status, body, reusable = COMPLETE[name]

    async def script(_: Request, peer: Peer) -> None:
        for start in range(0, len(raw), step):
            peer.raw(raw[start : start + step])
            await asyncio.sleep(0)

    async with ScriptedServer(script) as server:
        connection = await connect(server)
        answer = await connection.exchange(REQUEST, timeout_seconds=PATIENCE_SECONDS)
        assert (answer.status, answer.body) == (status, body)
        assert connection.reusable is reusable
        connection.close()


async def test_a_body_without_length_ends_with_the_connection() -> None:
    def script(_: Request, peer: Peer) -> None:
        peer.raw(b"HTTP/1.1 200 OK\r\n\r\nhello")
        peer.close()

    async with ScriptedServer(script) as server:
        connection = await connect(server)
        assert (await connection.exchange(REQUEST, timeout_seconds=PATIENCE_SECONDS)).body == b"hello"
        assert not connection.reusable


BROKEN = {
    "not HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", MalformedAnswer),
    "a TLS alert": (b"\x15\x03\x01\x00\x02\x02\x0a", MalformedAnswer),
    "contradicting lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", MalformedAnswer),
    "length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        MalformedAnswer,
    ),
    "a bad chunk size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", MalformedAnswer),
    "another protocol": (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        MalformedAnswer,
    ),
    "gzip that ends too early": (compressed(ZEROS, length=1000), MalformedAnswer),
    "gzip and more": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 52\r\n\r\n" + 2 * GZIPPED,
        MalformedAnswer,
    ),
    "no gzip": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        MalformedAnswer,
    ),
    "half a gzip without a length": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + GZIPPED[:12],
        MalformedAnswer,
    ),
    "another encoding": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
        MalformedAnswer,
    ),
    "nothing": (b"", ConnectionLost),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-", ConnectionLost),
    "half a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", ConnectionLost),
    "half the chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", ConnectionLost),
}


@pytest.mark.parametrize("raw", [compressed(ZEROS), COMPLETE["content length"][0]], ids=["compressed", "plain"])
async def test_an_answer_that_is_too_long_is_an_error(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube_policy_scheduler.adapters.kube.connection.MAX_BODY_BYTES", 4)
    async with ScriptedServer(lambda _, peer: peer.raw(raw)) as server:
        with pytest.raises(MalformedAnswer, match="answer longer than 0 MiB"):
            await (await connect(server)).exchange(REQUEST, timeout_seconds=PATIENCE_SECONDS)


@pytest.mark.parametrize("name", list(BROKEN))
async def test_a_broken_answer_is_an_error_and_ends_the_connection(name: str) -> None:
    raw, error = BROKEN[name]

    def script(_: Request, peer: Peer) -> None:
        peer.raw(raw)
        peer.close()

    async with ScriptedServer(script) as server:
        connection = await connect(server)
        with pytest.raises(error):
            await connection.exchange(REQUEST, timeout_seconds=PATIENCE_SECONDS)
        assert not connection.is_open
        assert not connection.reusable


async def test_an_answer_that_does_not_come_times_out() -> None:
    async with ScriptedServer(lambda request, peer: None) as server:
        connection = await connect(server)
        with pytest.raises(AnswerTimeout, match=r"within 0.05 s"):
            await connection.exchange(REQUEST, timeout_seconds=0.05)
        assert not connection.is_open


async def test_a_cancelled_exchange_closes_the_connection_and_drops_its_answer() -> None:
    async with ScriptedServer(lambda request, peer: None) as server:
        connection = await connect(server)
        exchange = asyncio.create_task(connection.exchange(REQUEST, timeout_seconds=PATIENCE_SECONDS))
        await until(lambda: len(server.requests) == 1)
        exchange.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange
        assert not connection.is_open


async def test_unexpected_bytes_end_the_connection() -> None:
    def script(_: Request, peer: Peer) -> None:
        peer.answer(200, b"one")
        asyncio.get_running_loop().call_later(0.02, peer.answer, 408, b"too slow")

    async with ScriptedServer(script) as server:
        connection = await connect(server)
        await connection.exchange(REQUEST, timeout_seconds=PATIENCE_SECONDS)
        assert connection.reusable
        await connection.closed
        assert not connection.reusable


async def test_two_answers_to_one_request_end_the_connection() -> None:
    def script(_: Request, peer: Peer) -> None:
        peer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na" * 2)

    async with ScriptedServer(script) as server:
        connection = await connect(server)
        assert (await connection.exchange(REQUEST, timeout_seconds=PATIENCE_SECONDS)).body == b"a"
        assert not connection.reusable


async def test_one_connection_serves_many_exchanges() -> None:
    async with ScriptedServer(lambda request, peer: peer.answer(200, request.target.encode())) as server:
        connection = await connect(server)
        for number in range(50):
            request = f"GET /{number} HTTP/1.1\r\nHost: test\r\n\r\n".encode()
            assert (await connection.exchange(request, timeout_seconds=PATIENCE_SECONDS)).body == f"/{number}".encode()
        assert server.connections == 1
        connection.close()


@pytest.mark.parametrize(("before", "limit"), [(0.05, 0.15), (5.0, 0.05)], ids=["longer", "shorter"])
async def test_the_limit_of_an_exchange_counts_from_its_own_request(before: float, limit: float) -> None:
    def script(_: Request, peer: Peer) -> None:
        if len(server.requests) == 1:
            peer.answer(200, b"one")

    async with ScriptedServer(script) as server:
        connection = await connect(server)
        await connection.exchange(REQUEST, timeout_seconds=before)
        began = asyncio.get_running_loop().time()
        with pytest.raises(AnswerTimeout, match=f"within {limit} s"):
            await connection.exchange(REQUEST, timeout_seconds=limit)
        assert asyncio.get_running_loop().time() - began >= limit


async def test_a_connection_at_rest_outlives_the_limit_of_its_last_exchange() -> None:
    async with ScriptedServer(lambda request, peer: peer.answer(200, b"one")) as server:
        connection = await connect(server)
        await connection.exchange(REQUEST, timeout_seconds=0.03)
        await asyncio.sleep(0.1)
        assert connection.is_open
        assert (await connection.exchange(REQUEST, timeout_seconds=PATIENCE_SECONDS)).body == b"one"
        connection.close()


async def open_stream(server: ScriptedServer, *, idle_seconds: float = 5.0) -> Stream:
    stream = await (await connect(server)).open_stream(
        REQUEST, timeout_seconds=PATIENCE_SECONDS, idle_seconds=idle_seconds
    )
    assert isinstance(stream, Stream)
    return stream


async def everything_of(stream: Stream) -> bytes:
    received = b""
    while data := await stream.read():
        received += data
    return received


async def test_a_stream_gives_what_has_come_and_then_its_end() -> None:
    async def script(_: Request, peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b"one")
        peer.chunk(b"two")
        await asyncio.sleep(0.02)
        peer.chunk(b"three")
        peer.end_stream()

    async with ScriptedServer(script) as server:
        assert await everything_of(await open_stream(server)) == b"onetwothree"


async def test_a_stream_may_come_compressed() -> None:
    def script(_: Request, peer: Peer) -> None:
        peer.raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.chunk(GZIPPED[:15])
        peer.chunk(GZIPPED[15:])
        peer.end_stream()

    async with ScriptedServer(script) as server:
        assert await everything_of(await open_stream(server)) == b"hello "


async def test_a_stream_that_is_cut_gives_what_came_before_the_error() -> None:
    def script(_: Request, peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b"one")
        peer.raw(b"64\r\nhalf")
        peer.close()

    async with ScriptedServer(script) as server:
        stream = await open_stream(server)
        received = b""
        while len(received) < len(b"onehalf"):
            received += await stream.read()
        assert received == b"onehalf"
        with pytest.raises(ConnectionLost):
            await stream.read()


async def test_a_silent_stream_is_ended() -> None:
    def script(_: Request, peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b"one")

    async with ScriptedServer(script) as server:
        stream = await open_stream(server, idle_seconds=0.05)
        assert await stream.read() == b"one"
        with pytest.raises(AnswerTimeout, match="nothing received"):
            await stream.read()


async def test_an_error_instead_of_a_stream_is_an_answer() -> None:
    async with ScriptedServer(lambda request, peer: peer.refuse(410, "Expired")) as server:
        connection = await connect(server)
        answer = await connection.open_stream(REQUEST, timeout_seconds=PATIENCE_SECONDS, idle_seconds=5)
        assert isinstance(answer, Answer)
        assert answer.status == 410
        connection.close()


async def test_an_unread_stream_stops_the_sender_instead_of_filling_memory() -> None:
    sent = 0
    block = b"x" * (1 << 20)

    async def script(_: Request, peer: Peer) -> None:
        nonlocal sent
        peer.begin_stream()
        while sent < 200:
            peer.chunk(block)
            sent += 1
            await peer.drained()
        peer.end_stream()

    async with ScriptedServer(script) as server:
        stream = await open_stream(server)
        await asyncio.sleep(0.2)
        assert sent < 60  # 4 MiB of ours and the kernel's buffers
        received = 0
        while data := await stream.read():
            received += len(data)
        assert received == 200 << 20
