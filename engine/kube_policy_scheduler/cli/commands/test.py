"""`policyctl test`: run test files and say which cases are decided as expected."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.files import replace_file
from kube_policy_scheduler.cli.kubernetes_option import kubernetes_option
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.suite_runs import FORMATS, Session, Shown, formatted, output_of
from kube_policy_scheduler.cli.terminal import format_option, say
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.cli.coverage import Coverage
    from kube_policy_scheduler.cli.suites import LoadedSuite
    from kube_policy_scheduler.kubernetes_rules import KubernetesChoice
    from kube_policy_scheduler.patterns import Pattern
    from kube_policy_scheduler.tooling.mutation.trial import MutantResult
    from kube_policy_scheduler.tooling.tester.reports import Run

EPILOG = """
\b
Examples:
  policyctl test spread.test.yaml              # one file
  policyctl test policies/                     # every .test.yaml file below a folder
  policyctl test policies/ --run 'hot node'    # the cases whose name matches a regular expression
  policyctl test policies/ -o report.xml       # text, and a JUnit report for the CI system
  policyctl test policies/ --update            # write the actual scores and placements
  policyctl test policies/ --coverage --threshold 90   # what no case tests; exit with 1 below 90%
  policyctl test policies/ --mutate -q         # changes of the policies that no case detects
  policyctl test --init spread.policy          # write spread.test.yaml; or use -o FILE, or -o - to print it
  policyctl test --schema > policy-test.schema.json

\b
Exit codes: 0 every case passed; 1 a case failed, or the result is below --threshold; 2 a file cannot be used, or
there is nothing to run.
"""


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@click.option("--run", "pattern", metavar="REGEX", help="Run only the cases whose name matches.")
@format_option(*FORMATS)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="[FORMAT=]FILE",
    help="Also write a report file; the suffix .xml means JUnit, .json and .tap mean these formats. May be repeated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show only the cases that did not pass, and the last line.")
@click.option(
    "--shuffle/--no-shuffle",
    default=None,
    help="Decide every case a second time with the nodes in another order. On if the environment variable CI is set.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder that test files may refer to.  [default: the working directory, or the folder of a test file"
    " elsewhere]",
)
@click.option("--no-skip", is_flag=True, help="Count skipped and todo cases as failures.")
@click.option("--update", is_flag=True, help="Write the actual scores and placements into the files.")
@click.option("--diff", is_flag=True, help="Show what --update would write; write nothing.")
@click.option("--coverage", is_flag=True, help="Show the clauses and branches of the policies that no case tests.")
@click.option(
    "--coverage-out", type=click.Path(path_type=Path), metavar="FILE", help="Write the coverage as Cobertura XML."
)
@click.option(
    "--mutate", is_flag=True, help="Make small changes to the policies and show the changes that no case detects."
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="With --coverage or --mutate: exit with 1 if the result is lower.",
)
@click.option(
    "--init", "init", type=click.Path(path_type=Path), metavar="POLICY", help="Write a first test file for this policy."
)
@kubernetes_option("of the test file, else of its cluster files, else 1.36")
@click.option("--schema", is_flag=True, help="Print the JSON schema of test files, for editors, and exit.")
@owner_options
def command(
    paths: tuple[Path, ...],
    pattern: str | None,
    form: str,
    outputs: tuple[str, ...],
    quiet: bool,
    shuffle: bool | None,
    root: Path | None,
    no_skip: bool,
    update: bool,
    diff: bool,
    coverage: bool,
    coverage_out: Path | None,
    mutate: bool,
    threshold: float | None,
    init: Path | None,
    kubernetes: KubernetesChoice,
    schema: bool,
) -> int:
    """Run policy tests.

    A test file names its policies, a cluster and cases. Each case has a pod, and its expected node or the expected
    reason why no node fits. The command decides the cases with the scheduling cycle of the scheduler.
    """
    if schema:
        from kube_policy_scheduler.tooling.tester.suite_file import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    if init is not None:
        return _first_test(init, paths, outputs)
    if not paths:
        raise click.UsageError(f"specify a {files.TEST_SUFFIX} file or a folder")
    if update and _is_ci():
        raise click.UsageError("--update changes the expectations, so it does not work if CI is set")
    coverage = coverage or coverage_out is not None
    if threshold is not None and not (coverage or mutate):
        raise click.UsageError("--threshold requires --coverage or --mutate")
    also = [output_of(text) for text in outputs]
    only = _regular_expression(pattern)
    tests = files.expanded(paths, suffix=files.TEST_SUFFIX)
    shown = Shown(form, quiet=quiet)
    measure = _coverage() if coverage else None
    shuffle = _is_ci() if shuffle is None else shuffle
    session = Session(only, shuffle=shuffle, shown=shown, coverage=measure, root=root, kubernetes=kubernetes)
    run = session.run(tests)
    if update or diff:
        _update(session.loaded, run, writes=not diff)
    tried = _mutated(session.loaded, run) if mutate else None
    shown.end(run, coverage=measure, tried=tried)
    if measure is not None and coverage_out is not None:
        measure.write(coverage_out)
    for name, path in also:
        replace_file(path, formatted(name, run))
    code = _exit_code(run, pattern, no_skip=no_skip)
    return code or _below(threshold, coverage=measure, tried=tried)


def _coverage() -> Coverage:
    from kube_policy_scheduler.cli.coverage import Coverage

    return Coverage()


def _first_test(policy: Path, paths: Sequence[Path], outputs: Sequence[str]) -> int:
    from kube_policy_scheduler.cli.first_test import write_first_test

    if paths or len(outputs) > 1:
        raise click.UsageError("--init takes one policy and no test files: policyctl test --init NAME.policy")
    return write_first_test(policy, outputs[0] if outputs else None)


def _mutated(loaded: Sequence[LoadedSuite], run: Run) -> list[MutantResult] | None:
    """Return what happened to every mutant; None where the policies do not pass their own cases."""
    from kube_policy_scheduler.cli.coverage import mutated
    from kube_policy_scheduler.tooling.tester.run import State

    if not any(True for _ in run.cases()):
        return None
    if run.unusable or any(result.state in (State.FAILED, State.ERROR) for _, result in run.cases()):
        say("policyctl: --mutate requires that all cases pass", err=True)
        return None
    return mutated(loaded, run.results)


def _below(threshold: float | None, *, coverage: Coverage | None, tried: Sequence[MutantResult] | None) -> int:
    """Return 1 where something is below the threshold, or there is nothing to measure, and say so."""
    if threshold is None:
        return 0
    from kube_policy_scheduler.tooling.mutation.report import kill_percent

    reached = [("coverage", coverage.percent())] if coverage is not None else []
    reached += [("mutants killed", kill_percent(tried))] if tried is not None else []
    low = [f"{name} {percent:.1f}%" for name, percent in reached if percent < threshold]
    if low:
        say(f"policyctl: {', '.join(low)}: below the threshold of {threshold:g}%", err=True)
    return 1 if low else 0


def _exit_code(run: Run, pattern: str | None, *, no_skip: bool) -> int:
    from kube_policy_scheduler.tooling.tester.run import State

    if run.unusable:
        return 2
    if not any(True for _ in run.cases()):
        raise click.ClickException(f"no case matches {pattern!r}: nothing was tested")
    bad = {State.FAILED, State.ERROR, *((State.SKIPPED, State.TODO) if no_skip else ())}
    left_out = sum(result.state in (State.SKIPPED, State.TODO) for _, result in run.cases())
    if no_skip and left_out:
        say(f"policyctl: --no-skip: {left_out} skipped or todo cases count as failures", err=True)
    return 1 if any(result.state in bad for _, result in run.cases()) else 0


def _is_ci() -> bool:
    """Return whether the environment says that this is a CI system, as all of them do."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _regular_expression(pattern: str | None) -> Pattern:
    from kube_policy_scheduler.patterns import PatternError, compiled

    try:
        return compiled(pattern or "")
    except PatternError as error:
        raise click.BadParameter(f"not a regular expression: {error}", param_hint="--run") from error


def _update(loaded: Sequence[LoadedSuite], run: Run, *, writes: bool) -> None:
    """Write scores and placements that came into the files, and say how many; or show the difference."""
    from kube_policy_scheduler.cli.files import difference, rewrite_file
    from kube_policy_scheduler.tooling.tester.run import updated

    for suite, result in zip(loaded, run.results, strict=True):
        source = suite.suite.document.source
        text, changes = updated(result)
        if changes and not writes:
            say(difference(source, text, done="updated"), nl=False)
        elif changes and rewrite_file(Path(source.name), text):
            say(f"policyctl: {source.name}: {plural(changes, 'value')} written; run the tests again", err=True)
