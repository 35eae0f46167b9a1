"""Typed tree of columns to a typed tree of one node: what is one value per node becomes one value per decision.

For few nodes, arithmetic on numbers takes a fraction of the time that it takes on arrays of so few. The results are
equal bit by bit. So functions for which NumPy and Python may round differently, and what goes over pods, nodes or lists
of nodes, are still evaluated as columns, of one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.compiling.expressions import Compiler, Evaluate
from kube_policy_scheduler.lang.environment import Field, Texts
from kube_policy_scheduler.lang.signature import Receives, TypeSpec
from kube_policy_scheduler.lang.types import TEXT_KINDS, Depends, Kind, Shape

_ROUNDED_ALIKE = frozenset({"abs", "ceil", "clamp", "floor", "max", "min", "round"})
"""Functions of numbers that give the same for a number as for an array."""
_OPERATIONS = (
    typed.Negative,
    typed.Arithmetic,
    typed.Compare,
    typed.Same,
    typed.Not,
    typed.Logic,
    typed.Conditional,
    typed.Otherwise,
    typed.Missing,
)


class OneRow:
    """Turns expressions into those of one row."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._made: dict[int, tuple[typed.Typed, typed.Typed]] = {}
        """By identity of what it was made from, which is kept: names share their parts."""

    def compile(self, value: typed.Typed) -> Evaluate:
        """Return the callable of an expression, for frames of one row: it returns a number, a truth or a text."""
        return self._compiler.compile(self.of(value))

    def of(self, value: typed.Typed) -> typed.Typed:
        """Return the expression for frames of one row."""
        if value.info.shape is not Shape.NODE:
            return value
        known = self._made.get(id(value))
        if known is None:
            known = self._made[id(value)] = value, self._of_parts(value) if _is_operation(value) else self._leaf(value)
        return known[1]

    def _of_parts(self, value: typed.Typed) -> typed.Typed:
        changed: dict[str, Any] = {"info": msgspec.structs.replace(value.info, shape=Shape.DECISION)}
        parts = {id(part) for part in typed.parts(value)}
        for name in value.__struct_fields__:
            part = getattr(value, name)
            if id(part) in parts:
                changed[name] = self.of(part)
            elif name in ("arguments", "operands", "items"):
                changed[name] = tuple(self.of(one) for one in part)
        return msgspec.structs.replace(value, **changed)

    def _leaf(self, value: typed.Typed) -> typed.Typed:
        """Return what reads the only row of a column."""
        column = self._compiler.compile(value)
        of_row: Evaluate | None = getattr(column, "of_row", None)
        info = msgspec.structs.replace(value.info, shape=Shape.DECISION)
        kind = info.type.kind
        read = of_row if of_row is not None else _first_number(column) if kind is Kind.NUMBER else _first(column)
        field = Field("", "", TypeSpec(kind), Shape.DECISION, Depends.NOTHING, None, read, info.low, info.high)
        return typed.Read(info, value.span, field, None)


def _is_operation(value: typed.Typed) -> bool:
    """Return whether a value is to be computed from the values of its parts on the row."""
    match value:
        case typed.Reference():
            return True
        case typed.Contained(list=listed):
            return isinstance(typed.inner(listed), typed.ListOf) or listed.info.shape is not Shape.NODE
        case typed.ListOf():
            return True
        case typed.Apply(builtin=builtin, arguments=arguments):
            if (
                builtin.shape is not None
                or builtin.staged
                or builtin.reads_frame
                or builtin.receives is Receives.COLUMNS
            ):
                return False
            if builtin.name not in _ROUNDED_ALIKE and all(a.info.type.kind not in TEXT_KINDS for a in arguments):
                return False
        case _ if not isinstance(value, _OPERATIONS):
            return False
    return all(each.info.type.kind is not Kind.LIST for each in (value, *typed.parts(value)))


def _first_number(column: Evaluate) -> Callable[[Any], float]:
    def read(frame: Any) -> float:
        found = column(frame)
        return float(found.item(0) if isinstance(found, np.ndarray) else found)

    return read


def _first(column: Evaluate) -> Evaluate:
    def read(frame: Any) -> Any:
        found = column(frame)
        if isinstance(found, np.ndarray):
            return found.item(0)
        if isinstance(found, Texts):
            code = found.codes.item(0)
            return found.values[code] if code >= 0 else None
        return found

    return read
