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
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause
from kube_policy_scheduler.policy.answer import Answers
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.case_runner import (
    CaseCluster,
    CaseClusterBuilder,
    CaseRunner,
    Decided,
    Observe,
    Readings,
    RunContext,
    Waiting,
    compare_turns,
    planned_names,
)
from kube_policy_scheduler.tooling.tester.expectations import (
    Degraded,
    Expected,
    ExpectReader,
    Feasible,
    Filtered,
    GoesTo,
    InQueue,
    Margin,
    MaxSkew,
    Mismatch,
    NotOn,
    OfOne,
    Order,
    Placed,
    Schedulable,
    Score,
    Turns,
    Unschedulable,
    compare,
    compare_all,
    describe_outcome,
    number,
    says,
)
from kube_policy_scheduler.tooling.tester.outcome import Outcome, TestedPolicies, TestedPolicy
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
from kube_policy_scheduler.tooling.why.scores import PartValues, leaves, part_values

_REFUSING = frozenset({ClauseKind.FILTER, ClauseKind.REQUIRE, ClauseKind.LIMIT})
_MOST_NODES = 3
_MOST_CLAUSES = 4


@dataclass(frozen=True, slots=True)
class Pointer:
    """One subexpression and its values."""

    start: int
    """Offset in the clause's text."""
    end: int
    values: tuple[tuple[str, str], ...]
    """Node and value; the node is "" where it is one value for the whole decision."""


@dataclass(frozen=True, slots=True)
class ClauseValues:
    """A clause as it was written, and what its innermost parts say."""

    place: str
    """`FILE:LINE`"""
    text: str
    """One line."""
    pointers: tuple[Pointer, ...]
    """In the order of the text."""
    scores: tuple[tuple[str, str], ...] = ()
    """Of a score: node, and what the clause adds to its total."""


def pointers(value: OfOne, outcome: Outcome, policy: TestedPolicy, frame: Frame) -> tuple[ClauseValues, ...]:
    """Return what explains a decision that is not as expected; the world has to be as it was for the decision."""
    if outcome.held is not None or outcome.error is not None:
        chosen = [clause for clause in policy.clauses if clause.kind is ClauseKind.HOLD and outcome.held is not None]
        return tuple(_values(clause, frame, ()) for clause in chosen[:_MOST_CLAUSES])
    nodes = _concerned(value, outcome)
    rows = frame.cluster.nodes.rows
    nodes = [name for name in nodes if name in rows][:_MOST_NODES]
    about_filters = isinstance(value, Filtered | Feasible | Unschedulable)
    if outcome.host is None or about_filters or not set(nodes) & set(outcome.totals):
        refusing = {verdict.clause for verdict in outcome.verdicts if not nodes or verdict.refused.keys() & set(nodes)}
        clauses = [c for c in policy.clauses if c.kind in _REFUSING and (c.name in refusing or not refusing)]
        return tuple(_values(clause, frame, nodes) for clause in clauses[:_MOST_CLAUSES])
    clauses = [c for c in policy.clauses if c.kind in (ClauseKind.SCORE, ClauseKind.SPREAD, ClauseKind.PACK)]
    evaluation = evaluate(frame, policy.profile)
    places = {int(row): place for place, row in enumerate(evaluation.feasible)}

    def added(clause: CompiledClause) -> tuple[tuple[str, str], ...]:
        scores = evaluation.scores.get(clause.name)
        if scores is None:
            return ()
        return tuple((name, number(float(scores[places[rows[name]]]))) for name in nodes if rows[name] in places)

    return tuple(replace(_values(clause, frame, nodes), scores=added(clause)) for clause in clauses[:_MOST_CLAUSES])


def turn_pointers(pods: Sequence[Waiting]) -> tuple[ClauseValues, ...]:
    """Return what the `order by` of each policy says of each pod of a queue."""
    found: dict[int, ClauseValues] = {}
    for pod in pods:
        for clause in pod.policy.clauses:
            if clause.kind is not ClauseKind.ORDER:
                continue
            one = _values(clause, pod.frame, ())
            named = tuple(
                replace(part, values=tuple((pod.name, text) for _, text in part.values)) for part in one.pointers
            )
            known = found.get(id(clause))
            if known is not None:
                named = tuple(
                    replace(part, values=(*part.values, *more.values))
                    for part, more in zip(known.pointers, named, strict=True)
                )
            found[id(clause)] = replace(one, pointers=named)
    return tuple(found.values())


def _concerned(value: OfOne, outcome: Outcome) -> list[str]:
    """Return the nodes that an expectation is about, and those that it was not about but should have been."""
    ranked = sorted(outcome.totals, key=lambda name: (-outcome.totals[name], name))
    match value:
        case Score(node=node) | Filtered(node=node):
            return [node]
        case Order(nodes=nodes):
            return list(nodes)
        case Feasible(nodes=nodes):
            return sorted(nodes ^ outcome.feasible)
        case GoesTo(match=match) | NotOn(match=match) if match.names:
            return list(dict.fromkeys((*match.names, *((outcome.host,) if outcome.host else ()))))
        case Unschedulable() | Schedulable() | NotOn() | GoesTo() | Margin():
            return ranked[:2] or sorted(outcome.nodes)[:_MOST_NODES]
        case _:
            return []


def _values(clause: CompiledClause, frame: Frame, nodes: Sequence[str]) -> ClauseValues:
    span = clause.span
    line, _ = span.source.position(span.start)
    text, offsets = _one_line(span.text)
    positions = [frame.cluster.nodes.rows[name] for name in nodes] or [0]
    found = []
    # what stands where another part stands, as the label within `label a=b`, is left to that
    outermost = {part.span.start: part for part in reversed(leaves(clause, (span.start, span.end)))}
    for _, part in sorted(outermost.items()):
        for values in part_values([part], frame, positions):
            if not nodes and not values.same:
                continue
            start, last = offsets[part.span.start - span.start], offsets[part.span.end - span.start - 1]
            found.append(Pointer(start, last + 1, _by_node(values, nodes)))
    return ClauseValues(f"{span.source.name}:{line}", text, tuple(found))


def _by_node(values: PartValues, nodes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    texts = values.texts()
    return (("", texts[0]),) if values.same and texts else tuple(zip(nodes, texts, strict=True))


def _one_line(text: str) -> tuple[str, list[int]]:
    """Return a text with every run of white space as one blank, and where each of its characters went."""
    done: list[str] = []
    offsets = []
    for character in text:
        offsets.append(len(done))
        if not character.isspace():
            done.append(character)
        elif done and done[-1] != " ":
            done.append(" ")
    return "".join(done).rstrip(), offsets


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
        holds = Expected("todo", (*case.path, "todo"), None)
        unexpected = Failure(holds, Mismatch(f"not to pass yet: {case.todo}", "it passes; remove `todo`"))
        return CaseResult(case, State.FAILED, (unexpected,), outcomes)
    else:
        state = State.FAILED if failures else State.PASSED
    return CaseResult(case, state, tuple(failures), outcomes)


_SOURCE = "policy"
"""The name of a policy that is written in the test file."""


def refusal(case: Invalid, fixtures: Fixtures) -> list[Failure]:
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
    return [Failure(Expected(key, (*case.path, key), None), Mismatch(_wanted(case), got))]


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
            value, got = failure.expected.value, failure.mismatch.value
            if not isinstance(value, Score | Placed) or got is None:
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
    ) -> None:
        """Take a suite and what its files hold.

        Args:
            suite: the test file.
            policies: its policies, compiled.
            fixtures: what the other files hold that it names.
            scheduler: the scheduler name of pods that name none.
            shuffle: decide every case a second time with the nodes in a different order, and demand the same.
            observe: called before each decision of the first time.
        """
        self.suite = suite
        self._fixtures = fixtures or Fixtures()
        self._scheduler = scheduler
        self._shuffle = shuffle
        self._builder = CaseClusterBuilder(suite, self._fixtures.cluster, scheduler=scheduler)
        self._case_clusters: dict[bool, CaseCluster] = {}
        self.cases: tuple[AnyCase, ...] = (
            *suite.cases,
            *suite.invalid,
            *(_property(each, self._fixtures) for each in suite.forall),
        )
        """In the order of the file."""
        self._with(policies, observe)

    def _with(self, policies: TestedPolicies, observe: Observe | None) -> None:
        self._queries = tuple(dict.fromkeys(policies.queries))
        readings = Readings(self.suite, self._queries)
        self._context = RunContext(self.suite.document, self._builder, readings, policies, observe)

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
            return ended(case, refusal(case, self._fixtures), ())
        case_cluster = self._case_cluster(shuffled=False)
        with case_cluster.trying():
            self._builder.lay_over(case, case_cluster)
            expected = self._expected(case, case_cluster)
            if case.skip:
                return CaseResult(case, State.SKIPPED)
            if case.kind is Kind.QUEUE:
                return ended(case, self._queue(case, case_cluster, expected[None]), ())
            failures, outcomes = self._compared(case, case_cluster, expected)
        whole = [one for one in expected[None] if isinstance(one.value, Placed | MaxSkew | InQueue)]
        if whole and not failures and not case.tie_ok and any(len(outcome.tied) > 1 for outcome in outcomes):
            failures += self._under_other_seeds(case, case_cluster, whole)
        if self._shuffle:
            failures += self._shuffled(case, outcomes)
        return ended(case, failures, outcomes)

    # --- comparing -----------------------------------------------------------------------------------

    def _expected(self, case: Case, case_cluster: CaseCluster) -> dict[Path | None, tuple[Expected, ...]]:
        """Return what is expected of the pods of each step, and under None of all of them."""
        problems = list(self._context.readings.unknown_nodes(case, case_cluster))
        pods = lambda: frozenset((*(pod.name for pod in case_cluster.cluster.pods.values()), *planned_names(case)))  # noqa: E731
        queries = [query.promql for query in self._queries]
        reader = ExpectReader(self.suite.document, facts=case_cluster.facts, pods=pods, queries=queries)
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
        self, case: Case, case_cluster: CaseCluster, expected: dict[Path | None, tuple[Expected, ...]]
    ) -> tuple[list[Failure], tuple[Outcome, ...]]:
        failures: dict[tuple[object, ...], Failure] = {}
        outcomes: list[Outcome] = []
        runner = CaseRunner(case, case_cluster, self._context)
        several = (one for each in expected.values() for one in each)
        in_full = any(isinstance(one.value, Unschedulable | Filtered | Feasible) for one in several)
        for decided in runner.decisions(in_full=in_full):
            outcome = decided.outcome
            outcomes.append(outcome)
            if case.only_schedulable and outcome.host is None and outcome.error is None:
                continue
            for one in (*expected[None], *expected.get(decided.step.path, ())):
                failure = self._failure(case, one, decided, case_cluster)
                if failure is not None:
                    failures.setdefault((one.path, one.key), failure)
        for one in expected[None]:
            if isinstance(one.value, Placed | MaxSkew | InQueue):
                mismatch = compare_all(
                    one.value,
                    runner.placed(),
                    facts=case_cluster.facts,
                    open_to=frozenset(runner.open_to),
                    queues=runner.queues(),
                )
                if mismatch is not None:
                    failures[one.path, one.key] = Failure(one, mismatch)
        if case.only_schedulable and all(outcome.host is None for outcome in outcomes):
            nothing = Mismatch("a pod that fits somewhere", f"none of {len(outcomes)} pods does")
            failures["where",] = Failure(Expected("where", (*case.path, "where"), None), nothing)
        return list(failures.values()), tuple(outcomes)

    def _queue(self, case: Case, case_cluster: CaseCluster, expected: Sequence[Expected]) -> list[Failure]:
        pods = CaseRunner(case, case_cluster, self._context).waiting()
        failures = []
        for one in expected:
            assert isinstance(one.value, Turns)
            mismatch = compare_turns(one.value, pods, tie_ok=case.tie_ok)
            if mismatch is not None:
                failures.append(Failure(one, mismatch, values=turn_pointers(pods)))
        return failures

    def _failure(self, case: Case, one: Expected, decided: Decided, case_cluster: CaseCluster) -> Failure | None:
        value, outcome, profile = one.value, decided.outcome, decided.policy.profile
        if value is None or isinstance(value, Placed | MaxSkew | InQueue | Turns):
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
                facts=case_cluster.facts,
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

    def _again(
        self, case: Case, case_cluster: CaseCluster, answers: Answers | None = None
    ) -> tuple[list[Outcome], CaseRunner]:
        context = replace(self._context, observe=None)
        runner = CaseRunner(case, case_cluster, context, answers=answers)
        return [decided.outcome for decided in runner.decisions(in_full=False)], runner

    def _under_other_seeds(self, case: Case, case_cluster: CaseCluster, whole: Sequence[Expected]) -> list[Failure]:
        for more in _OTHER_SEEDS:
            with case_cluster.trying():
                self._builder.lay_over(case, case_cluster)
                _, runner = self._again(case, case_cluster, Answers(seed=self.suite.seed + more))
                placed, open_to = runner.placed(), frozenset(runner.open_to)
                for one in whole:
                    assert isinstance(one.value, Placed | MaxSkew | InQueue)
                    mismatch = compare_all(
                        one.value, placed, facts=case_cluster.facts, open_to=open_to, queues=runner.queues()
                    )
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
                order = Expected("order of nodes", case.path, None)
                mismatch = Mismatch(
                    describe_outcome(before), f"{describe_outcome(after)}, with the nodes in a different order"
                )
                return [Failure(order, mismatch, before.pod if case.kind is not Kind.ONE else "")]
        return []

    def _case_cluster(self, *, shuffled: bool) -> CaseCluster:
        if shuffled not in self._case_clusters:
            self._case_clusters[shuffled] = self._builder.case_cluster(shuffled=shuffled, seed=self.suite.seed)
        return self._case_clusters[shuffled]


def _misplaced(case: Case, one: Expected, step: Path | None) -> str:
    """Return why an expectation cannot stand where it does, "" where it can."""
    if isinstance(one.value, Turns) is not (case.kind is Kind.QUEUE):
        if case.kind is Kind.QUEUE:
            return f"`{one.key}` applies to a decision, but a `queue` decides nothing; expected `turns`"
        return "`turns` requires a `queue`, which this case does not have"
    if isinstance(one.value, Placed | MaxSkew | InQueue) and (step is not None or case.kind is Kind.FORALL):
        return f"`{one.key}` applies to the whole sequence: move it to the `expect` of the case"
    return ""


def _property(each: ForAll, fixtures: Fixtures) -> Case:
    pods = [one for part in each.files for one in fixtures.pods[part.value]]
    steps = (*each.templates, *(Step((*each.case.path, "pods"), pod, base=pod.name) for pod in pods))
    return replace(each.case, steps=steps)


def _same(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return before.keys() == after.keys() and all(
        math.isclose(total, after[name], rel_tol=1e-9, abs_tol=1e-9) for name, total in before.items()
    )
