"""How many replicas each chosen cluster gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kube_policy_scheduler.fleet.model import Reason, ReplicaScheduling
from kube_policy_scheduler.fleet.placement.affinity import matches
from kube_policy_scheduler.fleet.placement.question import Candidate, PlacementError, Question
from kube_policy_scheduler.fleet.placement.webster import webster


def assign(question: Question, chosen: Sequence[Candidate]) -> dict[str, int]:
    """Return the replicas of each chosen cluster; without pods to divide, 0 for all of them.

    Raises:
        PlacementError: there is not enough room, or the strategy is not known.
    """
    workload = question.workload
    if not chosen:
        raise _error(Reason.ERROR, "no clusters available to schedule")
    if len(workload.components) > 1 or (workload.replicas == 0 and workload.requests is None):
        return {each.name: 0 for each in chosen}
    if question.overflows:
        found = _by_tiers(question, chosen)
    else:
        found = _divide(question, chosen, workload.replicas)
    return {name: count for name, count in found.items() if count > 0}


def _error(reason: Reason, text: str) -> PlacementError:
    return PlacementError(reason, f"failed to assign replicas: {text}")


def _by_tiers(question: Question, chosen: Sequence[Candidate]) -> dict[str, int]:
    """Divide tier by tier: each gets as many as it can have, and the next what is left."""
    left, found = question.workload.replicas, dict[str, int]()
    for tier in sorted({each.tier for each in chosen}):
        members = [each for each in chosen if each.tier == tier]
        count = min(left, sum(each.available for each in members))
        found |= _divide(question, members, count)
        left -= count
        if left <= 0:
            return found
    if left > 0:
        raise _error(Reason.UNSCHEDULABLE, "Clusters available replicas are not enough to schedule.")
    return found


def _divide(question: Question, members: Sequence[Candidate], replicas: int) -> dict[str, int]:
    scheduling = question.workload.placement.scheduling or ReplicaScheduling()
    match scheduling.type, scheduling.preference:
        case "Duplicated", _:
            return {each.name: replicas for each in members}
        case "Divided", "Weighted" if not (scheduling.weighted and scheduling.dynamic):
            return _by_weights(question, members, replicas, scheduling)
        case "Divided", "Weighted" | "Aggregated":
            return _by_room(question, members, replicas, aggregated=scheduling.preference == "Aggregated")
    raise _error(
        Reason.ERROR,
        f"unsupported replica scheduling strategy, replicaSchedulingType: {scheduling.type},"
        f" replicaDivisionPreference: {scheduling.preference}, please try another scheduling strategy",
    )


def _by_weights(
    question: Question, members: Sequence[Candidate], replicas: int, scheduling: ReplicaScheduling
) -> dict[str, int]:
    """Divide by fixed weights, whatever room there is and whatever runs; all weigh the same if none has a weight."""
    votes = {
        each.name: max((entry.weight for entry in scheduling.weights if matches(entry.target, each.cluster)), default=0)
        for each in members
    }
    if not any(count > 0 for count in votes.values()):
        votes = dict.fromkeys(votes, 1)
    return webster(replicas, votes, question.workload.uid)


class _Task(msgspec.Struct, frozen=True):
    """What is divided by room."""

    votes: Mapping[str, int]
    replicas: int
    kept: Mapping[str, int]
    """Replicas that stay, and are added."""
    first: frozenset[str]
    """Clusters that come first if replicas are kept together."""
    name: str


def _by_room(question: Question, members: Sequence[Candidate], replicas: int, *, aggregated: bool) -> dict[str, int]:
    """Divide in proportion to room: only what is new when scaled up, and by what runs when scaled down."""
    able = {each.name for each in members}
    had = {name: count for name, count in question.workload.has.items() if name in able}  # equal ones in this order
    task = _task(question, members, replicas, had)
    if task is None:
        return had
    votes = dict(sorted(task.votes.items(), key=lambda item: -item[1]))
    total = sum(votes.values())
    if total < task.replicas:
        text = f"{task.name}: Clusters available replicas {total} are not enough to schedule."
        raise _error(Reason.UNSCHEDULABLE, text)
    if aggregated:
        votes = _fewest(votes, task)
    found = webster(task.replicas, votes, question.workload.uid)
    for name, count in task.kept.items():
        found[name] = found.get(name, 0) + count
    return found


def _task(question: Question, members: Sequence[Candidate], replicas: int, had: Mapping[str, int]) -> _Task | None:
    """Return what is to be divided, None if all stays as it is."""
    running = sum(had.values())
    if question.workload.fresh:
        votes = {each.name: each.available for each in members}
        return _Task(votes, replicas, {}, frozenset(), "failed to do fresh scale")
    if running > replicas:
        return _Task(had, replicas, {}, frozenset(), "failed to scale down")
    if running < replicas:
        first = frozenset(name for name, count in had.items() if count > 0)
        votes = {each.name: each.room for each in members}
        return _Task(votes, replicas - running, had, first, "failed to scale up")
    return None


def _fewest(votes: Mapping[str, int], task: _Task) -> dict[str, int]:
    """Return the first clusters that have enough room together, those that run it already before the others."""
    ordered = [name for name in votes if name in task.first] + [name for name in votes if name not in task.first]
    found: dict[str, int] = {}
    for name in ordered:
        found[name] = votes[name]
        if sum(found.values()) >= task.replicas:
            break
    return found
