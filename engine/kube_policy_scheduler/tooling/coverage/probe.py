"""Watches decisions from beside: evaluates every site of the policies once more and counts the outcomes.

The compiled clauses that decide are left as they are; what is evaluated here is compiled separately, from the same
typed tree, and reads the same frames.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from kube_policy_scheduler.framework.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.probe import probe
from kube_policy_scheduler.framework.status import Code
from kube_policy_scheduler.lang import checked
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.columns import TRUE, to_kleene
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, Victim
from kube_policy_scheduler.lang.environment import Item, Pods
from kube_policy_scheduler.policy.clauses import LimitClause, RequireClause
from kube_policy_scheduler.policy.groupings import SpreadFilter
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.coverage.answers import Active, Answers, templates
from kube_policy_scheduler.tooling.coverage.sites import Outcome, SpanKey, bound_site, is_bound, score_site, span_key

_ONE: Active = np.ones(1, np.bool_)


class Probe:
    """Counts what decisions meet, over all policies of a set."""

    def __init__(self, pods: Pods) -> None:
        """Take what goes over existing pods on behalf of the language."""
        self.pods = pods
        self.outcomes: Counter[tuple[Any, Outcome]] = Counter()
        """Decisions by `Site.key` and outcome."""
        self.clauses: Counter[SpanKey] = Counter()
        """Decisions in which a clause had a say at any node, by the clause's span."""
        self._watched: dict[int, tuple[Policy, _Watched]] = {}

    def governing(self, frame: Frame, policy_set: PolicySet) -> None:
        """Count the `for pods` lines that are asked about a pod, until one of them takes it."""
        for policy in policy_set.policies:
            if frame.pod.scheduler_name in policy_set.served_by(policy):
                self._of(policy).governs(frame)
                if policy.governs(frame):
                    return

    def decided(self, frame: Frame, policy: Policy) -> None:
        """Count what the policy says when it decides a pod; call it before the decision changes the cluster."""
        self._of(policy).decide(frame)

    def permitted(self, frame: Frame, policy: Policy) -> None:
        """Count the gangs that a placed pod is asked for."""
        self._of(policy).visit_kind(frame, ClauseKind.GANG)

    def queued(self, frame: Frame, policy: Policy) -> None:
        """Count what the policy says about when a pod's turn is."""
        self._of(policy).queue(frame)

    def clear(self) -> None:
        """Forget what was counted."""
        self.outcomes.clear()
        self.clauses.clear()

    def _of(self, policy: Policy) -> _Watched:
        known = self._watched.get(id(policy))
        if known is None:
            known = self._watched[id(policy)] = policy, _Watched(policy, self)
        return known[1]


class _Watched:
    """One policy, with evaluations of its sites."""

    def __init__(self, policy: Policy, probe: Probe) -> None:
        self._policy = policy
        self._probe = probe
        self._answers = Answers(probe.pods)
        self._clauses = tuple(zip(policy.compiled.checked.clauses, policy.compiled.clauses, strict=True))
        # the policy's own: what a `limit` knows of the cluster's counters is kept in its plugin
        self._plugins = {
            id(plugin.clause): plugin
            for plugin in policy.profile.filters
            if isinstance(plugin, RequireClause | LimitClause | SpreadFilter)
        }
        self._clauses_seen: set[SpanKey] = set()

    # --- decisions ---------------------------------------------------------------------------------------

    def governs(self, frame: Frame) -> None:
        """Count the `for pods` line."""
        condition = self._policy.compiled.checked.condition
        if condition is not None:
            self._clauses_seen.add(span_key(condition.span))
            self._answers.visit(condition, frame, _ONE)
            self._count()

    def decide(self, frame: Frame) -> None:
        """Count one decision, stage by stage, as the reference path takes it."""
        if not self._held(frame):
            self._place(frame)
        self._count()

    def _held(self, frame: Frame) -> bool:
        """Count the `hold` clauses up to the one that holds the pod."""
        for clause, compiled in self._clauses:
            if isinstance(clause, checked.Test) and clause.kind is ClauseKind.HOLD:
                self._clause(clause, frame, compiled)
                if self._answers.truth(clause.value, frame) == TRUE:
                    return True
        return False

    def queue(self, frame: Frame) -> None:
        """Count what holds a pod, and where nothing does, what orders it."""
        if not self._held(frame):
            self.visit_kind(frame, ClauseKind.ORDER)
        self._count()

    def visit_kind(self, frame: Frame, kind: ClauseKind) -> None:
        """Count the clauses of one kind."""
        for clause, compiled in self._clauses:
            if clause.kind is kind:
                self._clause(clause, frame, compiled)
        self._count()

    def _place(self, frame: Frame) -> None:
        unresolvable, rejected = self._pre_filter(frame)
        if unresolvable:
            return
        scoring: list[tuple[checked.Clause, CompiledClause]] = []
        for clause, compiled in self._clauses:
            match clause.kind:
                case ClauseKind.FILTER if not rejected:
                    self._clause(clause, frame, compiled)
                case ClauseKind.SPREAD if is_bound(clause):
                    if not rejected:
                        self._clause(clause, frame, compiled)
                case ClauseKind.SCORE | ClauseKind.SPREAD | ClauseKind.PACK | ClauseKind.PREEMPT:
                    scoring.append((clause, compiled))
                case _:
                    pass
        if not scoring:
            return
        feasible = evaluate(frame, self._policy.profile).feasible
        for clause, compiled in scoring:
            if clause.kind is ClauseKind.PREEMPT:
                if not len(feasible):
                    self._clause(clause, frame, compiled)
            elif len(feasible):
                self._clause(clause, frame.at(feasible), compiled)

    def _pre_filter(self, frame: Frame) -> tuple[bool, bool]:
        """Count what is asked about the pod as a whole.

        Returns:
            Whether no change of the cluster would help, which ends it at once; and whether the pod is refused at all.
        """
        rejected = False
        for wanted in (ClauseKind.REQUIRE, ClauseKind.LIMIT):  # as profiles have them
            for clause, compiled in self._clauses:
                if clause.kind is not wanted:
                    continue
                self._clause(clause, frame, compiled)
                refusal = probe(frame, self._plugins[id(compiled)]).rejection
                if refusal is not None:
                    if refusal.code is not Code.UNSCHEDULABLE:
                        return True, True
                    rejected = True
        return False, rejected

    def _clause(self, clause: checked.Clause, frame: Frame, compiled: CompiledClause) -> None:
        active: Active = np.ones(frame.size, np.bool_) if _per_node(clause) else _ONE
        condition = None if isinstance(clause, checked.Ordering) else clause.condition
        if condition is not None and clause.kind is not ClauseKind.HOLD:
            self._answers.visit(condition, frame, active)
            active = active & (self._answers.truth(condition, frame) == TRUE)
        if not active.any():
            return
        self._clauses_seen.add(span_key(clause.tree.span))
        if is_bound(clause):
            self._bound(clause, compiled, frame)
        match clause:
            case checked.Test(value=value):
                score = score_site(clause)
                if score is not None:
                    self._answers.present(score, value, frame, active)
                self._answers.visit(value, frame, active)
            case checked.Grouping(key=key):
                self._answers.visit(key, frame, active)
            case checked.Ordering(keys=keys):
                for key, _ in keys:
                    self._answers.visit(key, frame, active)
            case checked.Quota(measure=measure, key=key, bound=bound):
                self._answers.visit(key, frame, active)
                self._answers.visit(bound, frame, active)
                if measure is not None:
                    self._answers.over(measure, frame, [Item(template) for template in templates(frame)])
            case checked.Gang(key=key, size=size):
                self._answers.visit(key, frame, active)
                self._answers.visit(size, frame, active)
            case checked.Preemption(evict=evict):
                if evict is not None:
                    lower = [p for p in frame.cluster.pods.values() if p.priority < frame.pod.priority]
                    self._answers.over(evict, frame, [Victim(pod, (), frame) for pod in lower])

    def _bound(self, clause: checked.Clause, compiled: CompiledClause, frame: Frame) -> None:
        site, asked = bound_site(clause), probe(frame, self._plugins[id(compiled)])
        if asked.rejection is not None:
            self._answers.see(site, Outcome.FALSE)
        elif asked.applies:
            ok = asked.passes()
            self._answers.see_all(site, to_kleene(ok), np.ones(len(ok), np.bool_))
        else:
            self._answers.see(site, Outcome.TRUE)

    def _count(self) -> None:
        """Add what one decision met; what it met twice counts once."""
        self._probe.outcomes.update(self._answers.seen)
        self._probe.clauses.update(self._clauses_seen)
        self._answers.seen.clear()
        self._clauses_seen.clear()


def _per_node(clause: checked.Clause) -> bool:
    """Return whether a clause asks about each node."""
    return clause.kind in (ClauseKind.FILTER, ClauseKind.SCORE, ClauseKind.SPREAD, ClauseKind.PACK)
