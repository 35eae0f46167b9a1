"""What a run of tests shows in an editor: how each case ended, and how many nodes each filter of a policy keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span
from kube_policy_scheduler.editor.project import Project
from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.types import Kind
from kube_policy_scheduler.tooling.tester.outcome import TestedPolicy
from kube_policy_scheduler.tooling.tester.reports import case_lines
from kube_policy_scheduler.tooling.tester.run import CaseResult, State
from kube_policy_scheduler.tooling.tester.suite_file import Case, Suite
from kube_policy_scheduler.wording import one_line

WIDTH = 100


@dataclass(frozen=True, slots=True)
class CaseEnd:
    """How a case ended."""

    name: str
    state: State
    reason: str
    """Why it did not pass, in one line; "" where it did."""
    text: str
    """All that `policyctl test` prints about it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How many nodes one filter keeps for the pod of a case."""

    source: str
    """The name of the policy's source."""
    start: int
    """Of the clause in it."""
    text: str
    """The clause as it was then."""
    nodes: int
    of: int
    case: str


@dataclass(slots=True)
class Trial:
    """One run of a test file."""

    ends: list[CaseEnd] = field(default_factory=list)
    kept: dict[tuple[str, int], Kept] = field(default_factory=dict)
    """By source and start of the clause, of the first case that decides a pod by it."""
    problems: tuple[Diagnostic, ...] = ()
    """Why it could not be run."""

    def observe(self, case: Case, frame: Frame, policy: TestedPolicy) -> None:
        """Count what each filter keeps, before a decision."""
        for plugin in policy.profile.filters:
            clause = getattr(plugin, "clause", None)
            if clause is None:
                continue
            span: Span = clause.span
            place = (span.source.name, span.start)
            asked = probe(frame, plugin) if place not in self.kept else None
            if asked is not None and asked.applies:
                nodes = int(np.count_nonzero(asked.passes()))
                self.kept[place] = Kept(*place, span.text, nodes, frame.size, case.name)

    def add(self, result: CaseResult, suite: Suite) -> None:
        """Keep how a case ended."""
        lines = list(case_lines(result, suite, colour=False, width=WIDTH))
        errors = (outcome.error for outcome in result.outcomes if outcome.error is not None)
        failures = (f"expected {each.mismatch.expected}, got {each.mismatch.got}" for each in result.failures)
        reason = "" if result.state is State.PASSED else next(iter([*errors, *failures]), "")
        self.ends.append(CaseEnd(result.case.name, result.state, " ".join(reason.split()), "\n".join(lines)))


_SHOWN = {State.PASSED: "passed", State.SKIPPED: "skipped", State.TODO: "does not hold yet", State.ERROR: "error"}


def shown_end(end: CaseEnd) -> str:
    """Return how a case ended, with the reason of a failure, in one line."""
    word = _SHOWN.get(end.state, "failed")
    mark = "✓" if end.state is State.PASSED else "–" if end.state in (State.SKIPPED, State.TODO) else "✗"
    return one_line(f"{mark} {word}: {end.reason}" if end.reason else f"{mark} {word}", 160)


def shown_summary(trial: Trial | None, *, is_running: bool) -> str:
    """Return how a test file ended, in one line."""
    if is_running:
        return "running the tests…"
    if trial is None:
        return "run the tests"
    if trial.problems:
        return one_line(f"✗ cannot run: {trial.problems[0].message}", 160)
    failed = sum(end.state in (State.FAILED, State.ERROR) for end in trial.ends)
    passed = sum(end.state is State.PASSED for end in trial.ends)
    return f"✗ {failed} failed, {passed} passed" if failed else f"✓ {passed} passed"


@dataclass(frozen=True, slots=True)
class Hint:
    """A text beside a place of a source."""

    offset: int
    text: str
    about: str


def hints(project: Project, name: str, trials: Sequence[Trial]) -> tuple[Hint, ...]:
    """Return the hints of a source: the unit of each `let`, and how many nodes filters keep where tests show it."""
    source = project.sources.get(name)
    if source is None:
        return ()
    found = [*_units(project, name), *_kept(source, trials)]
    return tuple(sorted(found, key=lambda hint: hint.offset))


def _units(project: Project, name: str) -> list[Hint]:
    policy = project.policy_of(name)
    found = []
    for statement in project.files[name].statements:
        if policy is None or not isinstance(statement, syntax.Let):
            continue
        known = policy.definitions.get(statement.name)
        if known is None or known.value is None or known.tree != statement:
            continue
        info = known.value.info
        if info.type.kind is not Kind.UNKNOWN:
            about = f"{info.type}, {info.shape.value}{', may be missing' if info.maybe else ''}"
            found.append(Hint(statement.name_span.end, f": {info.type}", about))
    return found


def _kept(source: Source, trials: Sequence[Trial]) -> list[Hint]:
    found: dict[int, Hint] = {}
    for trial in trials:
        for (name, start), kept in trial.kept.items():
            end = start + len(kept.text)
            if name == source.name and source.text[start:end] == kept.text and start not in found:
                text = f"keeps {kept.nodes:,} of {kept.of:,}"
                found[start] = Hint(end, text, f"the nodes that pass for the pod of “{kept.case}”")
    return list(found.values())
