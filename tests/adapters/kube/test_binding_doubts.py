"""What is said of a binding in doubt, over minutes of virtual time: never that a bound pod is not bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.adapters.kube.binding import LINGER_SECONDS, Binder, Bound, Outcome, Reason, Refused, Unknown
from kube_policy_scheduler.adapters.kube.errors import (
    AnswerTimeout,
    ConnectionLost,
    Fenced,
    KubeError,
    Unreachable,
    error_from_answer,
)
from kube_policy_scheduler.adapters.kube.fence import Fence
from tests.adapters.kube.scripted_server import pod
from tests.simulation.virtual_time import run

DENIED = b'{"kind":"Status","message":"admission webhook \\"w.x\\" denied the request: no","reason":"x"}'
UNANSWERED = (
    b'{"kind":"Status","message":"Internal error occurred: failed calling webhook \\"w.x\\": EOF","reason":"x"}'
)

Answer = Callable[["Way"], Awaitable[None]] | BaseException | str
"""What happens to a request: what it raises, after which it was carried out or not; "" is success."""


class Way:
    """To an API server with one pod, in place of a Transport; what goes wrong is said beforehand."""

    def __init__(self) -> None:
        self.pod = pod("web")
        self.posts: Iterator[Answer] = iter(())
        self.gets: Iterator[Answer] = iter(())
        self.after_posts: Answer = ""
        """What happens to each post after those."""
        self.after_gets: Answer = ""
        self.requests: list[tuple[float, str]] = []

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def request(self, verb: str, path: str, *, fence: Fence | None = None, **_: Any) -> bytes:
        answer = next(self.gets, self.after_gets) if verb == "GET" else next(self.posts, self.after_posts)
        if isinstance(answer, Unreachable):
            raise answer
        if isinstance(answer, ValueError) and str(answer) == "before it was sent":
            raise answer
        if fence is not None and not fence.allows():
            raise Fenced("may not send")
        self.requests.append((asyncio.get_running_loop().time(), verb))
        await asyncio.sleep(0.01)
        if isinstance(answer, BaseException):
            raise answer
        if not isinstance(answer, str):
            await answer(self)
        if verb == "GET":
            return msgspec.json.encode(self.pod)
        self.bind()
        return b"{}"

    def bind(self) -> None:
        if self.pod["spec"].get("nodeName"):
            raise error_from_answer(409, b'{"message":"already assigned"}')
        self.pod["spec"]["nodeName"] = "n1"

    @property
    def sent(self) -> list[str]:
        return [verb for _, verb in self.requests]


def done_and(error: KubeError) -> Answer:
    async def answer(way: Way) -> None:
        way.bind()
        raise error

    return answer


def done_after(seconds: float, error: KubeError) -> Answer:
    """The request waits in the server, which carries it out when the client no longer waits for it."""

    async def answer(way: Way) -> None:
        asyncio.get_running_loop().call_later(seconds, way.bind)
        raise error

    return answer


def refused(status: int, body: bytes = b'{"message":"no","reason":"x"}') -> KubeError:
    return error_from_answer(status, body)


def story(way: Way, *asks: Callable[[Binder], Awaitable[Outcome]], **options: Any) -> tuple[Outcome, float]:
    """Ask a binder for one thing after the other; return the last outcome, and how long it took."""

    async def main() -> tuple[Outcome, float]:
        binder = Binder(way, random=Random(1), **options)  # type: ignore[arg-type]
        for ask in asks:
            began = asyncio.get_running_loop().time()
            outcome = await ask(binder)
        return outcome, asyncio.get_running_loop().time() - began

    return run(main())


async def bind(binder: Binder, after: Unknown | None = None) -> Outcome:
    return await binder.bind(namespace="default", name="web", uid="uid-web", node="n1", after=after)


async def until_known(binder: Binder) -> Outcome:
    outcome = await bind(binder)
    while isinstance(outcome, Unknown):
        outcome = await bind(binder, outcome)
    return outcome


NOWHERE = Unreachable("no connection")
LOST = ConnectionLost("cut")
FORBIDDEN = refused(403)


def test_a_binding_that_was_carried_out_unseen_is_never_called_refused() -> None:
    way = Way()
    way.posts = iter([done_and(LOST)])
    way.after_posts = FORBIDDEN  # as an API server answers that has just started
    way.gets = iter([NOWHERE] * 60)
    assert story(way, until_known)[0] == Bound("n1")
    assert way.sent.count("POST") == 1


def test_while_the_pod_cannot_be_asked_the_outcome_stays_unknown() -> None:
    way = Way()
    way.posts = iter([done_and(LOST)])
    way.after_posts = way.after_gets = FORBIDDEN
    outcome, seconds = story(way, bind)
    assert isinstance(outcome, Unknown)
    assert seconds > 120.0
    outcome, seconds = story(way, lambda binder: bind(binder, outcome))  # type: ignore[arg-type]
    assert isinstance(outcome, Unknown)
    assert way.sent.count("POST") == 1
    assert len(way.requests) < 200


@pytest.mark.parametrize("later", [0.5, 14.0, 58.0])
@pytest.mark.parametrize("then", [403, 422, 500])
def test_a_request_that_waits_in_the_server_counts_until_it_cannot_be_carried_out_any_more(
    later: float, then: int
) -> None:
    way = Way()
    way.posts = iter([done_after(later, AnswerTimeout("no answer"))])
    way.after_posts = refused(then)
    assert story(way, until_known)[0] == Bound("n1")


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (FORBIDDEN, Reason.FORBIDDEN),
        (refused(422), Reason.INVALID),
        (refused(500, DENIED), Reason.DENIED),
        (refused(409), Reason.CONFLICT),
        (NOWHERE, Reason.UNAVAILABLE),
        (refused(429), Reason.UNAVAILABLE),
    ],
)
def test_after_a_lost_answer_a_refusal_counts_once_it_is_final(then: KubeError, reason: Reason) -> None:
    way = Way()
    way.posts = iter([LOST])
    way.after_posts = then
    outcome, seconds = story(way, bind)
    assert isinstance(outcome, Refused)
    assert outcome.reason is reason
    assert LINGER_SECONDS <= seconds <= 130.0
    assert way.pod["spec"].get("nodeName") is None


def test_a_server_that_breaks_each_time_has_certainly_not_bound_once_the_last_request_is_over() -> None:
    way = Way()
    way.after_posts = refused(503)
    outcome, seconds = story(way, until_known)
    assert isinstance(outcome, Refused)
    assert outcome.reason is Reason.UNAVAILABLE
    assert 120.0 + LINGER_SECONDS - 6.0 <= seconds <= 120.0 + LINGER_SECONDS + 20.0
    posts = [at for at, verb in way.requests if verb == "POST"]
    assert posts[-1] <= 121.0


def test_a_fence_that_closes_in_doubt_ends_it_only_with_the_truth() -> None:
    for answer, expected in ((done_and(LOST), Bound), (LOST, Refused)):
        way, leads = Way(), iter([True])
        way.posts = iter([answer])
        outcome, seconds = story(way, until_known, fence=Fence(lambda leads=leads: next(leads, False)))
        assert isinstance(outcome, expected)
        assert way.sent.count("POST") == 1
        if isinstance(outcome, Refused):
            assert outcome.reason is Reason.NOT_LEADER
            assert seconds >= LINGER_SECONDS


@pytest.mark.parametrize("status", [400, 401, 403, 409, 422, 429, 500, 503])
@pytest.mark.parametrize("body", [DENIED, UNANSWERED], ids=["denied", "unanswered"])
def test_what_a_webhook_denies_is_refused_at_once(status: int, body: bytes) -> None:
    way = Way()
    way.after_posts = refused(status, body)
    outcome, seconds = story(way, bind)
    assert isinstance(outcome, Refused)
    assert outcome.reason is Reason.DENIED
    assert "webhook" in outcome.message
    assert seconds < 1.0
    assert way.sent == ["POST"]


def test_an_error_of_ours_before_it_was_sent_is_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    way = Way()
    way.after_posts = ValueError("before it was sent")
    outcome, seconds = story(way, bind)
    assert isinstance(outcome, Refused)
    assert outcome.reason is Reason.INTERNAL_ERROR
    assert seconds < 1.0
    assert "unexpected error while default/web was bound" in caplog.text


@pytest.mark.parametrize("was_done", [True, False])
def test_after_an_error_of_ours_the_pod_is_asked_and_bound_once(was_done: bool) -> None:
    way = Way()

    async def breaks(way: Way) -> None:
        if was_done:
            way.bind()
        raise KeyError("a fault of ours")

    way.posts = iter([breaks])
    outcome, seconds = story(way, bind)
    assert outcome == Bound("n1")
    assert seconds < 10.0
    assert way.sent.count("POST") == (1 if was_done else 2)


def test_an_error_of_ours_each_time_ends_in_a_refusal_too() -> None:
    way = Way()

    async def breaks(_: Way) -> None:
        raise KeyError("a fault of ours")

    way.after_posts = breaks
    outcome, seconds = story(way, bind)
    assert isinstance(outcome, Refused)
    assert outcome.reason is Reason.INTERNAL_ERROR
    assert LINGER_SECONDS <= seconds <= LINGER_SECONDS + 20.0
    way.after_gets = breaks
    assert isinstance(story(way, bind)[0], Unknown)


@pytest.mark.parametrize("was_done", [True, False])
def test_the_outcome_of_a_binding_can_be_read_without_a_second_attempt(was_done: bool) -> None:
    way = Way()
    if was_done:
        way.bind()

    async def settle(binder: Binder) -> Outcome:
        after = Unknown("the answer was lost", since=asyncio.get_running_loop().time())
        return await binder.settle(namespace="default", name="web", uid="uid-web", node="n1", after=after)

    outcome, seconds = story(way, settle)
    assert "POST" not in way.sent
    if was_done:
        assert outcome == Bound("n1")
    else:
        assert isinstance(outcome, Refused)
        assert seconds >= LINGER_SECONDS
