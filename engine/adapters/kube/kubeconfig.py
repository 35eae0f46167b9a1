"""Kubeconfig files and service accounts, read by the official client's loader. The only importer of `kubernetes`.

The import is slow (0.25 s), hence inside the functions. Three things its loader leaves out are added: a failing
exec plugin is an error that says so, a missing entry is named with what there is instead, and no private key
stays behind in the temporary folder. Texts of its ConfigException may quote a whole user entry with its token;
they are cut before that, and not chained.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import yaml

from engine.adapters.kube.errors import CredentialsError, shortened

FileStamp = tuple[str, int, int, int]
ConnectionKey = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where the API server is and how to present oneself, at one moment.

    `headers` go with every request. `connection_key` changes when open connections must be replaced: another
    server, CA, certificate or proxy, but not a renewed token.
    """

    source: str
    server: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)
    tls_server_name: str | None
    proxy: str | None = field(repr=False)
    no_proxy: str | None
    connection_key: ConnectionKey = field(repr=False)
    files: tuple[FileStamp, ...] = field(repr=False)
    expires_at: float | None = None  # Unix seconds
    always_reload: bool = False  # an auth provider renews its token inside the loader

    def is_same_identity(self, other: Credentials) -> bool:
        """Whether the server would see no difference."""
        return (self.headers, self.connection_key) == (other.headers, other.connection_key)

    def is_outdated(self, *, now: float, margin_seconds: float) -> bool:
        """Whether a file changed, or the token expires within margin_seconds of now (Unix seconds)."""
        if self.always_reload or (self.expires_at is not None and self.expires_at - margin_seconds < now):
            return True
        return self.files != stamps(path for path, *_ in self.files)


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


def load_service_account(directory: Path, *, environ: Mapping[str, str]) -> Credentials:
    """Read the service account that Kubernetes mounts into a pod. Raises CredentialsError."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import InClusterConfigLoader

    token_file, ca_file = str(directory / "token"), str(directory / "ca.crt")
    source = f"service account in {directory}"
    files = stamps([token_file, ca_file])
    configuration = Configuration()
    try:
        InClusterConfigLoader(
            token_filename=token_file, cert_filename=ca_file, try_refresh_token=False, environ=environ
        ).load_and_set(configuration)
    except (ConfigException, OSError) as error:
        raise CredentialsError(
            f"{source} is not usable: {shortened(str(error)).rstrip('.').lower()}; is this process in a pod,"
            " and automountServiceAccountToken not false?"
        ) from error
    return _credentials(configuration, source=source, files=files, ca_name=ca_file, user={})


def load_kubeconfig(paths: str, *, context: str | None) -> Credentials:
    """Read one kubeconfig file, or several joined by ":" as in KUBECONFIG. Raises CredentialsError.

    context: its name; None takes `current-context`.
    """
    try:
        scratch = tempfile.mkdtemp(prefix="policy-scheduler-")
    except OSError:  # read-only file system: only matters if the kubeconfig embeds certificates
        scratch = None
    try:
        return _load_kubeconfig(paths, context=context, scratch=scratch)
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _load_kubeconfig(paths: str, *, context: str | None, scratch: str | None) -> Credentials:
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader

    entries = _Entries(paths)
    context_name = context or entries.root.get("current-context")
    if not context_name:
        entries.fail(f"no current-context; give --context ({entries.names('contexts')})")
    chosen = entries.find("contexts", context_name)
    cluster_name, user_name = str(chosen.get("cluster", "")), str(chosen.get("user", ""))
    cluster = entries.find("clusters", cluster_name)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        entries.fail(f'cluster "{cluster_name}" needs a server that begins with https:// or http://')
    user = entries.find("users", user_name) if user_name else {}
    source = f'{entries.where}, context "{context_name}"'

    expires_at = None
    if "exec" in user and not {"token", "tokenFile", "auth-provider"} & user.keys():
        given, expires_at = _run_plugin(entries, cluster_name=cluster_name, user_name=user_name)
        entries.node("users", user_name).value["user"] = user = {**user, **given}

    configuration = Configuration()
    try:
        KubeConfigLoader(
            config_dict=entries.merger.config,
            active_context=context_name,
            config_base_path=None,
            config_persister=entries.merger.save_changes if "auth-provider" in user else None,
            temp_file_path=scratch,
        ).load_and_set(configuration)
    except ConfigException as error:
        raise CredentialsError(f"{source}: {shortened(str(error).split('/{')[0])}") from None
    except OSError as error:
        what = error.filename or "a temporary file for its certificates"
        raise CredentialsError(f"{source}: {what}: {error.strerror or error}") from error
    except Exception as error:
        raise CredentialsError(f"{source}: not usable ({type(error).__name__}); check its user entry") from None

    files = [*entries.files]
    if isinstance(user.get("tokenFile"), str):
        files.append(str(entries.folder("users", user_name) / user["tokenFile"]))
    for path in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file):
        if path and not (scratch and path.startswith(scratch)):
            files.append(path)
    return _credentials(
        configuration,
        source=source,
        files=stamps(files),
        ca_name=cluster.get("certificate-authority") or f'certificate-authority-data of cluster "{cluster_name}"',
        user=user,
        expires_at=expires_at,
    )


class _Entries:
    """The merged files: finds an entry by name, or says what there is instead."""

    def __init__(self, paths: str) -> None:
        from kubernetes.config import ConfigException
        from kubernetes.config.kube_config import KubeConfigMerger

        self.files = [str(Path(path).expanduser()) for path in paths.split(":") if path]
        self.where = f"kubeconfig {':'.join(self.files)}"
        existing = [path for path in self.files if Path(path).exists()]
        if not existing:
            raise CredentialsError(f"{self.where} does not exist; give --kubeconfig or set KUBECONFIG")
        try:
            self.merger = KubeConfigMerger(":".join(existing))
        except yaml.YAMLError as error:  # its text quotes the file, so it is not chained
            mark = getattr(error, "problem_mark", None)
            at = f" at line {mark.line + 1}" if mark is not None else ""
            raise CredentialsError(f"{self.where} is not valid YAML{at}") from None
        except ConfigException:
            raise CredentialsError(f"{self.where} is empty; write one, or give --kubeconfig") from None
        except OSError as error:
            raise CredentialsError(f"{self.where} cannot be read: {error.strerror}") from error
        except Exception:  # the merger trips over wrong shapes in many ways
            raise CredentialsError(f"{self.where} is not a kubeconfig: expected lists of named entries") from None
        self.root: dict[str, Any] = self.merger.config.value

    def fail(self, problem: str) -> NoReturn:
        """Raise CredentialsError about the file."""
        raise CredentialsError(f"{self.where}: {problem}")

    def names(self, kind: str) -> str:
        """Say which entries of a kind there are."""
        found = ", ".join(str(node.value.get("name")) for node in self.root[kind])
        return f"it has {kind}: {found}" if found else f"it has no {kind} at all"

    def node(self, kind: str, name: str) -> Any:
        """Return the loader's node of an entry."""
        for node in self.root[kind]:
            if node.value.get("name") == name:
                return node
        return self.fail(f'no {kind[:-1]} "{name}"; {self.names(kind)}')

    def find(self, kind: str, name: str) -> dict[str, Any]:
        """Return the inner mapping of an entry, {} if it is empty."""
        value = self.node(kind, name).value.get(kind[:-1]) or {}
        if not isinstance(value, dict):
            self.fail(f'{kind[:-1]} "{name}" must be a mapping')
        return value

    def folder(self, kind: str, name: str) -> Path:
        """Return where relative paths of an entry start."""
        return Path(self.node(kind, name).path).resolve().parent


def _run_plugin(entries: _Entries, *, cluster_name: str, user_name: str) -> tuple[dict[str, str], float | None]:
    """Run the exec plugin; return what it gives, as entries of a kubeconfig user, and its expiry in Unix seconds."""
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    user = entries.node("users", user_name)
    cluster = entries.node("clusters", cluster_name)
    setting = user.value["user"]["exec"]
    if not isinstance(setting, dict):
        entries.fail(f'exec of user "{user_name}" must be a mapping')
    name = f'exec plugin "{setting.get("command")}" of user "{user_name}" in {entries.where}'
    try:
        status = ExecProvider(
            ConfigNode("exec", setting, user.path),
            str(entries.folder("users", user_name)),
            ConfigNode("cluster", cluster.value["cluster"], cluster.path),
        ).run()
    except FileNotFoundError as error:
        hint = f"; {shortened(setting['installHint'])}" if setting.get("installHint") else "; is it on PATH?"
        raise CredentialsError(f"{name} was not found{hint}") from error
    except Exception as error:
        raise CredentialsError(f"{name} failed: {shortened(str(error))}") from error
    status = status if isinstance(status, dict) else {}
    given: dict[str, str] = {}
    if status.get("token"):
        given["token"] = status["token"]
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if certificate and key:
        given["client-certificate-data"] = base64.b64encode(certificate.encode()).decode()
        given["client-key-data"] = base64.b64encode(key.encode()).decode()
    if not given:
        raise CredentialsError(f"{name} gave neither a token nor a client certificate with key")
    try:
        expires_at = datetime.fromisoformat(status["expirationTimestamp"]).timestamp()
    except (KeyError, TypeError, ValueError):
        expires_at = None
    return given, expires_at


def _credentials(
    configuration: Any,
    *,
    source: str,
    files: tuple[FileStamp, ...],
    ca_name: str,
    user: Mapping[str, Any],
    expires_at: float | None = None,
) -> Credentials:
    server = configuration.host
    authorization = configuration.api_key.get("BearerToken")
    headers = []
    if authorization:
        scheme, *rest = authorization.split()  # a token file ends in a newline, which the loader keeps
        headers.append(("Authorization", " ".join([scheme.capitalize(), *rest])))
    headers += _impersonation(user)
    if any(not (text.isascii() and text.isprintable()) for header in headers for text in header):
        raise CredentialsError(f"{source}: the token has characters that cannot be sent; is it the right file?")
    tls = _tls_context(configuration, source=source, ca_name=ca_name) if server.startswith("https://") else None
    paths = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    digests = [hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else "" for path in paths]
    server_name, proxy = configuration.tls_server_name, configuration.proxy
    return Credentials(
        source=source,
        server=server,
        headers=tuple(headers),
        tls=tls,
        tls_server_name=server_name,
        proxy=proxy,
        no_proxy=configuration.no_proxy,
        connection_key=(server, server_name or "", proxy or "", str(configuration.verify_ssl), *digests),
        files=files,
        expires_at=expires_at,
        always_reload="auth-provider" in user,
    )


def _impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    headers = []
    if user.get("as"):
        headers.append(("Impersonate-User", str(user["as"])))
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    return headers + [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]


def _tls_context(configuration: Any, *, source: str, ca_name: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(f"{source}: {ca_name} holds no usable CA certificate") from error
    # Python 3.13 turns this on; cluster CAs often lack the extensions it demands, and kubectl does not ask for them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        try:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
        except (OSError, ssl.SSLError) as error:
            raise CredentialsError(
                f"{source}: the client certificate and key cannot be used (do they belong together?)"
            ) from error
    return context
