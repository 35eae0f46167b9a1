"""One HTTP/2 connection (RFC 9113) to an API server: many small writes at a time, each a stream with its own outcome.

Hand-written because it is the hot path: a binding costs a third of the processor time that it takes over HTTP/1.1, most
of all because requests of one turn of the event loop go out in one write. What makes it small:

- A request is one HEADERS and one DATA frame. Larger bodies go over HTTP/1.1, so nothing waits in the middle of one.
- Header fields that each request has are in the server's table from the first request on, and a byte each then.
- The server's answers use no table (SETTINGS_HEADER_TABLE_SIZE 0), so that a success is known by its first bytes.
  `hpack` reads all other answers.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.adapters.kube.client import JSON, Request
from kube_policy_scheduler.adapters.kube.connection import Answer
from kube_policy_scheduler.adapters.kube.errors import (
    AnswerTimeout,
    ConnectionLost,
    Fenced,
    KubeError,
    MalformedAnswer,
    Unreachable,
)

logger = logging.getLogger(__name__)

MOST_SENT_BYTES = 16_384
"""Of a body: what one frame carries with every peer."""
MOST_BODY_BYTES = 8 << 20
"""Of one answer; the API's own limit of an object is 3 MiB."""
MOST_BODIES_BYTES = 64 << 20
"""Of all answers that have begun to arrive."""
MOST_HEADER_BYTES = 256 << 10
"""Of the header block of one answer."""
STREAM_WINDOW, CONNECTION_WINDOW = 1 << 20, 16 << 20
"""Bytes that the server may send before we have said that we took them."""
MOST_REPEATS = 3
"""How often a request is sent again of which the server said that it did not look at it."""
LAST_STREAM = 2**31 - 1
SILENCE_CHECK_SECONDS = 1.0
"""How often the deadlines of what was sent are looked at."""

_FRAME_HEAD = Struct(">IBI")
"""Length and kind in one number, flags, stream."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_TABLE_SIZE, _ENABLE_PUSH, _MOST_STREAMS, _INITIAL_WINDOW, _HEADER_LIST = 1, 2, 3, 4, 6
_REFUSED_STREAM, _CANCEL = 0x7, 0x8
_TABLE_EMPTIED = 0x20
"""First byte of a header block that sets the size of the table to 0 (RFC 7541, 6.3)."""
_STATUS_FIRST = frozenset((*range(0x08, 0x0F), *range(0x18, 0x1F)))
"""First bytes of a literal whose name is `:status`: entries 8 to 14 of the static table (RFC 7541, 6.2.2 and 6.2.3)."""
_CREATED = (b"\x82\x10\x03", b"\x03201")
"""The text 201 with and without Huffman coding."""
_OK = b"\x88"
_FIRST_INDEX = 62
_ENTRY_BYTES = 32
"""What an entry of the table counts beside its texts (RFC 7541, 4.1)."""
_DEFAULT_TABLE = 4_096

Done: TypeAlias = Callable[["Answer | KubeError"], None]


class FrameKind:
    """The kinds of frames (RFC 9113, 6), as the numbers that are compared for each frame."""

    DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
        0, 1, 3, 4, 5, 6, 7, 8, 9,
    )  # fmt: skip


class ExchangeState(enum.Enum):
    """What became of a request so far."""

    WAITING = "waiting"
    SENT = "sent"
    SETTLED = "settled"
    """It ended: the sender has its outcome, or does not wait for it any more."""


class Exchange:
    """One request and who wants to know its outcome."""

    __slots__ = ("bodies", "body_bytes", "deadline", "done", "repeats", "request", "retry_after", "since", "standing",
                 "status")  # fmt: skip

    def __init__(self, request: Request, done: Done) -> None:
        """done: told the answer, or why there is none, once."""
        self.request = request
        self.done = done
        self.standing = ExchangeState.WAITING
        self.repeats = 0
        self.since = self.deadline = 0.0
        """Event loop's time at which it was sent, and until which its answer is awaited."""
        self.status = 0
        self.retry_after: str | None = None
        self.bodies: list[bytes] = []
        self.body_bytes = 0

    def settle(self, outcome: Answer | KubeError) -> None:
        """Pass the outcome to the sender; a second outcome is ignored."""
        if self.standing is not ExchangeState.SETTLED:
            self.standing = ExchangeState.SETTLED
            try:
                self.done(outcome)
            except Exception:  # it must not cost the other requests their connection
                logger.exception("unexpected error after %s", self.request.place)

    def drop(self) -> None:
        """Tell nobody: nobody waits for it any more."""
        self.standing = ExchangeState.SETTLED

    def begin_again(self) -> None:
        """Forget what was received: it is sent once more."""
        self.standing = ExchangeState.WAITING
        self.repeats += 1
        self.status, self.retry_after, self.bodies, self.body_bytes = 0, None, [], 0


class Head(msgspec.Struct, frozen=True):
    """What each request begins with: scheme, authority, and the header fields of the client."""

    authority: str
    prefix: str
    """Of every path."""
    fields: tuple[tuple[str, str], ...]
    """With names in lower case."""

    @property
    def entries(self) -> tuple[tuple[str, str], ...]:
        """Return the fields that are kept in the server's table, in the order in which they are sent."""
        return (
            (":authority", self.authority),
            ("accept", JSON),
            ("content-type", JSON),
            *self.fields,
        )

    @property
    def table_bytes(self) -> int:
        """Return what they take there."""
        return sum(len(name) + len(value) + _ENTRY_BYTES for name, value in self.entries)


class Http2Connection(asyncio.Protocol):
    """A connection with many requests at a time.

    What waits to be sent is its owner's: the connection takes from `waiting` what the server allows, and puts back what
    the server has not looked at.
    """

    def __init__(
        self, head: Head, waiting: deque[Exchange], *, most_streams: int, on_change: Callable[[], None]
    ) -> None:
        """Set up; usable after the handshake.

        Args:
            head: of each request.
            waiting: exchanges to be sent, the next one first.
            most_streams: requests at a time, even if the server would allow more.
            on_change: called when it takes no more requests, is lost, or has room again.
        """
        self._loop = asyncio.get_running_loop()
        self.head = head
        self._writer = _HeadWriter(head)
        self._waiting = waiting
        self._most_streams = most_streams
        self._on_change = on_change
        self._transport: asyncio.Transport | None = None
        self._exchanges: dict[int, Exchange] = {}
        """By stream."""
        self._next_stream = 1
        self._last_stream = LAST_STREAM
        """The last one that the server looks at."""
        self._peer_streams = self._window = 0
        """What the server allows: streams at a time, and bytes of bodies."""
        self._set_up: asyncio.Future[None] = self._loop.create_future()
        """Done once the server's settings are known; nothing is sent before."""
        self._is_full = False
        """Whether the socket takes no more."""
        self._flushes = False
        self._rest = b""
        """The beginning of a frame that has not come whole."""
        self._block: tuple[int, int, bytearray] | None = None
        """Stream, flags and beginning of a header block that goes on in further frames."""
        self._answers = _AnswerHeads()
        self._unacknowledged = 0
        self._bodies_bytes = 0
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._error: KubeError | None = None
        self.retired = False
        self.is_up = False
        """Whether it is set up, and not known to end: each request asks several times, and `takes_more` costs more."""
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # --- what its owner asks ---------------------------------------------------------------------------

    @property
    def is_streaming(self) -> bool:
        """Whether it is the endless answer of a watch: never."""
        return False

    @property
    def takes_more(self) -> bool:
        """Whether what waits will be sent over it."""
        return not self.retired and self._transport is not None and not self._transport.is_closing()

    @property
    def is_set_up(self) -> bool:
        """Whether the server's settings are known."""
        return self._set_up.done()

    @property
    def speaks(self) -> bool:
        """Whether the server agreed to HTTP/2 in the TLS handshake."""
        connected = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return connected is not None and connected.selected_alpn_protocol() == "h2"

    def __len__(self) -> int:
        """Return how many requests have been sent and not answered."""
        return len(self._exchanges)

    async def begin(self, *, timeout_seconds: float) -> None:
        """Exchange settings; `speaks` holds. Nothing is sent before, so a failure is Unreachable."""
        if self._transport is None:
            raise Unreachable("connection closed during the handshake")
        settings = ((_TABLE_SIZE, 0), (_ENABLE_PUSH, 0), (_INITIAL_WINDOW, STREAM_WINDOW), (_HEADER_LIST, 64 << 10))
        payload = b"".join(key.to_bytes(2) + value.to_bytes(4) for key, value in settings)
        more = (CONNECTION_WINDOW - 65_535).to_bytes(4)
        self._window = 65_535
        self._transport.write(
            _PREFACE + _frame(FrameKind.SETTINGS, 0, 0, payload) + _frame(FrameKind.WINDOW_UPDATE, 0, 0, more)
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.wait((self._set_up, self.closed), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass
        if not self.is_set_up or not self.takes_more:
            self.close()
            raise Unreachable("the server opened a connection and took no request")

    def flush_soon(self) -> None:
        """Send what waits, together with what comes until then: at the end of this turn of the event loop."""
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush)

    def _take_no_more(self) -> None:
        self.retired, self.is_up = True, False

    def retire(self) -> None:
        """Take no more requests, and close once those that were sent are answered."""
        self._take_no_more()
        if not self._exchanges:
            self.close()

    def close(self) -> None:
        """Drop the connection; what was sent fails with ConnectionLost."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()

    # --- sending -----------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write what waits, as far as the server allows. Fences are asked here, right before the bytes go out."""
        self._flushes = False
        if not self._set_up.done() or self._is_full or not self.takes_more:
            return
        now, frames = self._loop.time(), list[bytes]()
        while self._waiting and len(self._exchanges) < self._peer_streams:
            exchange = self._waiting[0]
            if exchange.standing is ExchangeState.SETTLED:  # nobody waits for it any more
                self._waiting.popleft()
                continue
            if len(exchange.request.body) > self._window:
                break  # until the server has taken more
            self._waiting.popleft()
            try:
                exchange.request.check_fence()
                frames.append(self._frames_of(exchange, now))
            except Fenced as error:
                exchange.settle(error)
            except Exception as error:  # it must not cost the others their turn
                logger.exception("unexpected error before %s", exchange.request.place)
                exchange.settle(Fenced(f"{exchange.request.place} was withheld: internal error: {error!r}"))
        if not frames:
            return
        assert self._transport is not None
        self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if self._timer is None:
            self._timer = self._loop.call_later(SILENCE_CHECK_SECONDS, self._check_deadlines)
        if self._next_stream >= LAST_STREAM - 2:
            self.retire()
            self._on_change()

    def _frames_of(self, exchange: Exchange, now: float) -> bytes:
        stream, request = self._next_stream, exchange.request
        block, body = self._writer.block(request), request.body
        self._next_stream += 2
        self._exchanges[stream] = exchange
        exchange.standing = ExchangeState.SENT
        exchange.since, exchange.deadline = now, now + request.timeout_seconds
        length = len(body)
        self._window -= length
        place = stream.to_bytes(4)
        if not length:
            return b"%b\x01\x05%b%b" % (len(block).to_bytes(3), place, block)
        return b"%b\x01\x04%b%b%b\x00\x01%b%b" % (
            len(block).to_bytes(3), place, block, length.to_bytes(3), place, body,
        )  # fmt: skip

    def cancel(self, exchange: Exchange) -> None:
        """Give up an exchange: nobody waits for it any more."""
        if exchange.standing is ExchangeState.SENT:
            self._reset(next((stream for stream, each in self._exchanges.items() if each is exchange), 0))
        exchange.drop()

    def _reset(self, stream: int) -> None:
        exchange = self._exchanges.pop(stream, None)
        if exchange is not None:
            self._bodies_bytes -= exchange.body_bytes
            if self._transport is not None:
                self._transport.write(_frame(FrameKind.RST_STREAM, 0, stream, _CANCEL.to_bytes(4)))

    def _check_deadlines(self) -> None:
        """Give up what takes too long; if nothing at all was heard since it was sent, the connection is dead."""
        self._timer = None
        now = self._loop.time()
        late = [(stream, exchange) for stream, exchange in self._exchanges.items() if exchange.deadline <= now]
        is_dead = any(self._heard_at <= exchange.since for _, exchange in late)
        for stream, exchange in late:
            self._reset(stream)
            exchange.settle(AnswerTimeout(f"no answer within {exchange.request.timeout_seconds:g} s"))
        if is_dead:
            self.close()
        elif self._exchanges:
            self._timer = self._loop.call_later(SILENCE_CHECK_SECONDS, self._check_deadlines)
        self._has_room()

    # --- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; also called by hand after a proxy tunnel was upgraded to TLS."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def pause_writing(self) -> None:
        """Send nothing: the socket is full."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Send again."""
        self._is_full = False
        self._has_room()

    def data_received(self, data: bytes) -> None:
        """Read the frames that are whole."""
        self._heard_at = self._loop.time()
        received = self._rest + data if self._rest else data
        at, size = 0, len(received)
        self._flushes = True  # what follows from the answers goes out in one write, below
        try:
            while size - at >= 9:
                length_and_kind, flags, stream = _FRAME_HEAD.unpack_from(received, at)
                length = length_and_kind >> 8
                if length > MOST_SENT_BYTES:
                    raise _Malformed("the server sends frames that are too long")
                end = at + 9 + length
                if size < end:
                    break
                self._take(length_and_kind & 0xFF, flags, stream & LAST_STREAM, received[at + 9 : end])
                at = end
        except _Malformed as error:
            self._fail(MalformedAnswer(f"the answer is not valid HTTP/2: {error}"))
            return
        self._rest = received[at:]
        self._flush()
        if self.retired and not self._exchanges:
            self.close()

    def eof_received(self) -> None:
        """Let asyncio close the transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all that were sent that their outcome is unknown."""
        self._take_no_more()
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        because = f": {exc.strerror or exc}" if isinstance(exc, OSError) else ""
        exchanges, self._exchanges = list(self._exchanges.values()), {}
        for exchange in exchanges:
            error = self._error or ConnectionLost(f"connection lost before the answer was complete{because}")
            again = type(error)(str(error))
            again.__cause__ = exc
            exchange.settle(again)
        if not self.closed.done():
            self.closed.set_result(None)
        self._on_change()

    def _fail(self, error: KubeError) -> None:
        self._error = error
        self.close()

    def _has_room(self) -> None:
        if self.retired and not self._exchanges:
            self.close()
        elif self._waiting:
            self.flush_soon()

    # --- frames ------------------------------------------------------------------------------------------

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block is not None and kind != FrameKind.CONTINUATION:
            raise _Malformed("a header block is interrupted")
        match kind:
            case FrameKind.HEADERS:
                if flags & (_PADDED | _PRIORITY):
                    payload = _unpadded(payload, flags, has_priority=True)
                if flags & _END_HEADERS:
                    self._take_head(stream, flags, payload)
                else:
                    self._block = stream, flags, bytearray(payload)
            case FrameKind.DATA:
                self._take_data(stream, flags, payload)
            case FrameKind.WINDOW_UPDATE:
                self._take_window(stream, payload)
            case FrameKind.SETTINGS:
                self._take_settings(flags, payload)
            case FrameKind.RST_STREAM:
                self._take_reset(stream, int.from_bytes(payload))
            case FrameKind.GOAWAY:
                self._take_goaway(payload)
            case FrameKind.PING:
                if not flags & _ACK and self._transport is not None:
                    self._transport.write(_frame(FrameKind.PING, _ACK, 0, payload))
            case FrameKind.CONTINUATION:
                self._go_on_with_block(stream, flags, payload)
            case FrameKind.PUSH_PROMISE:
                raise _Malformed("the server pushes, which was not asked for")
            case _:
                pass  # unknown kinds are passed over (RFC 9113, 5.5)

    def _go_on_with_block(self, stream: int, flags: int, more: bytes) -> None:
        if self._block is None or self._block[0] != stream:
            raise _Malformed("a header block goes on that did not begin")
        _, first_flags, block = self._block
        block += more
        if len(block) > MOST_HEADER_BYTES:
            raise _Malformed("the headers of an answer are too long")
        if flags & _END_HEADERS:
            self._block = None
            self._take_head(stream, first_flags, bytes(block))

    def _take_head(self, stream: int, flags: int, block: bytes) -> None:
        status, retry_after = self._answers.read(block)
        exchange = self._exchanges.get(stream)
        if exchange is None:
            return  # given up meanwhile
        if not exchange.status:
            if 100 <= status < 200:
                return  # another one follows
            if not status:
                raise _Malformed("an answer has no status")
            exchange.status, exchange.retry_after = status, retry_after
        if flags & _END_STREAM:
            self._complete(stream, exchange)

    def _take_data(self, stream: int, flags: int, payload: bytes) -> None:
        self._unacknowledged += len(payload)
        if self._unacknowledged >= CONNECTION_WINDOW // 2 and self._transport is not None:
            self._transport.write(_frame(FrameKind.WINDOW_UPDATE, 0, 0, self._unacknowledged.to_bytes(4)))
            self._unacknowledged = 0
        exchange = self._exchanges.get(stream)
        if exchange is None:
            return
        data = _unpadded(payload, flags, has_priority=False) if flags & _PADDED else payload
        exchange.bodies.append(data)
        exchange.body_bytes += len(data)
        self._bodies_bytes += len(data)
        if self._bodies_bytes > MOST_BODIES_BYTES:
            raise _Malformed("the answers are too long together")
        if flags & _END_STREAM:
            self._complete(stream, exchange)
        elif exchange.body_bytes > MOST_BODY_BYTES:
            self._reset(stream)
            exchange.settle(MalformedAnswer(f"answer longer than {MOST_BODY_BYTES >> 20} MiB"))
        elif exchange.body_bytes >= STREAM_WINDOW // 2 and self._transport is not None:
            self._transport.write(_frame(FrameKind.WINDOW_UPDATE, 0, stream, len(payload).to_bytes(4)))

    def _complete(self, stream: int, exchange: Exchange) -> None:
        if not exchange.status:
            raise _Malformed("an answer begins with its body")
        del self._exchanges[stream]
        self._bodies_bytes -= exchange.body_bytes
        bodies = exchange.bodies
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        exchange.settle(Answer(exchange.status, body, exchange.retry_after))

    def _take_window(self, stream: int, payload: bytes) -> None:
        more = int.from_bytes(payload) & LAST_STREAM
        if stream == 0:
            self._window += more

    def _take_settings(self, flags: int, payload: bytes) -> None:
        if flags & _ACK:
            return
        if len(payload) % 6:
            raise _Malformed("the settings have no valid length")
        found = {
            int.from_bytes(payload[at : at + 2]): int.from_bytes(payload[at + 2 : at + 6])
            for at in range(0, len(payload), 6)
        }
        is_first = not self._set_up.done()
        unlimited = self._most_streams if is_first else self._peer_streams
        self._peer_streams = min(self._most_streams, found.get(_MOST_STREAMS, unlimited))
        if found.get(_INITIAL_WINDOW, MOST_SENT_BYTES) < MOST_SENT_BYTES:  # no body would go out whole
            raise _Malformed("the server takes too little of a body at once")
        if is_first:
            most = min(_DEFAULT_TABLE, found.get(_TABLE_SIZE, _DEFAULT_TABLE))
            self._writer.keeps_table = self.head.table_bytes <= most
            self._set_up.set_result(None)
            self.is_up = not self.retired
        elif _TABLE_SIZE in found and self._writer.keeps_table:  # our entries may be gone
            self.retire()
            self._on_change()
        if self._transport is not None:
            self._transport.write(_frame(FrameKind.SETTINGS, _ACK, 0, b""))

    def _take_reset(self, stream: int, code: int) -> None:
        exchange = self._exchanges.pop(stream, None)
        if exchange is None:
            return
        self._bodies_bytes -= exchange.body_bytes
        if code == _REFUSED_STREAM:
            self._send_again([exchange])
        else:
            exchange.settle(ConnectionLost(f"the server reset the request (HTTP/2 error {code})"))

    def _take_goaway(self, payload: bytes) -> None:
        """The server takes no more: what it will not look at is sent over another connection."""
        if len(payload) < 8:
            raise _Malformed("a frame is too short")
        self._last_stream = int.from_bytes(payload[:4]) & LAST_STREAM
        unseen = [stream for stream in self._exchanges if stream > self._last_stream]
        exchanges = [self._exchanges.pop(stream) for stream in unseen]
        self._bodies_bytes -= sum(exchange.body_bytes for exchange in exchanges)
        self._take_no_more()
        self._send_again(exchanges)
        if not self._exchanges:
            self.close()
        self._on_change()

    def _send_again(self, exchanges: Sequence[Exchange]) -> None:
        for exchange in reversed(exchanges):
            if exchange.repeats >= MOST_REPEATS:
                exchange.settle(Unreachable("the server took no request"))
            else:
                exchange.begin_again()
                self._waiting.appendleft(exchange)
        self._on_change()


class _Malformed(Exception):
    """What came is no HTTP/2."""


class _HeadWriter:
    """Writes header blocks of requests (RFC 7541)."""

    def __init__(self, head: Head) -> None:
        self.keeps_table = False
        """Whether the server's table has room for the fields that each request has."""
        self._is_kept = False
        """Whether they are there."""
        self._prefix = head.prefix
        entries = head.entries
        self._first = b"".join(_literal(0x40, name, value) for name, value in entries)
        self._never_kept = b"".join(_literal(0x10, name, value) for name, value in entries)
        indexed = {name: bytes([0x80 | (_FIRST_INDEX + len(entries) - 1 - i)]) for i, (name, _) in enumerate(entries)}
        self._kept = b"".join(indexed.values())
        unusual = {name: value for name, value in indexed.items() if name not in ("accept", "content-type")}
        self._kept_unusual = b"".join(unusual.values())
        self._unusual = b"".join(
            _literal(0x10, name, value) for name, value in entries if name not in ("accept", "content-type")
        )

    def block(self, request: Request) -> bytes:
        """Return the header block of a request."""
        path = (self._prefix + request.path).encode("ascii")
        method = b"\x83" if request.verb == "POST" else _literal(0x00, ":method", request.verb)
        start = b"%b\x87\x04%b%b" % (method, _integer(len(path), 7), path)
        if request.accept is JSON and request.content_type is JSON:
            return start + (self._kept if self._is_kept else self._usual_fields())
        own = _literal(0x00, "accept", request.accept)
        if request.body:
            own += _literal(0x00, "content-type", request.content_type)
        return start + (self._kept_unusual if self._is_kept else self._unusual) + own

    def _usual_fields(self) -> bytes:
        if not self.keeps_table:
            return self._never_kept
        self._is_kept = True
        return self._first


class _AnswerHeads:
    """Reads header blocks of answers: their status, and when to come again."""

    def __init__(self) -> None:
        self._decoder: _Decoder | None = None
        """Only where the server has a table in spite of our settings, or before it has read them."""
        self._is_first = True

    def read(self, block: bytes) -> tuple[int, str | None]:
        """Return the status, 0 where there is none, and the Retry-After header. Raises _Malformed."""
        if self._is_first:
            self._is_first = False
            if block[:1] != _TABLE_EMPTIED.to_bytes():
                self._decoder = _Decoder(table=True)
        if self._decoder is not None:
            return self._decoder.read(block)
        if not block:
            raise _Malformed("an answer has no headers")
        at = 1 if block[0] == _TABLE_EMPTIED and len(block) > 1 else 0
        if block[at] in _STATUS_FIRST and block.startswith(_CREATED, at + 1):
            return 201, None
        if block.startswith(_OK, at):
            return 200, None
        return _Decoder(table=False).read(block)


class _Decoder:
    """A decoder of `hpack`, imported when an answer is not a success: not before the first binding of a start."""

    def __init__(self, *, table: bool) -> None:
        from hpack import Decoder

        self._decoder = Decoder()
        if not table:
            self._decoder.max_allowed_table_size = 0
            self._decoder.header_table_size = 0

    def read(self, block: bytes) -> tuple[int, str | None]:
        """As `_AnswerHeads.read`."""
        from hpack import HPACKError

        try:
            fields = self._decoder.decode(block, raw=True)
        except (HPACKError, ValueError, UnicodeDecodeError) as error:
            raise _Malformed(f"its headers cannot be read: {error}") from error
        status, retry_after = 0, None
        for name, value, *_ in fields:
            if name == b":status" and len(value) == 3 and value.isdigit():
                status = int(value)
            elif name == b"retry-after":
                retry_after = value.decode("latin-1")
        return status, retry_after


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _integer(value: int, bits: int) -> bytes:
    """Return an integer in a prefix of so many bits whose other bits are 0 (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    return bytes((most, *_rest(value - most)))


def _rest(value: int) -> Iterator[int]:
    while value >= 0x80:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


_NAMES = {":authority": 1, ":method": 2, "accept": 19, "authorization": 23, "content-type": 31, "user-agent": 58}
"""Indexes of names in the static table (RFC 7541, appendix A)."""


def _literal(kind: int, name: str, value: str) -> bytes:
    """Return a field as a literal: 0x40 with, 0x00 without the table, 0x10 never in one (RFC 7541, 6.2)."""
    index, bits = _NAMES.get(name, 0), 6 if kind == 0x40 else 4
    start = bytearray(_integer(index, bits))
    start[0] |= kind
    own = b"" if index else _text(name)
    return bytes(start) + own + _text(value)


def _text(value: str) -> bytes:
    encoded = value.encode("ascii")
    return _integer(len(encoded), 7) + encoded


def _unpadded(payload: bytes, flags: int, *, has_priority: bool) -> bytes:
    start, end = 0, len(payload)
    if flags & _PADDED:
        if not payload or payload[0] >= end:
            raise _Malformed("a frame is padded beyond its end")
        start, end = 1, end - payload[0]
    if has_priority and flags & _PRIORITY:
        start += 5
    return payload if start == 0 and end == len(payload) else payload[start:end]
