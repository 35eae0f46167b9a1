"""The scheduling cycle: one pod in, one decision out.

PreFilter, Filter, (preemption if nothing fits), Score, choice. The same cycle decides in the daemon, in tests,
in simulations and as an extender. All nodes are looked at, always. `engine.framework.evaluation` holds the
plain form of it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from engine.cluster.nodes import FloatArray, IntArray
from engine.cluster.pods import PodInfo, PodTemplate
from engine.framework.choice import best, tie_break
from engine.framework.diagnosis import Diagnosis
from engine.framework.evaluation import diagnose, named_nodes, pre_filter
from engine.framework.frame import Frame
from engine.framework.nominations import withheld
from engine.framework.plugin import Ready
from engine.framework.preemption import Preemption, post_filter
from engine.framework.profile import Profile
from engine.framework.template_cache import TemplateCache, cache_key

_MAX_TEMPLATES = 256
"""Templates whose verdicts are kept: about 30 bytes a node each, 40 MB at 5,000 nodes."""
NO_NODES = "no nodes available to schedule pods"
NOBODY = "nobody"
"""The rejector of pods that no plugin was asked about; as no plugin has this name, any event wakes them."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one pod, and enough to say why."""

    pod: PodInfo
    host: str | None
    """The node to bind to; None where the pod fits nowhere."""
    score: float | None = None
    """The host's total; None where it was the only feasible node and nothing was scored."""
    feasible: int = 0
    """How many nodes passed every filter."""
    ties: int = 1
    """How many nodes had the host's total."""
    total: int = 0
    """Nodes in the cluster."""
    diagnosis: Diagnosis | None = None
    preemption: Preemption | None = None
    """What evictions would make room, where nothing fits."""
    message: str = ""
    """Why not, in kube-scheduler's words."""

    @property
    def rejectors(self) -> frozenset[str]:
        """Return the plugins that stood between the pod and a node."""
        return self.diagnosis.rejectors() if self.diagnosis is not None else frozenset((NOBODY,))


class Cycle:
    """Decides pods over one cluster. Reads the cluster, never changes it lastingly."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._kept: OrderedDict[tuple[PodTemplate, int], TemplateCache] = OrderedDict()

    def decide(self, frame: Frame, profile: Profile) -> Decision:
        """Return where the pod goes, or why nowhere."""
        total = frame.cluster.nodes.size
        if not total:
            return Decision(frame.pod, None, message=NO_NODES)
        cache = self._cache(frame, profile)
        feasible = _feasible(frame, cache)
        if feasible is None or not len(feasible):
            return self._no_fit(frame, profile)
        nominated = frame.cluster.nodes.rows.get(frame.pod.nominated_node, -1)
        if len(feasible) == 1 or nominated in feasible:
            # room that preemption made is taken if it still does, without comparing; so does kube-scheduler
            row = nominated if nominated in feasible else int(feasible[0])
            return Decision(frame.pod, frame.cluster.nodes.infos[row].name, feasible=len(feasible), total=total)
        totals = _totals(frame.at(feasible), cache, feasible)
        top = best(totals)
        row = tie_break(feasible[top], frame.cluster.nodes, uid=frame.pod.uid, seed=self._seed)
        return Decision(
            frame.pod,
            frame.cluster.nodes.infos[row].name,
            score=float(totals[top[0]]),
            feasible=len(feasible),
            ties=len(top),
            total=total,
        )

    def _no_fit(self, frame: Frame, profile: Profile) -> Decision:
        prepared = pre_filter(frame, profile.filters)
        diagnosis = diagnose(frame, prepared)
        preemption = post_filter(frame, profile, prepared, diagnosis, seed=self._seed) if profile.preempts else None
        return Decision(
            frame.pod,
            None,
            total=frame.cluster.nodes.size,
            diagnosis=diagnosis,
            preemption=preemption,
            message=diagnosis.message(preemption.message if preemption is not None else ""),
        )

    def _cache(self, frame: Frame, profile: Profile) -> TemplateCache:
        key = (frame.template, id(profile))
        cache = self._kept.get(key)
        if cache is None or cache.key != cache_key(frame):
            cache = self._kept[key] = TemplateCache(frame, profile)
            if len(self._kept) > _MAX_TEMPLATES:
                self._kept.popitem(last=False)
        else:
            cache.refresh(frame)
        self._kept.move_to_end(key)
        return cache


def _feasible(frame: Frame, cache: TemplateCache) -> IntArray | None:
    """Return the rows that pass every filter, or None where PreFilter refuses the pod as a whole."""
    if cache.rejected:
        return None
    ok = cache.ok
    live = pre_filter(frame, cache.live_filters)
    if live.rejection is not None:
        return None
    if live.nodes is not None:
        ok = ok & named_nodes(frame, live.nodes)
    for plugin, state in live.active:
        ok = ok & plugin.filter(frame, state)
    if frame.cluster.nominated:
        taken = withheld(frame, (*cache.row_filters, *live.active), ok)
        if taken:
            ok = ok.copy()
            ok[list(taken)] = False
    return np.flatnonzero(ok)


def _totals(chosen: Frame, cache: TemplateCache, feasible: IntArray) -> FloatArray:
    """Return `float64[feasible]`: the weighted sum of all scores."""
    totals = cache.base[feasible]
    for kept in cache.normalizing:
        if kept.constant is not None:
            totals += kept.constant
        else:
            totals += kept.plugin.normalize(chosen, kept.state, kept.raw[feasible]) * kept.weight
    for plugin, weight in cache.live_scores:
        prepared = plugin.pre_score(chosen)
        if isinstance(prepared, Ready):
            raw = plugin.score(chosen, prepared.state)
            totals += (plugin.normalize(chosen, prepared.state, raw) if plugin.normalizes else raw) * weight
    return totals
