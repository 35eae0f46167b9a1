"""Preemption for a PodGroup by the rules of Kubernetes 1.37: all that may go is gone, then as much as fits comes back.

What may be evicted for the group is taken away in the whole cluster, and the group is placed once. Then units come back
one by one: first those whose eviction a budget forbids, then the others, both from most to least important. One comes
back if every member of the group that has a place still fits there. The rest are the victims.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.gang_domains import Shortfall
from kube_policy_scheduler.framework.decide.gang_room import are_independent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import POD_GROUP, GangRequirement
from kube_policy_scheduler.framework.groups.attempt import Attempt
from kube_policy_scheduler.framework.groups.eviction import Nominations, place_free
from kube_policy_scheduler.framework.groups.members import GangMembers
from kube_policy_scheduler.framework.preempt.preemption import EvictionRules, Preemption
from kube_policy_scheduler.framework.preempt.victims import Budgets, started
from kube_policy_scheduler.framework.preempt.whole_groups import VictimKind, victim_kind
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules

MOST_AWAY = 1000
"""Pods that are taken away; each turn repeats that, which takes 60 ms. If more pods have a lower priority, evictions
are searched for each member."""


class EvictionUnit(NamedTuple):
    """What is evicted together."""

    pods: tuple[PodInfo, ...]
    nodes: frozenset[str]
    kind: VictimKind

    def importance(self, now: float) -> tuple[int, int, int, float, str]:
        """Return what the most important unit has the least of. now: Unix seconds."""
        first = min(started(pod, now) for pod in self.pods)
        name = min(pod.key for pod in self.pods)
        return -max(pod.priority for pod in self.pods), -self.kind, -len(self.pods), first, name


def units_for(frame: Frame, profile: Profile, requirement: GangRequirement) -> list[EvictionUnit] | None:
    """Return what may be evicted for a group, in the order in which it comes back; None: it is not done in this way.

    Args:
        frame: of a member.
        profile: of the member.
        requirement: of the group.
    """
    cluster = frame.cluster
    if Feature.WORKLOAD_AWARE_PREEMPTION not in cluster.rules or requirement.group.rule != POD_GROUP:
        return None
    lower = _lower(cluster, frame.pod.priority)
    if lower is None:
        return None
    rules = EvictionRules(frame, profile)
    may_go = [pod for pod in lower if not cluster.is_going(pod, frame.steady) and rules.allow(pod)]
    units = [
        EvictionUnit(
            pods,
            frozenset(filter(None, (cluster.node_of(pod.uid) for pod in pods))),
            victim_kind(cluster, pods),
        )
        for pods in rules.units(may_go)
        if not any(pod.template.spec.resource_claims for pod in pods)  # their devices are not tried out
    ]
    units.sort(key=lambda unit: unit.importance(frame.now))
    violating, _ = Budgets(cluster).split([pod for unit in units for pod in unit.pods])
    protected = {pod.uid for pod in violating}
    return sorted(units, key=lambda unit: protected.isdisjoint(pod.uid for pod in unit.pods))


def told_of(found: Nominations, requirement: GangRequirement, short: Shortfall, rules: KubernetesRules) -> Shortfall:
    """Return what the pods of a group are told for which others are evicted. short: why there are no free nodes."""
    if Feature.PREEMPTION_MESSAGE not in rules or requirement.group.rule != POD_GROUP:
        return short
    victims = sum(len(each.victims) for each in found.values())
    text = f"pod group preemption found a placement for podgroup, preempting {victims} victims"
    return msgspec.structs.replace(short, verdict=text)


def _lower(cluster: Cluster, priority: int) -> list[PodInfo] | None:
    """Return the pods on nodes with a lower priority; None: there are too many."""
    counters, infos, number = cluster.counters, cluster.nodes.infos, 0
    rows: set[int] = set()
    for template in counters.placed_templates:
        if template.priority < priority:
            there = counters.pods_by_row(template)
            number += sum(there.values())
            rows.update(there)
            if number > MOST_AWAY:
                return None
    pods = (pod for row in sorted(rows) for pod in cluster.pods_on(infos[row].name).values())
    return [pod for pod in pods if pod.priority < priority]


def preempt_whole(
    attempt: Attempt,
    gang: GangMembers,
    members: Sequence[QueuedPod],
    awaiting: Sequence[QueuedPod],
    requirement: GangRequirement,
    units: Sequence[EvictionUnit],
) -> Generator[int, None, Nominations]:
    """Return where members go, and whom they evict, as `evictions`; nothing: the group does not fit even so.

    units: what may be evicted, in the order in which it comes back.
    """
    mark = attempt.mark()
    for unit in units:
        for pod in unit.pods:
            attempt.displace(pod.uid)
        yield attempt.step()
    yield from place_free(attempt, gang, members, requirement)
    if gang.lacks(requirement):
        attempt.undo_to(mark)
        return {}
    placed = [member for member in members if member.pod.uid in attempt.placed]
    victims: list[EvictionUnit] = []
    for unit in units:
        if not attempt.spares(unit.pods, _concerned(unit, placed, attempt.placed)):
            victims.append(unit)
        yield attempt.step()
    waits = {member.pod.uid for member in awaiting}
    return _nominations({uid: host for uid, host in attempt.placed.items() if uid not in waits}, victims)


def _concerned(unit: EvictionUnit, placed: Sequence[QueuedPod], hosts: Mapping[str, str]) -> list[QueuedPod]:
    """Return the members that may no longer fit beside a unit: those on its nodes, if only resources have a say."""
    are_alone = all(are_independent(pod.template) for pod in unit.pods)
    return [
        member
        for member in placed
        if hosts[member.pod.uid] in unit.nodes or not (are_alone and are_independent(member.pod.template))
    ]


def _nominations(hosts: Mapping[str, str], victims: Sequence[EvictionUnit]) -> Nominations:
    """Return the nominations of members, each victim with a member on one of its nodes, else with the first."""
    if not victims or not hosts:
        return {}
    by_member: dict[str, list[PodInfo]] = {uid: [] for uid in hosts}
    for unit in victims:
        uid = next((uid for uid, host in hosts.items() if host in unit.nodes), next(iter(hosts)))
        by_member[uid].extend(unit.pods)
    return {uid: Preemption(host, tuple(by_member[uid])) for uid, host in hosts.items()}
