"""HTTP proxies between us and the API server."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme

from kube_policy_scheduler.adapters.kube.credentials import CredentialSource
from kube_policy_scheduler.adapters.kube.errors import CredentialsError, Unreachable
from kube_policy_scheduler.adapters.kube.proxy import bypasses_proxy, parse_proxy
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import ScriptedServer, credentials


class Tunnels:
    """A CONNECT proxy."""

    def __init__(self, *, refusal: bytes = b"") -> None:
        self.heads: list[str] = []
        self.port = 0
        self._refusal = refusal
        self._copies: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self._refusal:
            writer.write(self._refusal)
            writer.close()
            return
        host, _, port = self.heads[-1].split()[1].rpartition(":")
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for source, sink in ((reader, up_writer), (up_reader, writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self._copies.add(task)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
        except OSError:
            pass
        finally:
            sink.transport.abort()

    async def finish(self) -> None:
        for task in self._copies:
            task.cancel()
        await asyncio.gather(*self._copies, return_exceptions=True)


@contextlib.asynccontextmanager
async def proxied(*, refusal: bytes = b"", tls: ssl.SSLContext | None = None) -> AsyncIterator[Tunnels]:
    tunnels = Tunnels(refusal=refusal)
    server = await asyncio.start_server(tunnels.serve, "127.0.0.1", 0, ssl=tls)
    tunnels.port = server.sockets[0].getsockname()[1]
    try:
        yield tunnels
    finally:
        server.close()
        await tunnels.finish()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_requests_go_through_a_tunnel_with_the_proxys_own_credentials(tls: bool) -> None:
    authority = trustme.CA()
    server_tls = client_tls = None
    if tls:
        server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(server_tls)
        client_tls = ssl.create_default_context()
        authority.configure_trust(client_tls)
    async with (
        ScriptedServer(lambda request, peer: peer.answer(200, b"hello"), tls=server_tls) as server,
        proxied() as tunnels,
    ):
        found = credentials(
            f"{'https' if tls else 'http'}://127.0.0.1:{server.port}",
            tls=client_tls,
            proxy=f"http://ann:p%40ss@127.0.0.1:{tunnels.port}",
        )
        transport = Transport(CredentialSource(lambda: found))
        assert await transport.request("GET", "/x") == b"hello"
        assert await transport.request("GET", "/y") == b"hello"
        await transport.close()
        (head,) = tunnels.heads
        assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")
        assert "Proxy-Authorization: Basic YW5uOnBAc3M=\r\n" in head
        assert "secret-token" not in head


async def test_a_proxy_that_refuses_makes_the_server_unreachable() -> None:
    async with proxied(refusal=b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as tunnels:
        found = credentials("http://127.0.0.1:1", proxy=f"http://127.0.0.1:{tunnels.port}")
        transport = Transport(CredentialSource(lambda: found))
        with pytest.raises(Unreachable, match=r"did not open a tunnel to 127.0.0.1:1: HTTP/1.1 407 Proxy Auth"):
            await transport.request("GET", "/x")
        await transport.close()


async def test_a_host_in_no_proxy_is_reached_directly() -> None:
    async with ScriptedServer(lambda request, peer: peer.answer(200, b"hello")) as server:
        found = credentials(
            f"http://127.0.0.1:{server.port}", proxy="http://127.0.0.1:1", no_proxy="example.org,127.0.0.0/8"
        )
        transport = Transport(CredentialSource(lambda: found))
        assert await transport.request("GET", "/x") == b"hello"
        await transport.close()


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("10.0.0.1", "10.0.0.0/8", True),
        ("11.0.0.1", "10.0.0.0/8", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("api.example.org", ".example.org", True),
        ("api.example.org", "example.org", True),
        ("example.org", "*.example.org", True),
        ("badexample.org", "example.org", False),
        ("API.Example.org", "example.ORG", True),
        ("fd00::1", "fd00::/8", True),
        ("anything", "*", True),
        ("anything", "", False),
        ("anything", None, False),
        ("anything", " , x ,anything ", True),
    ],
)
def test_no_proxy_knows_names_subdomains_addresses_and_ranges(host: str, no_proxy: str | None, expected: bool) -> None:
    assert bypasses_proxy(host, no_proxy) is expected


def test_a_socks_proxy_is_refused_with_advice() -> None:
    with pytest.raises(CredentialsError, match="must begin with http:// or https://, this is socks5://"):
        parse_proxy("socks5://127.0.0.1:1080")
