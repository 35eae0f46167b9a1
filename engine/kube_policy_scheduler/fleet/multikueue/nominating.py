"""To which worker clusters a Workload is nominated: round by round the next best, and who has been keeps its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from kube_policy_scheduler.fleet.model import Fleet, FleetCluster, Outcome, Workload

Decide: TypeAlias = Callable[[Workload, Fleet], Outcome]
WITHOUT = frozenset(("APIEnablement",))
"""Filters of Karmada that ask for what a MultiKueueCluster does not say."""


def fleet_of(clusters: Sequence[FleetCluster]) -> Fleet:
    """Return clusters, each of which runs a workload whole."""
    return Fleet(tuple(clusters), without=WITHOUT, whole=True, keep_empty=True)


def nominate(
    workload: Workload, fleet: Fleet, decide: Decide, nominated: Sequence[str], *, rounds: int, most: int
) -> tuple[Outcome, list[str]]:
    """Return the decision of the first round, and the clusters to nominate, the best first.

    Each round takes as many clusters as the policy chooses, of those that no round before took. The clusters that are
    nominated count as those that the workload has: as long as it may keep them, others that are better now do not take
    their place. If a decision has no answer, what is nominated stays.

    Args:
        workload: what is to be nominated.
        fleet: the clusters that may be.
        decide: answers where a workload is to run.
        nominated: the present nominations, in their order.
        rounds: how many there are, 1 or more.
        most: clusters that may be nominated in all.
    """
    first, taken = _round(workload, fleet, decide, nominated)
    if not first.placed:
        return first, taken if first.write else list(nominated)
    for _ in range(rounds - 1):
        left = tuple(each for each in fleet.clusters if each.name not in taken)
        if not left or len(taken) >= most:
            break
        outcome, names = _round(workload, replace(fleet, clusters=left), decide, nominated)
        if not outcome.placed or not names:
            break
        taken += names
    return first, taken[:most]


def _round(workload: Workload, fleet: Fleet, decide: Decide, nominated: Sequence[str]) -> tuple[Outcome, list[str]]:
    """Return the decision of one round, and its clusters."""
    ideal = decide(replace(workload, has={}), fleet)
    known: Mapping[str, FleetCluster] = {each.name: each for each in fleet.clusters}
    # one that the manager cannot reach is no place to keep
    held = [name for name in nominated if name in known and not known[name].taints]
    if ideal.placed:
        held = held[: len(ideal.targets)]
    if not held:
        return ideal, list(ideal.targets)
    outcome = decide(replace(workload, has=dict.fromkeys(held, max(1, workload.replicas))), fleet)
    return outcome, list(outcome.targets)
