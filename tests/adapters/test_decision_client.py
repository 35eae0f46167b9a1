"""The decision log over HTTP: lines come as they are sent, and everything that can go wrong is said in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from kube_policy_scheduler.adapters.http.decision_client import (
    DecisionLogError,
    UnknownParameterError,
    fetch_decisions,
)
from tests.fakes.http_server import served

LINES = b'{"version":1}\n{"version":1,"node":"a"}\n'


def scheduler(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
    """Answer by the name of the requested pod: a status, or lines."""
    split = urlsplit(request.path)
    pod = parse_qs(split.query).get("pod", [""])[0]
    status = int(pod) if pod.isdecimal() else 200 if split.path == "/debug/decisions" else 404
    if pod == "secret" and request.headers.get("Authorization") != "Bearer open":
        status = 401
    return status, LINES if status == 200 else b"expected something else\n"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(scheduler) as url:
        yield url


def test_lines_come_with_their_ends(url: str) -> None:
    assert fetch_decisions(url, pod="shop/web") == LINES.splitlines(keepends=True)
    assert fetch_decisions(f"{url}/") == LINES.splitlines(keepends=True)


def test_a_token_is_read_from_its_file(url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("open\n")
    assert fetch_decisions(url, pod="secret", token_file=token)
    with pytest.raises(DecisionLogError, match="give --token-file"):
        fetch_decisions(url, pod="secret")
    token.write_text("shut")
    with pytest.raises(DecisionLogError, match="no permission to read it"):
        fetch_decisions(url, pod="secret", token_file=token)
    with pytest.raises(DecisionLogError, match="does not exist"):
        fetch_decisions(url, token_file=tmp_path / "none")


@pytest.mark.parametrize(
    ("path", "pod", "expected"),
    [
        ("", "400", "400: expected something else"),
        ("", "503", "503"),
        ("/elsewhere", "", "is it the scheduler's HTTP port"),
    ],
)
def test_refusals_are_reported(url: str, path: str, pod: str, expected: str) -> None:
    with pytest.raises(DecisionLogError, match=expected):
        fetch_decisions(url + path, pod=pod)


def test_a_parameter_that_it_does_not_know_can_be_told_from_other_refusals(url: str) -> None:
    with pytest.raises(UnknownParameterError, match="400"):
        fetch_decisions(url, pod="400")
    assert fetch_decisions(url, workload="shop/web")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("127.0.0.1:1", "expected a URL"),
        ("ftp://host", "expected a URL"),
        ("http://", "expected a URL"),
        ("http://127.0.0.1:1", "nobody answers"),
    ],
)
def test_a_wrong_address_is_reported(given: str, expected: str) -> None:
    with pytest.raises(DecisionLogError, match=expected):
        fetch_decisions(given)


def test_a_password_in_the_url_is_not_shown() -> None:
    with pytest.raises(DecisionLogError) as caught:
        fetch_decisions("http://user:hidden@127.0.0.1:1")
    assert "hidden" not in str(caught.value)
