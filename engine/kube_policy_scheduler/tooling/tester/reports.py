"""What `policyctl test` shows of a run: to people, and as JSON, JUnit XML, TAP 14 and GitHub annotations."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

from kube_policy_scheduler.diagnostics import Diagnostic, printable
from kube_policy_scheduler.tooling.tester.clause_values import ClauseValues, Pointer
from kube_policy_scheduler.tooling.tester.expectations import Expected
from kube_policy_scheduler.tooling.tester.run import CaseResult, Failure, State, SuiteResult
from kube_policy_scheduler.tooling.tester.suite_file import Suite

_COLOURS = {
    State.PASSED: "\x1b[32m",
    State.FAILED: "\x1b[1;31m",
    State.ERROR: "\x1b[1;35m",
    State.SKIPPED: "\x1b[33m",
    State.TODO: "\x1b[33m",
}
_RESET = "\x1b[0m"
_WORDS = {State.PASSED: "passed", State.FAILED: "failed", State.SKIPPED: "skipped"}
_MORE_WORDS = {State.ERROR: "in error", State.TODO: "todo"}
NARROWEST = 40


def case_lines(result: CaseResult, suite: Suite, *, colour: bool, width: int) -> Iterator[str]:
    """Return the lines about one case."""
    word = result.state.value.upper()
    shown = f"{_COLOURS[result.state]}{word}{_RESET}" if colour else word
    reason = result.case.skip or result.case.todo if result.state in (State.SKIPPED, State.TODO) else ""
    title = printable(f"{suite.document.source.name} › {result.case.name}" + (f": {reason}" if reason else ""))
    yield from _wrapped(f"{shown} ", title, width + (len(shown) - len(word)), indent="     ")
    if result.state is State.ERROR:
        for error in dict.fromkeys(outcome.error for outcome in result.outcomes if outcome.error is not None):
            yield from _wrapped("  error  ", printable(error), width)
    if result.state is State.TODO:
        return
    reported: set[object] = set()
    for failure in result.failures:
        fresh = [values for values in failure.values if _key(failure, values) not in reported]
        reported.update(_key(failure, values) for values in fresh)
        yield from _failure(replace(failure, values=tuple(fresh)), suite, width=width)


def _key(failure: Failure, values: ClauseValues) -> object:
    """Return what tells values from those that stand above already."""
    return failure.pod, values.place, frozenset((p.start, frozenset(p.values)) for p in values.pointers)


def _failure(failure: Failure, suite: Suite, *, width: int) -> Iterator[str]:
    about = f" (pod {failure.pod})" if failure.pod else ""
    yield from _wrapped("  ", f"{place(suite, failure.expected)}{about}", width, indent="    ")
    yield from _wrapped("    expected  ", printable(failure.mismatch.expected), width)
    yield from _wrapped("    got       ", printable(failure.mismatch.got), width)
    for values in failure.values:
        if values.pointers or values.scores:
            yield ""
            yield from clause_lines(values, width=width)
    if any(values.pointers or values.scores for values in failure.values):
        yield ""


def summary(results: Sequence[SuiteResult]) -> str:
    """Return the last line."""
    counts = {state: sum(result.count(state) for result in results) for state in State}
    parts = [f"{counts[state]} {word}" for state, word in _WORDS.items()]
    parts += [f"{counts[state]} {word}" for state, word in _MORE_WORDS.items() if counts[state]]
    return ", ".join(parts)


def place(suite: Suite, expected: Expected) -> str:
    """Return where an expectation stands, and its key."""
    span = suite.document.span(expected.path, key=True)
    line, _ = span.source.position(span.start)
    steps = [str(step) for step in expected.path[-1:] if isinstance(step, str) and step != expected.key]
    return f"{span.source.name}:{line}: {' '.join([expected.key, *steps])}"


# --- values under a clause -------------------------------------------------------------------------------


def clause_lines(values: ClauseValues, *, width: int) -> Iterator[str]:
    """Return a clause with the values of its parts below, each under the part that has it.

    spread.policy:2  score 2 * (100 - promql("cpu_usage"))
                                      |
                                      a1 = 9   b1 = 10
    """
    head = f"  {values.place}  "
    shown = {pointer.start: _pointed(pointer) for pointer in values.pointers}
    needed = len(head) + max([len(values.text), *(start + len(text) for start, text in shown.items())])
    if needed > max(width, NARROWEST) or not values.text.isascii():
        yield from _as_list(values, width=width)
    else:
        yield from _below(values, head, shown)
    if values.scores:
        yield from _wrapped("    adds      ", "   ".join(f"{node} {score}" for node, score in values.scores), width)


def _below(values: ClauseValues, head: str, shown: Mapping[int, str]) -> Iterator[str]:
    yield head + values.text
    indent = " " * len(head)
    starts = sorted(shown)
    yield indent + _marks(starts)
    # from the right to the left: nothing that is still to come stands right of a text
    open_ = list(starts)
    while open_:
        done = []
        limit: int | None = None
        for start in reversed(open_):
            if limit is None or start + len(shown[start]) + 1 < limit:
                done.append(start)
                limit = start
            else:
                break
        last = [start for start in open_ if start not in done]
        line = _marks(last)
        for start in sorted(done):
            line = line.ljust(start) + shown[start]
        yield indent + line
        open_ = last


def _as_list(values: ClauseValues, *, width: int) -> Iterator[str]:
    yield from _wrapped("  ", values.place, width, indent="    ")
    yield from _wrapped("    ", printable(values.text), width, indent="      ")
    for pointer in values.pointers:
        part = values.text[pointer.start : pointer.end]
        yield from _wrapped("      ", printable(f"{part}: {_pointed(pointer)}"), width, indent="        ")


def _pointed(pointer: Pointer) -> str:
    if all(not node for node, _ in pointer.values):
        return ", ".join(value for _, value in pointer.values)
    return "   ".join(f"{node} = {value}" for node, value in pointer.values)


def _marks(starts: Sequence[int]) -> str:
    line = ""
    for start in starts:
        line = line.ljust(start) + "|"
    return line


def _wrapped(head: str, text: str, width: int, *, indent: str | None = None) -> Iterator[str]:
    """Return a text behind a head, its further lines below its beginning."""
    under = " " * len(head) if indent is None else indent
    lines = textwrap.wrap(
        text,
        max(width, NARROWEST),
        initial_indent=head,
        subsequent_indent=under,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from lines or [head.rstrip()]


_BAD = (State.FAILED, State.ERROR)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Unusable:
    """A file that could not be run."""

    file: str
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that was run."""

    results: tuple[SuiteResult, ...]
    unusable: tuple[Unusable, ...] = ()
    seconds: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """How long each case took, by the identity of its result; a caller with a clock knows."""

    def cases(self) -> Iterator[tuple[Suite, CaseResult]]:
        """Yield every case with its file."""
        for result in self.results:
            for case in result.cases:
                yield result.suite, case


# --- JSON ------------------------------------------------------------------------------------------------


def as_json(run: Run) -> str:
    """Return the run as JSON."""
    done: dict[str, Any] = {
        "cases": [_case(suite, case) for suite, case in run.cases()],
        "summary": {state.value: sum(result.count(state) for result in run.results) for state in State},
    }
    if run.unusable:
        done["unusable"] = [
            {"file": one.file, "problems": [_problem(diagnostic) for diagnostic in one.diagnostics]}
            for one in run.unusable
        ]
    return json.dumps(done, indent=2, ensure_ascii=False) + "\n"


def _case(suite: Suite, result: CaseResult) -> dict[str, Any]:
    file, line = _position(suite, result)
    done: dict[str, Any] = {"file": file, "line": line, "name": result.case.name, "state": result.state.value}
    if result.state in (State.SKIPPED, State.TODO):
        done["reason"] = result.case.skip or result.case.todo
    if len(result.outcomes) == 1 and result.outcomes[0].clusters is not None:
        done["clusters"] = dict(sorted(result.outcomes[0].clusters.items()))
    elif len(result.outcomes) == 1:
        done["node"] = result.outcomes[0].host
    elif result.outcomes:
        done["pods"] = [{"name": outcome.pod, "node": outcome.host} for outcome in result.outcomes]
    errors = [outcome.error for outcome in result.outcomes if outcome.error is not None]
    if errors:
        done["errors"] = errors
    if result.failures:
        done["failures"] = [_failure_data(suite, failure) for failure in result.failures]
    return done


def _failure_data(suite: Suite, failure: Failure) -> dict[str, Any]:
    done: dict[str, Any] = {
        "at": place(suite, failure.expected),
        "expected": failure.mismatch.expected,
        "got": failure.mismatch.got,
    }
    if failure.pod:
        done["pod"] = failure.pod
    values = [
        {
            "clause": clause.text,
            "at": clause.place,
            "parts": [
                {"text": clause.text[pointer.start : pointer.end], "values": dict(pointer.values)}
                for pointer in clause.pointers
            ],
            **({"adds": {node: float(score) for node, score in clause.scores}} if clause.scores else {}),
        }
        for clause in failure.values
        if clause.pointers or clause.scores
    ]
    if values:
        done["values"] = values
    return done


def _problem(diagnostic: Diagnostic) -> dict[str, Any]:
    line, column = diagnostic.span.source.position(diagnostic.span.start)
    return {
        "file": diagnostic.span.source.name,
        "line": line,
        "column": column,
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "help": diagnostic.help,
    }


# --- JUnit -----------------------------------------------------------------------------------------------


def as_junit(run: Run) -> str:
    """Return the run as the XML that CI systems read; `todo` is skipped there, a file that cannot be run an error."""
    root = ElementTree.Element("testsuites", name="policyctl test")
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for result in run.results:
        name = result.suite.document.source.name
        counts = {
            "tests": len(result.cases),
            "failures": result.count(State.FAILED),
            "errors": result.count(State.ERROR),
            "skipped": result.count(State.SKIPPED) + result.count(State.TODO),
        }
        suite = _element(root, "testsuite", name=name, **{key: str(count) for key, count in counts.items()})
        if run.seconds:
            suite.set("time", _time(sum(run.seconds.get(id(case), 0.0) for case in result.cases)))
        for case in result.cases:
            _junit_case(suite, result.suite, case, run.seconds)
        totals = {key: totals[key] + counts[key] for key in totals}
    for one in run.unusable:
        suite = _element(root, "testsuite", name=one.file, tests="1", failures="0", errors="1", skipped="0")
        test = _element(suite, "testcase", classname=one.file, name="can be used")
        text = "\n".join(str(diagnostic) for diagnostic in one.diagnostics)
        _element(test, "error", text, message=one.diagnostics[0].message, type=one.diagnostics[0].code)
        totals["tests"] += 1
        totals["errors"] += 1
    for key, count in totals.items():
        root.set(key, str(count))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _junit_case(parent: ElementTree.Element, suite: Suite, result: CaseResult, seconds: Mapping[int, float]) -> None:
    file, line = _position(suite, result)
    case = _element(parent, "testcase", classname=file, name=result.case.name, file=file, line=str(line))
    if id(result) in seconds:
        case.set("time", _time(seconds[id(result)]))
    match result.state:
        case State.FAILED:
            text = "\n".join(_failure_text(suite, failure) for failure in result.failures)
            first = result.failures[0].mismatch
            _element(case, "failure", text, message=f"expected {first.expected}, got {first.got}", type="expectation")
        case State.ERROR:
            text = "\n".join(outcome.error for outcome in result.outcomes if outcome.error is not None)
            _element(case, "error", text, message=text.partition("\n")[0], type="error")
        case State.SKIPPED:
            _element(case, "skipped", message=result.case.skip)
        case State.TODO:
            _element(case, "skipped", message=f"todo: {result.case.todo}")
        case State.PASSED:
            pass


def _element(parent: ElementTree.Element, tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
    clean = {key: _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value) for key, value in attributes.items()}
    element = ElementTree.SubElement(parent, tag, clean)
    if text:
        element.text = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
    return element


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


# --- TAP -------------------------------------------------------------------------------------------------


def as_tap(run: Run) -> str:
    """Return the run in version 14 of the Test Anything Protocol."""
    cases = sum(len(result.cases) for result in run.results)
    lines = ["TAP version 14", f"1..{cases + len(run.unusable)}"]
    for number, (suite, result) in enumerate(run.cases(), start=1):
        title = _tap_text(f"{suite.document.source.name} › {result.case.name}")
        match result.state:
            case State.PASSED:
                lines.append(f"ok {number} - {title}")
            case State.SKIPPED:
                lines.append(f"ok {number} - {title} # SKIP {_tap_text(result.case.skip)}")
            case State.TODO:
                lines.append(f"not ok {number} - {title} # TODO {_tap_text(result.case.todo)}")
            case State.FAILED | State.ERROR:
                lines.append(f"not ok {number} - {title}")
                found = _case(suite, result)
                lines += _tap_details({key: found[key] for key in ("failures", "errors") if key in found})
    for number, one in enumerate(run.unusable, start=cases + 1):
        lines.append(f"not ok {number} - {_tap_text(one.file)} can be used")
        lines += _tap_details({"problems": [_problem(diagnostic) for diagnostic in one.diagnostics]})
    return "\n".join(lines) + "\n"


def _tap_text(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("#", "\\#")


def _tap_details(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield a YAML block; JSON is YAML."""
    yield "  ---"
    for key, inner in value.items():
        yield f"  {key}:"
        yield from (f"    - {json.dumps(one, ensure_ascii=False)}" for one in inner)
    yield "  ..."


# --- GitHub ----------------------------------------------------------------------------------------------


def as_github(run: Run) -> str:
    """Return the run as annotations that GitHub shows beside the lines of a change; the last line counts."""
    lines = []
    for suite, result in run.cases():
        file, line = _position(suite, result)
        title = result.case.name
        if result.state in _BAD:
            for failure in result.failures:
                at = suite.document.span(failure.expected.path, key=True)
                number = at.source.position(at.start)[0]
                lines.append(_annotation("error", file, number, title, _failure_text(suite, failure)))
            for outcome in result.outcomes:
                if outcome.error is not None:
                    lines.append(_annotation("error", file, line, title, outcome.error))
        elif result.state in (State.SKIPPED, State.TODO):
            word = result.state.value
            lines.append(_annotation("notice", file, line, title, f"{word}: {result.case.skip or result.case.todo}"))
    for one in run.unusable:
        for diagnostic in one.diagnostics:
            source = diagnostic.span.source
            text = diagnostic.message + (f"\n{diagnostic.help}" if diagnostic.help else "")
            number = source.position(diagnostic.span.start)[0]
            lines.append(_annotation("error", source.name, number, diagnostic.code, text))
    return "".join(f"{line}\n" for line in [*lines, summary(run.results)])


def _annotation(level: str, file: str, line: int, title: str, text: str) -> str:
    return f"::{level} file={_property(file)},line={line},title={_property(title)}::{_message(text)}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


# --- all of them -----------------------------------------------------------------------------------------


def _failure_text(suite: Suite, failure: Failure) -> str:
    about = f" (pod {failure.pod})" if failure.pod else ""
    mismatch = failure.mismatch
    return f"{place(suite, failure.expected)}{about}\n  expected  {mismatch.expected}\n  got       {mismatch.got}"


def _position(suite: Suite, result: CaseResult) -> tuple[str, int]:
    span = suite.document.span(result.case.path)
    return span.source.name, span.source.position(span.start)[0]


FORMATS: Mapping[str, Callable[[Run], str]] = MappingProxyType(
    {"json": as_json, "junit": as_junit, "tap": as_tap, "github": as_github}
)
"""By name; the text form is in `tooling.tester.reports`."""
SUFFIXES: Mapping[str, str] = MappingProxyType({".json": "json", ".xml": "junit", ".tap": "tap"})
"""Which format a file's name asks for."""
