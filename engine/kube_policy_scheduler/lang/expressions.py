"""The syntax tree of expressions: what was written, frozen, with spans. Nothing here has a meaning yet.

Spans take no part in comparison: two trees are equal if their texts mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from kube_policy_scheduler.diagnostics import Span


@dataclass(frozen=True, slots=True)
class Number:
    """A literal with its suffix: `2`, `500m`, `4Gi`, `30s`, `80%`."""

    value: float
    """In the base unit: `500m` is 0.5, `4Gi` 4294967296, `2h` 7200, `80%` 0.8."""
    suffix: str
    text: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal; `value` has its escapes resolved."""

    value: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    value: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A bare name."""

    name: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Member:
    """`base.name`"""

    base: Expr
    name: str
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Index:
    """`base[key]`"""

    base: Expr
    key: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Named:
    """A named argument of a call."""

    name: str
    value: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`function(arguments, name=value)`"""

    function: str
    arguments: tuple[Expr, ...]
    named: tuple[Named, ...]
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count(p in node.pods where …)`, `sum(n.free.cpu for n in cluster.nodes)`, `all(… for i in pod.images)`"""

    function: str
    variable: str
    value: Expr | None
    collection: Expr
    where: Expr | None
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)
    distinct: bool = False
    """`count(distinct p.label.job for p in node.pods)`: each value counts once."""


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `not x`"""

    operator: str
    operand: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, comparison, `in`, `not in`, `matches`, `??`."""

    operator: str
    left: Expr
    right: Expr
    operator_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Logical:
    """A chain of `and`, or of `or`; at least two operands."""

    operator: str
    operands: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Conditional:
    """`if condition then then else otherwise`"""

    condition: Expr
    then: Expr
    otherwise: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IsMissing:
    """`x is missing`, `x is not missing`"""

    operand: Expr
    negated: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LabelTest:
    """`label KEY`, `label KEY=VALUE`, `pod label KEY in (a, b)`: Kubernetes' selector syntax."""

    subject: str
    """node or pod"""
    key: str
    operator: str
    """exists, =, !=, in or notin"""
    values: tuple[str, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`"""

    items: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


Expr: TypeAlias = (
    Number
    | Text
    | Truth
    | Name
    | Member
    | Index
    | Call
    | Aggregate
    | Unary
    | Binary
    | Logical
    | Conditional
    | IsMissing
    | LabelTest
    | ListOf
)
