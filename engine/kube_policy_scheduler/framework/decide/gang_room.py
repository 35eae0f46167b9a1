"""For how many members of a gang nodes and domains have the resources and devices: arrays over nodes and domains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.domains import Topology
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.decide.device_room import DeviceKind, provided_kind

Resource: TypeAlias = str | DeviceKind
FreeOf = Callable[[Resource], IntArray]
"""Returns what is free of a resource, `int64[nodes]`; for "pods", how many more pods."""
MOST_KINDS = 64
"""Of this many kinds of members, the room is counted node by node; the others count as if there were room."""


class Members(msgspec.Struct, frozen=True):
    """Pods of one template that a gang still has to place."""

    template: PodTemplate
    number: int
    feasible: BoolArray
    """`bool[nodes]`: the nodes that pass every filter for one of them."""
    devices: tuple[tuple[DeviceKind, int], ...] = ()
    """What each of them claims for itself, see `claimed_kinds`."""
    role: str = ""
    """Their role in the gang, as written; "" if it has no roles, or they have none."""


def are_independent(template: PodTemplate) -> bool:
    """Return whether nothing but resources has a say about which pods of a template can be together."""
    spec = template.spec
    affinity = spec.affinity
    among_pods = affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    ports = any(port.host_port for container in spec.containers or () for port in container.ports or ())
    return not (among_pods or ports or spec.topology_spread_constraints or spec.volumes or spec.resource_claims)


def needs_others(template: PodTemplate) -> bool:
    """Return whether pods of a template go only where some other pods are."""
    affinity = template.spec.affinity
    near = affinity.pod_affinity if affinity is not None else None
    return near is not None and bool(near.required)


def free_now(cluster: Cluster) -> FreeOf:
    """Return what is free on nodes. Of a resource that a DeviceClass provides, devices on nodes without a plugin."""
    nodes = cluster.nodes

    def free(resource: Resource) -> IntArray:
        if isinstance(resource, DeviceKind):
            return resource.free(cluster)
        held, offered = (
            nodes.pod_count if resource == "pods" else nodes.requested(resource),
            nodes.allocatable(resource),
        )
        result: IntArray = offered - held
        devices = provided_kind(cluster, resource)
        return result if devices is None else np.where(offered > 0, result, devices.free(cluster))

    return free


def free_without(cluster: Cluster, priority: int) -> FreeOf:
    """Return what would be free without the pods of lower priority, at most.

    Preemption frees no devices but those that pods were given in memory.
    """
    nodes, now = cluster.nodes, free_now(cluster)

    def devices_of(kind: DeviceKind) -> IntArray:
        return kind.offered(cluster) if cluster.resource_claims.has_in_flight else kind.free(cluster)

    def free(resource: Resource) -> IntArray:
        if isinstance(resource, DeviceKind):
            return devices_of(resource)
        result = now(resource) + cluster.priorities.below(priority, resource, nodes.size)
        devices = provided_kind(cluster, resource)
        return result if devices is None else np.where(nodes.allocatable(resource) > 0, result, devices_of(devices))

    return free


def places_of(cluster: Cluster, members: Members, *, free: FreeOf) -> IntArray:
    """Return `int64[nodes]`: for how many of the members each node that they may be on has room, others aside."""
    (kind,) = kinds_of(cluster, (members,))
    return kind.places({name: free(name) for name, _ in kind.requests})


def offered(cluster: Cluster, resource: Resource) -> IntArray:
    """Return what nodes offer of a resource, in use or not, `int64[nodes]`."""
    if isinstance(resource, DeviceKind):
        return resource.offered(cluster)
    found = cluster.nodes.allocatable(resource)
    devices = provided_kind(cluster, resource)
    return found if devices is None else np.where(found > 0, found, devices.offered(cluster))


class Kind(msgspec.Struct, frozen=True):
    """Members of one template, with what nodes count of them."""

    members: Members
    requests: tuple[tuple[Resource, int], ...]
    """What one of them requests of the resources that nodes offer, with one of "pods" and what it claims."""

    def places(
        self, free: Mapping[Resource, IntArray], within: BoolArray | None = None, *, most: int | None = None
    ) -> IntArray:
        """Return `int64[nodes]`: for how many of them each node has the resources.

        Args:
            free: what is free of each resource.
            within: `bool[nodes]`: nodes that count, if they pass the filters; None: all of these.
            most: of one node; None: as many as there are.
        """
        number = self.members.number if most is None else most
        fits: IntArray | None = None
        for resource, wanted in self.requests:
            each = free[resource] // wanted
            fits = each if fits is None else np.minimum(fits, each, out=fits)
        if fits is None:
            fits = np.full(len(self.members.feasible), number, np.int64)
        np.clip(fits, 0, number, out=fits)
        fits *= self.members.feasible if within is None else self.members.feasible & within
        return fits


def kinds_of(cluster: Cluster, members: Sequence[Members]) -> list[Kind]:
    """Return the members by template, those that request the largest share of what a node offers first."""
    most: Mapping[str, int] = cluster.nodes.derive("most-offered", lambda: _most_offered(cluster))
    found = []
    for each in members:
        asked: Iterator[tuple[str, int]] = iter((*each.template.requests.items(), ("pods", 1)))
        counted: list[tuple[Resource, int]] = [
            (name, wanted)
            for name, wanted in asked
            if wanted > 0
            and name not in cluster.ignored_resources
            and (name in most or provided_kind(cluster, name) is not None)
        ]
        found.append(Kind(each, (*counted, *each.devices)))
    if len(found) > 1:
        shares = [max((_share(cluster, most, *each) for each in kind.requests), default=0.0) for kind in found]
        found = [found[at] for at in sorted(range(len(found)), key=lambda at: -shares[at])]
    return found


def _share(cluster: Cluster, most: Mapping[str, int], resource: Resource, wanted: int) -> float:
    """Return which part it is of the most that a node offers."""
    largest = most.get(resource) if isinstance(resource, str) else None
    return wanted / max(1, int(offered(cluster, resource).max(initial=0)) if largest is None else largest)


def _most_offered(cluster: Cluster) -> dict[str, int]:
    """Return the most that a node offers of each resource that some node offers."""
    nodes = cluster.nodes
    return {name: most for name in nodes.resources() if (most := int(nodes.allocatable(name).max(initial=0))) > 0}


def rooms(kinds: Sequence[Kind], domains: Topology, *, free: FreeOf, within: BoolArray | None) -> IntArray:
    """Return `int64[domains]`: how many of the members each domain has the resources for.

    One kind is counted after the other: what one takes is not there for the next.
    """
    if len(kinds) == 1:  # as below, without what only matters to those that come after
        (kind,) = kinds
        places = kind.places({name: free(name) for name, _ in kind.requests}, within)
        sums = np.bincount(domains.index, weights=places, minlength=domains.size + 1)[: domains.size]
        only: IntArray = np.minimum(sums, kind.members.number).astype(np.int64)
        return only
    left = {name: free(name) for kind in kinds for name, _ in kind.requests}
    order = np.argsort(domains.index, kind="stable")
    domain = domains.index[order]
    starts = np.searchsorted(domain, np.arange(domains.size + 1))
    total: IntArray = np.zeros(domains.size, np.int64)
    for kind in kinds:
        number, fits = kind.members.number, kind.places(left, within)
        fits[domains.index == domains.size] = 0
        sums = np.concatenate(([0], np.cumsum(fits[order])))
        before = sums[:-1] - sums[starts[domain]]
        taken: IntArray = np.zeros(len(fits), np.int64)
        taken[order] = np.clip(number - before, 0, fits[order])
        total += np.bincount(domains.index, weights=taken, minlength=domains.size + 1)[: domains.size].astype(np.int64)
        for name, wanted in kind.requests:
            left[name] = left[name] - taken * wanted
    return total


def bounds_of(kinds: Sequence[Kind], domains: Topology, *, free: FreeOf, within: BoolArray | None) -> IntArray:
    """Return `int64[domains]`: how many of the members each domain has the resources for, at most.

    Each kind is counted as if there were no others, and all together by the sums of what is free: no seating has more.
    """
    if len(kinds) == 1:
        return rooms(kinds, domains, free=free, within=within)
    now = {name: free(name) for kind in kinds for name, _ in kind.requests}
    bounds: IntArray = np.zeros(domains.size, np.int64)
    somewhere: BoolArray = np.zeros(len(domains.index), np.bool_)
    for number, kind in enumerate(kinds):
        somewhere |= kind.members.feasible
        if number >= MOST_KINDS:
            bounds += kind.members.number
            continue
        bounds += np.minimum(sums_of(domains, kind.places(now, within)), kind.members.number).astype(np.int64)
    if within is not None:
        somewhere &= within
    for name, column in now.items():
        asked = [(dict(kind.requests).get(name, 0), kind.members.number) for kind in kinds]
        each = np.repeat([wanted for wanted, _ in asked], [number for _, number in asked])
        most = np.cumsum(np.sort(each).astype(np.float64))
        sums = sums_of(domains, np.where(somewhere, np.maximum(column, 0), 0))
        bounds = np.minimum(bounds, np.searchsorted(most, sums, side="right"))
    return bounds


def sums_of(domains: Topology, column: IntArray | FloatArray | BoolArray) -> FloatArray:
    """Return `float64[domains]`: the sums of a column."""
    return np.bincount(domains.index, weights=column, minlength=domains.size + 1)[: domains.size].astype(np.float64)
