"""The claims of a pod: their names, whether they may be used, and which of them need an allocation."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices import alpha_fields
from kube_policy_scheduler.cluster.object_store import key_of, object_key
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.devices.group_claims import group_with, is_made_for
from kube_policy_scheduler.times import unix_seconds

BINDING_TIMEOUT_SECONDS = 600.0
"""How long kube-scheduler waits for the binding conditions of devices."""


class ClaimProblem(Exception):
    """Why a pod's claims cannot be used now, in kube-scheduler's words."""


class PodClaims(msgspec.Struct, frozen=True):
    """The claims of a pod, in the order of its list."""

    claims: tuple[objects.ResourceClaim, ...] = ()

    @property
    def unallocated(self) -> tuple[objects.ResourceClaim, ...]:
        """Return those that have no devices yet."""
        return tuple(claim for claim in self.claims if claim.status.allocation is None)

    def joined(self, cluster: Cluster, groups: Sequence[Hashable]) -> PodClaims:
        """Return them as members of some gangs see them: with what other members were given in memory."""
        if not groups:
            return self
        return PodClaims(tuple(cluster.resource_claims.joined(claim, groups) for claim in self.claims))


def find_claims(pod: PodInfo, cluster: Cluster) -> PodClaims:
    """Return the pod's claims.

    Raises:
        ClaimProblem: one is missing, being deleted, or another pod's. PreEnqueue gates such a pod.
    """
    found: list[objects.ResourceClaim] = []
    for reference in pod.template.spec.resource_claims or ():
        try:
            name, is_made = _claim_name(pod, reference)
        except ClaimProblem as problem:
            raise ClaimProblem(f"{problem}{_why_unavailable(cluster)}") from None
        if name is None:
            continue
        key = key_of(pod.namespace, name)
        claim = cluster.resource_claims.get(key)
        if claim is None:
            raise ClaimProblem(f'could not find ResourceClaim "{key}"{_why_unavailable(cluster)}')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimProblem(f'resourceclaim "{name}" is being deleted')
        if is_made:
            _check_owner(claim, pod, group_with(pod.namespace, pod.template.spec, reference, cluster))
        found.append(claim)
    return PodClaims(tuple(found))


def _check_owner(claim: objects.ResourceClaim, pod: PodInfo, group: objects.PodGroup | None) -> None:
    """Check that a claim was made for a pod, or for its group where the claim is the group's.

    Raises:
        ClaimProblem: it was not.
    """
    if not is_made_for(claim, pod.uid if group is None else group.metadata.uid):
        whose = f"Pod {pod.key} (Pod" if group is None else f"PodGroup {object_key(group.metadata)} (PodGroup"
        raise ClaimProblem(f"ResourceClaim {object_key(claim.metadata)} was not created for {whose} is not owner)")


def _why_unavailable(cluster: Cluster) -> str:
    why = cluster.resource_claims.unavailable
    return f": claims cannot be read, which needs resource.k8s.io/v1 of Kubernetes 1.34 or newer ({why})" if why else ""


def claim_names(pod: PodInfo) -> list[str]:
    """Return the names of a pod's claims, as far as they are known."""
    named = [reference.resource_claim_name for reference in pod.template.spec.resource_claims or ()]
    return [name for name in (*named, *pod.claim_names.values()) if name is not None]


def waits_for_claims(pod: PodInfo, cluster: Cluster) -> str | None:
    """Return why PreEnqueue gates a pod: a claim of it is missing, being deleted, or another pod's."""
    if not pod.template.spec.resource_claims:
        return None
    try:
        find_claims(pod, cluster)
    except ClaimProblem as problem:
        return str(problem)
    return None


def _claim_name(pod: PodInfo, reference: objects.PodResourceClaim) -> tuple[str | None, bool]:
    """Return a claim's name, None if none was needed, and whether it was made for the pod."""
    if reference.resource_claim_name is not None:
        return reference.resource_claim_name, False
    if reference.resource_claim_template_name is None:
        text = f'pod "{pod.key}", spec.resourceClaim "{reference.name}": none of the supported fields are set'
        raise ClaimProblem(text)
    if reference.name not in pod.claim_names:
        raise ClaimProblem(f'pod "{pod.key}": ResourceClaim not created yet')
    return pod.claim_names[reference.name], True


def check_allocatable(claims: PodClaims, cluster: Cluster) -> None:
    """Check what can be checked of the claims without looking at nodes.

    Raises:
        ClaimProblem: a claim is being allocated for another pod, requests a class that does not exist, or has a field
            that only an alpha feature gate uses.
    """
    for claim in claims.unallocated:
        if cluster.resource_claims.pending_allocation(claim.metadata.uid) is not None:
            raise ClaimProblem(f"resource claim {object_key(claim.metadata)} is in the process of being allocated")
        key = object_key(claim.metadata)
        for request in claim.spec.devices.requests or ():
            if request.exactly is not None:
                _check_request(request.exactly, key, request.name, cluster)
            elif request.first_available:
                for sub in request.first_available:
                    _check_request(sub, key, f"{request.name}/{sub.name}", cluster)
            else:
                raise ClaimProblem(f"resource claim {key}, request {request.name}: unknown request type")


def _check_request(
    request: objects.ExactDeviceRequest | objects.DeviceSubRequest, claim: str, name: str, cluster: Cluster
) -> None:
    if cluster.get(objects.DeviceClass, request.device_class_name) is None:
        raise ClaimProblem(f"request {name}: device class {request.device_class_name} does not exist")
    if field := alpha_fields.of_request(request):
        text = f"{alpha_fields.with_gate(field)} is not supported: remove it"
        raise ClaimProblem(f"resource claim {claim}, request {name}: {text}")


# --- binding conditions -----------------------------------------------------------------------------------


def binding_failure(claim: objects.ResourceClaim) -> str | None:
    """Return why the devices of an allocated claim cannot be bound; None if none has failed so far."""
    return _binding_state(claim)[1]


def is_ready_for_binding(claim: objects.ResourceClaim) -> bool:
    """Return whether all binding conditions of a claim's devices are True; also if there are none."""
    return _binding_state(claim)[0]


def _binding_state(claim: objects.ResourceClaim) -> tuple[bool, str | None]:
    allocation = claim.status.allocation
    if allocation is None:
        return False, None
    for result in allocation.devices.results or ():
        if not result.binding_conditions:
            continue
        status = next(
            (
                one
                for one in claim.status.devices or ()
                if (one.driver, one.pool, one.device) == (result.driver, result.pool, result.device)
            ),
            None,
        )
        if status is None:
            return False, None
        conditions = {one.type: one for one in reversed(status.conditions or ())}
        for name in result.binding_failure_conditions or ():
            failed = conditions.get(name)
            if failed is not None and failed.status == "True":
                name = claim.metadata.name
                text = f'claim={name}, reason={failed.reason}, message="{failed.message}"'
                return False, f"device binding failed: {text}"
        for name in result.binding_conditions:
            condition = conditions.get(name)
            if condition is None or condition.status != "True":
                return False, None
    return True, None


def binding_seconds_left(claim: objects.ResourceClaim, now: float) -> float:
    """Return how much longer the binding conditions of a claim are waited for; infinity: for ever.

    now: Unix seconds by the wall clock. An allocation that is later by more than the time-out was made by a clock that
    was ahead: it has timed out, or it would be waited for as long as the clock was wrong.
    """
    allocation = claim.status.allocation
    started = unix_seconds(allocation.allocation_timestamp) if allocation is not None else None
    if allocation is None or started is None:
        return math.inf
    if all(result.binding_conditions is None for result in allocation.devices.results or ()):
        return math.inf
    return BINDING_TIMEOUT_SECONDS - abs(now - started)


def binding_blocks(claim: objects.ResourceClaim, now: float) -> bool:
    """Return whether to deallocate a claim, because its devices failed to bind, or did not bind in time.

    An allocation that is later than now has not timed out, as in kube-scheduler.
    """
    ready, failure = _binding_state(claim)
    if ready or failure is not None:
        return failure is not None
    allocation = claim.status.allocation
    started = unix_seconds(allocation.allocation_timestamp) if allocation is not None else None
    return started is not None and started <= now and binding_seconds_left(claim, now) < 0
