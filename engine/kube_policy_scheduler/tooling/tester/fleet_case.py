"""A case with a workload: it is decided for the clusters of a fleet, by the same answer as in the daemon."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import HEALTHY, Fleet, FleetCluster, Workload
from kube_policy_scheduler.fleet.model import Outcome as Decided
from kube_policy_scheduler.fleet.running import RunningWorkloads
from kube_policy_scheduler.policy.members import ReadMember
from kube_policy_scheduler.tooling.fleet_forms import fleet_cluster, fleet_workload
from kube_policy_scheduler.tooling.short_forms import Json, ShortFormError
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.case_runner import RunContext
from kube_policy_scheduler.tooling.tester.outcome import ClauseVerdict, Outcome, replicas_by_cluster
from kube_policy_scheduler.tooling.tester.suite_file import Case, Part, Path, did_you_mean
from kube_policy_scheduler.tooling.tester.wanted import NodeFacts


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
        self._found: list[Diagnostic] = []
        forms = self._laid_over()
        parts = {name: part for name, (part, _) in forms.items()}
        shown = [form for _, form in forms.values()]
        self._workload = self._made_workload(case.workload, shown, tuple(forms))
        self._others = [self._made_workload(part, shown, tuple(forms)) for part in (*context.workloads, *case.others)]
        clusters = [self._made_cluster(parts[name], form) for name, (_, form) in sorted(forms.items())]
        if self._found:
            raise DocumentError(self._found)
        self._fleet = Fleet(
            tuple(each for each in clusters if each is not None), running=RunningWorkloads(self._others)
        )
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

    # --- what the file says ------------------------------------------------------------------------------

    def _laid_over(self) -> dict[str, tuple[Part, Json]]:
        """Return where each cluster is written, and its short form, by name."""
        forms = {part.value["name"]: (part, part.value) for part in self._context.fleet}
        over = self._case.fleet
        for name, form in over.value.items() if over is not None else ():
            if name not in forms:
                assert over is not None
                advice = did_you_mean(name, tuple(forms), none="the test has no `clusters`")
                path = (*over.path, name)
                self._found.append(self._error(path, f"unknown cluster `{name}`", advice=advice, key=True))
                continue
            part, known = forms[name]
            forms[name] = part, {**known, **form}
        return forms

    def _made_workload(self, part: Part, clusters: list[Json], known: tuple[str, ...]) -> Workload:
        for name in part.value.get("has", {}):
            if name not in known:
                advice = did_you_mean(name, known, none="the test has no `clusters`")
                path = (*part.path, "has", name)
                self._found.append(self._error(path, f"unknown cluster `{name}`", advice=advice, key=True))
        try:
            return fleet_workload(part.value, clusters, self._case.now)
        except ShortFormError as error:
            self._found.append(self._error((*part.path, error.key), str(error)))
            return Workload("Deployment", "web")

    def _made_cluster(self, part: Part, form: Json) -> FleetCluster | None:
        try:
            made = fleet_cluster(form, self._workload, self._case.now)
            return msgspec.structs.replace(made, member=self._member(part, form))
        except DocumentError as error:
            self._found.extend(error.diagnostics)
            return None
        except ShortFormError as error:
            self._found.append(self._error(self._where(part, form["name"], error.key), str(error)))
            return None

    def _member(self, part: Part, form: Json) -> ReadMember | None:
        """Return the nodes and pods of a cluster, if the test lists them."""
        written = form.get("member")
        if written is None:
            return None
        path = self._where(part, form["name"], "member")
        nodes, pods = (
            [Part(each, (*path, key, number)) for number, each in enumerate(written.get(key, ()))]
            for key in ("nodes", "pods")
        )
        return ReadMember(self._context.builder.member(nodes, pods))

    def _where(self, part: Part, name: str, key: str) -> Path:
        """Return where the key of a cluster is written: in the case, else in the file."""
        over = self._case.fleet
        if over is not None and key in over.value.get(name, {}):
            return (*over.path, name, key)
        return (*part.path, key) if key in part.value else part.path

    def _error(self, path: Path, message: str, *, advice: str = "", key: bool = False) -> Diagnostic:
        return self._context.document.error(path, codes.BAD_FIXTURE, message=message, advice=advice, key=key)


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
