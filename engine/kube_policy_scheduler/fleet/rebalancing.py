"""Later moves of replicas by `rebalance`: a few in each pass, to where the policy would place them now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.fleet.decide import decide
from kube_policy_scheduler.fleet.judging import Given, frame_of
from kube_policy_scheduler.fleet.limits import Cap, caps
from kube_policy_scheduler.fleet.model import HEALTHY, Fleet, Outcome, Workload
from kube_policy_scheduler.lang.compiling.compiled import CompiledMove, CompiledPolicy


class Move(msgspec.Struct, frozen=True):
    """Replicas that go from one cluster to another."""

    source: str
    target: str
    replicas: int


def rebalance(
    workload: Workload, fleet: Fleet, policy: CompiledPolicy, given: Given
) -> tuple[Outcome, tuple[Move, ...]] | None:
    """Return the placement after the next pass, with the moves that lead to it; None if nothing moves now.

    A workload stays while it is leaving a cluster, is not healthy where it runs, or was decided less than `rest` ago.
    """
    rules, asked = policy.workloads, given.of(fleet)
    frame = frame_of(workload, asked)
    if rules is None or _is_unsettled(workload) or all(rests(workload, rule, given.now) for rule in rules.moves):
        return None
    ideal = decide(msgspec.structs.replace(workload, fresh=True), fleet, policy, asked)
    if not ideal.placed:
        return None
    may_gain = [each.may_gain(frame) if each.may_gain is not None else None for each in rules.moves]
    limits = caps(policy, frame, fleet.running)
    targets, done = dict(workload.has), list[Move]()
    for target in _gaining(workload, ideal):
        rule = _rule_for(frame.columns.rows[target], rules.moves, may_gain)
        if rule is None or rests(workload, rule, given.now):
            continue
        moved = sum(each.replicas for each in done)
        left = ideal.targets[target] - targets.get(target, 0)
        if rule.most is not None:
            left = min(left, rule.most - moved)
        for move in _moves_to(target, left, targets, ideal, rule, limits):
            targets[move.source] -= move.replicas
            targets[target] = targets.get(target, 0) + move.replicas
            done.append(move)
    _keep_one(workload, targets, done)
    if not done:
        return None
    targets = {name: count for name, count in targets.items() if count > 0}
    is_complete = targets == dict(ideal.targets)
    term = ideal.term if is_complete else workload.observed_term or ideal.term
    return msgspec.structs.replace(ideal, targets=targets, term=term), tuple(done)


def _keep_one(workload: Workload, targets: dict[str, int], moves: list[Move]) -> None:
    """Take a replica back from the last move if none would stay: what moves ends at once, and begins elsewhere later.

    The next pass moves it, once the others are healthy where they are. A workload with one replica stays.
    """
    if not moves or any(min(targets[name], count) > 0 for name, count in workload.has.items()):
        return
    last = moves.pop()
    targets[last.source] += 1
    targets[last.target] -= 1
    if last.replicas > 1:
        moves.append(msgspec.structs.replace(last, replicas=last.replicas - 1))


def _is_unsettled(workload: Workload) -> bool:
    """Return whether replicas are on their way: lost, leaving, or not healthy yet."""
    running = [name for name, count in workload.has.items() if count > 0]
    if not running or workload.evicting or sum(workload.has.values()) != workload.replicas:
        return True
    return any(workload.health.get(name) != HEALTHY for name in running)


def rests(workload: Workload, rule: CompiledMove, now: float) -> bool:
    """Return whether a workload was decided so lately that a rule does not move it. now: Unix seconds."""
    return workload.decided is not None and now - workload.decided < rule.rest_seconds


def _gaining(workload: Workload, ideal: Outcome) -> list[str]:
    """Return the clusters that are to have more, the best first."""
    found = [name for name, count in ideal.targets.items() if count > workload.has.get(name, 0)]
    return sorted(found, key=lambda name: (-ideal.verdicts[name].score, name))


def _rule_for(row: int, rules: Sequence[CompiledMove], may_gain: Sequence[BoolArray | None]) -> CompiledMove | None:
    """Return the first `rebalance` by which replicas may move to a cluster."""
    pairs = zip(rules, may_gain, strict=True)
    return next((rule for rule, gains in pairs if gains is None or gains[row]), None)


def _moves_to(
    target: str,
    left: int,
    targets: Mapping[str, int],
    ideal: Outcome,
    rule: CompiledMove,
    limits: Sequence[Cap],
) -> Iterator[Move]:
    """Yield moves of so many replicas to a cluster, from the worst of those that are to have fewer.

    Where a limit leaves no more to several clusters, those of them that are to have fewer lose some first.
    """
    score = {name: verdict.score for name, verdict in ideal.verdicts.items() if not verdict.rejected_by}
    losing = [name for name, count in targets.items() if count > ideal.targets.get(name, 0)]
    losing.sort(key=lambda name: (score.get(name, float("-inf")), name))
    for source in losing:
        behind = score[target] - score.get(source, float("-inf"))
        if left <= 0 or (rule.margin is not None and behind <= rule.margin):
            return
        entered = (each for each in limits if target in each.clusters and source not in each.clusters)
        spare = min((each.spare(targets) for each in entered), default=left)
        count = min(left, targets[source] - ideal.targets.get(source, 0), spare)
        if count <= 0:
            continue
        left -= count
        yield Move(source, target, count)
