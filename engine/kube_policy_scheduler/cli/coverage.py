"""`policyctl test --coverage` and `--mutate`: what tests meet, and which faults they notice."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kube_policy_scheduler.cli.files import replace_file
from kube_policy_scheduler.cli.terminal import status_line, terminal

if TYPE_CHECKING:
    from kube_policy_scheduler.cli.suites import LoadedSuite
    from kube_policy_scheduler.lang.checked import CheckedPolicy
    from kube_policy_scheduler.tooling.coverage.measure import FileCoverage
    from kube_policy_scheduler.tooling.mutation.mutants import Mutant
    from kube_policy_scheduler.tooling.mutation.trial import MutantResult, MutationTarget
    from kube_policy_scheduler.tooling.tester.run import SuiteResult, SuiteRun


class Coverage:
    """What the cases of all test files decide with."""

    def __init__(self) -> None:
        from kube_policy_scheduler.builtins.environment import environment
        from kube_policy_scheduler.tooling.coverage.probe import Probe

        self._probe = Probe(environment().pods)
        self._sets: list[tuple[CheckedPolicy, ...]] = []

    def run(self, loaded: LoadedSuite, *, shuffle: bool = False) -> SuiteRun:
        """Return the run of a test file whose decisions are measured."""
        from kube_policy_scheduler.tooling.coverage.probe import watched_by
        from kube_policy_scheduler.tooling.coverage.workload_probe import watched_workloads

        self._sets.append(tuple(policy.compiled.checked for policy in loaded.policy_set.policies))
        self._sets.append(tuple(policy.checked for policy in loaded.policy_set.fleet.policies))
        return loaded.run(
            shuffle=shuffle,
            observe=watched_by(self._probe, loaded.policy_set),
            observe_workload=watched_workloads(self._probe),
        )

    def measured(self) -> tuple[FileCoverage, ...]:
        """Return what was covered."""
        from kube_policy_scheduler.tooling.coverage.measure import measured

        return measured(self._sets, self._probe)

    def lines(self) -> Iterator[str]:
        """Yield what is not covered, for people."""
        from kube_policy_scheduler.tooling.coverage.report import lines

        yield from lines(self.measured(), to=terminal())

    def data(self) -> dict[str, Any]:
        """Return the coverage as plain values."""
        from kube_policy_scheduler.tooling.coverage.report import data

        return data(self.measured())

    def percent(self) -> float:
        """Return clauses and branches that were covered together, 0 to 100."""
        from kube_policy_scheduler.tooling.coverage.measure import percent

        return percent(self.measured())

    def write(self, path: Path) -> None:
        """Write Cobertura XML.

        Raises:
            click.ClickException: the file cannot be written.
        """
        from importlib.metadata import version

        from kube_policy_scheduler.tooling.coverage.report import cobertura

        text = cobertura(
            self.measured(), timestamp_millis=int(time.time() * 1000), version=version("kube-policy-scheduler")
        )
        replace_file(path, text)


def mutated(loaded: Sequence[LoadedSuite], results: Sequence[SuiteResult]) -> list[MutantResult]:
    """Return what happened to every mutant of the policies that test files name, by file and place.

    Args:
        loaded: the test files.
        results: how their cases ended; only those that passed are asked again.
    """
    from kube_policy_scheduler.tooling.mutation.trial import together

    targets = [mutation_target(suite, result) for suite, result in zip(loaded, results, strict=True)]
    wanted: dict[tuple[str, int, int, str], tuple[Mutant, list[MutationTarget]]] = {}
    for target in targets:
        for mutant in target.mutants():
            place = (mutant.source.name, mutant.span.start, mutant.span.end, mutant.text)
            wanted.setdefault(place, (mutant, []))[1].append(target)
    done: list[MutantResult] = []
    with status_line() as show:
        for at, place in enumerate(sorted(wanted)):
            mutant, among = wanted[place]
            show(f"{_bar(at, len(wanted))} mutants {at}/{len(wanted)}  {mutant.span}")
            done.append(together(mutant, [target.try_out(mutant) for target in among]))
    return done


def _bar(done: int, total: int, *, width: int = 20) -> str:
    filled = width * done // max(1, total)
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def mutation_target(loaded: LoadedSuite, result: SuiteResult) -> MutationTarget:
    """Return the policies of a test file, to be changed, with the cases that passed."""
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.cli.policies import beside
    from kube_policy_scheduler.lang.load import check_sources
    from kube_policy_scheduler.tooling.mutation.trial import MutationTarget, noticing
    from kube_policy_scheduler.tooling.tester.outcome import CompiledPolicies
    from kube_policy_scheduler.tooling.tester.run import State
    from kube_policy_scheduler.tooling.tester.suite_file import Case

    library = tuple(beside(loaded.sources))
    passed = [one.case for one in result.cases if one.state is State.PASSED and isinstance(one.case, Case)]
    true = CompiledPolicies(loaded.policy_set, loaded.diagnostics)
    return MutationTarget(
        sources=loaded.sources,
        library=library,
        environment=environment(),
        checked=check_sources(loaded.sources, environment(), library=library),
        notices=noticing(loaded.run(), true, passed),
        default_schedulers=loaded.policy_set.default_schedulers,
    )
