"""The `expect` of a case, to expectations. What it names must exist, so that no case passes by a misspelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.yaml_document import Document
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester import expectation as wanted
from kube_policy_scheduler.tooling.tester.expectation import Comparison, Expectation, NodeFacts, NodeMatch, Reason
from kube_policy_scheduler.tooling.tester.suite import Part, Path, did_you_mean
from kube_policy_scheduler.tooling.tester.texts import is_pattern

_TOLERANCE = re.compile(r"(?P<value>-?[0-9.]+) *(?:±|\+-) *(?P<tolerance>[0-9.]+)")
_COMPARISON = re.compile(r"(?P<operator>>=|<=|>|<|==)? *(?P<value>-?[0-9.]+)")
_INEXACT = frozenset({"filtered", "scores", "order", "placed"})
"""Expectations that may leave out nodes, unless there is `exact`."""
_EQUAL_WITHIN = 1e-9
"""Relative: totals are sums of floats."""
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": lambda got, limit: got >= limit,
    "<=": lambda got, limit: got <= limit,
    ">": lambda got, limit: got > limit,
    "<": lambda got, limit: got < limit,
    "==": lambda got, limit: abs(got - limit) <= _EQUAL_WITHIN * max(1.0, abs(limit)),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """One expectation and where it stands."""

    key: str
    """Its key in `expect`, such as `node`."""
    path: Path
    value: Expectation | None
    """None: nobody wrote it, it always holds."""


class ExpectReader:
    """Reads one case's `expect`, collecting what it names that does not exist."""

    def __init__(
        self,
        document: Document,
        *,
        facts: Mapping[str, NodeFacts],
        pods: Callable[[], frozenset[str]],
        queries: Sequence[str],
    ) -> None:
        self._document = document
        self._facts = facts
        self._nodes = tuple(facts)
        self._pods = pods
        self._queries = queries
        self.problems: list[Diagnostic] = []

    def read(self, part: Part) -> tuple[Expected, ...]:
        """Return the expectations in the order in which they were written."""
        found: list[Expected] = []
        exact = "exact" in part.value
        if exact and not part.value.keys() & _INEXACT:
            message = f"`exact` says nothing without {', '.join(sorted(_INEXACT))}"
            self._problem((*part.path, "exact"), codes.BAD_FIXTURE, message, "")
        for key, value in part.value.items():
            path = (*part.path, key)
            if key == "exact":
                continue
            if exact and key in _INEXACT:
                found.extend(Expected(key, path, each) for each in self._exactly(key, value))
            found.extend(Expected(key, place, expectation) for place, expectation in self._one(key, value, path))
        return tuple(found)

    def _one(self, key: str, value: Any, path: Path) -> Iterator[tuple[Path, Expectation]]:
        match key:
            case "node":
                yield path, wanted.GoesTo(self._match(value, path))
            case "node_in":
                yield path, wanted.GoesTo(self._match(value, path))
            case "not_on":
                yield path, wanted.NotOn(self._match(value, path))
            case "schedulable":
                yield path, wanted.Schedulable(value)
            case "unschedulable":
                yield path, wanted.Unschedulable(self._reason(value, path))
            case "held":
                yield path, wanted.Held(value is not False, self._text(value, path))
            case "evicts":
                self._known_pods(value, path)
                yield path, wanted.Evicts(frozenset(value))
            case "feasible":
                yield path, wanted.Feasible(frozenset(self._known(value, path)))
            case "filtered":
                for node, reason in value.items():
                    self._known([node], path, keys=True)
                    yield (*path, node), wanted.Filtered(node, self._reason(reason, (*path, node)))
            case "scores":
                for node, number in value.items():
                    self._known([node], path, keys=True)
                    yield (*path, node), wanted.Score(node, comparison(number))
            case "order":
                yield path, wanted.Order(tuple(self._known(value, path)))
            case "turns":
                self._known_pods(value, path)
                yield path, wanted.Turns(tuple(value))
            case "waits":
                yield path, wanted.Waits(value is not False, self._text(value, path))
            case "placed":
                if not isinstance(value, dict):
                    yield path, wanted.Placed(None, comparison(value))
                    return
                for node, number in value.items():
                    self._known([node], path, keys=True)
                    yield (*path, node), wanted.Placed(node, comparison(number))
            case "max_skew":
                by = value["by"]
                if by not in ("zone", "region", "node") and not any(by in one.labels for one in self._facts.values()):
                    labels = sorted({label for one in self._facts.values() for label in one.labels})
                    message = f"no node of the test has the label `{by}`"
                    advice = did_you_mean(by, ["zone", "region", "node", *labels])
                    self._problem((*path, "by"), codes.UNKNOWN_NODE, message, advice)
                yield path, wanted.MaxSkew(by, value["at_most"])
            case "warnings":
                yield path, wanted.Warnings(tuple(value))
            case "margin":
                yield path, wanted.Margin(comparison(value))
            case "degraded":
                for index, query in enumerate(value):
                    if query not in self._queries:
                        advice = did_you_mean(query, self._queries, none="the policies read no metrics")
                        message = f"no policy reads the metric `{query}`"
                        self._problem((*path, index), codes.UNKNOWN_METRIC, message, advice)
                yield path, wanted.Degraded(frozenset(value))
            case _:
                raise AssertionError(f"the schema lets `{key}` through")

    def _exactly(self, key: str, value: Any) -> Iterator[Expectation]:
        """Yield what `exact` adds: what is not named is not so."""
        others = frozenset(self._nodes) - frozenset(value if isinstance(value, list | dict) else ())
        match key:
            case "filtered":
                yield wanted.Feasible(others)
            case "scores" | "order":
                yield wanted.Feasible(frozenset(value))
            case "placed" if isinstance(value, dict):
                yield from (wanted.Placed(node, comparison(0)) for node in sorted(others))

    def _text(self, value: bool | str, path: Path) -> str | None:
        if not isinstance(value, str):
            return None
        self._check_text(value, path)
        return value

    def _check_text(self, text: str, path: Path) -> None:
        if is_pattern(text):
            try:
                re.compile(text[1:-1])
            except re.error as error:
                self._problem(path, codes.BAD_FIXTURE, f"not a regular expression: {error}", "")

    def _known_pods(self, names: Sequence[str], path: Path) -> None:
        known = self._pods()
        for index, pod in enumerate(names):
            if pod not in known:
                advice = did_you_mean(pod, tuple(known), none="the test has no pods")
                self._problem((*path, index), codes.UNKNOWN_NODE, f"unknown pod `{pod}`", advice)

    def _match(self, value: Any, path: Path) -> NodeMatch:
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
            if not any(_holds(value, facts) for facts in self._facts.values()):
                self._problem(path, codes.UNKNOWN_NODE, f"no node of the test has {shown}", "")
            return NodeMatch(shown, lambda facts: _holds(value, facts))
        names = [value] if isinstance(value, str) else value
        self._known(names, path, single=isinstance(value, str))
        return NodeMatch(" or ".join(names), lambda facts: facts.name in names, tuple(names))

    def _known(self, names: list[str], path: Path, *, keys: bool = False, single: bool = False) -> list[str]:
        for index, name in enumerate(names):
            if name not in self._nodes:
                advice = did_you_mean(name, self._nodes, none="the test has no nodes")
                place = (*path, name) if keys else path if single else (*path, index)
                self._problem(place, codes.UNKNOWN_NODE, f"unknown node `{name}`", advice, key=keys)
        return names

    def _reason(self, value: Mapping[str, str], path: Path) -> Reason:
        message = value.get("message")
        if message is not None:
            self._check_text(message, (*path, "message"))
        return Reason(value.get("clause"), message)

    def _problem(self, path: Path, code: Code, message: str, advice: str, *, key: bool = False) -> None:
        self.problems.append(self._document.error(path, code, message=message, advice=advice, key=key))


def comparison(value: float | str) -> Comparison:
    """Return a number, `'>= 50'` or `'180 ± 0.5'` as a comparison."""
    if not isinstance(value, str):
        exactly = float(value)
        return Comparison(f"{exactly:.10g}", lambda got: _OPERATORS["=="](got, exactly))
    text = value
    tolerant = _TOLERANCE.fullmatch(text.strip())
    if tolerant is not None:
        middle, tolerance = float(tolerant["value"]), float(tolerant["tolerance"])
        return Comparison(text, lambda got: abs(got - middle) <= tolerance)
    plain = _COMPARISON.fullmatch(text.strip())
    assert plain is not None, f"the schema lets {text!r} through"
    holds, limit = _OPERATORS[plain["operator"] or "=="], float(plain["value"])
    return Comparison(text, lambda got: holds(got, limit))


def _holds(match: Mapping[str, Any], facts: NodeFacts) -> bool:
    return all(
        all(facts.labels.get(label) == text for label, text in value.items())
        if key == "labels"
        else getattr(facts, key) == value
        for key, value in match.items()
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={text}" for key, text in value.items())
    return {True: "true", False: "false"}.get(value, str(value))
