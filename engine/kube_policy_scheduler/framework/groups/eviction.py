"""Room for all members that a gang needs by evictions, tried out: who goes where, once which pods are gone.

Members take free nodes first, then the room that evictions for others leave, and only as many evict as the gang needs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace

from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.groups.attempt import Attempt
from kube_policy_scheduler.framework.groups.members import GangMembers
from kube_policy_scheduler.framework.preempt.gang_units import EvictedTogether
from kube_policy_scheduler.framework.preempt.preemption import EvictionRules, Preemption
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod

MOST_SPARED = 1024
"""Checks of whether a member still fits if a victim stays: 0.1 s. In larger gangs nobody is spared."""
Nominations = dict[str, Preemption]
"""By uid of members: the nodes to which they are nominated, and whom they evict there, if anybody."""
Seat = Callable[[], Generator[int, None, object]]
"""Places members of a group where it is free."""


def evictions(
    attempt: Attempt,
    gang: GangMembers,
    members: Sequence[QueuedPod],
    awaiting: Sequence[QueuedPod],
    requirement: GangRequirement,
    *,
    rules: Callable[[], EvictionRules],
    seat: Seat,
) -> Generator[int, None, Nominations]:
    """Return where members go that a group needs once others are evicted, and who; nothing: that helps nobody.

    Yields where a turn may end, the work since the last time.

    Args:
        attempt: where it is tried.
        gang: says how many of the group have a place.
        members: without a place.
        awaiting: those that wait for their victims to end, see `place_awaiting`; they are not in the answer.
        requirement: of the group.
        rules: returns which pods are evicted together, as the cluster stands.
        seat: places members where it is free, as long as the group is not complete.
    """
    yield from seat()
    left = [member for member in members if member.pod.uid not in attempt.placed]
    found: Nominations = {}
    for number, member in enumerate(left):
        if gang.is_surplus(member, requirement):
            continue
        placed = gang.placed(requirement)
        if placed >= requirement.size or attempt.is_over or placed + len(left) - number < requirement.size:
            break
        decision = attempt.free_again(member)
        if decision is not None and decision.host is not None:
            attempt.seat(member, decision)
        elif (opened := attempt.opened_node(member)) is not None:
            attempt.place_beside(member, opened)
        else:
            decision = attempt.next_candidate(member) or (yield from attempt.deciding(member))
            preemption = _evict(attempt, gang, member, decision) if decision is not None else None
            if preemption is not None:
                found[member.pod.uid] = preemption
        yield attempt.step()
    if not found or gang.lacks(requirement):
        return {}
    seated = [member for member in members if member.pod.uid in attempt.placed]
    found = yield from _without_spared(attempt, found, seated, rules)
    for member in attempt.that_may_need_victims(seated):
        if not attempt.still_fits(member):
            return {}
        yield attempt.step()
    waits = {member.pod.uid for member in awaiting}
    return {uid: found.get(uid) or Preemption(host) for uid, host in attempt.placed.items() if uid not in waits}


def place_awaiting(
    attempt: Attempt, gang: GangMembers, awaiting: Sequence[QueuedPod]
) -> Generator[int, None, list[QueuedPod]]:
    """Place members that wait for their victims to end, as if these were gone; return those that fit there.

    Others may have taken the room of the rest, which evict again. Yields as `evictions`.
    """
    fit = list[QueuedPod]()
    for member in awaiting:
        if _place_nominated(attempt, gang, member):
            fit.append(member)
        yield attempt.step()
    return fit


def _evict(attempt: Attempt, gang: GangMembers, member: QueuedPod, decision: Decision) -> Preemption | None:
    """Try what was decided about a member; return whom it evicts, None: nobody."""
    found = decision.preemption
    if decision.host is not None:
        attempt.seat(member, decision)
    elif found is None:
        return None
    elif found.keeps_nomination and member.pod.nominated_node:
        _place_nominated(attempt, gang, member)
    elif found.nominated_node and not any(victim.uid in attempt.placed for victim in found.victims):
        attempt.keep_candidates(member, decision)
        attempt.evict(member, found)
        return found
    return None


def _place_nominated(attempt: Attempt, gang: GangMembers, member: QueuedPod) -> bool:
    """Place a member on the node that it is nominated to, as if its victims were gone; return whether it fits."""
    for uid in gang.victims_of(member):
        attempt.displace(uid)
    return attempt.place_if_it_fits(member, member.pod.nominated_node)


def _without_spared(
    attempt: Attempt, found: Nominations, placed: Sequence[QueuedPod], rules: Callable[[], EvictionRules]
) -> Generator[int, None, Nominations]:
    """Return evictions without those victims that may stay after all, as later ones made enough room.

    The last one that was chosen is looked at first. What goes together stays only where all of it makes room for the
    same pod. Yields as `evictions`.
    """
    victims = [victim for each in found.values() for victim in each.victims]
    if len(victims) * len(placed) > MOST_SPARED:
        return found
    attempt.hide()
    on = {victim.uid: uid for uid, each in found.items() for victim in each.victims}
    units = [
        unit
        for unit in rules().units(victim for each in reversed(found.values()) for victim in each.victims[::-1])
        if len({on.get(pod.uid) for pod in unit.pods}) == 1
    ]
    stay = yield from spared(attempt, sorted(units, key=lambda unit: any(pod.uid in on for pod in unit.core)), placed)
    left = {
        uid: replace(each, victims=tuple(victim for victim in each.victims if victim.uid not in stay))
        for uid, each in found.items()
    }
    return {uid: each for uid, each in left.items() if each.victims}


def spared(
    attempt: Attempt, units: Iterable[EvictedTogether], members: Sequence[QueuedPod]
) -> Generator[int, None, set[str]]:
    """Return the uids of displaced pods that stay after all, as all members still fit beside them.

    A surplus member of a gang stays only beside those that the gang needs. If members look at other nodes, too, one pod
    that stays may be what lets another one stay, as maxSkew counts both: the others are tried again then, unlike in
    kube-scheduler. Yields as `evictions`.

    Args:
        attempt: where all of them are displaced, and members are placed.
        units: what stays together, in the order in which it is tried; those that a gang needs before its surplus.
        members: that must fit.
    """
    stay: set[str] = set()
    left = list(units)
    while left:
        gone: list[EvictedTogether] = []
        for unit in left:
            if not any(map(attempt.is_displaced, unit.core)) and attempt.spares(unit.pods, members):
                stay |= {pod.uid for pod in unit.pods}
            else:
                gone.append(unit)
            yield attempt.step()
        is_short = len(gone) < len(left) and len(gone) * len(members) <= MOST_SPARED
        left = gone if is_short and any(map(attempt.looks_elsewhere, members)) else []
    return stay
