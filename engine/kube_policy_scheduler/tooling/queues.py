"""What `policyctl queues` shows: the tree of queues with what they use and borrow, and who would be evicted next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.guarantees import Unit
from kube_policy_scheduler.cluster.quotas.quota_overview import UnitCounts
from kube_policy_scheduler.cluster.quotas.quota_usage import Quota, QuotaState, QuotaUsage
from kube_policy_scheduler.cluster.steps import now as at_once
from kube_policy_scheduler.framework.preempt.above_max import EVERY_SECONDS, AboveMax, all_above_max
from kube_policy_scheduler.framework.preempt.reclaim import next_victims
from kube_policy_scheduler.framework.preempt.standing import UnitStanding, counted_units, standings
from kube_policy_scheduler.framework.preempt.victims import by_importance
from kube_policy_scheduler.framework.quota import QuotaRules, quantity
from kube_policy_scheduler.tooling.text_table import DIM, YELLOW, Terminal
from kube_policy_scheduler.tooling.unmet_guarantees import UnmetGuarantee, unmet_guarantees
from kube_policy_scheduler.wording import amount, plural

MOST_VICTIMS = 5
"""Units that are named as the next to be evicted."""
MOST_UNITS = 3
"""Units that are named of those that stand alike in a queue."""


@dataclass(frozen=True, slots=True)
class QueueReport:
    """All queues of a cluster."""

    states: tuple[QuotaState, ...]
    pending: Mapping[str, int]
    """Pods without a node, by queue; a queue counts those below it."""
    outside: int
    """Pods on nodes that belong to no queue."""
    capacity: Mapping[str, int]
    """What usable nodes offer, by resource in column units."""
    victims: tuple[Unit, ...]
    """Who would be evicted next, the first one first."""
    above_max: tuple[AboveMax, ...] = ()
    """Who is evicted next because queues use more than their `max`, the first one first."""
    standings: Mapping[str, tuple[UnitStanding, ...]] = field(default_factory=dict)
    """By queue, its own units, those below it left out: the strongest guarantees first, then what is borrowed."""
    units: Mapping[str, UnitCounts] = field(default_factory=dict)
    """By queue, how many are guaranteed and borrowed there, those below it included."""
    unmet: tuple[UnmetGuarantee, ...] = ()
    """What the cluster cannot keep of what is guaranteed."""


def report(cluster: Cluster, rules: QuotaRules, pending: Iterable[PodInfo], *, now: float) -> QueueReport:
    """Return all queues of a cluster; now: Unix seconds."""
    usage = cluster.track_usage(rules.tree)
    counts = usage.count(pending)
    outside = sum(usage.quota_of(pod.template) is None for pod in cluster.pods.values())
    capacity = dict(zip(rules.tree.resources, usage.capacity(), strict=True))
    victims = next_victims(cluster, rules, now=now, most=MOST_VICTIMS)
    by_queue: dict[str, list[UnitStanding]] = {}
    for queue, standing in standings(cluster, rules, now=now):
        by_queue.setdefault(queue.name, []).append(standing)
    return QueueReport(
        tuple(usage.states()),
        counts,
        outside,
        capacity,
        tuple(victims),
        tuple(all_above_max(cluster, rules, now=now, most=MOST_VICTIMS)),
        {name: tuple(there) for name, there in by_queue.items()},
        at_once(counted_units(cluster, rules, now=now)),
        tuple(unmet_guarantees(usage)),
    )


def members(queue: Quota) -> list[PodInfo]:
    """Return the pods on nodes of a queue and of those below it."""
    found, stack = list[PodInfo](), [queue]
    while stack:
        each = stack.pop()
        found += each.members.values()
        stack += each.children.values()
    return found


def pods_over(queue: Quota, usage: QuotaUsage, place: int, amount: int, *, now: float) -> list[PodInfo]:
    """Return which pods would have to end for a queue to be within an amount, the least important ones first.

    Args:
        queue: whose pods.
        usage: of all queues.
        place: of the resource in `tree.resources`.
        amount: in column units.
        now: Unix seconds.
    """
    used, found = queue.used[place], list[PodInfo]()
    if used <= amount:
        return found
    for pod in reversed(by_importance(members(queue), now)):
        wanted = dict(usage.amounts(pod)).get(place, 0)
        if wanted:
            used -= wanted
            found.append(pod)
            if used <= amount:
                break
    return found


def data(found: QueueReport) -> dict[str, Any]:
    """Return a report as JSON; amounts are Kubernetes quantities."""
    return {
        "queues": [_queue_data(state, found) for state in found.states],
        "podsOutsideQueues": found.outside,
        "capacity": _shown(found.capacity),
        "unmetGuarantees": [
            {
                "resource": each.resource,
                "guaranteed": quantity(each.resource, each.guaranteed),
                "usable": quantity(each.resource, max(0, each.there)),
            }
            for each in found.unmet
        ],
        "nextVictims": [
            {"queue": unit.queue.name, "pods": [pod.key for pod in unit.pods], "priority": unit.priority}
            for unit in found.victims
        ],
        "aboveMax": [
            {"queue": each.queue, "pods": [pod.key for pod in each.pods], "why": each.why} for each in found.above_max
        ],
    }


def _queue_data(state: QuotaState, found: QueueReport) -> dict[str, Any]:
    return {
        "name": state.name,
        "parent": state.parent,
        "guaranteed": _shown(state.guaranteed),
        "max": _shown(state.maximum),
        "lend": _shown(state.lend),
        "used": _shown(state.used),
        "will": _shown(state.will),
        "borrowed": _shown(state.borrowed),
        "share": round(state.share, 6),
        "weight": state.weight,
        "pods": state.pods,
        "pending": found.pending.get(state.name, 0),
        **_counts(found.units.get(state.name, UnitCounts())),
        "units": [_unit_data(each) for each in found.standings.get(state.name, ())],
    }


def _counts(units: UnitCounts) -> dict[str, Any]:
    return {"guaranteedUnits": dict(units.guaranteed), "borrowedUnits": dict(units.borrowed)}


def _unit_data(standing: UnitStanding) -> dict[str, Any]:
    unit = standing.unit
    return {
        "pods": [pod.key for pod in unit.pods],
        "surplus": unit.is_surplus,
        "guaranteedBy": standing.resource or None,
        "in": standing.queue or None,
    }


def _shown(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity(name, value) for name, value in amounts.items()}


def lines(found: QueueReport, *, to: Terminal) -> Iterator[str]:
    """Yield a report as people read it: a row for each queue and resource."""
    rows: list[tuple[str, ...]] = [
        ("queue", "resource", "guaranteed", "used", "will", "borrowed", "max", "share", "pods", "pending")
    ]
    styles: dict[int, str] = {0: DIM}
    for state in found.states:
        names = [
            name for name in found.capacity if name in state.guaranteed or name in state.maximum or state.used[name]
        ]
        for number, name in enumerate(names or list(found.capacity)[:1]):
            if name in state.borrowed:
                styles[len(rows)] = YELLOW
            rows.append(_row(state, name, found, is_first=number == 0))
    yield from to.table(rows, right_from=2, styles=styles)
    yield ""
    for unmet in found.unmet:
        yield from to.item("", f"{unmet.resource}: {unmet.text}")
    units = [line for state in found.states for line in _units(state.name, found.standings.get(state.name, ()))]
    if units:
        yield from to.table([("queue", "standing", "units", "pods", "which"), *units], right_from=5)
        yield ""
    if found.outside:
        yield f"{plural(found.outside, 'pod')} on nodes outside every queue"
    if found.above_max:
        yield f"`reclaim above max` evicts these, one every {EVERY_SECONDS:g} seconds:"
        for above in found.above_max:
            yield from to.item("  ", f"{_named(above.pods)}: {above.why}")
    if not found.victims:
        yield "no pod would be evicted for another queue now"
        return
    yield "if other queues need what they are guaranteed, these go first:"
    for unit in found.victims:
        yield from to.item("  ", f"{unit.queue.name}: {_named(unit.pods)} (priority {unit.priority})")


def _units(name: str, there: Sequence[UnitStanding]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the units of a queue that stand alike, in one row."""
    shown = name
    for text, alike in groupby(there, key=lambda standing: _without_own(standing.text, name)):
        units = list(alike)
        named = [_called(standing.unit) for standing in units[:MOST_UNITS]]
        more = f" and {len(units) - MOST_UNITS} more" if len(units) > MOST_UNITS else ""
        pods = sum(len(standing.unit.pods) for standing in units)
        yield shown, text, str(len(units)), str(pods), ", ".join(named) + more
        shown = ""


def _without_own(text: str, name: str) -> str:
    """Return how a unit stands, in a row that names its queue already."""
    return text.removesuffix(f" in {name}").replace(f"borrowed in {name}, ", "borrowed, ", 1)


def _called(unit: Unit) -> str:
    """Return what a unit is called, and whether it is more than its gang needs."""
    return f"{_named(unit.pods)} (surplus)" if unit.is_surplus else _named(unit.pods)


def _named(pods: Sequence[PodInfo]) -> str:
    """Return the pod of a unit, with how many more its gang has there."""
    others = f" and {plural(len(pods) - 1, 'more pod')} of its gang" if len(pods) > 1 else ""
    return f"{pods[0].key}{others}"


def _row(state: QuotaState, name: str, found: QueueReport, *, is_first: bool) -> tuple[str, ...]:
    def shown(amounts: Mapping[str, int]) -> str:
        return quantity(name, amounts[name]) if name in amounts else "-"

    once = (
        (amount(state.share, 3), str(state.pods), str(found.pending.get(state.name, 0))) if is_first else ("", "", "")
    )
    return (
        "  " * (state.depth - 1) + state.name if is_first else "",
        name,
        shown(state.guaranteed),
        shown(state.used),
        shown(state.will),
        shown(state.borrowed),
        shown(state.maximum),
        *once,
    )
