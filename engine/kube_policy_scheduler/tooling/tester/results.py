"""How cases ended, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kube_policy_scheduler.tooling.tester.comparing import Mismatch
from kube_policy_scheduler.tooling.tester.expect_form import Expected
from kube_policy_scheduler.tooling.tester.outcome import Outcome
from kube_policy_scheduler.tooling.tester.pointers import ClauseValues
from kube_policy_scheduler.tooling.tester.suite import Case, Invalid, Suite

AnyCase: TypeAlias = Case | Invalid


class State(Enum):
    """How a case ended."""

    PASSED = "pass"
    FAILED = "fail"
    ERROR = "error"
    """There was no decision to compare."""
    SKIPPED = "skip"
    TODO = "todo"
    """It does not hold yet, as the file says."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One expectation that does not hold."""

    expected: Expected
    mismatch: Mismatch
    pod: str = ""
    """The pod that it is about, where the case has several."""
    values: tuple[ClauseValues, ...] = ()
    """What the clauses concerned say about the nodes concerned."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case and how it ended."""

    case: AnyCase
    state: State
    failures: tuple[Failure, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    """Of every pod, in order."""

    @property
    def outcome(self) -> Outcome | None:
        """Return the last decision, None where none was made."""
        return self.outcomes[-1] if self.outcomes else None


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """One test file and how its cases ended."""

    suite: Suite
    cases: tuple[CaseResult, ...]

    def count(self, state: State) -> int:
        """Return how many cases ended so."""
        return sum(result.state is state for result in self.cases)


def ended(case: AnyCase, failures: Sequence[Failure], outcomes: tuple[Outcome, ...]) -> CaseResult:
    """Return how a case ended that has these failures."""
    if any(outcome.error is not None for outcome in outcomes):
        state = State.ERROR
    elif case.todo and failures:
        state = State.TODO
    elif case.todo:
        holds = Expected("todo", (*case.path, "todo"), None)
        unexpected = Failure(holds, Mismatch(f"not to hold yet: {case.todo}", "it holds; remove `todo`"))
        return CaseResult(case, State.FAILED, (unexpected,), outcomes)
    else:
        state = State.FAILED if failures else State.PASSED
    return CaseResult(case, state, tuple(failures), outcomes)
