"""The binding cycles under way: each can be cancelled until its binding is sent, and others can wait for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kube_policy_scheduler.daemon.scheduling.context import AssumedPod


class BindingCycle:
    """One of them."""

    __slots__ = ("_ended", "_pre_bind", "assumed", "cancelled")

    def __init__(self, assumed: AssumedPod) -> None:
        self.assumed = assumed
        self.cancelled = ""
        """Why it is cancelled, for people; "" if it is not."""
        self._pre_bind: asyncio.Task[str] | None = None
        self._ended: asyncio.Future[None] | None = None

    async def run_pre_bind(self, work: Coroutine[Any, Any, str]) -> str:
        """Run PreBind; return why it failed, or why the cycle was cancelled meanwhile, or ""."""
        self._pre_bind = task = asyncio.get_running_loop().create_task(work)
        why = ""
        try:
            why = await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not self.cancelled or current is None or current.cancelling():
                raise  # the scheduler ends
        finally:
            self._pre_bind = None
        return self.cancelled or why

    def cancel(self, why: str) -> None:
        """Have it give back what it holds, and put its pod back; nothing is sent any more."""
        if not self.cancelled:
            self.cancelled = why
            if self._pre_bind is not None:
                # not before its first step, which is scheduled already: what has not begun gives nothing back
                asyncio.get_running_loop().call_soon(self._pre_bind.cancel)

    async def ended(self) -> None:
        """Wait for its end."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._ended)

    def end(self) -> None:
        """Take note of its end."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


class BindingCycles:
    """All of them, by uid of their pods."""

    def __init__(self) -> None:
        self._by_uid: dict[str, BindingCycle] = {}

    def begin(self, assumed: AssumedPod) -> BindingCycle:
        """Begin one."""
        cycle = self._by_uid[assumed.queued.pod.uid] = BindingCycle(assumed)
        return cycle

    def end(self, cycle: BindingCycle) -> None:
        """End one: its pod is bound, gone, or in the queue again."""
        uid = cycle.assumed.queued.pod.uid
        if self._by_uid.get(uid) is cycle:
            del self._by_uid[uid]
        cycle.end()

    def get(self, uid: str) -> BindingCycle | None:
        """Return that of a pod, if it has one."""
        return self._by_uid.get(uid)
