"""What the decisions of a run meet in a policy: which clauses, and which answers of each condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.status import Code
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.lang.compiling.columns import FALSE, MISSING, TRUE, to_kleene
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, Victim
from kube_policy_scheduler.lang.compiling.expressions import Compiler, Evaluate, own_reads
from kube_policy_scheduler.lang.environment import Item, Pods
from kube_policy_scheduler.lang.types import TRUTH, Depends, Info, Kind
from kube_policy_scheduler.policy.clauses import DomainLimitClause, LimitClause, RequireClause
from kube_policy_scheduler.policy.groupings import SpreadFilter
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.policy.queues import parents_first
from kube_policy_scheduler.tooling.coverage.sites import (
    Outcome,
    Site,
    SpanKey,
    bound_site,
    condition_site,
    equality_of,
    fallback_site,
    is_bound,
    is_condition,
    max_site,
    score_site,
    span_key,
)
from kube_policy_scheduler.tooling.tester.case_runner import Observe
from kube_policy_scheduler.tooling.tester.outcome import TestedPolicy
from kube_policy_scheduler.tooling.tester.suite_file import Case
from kube_policy_scheduler.tooling.tester.suite_file import Kind as CaseKind

Active: TypeAlias = NDArray[np.bool_]
"""`bool[rows]`: where a part takes part in the decision; one element for what is about the pod alone."""

_KLEENE = {Outcome.FALSE: FALSE, Outcome.MISSING: MISSING, Outcome.TRUE: TRUE}


class Answers:
    """Evaluates the expressions of one policy and keeps which outcomes were met."""

    def __init__(self, pods: Pods) -> None:
        self._compiler = Compiler(pods)
        self._sites: dict[int, Site | None] = {}
        self._items: dict[int, tuple[Evaluate, list[Evaluate]]] = {}
        self._equalities: dict[int, typed.Compare | None] = {}
        self._absent: dict[int, typed.Missing] = {}
        self._columns: dict[int, typed.Typed] = {}
        self.seen: set[tuple[Any, Outcome]] = set()
        """By `Site.key`, since it was cleared last."""

    # --- expressions over the frame ----------------------------------------------------------------------

    def visit(self, value: typed.Typed, frame: Frame, active: Active) -> None:
        """Count what a value and all below it answer where it takes part."""
        if not active.any():
            return
        site = self._site(value)
        if site is not None:
            self.see_all(site, self.truth(value, frame), active)
            equality = self._equality(value)
            if equality is not None and (active & (self.truth(equality, frame) == TRUE)).any():
                self.see(site, Outcome.EQUAL)
        match value:
            case typed.Conditional(condition=condition, then=then, otherwise=otherwise):
                self.visit(condition, frame, active)
                which = self.truth(condition, frame)
                self.visit(then, frame, active & (which == TRUE))
                self.visit(otherwise, frame, active & (which == FALSE))
            case typed.Otherwise(left=left, right=right):
                fallback = fallback_site(value)
                if fallback is not None:
                    self.present(fallback, left, frame, active)
                self.visit(left, frame, active)
                if left.info.maybe:
                    self.visit(right, frame, active & self._missing(left, frame))
            case typed.Aggregate(where=where, value=of_each):
                items: Sequence[Any] = _existing(value, frame)
                if where is not None:
                    items = self.over(where, frame, items)
                if of_each is not None:
                    self.over(of_each, frame, items)
            case typed.NodeAggregate(where=where, value=of_each):
                whole = frame.at(slice(None))
                among = np.ones(whole.size, np.bool_)
                if where is not None:
                    self.visit(self._of_rows(where), whole, among)
                    among = among & (self.truth(self._of_rows(where), whole) == TRUE)
                if of_each is not None:
                    self.visit(self._of_rows(of_each), whole, among)
            case typed.ListAggregate(list=listed):
                self.visit(listed, frame, active)
            case _:
                for part in typed.parts(value):
                    self.visit(part, frame, active)

    def _of_rows(self, value: typed.Typed) -> typed.Typed:
        """Return a value of each node that an aggregate goes over as a column, always the same one."""
        known = self._columns.get(id(value))
        if known is None:
            known = self._columns[id(value)] = typed.of_rows(value)
        return known

    def _equality(self, value: typed.Typed) -> typed.Compare | None:
        if id(value) not in self._equalities:
            self._equalities[id(value)] = equality_of(value)
        return self._equalities[id(value)]

    def truth(self, value: typed.Typed, frame: Frame) -> NDArray[np.uint8]:
        """Return a condition as three-valued column, of the frame's rows or of one element."""
        answer = self._compiler.compile(value)(frame)
        column: NDArray[np.uint8] = np.atleast_1d(answer if value.info.maybe else to_kleene(answer))
        return column

    def _missing(self, value: typed.Typed, frame: Frame) -> Active:
        """Return where a value is missing."""
        if value.info.type.kind is Kind.TRUTH:
            return np.equal(self.truth(value, frame), MISSING)
        found: Active = np.atleast_1d(self._compiler.compile(self._asked(value))(frame))
        return found

    def is_missing(self, value: typed.Typed, frame: Frame) -> bool:
        """Return whether a value of the pod alone is missing."""
        return bool(value.info.maybe and self._missing(value, frame).any())

    def _asked(self, value: typed.Typed) -> typed.Missing:
        """Return the question whether a value is missing, always the same one for the same value."""
        known = self._absent.get(id(value))
        if known is None:
            info = Info(TRUTH, value.info.shape, False, value.info.depends)
            known = self._absent[id(value)] = typed.Missing(info, value.span, False, value)
        return known

    def present(self, site: Site, value: typed.Typed, frame: Frame, active: Active) -> None:
        """Count whether a value is there."""
        missing = self._missing(value, frame)
        self.see_all(site, np.where(missing, MISSING, TRUE).astype(np.uint8), active)

    # --- expressions over existing pods ------------------------------------------------------------------

    def over(self, value: typed.Typed, frame: Frame, items: Sequence[Any]) -> list[Any]:
        """Count what a value and all below it answer for existing pods; return those for which it is true."""
        if not items:
            return []
        site = self._site(value)
        chosen: list[Any] = []
        if value.info.type.kind is Kind.TRUTH:
            chosen = self._holding(value, frame, items)
        if site is not None:
            absent = self._holding(self._asked(value), frame, items) if value.info.maybe else []
            for outcome, many in ((Outcome.TRUE, len(chosen)), (Outcome.MISSING, len(absent))):
                if many:
                    self.see(site, outcome)
            if len(chosen) + len(absent) < len(items):
                self.see(site, Outcome.FALSE)
        match value:
            case typed.Conditional(condition=condition, then=then, otherwise=otherwise):
                holds = self.over(condition, frame, items)
                others = set(map(id, holds))
                self.over(then, frame, holds)
                self.over(otherwise, frame, [item for item in items if id(item) not in others])
            case typed.Otherwise(left=left, right=right):
                missing = self._holding(self._asked(left), frame, items) if left.info.maybe else []
                fallback = fallback_site(value)
                if fallback is not None:
                    for outcome, many in ((Outcome.MISSING, len(missing)), (Outcome.TRUE, len(items) - len(missing))):
                        if many:
                            self.see(fallback, outcome)
                self.over(left, frame, items)
                self.over(right, frame, missing)
            case typed.ListAggregate(list=listed):
                self.over(listed, frame, items)
            case _:
                for part in typed.parts(value):
                    self.over(part, frame, items)
        return chosen

    def _holding(self, value: typed.Typed, frame: Frame, items: Sequence[Any]) -> list[Any]:
        """Return the existing pods for which a truth is surely true."""
        made = self._items.get(id(value))
        if made is None:
            made = self._items[id(value)] = self._compiler.item(value)
        holds, captured = made
        values = tuple(capture(frame) for capture in captured)
        return [item for item in items if holds(_capturing(item, values, frame))]

    # --- counting ----------------------------------------------------------------------------------------

    def _site(self, value: typed.Typed) -> Site | None:
        if id(value) not in self._sites:
            self._sites[id(value)] = condition_site(value) if is_condition(value) else None
        return self._sites[id(value)]

    def see_all(self, site: Site, answers: NDArray[np.uint8], active: Active) -> None:
        """Count three-valued answers where they take part."""
        for outcome, code in _KLEENE.items():
            if (active & (answers == code)).any():
                self.see(site, outcome)

    def see(self, site: Site, outcome: Outcome) -> None:
        """Count one outcome."""
        self.seen.add((site.key, outcome))


def templates(frame: Frame) -> list[Any]:
    """Return the templates of the pods that are on nodes."""
    return list(frame.cluster.counters.placed_templates)


def _existing(value: typed.Typed, frame: Frame) -> list[Any]:
    """Return what an expression goes over: templates, or pods where it reads what differs between those of one."""
    if typed.reads_its_node(value):
        return [Victim(pod, (), frame) for pod in frame.cluster.pods.values()]
    if not value.info.depends & Depends.RUN and not own_reads(value):
        return [Item(template, (), template.own) for template in templates(frame)]
    there = frame.cluster.pod_states().on_rows()
    return [Item(pod.template, (), pod, frame.now) for _, pods in there for pod in pods]


def _capturing(item: Any, values: tuple[Any, ...], frame: Frame) -> Any:
    """Return an existing pod as fields read it, with what the expression captures from the decision."""
    if isinstance(item, Victim):
        return Victim(item.pod, values, frame)
    return Item(item.template, values, item.pod, item.now)


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
        self._watched_queues: dict[int, tuple[PolicySet, _WatchedQueues]] = {}

    def governing(self, frame: Frame, policy_set: PolicySet) -> None:
        """Count the `for pods` lines that are asked about a pod, until one of them takes it."""
        for policy in policy_set.policies:
            if frame.pod.scheduler_name in policy_set.served_by(policy):
                self._of(policy).governs(frame)
                if policy.governs(frame):
                    return

    def queue_found(self, frame: Frame, policy_set: PolicySet) -> None:
        """Count the queues that are asked about a pod, and what the limits of those that take it say."""
        if policy_set.queues is not None:
            self._of_queues(policy_set).find(frame)

    def reclaiming(self, frame: Frame, policy_set: PolicySet, policy: Policy) -> None:
        """Count the `reclaim` that applies to a pod without a node, and the pods that it may evict."""
        if policy_set.queues is not None:
            self._of_queues(policy_set).reclaim(frame, policy)

    def _of_queues(self, policy_set: PolicySet) -> _WatchedQueues:
        known = self._watched_queues.get(id(policy_set))
        if known is None:
            known = self._watched_queues[id(policy_set)] = policy_set, _WatchedQueues(policy_set, self)
        return known[1]

    def decided(self, frame: Frame, policy: Policy) -> None:
        """Count what the policy says when it decides a pod; call it before the decision changes the cluster."""
        self._of(policy).decide(frame)

    def permitted(self, frame: Frame, policy: Policy) -> None:
        """Count the gangs that a placed pod is asked for."""
        self._of(policy).visit_kind(frame, ClauseKind.GANG)

    def backfilling(self, frame: Frame, policy: Policy) -> None:
        """Count what `backfill` says of a pod that waits with others."""
        self._of(policy).backfill(frame)

    def queued(self, frame: Frame, policy: Policy) -> None:
        """Count what the policy says about the position of a pod in the queue."""
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
            if isinstance(plugin, RequireClause | LimitClause | DomainLimitClause | SpreadFilter)
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

    def backfill(self, frame: Frame) -> None:
        """Count whether room is reserved for a pod, and how long it runs."""
        found = self._policy.compiled.checked.backfill
        if found is not None:
            self._clauses_seen.add(span_key(found.tree.span))
            for value in (found.condition, found.lasts):
                if value is not None:
                    self._answers.visit(value, frame, _ONE)
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
            Whether no change of the cluster would help, which ends it at once; and whether the pod is rejected at all.
        """
        rejected = False
        for wanted in (ClauseKind.REQUIRE, ClauseKind.LIMIT):  # as profiles have them
            for clause, compiled in self._clauses:
                if clause.kind is not wanted:
                    continue
                self._clause(clause, frame, compiled)
                rejection = probe(frame, self._plugins[id(compiled)]).rejection
                if rejection is not None:
                    if rejection.code is not Code.UNSCHEDULABLE:
                        return True, True
                    rejected = True
        return False, rejected

    def _clause(self, clause: checked.Clause, frame: Frame, compiled: CompiledClause) -> None:
        active: Active = np.ones(frame.size, np.bool_) if _per_node(clause) else _ONE
        condition = clause.condition
        if condition is not None:
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
            case checked.Quota(measure=measure, key=key, bound=bound, of_pods=of_pods):
                if key is not None:
                    self._answers.visit(key, frame, active)
                self._answers.visit(bound, frame, active)
                for over in (measure, of_pods):
                    if over is not None:
                        self._answers.over(over, frame, [*_existing(over, frame), Item(frame.template, (), frame.pod)])
            case checked.Gang(key=key, size=size, roles=roles):
                for value in (key, size, *(value for role in roles for value in (role.number, role.test))):
                    self._answers.visit(value, frame, active)
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


class _WatchedQueues:
    """The queues and the `reclaim` statements of a set, with evaluations of their sites."""

    def __init__(self, policy_set: PolicySet, probe: Probe) -> None:
        assert policy_set.queues is not None
        self._rules = policy_set.queues
        self._probe = probe
        self._answers = Answers(probe.pods)
        policies = [policy.compiled.checked for policy in policy_set.policies]
        self._queues = parents_first(declared_queues(policies))
        self._reclaims = [each for policy in policies if policy.canary is None for each in policy.reclaims]
        self._seen: set[SpanKey] = set()

    def find(self, frame: Frame) -> None:
        """Count what each queue that is asked says of a pod, as `QuotaTree.find` asks them."""
        above: str | None = None
        for queue in self._queues:
            if queue.tree.parent != above:
                continue
            if queue.pods is not None:
                self._answers.visit(queue.pods, frame, _ONE)
                if not (self._answers.truth(queue.pods, frame) == TRUE).any():
                    continue
            if queue.key is not None:
                self._answers.visit(queue.key, frame, _ONE)
                if self._answers.is_missing(queue.key, frame):
                    continue
            above = queue.name
            self._seen.add(span_key(queue.tree.span))
            if queue.maximum:
                self._limit(queue, frame)
        self._count()

    def _limit(self, declared: checked.QueueDeclaration, frame: Frame) -> None:
        """Count whether the `max` of a queue that takes the pod lets it pass."""
        usage = frame.cluster.track_usage(self._rules.tree)
        found = usage.quota_of(frame.template)
        for queue in found.path() if found is not None else ():
            if queue.name.partition("/")[0] == declared.name:
                amounts = usage.amounts(frame.pod)
                rejected = any(queue.used[r] + amount > queue.maximum[r] for r, amount in amounts)
                self._answers.see(max_site(declared), Outcome.FALSE if rejected else Outcome.TRUE)

    def reclaim(self, frame: Frame, policy: Policy) -> None:
        """Count the first `reclaim` that allows a pod for which no node is left."""
        usage = frame.cluster.track_usage(self._rules.tree)
        queue = usage.quota_of(frame.template)
        if queue is None or len(evaluate(frame, policy.profile).feasible):
            return
        for reclaim in self._reclaims:
            if reclaim.condition is not None:
                self._answers.visit(reclaim.condition, frame, _ONE)
                if not (self._answers.truth(reclaim.condition, frame) == TRUE).any():
                    continue
            self._seen.add(span_key(reclaim.tree.span))
            if reclaim.evict is not None:
                others = [p for p in frame.cluster.pods.values() if usage.quota_of(p.template) not in (None, queue)]
                self._answers.over(reclaim.evict, frame, [Victim(pod, (), frame) for pod in others])
            break
        self._count()

    def _count(self) -> None:
        self._probe.outcomes.update(self._answers.seen)
        self._probe.clauses.update(self._seen)
        self._answers.seen.clear()
        self._seen.clear()


def _per_node(clause: checked.Clause) -> bool:
    """Return whether a clause asks about each node."""
    return clause.kind in (ClauseKind.FILTER, ClauseKind.SCORE, ClauseKind.SPREAD, ClauseKind.PACK)


def watched_by(probe: Probe, policy_set: PolicySet) -> Observe:
    """Return what a run calls before each decision, so that the probe counts what the policies say."""

    def observe(case: Case, frame: Frame, tested: TestedPolicy) -> None:
        probe.governing(frame, policy_set)
        probe.queue_found(frame, policy_set)
        if case.kind is CaseKind.QUEUE:
            probe.queued(frame, tested.policy)
            return
        probe.decided(frame, tested.policy)
        if tested.policy.hold_reason(frame) is None:
            probe.permitted(frame, tested.policy)
            probe.reclaiming(frame, policy_set, tested.policy)
            if case.kind is CaseKind.SEQUENCE:
                probe.backfilling(frame, tested.policy)

    return observe
