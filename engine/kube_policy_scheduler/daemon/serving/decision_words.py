"""A decision and its explanation as the status page says them."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.daemon.observing.decision_entry import Entry, refused
from kube_policy_scheduler.pages import status as shown
from kube_policy_scheduler.times import duration
from kube_policy_scheduler.tooling.decision_record import Outcome
from kube_policy_scheduler.wording import amount, plural, signed

_TONES: dict[Outcome, shown.Tone] = {
    Outcome.ASSIGNED: "good",
    Outcome.WAITING: "quiet",
    Outcome.HELD: "quiet",
    Outcome.UNSCHEDULABLE: "bad",
    Outcome.PREEMPTING: "warn",
    Outcome.BIND_FAILED: "bad",
    Outcome.ANSWERED: "quiet",
    Outcome.SHADOW: "quiet",
    Outcome.FAILED: "bad",
}
_VERDICTS = {
    "agreed": "{theirs} is as good by the policy",
    "differed": "the other scheduler took {theirs}",
    "refused": "the other scheduler took {theirs}, which the policy refuses",
    "not-placed": "the other scheduler took {theirs}; the policy would have placed it nowhere",
    "not-bound": "the other scheduler has not placed it",
    "gone": "it was deleted before the other scheduler placed it",
}
"""What is said of a pod that another scheduler looks after, by verdict."""


def explained(entry: Entry) -> shown.RecentDecision:
    """Return a decision with the reason for it in one sentence, and what stands behind it."""
    top = entry.detail.top if entry.detail is not None else ()
    clauses = list(top[0].scores) if top else []
    return shown.RecentDecision(
        at=entry.at,
        pod=entry.pod.key,
        outcome=entry.outcome.value,
        tone=_TONES[entry.outcome],
        node=entry.node,
        why=_why(entry),
        policy=entry.policy or "",
        facts=list(_facts(entry)),
        clauses=clauses,
        ranking=[
            shown.Ranking(each.name, each.total, [each.scores.get(clause, 0.0) for clause in clauses]) for each in top
        ],
        refused=sorted(refused(entry).items(), key=lambda item: (-item[1], item[0])),
    )


def _why(entry: Entry) -> str:
    if entry.outcome is Outcome.SHADOW:
        text = "as the other scheduler" if entry.node == entry.theirs else _VERDICTS[entry.verdict]
        return ": ".join(part for part in (text.format(theirs=entry.theirs), entry.message) if part)
    if entry.message or entry.outcome not in (Outcome.ASSIGNED, Outcome.WAITING, Outcome.ANSWERED):
        return entry.message
    fits = f"{amount(entry.feasible)} of {plural(entry.nodes, 'node')} {'fits' if entry.feasible == 1 else 'fit'}"
    if entry.verb in ("filter", "bind"):
        return f"{fits}; kube-scheduler {'chooses' if entry.verb == 'filter' else 'chose this one'}"
    if entry.feasible == 1:
        return f"the only one of {plural(entry.nodes, 'node')} that fits"
    if entry.ties > 1:
        return f"{fits}; {amount(entry.ties)} have the best total, and one was drawn"
    top = entry.detail.top if entry.detail is not None else ()
    if len(top) < 2:
        return f"{fits}; it has the best total" if entry.score is not None else f"{fits}; it was kept for the pod"
    best, second = top[0], top[1]
    gaps = {
        name: best.scores.get(name, 0.0) - second.scores.get(name, 0.0) for name in {**best.scores, **second.scores}
    }
    leading = sorted(((name, gap) for name, gap in gaps.items() if gap), key=lambda item: -abs(item[1]))[:3]
    parts = ", ".join(f"{name} {signed(gap)}" for name, gap in leading)
    return f"{fits}; it leads {second.name} by {amount(best.total - second.total)}: {parts}"


def _facts(entry: Entry) -> Iterator[str]:
    yield f"policy {entry.policy}" if entry.policy else "no policy"
    yield f"attempt {entry.attempt}"
    if entry.verb:
        yield f"answer to kube-scheduler's {entry.verb}"
    else:
        yield f"decided in {duration(entry.seconds)}"
    if entry.bound_seconds is not None:
        yield f"bound after {duration(entry.bound_seconds)}"
    if entry.repeats:
        yield f"the same {amount(entry.repeats)} times again"
    for victim in entry.victims:
        yield f"evicts {victim}"
    for promql, fetched_at in entry.readings:
        age = "never answered" if fetched_at is None else f"{duration(max(0.0, entry.at - fetched_at))} old"
        missing = entry.detail.missing.get(promql, 0) if entry.detail is not None else 0
        yield f"{promql}: {age}" + (f", missing on {plural(missing, 'node')}" if missing else "")
    yield f"policies {entry.hash[:12]}"
