"""The binding cycles under way: each can be cancelled until its binding is sent, and others can wait for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kube_policy_scheduler.daemon.scheduling.context import AssumedPod
from kube_policy_scheduler.framework.gangs import Group


class _BoundTogether:
    """Members of a gang that are being bound."""

    __slots__ = ("losses", "members")

    def __init__(self) -> None:
        self.members = 0
        self.losses = 0
        """How many others were not bound after all."""


class BindingCycle:
    """One of them."""

    __slots__ = ("_ended", "_gangs", "_losses", "_pre_bind", "assumed", "cancelled")

    def __init__(self, assumed: AssumedPod, gangs: tuple[_BoundTogether, ...] = ()) -> None:
        self.assumed = assumed
        self._gangs = gangs
        self._losses = self._count_losses() if gangs else 0
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

    @property
    def lost_members(self) -> bool:
        """Return whether a pod of its gang that was being bound, too, was not bound after all.

        Members that were bound, and end or are deleted afterwards, do not count: the gang had started, as with
        kube-scheduler. If they did, the last member of a short job would wait for ever for those that are done.
        """
        return bool(self._gangs) and self._losses != self._count_losses()

    def accept_losses(self) -> None:
        """Note that there are enough members nevertheless."""
        self._losses = self._count_losses()

    def _count_losses(self) -> int:
        return sum(gang.losses for gang in self._gangs)

    async def ended(self) -> None:
        """Wait for its end."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._ended)

    def end(self) -> None:
        """Note its end."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


class BindingCycles:
    """All of them, by uid of their pods."""

    def __init__(self) -> None:
        self._by_uid: dict[str, BindingCycle] = {}
        self._gangs: dict[Group, _BoundTogether] = {}
        """Those of which members are being bound."""

    def begin(self, assumed: AssumedPod) -> BindingCycle:
        """Begin one."""
        gangs = tuple([self._gangs.setdefault(each.group, _BoundTogether()) for each in assumed.requirements])
        for gang in gangs:
            gang.members += 1
        cycle = self._by_uid[assumed.queued.pod.uid] = BindingCycle(assumed, gangs)
        return cycle

    def failed(self, uid: str) -> None:
        """Note that a pod is not bound after all: its gang may have too few members to bind the others."""
        cycle = self._by_uid.get(uid)
        for requirement in cycle.assumed.requirements if cycle is not None else ():
            self._gangs[requirement.group].losses += 1

    def end(self, cycle: BindingCycle) -> None:
        """End one: its pod is bound, gone, or in the queue again."""
        uid = cycle.assumed.queued.pod.uid
        if self._by_uid.get(uid) is cycle:
            del self._by_uid[uid]
        for requirement in cycle.assumed.requirements:
            gang = self._gangs[requirement.group]
            gang.members -= 1
            if not gang.members:
                del self._gangs[requirement.group]
        cycle.end()

    def get(self, uid: str) -> BindingCycle | None:
        """Return that of a pod, if it has one."""
        return self._by_uid.get(uid)
