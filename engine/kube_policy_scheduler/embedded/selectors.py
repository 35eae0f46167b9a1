"""Label and field selectors: text to a compiled test. Knows no resource."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")
_TOKEN = re.compile(r"\s*(?:(?P<op>!=|==|=|!|,|\(|\)|<|>)|(?P<word>[^\s!=,()<>]+))")


class SelectorError(ValueError):
    """The selector text cannot be read."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One test of a label: `operator` is one of In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil this requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return value is not None and _compares(value, self.operator, next(iter(self.values)))


def _compares(value: str, operator: str, bound: str) -> bool:
    try:
        return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)
    except ValueError:
        return False


LabelSelector = tuple[Requirement, ...]


def matches_labels(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether labels fulfil every requirement; the empty selector matches all."""
    return all(requirement.matches(labels) for requirement in selector)


def parse_labels(text: str) -> LabelSelector:
    """Read a label selector such as `app=web,tier in (a,b),!legacy`.

    Raises:
        SelectorError: the text is not a selector.
    """
    tokens = _tokens(text)
    requirements = []
    while tokens:
        requirements.append(_requirement(tokens, text=text))
        if tokens:
            if tokens[0] != ",":
                raise SelectorError(
                    f"unable to parse requirement: found '{tokens[0]}', expected: ',' or 'end of string'"
                )
            tokens.pop(0)
            if not tokens:
                raise SelectorError("unable to parse requirement: found '', expected: identifier after ','")
    return tuple(requirements)


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SelectorError(f"unable to parse requirement: unexpected character at {text[at:]!r}")
        tokens.append(match["op"] or match["word"])
        at = match.end()
    return tokens


def _requirement(tokens: list[str], *, text: str) -> Requirement:
    first = tokens.pop(0)
    if first == "!":
        return Requirement(_key(tokens.pop(0) if tokens else ""), "DoesNotExist")
    key = _key(first)
    if not tokens or tokens[0] == ",":
        return Requirement(key, "Exists")
    operator = tokens.pop(0)
    match operator:
        case "=" | "==" | "!=":
            value = "" if not tokens or tokens[0] == "," else tokens.pop(0)
            return Requirement(key, "NotIn" if operator == "!=" else "In", frozenset({_value(value)}))
        case ">" | "<":
            bound = tokens.pop(0) if tokens else ""
            if not re.fullmatch(r"-?\d+", bound):
                raise SelectorError(f"for 'Gt', 'Lt' operators, the value must be an integer, this is {bound!r}")
            return Requirement(key, "Gt" if operator == ">" else "Lt", frozenset({bound}))
        case "in" | "notin":
            return Requirement(key, "In" if operator == "in" else "NotIn", _set(tokens))
        case _:
            raise SelectorError(
                f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt, lt"
            )


def _set(tokens: list[str]) -> frozenset[str]:
    if not tokens or tokens.pop(0) != "(":
        raise SelectorError("unable to parse requirement: expected '(' after in or notin")
    values = set()
    expect_value = True
    while tokens:
        token = tokens.pop(0)
        if token == ")":
            if expect_value:
                values.add("")
            return frozenset(values)
        if token == ",":
            if expect_value:
                values.add("")
            expect_value = True
        else:
            values.add(_value(token))
            expect_value = False
    raise SelectorError("unable to parse requirement: found '', expected: ',' or ')'")


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise SelectorError(
            f"unable to parse requirement: <nil>: Invalid value: {text!r}: name part must consist of alphanumeric "
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        )
    return text


def _value(text: str) -> str:
    if len(text) > 63 or not _VALUE.fullmatch(text):
        raise SelectorError(
            f"unable to parse requirement: values[0]: Invalid value: {text!r}: a valid label must be an empty string "
            "or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
            "character"
        )
    return text


def from_object(selector: Mapping[str, Any] | None) -> LabelSelector | None:
    """Compile a `LabelSelector` object of the API; None selects nothing."""
    if selector is None:
        return None
    equal = [Requirement(key, "In", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()]
    expressions = [
        Requirement(item["key"], item["operator"], frozenset(item.get("values") or ()))
        for item in selector.get("matchExpressions") or ()
    ]
    return (*equal, *expressions)


@dataclass(frozen=True, slots=True)
class FieldTest:
    """One test of a field: equal to a value, or not."""

    field: str
    value: str
    equal: bool


FieldSelector = tuple[FieldTest, ...]


def parse_fields(text: str) -> FieldSelector:
    """Read a field selector such as `spec.nodeName=,status.phase!=Failed`.

    Raises:
        SelectorError: the text is not a selector.
    """
    return tuple(_field_test(part, text=text) for part in _split(text) if part)


def _split(text: str) -> list[str]:
    parts, current, escaped = [], "", False
    for char in text:
        if not escaped and char == ",":
            parts.append(current)
            current = ""
            continue
        escaped = not escaped and char == "\\"
        current += char
    return [*parts, current]


_FIELD_TEST = re.compile(r"(?P<field>[^=!\\]*)(?P<op>!=|==|=)(?P<value>(?:[^\\=,]|\\[\\,=])*)")


def _field_test(part: str, *, text: str) -> FieldTest:
    match = _FIELD_TEST.fullmatch(part)
    if match is None:
        raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
    value = re.sub(r"\\(.)", r"\1", match["value"])
    return FieldTest(match["field"].strip(), value, match["op"] != "!=")


def compile_fields(selector: FieldSelector, positions: Mapping[str, int]) -> Callable[[Sequence[str]], bool] | None:
    """Turn a selector into a test of a row of field values; None when it always holds.

    Raises:
        SelectorError: a field cannot be selected by.
    """
    tests = []
    for test in selector:
        if test.field not in positions:
            raise SelectorError(f"field label not supported: {test.field}")
        tests.append((positions[test.field], test.value, test.equal))
    if not tests:
        return None
    return lambda row: all((row[at] == value) is equal for at, value, equal in tests)
