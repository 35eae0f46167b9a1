"""Totals of all nodes with a score by counted pods, kept: a placement costs its own rows, not all.

Such a score of a node follows from its number of some pods, and from the highest and lowest number on the feasible
nodes. Those two change seldom; while they stay, only nodes whose pods or kept totals changed have another total.
"""

from __future__ import annotations

from collections import Counter as Histogram
from collections import OrderedDict
from weakref import ReferenceType, ref

import numpy as np

from kube_policy_scheduler.cluster.counter import Counter
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, FloatArray, IntArray, Rows
from kube_policy_scheduler.framework.block_maxima import BlockMaxima
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.template_cache import TemplateCache

_BYTES_A_ROW = 16
_MAX_BYTES = 128 * 2**20
"""Of all that is kept: with 130,000 nodes 64 pairs of templates and counted pods."""
_MAX_KEPT = 256
_REBUILD_SHARE = 8
"""With more than 1/8 of the rows changed, ranking all at once is cheaper."""
_RECENT = 4
"""What was used within the last 4 requests for each kept one makes no room for another: in a round of too many
templates, each would be dropped before it is used again."""
_FEW_ROWS = 8
"""So few rows are faster ranked one by one."""
_NOT_FEASIBLE = -1


class ScoresByCount:
    """Base of score plugins of scope CLUSTER that can be kept so."""

    def counter(self, frame: Frame) -> Counter | None:
        """Return what counts the pods; None if the scores do not follow from it."""
        raise NotImplementedError

    def of_counts(self, counts: FloatArray, *, most: float, fewest: float) -> FloatArray:
        """Return `float64[n]`: the scores of nodes by their pods; feasible nodes have `fewest` to `most`."""
        raise NotImplementedError


class RankedTotals:
    """The totals of one template's feasible nodes, with the score by one counter."""

    def __init__(self, plugin: ScoresByCount, weight: float, counter: Counter) -> None:
        self._plugin = plugin
        self._weight = weight
        self._counter = counter
        self._read = (-1, -1)
        """Positions in the journals of the template cache and of the counter."""
        self._constant = 0.0
        self._counts: IntArray = np.zeros(0, np.int64)
        """`int64[nodes]`: the pods of each feasible node, -1 elsewhere."""
        self._nodes_by_count: Histogram[int] = Histogram()
        """How many feasible nodes have so many pods."""
        self._extremes = (0, 0)
        self._scores: FloatArray = np.zeros(1)
        """`float64[most + 1]`: the scores by number of pods."""
        self.maxima: BlockMaxima
        self.used = 0
        """The number of the last request."""

    def refresh(self, cache: TemplateCache, *, constant: float) -> None:
        """Rank what changed. `constant` is what other scores add to each node."""
        changed = cache.changes.since(self._read[0])
        counted = self._counter.changed_since(self._read[1])
        self._read = cache.changes.end, self._counter.version
        size = len(cache.ok)
        if changed is None or counted is None or size != len(self._counts) or constant != self._constant:
            rows = None
        else:
            rows = {*changed, *(row for row, *_ in counted)}
        self._constant = constant
        if rows is None or len(rows) * _REBUILD_SHARE > size:
            self._counts = np.where(cache.ok, self._counter.per_node(), _NOT_FEASIBLE).astype(np.int64)
            numbers = np.bincount(self._counts[cache.ok])
            self._nodes_by_count = Histogram({int(count): int(numbers[count]) for count in numbers.nonzero()[0]})
            self._rank_all(cache)
        elif rows:
            self._recount(cache, rows)
            if self._extremes != self._find_extremes():
                self._rank_all(cache)
            elif len(rows) <= _FEW_ROWS:
                for row in rows:
                    score = self._scores.item(self._counts.item(row)) * self._weight
                    self.maxima.write_one(row, (cache.maxima.total(row) + self._constant) + score)
            else:
                changed_rows = np.fromiter(rows, np.int64, len(rows))
                self.maxima.write(changed_rows, self._totals(cache, changed_rows), size=size)

    def _recount(self, cache: TemplateCache, rows: set[int]) -> None:
        per_node, by_count = self._counter.per_node(), self._nodes_by_count
        for row in rows:
            before = self._counts.item(row)
            now = per_node.item(row) if cache.ok.item(row) else _NOT_FEASIBLE
            if now == before:
                continue
            self._counts[row] = now
            by_count[now] += 1
            by_count[before] -= 1
            if not by_count[before]:
                del by_count[before]
        by_count.pop(_NOT_FEASIBLE, None)

    def _find_extremes(self) -> tuple[int, int]:
        return min(self._nodes_by_count, default=0), max(self._nodes_by_count, default=0)

    def _rank_all(self, cache: TemplateCache) -> None:
        self._extremes = fewest, most = self._find_extremes()
        counts = np.arange(most + 1, dtype=np.float64)
        self._scores = self._plugin.of_counts(counts, most=float(most), fewest=float(fewest))
        self.maxima = BlockMaxima(self._totals(cache, ALL_ROWS))

    def _totals(self, cache: TemplateCache, rows: Rows) -> FloatArray:
        scores = self._scores[self._counts[rows]]  # the last one for nodes that are not feasible: their total is -inf
        totals: FloatArray = (cache.maxima.totals(rows) + self._constant) + scores * self._weight
        return totals


class Rankings:
    """The recently used ranked totals."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[ReferenceType[TemplateCache], ScoresByCount, Counter], RankedTotals] = (
            OrderedDict()
        )
        self._requests = 0

    def of(
        self, cache: TemplateCache, plugin: ScoresByCount, weight: float, counter: Counter, *, constant: float
    ) -> RankedTotals | None:
        """Return the totals in the present state; None if there is no room to keep them."""
        self._requests += 1
        key = ref(cache), plugin, counter
        found = self._kept.get(key)
        if found is None:
            most = max(1, min(_MAX_KEPT, _MAX_BYTES // (_BYTES_A_ROW * max(1, len(cache.ok)))))
            while len(self._kept) >= most:
                oldest = next(iter(self._kept))
                age = self._requests - self._kept[oldest].used
                if age <= _RECENT * len(self._kept) and len(self._kept) == most and oldest[0]() and oldest[2].live:
                    return None
                del self._kept[oldest]
            found = self._kept[key] = RankedTotals(plugin, weight, counter)
        self._kept.move_to_end(key)
        found.used = self._requests
        found.refresh(cache, constant=constant)
        return found
