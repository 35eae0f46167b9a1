"""Runs the cases of a suite through the scheduling cycle. Everything that was read from files comes as arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from engine.cluster.node_identities import TableIdentities
from engine.cluster.signal_join import SignalColumns, SignalState
from engine.cluster.signals import Signals
from engine.diagnostics import Diagnostic
from engine.documents.fixtures import FixtureObject
from engine.documents.yaml_document import DocumentError
from engine.framework.frame import Frame
from engine.framework.kubernetes import kubernetes_filters
from engine.framework.profile import Profile
from engine.lang.codes import Code
from engine.tooling.tester import codes
from engine.tooling.tester.comparing import Mismatch, compare, went
from engine.tooling.tester.expect_form import Expected, ExpectReader
from engine.tooling.tester.expectation import Filtered, Unschedulable
from engine.tooling.tester.metrics import RESERVED, Metrics, is_series
from engine.tooling.tester.outcome import Outcome, outcome
from engine.tooling.tester.policies import TestedPolicies
from engine.tooling.tester.scene import Scene, SceneBuilder
from engine.tooling.tester.suite import Case, Part, Path, Suite, did_you_mean


class State(Enum):
    """How a case ended."""

    PASSED = "pass"
    FAILED = "fail"
    SKIPPED = "skip"


@dataclass(frozen=True, slots=True)
class Failure:
    """One expectation that does not hold."""

    expected: Expected
    mismatch: Mismatch


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case and how it ended."""

    case: Case
    state: State
    failures: tuple[Failure, ...] = ()
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """One test file and how its cases ended."""

    suite: Suite
    cases: tuple[CaseResult, ...]

    def count(self, state: State) -> int:
        """Return how many cases ended so."""
        return sum(result.state is state for result in self.cases)


def run_suite(
    suite: Suite, policies: TestedPolicies, recorded: Sequence[FixtureObject], *, scheduler: str
) -> SuiteResult:
    """Decide every case and compare.

    Args:
        suite: the test file.
        policies: its policies, compiled.
        recorded: the objects of its cluster files.
        scheduler: the scheduler name of pods that name none.

    Raises:
        DocumentError: the file names what does not exist, or an object cannot be made.
    """
    return _Run(suite, policies, recorded, scheduler=scheduler).result()


class _Run:
    def __init__(
        self, suite: Suite, policies: TestedPolicies, recorded: Sequence[FixtureObject], *, scheduler: str
    ) -> None:
        self._suite = suite
        self._policies = policies
        self._queries = tuple(dict.fromkeys(policies.queries))
        self._builder = SceneBuilder(suite, recorded, scheduler=scheduler)
        self._scenes: dict[bool, Scene] = {}
        self._kubernetes = frozenset(plugin.name for plugin in kubernetes_filters())
        self._problems: list[Diagnostic] = []

    def result(self) -> SuiteResult:
        self._check_metrics(self._suite.metrics)
        for case in self._suite.cases:
            if case.metrics is not None:
                self._check_metrics(case.metrics)
        results = []
        for case in self._suite.cases:
            try:
                results.append(self._case(case))
            except DocumentError as error:
                self._problems.extend(error.diagnostics)
        if self._problems:
            raise DocumentError(self._problems)
        return SuiteResult(self._suite, tuple(results))

    def _case(self, case: Case) -> CaseResult:
        scene = self._scene(case, reverse=False)
        for metrics in (self._suite.metrics, case.metrics):
            if metrics is not None:
                self._check_nodes(metrics, scene)
        names = [query.promql for query in self._queries]
        pods = frozenset(pod.name for pod in scene.cluster.pods.values())
        reader = ExpectReader(self._suite.document, facts=scene.facts, pods=pods, queries=names)
        expected = reader.read(case.expect)
        if reader.problems:
            raise DocumentError(reader.problems)
        if case.skip:
            return CaseResult(case, State.SKIPPED)
        got, profile = self._decide(case, scene)
        failures = [
            Failure(one, mismatch)
            for one in expected
            if (mismatch := self._compare(case, one, got, scene, profile)) is not None
        ]
        again, _ = self._decide(case, self._scene(case, reverse=True))
        if (again.host, again.totals) != (got.host, got.totals):
            order = Expected("order of nodes", case.path, expected[0].value)
            failures.append(Failure(order, Mismatch(went(got), f"{went(again)}, with the nodes the other way around")))
        return CaseResult(case, State.FAILED if failures else State.PASSED, tuple(failures), got)

    def _scene(self, case: Case, *, reverse: bool) -> Scene:
        if case.nodes or case.pods:
            return self._builder.scene(case, reverse=reverse)
        if reverse not in self._scenes:
            self._scenes[reverse] = self._builder.scene(reverse=reverse)
        return self._scenes[reverse]

    def _decide(self, case: Case, scene: Scene) -> tuple[Outcome, Profile]:
        pod = self._builder.pod(case, scene.cluster)
        policy = self._policies.governing(pod)
        if policy is None:
            message = f"no policy governs the pod: its scheduler is `{pod.scheduler_name}`"
            raise DocumentError([self._suite.document.error(case.pod.path, codes.NOT_GOVERNED, message=message)])
        signals = self._metrics(case).signals(self._queries, now=case.now)
        frame = Frame(
            pod,
            scene.cluster,
            case.now,
            signals=signals,
            queued=case.now - case.queued_seconds,
            attempts=case.attempts,
        )
        held, degraded = policy.hold_reason(frame), self._degraded(scene, signals, case.now)
        return outcome(frame, policy, seed=self._suite.seed, held=held, degraded=degraded), policy.profile

    def _degraded(self, scene: Scene, signals: Signals, now: float) -> Iterable[str]:
        columns = SignalColumns()
        nodes = TableIdentities(scene.cluster.nodes)
        for query in self._queries:
            column = columns.column(query, signals=signals, nodes=nodes, now=now)
            if column.state is not SignalState.FRESH or column.missing:
                yield query.promql

    def _compare(self, case: Case, expected: Expected, got: Outcome, scene: Scene, profile: Profile) -> Mismatch | None:
        clause = expected.value.reason.clause if isinstance(expected.value, Unschedulable | Filtered) else None
        if clause is not None and clause not in got.clauses:
            advice = did_you_mean(clause, sorted(got.clauses - self._kubernetes) or sorted(got.clauses))
            message = f"policy `{profile.name}` has no clause `{clause}`"
            path = (*expected.path, "clause")
            raise DocumentError(
                [self._suite.document.error(path, codes.UNKNOWN_CLAUSE, message=message, advice=advice)]
            )
        own = frozenset(plugin.name for plugin in profile.filters) - self._kubernetes
        return compare(expected.value, got, facts=scene.facts, policy_clauses=own, tie_ok=case.tie_ok)

    # --- metrics -------------------------------------------------------------------------------------

    def _metrics(self, case: Case) -> Metrics:
        metrics = Metrics().over(self._suite.metrics.value)
        if case.metrics is not None:
            metrics = metrics.over(case.metrics.value)
        for query in self._queries:
            if query.promql not in metrics.absent and metrics.reading(query, now=case.now) is None:
                message = f"the test says nothing of the metric `{query.promql}`, which the policies read"
                advice = f"add it under `metrics`, or write `absent: [{query.promql}]`"
                where = self._suite.metrics.path if case.metrics is None else case.metrics.path
                problem = self._suite.document.error(where, codes.UNDEFINED_METRIC, message=message, advice=advice)
                raise DocumentError([problem])
        return metrics

    def _check_metrics(self, part: Part) -> None:
        """Report metrics that no policy reads, values for nodes that there are not, and texts that are no series."""
        known = [query.promql for query in self._queries]
        form = part.value
        names: list[tuple[Path, str]] = [((key,), key) for key in form if key not in RESERVED]
        names += [(("absent", index), query) for index, query in enumerate(form.get("absent", ()))]
        for path, query in names:
            if query not in known:
                advice = did_you_mean(query, known, none="the policies read no metrics")
                message = f"no policy reads the metric `{query}`"
                self._problem((*part.path, *path), codes.UNKNOWN_METRIC, message, advice)
        for text in form.get("series", {}):
            if not is_series(text):
                message = f'`{text}` is not a series, expected a name and labels such as cpu_usage{{node="a1"}}'
                self._problem((*part.path, "series", text), codes.UNKNOWN_METRIC, message, "")

    def _check_nodes(self, part: Part, scene: Scene) -> None:
        """Report values for nodes that there are not."""
        known = tuple(scene.facts)
        for query, answer in part.value.items():
            if query in RESERVED or not isinstance(answer, dict) or answer.keys() == {"value", "age"}:
                continue
            for node in answer:
                if node not in scene.facts:
                    advice = did_you_mean(node, known, none="the test has no nodes")
                    self._problem((*part.path, query, node), codes.UNKNOWN_NODE, f"unknown node `{node}`", advice)

    def _problem(self, path: Path, code: Code, message: str, advice: str) -> None:
        self._problems.append(self._suite.document.error(path, code, message=message, advice=advice, key=True))
