"""What is expected of a witness: its decision as the scheduling cycle makes it, in the words of a test file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.probe import probe
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.policy.clauses import FilterClause, LimitClause, RequireClause
from kube_policy_scheduler.policy.groupings import SpreadFilter
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.tooling.first_test.witness import Witness
from kube_policy_scheduler.tooling.tester.short_forms import Json


@dataclass(frozen=True, slots=True)
class Written:
    """A witness and what is expected of it."""

    witness: Witness
    expect: Json
    tie: bool
    """Whether several nodes have the highest total."""
    reads_clock: bool
    """Whether the policy reads the clock, so that the case has to say when it is."""


def written(witness: Witness, frame: Frame, policy: Policy) -> Written | None:
    """Return the case with its expectations; None where a gang without a size keeps it from being decided."""
    found = expectation(frame, policy)
    if found is None:
        return None
    expect, tie = found
    return Written(witness, expect, tie, reads_clock=any(clause.depends & Depends.CLOCK for clause in policy.clauses))


def expectation(frame: Frame, policy: Policy) -> tuple[Json, bool] | None:
    """Return what a decision is in the words of a test, and whether it is a tie; None where it cannot be made."""
    if policy.hold_reason(frame) is not None:
        return {"held": True}, False
    try:
        policy.claims(frame)
    except ValueError:
        return None
    decision = Cycle(seed=0).decide(frame, policy.profile)
    evaluation = evaluate(frame, policy.profile)
    names = frame.cluster.nodes.names
    totals = {names[row]: float(total) for row, total in zip(evaluation.feasible, evaluation.totals, strict=True)}
    expect: Json = {}
    best = max(totals.values(), default=0.0)
    tied = sorted(name for name, total in totals.items() if total == best)
    if decision.host is None:
        expect["unschedulable"] = _whole_refusal(frame, policy) or {"message": decision.message.split(". ")[0]}
        if policy.profile.preemption is not None:
            victims = decision.preemption.victims if decision.preemption is not None else ()
            expect["evicts"] = sorted(pod.name for pod in victims)
    elif len(tied) > 1:
        expect["node_in"] = tied
    else:
        expect["node"] = decision.host
    if totals:
        expect["feasible"] = sorted(totals)
    refused = _refused(frame, policy)
    if refused:
        expect["filtered"] = refused
    if len(totals) > 1 or (totals and policy.profile.scores):
        expect["scores"] = {name: _rounded(total) for name, total in sorted(totals.items())}
    return expect, len(tied) > 1


def _whole_refusal(frame: Frame, policy: Policy) -> Json | None:
    """Return the clause that refuses the pod whatever the node, None where there is none."""
    for plugin in policy.profile.filters:
        if isinstance(plugin, RequireClause | LimitClause) and probe(frame, plugin).rejection is not None:
            return {"clause": plugin.name}
    return None


def _refused(frame: Frame, policy: Policy) -> Json:
    """Return by node the first clause of the policy that refuses it."""
    names = frame.cluster.nodes.names
    found: dict[str, Any] = {}
    for plugin in policy.profile.filters:
        if not isinstance(plugin, FilterClause | SpreadFilter):
            continue
        for refusal in plugin.refusals(frame, None):
            for row in np.flatnonzero(refusal.where):
                found.setdefault(names[int(row)], {"clause": plugin.name})
    return dict(sorted(found.items()))


def _rounded(total: float) -> float | str:
    """Return a total that reads back equal within what a test compares, else with a tolerance."""
    shown = float(f"{total:.10g}")
    return shown if abs(shown - total) <= 1e-10 * max(1.0, abs(total)) else f"{total:.4f} ± 0.001"
