"""The syntax tree of statements: what was written, frozen, with spans. Nothing here has a meaning yet.

Spans take no part in comparison: two trees are equal if their texts mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.lang import expressions


@dataclass(frozen=True, slots=True)
class Language:
    """`language N`"""

    version: int
    span: Span = field(compare=False, repr=False)


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

    condition: expressions.Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Priority:
    """`priority N`"""

    value: expressions.Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Canary:
    """`canary of NAME for SHARE`, `… for pods where CONDITION`, `… for SHARE of pods where CONDITION`"""

    of: str
    share: expressions.Number | None
    condition: expressions.Expr | None
    of_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Ties:
    """`ties by WORD`"""

    word: str
    word_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class _Selection:
    keys: tuple[OrderKey, ...]
    span: Span = field(compare=False, repr=False)

    @property
    def word(self) -> expressions.Name | None:
        """Return its only key if that is a word, which can name a rule; None otherwise."""
        only = self.keys[0]
        if len(self.keys) > 1 or only.descending or not isinstance(only.value, expressions.Name):
            return None
        return only.value


@dataclass(frozen=True, slots=True)
class Devices(_Selection):
    """`devices by WORD`, `devices by EXPR [asc|desc], …`"""


@dataclass(frozen=True, slots=True)
class Domains(_Selection):
    """`domains by WORD`, `domains by EXPR [asc|desc], …`"""


@dataclass(frozen=True, slots=True)
class Amount:
    """`RESOURCE AMOUNT` in `queue … min …`."""

    resource: str
    amount: expressions.Number
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Queue:
    """`queue NAME [of PARENT] [for pods where COND | by KEY] [min …] [max …] [lend …] [weight N] [remember D]`"""

    name: str
    parent: str | None
    pods: expressions.Expr | None
    key: expressions.Expr | None
    minimum: tuple[Amount, ...] | None
    maximum: tuple[Amount, ...] | None
    lend: tuple[Amount, ...] | None
    weight: expressions.Expr | None
    remember: expressions.Expr | None
    name_span: Span = field(compare=False, repr=False)
    parent_span: Span = field(compare=False, repr=False)
    """Of the name where it has no parent."""
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Reclaim:
    """`reclaim [fair] [after DURATION] [if COND] [evict where COND]`"""

    fair: bool
    after: expressions.Expr | None
    condition: expressions.Expr | None
    evict: expressions.Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rebalance:
    """`rebalance [margin POINTS] [at most N] [rest DURATION] [if COND]`"""

    margin: expressions.Expr | None
    most: expressions.Expr | None
    rest: expressions.Expr | None
    condition: expressions.Expr | None
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
class PluginWeight:
    """`NAME weight N` in `use kubernetes scores with NAME weight N`."""

    plugin: PluginName
    weight: expressions.Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UseScores:
    """`use kubernetes scores [weight N] [without NAME, …] [with NAME weight N, …]`"""

    weight: expressions.Expr | None
    without: tuple[PluginName, ...]
    weights: tuple[PluginWeight, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UseFile:
    """`use "FILE"`"""

    path: str
    path_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Let:
    """`let NAME = EXPR`, `let NAME = NUMBER from LOW to HIGH`"""

    name: str
    value: expressions.Expr
    low: expressions.Expr | None
    high: expressions.Expr | None
    """The range in which `policyctl tune` may change the value; None for a value that it does not change."""
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Def:
    """`def NAME(a, b) = EXPR`"""

    name: str
    parameters: tuple[expressions.Name, ...]
    value: expressions.Expr
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """`by LABEL`, `by LABEL as TEXT`: how a series is found."""

    label: str
    value: expressions.Expr | None
    """What its label has to be; None: the label names the node."""
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Metric:
    """`metric NAME = promql("…") [by LABEL [as TEXT] | for cluster] [every D] [stale after D] [default EXPR]`"""

    name: str
    query: expressions.Expr
    every: expressions.Expr | None
    stale_after: expressions.Expr | None
    default: expressions.Expr | None
    by: SeriesKey | None
    for_cluster: bool
    name_span: Span = field(compare=False, repr=False)
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Require:
    """`require EXPR [as NAME] [if COND] [else "why"] [new nodes help|never help]`"""

    value: expressions.Expr
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    new_nodes: str | None
    """`help` or `never help`; None: it follows from what the condition depends on."""
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Filter:
    """`filter EXPR [as NAME] [if COND] [else "why"] [new nodes help|never help]`"""

    value: expressions.Expr
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    new_nodes: str | None
    """`help` or `never help`; None: it follows from what the condition depends on."""
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Score:
    """`score EXPR [as NAME] [if COND] [weight N]`"""

    value: expressions.Expr
    name: str | None
    condition: expressions.Expr | None
    weight: expressions.Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Hold:
    """`hold if EXPR [as NAME] [if COND] [else "why"]`"""

    value: expressions.Expr
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One key of `order by` or `devices by`."""

    value: expressions.Expr
    descending: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Order:
    """`order by EXPR [asc|desc], … [strict] [as NAME] [if COND]`"""

    keys: tuple[OrderKey, ...]
    strict: bool
    name: str | None
    condition: expressions.Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Topology:
    """`over zone`, `over topology.kubernetes.io/zone`"""

    key: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Counting:
    """`counting tainted, filtered nodes`"""

    words: tuple[str, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Target:
    """`VALUE SHARE` in `spread … target …`."""

    value: str
    share: expressions.Number
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Spread:
    """`spread by KEY [over TOPOLOGY] [target VALUE SHARE, …] [max skew N [min domains N] [counting WORDS nodes]] …`"""

    key: expressions.Expr
    topology: Topology | None
    targets: tuple[Target, ...] | None
    max_skew: expressions.Expr | None
    min_domains: expressions.Expr | None
    counting: Counting | None
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    weight: expressions.Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pack:
    """`pack by KEY [over TOPOLOGY] [as NAME] [if COND] [weight N]`"""

    key: expressions.Expr
    topology: Topology | None
    name: str | None
    condition: expressions.Expr | None
    weight: expressions.Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Limit:
    """`limit EXPR [by KEY] to EXPR [over TOPOLOGY] [of pods where COND] [as NAME] [if COND] [else "why"]` …"""

    measure: expressions.Expr
    key: expressions.Expr | None
    bound: expressions.Expr
    topology: Topology | None
    of_pods: expressions.Expr | None
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    new_nodes: str | None
    """`help` or `never help`; None: it follows from what the condition depends on."""
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Role:
    """`N of LABEL=VALUE` in `gang … with …`."""

    number: expressions.Expr
    label: expressions.LabelTest
    """Of the pod."""
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Gang:
    """`gang by KEY size EXPR [with N of LABEL=VALUE, …] [within DURATION] [within one TOPOLOGY or …] …`"""

    key: expressions.Expr
    size: expressions.Expr
    roles: tuple[Role, ...] | None
    within: expressions.Expr | None
    levels: tuple[Topology, ...] | None
    """Those in one domain of which all members are, in turn."""
    name: str | None
    condition: expressions.Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Preempt:
    """`preempt if EXPR [evict where EXPR]`, `preempt never`"""

    condition: expressions.Expr | None
    """None: never"""
    evict: expressions.Expr | None
    span: Span = field(compare=False, repr=False)


Header: TypeAlias = PolicyName | SchedulerName | ForPods | Priority | Canary
Definition: TypeAlias = Let | Def | Metric
Clause: TypeAlias = Require | Filter | Score | Hold | Order | Spread | Pack | Limit | Gang | Preempt
Choice: TypeAlias = Ties | Devices | Domains
Quotas: TypeAlias = Queue | Reclaim
Statement: TypeAlias = (
    Language | Header | Definition | Clause | Choice | Quotas | Rebalance | UseKubernetes | UseScores | UseFile
)


@dataclass(frozen=True, slots=True)
class Comment:
    """`# text`, with its place."""

    text: str
    span: Span = field(compare=False, repr=False)
    own_line: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class File:
    """One `.policy` file."""

    source: Source = field(compare=False, repr=False)
    statements: tuple[Statement, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False)
    unread_names: frozenset[str] = field(default=frozenset(), compare=False)
    """Names whose definitions could not be read: their uses are not reported again."""
