"""The loop that decides: one workload after the other, while the writes of others are under way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kube_policy_scheduler.daemon.fleet.engine import Due, Engine, FleetDecision
from kube_policy_scheduler.daemon.watching.freshness import ClusterView
from kube_policy_scheduler.daemon.watching.resources import Handler, take_each
from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)

MOVES_EVERY_SECONDS = 1.0
"""Between two looks for moves. How long a workload rests between two of its own, its policy says."""


class _BrokenError(Exception):
    """A decision broke; it is logged."""


class FleetScheduler:
    """Has the engine decide what is to be decided, and carry it out."""

    def __init__(
        self,
        engine: Engine,
        *,
        view: ClusterView,
        parallel_writes: int,
        observe: Callable[[float], None] = lambda seconds: None,
        note: Callable[[FleetDecision, float], None] = lambda decision, seconds: None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one that does nothing yet.

        Args:
            engine: for which it is decided.
            view: whether what is known is current enough to decide by.
            parallel_writes: objects that are written at a time.
            observe: is told how many seconds each decision took.
            note: is told what became of each workload, and how many seconds its decision took.
            steady: seconds on a clock that nobody sets.
        """
        self.engine = engine
        self.leading = False
        self._view = view
        self._observe = observe
        self._note = note
        self._steady = steady
        self._permits = asyncio.Semaphore(parallel_writes)
        self._writes: set[asyncio.Task[None]] = set()
        self._stirred = asyncio.Event()

    @property
    def writes_under_way(self) -> int:
        """Return how many objects are being written."""
        return len(self._writes)

    def lead(self, leads: bool) -> None:
        """Begin or cease to decide."""
        self.leading = leads
        self._stirred.set()

    def stir(self) -> None:
        """Wake the loop, so that it looks for work."""
        self._stirred.set()

    # --- what is watched ----------------------------------------------------------------------------

    def handler(self, kind: type) -> Handler[Any]:
        """Return the handler of a kind of objects; each change wakes the loop.

        Objects reach the engine only through here, one by one. An object that breaks its handler is passed over: it
        keeps no other from being known, and its view current.
        """
        handler = self.engine.handler(kind)

        def taking(take: Callable[[Any], None]) -> Callable[[Any], None]:
            def taken(thing: Any) -> None:
                take_each(take, (thing,))
                self._stirred.set()

            return taken

        def whole(listed: Sequence[Any]) -> None:
            handler.whole(())
            take_each(handler.upsert, listed)
            self._stirred.set()

        return Handler(whole, taking(handler.upsert), taking(handler.deleted))

    def kind_unavailable(self, kind: type, why: str) -> None:
        """Take note that a kind cannot be read: what is known of it stays, and nothing is decided meanwhile."""

    # --- deciding -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decide for ever; end by cancellation, which the writes under way survive (`drained`)."""
        while True:
            work, seconds = await self._next()
            await self._permits.acquire()
            task = asyncio.create_task(self._carry_out(work, seconds), name="fleet-write")
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)
            await asyncio.sleep(0)

    async def look_for_moves(self) -> None:
        """Look from time to time at what nothing asks to decide, for ever; as long as this replica decides."""
        while True:
            await asyncio.sleep(MOVES_EVERY_SECONDS)
            if self.leading:
                self.engine.look_again(self._now())
                self.stir()

    async def _next(self) -> tuple[Due, float]:
        """Wait until there is work, and this replica may do it by what it knows; return how many seconds it took to
        decide, too."""
        while True:
            self._stirred.clear()
            if not self.leading:
                await self._stirred.wait()
            elif not self._view():
                await self._view.news()
            else:
                began = self._steady()
                try:
                    work = self._decide(Steady(began))
                except _BrokenError:
                    await asyncio.sleep(0)
                    continue
                if work is not None:
                    seconds = self._steady() - began
                    self._observe(seconds)
                    return work, seconds
                await self._wait()

    def _decide(self, now: Steady) -> Due | None:
        """Return what is to be done next. One object that nobody can decide keeps no other from being decided.

        Raises:
            _BrokenError: a decision broke through a fault of ours; it is tried again after a pause.
        """
        waiting = self.engine.maker.waiting
        waiting.begin()
        try:
            return self.engine.next(now)
        except Exception as error:
            key = waiting.deciding
            if key is None:
                raise  # it is about no object: a new process starts afresh
            logger.exception("unexpected error while deciding on %s", _name(key))
            waiting.refused(key, now)
            raise _BrokenError from error

    async def _wait(self) -> None:
        due = self.engine.maker.waiting.due()
        pause = None if due is None else max(0.0, due - self._steady())
        try:
            async with asyncio.timeout(pause):
                await self._stirred.wait()
        except TimeoutError:
            pass

    async def _carry_out(self, work: Due, seconds: float) -> None:
        try:
            decision = await self.engine.carry_out(work)
            if decision is not None:
                self._note(decision, seconds)
        except Exception:
            logger.exception("unexpected error while working on %s", _name(work.key))
            self.engine.broke(work, self._now())
        finally:
            self._permits.release()
            self._stirred.set()

    async def drained(self) -> None:
        """Wait until all writes under way have come to an end."""
        while self._writes:
            await asyncio.wait(self._writes)

    def _now(self) -> Steady:
        return Steady(self._steady())

    def counts(self) -> Mapping[str, int]:
        """Return how many there are of each kind."""
        maker = self.engine.maker
        return {"clusters": len(maker.fleet.clusters), "bindings": len(maker.waiting)}


def _name(key: tuple[str, ...]) -> str:
    return "/".join(filter(None, key))
