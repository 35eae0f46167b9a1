"""One filter, evaluated alone for a pod: whether it applies, which nodes it rejects, and why.

The scheduling cycle stops checking a node after its first rejection. An explanation needs to know what
each filter alone returns, and gets it here.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.framework.evaluate.evaluation import named_nodes
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, PreFilterResult, Ready
from kube_policy_scheduler.framework.status import Status

_OTHER_NODES = "node(s) are not those that the pod names"


class FilterProbe(msgspec.Struct, frozen=True, eq=False):
    """The result of one filter for a pod."""

    plugin: FilterPlugin
    frame: Frame
    result: PreFilterResult
    """Its result for the pod as a whole."""

    @property
    def applies(self) -> bool:
        """Return whether the filter checks this pod."""
        return isinstance(self.result, Ready | Status)

    @property
    def rejection(self) -> Status | None:
        """Return why it rejects the pod on every node; None if it checks each node."""
        return self.result if isinstance(self.result, Status) else None

    def passes(self) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        match self.result:
            case Ready(state=state, nodes=names):
                passing = self.plugin.filter(self.frame, state)
                return passing if names is None else passing & named_nodes(self.frame, names)[self.frame.rows]
            case Status():
                return np.zeros(self.frame.size, np.bool_)
        return np.ones(self.frame.size, np.bool_)

    def reasons(self) -> Iterator[tuple[str, BoolArray]]:
        """Yield each reason with `bool[rows]`, the nodes that it rejects; a node may have several."""
        match self.result:
            case Ready(state=state, nodes=names):
                if names is not None:
                    yield _OTHER_NODES, ~named_nodes(self.frame, names)[self.frame.rows]
                yield from (
                    (rejection.reason, rejection.where) for rejection in self.plugin.rejections(self.frame, state)
                )
            case Status(reasons=reasons):
                yield from ((reason, np.ones(self.frame.size, np.bool_)) for reason in reasons)


def probe(frame: Frame, plugin: FilterPlugin) -> FilterProbe:
    """Evaluate one filter for the pod of a frame."""
    return FilterProbe(plugin, frame, plugin.pre_filter(frame))
