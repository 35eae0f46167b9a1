"""`policyctl test --init`: a policy file to the text of a first test file, every case of which was run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from engine.cli import files

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
        raise click.ClickException(f"{policy_path} is a folder, expected one policy file")
    target = None if output == STANDARD_OUTPUT else Path(output) if output else _beside(policy_path)
    if target is not None and target.exists():
        raise click.ClickException(f"{target} is there already: name another file with --output, or remove it")
    if target is not None and not target.parent.is_dir():
        raise click.ClickException(f"cannot write {target}: there is no folder {target.parent}")
    text, told = _text(policy_path, target)
    if target is None:
        click.echo(text, nl=False)
    else:
        try:
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise click.ClickException(f"cannot write {target}: {(error.strerror or str(error)).lower()}") from error
    click.echo(f"{target or policy_path}: {told}", err=target is None)
    return 0


def _beside(policy_path: Path) -> Path:
    return policy_path.with_name(policy_path.name.removesuffix(".policy") + files.TEST_SUFFIX)


def _text(policy_path: Path, target: Path | None) -> tuple[str, str]:
    """Return the text, and what it shows in a few words."""
    from engine.builtins.environment import environment
    from engine.cli.policies import compiled
    from engine.documents.yaml_document import read_source
    from engine.tooling.first_test.search import Search
    from engine.tooling.first_test.writing import case_names, text_of

    policies = compiled([read_source(policy_path)])
    if len(policies.policies) != 1 or not policies.policies[0].clauses:
        raise click.ClickException(f"{policy_path} has no clauses: there is nothing to test")
    (policy,) = policies.policies
    scheduler = min(policies.schedulers)
    search = Search(policy, pods=environment().pods, scheduler=scheduler)
    found = search.run()
    shown_as = target if target is not None else Path(f"<stdout>{files.TEST_SUFFIX}")
    path = Path(os.path.relpath(policy_path, shown_as.parent)).as_posix()
    cases = search.cases(found)
    if not cases and not found.queues:
        raise click.ClickException(f"{policy_path}: no case was found that shows anything; write the first by hand")
    text = text_of(cases, found, policy=path, name=policy.name)
    coverage, failing = _run(shown_as, text)
    if failing:
        cases = [one for one, name in zip(cases, case_names(cases), strict=True) if name not in failing]
        text = text_of(cases, found, policy=path, name=policy.name, without=failing)
        coverage, _ = _run(shown_as, text)
    count = len(cases) + sum(queue.name not in failing for queue in found.queues)
    return text, f"{count} cases, {coverage}"


def _run(path: Path, text: str) -> tuple[str, frozenset[str]]:
    """Return what the cases cover, and the names of those that do not pass."""
    from engine.cli.coverage import Coverage
    from engine.cli.suites import load_suite
    from engine.diagnostics import Source
    from engine.tooling.coverage.measure import totals
    from engine.tooling.tester.results import State

    loaded = load_suite(path, Source(str(path), text))
    coverage = Coverage()
    results = list(loaded.run(observe=coverage.watch(loaded)).results())
    clauses, branches = totals(coverage.measured())
    failing = frozenset(result.case.name for result in results if result.state is not State.PASSED)
    return f"clauses {clauses}, branches {branches}", failing
