"""Kubeconfig files, read and merged as kubectl does.

The official client is asked for what takes more than reading: exec plugins, and auth providers, whose tokens it renews.
Its import takes 0.3 s, hence inside the functions. Its own loader reads a file of any size, takes the last
`current-context` of several files, knows no impersonation, and goes on without credentials where a plugin fails. Texts
of its errors may quote a whole user entry with its token; they are cut before that, and not chained.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from kube_policy_scheduler.adapters.kube.errors import MESSAGE_CHARACTERS, CredentialsError
from kube_policy_scheduler.adapters.kube.identity import Credentials, TlsFiles, credentials_of
from kube_policy_scheduler.adapters.kube.official_import import ALONE
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.bounded_files import UnreadableFileError, read_bounded
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_documents
from kube_policy_scheduler.times import parse_rfc3339
from kube_policy_scheduler.wording import one_line

MOST_KUBECONFIG_BYTES = 16 << 20
MOST_TOKEN_BYTES = 1 << 20
KINDS = ("clusters", "contexts", "users")


def load_kubeconfig(paths: str, *, context: str | None) -> Credentials:
    """Read one kubeconfig file, or several joined by ":" as in KUBECONFIG. Raises CredentialsError.

    context: its name; None takes `current-context`.
    """
    try:
        scratch = tempfile.mkdtemp(prefix="policy-scheduler-")
    except OSError:  # read-only file system: only matters if the kubeconfig embeds certificates
        scratch = None
    found = None
    try:
        found = _Kubeconfig(paths)
        return _load_kubeconfig(found, context=context, scratch=Path(scratch) if scratch else None)
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # their texts may quote secrets
        where = found.where if found is not None else f"kubeconfig {paths}"
        raise CredentialsError(f"{where}: something has another type than in a kubeconfig, or holds a NUL") from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _load_kubeconfig(found: _Kubeconfig, *, context: str | None, scratch: Path | None) -> Credentials:
    context_name = context or found.current_context
    if not context_name:
        found.fail(f"no current-context; give --context ({found.names('contexts')})")
    chosen = found.entry("contexts", context_name).value
    cluster = found.entry("clusters", str(chosen.get("cluster", "")))
    user = found.entry("users", str(chosen["user"])) if chosen.get("user") else _Entry("", "", {}, Path())
    server = cluster.value.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        found.fail(f'cluster "{cluster.name}" needs a server that starts with https:// or http://')
    source = f'{found.where}, context "{context_name}"'
    is_provided = "auth-provider" in user.value
    authorization, expires_at = "", None
    if is_provided:
        authorization = _ask_provider(found, context_name, source=source)
    elif "exec" in user.value and not {"token", "tokenFile"} & user.value.keys():
        given, expires_at = _run_plugin(found, cluster=cluster, user=user)
        user = _Entry(user.kind, user.name, {**user.value, **given}, user.file)
    try:
        tls = _tls_files(cluster, user, scratch) if server.startswith("https://") else TlsFiles()
        authorization = authorization or _authorization(user)
    except UnreadableFileError as error:
        raise CredentialsError(f"{source}: {user.folder / user.value['tokenFile']}: {error}") from error
    except OSError as error:
        what = error.filename or "a temporary file for its certificates"
        raise CredentialsError(f"{source}: {what}: {error.strerror or error}") from error
    except Exception as error:
        raise CredentialsError(f"{source}: not usable ({type(error).__name__}); check user and cluster") from None
    files = [*found.files, *(path for path in tls.paths if not (scratch and Path(path).is_relative_to(scratch)))]
    if isinstance(user.value.get("tokenFile"), str):
        files.append(str(user.folder / user.value["tokenFile"]))
    return credentials_of(
        server.rstrip("/"),
        source=source,
        headers=[*([("Authorization", authorization)] if authorization else []), *_impersonation(user.value)],
        tls=tls,
        files=files,
        proxy=cluster.value.get("proxy-url"),
        expires_at=expires_at,
        always_reload=is_provided,
        compression=not _is_true(cluster.value.get("disable-compression")),
    )


class _Entry(msgspec.Struct, frozen=True):
    """A named cluster, context or user."""

    kind: str
    name: str
    value: dict[str, Any]
    file: Path

    @property
    def folder(self) -> Path:
        """Where its relative paths start."""
        return self.file.resolve().parent

    def pem_file(self, key: str, scratch: Path | None) -> str | None:
        """Return the path of a certificate or key; one that is embedded is written to the scratch folder first."""
        if data := self.value.get(f"{key}-data"):
            if scratch is None:
                raise OSError("no temporary folder is writable")
            written = scratch / f"{self.kind}-{key}"
            written.write_bytes(base64.b64decode(data))
            return str(written)
        if not self.value.get(key):
            return None
        path = self.folder / self.value[key]
        path.stat()
        return str(path)


class _Kubeconfig:
    """The merged files: the first to name something wins. Finds an entry, or says what there is instead."""

    def __init__(self, paths: str) -> None:
        self.files = [str(Path(path).expanduser()) for path in paths.split(":") if path]
        self.where = f"kubeconfig {':'.join(self.files)}"
        self.current_context = ""
        self._entries: dict[str, dict[str, _Entry]] = {kind: {} for kind in KINDS}
        existing = [path for path in self.files if Path(path).exists()]
        if not existing:
            raise CredentialsError(f"{self.where} does not exist; give --kubeconfig or set KUBECONFIG")
        for path in existing:
            self._merge(Path(path))

    def _merge(self, path: Path) -> None:
        try:
            content_read = read_bounded(path, most_bytes=MOST_KUBECONFIG_BYTES).decode("utf-8-sig")
            documents = parse_documents(Source(str(path), content_read))
        except DocumentError as error:  # its text quotes the file, so it is not chained
            span = error.diagnostics[0].span
            line = span.source.position(span.start)[0]
            raise CredentialsError(f"{self.where} is not valid YAML at line {line}") from None
        except UnicodeDecodeError:
            raise CredentialsError(f"{self.where} is not UTF-8: save the file as UTF-8") from None
        except UnreadableFileError as error:
            raise CredentialsError(f"cannot read {self.where}: {error}") from error
        content = documents[0].value if documents else None
        if content is None:
            raise CredentialsError(f"{self.where} is empty; write one, or give --kubeconfig")
        try:
            context = content.get("current-context") or ""
            if not isinstance(context, str):
                raise CredentialsError(f"{self.where}: current-context must be a text, the name of a context")
            self.current_context = self.current_context or context
            for kind in KINDS:
                for each in content.get(kind) or ():
                    name, value = str(each["name"]), each.get(kind[:-1]) or {}
                    self._entries[kind].setdefault(name, _Entry(kind, name, value, path))
        except (AttributeError, KeyError, TypeError):
            raise CredentialsError(f"{self.where} is not a kubeconfig: expected lists of named entries") from None

    def fail(self, problem: str) -> NoReturn:
        """Raise CredentialsError about the file."""
        raise CredentialsError(f"{self.where}: {problem}")

    def names(self, kind: str) -> str:
        """Say which entries of a kind there are."""
        found = ", ".join(self._entries[kind])
        return f"it has {kind}: {found}" if found else f"it has no {kind}"

    def entry(self, kind: str, name: str) -> _Entry:
        """Return an entry."""
        found = self._entries[kind].get(name)
        if found is None:
            self.fail(f'no {kind[:-1]} "{name}"; {self.names(kind)}')
        if not isinstance(found.value, dict):
            self.fail(f'{kind[:-1]} "{name}" must be a mapping')
        return found


def _tls_files(cluster: _Entry, user: _Entry, scratch: Path | None) -> TlsFiles:
    named = cluster.value.get("certificate-authority")
    return TlsFiles(
        authority=cluster.pem_file("certificate-authority", scratch),
        authority_name=named or f'certificate-authority-data of cluster "{cluster.name}"',
        certificate=user.pem_file("client-certificate", scratch),
        key=user.pem_file("client-key", scratch),
        verify=not _is_true(cluster.value.get("insecure-skip-tls-verify")),
        server_name=cluster.value.get("tls-server-name"),
    )


def _is_true(value: object) -> bool:
    """Return whether a value is true for kubectl, which reads YAML 1.1."""
    return value is True or (isinstance(value, str) and value.lower() in ("yes", "on", "y"))


def _authorization(user: _Entry) -> str:
    value = user.value
    token = value.get("token")
    if not token and value.get("tokenFile"):
        token = read_bounded(user.folder / value["tokenFile"], most_bytes=MOST_TOKEN_BYTES).decode()
    if token:
        return f"Bearer {str(token).strip()}"
    if "username" in value and "password" in value:
        return "Basic " + base64.b64encode(f"{value['username']}:{value['password']}".encode()).decode()
    return ""


def _impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    headers = []
    if user.get("as"):
        headers.append(("Impersonate-User", str(user["as"])))
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    return headers + [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]


def _ask_provider(found: _Kubeconfig, context: str, *, source: str) -> str:
    """Return the Authorization that an auth provider gives; a token that it renewed is written to its file."""
    with ALONE:
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException
        from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    configuration = Configuration()
    try:
        merger = KubeConfigMerger(":".join(found.files))
        KubeConfigLoader(
            config_dict=merger.config,
            active_context=context,
            config_base_path=None,
            config_persister=merger.save_changes,
        ).load_and_set(configuration)
    except ConfigException as error:
        raise CredentialsError(f"{source}: {one_line(str(error).split('/{')[0], MESSAGE_CHARACTERS)}") from None
    except Exception as error:
        raise CredentialsError(f"{source}: not usable ({type(error).__name__}); check its user entry") from None
    return str(configuration.api_key.get("BearerToken", ""))


def _run_plugin(found: _Kubeconfig, *, cluster: _Entry, user: _Entry) -> tuple[dict[str, str], float | None]:
    """Run the exec plugin; return what it gives, as entries of a kubeconfig user, and its expiry in Unix seconds."""
    with ALONE:
        from kubernetes.config.exec_provider import ExecProvider
        from kubernetes.config.kube_config import ConfigNode

    setting = user.value["exec"]
    if not isinstance(setting, dict):
        found.fail(f'exec of user "{user.name}" must be a mapping')
    name = f'exec plugin "{setting.get("command")}" of user "{user.name}" in {found.where}'
    try:
        status = ExecProvider(
            ConfigNode("exec", setting, str(user.file)),
            str(user.folder),
            ConfigNode("cluster", cluster.value, str(cluster.file)),
        ).run()
    except FileNotFoundError as error:
        hint = one_line(setting.get("installHint") or "is it on PATH?", MESSAGE_CHARACTERS)
        raise CredentialsError(f"{name} was not found; {hint}") from error
    except Exception as error:
        raise CredentialsError(f"{name} failed: {one_line(str(error), MESSAGE_CHARACTERS)}") from error
    status = status if isinstance(status, dict) else {}
    given: dict[str, str] = {}
    if status.get("token"):
        given["token"] = status["token"]
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if certificate and key:
        given["client-certificate-data"] = base64.b64encode(certificate.encode()).decode()
        given["client-key-data"] = base64.b64encode(key.encode()).decode()
    if not given:
        raise CredentialsError(f"{name} returned neither a token nor a client certificate with key")
    try:
        expires_at = parse_rfc3339(status["expirationTimestamp"]).timestamp()
    except (KeyError, TypeError, ValueError):
        expires_at = None
    return given, expires_at
