"""Certificates of gRPC servers and their clients, from files that are read again when they change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from kube_policy_scheduler.adapters.tls.serving_certificate import LOOK_EVERY_SECONDS, CertificateError
from kube_policy_scheduler.documents.bounded_files import UnreadableFileError, problem_of, read_bounded

logger = logging.getLogger(__name__)

_MOST_BYTES = 16 << 20
"""Of a file of certificates."""


class TlsFiles(msgspec.Struct, frozen=True):
    """Files in PEM."""

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    """CA certificates of the other side."""


class _Pem(msgspec.Struct, frozen=True):
    certificate: bytes | None
    key: bytes | None
    authority: bytes | None


def load(files: TlsFiles) -> _Pem:
    """Return what the files say.

    Raises:
        CertificateError: one cannot be read, is not what it should be, or the two do not fit.
    """
    found = _Pem(_read(files.certificate), _read(files.key), _read(files.authority))
    if found.certificate is not None and found.key is not None:
        try:
            certificate = x509.load_pem_x509_certificates(found.certificate)[0]
            key = load_pem_private_key(found.key, password=None)
            form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
            fits = certificate.public_key().public_bytes(*form) == key.public_key().public_bytes(*form)
        except (ValueError, TypeError, IndexError) as error:
            raise CertificateError(f"{files.certificate} and {files.key} are not a certificate and its key") from error
        if not fits:
            raise CertificateError(f"{files.key} is not the key of the certificate in {files.certificate}")
    if found.authority is not None:
        try:
            x509.load_pem_x509_certificates(found.authority)
        except ValueError as error:
            raise CertificateError(f"{files.authority} contains no CA certificates in PEM") from error
    return found


def _read(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return read_bounded(file, most_bytes=_MOST_BYTES)
    except UnreadableFileError as error:
        raise CertificateError(problem_of(file, error)) from error


class Renewed:
    """What some files say, looked at again from time to time; files that are wrong leave the old ones in use."""

    def __init__(self, files: TlsFiles, *, stopwatch: Callable[[], float] = time.monotonic) -> None:
        """Read them. Raises CertificateError, as `load`."""
        self._files, self._stopwatch = files, stopwatch
        self.pem = load(files)
        self._looked_at = stopwatch()
        self._problem = ""

    def look(self) -> bool:
        """Read the files again if it is time; return whether they changed."""
        if self._stopwatch() - self._looked_at < LOOK_EVERY_SECONDS:
            return False
        self._looked_at = self._stopwatch()
        try:
            found = load(self._files)
        except CertificateError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                logger.error("failed to load the renewed certificates; the old ones stay in use: %s", error)
            return False
        self._problem = ""
        changed, self.pem = found != self.pem, found
        return changed


def server_credentials(certificates: Renewed) -> Any:
    """Return credentials of a server. Each new connection gets the newest certificates.

    With an authority, clients need a certificate by it.
    """

    def configuration() -> Any:
        pem = certificates.pem
        return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.authority)

    def renewed() -> Any:
        return configuration() if certificates.look() else None

    mutual = certificates.pem.authority is not None
    return grpc.dynamic_ssl_server_credentials(configuration(), renewed, require_client_authentication=mutual)


def channel_credentials(pem: _Pem) -> Any:
    """Return credentials of a client."""
    return grpc.ssl_channel_credentials(pem.authority, pem.key, pem.certificate)
