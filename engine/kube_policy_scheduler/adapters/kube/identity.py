"""Where the API server is and who we are to it, from whichever source that was read. Reads no kubeconfig."""

from __future__ import annotations

import hashlib
import os
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from kube_policy_scheduler.adapters.kube.errors import CredentialsError

FileStamp = tuple[str, int, int, int]
ConnectionKey = tuple[str, ...]


class Credentials(msgspec.Struct, frozen=True):
    """Where the API server is and how to present oneself, at one moment.

    `headers` go with every request. `connection_key` changes when open connections must be replaced: another
    server, CA, certificate or proxy, but not a renewed token.
    """

    source: str
    server: str
    headers: tuple[tuple[str, str], ...]
    tls: ssl.SSLContext | None
    """None where the server speaks no TLS."""
    tls_server_name: str | None
    proxy: str | None
    no_proxy: str | None
    connection_key: ConnectionKey
    files: tuple[FileStamp, ...]
    expires_at: float | None = None  # Unix seconds
    always_reload: bool = False  # an auth provider renews its token inside the loader
    compression: bool = True  # whether lists may come compressed
    proxy_headers: tuple[tuple[str, str], ...] = ()
    """What the proxy is told with CONNECT; `connection_key` has to change with them."""
    tls_http2: ssl.SSLContext | None = None
    """As `tls`, and offers HTTP/2; None where the server speaks no TLS."""

    def __repr__(self) -> str:  # without the token, and the password of the proxy
        return f"Credentials(source={self.source!r}, server={self.server!r})"

    def is_same_identity(self, other: Credentials) -> bool:
        """Whether the server would see no difference."""
        return (self.headers, self.connection_key) == (other.headers, other.connection_key)

    def is_outdated(self, *, now: float, margin_seconds: float) -> bool:
        """Whether a file changed, or the token expires within margin_seconds of now (Unix seconds)."""
        if self.always_reload or (self.expires_at is not None and self.expires_at - margin_seconds < now):
            return True
        return self.files != stamps(path for path, *_ in self.files)


class TlsFiles(msgspec.Struct, frozen=True):
    """Certificates in PEM, in files, and how the server is to be verified by them."""

    authority: str | None = None
    """The CA certificates; None: those of the system."""
    authority_pem: str | None = None
    """The same, where they are not in a file."""
    authority_name: str = ""
    """What an operator calls the authority."""
    certificate: str | None = None
    key: str | None = None
    verify: bool = True
    server_name: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """All of the files that there are."""
        return tuple(path for path in (self.authority, self.certificate, self.key) if path)


def stamps(paths: Iterable[str]) -> tuple[FileStamp, ...]:
    """Return what changes when a file is rewritten or a symbolic link to it is swapped."""
    found = []
    for path in sorted(set(paths)):
        try:
            status = Path(path).stat()
        except OSError:
            found.append((path, 0, 0, 0))
        else:
            found.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def credentials_of(
    server: str,
    *,
    source: str,
    headers: Iterable[tuple[str, str]],
    tls: TlsFiles,
    files: Iterable[str],
    proxy: str | None = None,
    expires_at: float | None = None,
    always_reload: bool = False,
    compression: bool = True,
) -> Credentials:
    """Return credentials; the files of certificates are not needed any more then.

    proxy: None takes the environment's. files: those that are looked at for changes. compression: whether lists may
    come compressed. Raises CredentialsError.
    """
    headers = tuple(headers)
    if any(not (text.isascii() and text.isprintable()) for header in headers for text in header):
        raise CredentialsError(f"{source}: the token contains invalid characters; is it the right file?")
    speaks_tls = server.startswith("https://")
    context = _tls_context(tls, source=source, protocols=("http/1.1",)) if speaks_tls else None
    context_http2 = _tls_context(tls, source=source, protocols=("h2", "http/1.1")) if speaks_tls else None
    digests = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in tls.paths]
    digests += [hashlib.sha256(tls.authority_pem.encode()).hexdigest()] if tls.authority_pem is not None else []
    proxies = _proxies()
    proxy = proxy or proxies.get(urlsplit(server).scheme) or proxies.get("all")
    return Credentials(
        source=source,
        server=server,
        headers=headers,
        tls=context,
        tls_http2=context_http2,
        tls_server_name=tls.server_name,
        proxy=proxy,
        no_proxy=proxies.get("no"),
        connection_key=(server, tls.server_name or "", proxy or "", str(tls.verify), *digests),
        files=stamps(files),
        expires_at=expires_at,
        always_reload=always_reload,
        compression=compression,
    )


def _proxies() -> Mapping[str, str]:
    """Return the proxies of the environment, or of the system where that has some, by scheme."""
    if sys.platform == "linux" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    from urllib.request import getproxies  # 25 ms with what it needs, before the first request of a start

    return getproxies()


def _tls_context(tls: TlsFiles, *, source: str, protocols: Sequence[str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.authority, cadata=tls.authority_pem)
    except (OSError, TypeError) as error:  # SSLError is an OSError; not ASCII is a TypeError
        raise CredentialsError(f"{source}: {tls.authority_name} contains no usable CA certificate") from error
    # Python 3.13 turns this on; cluster CAs often lack the extensions it demands, and kubectl does not ask for them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols([*protocols])
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate:
        try:
            context.load_cert_chain(tls.certificate, tls.key)
        except (OSError, ssl.SSLError) as error:
            raise CredentialsError(f"{source}: cannot use the client certificate and key (do they match?)") from error
    return context
