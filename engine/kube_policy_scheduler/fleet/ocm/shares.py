"""How much work each Placement may ask for: one cannot take the time of all others.

Work is the number of requirements of its selectors, each of which is asked about each cluster.
"""

from __future__ import annotations

from kube_policy_scheduler.fleet.ocm.objects import ClusterPlacement, ClusterSelector
from kube_policy_scheduler.fleet.ocm.selecting import MisconfiguredError

MOST_AT_ONCE = 400_000
"""Requirements times clusters of one Placement: that is one turn of the loop, and takes 0.3 s at most."""
MOST_IN_ALL = 8_000_000
"""The same of all Placements together: after a change that concerns all, they are decided within 10 s."""


def requirements(placement: ClusterPlacement) -> int:
    """Return how many requirements are asked about each cluster."""
    spec = placement.spec
    groups = spec.decision_strategy.group_strategy.decision_groups or ()
    selectors = (
        *(each.required_cluster_selector for each in spec.predicates or ()),
        *(each.group_cluster_selector for each in groups),
    )
    return sum(map(_parts, selectors)) + len(spec.tolerations or ())


def _parts(selector: ClusterSelector) -> int:
    labels, claims = selector.label_selector, selector.claim_selector
    found = len(claims.match_expressions or ()) if claims is not None else 0
    if labels is not None:
        found += len(labels.match_labels or ()) + len(labels.match_expressions or ())
    return 1 + found


class Shares:
    """What the Placements need, and how much each of them may have."""

    def __init__(self) -> None:
        self._needs: dict[tuple[str, str], int] = {}
        self._total = 0
        self._sorted: list[int] | None = []
        """The needs, the largest last; None: to be sorted."""

    def put(self, key: tuple[str, str], need: int) -> None:
        """Take what a Placement needs for each cluster; 0: it is gone."""
        before = self._needs.pop(key, 0)
        if need:
            self._needs[key] = need
        if before != need:
            self._total += need - before
            self._sorted = None

    def need(self, key: tuple[str, str]) -> int:
        """Return what a Placement needs for each cluster."""
        return self._needs.get(key, 0)

    def most(self, clusters: int) -> int:
        """Return how many requirements a Placement may have: all get what they need, or the same at most."""
        at_once, left = MOST_AT_ONCE // max(1, clusters), MOST_IN_ALL // max(1, clusters)
        if self._total <= left:
            return at_once
        if self._sorted is None:
            self._sorted = sorted(self._needs.values())
        for place, need in enumerate(self._sorted):
            share = left // (len(self._sorted) - place)
            if need > share:
                return min(at_once, share)
            left -= need
        return at_once

    def check(self, key: tuple[str, str], clusters: int) -> None:
        """Check that a Placement asks for no more than its share.

        Raises:
            MisconfiguredError: it asks for more.
        """
        need, most = self.need(key), self.most(clusters)
        if need > most:
            raise MisconfiguredError(
                f"the predicates, groups and tolerations have {need:,} requirements; a Placement may have {most:,} with"
                f" {clusters:,} clusters and as many Placements as there are now: choose by a label or a cluster set"
            )
