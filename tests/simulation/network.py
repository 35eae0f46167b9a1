"""The way to the model of an API server, in place of a Transport: all its faults occur, and are counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from kube_policy_scheduler.adapters.kube.client import Request
from kube_policy_scheduler.adapters.kube.errors import (
    AnswerTimeout,
    ConnectionLost,
    Fenced,
    Gone,
    KubeError,
    MalformedAnswer,
    UnknownOutcome,
    Unreachable,
    error_from_answer,
)
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.throttle import Throttle
from tests.simulation.api_server import ApiServer, denial, refusal
from tests.simulation.watch_stream import EXPIRED, SLOW_BYTES_PER_SECOND, WATCH_FAULTS, WIRE, Line, WatchStream

ONE_WAY_SECONDS = 0.1
"""At most, without a fault."""
REQUEST_FAULTS = (
    "unreachable",
    "409",
    "429 with Retry-After",
    "429 by a webhook",
    "500 before it was done",
    "500 after it was done",
    "request lost",
    "answer lost",
    "answer garbled",
    "slow",
    "time-out, not done",
    "time-out, done",
    "time-out, done later",
)


OUR_FAULTS = ("error of ours, not sent", "error of ours, done")
"""Of what sends requests about single pods: errors that nobody has foreseen."""


class OurFaultError(RuntimeError):
    """A drawn error of ours."""


class Connection:
    """Sends requests and opens watches, as `Transport` does."""

    def __init__(
        self,
        server: ApiServer,
        *,
        sending: Callable[[str, str], None] = lambda verb, path: None,
        unreachable: Callable[[], None] = lambda: None,
        line: Line | None = None,
    ) -> None:
        """Set up.

        Args:
            server: at the other end.
            sending: called with verb and path of each request when its bytes are sent.
            unreachable: called for each request without a connection.
            line: shared with other connections.
        """
        self._server = server
        self._sending = sending
        self._unreachable = unreachable
        self._line = line or Line()
        self._begun: set[asyncio.Task[None]] = set()
        self._throttle = Throttle()
        self.is_reachable = True
        self._is_back = asyncio.Event()
        self.cut_until = 0.0
        """Event loop's time at which the cut ends."""
        self.takes_requests = True
        """Without, each is told that there is no connection; watches that are open go on."""
        self.plan: Callable[[str, str], str] = lambda verb, path: ""
        """What is to go wrong with a request, by its verb and path; "" leaves that to chance."""

    def dedicated(self) -> Connection:
        """Return another connection on the same line, which waits for nothing on this one."""
        beside = Connection(self._server, sending=self._sending, unreachable=self._unreachable, line=self._line)
        beside.plan = lambda verb, path: self.plan(verb, path)
        return beside

    async def pause(self, seconds: float) -> None:
        """Sleep, but no longer than until a server that was unreachable is reachable again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_back.wait()

    def close(self) -> None:
        """Return no responses from now on: the client is gone. Requests under way still arrive."""
        self._line.closed = True
        for stream in list(self._line.streams):
            stream.close()

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through; what the server has to say of changes waits meanwhile."""
        return self._line.is_cut

    @is_cut.setter
    def is_cut(self, value: bool) -> None:
        self._line.is_cut = value
        if not value:
            for stream in list(self._line.streams):
                stream.wake()

    def stall(self, seconds: float) -> None:
        """Let watches that are open say nothing for so long."""
        loop = asyncio.get_running_loop()
        self._line.is_stalled, self._line.stalled_at = True, loop.time()
        loop.call_later(seconds, self._flow, context=WIRE)

    def _flow(self) -> None:
        self._line.is_stalled = False
        for stream in list(self._line.streams):
            stream.wake()

    @property
    def is_slow(self) -> bool:
        """Whether what the server sends comes drop by drop."""
        return self._line.is_slow

    @is_slow.setter
    def is_slow(self, value: bool) -> None:
        self._line.is_slow = value

    @property
    def hears_all(self) -> bool:
        """Whether the server's lines come through, as far as this end could ever know."""
        return not (self.is_cut or self.is_slow or any(stream.is_silent for stream in self.streams))

    @property
    def streams(self) -> list[WatchStream]:
        """The open watches, the oldest first."""
        return [stream for stream in self._line.streams if not stream.has_ended]

    # --- requests -------------------------------------------------------------------------------------

    may_begin = True

    def begin(self, request: Request, done: Callable[[bytes | KubeError], None]) -> bool:
        """Send a request without a task of the sender, or say that one is needed."""
        if self._server.random.random() < 0.25:
            return False

        async def carry_out() -> None:
            asked = {"body": request.body, "resource": request.resource, "timeout_seconds": request.timeout_seconds}
            try:
                outcome: bytes | KubeError = await self.request(
                    request.verb, request.path, fence=request.fence, **asked
                )
            except KubeError as error:
                outcome = error
            except OurFaultError as error:
                outcome = UnknownOutcome(str(error))
            if not self._line.closed:
                done(outcome)

        self._begun.add(task := asyncio.get_running_loop().create_task(carry_out()))
        task.add_done_callback(self._begun.discard)
        return True

    async def request(
        self,
        verb: str,
        path: str,
        *,
        body: bytes = b"",
        resource: str = "",
        timeout_seconds: float = 30.0,
        fence: Fence | None = None,
        **_: Any,
    ) -> bytes:
        """Send a request."""
        server, loop = self._server, asyncio.get_running_loop()
        random = server.random
        asked = "binding" if resource == "pods/binding" else "pod" if "/pods/" in path else "request"
        faults = REQUEST_FAULTS if asked == "request" else (*REQUEST_FAULTS, *OUR_FAULTS)
        kind = f"{verb} {resource}"
        fault = await self._begin(asked, faults, kind=kind, planned=self.plan(verb, path))
        if fault == "error of ours, not sent":
            server.met[f"{asked}: {fault}"] += 1
            raise OurFaultError("drawn, before it was sent")
        if fence is not None and not fence.allows():
            raise Fenced("may not send")
        self._sending(verb, path)
        if fault:
            server.met[f"{asked}: {fault}"] += 1
        answer: asyncio.Future[bytes] = loop.create_future()

        def settle(result: bytes | Exception) -> None:
            if answer.done() or self._line.closed:
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def arrive() -> None:
            if fault == "time-out, done later" and (self._line.closed or not (fence is None or fence.allows())):
                # The sender has hung up, and leads no more: what the server carries out in the term of another leader
                # can be fenced off by nobody, as a binding has no token.
                return
            result = self._result(fault, verb, path, body, kind=kind)
            if result is not None:
                seconds = random.random() * (10 if fault == "slow" else ONE_WAY_SECONDS)
                if self._line.is_slow and isinstance(result, bytes):
                    seconds += len(result) / SLOW_BYTES_PER_SECOND
                loop.call_later(seconds, settle, result, context=WIRE)

        if fault.startswith("time-out") or fault == "slow":  # all others are answered long before
            loop.call_later(timeout_seconds, settle, AnswerTimeout("no answer in time"), context=WIRE)
        if fault != "time-out, not done":
            late = timeout_seconds + 5 * random.random() if fault == "time-out, done later" else 0.0
            loop.call_later(late + random.random() * ONE_WAY_SECONDS, arrive, context=WIRE)
        return await answer

    def _result(self, fault: str, verb: str, path: str, body: bytes, *, kind: str) -> bytes | Exception | None:
        """Return what the server answers, None where nothing ever comes back."""
        match fault:
            case "409":
                return refusal(409, "the object has been modified")
            case "429 with Retry-After":
                seconds = float(self._server.random.choice((0, 1, 5)))
                self._throttle.pause(kind, seconds)
                return error_from_answer(
                    429, b"Too many requests, please try again later.", retry_after_seconds=seconds
                )
            case "429 by a webhook":
                return denial(429, retry_after_seconds=5.0)
            case "500 before it was done":
                return refusal(500, "it broke")
            case "request lost":
                return ConnectionLost("cut")
        try:
            result: bytes | Exception = self._server.answer(verb, path, body)
        except KubeError as error:
            result = error
        match fault:
            case "500 after it was done":
                return refusal(500, "it broke late")
            case "answer lost":
                return ConnectionLost("cut")
            case "error of ours, done":
                return OurFaultError("drawn, after it was done")
            case "answer garbled":
                return MalformedAnswer("no JSON")
            case "time-out, done":
                return None
        return result

    async def _begin(self, asked: str, faults: tuple[str, ...], *, kind: str, planned: str = "") -> str:
        """Wait until a request may be sent; return what is to go wrong with it, "" for nothing."""
        server = self._server
        await self._throttle.wait(kind)
        fault = planned or server.draw_fault(asked, faults)
        if self._line.closed:
            await asyncio.get_running_loop().create_future()
        takes_any = self.takes_requests and not self.is_cut and not server.is_down
        was_reachable, self.is_reachable = self.is_reachable, takes_any and fault != "unreachable"
        if self.is_reachable and not was_reachable:
            self._is_back.set()
            self._is_back = asyncio.Event()
        if not self.is_reachable:
            server.met[f"{asked}: unreachable"] += 1
            await asyncio.sleep(server.random.random() * ONE_WAY_SECONDS)
            self._unreachable()
            raise Unreachable("no connection")
        return fault

    # --- watches --------------------------------------------------------------------------------------

    async def open_stream(self, path: str, *, resource: str, idle_seconds: float, **_: Any) -> WatchStream:
        """Open a watch."""
        server = self._server
        fault = await self._begin("watch", ("unreachable", "time-out", "429", *WATCH_FAULTS), kind="WATCH")
        await asyncio.sleep(server.random.random() * ONE_WAY_SECONDS)
        if fault == "time-out":
            server.met["watch: time-out"] += 1
            await asyncio.sleep(5.0)
            raise AnswerTimeout("no answer in time")
        if fault == "429":
            server.met["watch: 429"] += 1
            raise refusal(429, "storage is (re)initializing", retry_after_seconds=1.0)
        if not server.knows_roles:
            server.met["403 after a restart"] += 1
            raise refusal(403, "no RBAC policy matched")
        query = dict(pair.split("=", 1) for pair in path.partition("?")[2].split("&"))
        seconds = float(query.get("timeoutSeconds", 1800))
        stream = WatchStream(server, resource, self._line, idle_seconds=idle_seconds, seconds=seconds)
        try:
            missed = server.since(resource, query.get("resourceVersion"))
        except Gone:  # the answer is 200, and an event; it comes when the server has looked
            server.met["watch: 410"] += 1
            stream.offer(EXPIRED, lag_seconds=server.random.choice((0.02, 1.0)))
            stream.offer(None)
            return stream
        for line in missed:  # what happened meanwhile comes right behind the answer's head
            stream.offer(line, lag_seconds=0.02)
        if fault:
            seconds = 20 * server.random.random()
            asyncio.get_running_loop().call_later(seconds, stream.spoil, fault, context=WIRE)
        return stream
