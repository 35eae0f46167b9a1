"""What HTTP extenders said about nodes for one pod: it narrows what the filters allow, and adds to the scores."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, NodeTable
from kube_policy_scheduler.framework.status import Code, Rejection

EXTENDER = "Extender"
"""The rejector of pods whose nodes extenders rejected. No plugin has this name, so every event moves them."""
MOST_REASONS = 32
"""Different reasons that are shown; an extender may give each node one of its own."""
OTHER_REASONS = "node(s) rejected by an extender for other reasons"
LEAST_NODES = 100
"""minFeasibleNodesToFind of kube-scheduler."""


class ExtenderVerdict(msgspec.Struct, frozen=True, eq=False):
    """The nodes that extenders were asked about. A node that is in neither mapping was not."""

    passed: Mapping[str, float]
    """By node: what to add to its score."""
    rejected: Mapping[str, str]
    """By node, why."""

    def passing(self, nodes: NodeTable) -> BoolArray:
        """Return `bool[nodes]`: which passed."""
        return _marked(nodes, self.passed)

    def asked(self, nodes: NodeTable) -> BoolArray:
        """Return `bool[nodes]`: which the extenders were asked about."""
        return _marked(nodes, self.passed) | _marked(nodes, self.rejected)

    def scores(self, nodes: NodeTable, rows: IntArray) -> FloatArray:
        """Return `float64[rows]`: what to add to the totals of nodes that passed."""
        return np.array([self.passed[nodes.infos[row].name] for row in rows.tolist()], np.float64)

    def rejections(self, nodes: NodeTable) -> list[Rejection]:
        """Return why nodes did not pass.

        All of them count as unresolvable. Nodes that only an extender rejects pass the filters without any eviction,
        and kube-scheduler's preemption ends with an error there (`expected at least one victim pod on node`).
        """
        rows: dict[str, list[int]] = {}
        for name, reason in self.rejected.items():
            row = nodes.rows.get(name)
            if row is not None:
                rows.setdefault(reason if reason in rows or len(rows) < MOST_REASONS else OTHER_REASONS, []).append(row)
        found = []
        for reason, where in rows.items():
            column = np.zeros(nodes.size, np.bool_)
            column[where] = True
            found.append(Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reason, column))
        return found


def _marked(nodes: NodeTable, names: Mapping[str, object]) -> BoolArray:
    column = np.zeros(nodes.size, np.bool_)
    column[[row for name in names if (row := nodes.rows.get(name)) is not None]] = True
    return column


def nodes_to_ask(nodes: int, *, percentage: int) -> int:
    """Return how many nodes extenders are asked about at once (`numFeasibleNodesToFind` of kube-scheduler 1.36).

    Args:
        nodes: of the cluster.
        percentage: of them; 0: from 50 % of few nodes to 5 % of very many.
    """
    if nodes < LEAST_NODES:
        return nodes
    share = percentage or max(5, 50 - nodes // 125)
    return max(LEAST_NODES, nodes * share // 100)
