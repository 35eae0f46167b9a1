"""Runs the cases of a suite through the scheduling cycle, and says how each ended and why. Reads no files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Source, errors
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.framework.default_profile import kubernetes_filters
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.policy.answer import Answers
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.case_runner import (
    CaseCluster,
    CaseClusterBuilder,
    CaseRunner,
    Decided,
    Observe,
    ObserveWorkload,
    Readings,
    RunContext,
    planned_names,
)
from kube_policy_scheduler.tooling.tester.clause_values import ClauseValues, values_of_decision, values_of_queue
from kube_policy_scheduler.tooling.tester.expectations import (
    OF_WORKLOADS,
    AllPlacements,
    Expectation,
    Expectations,
    Expected,
    OneDecision,
    PodsOfQueue,
    expectations,
)
from kube_policy_scheduler.tooling.tester.fleet_case import FleetCase
from kube_policy_scheduler.tooling.tester.outcome import Outcome, TestedPolicies
from kube_policy_scheduler.tooling.tester.suite_file import (
    Case,
    Fixtures,
    ForAll,
    Invalid,
    Kind,
    Path,
    Step,
    Suite,
    did_you_mean,
)
from kube_policy_scheduler.tooling.tester.value_reader import ValueReader
from kube_policy_scheduler.tooling.tester.wanted import Mismatch, number, says
from kube_policy_scheduler.wording import plural

AnyCase: TypeAlias = Case | Invalid


class State(Enum):
    """How a case ended."""

    PASSED = "pass"
    FAILED = "fail"
    ERROR = "error"
    """There was no decision to compare."""
    SKIPPED = "skip"
    TODO = "todo"
    """It does not hold yet, as the file says."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One expectation that does not hold."""

    expected: Expected
    mismatch: Mismatch
    pod: str = ""
    """The pod that it is about, where the case has several."""
    values: tuple[ClauseValues, ...] = ()
    """What the clauses concerned say about the nodes concerned."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case and how it ended."""

    case: AnyCase
    state: State
    failures: tuple[Failure, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    """Of every pod, in order."""

    @property
    def outcome(self) -> Outcome | None:
        """Return the last decision, None where none was made."""
        return self.outcomes[-1] if self.outcomes else None


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """One test file and how its cases ended."""

    suite: Suite
    cases: tuple[CaseResult, ...]

    def count(self, state: State) -> int:
        """Return how many cases ended so."""
        return sum(result.state is state for result in self.cases)


def ended(case: AnyCase, failures: Sequence[Failure], outcomes: tuple[Outcome, ...]) -> CaseResult:
    """Return how a case ended that has these failures."""
    if any(outcome.error is not None for outcome in outcomes):
        state = State.ERROR
    elif case.todo and failures:
        state = State.TODO
    elif case.todo:
        holds = Expected("todo", (*case.path, "todo"))
        unexpected = Failure(holds, Mismatch(f"not to pass yet: {case.todo}", "it passes; remove `todo`"))
        return CaseResult(case, State.FAILED, (unexpected,), outcomes)
    else:
        state = State.FAILED if failures else State.PASSED
    return CaseResult(case, state, tuple(failures), outcomes)


_SOURCE = "policy"
"""The name of a policy that is written in the test file."""


def rejection(case: Invalid, fixtures: Fixtures) -> list[Failure]:
    """Return how what is found about the policy differs from what is expected."""
    if case.text is not None:
        source = Source(f"{_SOURCE}.policy", case.text)
    else:
        assert case.file is not None, "the schema wants one of the two"
        source = fixtures.policies[case.file.value]
    found = [one for one in load([source]).diagnostics if errors([one])]
    key = next((key for key in ("code", "at", "message") if getattr(case, key)), "text" if case.text else "policy")
    if any(_is_meant(case, one) for one in found):
        return []
    got = "; ".join(_shown(one) for one in found) or "the policy is accepted"
    return [Failure(Expected(key, (*case.path, key)), Mismatch(_wanted(case), got))]


def _is_meant(case: Invalid, one: Diagnostic) -> bool:
    line, column = one.span.source.position(one.span.start)
    return (
        case.code in ("", one.code)
        and case.at in ("", str(line), f"{line}:{column}")
        and says(case.message or None, [one.message])
    )


def _wanted(case: Invalid) -> str:
    parts = [case.code or "an error"]
    parts += [f"at {case.at}"] if case.at else []
    parts += [f"that says {case.message}"] if case.message else []
    return " ".join(parts)


def _shown(one: Diagnostic) -> str:
    line, column = one.span.source.position(one.span.start)
    return f"{one.code} at {line}:{column}: {one.message}"


_PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TOLERANT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?P<tolerance> *(±|\+-).*)")
_PLACE = "${"


def updated(result: SuiteResult) -> tuple[str, int]:
    """Return the file's text with what came, and how many values changed.

    Plain numbers are replaced, of a tolerance the middle; a comparison such as `>= 50` is a demand and stays, and so
    does what a table fills in.
    """
    source = result.suite.document.source
    edits: dict[int, Edit] = {edit.span.start: edit for edit in _edits(result)}
    text = source.text
    for start in sorted(edits, reverse=True):
        edit = edits[start]
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text, len(edits)


def _edits(result: SuiteResult) -> Iterator[Edit]:
    for case in result.cases:
        for failure in case.failures:
            got = failure.mismatch.value
            if got is None:
                continue
            span = result.suite.document.span(failure.expected.path)
            written = span.text.strip("'\"")
            if _PLACE in written or failure.pod:
                continue
            tolerant = _TOLERANT.fullmatch(written)
            if _PLAIN.fullmatch(written):
                yield Edit(span, number(got))
            elif tolerant is not None:
                yield Edit(span, f"'{number(got)}{tolerant['tolerance']}'")


_OTHER_SEEDS = (1, 2, 3, 4)
"""Added to the file's seed, to see whether placements hang on tie-breaks."""
_KUBERNETES = frozenset(plugin.name for plugin in kubernetes_filters())


class SuiteRun:
    """A suite with its policies and fixtures, ready to run.

    `results` runs all cases; `cases` and `run` are for those who choose, and `under` runs them with other policies on
    the same clusters.
    """

    def __init__(
        self,
        suite: Suite,
        policies: TestedPolicies,
        fixtures: Fixtures | None = None,
        *,
        scheduler: str,
        shuffle: bool = False,
        observe: Observe | None = None,
        observe_workload: ObserveWorkload | None = None,
        kubernetes: KubernetesRules | None = None,
    ) -> None:
        """Take a suite and what its files hold.

        Args:
            suite: the test file.
            policies: its policies, compiled.
            fixtures: what the other files hold that it names.
            scheduler: the scheduler name of pods that name none.
            shuffle: decide every case a second time with the nodes in a different order, and demand the same.
            observe: called before each decision of the first time.
            observe_workload: the same for workloads.
            kubernetes: by whose rules; None: as the suite says, else the default.
        """
        self.suite = suite
        self._fixtures = fixtures or Fixtures()
        self._scheduler = scheduler
        self._shuffle = shuffle
        rules = kubernetes or suite.kubernetes.rules(lambda: DEFAULT_RULES)
        self._builder = CaseClusterBuilder(suite, self._fixtures.cluster, scheduler=scheduler, kubernetes=rules)
        self._case_clusters: dict[bool, CaseCluster] = {}
        self.cases: tuple[AnyCase, ...] = (
            *suite.cases,
            *suite.invalid,
            *(_property(each, self._fixtures) for each in suite.forall),
        )
        """In the order of the file."""
        self._with(policies, observe, observe_workload)

    def _with(
        self, policies: TestedPolicies, observe: Observe | None, observe_workload: ObserveWorkload | None = None
    ) -> None:
        self._queries = tuple(dict.fromkeys(policies.queries))
        readings = Readings(self.suite, self._queries)
        suite = self.suite
        context = RunContext(
            suite.document,
            self._builder,
            readings,
            policies,
            observe,
            suite.fleet,
            workloads=suite.workloads,
            observe_workload=observe_workload,
        )
        self._context = context

    def under(self, policies: TestedPolicies, *, observe: Observe | None = None) -> SuiteRun:
        """Return a run of the same cases, on the same clusters, under other policies."""
        other = object.__new__(SuiteRun)
        other.__dict__.update(self.__dict__)
        other._with(policies, observe)
        return other

    def results(self, only: Callable[[AnyCase], bool] = lambda case: True) -> Iterator[CaseResult]:
        """Yield how each of the cases ends.

        Raises:
            DocumentError: at the end, where the file names what does not exist; all problems are reported.
        """
        problems: list[Diagnostic] = list(self._context.readings.problems())
        if any(problem.code == codes.BAD_FIXTURE.id for problem in problems):
            raise DocumentError(problems)  # no case could be decided
        for case in self.cases:
            if not only(case):
                continue
            try:
                result = self.run(case)
            except DocumentError as error:
                problems.extend(error.diagnostics)
                continue
            if not problems:
                yield result
        if problems:
            raise DocumentError(problems)

    def result(self, only: Callable[[AnyCase], bool] = lambda case: True) -> SuiteResult:
        """Return how all of the cases end.

        Raises:
            DocumentError: the file names what does not exist; all problems are reported.
        """
        return SuiteResult(self.suite, tuple(self.results(only)))

    def run(self, case: AnyCase) -> CaseResult:
        """Decide one case and compare.

        Raises:
            DocumentError: the case names what does not exist, or an object of it cannot be made.
        """
        if isinstance(case, Invalid):
            if case.skip:
                return CaseResult(case, State.SKIPPED)
            return ended(case, rejection(case, self._fixtures), ())
        if case.kind is Kind.WORKLOAD:
            return self._workload(case)
        case_cluster = self._case_cluster(shuffled=False)
        with case_cluster.trying():
            self._builder.lay_over(case, case_cluster)
            expected = self._expected(case, case_cluster)
            if case.skip:
                return CaseResult(case, State.SKIPPED)
            if case.kind is Kind.QUEUE:
                return ended(case, self._queue(case, case_cluster, expected[None]), ())
            failures, outcomes = self._compared(case, case_cluster, expected)
        of_case = expected[None].of_case
        if of_case and not failures and not case.tie_ok and any(len(outcome.tied) > 1 for outcome in outcomes):
            failures += self._under_other_seeds(case, case_cluster, of_case)
        if self._shuffle:
            failures += self._shuffled(case, outcomes)
        return ended(case, failures, outcomes)

    def _workload(self, case: Case) -> CaseResult:
        """Decide a workload and compare."""
        fleet = FleetCase(case, self._context)
        expected = self._expectations_of_workload(case, fleet)
        if case.skip:
            return CaseResult(case, State.SKIPPED)
        outcome = fleet.outcome()
        subject = OneDecision(outcome, fleet.facts, frozenset(), tie_ok=True, admits_missing=True)
        compared = ((one, one.mismatch(subject)) for one in expected)
        failures = [Failure(one, mismatch) for one, mismatch in compared if mismatch is not None]
        return ended(case, failures, (outcome,))

    def _expectations_of_workload(self, case: Case, fleet: FleetCase) -> Sequence[Expectation[OneDecision]]:
        problems = list(self._context.readings.unknown_nodes(case, fleet.facts, noun="cluster"))
        queries = [query.promql for query in self._queries]
        reader = ValueReader(self.suite.document, facts=fleet.facts, pods=frozenset, queries=queries, noun="cluster")
        expected = expectations(case.expect, reader)
        problems += reader.problems
        others: tuple[Expected, ...] = (*expected.of_case, *expected.of_queue)
        others += tuple(one for one in expected.of_decision if one.key not in OF_WORKLOADS)
        for one in others:
            message = f"`{one.key}` is about pods; of a workload you can expect {', '.join(sorted(OF_WORKLOADS))}"
            problems.append(self.suite.document.error(one.path, codes.BAD_FIXTURE, message=message, key=True))
        if problems:
            raise DocumentError(problems)
        return expected.of_decision

    # --- comparing -----------------------------------------------------------------------------------

    def _expected(self, case: Case, case_cluster: CaseCluster) -> dict[Path | None, Expectations]:
        """Return what is expected of the pods of each step, and under None of all of them."""
        problems = list(self._context.readings.unknown_nodes(case, case_cluster.facts))
        pods = lambda: frozenset((*(pod.name for pod in case_cluster.cluster.pods.values()), *planned_names(case)))  # noqa: E731
        queries = [query.promql for query in self._queries]
        reader = ValueReader(self.suite.document, facts=case_cluster.facts, pods=pods, queries=queries)
        expected: dict[Path | None, Expectations] = {None: expectations(case.expect, reader)}
        for step in case.steps:
            if step.expect is not None:
                expected[step.path] = expectations(step.expect, reader)
        problems += reader.problems
        for step_path, several in expected.items():
            for one, message in _misplaced(case, several, step_path):
                problems.append(self.suite.document.error(one.path, codes.BAD_FIXTURE, message=message, key=True))
        if problems:
            raise DocumentError(problems)
        return expected

    def _compared(
        self, case: Case, case_cluster: CaseCluster, expected: dict[Path | None, Expectations]
    ) -> tuple[list[Failure], tuple[Outcome, ...]]:
        failures: dict[tuple[object, ...], Failure] = {}
        outcomes: list[Outcome] = []
        runner = CaseRunner(case, case_cluster, self._context)
        of_all, none = expected[None], Expectations()
        in_full = any(one.kind.about_filters for each in expected.values() for one in each.of_decision)
        for decided in runner.decisions(in_full=in_full):
            outcome = decided.outcome
            outcomes.append(outcome)
            if case.only_schedulable and outcome.host is None and outcome.error is None:
                continue
            for one in (*of_all.of_decision, *expected.get(decided.step.path, none).of_decision):
                failure = self._failure(case, one, decided, case_cluster)
                if failure is not None:
                    failures.setdefault((one.path, one.key), failure)
        placements = _placements(runner, case_cluster)
        for each in of_all.of_case:
            mismatch = each.mismatch(placements)
            if mismatch is not None:
                failures[each.path, each.key] = Failure(each, mismatch)
        if case.only_schedulable and all(outcome.host is None for outcome in outcomes):
            nothing = Mismatch("a pod that fits somewhere", f"none of {plural(len(outcomes), 'pod')} does")
            failures["where",] = Failure(Expected("where", (*case.path, "where")), nothing)
        return list(failures.values()), tuple(outcomes)

    def _queue(self, case: Case, case_cluster: CaseCluster, expected: Expectations) -> list[Failure]:
        queue = PodsOfQueue(CaseRunner(case, case_cluster, self._context).waiting(), tie_ok=case.tie_ok)
        failures = []
        for one in expected.of_queue:
            mismatch = one.mismatch(queue)
            if mismatch is not None:
                failures.append(Failure(one, mismatch, values=values_of_queue(queue.pods)))
        return failures

    def _failure(
        self, case: Case, one: Expectation[OneDecision], decided: Decided, case_cluster: CaseCluster
    ) -> Failure | None:
        outcome, profile, clause = decided.outcome, decided.policy.profile, one.clause
        if clause is not None and clause not in decided.policy.clause_names:
            known = decided.policy.clause_names
            advice = did_you_mean(clause, sorted(known - _KUBERNETES) or sorted(known))
            message = f"policy `{profile.name}` has no clause `{clause}`"
            path = (*one.path, "clause")
            error = self.suite.document.error(path, codes.UNKNOWN_CLAUSE, message=message, advice=advice)
            raise DocumentError([error])
        subject = OneDecision(
            outcome,
            case_cluster.facts,
            frozenset(plugin.name for plugin in profile.filters) - _KUBERNETES,
            tie_ok=case.tie_ok,
            admits_missing=bool(case.expect.value.get("degraded")),
        )
        mismatch = one.mismatch(subject)
        if mismatch is None:
            return None
        full = outcome
        if not outcome.verdicts and outcome.held is None and outcome.error is None:
            full = decided.in_full()
            mismatch = one.mismatch(replace(subject, outcome=full)) or mismatch
        values = values_of_decision(one, full, decided.policy, decided.frame)
        return Failure(one, mismatch, outcome.pod if case.kind is not Kind.ONE else "", values)

    # --- once more -----------------------------------------------------------------------------------

    def _again(
        self, case: Case, case_cluster: CaseCluster, answers: Answers | None = None
    ) -> tuple[list[Outcome], CaseRunner]:
        context = replace(self._context, observe=None)
        runner = CaseRunner(case, case_cluster, context, answers=answers)
        return [decided.outcome for decided in runner.decisions(in_full=False)], runner

    def _under_other_seeds(
        self, case: Case, case_cluster: CaseCluster, of_case: Sequence[Expectation[AllPlacements]]
    ) -> list[Failure]:
        for more in _OTHER_SEEDS:
            with case_cluster.trying():
                self._builder.lay_over(case, case_cluster)
                _, runner = self._again(case, case_cluster, Answers(seed=self.suite.seed + more))
                placements = _placements(runner, case_cluster)
                for one in of_case:
                    mismatch = one.mismatch(placements)
                    if mismatch is not None:
                        got = f"{mismatch.got} where ties fall otherwise; if this does not matter, write `tie: ok`"
                        return [Failure(one, Mismatch(mismatch.expected, got))]
        return []

    def _shuffled(self, case: Case, outcomes: Sequence[Outcome]) -> list[Failure]:
        case_cluster = self._case_cluster(shuffled=True)
        with case_cluster.trying():
            self._builder.lay_over(case, case_cluster)
            again, _ = self._again(case, case_cluster)
        for before, after in zip(outcomes, again, strict=True):
            if before.host != after.host or not _same(before.totals, after.totals):
                order = Expected("order of nodes", case.path)
                mismatch = Mismatch(before.described(), f"{after.described()}, with the nodes in a different order")
                return [Failure(order, mismatch, before.pod if case.kind is not Kind.ONE else "")]
        return []

    def _case_cluster(self, *, shuffled: bool) -> CaseCluster:
        if shuffled not in self._case_clusters:
            self._case_clusters[shuffled] = self._builder.case_cluster(shuffled=shuffled, seed=self.suite.seed)
        return self._case_clusters[shuffled]


def _placements(runner: CaseRunner, case_cluster: CaseCluster) -> AllPlacements:
    """Return where the pods of a case are."""
    return AllPlacements(runner.placed(), case_cluster.facts, frozenset(runner.open_to), runner.queues())


def _misplaced(case: Case, several: Expectations, step: Path | None) -> Iterator[tuple[Expected, str]]:
    """Yield the expectations that cannot stand where they do, and why."""
    if case.kind is Kind.QUEUE:
        others: tuple[Expected, ...] = (*several.of_decision, *several.of_case)
        for one in others:
            yield one, f"`{one.key}` applies to a decision, but a `queue` decides nothing; expected `turns`"
        return
    for turns in several.of_queue:
        yield turns, f"`{turns.key}` requires a `queue`, which this case does not have"
    if step is not None or case.kind is Kind.FORALL:
        for each in several.of_case:
            yield each, f"`{each.key}` applies to the whole sequence: move it to the `expect` of the case"


def _property(each: ForAll, fixtures: Fixtures) -> Case:
    pods = [one for part in each.files for one in fixtures.pods[part.value]]
    steps = (*each.templates, *(Step((*each.case.path, "pods"), pod, base=pod.name) for pod in pods))
    return replace(each.case, steps=steps)


def _same(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return before.keys() == after.keys() and all(
        math.isclose(total, after[name], rel_tol=1e-9, abs_tol=1e-9) for name, total in before.items()
    )
