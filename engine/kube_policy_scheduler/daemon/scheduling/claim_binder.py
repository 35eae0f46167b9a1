"""PreBind for devices: writes what was reserved, waits for conditions of devices, and gives claims back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError
from kube_policy_scheduler.adapters.kube.resource_claims import ClaimChanged, ResourceClaimWriter
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.resource_claims import gives_the_same
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.observing.observers import ClaimsBound
from kube_policy_scheduler.daemon.watching.freshness import STALE_POLL_SECONDS, View
from kube_policy_scheduler.framework.deadlines import Deadlines
from kube_policy_scheduler.framework.devices.contention import contention
from kube_policy_scheduler.framework.devices.extended_resources import CLAIM_NAME
from kube_policy_scheduler.framework.devices.pod_claims import (
    binding_failure,
    binding_seconds_left,
    is_ready_for_binding,
)
from kube_policy_scheduler.framework.reserve.claim_reservation import (
    ClaimReservation,
    ReservedClaim,
    drivers_with_conditions,
    extended_claim,
    extended_claim_status,
    stamped,
    undo,
    waits_for_binding_conditions,
)
from kube_policy_scheduler.times import Steady, rfc3339

logger = logging.getLogger(__name__)

PLUGIN = "DynamicResources"
CONDITIONS_POLL_SECONDS = 5.0
"""How often the cache is asked for the conditions of devices, as kube-scheduler does; it costs no request."""
WATCH_POLL_SECONDS = 0.02
WITHDRAWALS = 8
"""How often an allocation is taken back that lost against another one, before the claim is left to its users."""
WATCH_SECONDS = 120.0
"""How long the watch may take to show a claim that we wrote."""


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do work, also if it is cancelled meanwhile; only a second cancellation ends it."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(KubeError, ClaimChanged):
            await task
        raise


class _Progress(msgspec.Struct):
    """How far the claims of one pod have come, for those who look on."""

    began: Steady
    created: str = ""
    contended: int = 0
    conditions: str = ""
    conditions_began: Steady = Steady(0.0)

    def ended(self, reservation: ClaimReservation, why: str, *, now: Steady, ahead: float) -> ClaimsBound:
        """Return what is reported at the end; ahead: by how many seconds the wall clock is ahead."""
        return ClaimsBound(
            reservation.pod,
            reservation.node_name,
            began=self.began + ahead,
            seconds=max(0.0, now - self.began),
            claims=len(reservation.claims),
            why=why,
            created=self.created,
            contended=self.contended,
            conditions=self.conditions,
            conditions_seconds=max(0.0, now - self.conditions_began) if self.conditions else 0.0,
            drivers=drivers_with_conditions(reservation) if self.conditions else (),
        )


class ApiClaimBinder:
    """Brings reservations of claims to their end."""

    def __init__(
        self,
        writer: ResourceClaimWriter,
        cluster: Cluster,
        *,
        view: View,
        clock: Callable[[], Steady],
        pending: Callable[[PodInfo, str], None] = lambda pod, node_name: None,
        observe: Callable[[ClaimsBound], None] = lambda bound: None,
        poll_seconds: float = CONDITIONS_POLL_SECONDS,
    ) -> None:
        """Make one.

        Args:
            writer: of claims.
            cluster: shows claims as the watch and our own writes have them.
            view: of all claims.
            clock: the time.
            pending: called with a pod that waits for conditions of its devices, and of its node.
            observe: called with the result of each `bind`.
            poll_seconds: how often these are looked at.
        """
        self._writer = writer
        self._cluster = cluster
        self._clock = clock
        self._pending = pending
        self._observe = observe
        self._view = view
        self._poll_seconds = poll_seconds
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By uid of the claim: members of a gang write a claim that they share one after the other."""
        self._awaited: dict[str, asyncio.Future[str]] = {}
        """By uid of the claims that we allocate: why that cannot stand, once the watch shows it."""

    def delivered(self, claim: objects.ResourceClaim, *, gone: bool = False) -> None:
        """Note a claim as the watch shows it, and find out whether its allocation stands if it is ours."""
        awaited = self._awaited.get(claim.metadata.uid)
        if awaited is None or awaited.done():
            return
        if gone:
            awaited.set_result(f"claim {object_key(claim.metadata)} got deleted in the meantime")
        elif claim.status.allocation is not None:
            awaited.set_result(contention(claim, self._cluster))

    async def bind(self, reservation: ClaimReservation) -> str:
        """Write a reservation and wait until its devices can be used; return why that failed, "" where it did not.

        After a failure nothing is reserved any more. If the task is cancelled, it first waits for the answer to a write
        that was sent, so that `unreserve`, which the caller then calls, knows what to release.
        """
        progress = _Progress(self._clock())
        why = "cancelled"  # what a cancellation leaves
        try:
            for one in reservation.claims:
                if one.allocation is None:
                    await self._check_earlier(one, progress)
                if not one.is_reserved:
                    await _to_its_end(self._bind_claim(one, reservation, progress))
            why = reservation.failure
            if not why and waits_for_binding_conditions(reservation):
                self._pending(reservation.pod, reservation.node_name)
                why = await self._await_conditions(reservation, progress)
        except (KubeError, ClaimChanged) as error:
            why = str(error)
        except Exception as error:
            logger.exception("unexpected error while binding claims")
            why = f"internal error: {error!r}"
        finally:
            if why:
                undo(reservation, self._cluster)
            self._observe(progress.ended(reservation, why, now=self._clock(), ahead=self._cluster.ahead))
        if not why:
            return ""
        await self.unreserve(reservation)
        return f'running PreBind plugin "{PLUGIN}": {why}'

    async def _bind_claim(self, one: ReservedClaim, reservation: ClaimReservation, progress: _Progress) -> None:
        if one.claim.metadata.name == CLAIM_NAME:
            if one.allocation is not None:
                await self._bind_extended(one, one.allocation, reservation, progress)
            return
        uid = one.claim.metadata.uid
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        async with lock:
            claim, allocation = one.claim, one.allocation
            known = self._cluster.resource_claims.get(object_key(claim.metadata))
            if known is not None and known.metadata.uid == uid:
                stored = known.status.allocation
                claim = known
                if allocation is not None and stored is not None and gives_the_same(stored, allocation):
                    allocation = None  # another member of the gang has written it
            await self._reserve(claim, allocation, one.user, progress)
            self._cluster.resource_claims.end_allocation(uid)

    async def _check_earlier(self, one: ReservedClaim, progress: _Progress) -> None:
        """Take back an allocation that was written earlier, if other claims have its devices and no other pod uses it.

        A scheduler that is killed before it can take back an allocation leaves such a claim. Nothing says any more
        which of the two was written first, and this pod is not bound yet: so its claim loses the devices.

        Raises:
            ClaimChanged: the allocation does not stand.
        """
        stored = self._cluster.resource_claims.stored(object_key(one.claim.metadata))
        if stored is None or stored.metadata.uid != one.claim.metadata.uid or stored.status.allocation is None:
            return
        if any(user.uid != one.user.uid for user in stored.status.reserved_for or ()):
            return
        why = contention(stored, self._cluster)
        if why:
            progress.contended += 1
            await self._withdraw(stored, one.user)
            raise ClaimChanged(why)

    async def _bind_extended(
        self,
        one: ReservedClaim,
        allocation: objects.AllocationResult,
        reservation: ClaimReservation,
        progress: _Progress,
    ) -> None:
        """Create the claim for extended resources, with its devices, and name it in the pod's status."""
        claim, pod, claims = one.claim, reservation.pod, self._cluster.resource_claims
        progress.created = "failure"
        made = await self._writer.create(pod.namespace, extended_claim(pod, claim))
        progress.created = "success"
        in_flight = msgspec.structs.replace(made, status=objects.ResourceClaimStatus(allocation=allocation))
        claims.start_allocation(in_flight, pod_uid=pod.uid)  # now under the uid by which the watch shows it
        claims.end_allocation(claim.metadata.uid)
        try:
            made = await self._reserve(made, allocation, one.user, progress)
            if reservation.mappings:
                body = extended_claim_status(made.metadata.name, reservation.mappings)
                await self._writer.patch_pod_status(namespace=pod.namespace, name=pod.name, body=body)
        except BaseException:
            await self._shown(made)  # only then can it be deleted
            raise
        finally:
            claims.end_allocation(made.metadata.uid)

    async def _shown(self, claim: objects.ResourceClaim) -> None:
        """Wait until the watch shows a claim that we created."""
        key = object_key(claim.metadata)
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                while self._cluster.resource_claims.stored(key) is None:  # noqa: ASYNC110 (only after a failure)
                    await asyncio.sleep(WATCH_POLL_SECONDS)
        except TimeoutError:
            logger.warning("the watch does not show a claim that was created", extra={"claim": key})

    async def _reserve(
        self,
        claim: objects.ResourceClaim,
        allocation: objects.AllocationResult | None,
        user: objects.ResourceClaimConsumerReference,
        progress: _Progress,
    ) -> objects.ResourceClaim:
        """Write a user to a claim, with its devices if it has none, and return it; take them back if others have them.

        Raises:
            ClaimChanged: the claim is not what it was, or its devices were allocated to another claim first.
            KubeError: it could not be written.
        """
        key = object_key(claim.metadata)
        if allocation is None:
            written = await self._writer.reserve(claim, user=user, allocation=None)
            if self._cluster.resource_claims.stored(key) is not None:
                self._cluster.resource_claims.assume(written)
            return written
        shows_order, losses = self._view.is_current, self._view.losses
        shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._awaited[claim.metadata.uid] = shown
        try:
            allocation = stamped(allocation, rfc3339(self._clock() + self._cluster.ahead))
            written = await self._writer.reserve(claim, user=user, allocation=allocation)
            async with asyncio.timeout(WATCH_SECONDS):  # until then its devices count as in flight
                why = await shown
                if not why and not (shows_order and self._view.losses == losses):
                    why = await self._look_again(written)
        except TimeoutError:
            why = f"the watch does not show the allocation of claim {key}"
        finally:
            del self._awaited[claim.metadata.uid]
        if why:
            progress.contended += 1
            await self._withdraw(written, user)
            raise ClaimChanged(why)
        return written

    async def _look_again(self, claim: objects.ResourceClaim) -> str:
        """Return why an allocation does not stand, once all is known: a list does not say what was written first."""
        while not self._view.is_current:  # noqa: ASYNC110 (asked by turns, as the scheduling loop does)
            await asyncio.sleep(STALE_POLL_SECONDS)
        now = self._cluster.resource_claims.stored(object_key(claim.metadata))
        if now is None or now.metadata.uid != claim.metadata.uid:
            return f"claim {object_key(claim.metadata)} got deleted in the meantime"
        return contention(now, self._cluster)

    async def _withdraw(self, claim: objects.ResourceClaim, user: objects.ResourceClaimConsumerReference) -> None:
        """Take back an allocation that does not stand. Never raises."""
        key, allocation = object_key(claim.metadata), claim.status.allocation
        logger.warning("Deallocating claim: its devices are another claim's", extra={"claim": key})
        for number in range(WITHDRAWALS):
            try:
                await self._writer.deallocate(claim)
            except Conflict:  # somebody wrote to it meanwhile, such as a driver about its devices
                await asyncio.sleep(WATCH_POLL_SECONDS * 2**number)
                now = self._cluster.resource_claims.stored(key)
                if now is None or now.status.allocation is None or now.metadata.uid != claim.metadata.uid:
                    return
                if allocation is None or not gives_the_same(now.status.allocation, allocation):
                    return
                if any(other.uid != user.uid for other in now.status.reserved_for or ()):
                    break
                claim = now
            except KubeError as error:
                logger.warning("failed to deallocate a claim", extra={"claim": key, "why": str(error)})
                await asyncio.sleep(WATCH_POLL_SECONDS * 2**number)
            else:
                return
        logger.error("cannot deallocate a claim whose devices are another claim's", extra={"claim": key})

    async def _await_conditions(self, reservation: ClaimReservation, progress: _Progress) -> str:
        """Wait for the conditions of all devices; return why they will not come, "" once they are there."""
        progress.conditions, progress.conditions_began = "error", self._clock()
        may_wait, begun = Deadlines[str](), set[str]()
        while True:
            waits = False
            for claim in self._current(reservation):
                failure = binding_failure(claim)
                if failure is not None:
                    progress.conditions = "failure"
                    return failure
                if not is_ready_for_binding(claim):
                    uid, now = claim.metadata.uid, self._clock()
                    if uid not in begun:  # from here on it counts what has passed, whatever the clock is set to
                        begun.add(uid)
                        left = binding_seconds_left(claim, now + self._cluster.ahead)
                        may_wait.pause(uid, now, seconds=left)
                    if not may_wait.pauses(uid, now):
                        progress.conditions = "timeout"
                        return f"device binding timeout: claim={claim.metadata.name}"
                    waits = True
            if not waits:
                progress.conditions = "success"
                return ""
            await asyncio.sleep(self._poll_seconds)

    def _current(self, reservation: ClaimReservation) -> list[objects.ResourceClaim]:
        """Return the claims as they are now.

        Raises:
            ClaimChanged: one is gone.
        """
        found, claims = [], self._cluster.resource_claims
        for one in reservation.claims:
            meta = one.claim.metadata
            if meta.name == CLAIM_NAME:
                claim = claims.for_extended_resources(reservation.pod.uid)
            else:
                claim = claims.get(object_key(meta))
                claim = claim if claim is not None and claim.metadata.uid == meta.uid else None
            if claim is None:
                raise ClaimChanged(f'resourceclaim "{meta.name}" not found')
            found.append(claim)
        return found

    # --- giving back ---------------------------------------------------------------------------------

    async def unreserve(self, reservation: ClaimReservation) -> None:
        """Remove the pod from the users of its claims, and delete what was created for it. Never raises.

        A claim that is reserved for a PodGroup stays so: others of its pods may use it.
        The devices stay the claims': the next attempt goes where they are, or takes them away.
        """
        undo(reservation, self._cluster)
        pod, claims = reservation.pod, self._cluster.resource_claims
        made = claims.for_extended_resources(pod.uid)
        for one in reservation.claims:
            claim = claims.get(object_key(one.claim.metadata))
            if claim is None or claim is made or claim.metadata.uid != one.claim.metadata.uid:
                continue
            if any(user.uid == pod.uid for user in claim.status.reserved_for or ()):
                await self._try(self._writer.release(claim, uid=pod.uid), "failed to release a claim", claim)
        if made is not None:
            await self._try(self._writer.delete(made), "failed to delete a claim", made)

    async def deallocate(self, claim: objects.ResourceClaim) -> None:
        """Take a claim's devices away, so that it may be allocated elsewhere. Never raises."""
        logger.info("Deallocating claim", extra={"claim": object_key(claim.metadata)})
        await self._try(self._writer.deallocate(claim), "failed to deallocate a claim", claim)

    async def delete(self, claim: objects.ResourceClaim) -> None:
        """Delete a claim that was made for extended resources in an earlier attempt. Never raises."""
        logger.info("Deleting claim", extra={"claim": object_key(claim.metadata)})
        await self._try(self._writer.delete(claim), "failed to delete a claim", claim)

    @staticmethod
    async def _try(work: Awaitable[None], text: str, claim: objects.ResourceClaim) -> None:
        try:
            await work
        except KubeError as error:
            logger.warning(text, extra={"claim": object_key(claim.metadata), "why": str(error)})
        except Exception:
            logger.exception("unexpected error: %s", text, extra={"claim": object_key(claim.metadata)})
