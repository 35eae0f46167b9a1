"""Which topology domain a gang gets: the rack, block or zone that has room for all members it needs.

Works on arrays over nodes and domains, and places nothing. Room is counted by resources and claimed devices, on nodes
that pass all filters for one member: an upper bound, as members may exclude each other. Whether all fit is found out by
placing them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.domains import Topology, label_states, topology
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.bounded_counts import BoundedCounts
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.device_room import DeviceKind, provided_kind
from kube_policy_scheduler.framework.decide.gang_room import (
    MOST_KINDS,
    FreeOf,
    Kind,
    Members,
    Resource,
    bounds_of,
    free_now,
    kinds_of,
    offered,
    rooms,
    sums_of,
)
from kube_policy_scheduler.framework.decide.gang_shortfall import DomainSearch, domain_name, shortfall_text
from kube_policy_scheduler.framework.decide.placements import (
    Pools,
    Resources,
    chooses_placement,
    counted,
    most_allocated,
    scored_resources,
)
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.plugin import PreFilterResult, Ready
from kube_policy_scheduler.framework.plugins.base import Filter
from kube_policy_scheduler.framework.preempt.reclaim import Reclaimed
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Rejection
from kube_policy_scheduler.wording import listed, plural

Levels = tuple[str | None, ...]
"""Keys of node labels in turn; None: any nodes, in one domain or not."""


class DomainRule(Enum):
    """Which of several domains with enough room a gang gets."""

    FULLEST = "fullest"
    """The one of which the largest share of what members request is in use afterwards, as in kube-scheduler."""
    EMPTIEST = "emptiest"
    """The one of which the smallest share is."""
    TIGHTEST = "tightest"
    """The one with the fewest places for members, as in Kueue."""
    ROOMIEST = "roomiest"


class Preference(msgspec.Struct, frozen=True):
    """Which of several domains with enough room a gang gets; of equal ones the first by name."""

    rule: DomainRule = DomainRule.FULLEST
    """If there are no columns."""
    columns: Callable[[], Sequence[FloatArray]] | None = None
    """Returns `float64[nodes]`, NaN where missing: the smallest mean comes first, equal ones by the next column."""
    resources: Resources | None = None
    """The domain is chosen as kube-scheduler chooses a placement, by these resources; None: by the rule or columns."""


def preference(profile: Profile, frame: Frame, requirement: GangRequirement) -> Preference:
    """Return which domain a gang of a pod gets: what `domains by` of its policy says, or else the default."""
    order = profile.domains
    if order is None:
        by_score = chooses_placement(requirement, frame.cluster.rules)
        return Preference(resources=scored_resources(profile) if by_score else None)
    if order.rule is not None:
        return Preference(DomainRule(order.rule))
    keys, whole = order.keys, frame.at(ALL_ROWS)
    return Preference(columns=lambda: [key(whole) for key in keys])


class Domain(msgspec.Struct, frozen=True):
    """The nodes with one value of one label."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}"

    @property
    def name(self) -> str:
        """Return it for people: `rack r2`."""
        return domain_name(self.key, self.value)

    def mask(self, cluster: Cluster) -> BoolArray:
        """Return `bool[nodes]`: its nodes."""
        column = cluster.nodes.label(self.key)
        result: BoolArray = column.codes == column.index.get(self.value, -2)
        return result

    def has_all(self, cluster: Cluster, rows: Sequence[int]) -> bool:
        """Return whether some rows are those of its nodes."""
        column = cluster.nodes.label(self.key)
        return bool((column.codes[np.array(rows, np.intp)] == column.index.get(self.value, -2)).all())


class Anywhere(Enum):
    """In the place of a domain: any nodes."""

    ANYWHERE = "anywhere"


ANYWHERE = Anywhere.ANYWHERE
Where: TypeAlias = Domain | Anywhere


class GangTopology(Filter):
    """Rejects nodes outside the domains of a pod's gangs."""

    name = "GangTopology"

    def __init__(self, domains: tuple[Domain, ...]) -> None:
        self.domains = domains
        self._kept: tuple[list[object], BoolArray] | None = None
        """The states of the labels, and the nodes that pass while these are the same."""

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Return without a rejection."""
        return Ready(key=self.domains)

    def filter(self, frame: Frame, state: None) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        passing: BoolArray = self._mask(frame.cluster)[frame.rows]
        return passing

    def _mask(self, cluster: Cluster) -> BoolArray:
        states = label_states(cluster.nodes, (domain.key for domain in self.domains))
        if self._kept is None or self._kept[0] != states:
            masks = [domain.mask(cluster) for domain in self.domains]
            self._kept = states, np.logical_and.reduce(masks) if len(masks) > 1 else masks[0]
        return self._kept[1]

    def rejections(self, frame: Frame, state: None) -> Sequence[Rejection]:
        """Return which nodes are outside."""
        reason = f"node(s) outside {listed(self.domains)}, where the gang is"
        return [Rejection(self.code, reason, ~self.filter(frame, state))]


class DomainRoom(msgspec.Struct, frozen=True):
    """How many members of a gang a domain has room for."""

    domain: Domain
    room: int
    needed: int
    """How many the gang still needs."""


class Shortfall(msgspec.Struct, frozen=True):
    """There is no room for all members that a gang needs."""

    message: str
    """Why, if that is not the rejection of one member."""
    best: tuple[DomainRoom, ...] = ()
    """The domains with the most room, for people; empty where nobody asked for them."""
    key: str = ""
    """The topology of the domain that lacks room for the fewest members; "" if there is no domain."""
    missing: int = 0
    """How many members that domain lacks room for."""
    rejection: Decision | None = None
    """Of a member that found no node beside those that were placed before it."""
    rejected_by: frozenset[str] = frozenset()
    """The plugins that say so, if there is neither a rejection nor a domain."""
    cut: str = ""
    """Why not everything was tried; "": it was."""
    is_known: bool = True
    """Whether it was looked for room at all."""
    is_of_quota: bool = False
    """Whether it is a queue that lacks quota."""
    awaits_victims: bool = False
    """Whether pods that the gang evicted are still there."""
    verdict: str = ""
    """What came of the attempt to make room by evictions, for people; "": there was none."""
    reclaim: Reclaimed | None = None
    """What came of `reclaim`; None: it was not tried."""


ANY_DOMAIN = "any"
"""In metrics: gangs that were placed on any nodes, because no topology had a domain for them."""
OTHER_TOPOLOGY = "other"
"""In metrics: topologies beyond the `MOST_TOPOLOGIES` with the most gangs: users who create pods can name any label."""
MOST_TOPOLOGIES = 50
FEASIBLE, INFEASIBLE = "feasible", "infeasible"
"""In metrics: whether a PodGroup fits in a domain, as kube-scheduler says it."""


class DomainCounts:
    """How gangs got their domains since the start."""

    def __init__(self) -> None:
        self.started = BoundedCounts(MOST_TOPOLOGIES)
        """Gangs that started in a domain, by topology."""
        self.left = BoundedCounts(MOST_TOPOLOGIES)
        """Domains that a gang left because not all of its members fit there, though there was room by resources."""
        self.placements: Counter[str] = Counter()
        """Domains of PodGroups that are placed as by kube-scheduler, by schedulerName: one more with each attempt."""
        self.evaluations: Counter[tuple[str, str]] = Counter()
        """Those of them in which a group was tried, by result and schedulerName."""

    def gang_started(self, domain: Domain | None) -> None:
        """Count a gang that starts in a domain, or (None) on any nodes."""
        self._count(self.started, domain)

    def gang_left(self, domain: Domain) -> None:
        """Count a domain that a gang leaves again."""
        self._count(self.left, domain)

    def placements_compared(self, scheduler_name: str, *, known: int, feasible: int, infeasible: int) -> None:
        """Count the domains of a PodGroup, and in how many it fits or does not."""
        self.placements[scheduler_name] += known
        self.evaluations[FEASIBLE, scheduler_name] += feasible
        self.evaluations[INFEASIBLE, scheduler_name] += infeasible

    def _count(self, counts: BoundedCounts, domain: Domain | None) -> None:
        if domain is None:
            counts.add(ANY_DOMAIN, others=None)
        else:
            counts.add(domain.key, others=OTHER_TOPOLOGY)


_DEFAULT = Preference()
_PLACED = "its placed members"
_MOST_PLACES = 2**31
"""Counted on one node, so that sums stay exact."""


class Rest(msgspec.Struct, frozen=True):
    """What is left to place of a gang that must be in one domain."""

    levels: Levels
    """Labels in turn."""
    members: Sequence[Members]
    """The pods that have no node yet."""
    needed: int
    """How many of them the gang needs."""
    placed: IntArray | None = None
    """Rows of the nodes of members that are placed: they fix the domain."""


def choose(
    cluster: Cluster,
    rest: Rest,
    *,
    prefers: Preference = _DEFAULT,
    within: BoolArray | None = None,
    skipped: Collection[Domain] = (),
    free: FreeOf | None = None,
    most_free_first: bool = False,
) -> Where | Shortfall:
    """Return the domain for the rest of a gang: of the first level at which one has room for all that it needs.

    Args:
        cluster: the nodes.
        rest: of the gang.
        prefers: which of several domains.
        within: `bool[nodes]`: nodes to choose from; None: all.
        skipped: domains in which a trial found no room for the gang.
        free: what is free; None: what is free now.
        most_free_first: whether domains with more room now come first: fewer pods must give way there.
    """
    nearest: list[tuple[int, int, str]] = []
    """Of each level with domains: how much room is missing in the best one, the number of the level, and words."""
    kinds, needed = kinds_of(cluster, rest.members), rest.needed
    for number, key in enumerate(rest.levels):
        if key is None:
            return ANYWHERE
        domains = topology(cluster.nodes, key)
        fixed = _fixed(domains, rest.placed)
        if isinstance(fixed, str):
            nearest.append((needed, number, fixed))
            continue
        if not domains.size:
            nearest.append((needed, number, f"no node has the label {key}"))
            continue
        room = bounds_of(kinds, domains, free=free or free_now(cluster), within=within)
        names = _names(cluster, domains)
        candidates = np.arange(domains.size) if fixed is None else np.array([fixed])
        untried = candidates
        if tried := [names.place[each.value] for each in skipped if each.key == key and each.value in names.place]:
            untried = candidates[~np.isin(candidates, tried)]
        fitting = untried[room[untried] >= needed]
        if len(fitting):
            if most_free_first:
                now = np.minimum(rooms(kinds, domains, free=free_now(cluster), within=within), needed)
                fitting = fitting[now[fitting] == now[fitting].max()]
            for column in _preferences(
                cluster, kinds, domains, prefers, needed=needed, free=free or free_now(cluster), within=within
            ):
                fitting = fitting[column[fitting] == column[fitting].max()]
            return Domain(key, names.values[names.first(fitting)])
        among = candidates[room[candidates] == room[candidates].max()]
        if len(kinds) > 1:  # the bound may be too high: of several that are equal, one that has room for more
            counted = rooms(kinds[:MOST_KINDS], domains, free=free or free_now(cluster), within=within)
            among = among[counted[among] == counted[among].max()]
        best = names.first(among)
        there, search = (
            int(room[best]),
            DomainSearch(kinds, needed, domains, candidates, free or free_now(cluster), within),
        )
        why = shortfall_text(search, best, names.values[best], bound=there)
        nearest.append((max(1, needed - there), number, why))
    if not nearest:
        return Shortfall("there is no topology to choose from")
    missing, number, message = min(nearest)
    return Shortfall(message, key=rest.levels[number] or "", missing=missing)


class DomainsToTry(msgspec.Struct, frozen=True):
    """Domains that a gang can be tried in."""

    domains: tuple[Domain, ...]
    """Those that may have room for all that it needs, the best first."""
    known: int
    """How many domains there are, with room or without."""
    nodes: int
    """How many nodes these have together."""


def domains_to_try(
    cluster: Cluster, rest: Rest, *, prefers: Preference = _DEFAULT, within: BoolArray | None = None
) -> DomainsToTry:
    """Return the domains of the first level that a gang can be tried in, of which no member has a node; as `choose`."""
    key = rest.levels[0] if rest.levels else None
    if key is None:
        return DomainsToTry((), 0, 0)
    domains, kinds, free = topology(cluster.nodes, key), kinds_of(cluster, rest.members), free_now(cluster)
    counts: BoolArray = domains.index < domains.size if within is None else (domains.index < domains.size) & within
    known = np.count_nonzero(sums_of(domains, counts))
    fitting = np.flatnonzero(bounds_of(kinds, domains, free=free, within=within) >= rest.needed)
    names = _names(cluster, domains)
    columns = _preferences(cluster, kinds, domains, prefers, needed=rest.needed, free=free, within=within)
    keys = [names.ranks[fitting], *reversed([-column[fitting] for column in columns])]
    found = fitting[np.lexsort(keys)]
    values = tuple(Domain(key, names.values[at]) for at in found.tolist())
    return DomainsToTry(values, int(known), int(np.count_nonzero(counts)))


def roomiest(cluster: Cluster, rest: Rest, *, within: BoolArray | None = None, most: int = 5) -> Iterator[DomainRoom]:
    """Yield the domains of each level that have room for most of the members, at most this many of each level."""
    kinds = kinds_of(cluster, rest.members)
    for key in rest.levels:
        domains = topology(cluster.nodes, key) if key is not None else None
        fixed = _fixed(domains, rest.placed) if domains is not None else None
        if key is None or domains is None or not domains.size or isinstance(fixed, str):
            continue
        room = rooms(kinds, domains, free=free_now(cluster), within=within)
        names = _names(cluster, domains)
        order = np.lexsort((names.ranks, -room))[:most] if fixed is None else np.array([fixed])
        for at in order.tolist():
            yield DomainRoom(Domain(key, names.values[at]), int(room[at]), rest.needed)


def holding(cluster: Cluster, rest: Rest, *, within: BoolArray | None = None) -> BoolArray | None:
    """Return `bool[nodes]`: the nodes in domains that have room for all that a gang needs; None: any nodes will do."""
    kinds = kinds_of(cluster, rest.members)
    found: BoolArray = np.zeros(cluster.nodes.size, np.bool_)
    for key in rest.levels:
        if key is None:
            return None
        domains = topology(cluster.nodes, key)
        room = bounds_of(kinds, domains, free=free_now(cluster), within=within)
        found |= np.append(room >= rest.needed, False)[domains.index]
    return found


def inside_of(outer: BoolArray | None, inner: BoolArray | None) -> BoolArray | None:
    """Return the nodes to choose the domain of a wider gang from.

    Args:
        outer: nodes that it may be on; None: all.
        inner: those in domains with room for a narrower one; None: all. With none of them it is left to the narrower
            gang to say what is missing.
    """
    if inner is None or not inner.any():
        return outer
    return inner if outer is None else outer & inner


def domain_of(cluster: Cluster, levels: Levels, rows: Sequence[int], *, who: str = _PLACED) -> Where | Shortfall:
    """Return where members are, by the rows of their nodes: the domain of the first level that has one for all of them.

    who: the members, for people.
    """
    why = ""
    for key in levels:
        if key is None:
            return ANYWHERE
        domains = topology(cluster.nodes, key)
        fixed = _fixed(domains, np.array(rows, np.intp), who=who)
        if isinstance(fixed, int):
            return Domain(key, _names(cluster, domains).values[fixed])
        why = why or fixed or "none of its members has a node"
    return Shortfall(why)


def numbers_in(cluster: Cluster, key: str | None, rows: Sequence[int]) -> Counter[Domain]:
    """Return how many of some nodes are in each domain of a topology, first those that are first by name.

    rows: of the nodes; one that is there twice counts twice.
    """
    if key is None or not rows:
        return Counter()
    column = cluster.nodes.label(key)
    codes = Counter(column.codes[np.array(rows, np.intp)].tolist())
    values = {str(column.values[code]): number for code, number in codes.items() if code >= 0}
    return Counter({Domain(key, value): values[value] for value in sorted(values)})


def largest_first(cluster: Cluster, members: Sequence[Members]) -> list[PodTemplate]:
    """Return templates in the order in which their pods are placed best: the largest share of a node first.

    Of equal ones, those come first that may be on the fewest nodes.
    """
    ordered = sorted(members, key=lambda each: int(np.count_nonzero(each.feasible)))
    return [kind.members.template for kind in kinds_of(cluster, ordered)]


def domains_of(profile: Profile) -> tuple[Domain, ...]:
    """Return the domains that a profile is narrowed to."""
    return next((plugin.domains for plugin in profile.filters if isinstance(plugin, GangTopology)), ())


def _preferences(
    cluster: Cluster,
    kinds: Sequence[Kind],
    domains: Topology,
    prefers: Preference,
    *,
    needed: int,
    free: FreeOf,
    within: BoolArray | None,
) -> Iterator[FloatArray]:
    """Yield `float64[domains]`: the gang gets the domain with the most; the next decides between equal ones."""
    if prefers.columns is not None:
        for column in prefers.columns():
            yield -_means(domains, column, within)
        return
    if prefers.resources is not None:
        added = counted(((kind.members.template, kind.members.number) for kind in kinds), needed)
        pools = Pools(ALL_ROWS, domains.index, domains.size)
        yield most_allocated(cluster, pools, prefers.resources, added).astype(np.float64)
        return
    match prefers.rule:
        case DomainRule.FULLEST:
            yield np.round(_used_shares(cluster, kinds, domains, needed=needed), 9)
        case DomainRule.EMPTIEST:
            yield -np.round(_used_shares(cluster, kinds, domains, needed=needed), 9)
        case rule:
            largest = kinds[0]
            left = {name: free(name) for name, _ in largest.requests}
            places = sums_of(domains, largest.places(left, within, most=_MOST_PLACES))
            yield places if rule is DomainRule.ROOMIEST else -places


def _means(domains: Topology, column: FloatArray, within: BoolArray | None) -> FloatArray:
    """Return `float64[domains]`: the means of the values that are there; infinite where none is."""
    counted = ~np.isnan(column) if within is None else ~np.isnan(column) & within
    numbers = sums_of(domains, counted)
    sums = sums_of(domains, np.where(counted, column, 0.0))
    means: FloatArray = np.full(domains.size, np.inf)
    np.divide(sums, numbers, out=means, where=numbers > 0)
    return np.round(means, 9)


def _used_shares(cluster: Cluster, kinds: Sequence[Kind], domains: Topology, *, needed: int) -> FloatArray:
    """Return `float64[domains]`: the share in use of what members request, with them, averaged over the resources."""
    nodes, number = cluster.nodes, sum(kind.members.number for kind in kinds)
    wanted = Counter[Resource]()
    for kind in kinds:
        for resource, each in kind.requests:
            wanted[resource] += each * kind.members.number
    asked = [resource for resource in wanted if resource != "pods"] or ["pods"]
    result: FloatArray = np.zeros(domains.size, np.float64)
    for resource in asked:
        if isinstance(resource, DeviceKind) or provided_kind(cluster, resource) is not None:
            there = offered(cluster, resource)
            whole = sums_of(domains, there)
            used = whole - sums_of(domains, np.minimum(free_now(cluster)(resource), there))
        else:
            used = sums_of(domains, nodes.pod_count if resource == "pods" else nodes.requested(resource))
            sums = partial(sums_of, domains, nodes.allocatable(resource))
            whole = nodes.derive(("offered", domains.key, resource), sums)
        group = wanted[resource] * needed / number if number else 0.0
        result += np.where(whole > 0, (used + group) / np.maximum(whole, 1), 0.0)
    result /= len(asked)
    return result


class _Names(msgspec.Struct, frozen=True):
    """The values of a label that some node has."""

    values: list[str]
    """By domain."""
    place: dict[str, int]
    """Domains by value."""
    ranks: IntArray
    """`int64[domains]`: the position of each in the order of the values, as text."""

    def first(self, domains: NDArray[np.intp]) -> int:
        """Return the domain whose value is the smallest."""
        return int(domains[self.ranks[domains].argmin()])


def _names(cluster: Cluster, domains: Topology) -> _Names:
    nodes = cluster.nodes
    column = nodes.label(domains.key)

    def names() -> _Names:
        first = np.full(domains.size + 1, -1, np.int64)
        first[domains.index] = np.arange(len(domains.index))
        values = [str(column.values[column.codes[row]]) for row in first[: domains.size].tolist()]
        ranks = np.empty(domains.size, np.int64)
        ranks[sorted(range(domains.size), key=values.__getitem__)] = np.arange(domains.size)
        return _Names(values, {value: place for place, value in enumerate(values)}, ranks)

    return nodes.derive_from(column, ("domain names", nodes.known_label(domains.key)), names)


def _fixed(domains: Topology, placed: IntArray | None, *, who: str = _PLACED) -> int | str | None:
    """Return the domain of the placed members, why they are in none, or None if there are none."""
    if placed is None or not len(placed):
        return None
    found = np.unique(domains.index[placed])
    if len(found) > 1:
        return f"{who} are in {plural(len(found), 'domain')} of {domains.key}"
    only = int(found[0])
    return only if only < domains.size else f"{who} are on nodes without the label {domains.key}"
