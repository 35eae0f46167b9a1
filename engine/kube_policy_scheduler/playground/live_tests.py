"""The test files beside the policies of the page: how each case ends with the texts that are being written."""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.tooling.tester.reports import case_lines
from kube_policy_scheduler.tooling.tester.run import CaseResult, State, SuiteRun

MOST_FILES = 50
"""Of tests beside the policies; more are not run."""
_MOST_CASES = 500
"""Of one file; further ones are not run."""
_COLUMNS = 100


class TestedCase(msgspec.Struct, frozen=True):
    """One case."""

    name: str
    state: str
    """As `policyctl test` says it: pass, fail, error, skip, todo."""
    report: str = ""
    """What `policyctl test` says of a case that does not pass, below its name."""


class TestedFile(msgspec.Struct, frozen=True, rename="camel"):
    """One test file."""

    name: str
    cases: tuple[TestedCase, ...] = ()
    problem: str = ""
    """Why it cannot be run; "" if it can."""
    left_out: int = 0
    """Cases that were not run, because there are too many."""


def tested(name: str, run: SuiteRun) -> TestedFile:
    """Return how the cases of a file end."""
    shown = set(map(id, run.cases[:_MOST_CASES]))
    try:
        cases = tuple(_case(result, run) for result in run.results(lambda case: id(case) in shown))
    except DocumentError as error:
        return unreadable(name, error)
    return TestedFile(name, cases, left_out=len(run.cases) - len(shown))


def unreadable(name: str, error: DocumentError) -> TestedFile:
    """Return a file that cannot be run, with the first reason."""
    return TestedFile(name, problem=str(error.diagnostics[0]))


def _case(result: CaseResult, run: SuiteRun) -> TestedCase:
    if result.state is State.PASSED:
        return TestedCase(result.case.name, result.state.value)
    _, *lines = case_lines(result, run.suite, colour=False, width=_COLUMNS)
    return TestedCase(result.case.name, result.state.value, "\n".join(lines))
