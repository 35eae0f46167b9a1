"""`policyctl test`: run test files and say which cases are decided as expected."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine.cli import files
from engine.cli.suites import SUFFIX

if TYPE_CHECKING:
    from engine.cli.suites import LoadedSuite
    from engine.tooling.tester.formats import Run, Unusable
    from engine.tooling.tester.results import CaseResult, SuiteResult

FORMATS = ("text", "json", "junit", "tap", "github")
EPILOG = """
\b
Examples:
  policyctl test spread.test.yaml              # one file
  policyctl test policies/                     # every .test.yaml file below a folder
  policyctl test policies/ --run 'hot node'    # the cases whose name matches a regular expression
  policyctl test policies/ -o report.xml       # for people, and JUnit for the CI system
  policyctl test policies/ --update            # write the scores and placements that came
  policyctl test --schema > policy-test.schema.json

\b
Exit codes: 0 every case passed; 1 a case failed; 2 a file cannot be used, or there was nothing to run.
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@click.option("--run", "pattern", metavar="REGEX", help="Only cases whose name matches.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="[FORMAT=]FILE",
    help="Also write a file; .xml is JUnit, .json and .tap what they say. May be given several times.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show only cases that did not pass, and the last line.")
@click.option(
    "--shuffle/--no-shuffle",
    default=None,
    help="Decide every case a second time with the nodes in another order; on where the environment has CI.",
)
@click.option("--no-skip", is_flag=True, help="Skipped and todo cases are failures.")
@click.option("--update", is_flag=True, help="Write the scores and placements that came into the files.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of test files, for editors, and end.")
def command(
    paths: tuple[Path, ...],
    pattern: str | None,
    form: str,
    outputs: tuple[str, ...],
    quiet: bool,
    shuffle: bool | None,
    no_skip: bool,
    update: bool,
    schema: bool,
) -> int:
    """Decide the cases of test files and compare with what they expect.

    A test file names its policies, a cluster and cases: a pod each, and where it should go, or why nowhere. The
    cases are decided by the scheduler's own cycle.
    """
    if schema:
        from engine.tooling.tester.reading import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    if not paths:
        raise click.UsageError(f"name a {SUFFIX} file or a folder")
    if update and _is_ci():
        raise click.UsageError("--update writes what came as what is wanted: not where the environment has CI")
    also = [_output(text) for text in outputs]
    only = _regular_expression(pattern)
    tests = files.expanded(paths, suffix=SUFFIX)
    shown = _Shown(form, quiet=quiet)
    session = Session(only, shuffle=_is_ci() if shuffle is None else shuffle, shown=shown)
    run = session.run(tests)
    if update:
        _update(session.loaded, run)
    shown.end(run)
    for name, path in also:
        _write(path, _formatted(name, run))
    return _exit_code(run, pattern, no_skip=no_skip)


@dataclass
class Session:
    """Runs test files, one after the other."""

    only: re.Pattern[str]
    shuffle: bool
    shown: _Shown
    loaded: list[LoadedSuite] = field(default_factory=list)
    """Those that could be run, in the order of the results."""

    def __init__(self, only: re.Pattern[str], *, shuffle: bool, shown: _Shown) -> None:
        self.only = only
        self.shuffle = shuffle
        self.shown = shown
        self.loaded = []

    def run(self, tests: Sequence[Path]) -> Run:
        """Run files; what cannot be used is reported and left out."""
        from engine.cli.suites import load_suite
        from engine.documents.yaml_document import DocumentError
        from engine.tooling.tester.formats import Run, Unusable
        from engine.tooling.tester.results import SuiteResult

        results: list[SuiteResult] = []
        unusable: list[Unusable] = []
        seconds: dict[int, float] = {}
        for path in tests:
            try:
                loaded = load_suite(path)
                done = tuple(self._cases(loaded, seconds))
            except DocumentError as error:
                unusable.append(Unusable(str(path), error.diagnostics))
                self.shown.unusable(unusable[-1])
                continue
            self.loaded.append(loaded)
            results.append(SuiteResult(loaded.suite, done))
        return Run(tuple(results), tuple(unusable), seconds)

    def _cases(self, loaded: LoadedSuite, seconds: dict[int, float]) -> Iterator[CaseResult]:
        run = loaded.run(shuffle=self.shuffle)
        before = time.perf_counter()
        for result in run.results(lambda case: self.only.search(case.name) is not None):
            seconds[id(result)] = time.perf_counter() - before
            self.shown.case(result, loaded)
            yield result
            before = time.perf_counter()


class _Shown:
    """What standard output gets: cases as they come for people, everything at the end for programs."""

    def __init__(self, form: str, *, quiet: bool) -> None:
        self._form = form
        self._quiet = quiet
        self._done = 0
        self._progress = form != "text" or quiet

    def case(self, result: CaseResult, loaded: LoadedSuite) -> None:
        from engine.tooling.tester.report import case_lines
        from engine.tooling.tester.results import State

        self._done += 1
        if self._form == "text" and not (self._quiet and result.state is State.PASSED):
            self._clear()
            width = shutil.get_terminal_size().columns
            for line in case_lines(result, loaded.suite, colour=files.colour(), width=width):
                click.echo(line)
        elif self._progress and self._done % 50 == 0 and files.colour(err=True):
            click.echo(f"\r{self._done} cases", nl=False, err=True)

    def unusable(self, one: Unusable) -> None:
        self._clear()
        if self._form == "text":
            click.echo(files.rendered(one.diagnostics, err=True), err=True)

    def end(self, run: Run) -> None:
        self._clear()
        if self._form == "text":
            click.echo(_last_line(run))
        else:
            click.echo(_formatted(self._form, run), nl=False)

    def _clear(self) -> None:
        if self._progress and self._done >= 50 and files.colour(err=True):
            click.echo("\r\x1b[K", nl=False, err=True)


def _last_line(run: Run) -> str:
    from engine.tooling.tester.report import summary

    unusable = len(run.unusable)
    plural = "s" if unusable != 1 else ""
    return summary(run.results) + (f", {unusable} file{plural} could not be used" if unusable else "")


def _exit_code(run: Run, pattern: str | None, *, no_skip: bool) -> int:
    from engine.tooling.tester.results import State

    if run.unusable:
        return 2
    if not any(True for _ in run.cases()):
        raise click.ClickException(f"no case matches {pattern!r}: nothing was tested")
    bad = {State.FAILED, State.ERROR, *((State.SKIPPED, State.TODO) if no_skip else ())}
    left_out = sum(result.state in (State.SKIPPED, State.TODO) for _, result in run.cases())
    if no_skip and left_out:
        click.echo(f"policyctl: --no-skip: {left_out} skipped or todo cases count as failures", err=True)
    return 1 if any(result.state in bad for _, result in run.cases()) else 0


def _formatted(name: str, run: Run) -> str:
    from engine.tooling.tester.formats import FORMATS
    from engine.tooling.tester.report import case_lines

    if name != "text":
        return FORMATS[name](run)
    lines = [line for suite, case in run.cases() for line in case_lines(case, suite, colour=False, width=100)]
    return "\n".join([*lines, _last_line(run)]) + "\n"


def _output(text: str) -> tuple[str, Path]:
    """Return format and path of `[FORMAT=]FILE`."""
    from engine.tooling.tester.formats import SUFFIXES

    name, equals, path = text.partition("=")
    if equals and name in FORMATS:
        return name, Path(path)
    suffix = Path(text).suffix
    if suffix == ".txt":
        return "text", Path(text)
    if suffix not in SUFFIXES:
        raise click.BadParameter(
            f"{text} does not say its format: name it .xml, .json, .tap or .txt, or write junit={text}",
            param_hint="--output",
        )
    return SUFFIXES[suffix], Path(text)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


def _is_ci() -> bool:
    """Return whether the environment says that this is a CI system, as all of them do."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _regular_expression(pattern: str | None) -> re.Pattern[str]:
    try:
        return re.compile(pattern or "")
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}", param_hint="--run") from error


def _update(loaded: Sequence[LoadedSuite], run: Run) -> None:
    """Write scores and placements that came into the files, and say how many."""
    from engine.tooling.tester.updating import updated

    for suite, result in zip(loaded, run.results, strict=True):
        source = suite.suite.document.source
        text, changes = updated(result)
        if changes:
            _write(Path(source.name), text)
            click.echo(f"policyctl: {source.name}: {changes} values written; run the tests again", err=True)
