"""Why this node and not the next: totals by score, what each subexpression says, margins and ties. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.framework.evaluation import Evaluation, score
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.clauses import ScoreClause
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.policy.groupings import GroupingScore
from kube_policy_scheduler.tooling.why.values import PartValues, part_values


@dataclass(frozen=True, slots=True)
class Term:
    """One score, weighted, on the nodes of the ranking."""

    name: str
    """Kubernetes' name of the plugin, or the clause as written."""
    place: str
    """`FILE:LINE:COLUMN`, "" for Kubernetes' own."""
    weight: float
    scores: tuple[float, ...]
    low: float
    """The lowest score among all nodes that fit."""
    high: float
    parts: tuple[PartValues, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best nodes, the chosen one first."""

    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    """Place of each among all that fit; equal totals have equal ranks."""
    totals: tuple[float, ...]
    terms: tuple[Term, ...]
    feasible: int
    ties: int
    """How many nodes have the chosen node's total."""
    margin: float | None
    """Between the chosen node's total and the best of those that fit and have another; None without one."""
    current: str | None = None
    """The node that the pod is on, where it fits there."""

    def advantage(self, at: int) -> list[tuple[str, float]]:
        """Return by how much the first node leads another by each score, the largest difference first."""
        found = [(term.name, term.scores[0] - term.scores[at]) for term in self.terms]
        return sorted(((n, d) for n, d in found if d), key=lambda item: (-abs(item[1]), item[0]))


def ranking(inputs: DecisionInputs, evaluation: Evaluation, *, host: str, current: str | None, limit: int) -> Ranking:
    """Return the `limit` best nodes with their scores, and the current one."""
    frame, feasible, totals = inputs.frame(), evaluation.feasible, evaluation.totals
    names = inputs.cluster.nodes.names
    chosen = [names[row] for row in feasible].index(host)
    order = sorted(range(len(feasible)), key=lambda at: (at != chosen, -totals[at], names[feasible[at]]))
    positions = order[:limit]
    here = next((at for at in order if names[feasible[at]] == current), None)
    if here is not None and here not in positions:
        positions.append(here)
    others = totals[totals != totals[chosen]]
    return Ranking(
        nodes=tuple(names[feasible[at]] for at in positions),
        ranks=tuple(int((totals > totals[at]).sum()) + 1 for at in positions),
        totals=tuple(float(totals[at]) for at in positions),
        terms=_terms(inputs, frame.at(feasible), feasible, positions),
        feasible=len(feasible),
        ties=int((totals == totals[chosen]).sum()),
        margin=float(totals[chosen] - others.max()) if len(others) else None,
        current=current if here is not None else None,
    )


def _terms(inputs: DecisionInputs, chosen: Frame, feasible: IntArray, positions: Sequence[int]) -> tuple[Term, ...]:
    terms: list[Term] = []
    for weighted in inputs.profile.scores:
        plugin = weighted.plugin
        # one at a time, as clauses may have one name
        (scores,) = score(chosen, Profile(plugin.name, scores=(weighted,)), feasible).values() or (None,)
        if scores is None:
            continue
        name, place = plugin.name, ""
        parts: tuple[PartValues, ...] = ()
        if isinstance(plugin, ScoreClause | GroupingScore):
            name, place = plugin.clause.text, str(plugin.clause.span)
            parts = part_values(plugin.clause.parts(), chosen, positions)
        if isinstance(plugin, GroupingScore):
            counts, _ = plugin.domain_counts(chosen)
            where = plugin.clause.topology or "node"
            values = tuple(float(counts[at]) for at in positions)
            parts = (*parts, PartValues(f"pods of the same key in the {where}", place, values, same=False))
        final = np.asarray(scores, np.float64)
        at = tuple(float(final[position]) for position in positions)
        terms.append(Term(name, place, weighted.weight, at, float(final.min()), float(final.max()), parts))
    return tuple(terms)
