"""One policy as the framework uses it: a profile of plugins, and its rules for queue and permit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b
from weakref import WeakKeyDictionary

import msgspec

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.builtins.metrics import queries
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.previous_nodes import workload
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.framework.choice import Ties
from kube_policy_scheduler.framework.default_profile import kubernetes_filters, kubernetes_scores
from kube_policy_scheduler.framework.evaluate.diagnosis import by_policy
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.plugin import FilterPlugin, Weighted
from kube_policy_scheduler.framework.profile import PreemptionRule, Profile
from kube_policy_scheduler.framework.queue.backfill_rule import BackfillRule
from kube_policy_scheduler.framework.queue.queued_pod import (
    FairPosition,
    QueuedPod,
    QueuePosition,
    priority_position,
    priority_sort,
)
from kube_policy_scheduler.framework.quota import QuotaRules
from kube_policy_scheduler.lang.checked import Canary, ClauseKind
from kube_policy_scheduler.lang.compiling.compiled import (
    CompiledClause,
    CompiledGang,
    CompiledGrouping,
    CompiledOrder,
    CompiledPolicy,
    CompiledPreemption,
    CompiledQuota,
    CompiledRebalance,
    CompiledScore,
    CompiledTest,
)
from kube_policy_scheduler.lang.compiling.policy import namespace_test
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.policy.clauses import (
    DomainLimitClause,
    FilterClause,
    LimitClause,
    RequireClause,
    ScoreClause,
    events_of,
)
from kube_policy_scheduler.policy.gangs import requirement_of
from kube_policy_scheduler.policy.groupings import SpreadFilter, grouping_score
from kube_policy_scheduler.policy.pod_groups import COSCHEDULING_LABEL, native_group
from kube_policy_scheduler.policy.queues import with_queues


class Policy(msgspec.Struct, frozen=True, eq=False, dict=True, weakref=True):
    """A policy that decides."""

    compiled: CompiledPolicy
    profile: Profile
    """Default filters first, then the policy's; compared by identity, so kept answers end with the policy."""
    stable: Policy | None = None
    """The policy that it is a canary of."""

    @cached_property
    def _requirements(self) -> WeakKeyDictionary[PodTemplate, tuple[GangRequirement, ...]]:
        return WeakKeyDictionary()

    @property
    def name(self) -> str:
        """Return the policy's name."""
        return self.compiled.name

    @property
    def owner(self) -> str:
        """Return who wrote it; "": the administrator."""
        return self.compiled.checked.owner

    @property
    def own_name(self) -> str:
        """Return the name that it has among the policies of its owner."""
        return self.compiled.checked.own_name

    @property
    def scheduler(self) -> str | None:
        """Return the schedulerName it serves; None: the daemon's."""
        return self.compiled.scheduler

    @property
    def priority(self) -> int:
        """Return which policy wins where several would govern a pod: the highest."""
        return self.compiled.priority

    @property
    def clauses(self) -> tuple[CompiledClause, ...]:
        """Return the clauses as written."""
        return self.compiled.clauses

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """Return the metric queries that it reads."""
        return queries(self.compiled.inputs)

    @property
    def canary(self) -> Canary | None:
        """Return what makes it a canary, None where it is none."""
        return self.compiled.canary

    def joined(self, stable: Policy | None) -> Policy:
        """Return the canary of a stable policy."""
        return msgspec.structs.replace(self, stable=stable)

    def with_queues(self, rules: QuotaRules) -> Policy:
        """Return the policy with quotas with borrowing."""
        return msgspec.structs.replace(self, profile=with_queues(self.profile, rules))

    def with_gangs(self, gangs_of: Callable[[Frame], Sequence[GangRequirement]]) -> Policy:
        """Return the policy whose pods evict these gangs as a whole."""
        return msgspec.structs.replace(self, profile=msgspec.structs.replace(self.profile, gangs_of=gangs_of))

    def governs(self, frame: Frame) -> bool:
        """Return whether it is for this pod; only `frame.pod` is looked at. The scheduler's name is not asked for."""
        if self.compiled.governs is not None and not self.compiled.governs(frame):
            return False
        canary = self.canary
        return canary is None or takes(frame, share=canary.share, salt=canary.of, gangs=self._gangs_of_both)

    @cached_property
    def may_govern(self) -> Callable[[PodTemplate], bool]:
        """Return the test of templates whether it may govern some pod in the namespace of the template."""
        return namespace_test(self.compiled.checked.governs, environment())

    @cached_property
    def distinguishes_pods(self) -> bool:
        """Return whether it may govern one pod of a template and not another."""
        condition, canary = self.compiled.checked.governs, self.canary
        by_pod = condition is not None and bool(condition.info.depends & ~Depends.TEMPLATE)
        return by_pod or (canary is not None and canary.share < 1)

    @cached_property
    def _gangs_of_both(self) -> tuple[CompiledGang, ...]:
        return (*(self.stable.gangs if self.stable is not None else ()), *self.gangs)

    # --- queue -------------------------------------------------------------------------------------------

    @cached_property
    def holds(self) -> tuple[CompiledTest, ...]:
        """Return the `hold` clauses."""
        return tuple(c for c in self.clauses if isinstance(c, CompiledTest) and c.kind is ClauseKind.HOLD)

    def holding(self, frame: Frame) -> CompiledTest | None:
        """Return the `hold` clause for which the pod waits outside the active queue, or None."""
        return next((clause for clause in self.holds if clause.evaluate(frame)), None)

    def hold_reason(self, frame: Frame) -> str | None:
        """Return why the pod waits outside the active queue, or None."""
        clause = self.holding(frame)
        return clause.reason if clause is not None else None

    def held_by(self, clause: CompiledTest) -> str:
        """Return what is said of pods that a `hold` clause holds."""
        reason = clause.reason.removesuffix(".")
        unnamed = [clause.name] if clause.has_own_words else []
        return f"{reason}. {by_policy('Held', self.name, unnamed)}"

    @cached_property
    def orders(self) -> tuple[CompiledOrder, ...]:
        """Return the `order by` clauses; the first whose condition holds orders a pod."""
        return tuple(clause for clause in self.clauses if isinstance(clause, CompiledOrder))

    def order_of(self, frame: Frame) -> CompiledOrder | None:
        """Return the `order by` clause that orders a pod; None: Kubernetes' order."""
        return next((each for each in self.orders if each.condition is None or each.condition(frame)), None)

    def position(self, queued: QueuedPod, frame: Frame) -> QueuePosition:
        """Return the position of a pod that it governs in the queue: as `order by` says, or as Kubernetes does."""
        order = self.order_of(frame)
        if order is None:
            return priority_position(queued)
        queues = self.profile.queues
        if order.share is not None and queues is not None:
            usage = frame.cluster.track_usage(queues.tree)
            queue = usage.quota_of(frame.template)
            fair = FairPosition(usage, queue, order.share)
            return QueuePosition(self._line(order), (order.evaluate(frame), *priority_sort(queued)), fair=fair)
        line = self._line(order)
        backfill = self.backfill if order.strict else None
        strict = order.strict and (backfill is None or self._reserves(frame))
        if order.over_time is None:
            key = (order.evaluate(frame), *priority_sort(queued))
            return QueuePosition(line, key, strict=strict, backfill=backfill)
        bases, slopes, until = order.over_time(frame)  # by the wall clock, which policies ask
        if frame.ahead and slopes:
            parts = zip(bases, slopes, strict=True)
            bases = tuple(base + slope * frame.ahead if slope else base for base, slope in parts)
        return QueuePosition(line, (bases, *priority_sort(queued)), slopes, until - frame.ahead, strict, backfill)

    @cached_property
    def backfill(self) -> BackfillRule | None:
        """Return what lets pods of a strict order start before one that waits; None: nothing."""
        found = self.compiled.backfill
        if found is None:
            return None
        return BackfillRule(found.text, lambda frame: float(found.lasts(frame)), found.most_seconds)

    def _reserves(self, frame: Frame) -> bool:
        """Return whether room is reserved for a pod that waits as the first of a strict order, by `backfill`."""
        found = self.compiled.backfill
        return found is not None and (found.condition is None or bool(found.condition(frame)))

    def _line(self, order: CompiledOrder) -> str:
        return self.name if len(self.orders) == 1 else f"{self.name}: {order.name}"

    def rebalance_of(self, frame: Frame) -> CompiledRebalance | None:
        """Return the `rebalance` that applies to a pod on a node; None: it is not moved."""
        return next(
            (each for each in self.compiled.rebalances if each.condition is None or each.condition(frame)), None
        )

    # --- permit ------------------------------------------------------------------------------------------

    @cached_property
    def gangs(self) -> tuple[CompiledGang, ...]:
        """Return the `gang` clauses."""
        return tuple(clause for clause in self.clauses if isinstance(clause, CompiledGang))

    def gang_requirements(self, frame: Frame) -> tuple[GangRequirement, ...]:
        """Return what the `gang` clauses ask for a pod; asked once for all pods of a template, if that decides it.

        Raises:
            ValueError: a size has no value.
        """
        if not self._gangs_by_template:
            return self._gang_requirements(frame)
        found = self._requirements.get(frame.template)
        if found is None:
            found = self._requirements[frame.template] = self._gang_requirements(frame)
        return found

    def _gang_requirements(self, frame: Frame) -> tuple[GangRequirement, ...]:
        found = [requirement_of(clause, frame, policy=self.name) for clause in self.gangs]
        return tuple(requirement for requirement in found if requirement is not None)

    @cached_property
    def _gangs_by_template(self) -> bool:
        return not any(clause.depends & ~Depends.TEMPLATE for clause in self.gangs)


def make_policy(compiled: CompiledPolicy) -> Policy:
    """Return the policy with its plugins."""
    clauses = compiled.clauses
    filters: list[FilterPlugin] = [p for p in kubernetes_filters() if p.name not in compiled.without]
    requires = [RequireClause(c) for c in clauses if isinstance(c, CompiledTest) and c.kind is ClauseKind.REQUIRE]
    limits = [LimitClause(c) for c in clauses if isinstance(c, CompiledQuota) and not c.per_domain]
    scores: list[Weighted] = []
    own = [FilterClause(c) for c in clauses if isinstance(c, CompiledTest) and c.kind is ClauseKind.FILTER]
    all_filters, following = (*filters, *own), iter(own)
    for clause in clauses:
        match clause:
            case CompiledTest(kind=ClauseKind.FILTER):
                filters.append(next(following))
            case CompiledQuota(per_domain=True):
                filters.append(DomainLimitClause(clause))
            case CompiledScore(weight=weight):
                scores.append(Weighted(ScoreClause(clause), weight))
            case CompiledGrouping(max_skew=int()):
                filters.append(SpreadFilter(clause, all_filters))
            case CompiledGrouping(weight=weight):
                scores.append(Weighted(grouping_score(clause), weight))
            case _:
                pass
    if compiled.kubernetes_scores is not None:
        weights = compiled.kubernetes_scores
        known = (score.plugin for score in kubernetes_scores())
        scores.extend(Weighted(plugin, weights[plugin.name]) for plugin in known if plugin.name in weights)
    rule = next((_preemption_rule(c) for c in clauses if isinstance(c, CompiledPreemption)), None)
    profile = Profile(
        compiled.name,
        (*requires, *limits, *filters),
        tuple(scores),
        preemption=rule,
        ties=Ties(compiled.ties) if compiled.ties else Ties.HASH,
        devices=compiled.devices,
        domains=compiled.domains,
        clauses={clause.name: clause.reason if clause.has_own_words else None for clause in clauses},
        # an order decides when a pod is tried, not where it goes
        by_template=not any(
            clause.depends & (Depends.POD | Depends.OWN | Depends.CLOCK)
            for clause in clauses
            if not isinstance(clause, CompiledOrder)
        ),
    )
    return Policy(compiled, profile)


def _preemption_rule(clause: CompiledPreemption) -> PreemptionRule:
    condition, evict = clause.condition, clause.evict
    allows = (lambda frame: bool(condition(frame))) if condition is not None else (lambda frame: False)
    spares = (lambda frame, victim: not evict(frame, victim)) if evict is not None else None
    events = events_of(clause) if clause.condition is not None else frozenset[ClusterEvent]()
    return PreemptionRule(clause.text, allows, spares, events)


# --- canaries ----------------------------------------------------------------------------------------


def takes(frame: Frame, *, share: float, salt: str, gangs: Sequence[CompiledGang] = ()) -> bool:
    """Return whether a pod is among the share of its stable policy's pods that the canary decides.

    A larger share takes more workloads beside those that a smaller one took.

    Args:
        frame: of the pod.
        share: of workloads, 0 to 1.
        salt: the stable policy's name: the workloads that try one policy's next version are not always those that
            try another's.
        gangs: the `gang` clauses of both policies: pods that wait for each other are decided by one policy.
    """
    if share >= 1.0:
        return True
    digest = blake2b(f"{salt}/{_unit(frame, gangs)}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2.0**64


def _unit(frame: Frame, gangs: Sequence[CompiledGang]) -> str:
    """Return the unit of the split: a group of pods that start together, else `workload`."""
    pod, template = frame.pod, frame.template
    for gang in gangs:
        if gang.condition is None or gang.condition(frame):
            return f"gang/{pod.namespace}/{gang.key(frame)}"
    group = native_group(template) or template.labels.get(COSCHEDULING_LABEL)
    return f"group/{pod.namespace}/{group}" if group else workload(pod)
