"""The slow, obvious evaluator: one node at a time, plain Python values, None for missing. For tests only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, assert_never

import numpy as np

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.compiling.columns import texts_of
from kube_policy_scheduler.lang.environment import Environment, Key, Lists, Texts, collect, node_field, pod_field
from kube_policy_scheduler.lang.signature import MaybeNumber, MaybeText, Number, Text, Truth
from kube_policy_scheduler.lang.types import Depends, Kind


@dataclass(frozen=True)
class Table:
    """A frame of tests: columns by field, and the pod's values."""

    nodes: Mapping[str, list[Any]]
    pod: Mapping[str, Any]

    @property
    def size(self) -> int:
        return len(next(iter(self.nodes.values())))

    def index(self) -> Any:
        return np.arange(self.size)

    def at(self, rows: Any) -> Table:
        return Table({path: [column[row] for row in rows] for path, column in self.nodes.items()}, self.pod)

    def numbers(self, path: str) -> Any:
        return np.array([math.nan if v is None else v for v in self.nodes[path]], np.float64)

    def texts(self, path: str) -> Texts:
        return texts_of(self.nodes[path])


@node_field("node.a", depends=Depends.NODE)
def a(frame: Table) -> Number:
    return frame.numbers("a")


@node_field("node.b", depends=Depends.ROW)
def b(frame: Table) -> Number:
    return frame.numbers("b")


@node_field("node.m", depends=Depends.SIGNAL)
def m(frame: Table) -> MaybeNumber:
    return frame.numbers("m")


@node_field("node.yes", depends=Depends.NODE)
def yes(frame: Table) -> Truth:
    return np.array(frame.nodes["yes"], np.bool_)


@node_field("node.name", depends=Depends.NODE)
def name(frame: Table) -> Text:
    return frame.texts("name")


@node_field("node.label", key=Key.LABEL, depends=Depends.NODE)
def label(frame: Table, key: str) -> MaybeText:
    return frame.texts(f"label {key}")


@pod_field("pod.x")
def x(frame: Table) -> Number:
    return float(frame.pod["x"])


@pod_field("pod.m")
def pod_m(frame: Table) -> MaybeNumber:
    value = frame.pod["m"]
    return math.nan if value is None else float(value)


@pod_field("pod.yes")
def pod_yes(frame: Table) -> Truth:
    return bool(frame.pod["yes"])


@pod_field("pod.label", key=Key.LABEL)
def pod_label(frame: Table, key: str) -> MaybeText:
    found: str | None = frame.pod[f"label {key}"]
    return found


class _NoPods:
    def count(self, frame: Any, members: Any, *, topology: str | None) -> Any:
        raise NotImplementedError

    fold = count


def test_environment(*modules: Any) -> Environment:
    """Return the fields above with the builtins of some modules."""
    import tests.lang.reference as here

    fields, builtins = collect([here, *modules])
    return Environment(MappingProxyType(fields), MappingProxyType(builtins), pods=_NoPods())


test_environment.__test__ = False  # type: ignore[attr-defined]


def evaluate(value: typed.Typed, table: Table, row: int) -> Any:
    """Return the value for one node: float, bool, str, tuple, or None for missing."""

    def of(inner: typed.Typed) -> Any:
        return evaluate(inner, table, row)

    match value:
        case typed.Constant(value=constant):
            return constant
        case typed.Reference(value=inner):
            return of(inner)
        case typed.Read(field=field, key=key):
            root, _, path = field.path.partition(".")
            path = f"{path} {key}" if key else path
            return table.pod[path] if root == "pod" else table.nodes[path][row]
        case typed.Negative(operand=operand):
            number = of(operand)
            return None if number is None else -number
        case typed.Arithmetic(operator=operator, left=left, right=right):
            return _arithmetic(operator, of(left), of(right))
        case typed.Compare(operator=operator, left=left, right=right):
            x, y = of(left), of(right)
            if x is None or y is None:
                return None
            return {"==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[operator]
        case typed.Same(negated=negated, left=left, right=right):
            x, y = of(left), of(right)
            if left.info.type.kind is Kind.TEXT:
                return (x is not None and x == y) is not negated
            return None if x is None or y is None else (x == y) is not negated
        case typed.Contained(negated=negated, item=item, list=list_):
            x, items = of(item), of(list_)
            if item.info.type.kind is Kind.TEXT:
                return (x is not None and x in (items or ())) is not negated
            if items is None:
                return None
            if items and (x is None or (x not in items and None in items)):
                return None
            return (x in items) is not negated
        case typed.Not(operand=operand):
            truth = of(operand)
            return None if truth is None else not truth
        case typed.Logic(operator=operator, operands=operands):
            truths = [of(operand) for operand in operands]
            decisive = operator == "or"
            if decisive in truths:
                return decisive
            return None if None in truths else not decisive
        case typed.Conditional(condition=condition, then=then, otherwise=otherwise):
            which = of(condition)
            return None if which is None else of(then) if which else of(otherwise)
        case typed.Otherwise(left=left, right=right):
            first = of(left)
            return of(right) if first is None else first
        case typed.Missing(negated=negated, operand=operand):
            return (of(operand) is None) is not negated
        case typed.Element(list=list_, position=position):
            items = of(list_)
            return items[position] if items is not None and position < len(items) else None
        case typed.ListOf(items=items):
            return tuple(of(item) for item in items)
        case typed.Apply(kernel=kernel, arguments=arguments):
            return _call(kernel, arguments, [of(argument) for argument in arguments], value)
        case typed.ListAggregate(function="count", list=list_, value=None, where=None):
            return float(len(of(list_) or ()))
        case typed.Aggregate() | typed.NodeAggregate() | typed.ListAggregate() | typed.Variable() | typed.Unknown():
            raise AssertionError(value)
        case _:
            assert_never(value)


def _arithmetic(operator: str, x: float | None, y: float | None) -> float | None:
    if x is None or y is None or (operator in "/%" and y == 0):
        return None
    result = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: x / y, "%": lambda: x % y}[
        operator
    ]()
    return result if math.isfinite(result) else None


def _call(kernel: Any, arguments: Any, values: list[Any], value: typed.Apply) -> Any:
    texts = [v for v, argument in zip(values, arguments, strict=True) if argument.info.type.kind is Kind.TEXT]
    if None in texts:
        return {Kind.TRUTH: False}.get(value.info.type.kind)
    result = kernel(*(math.nan if v is None else v for v in values))
    return None if isinstance(result, float) and math.isnan(result) else result


def plain(result: Any, info: Any, row: int) -> Any:
    """Return one row of what a compiled expression gave, as the reference has it."""
    if isinstance(result, Texts):
        code = int(result.codes[row])
        return result.values[code] if code >= 0 else None
    if isinstance(result, np.ndarray | list | Lists):
        result = result[row]
    if info.type.kind is Kind.NUMBER:
        return None if math.isnan(result) else float(result)
    if info.type.kind is Kind.TRUTH:
        return [False, None, True][int(result)] if info.maybe else bool(result)
    return result
