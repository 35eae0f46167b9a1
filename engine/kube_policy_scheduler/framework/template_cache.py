"""What templates alike have in common in front of one node table: kept, and patched row by row.

Plugins of scope TEMPLATE and ROW answer from the template and from each node's own columns. Their answers on
all nodes are kept here; when pods come to or leave some nodes, only those rows are asked again. That makes a
decision cost a few array operations instead of one evaluation of every rule.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from kube_policy_scheduler.cluster.bounded_cache import BoundedCache
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, NodeTable
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.evaluation import named_nodes
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Ready, Scope, ScorePlugin, Skip
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Status

_MAX_TEMPLATES = 256
_MAX_BYTES = 32 * 2**20
"""Of the templates that are kept alive by it, as they were encoded."""
"""Templates kept: about 20 bytes a node each, 25 MB at 5,000 nodes; less where some are alike."""
_REBUILD_SHARE = 4
"""With more than 1/4 of the rows changed, asking all at once is cheaper than gathering them."""

Versions: TypeAlias = tuple[NodeTable, int, int]
"""A node table and the state of its static facts: what kept answers are valid for, beside the journal."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What PreFilter and PreScore of the plugins of scope TEMPLATE and ROW make of one template."""

    filters: tuple[tuple[FilterPlugin, Ready], ...]
    scores: tuple[tuple[ScorePlugin, float, Ready], ...]
    rejected: bool = False
    """Whether PreFilter refuses every pod of the template."""

    def key(self, template: PodTemplate, scope: Scope) -> Hashable:
        """Return a value that is equal for templates to which plugins of a scope answer alike on every node."""
        filters = [(id(p), template if r.key is None else r.key) for p, r in self.filters if p.scope is scope]
        scores = [(id(p), template if r.key is None else r.key) for p, _, r in self.scores if p.scope is scope]
        return tuple(filters), tuple(scores)


def prepare(frame: Frame, profile: Profile) -> Prepared:
    """Ask the plugins about the frame's template; those that skip it are left out."""
    whole = frame.at(slice(None))
    filters: list[tuple[FilterPlugin, Ready]] = []
    for plugin in profile.filters:
        if plugin.scope is Scope.CLUSTER:
            continue
        result = plugin.pre_filter(whole)
        if isinstance(result, Status):
            return Prepared((), (), rejected=True)
        if not isinstance(result, Skip):
            filters.append((plugin, result))
    scores: list[tuple[ScorePlugin, float, Ready]] = []
    for weighted in profile.scores:
        if weighted.plugin.scope is Scope.CLUSTER:
            continue
        prepared = weighted.plugin.pre_score(whole)
        if not isinstance(prepared, Skip):
            scores.append((weighted.plugin, weighted.weight, prepared))
    return Prepared(tuple(filters), tuple(scores))


@dataclass(slots=True)
class KeptScore:
    """Raw scores of one normalizing plugin on all nodes."""

    plugin: ScorePlugin
    weight: float
    state: Any
    raw: FloatArray | IntArray
    constant: float | None = None
    """The weighted final score where it is the same for all nodes."""


class StaticAnswers:
    """What the plugins of scope TEMPLATE say: it holds until something static changes."""

    def __init__(self, frame: Frame, prepared: Prepared) -> None:
        whole = frame.at(slice(None))
        self.versions = versions(frame)
        self.ok: BoolArray = np.ones(frame.cluster.nodes.size, np.bool_)
        """`bool[nodes]`: passed the filters."""
        self.base: FloatArray = np.zeros(frame.cluster.nodes.size)
        """`float64[nodes]`: sum of the scores that need no normalizing."""
        self.normalizing: list[KeptScore] = []
        for plugin, ready in prepared.filters:
            if plugin.scope is Scope.TEMPLATE:
                self.ok &= plugin.filter(whole, ready.state)
                if ready.nodes is not None:
                    self.ok &= named_nodes(frame, ready.nodes)
        for scorer, weight, ready in prepared.scores:
            if scorer.scope is Scope.TEMPLATE:
                raw = scorer.score(whole, ready.state)
                if scorer.normalizes:
                    constant = _constant(whole, scorer, ready.state, raw)
                    weighted = None if constant is None else constant * weight
                    self.normalizing.append(KeptScore(scorer, weight, ready.state, raw, weighted))
                else:
                    self.base += raw * weight


def _constant(whole: Frame, plugin: ScorePlugin, state: Any, raw: FloatArray | IntArray) -> float | None:
    """Return the final score of every node where all raw scores are the same, else None."""
    if not len(raw) or not (raw == raw[0]).all():
        return None
    return float(plugin.normalize(whole.at(np.zeros(1, np.int64)), state, raw[:1])[0])


class TemplateCache:
    """Kept verdicts and scores of templates alike, under one profile."""

    def __init__(self, frame: Frame, profile: Profile, prepared: Prepared, static: StaticAnswers) -> None:
        self.versions = static.versions
        self.rejected = prepared.rejected
        """Whether PreFilter refuses every pod of these templates."""
        self.row_filters = [(p, ready.state) for p, ready in prepared.filters if p.scope is Scope.ROW]
        """Kept filters that look at what pods on the node take, with their state."""
        rows = [(p, weight, ready.state) for p, weight, ready in prepared.scores if p.scope is Scope.ROW]
        self._row_scores = [(p, weight, state) for p, weight, state in rows if not p.normalizes]
        self._row_normalizing = [
            KeptScore(p, weight, state, np.zeros(frame.cluster.nodes.size)) for p, weight, state in rows if p.normalizes
        ]
        self.normalizing = [*static.normalizing, *self._row_normalizing]
        self.live_filters = [plugin for plugin in profile.filters if plugin.scope is Scope.CLUSTER]
        """Filters of scope CLUSTER, to be asked each time."""
        self.live_scores = [(s.plugin, s.weight) for s in profile.scores if s.plugin.scope is Scope.CLUSTER]

        self._static = static
        self._possible = static.ok
        for plugin, ready in prepared.filters:
            if plugin.scope is Scope.ROW and ready.nodes is not None:
                self._possible = self._possible & named_nodes(frame, ready.nodes)
        self.ok: BoolArray = np.empty_like(static.ok)
        """`bool[nodes]`: passed every kept filter."""
        self.base: FloatArray = np.empty_like(static.base)
        """`float64[nodes]`: sum of the kept scores that need no normalizing."""
        self._passing: IntArray | None = None
        self._position = frame.cluster.nodes.journal_end
        self._update(frame.at(slice(None)))

    def passing(self) -> IntArray:
        """Return the rows that passed every kept filter, ascending."""
        if self._passing is None:
            self._passing = self.ok.nonzero()[0]
        return self._passing

    def refresh(self, frame: Frame) -> None:
        """Ask again about the rows that changed since the last time."""
        table = frame.cluster.nodes
        behind = table.journal_end - self._position
        if not behind:
            return
        changed = table.changed_since(self._position) if behind * _REBUILD_SHARE <= table.size else None
        self._position = table.journal_end
        self._update(frame.at(slice(None) if changed is None else np.array(list(set(changed)), np.int64)))

    def _update(self, frame: Frame) -> None:
        rows = frame.rows
        ok = self._possible[rows].copy()
        for plugin, state in self.row_filters:
            ok &= plugin.filter(frame, state)
        base = self._static.base[rows].copy()
        for scorer, weight, state in self._row_scores:
            raw = scorer.score(frame, state)
            base += raw if weight == 1 else raw * weight
        for kept in self._row_normalizing:
            kept.raw[rows] = kept.plugin.score(frame, kept.state)
        if (self.ok[rows] != ok).any():
            self._passing = None
        self.ok[rows] = ok
        self.base[rows] = base


class TemplateCaches:
    """The caches of the templates that were met recently. Templates alike share one."""

    def __init__(self) -> None:
        self._by_template: BoundedCache[tuple[PodTemplate, Profile], TemplateCache] = BoundedCache(
            most=_MAX_TEMPLATES, most_bytes=_MAX_BYTES, size_of=lambda key, cache: key[0].size
        )
        self._alike: WeakValueDictionary[Hashable, TemplateCache] = WeakValueDictionary()
        self._static: WeakValueDictionary[Hashable, StaticAnswers] = WeakValueDictionary()

    def of(self, frame: Frame, profile: Profile) -> TemplateCache:
        """Return the answers for the frame's template, true to the cluster as it stands."""
        key = frame.template, profile
        cache = self._by_template.get(key)
        if cache is None or cache.versions != versions(frame):
            cache = self._find(frame, profile)
            self._by_template.set(key, cache)
        cache.refresh(frame)
        return cache

    def _find(self, frame: Frame, profile: Profile) -> TemplateCache:
        prepared, current = prepare(frame, profile), versions(frame)
        static_key = (profile, prepared.rejected, prepared.key(frame.template, Scope.TEMPLATE))
        key = (static_key, prepared.key(frame.template, Scope.ROW))
        cache = self._alike.get(key)
        if cache is None or cache.versions != current:
            static = self._static.get(static_key)
            if static is None or static.versions != current:
                static = self._static[static_key] = StaticAnswers(frame, prepared)
            cache = self._alike[key] = TemplateCache(frame, profile, prepared, static)
        return cache


def versions(frame: Frame) -> Versions:
    """Return what kept answers are valid for, beside the journal."""
    nodes = frame.cluster.nodes
    return nodes, nodes.version, nodes.images_version
