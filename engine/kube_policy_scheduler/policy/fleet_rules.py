"""The policies of workloads in force, with the time and the metrics by which they decide."""

from __future__ import annotations

from collections.abc import Callable

from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.fleet.columns import FleetColumns
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import Fleet, FleetCluster, Outcome, Workload
from kube_policy_scheduler.fleet.repeats import Repeats
from kube_policy_scheduler.fleet.waiting import Position
from kube_policy_scheduler.lang.compiling.member_values import MemberValue
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.times import Steady


class FleetRules:
    """Decides by policies; what they do not say, the Placement of each workload does."""

    def __init__(self, policies: FleetPolicies, *, clock: Callable[[], float]) -> None:
        """Make them. clock: Unix seconds."""
        self._policies = policies
        self._clock = clock
        self._clusters: tuple[FleetCluster, ...] = ()
        self._columns = FleetColumns(())
        self._repeats = Repeats()
        self.signals = Signals.EMPTY
        """The newest metrics."""

    @property
    def reads_templates(self) -> bool:
        """Return whether there is a policy: any may ask for labels and annotations."""
        return bool(self._policies.policies)

    counts_decided = True

    @property
    def moves(self) -> bool:
        """Return whether a policy says `rebalance`."""
        return any(each.workloads is not None and each.workloads.moves for each in self._policies.policies)

    @property
    def counts_others(self) -> bool:
        """Return whether a policy counts other workloads: by `limit`, `spread` or `pack`."""
        return self._policies.counts_others

    @property
    def fields(self) -> frozenset[str]:
        """Return the paths of the fields that the policies read, such as `cluster.ready`; empty: there are none."""
        return self._policies.fields

    @property
    def member_values(self) -> tuple[MemberValue, ...]:
        """Return what the policies ask of the nodes and pods of clusters, each once."""
        return self._policies.member_values

    def member_values_for(self, workload: Workload) -> tuple[MemberValue, ...]:
        """Return what the policy of a workload asks of the nodes and pods of clusters."""
        return self._policies.member_values_for(workload)

    @property
    def orders(self) -> bool:
        """Return whether a policy says `order by`."""
        return self._policies.orders

    def position(self, workload: Workload, fleet: Fleet, now: Steady) -> Position:
        """Return where a workload is among those that can be decided now."""
        given = self._given(fleet)
        return self._policies.position(workload, given, given.now - now)

    def decide(self, workload: Workload, fleet: Fleet) -> Outcome:
        """Return what becomes of a workload."""
        return self._policies.decide(workload, fleet, self._given(fleet))

    def decide_each(self, kind: str, fleet: Fleet) -> dict[str, Outcome]:
        """Return what each policy says of the clusters to a workload of a kind, by the name of the policy."""
        return self._policies.decide_each(kind, fleet, self._given(fleet))

    def names_of(self, kind: str) -> tuple[str, ...]:
        """Return the names of the policies that govern a workload of a kind that is named like the policy."""
        return self._policies.names_of(kind)

    def decide_by_name(self, workload: Workload, fleet: Fleet) -> Outcome:
        """Return what becomes of a workload by the policy that has its name, which must be there."""
        return self._policies.decide_by_name(workload, fleet, self._given(fleet))

    def move(self, workload: Workload, fleet: Fleet) -> Outcome | None:
        """Return where a workload that has what it asks for is to go next; None: it stays."""
        given, policy = self._given(fleet), self._policies.governing(workload)
        if policy is None:
            return None
        state = self._repeats.state(workload, fleet, policy, given)
        if state is not None and self._repeats.knows(workload, state):
            return None
        found = self._policies.rebalance(workload, fleet, given)
        if found is not None:
            return found[0]
        if state is not None:
            self._repeats.stays(workload, state)
        return None

    def _given(self, fleet: Fleet) -> Given:
        if fleet.clusters is not self._clusters:
            self._clusters, self._columns = fleet.clusters, FleetColumns(fleet.clusters, self._columns)
        return Given(self._clock(), self.signals, self._columns)
