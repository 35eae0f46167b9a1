"""Why two sets of policies decide one pod differently: the clause that made the difference. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from engine.framework.cycle import Cycle
from engine.framework.evaluation import Evaluation, evaluate, score
from engine.framework.frame import Frame
from engine.framework.plugin import FilterPlugin, Ready
from engine.framework.profile import Profile
from engine.framework.status import Status
from engine.tooling.text_table import signed
from engine.tooling.world import Rules

EARLIER = "pods before it moved"


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
    from_node: str,
    to_node: str,
    old_message: str,
    new_message: str,
    seed: int,
) -> Reason:
    """Return why the pod, decided by both over the same cluster, ends at `to_node` and not at `from_node`.

    Args:
        old_frame: the cluster with the metrics as the old policies read them.
        old: what decided before; None where no policy governed the pod.
        new_frame: the same cluster, as the new policies read it.
        new: what decides now.
        from_node: where it went before; "" for nowhere.
        to_node: where it goes; "" for nowhere.
        old_message: why it went nowhere before.
        new_message: why it goes nowhere.
        seed: draws among nodes that are equally good.
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
    again = Cycle(seed=seed).decide(old_frame, old.profile)
    if (again.host or "") == to_node:
        return Reason("earlier", EARLIER)
    if not to_node:
        return _refusal(new_frame, new.profile, from_node) or Reason("filter", new_message)
    if not from_node:
        found = _refusal(old_frame, old.profile, to_node)
        if found is None:
            return Reason("earlier", EARLIER, text=old_message)
        return Reason(found.kind, found.clause, found.place, f"refused {to_node} before")
    found = _refusal(new_frame, new.profile, from_node)
    if found is not None:
        return found
    found = _refusal(old_frame, old.profile, to_node)
    if found is not None:
        return Reason(found.kind, found.clause, found.place, f"refused {to_node} before")
    return _scores(old_frame, old.profile, new_frame, new.profile, from_node=from_node, to_node=to_node)


def _held(rules: Rules, frame: Frame) -> Reason | None:
    for clause in rules.policy.holds if rules.policy is not None else ():
        if clause.evaluate(frame):
            return Reason("held", clause.text, str(clause.span), f"holds it back: {clause.reason}")
    return None


def _refusal(frame: Frame, profile: Profile, node: str) -> Reason | None:
    """Return the first filter that refuses a node; those of the policy are asked first."""
    row = frame.cluster.nodes.rows.get(node)
    if row is None:
        return None
    of_policy = [plugin for plugin in profile.filters if hasattr(plugin, "clause")]
    others = [plugin for plugin in profile.filters if not hasattr(plugin, "clause")]
    for plugin in (*of_policy, *others):
        if _refuses(plugin, frame, row):
            clause = getattr(plugin, "clause", None)
            if clause is None:
                return Reason("filter", plugin.name, "", f"refuses {node}")
            return Reason("filter", clause.text, str(clause.span), f"refuses {node}")
    return None


def _refuses(plugin: FilterPlugin, frame: Frame, row: int) -> bool:
    prepared = plugin.pre_filter(frame)
    if isinstance(prepared, Status):
        return True
    if not isinstance(prepared, Ready):
        return False
    if prepared.nodes is not None and frame.cluster.nodes.names[row] not in prepared.nodes:
        return True
    return not bool(plugin.filter(frame, prepared.state)[row])


def _scores(old_frame: Frame, old: Profile, new_frame: Frame, new: Profile, *, from_node: str, to_node: str) -> Reason:
    """Return the score whose lead of the new node over the old one grew most."""
    before, after = (
        _leads(frame, profile, to_node, from_node) for frame, profile in ((old_frame, old), (new_frame, new))
    )
    if before is None or after is None:
        return Reason("earlier", EARLIER)
    grown: Counter[str] = Counter()
    for name, (lead, _) in after.items():
        grown[name] += lead  # type: ignore[assignment]
    for name, (lead, _) in before.items():
        grown[name] -= lead  # type: ignore[assignment]
    # of two that count alike, the clause that is new says more than the one that is gone
    name, most = max(grown.items(), key=lambda item: (item[1], item[0] in after, item[0]), default=("", 0))
    if most <= 0:
        return Reason("tie", "a draw among equally good nodes")
    if name in after:
        lead, place = after[name]
        had = f", was {signed(before[name][0])}" if name in before else ""
        return Reason("score", name, place, f"{signed(lead)} for {to_node} over {from_node}{had}")
    lead, place = before[name]
    return Reason("score", name, place, f"no longer counts {signed(-lead)} for {from_node}")


def _leads(frame: Frame, profile: Profile, node: str, other: str) -> dict[str, tuple[float, str]] | None:
    """Return by how much a node leads another in each score, with the score's place; None where one does not fit."""
    evaluation: Evaluation = evaluate(frame, Profile(profile.name, profile.filters))
    names = frame.cluster.nodes.names
    at = {names[row]: position for position, row in enumerate(evaluation.feasible)}
    if node not in at or other not in at:
        return None
    found: dict[str, tuple[float, str]] = {}
    for weighted in profile.scores:
        # one at a time, as clauses may have one name
        for scores in score(frame, Profile("", scores=(weighted,)), evaluation.feasible).values():
            clause = getattr(weighted.plugin, "clause", None)
            name = clause.text if clause is not None else weighted.plugin.name
            place = str(clause.span) if clause is not None else ""
            values = np.asarray(scores, np.float64)
            lead = float(values[at[node]] - values[at[other]])
            found[name] = (found.get(name, (0.0, ""))[0] + lead, place)
    return found
