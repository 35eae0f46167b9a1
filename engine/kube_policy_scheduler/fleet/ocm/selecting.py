"""What a Placement of OCM asks for: from its cluster sets, predicates and tolerations to candidates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster.objects import Toleration
from kube_policy_scheduler.cluster.selectors import Expression, SelectorError, label_selector
from kube_policy_scheduler.cluster.taints import TaintKey, tolerated, tolerates
from kube_policy_scheduler.fleet import model
from kube_policy_scheduler.fleet.ocm.objects import (
    ClusterPlacement,
    ClusterSelector,
    ManagedCluster,
    PlacementToleration,
)
from kube_policy_scheduler.times import unix_seconds
from kube_policy_scheduler.wording import shortened

_MOST_CHARACTERS = 1000
"""Of the names in a message: a Placement may name as many cluster sets as it wants."""
Clusters: TypeAlias = Mapping[str, ManagedCluster]
Matches: TypeAlias = Callable[[ManagedCluster], bool]


class MisconfiguredError(ValueError):
    """A Placement asks for something in a form that cannot be read; `str()` says what."""


class Unbound(msgspec.Struct, frozen=True):
    """Why a Placement has no candidates at all, in OCM's words."""

    reason: str
    message: str


class Selected(msgspec.Struct, frozen=True):
    """What a Placement asks for."""

    placement: model.Placement
    unbound: Unbound | None = None
    until: float | None = None
    """Unix seconds: when the next of its tolerations ends; None: none does."""


def selected(
    placement: ClusterPlacement,
    clusters: Clusters,
    *,
    bound: Collection[str],
    sets: Mapping[str, Collection[str]],
    now: float,
) -> Selected:
    """Return what a Placement asks for, with its candidates by name.

    Args:
        placement: as it is written.
        clusters: all managed clusters, by name.
        bound: names of the cluster sets that its namespace has.
        sets: names of the clusters of all cluster sets, by the name of the set.
        now: Unix seconds: tolerations may end.

    Raises:
        MisconfiguredError: a selector or a toleration cannot be used.
    """
    spec = placement.spec
    valid = [name for name in sorted(bound) if name in sets]
    wanted = frozenset(spec.cluster_sets or valid)
    eligible = [name for name in valid if name in wanted]
    members = {name for each in eligible for name in sets[each] if name in clusters}
    predicates = [matcher(each.required_cluster_selector) for each in spec.predicates or ()]
    names = {name for name in members if not predicates or any(test(clusters[name]) for test in predicates)}
    tolerations = tuple(_toleration(each) for each in spec.tolerations or ())
    ends = dict(_toleration_ends(spec.tolerations or (), (clusters[name] for name in names)))
    ended = frozenset(name for name, end in ends.items() if end <= now)
    asked = model.Placement(
        affinity=model.ClusterAffinity(names=frozenset(names) - ended)
        if names - ended
        else model.ClusterAffinity(labels=None),
        tolerations=tolerations,
        spread=_spread(spec.number_of_clusters),
    )
    until = min((end for end in ends.values() if end > now), default=None)
    return Selected(asked, _unbound(placement, valid, eligible, members), until)


def _spread(number: int | None) -> tuple[model.SpreadConstraint, ...]:
    return (model.SpreadConstraint("cluster", least=0, most=number),) if number is not None else ()


def _unbound(
    placement: ClusterPlacement, valid: Sequence[str], eligible: Sequence[str], members: Collection[str]
) -> Unbound | None:
    if not valid:
        return Unbound("NoManagedClusterSetBindings", "No valid ManagedClusterSetBindings found in placement namespace")
    if not eligible:
        asked = _names(placement.spec.cluster_sets or ())
        return Unbound("NoIntersection", f"None of ManagedClusterSets [{asked}] is bound to placement namespace")
    if not members:
        named = _names(eligible)
        return Unbound("AllManagedClusterSetsEmpty", f"All ManagedClusterSets [{named}] have no member ManagedCluster")
    return None


def _names(names: Iterable[str]) -> str:
    return shortened(",".join(names), _MOST_CHARACTERS)


def matcher(selector: ClusterSelector) -> Matches:
    """Return whether a cluster matches all parts of a selector; one without parts matches all.

    Raises:
        MisconfiguredError: a part cannot be used.
    """
    if selector.cel_selector is not None and selector.cel_selector.cel_expressions:
        raise MisconfiguredError("celSelector is not supported: write a `filter` in the policy instead")
    try:
        labels = label_selector(selector.label_selector) if selector.label_selector is not None else None
        written = selector.claim_selector.match_expressions if selector.claim_selector is not None else None
        claims = [Expression(each.key, each.operator, frozenset(each.values or ())) for each in written or ()]
        tests = [(each.key, each.test()) for each in claims]
    except SelectorError as error:
        raise MisconfiguredError(f"a selector cannot be read: {error}") from error

    def matches(cluster: ManagedCluster) -> bool:
        if labels is not None and not labels.matches(cluster.metadata.labels or {}):
            return False
        said = {each.name: each.value for each in cluster.status.cluster_claims or ()}
        return all(test(said.get(key)) for key, test in tests)

    return matches


def _toleration(written: PlacementToleration) -> Toleration:
    if written.operator not in ("", "Equal", "Exists"):
        raise MisconfiguredError(f"a toleration has the operator {written.operator[:63]!r}; expected Equal or Exists")
    return Toleration(written.key, written.operator, written.value, written.effect)


def _toleration_ends(
    tolerations: Iterable[PlacementToleration], clusters: Iterable[ManagedCluster]
) -> Iterator[tuple[str, float]]:
    """Yield the clusters with a taint that is tolerated for a time, and when that ends, Unix seconds."""
    timed = [each for each in tolerations if each.toleration_seconds is not None]
    if not timed:
        return
    lasting = [_toleration(each) for each in tolerations if each.toleration_seconds is None]
    for cluster in clusters:
        found: list[float] = []
        for taint in cluster.spec.taints or ():
            key, added = TaintKey(taint.key, taint.value, taint.effect), unix_seconds(taint.time_added)
            if taint.effect != "NoSelect" or added is None or tolerated(lasting, key):
                continue
            ends = [added + (each.toleration_seconds or 0) for each in timed if tolerates(_toleration(each), key)]
            if ends:
                found.append(max(ends))
        if found:
            yield cluster.metadata.name, min(found)
