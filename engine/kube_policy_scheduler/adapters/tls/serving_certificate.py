"""The serving certificate: from files, which are read again when they change, or self-signed.

A self-signed certificate keeps tokens from being read on the way, but proves nothing: clients must skip its check, as
they do with kube-scheduler's.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn

from kube_policy_scheduler.adapters.tls.client_certificates import Clients
from kube_policy_scheduler.documents.bounded_files import UnreadableFileError, problem_of, read_bounded

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 10.0
"""How late a renewed certificate may be noticed; they are renewed weeks before they end."""
_LIFETIME = timedelta(days=365)
_SKEW = timedelta(minutes=5)
_RENEW_AFTER = timedelta(days=180)
_MOST_BYTES = 16 << 20
"""Of a file of certificates."""


class CertificateError(Exception):
    """There is no certificate to serve with; the text says why."""


class ServingCertificate:
    """A TLS context whose certificate is kept up to date."""

    def __init__(
        self,
        *,
        certificate_file: Path | None = None,
        key_file: Path | None = None,
        client_ca_file: Path | None = None,
        clients: Clients | None = None,
    ) -> None:
        """Load it; without files a certificate is made.

        Args:
            certificate_file: PEM; None: one is made.
            key_file: its key.
            client_ca_file: authorities of clients' certificates; None: no client is asked for one.
            clients: which of their clients are let in where a certificate is wanted.

        Raises:
            CertificateError: a file cannot be read or the two do not fit.
        """
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.clients = (clients or Clients()) if client_ca_file is not None else None
        """Who is let in by a certificate; None where no client is asked for one."""
        self._client_ca_file, self._client_ca_digest = client_ca_file, b""
        self._load_client_authorities()
        self._files = (certificate_file, key_file) if certificate_file and key_file else None
        self._digest = b""
        self._made_at = datetime.now(UTC)
        if self._files is not None:
            self._load(*self._files)
        else:
            self._make()

    async def keep(self, *, every_seconds: float = LOOK_EVERY_SECONDS) -> NoReturn:
        """Take over changed files for the connections to come; one that is wrong leaves the old ones in use."""
        problem = ""
        while True:
            await asyncio.sleep(every_seconds)
            try:
                if await asyncio.to_thread(self._renew):
                    log.info("the serving certificate was renewed")
                problem = ""
            except CertificateError as error:
                if str(error) != problem:
                    problem = str(error)
                    log.error("failed to load the renewed serving certificate; the old one stays in use: %s", problem)

    def _load_client_authorities(self) -> None:
        """Take over the authorities of clients if they are other than before; old ones stay trusted until a restart."""
        file = self._client_ca_file
        if file is None or (digest := _digest(file)) == self._client_ca_digest:
            return
        try:
            self.context.load_verify_locations(cafile=file)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise CertificateError(f"{file} contains no CA certificates in PEM") from error
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self._client_ca_digest = digest

    def _renew(self) -> bool:
        self._load_client_authorities()
        if self._files is None:
            if datetime.now(UTC) - self._made_at < _RENEW_AFTER:
                return False
            self._make()
            return True
        return self._load(*self._files)

    def _load(self, certificate_file: Path, key_file: Path) -> bool:
        """Load the files if they are other than before; return whether they are."""
        digest = _digest(certificate_file, key_file)
        if digest == self._digest:
            return False
        # a pair that does not fit would leave the context without a certificate: it is tried on another one first
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
            try:
                context.load_cert_chain(certificate_file, key_file, password=_no_password)
            except (ssl.SSLError, OSError, ValueError) as error:
                reason = getattr(error, "reason", None) or str(error)
                raise CertificateError(
                    f"{certificate_file} and {key_file} are not a certificate and its key: {reason}"
                ) from (error)
        self._digest = digest
        return True

    def _make(self) -> None:
        self._made_at = datetime.now(UTC)
        pair = self_signed(_own_names(), now=self._made_at)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "serving.pem")
            path.touch(mode=0o600)
            path.write_bytes(pair)
            self.context.load_cert_chain(path)


def self_signed(names: Iterable[str], *, now: datetime) -> bytes:
    """Return a certificate for host names and addresses and its key, both PEM, one after the other."""
    # half of it is native code that takes 100 ms to load: only who needs it does
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "policy-scheduler")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.IPAddress(ipaddress.ip_address(name)) if _is_address(name) else x509.DNSName(name)
                    for name in names
                ]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _own_names() -> list[str]:
    return list(dict.fromkeys([socket.gethostname()[:63], "localhost", "127.0.0.1", "::1"]))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(*files: Path) -> bytes:
    digest = blake2b()
    for file in files:
        try:
            digest.update(read_bounded(file, most_bytes=_MOST_BYTES))
        except UnreadableFileError as error:
            raise CertificateError(problem_of(file, error)) from error
    return digest.digest()


def _no_password() -> NoReturn:
    """Keep OpenSSL from asking on the terminal."""
    raise ValueError("the key is encrypted; use a key without a password")
