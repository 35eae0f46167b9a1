"""One pod against all nodes, plugin by plugin: the reference path of the scheduling cycle.

Nothing is cached here. `cycle` decides the same way, faster; tests hold the two together, and
explanations and conformance runs read this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis, DiagnosisBuilder
from kube_policy_scheduler.framework.evaluate.nominations import (
    Active,
    as_rejections,
    blocked_by_nominated,
    verdict_with_nominated,
)
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, FilterPlugin, Ready
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Code, Rejection, Status


class PreFiltered(msgspec.Struct, frozen=True):
    """The result of PreFilter."""

    active: tuple[tuple[FilterPlugin, Any], ...]
    """Plugins that PreFilter did not skip, with their state, in order."""
    nodes: frozenset[str] | None
    """Names of the only nodes to consider; None means all."""
    narrowed_by: tuple[str, ...] = ()
    """Plugins that narrowed `nodes`."""
    rejection: Status | None = None


_ALL_SKIP = PreFiltered((), None)


class Evaluation(msgspec.Struct, frozen=True):
    """The results of all plugins for one pod."""

    pre_filtered: PreFiltered
    diagnosis: Diagnosis
    feasible: IntArray
    """Rows that passed every filter, ascending."""
    scores: dict[str, FloatArray | IntArray] = msgspec.field(default_factory=dict)
    """Final weighted scores `[feasible]` by plugin; plugins that skipped are absent."""

    @property
    def totals(self) -> FloatArray:
        """Return `float64[feasible]`: the sum of all scores."""
        totals = np.zeros(len(self.feasible))
        for scores in self.scores.values():
            totals += scores
        return totals


def pre_filter(frame: Frame, plugins: Sequence[FilterPlugin]) -> PreFiltered:
    """Run PreFilter: the first UNSCHEDULABLE_AND_UNRESOLVABLE ends it, an UNSCHEDULABLE is kept to the end."""
    active: list[tuple[FilterPlugin, Any]] = []
    nodes: frozenset[str] | None = None
    narrowed: list[str] = []
    rejection: Status | None = None
    for plugin in plugins:
        result = plugin.pre_filter(frame)
        if result is SKIP:
            continue
        if isinstance(result, Status):
            rejection = rejection or result
            if result.code is not Code.UNSCHEDULABLE:
                return PreFiltered(tuple(active), nodes, tuple(narrowed), result)
            continue
        active.append((plugin, result.state))
        if result.nodes is not None:
            narrowed.append(plugin.name)
            nodes = result.nodes if nodes is None else nodes & result.nodes
            if not nodes:
                return PreFiltered(tuple(active), nodes, tuple(narrowed), _no_node_left(narrowed))
    if not active and rejection is None:
        return _ALL_SKIP
    return PreFiltered(tuple(active), nodes, tuple(narrowed), rejection)


def _no_node_left(narrowed: list[str]) -> Status:
    text = (
        f"node(s) didn't satisfy plugin {narrowed[0]}"
        if len(narrowed) == 1
        else f"node(s) didn't satisfy plugin(s) [{' '.join(narrowed)}] simultaneously"
    )
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, narrowed[-1], (text,))


def named_nodes(frame: Frame, names: frozenset[str]) -> BoolArray:
    """Return `bool[nodes]`: the nodes with these names."""
    table = frame.cluster.nodes
    result = np.zeros(table.size, np.bool_)
    result[[row for name in names if (row := table.rows.get(name)) is not None]] = True
    return result


def passes(frame: Frame, profile: Profile, row: int, *, beside_nominated: bool = False) -> bool:
    """Return whether one node passes every filter in the current cluster.

    beside_nominated: and also with the pods there that are nominated to it and have precedence.
    """
    one = frame.at(np.array([row]))
    prepared = pre_filter(frame, profile.filters)
    if prepared.rejection is not None:
        return False
    if prepared.nodes is not None and frame.cluster.nodes.infos[row].name not in prepared.nodes:
        return False
    if beside_nominated:
        return verdict_with_nominated(one, prepared.active).code is Code.SUCCESS
    return all(bool(plugin.filter(one, state)[0]) for plugin, state in prepared.active)


def diagnose(frame: Frame, prepared: PreFiltered) -> Diagnosis:
    """Run every filter on all nodes and collect the rejections; a node counts for the first plugin that rejects it."""
    builder = DiagnosisBuilder(frame.cluster.nodes.size)
    if prepared.rejection is not None:
        return builder.build(prepared.rejection)
    if prepared.nodes is not None:
        reason = f"node(s) didn't satisfy plugin(s) [{' '.join(prepared.narrowed_by)}]"
        others = ~named_nodes(frame, prepared.nodes)
        builder.add("", [Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reason, others)])
    for name, rejections in as_rejections(
        blocked_by_nominated(frame, prepared.active, builder.open), frame.cluster.nodes.size
    ):
        builder.add(name, rejections)
    ask(builder, frame, prepared.active)
    return builder.build()


def ask(builder: DiagnosisBuilder, frame: Frame, active: Active) -> None:
    """Add the rejections of filters on the frame's rows, until no row is left that may pass."""
    for plugin, state in active:
        if not builder.open.any():
            break
        if isinstance(plugin, DynamicResources) and not builder.open.all():
            builder.add(plugin.name, _rejections_where(builder.open, plugin, frame, state))
        else:
            builder.add(plugin.name, plugin.rejections(frame, state))


def _rejections_where(is_open: BoolArray, plugin: FilterPlugin, frame: Frame, state: Any) -> list[Rejection]:
    """Return the rejections of a filter that is asked about some of the frame's rows only, as it searches for long."""
    places = is_open.nonzero()[0]
    found = []
    for rejection in plugin.rejections(frame.at(frame.index()[places]), state):
        where = np.zeros(frame.size, np.bool_)
        where[places] = rejection.where
        found.append(msgspec.structs.replace(rejection, where=where))
    return found


def score(frame: Frame, profile: Profile, feasible: IntArray) -> dict[str, FloatArray | IntArray]:
    """Return the final weighted scores `[feasible]` of every plugin that does not skip."""
    chosen = frame.at(feasible)
    scores: dict[str, FloatArray | IntArray] = {}
    for weighted in profile.scores:
        plugin = weighted.plugin
        prepared = plugin.pre_score(chosen)
        if not isinstance(prepared, Ready):
            continue
        raw = plugin.score(chosen, prepared.state)
        if plugin.normalizes:
            raw = plugin.normalize(chosen, prepared.state, raw)
        final = np.asarray(raw * weighted.weight)
        # a clause may be named as a plugin is: `score 5 as ImageLocality`
        scores[plugin.name] = scores[plugin.name] + final if plugin.name in scores else final
    return scores


def evaluate(frame: Frame, profile: Profile) -> Evaluation:
    """Return the results of all plugins of the profile for the pod; with scores if any node is feasible.

    After an error on one node no node is feasible: it ends the attempt.
    """
    prepared = pre_filter(frame, profile.filters)
    diagnosis = diagnose(frame, prepared)
    if prepared.rejection is not None or diagnosis.errors:
        return Evaluation(prepared, diagnosis, np.zeros(0, np.int64))
    feasible = np.flatnonzero(diagnosis.first < 0)
    return Evaluation(prepared, diagnosis, feasible, score(frame, profile, feasible) if len(feasible) else {})
