"""The certificate of our port: renewed without a restart, and never lost to a bad file."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from cryptography import x509
from prometheus_client import CollectorRegistry

from kube_policy_scheduler.adapters.http.health_checks import HealthChecks
from kube_policy_scheduler.adapters.http.port import HttpPort
from kube_policy_scheduler.adapters.http.server import HttpServer, Scrapes
from kube_policy_scheduler.adapters.tls.serving_certificate import CertificateError, ServingCertificate, self_signed
from tests.adapters.kube.scripted_server import until


class Files:
    """A certificate and its key, as cert-manager writes them."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.authority = trustme.CA()
        self.renew()

    def renew(self) -> None:
        self.authority = trustme.CA()
        issued = self.authority.issue_cert("127.0.0.1")
        self.key.write_bytes(issued.private_key_pem.bytes())
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def serving(certificate: ServingCertificate) -> AsyncIterator[str]:
    server = HttpServer(
        port=HttpPort("127.0.0.1", 0),
        checks=HealthChecks(live={"ping": lambda: None}),
        scrapes=Scrapes(CollectorRegistry()),
        certificate=certificate,
    )
    async with server:
        keeping = asyncio.create_task(certificate.keep(every_seconds=0.01))
        yield server.url
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping


async def certificate_at(url: str, authority: trustme.CA | None = None) -> x509.Certificate:
    """Return the certificate that a new connection sees; checked, where an authority is given."""
    context = ssl.create_default_context()
    if authority is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        authority.configure_trust(context)
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(found)


async def test_a_certificate_of_an_authority_is_served(files: Files) -> None:
    async with serving(ServingCertificate(certificate_file=files.certificate, key_file=files.key)) as url:
        assert url.startswith("https://127.0.0.1:")
        await certificate_at(url, files.authority)


async def test_a_renewed_certificate_is_taken_over_while_it_runs(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serving(ServingCertificate(certificate_file=files.certificate, key_file=files.key)) as url:
        before = await certificate_at(url)
        files.renew()
        await until(lambda: "was renewed" in caplog.text)
        assert await certificate_at(url, files.authority) != before


@pytest.mark.parametrize("broken", ["the certificate is nonsense", "the key is another one", "the key is gone"])
async def test_an_invalid_certificate_leaves_the_old_one_in_use_and_is_reported_once(
    files: Files, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serving(ServingCertificate(certificate_file=files.certificate, key_file=files.key)) as url:
        match broken:
            case "the certificate is nonsense":
                files.certificate.write_text("nonsense")
            case "the key is another one":
                files.key.write_bytes(trustme.CA().issue_cert("127.0.0.1").private_key_pem.bytes())
            case _:
                files.key.unlink()
        await until(lambda: "failed to load the renewed" in caplog.text)
        await certificate_at(url, files.authority)
        await asyncio.sleep(0.1)
        assert caplog.text.count("failed to load the renewed") == 1
        files.renew()
        await until(lambda: "was renewed" in caplog.text)
        await certificate_at(url, files.authority)


async def test_without_files_one_is_made() -> None:
    async with serving(ServingCertificate()) as url:
        found = await certificate_at(url)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert found.not_valid_after_utc > datetime.now(UTC)


async def test_versions_before_tls_1_2_are_refused() -> None:
    certificate = ServingCertificate()
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_key_with_a_password_is_an_error_and_no_question(files: Files) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")))
    with pytest.raises(CertificateError, match="the key is encrypted; use a key without a password"):
        ServingCertificate(certificate_file=files.certificate, key_file=files.key)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"tls.crt does not exist"):
        ServingCertificate(certificate_file=tmp_path / "tls.crt", key_file=tmp_path / "tls.key")


def test_each_certificate_has_a_key_of_its_own() -> None:
    now = datetime.now(UTC)
    assert self_signed(["localhost"], now=now) != self_signed(["localhost"], now=now)
