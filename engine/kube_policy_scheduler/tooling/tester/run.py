"""Runs the cases of a suite through the scheduling cycle. Everything that was read from files comes as arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.kubernetes import kubernetes_filters
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.comparing import Mismatch, compare, compare_all, went
from kube_policy_scheduler.tooling.tester.expect_form import Expected, ExpectReader
from kube_policy_scheduler.tooling.tester.expectation import (
    Degraded,
    Feasible,
    Filtered,
    MaxSkew,
    Placed,
    Turns,
    Unschedulable,
)
from kube_policy_scheduler.tooling.tester.invalid import refusal
from kube_policy_scheduler.tooling.tester.outcome import Outcome
from kube_policy_scheduler.tooling.tester.playing import Decided, Observe, Play, Theatre, planned_names
from kube_policy_scheduler.tooling.tester.pointers import pointers, turn_pointers
from kube_policy_scheduler.tooling.tester.policies import TestedPolicies
from kube_policy_scheduler.tooling.tester.readings import Readings
from kube_policy_scheduler.tooling.tester.results import AnyCase, CaseResult, Failure, State, SuiteResult, ended
from kube_policy_scheduler.tooling.tester.scene import Scene, SceneBuilder
from kube_policy_scheduler.tooling.tester.suite import (
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
from kube_policy_scheduler.tooling.tester.waiting import compare_turns

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
    ) -> None:
        """Take a suite and what its files hold.

        Args:
            suite: the test file.
            policies: its policies, compiled.
            fixtures: what the other files hold that it names.
            scheduler: the scheduler name of pods that name none.
            shuffle: decide every case a second time with the nodes in another order, and demand the same.
            observe: called before each decision of the first time.
        """
        self.suite = suite
        self._fixtures = fixtures or Fixtures()
        self._scheduler = scheduler
        self._shuffle = shuffle
        self._builder = SceneBuilder(suite, self._fixtures.cluster, scheduler=scheduler)
        self._scenes: dict[bool, Scene] = {}
        self.cases: tuple[AnyCase, ...] = (
            *suite.cases,
            *suite.invalid,
            *(_property(each, self._fixtures) for each in suite.forall),
        )
        """In the order in which they stand in the file."""
        self._with(policies, observe)

    def _with(self, policies: TestedPolicies, observe: Observe | None) -> None:
        self._queries = tuple(dict.fromkeys(policies.queries))
        readings = Readings(self.suite, self._queries)
        self._theatre = Theatre(self.suite.document, self._builder, readings, policies, observe)

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
        problems: list[Diagnostic] = list(self._theatre.readings.problems())
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
            return ended(case, refusal(case, self._fixtures), ())
        scene = self._scene(shuffled=False)
        with scene.changing():
            self._builder.lay_over(case, scene)
            expected = self._expected(case, scene)
            if case.skip:
                return CaseResult(case, State.SKIPPED)
            if case.kind is Kind.QUEUE:
                return ended(case, self._queue(case, scene, expected[None]), ())
            failures, outcomes = self._compared(case, scene, expected)
        whole = [one for one in expected[None] if isinstance(one.value, Placed | MaxSkew)]
        if whole and not failures and not case.tie_ok and any(len(outcome.tied) > 1 for outcome in outcomes):
            failures += self._under_other_seeds(case, scene, whole)
        if self._shuffle:
            failures += self._shuffled(case, outcomes)
        return ended(case, failures, outcomes)

    # --- comparing -----------------------------------------------------------------------------------

    def _expected(self, case: Case, scene: Scene) -> dict[Path | None, tuple[Expected, ...]]:
        """Return what is expected of the pods of each step, and under None of all of them."""
        problems = list(self._theatre.readings.unknown_nodes(case, scene))
        pods = lambda: frozenset((*(pod.name for pod in scene.cluster.pods.values()), *planned_names(case)))  # noqa: E731
        queries = [query.promql for query in self._queries]
        reader = ExpectReader(self.suite.document, facts=scene.facts, pods=pods, queries=queries)
        expected: dict[Path | None, tuple[Expected, ...]] = {None: reader.read(case.expect)}
        for step in case.steps:
            if step.expect is not None:
                expected[step.path] = reader.read(step.expect)
        problems += reader.problems
        for step_path, several in expected.items():
            for one in several:
                message = _misplaced(case, one, step_path)
                if message:
                    problems.append(self.suite.document.error(one.path, codes.BAD_FIXTURE, message=message, key=True))
        if problems:
            raise DocumentError(problems)
        return expected

    def _compared(
        self, case: Case, scene: Scene, expected: dict[Path | None, tuple[Expected, ...]]
    ) -> tuple[list[Failure], tuple[Outcome, ...]]:
        failures: dict[tuple[object, ...], Failure] = {}
        outcomes: list[Outcome] = []
        play = Play(case, scene, self._theatre, cycle=scene.cycle)
        several = (one for each in expected.values() for one in each)
        in_full = any(isinstance(one.value, Unschedulable | Filtered | Feasible) for one in several)
        for decided in play.decisions(in_full=in_full):
            outcome = decided.outcome
            outcomes.append(outcome)
            if case.only_schedulable and outcome.host is None and outcome.error is None:
                continue
            for one in (*expected[None], *expected.get(decided.step.path, ())):
                failure = self._failure(case, one, decided, scene)
                if failure is not None:
                    failures.setdefault((one.path, one.key), failure)
        for one in expected[None]:
            if isinstance(one.value, Placed | MaxSkew):
                mismatch = compare_all(one.value, play.placed(), facts=scene.facts, open_to=frozenset(play.open_to))
                if mismatch is not None:
                    failures[one.path, one.key] = Failure(one, mismatch)
        if case.only_schedulable and all(outcome.host is None for outcome in outcomes):
            nothing = Mismatch("a pod that fits somewhere", f"none of {len(outcomes)} pods does")
            failures["where",] = Failure(Expected("where", (*case.path, "where"), None), nothing)
        return list(failures.values()), tuple(outcomes)

    def _queue(self, case: Case, scene: Scene, expected: Sequence[Expected]) -> list[Failure]:
        pods = Play(case, scene, self._theatre, cycle=scene.cycle).waiting()
        failures = []
        for one in expected:
            assert isinstance(one.value, Turns)
            mismatch = compare_turns(one.value, pods, tie_ok=case.tie_ok)
            if mismatch is not None:
                failures.append(Failure(one, mismatch, values=turn_pointers(pods)))
        return failures

    def _failure(self, case: Case, one: Expected, decided: Decided, scene: Scene) -> Failure | None:
        value, outcome, profile = one.value, decided.outcome, decided.policy.profile
        if value is None or isinstance(value, Placed | MaxSkew | Turns):
            return None
        clause = value.reason.clause if isinstance(value, Unschedulable | Filtered) else None
        if clause is not None and clause not in decided.policy.clause_names:
            known = decided.policy.clause_names
            advice = did_you_mean(clause, sorted(known - _KUBERNETES) or sorted(known))
            message = f"policy `{profile.name}` has no clause `{clause}`"
            path = (*one.path, "clause")
            error = self.suite.document.error(path, codes.UNKNOWN_CLAUSE, message=message, advice=advice)
            raise DocumentError([error])
        own = frozenset(plugin.name for plugin in profile.filters) - _KUBERNETES
        degraded = bool(case.expect.value.get("degraded"))

        def held_against(outcome: Outcome) -> Mismatch | None:
            return compare(
                value,
                outcome,
                facts=scene.facts,
                policy_clauses=own,
                tie_ok=case.tie_ok,
                admits_missing=degraded,
            )

        mismatch = held_against(outcome)
        if mismatch is None:
            return None
        full = outcome
        if not outcome.verdicts and outcome.held is None and outcome.error is None:
            full = decided.in_full()
            mismatch = held_against(full) or mismatch
        values = () if isinstance(value, Degraded) else pointers(value, full, decided.policy, decided.frame)
        return Failure(one, mismatch, outcome.pod if case.kind is not Kind.ONE else "", values)

    # --- once more -----------------------------------------------------------------------------------

    def _again(self, case: Case, scene: Scene, cycle: Cycle) -> tuple[list[Outcome], Play]:
        theatre = replace(self._theatre, observe=None)
        play = Play(case, scene, theatre, cycle=cycle)
        return [decided.outcome for decided in play.decisions(in_full=False)], play

    def _under_other_seeds(self, case: Case, scene: Scene, whole: Sequence[Expected]) -> list[Failure]:
        for more in _OTHER_SEEDS:
            with scene.changing():
                self._builder.lay_over(case, scene)
                _, play = self._again(case, scene, Cycle(seed=self.suite.seed + more))
                placed, open_to = play.placed(), frozenset(play.open_to)
                for one in whole:
                    assert isinstance(one.value, Placed | MaxSkew)
                    mismatch = compare_all(one.value, placed, facts=scene.facts, open_to=open_to)
                    if mismatch is not None:
                        got = f"{mismatch.got} where ties fall otherwise; write `tie: ok` where that does not matter"
                        return [Failure(one, Mismatch(mismatch.expected, got))]
        return []

    def _shuffled(self, case: Case, outcomes: Sequence[Outcome]) -> list[Failure]:
        scene = self._scene(shuffled=True)
        with scene.changing():
            self._builder.lay_over(case, scene)
            again, _ = self._again(case, scene, scene.cycle)
        for before, after in zip(outcomes, again, strict=True):
            if before.host != after.host or not _same(before.totals, after.totals):
                order = Expected("order of nodes", case.path, None)
                mismatch = Mismatch(went(before), f"{went(after)}, with the nodes in another order")
                return [Failure(order, mismatch, before.pod if case.kind is not Kind.ONE else "")]
        return []

    def _scene(self, *, shuffled: bool) -> Scene:
        if shuffled not in self._scenes:
            self._scenes[shuffled] = self._builder.scene(shuffled=shuffled, seed=self.suite.seed)
        return self._scenes[shuffled]


def _misplaced(case: Case, one: Expected, step: Path | None) -> str:
    """Return why an expectation cannot stand where it does, "" where it can."""
    if isinstance(one.value, Turns) is not (case.kind is Kind.QUEUE):
        if case.kind is Kind.QUEUE:
            return f"`{one.key}` is about a decision, and of a `queue` nothing is decided; expected `turns`"
        return "`turns` is about a `queue`, which this case does not have"
    if isinstance(one.value, Placed | MaxSkew) and (step is not None or case.kind is Kind.FORALL):
        return f"`{one.key}` is about a sequence as a whole, it stands in the `expect` of the case"
    return ""


def _property(each: ForAll, fixtures: Fixtures) -> Case:
    pods = [one for part in each.files for one in fixtures.pods[part.value]]
    steps = (*each.templates, *(Step((*each.case.path, "pods"), pod, base=pod.name) for pod in pods))
    return replace(each.case, steps=steps)


def _same(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return before.keys() == after.keys() and all(
        math.isclose(total, after[name], rel_tol=1e-9, abs_tol=1e-9) for name, total in before.items()
    )
