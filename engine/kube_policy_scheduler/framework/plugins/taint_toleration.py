"""TaintToleration: hard taints reject pods that do not tolerate them, soft ones lower the score of a node."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.taints import taint_sets, tolerance, untolerated_hard, untolerated_soft
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Default, PreFilterResult, Reads, Ready, ScoresByHighest
from kube_policy_scheduler.framework.plugins.base import Filter, Score, normalized, same_for_all, scaled


class TaintToleration(Filter, Score, ScoresByHighest):
    """Rejects nodes with an untolerated NoSchedule or NoExecute taint; fewer PreferNoSchedule taints score higher."""

    name = "TaintToleration"
    default = Default(3, weight=3)
    reads = Reads.SPEC
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_TAINT})
    reason = "node(s) had untolerated taint(s)"
    normalizes = True

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Return without a rejection."""
        return self._ready(frame)

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        nodes = frame.cluster.nodes
        passing = untolerated_hard(frame.pod.template, nodes) == 0
        if passing.all():
            return np.ones(frame.size, np.bool_)
        result: BoolArray = passing.take(taint_sets(nodes).codes[frame.rows])
        return result

    def filter_key_now(self, frame: Frame, ready: Ready) -> Hashable:
        """Return which of the sets of taints that nodes have the pod tolerates."""
        tolerated: BoolArray = untolerated_hard(frame.pod.template, frame.cluster.nodes) == 0
        return tolerated.tobytes()

    def pre_score(self, frame: Frame) -> Ready:
        """Score always."""
        return self._ready(frame)

    def _ready(self, frame: Frame) -> Ready:
        template = frame.pod.template
        known: Ready | None = template.shape.get(self.name)
        if known is None:
            known = template.shape[self.name] = Ready(key=tolerance(template))
        return known

    def score(self, frame: Frame, state: Any) -> IntArray:
        """Return `int64[rows]`: soft taints that the pod does not tolerate."""
        nodes = frame.cluster.nodes
        counts = untolerated_soft(frame.pod.template, nodes)
        if len(counts) and not counts.any():
            return same_for_all(0, frame.size)
        result: IntArray = counts.take(taint_sets(nodes).codes[frame.rows])
        return result

    def score_key_now(self, frame: Frame, ready: Ready) -> Hashable:
        """Return how many taints of each of these sets the pod does not tolerate."""
        return untolerated_soft(frame.pod.template, frame.cluster.nodes).tobytes()

    def normalize(self, frame: Frame, state: Any, raw: IntArray | FloatArray) -> IntArray:
        """Return 100 for nodes without such taints, 0 for those with the most."""
        return normalized(raw, reverse=True)

    def scaled(self, raw: IntArray, *, highest: int) -> IntArray:
        """Return the same for some nodes."""
        return scaled(raw, highest=highest, reverse=True)
