"""The pods that wait, as the status page says it: together with those that wait for the same reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kube_policy_scheduler.daemon.observing.decision_entry import Entry
from kube_policy_scheduler.daemon.serving.status_snapshot import PendingPod, Snapshot
from kube_policy_scheduler.framework.groups.state import GangState
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from kube_policy_scheduler.pages.status import Gang, PendingGroup

MOST_REASONS = 6
MOST_EXAMPLES = 5


def groups(taken: Snapshot) -> list[PendingGroup]:
    """Return pods that wait for the same reason together, the largest group first."""
    found: dict[tuple[str, ...], list[PendingPod]] = defaultdict(list)
    for pod in taken.pending:
        found[_ground(pod)].append(pod)
    found_groups = [_group(pods, taken) for pods in found.values()]
    return sorted(found_groups, key=lambda group: (-group.pods, group.place, group.why))


def _ground(pod: PendingPod) -> tuple[str, ...]:
    last = pod.last
    policy = last.policy or "" if last is not None else ""
    if pod.place is Place.GATED:
        return (pod.place.value, policy, pod.gated_because)
    if pod.place in (Place.UNSCHEDULABLE, Place.BACKOFF):
        if last is not None and last.reasons:
            return (pod.place.value, policy, *sorted({reason.text for reason in last.reasons}))
        why = last.message if last is not None else ", ".join(sorted(pod.rejectors))
        return (pod.place.value, policy, why)
    if pod.place is Place.ACTIVE and pod.waits_last:
        return (pod.place.value, LAST)
    return (pod.place.value, pod.behind.key) if pod.behind is not None else (pod.place.value,)


LAST = "wait behind all others: deciding them took too long more than once, and nothing else ran meanwhile"
_PLACES = {
    Place.ACTIVE: "next in the queue",
    Place.IN_FLIGHT: "being bound",
    Place.PERMIT: "have a node and wait for the rest of their gang",
}


def _group(pods: list[PendingPod], taken: Snapshot) -> PendingGroup:
    first = pods[0]
    newest = max((pod.last for pod in pods if pod.last is not None), key=lambda entry: entry.at, default=None)
    reasons: list[tuple[str, int]] = []
    why = _PLACES.get(first.place, "")
    if first.place is Place.GATED:
        why = first.gated_because
    elif first.place is Place.ACTIVE and first.waits_last:
        why = LAST
    elif first.behind is not None:
        why = f"wait until {first.behind.key} has a node, which comes first in a strict order"
        why += f": {first.behind.message}" if first.behind.message else ""
    elif first.place in (Place.UNSCHEDULABLE, Place.BACKOFF) and newest is not None:
        reasons = _reasons(newest)
        why = newest.message
    elif not why:
        why = (
            f"rejected by {', '.join(sorted(first.rejectors))}" if first.rejectors else "the reason is no longer known"
        )
    return PendingGroup(
        place="held" if first.place is Place.GATED else first.place.value,
        why=why,
        reasons=reasons,
        pods=round(sum(pod.stands_for for pod in pods)),
        examples=[pod.key for pod in pods[:MOST_EXAMPLES]],
        oldest_seconds=max(0.0, taken.at - min(pod.queued for pod in pods)),
        policy=newest.policy or "" if newest is not None else "",
        nodes=newest.nodes if newest is not None else 0,
    )


def _reasons(entry: Entry) -> list[tuple[str, int]]:
    counts: dict[str, int] = defaultdict(int)
    for reason in entry.reasons:
        counts[reason.text] += reason.nodes
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) > MOST_REASONS:
        ordered = [*ordered[:MOST_REASONS], (f"and {len(ordered) - MOST_REASONS} more reasons", 0)]
    return ordered


def gangs(states: Sequence[GangState], *, now: float) -> list[Gang]:
    """Return the gangs, those that give their places back first before the others."""
    ordered = sorted(states, key=lambda gang: (gang.until is None, gang.until, gang.name))
    return [
        Gang(
            name=gang.name,
            rule=gang.rule,
            size=gang.size,
            placed=gang.placed,
            holding=gang.holding,
            pending=gang.pending,
            missing=gang.missing,
            left_seconds=max(0.0, gang.until - now) if gang.until is not None else None,
            domain=gang.domain,
        )
        for gang in ordered
    ]
