"""Why a workload goes to these clusters: for each the clause, the room and who counted it, and how many replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.fleet.judging import Given, StaysError, judge, score_parts
from kube_policy_scheduler.fleet.model import NOTHING, Fleet, Outcome, Verdict, Workload
from kube_policy_scheduler.fleet.placement.question import PlacementError, Question
from kube_policy_scheduler.fleet.rebalancing import Move
from kube_policy_scheduler.lang.compiling.compiled import CompiledPolicy
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.tooling.text_table import BOLD, GREEN, RED, Terminal
from kube_policy_scheduler.tooling.why.members import member_lines
from kube_policy_scheduler.wording import plural


class WhyWorkload(msgspec.Struct, frozen=True):
    """What would be decided about a workload now."""

    workload: Workload
    policy: str | None
    """The name of the policy that governs it; None: its Placement alone decides."""
    outcome: Outcome
    moves: tuple[Move, ...] = ()
    """What the next pass of `rebalance` would move."""
    now: float = 0.0
    """Of the decision, Unix seconds."""
    points: Mapping[str, Mapping[str, float]] = NOTHING
    """By cluster and clause: what makes up its score. Clusters that were rejected before have none."""


def explain_workload(workload: Workload, fleet: Fleet, policies: FleetPolicies, given: Given) -> WhyWorkload:
    """Return what would be decided about a workload now, and what would move next."""
    asked = given.of(fleet)
    governing = policies.governing(workload)
    outcome = policies.decide(workload, fleet, asked)
    moved = policies.rebalance(workload, fleet, asked)
    name = governing.name if governing is not None else None
    points = _points(workload, fleet, governing, asked, outcome) if governing is not None else {}
    return WhyWorkload(workload, name, outcome, moved[1] if moved is not None else (), asked.now, points)


def _points(
    workload: Workload, fleet: Fleet, policy: CompiledPolicy, given: Given, outcome: Outcome
) -> dict[str, dict[str, float]]:
    """Return what each clause adds to the score of each cluster, by the affinity term that counts."""
    terms = [term for term in workload.placement.terms if term.name == outcome.term] or list(workload.placement.terms)
    term = terms[0] if terms and workload.placement.affinity is None else None
    try:
        judged = judge(Question(workload, fleet, term), policy, given, {})
    except (PlacementError, StaysError):
        return {}
    names = [each.name for each in judged.candidates]
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    for clause, points in score_parts(policy, judged.frame, judged.candidates, fleet.running):
        for name, value in zip(names, points.tolist(), strict=True):
            found[name][clause.name] = found[name].get(clause.name, 0.0) + value
    return found


def lines(found: WhyWorkload, *, to: Terminal) -> Iterator[str]:
    """Return the explanation for people: what is decided, then each cluster, those with replicas first."""
    asked, outcome = found.workload, found.outcome
    name = f"{asked.namespace}/{asked.name}" if asked.namespace else asked.name
    wanted = plural(asked.replicas, "replica") if asked.has_pods else "no pods"
    by = f"policy {found.policy}" if found.policy is not None else "its Placement"
    yield to.paint(BOLD, f"{asked.kind} {name}, {wanted}, by {by}")
    yield to.paint(GREEN if outcome.placed else RED, f"{outcome.reason.value}: {outcome.message}")
    rows = [_row(name, verdict, found) for name, verdict in _in_order(outcome)]
    if rows:
        yield ""
        yield from to.table([("cluster", "why", "has", "gets", "room", "score"), *rows], right_from=2)
    of_clusters = ((name, each.read_at, each.unread) for name, each in sorted(outcome.verdicts.items()))
    yield from member_lines(of_clusters, now=found.now)
    yield from _points_table(found, to)
    if found.moves:
        yield ""
        yield "the next pass of `rebalance` moves:"
        for move in found.moves:
            yield printable(f"  {plural(move.replicas, 'replica')} from {move.source} to {move.target}")


def _points_table(found: WhyWorkload, to: Terminal) -> Iterator[str]:
    """Yield what makes up the scores, if more than one clause does."""
    clauses = list(dict.fromkeys(clause for points in found.points.values() for clause in points))
    if len(clauses) < 2:
        return
    yield ""
    rows = [("score", *clauses)]
    for name, _ in _in_order(found.outcome):
        if points := found.points.get(name):
            rows.append((name, *(f"{points[clause]:g}" for clause in clauses)))
    yield from to.table(rows, right_from=1)


def _in_order(outcome: Outcome) -> list[tuple[str, Verdict]]:
    return sorted(
        outcome.verdicts.items(),
        key=lambda item: (-outcome.targets.get(item[0], 0), bool(item[1].rejected_by), -item[1].score, item[0]),
    )


def _row(name: str, verdict: Verdict, found: WhyWorkload) -> tuple[str, str, str, str, str, str]:
    has, gets = found.workload.has.get(name, 0), found.outcome.targets.get(name, 0)
    room = "" if verdict.room is None else f"{verdict.room} ({verdict.room_by or 'nobody counted'})"
    score = "" if verdict.rejected_by else f"{verdict.score:g}"
    why = f"rejected by {verdict.rejected_by}: {verdict.message}" if verdict.rejected_by else verdict.message
    return name, why, str(has), str(gets), room, score


def data(found: WhyWorkload) -> dict[str, Any]:
    """Return the explanation for programs."""
    asked, outcome = found.workload, found.outcome
    return {
        "kind": asked.kind,
        "namespace": asked.namespace,
        "name": asked.name,
        "replicas": asked.replicas,
        "policy": found.policy,
        "placed": outcome.placed,
        "reason": outcome.reason.value,
        "message": outcome.message,
        "clusters": dict(sorted(outcome.targets.items())),
        "verdicts": [
            {
                "cluster": name,
                "has": asked.has.get(name, 0),
                "gets": outcome.targets.get(name, 0),
                "rejectedBy": verdict.rejected_by or None,
                "why": verdict.message,
                "room": verdict.room,
                "roomBy": verdict.room_by or None,
                "score": verdict.score if not verdict.rejected_by else None,
                "points": found.points.get(name, {}),
            }
            | ({"readAt": verdict.read_at} if verdict.read_at is not None else {})
            | ({"unread": verdict.unread} if verdict.unread else {})
            for name, verdict in _in_order(outcome)
        ],
        "moves": [{"from": move.source, "to": move.target, "replicas": move.replicas} for move in found.moves],
    }
