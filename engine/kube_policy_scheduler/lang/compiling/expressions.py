"""Typed tree to one callable over columns. The callable takes a frame, and keeps nothing between calls.

What is one value per decision is a Python number, bool or str; what is one per node is an array `[rows]`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias, assert_never

import numpy as np

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checking import intervals
from kube_policy_scheduler.lang.compiling.apply import apply
from kube_policy_scheduler.lang.compiling.choices import choose, otherwise
from kube_policy_scheduler.lang.compiling.columns import (
    MISSING,
    TRUE,
    contained_in_lists,
    contained_text,
    divide,
    finite,
    is_nan,
    remainder,
    same_text,
    texts_of,
    to_kleene,
)
from kube_policy_scheduler.lang.compiling.folds import fold
from kube_policy_scheduler.lang.compiling.truth import logic, negation, presence
from kube_policy_scheduler.lang.environment import Pods
from kube_policy_scheduler.lang.types import Kind, Shape

Evaluate: TypeAlias = Callable[[Any], Any]
"""From a frame (or an `Item`) to a value."""

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Compiler:
    """Compiles the expressions of one policy; shared parts become shared callables."""

    def __init__(self, pods: Pods) -> None:
        self.pods = pods
        self._made: dict[int, Evaluate] = {}
        self._keep: list[typed.Typed] = []
        self._captures: list[typed.Typed] | None = None
        """Inside an aggregate: the parts that follow from the decision alone."""

    def compile(self, value: typed.Typed) -> Evaluate:
        """Return the callable of an expression.

        Numbers come with NaN for missing, truth as bool or, where `value.info.maybe`, coded as in `columns`.
        """
        if self._captures is not None and value.info.shape is Shape.DECISION and not isinstance(value, typed.Constant):
            return self._captured(value)
        made = self._made.get(id(value))
        if made is None:
            made = self._made[id(value)] = self._compile(value)
            self._keep.append(value)  # an id means something only as long as its object lives
        return made

    def _captured(self, value: typed.Typed) -> Evaluate:
        assert self._captures is not None
        position = len(self._captures)
        self._captures.append(value)
        return lambda item: item.captured[position]

    def _compile(self, value: typed.Typed) -> Evaluate:
        match value:
            case typed.Constant(value=constant):
                return lambda frame: constant
            case typed.Read(field=field, key=None):
                return field.read
            case typed.Read(field=field, key=key):
                read = field.read
                return lambda frame: read(frame, key)
            case typed.Reference(value=inner):
                return self.compile(inner)
            case typed.Apply(arguments=arguments):
                return apply(value, [self.compile(argument) for argument in arguments])
            case typed.Negative(operand=operand):
                x = self.compile(operand)
                return lambda frame: -x(frame)
            case typed.Arithmetic():
                return self._arithmetic(value)
            case typed.Compare():
                return self._compare(value)
            case typed.Same():
                return self._same(value)
            case typed.Contained():
                return self._contained(value)
            case typed.Not(operand=operand):
                return negation(self.compile(operand), maybe=operand.info.maybe)
            case typed.Logic():
                return logic(self, value)
            case typed.Choose():
                return choose(self, value)
            case typed.Otherwise():
                return otherwise(self, value)
            case typed.Missing():
                return presence(self, value)
            case typed.Element():
                return self._element(value)
            case typed.Listed(items=items):
                made = [self.compile(item) for item in items]
                return lambda frame: tuple(item(frame) for item in made)
            case typed.Fold():
                return fold(self, value)
            case typed.Unknown():
                raise ValueError(f"{value.span}: an expression with errors can't be compiled")
            case _:
                assert_never(value)

    # --- numbers -----------------------------------------------------------------------------------------

    def _arithmetic(self, value: typed.Arithmetic) -> Evaluate:
        x, y = self.compile(value.left), self.compile(value.right)
        match value.operator:
            case "+":
                plain: Evaluate = lambda frame: x(frame) + y(frame)  # noqa: E731
            case "-":
                plain = lambda frame: x(frame) - y(frame)  # noqa: E731
            case "*":
                plain = lambda frame: x(frame) * y(frame)  # noqa: E731
            case "/" if value.right.info.low > 0 and value.right.info.low == value.right.info.high:
                plain = lambda frame: x(frame) / y(frame)  # noqa: E731
            case "/":
                return lambda frame: divide(x(frame), y(frame))
            case _:
                return lambda frame: remainder(x(frame), y(frame))
        if max(-value.info.low, value.info.high) <= intervals.LIMIT:
            return plain

        def checked(frame: Any) -> Any:
            with np.errstate(all="ignore"):
                return finite(plain(frame))

        return checked

    def _compare(self, value: typed.Compare) -> Evaluate:
        x, y = self.compile(value.left), self.compile(value.right)
        compare = _COMPARE[value.operator]
        if not value.info.maybe:
            return lambda frame: compare(x(frame), y(frame))

        def three_valued(frame: Any) -> Any:
            a, b = x(frame), y(frame)
            missing = is_nan(a) | is_nan(b)
            if isinstance(missing, np.ndarray):
                return np.where(missing, np.uint8(MISSING), to_kleene(compare(a, b)))
            return MISSING if missing else to_kleene(compare(a, b))

        return three_valued

    # --- texts and lists ---------------------------------------------------------------------------------

    def _same(self, value: typed.Same) -> Evaluate:
        x, y = self.compile(value.left), self.compile(value.right)
        if value.left.info.type.kind is Kind.TEXT:
            equal: Evaluate = lambda frame: same_text(x(frame), y(frame))  # noqa: E731
            return negation(equal, maybe=False) if value.negated else equal
        a, b = self.kleene(value.left), self.kleene(value.right)
        if not value.info.maybe:
            compare = operator.ne if value.negated else operator.eq
            return lambda frame: compare(x(frame), y(frame))

        def three_valued(frame: Any) -> Any:
            left, right = a(frame), b(frame)
            equal = to_kleene((left == right) != value.negated)
            missing = (left == MISSING) | (right == MISSING)
            if isinstance(missing, np.ndarray):
                return np.where(missing, np.uint8(MISSING), equal)
            return MISSING if missing else equal

        return three_valued

    def _contained(self, value: typed.Contained) -> Evaluate:
        x, items = self.compile(value.item), self.compile(value.list)
        numeric = value.item.info.type.kind is Kind.NUMBER
        if isinstance(value.list, typed.Listed) and (numeric or value.list.info.shape is not Shape.DECISION):
            return self._contained_listed(value, value.list)
        if value.item.info.type.kind is Kind.TEXT:
            if value.list.info.shape is Shape.NODE:
                inside: Evaluate = lambda frame: contained_in_lists(x(frame), items(frame))  # noqa: E731
            else:
                inside = lambda frame: contained_text(x(frame), items(frame))  # noqa: E731
            return negation(inside, maybe=False) if value.negated else inside

        def numbers(frame: Any) -> Any:
            item = x(frame)
            result: Any = False
            for each in items(frame):
                result = result | (item == each)
            return result

        if not value.info.maybe:
            return negation(numbers, maybe=False) if value.negated else numbers

        def three_valued(frame: Any) -> Any:
            item, result = x(frame), to_kleene(numbers(frame))
            result = TRUE - result if value.negated else result
            missing = is_nan(item)
            if isinstance(missing, np.ndarray):
                return np.where(missing, np.uint8(MISSING), result)
            return MISSING if missing else result

        return three_valued

    def _contained_listed(self, value: typed.Contained, listed: typed.Listed) -> Evaluate:
        """Return `x in [a, b]` as what it means, `x == a or x == b`, where a or b is not constant."""
        tests: list[typed.Typed] = []
        for item in listed.items:
            if value.item.info.type.kind is Kind.NUMBER:
                tests.append(typed.Compare(value.info, value.span, "==", value.item, item))
            else:
                tests.append(typed.Same(value.info, value.span, False, value.item, item))
        either = self.compile(tests[0] if len(tests) == 1 else typed.Logic(value.info, value.span, "or", tuple(tests)))
        return negation(either, maybe=value.info.maybe) if value.negated else either

    def _element(self, value: typed.Element) -> Evaluate:
        items, position = self.compile(value.list), value.position
        numeric = value.info.type.kind is Kind.NUMBER
        absent = float("nan") if numeric else None

        def element(row: Any) -> Any:
            return row[position] if position < len(row) else absent

        if value.info.shape is not Shape.NODE:
            return lambda frame: element(items(frame))
        return lambda frame: texts_of(element(row) for row in items(frame))

    # --- truth -------------------------------------------------------------------------------------------

    def kleene(self, value: typed.Typed) -> Evaluate:
        """Return a truth expression as three-valued, whatever it is."""
        made = self.compile(value)
        return made if value.info.maybe else lambda frame: to_kleene(made(frame))

    # --- aggregates --------------------------------------------------------------------------------------

    def item(self, value: typed.Typed) -> tuple[Evaluate, list[Evaluate]]:
        """Return the callable of an expression over existing pods, and what it captures from the decision.

        The callable takes an `Item`; three-valued truth comes out as plain truth, missing as false.
        """
        outer, made = self._captures, self._made
        self._captures, self._made = [], {}
        try:
            evaluate = self.compile(value)
            captures = self._captures
        finally:
            self._captures, self._made = outer, made
        captured = [self.compile(capture) for capture in captures]
        if value.info.type.kind is Kind.TRUTH and value.info.maybe:
            inner = evaluate
            return lambda item: inner(item) == TRUE, captured
        return evaluate, captured
