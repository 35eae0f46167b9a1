"""Defaults for plugins that do nothing special at an extension point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Reads, ScorePlugin
from kube_policy_scheduler.framework.status import Code, Rejection

MAX_SCORE = 100
"""The highest score of one node by one plugin, before the weight."""


class Filter(FilterPlugin):
    """A filter that looks at nodes alone and rejects for one reason, unless it says otherwise."""

    reads = Reads.NOTHING
    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    reason = ""

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return the one reason of this rule, if it applies."""
        return [Rejection(self.code, self.reason, ~self.filter(frame, state))]


class Score(ScorePlugin):
    """A score that looks at nodes alone, unless it says otherwise."""

    reads = Reads.NOTHING


def same_for_all(score: int, size: int) -> IntArray:
    """Return `int64[size]`: one number for all rows, kept once. It has a stride of 0, and cannot be written to."""
    return np.broadcast_to(np.int64(score), (size,))


def normalized(raw: IntArray | FloatArray, *, reverse: bool = False) -> IntArray:
    """Scale raw scores of at least 0 to 0..100 by the highest (`helper.DefaultNormalizeScore`).

    With `reverse` the highest raw score becomes 0. If all are 0, all stay 0 (reversed: become 100).
    """
    whole = raw.astype(np.int64)
    return scaled(whole, highest=int(whole.max()) if len(whole) else 0, reverse=reverse)


def scaled(whole: IntArray, *, highest: int, reverse: bool) -> IntArray:
    """Do the same for some of the nodes; `highest` is the highest raw score of all."""
    if highest == 0:
        return np.full(len(whole), MAX_SCORE, np.int64) if reverse else whole
    result = MAX_SCORE * whole // highest
    return MAX_SCORE - result if reverse else result
