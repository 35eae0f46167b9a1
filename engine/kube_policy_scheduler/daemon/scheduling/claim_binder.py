"""PreBind for devices: writes what was reserved, waits for conditions of devices, and gives claims back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.resource_claims import ClaimChanged, ResourceClaimWriter
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.framework.claim_reservation import (
    ClaimReservation,
    ReservedClaim,
    extended_claim,
    extended_claim_status,
    stamped,
    undo,
    waits_for_binding_conditions,
)
from kube_policy_scheduler.framework.dynamic_resources.extended_resources import CLAIM_NAME
from kube_policy_scheduler.framework.dynamic_resources.pod_claims import (
    binding_failure,
    has_binding_timed_out,
    is_ready_for_binding,
)
from kube_policy_scheduler.times import rfc3339

logger = logging.getLogger(__name__)

PLUGIN = "DynamicResources"
CONDITIONS_POLL_SECONDS = 5.0
"""How often the cache is asked for the conditions of devices, as kube-scheduler does; it costs no request."""
WATCH_POLL_SECONDS = 0.02
WATCH_SECONDS = 120.0
"""How long a claim that we created is waited for, until the watch shows it."""


class ClaimBinder:
    """Brings reservations of claims to their end."""

    def __init__(
        self,
        writer: ResourceClaimWriter,
        cluster: Cluster,
        *,
        clock: Callable[[], float],
        pending: Callable[[PodInfo, str], None] = lambda pod, node_name: None,
        poll_seconds: float = CONDITIONS_POLL_SECONDS,
    ) -> None:
        """Make one.

        Args:
            writer: of claims.
            cluster: shows claims as the watch and our own writes have them.
            clock: unix seconds.
            pending: called with a pod that waits for conditions of its devices, and of its node.
            poll_seconds: how often these are looked at.
        """
        self._writer = writer
        self._cluster = cluster
        self._clock = clock
        self._pending = pending
        self._poll_seconds = poll_seconds

    async def bind(self, reservation: ClaimReservation) -> str:
        """Write a reservation and wait until its devices can be used; return why that failed, "" where it did not.

        After a failure nothing is reserved any more. Never raises.
        """
        why = "the scheduler is shutting down"  # what a cancellation leaves
        try:
            for one in reservation.claims:
                if not one.is_reserved_for(reservation.pod):
                    await self._bind_claim(one, reservation)
            why = reservation.failure
            if not why and waits_for_binding_conditions(reservation):
                self._pending(reservation.pod, reservation.node_name)
                why = await self._conditions(reservation)
        except (KubeError, ClaimChanged) as error:
            why = str(error)
        except Exception as error:
            logger.exception("unexpected error while binding claims")
            why = f"internal error: {error!r}"
        finally:
            if why:
                undo(reservation, self._cluster)
        if not why:
            return ""
        await self.unreserve(reservation)
        return f'running PreBind plugin "{PLUGIN}": {why}'

    async def _bind_claim(self, one: ReservedClaim, reservation: ClaimReservation) -> None:
        pod, claim, allocation = reservation.pod, one.claim, one.allocation
        user = objects.ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
        if allocation is not None:
            allocation = stamped(allocation, rfc3339(self._clock()))
        is_new = claim.metadata.name == CLAIM_NAME
        if is_new:
            if allocation is None:
                return
            claim = await self._writer.create(pod.namespace, extended_claim(pod, claim))
        try:
            claim = await self._writer.reserve(claim, user=user, allocation=allocation)
            if not is_new:
                self._cluster.resource_claims.assume(claim)
            elif reservation.mappings:
                body = extended_claim_status(claim.metadata.name, reservation.mappings)
                await self._writer.patch_pod_status(namespace=pod.namespace, name=pod.name, body=body)
        finally:
            if is_new:  # until the watch shows it, its devices count as in flight
                await self._shown(claim)
        self._cluster.resource_claims.end_allocation(one.claim.metadata.uid)

    async def _shown(self, claim: objects.ResourceClaim) -> None:
        key, version = object_key(claim.metadata), version_number(claim.metadata.resource_version)
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                while True:
                    seen = self._cluster.resource_claims.get(key)
                    if seen is not None and version_number(seen.metadata.resource_version) >= version:
                        return
                    await asyncio.sleep(WATCH_POLL_SECONDS)
        except TimeoutError:
            logger.warning("the watch does not show a claim that was created", extra={"claim": key})

    async def _conditions(self, reservation: ClaimReservation) -> str:
        """Wait for the conditions of all devices; return why they will not come, "" once they are there."""
        while True:
            waits = False
            for claim in self._current(reservation):
                failure = binding_failure(claim)
                if failure is not None:
                    return failure
                if not is_ready_for_binding(claim):
                    if has_binding_timed_out(claim, self._clock()):
                        return f"device binding timeout: claim={claim.metadata.name}"
                    waits = True
            if not waits:
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
