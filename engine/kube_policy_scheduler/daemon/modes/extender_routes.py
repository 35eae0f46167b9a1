"""The extender's verbs over HTTP: bodies of bounded size in, messages of the protocol out. Decides nothing.

kube-scheduler shows a person nothing of an answer that is not 200, so what went wrong stands in the `Error` of a
message wherever the protocol has one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from aiohttp import web

from kube_policy_scheduler.adapters.http.extender_protocol import (
    read_binding,
    read_nodes,
    read_preemption,
    write_binding,
    write_error,
    write_filtered,
    write_preemption,
    write_priorities,
)
from kube_policy_scheduler.adapters.http.server import Handler
from kube_policy_scheduler.daemon.modes.extender import Extender, NotReadyError
from kube_policy_scheduler.daemon.observing.metrics import ExtenderMetrics

logger = logging.getLogger(__name__)

LARGE_BYTES = 1 << 20
"""From here on a body is decoded and an answer written in a thread: it takes milliseconds."""
JSON = "application/json"
OPEN_TO_ALL = (
    "everybody who can connect could bind pods: to use `bind`, set http.tls.clientCaFile or http.authentication"
)
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class _TooLarge(Exception):
    """A body is over its limit."""


class _Busy(Exception):
    """Too many large bodies at the same time."""


class ExtenderRoutes:
    """POST handlers, one per verb."""

    def __init__(self, extender: Extender, *, metrics: ExtenderMetrics, max_bytes: int, binds: bool = True) -> None:
        """Make them.

        Args:
            extender: answers.
            metrics: counts.
            max_bytes: of one body; all that are being read at the same time may have twice as many.
            binds: whether `bind` is carried out: not for clients that are not authenticated.
        """
        self._binds = binds
        self._extender = extender
        self._metrics = metrics
        self._max_bytes = max_bytes
        self._held_bytes = 0

    def handlers(self, path: str) -> dict[str, Handler]:
        """Return the handlers by path, under a prefix."""
        verbs = {"filter": self._filter, "prioritize": self._prioritize, "preempt": self._preempt, "bind": self._bind}
        return {f"{path}/{verb}": self._handler(verb, answer) for verb, answer in verbs.items()}

    def _handler(self, verb: str, answer: Callable[[bytes], Awaitable[bytes]]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            try:
                with self._hold() as grow:
                    body = await self._read(request, grow)
                    began = time.perf_counter()
                    written = await answer(body)
                    self._metrics.seconds.labels(verb).observe(time.perf_counter() - began)
            except _TooLarge:
                limit = f"{self._max_bytes} bytes (extender.maxRequestMebibytes)"
                return self._refused(verb, 413, f"the body has more than {limit}")
            except _Busy:
                return self._refused(verb, 503, "too many large requests at the same time")
            except NotReadyError as error:
                return self._refused(verb, 503, str(error))
            except ValueError as error:  # no message of the protocol, or a pod that cannot be, as with cpu: "a lot"
                return self._refused(verb, 400, str(error))
            except Exception:
                logger.exception("%s broke", verb)
                return self._refused(verb, 500, "internal error; see the policy scheduler's log")
            return web.Response(body=written, content_type=JSON)

        return handle

    def _refused(self, verb: str, code: int, text: str) -> web.Response:
        self._metrics.requests.labels(verb, "error").inc()
        logger.warning("extender request rejected", extra={"verb": verb, "code": code, "why": text})
        return web.Response(status=code, text=f"{text}\n")

    @contextmanager
    def _hold(self) -> Iterator[Callable[[int], None]]:
        """Yield what to tell of each piece of a body that is kept."""
        held = 0

        def grow(size: int) -> None:
            nonlocal held
            held += size
            self._held_bytes += size
            if held > self._max_bytes:
                raise _TooLarge
            if self._held_bytes > 2 * self._max_bytes:
                raise _Busy

        try:
            yield grow
        finally:
            self._held_bytes -= held

    async def _read(self, request: web.Request, grow: Callable[[int], None]) -> bytes:
        announced = request.content_length or 0
        if announced > self._max_bytes:
            raise _TooLarge
        pieces = []
        async for piece in request.content.iter_any():
            grow(len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    # --- the verbs -----------------------------------------------------------------------------------

    async def _filter(self, body: bytes) -> bytes:
        request = await _aside(read_nodes, body, when=len(body))
        answer = self._extender.filter(request)
        if answer.error:
            result = "error"
        else:
            result = _part(len(answer.passed), len(request.names))
        self._metrics.requests.labels("filter", result).inc()
        if answer.error:
            return write_error(answer.error)
        return await _aside(lambda given: write_filtered(given, answer), request, when=len(body))

    async def _prioritize(self, body: bytes) -> bytes:
        request = await _aside(read_nodes, body, when=len(body))
        scores = self._extender.prioritize(request)
        self._metrics.requests.labels("prioritize", "scored" if any(scores) else "indifferent").inc()
        return write_priorities(request.names, scores)

    async def _preempt(self, body: bytes) -> bytes:
        request = await _aside(read_preemption, body, when=len(body))
        found = self._extender.preempt(request)
        self._metrics.requests.labels("preempt", _part(len(found), len(request.victims))).inc()
        return write_preemption(found)

    async def _bind(self, body: bytes) -> bytes:
        asked = read_binding(body)
        why = await self._extender.bind(asked) if self._binds else OPEN_TO_ALL
        self._metrics.requests.labels("bind", "failed" if why else "bound").inc()
        return write_binding(why)


async def _aside(work: Callable[[_Given], _Made], given: _Given, *, when: int) -> _Made:
    """Do work on something large in a thread, on something small at once."""
    return await asyncio.to_thread(work, given) if when >= LARGE_BYTES else work(given)


def _part(passed: int, asked: int) -> str:
    if passed == asked:
        return "passed"
    return "narrowed" if passed else "rejected"
