"""One watch of the model API server as its client sees it: in order, late, and now and then not to the end."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextvars import Context
from dataclasses import dataclass, field

from kube_policy_scheduler.adapters.kube.errors import AnswerTimeout, ConnectionLost, KubeError
from tests.simulation.api_server import ApiServer

WIRE = Context()
"""What runs in it runs on nobody's machine."""
BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
"""Before the end of a watch, as from the API server's cache."""
SLOW_BYTES_PER_SECOND = 20_000.0
"""Of a slow link; the objects here are a tenth of real ones, so this is as 64 KiB delayed by 300 ms."""
EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
WATCH_FAULTS = ("cut", "cut mid-line", "ended in order", "410 in the stream", "garbled", "silence")


@dataclass
class Line:
    """One client's way to the server; connections aside share it."""

    closed: bool = False
    is_cut: bool = False
    is_slow: bool = False
    is_stalled: bool = False
    """Whether nothing comes on connections that were open before, as after lost packets; new ones are not concerned."""
    stalled_at: float = 0.0
    streams: list[WatchStream] = field(default_factory=list)
    """All watches that were opened, the oldest first: also who reads from one that has ended waits while it is cut."""


class WatchStream:
    """What a server has to say of the changes of one kind: in order, late, and now and then not to the end."""

    def __init__(self, server: ApiServer, kind: str, line: Line, *, idle_seconds: float, seconds: float) -> None:
        """seconds: after which the server ends it in order."""
        self.kind = kind
        self._server, self._line = server, line
        self._loop = asyncio.get_running_loop()
        self._idle_seconds = idle_seconds
        self._pieces: list[bytes] = []
        self._on_its_way: deque[bytes | None] = deque()  # None: the end
        self._began = self._loop.time()
        self._ends_at = self._began + seconds
        self._last_due = 0.0
        self.is_silent = False
        self.has_ended = False
        self._error: KubeError | None = None
        self._waiter: asyncio.Future[None] | None = None
        server.streams.append(self)
        line.streams.append(self)
        self._bookmark_later()
        self._loop.call_at(self._ends_at, self.offer, None, context=WIRE)

    def offer(self, line: bytes | None, *, lag_seconds: float | None = None) -> None:
        """Send a line, or None for the end.

        It arrives after those before it, at most so late, or as late as the server's lines are.
        """
        if self.has_ended or self.is_silent:
            return
        random, lag = self._server.random, self._server.lag_seconds if lag_seconds is None else lag_seconds
        self._last_due = max(self._last_due, self._loop.time() + random.random() * lag)
        if self._line.is_slow and line is not None:
            self._last_due += len(line) / SLOW_BYTES_PER_SECOND
            self._server.met["watch: slow link"] += 1
        self._on_its_way.append(line)
        self._loop.call_at(self._last_due, self._arrive_next, context=WIRE)

    def spoil(self, fault: str) -> None:
        """Let one of WATCH_FAULTS happen now."""
        if self.has_ended or self.is_silent:
            return
        self._server.met[f"watch: {fault}"] += 1
        match fault:
            case "cut":
                self._end(ConnectionLost("cut"))
            case "cut mid-line":
                line = self._server.last_line(self.kind)
                self._arrive(line[: len(line) // 2])
                self._end(ConnectionLost("cut"))
            case "ended in order":
                self._end(None)
            case "410 in the stream":
                self._arrive(EXPIRED)
                self._end(None)
            case "garbled":
                self._arrive(b'{"type":"MODIFIED","obj\n')
            case "silence":
                self.is_silent = True
                self._loop.call_later(
                    self._idle_seconds, self._end, AnswerTimeout("nothing was received"), context=WIRE
                )
            case _:
                raise AssertionError(fault)

    async def read(self) -> bytes:
        """Return everything received since the last call, waiting for some; b"" at an orderly end."""
        while not self._pieces or self._waits:
            if self.has_ended and not self._waits:
                if self._error is not None:
                    raise self._error
                return b""
            self._waiter = self._loop.create_future()
            await self._waiter
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    @property
    def _waits(self) -> bool:
        return self._line.is_cut or (self._line.is_stalled and self._began < self._line.stalled_at)

    def wake(self) -> None:
        """Have the reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """End the stream from the client's side."""
        self._end(None)

    def _arrive_next(self) -> None:
        line = self._on_its_way.popleft()
        if line is None:
            self._end(None)
        else:
            self._arrive(line)

    def _arrive(self, data: bytes) -> None:
        if not self.has_ended:
            self._pieces.append(data)
            self.wake()

    def _end(self, error: KubeError | None) -> None:
        if not self.has_ended:
            self.has_ended, self._error = True, error
            self._server.streams.remove(self)
            self.wake()

    def _bookmark_later(self) -> None:
        now = self._loop.time()
        last = self._ends_at - LAST_BOOKMARK_SECONDS
        due = now + BOOKMARK_SECONDS
        self._loop.call_at(last if now < last < due else due, self._bookmark, context=WIRE)

    def _bookmark(self) -> None:
        if not self.has_ended:
            version = str(self._server.version)
            bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
            self.offer(json.dumps(bookmark).encode() + b"\n")
            self._bookmark_later()
