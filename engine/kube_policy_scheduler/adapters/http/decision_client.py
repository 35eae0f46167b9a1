"""The decision log of a running scheduler, over HTTP: lines as it sends them. Knows nothing of what they say."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import requests

from kube_policy_scheduler.documents.bounded_files import (
    UnreadableFileError,
    encoding_problem,
    problem_of,
    read_bounded,
)

_TIMEOUT_SECONDS = 10.0
_MOST_TOKEN_BYTES = 1 << 20
_MOST_AUTHORITIES_BYTES = 16 << 20
"""The certificates of a system take a quarter of a megabyte."""
_PATH = "/debug/decisions"
_MOST_BYTES = 256 * 1024 * 1024
"""More than any log that a scheduler keeps in memory."""


class DecisionLogError(Exception):
    """The scheduler gave no decisions. The text is short and without secrets."""


class UnknownParameterError(DecisionLogError):
    """The scheduler does not know what it was asked for: decisions about pods and about workloads differ there."""


def fetch_decisions(
    url: str,
    *,
    pod: str = "",
    workload: str = "",
    limit: int = 1000,
    token_file: Path | None = None,
    ca_file: Path | None = None,
) -> list[bytes]:
    """Return the newest decisions as JSON lines, oldest first.

    Args:
        url: of the scheduler's HTTP port, such as `http://127.0.0.1:10351`.
        pod: `namespace/name` or a name; "" for all pods.
        workload: the same of a workload, if the scheduler decides over clusters.
        limit: how many at most.
        token_file: holds a bearer token, where the scheduler asks who is there.
        ca_file: certificate authorities to trust instead of the system's; such as the scheduler's own certificate.

    Raises:
        UnknownParameterError: it decides no pods, or no workloads.
        DecisionLogError: there is no answer, or it is a refusal.
    """
    parts = urlsplit(url)
    shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DecisionLogError(f"expected a URL such as http://127.0.0.1:10351, got {shown}")
    asked = {"limit": str(limit)} | ({"pod": pod} if pod else {}) | ({"workload": workload} if workload else {})
    headers = {}
    if token_file is not None:
        try:
            token = read_bounded(token_file, most_bytes=_MOST_TOKEN_BYTES)
        except UnreadableFileError as error:
            raise DecisionLogError(problem_of(token_file, error)) from error
        if problem := encoding_problem(token):
            raise DecisionLogError(f"{token_file}: {problem}: expected a token")
        if not token.strip():
            raise DecisionLogError(f"{token_file} is empty: expected a token")
        headers["Authorization"] = f"Bearer {token.decode().strip()}"
    if ca_file is not None:
        _check_authorities(ca_file)
    try:
        with requests.Session() as session:
            session.trust_env = False
            answer = session.get(
                url.rstrip("/") + _PATH, params=asked, headers=headers, timeout=_TIMEOUT_SECONDS,
                verify=str(ca_file) if ca_file is not None else True, stream=True, allow_redirects=False,
            )  # fmt: skip
            with answer:
                body = answer.raw.read(_MOST_BYTES, decode_content=True)
    except requests.exceptions.SSLError as error:
        raise DecisionLogError(f"{shown}: {_tls_problem(str(error), has_ca_file=ca_file is not None)}") from error
    except requests.exceptions.ConnectionError as error:
        cut_off = "RemoteDisconnected" in str(error) or "reset by peer" in str(error)
        problem = "the connection was closed without an answer: is it https?" if cut_off else "nobody answers"
        raise DecisionLogError(f"{shown}: {problem}") from error
    except requests.exceptions.Timeout as error:
        raise DecisionLogError(f"{shown}: no answer within {_TIMEOUT_SECONDS:g} s") from error
    except (requests.exceptions.RequestException, OSError, ValueError) as error:
        raise DecisionLogError(f"{shown}: {type(error).__name__}") from error
    match answer.status_code:
        case 200:
            return [line + b"\n" for line in body.split(b"\n") if line]
        case 401 | 403:
            advice = "give --token-file" if token_file is None else "the token has no permission to read it"
            raise DecisionLogError(f"{shown}: it requires authentication ({answer.status_code}): {advice}")
        case 404:
            raise DecisionLogError(f"{shown}: there is no {_PATH}: is it the scheduler's HTTP port?")
        case status:
            said = body[:200].decode("utf-8", "replace").strip().splitlines()
            refusal = UnknownParameterError if status == 400 else DecisionLogError
            raise refusal(f"{shown}: {status}{f': {said[0]}' if said else ''}")


def _check_authorities(path: Path) -> None:
    """Check that a file has certificates: the HTTP client says of another one only that it failed.

    Raises:
        DecisionLogError: it cannot be read, or has none.
    """
    try:
        content = read_bounded(path, most_bytes=_MOST_AUTHORITIES_BYTES)
        ssl.create_default_context(cadata=content.decode())
    except UnreadableFileError as error:
        raise DecisionLogError(problem_of(path, error)) from error
    except (ssl.SSLError, ValueError) as error:
        problem = encoding_problem(content) and f"{path}: {encoding_problem(content)}: expected certificates in PEM"
        empty = f"{path} is empty: expected certificates in PEM" if not content.strip() else ""
        raise DecisionLogError(problem or empty or f"{path} holds no certificates in PEM") from error


def _tls_problem(error: str, *, has_ca_file: bool) -> str:
    found = re.search(r"certificate verify failed: ([^(]*[^( ])", error)
    if found is None:
        return "TLS failed: is it http?"
    advice = "it is not signed by --ca-file" if has_ca_file else "give --ca-file"
    return f"its certificate is not trusted ({found[1]}): {advice if 'expired' not in found[1] else 'renew it'}"
