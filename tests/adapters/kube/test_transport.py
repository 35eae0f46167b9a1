"""Requests to one API server: which are retried, and the error for each failure."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import trustme
from aiohttp import web

from kube_policy_scheduler.adapters.kube import errors, pool
from kube_policy_scheduler.adapters.kube.credentials import CredentialSource
from kube_policy_scheduler.adapters.kube.throttle import RequestRate, retry_after_seconds
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, credentials, until
from tests.patience import PATIENCE_SECONDS

PATH = "/api/v1/namespaces/default/pods/web"


def echo(request: Request, peer: Peer) -> None:
    peer.answer(200, request.target.encode())


async def test_requests_share_kept_connections_and_never_exceed_the_limit() -> None:
    in_flight = most = 0

    async def script(request: Request, peer: Peer) -> None:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.005)
        in_flight -= 1
        peer.answer(200, request.target.encode())

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials(), max_connections=4)
        answers = await asyncio.gather(*(transport.request("GET", f"/{n}") for n in range(40)))
        assert answers == [f"/{n}".encode() for n in range(40)]
        assert most == 4
        assert server.connections == 4
        await transport.close()


async def test_a_request_carries_the_token_and_its_body() -> None:
    async with ScriptedServer(lambda request, peer: peer.answer(201)) as server:
        transport = Transport(server.credentials(), user_agent="a-test/1")
        await transport.request("POST", PATH + "/binding", body=b'{"a":1}')
        request = server.requests[0]
        assert (request.verb, request.path, request.body) == ("POST", PATH + "/binding", b'{"a":1}')
        assert request.headers["authorization"] == "Bearer secret-token"
        assert request.headers["user-agent"] == "a-test/1"
        assert request.headers["content-type"] == "application/json"
        await transport.close()


@pytest.mark.parametrize("compression", [True, False])
async def test_answers_to_a_get_may_come_compressed_unless_the_kubeconfig_forbids_it(compression: bool) -> None:
    async with ScriptedServer(echo) as server:
        transport = Transport(server.credentials(compression=compression))
        for verb in ("GET", "PUT"):
            await transport.request(verb, PATH)
        assert [request.headers.get("accept-encoding") for request in server.requests] == [
            "gzip" if compression else None,
            None,
        ]
        await transport.close()


async def test_a_server_address_with_a_path_puts_it_before_every_path() -> None:
    async with ScriptedServer(echo) as server:
        source = CredentialSource(lambda: credentials(f"http://127.0.0.1:{server.port}/k8s/clusters/c-1/"))
        transport = Transport(source)
        assert await transport.request("GET", "/api/v1/pods?limit=1") == b"/k8s/clusters/c-1/api/v1/pods?limit=1"
        await transport.close()


STATUSES = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.ApiError,
    409: errors.Conflict,
    410: errors.Gone,
    415: errors.Invalid,
    422: errors.Invalid,
    429: errors.TooManyRequests,
    500: errors.ServerError,
    503: errors.ServerError,
    302: errors.ApiError,
}


@pytest.mark.parametrize("status", list(STATUSES))
async def test_every_refusal_has_its_error_with_the_servers_reason(status: int) -> None:
    async with ScriptedServer(lambda request, peer: peer.refuse(status, "SomeReason", "some message")) as server:
        transport = Transport(server.credentials())
        with pytest.raises(errors.ApiError) as raised:
            await transport.request("POST", PATH)
        assert type(raised.value) is STATUSES[status]
        assert str(raised.value) == f"{status} SomeReason: some message"
        await transport.close()


async def test_a_page_of_a_proxy_in_place_of_a_status_is_quoted_in_short() -> None:
    page = b"<html>\n<h1>502 Bad Gateway</h1>" + b"\xff<p>blah</p>" * 10_000
    async with ScriptedServer(lambda request, peer: peer.answer(502, page)) as server:
        transport = Transport(server.credentials())
        with pytest.raises(errors.ServerError) as raised:
            await transport.request("GET", PATH)
        assert "Bad Gateway" in str(raised.value)
        assert len(str(raised.value)) < 500
        await transport.close()


async def test_a_get_on_a_connection_that_was_closed_meanwhile_is_repeated() -> None:
    def script(request: Request, peer: Peer) -> None:
        if peer.number == 1 and len(server.requests) > 1:
            peer.abort()  # without a byte: it was closing when the request came
        else:
            echo(request, peer)

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials())
        await transport.request("GET", "/one")
        assert await transport.request("GET", "/two") == b"/two"
        assert server.connections == 2
        await transport.close()


async def test_a_post_is_never_repeated_its_outcome_is_unknown() -> None:
    def script(request: Request, peer: Peer) -> None:
        if request.verb == "POST":
            peer.abort()
        else:
            echo(request, peer)

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials())
        await transport.request("GET", "/one")
        with pytest.raises(errors.ConnectionLost, match=r"POST /api/v1/namespaces/default/pods/web: connection lost"):
            await transport.request("POST", PATH + "?dryRun=All")
        assert len(server.sent("POST")) == 1
        await transport.close()


async def test_an_answer_that_does_not_come_is_a_timeout_of_unknown_outcome() -> None:
    async with ScriptedServer(lambda request, peer: None) as server:
        transport = Transport(server.credentials())
        with pytest.raises(errors.AnswerTimeout) as raised:
            await transport.request("POST", PATH, timeout_seconds=0.05)
        assert isinstance(raised.value, errors.UnknownOutcome)
        await transport.close()


async def test_a_server_that_is_down_is_reported_once_and_once_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kube_policy_scheduler")
    async with ScriptedServer(echo) as server:
        transport = Transport(server.credentials())
        await server.stop_listening()
        for _ in range(5):
            with pytest.raises(errors.Unreachable, match=r"cannot reach http://127.0.0.1.*connect call failed|refused"):
                await transport.request("GET", "/x")
        await server.listen()
        await transport.request("GET", "/x")
        await transport.close()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "retrying with backoff" in caplog.messages[0]
    assert "is reachable again" in caplog.messages[1]
    assert "secret-token" not in caplog.text


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    transport = Transport(CredentialSource(lambda: credentials("http://no-such-host.invalid:6443")))
    with pytest.raises(errors.Unreachable, match=r"no-such-host.invalid:6443: cannot resolve its name"):
        await transport.request("GET", "/x")
    await transport.close()


def too_busy(peer: Peer, *, retry_after: str) -> None:
    """Refuse as Priority and Fairness does: plain text, for any Accept header."""
    peer.answer(429, b"Too many requests, please try again later.\n", retry_after=retry_after)


async def test_an_overloaded_server_delays_only_requests_of_that_kind() -> None:
    times: list[tuple[str, float]] = []

    def script(request: Request, peer: Peer) -> None:
        times.append((request.path, asyncio.get_running_loop().time()))
        if len(times) == 1:
            too_busy(peer, retry_after="1")
        else:
            peer.answer(200)

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials())
        with pytest.raises(errors.TooManyRequests) as raised:
            await transport.request("POST", "/event", resource="events")
        assert raised.value.retry_after_seconds == 1.0
        await asyncio.gather(
            *(transport.request("POST", "/event", resource="events") for _ in range(5)),
            transport.request("POST", "/binding", resource="pods/binding"),
        )
        await transport.close()
    (_, refused_at), (others, bound_at), *events = times
    assert others == "/binding"
    assert bound_at - refused_at < 0.9
    assert min(at for _, at in events) - refused_at >= 1.0


async def test_a_429_about_one_object_holds_no_other() -> None:
    def script(request: Request, peer: Peer) -> None:
        if request.path == "/bad":
            peer.refuse(429, "TooManyRequests", 'admission webhook "w.x" denied the request: no', retry_after="60")
        else:
            peer.answer(200)

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials())
        with pytest.raises(errors.TooManyRequests) as raised:
            await transport.request("PATCH", "/bad", resource="pods/status")
        assert raised.value.retry_after_seconds == 60.0
        async with asyncio.timeout(PATIENCE_SECONDS):
            await transport.request("PATCH", "/good", resource="pods/status")
        await transport.close()


async def test_requests_of_all_kinds_keep_a_rate_after_a_burst_and_a_lease_does_not_wait() -> None:
    async with ScriptedServer(echo) as server:
        transport = Transport(server.credentials(), rate=RequestRate(qps=50.0, burst=3))
        loop = asyncio.get_running_loop()
        began = loop.time()
        sent = [loop.create_task(transport.request(verb, PATH)) for verb in ("GET", "POST", "PATCH") * 4]
        await transport.dedicated().request("PUT", "/lease")
        assert sum(request.verb != "PUT" for request in server.requests) <= 3 + (loop.time() - began) * 50.0
        await asyncio.gather(*sent)
        assert len(server.requests) == 13
        assert loop.time() - began >= (12 - 3) / 50.0
        await transport.close()


async def test_what_must_not_wait_is_held_by_no_429() -> None:
    answers = iter([True])

    def script(_: Request, peer: Peer) -> None:
        too_busy(peer, retry_after="60") if next(answers, False) else peer.answer(200)

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials())
        lease = transport.dedicated()
        with pytest.raises(errors.TooManyRequests):
            await lease.request("PUT", "/lease", resource="leases")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await lease.request("PUT", "/lease", resource="leases")
        await transport.close()


@pytest.mark.parametrize("header", ["\u00b2", "\u0662", "soon", "-1", "1.5", "", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_retry_after_that_is_not_a_number_of_seconds_is_none(header: str) -> None:
    assert retry_after_seconds(header) is None


@pytest.mark.parametrize(("header", "seconds"), [("1", 1.0), (" 05 ", 5.0), ("61", 60.0), ("9" * 5000, 60.0)])
def test_a_retry_after_is_at_most_a_minute(header: str, seconds: float) -> None:
    assert retry_after_seconds(header) == seconds


async def test_every_request_is_observed_with_its_code_or_the_name_of_its_failure() -> None:
    seen: list[tuple[str, str, str]] = []

    def script(request: Request, peer: Peer) -> None:
        match request.path:
            case "/ok":
                peer.answer(201)
            case "/conflict":
                peer.refuse(409)
            case _:
                peer.abort()

    def observe(verb: str, resource: str, code: str, seconds: float) -> None:
        assert seconds >= 0.0
        seen.append((verb, resource, code))

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials(), observe=observe)
        await transport.request("POST", "/ok", resource="pods/binding")
        with pytest.raises(errors.Conflict):
            await transport.request("POST", "/conflict", resource="pods/binding")
        with pytest.raises(errors.ConnectionLost):
            await transport.request("POST", "/lost", resource="events")
        await transport.close()
    assert seen == [
        ("POST", "pods/binding", "201"),
        ("POST", "pods/binding", "409"),
        ("POST", "events", "ConnectionLost"),
    ]


async def test_a_waiter_for_a_new_connection_takes_one_that_is_returned_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_first_in, may_answer = asyncio.Event(), asyncio.Event()
    dials = 0

    async def script(request: Request, peer: Peer) -> None:
        if request.path == "/held":
            is_first_in.set()
            await may_answer.wait()
        peer.answer(200)

    async def endless(*_: object) -> NoReturn:
        nonlocal dials
        dials += 1
        await asyncio.Event().wait()
        raise AssertionError

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials(), max_connections=40)
        await transport.request("GET", "/x")
        monkeypatch.setattr(pool, "_dial", endless)
        held = asyncio.create_task(transport.request("GET", "/held"))
        await is_first_in.wait()
        others = [asyncio.create_task(transport.request("GET", "/x")) for _ in range(20)]
        await asyncio.sleep(0)
        may_answer.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(held, *others)
        assert server.connections == 1
        assert dials == pool.DIALS  # a burst is not answered with a handshake for each request
        await transport.close()


async def test_waiters_fail_at_once_if_the_server_is_unreachable() -> None:
    async with ScriptedServer(echo) as server:
        port = server.port
    transport = Transport(CredentialSource(lambda: credentials(f"http://127.0.0.1:{port}")), max_connections=40)
    answers = await asyncio.gather(*(transport.request("GET", "/x") for _ in range(20)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [errors.Unreachable] * 20
    assert len(set(map(id, answers))) == 20
    await transport.close()


async def test_a_connection_that_was_dialled_ahead_is_the_one_that_the_first_request_takes() -> None:
    async with ScriptedServer(echo) as server:
        transport = Transport(server.credentials())
        await transport.request("GET", "/x")
        renewing = transport.dedicated()
        renewing.dial_ahead()
        renewing.dial_ahead()
        await until(lambda: server.connections == 2)
        await renewing.request("GET", "/y")
        renewing.dial_ahead()
        await renewing.request("PUT", "/y", body=b"{}")
        assert server.connections == 2
        await transport.close()


async def test_cancelled_waiters_do_not_use_up_the_pool() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await asyncio.sleep(0.02)
        peer.answer(200)

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials(), max_connections=2)
        for _ in range(5):
            tasks = [asyncio.create_task(transport.request("GET", "/x")) for _ in range(10)]
            await asyncio.sleep(0.01)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(transport.request("GET", "/x") for _ in range(4)))
        await transport.close()


# --- 401 ------------------------------------------------------------------------------------------------


async def test_after_401_credentials_are_loaded_again_and_the_request_repeated() -> None:
    tokens = iter(["old", "new", "newest"])

    def load() -> object:
        return credentials(f"http://127.0.0.1:{server.port}", headers=(("Authorization", f"Bearer {next(tokens)}"),))

    def script(request: Request, peer: Peer) -> None:
        if request.headers["authorization"] == "Bearer new":
            peer.answer(200, b"welcome")
        else:
            peer.refuse(401, "Unauthorized")

    async with ScriptedServer(script) as server:
        transport = Transport(CredentialSource(load))  # type: ignore[arg-type]
        answers = await asyncio.gather(*(transport.request("GET", "/x") for _ in range(20)))
        assert answers == [b"welcome"] * 20
        assert next(tokens) == "newest"  # twenty refusals, one renewal
        await transport.close()


async def test_a_revoked_token_does_not_run_the_loader_for_every_request() -> None:
    loads = 0

    def load() -> object:
        nonlocal loads
        loads += 1
        return credentials(f"http://127.0.0.1:{server.port}", headers=(("Authorization", "Bearer revoked"),))

    async with ScriptedServer(lambda request, peer: peer.refuse(401, "Unauthorized")) as server:
        transport = Transport(CredentialSource(load))  # type: ignore[arg-type]
        for _ in range(10):
            with pytest.raises(errors.Unauthorized):
                await transport.request("GET", "/x")
        assert loads == 2
        await transport.close()


# --- against a common server ----------------------------------------------------------------------------


async def test_it_gets_on_with_an_aiohttp_server() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if request.path == "/chunked":
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            for _ in range(100):
                await response.write(b"x" * 1000)
            return response
        return web.Response(status=201, body=request.method.encode() + b" " + body)

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    transport = Transport(CredentialSource(lambda: credentials(f"http://127.0.0.1:{runner.addresses[0][1]}")))
    assert await transport.request("POST", "/x", body=b"body" * 50_000) == b"POST " + b"body" * 50_000
    assert await transport.request("PATCH", "/x", body=b"{}") == b"PATCH {}"
    assert await transport.request("GET", "/chunked") == b"x" * 100_000
    await transport.close()
    await runner.cleanup()


# --- TLS ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, *names: str, client_authority: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    if client_authority is not None:
        client_authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


Kubeconfig = Callable[..., str]


@pytest.fixture
def kubeconfig(tmp_path: Path, authority: trustme.CA) -> Kubeconfig:
    """Write a kubeconfig whose cluster and user have the given extra lines; return its path."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def write(server: str, *, cluster: str = "certificate-authority: ca.pem", user: str = "token: secret-token") -> str:
        path = tmp_path / "kubeconfig"
        path.write_text(
            f"""\
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {{cluster: c, user: u}}}}]
clusters:
- name: c
  cluster:
    server: {server}
    {cluster}
users:
- name: u
  user:
    {user}
"""
        )
        return str(path)

    return write


def source_from(path: str) -> CredentialSource:
    from kube_policy_scheduler.adapters.kube.credentials import find_credentials

    return find_credentials(kubeconfig=path, context=None, environ={})


async def test_tls_with_the_clusters_authority(authority: trustme.CA, kubeconfig: Kubeconfig) -> None:
    async with ScriptedServer(echo, tls=server_context(authority, "127.0.0.1")) as server:
        transport = Transport(source_from(kubeconfig(f"https://127.0.0.1:{server.port}")))
        assert await transport.request("GET", "/x") == b"/x"
        assert server.requests[0].headers["authorization"] == "Bearer secret-token"
        await transport.close()


async def test_an_untrusted_certificate_is_refused_with_advice(kubeconfig: Kubeconfig) -> None:
    async with ScriptedServer(echo, tls=server_context(trustme.CA(), "127.0.0.1")) as server:
        transport = Transport(source_from(kubeconfig(f"https://127.0.0.1:{server.port}")))
        with pytest.raises(errors.Unreachable, match=r"certificate is not trusted \(.+\); check .*context \"test\""):
            await transport.request("GET", "/x")
        assert not server.requests
        await transport.close()


async def test_an_untrusted_certificate_is_accepted_if_verification_is_off(kubeconfig: Kubeconfig) -> None:
    async with ScriptedServer(echo, tls=server_context(trustme.CA(), "other.example")) as server:
        path = kubeconfig(f"https://127.0.0.1:{server.port}", cluster="insecure-skip-tls-verify: true")
        transport = Transport(source_from(path))
        assert await transport.request("GET", "/x") == b"/x"
        await transport.close()


async def test_the_tls_server_name_replaces_the_address(authority: trustme.CA, kubeconfig: Kubeconfig) -> None:
    async with ScriptedServer(echo, tls=server_context(authority, "kubernetes.default.svc")) as server:
        address = f"https://127.0.0.1:{server.port}"
        plain = Transport(source_from(kubeconfig(address)))
        with pytest.raises(errors.Unreachable, match="certificate is not trusted"):
            await plain.request("GET", "/x")
        named = "certificate-authority: ca.pem\n    tls-server-name: kubernetes.default.svc"
        transport = Transport(source_from(kubeconfig(address, cluster=named)))
        assert await transport.request("GET", "/x") == b"/x"
        await plain.close()
        await transport.close()


async def test_a_client_certificate_is_presented(authority: trustme.CA, kubeconfig: Kubeconfig, tmp_path: Path) -> None:
    client_authority = trustme.CA()
    identity = client_authority.issue_cert("user@example.org")
    identity.private_key_pem.write_to_path(tmp_path / "client.key")
    (tmp_path / "client.pem").write_bytes(b"".join(blob.bytes() for blob in identity.cert_chain_pems))
    tls = server_context(authority, "127.0.0.1", client_authority=client_authority)
    async with ScriptedServer(echo, tls=tls) as server:
        user = "client-certificate: client.pem\n    client-key: client.key"
        path = kubeconfig(f"https://127.0.0.1:{server.port}", user=user)
        transport = Transport(source_from(path))
        assert await transport.request("GET", "/x") == b"/x"
        assert "authorization" not in server.requests[0].headers
        await transport.close()


async def test_https_to_a_plain_server_is_a_tls_error(kubeconfig: Kubeconfig) -> None:
    def script(request: Request, peer: Peer) -> None: ...

    async with ScriptedServer(script) as server:
        transport = Transport(source_from(kubeconfig(f"https://127.0.0.1:{server.port}")), connect_timeout_seconds=1)
        with pytest.raises(errors.Unreachable, match=r"cannot reach https://127.0.0.1"):
            await transport.request("GET", "/x")
        await transport.close()


async def test_a_replaced_authority_replaces_connections_and_a_new_token_does_not(
    authority: trustme.CA, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("first\n")
    async with ScriptedServer(echo, tls=server_context(authority, "127.0.0.1")) as server:
        source = source_from(kubeconfig(f"https://127.0.0.1:{server.port}", user="tokenFile: token"))
        transport = Transport(source)
        await transport.request("GET", "/1")
        (tmp_path / "token").write_text("second token\n".replace(" ", "-"))
        await source.look()
        await transport.request("GET", "/2")
        assert [request.headers["authorization"] for request in server.requests] == [
            "Bearer first",
            "Bearer second-token",
        ]
        assert server.connections == 1
        bundle = trustme.CA().cert_pem.bytes() + authority.cert_pem.bytes()
        (tmp_path / "ca.pem").write_bytes(bundle)
        await source.look()
        await transport.request("GET", "/3")
        assert server.connections == 2
        await transport.close()
