"""What `policyctl test` shows of a run, as text and as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.diagnostics import printable
from engine.tooling.tester.expect_form import Expected
from engine.tooling.tester.run import CaseResult, State, SuiteResult

_COLOURS = {State.PASSED: "\x1b[32m", State.FAILED: "\x1b[1;31m", State.SKIPPED: "\x1b[33m"}
_RESET = "\x1b[0m"


def lines(result: SuiteResult, *, colour: bool, quiet: bool) -> Iterator[str]:
    """Return the lines about one suite; with `quiet` only those about cases that did not pass."""
    source = result.suite.document.source
    for case in result.cases:
        if quiet and case.state is State.PASSED:
            continue
        word = case.state.value.upper()
        shown = f"{_COLOURS[case.state]}{word}{_RESET}" if colour else word
        reason = f": {case.case.skip}" if case.state is State.SKIPPED else ""
        yield f"{shown} {printable(f'{source.name} › {case.case.name}{reason}')}"
        for failure in case.failures:
            yield f"  {_place(result, failure.expected)}"
            yield f"    expected  {printable(failure.mismatch.expected)}"
            yield f"    got       {printable(failure.mismatch.got)}"


def summary(results: Sequence[SuiteResult]) -> str:
    """Return the last line."""
    counts = ((state, sum(result.count(state) for result in results)) for state in State)
    words = {State.PASSED: "passed", State.FAILED: "failed", State.SKIPPED: "skipped"}
    return ", ".join(f"{count} {words[state]}" for state, count in counts)


def data(results: Sequence[SuiteResult]) -> dict[str, Any]:
    """Return the run as plain values, for `--format json`."""
    return {
        "cases": [_case(result, case) for result in results for case in result.cases],
        "summary": {state.value: sum(result.count(state) for result in results) for state in State},
    }


def _case(result: SuiteResult, case: CaseResult) -> dict[str, Any]:
    done: dict[str, Any] = {
        "file": result.suite.document.source.name,
        "line": result.suite.document.span(case.case.path).source.position(
            result.suite.document.span(case.case.path).start
        )[0],
        "name": case.case.name,
        "state": case.state.value,
    }
    if case.outcome is not None:
        done["node"] = case.outcome.host
    if case.failures:
        done["failures"] = [
            {
                "at": _place(result, failure.expected),
                "expected": failure.mismatch.expected,
                "got": failure.mismatch.got,
            }
            for failure in case.failures
        ]
    return done


def _place(result: SuiteResult, expected: Expected) -> str:
    span = result.suite.document.span(expected.path, key=True)
    line, _ = span.source.position(span.start)
    steps = [str(step) for step in expected.path[-1:] if str(step) != expected.key]
    return f"{span.source.name}:{line}: {' '.join([expected.key, *steps])}"
