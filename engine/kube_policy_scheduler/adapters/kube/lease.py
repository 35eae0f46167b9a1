"""Leader election by a Lease: at most one process acts, and knows by its own clock when it must stop. Binds nothing.

A leader may act until `renew_deadline_seconds` after it *began* its last successful renewal; others wait
`lease_seconds` after they *saw* it. The difference is the safety margin, and no two clocks are ever compared.
Both learn of changes from a watch: a Lease that is given back is taken at once, one that runs out is seen to have been
renewed when it was, and not up to a retry period later, and one that is deleted is made again by its leader at once.
A candidate that has seen it held waits for that as long as for a renewal.

A leader that ends in order says in the Lease how far it had seen: who follows need not ask the API server then. Of one
that vanished, who follows finds that out between the moment from which on it can write nothing any more and the end of
its Lease, so that it can decide as soon as it leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    MalformedAnswer,
    NotFound,
)
from kube_policy_scheduler.adapters.kube.lease_news import LeaseNews
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.times import rfc3339

logger = logging.getLogger(__name__)

JITTER = 1.2  # as in client-go: candidates that wait do not ask at the same moment
RELEASE_TIMEOUT_SECONDS = 3.0
VOUCHED = "policy-scheduler/view"
"""Annotation: the last changes that a leader that ended in order had seen, as `pods=120,nodes=98`; nothing that it did
is newer."""
REMIND_SECONDS = 60.0
"""Between two log lines of a candidate about the same trouble."""
AHEAD = 0.25
"""Of the margin between the time for which a leader may act and the end of its Lease: what it sent at the very end has
so long to arrive before candidates find out how much it did."""
EXPIRY_GRACE_SECONDS = 0.01  # a look at the very end of a Lease would find it still valid


class LeaseSettings(msgspec.Struct, frozen=True):
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
    def full_name(self) -> str:
        """Namespace and name, for people."""
        return f"{self.namespace}/{self.name}"

    @property
    def collection(self) -> str:
        """Path of the Leases of the namespace."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"


class HeldLease:
    """What we hold of a Lease: whether, and until when, we may act by it. One keeps it, the fence reads it."""

    def __init__(self, *, renew_deadline_seconds: float) -> None:
        """Make one that is not held. renew_deadline_seconds: for this long after a renewal began we may act."""
        self._renew_deadline_seconds = renew_deadline_seconds
        self.is_held = False
        self.until = 0.0
        """Event loop's time up to which we may act, if it is held."""

    def renewed(self, began: float) -> None:
        """Note a renewal that succeeded; began: event loop's time at which its request began."""
        self.until = began + self._renew_deadline_seconds

    @property
    def renewed_at(self) -> float:
        """When the request began that keeps us where we are, by the event loop's time."""
        return self.until - self._renew_deadline_seconds

    @property
    def is_valid(self) -> bool:
        """Whether this replica may write now. Turns false when a renewal is overdue."""
        return self.is_held and asyncio.get_running_loop().time() < self.until


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
        held: HeldLease,
        random: Random,
        on_started: Callable[[], None] = lambda: None,
        on_stopped: Callable[[str], None] = lambda why: None,
        on_silence: Callable[[], None] = lambda: None,
        vouch: Callable[[], Mapping[str, int]] = dict,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make one.

        Args:
            transport: to the API server.
            settings: which Lease, and who we are.
            held: kept up to date with what we hold.
            random: spreads the tries of candidates.
            on_started: called when leading begins.
            on_stopped: called with the reason when it ends.
            on_silence: called before another's Lease runs out, when its holder cannot write any more unless it renews
                it: what it did can be found out from now on.
            vouch: asked when the Lease is given back: the resource version of the last change that we have seen, by
                resource; empty where not all is seen that we did.
            clock: for the times shown in the Lease only.
        """
        self._transport = transport.dedicated()  # bindings that hang must not keep a renewal waiting
        self._settings = settings
        self._random = random
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._on_silence = on_silence
        self._vouch = vouch
        self._clock = clock
        self._held = held
        self._seen: tuple[str, Any, Any] | None = None
        self._seen_at = 0.0
        self._seen_lease_seconds = settings.lease_seconds
        self.leader = ""  # identity in the Lease, as seen last
        self.follows_nobody = False
        """Whether no replica has led before, as far as is known."""
        self.vouched: Mapping[str, int] = {}
        """What the leader before us says that it had seen, by resource; nothing where it did not end in order."""
        self.silent_since: float | None = None
        """Event loop's time of a call of `on_silence` since which the leader before us cannot have written anything;
        None where there was none."""
        self._silence: tuple[tuple[str, Any, Any], float] | None = None  # the Lease at such a call, and when that was
        self._trouble = ""  # why the Lease cannot be read or written, "" where it can
        self._trouble_since = 0.0
        self._is_refused = False  # the trouble is a refusal, which does not pass by waiting
        self._logged: tuple[str, float] = ("", 0.0)  # what was logged last about who holds it, and when
        self._news = LeaseNews(
            self._transport,
            collection=settings.collection,
            name=settings.name,
            pause_seconds=settings.retry_seconds,
            is_expected=lambda holder: self._held.is_held and holder == settings.identity,
        )

    @property
    def trouble(self) -> str:
        """Why the Lease cannot be read or written; "" where it can, or has not been tried for long enough to tell."""
        lasts = asyncio.get_running_loop().time() - self._trouble_since
        return self._trouble if self._is_refused or lasts >= self._settings.lease_seconds else ""

    def _note_trouble(self, error: KubeError | None) -> None:
        if error is not None and not self._trouble:
            self._trouble_since = asyncio.get_running_loop().time()
        self._trouble = str(error) if error is not None else ""
        self._is_refused = isinstance(error, Forbidden | NotFound | Invalid)

    def dial_ahead(self) -> None:
        """Open the connection for the first request of `run`, which is about to be called."""
        self._transport.dial_ahead()

    async def run(self) -> str:
        """Wait until the Lease is ours, keep it while that goes well; return why it was lost.

        When cancelled, stop leading and give the Lease back, so that a standby need not wait for it to expire.
        """
        try:
            is_ours = await self._has_taken()
            async with self._news:
                while not is_ours:
                    self._log_what_is_awaited()
                    await self._news.wait(self._until_next_look())
                    self._look_for_silence()
                    is_ours = await self._has_taken()
                self._lead()
                why = await self._keep()
        except BaseException:
            if self._held.is_held:
                self._stop("shutting down")
                await self._release()
            raise
        self._stop(why)
        return why

    def _lead(self) -> None:
        self._held.is_held = True
        logger.info("became leader", extra={"lease": self._settings.full_name, "identity": self._settings.identity})
        self._on_started()

    def _log_what_is_awaited(self) -> None:
        """Log who holds the Lease, or why it cannot be had: when that changes, and trouble once a minute."""
        now = asyncio.get_running_loop().time()
        known, at = self._logged
        trouble = self.trouble
        text = trouble or self.leader
        if text == known and not (trouble and now - at >= REMIND_SECONDS):
            return
        self._logged = text, now
        if trouble:
            fields = {"lease": self._settings.full_name, "why": trouble}
            logger.warning("failed to acquire the lease; this replica schedules no pods", extra=fields)
        elif self.leader:
            fields = {"lease": self._settings.full_name, "holder": self.leader}
            logger.info("standing by: another replica holds the lease", extra=fields)

    async def _has_taken(self) -> bool:
        """Try once; return whether the Lease is ours, and young enough to act by it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            is_ours = await self._try_to_hold()
        except KubeError as error:
            self._note_trouble(error)
            return False
        self._note_trouble(None)
        if not is_ours:
            return False
        self._held.renewed(began)
        return loop.time() < self._held.until

    def _until_next_look(self) -> float:
        """Return seconds: a retry period, or less where another's Lease ends before that."""
        pause = self._settings.retry_seconds * self._random.uniform(1.0, JITTER)
        now = asyncio.get_running_loop().time()
        until = [self._silent_from(), self._seen_at + self._seen_lease_seconds + EXPIRY_GRACE_SECONDS]
        return min(pause, *(at - now for at in until if self.leader and at > now), pause)

    def _silent_from(self) -> float:
        """Return from when on the holder of the Lease cannot have anything on its way, unless it renews it."""
        settings = self._settings
        margin = settings.lease_seconds - settings.renew_deadline_seconds
        return self._seen_at + self._seen_lease_seconds - margin * (1.0 - AHEAD)

    def _look_for_silence(self) -> None:
        """Tell once of each state of another's Lease, if it is about to run out."""
        now = asyncio.get_running_loop().time()
        if self._seen is None or self.leader in ("", self._settings.identity) or now < self._silent_from():
            return
        if self._silence is None or self._silence[0] != self._seen:
            self._silence = self._seen, now
            self._on_silence()

    async def _keep(self) -> str:
        """Renew until that fails for too long, or another one has the Lease; return which."""
        while True:
            try:
                async with asyncio.timeout_at(self._held.until):
                    if not await self._renew():
                        return f"the lease is now held by {self.leader or 'nobody'}"
            except TimeoutError:
                return f"the lease could not be renewed within {self._settings.renew_deadline_seconds:g} s"

    async def _renew(self) -> bool:
        """Pause, then try until it is settled whether the Lease is still ours."""
        loop = asyncio.get_running_loop()
        while True:
            await self._news.wait(self._settings.retry_seconds)
            began = loop.time()
            try:
                if not await self._try_to_hold():
                    if self.leader == self._settings.identity:
                        continue  # only the update lost a race
                    return False
            except KubeError as error:
                self._note_trouble(error)
                logger.warning("failed to renew lease %s: %s", self._settings.full_name, error)
                continue
            self._note_trouble(None)
            self._held.renewed(began)
            return True

    def _stop(self, why: str) -> None:
        self._held.is_held = False
        logger.warning("stopped leading: %s", why, extra={"lease": self._settings.full_name})
        self._on_stopped(why)

    # --- the Lease ----------------------------------------------------------------------------------

    async def _try_to_hold(self) -> bool:
        """Take or renew the Lease if it is free, expired or ours; return whether it is ours now. Raises KubeError."""
        settings = self._settings
        now = rfc3339(self._clock(), "microseconds")
        try:
            lease = await self._request("GET", f"{settings.collection}/{settings.name}")
        except NotFound:
            if self.leader not in ("", settings.identity):
                # deleted; its holder may have renewed it until then, and creates it again if it still leads
                self._note_state((self.leader, "deleted", None))
                if not self._has_expired():
                    return False
            self._inherit(follows_nobody=self._seen is None)
            return await self._create(now)
        spec = lease.setdefault("spec", {})
        holder = spec.get("holderIdentity") or ""
        self._note(lease)
        if holder not in ("", settings.identity) and not self._has_expired():
            return False
        vouched = (lease["metadata"].get("annotations") or {}).pop(VOUCHED, "")
        if holder != settings.identity:
            self._inherit(vouched=_read_vouched(vouched) if not holder else {})
        spec["renewTime"] = now
        spec["leaseDurationSeconds"] = self._whole_lease_seconds
        if holder != settings.identity or not self._held.is_held:
            spec["acquireTime"] = now
        if holder != settings.identity:
            spec["holderIdentity"] = settings.identity
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        try:
            self._note(await self._request("PUT", f"{settings.collection}/{settings.name}", lease))
        except Conflict:
            return False  # another client wrote in between
        return True

    def _inherit(self, *, follows_nobody: bool = False, vouched: Mapping[str, int] | None = None) -> None:
        """Note what is known of the leader before us; what is noted when we lead already is of no interest."""
        if not self._held.is_held:
            self.follows_nobody, self.vouched = follows_nobody, vouched or {}
            is_same = self._silence is not None and self._silence[0] == self._seen
            self.silent_since = self._silence[1] if self._silence is not None and is_same else None

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
                    if vouched := ",".join(f"{kind}={version}" for kind, version in self._vouch().items()):
                        metadata = lease["metadata"]
                        metadata["annotations"] = (metadata.get("annotations") or {}) | {VOUCHED: vouched}
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
        self._note_state(state)

    def _note_state(self, state: tuple[str, Any, Any]) -> None:
        if state != self._seen:
            self._seen, self._seen_at = state, asyncio.get_running_loop().time()

    def _has_expired(self) -> bool:
        return asyncio.get_running_loop().time() > self._seen_at + self._seen_lease_seconds

    async def _request(self, verb: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await lease_request(self._transport, self._settings, verb=verb, path=path, body=body)


def _read_vouched(text: str) -> dict[str, int]:
    """Read the annotation; what cannot be read says nothing."""
    pairs = (part.partition("=") for part in text.split(","))
    return {kind: number for kind, _, version in pairs if (number := version_number(version))}
