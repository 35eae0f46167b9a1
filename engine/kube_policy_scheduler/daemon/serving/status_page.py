"""The status page over HTTP: at most one is made at a time, in a thread, and all who ask meanwhile get the same.

However many look at it, the scheduler gives it a few milliseconds every other second.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from aiohttp import web

from kube_policy_scheduler.daemon.serving.status_snapshot import Snapshot

if TYPE_CHECKING:
    from kube_policy_scheduler.pages.status import Page

Taken = TypeVar("Taken")
FRESH_SECONDS = 2.0
_GZIP_LEVEL = 1
"""Three quarters of what the best would save, at a fifth of its time."""


class Rendered(msgspec.Struct, frozen=True):
    """A page as it is sent."""

    body: bytes
    compressed: bytes
    content_security_policy: str


def compressed(page: Page) -> Rendered:
    """Return a page as it is sent."""
    body = page.html.encode()
    return Rendered(body, gzip.compress(body, _GZIP_LEVEL, mtime=0), page.content_security_policy)


def rendered(taken: Snapshot) -> Rendered:
    """Return the page of a snapshot. For a thread: with 5,000 nodes it takes about 50 ms."""
    # the templates of the page are read with the first request, not at every start
    from kube_policy_scheduler.daemon.serving.status_words import put_into_words
    from kube_policy_scheduler.pages.status import render

    return compressed(render(put_into_words(taken)))


class StatusPage(Generic[Taken]):
    """Serves the page."""

    def __init__(
        self,
        take: Callable[[], Awaitable[Taken]],
        *,
        make: Callable[[Taken], Rendered],
        stopwatch: Callable[[], float],
    ) -> None:
        """Make it.

        Args:
            take: returns the state of now.
            make: returns the page of a state, in a thread.
            stopwatch: seconds, never going back.
        """
        self._take = take
        self._make_page = make
        self._stopwatch = stopwatch
        self._made: asyncio.Future[Rendered] | None = None
        self._made_at = 0.0

    async def show(self, request: web.Request) -> web.Response:
        """Answer with the page."""
        # who goes away must not take the page with them that others wait for
        page = await asyncio.shield(self._current())
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": page.content_security_policy,
            "Vary": "Accept-Encoding",
        }
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=page.compressed, headers=headers | {"Content-Encoding": "gzip"})
        return web.Response(body=page.body, headers=headers)

    def _current(self) -> asyncio.Future[Rendered]:
        made, now = self._made, self._stopwatch()
        if made is None or (made.done() and (made.exception() is not None or now - self._made_at >= FRESH_SECONDS)):
            made = self._made = asyncio.ensure_future(self._make())
            self._made_at = now
        return made

    async def _make(self) -> Rendered:
        return await asyncio.to_thread(self._make_page, await self._take())
