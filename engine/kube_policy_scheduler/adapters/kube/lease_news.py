"""Tells a replica that a Lease has changed, so that it looks at once instead of at its next turn. Judges nothing.

Only a hint: a replica that may not watch, or whose watch hangs, still looks in its turns. A watch of one Lease costs a
connection and no requests, and a look per renewal is what candidates make anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import msgspec

from kube_policy_scheduler.adapters.kube.decoding import LineBuffer
from kube_policy_scheduler.adapters.kube.errors import ApiError, KubeError
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.transport import Transport

logger = logging.getLogger(__name__)

WATCH_SECONDS = 300
"""After which the server ends a watch, and it is reopened."""
GRACE_SECONDS = 30.0
REFUSED_PAUSE_SECONDS = 60.0
"""Until a watch that was refused is tried again: permissions seldom change."""


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Lease


_decode = decoder_of(_Event)


class LeaseNews:
    """Watches one Lease while it is entered."""

    def __init__(
        self,
        transport: Transport,
        *,
        collection: str,
        name: str,
        pause_seconds: float,
        is_expected: Callable[[str], bool] = lambda holder: False,
    ) -> None:
        """Set up.

        Args:
            transport: to the API server.
            collection: path of the Leases of a namespace.
            name: of the Lease.
            pause_seconds: between two tries to watch.
            is_expected: whether a change to a Lease with this holder is no news; its end always is.
        """
        self._is_expected = is_expected
        query = {"watch": "1", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(WATCH_SECONDS)}
        self._path = f"{collection}?{urlencode(query)}"
        self._transport = transport
        self._pause_seconds = pause_seconds
        self._news = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Return when the Lease has changed since the last call, at the latest after this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            pause = self._pause_seconds
            try:
                await self._watch()
            except ApiError as error:
                logger.debug("failed to watch the lease: %s", error)
                pause = max(pause, REFUSED_PAUSE_SECONDS)
            except KubeError as error:
                logger.debug("the watch of the lease ended: %s", error)
            await asyncio.sleep(pause)

    async def _watch(self) -> None:
        """Watch until the server ends it; raises KubeError."""
        idle_seconds = WATCH_SECONDS + GRACE_SECONDS
        stream = await self._transport.open_stream(self._path, resource="leases", idle_seconds=idle_seconds)
        lines = LineBuffer()
        try:
            while chunk := await stream.read():
                if any(map(self._is_news, lines.feed(chunk).splitlines())):
                    self._news.set()
        finally:
            stream.close()

    def _is_news(self, line: bytes) -> bool:
        try:
            event = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return True  # a look tells
        return event.type == "DELETED" or not self._is_expected(event.object.spec.holder_identity or "")
