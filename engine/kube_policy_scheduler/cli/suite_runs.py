"""Runs of test files for `policyctl test`: one after the other, shown as they end, written in any format."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.terminal import colour, columns, say, say_lines, terminal
from kube_policy_scheduler.kubernetes_rules import NOTHING_CHOSEN, KubernetesChoice
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.cli.coverage import Coverage
    from kube_policy_scheduler.cli.suites import LoadedSuite
    from kube_policy_scheduler.patterns import Pattern
    from kube_policy_scheduler.tooling.mutation.trial import MutantResult
    from kube_policy_scheduler.tooling.tester.reports import Run, Unusable
    from kube_policy_scheduler.tooling.tester.run import CaseResult

FORMATS = ("text", "json", "junit", "tap", "github")
_PROGRESS_EVERY = 50
"""Cases."""


class Session:
    """Runs test files, one after the other."""

    def __init__(
        self,
        only: Pattern,
        *,
        shuffle: bool,
        shown: Shown,
        coverage: Coverage | None = None,
        root: Path | None = None,
        kubernetes: KubernetesChoice = NOTHING_CHOSEN,
    ) -> None:
        """Run nothing yet.

        Args:
            only: which cases.
            shuffle: whether each case is decided twice.
            shown: what prints.
            coverage: notes what is decided.
            root: what test files may name files below; None: the working directory, or a file's own folder.
            kubernetes: by whose rules pods are decided; what it does not say, each test file says.
        """
        self._kubernetes = kubernetes
        self._root = root.resolve() if root is not None else None
        self.coverage = coverage
        self.only = only
        self.shuffle = shuffle
        self.shown = shown
        self.loaded: list[LoadedSuite] = []
        """Those that could be run, in the order of the results."""

    def run(self, tests: Sequence[Path]) -> Run:
        """Run files; what cannot be used is reported and left out."""
        from kube_policy_scheduler.cli.suites import load_suite
        from kube_policy_scheduler.documents.yaml_document import DocumentError
        from kube_policy_scheduler.tooling.tester.reports import Run, Unusable
        from kube_policy_scheduler.tooling.tester.run import SuiteResult

        results: list[SuiteResult] = []
        unusable: list[Unusable] = []
        seconds: dict[int, float] = {}
        for path in tests:
            try:
                root = self._root or files.root_of(path)
                loaded = load_suite(path, files.source(path), root=root, kubernetes=self._kubernetes)
                done = tuple(self._cases(loaded, seconds))
            except DocumentError as error:
                unusable.append(Unusable(str(path), error.diagnostics))
                self.shown.unusable(unusable[-1])
                continue
            self.shown.file()
            self.loaded.append(loaded)
            results.append(SuiteResult(loaded.suite, done))
        return Run(tuple(results), tuple(unusable), seconds)

    def _cases(self, loaded: LoadedSuite, seconds: dict[int, float]) -> Iterator[CaseResult]:
        if self.coverage is not None:
            run = self.coverage.run(loaded, shuffle=self.shuffle)
        else:
            run = loaded.run(shuffle=self.shuffle)
        before = time.perf_counter()
        for result in run.results(lambda case: self.only.search(case.name) is not None):
            seconds[id(result)] = time.perf_counter() - before
            self.shown.case(result, loaded)
            yield result
            before = time.perf_counter()


class Shown:
    """What standard output gets: cases as they come for people, everything at the end for programs."""

    def __init__(self, form: str, *, quiet: bool) -> None:
        self._form = form
        self._quiet = quiet
        self._done = 0
        self._lines: list[str] = []

    def case(self, result: CaseResult, loaded: LoadedSuite) -> None:
        """Take a case that has ended; it is shown with its file."""
        from kube_policy_scheduler.tooling.tester.reports import case_lines
        from kube_policy_scheduler.tooling.tester.run import State

        self._done += 1
        if self._form == "text" and not (self._quiet and result.state is State.PASSED):
            self._lines += case_lines(result, loaded.suite, colour=colour(), width=columns())
        if self._done % _PROGRESS_EVERY == 0 and colour(err=True):
            say(f"\r{self._done} cases", nl=False, err=True)

    def file(self) -> None:
        """Show the cases of a file that could be used to its end."""
        self._clear()
        say_lines(self._lines)
        self._lines = []

    def unusable(self, one: Unusable) -> None:
        """Show what is wrong with a file, and nothing of its cases."""
        self._clear()
        self._lines = []
        if self._form == "text":
            say(files.rendered(one.diagnostics, err=True), err=True)

    def end(self, run: Run, *, coverage: Coverage | None, tried: Sequence[MutantResult] | None) -> None:
        """Show what is known in the end."""
        self._clear()
        if self._form == "json":
            more = {"coverage": coverage.data()} if coverage is not None else {}
            more |= {"mutation": _mutation_data(tried)} if tried is not None else {}
            click.echo(_with(more, formatted("json", run)), nl=False)
            return
        people = self._form == "text"
        coverage = coverage if any(True for _ in run.cases()) else None
        click.echo(last_line(run) if people else formatted(self._form, run), nl=people)
        found = [*(coverage.lines() if coverage is not None else ()), *_mutation_lines(tried)]
        for line in found:
            say(line, err=not people)

    def _clear(self) -> None:
        if self._done >= _PROGRESS_EVERY and colour(err=True):
            click.echo("\r\x1b[K", nl=False, err=True)


def formatted(name: str, run: Run) -> str:
    """Return a run in one of the formats."""
    from kube_policy_scheduler.tooling.tester.reports import FORMATS, case_lines

    if name != "text":
        return FORMATS[name](run)
    lines = [line for suite, case in run.cases() for line in case_lines(case, suite, colour=False, width=100)]
    return "\n".join([*lines, last_line(run)]) + "\n"


def output_of(text: str) -> tuple[str, Path]:
    """Return format and path of `[FORMAT=]FILE`."""
    from kube_policy_scheduler.tooling.tester.reports import SUFFIXES

    name, equals, path = text.partition("=")
    if equals and name in FORMATS:
        return name, Path(path)
    suffix = Path(text).suffix
    if suffix == ".txt":
        return "text", Path(text)
    if suffix not in SUFFIXES:
        raise click.BadParameter(
            f"{text} has an unknown format: use the suffix .xml, .json, .tap or .txt, or write junit={text}",
            param_hint="--output",
        )
    return SUFFIXES[suffix], Path(text)


def last_line(run: Run) -> str:
    """Return what ends the output for people."""
    from kube_policy_scheduler.tooling.tester.reports import summary

    unusable = len(run.unusable)
    return summary(run.results) + (f", {plural(unusable, 'file')} could not be used" if unusable else "")


def _mutation_lines(tried: Sequence[MutantResult] | None) -> Iterator[str]:
    if tried is not None:
        from kube_policy_scheduler.tooling.mutation.report import lines

        yield from lines(tried, to=terminal())


def _mutation_data(tried: Sequence[MutantResult]) -> dict[str, Any]:
    from kube_policy_scheduler.tooling.mutation.report import data

    return data(tried)


def _with(more: dict[str, Any], text: str) -> str:
    """Return a run as JSON with more in it."""
    return json.dumps(json.loads(text) | more, indent=2, ensure_ascii=False) + "\n" if more else text
