"""Reads what a case expects: names are looked up, reasons and numbers are checked, and problems are collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.yaml_document import Document
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.patterns import PatternError, compiled
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.suite_file import Path, did_you_mean
from kube_policy_scheduler.tooling.tester.wanted import (
    Comparison,
    MaxSkew,
    NodeFacts,
    NodeMatch,
    Reason,
    YesOrReason,
    comparison,
    is_pattern,
    node_match,
)


class ValueReader:
    """Reads the values of one case's `expect`, collecting what they name that does not exist.

    Its methods take a value and its path, so that a row of the table of expectations can name one.
    """

    def __init__(
        self,
        document: Document,
        *,
        facts: Mapping[str, NodeFacts],
        pods: Callable[[], frozenset[str]],
        queries: Sequence[str],
        noun: str = "node",
    ) -> None:
        """Take what a case may name.

        Args:
            document: the test file.
            facts: every node, by name.
            pods: returns the names of all pods, those of the case included.
            queries: every metric that the policies read.
            noun: what the nodes are called.
        """
        self._noun = noun
        self._document = document
        self._facts = facts
        self._pods = pods
        self._queries = queries
        self.nodes = tuple(facts)
        """Names of all nodes."""
        self.problems: list[Diagnostic] = []

    def number(self, value: float | str, path: Path) -> Comparison:
        """Return a number, or a comparison with one."""
        return comparison(value)

    def node_match(self, value: Any, path: Path) -> NodeMatch:
        """Return a set of nodes from a name, names, or what holds for them."""
        if isinstance(value, dict):
            match = node_match(value)
            if not any(match.holds(facts) for facts in self._facts.values()):
                self.problem(path, codes.UNKNOWN_NODE, f"no node of the test has {match.text}", "")
            return match
        names = [value] if isinstance(value, str) else value
        for index, name in enumerate(names):
            self._known_node(name, path if isinstance(value, str) else (*path, index))
        return NodeMatch(" or ".join(names), lambda facts: facts.name in names, tuple(names))

    def node_order(self, value: Sequence[str], path: Path) -> tuple[str, ...]:
        """Return names of nodes, in order."""
        for index, name in enumerate(value):
            self._known_node(name, (*path, index))
        return tuple(value)

    def node_set(self, value: Sequence[str], path: Path) -> frozenset[str]:
        """Return names of nodes."""
        return frozenset(self.node_order(value, path))

    def pod_order(self, value: Sequence[str], path: Path) -> tuple[str, ...]:
        """Return names of pods, in order."""
        known = self._pods()
        for index, pod in enumerate(value):
            if pod not in known:
                advice = did_you_mean(pod, tuple(known), none="the test has no pods")
                self.problem((*path, index), codes.UNKNOWN_NODE, f"unknown pod `{pod}`", advice)
        return tuple(value)

    def pod_set(self, value: Sequence[str], path: Path) -> frozenset[str]:
        """Return names of pods."""
        return frozenset(self.pod_order(value, path))

    def query_set(self, value: Sequence[str], path: Path) -> frozenset[str]:
        """Return metrics that the policies read."""
        for index, query in enumerate(value):
            if query not in self._queries:
                advice = did_you_mean(query, self._queries, none="the policies read no metrics")
                message = f"no policy reads the metric `{query}`"
                self.problem((*path, index), codes.UNKNOWN_METRIC, message, advice)
        return frozenset(value)

    def texts(self, value: Sequence[str], path: Path) -> tuple[str, ...]:
        """Return texts as they are."""
        return tuple(value)

    def reason(self, value: Mapping[str, str], path: Path) -> Reason:
        """Return a rejection that is expected."""
        message = value.get("message")
        if message is not None:
            self._check_text(message, (*path, "message"))
        return Reason(value.get("clause"), message)

    def yes_or_reason(self, value: bool | str, path: Path) -> YesOrReason:
        """Return whether something is so, or for which reason it is."""
        if not isinstance(value, str):
            return YesOrReason(value, None)
        self._check_text(value, path)
        return YesOrReason(True, value)

    def max_skew(self, value: Mapping[str, Any], path: Path) -> MaxSkew:
        """Return by how much pods may differ between two domains."""
        by = value["by"]
        if by not in ("zone", "region", "node") and not any(by in one.labels for one in self._facts.values()):
            labels = sorted({label for one in self._facts.values() for label in one.labels})
            message = f"no node of the test has the label `{by}`"
            advice = did_you_mean(by, ["zone", "region", "node", *labels])
            self.problem((*path, "by"), codes.UNKNOWN_NODE, message, advice)
        return MaxSkew(by, value["at_most"])

    def known_node(self, name: str, path: Path) -> str:
        """Return a name of a node that is a key of a mapping."""
        self._known_node(name, path, key=True)
        return name

    def problem(self, path: Path, code: Code, message: str, advice: str, *, key: bool = False) -> None:
        """Collect an error; `key`: it is about the key at the path, not its value."""
        self.problems.append(self._document.error(path, code, message=message, advice=advice, key=key))

    def _known_node(self, name: str, path: Path, *, key: bool = False) -> None:
        if name not in self._facts:
            advice = did_you_mean(name, self.nodes, none=f"the test has no {self._noun}s")
            self.problem(path, codes.UNKNOWN_NODE, f"unknown {self._noun} `{name}`", advice, key=key)

    def _check_text(self, text: str, path: Path) -> None:
        if is_pattern(text):
            try:
                compiled(text[1:-1])
            except PatternError as error:
                advice = "write a regular expression of RE2"
                self.problem(path, codes.BAD_FIXTURE, f"not a regular expression: {error}", advice)
