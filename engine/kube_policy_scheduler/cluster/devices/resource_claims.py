"""ResourceClaims, and the devices that are in use because of them.

A claim's devices count as in use from Reserve on (*in flight*, known to this scheduler only), then from its written
status on. A written claim is *assumed* until the API server delivers it or a newer version of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.capacity_names import by_capacity_key
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID, SlicedDevice, quantity_or_zero
from kube_policy_scheduler.cluster.events import ClusterEvent
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.ledger import Ledger
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.quantities.exact_quantity import Quantity

Capacity = Mapping[str, Quantity]
"""Amounts of capacities, see `capacity_names`."""


class DeviceUse(msgspec.Struct, frozen=True):
    """How one claim uses one device."""

    id: DeviceID
    share: str | None
    """Which share of it, None for the whole device."""
    consumed: Capacity | None
    """What the share takes; None if nothing is recorded."""


def devices_taken(claim: objects.ResourceClaim | None) -> list[DeviceID]:
    """Return the devices that a claim takes away from others, each once: all but those with admin access."""
    allocation = claim.status.allocation if claim is not None else None
    results = (allocation.devices.results or ()) if allocation is not None else ()
    return list(dict.fromkeys(DeviceID(one.driver, one.pool, one.device) for one in results if not one.admin_access))


def uses_of(allocation: objects.AllocationResult | None, rules: KubernetesRules) -> Iterator[DeviceUse]:
    """Return the devices that an allocation takes away from others: all but those with admin access."""
    for result in (allocation.devices.results or ()) if allocation is not None else ():
        if not result.admin_access:
            consumed = None
            if result.share_id is not None and result.consumed_capacity is not None:
                named = by_capacity_key(result.consumed_capacity, result.driver, rules)
                consumed = {name: quantity_or_zero(amount) for name, amount in named.items()}
            yield DeviceUse(DeviceID(result.driver, result.pool, result.device), result.share_id, consumed)


class ClaimsInFlight(msgspec.Struct, frozen=True):
    """An allocation that is not written yet."""

    claim: objects.ResourceClaim
    """With its allocation."""
    uses: tuple[DeviceUse, ...]
    pods: set[str]
    """Uids of the pods that rest on it."""
    groups: frozenset[Hashable] = msgspec.field(default_factory=frozenset)
    """The gangs whose members may rest on it, too."""


class DevicesInUse(Protocol):
    """Which devices are in use."""

    def __contains__(self, device: DeviceID) -> bool:
        """Return whether a device is in use as a whole."""
        ...

    def is_allocated(self, device: DeviceID) -> bool:
        """Return whether a device is in use, be it as a whole or in shares."""
        ...

    def in_shares(self, device: DeviceID) -> bool:
        """Return whether a share of a device is in use."""
        ...

    def consumed(self, device: DeviceID) -> Capacity | None:
        """Return what its shares take of a device; None if no share has an amount."""
        ...


def is_in_use(device: SlicedDevice, allocated: DevicesInUse) -> bool:
    """Return whether no claim can get a device, because others have it.

    A device whose sharing was switched off stays in use while claims have shares of it.
    """
    return device.id in allocated or (not device.is_shared and allocated.in_shares(device.id))


class AllocatedDevices:
    """Devices in use, kept by events."""

    def __init__(self) -> None:
        self._whole: dict[DeviceID, int] = {}
        self._shares: dict[DeviceID, dict[int, Capacity | None]] = {}
        self._sums: dict[DeviceID, Capacity | None] = {}
        self.changed: Journal[DeviceID] = Journal()
        """Devices whose use changed."""

    def __contains__(self, device: DeviceID) -> bool:
        """Return whether a device is in use as a whole."""
        return device in self._whole

    def count(self) -> int:
        """Return how many devices are in use, be it as a whole or in shares."""
        return len(self._whole.keys() | self._shares.keys())

    def is_allocated(self, device: DeviceID) -> bool:
        """Return whether a device is in use, be it as a whole or in shares."""
        return device in self._whole or device in self._shares

    def in_shares(self, device: DeviceID) -> bool:
        """Return whether a share of a device is in use."""
        return device in self._shares

    def consumed(self, device: DeviceID) -> Capacity | None:
        """Return what its shares take of a device; None if no share has an amount."""
        shares = self._shares.get(device)
        if shares is None:
            return None
        if device not in self._sums:
            total: dict[str, Quantity] | None = None
            for consumed in shares.values():
                if consumed is not None:
                    total = _sum(total or {}, consumed)
            self._sums[device] = total
        return self._sums[device]

    def add(self, uses: tuple[DeviceUse, ...]) -> None:
        """Count the devices of an allocation."""
        for use in uses:
            if use.share is None:
                self._whole[use.id] = self._whole.get(use.id, 0) + 1
            else:
                self._shares.setdefault(use.id, {})[id(use)] = use.consumed
                self._sums.pop(use.id, None)
            self.changed.note(use.id)

    def discard(self, uses: tuple[DeviceUse, ...]) -> None:
        """Count them no longer; the very objects that were added."""
        for use in uses:
            if use.share is None:
                left = self._whole[use.id] - 1
                if left:
                    self._whole[use.id] = left
                else:
                    del self._whole[use.id]
            else:
                shares = self._shares[use.id]
                del shares[id(use)]
                if not shares:
                    del self._shares[use.id]
                self._sums.pop(use.id, None)
            self.changed.note(use.id)


class TriedDevices:
    """Devices in use, and some that are taken besides, to try something."""

    def __init__(self, before: DevicesInUse | None) -> None:
        """before: None: no device is in use."""
        self._before = before
        self._whole: set[DeviceID] = set()
        self._shares: dict[DeviceID, dict[str, Quantity]] = {}

    def __contains__(self, device: DeviceID) -> bool:
        """Return whether a device is in use as a whole."""
        return device in self._whole or (self._before is not None and device in self._before)

    def is_allocated(self, device: DeviceID) -> bool:
        """Return whether a device is in use, be it as a whole or in shares."""
        if device in self._whole or device in self._shares:
            return True
        return self._before is not None and self._before.is_allocated(device)

    def in_shares(self, device: DeviceID) -> bool:
        """Return whether a share of a device is in use."""
        return device in self._shares or (self._before is not None and self._before.in_shares(device))

    def consumed(self, device: DeviceID) -> Capacity | None:
        """Return what its shares take of a device; None if no share has an amount."""
        before = self._before.consumed(device) if self._before is not None else None
        shares = self._shares.get(device)
        return before if shares is None else _sum(shares, before or {})

    def take(self, device: DeviceID, consumed: Capacity | None, *, shared: bool) -> None:
        """Take a device, or of one that is shared so much of its capacities."""
        if shared:
            self._shares[device] = _sum(self._shares.get(device, {}), consumed or {})
        else:
            self._whole.add(device)


def _sum(amounts: Capacity, more: Capacity) -> dict[str, Quantity]:
    total = dict(amounts)
    for name, amount in more.items():
        total[name] = total[name].add(amount) if name in total else amount
    return total


class ResourceClaims:
    """All claims of the cluster, as this scheduler has to see them."""

    def __init__(self, ledger: Ledger, rules: KubernetesRules = DEFAULT_RULES) -> None:
        """Note in the ledger of the cluster what is allocated and freed in memory. rules: of its Kubernetes."""
        self._ledger, self._rules = ledger, rules
        self.allocated = AllocatedDevices()
        self._stored: dict[str, objects.ResourceClaim] = {}
        self._stored_users: dict[DeviceID, tuple[str, ...]] = {}
        """Keys of the delivered claims by the devices that they take away from others."""
        self._assumed: dict[str, objects.ResourceClaim] = {}
        self._in_flight: dict[str, ClaimsInFlight] = {}
        self._uses: dict[str, tuple[DeviceUse, ...]] = {}
        self._made_for_pods: dict[str, dict[str, None]] = {}
        self._holders: set[str] = set()
        self.version = 0
        """Changes with every claim."""
        self._unavailable = ""

    # --- reading -------------------------------------------------------------------------------------

    def get(self, key: str) -> objects.ResourceClaim | None:
        """Return a claim by `namespace/name`: as it was written, if the API server has not delivered that yet."""
        return self._assumed.get(key) or self._stored.get(key)

    def all(self) -> Iterator[objects.ResourceClaim]:
        """Return all claims."""
        return (self._assumed.get(key, claim) for key, claim in self._stored.items())

    def stored(self, key: str) -> objects.ResourceClaim | None:
        """Return a claim by `namespace/name` as the API server delivered it last."""
        return self._stored.get(key)

    def stored_users(self, device: DeviceID) -> tuple[str, ...]:
        """Return the keys of the claims that have a device, as the API server delivered them, in that order."""
        return self._stored_users.get(device, ())

    @property
    def has_in_flight(self) -> bool:
        """Return whether some claim was given devices in memory only."""
        return bool(self._in_flight)

    def pending_allocation(self, uid: str) -> objects.AllocationResult | None:
        """Return what a claim was given in memory only, by its uid."""
        found = self._in_flight.get(uid)
        return found.claim.status.allocation if found is not None else None

    def pods_in_flight(self, uid: str) -> set[str]:
        """Return the uids of the pods that rest on what a claim was given in memory only."""
        found = self._in_flight.get(uid)
        return found.pods if found is not None else set()

    def joined(self, claim: objects.ResourceClaim, groups: Sequence[Hashable]) -> objects.ResourceClaim:
        """Return a claim as members of some gangs see it: with what it was given in memory for another member."""
        if groups and claim.status.allocation is None:
            found = self._in_flight.get(claim.metadata.uid)
            if found is not None and not found.groups.isdisjoint(groups):
                return found.claim
        return claim

    def for_extended_resources(self, pod_uid: str) -> objects.ResourceClaim | None:
        """Return the claim that was made for a pod's extended resources, if there is one."""
        for key in self._made_for_pods.get(pod_uid, ()):
            return self.get(key)
        return None

    def are_held_by(self, pod_uid: str) -> bool:
        """Return whether a pod has its place, with what its claims get there."""
        return pod_uid in self._holders

    @property
    def unavailable(self) -> str:
        """Return why the API server does not show claims, "" if it does."""
        return self._unavailable

    # --- changes -------------------------------------------------------------------------------------

    def set_unavailable(self, why: str) -> None:
        """Record why the API server does not show claims, "" if it does."""
        self._unavailable = why
        self.version += 1
        self._ledger.note(ClusterEvent.RESOURCE_CLAIM)

    def set(self, claim: objects.ResourceClaim) -> None:
        """Take over a claim that the API server delivered."""
        key = object_key(claim.metadata)
        assumed = self._assumed.get(key)
        if assumed is not None and not _older(claim, assumed):
            del self._assumed[key]
        self._index(key, claim, 1)
        self._follow_users(key, self._stored.get(key), claim)
        self._stored[key] = claim
        self._recount(key)

    def remove(self, claim: objects.ResourceClaim) -> None:
        """Forget a claim."""
        key = object_key(claim.metadata)
        self._assumed.pop(key, None)
        old = self._stored.pop(key, None)
        if old is not None:
            self._index(key, old, -1)
            self._follow_users(key, old, None)
        self._recount(key)

    def assume(self, claim: objects.ResourceClaim) -> None:
        """Show a claim as the API server answered it, until it delivers it."""
        key = object_key(claim.metadata)
        stored = self._stored.get(key)
        if stored is None or not _older(claim, stored):
            before = self.get(key)
            self._assumed[key] = claim
            self._recount(key)
            self._ledger.note(ClusterEvent.RESOURCE_CLAIM if is_freed(before, claim) else ClusterEvent.TAKEN)

    def restore(self, key: str) -> None:
        """Show a claim as the API server delivered it again."""
        assumed = self._assumed.pop(key, None)
        if assumed is not None:
            self._recount(key)
            now = self.get(key)
            self._ledger.note(ClusterEvent.RESOURCE_CLAIM if is_freed(assumed, now) else ClusterEvent.TAKEN)

    def hold(self, pod_uid: str) -> None:
        """Note that a pod has its place with all that it claims, until `let_go`."""
        self._holders.add(pod_uid)

    def let_go(self, pod_uid: str) -> None:
        """Note that a pod is bound, or has given its place back."""
        self._holders.discard(pod_uid)

    def start_allocation(
        self, claim: objects.ResourceClaim, *, pod_uid: str = "", groups: Sequence[Hashable] = ()
    ) -> None:
        """Count the devices of a claim that is allocated in memory, until `end_allocation` or `leave_allocation`.

        If it has this allocation in memory already, the pod rests on it, too.

        Args:
            claim: with its allocation.
            pod_uid: the pod that rests on it.
            groups: the gangs whose members may rest on it, too.
        """
        known = self._in_flight.get(claim.metadata.uid)
        if known is not None and known.claim.status.allocation is claim.status.allocation:
            known.pods.add(pod_uid)
            return
        self.end_allocation(claim.metadata.uid)
        uses = tuple(uses_of(claim.status.allocation, self._rules))
        self._in_flight[claim.metadata.uid] = ClaimsInFlight(claim, uses, {pod_uid}, frozenset(groups))
        self.allocated.add(uses)
        self.version += 1
        self._ledger.note(ClusterEvent.TAKEN)

    def leave_allocation(self, uid: str, *, pod_uid: str) -> None:
        """Note that a pod does not rest on an allocation in memory any more; the last one ends it."""
        found = self._in_flight.get(uid)
        if found is not None and pod_uid in found.pods:
            found.pods.discard(pod_uid)
            if not found.pods:
                self.end_allocation(uid)

    def end_allocation(self, uid: str) -> bool:
        """Forget an allocation in memory, because it was written or given up; return whether there was one."""
        found = self._in_flight.pop(uid, None)
        if found is None:
            return False
        self.allocated.discard(found.uses)
        self.version += 1
        frees = any(use.share is not None or use.id not in self.allocated for use in found.uses)
        self._ledger.note(ClusterEvent.RESOURCE_CLAIM if frees else ClusterEvent.TAKEN)
        return True

    def set_aside(self, key: str) -> None:
        """Count the devices of a claim as free, to try something, until `take_back`."""
        for uses in self._counted(key):
            self.allocated.discard(uses)

    def take_back(self, key: str) -> None:
        """Count the devices of a claim that was set aside again; nothing may have changed it in between."""
        for uses in self._counted(key):
            self.allocated.add(uses)

    def _counted(self, key: str) -> Iterator[tuple[DeviceUse, ...]]:
        claim = self.get(key)
        yield self._uses.get(key, ())
        if claim is not None and (found := self._in_flight.get(claim.metadata.uid)) is not None:
            yield found.uses

    def _follow_users(
        self, key: str, before: objects.ResourceClaim | None, after: objects.ResourceClaim | None
    ) -> None:
        had = devices_taken(before)
        has = devices_taken(after)
        for device in had:
            if device not in has:
                left = tuple(other for other in self._stored_users.get(device, ()) if other != key)
                if left:
                    self._stored_users[device] = left
                else:
                    self._stored_users.pop(device, None)
        for device in has:
            if device not in had:
                self._stored_users[device] = (*self._stored_users.get(device, ()), key)

    def _recount(self, key: str) -> None:
        self.version += 1
        claim = self.get(key)
        if claim is not None and claim.status.allocation is not None:
            self._count_once(claim)
        uses = tuple(uses_of(claim.status.allocation, self._rules)) if claim is not None else ()
        before = self._uses.pop(key, ())
        if uses == before:
            uses = before
        else:
            self.allocated.add(uses)
            self.allocated.discard(before)
        if uses:
            self._uses[key] = uses

    def _count_once(self, claim: objects.ResourceClaim) -> None:
        """Count an allocation no longer as in flight that is in the claim's status by now: it would count twice."""
        found = self._in_flight.get(claim.metadata.uid)
        if found is not None and found.uses:
            self._in_flight[claim.metadata.uid] = msgspec.structs.replace(found, uses=())
            self.allocated.discard(found.uses)

    def _index(self, key: str, claim: objects.ResourceClaim, step: int) -> None:
        if (claim.metadata.annotations or {}).get(EXTENDED_RESOURCE_CLAIM) != "true":
            return
        for owner in claim.metadata.owner_references or ():
            if owner.controller:
                keys = self._made_for_pods.setdefault(owner.uid, {})
                if step > 0:
                    keys[key] = None
                else:
                    keys.pop(key, None)
                    if not keys:
                        del self._made_for_pods[owner.uid]


EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that a scheduler made for a pod's extended resources."""


def gives_the_same(allocation: objects.AllocationResult, other: objects.AllocationResult) -> bool:
    """Return whether two allocations give the same devices to the same requests."""
    first, second = (
        [(result.request, result.driver, result.pool, result.device, result.share_id) for result in results]
        for results in (allocation.devices.results or (), other.devices.results or ())
    )
    return first == second


def is_freed(before: objects.ResourceClaim | None, after: objects.ResourceClaim | None) -> bool:
    """Return whether a claim was deallocated, or is another one now."""
    if before is None or before.status.allocation is None:
        return False
    return after is None or after.status.allocation is None or before.metadata.uid != after.metadata.uid


def gives_as_before(before: objects.ResourceClaim, after: objects.ResourceClaim) -> bool:
    """Return whether a claim is the same one, with the same devices and users."""
    return before.status == after.status and before.metadata.uid == after.metadata.uid


def _older(claim: objects.ResourceClaim, other: objects.ResourceClaim) -> bool:
    """Return whether a claim is an older version than the other; the same version is not."""
    mine, theirs = version_number(claim.metadata.resource_version), version_number(other.metadata.resource_version)
    return claim.metadata.uid == other.metadata.uid and 0 < mine < theirs
