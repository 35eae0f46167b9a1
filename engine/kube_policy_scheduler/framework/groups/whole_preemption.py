"""Preemption for a PodGroup by the rules of Kubernetes 1.37: all that may go is gone, then as much as fits comes back.

What may be evicted for the group is taken away in the whole cluster, and the group is placed once. Then units come back
one by one: first those whose eviction a budget forbids, then the others, both from most to least important. One comes
back if every member of the group that has a place still fits there. The rest are the victims.

Other gangs get room in this way if filters count pods elsewhere, and victims on one node after the other are no help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.name_order import name_order
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.gang_domains import Shortfall
from kube_policy_scheduler.framework.decide.gang_room import Members, free_without, kinds_of
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import COMPOSITE_POD_GROUP, POD_GROUP, GangRequirement
from kube_policy_scheduler.framework.groups.attempt import Attempt
from kube_policy_scheduler.framework.groups.eviction import Nominations, Seat, spared
from kube_policy_scheduler.framework.groups.members import GangMembers
from kube_policy_scheduler.framework.preempt.gang_units import EvictedTogether
from kube_policy_scheduler.framework.preempt.preemption import EvictionRules, Preemption
from kube_policy_scheduler.framework.preempt.victims import Budgets, started
from kube_policy_scheduler.framework.preempt.whole_groups import VictimKind, victim_kind
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules

MOST_AWAY = 1000
"""Pods that are taken away; each turn repeats that, which takes 60 ms. If more pods have a lower priority, the least
important ones are taken away, and if that is not enough, those on the nodes that are best cleared. kube-scheduler looks
at a part of the nodes, too: its search ends with enough feasible ones."""


_RULES = (POD_GROUP, COMPOSITE_POD_GROUP)
"""Of the groups for which it is done."""


class EvictionUnit(NamedTuple):
    """What is evicted together, see `EvictedTogether`."""

    pods: tuple[PodInfo, ...]
    core: tuple[PodInfo, ...]
    nodes: frozenset[str]
    kind: VictimKind

    def importance(self, now: float) -> tuple[int, int, int, float, str]:
        """Return what the most important unit has the least of. now: Unix seconds."""
        first = min(started(pod, now) for pod in self.pods)
        name = min(pod.key for pod in self.pods)
        return -max(pod.priority for pod in self.pods), -self.kind, -len(self.pods), first, name


def is_whole(requirement: GangRequirement, rules: KubernetesRules) -> bool:
    """Return whether room for a group is made in this way."""
    return Feature.WORKLOAD_AWARE_PREEMPTION in rules and requirement.group.rule in _RULES


class Preemptor(NamedTuple):
    """A member of a group that others are evicted for."""

    frame: Frame
    profile: Profile


class NeededRoom(NamedTuple):
    """What a group needs room for."""

    requirement: GangRequirement
    members: Sequence[Members]
    """Without a place, by template."""
    within: BoolArray | None = None
    """`bool[nodes]`: where they must be; None: anywhere."""


def choices_for(preemptors: Sequence[Preemptor], wanted: NeededRoom) -> Iterator[list[EvictionUnit]]:
    """Yield what may be evicted for a group, each in the order in which it comes back; the next if one is not enough.

    Args:
        preemptors: its members, one of each kind: what goes, each of them may evict.
        wanted: what the group needs.
    """
    cluster, lowest = preemptors[0].frame.cluster, min(each.frame.pod.priority for each in preemptors)
    rules = [EvictionRules(each.frame, each.profile) for each in preemptors]
    found = (_units(preemptors[0].frame, rules, lower) for lower in _lower(cluster, lowest, wanted))
    return (units for units in found if units)


def _units(frame: Frame, rules: Sequence[EvictionRules], lower: Sequence[PodInfo]) -> list[EvictionUnit]:
    """Return what is evicted together of some pods, in the order in which it comes back."""
    cluster = frame.cluster
    there = [pod for pod in lower if not cluster.is_going(pod, frame.steady)]
    may_go = [pod for pod in there if all(each.allow(pod) for each in rules)]
    units: list[EvictionUnit] = []
    stay, left = set[tuple[PodInfo, ...]](), MOST_AWAY
    for pods, core in rules[0].units(may_go):
        is_tried = not any(pod.template.spec.resource_claims for pod in pods)  # devices are not tried out
        if is_tried and len(pods) <= left:
            left -= len(pods)
            on = frozenset(filter(None, (cluster.node_of(pod.uid) for pod in pods)))
            units.append(EvictionUnit(pods, core, on, victim_kind(cluster, pods)))
        else:
            stay.add(core)
    units = [unit for unit in units if unit.pods not in stay]  # what a gang needs goes with all of its surplus
    units.sort(key=lambda unit: unit.importance(frame.now))
    violating, _ = Budgets(cluster).split([pod for unit in units for pod in unit.pods])
    protected = {pod.uid for pod in violating}
    return sorted(units, key=lambda unit: protected.isdisjoint(pod.uid for pod in unit.core or unit.pods))


def told_of(found: Nominations, requirement: GangRequirement, short: Shortfall, rules: KubernetesRules) -> Shortfall:
    """Return what the pods of a group are told for which others are evicted. short: why there are no free nodes."""
    if Feature.PREEMPTION_MESSAGE not in rules or requirement.group.rule not in _RULES:
        return short
    victims = sum(len(each.victims) for each in found.values())
    text = f"pod group preemption found a placement for podgroup, preempting {victims} victims"
    return msgspec.structs.replace(short, verdict=text)


def _lower(cluster: Cluster, priority: int, wanted: NeededRoom) -> Iterator[list[PodInfo]]:
    """Yield pods with a lower priority to be taken away: all of them, or else as `MOST_AWAY` says."""
    counters = cluster.counters
    by_priority: dict[int, Counter[int]] = {}
    for template in counters.placed_templates:
        if template.priority < priority:
            by_priority.setdefault(template.priority, Counter()).update(counters.pods_by_row(template))
    levels, taken, whole = sorted(by_priority), 0, 0
    while whole < len(levels) and taken + by_priority[levels[whole]].total() <= MOST_AWAY:
        taken += by_priority[levels[whole]].total()
        whole += 1
    on = sorted({row for level in levels[:whole] for row in by_priority[level]})
    least = _on_rows(cluster, on, levels[:whole], taken)
    if whole == len(levels):
        yield least
        return
    first = levels[: whole + 1]
    yield least + _on_rows(cluster, _best_cleared(cluster, wanted, by_priority, first), first[-1:], MOST_AWAY - taken)
    if len(first) < len(levels):
        yield _on_rows(cluster, _best_cleared(cluster, wanted, by_priority, levels), levels, MOST_AWAY)


def _on_rows(cluster: Cluster, rows: Sequence[int], priorities: Sequence[int], most: int) -> list[PodInfo]:
    """Return the pods with some priorities on rows, in their order, until there are enough of them."""
    infos, of = cluster.nodes.infos, frozenset(priorities)
    found: list[PodInfo] = []
    for row in rows:
        if len(found) >= most:
            break
        found += [pod for pod in cluster.pods_on(infos[row].name).values() if pod.priority in of]
    return found


def _best_cleared(
    cluster: Cluster, wanted: NeededRoom, by_priority: Mapping[int, Mapping[int, int]], priorities: Sequence[int]
) -> list[int]:
    """Return the rows with room for members once pods of some priorities are gone, those that are best cleared first.

    These are the ones where the least important pods are, and of these those where the fewest go for each place.

    Args:
        cluster: with the nodes.
        wanted: what needs room.
        by_priority: how many pods of each priority are on each row.
        priorities: of the pods that go: all from the lowest on, ascending.
    """
    size = cluster.nodes.size
    number: IntArray = np.zeros(size, np.int64)
    highest: IntArray = np.zeros(size, np.int64)
    for priority in priorities:
        there = by_priority[priority]
        rows = np.fromiter(there, np.int64, len(there))
        number[rows] += np.fromiter(there.values(), np.int64, len(there))
        highest[rows] = priority
    free, places = free_without(cluster, priorities[-1] + 1), np.zeros(size, np.int64)
    for kind in kinds_of(cluster, wanted.members):
        places = np.maximum(places, kind.places({name: free(name) for name, _ in kind.requests}, wanted.within))
    cleared = np.flatnonzero((number > 0) & (places > 0))
    for_each = number[cleared] / places[cleared]
    order: list[int] = cleared[np.lexsort((name_order(cluster.nodes)[cleared], for_each, highest[cleared]))].tolist()
    return order


def preempt_whole(
    attempt: Attempt,
    gang: GangMembers,
    members: Sequence[QueuedPod],
    awaiting: Sequence[QueuedPod],
    requirement: GangRequirement,
    units: Sequence[EvictionUnit],
    *,
    seat: Seat,
) -> Generator[int, None, Nominations]:
    """Return where members go, and whom they evict, as `evictions`; nothing: the group does not fit even so.

    Args:
        attempt: where it is tried.
        gang: says how many of the group have a place.
        members: without a place.
        awaiting: as for `evictions`.
        requirement: of the group.
        units: what may be evicted, in the order in which it comes back.
        seat: places members, also ones that the group can do without if these are to get room, too.
    """
    mark = attempt.mark()
    for unit in units:
        for pod in unit.pods:
            attempt.displace(pod.uid)
        yield attempt.step()
    yield from seat()
    if gang.lacks(requirement):
        attempt.undo_to(mark)
        return {}
    placed = [member for member in members if member.pod.uid in attempt.placed]
    stay = yield from spared(attempt, (EvictedTogether(unit.pods, unit.core) for unit in units), placed)
    victims = [unit for unit in units if unit.pods[0].uid not in stay]
    waits = {member.pod.uid for member in awaiting}
    return _nominations({uid: host for uid, host in attempt.placed.items() if uid not in waits}, victims)


def _nominations(hosts: Mapping[str, str], victims: Sequence[EvictionUnit]) -> Nominations:
    """Return the nominations of members, each victim with a member on one of its nodes, else with the first."""
    if not victims or not hosts:
        return {}
    by_member: dict[str, list[PodInfo]] = {uid: [] for uid in hosts}
    for unit in victims:
        uid = next((uid for uid, host in hosts.items() if host in unit.nodes), next(iter(hosts)))
        by_member[uid].extend(unit.pods)
    return {uid: Preemption(host, tuple(by_member[uid])) for uid, host in hosts.items()}
