"""Which topology domain a gang gets: the rack, block or zone that has room for all members it needs.

Works on arrays over nodes and domains, and places nothing. Room is counted by resources, on nodes that pass all
filters for one member: an upper bound, as members may exclude each other. Whether all fit is found out by placing them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.domains import Topology, topology
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.quantity import column_scale
from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import GangRequirement
from kube_policy_scheduler.framework.plugin import PreFilterResult, Ready
from kube_policy_scheduler.framework.plugins.base import Filter
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Refusal
from kube_policy_scheduler.wording import amount, listed, plural

Levels = tuple[str | None, ...]
"""Keys of node labels in turn; None: any nodes, in one domain or not."""


class DomainRule(Enum):
    """Which of several domains with enough room a gang gets."""

    FULLEST = "fullest"
    """The one of which the largest share of what members request is in use afterwards, as in kube-scheduler."""
    EMPTIEST = "emptiest"


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes with one value of one label."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}"

    def mask(self, cluster: Cluster) -> BoolArray:
        """Return `bool[nodes]`: its nodes."""
        column = cluster.nodes.label(self.key)
        result: BoolArray = column.codes == column.index.get(self.value, -2)
        return result


class GangTopology(Filter):
    """Refuses nodes outside the domains of a pod's gangs."""

    name = "GangTopology"

    def __init__(self, domains: tuple[Domain, ...]) -> None:
        self.domains = domains

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Return without a rejection."""
        return Ready(key=self.domains)

    def filter(self, frame: Frame, state: None) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        passing: BoolArray = np.ones(frame.size, np.bool_)
        for domain in self.domains:
            passing &= domain.mask(frame.cluster)[frame.rows]
        return passing

    def refusals(self, frame: Frame, state: None) -> Sequence[Refusal]:
        """Return which nodes are outside."""
        reason = f"node(s) outside {listed(self.domains)}, where the gang is"
        return [Refusal(self.code, reason, ~self.filter(frame, state))]


@dataclass(frozen=True, slots=True)
class Members:
    """Pods of one template that a gang still has to place."""

    template: PodTemplate
    number: int
    feasible: BoolArray
    """`bool[nodes]`: the nodes that pass every filter for one of them."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """No domain has room for all members that a gang needs."""

    message: str


FreeOf = Callable[[str], IntArray]
"""Returns what is free of a resource, `int64[nodes]`; for "pods", how many more pods."""


def free_now(cluster: Cluster) -> FreeOf:
    """Return what is free on nodes."""
    nodes = cluster.nodes

    def free(resource: str) -> IntArray:
        held = nodes.pod_count if resource == "pods" else nodes.requested(resource)
        result: IntArray = nodes.allocatable(resource) - held
        return result

    return free


def free_without(cluster: Cluster, priority: int) -> FreeOf:
    """Return what would be free without the pods of lower priority."""
    nodes, now = cluster.nodes, free_now(cluster)
    return lambda resource: now(resource) + cluster.priorities.below(priority, resource, nodes.size)


def choose(
    cluster: Cluster,
    levels: Levels,
    members: Sequence[Members],
    *,
    needed: int,
    rule: DomainRule = DomainRule.FULLEST,
    placed: IntArray | None = None,
    within: BoolArray | None = None,
    skipped: Collection[Domain] = (),
    free: FreeOf | None = None,
) -> Domain | Shortfall | None:
    """Return the domain for the rest of a gang: of the first level at which one has room for all that it needs.

    Args:
        cluster: the nodes.
        levels: labels in turn.
        members: the pods that have no node yet.
        needed: how many of them the gang needs.
        rule: which of several domains.
        placed: rows of the nodes of members that are placed: they fix the domain.
        within: `bool[nodes]`: nodes to choose from; None: all.
        skipped: domains in which a trial found no room for the gang.
        free: what is free; None: what is free now.

    Returns:
        None if the members may be on any nodes.
    """
    nearest: list[tuple[int, int, str]] = []
    """Of each level with domains: how much room is missing in the best one, the number of the level, and words."""
    for number, key in enumerate(levels):
        if key is None:
            return None
        domains = topology(cluster.nodes, key)
        fixed = _fixed(domains, placed)
        if isinstance(fixed, str):
            nearest.append((needed, number, fixed))
            continue
        room = rooms(cluster, members, domains, free=free or free_now(cluster), within=within)
        names = _values(cluster, domains)
        candidates = [at for at in range(domains.size) if fixed is None or at == fixed]
        untried = [at for at in candidates if Domain(key, names[at]) not in skipped]
        if fitting := [at for at in untried if room[at] >= needed]:
            shares = used_shares(cluster, members, domains, needed=needed)
            sign = -1.0 if rule is DomainRule.FULLEST else 1.0
            best = min(fitting, key=lambda at: (round(sign * float(shares[at]), 9), names[at]))
            return Domain(key, names[best])
        if not candidates:
            nearest.append((needed, number, f"no node has the label {key}"))
            continue
        best = min(untried or candidates, key=lambda at: (-int(room[at]), names[at]))
        nearest.append((needed - int(room[best]), number, _missing(key, names[best], int(room[best]), needed, members)))
    return Shortfall(min(nearest)[2] if nearest else "there is no topology to choose from")


def domain_of(cluster: Cluster, levels: Levels, rows: Sequence[int]) -> Domain | Shortfall | None:
    """Return the domain that some nodes are in, of the first level that has one; None if any nodes will do."""
    for key in levels:
        if key is None:
            return None
        column = cluster.nodes.label(key)
        values = {column.values[code] if code >= 0 else None for code in column.codes[np.array(rows, np.intp)].tolist()}
        if len(values) == 1 and (value := values.pop()) is not None:
            return Domain(key, str(value))
    return Shortfall("the nodes that are being freed for its members are in several domains")


def rows_of(cluster: Cluster, requirement: GangRequirement) -> list[int]:
    """Return the rows of the nodes of a group's members that have one."""
    return [
        row
        for template, rows in cluster.counters.placements(terminating=False)
        if requirement.group_of(template) == requirement.group
        for row, number in rows.items()
        if number > 0
    ]


def narrowed(
    frame: Frame, profile: Profile, requirements: Iterable[GangRequirement], cycle: Cycle
) -> Profile | Shortfall:
    """Return the profile that places a pod in the domains of its groups, where pods are decided one by one.

    Members that have no node yet count as pods like this one.
    """
    cluster, found = frame.cluster, list[Domain]()
    within: BoolArray | None = None
    for requirement in sorted(requirements, key=lambda each: -each.size):
        if not requirement.levels:
            continue
        needed = max(1, requirement.size - requirement.filled(cluster.counters.group_size))
        feasible = np.zeros(cluster.nodes.size, np.bool_)
        feasible[cycle.feasible(frame, profile)] = True
        placed = rows_of(cluster, requirement)
        domain = choose(
            cluster,
            requirement.levels,
            [Members(frame.template, needed, feasible)],
            needed=needed,
            placed=np.array(placed, np.intp) if placed else None,
            within=within,
        )
        if isinstance(domain, Shortfall):
            return Shortfall(f"{requirement}: {domain.message}")
        if domain is not None:
            found.append(domain)
            mask = domain.mask(cluster)
            within = mask if within is None else within & mask
    return replace(profile, filters=(GangTopology(tuple(found)), *profile.filters)) if found else profile


def domains_of(profile: Profile) -> tuple[Domain, ...]:
    """Return the domains that a profile is narrowed to."""
    return next((plugin.domains for plugin in profile.filters if isinstance(plugin, GangTopology)), ())


def rooms(
    cluster: Cluster, members: Sequence[Members], domains: Topology, *, free: FreeOf, within: BoolArray | None = None
) -> IntArray:
    """Return `int64[domains]`: how many of the members each domain has the resources for.

    Pods of the template that requests most are counted first; what they take is not counted for the others.
    """
    left = {resource: np.maximum(free(resource), 0) for resource in _asked(cluster, members)}
    inside = domains.index < domains.size
    order = np.argsort(domains.index, kind="stable")
    domain = domains.index[order]
    starts = np.searchsorted(domain, np.arange(domains.size + 1))
    total: IntArray = np.zeros(domains.size, np.int64)
    for each in sorted(members, key=lambda each: _size(cluster, each), reverse=True):
        usable = each.feasible & inside if within is None else each.feasible & inside & within
        fits: IntArray = np.where(usable, each.number, 0).astype(np.int64)
        for resource, wanted in _requests(cluster, each.template):
            np.minimum(fits, left[resource] // wanted, out=fits)
        sums = np.concatenate(([0], np.cumsum(fits[order])))
        before = sums[:-1] - sums[starts[np.minimum(domain, domains.size)]]
        taken: IntArray = np.zeros(len(fits), np.int64)
        taken[order] = np.clip(each.number - before, 0, fits[order])
        total += np.bincount(domains.index, weights=taken, minlength=domains.size + 1)[: domains.size].astype(np.int64)
        for resource, wanted in _requests(cluster, each.template):
            left[resource] = left[resource] - taken * wanted
    return total


def used_shares(cluster: Cluster, members: Sequence[Members], domains: Topology, *, needed: int) -> FloatArray:
    """Return `float64[domains]`: the share in use of what members request, with them, averaged over the resources."""
    nodes, number = cluster.nodes, sum(each.number for each in members)
    asked = [resource for resource in _asked(cluster, members) if resource != "pods"] or ["pods"]
    result: FloatArray = np.zeros(domains.size, np.float64)
    for resource in asked:
        held = nodes.pod_count if resource == "pods" else nodes.requested(resource)
        wanted = sum(dict(_requests(cluster, each.template)).get(resource, 0) * each.number for each in members)
        sums = (
            np.bincount(domains.index, weights=column, minlength=domains.size + 1)[: domains.size]
            for column in (held, nodes.allocatable(resource))
        )
        used, offered = sums
        group = wanted * needed / number if number else 0.0
        result += np.where(offered > 0, (used + group) / np.maximum(offered, 1), 0.0)
    result /= len(asked)
    return result


def _fixed(domains: Topology, placed: IntArray | None) -> int | str | None:
    """Return the domain of the placed members, why they are in none, or None if there are none."""
    if placed is None or not len(placed):
        return None
    found = np.unique(domains.index[placed])
    if len(found) > 1:
        return f"its placed members are in {len(found)} domains of {domains.key}"
    only = int(found[0])
    return only if only < domains.size else f"its placed members are on nodes without the label {domains.key}"


def _values(cluster: Cluster, domains: Topology) -> list[str]:
    """Return the values of the domains."""
    column = cluster.nodes.label(domains.key)
    first = np.full(domains.size + 1, -1, np.int64)
    first[domains.index] = np.arange(len(domains.index))
    return [str(column.values[column.codes[row]]) for row in first[: domains.size].tolist()]


def _asked(cluster: Cluster, members: Sequence[Members]) -> list[str]:
    return list(dict.fromkeys(name for each in members for name, _ in _requests(cluster, each.template)))


def _requests(cluster: Cluster, template: PodTemplate) -> Iterator[tuple[str, int]]:
    """Yield the requests of pods that nodes count, with one of "pods"."""
    offered = frozenset(cluster.nodes.resources())
    for resource, wanted in (*template.requests.items(), ("pods", 1)):
        if resource in offered and wanted > 0 and cluster.nodes.allocatable(resource).any():
            yield resource, wanted


def _size(cluster: Cluster, members: Members) -> float:
    """Return the largest share of all that nodes offer that one of them requests."""
    shares = (
        wanted / float(cluster.nodes.allocatable(resource).max())
        for resource, wanted in _requests(cluster, members.template)
    )
    return max(shares, default=0.0)


def _missing(key: str, value: str, room: int, needed: int, members: Sequence[Members]) -> str:
    """Return what is missing in a domain: `rack-7 (rack) has room for 14 of 16 pods; 2 more request 8 gpu each`."""
    if room >= needed:
        return f"{value} ({key}) has the resources for {plural(needed, 'pod')}, but not all of them fit there"
    kinds = {template_text(each.template.requests) for each in members}
    each = f"; {needed - room} more request {kinds.pop()} each" if len(kinds) == 1 else ""
    return f"{value} ({key}) has room for {room} of {plural(needed, 'pod')}{each}"


def template_text(requests: Mapping[str, int]) -> str:
    """Return what a pod requests, for people: `8 nvidia.com/gpu and 4 cpu`."""
    shown = []
    for resource, wanted in sorted(requests.items(), key=lambda item: (item[0] in ("cpu", "memory"), item[0])):
        if resource in ("memory", "ephemeral-storage"):
            shown.append(f"{amount(wanted / 2**30)}Gi {resource}")
        else:
            shown.append(f"{amount(wanted / 10.0 ** column_scale(resource))} {resource}")
    return listed(shown) if shown else "nothing"
