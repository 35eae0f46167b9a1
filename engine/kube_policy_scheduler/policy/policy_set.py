"""All policies of one generation, swapped as one: which of them governs a pod."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.diagnostics import Diagnostic, Severity, Source, errors, in_order
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod, QueuePosition, priority_position
from kube_policy_scheduler.framework.quota import QuotaRules
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.checking.owners import governed_by
from kube_policy_scheduler.lang.compiling.compiled import CompiledTest
from kube_policy_scheduler.lang.compiling.policy import compile_policy
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.load import Checked, check_sources
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.lang.owner import Owner
from kube_policy_scheduler.policy.governing import Governing, served_by
from kube_policy_scheduler.policy.pod_groups import is_in_group, pod_group_requirements
from kube_policy_scheduler.policy.policy import Policy, make_policy
from kube_policy_scheduler.policy.queues import above_max_rules, quota_tree, reclaim_rules

if TYPE_CHECKING:
    from kube_policy_scheduler.policy.fleet_policies import FleetPolicies

_MANY_OBJECTS = 20_000
"""About 400 clauses; the collector looks at 2,000 to 4,000 objects a millisecond."""
FrameOf: TypeAlias = Callable[[QueuedPod], Frame]
"""Makes what rules may look at for a pod; asked by those that look."""
DEFAULT_SCHEDULERS = frozenset({"policy-scheduler"})


class PolicySet(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Policies in the order in which they are asked: by priority, the highest first, then by name; a canary comes
    before its stable policy, to which the pods fall that it does not take."""

    policies: tuple[Policy, ...]
    default_schedulers: frozenset[str]
    """The schedulerNames that policies serve which name none."""
    stands_in_as: frozenset[str]
    """Pods of any scheduler are looked at as though they asked for one of these too."""
    queues: QuotaRules | None
    """The queues, of the administrator's policies; None: there are none."""
    _governing: Governing
    _fleet: FleetPolicies | None = None

    @classmethod
    def of(
        cls,
        policies: Iterable[Policy],
        *,
        default_schedulers: frozenset[str] = DEFAULT_SCHEDULERS,
        queues: QuotaRules | None = None,
    ) -> PolicySet:
        """Return the set of some policies.

        Args:
            policies: in any order.
            default_schedulers: the schedulerNames that policies serve which name none.
            queues: quotas with borrowing, which apply to the pods of all of them; None: there are none.
        """
        given = tuple(policies)
        stable = {policy.own_name: policy for policy in given if policy.canary is None}
        joined = (p.joined(stable.get(p.canary.of)) if p.canary is not None else p for p in given)
        return cls._of_ordered(sorted(joined, key=_place), default_schedulers, queues)

    @classmethod
    def together(cls, parts: Sequence[PolicySet]) -> PolicySet:
        """Return the policies of several owners as one set.

        parts: the administrator's first, then the others in the administrator's order. Where policies of the same
            priority match a pod, that of an owner comes before the administrator's, and owners come in this order.
        """
        first, *others = parts
        if not others:
            return first
        ranks = {id(policy): rank for rank, part in enumerate((*others, first)) for policy in part.policies}
        every = [policy for part in parts for policy in part.policies]
        every.sort(key=lambda policy: (-policy.priority, ranks[id(policy)], _place(policy)))
        found = cls._of_ordered(every, first.default_schedulers, first.queues, stands_in_as=first.stands_in_as)
        return found.with_fleet(first._fleet)

    def standing_in_as(self, schedulers: frozenset[str]) -> PolicySet:
        """Return the set as it governs pods of any scheduler: as though they asked for one of these too."""
        found = self._of_ordered(self.policies, self.default_schedulers, self.queues, stands_in_as=schedulers)
        return found.with_fleet(self._fleet)

    @cached_property
    def fleet(self) -> FleetPolicies:
        """Return the policies of workloads beside them: they govern no pods."""
        if self._fleet is not None:
            return self._fleet
        from kube_policy_scheduler.policy.fleet_policies import NO_FLEET_POLICIES

        return NO_FLEET_POLICIES

    def with_fleet(self, fleet: FleetPolicies | None) -> PolicySet:
        """Return the set with policies of workloads beside it; None: with none."""
        return msgspec.structs.replace(self, _fleet=fleet)

    @classmethod
    def _of_ordered(
        cls,
        policies: Sequence[Policy],
        default_schedulers: frozenset[str],
        queues: QuotaRules | None,
        *,
        stands_in_as: frozenset[str] = frozenset(),
    ) -> PolicySet:
        """Return a set whose pods evict the gangs of all of its policies as a whole, within its queues."""
        governing = Governing(policies, default_schedulers=default_schedulers, stands_in_as=stands_in_as)
        if any(policy.gangs for policy in policies):
            policies = [policy.with_gangs(governing.running_gangs) for policy in policies]
        if queues is not None:
            queues = msgspec.structs.replace(
                queues, gangs_of=governing.running_requirements, are_in_no_gang=governing.are_in_no_gang
            )
            policies = [policy.with_queues(queues) for policy in policies]
        return cls(tuple(policies), default_schedulers, stands_in_as, queues, governing)

    @property
    def schedulers(self) -> frozenset[str]:
        """Return the schedulerNames that are served."""
        return frozenset(name for policy in self.policies for name in self.served_by(policy))

    def served_by(self, policy: Policy) -> frozenset[str]:
        """Return the schedulerNames that one of its policies serves."""
        return served_by(policy, self.default_schedulers)

    def serves(self, policy: Policy, pod: PodInfo) -> bool:
        """Return whether one of its policies serves the scheduler of a pod."""
        return not self.served_by(policy).isdisjoint(self.stands_in_as | {pod.scheduler_name})

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """Return the metric queries that the policies read, each once."""
        return tuple(dict.fromkeys(query for policy in self.policies for query in policy.queries))

    def governing(self, pod: PodInfo) -> Policy | None:
        """Return the policy that governs a pod: of those that match, the first; None where none does."""
        number = self._governing.number(pod)
        return self.policies[number] if number is not None else None

    # what no policy says is asked of none: ten thousand pods that wait at a start are ten thousand questions less

    @cached_property
    def rebalances(self) -> bool:
        """Return whether a policy has a `rebalance`."""
        return any(policy.compiled.rebalances for policy in self.policies)

    @cached_property
    def has_holds(self) -> bool:
        """Return whether a policy has a `hold`."""
        return any(policy.holds for policy in self.policies)

    @cached_property
    def _has_orders(self) -> bool:
        return any(policy.orders for policy in self.policies)

    def holding(self, queued: QueuedPod, frame: FrameOf) -> tuple[Policy, CompiledTest] | None:
        """Return the policy and the `hold` clause for which a pod waits outside the active queue, or None."""
        policy = self.governing(queued.pod) if self.has_holds else None
        clause = policy.holding(frame(queued)) if policy is not None and policy.holds else None
        return (policy, clause) if policy is not None and clause is not None else None

    @cached_property
    def _has_gangs(self) -> bool:
        return any(policy.gangs for policy in self.policies)

    def gang_requirements(self, queued: QueuedPod, frame: FrameOf) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind: its PodGroups, and what its policy's `gang` asks for.

        Raises:
            MissingGroupError: a PodGroup is not there.
            ValueError: a size has no value, or a PodGroup asks for what is not done here.
        """
        policy = self.governing(queued.pod) if self._has_gangs else None
        gangs = policy.gang_requirements(frame(queued)) if policy is not None and policy.gangs else ()
        return (*pod_group_requirements(frame(queued)), *gangs) if is_in_group(queued.pod.template) else gangs

    def position(self, queued: QueuedPod, frame: FrameOf) -> QueuePosition:
        """Return the position of a pod in the queue: as its policy orders its pods, or as Kubernetes does."""
        policy = self.governing(queued.pod) if self._has_orders else None
        return priority_position(queued) if policy is None else policy.position(queued, frame(queued))

    def named(self, name: str) -> Policy | None:
        """Return a policy by its name."""
        return next((policy for policy in self.policies if policy.name == name), None)

    def profile_of(self, pod: PodInfo) -> Profile | None:
        """Return the plugins that serve a pod, None where no policy governs it."""
        number = self._governing.number(pod)
        return self.policies[number].profile if number is not None else None


def _place(policy: Policy) -> tuple[int, str, bool, str]:
    canary = policy.canary
    return -policy.priority, canary.of if canary is not None else policy.own_name, canary is None, policy.own_name


class Loaded(msgspec.Struct, frozen=True):
    """The result of loading a set of sources."""

    policy_set: PolicySet | None
    """None where anything is an error: half a set decides nothing."""
    diagnostics: tuple[Diagnostic, ...]
    checked: Checked


def load(
    sources: Sequence[Source],
    names: Environment | None = None,
    *,
    library: Iterable[Source] = (),
    default_schedulers: frozenset[str] = DEFAULT_SCHEDULERS,
    memo: Memo | None = None,
    rules: bool = True,
    owner: Owner | None = None,
) -> Loaded:
    """Check, compile and lint policies together; errors in one leave all of them out.

    Args:
        sources: the policies.
        names: what a policy may name; what is built in, where not given.
        library: sources that may be used but are no policies themselves.
        default_schedulers: the schedulerNames that policies serve which name none.
        memo: results for the same texts, the policies themselves among them, and those of this time afterwards.
        rules: whether to lint; not where it was done for these sources before.
        owner: who wrote them, with what the administrator allows; None: the administrator.
    """
    names, memo = names or environment(), memo or Memo()
    with _collector_paused():
        checked = check_sources(sources, names, library=library, memo=memo, owner=owner)
        # policies of workloads govern no pod: they are checked with the others, and decided by `fleet`
        made_of = [each for each in checked.policies if each.workloads is None] if not checked.failed else []
        policies = [memo.again(_made, policy.name, policy, names) for policy in made_of]
        diagnostics = in_order([*checked.diagnostics, *(_linted(checked, memo) if rules else ())])
        if errors(diagnostics):
            return Loaded(None, diagnostics, checked)
        made = set_of(checked.policies, policies, default_schedulers=default_schedulers, memo=memo)
        return Loaded(made.with_fleet(_fleet_policies(checked.policies, names, memo)), diagnostics, checked)


def set_of(
    checked: Sequence[CheckedPolicy],
    policies: Iterable[Policy],
    *,
    default_schedulers: frozenset[str] = DEFAULT_SCHEDULERS,
    memo: Memo | None = None,
) -> PolicySet:
    """Return compiled policies as a set, with the queues that they declare together.

    Args:
        checked: the policies as checked, without errors.
        policies: the same ones, compiled.
        default_schedulers: the schedulerNames that policies serve which name none.
        memo: results of this kind for the same declarations.
    """
    tree = quota_tree(checked, memo or Memo())
    queues = QuotaRules(tree, reclaim_rules(checked), above_max_rules(checked)) if tree is not None else None
    return PolicySet.of(policies, default_schedulers=default_schedulers, queues=queues)


def scope_problem(owner: Owner) -> Diagnostic | None:
    """Return the first error in the condition of an owner's pods, None where there is none."""
    _, found = governed_by(owner, environment())
    return next((each for each in found if each.severity is Severity.ERROR), None)


# a scheduler of pods starts without what follows: its checker's process lints, and policies of workloads are rare


def _linted(checked: Checked, memo: Memo) -> Iterable[Diagnostic]:
    from kube_policy_scheduler.lint.runner import lint

    return lint(checked, memo=memo)


def _fleet_policies(checked: Iterable[CheckedPolicy], names: Environment, memo: Memo) -> FleetPolicies | None:
    """Return the policies of workloads among checked ones; None where there are none."""
    of_workloads = [policy for policy in checked if policy.workloads is not None]
    if not of_workloads:
        return None
    from kube_policy_scheduler.policy.fleet_policies import fleet_policies

    return fleet_policies(of_workloads, names, memo)


def _made(policy: CheckedPolicy, names: Environment, last: Policy | None) -> Policy:
    return make_policy(compile_policy(policy, names, before=last.compiled if last is not None else None))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python's garbage collector from looking at half-built trees again and again: a third of the time.

    Of a large set it never looks at the result either. That would hold up everything for 50 ms, also decisions in
    another thread, and find nothing: there are no cycles, so a set goes when nobody refers to it any more.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > _MANY_OBJECTS:
            gc.freeze()
        if running:
            gc.enable()
