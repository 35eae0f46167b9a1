"""What `policyctl test` shows of a run to people. Knows no terminal: width and colour are arguments."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.tooling.tester.expect_form import Expected
from kube_policy_scheduler.tooling.tester.pointers import ClauseValues, Pointer
from kube_policy_scheduler.tooling.tester.results import CaseResult, Failure, State, SuiteResult
from kube_policy_scheduler.tooling.tester.suite import Suite

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
    told: set[object] = set()
    for failure in result.failures:
        fresh = [values for values in failure.values if _key(failure, values) not in told]
        told.update(_key(failure, values) for values in fresh)
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
