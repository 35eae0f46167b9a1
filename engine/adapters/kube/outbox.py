"""Writes that may wait: sent in the background, newest per key, without standing in the way of bindings.

Nothing is lost while there is room. An item is sent at once if nobody more important is busy, else after
`max_defer_seconds` at the latest; failures of the server or the network are repeated with growing pauses. What is
behind a closed fence stays until it opens, or is dropped at the end: whoever may act then says it himself. When
`capacity` is reached, the oldest item gives way; that, and what the server refuses for good, is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from engine.adapters.kube.backoff import Backoff
from engine.adapters.kube.errors import (
    ApiError,
    CredentialsError,
    KubeError,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnknownOutcome,
    Unreachable,
    Withheld,
)

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")

DEFER_POLL_SECONDS = 0.05
FENCE_POLL_SECONDS = 0.2


@dataclass(slots=True)
class OutboxCounts:
    """What became of the items; `merged` counts those that were replaced by a newer one before they were sent."""

    sent: int = 0
    merged: int = 0
    refused: int = 0
    dropped: int = 0
    retried: int = 0
    withheld: int = 0


class Outbox(Generic[Key, Item]):
    """A queue by key. Two sends of one key never overlap, and the newest comes last."""

    def __init__(
        self,
        send: Callable[[Key, Item], Awaitable[object]],
        *,
        name: str,
        random: Random,
        concurrency: int = 8,
        capacity: int = 50_000,
        max_defer_seconds: float = 15.0,
        defer_while: Callable[[], bool] = lambda: False,
        merge: Callable[[Item, Item], Item] = lambda old, new: new,
    ) -> None:
        """merge: makes one item of a waiting one and a newer one. defer_while: whether others are busy now."""
        self.counts = OutboxCounts()
        self._send = send
        self._name = name
        self._concurrency = concurrency
        self._capacity = capacity
        self._max_defer_seconds = max_defer_seconds
        self._defer_while = defer_while
        self._merge = merge
        self._backoff = Backoff(initial_seconds=0.2, limit_seconds=15.0, random=random)
        self._waiting: OrderedDict[Key, tuple[float, Item]] = OrderedDict()  # a dict is slow to empty from the front
        self._sending: set[Key] = set()
        self._stirred = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._paused_until = 0.0
        self._is_draining = False
        self._is_failing = False
        self._is_dropping = False
        self._last_refusal = ""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sending)

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting or key in self._sending

    def put(self, key: Key, item: Item) -> None:
        """Queue item; one that waits under the same key is merged with it, and keeps its place."""
        before = self._waiting.get(key)
        if before is not None:
            self.counts.merged += 1
            self._waiting[key] = (before[0], self._merge(before[1], item))
            return
        if len(self._waiting) >= self._capacity:
            self._drop_oldest()
        self._waiting[key] = (asyncio.get_running_loop().time(), item)
        self._drained.clear()
        self._stirred.set()

    def discard(self, key: Key) -> None:
        """Forget what waits under key; what is being sent already is not stopped."""
        if self._waiting.pop(key, None) is not None:
            self._settle()

    async def run(self) -> None:
        """Send for ever; end by cancellation."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._concurrency):
                workers.create_task(self._work())

    async def drain(self, *, timeout_seconds: float) -> bool:
        """Send all that waits without deferring; return whether that was done in time. `run` must be running."""
        self._is_draining = True
        self._stirred.set()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._drained.wait()
        except TimeoutError:
            return False
        finally:
            self._is_draining = False
        return True

    async def _work(self) -> None:
        while True:
            key = await self._next_key()
            queued_at, item = self._waiting.pop(key)
            self._sending.add(key)
            try:
                await self._deliver(key, item, queued_at=queued_at)
            finally:
                self._sending.discard(key)
                self._settle()

    async def _next_key(self) -> Key:
        while True:
            key = next((key for key in self._waiting if key not in self._sending), None)
            if key is None:
                self._stirred.clear()
                await self._stirred.wait()
            elif (pause_seconds := self._pause_before(key)) > 0.0:
                await asyncio.sleep(pause_seconds)
            else:
                return key

    def _pause_before(self, key: Key) -> float:
        now = asyncio.get_running_loop().time()
        if now < self._paused_until:
            return self._paused_until - now
        if self._is_draining or not self._defer_while():
            return 0.0
        queued_at, _ = self._waiting[key]
        return DEFER_POLL_SECONDS if now - queued_at < self._max_defer_seconds else 0.0

    async def _deliver(self, key: Key, item: Item, *, queued_at: float) -> None:
        try:
            await self._send(key, item)
        except (Unreachable, UnknownOutcome, TooManyRequests, ServerError, Unauthorized, CredentialsError) as error:
            self.counts.retried += 1
            self._put_back(key, item, queued_at=queued_at)
            self._waiting.move_to_end(key, last=False)
            if not self._is_failing:
                self._is_failing = True
                logger.warning("%s: %s; %d waiting", self._name, error, len(self._waiting))
            now = asyncio.get_running_loop().time()
            if now >= self._paused_until:  # else one of those sent together has settled the pause
                wish = error.retry_after_seconds if isinstance(error, ApiError) else None
                self._paused_until = now + self._backoff.next_seconds(at_least=wish)
            return
        except Withheld:
            if self._is_draining:
                self.counts.withheld += 1
                return
            self._put_back(key, item, queued_at=queued_at)  # behind the others, which may be free to go
            await asyncio.sleep(FENCE_POLL_SECONDS)
            return
        except KubeError as error:
            self.counts.refused += 1
            if str(error) != self._last_refusal:
                self._last_refusal = str(error)
                logger.warning("%s: refused for good: %s", self._name, error)
            return
        except Exception:
            self.counts.refused += 1
            logger.exception("%s: could not be sent", self._name)
            return
        self.counts.sent += 1
        if self._is_failing:
            self._is_failing = False
            self._backoff.reset()
            logger.info("%s: sending again, %d waiting", self._name, len(self._waiting))

    def _put_back(self, key: Key, item: Item, *, queued_at: float) -> None:
        newer = self._waiting.get(key)
        self._waiting[key] = (queued_at, item if newer is None else self._merge(item, newer[1]))

    def _drop_oldest(self) -> None:
        self._waiting.popitem(last=False)
        self.counts.dropped += 1
        if not self._is_dropping:
            self._is_dropping = True
            logger.error("%s: more than %d waiting, the oldest are dropped", self._name, self._capacity)

    def _settle(self) -> None:
        if self._waiting:
            self._stirred.set()
        elif not self._sending:
            self._is_dropping = False
            self._drained.set()
