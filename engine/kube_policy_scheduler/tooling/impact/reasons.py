"""Why two sets of policies decide one pod differently: the clause that made the difference. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.tooling.node_verdicts import Clause, leads, refusal
from kube_policy_scheduler.tooling.world import Rules
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


def reason(
    old_frame: Frame,
    old: Rules | None,
    new_frame: Frame,
    new: Rules | None,
    *,
    to_node: str,
    new_message: str,
    cycle: Cycle,
) -> Reason:
    """Return why the pod, decided by both over the same cluster, ends at `to_node`.

    Args:
        old_frame: the cluster with the metrics as the old policies read them.
        old: what decided before; None where no policy governed the pod.
        new_frame: the same cluster, as the new policies read it.
        new: what decides now.
        to_node: where it goes; "" for nowhere.
        new_message: why it goes nowhere.
        cycle: decides by the old rules over the new cluster; kept from pod to pod.
    """
    if new is None:
        return Reason("ungoverned", "no policy", text="of the new ones governs it")
    if old is None:
        return Reason("ungoverned", "no policy", text="of the old ones governed it")
    held_new = _held(new, new_frame)
    if held_new is not None:
        return held_new
    held_old = _held(old, old_frame)
    if held_old is not None:
        return Reason("held", held_old.clause, held_old.place, "held it back")
    again = cycle.decide(old_frame, old.profile)
    if (again.host or "") == to_node:
        return Reason("earlier", EARLIER)
    # over one and the same cluster the two differ by their clauses alone; where the pod went before may be full by now
    from_node, old_message = again.host or "", again.message
    if from_node:
        found = _refusal(new_frame, new.profile, from_node, f"refuses {from_node}")
        if found is not None or not to_node:
            return found or Reason("filter", new_message)
    if to_node:
        found = _refusal(old_frame, old.profile, to_node, f"refused {to_node} before")
        if found is not None or not from_node:
            return found or Reason("earlier", EARLIER, text=old_message)
    return _scores(old_frame, old.profile, new_frame, new.profile, from_node=from_node, to_node=to_node)


def _held(rules: Rules, frame: Frame) -> Reason | None:
    for clause in rules.policy.holds if rules.policy is not None else ():
        if clause.evaluate(frame):
            return Reason("held", clause.text, str(clause.span), f"holds it back: {clause.reason}")
    return None


def _refusal(frame: Frame, profile: Profile, node: str, text: str) -> Reason | None:
    found = refusal(frame, profile, node)
    return None if found is None else Reason("filter", found.text, found.place, text)


def _scores(old_frame: Frame, old: Profile, new_frame: Frame, new: Profile, *, from_node: str, to_node: str) -> Reason:
    """Return the score whose lead of the new node over the old one grew most."""
    before, after = (
        _leads(frame, profile, to_node, from_node) for frame, profile in ((old_frame, old), (new_frame, new))
    )
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
