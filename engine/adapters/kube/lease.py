"""Leader election by a Lease: at most one process acts, and knows by its own clock when it must stop. Binds nothing.

A leader may act until `renew_deadline_seconds` after it *began* its last successful renewal; others wait
`lease_seconds` after they *saw* it. The difference is the safety margin, and no two clocks are ever compared.
Who waits is told of changes by a watch: a Lease that is given back is taken at once, and one that runs out is seen to
have been renewed when it was, not up to a retry period later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec

from engine.adapters.kube.errors import Conflict, KubeError, MalformedAnswer, NotFound
from engine.adapters.kube.lease_news import LeaseNews
from engine.adapters.kube.transport import Transport

logger = logging.getLogger(__name__)

JITTER = 1.2  # as in client-go: candidates that wait do not ask at the same moment
RELEASE_TIMEOUT_SECONDS = 3.0
AT_ONCE_SECONDS = 0.3  # a Lease that nobody holds is taken sooner
EXPIRY_GRACE_SECONDS = 0.01  # a look at the very end of a Lease would find it still valid


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Which Lease, who we are, and kube-scheduler's times."""

    namespace: str
    name: str
    identity: str
    lease_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not self.retry_seconds * JITTER < self.renew_deadline_seconds < self.lease_seconds:
            raise ValueError(
                "lease times must grow: retry period × 1.2 < renew deadline < lease duration, these are "
                f"{self.retry_seconds:g}, {self.renew_deadline_seconds:g} and {self.lease_seconds:g} s"
            )

    @property
    def collection(self) -> str:
        """Path of the Leases of the namespace."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"


async def lease_request(
    transport: Transport, settings: LeaseSettings, *, verb: str, path: str, body: dict[str, Any] | None
) -> dict[str, Any]:
    """Send a request about Leases, in time for another before the deadline; return the answer.

    Raises:
        KubeError: it was refused, did not arrive, or the answer is no object.
    """
    answer = await transport.request(
        verb,
        path,
        body=msgspec.json.encode(body) if body is not None else b"",
        resource="leases",
        timeout_seconds=settings.renew_deadline_seconds / 2,
    )
    try:
        return msgspec.json.decode(answer, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedAnswer(f"the lease is not an object: {error}") from error


class LeaderElector:
    """Competes for the Lease, then keeps it."""

    def __init__(
        self,
        transport: Transport,
        settings: LeaseSettings,
        *,
        random: Random,
        on_started: Callable[[], None] = lambda: None,
        on_stopped: Callable[[str], None] = lambda why: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """on_started, on_stopped: called when leading begins and ends. clock: for the times shown in the Lease only."""
        self._transport = transport.aside()  # bindings that hang must not keep a renewal waiting
        self._settings = settings
        self._random = random
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._clock = clock
        self._leading = False
        self._may_act_until = 0.0  # event loop's time
        self._seen: tuple[str, Any, Any] | None = None
        self._seen_at = 0.0
        self._seen_lease_seconds = settings.lease_seconds
        self.leader = ""  # identity in the Lease, as seen last
        self._has_waited = False  # for the Lease, long enough for what is known of the cluster to have grown old
        self._left_at = ""  # resource version of the Lease as it was found

    @property
    def is_leader(self) -> bool:
        """The fence: whether we may act at this moment. Turns false by itself when a renewal is overdue."""
        return self._leading and asyncio.get_running_loop().time() < self._may_act_until

    def has_followed(self, position: int) -> bool:
        """Return whether others may have led, and done things, since a view of the cluster was up to date.

        position: resource version of the view. It is compared with that of the Lease as its last holder left it; a
        Lease that was still held when it was first looked at may have been left by somebody who died.
        """
        return self._has_waited or not self._left_at.isdecimal() or int(self._left_at) > position

    @property
    def renewed_at(self) -> float:
        """When the request began that keeps us where we are, by the event loop's time."""
        return self._may_act_until - self._settings.renew_deadline_seconds

    async def run(self) -> str:
        """Wait until the Lease is ours, keep it while that goes well; return why it was lost.

        When cancelled, stop leading and give the Lease back, so that a standby need not wait for it to expire.
        """
        try:
            await self._acquire()
            why = await self._keep()
        except BaseException:
            if self._leading:
                self._stop("shutting down")
                await self._release()
            raise
        self._stop(why)
        return why

    async def _acquire(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not await self._has_taken():
            await self._stand_by()
        self._has_waited = loop.time() - began > AT_ONCE_SECONDS
        self._leading = True
        logger.info("became leader", extra={"lease": self._settings.name, "identity": self._settings.identity})
        self._on_started()

    async def _stand_by(self) -> None:
        settings = self._settings
        news = LeaseNews(
            self._transport, collection=settings.collection, name=settings.name, pause_seconds=settings.retry_seconds
        )
        async with news:
            while True:
                await news.wait(self._until_next_look())
                if await self._has_taken():
                    return

    async def _has_taken(self) -> bool:
        """Try once; return whether the Lease is ours, and young enough to act by it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if not await self._try_to_hold():
                return False
        except KubeError as error:
            logger.debug("lease %s: %s", self._settings.name, error)
            return False
        self._may_act_until = began + self._settings.renew_deadline_seconds
        return loop.time() < self._may_act_until

    def _until_next_look(self) -> float:
        """Return seconds: a retry period, or less where another's Lease ends before that."""
        pause = self._settings.retry_seconds * self._random.uniform(1.0, JITTER)
        left = self._seen_at + self._seen_lease_seconds - asyncio.get_running_loop().time()
        return min(pause, left + EXPIRY_GRACE_SECONDS) if self.leader and left > 0 else pause

    async def _keep(self) -> str:
        """Renew until that fails for too long, or another one has the Lease; return which."""
        while True:
            try:
                async with asyncio.timeout_at(self._may_act_until):
                    if not await self._renew():
                        return f"the lease was taken by {self.leader or 'nobody'}"
            except TimeoutError:
                return f"the lease could not be renewed within {self._settings.renew_deadline_seconds:g} s"

    async def _renew(self) -> bool:
        """Pause, then try until it is settled whether the Lease is still ours."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._settings.retry_seconds)
            began = loop.time()
            try:
                if not await self._try_to_hold():
                    if self.leader == self._settings.identity:
                        continue  # only the update lost a race
                    return False
            except KubeError as error:
                logger.warning("lease %s was not renewed: %s", self._settings.name, error)
                continue
            self._may_act_until = began + self._settings.renew_deadline_seconds
            return True

    def _stop(self, why: str) -> None:
        self._leading = False
        logger.warning("stopped leading: %s", why, extra={"lease": self._settings.name})
        self._on_stopped(why)

    # --- the Lease ----------------------------------------------------------------------------------

    async def _try_to_hold(self) -> bool:
        """Take or renew the Lease if it is free, expired or ours; return whether it is ours now. Raises KubeError."""
        settings = self._settings
        now = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            lease = await self._request("GET", f"{settings.collection}/{settings.name}")
        except NotFound:
            self._left_at = "0"
            return await self._create(now)
        self._left_at = str(lease.get("metadata", {}).get("resourceVersion"))
        spec = lease.setdefault("spec", {})
        holder = spec.get("holderIdentity") or ""
        self._note(lease)
        if holder not in ("", settings.identity) and not self._has_expired():
            return False
        spec["renewTime"] = now
        spec["leaseDurationSeconds"] = self._whole_lease_seconds
        if holder != settings.identity or not self._leading:
            spec["acquireTime"] = now
        if holder != settings.identity:
            spec["holderIdentity"] = settings.identity
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        try:
            self._note(await self._request("PUT", f"{settings.collection}/{settings.name}", lease))
        except Conflict:
            return False  # somebody else wrote in between
        return True

    async def _create(self, now: str) -> bool:
        settings = self._settings
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": settings.name, "namespace": settings.namespace},
            "spec": {
                "holderIdentity": settings.identity,
                "leaseDurationSeconds": self._whole_lease_seconds,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }
        try:
            self._note(await self._request("POST", settings.collection, lease))
        except Conflict:
            return False
        return True

    async def _release(self) -> None:
        """Give the Lease back; failing that, it expires."""
        settings = self._settings
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(RELEASE_TIMEOUT_SECONDS):
                path = f"{settings.collection}/{settings.name}"
                lease = await self._request("GET", path)
                if lease.get("spec", {}).get("holderIdentity") == settings.identity:
                    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._request("PUT", path, lease)

    @property
    def _whole_lease_seconds(self) -> int:
        return max(1, round(self._settings.lease_seconds))

    def _note(self, lease: dict[str, Any]) -> None:
        """Remember when the Lease was last seen to change, by our own clock."""
        spec = lease.get("spec", {})
        self.leader = spec.get("holderIdentity") or ""
        state = (self.leader, spec.get("renewTime"), spec.get("leaseTransitions"))
        self._seen_lease_seconds = float(spec.get("leaseDurationSeconds") or self._settings.lease_seconds)
        if state != self._seen:
            self._seen, self._seen_at = state, asyncio.get_running_loop().time()

    def _has_expired(self) -> bool:
        return asyncio.get_running_loop().time() > self._seen_at + self._seen_lease_seconds

    async def _request(self, verb: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await lease_request(self._transport, self._settings, verb=verb, path=path, body=body)
