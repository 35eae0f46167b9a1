"""What happens to a pod's claims between its decision and its binding: Reserve, PreBind, and Unreserve.

    reservation = reserve(frame, state, row)      # allocated in the cluster's memory, at once
    for write in writes(reservation): ...         # what PreBind sends, in order
    undo(reservation, cluster)                    # on any failure, also of other plugins

Pure: the caller sends, waits and keeps the time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.devices.allocation_results import results_of
from kube_policy_scheduler.framework.devices.extended_resources import (
    CLAIM_NAME,
    RequestMapping,
    provided_resources,
)
from kube_policy_scheduler.framework.devices.group_claims import user_of
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Ready
from kube_policy_scheduler.framework.plugins.dynamic_resources import ClaimState, DynamicResources, ReservedClaims
from kube_policy_scheduler.framework.status import Status

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Keeps a claim that has devices from being deleted."""


class ReservedClaim(msgspec.Struct, frozen=True):
    """One claim of the pod, and what it gets."""

    claim: objects.ResourceClaim
    """As it was read; for extended resources with the requests that the node needs."""
    allocation: objects.AllocationResult | None
    """What it received now; None if it had devices before."""
    user: objects.ResourceClaimConsumerReference
    """Whom it is reserved for: the pod, or its PodGroup."""

    @property
    def is_reserved(self) -> bool:
        """Return whether the claim names the user already, so that PreBind writes nothing."""
        return any(user.uid == self.user.uid for user in self.claim.status.reserved_for or ())

    @property
    def users(self) -> list[objects.ResourceClaimConsumerReference]:
        """Return the users of the claim after PreBind, the new one last."""
        before = list(self.claim.status.reserved_for or ())
        return before if self.is_reserved else [*before, self.user]

    @property
    def written(self) -> objects.AllocationResult | None:
        """Return the allocation that the claim's status has after PreBind."""
        stored = self.claim.status.allocation
        return stored if self.is_reserved else self.allocation or stored


class ClaimReservation(msgspec.Struct, frozen=True):
    """What was allocated in memory for a pod on its node."""

    pod: PodInfo
    node_name: str
    claims: tuple[ReservedClaim, ...] = ()
    mappings: tuple[RequestMapping, ...] = ()
    """Requests by the container whose extended resources they serve."""
    groups: tuple[Hashable, ...] = ()
    """The gangs of the pod, whose members may rest on what it was given."""

    @property
    def failure(self) -> str:
        """Return why PreBind fails after its writes, "" if it does not.

        A device plugin serves all extended resources, and the pod has other claims: kube-scheduler then makes an empty
        claim and stops at it. Such a pod is never bound to such a node.
        """
        made = any(one.claim.metadata.name == CLAIM_NAME for one in self.claims)
        if not made or self.mappings:
            return ""
        return f"nil or empty request mappings, no update of pod {self.pod.key} ExtendedResourceClaimStatus"


class ClaimWrite(msgspec.Struct, frozen=True):
    """One request of PreBind; a claim made for extended resources has no name before the first of them is answered."""

    verb: str
    """`create`, `update` or `patch`"""
    resource: str
    namespace: str
    name: str
    subresource: str = ""
    body: Mapping[str, Any] = msgspec.field(default_factory=dict)


def allocated_on(
    plugin: DynamicResources, frame: Frame, state: ClaimState, row: int, *, share_id: str = ""
) -> list[ReservedClaim]:
    """Return what the claims without devices get on a node that passed Filter.

    share_id: what ids of shares begin with.
    """
    reserved = plugin.allocation(frame, state, row)
    return [] if reserved is None else _reserved(reserved, frame, row, share_id)


def _reserved(reserved: ReservedClaims, frame: Frame, row: int, share_id: str) -> list[ReservedClaim]:
    cluster = frame.cluster
    results = results_of(reserved.found, reserved.specs, cluster.nodes.infos[row], cluster.rules, share_id)
    return [
        ReservedClaim(msgspec.structs.replace(claim, spec=spec), result, user_of(frame.pod, claim, cluster))
        for claim, spec, result in zip(reserved.claims, reserved.specs, results, strict=True)
    ]


def reserve(plugin: DynamicResources, frame: Frame, state: ClaimState, row: int, *, share_id: str) -> ClaimReservation:
    """Allocate a pod's claims on a node, in memory: from now on their devices are in use for all pods.

    share_id: what the ids of shares begin with; unique in the cluster.
    """
    reserved = plugin.allocation(frame, state, row)
    done = [] if reserved is None else _reserved(reserved, frame, row, share_id)
    fresh = {object_key(one.claim.metadata): one for one in done}
    claims = [fresh.get(object_key(claim.metadata)) or _known(claim, frame) for claim in state.claims]
    if state.extended is not None and not state.stale and object_key(state.extended.metadata) not in fresh:
        claims = [one for one in claims if one.claim is not state.extended]
    extended = reserved.extended if reserved is not None else None
    mappings = extended.mappings if extended is not None else ()
    name = frame.cluster.nodes.infos[row].name
    reservation = ClaimReservation(frame.pod, name, tuple(claims), mappings, frame.groups)
    redo(reservation, frame.cluster)
    return reservation


def _known(claim: objects.ResourceClaim, frame: Frame) -> ReservedClaim:
    """Return a claim that got its devices before, be it in memory for another member of the pod's gang."""
    pending = frame.cluster.resource_claims.pending_allocation(claim.metadata.uid)
    user = user_of(frame.pod, claim, frame.cluster)
    return ReservedClaim(claim, pending if pending is claim.status.allocation else None, user)


SHARE_ID_IN_MEMORY = "00000000-0000-4000-8000-"
"""What ids of shares begin with that are never written."""


def reserve_on(frame: Frame, *, share_id: str = SHARE_ID_IN_MEMORY) -> ClaimReservation | str | None:
    """Allocate the claims of the frame's pod on the frame's only row, as `reserve`; None if there are none.

    Returns:
        Why that is no longer possible, if it is not; then nothing is allocated.
    """
    plugin = DynamicResources()
    prepared = plugin.pre_filter(frame)
    if not isinstance(prepared, Ready):
        return ", ".join(prepared.reasons) if isinstance(prepared, Status) else None
    row = int(frame.index()[0])
    if plugin.filter(frame, prepared.state)[0]:
        return reserve(plugin, frame, prepared.state, row, share_id=share_id)
    return ", ".join(rejection.reason for rejection in plugin.rejections(frame, prepared.state) if rejection.where[0])


def has_claims(template: PodTemplate, cluster: Cluster) -> bool:
    """Return whether pods of a template claim devices, be it by a claim or as an extended resource of a class."""
    return bool(template.spec.resource_claims or provided_resources(template, cluster.store))


def undo(reservation: ClaimReservation, cluster: Cluster) -> None:
    """Undo the allocation in memory, as far as no other pod rests on it; a second call has no effect."""
    for one in reservation.claims:
        if one.allocation is not None:
            cluster.resource_claims.leave_allocation(one.claim.metadata.uid, pod_uid=reservation.pod.uid)
    cluster.resource_claims.let_go(reservation.pod.uid)


def redo(reservation: ClaimReservation, cluster: Cluster) -> None:
    """Allocate in memory what `undo` gave back; the caller knows that it is still free."""
    claims, uid = cluster.resource_claims, reservation.pod.uid
    for one in reservation.claims:
        if one.allocation is not None:
            claims.start_allocation(_allocated(one), pod_uid=uid, groups=reservation.groups)
    claims.hold(uid)


def _allocated(one: ReservedClaim) -> objects.ResourceClaim:
    status = msgspec.structs.replace(one.claim.status, allocation=one.allocation)
    return msgspec.structs.replace(one.claim, status=status)


def waits_for_binding_conditions(reservation: ClaimReservation) -> bool:
    """Return whether any device has conditions that must be true before the pod can be bound."""
    return bool(drivers_with_conditions(reservation))


def drivers_with_conditions(reservation: ClaimReservation) -> tuple[str, ...]:
    """Return the drivers of the devices that have such conditions, by name."""
    found = {
        result.driver
        for one in reservation.claims
        if (allocation := one.written) is not None
        for result in allocation.devices.results or ()
        if result.binding_conditions
    }
    return tuple(sorted(found))


# --- what PreBind writes ----------------------------------------------------------------------------------


def writes(reservation: ClaimReservation, *, timestamp: str, extended_name: str) -> Sequence[ClaimWrite]:
    """Return what PreBind sends, in order.

    Args:
        reservation: the pod and its claims.
        timestamp: the time of allocation, RFC 3339.
        extended_name: the name that the API server gave the claim for extended resources.
    """
    found: list[ClaimWrite] = []
    pod = reservation.pod
    for one in reservation.claims:
        claim, meta = one.claim, one.claim.metadata
        if one.is_reserved:
            continue
        is_extended = meta.name == CLAIM_NAME
        name, finalizers = meta.name, list(meta.finalizers or ())
        if is_extended:
            name = extended_name
            found.append(ClaimWrite("create", "resourceclaims", meta.namespace, "", body=extended_claim(pod, claim)))
        allocation = one.allocation or claim.status.allocation
        if allocation is None:
            continue
        if one.allocation is not None and FINALIZER not in finalizers:
            protected = {"metadata": {"finalizers": [*finalizers, FINALIZER]}}
            found.append(ClaimWrite("update", "resourceclaims", meta.namespace, name, body=protected))
        allocation = stamped(allocation, timestamp)
        status = msgspec.structs.replace(claim.status, allocation=allocation, reserved_for=one.users)
        written = {"status": msgspec.to_builtins(status)}
        found.append(ClaimWrite("update", "resourceclaims", meta.namespace, name, "status", written))
        if is_extended and reservation.mappings:
            body = extended_claim_status(name, reservation.mappings)
            found.append(ClaimWrite("patch", "pods", pod.namespace, pod.name, "status", body))
    return found


def stamped(allocation: objects.AllocationResult, timestamp: str) -> objects.AllocationResult:
    """Return an allocation with the time at which it was made, RFC 3339, unless it has one."""
    if allocation.allocation_timestamp is not None:
        return allocation
    return msgspec.structs.replace(allocation, allocation_timestamp=timestamp)


def extended_claim(pod: PodInfo, claim: objects.ResourceClaim) -> Mapping[str, Any]:
    """Return the claim for a pod's extended resources as it is created; the API server generates its name."""
    meta = claim.metadata
    return {
        "metadata": {
            "generateName": f"{pod.name}-extended-resources-",
            "namespace": meta.namespace,
            "annotations": meta.annotations,
            "ownerReferences": msgspec.to_builtins(meta.owner_references),
        },
        "spec": msgspec.to_builtins(claim.spec),
    }


def extended_claim_status(claim_name: str, mappings: Sequence[RequestMapping]) -> Mapping[str, Any]:
    """Return what is written to a pod's status about the claim for its extended resources."""
    listed = [
        {"containerName": one.container_name, "requestName": one.request_name, "resourceName": one.resource_name}
        for one in mappings
    ]
    status = {"extendedResourceClaimStatus": {"requestMappings": listed, "resourceClaimName": claim_name}}
    return {"status": status}
