"""The members of a gang, decided one after the other: all nodes are evaluated once, then those that members went to.

For pods that differ in nothing that counts, a placement changes one row. As long as nothing else changes, the next
member needs neither the other rows nor the plugins that read the whole cluster. The choices are those of
`Cycle.decide`, bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kube_policy_scheduler.cluster.nodes import ALL_ROWS, BoolArray, FloatArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.choice import Choice, TieBreak, Ties, smallest_name
from kube_policy_scheduler.framework.evaluate.template_cache import TemplateCache
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator
from kube_policy_scheduler.framework.kernels.block_maxima import BlockMaxima
from kube_policy_scheduler.framework.plugin import SKIP, FilterPlugin, Ready
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.framework.plugins.inter_pod_affinity import InterPodAffinity
from kube_policy_scheduler.framework.plugins.node_name import NodeName
from kube_policy_scheduler.framework.plugins.node_volume_limits import NodeVolumeLimits
from kube_policy_scheduler.framework.plugins.pod_topology_spread import PodTopologySpread
from kube_policy_scheduler.framework.plugins.volume_binding import VolumeBinding
from kube_policy_scheduler.framework.plugins.volume_restrictions import VolumeRestrictions
from kube_policy_scheduler.framework.plugins.volume_zone import VolumeZone
from kube_policy_scheduler.framework.profile import Profile

_SETTLED = (
    DynamicResources,
    InterPodAffinity,
    NodeName,
    NodeVolumeLimits,
    PodTopologySpread,
    VolumeBinding,
    VolumeRestrictions,
    VolumeZone,
)
"""Plugins of scope CLUSTER: those that do not concern a pod do not concern the next one of its template either, as long
as only such pods are placed. Others, such as quotas, may."""


class Pick(NamedTuple):
    """The node of a member."""

    row: int
    score: float | None
    """None: it was the only feasible node."""
    feasible: int
    ties: int


class MemberRun:
    """Pods of one template under one profile, from one evaluation of all nodes on."""

    def __init__(
        self,
        frame: Frame,
        profile: Profile,
        cache: TemplateCache,
        *,
        ok: BoolArray,
        seed: int,
        accelerator: Accelerator,
    ) -> None:
        """Begin with what is kept of the template.

        Args:
            frame: of the first of them.
            profile: the plugins.
            cache: for which `can_run` holds.
            ok: `bool[nodes]`: where all filters pass, `cache.ok` itself if the kept ones are all that count.
            seed: breaks ties.
            accelerator: has compiled loops.
        """
        nodes = frame.cluster.nodes
        self.template: PodTemplate = frame.template
        self.profile = profile
        self._cache, self._nodes, self._seed, self._accelerator = cache, nodes, seed, accelerator
        self._constants = [kept.constant for kept in cache.normalizing if kept.constant is not None]
        self._constant = 0.0
        for constant in self._constants:
            self._constant += constant
        self._is_whole = ok is cache.ok
        self._ok = ok.copy()
        """`bool[nodes]`: where all filters passed at the beginning."""
        kept = cache.maxima
        some = None if self._is_whole else np.where(ok, self._sum(kept.totals(ALL_ROWS)), -np.inf)
        self._maxima = kept.copy() if some is None else BlockMaxima(some, accelerator)
        """`float64[nodes]`: what decides, -inf where a filter does not pass any more."""
        self._feasible = int(np.count_nonzero(ok))
        self._static = nodes.static_changes.end, nodes.image_changes.end
        self._read = nodes.dynamic_changes.end

    def _sum(self, totals: FloatArray) -> FloatArray:
        """Add the constants, in the order of the cycle: it decides how sums are rounded."""
        totals = totals + 0.0
        for constant in self._constants:
            totals += constant
        return totals

    def follow(self, frame: Frame) -> bool:
        """Evaluate the rows that changed; return False if more may have changed than the run knows."""
        nodes = frame.cluster.nodes
        if nodes is not self._nodes or self._static != (nodes.static_changes.end, nodes.image_changes.end):
            return False
        changed = nodes.dynamic_changes.since(self._read)
        if changed is None:
            return False
        self._read = nodes.dynamic_changes.end
        for row in set(changed):
            if not self._ok.item(row):
                return False  # it may pass now
            before, total = self._maxima.total(row), self._cache.total_now(frame, row)
            if total > -np.inf and not self._is_whole:
                total += 0.0
                for constant in self._constants:
                    total += constant
            self._feasible += (total > -np.inf) - (before > -np.inf)
            self._maxima.write_one(row, total)
        return True

    def pick(self, frame: Frame) -> Pick | None:
        """Return the node of a pod; None if there is none."""
        if not self._feasible:
            return None
        if self._feasible == 1:
            return Pick(int(self._maxima.best().rows()[0]), None, 1, 1)
        if self.profile.ties is Ties.NAME:
            tied = self._maxima.best()
            chosen = Choice(smallest_name(tied.rows(), self._nodes), tied.total, len(tied))
        else:
            tie_break = TieBreak(self._nodes, uid=frame.pod.uid, seed=self._seed)
            chosen = tie_break.first_of_best(self._maxima, self._accelerator)
        score = chosen.total + self._constant if self._is_whole else chosen.total
        return Pick(chosen.row, score, self._feasible, chosen.ties)


def change_own_rows(frame: Frame, live_filters: Iterable[FilterPlugin]) -> bool:
    """Return whether, for the filters, each pod of a template changes only the row that it goes to.

    live_filters: of the profile, those that may apply to the template.
    """
    cluster, spec = frame.cluster, frame.template.spec
    if cluster.nominated or cluster.devices.tables:
        return False
    if spec.affinity is not None and (spec.affinity.pod_affinity or spec.affinity.pod_anti_affinity):
        return False
    if spec.topology_spread_constraints:
        return False
    return all(isinstance(plugin, _SETTLED) and plugin.pre_filter(frame) is SKIP for plugin in live_filters)


def can_run(frame: Frame, cache: TemplateCache) -> bool:
    """Return whether each pod of a template changes only the row that it goes to, for the others of its template."""
    if not cache.follows_rows or cache.live_scores_added or any(kept.constant is None for kept in cache.normalizing):
        return False
    if not all(isinstance(score.plugin, _SETTLED) for score in cache.live_scores):
        return False
    if not change_own_rows(frame, cache.live_filters):
        return False
    scores = (score.plugin.pre_score(frame) for score in cache.live_scores)
    return not any(isinstance(prepared, Ready) and prepared.adds for prepared in scores)
