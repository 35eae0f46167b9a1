"""Compiled policies as the tester asks them: who governs a pod, and what the parts of its filters say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.diagnostics import Diagnostic, Severity
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import Claim
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queued_pod import QueuedPod, Turn
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, CompiledTest, Operand
from kube_policy_scheduler.policy.pod_groups import pod_group_claims
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One operand of a filter's `and`."""

    name: str
    """As it is written."""
    clause: str
    """The filter's name."""
    holds: BoolArray
    """`bool[nodes]`"""


class TestedPolicy(Protocol):
    """What a run asks of the policy that governs a pod."""

    @property
    def profile(self) -> Profile:
        """Return the plugins that place its pods."""
        ...

    @property
    def clause_names(self) -> frozenset[str]:
        """Return the names of its filters, and of the parts of these, also where they do not apply to a pod."""
        ...

    @property
    def clauses(self) -> Sequence[CompiledClause]:
        """Return its clauses, to show their values."""
        ...

    def hold_reason(self, frame: Frame) -> str | None:
        """Return why the pod waits outside the active queue, or None."""
        ...

    def turn(self, queued: QueuedPod, frame: Frame) -> Turn:
        """Return when the pod's turn is."""
        ...

    def claims(self, frame: Frame) -> tuple[Claim, ...]:
        """Return the gangs without which the pod must not bind.

        Raises:
            ValueError: a size has no value.
        """
        ...

    def conjuncts(self, frame: Frame) -> Iterable[Conjunct]:
        """Return what the parts of its filters say about all nodes."""
        ...


class TestedPolicies(Protocol):
    """What a run asks of a policy set."""

    @property
    def queries(self) -> Iterable[Query]:
        """Return every metric that the policies read."""
        ...

    @property
    def warnings(self) -> Sequence[Diagnostic]:
        """Return what lint says about the policies, errors aside."""
        ...

    def governing(self, pod: PodInfo) -> TestedPolicy | None:
        """Return the policy that governs the pod, None where none does."""
        ...


class CompiledPolicies:
    """A compiled policy set."""

    def __init__(self, policy_set: PolicySet, diagnostics: Iterable[Diagnostic] = ()) -> None:
        self.policy_set = policy_set
        self.warnings = tuple(one for one in diagnostics if one.severity is Severity.WARNING)
        self._tested = {id(policy): TestedCompiledPolicy(policy) for policy in policy_set.policies}

    @property
    def queries(self) -> Iterable[Query]:
        """Return every metric that the policies read."""
        return self.policy_set.queries

    def governing(self, pod: PodInfo) -> TestedCompiledPolicy | None:
        """Return the policy that governs the pod, None where none does."""
        policy = self.policy_set.governing(pod)
        return None if policy is None else self._tested[id(policy)]


class TestedCompiledPolicy:
    """One policy of a compiled set."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def profile(self) -> Profile:
        """Return the plugins that place its pods."""
        return self.policy.profile

    @property
    def clauses(self) -> Sequence[CompiledClause]:
        """Return its clauses."""
        return self.policy.clauses

    @cached_property
    def clause_names(self) -> frozenset[str]:
        """Return the names of its filters, and of the parts of these."""
        return frozenset((*(plugin.name for plugin in self.profile.filters), *(part.text for _, part in self._parts)))

    def hold_reason(self, frame: Frame) -> str | None:
        """Return why the pod waits outside the active queue, or None."""
        return self.policy.hold_reason(frame)

    def turn(self, queued: QueuedPod, frame: Frame) -> Turn:
        """Return when the pod's turn is."""
        return self.policy.turn(queued, frame)

    def claims(self, frame: Frame) -> tuple[Claim, ...]:
        """Return the gangs without which the pod must not bind.

        Raises:
            ValueError: a size has no value, or a PodGroup is not there.
        """
        return (*pod_group_claims(frame), *(self.policy.claims(frame) if self.policy.gangs else ()))

    def conjuncts(self, frame: Frame) -> Iterator[Conjunct]:
        """Return what the parts of its filters say about all nodes."""
        for clause, part in self._parts:
            yield Conjunct(part.text, clause, part.holds(frame))

    @cached_property
    def _parts(self) -> tuple[tuple[str, Operand], ...]:
        tests = (clause for clause in self.policy.clauses if isinstance(clause, CompiledTest))
        return tuple((clause.name, part) for clause in tests for part in clause.operands)
