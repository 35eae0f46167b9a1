"""PromQL inside policies: parsed with the grammar of Prometheus, with the place inside the string."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Any

import promql_parser

from kube_policy_scheduler.diagnostics import Severity, Span
from kube_policy_scheduler.lang import expressions
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.queries import QUERY_FUNCTION, size_problem
from kube_policy_scheduler.lang.reading.literals import offsets
from kube_policy_scheduler.lang.walk import walk
from kube_policy_scheduler.lint.rule import Finding, rule

_EXACTLY, _BEYOND = 200, 20
"""Ends of beginnings that are all tried, and those tried after the one found by halving."""
_EXACTLY_SHOWN = 10
"""Broken queries of a policy whose place is looked for: it takes a hundred trials."""
_BRACKETS = {")": "(", "]": "[", "}": "{"}


@lru_cache(maxsize=1)
def _queries(policy: CheckedPolicy) -> tuple[expressions.Text, ...]:
    """Return the text of each `promql("…")` in a policy."""
    speaking = (statement for statement in policy.statements if QUERY_FUNCTION in statement.span.text)
    calls = (tree for statement in speaking for tree in walk(statement) if isinstance(tree, expressions.Call))
    texts = (call.arguments[0] for call in calls if call.function == QUERY_FUNCTION and call.arguments)
    # a larger one is refused, and must not reach a parser that recurses
    return tuple(text for text in texts if isinstance(text, expressions.Text) and not size_problem(text.value))


class _Answer(Enum):
    """What comes of a query."""

    SERIES = "series"
    WITHOUT_LABELS = "without labels"
    RANGE = "range"


@lru_cache(maxsize=1024)
def _answer(query: str) -> _Answer | str:
    """Return what comes of a query, or in words why it does not parse. Trees are not kept: some take megabytes."""
    try:
        tree = promql_parser.parse(query)
    except ValueError as error:
        return str(error).splitlines()[0][:200]
    if isinstance(tree, promql_parser.AggregateExpr) and _without_labels(tree):
        return _Answer.WITHOUT_LABELS
    if isinstance(tree, promql_parser.MatrixSelector | promql_parser.SubqueryExpr | promql_parser.StringLiteral):
        return _Answer.RANGE
    return _Answer.SERIES


@rule("P0361", severity=Severity.ERROR, syntactic=True)
def promql_syntax_error(policy: CheckedPolicy) -> Iterator[Finding]:
    """Prometheus would reject this query, so its value would always be missing for every node.

    Avoid::

        score 100 - promql("rate(node_cpu_seconds_total[5m]") ?? 50

    Prefer::

        score 100 - promql("avg by (instance) (rate(node_cpu_seconds_total[5m]))") ?? 50
        score least_allocated()
    """
    exactly = _EXACTLY_SHOWN
    for text in _queries(policy):
        problem = _answer(text.value)
        if isinstance(problem, str):
            exactly -= 1
            place = _inside(text) if exactly >= 0 else text.span
            message = f"this query does not parse: {problem}"
            yield Finding(place, message, "correct it; you can test it in the Prometheus UI")


def _inside(text: expressions.Text) -> Span:
    """Return the place where a query stops being one: an unmatched bracket, or the end of the longest good prefix."""
    query, places = text.value, offsets(text.span.text)
    at = _unmatched(query)
    if at is None:
        at = _longest(query)
    if at >= len(query) or len(places) != len(query) + 1:
        return text.span
    return Span(text.span.source, text.span.start + places[at], text.span.start + places[at + 1])


def _unmatched(query: str) -> int | None:
    """Return the offset of the first bracket without a partner, quotes aside."""
    open_: list[tuple[str, int]] = []
    quote = ""
    for at, char in enumerate(query):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'`":
            quote = char
        elif char in "([{":
            open_.append((char, at))
        elif char in ")]}":
            if not open_ or open_[-1][0] != _BRACKETS[char]:
                return at
            open_.pop()
    return open_[-1][1] if open_ else None


def _longest(query: str) -> int:
    """Return the end of the longest beginning that is a query; in a long one it is searched by halving."""
    ends = [end for end in range(1, len(query)) if query[end - 1].isalnum() or query[end - 1] in "_)]}\"'`"]
    if len(ends) > _EXACTLY:
        first = bisect_left(ends, True, key=lambda end: not _begins(query, end))
        ends = ends[: first + _BEYOND]
    for end in reversed(ends[-_EXACTLY:]):
        if _begins(query, end):
            rest = query[end:]
            return end + len(rest) - len(rest.lstrip())
    return 0


def _begins(query: str, end: int) -> bool:
    prefix = query[:end]
    return _unmatched(prefix) is None and _parses(prefix)


def _parses(query: str) -> bool:
    try:
        promql_parser.parse(query)
    except ValueError:
        return False
    return True


@rule("P0362", severity=Severity.ERROR, syntactic=True)
def query_without_nodes(policy: CheckedPolicy) -> Iterator[Finding]:
    """The result of the query has no labels, so it matches no node, and the value is missing for every node. An
    aggregation keeps only the labels in `by`. For one value for all nodes, use `scalar(…)`.

    Avoid::

        score 100 - promql("avg(cpu_usage)") ?? 50

    Prefer::

        score 100 - promql("avg by (node) (cpu_usage)") ?? 50
        score least_allocated()
    """
    for text in _queries(policy):
        if _answer(text.value) is _Answer.WITHOUT_LABELS:
            message = "the result of this query has no labels, so it matches no node"
            yield Finding(text.span, message, "write `by (node)` or `by (instance)` after the aggregation")


def _without_labels(tree: Any) -> bool:
    modifier = tree.modifier
    if str(tree.op) in ("topk", "bottomk", "limitk", "limit_ratio"):
        return False
    return modifier is None or ("By" in str(modifier.type) and not modifier.labels)


@rule("P0363", severity=Severity.ERROR, syntactic=True)
def query_of_a_range(policy: CheckedPolicy) -> Iterator[Finding]:
    """The query returns many samples for each series instead of one value. Use a function such as `rate` or
    `avg_over_time`.

    Avoid::

        score 100 - promql("cpu_usage[5m]") ?? 50

    Prefer::

        score 100 - promql("avg_over_time(cpu_usage[5m])") ?? 50
        score least_allocated()
    """
    for text in _queries(policy):
        if _answer(text.value) is _Answer.RANGE:
            message = "this query does not return one value for each series"
            yield Finding(text.span, message, "wrap it in a function, such as `avg_over_time(…)`")
