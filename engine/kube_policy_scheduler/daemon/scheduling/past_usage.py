"""Keeps the past usage of queues where it outlives this replica: reads it at the start, and stores it while it leads.

Each replica remembers what it has seen itself. What it cannot know, the usage of pods that ended before it started, it
reads once, and again when the clock was set: what was read by a clock that is ahead has faded too far. Another replica
that has written since, such as one that took the lead for a while, makes a write fail: then what it wrote is read and
recalled, and nothing of either is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import NoReturn

from kube_policy_scheduler.adapters.kube.errors import Conflict, Fenced, KubeError, MalformedAnswer
from kube_policy_scheduler.adapters.kube.past_usage_lease import PastUsageLease
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaTree
from kube_policy_scheduler.daemon.observing.live_metrics import PastUsageState
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Between two looks at whether something is to be read or stored."""
STORE_SECONDS = 300.0
"""Between two writes: if a replica crashes, the usage since the last one of pods that have ended is lost."""
LEAST_STORE_SECONDS = 30.0
"""Between two writes where the half-life is short: a sixteenth of it."""
TRIES = 3
"""To write in one turn; each other replica that writes at the same time costs one."""


class PastUsageKeeper:
    """One per replica; it writes only while its replica leads."""

    def __init__(self, scheduler: Scheduler, lease: PastUsageLease) -> None:
        self._scheduler, self._lease = scheduler, lease
        self._is_read = False
        self._due = 0.0
        """When to store next, seconds of the event loop."""
        self._stored_at: float | None = None
        self._left_out = 0
        self._problem = ""
        self._stirred = asyncio.Event()

    def state(self) -> PastUsageState | None:
        """Return how it goes; None if no queue has a memory."""
        if self._tree() is None:
            return None
        return PastUsageState(self._stored_at, self._left_out, self._problem)

    def policies_changed(self) -> None:
        """Look at once: what was stored is read before the first pod is decided, where that is possible."""
        self._stirred.set()

    def clock_was_set(self, _ahead: float) -> None:
        """Read what is stored again, before anything is written over it."""
        self._is_read = False

    async def run(self) -> NoReturn:
        """Read at first and when the clock was set, store again and again, for ever."""
        while True:
            self._stirred.clear()
            await self._look(asyncio.get_running_loop().time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._stirred.wait()

    async def store_now(self, *, timeout_seconds: float) -> None:
        """Store what is remembered before the replica ends, if it leads."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                if self._tree() is not None and self._writes():
                    await self._try(self._store())

    def _tree(self) -> QuotaTree | None:
        """Return the queues in force if they have a memory."""
        policies = self._scheduler.algorithm.policies
        rules = policies.policy_set.queues if isinstance(policies, LivePolicies) else None
        return rules.tree if rules is not None and rules.tree.half_life_seconds is not None else None

    def _writes(self) -> bool:
        """Return whether it is this replica that stores: the one that decides the pods of queues."""
        return self._scheduler.leading and self._scheduler.algorithm.decides_queues()

    async def _look(self, now: float) -> None:
        if self._tree() is not None and not self._is_read:
            await self._try(self._recall())
        if (tree := self._tree()) is None:  # or no longer: while it was read, other policies may have come
            return
        self._scheduler.cluster.track_usage(tree)  # a replica that decides nothing remembers, too
        if now < self._due or not self._writes():
            return
        if await self._try(self._store()):
            assert tree.half_life_seconds is not None
            self._due = now + min(STORE_SECONDS, max(LEAST_STORE_SECONDS, tree.half_life_seconds / 16))

    async def _try(self, step: Awaitable[bool]) -> bool:
        """Do a step; return whether it is done. Why it failed is logged when that changes."""
        try:
            done = await step
        except Fenced:
            return False
        except KubeError as error:
            if str(error) != self._problem:
                logger.warning("failed to keep the past usage of queues (lease %s): %s", self._lease.name, error)
            self._problem = str(error)
            return False
        self._problem = ""
        return done

    async def _recall(self) -> bool:
        self._is_read = False
        try:
            past = await self._lease.read(ahead=lambda: self._scheduler.cluster.ahead)
        except MalformedAnswer as error:
            if not self._lease.is_known:
                raise
            logger.warning("cannot read the past usage of queues (lease %s): %s", self._lease.name, error)
            past = None  # it is written over
        if past is not None:
            self._scheduler.cluster.recall_usage(past)
        self._is_read = True
        return True

    async def _store(self) -> bool:
        self._scheduler.context.clock()  # tells whether it was set
        for left in reversed(range(TRIES)):
            if not (self._is_read and self._lease.is_known):
                await self._recall()
            usage = self._scheduler.cluster.quota_usage
            past = usage.past_usage() if usage is not None else None
            if past is None:
                return False
            ahead = self._scheduler.cluster.ahead
            try:
                self._left_out = await self._lease.write(past, ahead=ahead)
            except Conflict:
                if not left:
                    raise
                continue
            self._stored_at = past.at + ahead
            return True
        raise AssertionError("the last try ends it")
