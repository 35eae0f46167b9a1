"""The replicas that share the work, each with a Lease that it alone renews. Decides nothing about pods.

A replica that comes creates its Lease, then lists the others'. It does nothing before each of those has written into
its own Lease that it knows the newcomer, which each does only once everything that is the newcomer's now has come to
an end there. A replica that goes writes that into its Lease, with the last that it saw: the others take its part
when they have seen that too. One that dies, hangs or is cut off stops by its own clock before the others take its Lease
for expired. As in leader election no two clocks are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Protocol

from kube_policy_scheduler.adapters.kube.errors import KubeError, NotFound
from kube_policy_scheduler.adapters.kube.lease import EXPIRY_GRACE_SECONDS, HeldLease, LeaseSettings
from kube_policy_scheduler.adapters.kube.shard_leases import ShardLease, ShardLeases
from kube_policy_scheduler.adapters.kube.transport import Transport

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 2.0
"""From the unexpected end of a Lease until its holder's part is taken: bindings may be on the way to our watch."""
HURRY_SECONDS = 0.1
"""Between two looks while a replica waits."""
LEAVE_SECONDS = 3.0
"""How long our end may be delayed by what is on the way to our watch."""


class HandsOver(Protocol):
    """Knows what is under way in a replica."""

    def forget_handed_over(self) -> bool:
        """Return whether nothing is under way any more that is no longer ours."""
        ...

    def has_settled(self) -> bool:
        """Return whether nothing at all is under way."""
        ...


class ReplicaMembership:
    """Keeps our Lease, and knows whose part is whose."""

    def __init__(
        self,
        transport: Transport,
        settings: LeaseSettings,
        *,
        held: HeldLease,
        on_members: Callable[[frozenset[str], frozenset[str]], None],
        on_ready: Callable[[bool], None],
        hand_over: HandsOver,
        pods_seen: Callable[[], int],
        pods_known: Callable[[], int],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make one; it joins with `run`.

        Args:
            transport: to the API server.
            settings: `name` is what all replicas have in common; each Lease is named after it and its holder.
            held: kept up to date with what we hold of our Lease; held while we take part.
            on_members: receives who shares the work, ourselves included, and of those no longer among them who did not
                leave in order. What is no longer ours must not be begun then.
            on_ready: receives whether we may do anything.
            hand_over: what is under way here.
            pods_seen: the resource version of the last pod event, 0 where there was none.
            pods_known: the resource version up to which pods are known: of the last list, event or bookmark.
            clock: for the times shown in the Lease only.
        """
        self._leases = ShardLeases(transport, settings, clock=clock)
        self._settings = settings
        self._on_members = on_members
        self._on_ready = on_ready
        self._hand_over = hand_over
        self._pods_seen = pods_seen
        self._pods_known = pods_known
        self._held = held
        self._seen: dict[str, tuple[ShardLease, float]] = {}
        """By holder, since when a Lease has looked as it does, by our own clock."""
        self._free_at: dict[str, float] = {}
        """When we take the parts of those whose Leases ended unexpectedly."""
        self._left: frozenset[str] = frozenset()
        """Those that have said that they are gone, and of whom we have seen everything."""
        self._asked = 0.0
        """When we asked for the Leases that we saw last."""
        self._elders: frozenset[str] | None = None
        """Those who were there before us and have not handed over yet; None before the first list."""
        self._published: frozenset[str] = frozenset((settings.identity,))
        self._handed_over_at = 0
        self.members: frozenset[str] = frozenset()
        self.waits_for: tuple[str, ...] = ()
        """Whose word is missing before we may do anything."""
        self.trouble = ""
        """Why our Lease could not be written when that was tried last; "" where it could."""

    @property
    def is_ready(self) -> bool:
        """Whether we take part: everybody who was there before us has handed over."""
        return self._held.is_held

    async def run(self) -> str:
        """Join and stay for as long as that goes well; return why it ended. When cancelled, leave."""
        try:
            await self._join()
            why = await self._stay()
        except BaseException:
            self._stop("shutting down")
            await self._leave()
            raise
        self._stop(why)
        return why

    async def _join(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._leases.create()
            except KubeError as error:
                self.trouble = str(error)
                logger.warning("failed to create lease %s: %s", self._leases.name, error)
                await asyncio.sleep(self._settings.retry_seconds)
                continue
            self.trouble = ""
            self._held.renewed(began)
            return

    async def _stay(self) -> str:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                async with asyncio.timeout_at(self._held.until):
                    while True:
                        try:
                            why = await self._look(began)
                        except KubeError as error:
                            self.trouble = str(error)
                            logger.warning("failed to renew lease %s: %s", self._leases.name, error)
                            await asyncio.sleep(self._settings.retry_seconds)
                            began = loop.time()
                            continue
                        break
                    if why:
                        return why
            except TimeoutError:
                return f"the lease could not be renewed within {self._settings.renew_deadline_seconds:g} s"
            await asyncio.sleep(self._until_next_look())

    def _until_next_look(self) -> float:
        """Return seconds: half a retry period, less if a replica waits or a Lease ends before that."""
        if not self.is_ready or self._published != self.members:
            return HURRY_SECONDS
        now = asyncio.get_running_loop().time()
        ends = [at + lease.lease_seconds - now for lease, at in self._seen.values()]
        ends += [at - now for at in self._free_at.values()]
        pause = self._settings.retry_seconds / 2
        return min(pause, *(max(end, 0.0) + EXPIRY_GRACE_SECONDS for end in ends), pause)

    async def _look(self, began: float) -> str:
        """List all Leases, renew ours, and draw the conclusions; return why we must end, "" if we need not."""
        leases = await self._leases.list()
        own = leases.pop(self._settings.identity, None)
        if own is None:
            return f"the lease {self._leases.name} was deleted"
        others = await self._take_note(leases, began)
        if self._elders is None:
            missing = self._without_lease(leases)
            self._free_at |= dict.fromkeys(missing, asyncio.get_running_loop().time() + self._settings.lease_seconds)
            self._elders = frozenset(others) | missing
        members = frozenset(others) | self._free_at.keys() | {self._settings.identity}
        if members != self.members:
            lost = self.members - members - self._left
            self.members = members
            logger.info("%d replicas share the work", len(members), extra={"members": sorted(members)})
            self._on_members(members, lost)
        if self._published != members and self._hand_over.forget_handed_over():
            self._published, self._handed_over_at = members, self._pods_seen()
        try:
            await self._leases.renew(
                version=own.version, acquired=own.acquired, knows=self._published, pods_seen=self._handed_over_at
            )
        except NotFound:
            return f"the lease {self._leases.name} was deleted"
        self._held.renewed(began)
        self.trouble = ""
        self._judge(others)
        return ""

    def _without_lease(self, leases: dict[str, ShardLease]) -> frozenset[str]:
        """Return the replicas that others know, and whose lease is gone: they may not have noticed yet."""
        known: frozenset[str] = frozenset().union(*(lease.knows for lease in leases.values()))
        return known - leases.keys() - {self._settings.identity}

    async def _take_note(self, leases: dict[str, ShardLease], asked: float) -> dict[str, ShardLease]:
        """Return those that count. Expired ones are deleted: their holders then find out for certain.

        asked: when we asked for these Leases. The answer may be as old as that: what has changed is noted with the
        time at which it is read, what has not changed is held against the time at which we asked.
        """
        now = asyncio.get_running_loop().time()
        for identity in self._seen.keys() - leases.keys():
            lease, at = self._seen.pop(identity)
            if identity in self.members:
                # a replica that had not renewed for this long at our last look had stopped by then; its end is near
                had_stopped = self._asked - at > self._settings.renew_deadline_seconds
                if had_stopped:
                    self._free_at[identity] = min(now + SETTLE_SECONDS, at + lease.lease_seconds)
                else:  # a deleted Lease does not end what its holder may do, and it may have been renewed until now
                    self._free_at[identity] = now + lease.lease_seconds
        found = {}
        for identity, lease in leases.items():
            if identity not in self._seen or self._seen[identity][0].renewed != lease.renewed:
                self._seen[identity] = (lease, now)
            has_left = lease.has_left and lease.pods_seen <= self._pods_known()
            if has_left:
                self._left |= {identity}
            is_gone = False
            if asked > self._seen[identity][1] + lease.lease_seconds:
                is_gone = await self._leases.delete(lease)  # False: it was renewed since we asked
                if is_gone:
                    del self._seen[identity]
                    if not has_left:
                        logger.warning("the lease of replica %s has expired", identity)
            if not is_gone and not has_left:
                found[identity] = lease
        self._free_at = {identity: at for identity, at in self._free_at.items() if identity not in found and now < at}
        self._asked = asked
        self._left &= leases.keys() | self.members
        return found

    def _judge(self, others: dict[str, ShardLease]) -> None:
        """Find out whether everybody who was there before us has handed over."""
        identity, known = self._settings.identity, self._pods_known()
        self._elders = frozenset(
            elder
            for elder in self._elders or ()
            if elder in self._free_at  # its lease was deleted or has expired; it may act for a while all the same
            or (elder in others and (identity not in others[elder].knows or others[elder].pods_seen > known))
        )
        missing = self.waits_for = tuple(sorted(self._elders))
        if self.is_ready != (not missing):
            self._held.is_held = not missing
            logger.info("takes part" if self.is_ready else "waiting for a hand-over", extra={"identity": identity})
            self._on_ready(self.is_ready)

    def _stop(self, why: str) -> None:
        was_ready, self._held.is_held = self._held.is_held, False
        logger.warning("no longer takes part: %s", why, extra={"lease": self._leases.name})
        if was_ready:
            self._on_ready(False)

    async def _leave(self) -> None:
        """Say in our Lease that our part is free; failing that, it expires."""
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                while not self._hand_over.has_settled():  # noqa: ASYNC110 (what it waits for comes by the watch)
                    await asyncio.sleep(HURRY_SECONDS)
                await self._leases.renew(
                    version=await self._leases.version(),
                    knows=self._published,
                    pods_seen=self._pods_seen(),
                    has_left=True,
                )
