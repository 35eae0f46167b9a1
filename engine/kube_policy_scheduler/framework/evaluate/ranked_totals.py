"""Totals of all nodes with scores that compare nodes, kept: a placement costs its own rows, not all.

Three kinds of such scores follow from little that changes seldom, and are kept as layers over the kept totals:

- A score by counted pods of each node (`spread by …`) follows from that number, and from the highest and lowest number
  on the feasible nodes.
- A score that compares a value of the nodes (`normalize`) follows from that value, and from the highest and lowest one.
- A score by domains (`spread by … over zone`) is the same for all nodes of a domain. It is not added to each node but
  to the highest total of each block of nodes, and a block lies in one domain.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.counter_kinds import Counter
from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, BoolArray, FloatArray, IntArray, Rows
from kube_policy_scheduler.framework.evaluate.metric_readings import MetricReadings
from kube_policy_scheduler.framework.evaluate.template_cache import TemplateCache, TemplateCaches
from kube_policy_scheduler.framework.extremes import AT_HIGHEST, AT_LOWEST, Extremes
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator
from kube_policy_scheduler.framework.kernels.block_maxima import (
    BlockMaxima,
    DomainMaxima,
    TiedRows,
    domain_blocks,
)
from kube_policy_scheduler.framework.kernels.changed_rows import ChangedRows
from kube_policy_scheduler.framework.plugin import (
    Ready,
    Scope,
    ScorePlugin,
    ScoresByCount,
    ScoresByDomain,
)

_REBUILD_SHARE = 8
"""With more than 1/8 of the rows changed, ranking all at once is cheaper."""
FEWEST_BY_DOMAIN = 8_192
"""With fewer nodes, a score by domain is added up for all of them: 67 µs a decision instead of 93 with 2,000 nodes, 71
instead of 92 with 5,000, about the same with 10,000, and 149 instead of 102 with 20,000."""
_BYTES_A_NODE = 9
"""What totals take for each node with the maxima of their blocks; the columns of layers come on top."""
_FEW_ROWS = 8
"""Up to this many rows are ranked faster one by one."""
_SPARE_COUNTS = 16
"""There may be so many more pods on a node before all nodes are counted again."""
_NOT_FEASIBLE = -1
_FEASIBLE = 4
"""Besides `AT_LOWEST` and `AT_HIGHEST`."""
_NO_SCORES: FloatArray = np.zeros(0)
_NO_COUNTS: NDArray[np.int32] = np.zeros(0, np.int32)
"""In the place of columns that there are none of."""
Number = TypeVar("Number", bound=np.generic)


class _Changed:
    """The rows whose kept total or verdict changed, and those whose scores may have; some more than once."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows
        self.array: IntArray = np.array(rows, np.int64)

    def __len__(self) -> int:
        return len(self.rows)


class _Layer(Protocol):
    """One score of all feasible nodes."""

    bytes_a_node: ClassVar[int]
    """What its columns take for each node."""
    is_kept: bool
    """False if it turned out that the score cannot be kept."""

    def pending(self, frame: Frame) -> Sequence[int] | None:
        """Return the rows whose score may be another one, besides those that changed; None if that may be all.

        What is returned counts as read.
        """

    def follow(self, cache: TemplateCache, frame: Frame, changed: _Changed) -> bool:
        """Catch up with these rows; return False if other rows may have another score, too."""

    def renew(self, cache: TemplateCache, frame: Frame) -> None:
        """Score all rows again."""

    def scores(self, rows: Rows) -> FloatArray:
        """Return `float64[rows]`, weighted; anything where a node is not feasible."""

    def score(self, row: int) -> float:
        """Return the same of one row."""


class _ByCount(Measured):
    """A score by counted pods of each node."""

    borrowed = frozenset({"_counter"})
    bytes_a_node: ClassVar = 4

    def __init__(self, plugin: ScoresByCount, weight: float, counter: Counter, accelerator: Accelerator) -> None:
        self.is_kept = True
        self._accelerator = accelerator
        self._plugin = plugin
        self._weight = weight
        self._counter = counter
        self._read = -1
        """The position in the counter's journal."""
        self.counts: NDArray[np.int32] = np.zeros(0, np.int32)
        """`int32[nodes]`: the pods of each feasible node, -1 elsewhere."""
        self._nodes_by_count: IntArray = np.zeros(1, np.int64)
        """`int64[more than the most]`: how many feasible nodes have so many pods."""
        self._extremes = (0, 0)
        self.by_count: FloatArray = np.zeros(1)
        """`float64[most + 1]`: the scores by number of pods."""

    def pending(self, frame: Frame) -> Sequence[int] | None:
        counted = self._counter.changed_since(self._read)
        self._read = self._counter.version
        return None if counted is None else [change[0] for change in counted]

    def follow(self, cache: TemplateCache, frame: Frame, changed: _Changed) -> bool:
        if len(self.counts) != len(cache.ok):
            self._resize(len(cache.ok))
        kernels = self._accelerator.kernels
        per_node = cast("NDArray[np.int32]", self._counter.per_node())  # it counts pods, not weights
        if kernels is not None:
            extremes = kernels.recount(changed.array, cache.ok, per_node, self.counts, self._nodes_by_count)
        else:
            extremes = self._recount(np.unique(changed.array), cache.ok, per_node)
        if extremes[1] < 0:
            self._count_all(cache)
        elif extremes != self._extremes:
            self._score_again(*extremes)
        else:
            return True
        return False

    def renew(self, cache: TemplateCache, frame: Frame) -> None:
        self._count_all(cache)

    def _count_all(self, cache: TemplateCache) -> None:
        self.counts = np.where(cache.ok, self._counter.per_node(), _NOT_FEASIBLE).astype(np.int32)
        room = max(0, int(self.counts.max(initial=0))) + _SPARE_COUNTS
        self._nodes_by_count = np.bincount(self.counts[cache.ok], minlength=room)
        self._score_again(*self._find_extremes())

    def _resize(self, size: int) -> None:
        """Forget the rows that are gone; new ones are still to be counted."""
        gone = self.counts[size:]
        np.subtract.at(self._nodes_by_count, gone[gone != _NOT_FEASIBLE], 1)
        self.counts = _resized(self.counts, size, _NOT_FEASIBLE)

    def _recount(self, rows: IntArray, ok: BoolArray, per_node: NDArray[np.int32]) -> tuple[int, int]:
        """Do what `Kernels.recount` does, with rows that are named once."""
        before, now = self.counts[rows], np.where(ok[rows], per_node[rows], _NOT_FEASIBLE)
        if now.max(initial=0) >= len(self._nodes_by_count):
            return -1, -1
        self.counts[rows] = now
        np.subtract.at(self._nodes_by_count, before[before != _NOT_FEASIBLE], 1)
        np.add.at(self._nodes_by_count, now[now != _NOT_FEASIBLE], 1)
        return self._find_extremes()

    def _find_extremes(self) -> tuple[int, int]:
        counts = self._nodes_by_count.nonzero()[0]
        return (counts.item(0), counts.item(-1)) if len(counts) else (0, 0)

    def _score_again(self, fewest: int, most: int) -> None:
        self._extremes = fewest, most
        counts = np.arange(most + 1, dtype=np.float64)
        self.by_count = self._plugin.of_counts(counts, most=float(most), fewest=float(fewest)) * self._weight

    def scores(self, rows: Rows) -> FloatArray:
        return self.by_count[self.counts[rows]]  # the last one for nodes that are not feasible

    def score(self, row: int) -> float:
        return self.by_count.item(self.counts.item(row))


class _Compared(Measured):
    """A score of scope FEASIBLE. It is kept if it follows from a value of each node and the extremes of that value."""

    bytes_a_node: ClassVar = 9

    def __init__(self, plugin: ScorePlugin, weight: float, prepared: Ready) -> None:
        self.is_kept = True
        self._plugin = plugin
        self._weight = weight
        self._state = prepared.state
        self._readings = MetricReadings((plugin,))
        self._extremes = Extremes()
        self.column: FloatArray = np.zeros(0)
        """`float64[nodes]`: the scores, weighted."""
        self._flags: NDArray[np.uint8] = np.zeros(0, np.uint8)
        """`uint8[nodes]`, as `Extremes.flags`, with `_FEASIBLE` for the feasible nodes of the last look."""
        self._lowest = self._highest = 0
        """How many feasible nodes have the lowest and the highest value."""
        self._changes: ChangedRows | None = None
        self._static: Sequence[int] = ()
        """The rows that `pending` returned."""

    def pending(self, frame: Frame) -> Sequence[int] | None:
        changed = self._readings.have_changed(frame)
        rows = self._changes.take() if self._changes is not None else None
        if changed or rows is None or isinstance(rows, slice):
            return None
        self._static = rows
        return rows

    def follow(self, cache: TemplateCache, frame: Frame, changed: _Changed) -> bool:
        follows = self._compare(frame, cache, changed)
        if not follows:
            self.renew(cache, frame)
        return follows

    def renew(self, cache: TemplateCache, frame: Frame) -> None:
        self._compare_all(frame, cache)

    def _compare_all(self, frame: Frame, cache: TemplateCache) -> None:
        nodes = frame.cluster.nodes
        self._changes = ChangedRows(nodes, nodes.static_changes, nodes.image_changes)
        self.column, self._flags = np.zeros(len(cache.ok)), np.zeros(len(cache.ok), np.uint8)
        self._extremes = Extremes()
        # not `passing`, which is kept: a column for each template that nothing else reads
        rows = ALL_ROWS if cache.count == len(cache.ok) else cache.ok.nonzero()[0]
        self._score(frame.at(rows), self._extremes)
        self._extremes.flags = None  # the column has them
        self.is_kept = self._extremes.is_usable
        self._lowest, self._highest = _numbers(self._flags)

    def _compare(self, frame: Frame, cache: TemplateCache, changed: _Changed) -> bool:
        """Compare the changed rows with the known extremes; return whether these are still the extremes.

        Most rows changed because of their pods, which a comparison does not depend on.
        """
        static = self._static
        if len(self.column) != len(cache.ok):
            self._resize(len(cache.ok))
        if len(changed) > _FEW_ROWS:
            many = changed.array
            other = many[cache.ok[many] != (self._flags[many] >= _FEASIBLE)].tolist()
        else:
            other = [row for row in changed.rows if cache.ok.item(row) is not (self._flags.item(row) >= _FEASIBLE)]
        if not static and not other:
            return self._has_extremes  # a row that is gone may have been the last one with one of them
        rows: list[int] = []
        for row in dict.fromkeys([*static, *other]):
            flags = self._flags.item(row)
            self._lowest -= flags & AT_LOWEST
            self._highest -= (flags & AT_HIGHEST) // AT_HIGHEST
            self._flags[row] = 0
            if cache.ok.item(row):
                rows.append(row)
        if rows:
            extremes, found = Extremes(self._extremes), np.array(rows, np.int64)
            self._score(frame.at(found), extremes)
            if not extremes.as_before():
                return False
            more_lowest, more_highest = _numbers(self._flags[found])
            self._lowest += more_lowest
            self._highest += more_highest
        return self._has_extremes

    @property
    def _has_extremes(self) -> bool:
        """Return whether some feasible node has the lowest value, and some the highest; also where there is none."""
        return self._extremes.span is None or bool(self._lowest and self._highest)

    def _resize(self, size: int) -> None:
        """Forget the rows that are gone; new ones are still to be compared."""
        lowest, highest = _numbers(self._flags[size:])
        self._lowest -= lowest
        self._highest -= highest
        self._flags = _resized(self._flags, size, 0)
        self.column = _resized(self.column, size, 0.0)

    def _score(self, frame: Frame, extremes: Extremes) -> None:
        self.column[frame.rows] = self._plugin.score(frame.within(extremes), self._state) * self._weight
        self._flags[frame.rows] = _FEASIBLE if extremes.flags is None else extremes.flags | _FEASIBLE

    def scores(self, rows: Rows) -> FloatArray:
        return self.column[rows]

    def score(self, row: int) -> float:
        return self.column.item(row)


def _resized(column: NDArray[Number], size: int, new: float) -> NDArray[Number]:
    """Return a column of another length, with a value for new rows."""
    if size <= len(column):
        return column[:size].copy()
    return np.concatenate((column, np.full(size - len(column), new, column.dtype)))


def _numbers(flags: NDArray[np.uint8]) -> tuple[int, int]:
    """Return how many nodes have the lowest value, and how many the highest."""
    return int(np.count_nonzero(flags & AT_LOWEST)), int(np.count_nonzero(flags & AT_HIGHEST))


def _columns_of(layers: Sequence[_Layer]) -> tuple[_Compared | None, _ByCount | None, _Compared | None] | None:
    """Return the scores that a compiled loop adds in this order; None: there are others, or more."""
    found: list[_Compared | _ByCount | None] = [None, None, None]
    place = 0
    for layer in layers:
        wanted = 1 if isinstance(layer, _ByCount) else 2 if place > 1 else 0
        if wanted < place or not isinstance(layer, _ByCount | _Compared):
            return None
        found[wanted], place = layer, wanted + 1
    before, by_count, after = found
    assert not isinstance(before, _ByCount)
    assert not isinstance(by_count, _Compared)
    assert not isinstance(after, _ByCount)
    return before, by_count, after


class RankedTotals(Measured):
    """The totals of one template's feasible nodes."""

    borrowed = frozenset({"_counters"})

    def __init__(
        self,
        layers: Sequence[_Layer],
        by_domain: tuple[ScoresByDomain, float] | None,
        accelerator: Accelerator,
        *,
        counters: Sequence[Counter],
    ) -> None:
        """Start without totals. counters: they count the pods that scores depend on."""
        self._counters = counters
        self._layers = layers
        self._columns = _columns_of(layers)
        self._accelerator = accelerator
        self._by_domain = by_domain
        self._read = -1
        """The position in the journal of the template cache."""
        self._constant = 0.0
        self._maxima: BlockMaxima | DomainMaxima = BlockMaxima(np.zeros(0), accelerator)
        self._size = -1
        self._is_kept = True

    def is_of_use(self) -> bool:
        """Return whether all counters that it depends on are still kept up to date."""
        return all(counter.live for counter in self._counters)

    def best(self, frame: Frame, cache: TemplateCache, *, constant: float) -> BlockMaxima | TiedRows | None:
        """Return the nodes with the highest total, or where they are found; None if the totals cannot be kept.

        constant: what other scores add to each node.
        """
        domains, counts = self._by_domain[0].domains(frame) if self._by_domain is not None else (None, None)
        blocks = domain_blocks(frame.cluster.nodes, domains) if domains is not None else None
        if not self._is_kept or (domains is not None and blocks is None):
            return None
        size = self._size
        changed = self._follow(frame, cache, constant=constant)
        self._is_kept = all(layer.is_kept for layer in self._layers)
        if not self._is_kept:
            self._layers = ()
            return None
        if changed is not None and blocks is not None:
            assert isinstance(self._maxima, DomainMaxima)
            moved = self._maxima.follow(blocks)
            if moved is None:
                changed = None
            elif moved:
                changed = _Changed([*changed.rows, *moved])
        if changed is not None:
            self._write(cache, changed, resized=size != self._size)
        else:
            totals = self._totals(cache, ALL_ROWS)
            self._maxima = (
                BlockMaxima(totals, self._accelerator)
                if blocks is None
                else DomainMaxima(totals, blocks, self._accelerator)
            )
        if isinstance(self._maxima, BlockMaxima):
            return self._maxima
        assert self._by_domain is not None
        assert domains is not None
        assert counts is not None
        plugin, weight = self._by_domain
        return self._maxima.best(plugin.of_domains(frame, domains, counts, self._maxima.feasible()) * weight)

    def _follow(self, frame: Frame, cache: TemplateCache, *, constant: float) -> _Changed | None:
        """Let all layers catch up; return the rows whose totals may be other ones, None if that may be all."""
        rows = self._changed(cache, constant=constant)
        pending = [layer.pending(frame) for layer in self._layers]
        if rows is None:
            for layer in self._layers:
                layer.renew(cache, frame)
            return None
        every = list(rows)
        for some in pending:
            every += some or ()
        if max(every, default=0) >= self._size:  # a node may have come, counted, and gone
            every = [row for row in every if row < self._size]
        changed, are_few = _Changed(every), len(every) * _REBUILD_SHARE <= self._size
        others_differ = not are_few
        for layer, some in zip(self._layers, pending, strict=True):
            if some is None or not are_few:
                layer.renew(cache, frame)
                others_differ = True
            elif not layer.follow(cache, frame, changed):
                others_differ = True
        return None if others_differ else changed

    def _changed(self, cache: TemplateCache, *, constant: float) -> Sequence[int] | None:
        changed = cache.changes.since(self._read)
        self._read = cache.changes.end
        is_known, self._size, self._constant = constant == self._constant and self._size >= 0, len(cache.ok), constant
        return changed if is_known else None

    def _write(self, cache: TemplateCache, changed: _Changed, *, resized: bool) -> None:
        kernels, columns = self._accelerator.kernels, self._columns
        sums = cache.summands() if kernels is not None and columns is not None and not resized else None
        if kernels is not None and columns is not None and sums is not None:
            before, by_count, after = columns
            kernels.rank(
                changed.array,
                self._maxima.places,
                cache.ok,
                self._constant,
                self._maxima.written,
                sums,
                before.column if before is not None else _NO_SCORES,
                (by_count.counts, by_count.by_count) if by_count is not None else (_NO_COUNTS, _NO_SCORES),
                after.column if after is not None else _NO_SCORES,
            )
            return
        if resized or len(changed) > _FEW_ROWS:
            rows = np.unique(changed.array)
            self._maxima.write(rows, self._totals(cache, rows), size=self._size)
            return
        for row in changed.rows:
            total = cache.total(row) + self._constant
            for layer in self._layers:
                total += layer.score(row)
            self._maxima.write_one(row, total)

    def _totals(self, cache: TemplateCache, rows: Rows) -> FloatArray:
        totals: FloatArray = cache.totals(rows) + self._constant  # -inf where a node is not feasible
        for layer in self._layers:
            totals += layer.scores(rows)
        return totals


def best_ranked(
    frame: Frame,
    cache: TemplateCache,
    scores: Sequence[tuple[ScorePlugin, float, Ready]],
    *,
    constant: float,
    caches: TemplateCaches,
) -> BlockMaxima | TiedRows | None:
    """Return the nodes with the highest total, or where they are found.

    None: the totals cannot be kept, or there is no room.

    Args:
        frame: of the pod.
        cache: of its template.
        scores: those that are live, in order.
        constant: what other scores add to each node.
        caches: of all templates; they keep the totals along with the template.
    """
    key = _key(frame, scores)
    if key is None:
        return None
    known = caches.along.get((cache, key))
    if isinstance(known, RankedTotals):
        return known.best(frame, cache, constant=constant)
    layers: list[_Layer] = []
    by_domain = None
    for plugin, weight, prepared in scores:
        if isinstance(plugin, ScoresByCount):
            layers.append(_ByCount(plugin, weight, plugin.counter(frame), caches.accelerator))
        elif isinstance(plugin, ScoresByDomain):
            by_domain = plugin, weight
        else:
            layers.append(_Compared(plugin, weight, prepared))
    if not caches.make_room(cache, sum([layer.bytes_a_node for layer in layers], _BYTES_A_NODE) * len(cache.ok)):
        return None
    counters = [of for _, of in key if isinstance(of, Counter)]
    ranked = RankedTotals(layers, by_domain, caches.accelerator, counters=counters)
    found = ranked.best(frame, cache, constant=constant)
    caches.keep_along(cache, key, ranked)
    return found


def may_be_kept(plugin: ScorePlugin) -> bool:
    """Return whether totals with the score of a plugin can be kept, as far as that follows from the plugin."""
    return isinstance(plugin, ScoresByCount | ScoresByDomain) or plugin.scope is Scope.FEASIBLE


def _key(
    frame: Frame, scores: Sequence[tuple[ScorePlugin, float, Ready]]
) -> tuple[tuple[ScorePlugin, Hashable], ...] | None:
    """Return what the ranked totals of a template follow from besides it; None if they cannot be kept."""
    key: list[tuple[ScorePlugin, Hashable]] = []
    by_domain = 0
    for plugin, _, prepared in scores:
        if not may_be_kept(plugin):
            return None
        if isinstance(plugin, ScoresByCount | ScoresByDomain):
            by_domain += isinstance(plugin, ScoresByDomain)
            key.append((plugin, plugin.counter(frame)))
        else:
            own = plugin.key_of(prepared)
            key.append((plugin, frame.template if own is None else own))
    if by_domain > 1 or (by_domain and frame.cluster.nodes.size < FEWEST_BY_DOMAIN):
        return None
    return tuple(key)
