"""How kube-scheduler chooses among the placements of a PodGroup: the domains of its topology (KEP-5732).

A placement is feasible if the pods that the group needs fit there. It is scored by NodeResourcesFit, always with
MostAllocated, and by PodGroupPodsCount, with the same weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import IntArray, Rows
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.requests import is_scalar
from kube_policy_scheduler.cluster.sum_column import plus
from kube_policy_scheduler.framework.gangs import POD_GROUP, GangRequirement
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE
from kube_policy_scheduler.framework.plugins.resource_scores import (
    CPU_AND_MEMORY,
    ResourceScore,
    ScoredResource,
    amount_of,
    used_with,
)
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules
from kube_policy_scheduler.quantities.quantity import MAX_INT64

Resources = tuple[tuple[str, int], ...]
"""Names of resources, each with its weight."""

_WHOLE, _LESS_PER_NODE, _LEAST = 50_000, 9, 2_500
"""Which part of the placements is compared: all of 50,000 parts, 9 fewer for each node (10 % for 5,000 nodes), but 5 %
at least (KEP-5732, `percentageOfPlacementsToScore`). It is rounded up: how kube-scheduler rounds is not documented."""


def chooses_placement(requirement: GangRequirement, rules: KubernetesRules) -> bool:
    """Return whether a group gets its domain as from kube-scheduler."""
    gate = Feature.TOPOLOGY_AWARE_WORKLOAD_SCHEDULING
    return gate in rules and requirement.group.rule == POD_GROUP and bool(requirement.levels)


def scored_resources(profile: Profile) -> Resources:
    """Return the resources that NodeResourcesFit scores in a profile; the default ones if it does not score."""
    found = (each.plugin.resources for each in profile.scores if isinstance(each.plugin, ResourceScore))
    return next(found, CPU_AND_MEMORY)


def number_compared(placements: int, nodes: int, rules: KubernetesRules) -> int:
    """Return of how many feasible placements the best is taken.

    Args:
        placements: how many there are, feasible or not.
        nodes: how many they have together.
        rules: of Kubernetes.
    """
    if Feature.PLACEMENTS_LIMITED not in rules:
        return placements
    share = max(_LEAST, _WHOLE - _LESS_PER_NODE * nodes)
    return -(-placements * share // _WHOLE)


class Pools(NamedTuple):
    """Nodes that are taken together as one large node each, such as those of the domains of a topology."""

    rows: Rows
    """Of the nodes."""
    pool_of: NDArray[np.intp]
    """`intp[rows]`: the pool of each node; `number` if it is in none."""
    number: int
    """Of pools."""

    def sums(self, column: IntArray) -> IntArray:
        """Return `int64[pools]`: exact sums of a column of the rows; beyond the largest int64 they wrap around."""
        found: IntArray = np.zeros(self.number + 1, np.int64)
        np.add.at(found, self.pool_of, column)
        return found[: self.number]


def most_allocated(
    cluster: Cluster, pools: Pools, resources: Resources, added: Mapping[PodTemplate, float]
) -> IntArray:
    """Return `int64[pools]`, 0 to 100: the score of NodeResourcesFit with MostAllocated for each pool.

    Args:
        cluster: with the pods that count.
        pools: of nodes.
        resources: that are scored; a scalar one only if one of the pods requests it.
        added: how many pods count beside those that are on nodes, or 0, by template.
    """
    total: IntArray = np.zeros(pools.number, np.int64)
    weights: IntArray = np.zeros(pools.number, np.int64)
    for name, weight in resources:
        amounts = {template: amount_of(template, name) for template in added}
        if is_scalar(name) and not any(amounts.values()):
            continue
        more = min(MAX_INT64, int(sum(amounts[template] * number for template, number in added.items())))
        offered = cluster.nodes.allocatable(name)[pools.rows]
        used = np.where(offered != 0, used_with(cluster.nodes, ScoredResource(name, weight, 0), pools.rows), 0)
        capacity, held = pools.sums(offered), plus(pools.sums(used), more)
        score = np.minimum(held, capacity) * MAX_SCORE // np.maximum(capacity, 1)
        total += np.where(capacity != 0, score * weight, 0)
        weights += np.where(capacity != 0, weight, 0)
    result: IntArray = total // np.maximum(weights, 1)
    return result


class FeasiblePlacement(msgspec.Struct, frozen=True):
    """A feasible placement."""

    name: str
    fit: int
    """Its score by NodeResourcesFit with the pods of the group that fit there."""
    pods: int
    """How many these are."""


def best_of(trials: Sequence[FeasiblePlacement]) -> FeasiblePlacement:
    """Return the placement with the highest score; of equal ones the first by name, where kube-scheduler takes any."""
    most = max(trial.pods for trial in trials)
    return min(trials, key=lambda trial: (-trial.fit - trial.pods * MAX_SCORE // most, trial.name))


def counted(templates: Iterable[tuple[PodTemplate, int]], needed: int) -> dict[PodTemplate, float]:
    """Return how many pods of each template count if so many of all are needed, in the same proportions."""
    numbers = dict(templates)
    return {template: needed * number / max(1, sum(numbers.values())) for template, number in numbers.items()}
