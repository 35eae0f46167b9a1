"""What the decisions about workloads meet in policies: which clauses have a say over clusters, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from kube_policy_scheduler.fleet.columns import FleetColumns, FleetFrame, Room
from kube_policy_scheduler.fleet.judging import Given, frame_of
from kube_policy_scheduler.fleet.limits import caps
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Workload
from kube_policy_scheduler.fleet.placement.filters import FILTERS
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import checked
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.columns import TRUE
from kube_policy_scheduler.lang.compiling.compiled import CompiledPolicy
from kube_policy_scheduler.lang.syntax import Statement
from kube_policy_scheduler.lang.typed import Typed
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.tooling.coverage.probe import Active, Answers, Probe
from kube_policy_scheduler.tooling.coverage.sites import Outcome as Answer
from kube_policy_scheduler.tooling.coverage.sites import SpanKey, bound_site, score_site, span_key
from kube_policy_scheduler.tooling.tester.case_runner import ObserveWorkload

_ONE: Active = np.ones(1, np.bool_)
_SPREADS = (ClauseKind.SCORE, ClauseKind.SPREAD, ClauseKind.PACK)


def watched_workloads(probe: Probe) -> ObserveWorkload:
    """Return what a run calls before each decision about a workload, so that the probe counts what policies say."""
    known: dict[int, tuple[CompiledPolicy, _Watched]] = {}

    def watched(policy: CompiledPolicy) -> _Watched:
        if id(policy) not in known:
            known[id(policy)] = policy, _Watched(policy, probe)
        return known[id(policy)][1]

    def observe(workload: Workload, fleet: Fleet, policies: FleetPolicies, given: Given, *, moves: bool) -> None:
        governing = policies.governing(workload)
        for policy in policies.policies:
            watched(policy).governs(workload)
            if policy is governing:
                break
        if governing is not None:
            watched(governing).decide(workload, fleet, policies.decide(workload, fleet, given), given, moves=moves)

    return observe


class _Watched:
    """One policy of workloads, with evaluations of its sites."""

    def __init__(self, policy: CompiledPolicy, probe: Probe) -> None:
        self._policy, self._probe = policy, probe
        self._answers = Answers(probe.pods)
        self._seen: set[SpanKey] = set()

    def governs(self, workload: Workload) -> None:
        """Count the `for workloads` line."""
        condition = self._policy.checked.condition
        if condition is not None:
            self._seen.add(span_key(condition.span))
            self._answers.visit(condition, _as_frame(frame_of(workload, Given(columns=FleetColumns(())))), _ONE)
            self._count()

    def decide(self, workload: Workload, fleet: Fleet, outcome: Outcome, given: Given, *, moves: bool) -> None:
        """Count one decision, in the order in which its clauses are asked.

        Args:
            workload: what is decided.
            fleet: the clusters.
            outcome: what is decided.
            given: the time, metrics and columns of the clusters.
            moves: whether replicas may move now.
        """
        frame = _with_room(frame_of(workload, given), outcome)
        rejected = {name: each.rejected_by for name, each in outcome.verdicts.items()}
        alive = np.array([rejected.get(name, "-") not in (*FILTERS, "-") for name in frame.columns.rows], np.bool_)
        self._of_kinds((ClauseKind.ORDER,), frame, alive)
        if alive.any() and not self._stays(frame):
            self._place(frame, alive, outcome, fleet)
            if moves:
                self._moves(frame)
        self._count()

    def _stays(self, frame: FleetFrame) -> bool:
        """Count what is asked about the workload; return whether it is not decided because of that."""
        for clause in self._policy.checked.clauses:
            if isinstance(clause, checked.Test) and clause.kind in (ClauseKind.HOLD, ClauseKind.REQUIRE):
                self._clause(clause, frame, _ONE)
                is_true = bool((self._answers.truth(clause.value, _as_frame(frame)) == TRUE).any())
                if is_true is (clause.kind is ClauseKind.HOLD):
                    return True
        return False

    def _place(self, frame: FleetFrame, alive: Active, outcome: Outcome, fleet: Fleet) -> None:
        policy = self._policy
        limits = caps(policy, frame, fleet.running)
        for clause, compiled in zip(policy.checked.clauses, policy.clauses, strict=True):
            if clause.kind in (ClauseKind.FILTER, ClauseKind.LIMIT):
                self._clause(clause, frame, alive if clause.kind is ClauseKind.FILTER else _ONE)
            if isinstance(clause, checked.WorkloadLimit):
                mine = [cap.most for cap in limits if cap.clause == compiled.name]
                if span_key(clause.tree.span) in self._seen:
                    leaves_all = all(most >= frame.workload.replicas for most in mine)
                    self._answers.see(bound_site(clause), Answer.TRUE if leaves_all else Answer.FALSE)
            gone = {name for name, each in outcome.verdicts.items() if each.rejected_by == compiled.name}
            alive = alive & np.array([name not in gone for name in frame.columns.rows], np.bool_)
        if not alive.any():
            return
        among = frame.at(np.flatnonzero(alive))
        self._of_kinds(_SPREADS, among, np.ones(among.size, np.bool_))
        rules = policy.checked.workloads
        for choose in rules.chooses if rules is not None else ():
            if self._applies(choose.condition, choose.tree, frame):
                self._visit((choose.fewest, choose.most, choose.least, choose.most_places, choose.most_each), frame)
                break
        for divide in rules.divides if rules is not None else ():
            if self._applies(divide.condition, divide.tree, frame):
                self._visit((divide.least, divide.most, *(level.value for level in divide.levels)), among)
                break

    def _moves(self, frame: FleetFrame) -> None:
        rules = self._policy.checked.workloads
        for each in rules.rebalances if rules is not None else ():
            self._seen.add(span_key(each.tree.span))
            self._visit((each.condition,), frame)

    def _applies(self, condition: Typed | None, tree: Statement, frame: FleetFrame) -> bool:
        if condition is not None:
            self._visit((condition,), frame)
            if not (self._answers.truth(condition, _as_frame(frame)) == TRUE).any():
                return False
        self._seen.add(span_key(tree.span))
        return True

    def _visit(self, values: Sequence[Typed | None], frame: FleetFrame) -> None:
        for value in values:
            if value is not None:
                self._answers.visit(value, _as_frame(frame), np.ones(frame.size, np.bool_))

    def _of_kinds(self, kinds: Sequence[ClauseKind], frame: FleetFrame, active: Active) -> None:
        for clause in self._policy.checked.clauses:
            if clause.kind in kinds:
                self._clause(clause, frame, active)

    def _clause(self, clause: checked.Clause, frame: FleetFrame, active: Active) -> None:
        condition = clause.condition
        if condition is not None:
            self._answers.visit(condition, _as_frame(frame), active)
            active = active & (self._answers.truth(condition, _as_frame(frame)) == TRUE)
        if not active.any():
            return
        self._seen.add(span_key(clause.tree.span))
        score = score_site(clause) if isinstance(clause, checked.Test) else None
        if score is not None and isinstance(clause, checked.Test):
            self._answers.present(score, clause.value, _as_frame(frame), active)
        for value in checked.values_of(clause):
            if value is not condition:
                self._answers.visit(value, _as_frame(frame), active)

    def _count(self) -> None:
        """Add what one decision met; what it met twice counts once."""
        self._probe.outcomes.update(self._answers.seen)
        self._probe.clauses.update(self._seen)
        self._answers.seen.clear()
        self._seen.clear()


def _as_frame(frame: FleetFrame) -> Frame:
    """Return the frame as expressions take it: a fleet's is in the place of a cluster's."""
    return cast("Frame", frame)


def _with_room(frame: FleetFrame, outcome: Outcome) -> FleetFrame:
    """Return the frame with the room and the tiers that were found for the decision."""
    rooms, tiers, sources = np.full(frame.size, np.nan), np.zeros(frame.size), [""] * frame.size
    for name, verdict in outcome.verdicts.items():
        row = frame.columns.rows[name]
        tiers[row], sources[row] = verdict.tier, verdict.room_by
        if verdict.room is not None:
            rooms[row] = verdict.room
    return FleetFrame(
        frame.workload, frame.columns, Room(rooms, tuple(sources)), frame.now, tiers=tiers, signals=frame.signals
    )
