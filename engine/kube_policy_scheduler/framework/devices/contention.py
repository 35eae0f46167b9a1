"""Whether an allocation that was just written stands beside those that other schedulers wrote.

The API server allows two claims to have one device. Schedulers that allocate the same devices at the same time
(replicas that share the work, kube-scheduler beside us, a replica that just lost its lease) see each other's writes
only later. All of them see these writes in the same order, though, because all claims are watched together: of two
allocations the one that is stored first stands, and the writer of the other takes it back before its pod is bound.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.resource_claims import DeviceUse, uses_of
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID, PoolID
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.quantities.exact_quantity import Quantity


def contention(claim: objects.ResourceClaim, cluster: Cluster) -> str:
    """Return why an allocation cannot stand beside all others that the API server delivered so far, "" if it can."""
    key = object_key(claim.metadata)
    uses = tuple(uses_of(claim.status.allocation, cluster.rules))
    for use in uses:
        others = {other: found for other in _others(use.id, key, cluster) if (found := _uses(other, use.id, cluster))}
        for other, found in others.items():
            if use.share is None or any(one.share is None for one in found):
                return f"device {use.id} was allocated to claim {other} at the same time"
        shares = [one for found in (*others.values(), (one for one in uses if one.id == use.id)) for one in found]
        if others and (name := _exceeded(use.id, shares, cluster)):
            return f"{name} of device {use.id} was allocated to claim {next(iter(others))} at the same time"
    for pool in {PoolID(use.id.driver, use.id.pool) for use in uses}:
        if name := _exceeded_counter(pool, cluster):
            return f"counter {name} of pool {pool} was used up by another claim at the same time"
    return ""


def _others(device: DeviceID, key: str, cluster: Cluster) -> list[str]:
    return [other for other in cluster.resource_claims.stored_users(device) if other != key]


def _uses(key: str, device: DeviceID, cluster: Cluster) -> tuple[DeviceUse, ...]:
    claim = cluster.resource_claims.stored(key)
    allocation = claim.status.allocation if claim is not None else None
    return tuple(use for use in uses_of(allocation, cluster.rules) if use.id == device)


def _exceeded(device: DeviceID, shares: Iterable[DeviceUse], cluster: Cluster) -> str:
    """Return the name of a capacity of which the shares take more than the device has, "" if there is none."""
    known = next((one for one in cluster.resource_slices.devices_of(PoolID(*device[:2])) if one.id == device), None)
    if known is None:
        return ""
    total: dict[str, Quantity] = {}
    for share in shares:
        for name, amount in (share.consumed or {}).items():
            total[name] = total[name].add(amount) if name in total else amount
    return next(
        (
            known.published_name(name)
            for name, amount in total.items()
            if name in known.capacities and amount.nanos > known.capacity(name).nanos
        ),
        "",
    )


def _exceeded_counter(pool: PoolID, cluster: Cluster) -> str:
    """Return the counter of which the devices in use take more than the pool has, "" if there is none."""
    slices = cluster.resource_slices
    left = {
        (name, counter): amount for name, one in slices.counters_of(pool).items() for counter, amount in one.items()
    }
    if not left:
        return ""
    for device in slices.devices_of(pool):
        if device.counters and cluster.resource_claims.stored_users(device.id):
            for name, amounts in device.counters.items():
                for counter, amount in amounts.items():
                    if (name, counter) in left:
                        left[name, counter] -= amount
    return next((f"{name}/{counter}" for (name, counter), amount in left.items() if amount < 0), "")
