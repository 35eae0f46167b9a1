"""HTTP proxies: whether one applies to a host, and the CONNECT tunnel through it. Knows no request but CONNECT."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
from urllib.parse import unquote, urlsplit

import msgspec

from kube_policy_scheduler.adapters.kube.errors import CredentialsError, Unreachable

HEAD_BYTES = 16 << 10  # more than any proxy's answer to CONNECT


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy; `authorization` is the value of Proxy-Authorization."""

    host: str
    port: int
    tls: bool
    authorization: str | None

    @property
    def url(self) -> str:
        """Its URL without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def __repr__(self) -> str:  # without the password
        return f"proxy {self.host}:{self.port}"


def parse_proxy(url: str, *, name: str = "proxy-url") -> Proxy:
    """Read `http://user:password@host:port`. name: what an operator calls it.

    Raises:
        CredentialsError: it is none, or of another scheme (SOCKS); the text does not quote it, as it may have a
            password.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise CredentialsError(f"{name} is no URL; expected http://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CredentialsError(
            f"{name} must begin with http:// or https://, this is {parts.scheme}://; "
            "put an HTTP proxy in front of a SOCKS proxy"
        )
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    tls = parts.scheme == "https"
    return Proxy(parts.hostname, port or (443 if tls else 80), tls, authorization)


def bypasses_proxy(host: str, no_proxy: str | None) -> bool:
    """Whether host is in a NO_PROXY list: names, their subdomains, addresses, CIDR ranges, or "*"."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for entry in (part.strip().lower() for part in (no_proxy or "").split(",")):
        if not entry:
            continue
        if entry == "*":
            return True
        name = entry.lstrip(".*")
        if host.lower() == name or host.lower().endswith("." + name):
            return True
        if address is not None:
            try:
                if address in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                continue
    return False


class _Head(asyncio.Protocol):
    """Collects the head of the answer to CONNECT."""

    def __init__(self) -> None:
        self.head: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self.head.done() and (b"\r\n\r\n" in self._received or len(self._received) > HEAD_BYTES):
            self.head.set_result(self._received)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.head.done():
            self.head.set_result(self._received)


async def open_tunnel(proxy: Proxy, *, host: str, port: int) -> asyncio.Transport:
    """Connect to proxy and ask it for host:port. Raises Unreachable (refused by the proxy) or OSError."""
    loop = asyncio.get_running_loop()
    tls = ssl.create_default_context() if proxy.tls else None
    transport, protocol = await loop.create_connection(_Head, proxy.host, proxy.port, ssl=tls)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    try:
        transport.write("\r\n".join([*lines, "", ""]).encode("ascii"))
        head = await protocol.head
        status = head.split(b"\r\n", 1)[0].decode("latin-1")
        if status.split(" ")[1:2] != ["200"]:
            raise Unreachable(f"{proxy} did not open a tunnel to {target}: {status[:80] or 'it hung up'}")
    except BaseException:
        transport.abort()
        raise
    return transport
