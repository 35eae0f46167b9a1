"""A compiled policy: every clause one callable, with what is needed to name, cache, weigh and explain it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang.checked import Canary, CheckedPolicy, Clause, ClauseKind
from kube_policy_scheduler.lang.compiling.columns import TRUE, full
from kube_policy_scheduler.lang.compiling.expressions import Evaluate, OfText
from kube_policy_scheduler.lang.environment import Members, OnNodes, PodsRead
from kube_policy_scheduler.lang.signature import BoolColumn
from kube_policy_scheduler.lang.typed import Typed
from kube_policy_scheduler.lang.types import Depends, Info


class Part(msgspec.Struct, frozen=True, eq=False):
    """A subexpression of a clause, for explanations."""

    span: Span
    info: Info
    evaluate: Evaluate
    """Numbers: NaN is missing. Truth, where `info.maybe`: 0 false, 1 missing, 2 true."""


class _Common(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    kind: ClauseKind
    name: str
    """As given by `as`, else the formatted expression."""
    text: str
    """The formatted statement."""
    reason: str
    """The message when it rejects."""
    has_own_words: bool
    """Whether the author of the policy wrote that message, so that it need not name the clause."""
    span: Span
    depends: Depends
    inputs: tuple[Any, ...]
    """What it reads from outside of the cluster, such as metrics, or of members of a fleet: each once."""
    checked: Clause
    """What it was compiled from."""
    parts: Callable[[], tuple[Part, ...]]
    """Returns the subexpressions that differ from constants, outermost first; made when explanations are requested."""


class Operand(msgspec.Struct, frozen=True, eq=False):
    """One of the conditions that a filter joins with `and`."""

    text: str
    """Formatted."""
    tree: Typed
    evaluate: Evaluate

    def holds(self, frame: Any) -> BoolColumn:
        """Return `bool[rows]`: where it is true; false where a value is missing."""
        answer = self.evaluate(frame)
        held: BoolColumn = full(answer == TRUE if self.tree.info.maybe else answer, frame.size)
        return held


class Verdict(msgspec.Struct, frozen=True, eq=False):
    """A condition that has one answer for all nodes."""

    text: str
    """Formatted."""
    holds: Callable[[Any], bool]
    """From a frame: whether it is true; false where a value is missing."""


class CompiledTest(_Common, frozen=True, eq=False, kw_only=True):
    """`require`, `filter`, `hold`: an answer, and whether there is one."""

    evaluate: Evaluate
    """`bool[rows]` for a filter, else bool: whether it holds; false where it is missing."""
    missing: Evaluate | None
    """Where it has no answer; None: it always has."""
    of_row: Evaluate | None
    """The same as `evaluate` for a frame of one row, as a bool; None: nothing differs from node to node."""
    nodes: bool
    """Whether the answer differs from node to node (a filter about the pod alone gives one bool)."""
    operands: tuple[Operand, ...]
    """Of a filter."""
    reasons: tuple[str, ...]
    """The message for each operand that fails; empty if the filter has one reason for all."""
    everywhere: tuple[Verdict, ...]
    """What it asks that has one answer for all nodes, those that could be added included. Empty for `hold`, and with
    `new nodes help`."""
    new_nodes_fail: bool
    """Whether it says `new nodes never help`: a pod that it rejects on some node is rejected on every new one."""


class CompiledScore(_Common, frozen=True, eq=False, kw_only=True):
    """`score`"""

    evaluate: Evaluate
    """`float64[rows]`, without the weight; NaN is missing."""
    of_row: Evaluate | None
    """The same for a frame of one row, as a float; None: nothing differs from node to node."""
    weight: float
    maybe: bool
    low: float
    high: float


class CountedWorkloads(msgspec.Struct, frozen=True, eq=False):
    """The workloads that a clause counts; compared by identity, as counts are kept by it."""

    measure: str
    """As `checked.WorkloadLimit.measure`."""
    key: Evaluate | None
    """From a frame to the key, None if it is missing; it reads nothing but the workload. None: all count together."""
    counts: Evaluate | None
    """From a frame to whether the workload counts; it reads nothing but the workload. None: all do."""


class CompiledGrouping(_Common, frozen=True, eq=False, kw_only=True):
    """`spread`, `pack`: pods, or replicas of workloads, of one key over domains."""

    counted: CountedWorkloads | None
    """What counts in a policy of workloads; None: it is of pods, and `members` count."""
    members: Callable[[Any], Members]
    """From a frame to the set of pods with the pod's key."""
    key: Evaluate
    """From a frame or an `Item`: the key, None if the pod has none."""
    topology: str | None
    targets: Mapping[str, float]
    """As `checked.Grouping.targets`."""
    share: Evaluate | None
    """From a frame to the size of each node, `float64[rows]`; NaN is missing. None: the pods follow no size."""
    max_skew: int | None
    min_domains: int | None
    counting: frozenset[str]
    """As `checked.Grouping.counting`."""
    condition: Evaluate | None
    weight: float


class SortKey(NamedTuple):
    """A key of the queue over time. Those with the same slopes stay in their order."""

    bases: tuple[Any, ...]
    """Sorts as the keys define among keys with the same slopes."""
    slopes: tuple[float, ...]
    """Of each part, per second; 0 for texts."""
    until: float
    """It holds before this moment, Unix seconds."""


class CompiledOrder(_Common, frozen=True, eq=False, kw_only=True):
    """`order by`"""

    evaluate: Evaluate
    """From a frame to a tuple that sorts as the keys define, the first pod first."""
    over_time: Callable[[Any], SortKey] | None
    """The same for keys that change as time passes; None: they do not."""
    strict: bool
    condition: Evaluate | None
    share: int | None
    """Which key is the share of the pod's queue; `evaluate` has 0 there."""


class CompiledQuota(_Common, frozen=True, eq=False, kw_only=True):
    """`limit`"""

    members: Callable[[Any], Members]
    key: Evaluate | None
    selects: bool
    """Whether pods that are not among the members have no limit."""
    per_domain: bool
    """Whether it rejects nodes: it limits each domain, or it depends on the node whether the pod counts."""
    topology: str | None
    """Label key of the domains; None is the node, "*" the cluster."""
    distinct: tuple[str | None] | None
    """As `checked.Quota.distinct`."""
    on: Callable[[Any], OnNodes | None]
    """From a frame to the nodes whose pods count, and have the limit; None: all."""
    measure: Evaluate | None
    """From an `Item` to what the pod counts for; None: 1."""
    measure_members: Callable[[Any], Members] | None
    own: frozenset[tuple[str, str | None]]
    """What is read of the pods that count besides their templates, as `Members.own`."""
    bound: Evaluate
    new_nodes_help: bool
    """Whether nodes that are added may help pods that it rejects; a limit of each domain does not hold in new ones."""
    condition: Evaluate | None


class CompiledWorkloadLimit(_Common, frozen=True, eq=False, kw_only=True):
    """`limit` of workloads"""

    counted: CountedWorkloads
    topology: str | None
    """Label key of the domains; None is the cluster, "*" all clusters together."""
    bound: Evaluate
    """From a frame to a number."""
    condition: Evaluate | None


class CompiledRole(msgspec.Struct, frozen=True, eq=False):
    """A role of a gang."""

    text: str
    """`role=driver`"""
    number: Evaluate
    """How many of its pods the gang needs."""
    holds: Evaluate
    """From a frame or an `Item`: whether a pod has it."""


class CompiledGang(_Common, frozen=True, eq=False, kw_only=True):
    """`gang`"""

    key: Evaluate
    size: Evaluate
    roles: tuple[CompiledRole, ...]
    within_seconds: float
    levels: tuple[str | None, ...]
    """Keys of node labels in one domain of which all members are, in turn; None: on any nodes."""
    evict_whole: bool
    """As `checked.Gang.evict_whole`."""
    condition: Evaluate | None


class CompiledPreemption(_Common, frozen=True, eq=False, kw_only=True):
    """`preempt`"""

    condition: Evaluate | None
    """None: never."""
    evict: Callable[[Any, Any], bool] | None
    """From a frame and the PodInfo of a victim; None: every pod that Kubernetes lets evict."""


CompiledClause: TypeAlias = (
    CompiledTest
    | CompiledScore
    | CompiledGrouping
    | CompiledOrder
    | CompiledQuota
    | CompiledWorkloadLimit
    | CompiledGang
    | CompiledPreemption
)


class DeviceOrder(msgspec.Struct, frozen=True, eq=False):
    """`devices by`; compared by identity."""

    text: str
    """As written, after `by`."""
    rule: str | None = None
    """The rule that it names; None for values of the devices."""
    keys: Callable[[Any], Sequence[tuple[Any, ...]]] | None = None
    """From a frame whose rows are devices to what each sorts by; None where it names a rule."""
    values: tuple[tuple[str, Callable[[Any], Sequence[Any]]], ...] = ()
    """The values by their text, to explain a choice: NaN or None is missing."""


class DomainOrder(msgspec.Struct, frozen=True, eq=False):
    """`domains by`; compared by identity."""

    text: str
    """As written, after `by`."""
    rule: str | None = None
    """The rule that it names; None for values of the nodes."""
    keys: tuple[Evaluate, ...] = ()
    """From a frame to `float64[rows]`, NaN where missing; of the means over domains, the smallest comes first."""


class CompiledBackfill(msgspec.Struct, frozen=True, eq=False):
    """`backfill`"""

    text: str
    condition: Evaluate | None
    """Which pods room is reserved for; None: any."""
    lasts: Evaluate
    """From a frame to the seconds that its pod runs; NaN where it is not known."""
    most_seconds: float
    """Nothing is reserved for a pod that has to wait longer."""


class CompiledRebalance(msgspec.Struct, frozen=True, eq=False):
    """`rebalance`"""

    text: str
    margin: float | None
    """Points by which another node must lead; None: only pods that their nodes would reject move."""
    most: int | None
    """Moves of one pass; None: no limit of its own."""
    rest_seconds: float
    condition: Evaluate | None


class CompiledChoose(msgspec.Struct, frozen=True, eq=False):
    """`choose`"""

    text: str
    fewest: Evaluate
    """From a frame to a number of clusters."""
    most: Evaluate
    topology: str | None
    """Label key of the domains; None: they do not matter."""
    least: Evaluate | None
    """In how many of them the clusters are at least."""
    most_places: Evaluate | None
    """In how many of them they are at most."""
    most_each: Evaluate | None
    """How many clusters of one of them may be chosen."""
    condition: Evaluate | None


class CompiledDivisionLevel(msgspec.Struct, frozen=True, eq=False):
    """One level of `divide`."""

    word: str
    """As `checked.DivisionLevel.word`."""
    topology: str | None
    """Label key of the domains; None: among clusters."""
    value: Evaluate | None
    """From a frame to `float64[rows]`; NaN is missing."""
    targets: Mapping[str, float]


class CompiledDivide(msgspec.Struct, frozen=True, eq=False):
    """`divide`"""

    text: str
    levels: tuple[CompiledDivisionLevel, ...]
    least: Evaluate | None
    """From a frame to a number, or to `float64[rows]`: the replicas that each cluster gets at least."""
    most: Evaluate | None
    partly: bool
    condition: Evaluate | None


class CompiledMove(msgspec.Struct, frozen=True, eq=False):
    """`rebalance` of workloads"""

    text: str
    margin: float | None
    """Points by which another cluster must lead; None: any cluster that the policy would choose now."""
    most: int | None
    """Replicas of one pass; None: no limit."""
    rest_seconds: float
    may_gain: Callable[[Any], BoolColumn] | None
    """From a frame to `bool[rows]`: which clusters replicas may move to; None: all."""


class CompiledForWorkloads(msgspec.Struct, frozen=True, eq=False):
    """What only policies of workloads say."""

    chooses: tuple[CompiledChoose, ...]
    divides: tuple[CompiledDivide, ...]
    keeps_running: bool
    moves: tuple[CompiledMove, ...]


class CompiledPolicy(msgspec.Struct, frozen=True, eq=False):
    """One policy, ready to decide."""

    name: str
    scheduler: str | None
    governs: Evaluate | None
    """From a frame (only its pod is read) to bool; None: all pods of the scheduler."""
    priority: int
    canary: Canary | None
    """The policy from which it takes a share of the pods; `governs` has its condition."""
    clauses: tuple[CompiledClause, ...]
    without: frozenset[str]
    kubernetes_scores: Mapping[str, float] | None
    ties: str | None
    devices: DeviceOrder | None
    """What selects among the devices of a node; None: the default."""
    domains: DomainOrder | None
    """What selects among the domains that have room for a gang; None: the default."""
    backfill: CompiledBackfill | None
    """Room that is reserved for the first pod of a strict order, so that others need not wait behind it."""
    rebalances: tuple[CompiledRebalance, ...]
    """The first whose condition holds for a pod applies to it."""
    workloads: CompiledForWorkloads | None
    """None: it is about pods."""
    inputs: tuple[Any, ...]
    """What it reads from outside: metric queries, and values of members of a fleet, each once."""
    pods_read: tuple[PodsRead, ...]
    """What its clauses read of pods, whichever pod is decided; without those that were compiled before."""
    of_texts: tuple[OfText, ...]
    """What follows from one text of each node; without what clauses that were compiled before have."""
    checked: CheckedPolicy


class Victim:
    """A pod that might be evicted, for fields: in place of a frame."""

    __slots__ = ("_frame", "captured", "cluster", "now", "pod", "template")

    def __init__(self, pod: Any, captured: tuple[Any, ...], frame: Any) -> None:
        self.pod = pod
        self.template = pod.template
        self.captured = captured
        self.cluster = frame.cluster
        self.now = frame.now
        self._frame = frame

    def on_node(self) -> Any:
        """Return a frame of the row of the pod's node; None if that is not known."""
        row = self.cluster.nodes.rows.get(self.cluster.node_of(self.pod.uid) or self.pod.node_name)
        return self._frame.at(np.array([row], np.int64)) if row is not None else None
