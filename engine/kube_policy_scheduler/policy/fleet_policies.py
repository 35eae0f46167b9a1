"""The policies of workloads: which of them governs a workload, and what it decides."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import msgspec

from kube_policy_scheduler.builtins.metrics import queries
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.fleet.columns import FleetColumns
from kube_policy_scheduler.fleet.decide import decide
from kube_policy_scheduler.fleet.judging import Given, frame_of
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Workload
from kube_policy_scheduler.fleet.rebalancing import Move, rebalance
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.compiling.compiled import CompiledOrder, CompiledPolicy
from kube_policy_scheduler.lang.compiling.policy import compile_policy
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.memo import Memo

_NO_CLUSTERS = FleetColumns(())


class FleetPolicies(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Policies of workloads, in the order in which they are asked: by priority, the highest first, then by name."""

    policies: tuple[CompiledPolicy, ...] = ()

    @classmethod
    def of(cls, policies: Iterable[CompiledPolicy]) -> FleetPolicies:
        """Return policies in the order in which they are asked."""
        return cls(tuple(sorted(policies, key=lambda policy: (-policy.priority, policy.name))))

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """Return the metric queries that the policies read, each once."""
        return tuple(dict.fromkeys(query for policy in self.policies for query in queries(policy.inputs)))

    def governing(self, workload: Workload, scheduler: str = "") -> CompiledPolicy | None:
        """Return the policy that governs a workload: of those that match, the first; None where none does.

        scheduler: that the workload asks for; "" counts as the one of any policy.
        """
        frame = frame_of(workload, Given(columns=_NO_CLUSTERS))
        return next(
            (
                policy
                for policy in self.policies
                if (not scheduler or policy.scheduler in (None, scheduler))
                and (policy.governs is None or policy.governs(frame))
            ),
            None,
        )

    def decide(self, workload: Workload, fleet: Fleet, given: Given | None = None) -> Outcome:
        """Return where a workload is to run by its policy; without one, by its Placement."""
        return decide(workload, fleet, self.governing(workload), given)

    def decide_each(self, kind: str, fleet: Fleet, given: Given) -> dict[str, Outcome]:
        """Return what each policy says of the clusters, by its name: of those that govern a workload of this kind that
        is named like the policy."""
        asked = ((policy, Workload(kind=kind, name=policy.name)) for policy in self.policies)
        empty = Given(columns=_NO_CLUSTERS)
        return {
            policy.name: decide(workload, fleet, policy, given)
            for policy, workload in asked
            if policy.governs is None or policy.governs(frame_of(workload, empty))
        }

    def rebalance(self, workload: Workload, fleet: Fleet, given: Given) -> tuple[Outcome, tuple[Move, ...]] | None:
        """Return the placement after the next pass of moves; None if nothing moves now."""
        policy = self.governing(workload)
        return rebalance(workload, fleet, policy, given) if policy is not None else None

    def position(self, workload: Workload, now: float) -> tuple[object, ...]:
        """Return what a workload that waits sorts by, the first one first: as its policy orders, else by priority."""
        policy, frame = self.governing(workload), frame_of(workload, Given(now, columns=_NO_CLUSTERS))
        for clause in policy.clauses if policy is not None else ():
            if isinstance(clause, CompiledOrder) and (clause.condition is None or clause.condition(frame)):
                return tuple(clause.evaluate(frame))
        return (-workload.priority, workload.created or 0.0)


NO_FLEET_POLICIES = FleetPolicies()


def fleet_policies(checked: Iterable[CheckedPolicy], names: Environment, memo: Memo) -> FleetPolicies:
    """Return the policies of workloads among checked ones without errors, compiled."""
    return FleetPolicies.of(
        memo.again(_made, policy.name, policy, names) for policy in checked if policy.workloads is not None
    )


def _made(policy: CheckedPolicy, names: Environment, last: CompiledPolicy | None) -> CompiledPolicy:
    return compile_policy(policy, names, before=last)
