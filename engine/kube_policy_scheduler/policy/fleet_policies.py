"""The policies of workloads: which of them governs a workload, and what it decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from kube_policy_scheduler.builtins.metrics import queries
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.fleet.columns import FleetColumns
from kube_policy_scheduler.fleet.decide import decide, first_of
from kube_policy_scheduler.fleet.judging import Given, frame_of
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Workload
from kube_policy_scheduler.fleet.rebalancing import Move, rebalance
from kube_policy_scheduler.fleet.waiting import Position, Waiting, Wake
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, expressions_of
from kube_policy_scheduler.lang.compiling.compiled import (
    CompiledGrouping,
    CompiledOrder,
    CompiledPolicy,
    CompiledWorkloadLimit,
)
from kube_policy_scheduler.lang.compiling.member_values import MemberValue, member_values
from kube_policy_scheduler.lang.compiling.policy import compile_policy
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.times import Steady

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

    @cached_property
    def member_values(self) -> tuple[MemberValue, ...]:
        """Return what the policies ask of the nodes and pods of clusters, each once."""
        return tuple(dict.fromkeys(each for policy in self.policies for each in member_values(policy.inputs)))

    def member_values_for(self, workload: Workload) -> tuple[MemberValue, ...]:
        """Return what the policy of a workload asks of the nodes and pods of clusters."""
        if not self.member_values:
            return ()
        policy = self.governing(workload)
        return member_values(policy.inputs) if policy is not None else ()

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
        policy = self.governing(workload)
        return _by(policy, decide(workload, fleet, policy, given))

    def decide_each(self, kind: str, fleet: Fleet, given: Given) -> dict[str, Outcome]:
        """Return what each policy says of the clusters, by its name: of those that govern a workload of this kind that
        is named like the policy."""
        names = self.names_of(kind)
        return {name: self.decide_by_name(Workload(kind=kind, name=name), fleet, given) for name in names}

    def names_of(self, kind: str) -> tuple[str, ...]:
        """Return the names of the policies that govern a workload of a kind that is named like the policy."""
        empty = Given(columns=_NO_CLUSTERS)
        return tuple(
            policy.name
            for policy in self.policies
            if policy.governs is None or policy.governs(frame_of(Workload(kind=kind, name=policy.name), empty))
        )

    def decide_by_name(self, workload: Workload, fleet: Fleet, given: Given) -> Outcome:
        """Return what becomes of a workload by the policy that has its name, which must be there."""
        policy = next(each for each in self.policies if each.name == workload.name)
        return _by(policy, decide(workload, fleet, policy, given))

    def rebalance(self, workload: Workload, fleet: Fleet, given: Given) -> tuple[Outcome, tuple[Move, ...]] | None:
        """Return the placement after the next pass of moves; None if nothing moves now."""
        policy = self.governing(workload)
        found = rebalance(workload, fleet, policy, given) if policy is not None else None
        return (_by(policy, found[0]), found[1]) if found is not None else None

    @cached_property
    def counts_others(self) -> bool:
        """Return whether a policy counts other workloads: by `limit`, `spread` or `pack`."""
        return any(
            isinstance(clause, CompiledWorkloadLimit | CompiledGrouping)
            for policy in self.policies
            for clause in policy.clauses
        )

    @cached_property
    def fields(self) -> frozenset[str]:
        """Return the paths of the fields that the policies read, such as `cluster.ready`."""
        return frozenset(
            part.field.path
            for policy in self.policies
            for root in expressions_of(policy.checked)
            for part in typed.below(root)
            if isinstance(part, typed.Read)
        )

    @cached_property
    def orders(self) -> bool:
        """Return whether a policy says `order by`."""
        return any(isinstance(clause, CompiledOrder) for policy in self.policies for clause in policy.clauses)

    def position(self, workload: Workload, given: Given, ahead: float = 0.0) -> Position:
        """Return where a workload is among those that can be decided: as its policy orders, else by priority.

        ahead: seconds by which the time of `given` is ahead of the clock by which the workloads wait.
        """
        policy = self.governing(workload) if self.orders else None
        if policy is None:
            return Position()
        frame = frame_of(workload, given)
        orders = [clause for clause in policy.clauses if isinstance(clause, CompiledOrder)]
        order = first_of(orders, frame)
        if order is None:
            return Position()
        line = policy.name if len(orders) == 1 else f"{policy.name}: {order.name}"
        if order.over_time is None:
            return Position(line, tuple(order.evaluate(frame)))
        bases, slopes, until = order.over_time(frame)
        parts = zip(bases, slopes, strict=True)
        return Position(
            line,
            tuple(base + slope * ahead if slope else base for base, slope in parts),
            slopes,
            until - ahead,
        )

    def in_order(self, workloads: Sequence[Workload], given: Given) -> list[int]:
        """Return the places of workloads that can all be decided now, in the order in which they are."""
        now = Steady(given.now)
        waiting: Waiting[int] = Waiting(lambda place, now: self.position(workloads[place], given))
        for place in sorted(range(len(workloads)), key=lambda place: workloads[place].created or 0.0):
            waiting.wake(place, Wake.OWN, now, priority=workloads[place].priority)
        return list(iter(lambda: waiting.next(now), None))


def _by(policy: CompiledPolicy | None, outcome: Outcome) -> Outcome:
    return outcome if policy is None else msgspec.structs.replace(outcome, policy=policy.name)


NO_FLEET_POLICIES = FleetPolicies()


def fleet_policies(checked: Iterable[CheckedPolicy], names: Environment, memo: Memo) -> FleetPolicies:
    """Return the policies of workloads among checked ones without errors, compiled."""
    return FleetPolicies.of(
        memo.again(_made, policy.name, policy, names) for policy in checked if policy.workloads is not None
    )


def _made(policy: CheckedPolicy, names: Environment, last: CompiledPolicy | None) -> CompiledPolicy:
    return compile_policy(policy, names, before=last)
