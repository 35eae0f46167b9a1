"""The official client as commands use it: credentials, proxies, retries, and servers that answer badly."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trustme

from kube_policy_scheduler.adapters.kube import errors, lists, official_client
from kube_policy_scheduler.adapters.kube.access import clock_skew
from kube_policy_scheduler.adapters.kube.credentials import CredentialSource
from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.lists import survey
from kube_policy_scheduler.adapters.kube.official_client import OfficialClient
from kube_policy_scheduler.adapters.kube.pages import pages
from kube_policy_scheduler.adapters.kube.resources import PODS
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, credentials, pod, pod_list
from tests.adapters.kube.test_proxy import proxied


def echo(request: Request, peer: Peer) -> None:
    peer.answer(200, request.target.encode())


async def asked(server: ScriptedServer, verb: str = "GET", *, seconds: float = 30.0, **changes: Any) -> bytes:
    async with OfficialClient(server.credentials(**changes)) as client:
        body = b'{"a":1}' if verb != "GET" else b""
        return await client.request(verb, "/api/v1/pods?limit=5", body=body, timeout_seconds=seconds)


async def test_a_request_carries_the_identity_with_all_of_its_groups() -> None:
    groups = (("Authorization", "Bearer t"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    async with ScriptedServer(echo) as server:
        assert await asked(server, headers=groups) == b"/api/v1/pods?limit=5"
        (request,) = server.requests
        assert request.headers["impersonate-group"] == "a, b"
        assert request.headers["authorization"] == "Bearer t"
        assert request.headers["user-agent"] == "kube-policy-scheduler"
        assert request.headers["accept-encoding"] == "gzip"


async def test_a_write_carries_its_body_and_type() -> None:
    async with ScriptedServer(lambda request, peer: peer.answer(201, b"{}")) as server:
        async with OfficialClient(server.credentials()) as client:
            patch = "application/merge-patch+json"
            await client.request("PATCH", "/x", body=b'{"data":{"k":null}}', content_type=patch)
        (request,) = server.requests
        assert (request.verb, request.json) == ("PATCH", {"data": {"k": None}})
        assert request.headers["content-type"] == patch


async def test_answers_may_come_compressed_unless_the_kubeconfig_says_otherwise() -> None:
    def script(request: Request, peer: Peer) -> None:
        wanted = request.headers["accept-encoding"]
        body = gzip.compress(b"hello") if wanted == "gzip" else b"hello"
        peer.answer(200, body, Content_Encoding=wanted)

    async with ScriptedServer(script) as server:
        assert await asked(server) == b"hello"
        assert await asked(server, compression=False) == b"hello"


async def silent(request: Request, peer: Peer) -> None:
    await asyncio.sleep(10)


async def dripping(request: Request, peer: Peer) -> None:
    peer.begin_stream()
    while not peer.transport.is_closing():
        peer.chunk(b" ")
        await asyncio.sleep(0.02)


async def headless(request: Request, peer: Peer) -> None:
    while not peer.transport.is_closing():
        peer.raw(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(0.02)


def cut(request: Request, peer: Peer) -> None:
    peer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    peer.close()


BAD: dict[str, tuple[Callable[[Request, Peer], Any], type[errors.KubeError], str]] = {
    "silent": (silent, errors.AnswerTimeout, "GET /api/v1/pods: no answer within 0.5 s"),
    "dripping": (dripping, errors.AnswerTimeout, "GET /api/v1/pods: no answer within 0.5 s"),
    "headless": (headless, errors.AnswerTimeout, "GET /api/v1/pods: no answer within 0.5 s"),
    "long": (
        lambda _, peer: peer.answer(200, b"x" * 3_000_000), errors.MalformedAnswer, "answer longer than 1 MiB"
    ),
    "bomb": (
        lambda _, peer: peer.answer(200, gzip.compress(bytes(3_000_000)), Content_Encoding="gzip"),
        errors.MalformedAnswer,
        "answer longer than 1 MiB",
    ),
    "gzip": (
        lambda _, peer: peer.answer(200, b"not gzip", Content_Encoding="gzip"),
        errors.MalformedAnswer,
        "GET /api/v1/pods: the answer is not valid gzip",
    ),
    "cut": (cut, errors.ConnectionLost, "GET /api/v1/pods: connection lost before the answer was complete"),
    "hung up": (
        lambda _, peer: peer.close(),
        errors.ConnectionLost,
        "GET /api/v1/pods: connection lost before the answer was complete",
    ),
    "not HTTP": (lambda _, peer: peer.raw(b"SSH-2.0-OpenSSH\r\n\r\n"), errors.MalformedAnswer, "is not valid HTTP"),
    "forbidden": (lambda _, peer: peer.refuse(403, "Forbidden", "ann may not"), errors.Forbidden, "ann may not"),
    "page": (lambda _, peer: peer.answer(502, b"<html>bad"), errors.ServerError, "502 error: <html>bad"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_answer_ends_with_an_error_that_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official_client, "MAX_BODY_BYTES", 1 << 20)
    script, kind, text = BAD[name]
    async with ScriptedServer(script) as server:
        with pytest.raises(errors.KubeError) as raised:
            await asked(server, seconds=0.5 if kind is errors.AnswerTimeout else 30.0)
        assert type(raised.value) is kind
        assert text in str(raised.value)


async def test_no_redirect_is_followed() -> None:
    async with ScriptedServer(echo) as other:
        away = f"http://127.0.0.1:{other.port}/api/v1/pods"
        async with ScriptedServer(lambda _, peer: peer.answer(307, b"", Location=away)) as server:
            for verb in ("GET", "POST"):
                with pytest.raises(errors.ApiError, match=r"^307 error"):
                    await asked(server, verb)
        assert not other.requests


async def test_a_read_is_repeated_as_the_server_asks_and_a_write_never_is() -> None:
    def script(request: Request, peer: Peer) -> None:
        if len(server.sent(request.verb)) < 3:
            peer.refuse(429, "TooManyRequests", "later", Retry_After="0")
        else:
            peer.answer(200, b"done")

    async with ScriptedServer(script) as server:
        assert await asked(server) == b"done"
        assert len(server.sent("GET")) == 3
        with pytest.raises(errors.TooManyRequests):
            await asked(server, "POST")
        assert len(server.sent("POST")) == 1


async def test_a_server_that_always_asks_for_later_is_asked_four_times() -> None:
    async with ScriptedServer(lambda _, peer: peer.answer(503, b"", Retry_After="0")) as server:
        with pytest.raises(errors.ServerError, match="503"):
            await asked(server)
        assert len(server.requests) == 1 + official_client.TRIES


async def test_a_write_is_not_repeated_if_the_connection_ends() -> None:
    async with ScriptedServer(lambda _, peer: peer.close()) as server:
        with pytest.raises(errors.ConnectionLost):
            await asked(server, "POST")
        assert len(server.requests) == 1


async def test_a_token_that_is_rejected_is_renewed_once() -> None:
    tokens = iter(("old", "new", "newer"))

    def script(request: Request, peer: Peer) -> None:
        if request.headers["authorization"] == "Bearer new":
            peer.answer(200, b"known")
        else:
            peer.refuse(401, "Unauthorized")

    async with ScriptedServer(script) as server:

        def load() -> Any:
            where = f"http://127.0.0.1:{server.port}"
            return credentials(where, headers=(("Authorization", f"Bearer {next(tokens)}"),))

        async with OfficialClient(CredentialSource(load)) as client:
            assert await client.request("GET", "/x") == b"known"
        assert len(server.requests) == 2


async def test_what_the_fence_withholds_is_not_sent() -> None:
    async with ScriptedServer(echo) as server, OfficialClient(server.credentials()) as client:
        with pytest.raises(errors.Fenced):
            await client.request("POST", "/x", body=b"{}", fence=Fence(lambda: False))
        assert not server.requests


# --- connections -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "server_name", "trusted", "verified", "error"),
    [
        ("127.0.0.1", None, True, True, ""),
        ("kubernetes.default.svc", "kubernetes.default.svc", True, True, ""),
        ("kubernetes.default.svc", None, True, True, "its certificate is not trusted"),
        ("127.0.0.1", None, False, True, "its certificate is not trusted"),
        ("elsewhere", None, False, False, ""),
    ],
)
async def test_the_server_is_verified_as_the_kubeconfig_says(
    name: str, server_name: str | None, trusted: bool, verified: bool, error: str
) -> None:
    authority = trustme.CA()
    server_tls, client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert(name).configure_cert(server_tls)
    (authority if trusted else trustme.CA()).configure_trust(client_tls)
    if not verified:
        client_tls.check_hostname, client_tls.verify_mode = False, ssl.CERT_NONE
    async with ScriptedServer(echo, tls=server_tls) as server:
        where = f"https://127.0.0.1:{server.port}"
        found = credentials(where, tls=client_tls, tls_server_name=server_name)
        async with OfficialClient(CredentialSource(lambda: found)) as client:
            if not error:
                assert await client.request("GET", "/x") == b"/x"
                return
            with pytest.raises(errors.Unreachable, match=f"cannot reach {where}: {error}.* in a test"):
                await client.request("GET", "/x")


async def test_a_client_certificate_is_presented() -> None:
    authority, clients = trustme.CA(), trustme.CA()
    server_tls, client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server_tls)
    server_tls.verify_mode = ssl.CERT_REQUIRED
    clients.configure_trust(server_tls)
    authority.configure_trust(client_tls)
    clients.issue_cert("ann").configure_cert(client_tls)
    async with ScriptedServer(echo, tls=server_tls) as server:
        found = credentials(f"https://127.0.0.1:{server.port}", tls=client_tls)
        async with OfficialClient(CredentialSource(lambda: found)) as client:
            assert await client.request("GET", "/x") == b"/x"


async def test_a_tunnel_is_asked_for_with_the_proxys_own_credentials() -> None:
    authority = trustme.CA()
    server_tls, client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server_tls)
    authority.configure_trust(client_tls)
    async with ScriptedServer(echo, tls=server_tls) as server, proxied() as tunnels:
        proxy = f"http://ann:p%40ss@127.0.0.1:{tunnels.port}"
        found = credentials(f"https://127.0.0.1:{server.port}", tls=client_tls, proxy=proxy)
        async with OfficialClient(CredentialSource(lambda: found)) as client:
            assert await client.request("GET", "/x") == b"/x"
        (head,) = tunnels.heads
        assert "Proxy-Authorization: Basic YW5uOnBAc3M=\r\n" in head
        assert "secret-token" not in head


async def test_a_proxy_that_refuses_makes_the_server_unreachable() -> None:
    async with proxied(refusal=b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as tunnels:
        proxy = f"http://ann:secret@127.0.0.1:{tunnels.port}"
        found = credentials("https://127.0.0.1:1", tls=ssl.create_default_context(), proxy=proxy)
        async with OfficialClient(CredentialSource(lambda: found)) as client:
            with pytest.raises(errors.Unreachable) as raised:
                await client.request("GET", "/x")
        assert str(raised.value) == (
            f"cannot reach https://127.0.0.1:1: proxy 127.0.0.1:{tunnels.port}:"
            " tunnel connection failed: 407 proxy authentication required"
        )


async def test_a_proxy_that_is_not_there_is_named() -> None:
    proxy = "http://ann:secret@127.0.0.1:1"
    found = credentials("https://127.0.0.1:1", tls=ssl.create_default_context(), proxy=proxy)
    async with OfficialClient(CredentialSource(lambda: found)) as client:
        with pytest.raises(errors.Unreachable, match=r"proxy 127.0.0.1:1: connection refused$"):
            await client.request("GET", "/x")


async def test_a_server_that_does_not_take_the_connection_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official_client, "CONNECT_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as stack:
        for _ in range(3):  # more than wait to be accepted
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(full.getsockname())
        server = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with OfficialClient(CredentialSource(lambda: credentials(server))) as client:
            with pytest.raises(errors.Unreachable, match=r"no connection within 0.2 s$"):
                await client.request("GET", "/x")


async def test_a_host_in_no_proxy_is_reached_directly() -> None:
    async with ScriptedServer(echo) as server:
        assert await asked(server, proxy="http://127.0.0.1:1", no_proxy="example.org,127.0.0.0/8")


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("http://127.0.0.1:1", "connection refused"),
        ("https://no-such-host.invalid:6443", "cannot resolve its name: "),
    ],
)
async def test_an_unreachable_server_is_named_with_the_reason(server: str, reason: str) -> None:
    tls = ssl.create_default_context() if server.startswith("https") else None
    async with OfficialClient(CredentialSource(lambda: credentials(server, tls=tls))) as client:
        with pytest.raises(errors.Unreachable, match=f"^cannot reach {server}: {reason}"):
            await client.request("GET", "/x")


async def test_a_socks_proxy_is_refused_with_advice() -> None:
    found = credentials("http://127.0.0.1:1", proxy="socks5://127.0.0.1:1080")
    async with OfficialClient(CredentialSource(lambda: found)) as client:
        with pytest.raises(errors.CredentialsError, match="put an HTTP proxy in front"):
            await client.request("GET", "/x")


# --- lists -----------------------------------------------------------------------------------------------


async def test_a_list_is_read_page_by_page() -> None:
    def script(request: Request, peer: Peer) -> None:
        at = int(request.query.get("continue", "0"))
        peer.answer(200, pod_list(pod(f"p{at}"), continue_=str(at + 1) if at < 3 else ""))

    async with ScriptedServer(script) as server, OfficialClient(server.credentials()) as client:
        found = [
            one.metadata.name async for page in pages(client, PODS, ObjectDecoder(PODS.type)) for one in page.objects
        ]
    assert found == ["p0", "p1", "p2", "p3"]


@pytest.mark.parametrize("objects", [0, 150], ids=["of empty pages", "of pods"])
async def test_a_list_that_does_not_end_is_given_up(
    objects: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(lists, "MOST_OBJECTS", 1000)

    def script(request: Request, peer: Peer) -> None:
        peer.answer(200, pod_list(*(pod(f"p{at}") for at in range(objects)), continue_="more"))

    async with ScriptedServer(script) as server:
        config = tmp_path / "kubeconfig"
        config.write_text(KUBECONFIG.format(port=server.port), encoding="utf-8")
        with pytest.raises(errors.KubeError, match=r"the list of nodes does not end: more than 1,000 objects"):
            await survey(kubeconfig=str(config), context=None)
        assert len(server.requests) < 20


KUBECONFIG = """
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: c, context: {{cluster: c}}}}]
current-context: c
"""


@pytest.mark.parametrize(
    ("date", "found"),
    [
        ("Thu, 01 Jan 2099 00:00:00 GMT", 1e9),
        (None, "its answers contain no time"),
        ("yesterday", "its answers contain an invalid time"),
    ],
)
async def test_the_time_of_the_server_is_told_by_its_answers(date: str | None, found: Any) -> None:
    headers = {"Date": date} if date is not None else {}
    server = ScriptedServer(lambda _, peer: peer.answer(200, b"{}", **headers))
    async with server, OfficialClient(server.credentials()) as client:
        skew = await clock_skew(client)
    assert skew > found if isinstance(skew, float) else skew == found


THREADS_THAT_ASK = """
import asyncio, threading
from kube_policy_scheduler.adapters.kube.credentials import CredentialSource
from kube_policy_scheduler.adapters.kube.identity import TlsFiles, credentials_of
from kube_policy_scheduler.adapters.kube.official_client import OfficialClient

def ask():
    found = credentials_of("http://127.0.0.1:1", source="test", headers=(), tls=TlsFiles(), files=())
    client = OfficialClient(CredentialSource(lambda: found))
    try:
        asyncio.run(client.request("GET", "/x"))
    except Exception as error:
        ended.append(type(error).__name__)

ended = []
threads = [threading.Thread(target=ask) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(*ended)
"""


@pytest.mark.long
def test_threads_that_need_the_client_first_at_a_time_all_get_it() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS_THAT_ASK], capture_output=True, text=True, timeout=60)

    assert done.stdout.split() == ["Unreachable"] * 4, done.stderr
