"""One decision looked at closely: what every filter and score said about the nodes. Decides nothing.

The cycle keeps sums and first rejections only; this asks the same plugins again, one by one, while the cluster is
still as the decision saw it. It costs as much as several decisions, so the caller says for which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.builtins.metrics import missing_nodes
from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.framework.evaluate.nominations import taken_by_nominated
from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Ready, ScorePlugin, Weighted
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.clauses import ScoreClause
from kube_policy_scheduler.policy.decision_inputs import undefined_nodes
from kube_policy_scheduler.policy.groupings import GroupingScore

Plugin: TypeAlias = FilterPlugin | ScorePlugin
Stopwatch: TypeAlias = Callable[[], float]


class PluginVerdict(msgspec.Struct, frozen=True):
    """What one plugin said in one decision."""

    plugin: Plugin
    asked: int
    """Nodes it was asked about; 1 for a rule about the pod as a whole."""
    rejected: int = 0
    missing: int = 0
    """Nodes for which a value was missing."""
    low: float | None = None
    """The lowest weighted score among the feasible nodes; None for filters."""
    high: float | None = None
    seconds: float = 0.0
    """What asking took."""


class RankedNode(msgspec.Struct, frozen=True):
    """One of the best nodes."""

    name: str
    total: float
    scores: Mapping[str, float]
    """Weighted, by plugin, by clause name, or as the clause is written; those that are written alike are added up."""


class Detail(msgspec.Struct, frozen=True):
    """Everything that was said about one decision."""

    verdicts: tuple[PluginVerdict, ...]
    top: tuple[RankedNode, ...]
    """The chosen node first, then by total."""
    missing: Mapping[str, int]
    """Nodes without a usable value, by PromQL."""


def look(
    frame: Frame,
    profile: Profile,
    *,
    host: str | None,
    rows: IntArray | None = None,
    queries: Iterable[Query] = (),
    limit: int = 3,
    stopwatch: Stopwatch = lambda: 0.0,
) -> Detail:
    """Ask every plugin about the pod, on the cluster as it stands.

    Args:
        frame: what the decision saw, looking at all nodes.
        profile: the plugins that decided.
        host: the chosen node; None where there is none.
        rows: `int64[nodes]`, those that were asked about; None: all.
        queries: metrics whose missing values are counted.
        limit: how many of the best nodes to return.
        stopwatch: seconds, for how long each plugin takes.
    """
    verdicts: list[PluginVerdict] = []
    asked = np.arange(frame.cluster.nodes.size) if rows is None else rows
    feasible = _filtered(frame, profile, asked, verdicts=verdicts, stopwatch=stopwatch)
    top: tuple[RankedNode, ...] = ()
    if len(feasible) and host is not None:
        top = _ranked(
            frame, feasible, _scored(frame.at(feasible), profile.scores, verdicts, stopwatch), host=host, limit=limit
        )
    nodes, signals, now = frame.cluster.nodes, frame.signals, frame.now
    missing = {query.promql: missing_nodes(query, nodes, signals=signals, now=now) for query in queries}
    return Detail(tuple(verdicts), top, missing)


def _filtered(
    frame: Frame, profile: Profile, asked: IntArray, *, verdicts: list[PluginVerdict], stopwatch: Stopwatch
) -> IntArray:
    """Return the rows that pass every filter."""
    size = frame.cluster.nodes.size
    ok = np.zeros(size, np.bool_)
    ok[asked] = True
    active = []
    for plugin in profile.filters:
        began = stopwatch()
        alone = probe(frame, plugin)
        if isinstance(alone.result, Ready):
            passes = alone.passes()
            seconds = stopwatch() - began
            undefined = undefined_nodes(plugin, frame)
            missing = int(np.count_nonzero(undefined[asked])) if undefined is not None else 0
            rejected = len(asked) - int(np.count_nonzero(passes[asked]))
            verdicts.append(PluginVerdict(plugin, len(asked), rejected=rejected, missing=missing, seconds=seconds))
            active.append((plugin, alone.result.state))
            ok &= passes
        else:
            rejects = alone.rejection is not None
            verdicts.append(PluginVerdict(plugin, 1, rejected=int(rejects), seconds=stopwatch() - began))
            if rejects:
                ok[:] = False
    if frame.cluster.nominated:
        ok[taken_by_nominated(frame, active, ok)] = False
    rows: IntArray = ok.nonzero()[0]
    return rows


def _scored(
    chosen: Frame, scores: tuple[Weighted, ...], verdicts: list[PluginVerdict], stopwatch: Stopwatch
) -> list[tuple[str, FloatArray]]:
    """Return the weighted scores `[feasible]` of every plugin that does not skip, by its name or its clause's text."""
    found = []
    for weighted in scores:
        plugin = weighted.plugin
        began = stopwatch()
        prepared = plugin.pre_score(chosen)
        if not isinstance(prepared, Ready):
            continue
        raw = plugin.score(chosen, prepared.state)
        if plugin.normalizes:
            raw = plugin.normalize(chosen, prepared.state, raw)
        final = np.asarray(raw * weighted.weight, np.float64)
        seconds = stopwatch() - began
        missing = 0
        if isinstance(plugin, ScoreClause) and plugin.clause.maybe:
            missing = int(np.count_nonzero(plugin.missing(chosen)))
        low, high = float(final.min()), float(final.max())
        verdicts.append(PluginVerdict(plugin, chosen.size, missing=missing, low=low, high=high, seconds=seconds))
        found.append((called(plugin), final))
    return found


def called(plugin: ScorePlugin) -> str:
    """Return a score's name, or without one what is written: more than its value, `10` of `score 10 if …`."""
    if not isinstance(plugin, ScoreClause | GroupingScore) or f" as {plugin.name}" in plugin.clause.text:
        return plugin.name
    return plugin.clause.text


def _ranked(
    frame: Frame, feasible: IntArray, scores: list[tuple[str, FloatArray]], *, host: str, limit: int
) -> tuple[RankedNode, ...]:
    totals = np.zeros(len(feasible))
    for _, final in scores:
        totals += final
    names = frame.cluster.nodes.names
    best = _largest(totals, limit)
    row = frame.cluster.nodes.rows.get(host, -1)
    order = [int(at) for at in np.flatnonzero(feasible == row)]
    order += [at for at in best if feasible[at] != row][: max(0, limit - len(order))]
    ranked = []
    for at in order:
        parts: dict[str, float] = {}
        for name, final in scores:
            parts[name] = parts.get(name, 0.0) + float(final[at])
        ranked.append(RankedNode(names[int(feasible[at])], float(totals[at]), parts))
    return tuple(ranked)


def _largest(totals: FloatArray, limit: int) -> list[int]:
    """Return the positions of the largest totals, the largest first; without sorting them all."""
    if len(totals) > limit:
        some = np.argpartition(-totals, limit - 1)[:limit]
        return [int(at) for at in some[np.argsort(-totals[some], kind="stable")]]
    return [int(at) for at in np.argsort(-totals, kind="stable")]
