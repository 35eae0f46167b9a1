"""DynamicResources: this scheduler allocates no devices, and never binds a pod that needs some by guess.

Extended resources that a DeviceClass provides are left to NodeResourcesFit: nodes without a device plugin for
them are refused there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cluster.nodes import BoolArray, IntArray
from engine.framework.frame import Frame
from engine.framework.plugin import SKIP, PreFilterResult, Ready
from engine.framework.plugins.base import Filter, Score
from engine.framework.status import Code, Status

CLAIMS_REFUSED = "pod has resource claims, which this scheduler does not allocate"
NO_CLAIMS = "no new claims to deallocate"
"""What kube-scheduler's DynamicResources answers at PostFilter for pods without claims."""


class DynamicResources(Filter, Score):
    """Refuses pods with resource claims; scores 0 everywhere for others, as kube-scheduler does."""

    name = "DynamicResources"

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Refuse pods with claims, skip all others."""
        if frame.template.spec.resource_claims:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (CLAIMS_REFUSED,))
        return SKIP

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: every node, as only pods without claims come here."""
        return np.ones(frame.size, np.bool_)

    def pre_score(self, frame: Frame) -> Ready:
        """Score always."""
        return Ready(key=self.name)

    def score(self, frame: Frame, state: Any) -> IntArray:
        """Return 0 for every node, `int64[rows]`."""
        return np.zeros(frame.size, np.int64)
