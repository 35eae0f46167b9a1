"""The service account that Kubernetes mounts into a pod."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kube_policy_scheduler.adapters.kube.errors import CredentialsError
from kube_policy_scheduler.adapters.kube.identity import Credentials, TlsFiles, credentials_of


def load_service_account(directory: Path, *, environ: Mapping[str, str]) -> Credentials:
    """Read token, authority and address. Raises CredentialsError."""
    source = f"service account in {directory}"
    token_file, authority = directory / "token", directory / "ca.crt"
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    try:
        if not host or not port:
            raise CredentialsError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        token = token_file.read_text(encoding="utf-8").strip()
        if not token:
            raise CredentialsError(f"{token_file} is empty")
        if not authority.is_file():
            raise CredentialsError(f"{authority} does not exist")
    except (CredentialsError, OSError, UnicodeDecodeError) as error:
        problem = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise CredentialsError(
            f"{source} is not usable: {problem}; is this process in a pod, and automountServiceAccountToken not false?"
        ) from error
    return credentials_of(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        source=source,
        headers=[("Authorization", f"Bearer {token}")],
        tls=TlsFiles(authority=str(authority), authority_name=str(authority)),
        files=[str(token_file), str(authority)],
    )
