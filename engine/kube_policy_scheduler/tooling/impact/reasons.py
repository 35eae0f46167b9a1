"""Why two sets of policies decide one pod differently: the clause that made the difference. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.tooling.node_verdicts import Clause, leads, refusal
from kube_policy_scheduler.wording import amount, signed

EARLIER = "pods before it moved"
_DIGITS = 9
"""Differences of scores below are rounding."""


@dataclass(frozen=True, slots=True)
class Reason:
    """What made the difference."""

    kind: str
    """`filter`, `score`, `tie`, `earlier` (the pods before it), `held` or `ungoverned`."""
    clause: str
    """The clause as written, or Kubernetes' name of the rule; for `earlier` a few words."""
    place: str = ""
    """`FILE:LINE:COLUMN`; "" for a rule of Kubernetes."""
    text: str = ""
    """The rest of the sentence."""


def reason(old: DecisionInputs, new: DecisionInputs, *, to_node: str, new_message: str, cycle: Cycle) -> Reason:
    """Return why the pod, decided by both over the same cluster, ends at `to_node`.

    Args:
        old: the cluster with the metrics as the old policies read them.
        new: the same cluster, as the new policies read it.
        to_node: where the pod goes; "" for nowhere.
        new_message: why it goes nowhere.
        cycle: decides by the old rules over the new cluster; kept from pod to pod.
    """
    held_new = _held(new)
    if held_new is not None:
        return held_new
    held_old = _held(old)
    if held_old is not None:
        return Reason("held", held_old.clause, held_old.place, "held it back")
    again = old.decide(cycle)
    if (again.host or "") == to_node:
        return Reason("earlier", EARLIER)
    # over one and the same cluster the two differ by their clauses alone; where the pod went before may be full by now
    from_node, old_message = again.host or "", again.message
    if from_node:
        found = _refusal(new, from_node, f"refuses {from_node}")
        if found is not None or not to_node:
            return found or Reason("filter", new_message)
    if to_node:
        found = _refusal(old, to_node, f"refused {to_node} before")
        if found is not None or not from_node:
            return found or Reason("earlier", EARLIER, text=old_message)
    return _scores(old, new, from_node=from_node, to_node=to_node)


def _held(inputs: DecisionInputs) -> Reason | None:
    policy, frame = inputs.rules.policy, inputs.frame()
    for clause in policy.holds if policy is not None else ():
        if clause.evaluate(frame):
            return Reason("held", clause.text, str(clause.span), f"holds it back: {clause.reason}")
    return None


def _refusal(inputs: DecisionInputs, node: str, text: str) -> Reason | None:
    found = refusal(inputs.frame(), inputs.profile, node)
    return None if found is None else Reason("filter", found.text, found.place, text)


def _scores(old: DecisionInputs, new: DecisionInputs, *, from_node: str, to_node: str) -> Reason:
    """Return the score whose lead of the new node over the old one grew most."""
    before, after = (_leads(inputs.frame(), inputs.profile, to_node, from_node) for inputs in (old, new))
    if before is None or after is None:
        return Reason("earlier", EARLIER)
    grown = {
        name: round(sum(side[name][0] * sign for side, sign in ((after, 1), (before, -1)) if name in side), _DIGITS)
        for name in sorted(after | before)
    }
    # of two that count alike, the clause that is new says more than the one that is gone
    name, most = max(grown.items(), key=lambda item: (item[1], item[0] in after, item[0]), default=("", 0))
    if most <= 0:
        return Reason("tie", "a draw among equally good nodes")
    if name in after:
        lead, clause = after[name]
        had = f", was {signed(before[name][0])}" if name in before else ""
        return Reason("score", name, clause.place, f"{signed(lead)} for {to_node} over {from_node}{had}")
    lead, clause = before[name]
    return Reason("score", name, clause.place, f"no longer favours {from_node}, by {amount(-lead)}")


def _leads(frame: Frame, profile: Profile, node: str, over: str) -> dict[str, tuple[float, Clause]] | None:
    feasible = evaluate(frame, Profile(profile.name, profile.filters)).feasible
    rows = frame.cluster.nodes.rows
    if rows[node] not in feasible or rows[over] not in feasible:
        return None
    return leads(frame, profile, feasible, node=node, over=over)
