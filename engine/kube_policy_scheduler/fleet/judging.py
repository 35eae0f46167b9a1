"""What the clauses of a policy say about the clusters: which pass, and how they are ordered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.fleet.columns import FleetColumns, FleetFrame, Room
from kube_policy_scheduler.fleet.groupings import Skew, groupings, score, skews
from kube_policy_scheduler.fleet.limits import Cap, caps
from kube_policy_scheduler.fleet.model import Fleet, Reason, Running, Verdict, Workload
from kube_policy_scheduler.fleet.placement.filters import FILTERS
from kube_policy_scheduler.fleet.placement.place import feasible
from kube_policy_scheduler.fleet.placement.question import Candidate, Question
from kube_policy_scheduler.fleet.placement.webster import ranks
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.columns import full
from kube_policy_scheduler.lang.compiling.compiled import CompiledGrouping, CompiledPolicy, CompiledScore, CompiledTest
from kube_policy_scheduler.lang.compiling.member_values import member_values
from kube_policy_scheduler.wording import plural

NOBODY_READS = "nobody reads them"
"""Why nothing is known of the nodes and pods of a cluster without a member."""


class Given(msgspec.Struct, frozen=True):
    """What a decision is made with besides the workload and the fleet."""

    now: float = 0.0
    """Unix seconds by the wall clock."""
    signals: Signals = Signals.EMPTY
    columns: FleetColumns | None = None
    """Of the clusters of the fleet, in their order; None: they are made for this decision."""

    def of(self, fleet: Fleet) -> Given:
        """Return the same with columns of the fleet."""
        return self if self.columns is not None else msgspec.structs.replace(self, columns=FleetColumns(fleet.clusters))


class StaysError(Exception):
    """Nothing is changed; `str()` says why."""

    def __init__(self, message: str, reason: Reason = Reason.UNSCHEDULABLE) -> None:
        super().__init__(message)
        self.reason = reason


class Judged(NamedTuple):
    """The clusters that pass all filters."""

    candidates: list[Candidate]
    """The best first. Without room are those that a filter of the policy rejects and where the workload runs: they keep
    what they have."""
    frame: FleetFrame
    caps: list[Cap]
    """What limits leave to the workload."""
    skews: list[Skew]
    """How evenly its replicas are to be spread."""
    confined: frozenset[str]
    """Those that keep what they have, and get no more."""


def frame_of(workload: Workload, given: Given, candidates: Sequence[Candidate] = ()) -> FleetFrame:
    """Return what clauses read of a workload and of all clusters; the room is known of the candidates."""
    columns = given.columns
    assert columns is not None
    size = len(columns)
    replicas, sources, tiers = np.full(size, np.nan), [""] * size, np.zeros(size)
    for each in candidates:
        row = columns.rows[each.name]
        replicas[row], sources[row], tiers[row] = each.room, each.room_by, each.tier
    room = Room(replicas, tuple(sources))
    return FleetFrame(workload, columns, room, given.now, tiers=tiers, signals=given.signals)


def judge(question: Question, policy: CompiledPolicy, given: Given, verdicts: dict[str, Verdict]) -> Judged:
    """Return the clusters that pass the filters of Karmada and of the policy; note in `verdicts` what is said of each.

    Raises:
        PlacementError: the filters of Karmada reject all clusters.
        StaysError: the policy rejects the workload, or all the clusters that are left.
    """
    found = feasible(question, verdicts, [name for name in FILTERS if name not in policy.without])
    if member_values(policy.inputs):
        _note_members(question.fleet, verdicts)
    frame = frame_of(question.workload, given, found)
    _ask_about_workload(policy, frame)
    confined = _reject(found, policy, frame, verdicts)
    limits = caps(policy, frame, question.fleet.running)
    _reject_full(limits, question.workload, verdicts)
    spreads = skews(policy, frame, question.fleet.running)
    confined |= _reject_outside(spreads, found, verdicts)
    kept = [each for each in found if not verdicts[each.name].rejected_by]
    if not kept:
        message = f"the policy rejects {plural(len(found), 'cluster')}, all that could run the workload"
        raise StaysError(message, Reason.NO_CLUSTER_FITS)
    kept = [msgspec.structs.replace(each, room=0) if each.name in confined else each for each in kept]
    scores = _scores(policy, frame, kept, question.fleet.running)
    ordered = _ordered(kept, confined, scores, question.workload.uid, verdicts)
    return Judged(ordered, frame, limits, spreads, confined)


def _note_members(fleet: Fleet, verdicts: dict[str, Verdict]) -> None:
    """Note how old what is known of the nodes and pods of clusters is, or why nothing is."""
    for cluster in fleet.clusters:
        known, member = verdicts.get(cluster.name), cluster.member
        if known is not None:
            at, problem = (member.at, member.problem) if member is not None else (None, NOBODY_READS)
            verdicts[cluster.name] = msgspec.structs.replace(known, read_at=at, unread=problem)


def _ordered(
    candidates: Sequence[Candidate],
    confined: frozenset[str],
    scores: Mapping[str, float] | None,
    uid: str,
    verdicts: dict[str, Verdict],
) -> list[Candidate]:
    """Return the clusters with the scores of the policy, the best first; without any, in the order of Karmada."""
    if scores is None:
        return sorted(candidates, key=lambda each: (each.tier, each.name in confined))
    for each in candidates:
        verdicts[each.name] = msgspec.structs.replace(verdicts[each.name], score=scores[each.name])
    place = ranks({each.name: None for each in candidates}, uid)
    found = [msgspec.structs.replace(each, score=scores[each.name]) for each in candidates]
    return sorted(found, key=lambda each: (each.tier, each.name in confined, -each.score, place[each.name]))


def _ask_about_workload(policy: CompiledPolicy, frame: FleetFrame) -> None:
    for clause in policy.clauses:
        if not isinstance(clause, CompiledTest) or clause.kind is ClauseKind.FILTER:
            continue
        if bool(clause.evaluate(frame)) is (clause.kind is ClauseKind.HOLD):
            raise StaysError(clause.reason)


def _reject(
    candidates: Sequence[Candidate], policy: CompiledPolicy, frame: FleetFrame, verdicts: dict[str, Verdict]
) -> frozenset[str]:
    """Note which clusters the filters of the policy reject; return those that are spared, as the workload runs there.

    A filter spares them unless it says `also running`, and in any case if it has no answer.
    """
    confined: set[str] = set()
    for clause in policy.clauses:
        if not isinstance(clause, CompiledTest) or clause.kind is not ClauseKind.FILTER:
            continue
        passes = _column(clause.evaluate(frame), frame.size).tolist()
        missing = _column(clause.missing(frame) if clause.missing is not None else False, frame.size).tolist()
        for each in candidates:
            row, known = frame.columns.rows[each.name], verdicts[each.name]
            if passes[row] or known.rejected_by:
                continue
            if each.has > 0 and (missing[row] or not _also_running(clause)):
                confined.add(each.name)
                continue
            why = f"{clause.reason} (a value is missing)" if missing[row] else clause.reason
            verdicts[each.name] = msgspec.structs.replace(known, rejected_by=clause.name, message=why)
    return frozenset(name for name in confined if not verdicts[name].rejected_by)


def _reject_full(limits: Sequence[Cap], workload: Workload, verdicts: dict[str, Verdict]) -> None:
    """Note which clusters may have nothing of the workload by a limit, except where it runs."""
    for cap in limits:
        for name in cap.clusters if not cap.most else ():
            known = verdicts.get(name)
            if known is not None and not known.rejected_by and name not in workload.has:
                verdicts[name] = msgspec.structs.replace(known, rejected_by=cap.clause, message=cap.reason)


def _reject_outside(
    spreads: Sequence[Skew], candidates: Sequence[Candidate], verdicts: dict[str, Verdict]
) -> frozenset[str]:
    """Note which clusters are in no domain of a spread; return those that are spared, as the workload runs there."""
    spared: set[str] = set()
    for spread in spreads:
        for each in candidates:
            known = verdicts[each.name]
            if each.name in spread.domains or known.rejected_by:
                continue
            if each.has > 0:
                spared.add(each.name)
            else:
                verdicts[each.name] = msgspec.structs.replace(known, rejected_by=spread.clause, message=spread.reason)
    return frozenset(spared)


def _column(value: object, size: int) -> BoolArray:
    column: BoolArray = full(value, size)
    return column


def _also_running(clause: CompiledTest) -> bool:
    tree = clause.checked.tree
    return isinstance(tree, syntax.Filter) and tree.also_running


def _scores(
    policy: CompiledPolicy, frame: FleetFrame, candidates: Sequence[Candidate], running: Running | None
) -> dict[str, float] | None:
    """Return the total score of each cluster. None: the policy has no score."""
    if not any(
        isinstance(clause, CompiledScore) or (isinstance(clause, CompiledGrouping) and clause.max_skew is None)
        for clause in policy.clauses
    ):
        return None
    total: FloatArray = np.zeros(len(candidates))
    for _, points in score_parts(policy, frame, candidates, running):
        total += points
    return dict(zip((each.name for each in candidates), total.tolist(), strict=True))


def score_parts(
    policy: CompiledPolicy, frame: FleetFrame, candidates: Sequence[Candidate], running: Running | None
) -> Iterator[tuple[CompiledScore | CompiledGrouping, FloatArray]]:
    """Yield what each clause adds to the score of each candidate, `float64[candidates]`; what is missing adds 0."""
    among = frame.at(np.array([frame.columns.rows[each.name] for each in candidates], np.int64))
    for clause in policy.clauses:
        if isinstance(clause, CompiledScore):
            value = np.nan_to_num(clause.evaluate(among), nan=0.0, posinf=0.0, neginf=0.0) * clause.weight
            yield clause, np.full(among.size, value)
    afresh = frame.workload.fresh or policy.workloads is None or not policy.workloads.keeps_running
    for spread in groupings(policy, frame, hard=False):
        yield spread, score(spread, among, running, {} if afresh else frame.workload.has) * spread.weight
