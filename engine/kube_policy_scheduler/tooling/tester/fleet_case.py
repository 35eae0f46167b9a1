"""A case with a workload: it is decided for the clusters of a fleet, by the same answer as in the daemon."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import HEALTHY, FleetCluster, Workload
from kube_policy_scheduler.fleet.model import Outcome as Decided
from kube_policy_scheduler.tooling.tester.case_runner import RunContext
from kube_policy_scheduler.tooling.tester.outcome import ClauseVerdict, Outcome, replicas_by_cluster
from kube_policy_scheduler.tooling.tester.suite_file import Case
from kube_policy_scheduler.tooling.tester.wanted import NodeFacts
from kube_policy_scheduler.tooling.tester.written_fleet import FleetParts, WrittenFleet


class FleetCase:
    """The clusters and the workload of one case."""

    def __init__(self, case: Case, context: RunContext) -> None:
        """Read what a case says.

        Raises:
            DocumentError: a cluster or the workload cannot be made, or a cluster is not known; all problems are
                reported.
        """
        assert case.workload is not None
        self._case, self._context = case, context
        parts = FleetParts(context.fleet, case.workload, (*context.workloads, *case.others), case.fleet)
        written = WrittenFleet(context.document, context.builder, parts, now=case.now)
        self._workload, self._others, self._fleet = written.workload, written.others, written.fleet
        self.facts: Mapping[str, NodeFacts] = {each.name: _facts(each) for each in self._fleet.clusters}
        """By name of the cluster."""

    def outcome(self) -> Outcome:
        """Return what is decided, after as many moves as the case asks for.

        Raises:
            DocumentError: the test says nothing of a query that the policies read.
        """
        policies, case, workload = self._context.policies.fleet, self._case, self._workload
        if policies.governing(workload) is None:
            return Outcome(workload.name, error="no policy of workloads governs it", clusters={})
        given = Given(case.now, self._context.readings.signals(case, case.now)).of(self._fleet)
        observe = self._context.observe_workload
        # what asks for the same comes last: it would be decided in the order in which it came
        waiting = [*self._others, workload]
        turns = tuple(waiting[place].name for place in policies.in_order(waiting, given))
        for _ in range(case.passes):
            if observe is not None:
                observe(workload, self._fleet, policies, given, moves=True)
            moved = policies.rebalance(workload, self._fleet, given)
            if moved is None:
                break
            has = moved[0].targets
            workload = msgspec.structs.replace(workload, has=has, health=dict.fromkeys(has, HEALTHY))
        if observe is not None:
            observe(workload, self._fleet, policies, given, moves=False)
        return _outcome(workload, policies.decide(workload, self._fleet, given), turns)


def _facts(cluster: FleetCluster) -> NodeFacts:
    zone = cluster.zones[0] if cluster.zones else None
    return NodeFacts(cluster.name, cluster.labels, zone, cluster.region or None, cluster.ready)


def _outcome(workload: Workload, decided: Decided, turns: tuple[str, ...]) -> Outcome:
    """Return what a case may expect of a decision."""
    rejected: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, verdict in decided.verdicts.items():
        if verdict.rejected_by:
            rejected.setdefault(verdict.rejected_by, {})[name] = (verdict.message,)
    return Outcome(
        pod=workload.name,
        host=replicas_by_cluster(decided.targets) if decided.placed else None,
        nodes=frozenset(decided.verdicts),
        totals={name: each.score for name, each in decided.verdicts.items() if not each.rejected_by},
        verdicts=tuple(ClauseVerdict(clause, nodes) for clause, nodes in rejected.items()),
        message=decided.message,
        clusters=decided.targets,
        why={name: each.message for name, each in sorted(decided.verdicts.items()) if each.message},
        turns=turns,
    )
