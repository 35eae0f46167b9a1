"""What one template's pods have in common in front of one node table: kept, and patched row by row.

Plugins of scope TEMPLATE and ROW answer from the template and from each node's own columns. Their answers on
all nodes are kept here; when pods come to or leave some nodes, only those rows are asked again. That makes a
decision cost a few array operations instead of one evaluation of every rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.cluster.nodes import BoolArray, FloatArray, IntArray
from engine.framework.evaluation import named_nodes
from engine.framework.frame import Frame
from engine.framework.plugin import FilterPlugin, Ready, Scope, ScorePlugin, Skip
from engine.framework.profile import Profile
from engine.framework.status import Status

_REBUILD_SHARE = 4
"""With more than 1/4 of the rows changed, asking all at once is cheaper than gathering them."""


@dataclass(slots=True)
class KeptScore:
    """Raw scores of one normalizing plugin on all nodes."""

    plugin: ScorePlugin
    weight: float
    state: Any
    raw: FloatArray | IntArray
    constant: float | None
    """The weighted final score where it is the same for all nodes."""


class TemplateCache:
    """Kept verdicts and scores of one template under one profile."""

    def __init__(self, frame: Frame, profile: Profile) -> None:
        self.profile = profile
        self.key = cache_key(frame)
        table = frame.cluster.nodes
        self.rejected = False
        """Whether PreFilter refuses every pod of the template."""
        self.row_filters: list[tuple[FilterPlugin, Any]] = []
        """Kept filters that look at what pods on the node take, with their state."""
        self._row_scores: list[tuple[ScorePlugin, float, Any]] = []
        self.normalizing: list[KeptScore] = []
        self.live_filters: list[FilterPlugin] = []
        """Filters of scope CLUSTER, to be asked each time."""
        self.live_scores: list[tuple[ScorePlugin, float]] = []

        whole = frame.at(slice(None))
        self._static_ok: BoolArray = np.ones(table.size, np.bool_)
        self._collect_filters(whole)
        self._static_base: FloatArray = np.zeros(table.size)
        self._collect_scores(whole)
        self.ok: BoolArray = self._static_ok.copy()
        """`bool[nodes]`: passed every kept filter."""
        self.base: FloatArray = self._static_base.copy()
        """`float64[nodes]`: sum of the kept scores that need no normalizing."""
        self._update(whole)
        self._position = table.journal_end

    def _collect_filters(self, frame: Frame) -> None:
        for plugin in self.profile.filters:
            if plugin.scope is Scope.CLUSTER:
                self.live_filters.append(plugin)
                continue
            result = plugin.pre_filter(frame)
            if isinstance(result, Skip):
                continue
            if isinstance(result, Status):
                self.rejected = True
                return
            if result.nodes is not None:
                self._static_ok &= named_nodes(frame, result.nodes)
            if plugin.scope is Scope.TEMPLATE:
                self._static_ok &= plugin.filter(frame, result.state)
            else:
                self.row_filters.append((plugin, result.state))

    def _collect_scores(self, frame: Frame) -> None:
        for weighted in self.profile.scores:
            plugin, weight = weighted.plugin, weighted.weight
            if plugin.scope is Scope.CLUSTER:
                self.live_scores.append((plugin, weight))
                continue
            prepared = plugin.pre_score(frame)
            if not isinstance(prepared, Ready):
                continue
            if plugin.normalizes:
                raw = plugin.score(frame, prepared.state)
                constant = None
                if plugin.scope is Scope.TEMPLATE and len(raw) and (raw == raw[0]).all():
                    constant = float(plugin.normalize(frame.at(np.zeros(1, np.int64)), prepared.state, raw[:1])[0])
                    constant *= weight
                self.normalizing.append(KeptScore(plugin, weight, prepared.state, raw, constant))
            elif plugin.scope is Scope.TEMPLATE:
                self._static_base += plugin.score(frame, prepared.state) * weight
            else:
                self._row_scores.append((plugin, weight, prepared.state))

    def refresh(self, frame: Frame) -> None:
        """Ask again about the rows that changed since the last time."""
        table = frame.cluster.nodes
        changed = table.changed_since(self._position)
        self._position = table.journal_end
        if changed is None or len(changed) * _REBUILD_SHARE > table.size:
            self._update(frame.at(slice(None)))
        elif changed:
            self._update(frame.at(np.array(sorted(set(changed)), np.int64)))

    def _update(self, frame: Frame) -> None:
        rows = frame.rows
        ok = self._static_ok[rows].copy()
        for plugin, state in self.row_filters:
            ok &= plugin.filter(frame, state)
        base = self._static_base[rows].copy()
        for scorer, weight, state in self._row_scores:
            base += scorer.score(frame, state) * weight
        for kept in self.normalizing:
            if kept.plugin.scope is Scope.ROW:
                kept.raw[rows] = kept.plugin.score(frame, kept.state)
        self.ok[rows] = ok
        self.base[rows] = base


def cache_key(frame: Frame) -> tuple[int, int]:
    """Return what kept answers are valid for, beside the journal."""
    nodes = frame.cluster.nodes
    return nodes.version, nodes.images_version
