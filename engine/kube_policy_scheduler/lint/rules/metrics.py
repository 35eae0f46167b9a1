"""PromQL inside policies: parsed with the grammar of Prometheus, with the place inside the string."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import promql_parser

from kube_policy_scheduler.diagnostics import Severity, Span
from kube_policy_scheduler.lang import expressions, syntax
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.queries import QUERY_FUNCTION, size_problem
from kube_policy_scheduler.lang.reading.literals import offsets
from kube_policy_scheduler.lang.walk import walk
from kube_policy_scheduler.lint.rule import Finding, rule
from kube_policy_scheduler.patterns import PatternError, label_pattern
from kube_policy_scheduler.wording import listed

_EXACTLY, _BEYOND = 200, 20
"""Ends of beginnings that are all tried, and those tried after the one found by halving."""
_EXACTLY_SHOWN = 10
"""Broken queries of a policy whose place is looked for: it takes a hundred trials."""
_KEEPING = ("topk", "bottomk", "limitk", "limit_ratio")
"""Aggregations that keep the labels of series."""
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
    """The kind of result of a query."""

    SERIES = "series"
    WITHOUT_LABELS = "without labels"
    RANGE = "range"


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why a query is none."""

    text: str
    part: str = ""
    """The regular expression that is none."""


@lru_cache(maxsize=1024)
def _answer(query: str) -> _Answer | _Problem:
    """Return the kind of result of a query, or why it does not parse. Trees are not kept: some take megabytes."""
    try:
        tree = promql_parser.parse(query)
    except ValueError as error:
        return _Problem(str(error).splitlines()[0][:200])
    for pattern in _patterns(tree):
        try:
            label_pattern(pattern)
        except PatternError as error:
            return _Problem(f"not a regular expression of RE2: {error}"[:200], pattern)
    if isinstance(tree, promql_parser.AggregateExpr) and _without_labels(tree):
        return _Answer.WITHOUT_LABELS
    if isinstance(tree, promql_parser.MatrixSelector | promql_parser.SubqueryExpr | promql_parser.StringLiteral):
        return _Answer.RANGE
    return _Answer.SERIES


def _patterns(tree: Any) -> Iterator[str]:
    """Yield the regular expressions of all selectors of a query. The parser's engine takes some that RE2 refuses."""
    trees = [tree]
    while trees:
        match trees.pop():
            case promql_parser.VectorSelector(matchers=matchers):
                for matcher in itertools.chain(matchers.matchers, *matchers.or_matchers):
                    if str(matcher.op) in ("MatchOp.Re", "MatchOp.NotRe"):
                        yield matcher.value
            case promql_parser.BinaryExpr(lhs=left, rhs=right):
                trees += [left, right]
            case promql_parser.Call(args=arguments):
                trees += arguments
            case promql_parser.AggregateExpr(expr=inner, param=parameter):
                trees += [inner] if parameter is None else [inner, parameter]
            case promql_parser.MatrixSelector(vector_selector=inner):
                trees.append(inner)
            case promql_parser.ParenExpr(expr=inner) | promql_parser.UnaryExpr(expr=inner):
                trees.append(inner)
            case promql_parser.SubqueryExpr(expr=inner):
                trees.append(inner)


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
        if isinstance(problem, _Problem):
            exactly -= 1
            place = _inside(text, problem.part) if exactly >= 0 else text.span
            message = f"this query does not parse: {problem.text}"
            yield Finding(place, message, "correct it; you can test it in the Prometheus UI")


def _inside(text: expressions.Text, part: str) -> Span:
    """Return the place of a part, or where a query stops being one: an unmatched bracket, or behind the longest good
    prefix.
    """
    query, places = text.value, offsets(text.span.text)
    at, end = query.find(part), len(part)
    if not part:
        unmatched = _unmatched(query)
        at, end = _longest(query) if unmatched is None else unmatched, 1
    if not 0 <= at < len(query) or len(places) != len(query) + 1:
        return text.span
    return Span(text.span.source, text.span.start + places[at], text.span.start + places[at + end])


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
    aggregation keeps only the labels in `by`. For one value for the cluster, write `metric NAME = promql("…") for
    cluster`. A metric `by LABEL as TEXT` is missing too if the query does not keep that label.

    Avoid::

        score 100 - promql("avg(cpu_usage)") ?? 50

    Prefer::

        score 100 - promql("avg by (node) (cpu_usage)") ?? 50
        score least_allocated()
    """
    metrics = {id(text): metric for metric, text in _metrics(policy)}
    for text in _queries(policy):
        metric = metrics.get(id(text))
        if metric is not None and metric.for_cluster:
            continue
        if metric is not None and metric.by is not None and metric.by.also is not None:
            yield from _labels_lost(text, (metric.by.label, metric.by.also.label))
        elif metric is not None and metric.by is not None and metric.by.value is not None:
            yield from _labels_lost(text, (metric.by.label,))
        elif _answer(text.value) is _Answer.WITHOUT_LABELS:
            message = "the result of this query has no labels, so it matches no node"
            advice = "write `by (node)` or `by (instance)` after the aggregation"
            advice += ', or `metric NAME = promql("…") for cluster`'
            yield Finding(text.span, message, advice)


def _metrics(policy: CheckedPolicy) -> Iterator[tuple[syntax.Metric, expressions.Expr]]:
    """Yield each `metric` statement with the text of its query."""
    for statement in policy.statements:
        if isinstance(statement, syntax.Metric) and isinstance(statement.query, expressions.Call):
            for text in statement.query.arguments[:1]:
                yield statement, text


@lru_cache(maxsize=1024)
def _kept(query: str) -> tuple[bool, frozenset[str]] | None:
    """Return whether the outermost aggregation of a query keeps only these labels, or all but these; None: no such."""
    try:
        tree = promql_parser.parse(query)
    except ValueError:
        return None
    while isinstance(tree, promql_parser.ParenExpr):
        tree = tree.expr
    if not isinstance(tree, promql_parser.AggregateExpr) or str(tree.op) in _KEEPING:
        return None
    if tree.modifier is None:
        return True, frozenset()
    return "By" in str(tree.modifier.type), frozenset(tree.modifier.labels)


def _keeps(query: str, label: str) -> bool:
    """Return whether the series that a query gives can have a label."""
    kept = _kept(query)
    return kept is None or kept[0] == (label in kept[1])


@rule("P0364", severity=Severity.WARNING, syntactic=True)
def several_series_for_one(policy: CheckedPolicy) -> Iterator[Finding]:
    """The metric has one value for the cluster, but its query returns one series for each value of a label. If there
    is more than one series, the value is missing.

    Avoid::

        metric price = promql("avg by (region) (power_price)") for cluster default 30
        hold if price > 100

    Prefer::

        metric price = promql("avg(power_price)") for cluster default 30
        hold if price > 100
    """
    readable = {id(text) for text in _queries(policy)}
    for metric, text in _metrics(policy):
        if not metric.for_cluster or id(text) not in readable or not isinstance(text, expressions.Text):
            continue
        kept = _kept(text.value)
        if kept is not None and kept[0] and kept[1]:
            message = f"this query returns one series for each {listed(sorted(kept[1]))}, and the metric has one value"
            yield Finding(text.span, message, "remove `by (…)`, or write `by LABEL as TEXT` after the query")


def _without_labels(tree: Any) -> bool:
    modifier = tree.modifier
    if str(tree.op) in _KEEPING:
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


def _labels_lost(query: expressions.Text, labels: tuple[str, ...]) -> Iterator[Finding]:
    """Yield a finding for a query whose result has no longer the labels by which it is found."""
    lost = [label for label in labels if not _keeps(query.value, label)]
    if lost:
        message = f"the result of this query has no label `{lost[0]}`, so it matches nothing"
        yield Finding(query.span, message, f"write `by ({', '.join(labels)})` after the aggregation")
