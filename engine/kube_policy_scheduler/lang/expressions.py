"""The syntax tree of expressions: what was written, frozen, with spans. Nothing here has a meaning yet.

Spans take no part in comparison: two trees are equal if their texts mean the same.
"""

from __future__ import annotations

from typing import TypeAlias

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang.tree import Tree

AGGREGATES = frozenset({"count", "sum", "min", "max", "avg", "any", "all"})
"""Functions that go over pods, nodes, or the items of a list."""


class Number(Tree, frozen=True):
    """A literal with its suffix: `2`, `500m`, `4Gi`, `30s`, `80%`."""

    value: float
    """In the base unit: `500m` is 0.5, `4Gi` 4294967296, `2h` 7200, `80%` 0.8."""
    suffix: str
    text: str
    span: Span


class Text(Tree, frozen=True):
    """A string literal; `value` has its escapes resolved."""

    value: str
    span: Span


class Truth(Tree, frozen=True):
    """`true` or `false`."""

    value: bool
    span: Span


class Name(Tree, frozen=True):
    """A bare name."""

    name: str
    span: Span


class Member(Tree, frozen=True):
    """`base.name`"""

    base: Expr
    name: str
    name_span: Span
    span: Span


class Index(Tree, frozen=True):
    """`base[key]`"""

    base: Expr
    key: Expr
    span: Span


class Named(Tree, frozen=True):
    """A named argument of a call."""

    name: str
    value: Expr
    span: Span


class Call(Tree, frozen=True):
    """`function(arguments, name=value)`"""

    function: str
    arguments: tuple[Expr, ...]
    named: tuple[Named, ...]
    name_span: Span
    span: Span
    distinct: bool = False
    """`count(distinct node)`, in a `limit`"""


class Aggregate(Tree, frozen=True):
    """`count(p in node.pods where …)`, `sum(n.free.cpu for n in cluster.nodes)`, `all(… for i in pod.images)`"""

    function: str
    variable: str
    value: Expr | None
    collection: Expr
    where: Expr | None
    name_span: Span
    span: Span
    distinct: bool = False
    """`count(distinct p.label.job for p in node.pods)`: each value counts once."""


class Unary(Tree, frozen=True):
    """`-x` or `not x`"""

    operator: str
    operand: Expr
    span: Span


class Binary(Tree, frozen=True):
    """Arithmetic, comparison, `in`, `not in`, `matches`, `??`."""

    operator: str
    left: Expr
    right: Expr
    operator_span: Span
    span: Span


class Logical(Tree, frozen=True):
    """A chain of `and`, or of `or`; at least two operands."""

    operator: str
    operands: tuple[Expr, ...]
    span: Span


class Conditional(Tree, frozen=True):
    """`if condition then then else otherwise`"""

    condition: Expr
    then: Expr
    otherwise: Expr
    span: Span


class IsMissing(Tree, frozen=True):
    """`x is missing`, `x is not missing`"""

    operand: Expr
    negated: bool
    span: Span


class LabelTest(Tree, frozen=True):
    """`label KEY`, `label KEY=VALUE`, `pod label KEY in (a, b)`: Kubernetes' selector syntax."""

    subject: str
    """node or pod"""
    key: str
    operator: str
    """exists, =, !=, in or notin"""
    values: tuple[str, ...]
    span: Span


class ListOf(Tree, frozen=True):
    """`[a, b]`"""

    items: tuple[Expr, ...]
    span: Span


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
