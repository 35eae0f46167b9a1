"""One HTTP/1.1 keep-alive connection: bytes out, parsed answer in. Knows no Kubernetes, no pool and no retry.

Hand-written because it is the hot path: a general client costs about 100 µs of CPU per request, this 25-30 µs.
The parsing itself is llhttp's (`httptools`), which settles chunks, lengths, 1xx answers and bad framing. An answer may
be compressed with gzip: a page of a list is 20 times smaller then, and takes a third of the processor time to receive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httptools
import msgspec

from kube_policy_scheduler.adapters.compute.inflating import GZIP, Inflater, InvalidGzip
from kube_policy_scheduler.adapters.kube.errors import AnswerTimeout, ConnectionLost, KubeError, MalformedAnswer

MAX_BODY_BYTES = 1 << 30  # a page of 500 objects at the API's own 1.5 MiB limit stays below this
STREAM_BUFFER_BYTES = 4 << 20  # reading pauses above this until the consumer has caught up


class Answer(msgspec.Struct, frozen=True):
    """A complete answer; `body` is empty for a stream that was opened."""

    status: int
    body: bytes
    retry_after: str | None = None


class Connection(asyncio.Protocol):
    """A single exchange at a time, or one stream until the connection ends."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = self._timeout_seconds = 0.0
        self._stream: Stream | None = None
        self._wants_stream = False
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._status = 0
        self._retry_after: str | None = None
        self._encoding = ""
        self._inflater: Inflater | None = None
        self._framed = False
        self._answer_began = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.reusable = False
        self.retired = False  # not to be kept after the exchange in progress
        self.idle_since = 0.0
        self.exchanges = 0

    # --- exchanges ----------------------------------------------------------------------------------

    async def exchange(self, request: bytes, *, timeout_seconds: float) -> Answer:
        """Send request and return the whole answer; afterwards `reusable` tells whether to keep the connection.

        Raises ConnectionLost, AnswerTimeout or MalformedAnswer; the connection is then closed.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionLost("connection closed before the request was sent")
        self.exchanges += 1
        self.reusable = False
        self._answer_began = False
        self._status = 0
        self._retry_after = None
        self._encoding = ""
        self._inflater = None
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        self._waiter = waiter
        self._limit(timeout_seconds)
        transport.write(request)
        try:
            return await waiter
        except BaseException:
            self.close()
            raise
        finally:
            self._waiter = None

    async def open_stream(self, request: bytes, *, timeout_seconds: float, idle_seconds: float) -> Answer | Stream:
        """Send request; return a Stream as soon as a 200 begins, any other answer whole.

        idle_seconds: the longest silence between two reads of the body.
        """
        self._wants_stream = True
        answer = await self.exchange(request, timeout_seconds=timeout_seconds)
        if self._stream is None:
            return answer
        self._stream.watch_silence(idle_seconds)
        return self._stream

    @property
    def answer_began(self) -> bool:
        """Whether any byte came back for the current exchange; if not, a kept-alive connection was just stale."""
        return self._answer_began

    def _limit(self, seconds: float) -> None:
        """Have the exchange fail after this long. The timer of an earlier one serves, too, if it fires before that."""
        self._deadline, self._timeout_seconds = self._loop.time() + seconds, seconds
        if self._timer is not None and self._timer.when() > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._expire)

    def _expire(self) -> None:
        """End an exchange that takes too long; if that is a later one than the timer was for, look again then."""
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._expire)
        else:
            self._fail(AnswerTimeout(f"no answer within {self._timeout_seconds:g} s"))

    def _fail(self, error: KubeError, cause: BaseException | None = None) -> None:
        error.__cause__ = cause
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        elif self._stream is not None:
            self._stream.finish(error)
        self.close()

    def close(self) -> None:
        """Drop the connection at once; an exchange in progress fails with ConnectionLost."""
        self.reusable = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()

    def retire(self) -> None:
        """Serve the exchange in progress, and be closed then."""
        self.retired = True

    @property
    def is_streaming(self) -> bool:
        """Whether a stream was begun on it; then it serves nothing else any more."""
        return self._wants_stream

    @property
    def is_open(self) -> bool:
        """Whether the other side is still there, as far as we know."""
        return self._transport is not None and not self._transport.is_closing()

    # --- asyncio.Protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; also called by hand after a proxy tunnel was upgraded to TLS."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse; unsolicited bytes end the connection."""
        if self._waiter is None and self._stream is None:
            self.close()
            return
        self._answer_began = True
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.close()  # answered with 101, which has failed the exchange
        except httptools.HttpParserError as error:
            self._fail(MalformedAnswer(f"the answer is not valid HTTP: {error}"), error)
        if self._stream is not None:
            self._stream.fed()

    def eof_received(self) -> None:
        """Let asyncio close the transport; `connection_lost` decides what the end means."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange: complete only if the answer had no length and the end was orderly."""
        self.reusable = False
        unframed = self._status != 0 and not self._framed and exc is None
        if self._stream is not None:
            self._stream.finish(
                None if unframed else ConnectionLost("connection closed before the answer was complete")
            )
        elif self._waiter is not None and not self._waiter.done():
            if unframed:
                self._complete()
            else:
                lost = ConnectionLost(f"connection lost before the answer was complete{_because(exc)}")
                lost.__cause__ = exc
                self._waiter.set_exception(lost)
        self._parser = None  # the parser holds us: without this the pair waits for the cyclic collector
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.closed.done():
            self.closed.set_result(None)

    # --- llhttp callbacks ---------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the few headers that matter."""
        match name.lower():
            case b"content-length" | b"transfer-encoding":
                self._framed = True
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-encoding":
                self._encoding = value.decode("latin-1").lower()

    def on_headers_complete(self) -> None:
        """Begin a stream here, if one is wanted and the server agrees."""
        assert self._parser is not None
        self._status = self._parser.get_status_code()
        if self._encoding == GZIP:
            self._inflater = Inflater()
        elif self._encoding not in ("", "identity"):
            self._fail(MalformedAnswer(f"the answer is encoded as {self._encoding}, which was not asked for"))
            return
        if self._status == 200 and self._wants_stream and self._stream is None:
            self._stream = Stream(self)
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(Answer(200, b""))

    def on_body(self, data: bytes) -> None:
        """Hand on or collect a piece of the body."""
        if self._stream is not None:
            inflated = data if self._inflater is None else self._inflated(self._inflater.inflate, data)
            if inflated is not None:
                self._stream.feed(inflated)
            return
        self._body.append(data)
        self._body_bytes += len(data)
        if self._body_bytes > MAX_BODY_BYTES:
            self._fail(_too_long())

    def _inflated(self, inflate: Callable[..., bytes], data: bytes) -> bytes | None:
        """Return what was compressed; None where it is not valid, which fails the exchange."""
        try:
            return inflate(data, most_bytes=MAX_BODY_BYTES + 1)
        except InvalidGzip as error:
            self._fail(MalformedAnswer(f"the answer is not valid gzip: {error}"), error)
            return None

    def on_message_complete(self) -> None:
        """Finish; an interim 1xx answer is passed over."""
        if self._status == 101:
            self._fail(MalformedAnswer("the server switched protocols (101 Switching Protocols)"))
            return
        if 100 <= self._status < 200:
            self._framed = False
            return
        if self._stream is not None:
            self._stream.finish(None)
            self.close()
            return
        assert self._parser is not None
        self.reusable = self._parser.should_keep_alive() and self._waiter is not None
        self._complete()

    def _complete(self) -> None:
        pieces = self._body
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if body and self._inflater is not None:  # at once: in pieces of 2 KiB, as they come, it takes twice as long
            inflated = self._inflated(self._inflater.inflate_whole, body)
            if inflated is None:
                return
            body = inflated
            if len(body) > MAX_BODY_BYTES:
                self._fail(_too_long())
                return
            if not self._inflater.is_whole:
                self._fail(MalformedAnswer("the answer is not valid gzip: it does not end where its content does"))
                return
        self._body = []
        self._body_bytes = 0
        self._framed = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(Answer(self._status, body, self._retry_after))
        else:
            self.close()

    # --- flow control for the stream ----------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading: the consumer is behind."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


class Stream:
    """The body of an endless answer. `read` returns all that has come since the last call."""

    def __init__(self, connection: Connection) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: KubeError | None = None
        self._idle_seconds = 0.0
        self._last_data = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def watch_silence(self, idle_seconds: float) -> None:
        """Fail with AnswerTimeout once nothing has arrived for idle_seconds."""
        self._idle_seconds = idle_seconds
        if not self._ended:
            self._timer = self._loop.call_later(idle_seconds, self._check_silence)

    def _check_silence(self) -> None:
        silent_seconds = self._loop.time() - self._last_data
        if silent_seconds < self._idle_seconds - 0.001 or self._paused:
            wait_seconds = self._idle_seconds if self._paused else self._idle_seconds - silent_seconds
            self._timer = self._loop.call_later(wait_seconds, self._check_silence)
            return
        self.finish(AnswerTimeout(f"nothing received for {silent_seconds:.0f} s"))
        self._connection.close()

    def feed(self, data: bytes) -> None:
        """Take a piece of the body from the connection; `fed` follows once all that came with it is taken."""
        self._pieces.append(data)
        self._buffered += len(data)

    def fed(self) -> None:
        """Wake the reader, and stop the sender if it is behind."""
        if not self._pieces:
            return
        self._last_data = self._loop.time()
        if self._buffered > STREAM_BUFFER_BYTES and not self._paused:
            self._paused = True
            self._connection.pause()
        self._wake()

    def finish(self, error: KubeError | None) -> None:
        """End the stream, in order (None) or not; what was received before remains readable. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self) -> bytes:
        """Return everything received since the last call, waiting for some; b"" at an orderly end."""
        while not self._pieces:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return b""
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        if self._paused:
            self._paused = False
            self._connection.resume()
        return data

    def close(self) -> None:
        """End the stream from our side."""
        self.finish(None)
        self._connection.close()


def _too_long() -> MalformedAnswer:
    return MalformedAnswer(f"answer longer than {MAX_BODY_BYTES >> 20} MiB")


def _because(error: BaseException | None) -> str:
    return f": {error.strerror or error}" if isinstance(error, OSError) else ""
