"""A webhook's certificate in a Secret: made once for all replicas, trusted before it is served, renewed in time."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509

from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.errors import NotFound
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.kube.webhook_certificate import WebhookCertificate, WebhookNames
from kube_policy_scheduler.adapters.tls.issued_certificate import (
    LIFETIME,
    RENEW_BEFORE,
    IssuedCertificate,
    is_good,
    issue,
)
from kube_policy_scheduler.embedded.cluster import EmbeddedCluster

NOW = datetime.now(UTC).replace(microsecond=0)  # TLS libraries have no other clock
NAMES = WebhookNames("home", "webhook-tls", "webhook", "webhook")
SECRET = "/api/v1/namespaces/home/secrets/webhook-tls"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
Json = dict[str, Any]


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now


class Stage:
    """An API server with an empty Secret and a configuration without a trusted authority."""

    def __init__(self, transport: Transport, folder: Path) -> None:
        self.transport = transport
        self.folder = folder
        self.clock = Clock()

    def replica(self, name: str = "a") -> WebhookCertificate:
        return WebhookCertificate(self.transport, NAMES, file=self.folder / f"{name}.pem", clock=self.clock)

    def served(self, name: str = "a") -> bytes:
        return (self.folder / f"{name}.pem").read_bytes()

    async def call(self, verb: str, path: str, body: Json | None = None) -> Json:
        content = msgspec.json.encode(body) if body is not None else b""
        answer = await self.transport.request(verb, path, body=content)
        return msgspec.json.decode(answer, type=dict[str, Any])

    async def secret(self) -> dict[str, bytes]:
        found = await self.call("GET", SECRET)
        return {name: base64.b64decode(text) for name, text in (found.get("data") or {}).items()}

    async def trusted(self) -> list[bytes]:
        found = await self.call("GET", f"{CONFIGURATIONS}/webhook")
        return [base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in found["webhooks"]]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with contextlib.AsyncExitStack() as stack:
        embedded = await stack.enter_async_context(EmbeddedCluster(kubelets=None))
        kubeconfig = tmp_path / "kubeconfig"
        embedded.kubeconfig(kubeconfig)
        transport = Transport(find_credentials(kubeconfig=str(kubeconfig), context=None))
        stack.push_async_callback(transport.close)
        made = Stage(transport, tmp_path)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "home"}}
        await made.call("POST", "/api/v1/namespaces", namespace)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAMES.secret, "namespace": "home"}}
        await made.call("POST", "/api/v1/namespaces/home/secrets", secret)
        webhook = {
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"service": {"name": "webhook", "namespace": "home", "path": "/validate"}},
        }
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "webhook"},
            "webhooks": [{"name": f"{name}.example.com", **webhook} for name in ("one", "two")],
        }
        await made.call("POST", CONFIGURATIONS, configuration)
        yield made


def authorities(pem: bytes) -> int:
    return len(x509.load_pem_x509_certificates(pem))


async def test_it_is_made_trusted_and_served(stage: Stage) -> None:
    await stage.replica().ensure()
    secret = await stage.secret()
    assert stage.served() == secret["tls.crt"] + secret["tls.key"]
    assert await stage.trusted() == [secret["ca.crt"]] * 2
    assert (stage.folder / "a.pem").stat().st_mode & 0o077 == 0
    assert "service" in (await stage.call("GET", f"{CONFIGURATIONS}/webhook"))["webhooks"][0]["clientConfig"]
    context = ssl.create_default_context()
    context.load_verify_locations(cadata=secret["ca.crt"].decode())
    assert handshake(context, stage.folder / "a.pem", host="webhook.home.svc")


async def test_replicas_that_start_together_serve_the_same(stage: Stage) -> None:
    names = ("a", "b", "c")
    await asyncio.gather(*(stage.replica(name).ensure() for name in names))
    assert len({stage.served(name) for name in names}) == 1
    assert await stage.trusted() == [(await stage.secret())["ca.crt"]] * 2


async def test_nothing_is_written_while_the_certificate_is_valid(stage: Stage) -> None:
    certificate = stage.replica()
    await certificate.ensure()
    before = (await stage.call("GET", SECRET))["metadata"]["resourceVersion"]
    stage.clock.now += LIFETIME - RENEW_BEFORE - timedelta(days=1)
    await certificate.ensure()
    assert (await stage.call("GET", SECRET))["metadata"]["resourceVersion"] == before


async def test_it_is_renewed_in_time_and_the_one_before_stays_trusted_until_it_ends(stage: Stage) -> None:
    fast, slow = stage.replica("fast"), stage.replica("slow")
    await fast.ensure()
    await slow.ensure()
    stage.clock.now += LIFETIME - RENEW_BEFORE + timedelta(days=1)
    await fast.ensure()
    assert stage.served("fast") != stage.served("slow")
    (trusted, _) = await stage.trusted()
    assert authorities(trusted) == 2, "the slow one still serves by the old one"
    await slow.ensure()
    assert stage.served("slow") == stage.served("fast")
    stage.clock.now += LIFETIME - RENEW_BEFORE + timedelta(days=1)
    await fast.ensure()
    assert authorities((await stage.trusted())[0]) == 2, "the first one has ended"


async def test_trust_that_was_taken_away_comes_back(stage: Stage) -> None:
    certificate = stage.replica()
    await certificate.ensure()
    found = await stage.call("GET", f"{CONFIGURATIONS}/webhook")
    for webhook in found["webhooks"]:
        del webhook["clientConfig"]["caBundle"]  # as when the manifest is replaced
    await stage.call("PUT", f"{CONFIGURATIONS}/webhook", found)
    await certificate.ensure()
    assert await stage.trusted() == [(await stage.secret())["ca.crt"]] * 2


@pytest.mark.parametrize("data", [{"tls.crt": "bm8="}, {"ca.crt": "bm8=", "tls.key": ""}, {"other": "a2VwdA=="}])
async def test_a_secret_with_something_else_in_it_is_filled(stage: Stage, data: Json) -> None:
    found = await stage.call("GET", SECRET)
    await stage.call("PUT", SECRET, {**found, "data": data})
    await stage.replica().ensure()
    secret = await stage.secret()
    assert is_good(IssuedCertificate(secret["tls.crt"], secret["tls.key"], secret["ca.crt"]), NAMES.hosts, now=NOW)
    assert "other" not in data or secret["other"] == b"kept"


async def test_a_missing_secret_is_reported(stage: Stage) -> None:
    await stage.call("DELETE", SECRET)
    with pytest.raises(NotFound, match="webhook-tls"):
        await stage.replica().ensure()
    assert not (stage.folder / "a.pem").exists()


class TestIssued:
    """What is signed, and what counts as good."""

    issued = issue(NAMES.hosts, now=NOW)

    def test_is_good_until_it_is_time_to_renew(self) -> None:
        assert is_good(self.issued, NAMES.hosts, now=NOW)
        assert is_good(self.issued, NAMES.hosts, now=NOW + LIFETIME - RENEW_BEFORE - timedelta(seconds=1))
        assert not is_good(self.issued, NAMES.hosts, now=NOW + LIFETIME - RENEW_BEFORE)
        assert not is_good(self.issued, NAMES.hosts, now=NOW - timedelta(hours=1))

    def test_is_not_good_for_other_names_other_keys_or_other_authorities(self) -> None:
        other = issue(NAMES.hosts, now=NOW)
        assert not is_good(self.issued, ["webhook.elsewhere.svc"], now=NOW)
        for wrong in (
            IssuedCertificate(self.issued.certificate, other.key, self.issued.authorities),
            IssuedCertificate(self.issued.certificate, self.issued.key, other.authorities),
            IssuedCertificate(b"", b"", b""),
            IssuedCertificate(self.issued.certificate, b"-----BEGIN PRIVATE KEY-----\n", self.issued.authorities),
        ):
            assert not is_good(wrong, NAMES.hosts, now=NOW)

    def test_it_cannot_sign_other_certificates(self) -> None:
        (authority,) = x509.load_pem_x509_certificates(self.issued.authorities)
        certificate = x509.load_pem_x509_certificate(self.issued.certificate)
        assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert self.issued.key.count(b"PRIVATE KEY") == 2  # the beginning and the end of one
        assert authority.public_key() != certificate.public_key()


def handshake(client: ssl.SSLContext, pair: Path, *, host: str) -> bool:
    """Shake hands in memory; raises where the client does not trust the server."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pair)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=host)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return ours.version() is not None
