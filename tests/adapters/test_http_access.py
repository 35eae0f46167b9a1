"""Tokens in headers, and what the API server says about them."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.adapters.http.access import token_of
from kube_policy_scheduler.adapters.kube.errors import Unreachable
from kube_policy_scheduler.adapters.kube.reviews import KEEP_SECONDS, MAX_KEPT, Access, AccessReviewer


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer   abc ", "abc"),
        ("Basic " + base64.b64encode(b"anyone:abc:def").decode(), "abc:def"),
        ("Basic " + base64.b64encode(b"no colon").decode(), ""),
        ("Basic ///", ""),
        ("Basic " + base64.b64encode(b"a:\xff").decode(), ""),
        ("Basic ü", ""),
        ("Digest abc", ""),
        ("", ""),
        ("Bearer", ""),
    ],
)
def test_the_token_of_a_header(header: str, token: str) -> None:
    assert token_of(header) == token


class ApiServer:
    """Stands in for the transport: one known token, one allowed path."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.problem: Exception | None = None
        self.answer: bytes | None = None

    async def request(self, verb: str, path: str, *, body: bytes, resource: str, timeout_seconds: float) -> bytes:
        if self.problem is not None:
            raise self.problem
        review = msgspec.json.decode(body)
        self.asked.append(review)
        if self.answer is not None:
            return self.answer
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            user = {"username": "ann", "uid": "1", "groups": ["ops"], "extra": {"scopes": ["a"]}}
            status: dict[str, Any] = {"authenticated": True, "user": user} if spec["token"] == "good" else {"user": {}}
        else:
            status = {"allowed": spec["nonResourceAttributes"]["path"] == "/metrics"}
        return msgspec.json.encode({**review, "status": status})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def reviewer(server: ApiServer, clock: Clock | None = None) -> AccessReviewer:
    return AccessReviewer(server, clock=clock or Clock())  # type: ignore[arg-type]


async def test_everything_that_is_known_of_the_user_is_asked_about() -> None:
    server = ApiServer()
    verdict = await reviewer(server).review("good", verb="get", path="/metrics")
    assert verdict.access is Access.ALLOWED
    assert server.asked[1]["spec"] == {
        "user": "ann",
        "uid": "1",
        "groups": ["ops"],
        "extra": {"scopes": ["a"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_unknown_users_and_forbidden_users_get_different_answers() -> None:
    asking = reviewer(ApiServer())
    assert (await asking.review("", verb="get", path="/metrics")).access is Access.UNKNOWN
    assert (await asking.review("bad", verb="get", path="/metrics")).access is Access.UNKNOWN
    refused = await asking.review("good", verb="get", path="/status")
    assert (refused.access, refused.why) == (Access.FORBIDDEN, 'user "ann" cannot get path "/status"')


async def test_answers_are_kept_for_ten_seconds_good_or_bad() -> None:
    server, clock = ApiServer(), Clock()
    asking = reviewer(server, clock)

    async def ask() -> None:
        for token, path in (("good", "/metrics"), ("good", "/status"), ("bad", "/metrics")):
            await asking.review(token, verb="get", path=path)

    await ask()
    assert len(server.asked) == 4
    clock.now = KEEP_SECONDS - 0.1
    await ask()
    assert len(server.asked) == 4
    clock.now = KEEP_SECONDS
    await ask()
    assert len(server.asked) == 8


async def test_many_wrong_tokens_take_no_more_than_a_little_memory() -> None:
    asking = reviewer(ApiServer())
    for number in range(MAX_KEPT + 100):
        await asking.review(f"wrong-{number}", verb="get", path="/")
    assert len(asking._unknown._answers) == MAX_KEPT
    assert all(b"wrong" not in key for key in asking._unknown._answers)


@pytest.mark.parametrize("broken", ["away", "nonsense"])
async def test_without_a_reachable_reviewer_there_is_no_access(broken: str) -> None:
    server = ApiServer()
    if broken == "away":
        server.problem = Unreachable("connection refused")
    else:
        server.answer = b"<html>"
    verdict = await reviewer(server).review("good", verb="get", path="/metrics")
    assert verdict.access is Access.UNDECIDED
    assert verdict.why.startswith("cannot reach the API server")
    assert "good" not in verdict.why
