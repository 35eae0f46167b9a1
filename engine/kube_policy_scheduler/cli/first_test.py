"""`policyctl test --init`: a policy file to the text of a first test file, every case of which was run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.terminal import say
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.compiling.compiled import CompiledPolicy
    from kube_policy_scheduler.tooling.first_test.search import Change, Found, Search
    from kube_policy_scheduler.tooling.mutation.trial import MutantResult, MutationTarget

STANDARD_OUTPUT = "-"


def write_first_test(policy_path: Path, output: str | None) -> int:
    """Write a first test file for a policy, and say what it shows.

    Args:
        policy_path: the policy.
        output: where to, `-` for standard output; beside the policy where not given.

    Raises:
        click.ClickException: there is such a file already, or it cannot be written.
        DocumentError: the policy cannot be read, or has errors.
    """
    if policy_path.is_dir():
        raise click.ClickException(f"cannot read {policy_path}: is a directory, expected one policy file")
    target = None if output == STANDARD_OUTPUT else Path(output) if output else _beside(policy_path)
    if target is not None and target.exists():
        raise click.ClickException(f"{target} already exists: specify another file with --output, or remove it")
    if target is not None and not target.parent.is_dir():
        raise click.ClickException(f"cannot write {target}: the folder {target.parent} does not exist")
    text, message = _text(policy_path, target)
    if target is None:
        click.echo(text, nl=False)
    else:
        try:
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise click.ClickException(f"cannot write {target}: {(error.strerror or str(error)).lower()}") from error
    say(f"{target or policy_path}: {message}", err=target is None)
    return 0


def _beside(policy_path: Path) -> Path:
    return policy_path.with_name(policy_path.name.removesuffix(".policy") + files.TEST_SUFFIX)


def _text(policy_path: Path, target: Path | None) -> tuple[str, str]:
    """Return the text, and what it shows in a few words."""
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.cli.policies import compiled
    from kube_policy_scheduler.documents.yaml_document import read_source
    from kube_policy_scheduler.tooling.first_test.search import Search
    from kube_policy_scheduler.tooling.mutation.report import summary
    from kube_policy_scheduler.tooling.mutation.trial import MutantStatus

    policies = compiled([read_source(policy_path)])
    if policies.fleet.policies:
        return _text_of_workloads(policy_path, policies.fleet.policies[0], target)
    if len(policies.policies) != 1 or not (policies.policies[0].clauses or policies.queues):
        raise click.ClickException(f"{policy_path} has no clauses to test")
    (policy,) = policies.policies
    scheduler = min(policies.schedulers)
    search = Search(policy, pods=environment().pods, scheduler=scheduler)
    found = search.run()
    shown_as = target if target is not None else Path(f"<stdout>{files.TEST_SUFFIX}")
    path = Path(os.path.relpath(policy_path, shown_as.parent)).as_posix()
    if not search.cases(found) and not found.queues:
        raise click.ClickException(f"{policy_path}: no useful case was found; write the first case by hand")
    first = _passing(search, found, shown_as, policy=path, name=policy.name)
    more = search.noticing(found, list(_unnoticed(first, policy.name)))
    if more.cases != found.cases:
        first = _passing(search, more, shown_as, policy=path, name=policy.name)
    message = f"{plural(first.count, 'case')}, {first.coverage}, {summary(first.tried)}"
    if any(one.status is MutantStatus.SURVIVED for one in first.tried):
        message += f"\nto see what no case detects yet: policyctl test --mutate -q {target or 'FILE'}"
    return first.text, message


def _text_of_workloads(policy_path: Path, policy: CompiledPolicy, target: Path | None) -> tuple[str, str]:
    """Return the same for a policy of workloads."""
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.tooling.first_test.workload_cases import WorkloadCases
    from kube_policy_scheduler.tooling.mutation.report import summary
    from kube_policy_scheduler.tooling.mutation.trial import MutantStatus

    search = WorkloadCases(policy, pods=environment().pods)
    cases = search.run()
    if not cases:
        raise click.ClickException(f"{policy_path}: no useful case was found; write the first case by hand")
    shown_as = target if target is not None else Path(f"<stdout>{files.TEST_SUFFIX}")
    path = Path(os.path.relpath(policy_path, shown_as.parent)).as_posix()
    made, failing = _run(shown_as, search.text(cases, policy=path, name=policy.name))
    if failing:
        made, _ = _run(shown_as, search.text(cases, policy=path, name=policy.name, without=failing))
    message = f"{plural(made.count, 'case')}, {made.coverage}, {summary(made.tried)}"
    if any(one.status is MutantStatus.SURVIVED for one in made.tried):
        message += f"\nto see what no case detects yet: policyctl test --mutate -q {target or 'FILE'}"
    return made.text, message


@dataclass(frozen=True, slots=True)
class _FirstTest:
    """A test file whose cases pass, and what it shows."""

    text: str
    count: int
    """How many cases."""
    coverage: str
    tried: Sequence[MutantResult]
    """Changes of the policy, and what happened to them."""
    target: MutationTarget


def _passing(search: Search, found: Found, shown_as: Path, *, policy: str, name: str) -> _FirstTest:
    """Return the cases that were found, without those that do not pass."""
    from kube_policy_scheduler.tooling.first_test.writing import case_names, text_of

    cases = search.cases(found)
    text = text_of(cases, found, policy=policy, name=name)
    made, failing = _run(shown_as, text)
    if failing:
        cases = [one for one, called in zip(cases, case_names(cases), strict=True) if called not in failing]
        made, _ = _run(shown_as, text_of(cases, found, policy=policy, name=name, without=failing))
    return made


def _run(path: Path, text: str) -> tuple[_FirstTest, frozenset[str]]:
    """Return a test file with what its cases show, and the names of those that do not pass."""
    from kube_policy_scheduler.cli.coverage import Coverage, mutated, mutation_target
    from kube_policy_scheduler.cli.suites import load_suite
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.tooling.coverage.measure import totals
    from kube_policy_scheduler.tooling.tester.run import State, SuiteResult

    loaded = load_suite(path, Source(str(path), text))
    coverage = Coverage()
    result = SuiteResult(loaded.suite, tuple(coverage.run(loaded).results()))
    clauses, branches = totals(coverage.measured())
    failing = frozenset(case.case.name for case in result.cases if case.state is not State.PASSED)
    tried = mutated([loaded], [result]) if not failing else []
    covered = f"clauses {clauses}, branches {branches}"
    return _FirstTest(text, len(result.cases), covered, tried, mutation_target(loaded, result)), failing


def _unnoticed(made: _FirstTest, name: str) -> Iterator[Change]:
    """Yield the changes that no case notices."""
    from kube_policy_scheduler.tooling.first_test.search import Change
    from kube_policy_scheduler.tooling.mutation.trial import MutantStatus

    for one in made.tried:
        changed = made.target.policies(one.mutant) if one.status is MutantStatus.SURVIVED else None
        if changed is None or isinstance(changed, MutantStatus):
            continue
        policy = changed.named(name)
        if policy is not None:
            yield Change(one.mutant.span, policy, one.mutant.hint)
