"""Mutation for `policyctl test`: changed policies against the cases of the test files that name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kube_policy_scheduler.cli.progress import status_line

if TYPE_CHECKING:
    from kube_policy_scheduler.cli.suites import LoadedSuite
    from kube_policy_scheduler.tooling.mutation.mutant import Mutant
    from kube_policy_scheduler.tooling.mutation.trial import Subject, Tried
    from kube_policy_scheduler.tooling.tester.results import SuiteResult


def mutated(loaded: Sequence[LoadedSuite], results: Sequence[SuiteResult]) -> list[Tried]:
    """Return what became of every mutant of the policies that test files name, by file and place.

    Args:
        loaded: the test files.
        results: how their cases ended; only those that passed are asked again.
    """
    from kube_policy_scheduler.tooling.mutation.trial import together

    subjects = [subject_of(suite, result) for suite, result in zip(loaded, results, strict=True)]
    wanted: dict[tuple[str, int, int, str], tuple[Mutant, list[Subject]]] = {}
    for subject in subjects:
        for mutant in subject.mutants():
            place = (mutant.source.name, mutant.span.start, mutant.span.end, mutant.text)
            wanted.setdefault(place, (mutant, []))[1].append(subject)
    done: list[Tried] = []
    with status_line() as show:
        for at, place in enumerate(sorted(wanted)):
            mutant, among = wanted[place]
            show(f"{_bar(at, len(wanted))} mutants {at}/{len(wanted)}  {mutant.span}")
            done.append(together(mutant, [subject.try_out(mutant) for subject in among]))
    return done


def _bar(done: int, total: int, *, width: int = 20) -> str:
    filled = width * done // max(1, total)
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def subject_of(loaded: LoadedSuite, result: SuiteResult) -> Subject:
    """Return the policies of a test file, to be changed, with the cases that passed."""
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.cli.policies import beside
    from kube_policy_scheduler.lang.load import check_sources
    from kube_policy_scheduler.tooling.mutation.cases import noticing
    from kube_policy_scheduler.tooling.mutation.trial import Subject
    from kube_policy_scheduler.tooling.tester.policies import CompiledPolicies
    from kube_policy_scheduler.tooling.tester.results import State
    from kube_policy_scheduler.tooling.tester.suite import Case

    library = tuple(beside(loaded.sources))
    passed = [one.case for one in result.cases if one.state is State.PASSED and isinstance(one.case, Case)]
    true = CompiledPolicies(loaded.policy_set, loaded.diagnostics)
    return Subject(
        sources=loaded.sources,
        library=library,
        environment=environment(),
        checked=check_sources(loaded.sources, environment(), library=library),
        notices=noticing(loaded.run(), true, passed),
        default_schedulers=loaded.policy_set.default_schedulers,
    )
