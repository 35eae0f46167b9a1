"""Label selectors and node selector terms, compiled once and evaluated many times.

A compiled selector is a value: equal selectors compare equal, so counters and caches can be keyed by them.
Rules: `k8s.io/apimachinery/pkg/labels` and `component-helpers/scheduling/corev1/nodeaffinity`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.label_syntax import is_label_value, is_qualified_name, requirement_error


class SelectorError(ValueError):
    """A selector that the API server rejects, such as an unknown operator."""


class Expression(msgspec.Struct, frozen=True):
    """One requirement on one label: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def test(self) -> Callable[[str | None], bool]:
        """Return the predicate on the label's value, None if the label is absent."""
        values = self.values
        match self.operator:
            case "In":
                return lambda value: value in values
            case "NotIn":
                return lambda value: value is None or value not in values
            case "Exists":
                return lambda value: value is not None
            case "DoesNotExist":
                return lambda value: value is None
            case "Gt" | "Lt":
                bound = parse_integer(next(iter(values), ""))
                if bound is None:
                    return lambda value: False
                if self.operator == "Gt":
                    return lambda value: (number := parse_integer(value)) is not None and number > bound
                return lambda value: (number := parse_integer(value)) is not None and number < bound
        raise SelectorError(f"{self.operator!r} is not a valid label selector operator")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet this requirement."""
        return self.test()(labels.get(self.key))


_INTEGER = r"(?a)[+-]?\d+"
_MAX_INTEGER_LENGTH = 64
"""Longer than any label value."""


def parse_integer(text: str | None) -> int | None:
    """Parse as Go's `strconv.ParseInt(text, 10, 64)` does; None if it would fail."""
    if text is None or len(text) > _MAX_INTEGER_LENGTH or not re.fullmatch(_INTEGER, text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


class Selector(msgspec.Struct, frozen=True):
    """A conjunction of requirements; without any it matches everything. `None` matches nothing."""

    expressions: tuple[Expression, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether this is the selector `{}`, which matches everything."""
        return not self.expressions

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet every requirement."""
        for expression in self.expressions:
            value = labels.get(expression.key)
            match expression.operator:
                case "In":
                    if value not in expression.values:
                        return False
                case "NotIn":
                    if value is not None and value in expression.values:
                        return False
                case "Exists":
                    if value is None:
                        return False
                case "DoesNotExist":
                    if value is not None:
                        return False
                case _:
                    if not expression.test()(value):
                        return False
        return True

    def also(self, expressions: Iterable[Expression]) -> Selector:
        """Return this selector with more requirements."""
        return _selector((*self.expressions, *expressions))


EVERYTHING = Selector()
"""The selector `{}`."""


def _selector(expressions: Iterable[Expression]) -> Selector:
    """Build a selector in canonical order, so that equal meanings written in another order are equal."""
    unique = set(expressions)
    if len(unique) < 2:
        return Selector(tuple(unique))
    return Selector(tuple(sorted(unique, key=lambda e: (e.key, e.operator, sorted(e.values)))))


def equality(labels: Mapping[str, str]) -> Selector:
    """Return the selector of a plain map, as a Service has it."""
    return _selector(Expression(key, "In", frozenset((value,))) for key, value in labels.items())


def label_selector(selector: objects.LabelSelector | None) -> Selector | None:
    """Compile an API label selector; None (absent) matches nothing, `{}` everything.

    Raises:
        SelectorError: an operator is unknown, a key or value is not a label's, or In/NotIn comes without values.
    """
    if selector is None:
        return None
    expressions = [_requirement(key, "In", (value,)) for key, value in (selector.match_labels or _NO_LABELS).items()]
    for each in selector.match_expressions or ():
        if each.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise SelectorError(f"{json.dumps(each.operator)} is not a valid label selector operator")
        expressions.append(_requirement(each.key, each.operator, each.values or ()))
    return _selector(expressions) if expressions else EVERYTHING


_NO_LABELS: dict[str, str] = {}


def _requirement(key: str, operator: str, values: Sequence[str]) -> Expression:
    is_of_values = operator in ("In", "NotIn")
    if bool(values) is not is_of_values or not is_qualified_name(key) or not all(map(is_label_value, values)):
        problem = requirement_error(key, operator, values)
        assert problem is not None
        raise SelectorError(problem)
    return Expression(key, operator, frozenset(values))
