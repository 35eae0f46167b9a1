"""The syntax tree of statements: what was written, frozen, with spans. Nothing here has a meaning yet.

Spans take no part in comparison: two trees are equal if their texts mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.lang import expressions
from kube_policy_scheduler.lang.tree import Tree


class Language(Tree, frozen=True):
    """`language N`"""

    version: int
    span: Span


class PolicyName(Tree, frozen=True):
    """`policy NAME`"""

    name: str
    span: Span


class SchedulerName(Tree, frozen=True):
    """`scheduler NAME`"""

    name: str
    span: Span


class ForPods(Tree, frozen=True):
    """`for pods where CONDITION`"""

    condition: expressions.Expr
    span: Span


class ForWorkloads(Tree, frozen=True):
    """`for workloads where CONDITION`"""

    condition: expressions.Expr
    span: Span


class Priority(Tree, frozen=True):
    """`priority N`"""

    value: expressions.Expr
    span: Span


class Canary(Tree, frozen=True):
    """`canary of NAME for SHARE`, `… for pods where CONDITION`, `… for SHARE of pods where CONDITION`"""

    of: str
    share: expressions.Number | None
    condition: expressions.Expr | None
    of_span: Span
    span: Span


class Ties(Tree, frozen=True):
    """`ties by WORD`"""

    word: str
    word_span: Span
    span: Span


class _Selection(Tree, frozen=True):
    keys: tuple[OrderKey, ...]
    span: Span

    @property
    def word(self) -> expressions.Name | None:
        """Return its only key if that is a word, which can name a rule; None otherwise."""
        only = self.keys[0]
        if len(self.keys) > 1 or only.descending or not isinstance(only.value, expressions.Name):
            return None
        return only.value


class Devices(_Selection, frozen=True):
    """`devices by WORD`, `devices by EXPR [asc|desc], …`"""


class Domains(_Selection, frozen=True):
    """`domains by WORD`, `domains by EXPR [asc|desc], …`"""


class Amount(Tree, frozen=True):
    """`RESOURCE AMOUNT` in `queue … min …`."""

    resource: str
    amount: expressions.Number
    span: Span


class Queue(Tree, frozen=True):
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
    name_span: Span
    parent_span: Span
    """Of the name where it has no parent."""
    span: Span


class Reclaim(Tree, frozen=True):
    """`reclaim [fair] [after DURATION] [rest DURATION] [if COND] [evict where COND]`, `reclaim above max …`"""

    fair: bool
    above_max: bool
    after: expressions.Expr | None
    rest: expressions.Expr | None
    condition: expressions.Expr | None
    evict: expressions.Expr | None
    span: Span


class Backfill(Tree, frozen=True):
    """`backfill [if COND] lasts EXPR [at most DURATION]`"""

    condition: expressions.Expr | None
    lasts: expressions.Expr
    most: expressions.Expr | None
    span: Span


class Rebalance(Tree, frozen=True):
    """`rebalance [margin POINTS] [at most N] [rest DURATION] [if COND]`"""

    margin: expressions.Expr | None
    most: expressions.Expr | None
    rest: expressions.Expr | None
    condition: expressions.Expr | None
    span: Span


class PluginName(Tree, frozen=True):
    """A name in `use kubernetes without NAME`."""

    name: str
    span: Span


class UseKubernetes(Tree, frozen=True):
    """`use kubernetes [without NAME, …]`"""

    without: tuple[PluginName, ...]
    span: Span


class PluginWeight(Tree, frozen=True):
    """`NAME weight N` in `use kubernetes scores with NAME weight N`."""

    plugin: PluginName
    weight: expressions.Expr
    span: Span


class UseScores(Tree, frozen=True):
    """`use kubernetes scores [weight N] [without NAME, …] [with NAME weight N, …]`"""

    weight: expressions.Expr | None
    without: tuple[PluginName, ...]
    weights: tuple[PluginWeight, ...]
    span: Span


class UseKarmada(Tree, frozen=True):
    """`use karmada [without NAME, …]`"""

    without: tuple[PluginName, ...]
    span: Span


class UseFile(Tree, frozen=True):
    """`use "FILE"`"""

    path: str
    path_span: Span
    span: Span


class Let(Tree, frozen=True):
    """`let NAME = EXPR`, `let NAME = NUMBER from LOW to HIGH`"""

    name: str
    value: expressions.Expr
    low: expressions.Expr | None
    high: expressions.Expr | None
    """The range in which `policyctl tune` may change the value; None for a value that it does not change."""
    name_span: Span
    span: Span


class Def(Tree, frozen=True):
    """`def NAME(a, b) = EXPR`"""

    name: str
    parameters: tuple[expressions.Name, ...]
    value: expressions.Expr
    name_span: Span
    span: Span


class SeriesKey(Tree, frozen=True):
    """`by LABEL`, `by LABEL as TEXT`, `by LABEL, LABEL as TEXT`: how a series is found."""

    label: str
    value: expressions.Expr | None
    """What its label has to be; None: the label names the node."""
    span: Span
    also: SeriesKey | None = None
    """The second label, after a comma."""


class Metric(Tree, frozen=True):
    """`metric NAME = promql("…") [by LABEL [as TEXT] | for cluster|fleet] [every D] [stale after D] [default EXPR]`"""

    name: str
    query: expressions.Expr
    every: expressions.Expr | None
    stale_after: expressions.Expr | None
    default: expressions.Expr | None
    by: SeriesKey | None
    for_cluster: bool
    for_fleet: bool
    name_span: Span
    span: Span


class Require(Tree, frozen=True):
    """`require EXPR [as NAME] [if COND] [else "why"] [new nodes help|never help]`"""

    value: expressions.Expr
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    new_nodes: str | None
    """`help` or `never help`; None: it follows from what the condition depends on."""
    span: Span


class Filter(Tree, frozen=True):
    """`filter EXPR [as NAME] [if COND] [else "why"] [new nodes help|never help] [also running]`"""

    value: expressions.Expr
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    new_nodes: str | None
    """`help` or `never help`; None: it follows from what the condition depends on."""
    also_running: bool
    """Whether it also rejects clusters where the workload runs."""
    span: Span


class Score(Tree, frozen=True):
    """`score EXPR [as NAME] [if COND] [weight N]`"""

    value: expressions.Expr
    name: str | None
    condition: expressions.Expr | None
    weight: expressions.Expr | None
    span: Span


class Hold(Tree, frozen=True):
    """`hold if EXPR [as NAME] [if COND] [else "why"]`"""

    value: expressions.Expr
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    span: Span


class OrderKey(Tree, frozen=True):
    """One key of `order by` or `devices by`."""

    value: expressions.Expr
    descending: bool
    span: Span


class Order(Tree, frozen=True):
    """`order by EXPR [asc|desc], … [strict] [as NAME] [if COND]`"""

    keys: tuple[OrderKey, ...]
    strict: bool
    name: str | None
    condition: expressions.Expr | None
    span: Span


class Topology(Tree, frozen=True):
    """`over zone`, `over topology.kubernetes.io/zone`"""

    key: str
    span: Span


class Counting(Tree, frozen=True):
    """`counting tainted, filtered nodes`"""

    words: tuple[str, ...]
    span: Span


class Target(Tree, frozen=True):
    """`VALUE SHARE` in `spread … target …`."""

    value: str
    share: expressions.Number
    span: Span


class Spread(Tree, frozen=True):
    """`spread by KEY [over TOPOLOGY] [target VALUE SHARE, … | target by EXPR]
    [max skew N [min domains N] [counting WORDS nodes]] …`"""

    key: expressions.Expr
    topology: Topology | None
    targets: tuple[Target, ...] | None
    share: expressions.Expr | None
    """The size of each node, to which its pods are proportional."""
    max_skew: expressions.Expr | None
    min_domains: expressions.Expr | None
    counting: Counting | None
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    weight: expressions.Expr | None
    span: Span


class Pack(Tree, frozen=True):
    """`pack by KEY [over TOPOLOGY] [as NAME] [if COND] [weight N]`"""

    key: expressions.Expr
    topology: Topology | None
    name: str | None
    condition: expressions.Expr | None
    weight: expressions.Expr | None
    span: Span


class Limit(Tree, frozen=True):
    """`limit EXPR [by KEY] to EXPR [over TOPOLOGY] [of pods where COND] [as NAME] [if COND] [else "why"]` …"""

    measure: expressions.Expr
    key: expressions.Expr | None
    bound: expressions.Expr
    topology: Topology | None
    of_pods: expressions.Expr | None
    of_workloads: expressions.Expr | None
    name: str | None
    condition: expressions.Expr | None
    reason: str | None
    new_nodes: str | None
    """`help` or `never help`; None: it follows from what the condition depends on."""
    span: Span


class Role(Tree, frozen=True):
    """`N of LABEL=VALUE` in `gang … with …`."""

    number: expressions.Expr
    label: expressions.LabelTest
    """Of the pod."""
    span: Span


class Gang(Tree, frozen=True):
    """`gang by KEY size EXPR [with N of …, …] [within DURATION] [within one TOPOLOGY or …] [evict whole] …`"""

    key: expressions.Expr
    size: expressions.Expr
    roles: tuple[Role, ...] | None
    within: expressions.Expr | None
    levels: tuple[Topology, ...] | None
    """Those in one domain of which all members are, in turn."""
    evict_whole: bool
    name: str | None
    condition: expressions.Expr | None
    span: Span


class Preempt(Tree, frozen=True):
    """`preempt if EXPR [evict where EXPR]`, `preempt never`"""

    condition: expressions.Expr | None
    """None: never"""
    evict: expressions.Expr | None
    span: Span


class Choose(Tree, frozen=True):
    """`choose N [to M] clusters [over TOPOLOGY] [at least K] [at most L] [each at most P] [if COND]`"""

    fewest: expressions.Expr
    largest: expressions.Expr | None
    """The most clusters; None: as `fewest`."""
    topology: Topology | None
    least: expressions.Expr | None
    """The fewest domains."""
    most: expressions.Expr | None
    """The most domains."""
    most_each: expressions.Expr | None
    """The most clusters of one domain."""
    condition: expressions.Expr | None
    span: Span


class Division(Tree, frozen=True):
    """One level of `divide`: `evenly`, `by EXPR`, `over region target eu 70%`, …"""

    word: str
    """evenly, best first, as placement or copies; empty: `value` or `targets` say it."""
    topology: Topology | None
    """None: among clusters."""
    value: expressions.Expr | None
    targets: tuple[Target, ...] | None
    span: Span


class Divide(Tree, frozen=True):
    """`divide LEVEL [then LEVEL …] [at least N each] [at most N each] [partly] [if COND]`"""

    levels: tuple[Division, ...]
    least: expressions.Expr | None
    most: expressions.Expr | None
    partly: bool
    condition: expressions.Expr | None
    span: Span


class Keep(Tree, frozen=True):
    """`keep running`, `keep nothing`"""

    running: bool
    span: Span


Header: TypeAlias = PolicyName | SchedulerName | ForPods | ForWorkloads | Priority | Canary
Definition: TypeAlias = Let | Def | Metric
Clause: TypeAlias = Require | Filter | Score | Hold | Order | Spread | Pack | Limit | Gang | Preempt
Choice: TypeAlias = Ties | Devices | Domains
Quotas: TypeAlias = Queue | Reclaim
Statement: TypeAlias = (
    Language
    | Header
    | Definition
    | Clause
    | Choice
    | Quotas
    | Backfill
    | Rebalance
    | UseKubernetes
    | UseScores
    | UseKarmada
    | UseFile
    | Choose
    | Divide
    | Keep
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
