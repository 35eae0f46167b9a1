"""The syntax tree of a policy: what was written, frozen, with spans. Nothing here has a meaning yet.

Spans take no part in comparison: two trees are equal where the texts say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from engine.diagnostics import Source, Span

# --- expressions -----------------------------------------------------------------------------------------


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
    """`count(p in node.pods where …)`, `sum(p.request.cpu for p in node.pods where …)`"""

    function: str
    variable: str
    value: Expr | None
    collection: Expr
    where: Expr | None
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


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


# --- statements ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyName:
    """`policy NAME`"""

    name: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SchedulerName:
    """`scheduler NAME`"""

    name: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ForPods:
    """`for pods where CONDITION`"""

    condition: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Priority:
    """`priority N`"""

    value: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Ties:
    """`ties by WORD`"""

    word: str
    word_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Devices:
    """`devices by WORD`"""

    word: str
    word_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PluginName:
    """A name in `use kubernetes without NAME`."""

    name: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UseKubernetes:
    """`use kubernetes [without NAME, …]`"""

    without: tuple[PluginName, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UseScores:
    """`use kubernetes scores [weight N]`"""

    weight: Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UseFile:
    """`use "FILE"`"""

    path: str
    path_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Let:
    """`let NAME = EXPR`"""

    name: str
    value: Expr
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Def:
    """`def NAME(a, b) = EXPR`"""

    name: str
    parameters: tuple[Name, ...]
    value: Expr
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Metric:
    """`metric NAME = promql("…") [every D] [stale after D] [default EXPR] [by LABEL]`"""

    name: str
    query: Expr
    every: Expr | None
    stale_after: Expr | None
    default: Expr | None
    by: str | None
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Require:
    """`require EXPR [as NAME] [if COND] [else "why"]`"""

    value: Expr
    name: str | None
    condition: Expr | None
    reason: str | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Filter:
    """`filter EXPR [as NAME] [if COND] [else "why"]`"""

    value: Expr
    name: str | None
    condition: Expr | None
    reason: str | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Score:
    """`score EXPR [as NAME] [if COND] [weight N]`"""

    value: Expr
    name: str | None
    condition: Expr | None
    weight: Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Hold:
    """`hold if EXPR [as NAME] [else "why"]`"""

    condition: Expr
    name: str | None
    reason: str | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One key of `order by`."""

    value: Expr
    descending: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Order:
    """`order by EXPR [asc|desc], …`"""

    keys: tuple[OrderKey, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Topology:
    """`over zone`, `over topology.kubernetes.io/zone`"""

    key: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Spread:
    """`spread by KEY [over TOPOLOGY] [max skew N [min domains N]] [as NAME] [if COND] [else "why"] [weight N]`"""

    key: Expr
    topology: Topology | None
    max_skew: Expr | None
    min_domains: Expr | None
    name: str | None
    condition: Expr | None
    reason: str | None
    weight: Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pack:
    """`pack by KEY [over TOPOLOGY] [as NAME] [if COND] [weight N]`"""

    key: Expr
    topology: Topology | None
    name: str | None
    condition: Expr | None
    weight: Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Limit:
    """`limit EXPR by KEY to EXPR [as NAME] [if COND] [else "why"]`"""

    measure: Expr
    key: Expr
    bound: Expr
    name: str | None
    condition: Expr | None
    reason: str | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Gang:
    """`gang by KEY size EXPR [within DURATION] [as NAME] [if COND]`"""

    key: Expr
    size: Expr
    within: Expr | None
    name: str | None
    condition: Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Preempt:
    """`preempt if EXPR [evict where EXPR]`, `preempt never`"""

    condition: Expr | None
    """None: never"""
    evict: Expr | None
    span: Span = field(compare=False, repr=False)


Header: TypeAlias = PolicyName | SchedulerName | ForPods | Priority
Definition: TypeAlias = Let | Def | Metric
Clause: TypeAlias = Require | Filter | Score | Hold | Order | Spread | Pack | Limit | Gang | Preempt
Choice: TypeAlias = Ties | Devices
Statement: TypeAlias = Header | Definition | Clause | Choice | UseKubernetes | UseScores | UseFile


@dataclass(frozen=True, slots=True)
class Comment:
    """`# text`, with where it stands."""

    text: str
    span: Span = field(compare=False, repr=False)
    own_line: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class File:
    """One `.policy` file."""

    source: Source = field(compare=False, repr=False)
    statements: tuple[Statement, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False)
