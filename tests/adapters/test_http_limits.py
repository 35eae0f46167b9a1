"""What clients of the daemon's port can do to it: slow ones, many, large requests, foreign names."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from kube_policy_scheduler.adapters.http.health_checks import HealthChecks
from kube_policy_scheduler.adapters.http.limits import LONGEST_PROBE_WAIT_SECONDS, ConnectionLimits, RateLimit
from kube_policy_scheduler.adapters.http.port import HttpPort
from kube_policy_scheduler.adapters.http.server import HttpServer, Routes, Scrapes
from kube_policy_scheduler.adapters.tls.serving_certificate import ServingCertificate
from tests.adapters.kube.scripted_server import until
from tests.patience import PATIENCE_SECONDS

SHORT = 0.05


async def _wait(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


def server(
    *,
    certificate: ServingCertificate | None = None,
    wait: Callable[[web.Request], Awaitable[web.StreamResponse]] = _wait,
    **limits: Any,
) -> HttpServer:
    return HttpServer(
        port=HttpPort("127.0.0.1", 0),
        checks=HealthChecks(live={"ping": lambda: None}),
        scrapes=Scrapes(CollectorRegistry()),
        routes=Routes({"/wait": wait}),
        certificate=certificate,
        limits=ConnectionLimits(**limits),
    )


class Client:
    """One connection, spoken to byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, text: str) -> None:
        self.writer.write(text.encode())
        await self.writer.drain()

    async def status(self) -> str:
        head = await self.reader.readuntil(b"\r\n\r\n")
        return head.decode().split(" ")[1]

    async def is_ended(self) -> bool:
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


class Clients:
    """Connections that end with the test."""

    def __init__(self) -> None:
        self._made: list[Client] = []

    async def to(self, running: HttpServer, *, context: ssl.SSLContext | None = None) -> Client:
        parts = urlsplit(running.url)
        client = Client(*await asyncio.open_connection(parts.hostname, parts.port, ssl=context))
        self._made.append(client)
        return client

    async def end(self) -> None:
        for client in self._made:
            client.writer.close()
            with suppress(ConnectionError):
                await client.writer.wait_closed()


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    made = Clients()
    yield made
    await made.end()


@pytest.fixture
async def running() -> AsyncIterator[HttpServer]:
    async with server(first_request_seconds=SHORT, idle_seconds=SHORT, request_seconds=SHORT) as made:
        yield made


@pytest.mark.parametrize("said", ["", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
async def test_a_connection_without_a_whole_request_ends(clients: Clients, running: HttpServer, said: str) -> None:
    client = await clients.to(running)
    await client.say(said)
    assert await client.is_ended()


async def test_a_connection_that_has_no_further_request_ends(clients: Clients, running: HttpServer) -> None:
    client = await clients.to(running)
    await client.say("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert await client.status() == "200"
    assert await client.reader.readexactly(2) == b"ok"
    assert await client.is_ended()


async def test_an_answer_that_does_not_come_is_given_up(clients: Clients, running: HttpServer) -> None:
    client = await clients.to(running)
    await client.say("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert await client.status() == "503"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nx", "413"),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "413"),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        (f"GET /{'x' * 10_000} HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
        (f"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Large: {'x' * 100_000}\r\n\r\n", "400"),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\n" + "X-More: 1\r\n" * 1000 + "\r\n", "400"),
        ("nonsense\r\n\r\n", "400"),
    ],
    ids=["body", "chunks", "method", "line", "header", "headers", "nonsense"],
)
async def test_too_much_is_refused(clients: Clients, request_text: str, status: str) -> None:
    async with server() as running:
        client = await clients.to(running)
        await client.say(request_text)
        assert await client.status() == status


@pytest.mark.parametrize(
    ("name", "status"),
    [("localhost", "200"), ("127.0.0.1:10259", "200"), ("[::1]", "200"), ("evil.example", "421"), ("10.0.0.1", "421")],
)
async def test_pages_of_others_do_not_get_through_to_this_machine(clients: Clients, name: str, status: str) -> None:
    async with server() as running:
        client = await clients.to(running)
        await client.say(f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n\r\n")
        assert await client.status() == status


async def test_a_probe_comes_through_however_many_idle_connections_there_are(clients: Clients) -> None:
    async with server(max_connections=10) as running:
        idle = [await clients.to(running) for _ in range(30)]
        probe = await clients.to(running)
        await probe.say("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await probe.status() == "200"
        for client in idle[:15]:
            assert await client.is_ended()


async def test_more_connections_than_can_be_served_at_once_are_refused(clients: Clients) -> None:
    served: list[web.Request] = []

    async def wait(request: web.Request) -> web.StreamResponse:
        served.append(request)
        return await _wait(request)

    async with server(max_connections=3, wait=wait) as running:
        busy = [await clients.to(running) for _ in range(3)]
        for client in busy:
            await client.say("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(served) == 3)
        assert await (await clients.to(running)).is_ended()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_connections_count_before_their_first_byte(clients: Clients, secure: bool) -> None:
    async with server(max_connections=10, certificate=ServingCertificate() if secure else None) as running:
        silent = [await clients.to(running) for _ in range(30)]
        for client in silent[:20]:
            assert await client.is_ended()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        probe = await clients.to(running, context=context if secure else None)
        await probe.say("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await probe.status() == "200"


async def test_a_handshake_that_is_not_finished_ends(clients: Clients) -> None:
    async with server(first_request_seconds=SHORT, certificate=ServingCertificate()) as running:
        client = await clients.to(running)
        await client.say("\x16\x03\x01")
        assert await client.is_ended()


async def test_bytes_that_are_not_a_handshake_end_the_connection_without_a_log_line(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    async with server(certificate=ServingCertificate()) as running:
        client = await clients.to(running)
        await client.say("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await client.is_ended()
    assert not caplog.records


NO_REQUEST = "\x16\x03 this is no HTTP\r\n\r\n"


async def asked(clients: Clients, running: HttpServer, text: str, *, within: float = 30.0) -> str:
    """Send a text on a connection of its own; return the status of the answer, "" where none came in time."""
    client = await clients.to(running)
    await client.say(text)
    try:
        async with asyncio.timeout(within):
            return await client.status()
    except TimeoutError:
        return ""


def get(path: str) -> str:
    return f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("flood", "status"),
    [
        (get("configz"), "200"),
        (get("nothing"), "404"),
        (NO_REQUEST, "400"),
        ("GET /configz HTTP/1.1\r\nHost: localhost\r\nX: " + 20_000 * "x" + "\r\n\r\n", "400"),
        ("POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx", "413"),
    ],
    ids=["requests", "unknown paths", "no requests", "large headers", "bodies"],
)
async def test_an_address_that_asks_for_much_waits_and_its_probes_do_not(
    clients: Clients, flood: str, status: str
) -> None:
    most = 5
    async with server(rate=RateLimit(1e-3, burst_seconds=1000.0 * most)) as running:
        assert [await asked(clients, running, flood) for _ in range(most)] == [status] * most
        assert await asked(clients, running, flood, within=0.2) == ""
        for path in ("livez", "readyz", "healthz", "livez/ping"):
            assert await asked(clients, running, get(path)) == "200"


async def test_probes_have_a_limit_of_their_own_that_is_shorter_than_a_kubelet_waits(clients: Clients) -> None:
    limits = ConnectionLimits()
    longest = max(limits._probes.wait("a", 0.0) for _ in range(10_000))
    assert 0.0 < longest <= LONGEST_PROBE_WAIT_SECONDS
    longest += max(limits._handshakes.wait("a", 0.0) for _ in range(10_000))
    assert longest < 3.0, "the shortest timeout of the manifests"


async def test_what_is_no_request_is_counted_and_fills_no_log(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    registry = CollectorRegistry()
    listening = HttpPort("127.0.0.1", 0)
    async with HttpServer(port=listening, checks=HealthChecks(live={}), scrapes=Scrapes(registry)) as running:
        for text in (NO_REQUEST, "GET / HTTP/9.9\r\n\r\n", "GET " + 5000 * "x", get("livez")):
            await asked(clients, running, text)
    assert registry.get_sample_value("policy_scheduler_http_malformed_requests_total") == 3
    said = [(record.levelname, record.exc_info) for record in caplog.records if "http" in record.name]
    assert said == [("DEBUG", None)] * 3
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_a_rate_is_that_of_each_address_and_of_the_long_run() -> None:
    rate = RateLimit(10.0, burst_seconds=2.0)
    assert max(rate.wait("a", 0.0) for _ in range(20)) == pytest.approx(0.0)
    assert rate.wait("a", 0.0) == pytest.approx(0.1)
    assert rate.wait("b", 0.0, cost=5) == 0.0
    assert rate.wait("a", 0.2) == pytest.approx(0.0)
    assert max(rate.wait("a", 100.0) for _ in range(20)) == pytest.approx(0.0)
    for _ in range(10_000):
        longest = rate.wait("a", 100.0)
    assert longest <= 10.0, "who shares an address with somebody who asks for much is not kept out for ever"


async def test_every_answer_says_how_browsers_are_to_treat_it(clients: Clients) -> None:
    async with server() as running:
        for path in ("/livez", "/metrics", "/nothing"):
            client = await clients.to(running)
            await client.say(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = (await client.reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert "x-content-type-options: nosniff" in head
            assert "cache-control: no-store" in head
            assert "aiohttp" not in head
