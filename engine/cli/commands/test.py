"""`policyctl test`: run test files and say which cases are decided as expected."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine.cli import files

if TYPE_CHECKING:
    from engine.documents.fixtures import FixtureObject
    from engine.tooling.tester.run import SuiteResult
    from engine.tooling.tester.suite import Part, Suite

SUFFIX = ".test.yaml"
EPILOG = """
\b
Examples:
  policyctl test spread.test.yaml              # one file
  policyctl test policies/                     # every .test.yaml file below a folder
  policyctl test policies/ --run 'hot node'    # the cases whose name matches a regular expression
  policyctl test --schema > policy-test.schema.json

\b
Exit codes: 0 every case passed; 1 a case failed; 2 a file cannot be used, or there was nothing to run.
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@click.option("--run", "pattern", metavar="REGEX", help="Only cases whose name matches.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Show only cases that did not pass, and the last line.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of test files, for editors, and end.")
def command(paths: tuple[Path, ...], pattern: str | None, form: str, quiet: bool, schema: bool) -> int:
    """Decide the cases of test files and compare with what they expect.

    A test file names its policies, a cluster and cases: a pod each, and where it should go, or why nowhere. The
    cases are decided by the scheduler's own cycle.
    """
    from engine.documents.yaml_document import DocumentError
    from engine.tooling.tester.report import data, lines, summary
    from engine.tooling.tester.run import State
    from engine.tooling.tester.suite import schema_text

    if schema:
        click.echo(schema_text(), nl=False)
        return 0
    if not paths:
        raise click.UsageError(f"name a {SUFFIX} file or a folder")
    only = _regular_expression(pattern)
    results: list[SuiteResult] = []
    unusable = 0
    for path in files.expanded(paths, suffix=SUFFIX):
        try:
            results.append(_run(path, only))
        except DocumentError as error:
            unusable += 1
            click.echo(files.rendered(error.diagnostics, err=True), err=True)
            continue
        if form == "text":
            for line in lines(results[-1], colour=files.colour(), quiet=quiet):
                click.echo(line)
    if form == "json":
        click.echo(json.dumps(data(results), indent=2, ensure_ascii=False))
    else:
        plural = "s" if unusable != 1 else ""
        click.echo(summary(results) + (f", {unusable} file{plural} could not be used" if unusable else ""))
    if unusable:
        return 2
    if not any(result.cases for result in results):
        raise click.ClickException(f"no case matches {pattern!r}: nothing was tested")
    return 1 if any(result.count(State.FAILED) for result in results) else 0


def _regular_expression(pattern: str | None) -> re.Pattern[str]:
    try:
        return re.compile(pattern or "")
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}", param_hint="--run") from error


def _run(path: Path, only: re.Pattern[str]) -> SuiteResult:
    from engine.cli.policies import compiled
    from engine.documents.yaml_document import parse_document, read_source
    from engine.tooling.tester.policies import CompiledPolicies
    from engine.tooling.tester.run import run_suite
    from engine.tooling.tester.suite import read_suite

    suite = read_suite(parse_document(read_source(path)))
    policies = compiled([read_source(_beside(suite, part)) for part in suite.policies])
    recorded = _recorded(suite)
    chosen = replace(suite, cases=tuple(case for case in suite.cases if only.search(case.name)))
    # a pod that names no scheduler means the one that its policies serve
    return run_suite(chosen, CompiledPolicies(policies), recorded, scheduler=min(policies.schedulers))


def _beside(suite: Suite, part: Part) -> Path:
    """Return a file that the test file names.

    Raises:
        DocumentError: it is not there.
    """
    from engine.documents.codes import UNREADABLE
    from engine.documents.yaml_document import DocumentError

    path = Path(suite.document.source.name).parent / str(part.value)
    if not path.is_file():
        message = f"cannot read {path}: no such file"
        advice = "paths in a test file start at its own folder"
        raise DocumentError([suite.document.error(part.path, UNREADABLE, message=message, advice=advice)])
    return path


def _recorded(suite: Suite) -> Sequence[FixtureObject]:
    from engine.documents.fixtures import read_objects

    return [found for part in suite.clusters for found in read_objects(_beside(suite, part))]
