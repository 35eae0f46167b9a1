"""Devices that pods claim, for the status page: by node and driver how many there are, which are used, and by whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.framework.devices.group_claims import RESOURCE
from kube_policy_scheduler.wording import amount, plural, some

if TYPE_CHECKING:
    from kube_policy_scheduler.pages import status as shown

MOST_DEVICES = 10_000
"""Devices that are looked at one by one, and claims: some 10 ms. The page says how many there are."""
MOST_ROWS = 30
_ELSEWHERE = "several nodes"


class ShownUse(msgspec.Struct, frozen=True):
    """The devices of one driver on one node."""

    node: str
    """"several nodes" if more than one node can use them."""
    driver: str
    devices: int
    used: int
    by: tuple[str, ...]
    """The classes and pods of the claims that have some, as text."""


class DeviceUses(msgspec.Struct, frozen=True):
    """All devices, as far as they were looked at."""

    rows: Sequence[ShownUse]
    devices: int
    """In all slices."""
    looked_at: int
    tainted: int
    """Of those that nobody uses, how many only requests with a toleration get."""


def device_uses(cluster: Cluster) -> DeviceUses | None:
    """Return the devices of a cluster as they are used now; None if drivers publish none. Call on the event loop."""
    slices, allocated = cluster.resource_slices, cluster.resource_claims.allocated
    if not len(slices):
        return None
    users = _users(cluster)
    counts: dict[tuple[str, str], list[int]] = {}
    by: dict[tuple[str, str], dict[str, None]] = {}
    looked_at = tainted = 0
    for info in slices:
        if looked_at >= MOST_DEVICES:
            break
        key = (info.slice.spec.node_name or _ELSEWHERE, info.pool.driver)
        count = counts.setdefault(key, [0, 0])
        for device in info.devices:
            looked_at += 1
            count[0] += 1
            if allocated.is_allocated(device.id):
                count[1] += 1
                by.setdefault(key, {}).update(dict.fromkeys(users.get(device.id, ())))
            else:
                tainted += device.is_tainted
    rows = [
        ShownUse(node, driver, devices, used, tuple(by.get((node, driver), ())))
        for (node, driver), (devices, used) in counts.items()
    ]
    return DeviceUses(rows, slices.device_count(), looked_at, tainted)


def _users(cluster: Cluster) -> Mapping[DeviceID, tuple[str, ...]]:
    """Return the pods that have each device, with the class that they claimed it by."""
    found: dict[DeviceID, tuple[str, ...]] = {}
    for claim in islice(cluster.resource_claims.all(), MOST_DEVICES):
        allocation = claim.status.allocation
        results = (allocation.devices.results or ()) if allocation is not None else ()
        if not results:
            continue
        space = claim.metadata.namespace
        users = claim.status.reserved_for or ()
        pods = [f"{space}/{user.name}" for user in users if user.resource == "pods"]
        pods += [f"PodGroup {space}/{user.name}" for user in users if user.resource == RESOURCE]
        whose = some(pods, limit=2) if pods else f"claim {object_key(claim.metadata)}"
        classes = _classes(claim)
        for result in results:
            device = DeviceID(result.driver, result.pool, result.device)
            name = classes.get(result.request, "")
            found[device] = (*found.get(device, ())[:3], f"{whose} ({name})" if name else whose)
    return found


def _classes(claim: objects.ResourceClaim) -> dict[str, str]:
    """Return the class of each request of a claim, by the name that results have."""
    found = {}
    for request in claim.spec.devices.requests or ():
        if request.exactly is not None:
            found[request.name] = request.exactly.device_class_name
        for sub in request.first_available or ():
            found[f"{request.name}/{sub.name}"] = sub.device_class_name
    return found


def section(uses: DeviceUses) -> shown.Devices:
    """Return what the page says about devices: the nodes on which most are used first."""
    from kube_policy_scheduler.pages import status as shown  # only for the page, so a start does without

    ordered = sorted(uses.rows, key=lambda row: (-row.used, -row.devices, row.node, row.driver))
    used = sum(row.used for row in uses.rows)
    text = f"{plural(uses.looked_at, 'device')}: {amount(used)} used, {amount(uses.looked_at - used)} free"
    if uses.tainted:
        text += f", {amount(uses.tainted)} of them tainted"
    if uses.looked_at < uses.devices:
        text += f" (the first of {amount(uses.devices)})"
    rows = [
        shown.DeviceRow(row.node, row.driver, row.devices, row.used, some(row.by, limit=3))
        for row in ordered[:MOST_ROWS]
    ]
    return shown.Devices(text, rows, len(ordered) - len(rows))
