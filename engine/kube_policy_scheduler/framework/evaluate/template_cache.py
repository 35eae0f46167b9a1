"""Results that equal templates share for one node table: cached, and updated row by row.

Plugins of other scopes than CLUSTER depend on the template and on each node alone. Their results for all nodes
are kept here. When a node changes, comes or goes, or when pods come to it or leave it, only its row is evaluated again.
That makes a decision cost a few operations on few rows instead of one evaluation of every rule on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.footprint import Measured, Shared, footprint
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, BoolArray, FloatArray, IntArray, NodeTable, Rows
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.evaluate.evaluation import named_nodes
from kube_policy_scheduler.framework.evaluate.known_shapes import KnownShape, KnownShapes, LivePlugins
from kube_policy_scheduler.framework.evaluate.metric_readings import MetricReadings
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator, Blocks, Kernels, Summands, Verdicts
from kube_policy_scheduler.framework.kernels.block_maxima import BlockMaxima
from kube_policy_scheduler.framework.kernels.changed_rows import ChangedRows
from kube_policy_scheduler.framework.kernels.fused_resources import FusedResources
from kube_policy_scheduler.framework.kernels.resource_bounds import BoundedTotals, OtherTotals, ResourceBounds
from kube_policy_scheduler.framework.plugin import (
    FilterOne,
    FilterPlugin,
    Ready,
    Scope,
    ScoreOne,
    ScorePlugin,
    ScoresByHighest,
    Weighted,
)
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Status

_MAX_TEMPLATES = 256
_MAX_ALONG = 64
"""Things that are kept along with one of them: for equal templates that differ in what plugins read for each pod."""
_MAX_ADDED_UP = 64
"""Kinds of answers that are added up for templates which are not kept."""
_MAX_FEASIBLE_SCORES = 16
_MAX_NOW = 16
"""Answers that are kept until the next static change."""
_MAX_SEEN = 2048
"""Templates and kinds of answers that were looked at once, of which only a hash is kept; twice as many at most."""
_TIMES_ENCODED = 8
"""The memory that a template takes, as a multiple of its encoded size."""


_OWN, _KEYED, _SHARED = range(3)
"""Results of one template, of all templates with equal keys, and of all templates."""
_EVERY_TEMPLATE = ()
"""The key of results that are the same for all templates."""
_KEPT = tuple(
    (scope, sharing)
    for scope in (Scope.TEMPLATE, Scope.ROW, Scope.SIGNAL, Scope.ROW_SIGNAL)
    for sharing in (_OWN, _KEYED, _SHARED)
)
"""The kinds of results that are kept together: by scope, and by which templates have the same."""
_FIRST_OF = {scope.value: kind for kind, (scope, sharing) in enumerate(_KEPT) if sharing == _OWN}
"""By value of a scope, which has a faster hash: the kind of its results that differ by template; the next two are
those that some templates share, and those that all do."""
_ROW = _FIRST_OF[Scope.ROW.value]
_BY_REQUESTS = _ROW + _KEYED
"""The kind of the resource rules of Kubernetes."""
_BY_ROW = (Scope.ROW, Scope.ROW_SIGNAL)
_BY_READING = (Scope.SIGNAL, Scope.ROW_SIGNAL)
_FEW_ROWS = 8
"""Up to this many rows are evaluated faster one by one than as arrays. A placement changes one."""
_SPARE_SHARE = 8
"""Columns that all kinds share are longer by 1/8 than there are nodes: they are made again less often as nodes come."""
_MEASURED_SHARE = 64
"""What is kept for a template is measured again only when it has grown by 1/64: that takes as long as a decision."""
_FEW_SUMS, _FEW_FOR_LOOPS = 16, 3
"""Up to this many rows are added up faster one by one than as arrays, or by a compiled loop."""
_MAX_HIGHEST = 8
"""Columns of final scores of one plugin that are kept: templates may differ in the nodes that they fit on."""
_MOST_ADDED = 6
"""Columns that the compiled loop adds up."""
_MOST_STATIC = 3
"""Kinds of results of scope TEMPLATE."""
_NO_VERDICTS: BoolArray = np.zeros(0, np.bool_)
_NO_SUMS: FloatArray = np.zeros(0)
_NO_TOTALS: Blocks = _NO_SUMS, _NO_SUMS, np.zeros(0, np.int64)
"""In the place of columns that there are none of."""
_PartKey: TypeAlias = tuple[Profile, int, Hashable]
"""The number of the kind, and its key."""


class KeptAlong(Protocol):
    """What is kept along with a template, whose changes it follows: it goes with it."""

    def is_of_use(self) -> bool:
        """Return whether all else that it follows is still there."""
        ...


class Prepared(msgspec.Struct, frozen=True):
    """What is known of one template before a pod of it comes."""

    filters: tuple[tuple[FilterPlugin, Ready], ...]
    """The results of PreFilter; live plugins, and those that skip the template, are left out."""
    scores: tuple[tuple[ScorePlugin, float, Ready], ...]
    """The results of PreScore, without live plugins and those that skip the template."""
    rejected: bool = False
    """Whether PreFilter rejects every pod of the template."""
    live_filters: tuple[FilterPlugin, ...] = ()
    """Those of live scopes that may have something to do for pods of the template without volumes."""
    volume_filters: tuple[FilterPlugin, ...] = ()
    """The same for pods with volumes."""
    live_scores: tuple[Weighted, ...] = ()
    """Those of live scopes that may have something to do for pods of the template without volumes."""
    volume_scores: tuple[Weighted, ...] = ()
    """The same for pods with volumes."""

    def by_kind(self, template: PodTemplate) -> dict[int, _Kind]:
        """Return the results of the plugins of each kind that there are any of, see `_KEPT`, in their order."""
        found: dict[int, _Kind] = {}
        for each in self.filters:
            plugin, ready = each
            key, first = ready.key, _FIRST_OF[plugin.scope._value_]
            if key is None and plugin.is_shared:  # as in `Plugin.key_of`
                key = _EVERY_TEMPLATE
            kind = found.get(number := first + (_OWN if key is None else _SHARED if key == _EVERY_TEMPLATE else _KEYED))
            if kind is None:
                kind = found[number] = _Kind([], [], [])
            kind.filters.append(each)
            kind.parts += id(plugin), template if key is None else key
        for kind in found.values():
            kind.parts.append(None)
        for score in self.scores:
            scorer, _, ready = score
            key, first = ready.key, _FIRST_OF[scorer.scope._value_]
            if key is None and scorer.is_shared:  # as in `Plugin.key_of`
                key = _EVERY_TEMPLATE
            kind = found.get(number := first + (_OWN if key is None else _SHARED if key == _EVERY_TEMPLATE else _KEYED))
            if kind is None:
                kind = found[number] = _Kind([], [], [])
            kind.scores.append(score)
            kind.parts += id(scorer), template if key is None else key
        return dict(sorted(found.items())) if len(found) > 1 else found


class _Kind(msgspec.Struct, gc=False):
    """The results of the plugins of one kind."""

    filters: list[tuple[FilterPlugin, Ready]]
    scores: list[tuple[ScorePlugin, float, Ready]]
    parts: list[Hashable]
    """The plugins with their keys; None is between filters and scores."""

    @property
    def key(self) -> Hashable:
        """Return a value that is equal for templates with equal results of the plugins on every node."""
        return tuple(self.parts)


_NO_PLUGINS: Mapping[int, _Kind] = {0: _Kind([], [], [])}


def prepare(frame: Frame, profile: Profile) -> Prepared:
    """Run PreFilter and PreScore of the plugins whose results are kept, for the frame's template."""
    whole, template = frame.at(ALL_ROWS), frame.pod.template
    filters: list[tuple[FilterPlugin, Ready]] = []
    for plugin in profile.kept_filters:
        result = plugin.pre_filter(whole)
        if isinstance(result, Ready):
            filters.append((plugin, result))
        elif isinstance(result, Status):
            return Prepared((), (), rejected=True)
    scores: list[tuple[ScorePlugin, float, Ready]] = []
    for score in profile.kept_scores:
        prepared = score.plugin.pre_score(whole)
        if isinstance(prepared, Ready):
            scores.append((score.plugin, score.weight, prepared))
    live_filters, volume_filters = profile.live_filters_of(template)
    live_scores, volume_scores = profile.live_scores_of(template)
    return Prepared(
        tuple(filters),
        tuple(scores),
        live_filters=live_filters,
        volume_filters=volume_filters,
        live_scores=live_scores,
        volume_scores=volume_scores,
    )


class KeptScore(Shared, msgspec.Struct, eq=False):
    """Raw scores of one normalizing plugin on all nodes."""

    plugin: ScorePlugin
    weight: float
    state: Any
    raw: FloatArray | IntArray
    constant: float | None = None
    """The weighted final score if it is the same for all nodes."""
    finals: dict[int, FloatArray] = msgspec.field(default_factory=dict)
    """`float64[nodes]`, see `final`, by highest raw score."""

    def final(self, highest: int) -> FloatArray:
        """Return `float64[nodes]`: the weighted final scores if this is the highest raw score of feasible nodes.

        It follows the nodes. The plugin must be one of `ScoresByHighest`; nodes with more cannot be feasible.
        """
        known = self.finals.get(highest)
        if known is None:
            if len(self.finals) >= _MAX_HIGHEST:
                self.finals.clear()
            known = self.finals[highest] = self._final(highest, ALL_ROWS)
        return known

    def _final(self, highest: int, rows: Rows) -> FloatArray:
        raw = np.minimum(self.raw[rows].astype(np.int64), highest)
        scaled = cast("ScoresByHighest", self.plugin).scaled(raw, highest=highest)
        result: FloatArray = scaled.astype(np.float64) * self.weight
        return result

    def resize(self, size: int) -> None:
        """Take another number of nodes; new elements are undefined."""
        self.raw = _resized(self.raw, size)
        self.finals = {highest: _resized(final, size) for highest, final in self.finals.items()}

    def update(self, frame: Frame, *, may_be_constant: bool) -> None:
        """Evaluate the frame's rows again."""
        rows, size = frame.rows, frame.cluster.nodes.size
        raw = self.plugin.score(frame, self.state)
        changed = isinstance(rows, slice) or len(self.raw) != size or bool((self.raw[rows] != raw).any())
        if isinstance(rows, slice):
            self.raw = raw
            self.finals.clear()
        elif changed:
            if not self.raw.flags.writeable:
                self.raw = self.raw.copy()
            self.resize(size)
            self.raw[rows] = raw
            for highest, final in self.finals.items():
                final[rows] = self._final(highest, rows)
        if may_be_constant and changed:
            constant = _constant(frame, self.plugin, self.state, self.raw)
            self.constant = None if constant is None else constant * self.weight


class _Scaled:
    """The final scores of one normalizing plugin for a template: they follow while the highest raw score is the same.

    It is the same while one feasible node that has it, the witness, stays as it is and no other one has more.
    """

    def __init__(self, kept: KeptScore, ok: BoolArray) -> None:
        self._kept = kept
        self._highest = 0
        self._witness = -1
        self._find(ok)

    @property
    def final(self) -> FloatArray:
        """Return `float64[nodes]`, weighted; anything where a node is not feasible."""
        return self._kept.final(self._highest)

    def has_moved(self, rows: IntArray, ok: BoolArray) -> bool:
        """Return whether the highest raw score is another one, now that these rows changed."""
        before, raw, witness = self._highest, self._kept.raw, self._witness
        of_rows = raw[rows]
        more = of_rows[ok[rows]].max(initial=before)
        is_there = 0 <= witness < len(ok) and bool(ok[witness]) and int(raw[witness]) == before
        if more > before or not is_there:
            self._find(ok)
        return self._highest != before

    def _find(self, ok: BoolArray) -> None:
        raw = self._kept.raw
        passing = np.where(ok, raw, -1)
        self._witness = int(passing.argmax()) if len(passing) else -1
        self._highest = max(0, int(passing[self._witness])) if len(passing) else 0


def _constant(frame: Frame, plugin: ScorePlugin, state: Any, raw: FloatArray | IntArray) -> float | None:
    """Return the final score of every node if all raw scores are the same, else None."""
    if not len(raw) or (not _is_one_number(raw) and not (raw == raw[0]).all()):
        return None
    return float(plugin.normalize(frame.at(np.zeros(1, np.int64)), state, raw[:1])[0])


def _is_one_number(scores: NDArray[Any]) -> bool:
    """Return whether scores are known to be the same for all rows, without a look at them; see `same_for_all`."""
    return scores.strides == (0,)


def _resized(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return an array of another length; new elements are undefined."""
    if len(array) == size:
        return array
    result = np.empty(size, array.dtype)
    result[: len(array)] = array[:size]
    return result


class _Neutral:
    """Columns that change no sum and no verdict: of kinds without scores, or without filters. Nobody writes to them."""

    def __init__(self) -> None:
        self._passing: BoolArray = np.ones(0, np.bool_)
        self._zeros: FloatArray = np.zeros(0)

    def passing(self, size: int) -> BoolArray:
        """Return `bool[size]`, all true."""
        if size > len(self._passing):
            self._passing = np.ones(size + size // _SPARE_SHARE, np.bool_)
        return self._passing[:size]

    def zeros(self, size: int) -> FloatArray:
        """Return `float64[size]`."""
        if size > len(self._zeros):
            self._zeros = np.zeros(size + size // _SPARE_SHARE)
        return self._zeros[:size]


class _Answers(Shared):
    """The results of the plugins of one scope for each node."""

    def __init__(self, frame: Frame, kind: _Kind, scope: Scope, *, accelerator: Accelerator) -> None:
        nodes = frame.cluster.nodes
        dynamic = (nodes.dynamic_changes,) if scope in _BY_ROW else ()
        self.nodes = nodes
        self._changes = ChangedRows(nodes, nodes.static_changes, nodes.image_changes, *dynamic)
        self.scope = scope
        self.filters = kind.filters
        scores = [(p, weight, ready.state) for p, weight, ready in kind.scores]
        self.scores = [score for score in scores if not score[0].normalizes]
        self.normalizing = [KeptScore(*score, np.zeros(0)) for score in scores if score[0].normalizes]
        reading = [p for p in (*(p for p, _ in self.filters), *(p for p, *_ in scores)) if scope in _BY_READING]
        self._readings = MetricReadings(reading) if reading else None
        if self._readings is not None:
            self._readings.have_changed(frame)
        self._accelerator = accelerator
        self._fused = FusedResources.of(self.filters, self.scores) if scope is Scope.ROW else None
        self._row = _RowPlan.of(self.filters, self.scores)
        self._row_besides_fused = _RowPlan.of(
            [each for each in self.filters if self._fused is None or each[1].state is not self._fused.wanted],
            self.scores if self._fused is None else self.scores[self._fused.scores :],
        )
        by_requests = self._fused is not None and self._fused.scores > 0 and self._row_besides_fused.is_empty
        self._is_fused = by_requests and not self.normalizing and all(ready.nodes is None for _, ready in self.filters)
        """Whether the compiled loop evaluates all of it."""
        self._neutral = nodes.attach("neutral columns", _Neutral)
        self.renewals = 0
        """How often all rows were evaluated."""
        self.version = 0
        """Changes with every answer."""
        self.ok: BoolArray = np.zeros(0, np.bool_)
        """`bool[nodes]`: passed the filters; read-only if there are none."""
        self.base: FloatArray = np.zeros(0)
        """`float64[nodes]`: sum of the scores that need no normalizing; read-only if there are none."""
        self._update(frame.at(ALL_ROWS))

    def refresh(self, frame: Frame, *, beside: ChangedRows | None = None) -> bool:
        """Evaluate the rows that changed since the last time; return whether these are known.

        beside: see `ChangedRows.take`.
        """
        rows = self._changes.take(beside=beside) if self._changes.nodes is frame.cluster.nodes else None
        if rows is None:
            return False
        if self._readings is not None and self._readings.have_changed(frame):
            rows = ALL_ROWS
        if isinstance(rows, slice):
            self._update(frame.at(rows))
        elif rows:
            self._update_some(frame, rows, beside if beside is not None else self._changes)
        elif len(self.ok) != frame.cluster.nodes.size:
            self._resize(frame.cluster.nodes.size)
        else:
            return True
        self.version += 1
        return True

    def refresh_and_add(
        self,
        frame: Frame,
        kernels: Kernels,
        beside: ChangedRows,
        rows: Sequence[int],
        ok: BoolArray,
        blocks: Blocks,
        others: tuple[Verdicts, Summands],
    ) -> tuple[int, int] | None:
        """Do what `refresh` does, and add up, by one compiled loop; None: nothing was done, as it can't.

        Args:
            frame: of the pod.
            kernels: the loops.
            beside: a reader of the same journals.
            rows: what it took, at least one.
            ok: is written, as the next one, see `Kernels.follow`.
            blocks: see above.
            others: what is added, before what is evaluated here.
        """
        fused, nodes = self._fused, frame.cluster.nodes
        if not self._is_fused or fused is None or fused.others or len(self.ok) != nodes.size:
            return None
        if not self._changes.take_beside(beside):
            return None
        self.version += 1
        return fused.follow(nodes, kernels, beside.array(rows), (self.ok, self.base), ok, blocks, others)

    def _resize(self, size: int) -> None:
        self.ok = _resized(self.ok, size) if self.filters else self._neutral.passing(size)
        self.base = _resized(self.base, size) if self.scores else self._neutral.zeros(size)
        for kept in self.normalizing:
            kept.resize(size)

    def _update_some(self, frame: Frame, rows: Sequence[int], reader: ChangedRows) -> None:
        if len(self.ok) == frame.cluster.nodes.size:
            kernels = self._accelerator.kernels
            if kernels is not None and self._fused is not None and self._is_fused:
                self._fused.write_rows(frame, kernels, reader.array(rows), self.ok, self.base)
                return
            few = len(rows) == 1 or (len(rows) <= _FEW_ROWS and self._row.is_complete)
            if few and not self.normalizing:
                for row in rows:
                    self._write(row, *self.of_row(frame, row))
                return
            if kernels is not None and self._fused is not None and not self.normalizing:
                self._write_rows(frame.at(reader.array(rows)), self._fused, kernels)
                return
        self._update(frame.at(reader.array(rows)))

    def _update(self, frame: Frame) -> None:
        rows, size = frame.rows, frame.cluster.nodes.size
        self.renewals += isinstance(rows, slice)
        kernels = self._accelerator.kernels
        fused = self._fused if kernels is not None else None
        if kernels is not None and fused is not None:
            ok, base = fused.evaluate(frame, kernels)
        else:
            ok, base = np.ones(frame.size, np.bool_), np.zeros(frame.size)
        passing = self._besides_fused(frame, fused)
        if passing is not None:
            ok &= passing
        self._add_scores(frame, self.scores if fused is None else self.scores[fused.scores :], base)
        for kept in self.normalizing:
            kept.update(frame, may_be_constant=self.scope is Scope.TEMPLATE)
        if isinstance(rows, slice):
            self.ok = ok if self.filters else self._neutral.passing(size)
            self.base = base if self.scores else self._neutral.zeros(size)
            return
        self._resize(size)
        self._write(rows, ok, base)

    def _write_rows(self, frame: Frame, fused: FusedResources, kernels: Kernels) -> None:
        """Evaluate the frame's rows in place."""
        rows = frame.rows
        assert not isinstance(rows, slice)
        # without scores the loop writes the zeros that are there
        fused.write_rows(frame, kernels, rows, self.ok, self.base)
        passing = self._besides_fused(frame, fused)
        if passing is not None:
            self.ok[rows] &= passing
        others = self.scores[fused.scores :]
        if others:
            base = self.base[rows]
            self._add_scores(frame, others, base)
            self.base[rows] = base

    def _besides_fused(self, frame: Frame, fused: FusedResources | None) -> BoolArray | None:
        """Return `bool[rows]`: where the other filters pass too, if the pod fits there; None: everywhere."""
        passing: BoolArray | None = None
        for plugin, ready in self.filters:
            left = plugin.where_it_fits if fused is not None else None
            found: list[BoolArray] = []
            if left is not None and not frame.cluster.ignored_resources:
                found += [holds(frame) for holds in left]
            elif fused is None or ready.state is not fused.wanted:
                found.append(plugin.filter(frame, ready.state))
            if ready.nodes is not None:
                found.append(named_nodes(frame, ready.nodes)[frame.rows])
            for each in found:
                passing = each if passing is None else passing & each
        return passing

    def _add_scores(self, frame: Frame, scores: Sequence[tuple[ScorePlugin, float, Any]], base: FloatArray) -> None:
        """Add scores to `base`, `float64[rows]`."""
        for scorer, weight, state in scores:
            raw = scorer.score(frame, state)
            if not _is_one_number(raw):
                base += raw if weight == 1 else raw * weight
            elif len(raw):
                base += raw.item(0) * weight

    def _write(self, rows: Any, ok: Any, base: Any) -> None:
        """Set the answers of a row, or of an array of rows."""
        if self.filters:
            self.ok[rows] = ok
        if self.scores:
            self.base[rows] = base

    def of_row(self, frame: Frame, row: int) -> tuple[bool, float]:
        """Return whether a row passes the filters, and the sum of its scores if it does; nothing is kept.

        It is what `_update` finds, with Python's numbers: an array of one takes ten times as long.
        """
        fused = self._fused.evaluate_row(frame.cluster.nodes, row) if self._fused is not None else None
        (ok, base), plan = ((True, 0.0), self._row) if fused is None else (fused, self._row_besides_fused)
        if ok and not plan.is_empty:
            one = frame.at(np.array([row]))
            for plugin, ready, filter_one in plan.filters:
                if filter_one is not None:
                    ok = ok and filter_one(one, ready.state, row)
                else:
                    ok = ok and plugin.filter(one, ready.state).item(0)
                if ready.nodes is not None:
                    ok = ok and frame.cluster.nodes.infos[row].name in ready.nodes
            for scorer, weight, state, score_one in plan.scores if ok else ():
                score = score_one(one, state, row) if score_one is not None else scorer.score(one, state).item(0)
                base += score * weight
        return ok, base

    @property
    def follows_rows(self) -> bool:
        """Return whether, while no node changes, the result of a row follows from the pods there."""
        return self._readings is None and not (self.normalizing and self.scope in _BY_ROW)


class _RowPlan(msgspec.Struct, frozen=True):
    """Filters and scores with their forms for one row; None where a plugin has none."""

    filters: tuple[tuple[FilterPlugin, Ready, FilterOne | None], ...]
    scores: tuple[tuple[ScorePlugin, float, Any, ScoreOne | None], ...]
    is_empty: bool
    is_complete: bool
    """Whether each has such a form."""

    @classmethod
    def of(
        cls, filters: Sequence[tuple[FilterPlugin, Ready]], scores: Sequence[tuple[ScorePlugin, float, Any]]
    ) -> _RowPlan:
        """Look for the forms."""
        of_filters = tuple((p, ready, p.filter_one) for p, ready in filters)
        of_scores = tuple((p, weight, state, p.score_one) for p, weight, state in scores)
        forms = [each[-1] for each in (*of_filters, *of_scores)]
        return cls(of_filters, of_scores, not forms, None not in forms)


def _added(parts: Sequence[_Answers], rows: Rows) -> tuple[BoolArray, FloatArray]:
    """Return `bool[rows]`, where all filters pass, and `float64[rows]`, the sums of scores."""
    ok, totals = parts[0].ok[rows], parts[0].base[rows]
    for part in parts[1:]:
        if part.filters:
            ok = ok & part.ok[rows]
        if part.scores:
            totals = totals + part.base[rows]
    return ok, totals


def _padded(columns: list[FloatArray]) -> Summands:
    return (*columns, *[_NO_SUMS] * (_MOST_ADDED - len(columns)))


class _LookedAt(msgspec.Struct, frozen=True):
    """The results of one look at all nodes."""

    bounded: BoundedTotals | None
    """What is enough for most decisions; None: totals cannot be bounded."""
    is_bounded_in_full: bool
    """Whether the bounds are for totals with the normalized scores."""
    totals: Callable[[], tuple[BoolArray, BlockMaxima, int]]
    """Returns which nodes pass, their totals, and how many they are, as of now."""


class _FeasibleScore(Measured, msgspec.Struct, frozen=True):
    """The scores of a plugin of scope FEASIBLE."""

    borrowed = frozenset({"read"})
    version: int
    """Of the nodes."""
    read: Sequence[object]
    """What else they depend on."""
    scores: FloatArray | IntArray

    def follows_from(self, version: int, read: Sequence[object]) -> bool:
        """Return whether they are those of now."""
        return version == self.version and all(a is b for a, b in zip(self.read, read, strict=True))


class TemplateCache(Shared):
    """Cached verdicts and scores of equal templates, under one profile."""

    borrowed = frozenset({"_static_columns"})

    def __init__(
        self,
        profile: Profile,
        prepared: Prepared,
        parts: Sequence[_Answers],
        key: Hashable,
        accelerator: Accelerator,
        *,
        nodes: NodeTable,
        looked_at: _LookedAt | None = None,
    ) -> None:
        """Put together what is kept of a template; `looked_at` instead for one that is not kept."""
        self.key = key
        """The key of equal templates."""
        self.is_kept = looked_at is None
        """Whether it is for other templates, too, and may be refreshed."""
        self.rejected = prepared.rejected
        """Whether PreFilter rejects every pod of these templates."""
        self._filters = prepared.filters
        self.normalizing = [score for part in parts if part.normalizing for score in part.normalizing]
        self.live_filters = prepared.live_filters
        """Filters of scope CLUSTER that run for each pod without volumes."""
        self.volume_filters = prepared.volume_filters
        """Those that run for each pod with volumes."""
        self.live_scores = prepared.live_scores
        """Scores of scope CLUSTER, which run each time, and of scope FEASIBLE, see `feasible_score`: of pods without
        volumes."""
        self.volume_scores = prepared.volume_scores
        """Those of pods with volumes."""
        self.live_scores_added = False
        """Whether one of them was active the last time."""
        self._feasible_scores: KeptView[Hashable, _FeasibleScore] = KeptView(most=_MAX_FEASIBLE_SCORES)
        """By plugin and its key."""

        self.changes: Journal[int] = Journal()
        """The rows whose verdict or total changed."""
        self._parts = parts
        self.grew = False
        """Whether it takes more bytes than when it was measured."""
        self.along: dict[Hashable, None] = {}
        """Where something else is kept of these templates, the oldest first; see `TemplateCaches.along`."""
        self._ok: BoolArray = np.zeros(0, np.bool_)
        self.count: int
        """Nodes that passed every kept filter."""
        self._maxima: BlockMaxima | None = None
        """None until somebody asks for them, see `maxima`."""
        self._passing: IntArray | None = None
        self._most_passing = self._most_nodes = -1
        """With more rows than these, the template is measured again."""
        self._scaled: list[_Scaled] = []
        """Those of `normalizing`, where they are part of the totals, see `is_in_full`."""
        self._looked_at = looked_at
        """What `ok` and `maxima` are computed from once one of them is needed; None: they are not."""
        self.bounded = looked_at.bounded if looked_at is not None else None
        """What finds the best node without `ok` and `maxima`; None: nothing does."""
        self.is_bounded_in_full = looked_at is not None and looked_at.is_bounded_in_full
        """Whether it includes the normalized scores, which `maxima` never does."""
        if looked_at is not None:
            if self.bounded is not None:
                self.count = self.bounded.count
            else:
                self._look(looked_at)
            return
        self._live_parts = [part for part in parts if part.scope is not Scope.TEMPLATE]
        """Those that may change without a static change."""
        self._reads_metrics = any(part.scope in _BY_READING for part in parts)
        self._statics = -1
        """The number of static changes that all parts have read."""
        self._static_columns: tuple[Verdicts, Summands] | None = None
        """What `Kernels.follow` adds to the only part that is not of scope TEMPLATE, until the next static change."""
        self._accelerator = accelerator
        self._changes = ChangedRows(nodes, nodes.static_changes, nodes.image_changes, nodes.dynamic_changes)
        self._images, self._identities = nodes.image_changes.end, nodes.identity_changes.end
        self._image_readers = (
            [(plugin, ready) for plugin, ready in prepared.filters if plugin.reads_images],
            [(plugin, ready) for plugin, _, ready in prepared.scores if plugin.reads_images],
        )
        """Filters and scores whose key follows from the images of nodes."""
        self._renewals = 0
        self._put_together()

    @property
    def ok(self) -> BoolArray:
        """Return `bool[nodes]`: passed every kept filter."""
        if self._looked_at is not None:
            self._look(self._looked_at)
        return self._ok

    def _look(self, looked_at: _LookedAt) -> None:
        self._ok, self._maxima, self.count = looked_at.totals()
        self._looked_at = None

    @property
    def kept_filters(self) -> list[FilterPlugin]:
        """Return the filters that are part of `ok`."""
        return [plugin for plugin, _ in self._filters]

    @property
    def row_filters(self) -> list[tuple[FilterPlugin, Any]]:
        """Return the kept filters that read what pods on the node use, with their state."""
        return [(p, ready.state) for p, ready in self._filters if p.scope in _BY_ROW]

    @property
    def parts(self) -> Sequence[Shared]:
        """Return the answers that it is put together from, some of which other templates share."""
        return self._parts

    @property
    def is_in_full(self) -> bool:
        """Return whether totals have the normalized scores in them.

        If not, they are without them: these are the same for all nodes, or it takes the feasible nodes to know them.
        """
        return bool(self._scaled)

    def base(self, rows: Rows) -> FloatArray:
        """Return `float64[rows]`, for rows that pass: the sums of the kept scores that need no normalizing."""
        return _added(self._parts, rows)[1] if self._scaled else self.maxima.totals(rows)

    @property
    def maxima(self) -> BlockMaxima:
        """Return `float64[nodes]`: the sums of the kept scores, where the node passed; see `is_in_full`.

        They follow the nodes from now on. What ranks the nodes by more scores has columns of its own, and needs none.
        """
        if self._looked_at is not None:
            self._look(self._looked_at)
        if self._maxima is None:
            self._maxima = self._new_maxima()
            self.grew = True
        return self._maxima

    @property
    def totals_bytes(self) -> int:
        """Return how many bytes `drop_totals` frees."""
        return footprint(self._maxima, self._passing, self._feasible_scores)[0] if self.is_kept else 0

    def drop_totals(self) -> None:
        """Drop the totals, and what each decision needs to add them up, until the next call that needs them."""
        if self.is_kept:
            self._maxima = self._passing = None
            self._most_passing = -1
            self._feasible_scores.clear()

    def total(self, row: int) -> float:
        """Return the sum of the kept scores for a row, -inf if it did not pass; see `is_in_full`."""
        if self._looked_at is not None:
            self._look(self._looked_at)
        if self._maxima is not None:
            return self._maxima.total(row)
        return self._sum(row) if self._ok.item(row) else -np.inf

    def totals(self, rows: Rows) -> FloatArray:
        """Return `float64[rows]`: the same for some rows, read-only."""
        if self._looked_at is not None:
            self._look(self._looked_at)
        return self._maxima.totals(rows) if self._maxima is not None else self._sums(rows)[1]

    def passing(self) -> IntArray:
        """Return the rows that passed every kept filter, ascending."""
        if self._passing is None:
            self._passing = self.ok.nonzero()[0]
            if (rows := len(self._passing)) > self._most_passing:
                self._most_passing, self.grew = rows + rows // _MEASURED_SHARE, True
        return self._passing

    def feasible_score(self, plugin: ScorePlugin, passing: Frame, prepared: Ready) -> FloatArray | IntArray:
        """Return `[rows]`: the scores of a plugin of scope FEASIBLE for the rows that passed every kept filter.

        They are kept while the same rows pass and it reads the same.
        """
        own = plugin.key_of(prepared)
        key = plugin, passing.template if own is None else own
        version = passing.cluster.nodes.version
        read = [self.passing(), *plugin.readings(passing).states]
        known = self._feasible_scores.get(key)
        if known is None or not known.follows_from(version, read):
            self.grew = self.grew or known is None
            known = _FeasibleScore(version, read, plugin.score(passing, prepared.state))
            self._feasible_scores.set(key, known)
        return known.scores

    def refresh(self, frame: Frame, profile: Profile) -> bool:
        """Evaluate the rows that changed since the last time; return whether this still fits the template."""
        nodes = frame.cluster.nodes
        if self._changes.nodes is not nodes:
            return False
        if self._images != nodes.image_changes.end:
            # the score of an image depends on how many nodes have it
            if not self._has_the_key_of(frame, profile):
                return False
            self._images, self._identities = nodes.image_changes.end, nodes.identity_changes.end
        rows = self._changes.take()
        if rows is None:
            return False
        if not rows and not self._reads_metrics and len(self._ok) == nodes.size:
            return True
        statics = nodes.static_changes.end + nodes.image_changes.end  # both only grow
        are_static = statics == self._statics
        if are_static and not isinstance(rows, slice) and rows and self._follow_resources(frame, rows):
            return True
        self._static_columns = None
        for part in self._live_parts if are_static else self._parts:
            if not part.refresh(frame, beside=self._changes):
                return False
        self._statics = statics
        if (
            isinstance(rows, slice)
            or self._renewals != self._count_renewals()
            or (not are_static and self._can_scale() is not self.is_in_full)
        ):
            self._put_together()
        elif rows or len(self._ok) != nodes.size:
            turned = self._update(rows, size=nodes.size)
            if self._scaled and (turned or not are_static):
                self._follow_highest(rows)
        return True

    def _follow_resources(self, frame: Frame, rows: Sequence[int]) -> bool:
        """Take over changed rows by one compiled loop where only resources depend on them; return whether it could."""
        kernels, maxima, live = self._accelerator.kernels, self._maxima, self._live_parts
        if kernels is None or maxima is None or len(live) != 1 or self._scaled:
            return False
        if len(self._ok) != frame.cluster.nodes.size or self._renewals != self._count_renewals():
            return False
        others = self._static_columns
        if others is None:
            static = [part for part in self._parts if part.scope is Scope.TEMPLATE]
            passing = [part.ok for part in static if part.filters]
            sums = [part.base for part in static if part.scores]
            passing += [_NO_VERDICTS] * (_MOST_STATIC - len(passing))
            sums += [_NO_SUMS] * (_MOST_STATIC - len(sums))
            others = self._static_columns = tuple(passing), tuple(sums)
        added = live[0].refresh_and_add(frame, kernels, self._changes, rows, self._ok, maxima.written, others)
        if added is None:  # or other templates that share them were decided meanwhile
            return False
        self.changes.note_many(rows)
        more, turned = added
        if turned:
            self.count += more
            self._passing = None
        return True

    def _has_the_key_of(self, frame: Frame, profile: Profile) -> bool:
        """Return whether PreFilter and PreScore, asked now, lead to the same key."""
        if self._identities != frame.cluster.nodes.identity_changes.end:  # nodes may have come or gone
            prepared = prepare(frame, profile)
            return _key_of(prepared, _keys(prepared.by_kind(frame.pod.template), profile)) == self.key
        filters, scores = self._image_readers
        now = [
            *[(plugin.pre_filter(frame), before) for plugin, before in filters],
            *[(scorer.pre_score(frame), before) for scorer, before in scores],
        ]
        return all(isinstance(found, Ready) and found.key == before.key for found, before in now)

    def _can_scale(self) -> bool:
        """Return whether normalized scores differ from node to node, and follow from the highest raw ones."""
        differ = False
        for kept in self.normalizing:
            if not isinstance(kept.plugin, ScoresByHighest):
                return False
            differ = differ or kept.constant is None
        return differ

    def _follow_highest(self, changed: Sequence[int]) -> None:
        rows = self._changes.array(changed)
        rows = rows[rows < len(self._ok)]
        moved = [scaled.has_moved(rows, self._ok) for scaled in self._scaled]
        if any(moved):
            if self._maxima is not None:
                self._maxima = self._new_maxima()
            self.changes.note_all()
            self.grew = True

    @property
    def follows_rows(self) -> bool:
        """Return whether, while no node changes, all that is kept of a row follows from the pods there."""
        return self.is_kept and not self.rejected and all(part.follows_rows for part in self._parts)

    def total_now(self, frame: Frame, row: int) -> float:
        """Return the sum of the kept scores that need no normalizing for a row with other pods, -inf if it fails."""
        total = 0.0
        for part in self._parts:
            ok, base = part.of_row(frame, row) if part.scope in _BY_ROW else (part.ok.item(row), part.base.item(row))
            if not ok:
                return -np.inf
            total += base
        return total

    def _count_renewals(self) -> int:
        renewals = 0
        for part in self._parts:
            renewals += part.renewals
        return renewals

    def _put_together(self) -> None:
        scaled = len(self._scaled)
        self._renewals = self._count_renewals()
        self._ok = self._passes(ALL_ROWS)
        self.count = int(np.count_nonzero(self._ok))
        self._scaled = [_Scaled(kept, self._ok) for kept in self.normalizing] if self._can_scale() else []
        if self._maxima is not None:
            self._maxima = self._new_maxima()
        self.changes.note_all()
        self.grew |= scaled != len(self._scaled)
        if (size := len(self._ok)) > self._most_nodes:
            self._most_nodes, self.grew = size + size // _MEASURED_SHARE, True
        self._passing = None

    def _new_maxima(self) -> BlockMaxima:
        if self._accelerator.kernels is None or len(self._parts) == 1 or self._scaled:
            return BlockMaxima(self._sums(ALL_ROWS)[1], self._accelerator)
        *others, last = self._parts
        maxima = BlockMaxima.room(len(last.ok), self._accelerator)
        maxima.combine(_added(others, ALL_ROWS), (last.ok, last.base), ok=np.empty(len(last.ok), np.bool_))
        return maxima

    def _passes(self, rows: Rows) -> BoolArray:
        """Return `bool[rows]`: where all filters pass."""
        filtering = [part for part in self._parts if part.filters] or self._parts[:1]
        ok = filtering[0].ok[rows]
        for part in filtering[1:]:
            ok = ok & part.ok[rows]
        return ok.copy() if len(filtering) == 1 and isinstance(rows, slice) else ok

    def _sums(self, rows: Rows) -> tuple[BoolArray, FloatArray]:
        """Return `bool[rows]`, where all filters pass, and `float64[rows]`, the sums of scores, -inf elsewhere."""
        ok, totals = _added(self._parts, rows)
        for scaled in self._scaled:
            totals = totals + scaled.final[rows]
        return ok, np.where(ok, totals, -np.inf)

    def _update(self, changed: Sequence[int], *, size: int) -> bool:
        """Take over what the parts say of rows; return whether other nodes may pass now."""
        self.changes.note_many(changed)
        if len(self._ok) == size:
            kernels = self._accelerator.kernels
            if len(changed) <= (_FEW_SUMS if kernels is None else _FEW_FOR_LOOPS):
                turned = False
                for row in changed:
                    turned |= self._update_row(row)
                return turned
            if kernels is not None and len(self._parts) + len(self._scaled) <= _MOST_ADDED:
                return self._add_up(changed, kernels)
        rows = self._changes.array(changed)
        if self._maxima is None:
            ok = self._passes(rows)
        else:
            ok, totals = self._sums(rows)
            self._maxima.write(rows, totals, size=size)
        if len(self._ok) != size:
            if size > self._most_nodes:
                self._most_nodes, self.grew = size + size // _MEASURED_SHARE, True
            self._ok = _resized(self._ok, size)
            self._ok[rows] = ok
            self.count = int(np.count_nonzero(self._ok))
            self._passing = None
            return True
        if (before := self._ok[rows]).tobytes() != ok.tobytes():  # a quarter of the time of `any`
            self.count += int(np.count_nonzero(ok)) - int(np.count_nonzero(before))
            self._ok[rows] = ok
            self._passing = None
            return True
        return False

    def _add_up(self, changed: Sequence[int], kernels: Kernels) -> bool:
        passing = [part.ok for part in self._parts if part.filters]
        passing += [_NO_VERDICTS] * (_MOST_ADDED - len(passing))
        blocks = self._maxima.written if self._maxima is not None else _NO_TOTALS
        summands = _padded(self._added_columns())
        more, turned = kernels.add_up(self._changes.array(changed), self._ok, blocks, tuple(passing), summands)
        if turned:
            self.count += more
            self._passing = None
        return bool(turned)

    def _added_columns(self) -> list[FloatArray]:
        columns = [part.base for part in self._parts if part.scores]
        return columns + [scaled.final for scaled in self._scaled] if self._scaled else columns

    def summands(self) -> Summands | None:
        """Return six columns, of length 0 where there are fewer: added in this order they are `total` where `ok` is.

        None: there are more.
        """
        if self._looked_at is not None:
            self._look(self._looked_at)
        columns = [self._maxima.written[0]] if self._maxima is not None else self._added_columns()
        return _padded(columns) if len(columns) <= _MOST_ADDED else None

    def _update_row(self, row: int) -> bool:
        ok, total = True, 0.0
        for part in self._parts:
            if part.filters:
                ok = ok and part.ok.item(row)
            if part.scores:
                total += part.base.item(row)
        for scaled in self._scaled:
            total += scaled.final.item(row)
        turned: bool = ok is not self._ok.item(row)
        if turned:
            self._ok[row] = ok
            self.count += 1 if ok else -1
            self._passing = None
        if self._maxima is not None:
            self._maxima.write_one(row, total if ok else -np.inf)
        return turned

    def _sum(self, row: int) -> float:
        total = 0.0
        for part in self._parts:
            total += part.base.item(row)
        for scaled in self._scaled:
            total += scaled.final.item(row)
        return total


class _Columns:
    """Columns for one look at all nodes, written again by the next one: memory in use is faster than fresh memory."""

    def __init__(self, size: int, accelerator: Accelerator) -> None:
        self.ok: BoolArray = np.empty(size, np.bool_)
        self.fitting: BoolArray = np.empty(size, np.bool_)
        self.base: FloatArray = np.empty(size)
        self.maxima = BlockMaxima.room(size, accelerator)


class _AddedUp(Measured):
    """Answers of several kinds added up, for templates whose requests are new but that have the rest in common.

    It keeps the answers: none of the templates that share them may be kept.
    """

    def __init__(self, parts: Sequence[_Answers]) -> None:
        self.parts = parts
        self._versions: list[int] = []
        self._sums = OtherTotals(np.ones(0, np.bool_), np.zeros(0))
        self._in_full: tuple[OtherTotals, list[IntArray]] | None = None
        self.grew = False
        """Whether it takes more bytes than when it was measured."""

    def in_full(self, *, size: int) -> tuple[OtherTotals, list[IntArray]] | None:
        """Return the same with the normalized scores, and the rows that these are compared with, by score.

        It holds for a pod that one row of each of these is feasible for. None: it takes the feasible nodes to know
        them, or sums would be rounded in another order.
        """
        sums = self.of(size=size)
        if self._in_full is None:
            totals, highest_rows = sums.totals, list[IntArray]()
            for kept in (kept for part in self.parts for kept in part.normalizing):
                if not isinstance(kept.plugin, ScoresByHighest) or kept.weight % 1 or (totals % 1).any():
                    return None
                raw = kept.raw.astype(np.int64)
                highest = int(raw.max(initial=0, where=sums.ok))
                highest_rows.append((sums.ok & (raw == highest)).nonzero()[0])
                totals = totals + kept.plugin.scaled(np.minimum(raw, highest), highest=highest) * kept.weight
            self._in_full = OtherTotals(sums.ok, totals), highest_rows
            self.grew = True
        return self._in_full

    def of(self, *, size: int) -> OtherTotals:
        """Return `_added` of all rows, read-only; `size` is their number."""
        parts = self.parts
        versions = [part.version for part in parts]
        if versions != self._versions or len(self._sums.ok) != size:
            ok, totals = _added(parts, ALL_ROWS) if parts else (np.ones(size, np.bool_), np.zeros(size))
            self.grew = len(self._sums.ok) != size
            self._versions, self._sums = versions, OtherTotals(ok, totals)
            self._in_full = None
        return self._sums


class _AnswersNow:
    """Answers that templates share which differ, but not on any node that there is now.

    Where every pod tolerates a taint of its own, or prefers a label that no node has, their templates have no key in
    common. Static changes end that, so nothing of this is kept for a template.
    """

    def __init__(self) -> None:
        self._found: KeptView[Hashable, _Answers] = KeptView(most=_MAX_NOW)

    def of(
        self, frame: Frame, kind: _Kind, key: _PartKey, evaluate: Callable[[_PartKey, Frame, _Kind], _Answers]
    ) -> _Answers | None:
        """Return the answers of plugins of scope TEMPLATE on all nodes; None if it takes all nodes to know them."""
        nodes, (profile, number, _) = frame.cluster.nodes, key
        now: list[Hashable] = [profile, number]
        for plugin, ready in kind.filters:
            found = plugin.filter_key_now(frame, ready)
            if found is None or ready.nodes is not None:
                return None
            now.append((id(plugin), found))
        for scorer, _, ready in kind.scores:
            found = scorer.score_key_now(frame, ready)
            if found is None:
                return None
            now.append((id(scorer), found))
        self._found.follow((nodes, nodes.static_changes.end, nodes.image_changes.end))
        answers = self._found.get(tuple(now))
        if answers is None:
            answers = evaluate(key, frame, kind)
            self._found.set(tuple(now), answers)
        return answers


class TemplateCaches:
    """The caches of the recently used templates. Equal templates share one."""

    def __init__(self, accelerator: Accelerator | None = None, *, kept: KeptBytes | None = None) -> None:
        """Start without any; kept: bounds all that is kept."""
        self.accelerator = accelerator or Accelerator()
        self._kept = KeptBytes() if kept is None else kept
        self._by_template: KeptView[tuple[PodTemplate, Profile], TemplateCache] = KeptView(
            self._kept,
            most=_MAX_TEMPLATES,
            size_of=lambda key, _: key[0].size * _TIMES_ENCODED,
            dropped=self._dropped,
        )
        self.along: KeptView[tuple[TemplateCache, Hashable], KeptAlong] = KeptView(
            self._kept, most=_MAX_TEMPLATES * _MAX_ALONG, dropped=lambda key, _: key[0].along.pop(key[1], None)
        )
        """What else is kept of templates, by where it is kept with one of them; it goes with them."""
        self._alike: WeakValueDictionary[Hashable, TemplateCache] = WeakValueDictionary()
        self._parts: WeakValueDictionary[Hashable, _Answers] = WeakValueDictionary()
        self._seen: set[int] = set()
        self._seen_before: set[int] = set()
        """Hashes of the keys of templates, and of kinds of answers, that were looked at once: the last ones, and those
        before."""
        self._columns = _Columns(0, self.accelerator)
        self._bounds: ResourceBounds | None = None
        self._answers_now = _AnswersNow()
        self._shapes = KnownShapes()
        self._added_up: KeptView[tuple[_Answers, ...], _AddedUp] = KeptView(self._kept, most=_MAX_ADDED_UP)

    def of(self, frame: Frame, profile: Profile) -> TemplateCache:
        """Return the results for the frame's template in the current cluster; valid until the next call."""
        key, nodes = (frame.pod.template, profile), frame.cluster.nodes.size
        if nodes != self._kept.nodes:
            self._kept.follow_nodes(nodes)
        cache = self._by_template.get(key)
        if cache is None or not cache.refresh(frame, profile):
            cache = self._find(frame, profile)
            if cache.is_kept:
                cache.grew = False
                self._by_template.set(key, cache)
        elif cache.grew:
            cache.grew = False
            self._by_template.measure(key)
            for each in tuple(cache.along):
                self.along.measure((cache, each))
        return cache

    def make_room(self, cache: TemplateCache, more: int) -> bool:
        """Make room for something that is kept for a template instead of its totals; return whether there is room.

        Drops what is no longer of use for the template, and its totals, which take about as many bytes.

        more: how many bytes are needed.
        """
        for key in tuple(cache.along):
            known = self.along.get((cache, key))
            if known is not None and not known.is_of_use():
                self.along.pop((cache, key))
        if not self._kept.has_room(more - cache.totals_bytes):
            return False
        cache.drop_totals()
        holder = next((each for each, held in self._by_template.items() if held is cache), None)
        if holder is not None:  # of templates that share it, one is enough: it is counted once
            self._by_template.measure(holder)
        return True

    def keep_along(self, cache: TemplateCache, key: Hashable, thing: KeptAlong) -> None:
        """Keep something that follows the rows of a template, as long as the template is kept."""
        if not self._kept.holds(cache):
            return
        self.along.set((cache, key), thing)
        cache.along[key] = None
        if len(cache.along) > _MAX_ALONG:
            self.along.pop((cache, next(iter(cache.along))))

    def _dropped(self, key: tuple[PodTemplate, Profile], cache: TemplateCache) -> None:
        if not self._kept.holds(cache):
            for each in tuple(cache.along):
                self.along.pop((cache, each))

    def keep_only(self, profiles: Container[Profile]) -> None:
        """Drop what is kept of templates under other profiles."""
        self._by_template.keep_only(lambda key: key[1] in profiles)
        self._added_up.clear()
        self._answers_now = _AnswersNow()
        self._shapes.clear()

    def keep_in_use(self, templates: Container[PodTemplate]) -> None:
        """Drop what is kept of other templates than these, and what nobody counts any more."""
        self._by_template.keep_only(lambda key: key[0] in templates)
        for key, thing in self.along.items():
            if not thing.is_of_use():
                self.along.pop(key)

    def _find(self, frame: Frame, profile: Profile) -> TemplateCache:
        known = self._shapes.of(frame, profile)
        if known is not None and (looked_at := self._look_by_shape(frame, profile, known)) is not None:
            return looked_at
        prepared = prepare(frame, profile)
        kinds = prepared.by_kind(frame.pod.template) or _NO_PLUGINS
        keys = _keys(kinds, profile)
        key = _key_of(prepared, keys)
        cache = self._alike.get(key)
        if cache is None or not cache.refresh(frame, profile):
            looked_at = self._first_look(frame, profile, prepared, kinds, keys, key=key)
            if looked_at is not None:
                return looked_at
            parts = [self._part(each, frame, kind) for each, kind in zip(keys, kinds.values(), strict=True)]
            nodes = frame.cluster.nodes
            cache = self._alike[key] = TemplateCache(profile, prepared, parts, key, self.accelerator, nodes=nodes)
        return cache

    def _part(self, key: _PartKey, frame: Frame, kind: _Kind) -> _Answers:
        part = self._known_part(key, frame)
        if part is None:
            part = self._parts[key] = self._answers(key, frame, kind)
        return part

    def _answers(self, key: _PartKey, frame: Frame, kind: _Kind) -> _Answers:
        scope, _ = _KEPT[key[1]]
        return _Answers(frame, kind, scope, accelerator=self.accelerator)

    def _known_part(self, key: _PartKey, frame: Frame) -> _Answers | None:
        part = self._parts.get(key)
        return part if part is not None and part.refresh(frame) else None

    def _first_look(
        self,
        frame: Frame,
        profile: Profile,
        prepared: Prepared,
        kinds: Mapping[int, _Kind],
        keys: Sequence[_PartKey],
        *,
        key: tuple[Hashable, ...],
    ) -> TemplateCache | None:
        """Return the results for a template whose requests are new, which are not kept; None if they are to be kept.

        Where every pod has requests of its own, what is kept for them is never used again. So the first template with
        some requests is only looked at, if a compiled loop can do that and all else about it is kept for others. The
        second one is kept.
        """
        kernels, by_requests = self.accelerator.kernels, kinds.get(_BY_REQUESTS)
        if kernels is None or by_requests is None:
            return None
        others: list[_Answers] = []
        place = list(kinds).index(_BY_REQUESTS)
        of_requests, rest = keys[place], hash((key[:2], *keys[:place], *keys[place + 1 :]))
        if of_requests in self._parts or not self._note_seen(hash((rest, of_requests))):
            return None
        fused = FusedResources.of_all(by_requests.filters, by_requests.scores)
        if fused is None:
            return None
        for each, (number, kind) in zip(keys, kinds.items(), strict=True):
            if number == _BY_REQUESTS:
                continue
            part = self._known_part(each, frame)
            if part is None and number < _ROW:
                part = self._static_answers(each, frame, kind)
            if part is None or (number > _BY_REQUESTS and part.scores):
                return None  # sums are rounded in the order of the kinds
            others.append(part)
        if self._shapes.are_of_use(frame, profile) and all(part.scope is Scope.TEMPLATE for part in others):
            results: dict[tuple[object, bool], Ready] = {(plugin, False): ready for plugin, ready in prepared.filters}
            self._shapes.learn(
                frame,
                profile,
                results=results | {(plugin, True): ready for plugin, _, ready in prepared.scores},
                by_requests=[each[0] for each in (*by_requests.filters, *by_requests.scores)],
                live=LivePlugins(
                    prepared.live_filters, prepared.volume_filters, prepared.live_scores, prepared.volume_scores
                ),
                answers=others,
                rest=rest,
            )
        return self._look(frame, profile, prepared, fused, others, kernels)

    def _look_by_shape(self, frame: Frame, profile: Profile, known: KnownShape) -> TemplateCache | None:
        """Return the same as `_first_look` for a template of a known shape; None: ask all plugins."""
        kernels = self.accelerator.kernels
        answers: list[_Answers] = [part for each in known.answers if (part := each()) is not None]
        if kernels is None or len(answers) != len(known.answers):
            return None
        kind = _Kind([], [], [])
        filters: list[tuple[FilterPlugin, Ready]] = []
        for plugin, ready in known.filters:
            if ready is None:
                result = plugin.pre_filter(frame)
                if not isinstance(result, Ready) or not result.key:
                    return None
                kind.filters.append((plugin, result))
                kind.parts += id(plugin), result.key
                ready = result
            filters.append((plugin, ready))
        kind.parts.append(None)
        scores: list[tuple[ScorePlugin, float, Ready]] = []
        for scorer, weight, ready in known.scores:
            if ready is None:
                scored = scorer.pre_score(frame)
                if not isinstance(scored, Ready):
                    continue
                if not scored.key:
                    return None
                kind.scores.append((scorer, weight, scored))
                kind.parts += id(scorer), scored.key
                ready = scored
            scores.append((scorer, weight, ready))
        of_requests = profile, _BY_REQUESTS, kind.key
        fused = FusedResources.of_all(kind.filters, kind.scores)
        if fused is None or of_requests in self._parts or not self._note_seen(hash((known.rest, of_requests))):
            return None
        prepared = Prepared(tuple(filters), tuple(scores), False, *known.live)
        return self._look(frame, profile, prepared, fused, answers, kernels)

    def _look(
        self,
        frame: Frame,
        profile: Profile,
        prepared: Prepared,
        fused: FusedResources,
        others: list[_Answers],
        kernels: Kernels,
    ) -> TemplateCache:
        """Return the results of the compiled loop for requests, and of other answers, which are not kept."""
        nodes = frame.cluster.nodes
        key = tuple(others)
        added = self._added_up.get(key)
        if added is None:
            added = _AddedUp(others)
            self._added_up.set(key, added)
        first = added.of(size=nodes.size)
        if self._bounds is None or self._bounds.nodes is not nodes:
            self._bounds = ResourceBounds(nodes, kernels)

        def totals() -> tuple[BoolArray, BlockMaxima, int]:
            if len(self._columns.ok) != nodes.size:
                self._columns = _Columns(nodes.size, self.accelerator)
            columns = self._columns
            fused.evaluate(frame.at(ALL_ROWS), kernels, into=(columns.fitting, columns.base))
            count = columns.maxima.combine((first.ok, first.totals), (columns.fitting, columns.base), ok=columns.ok)
            return columns.ok, columns.maxima, count

        bounded = self._bounded_in_full(frame, fused, added)
        is_in_full = bounded is not None
        looked_at = _LookedAt(bounded or self._bounds.look(frame, fused, first), is_in_full, totals)
        if added.grew:
            added.grew = False
            self._added_up.measure(key)
        return TemplateCache(profile, prepared, others, None, self.accelerator, nodes=nodes, looked_at=looked_at)

    def _bounded_in_full(self, frame: Frame, fused: FusedResources, added: _AddedUp) -> BoundedTotals | None:
        """Return bounds for totals with the normalized scores; None where these are the same for all, or not known."""
        assert self._bounds is not None
        differ = False
        for part in added.parts:
            for kept in part.normalizing:
                differ = differ or kept.constant is None
        if not differ:
            return None
        found = added.in_full(size=frame.cluster.nodes.size)
        bounded = self._bounds.look(frame, fused, found[0]) if found is not None else None
        if found is None or bounded is None:
            return None
        # the highest raw score is that of a feasible node if one of those that have it is feasible
        return bounded if all((bounded.bounds[rows] > -np.inf).any() for rows in found[1]) else None

    def _static_answers(self, key: _PartKey, frame: Frame, kind: _Kind) -> _Answers | None:
        """Return the answers of plugins of scope TEMPLATE, for one look; None if it takes all nodes to know them."""
        if self._note_seen(hash(key)):
            return self._answers_now.of(frame, kind, key, self._answers)
        return self._part(key, frame, kind)

    def _note_seen(self, seen: int) -> bool:
        """Note that a key was seen; return whether it is for the first time."""
        if seen in self._seen or seen in self._seen_before:
            return False
        if len(self._seen) >= _MAX_SEEN:
            self._seen_before, self._seen = self._seen, set()
        self._seen.add(seen)
        return True


def _keys(kinds: Mapping[int, _Kind], profile: Profile) -> list[_PartKey]:
    return [(profile, number, kind.key) for number, kind in (kinds or _NO_PLUGINS).items()]


def _key_of(prepared: Prepared, of_kinds: Sequence[_PartKey]) -> tuple[Hashable, ...]:
    """Return a value that is equal for templates with equal results of all cached plugins on every node."""
    # live plugins are in the key because the profile's that have nothing to do for a template are not asked
    live = tuple(map(id, prepared.live_filters)), tuple(map(id, prepared.live_scores))
    return prepared.rejected, live, *of_kinds
