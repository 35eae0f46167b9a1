"""A checked policy: every clause with its typed expressions, ready to be compiled and to be reasoned about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.environment import CLUSTER, OF_PODS, OF_WORKLOADS, Subject
from kube_policy_scheduler.lang.typed import Typed


class Definition(msgspec.Struct):
    """A `let`, `def` or `metric`, and its state."""

    tree: syntax.Definition
    value: Typed | None = None
    levels: int = 0
    used: bool = False


class ClauseKind(Enum):
    """The kinds of clauses, by keyword."""

    HOLD = "hold"
    ORDER = "order"
    REQUIRE = "require"
    FILTER = "filter"
    SCORE = "score"
    SPREAD = "spread"
    PACK = "pack"
    LIMIT = "limit"
    GANG = "gang"
    PREEMPT = "preempt"


class Test(msgspec.Struct, frozen=True, eq=False):
    """`require`, `filter`, `hold`, `score`: an expression, and its condition."""

    kind: ClauseKind
    tree: syntax.Require | syntax.Filter | syntax.Score | syntax.Hold
    name: str
    value: Typed
    condition: Typed | None
    weight: float = 1.0
    origin: object = msgspec.field(default_factory=object)
    """The same object as that of an equal test elsewhere in a text, whose names mean the same: as that compiled."""


COUNTED = ("all", "tainted", "filtered")
"""What may follow `counting`: nodes with taints or a cordon that keep the pod away, nodes that filters of the
policy refuse for what they are, and `all`, which are also those that the pod's own affinity excludes."""


class Grouping(msgspec.Struct, frozen=True, eq=False):
    """`spread` and `pack`."""

    kind: ClauseKind
    tree: syntax.Spread | syntax.Pack
    name: str
    key: Typed
    topology: str | None
    """Label key of the domains; None is the node."""
    targets: Mapping[str, float]
    """The target shares of the pods, 0 to 1, by domain; the other domains share the rest. Empty: all are equal."""
    share: Typed | None
    """The size of each node, to which its pods are proportional; None: `targets` say more."""
    max_skew: int | None
    min_domains: int | None
    counting: frozenset[str]
    """Which nodes, besides those that a pod could use, make their domains count: words of `COUNTED`."""
    condition: Typed | None
    weight: float


class Ordering(msgspec.Struct, frozen=True, eq=False):
    """`order by`."""

    kind: ClauseKind
    tree: syntax.Order
    name: str
    keys: tuple[tuple[Typed, bool], ...]
    """Each key, and whether it descends."""
    strict: bool
    """Whether no pod is tried before the first one has a node."""
    condition: Typed | None
    share: int | None = None
    """Which key is `queue.share`; its value is a constant 0 then."""


class QueueDeclaration(msgspec.Struct, frozen=True, eq=False):
    """`queue`: one queue, or one for each value of a key. All policies together declare one set of trees."""

    tree: syntax.Queue
    pods: Typed | None
    """Over the template of a pod: whether the queue takes it; None: all pods of its parent."""
    key: Typed | None
    """Over the template of a pod: there is one queue for each value."""
    minimum: Mapping[str, float]
    """The guaranteed amounts by resource: in cores, bytes, or a number."""
    maximum: Mapping[str, float]
    lend: Mapping[str, float]
    """How much of the guaranteed amount others may use; of resources that are not named here, all."""
    weight: float
    remember_seconds: float | None
    """The half-life of past usage in the fair order; None: only present usage counts."""

    @property
    def name(self) -> str:
        """Return its name, which is unique among all policies."""
        return self.tree.name


class Reclaim(msgspec.Struct, frozen=True, eq=False):
    """`reclaim`"""

    tree: syntax.Reclaim
    fair: bool
    """Whether a queue that borrows may also evict, if its share is not above that of the other queue afterwards."""
    after_seconds: float
    """How long a pod waits before others are evicted for it."""
    rest_seconds: float
    """Pods that started less than this ago are evicted only for what is guaranteed."""
    above_max: bool
    """Whether it evicts what a queue uses above its `max`, for no pod; then it has nothing else but `evict`."""
    condition: Typed | None
    evict: Typed | None
    """Over existing pods."""


class Backfill(msgspec.Struct, frozen=True, eq=False):
    """`backfill`"""

    tree: syntax.Backfill
    condition: Typed | None
    """Which pods room is reserved for; None: any."""
    lasts: Typed
    """How long a pod runs, in seconds, over the pod; missing: it never ends."""
    most_seconds: float
    """Nothing is reserved for a pod that has to wait longer."""


class Rebalance(msgspec.Struct, frozen=True, eq=False):
    """`rebalance`"""

    tree: syntax.Rebalance
    margin: float | None
    """Points by which another node must lead; None: only pods that their nodes would reject move."""
    most: int | None
    """Moves of one pass; None: no limit of its own."""
    rest_seconds: float
    """A workload stays while one of its pods is younger."""
    condition: Typed | None


class Choose(msgspec.Struct, frozen=True, eq=False):
    """`choose`"""

    tree: syntax.Choose
    fewest: Typed
    most: Typed
    topology: str | None
    """Label key of the domains; None: they do not matter."""
    least: Typed | None
    """In how many of them the clusters are at least; None: in one."""
    most_places: Typed | None
    """In how many of them they are at most; None: in any number."""
    most_each: Typed | None
    """How many clusters of one of them may be chosen; None: any number."""
    condition: Typed | None


class DivisionLevel(msgspec.Struct, frozen=True, eq=False):
    """One level of `divide`."""

    word: str
    """evenly, best first, as placement or copies; empty: `value` or `targets` say it."""
    topology: str | None
    """Label key of the domains; None: among clusters."""
    value: Typed | None
    """Of each cluster: its part is in proportion."""
    targets: Mapping[str, float]
    """Shares by domain, 0 to 1; the other domains share the rest evenly."""


class Divide(msgspec.Struct, frozen=True, eq=False):
    """`divide`"""

    tree: syntax.Divide
    levels: tuple[DivisionLevel, ...]
    least: Typed | None
    most: Typed | None
    condition: Typed | None


class OfWorkloads(msgspec.Struct, frozen=True, eq=False):
    """What only policies of workloads say."""

    chooses: tuple[Choose, ...] = ()
    """The first whose condition holds for a workload applies to it."""
    divides: tuple[Divide, ...] = ()
    """As `chooses`."""
    keeps_running: bool = True
    rebalances: tuple[Rebalance, ...] = ()
    """Their conditions select the clusters that replicas may move to."""


class Quota(msgspec.Struct, frozen=True, eq=False):
    """`limit`."""

    kind: ClauseKind
    tree: syntax.Limit
    name: str
    measure: Typed | None
    """Of each pod; None counts pods, or what `distinct` says."""
    distinct: tuple[str | None] | None
    """The label key of the domains of which those with pods are counted, where None is the node; None: pods count."""
    key: Typed | None
    """None: all pods count together."""
    bound: Typed
    of_pods: Typed | None
    """Over existing pods: which ones count, and have the limit; None: all of the key."""
    per_domain: bool
    """Whether it rejects nodes: it limits each domain, or it depends on the node whether the pod counts."""
    topology: str | None
    """Label key of the domains; None is the node, "*" the cluster."""
    condition: Typed | None

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the label keys of its domains."""
        keys = (self.topology, *(self.distinct or ()))
        return tuple(key for key in keys if key is not None and key != CLUSTER)


class WorkloadLimit(msgspec.Struct, frozen=True, eq=False):
    """`limit` of workloads."""

    kind: ClauseKind
    tree: syntax.Limit
    name: str
    measure: str
    """`REPLICAS`, `WORKLOADS`, or the Kubernetes name of the resource that replicas request."""
    key: Typed | None
    """None: all workloads count together."""
    bound: Typed
    of_workloads: Typed | None
    """Over a workload: whether it counts, and has the limit; None: all of the key."""
    topology: str | None
    """Label key of the domains; None is the cluster, "*" all clusters together."""
    condition: Typed | None


REPLICAS, WORKLOADS = "replicas", "workloads"
"""What a limit of workloads adds up, besides resources; "pods" is a resource."""


class Role(msgspec.Struct, frozen=True, eq=False):
    """A role of a gang: pods with some labels, and how many of them it needs."""

    text: str
    """The selector as written: `role=driver`."""
    number: Typed
    test: Typed
    """Of the pod's template."""


class Gang(msgspec.Struct, frozen=True, eq=False):
    """`gang`."""

    kind: ClauseKind
    tree: syntax.Gang
    name: str
    key: Typed
    size: Typed
    roles: tuple[Role, ...]
    """A pod has the first of them whose test it passes."""
    within_seconds: float
    levels: tuple[str | None, ...]
    """Keys of node labels in one domain of which all members are, in turn; None: on any nodes."""
    evict_whole: bool
    """Whether its members are evicted all together only; otherwise those beyond the size one by one."""
    condition: Typed | None


class Preemption(msgspec.Struct, frozen=True, eq=False):
    """`preempt`."""

    kind: ClauseKind
    tree: syntax.Preempt
    name: str
    condition: Typed | None
    """None: never."""
    evict: Typed | None
    """Over existing pods."""


Clause: TypeAlias = Test | Grouping | Ordering | Quota | WorkloadLimit | Gang | Preemption


class Canary(msgspec.Struct, frozen=True, eq=False):
    """The policy from which a canary takes pods, and which pods."""

    tree: syntax.Canary
    share: float
    """Of the workloads, above 0 to 1; 1 where only a condition was given."""
    condition: Typed | None
    """None: any pod of the stable policy."""

    @property
    def of(self) -> str:
        """Return the name of the stable policy."""
        return self.tree.of


class CheckedPolicy(msgspec.Struct, frozen=True, eq=False):
    """One policy without errors."""

    name: str
    source: Source
    scheduler: str | None
    """None: the daemon's."""
    governs: Typed | None
    """None: all pods of its scheduler."""
    priority: int
    clauses: tuple[Clause, ...]
    without: frozenset[str]
    """Default filters that are disabled."""
    unsafe_without: frozenset[str]
    """Those of `without` that the kubelet needs: without them, pods can be bound to nodes that cannot run them."""
    kubernetes_scores: Mapping[str, float] | None
    """Weights of the default scores by name, without disabled ones; None: no default scores."""
    ties: str | None
    """How one of several best nodes is chosen; None: the default."""
    devices: str | None
    """The rule that selects among the devices of a node; None: the default, or `device_keys`."""
    device_keys: tuple[tuple[Typed, bool], ...]
    """The values that select among the devices of a node, each with whether the largest comes first."""
    domains: str | None
    """The rule that selects among the domains that have room for a gang; None: the default, or `domain_keys`."""
    domain_keys: tuple[tuple[Typed, bool], ...]
    """The values that select among them, each with whether the largest comes first."""
    definitions: Mapping[str, Definition]
    statements: tuple[syntax.Statement, ...]
    """As written, those of used files included."""
    inputs: frozenset[Any]
    """What it reads from outside: metric queries."""
    steps: int
    """Number of expressions that were checked: the cost of the check."""
    queues: tuple[QueueDeclaration, ...] = ()
    reclaims: tuple[Reclaim, ...] = ()
    backfill: Backfill | None = None
    rebalances: tuple[Rebalance, ...] = ()
    """The first whose condition holds for a pod applies to it."""
    workloads: OfWorkloads | None = None
    """Set for a policy of workloads."""
    canary: Canary | None = None
    """Set for a canary. Scheduler, pods and priority are then the stable policy's (`checking.canaries`)."""
    owner: str = ""
    """Its author; "": the administrator. The name then begins with it, and `governs` with what the owner may govern
    (`checking.owners`)."""

    @property
    def own_name(self) -> str:
        """Return the name that it has among the policies of its owner."""
        return self.name.removeprefix(f"{self.owner}/") if self.owner else self.name

    @property
    def subject(self) -> Subject:
        """Return what it decides about, and among what."""
        return OF_PODS if self.workloads is None else OF_WORKLOADS

    @property
    def condition(self) -> Typed | None:
        """Return the `for` of its own file; None without one."""
        return self.canary.condition if self.canary is not None else self.governs


def values_of(clause: Clause) -> tuple[Typed, ...]:
    """Return the expressions of a clause."""
    match clause:
        case Test(value=value, condition=condition):
            given: tuple[Typed | None, ...] = (value, condition)
        case Grouping(key=key, share=share, condition=condition):
            given = (key, share, condition)
        case Ordering(keys=keys, condition=condition):
            given = (*(value for value, _ in keys), condition)
        case Quota(measure=measure, key=key, bound=bound, of_pods=of_pods, condition=condition):
            given = (measure, key, bound, of_pods, condition)
        case WorkloadLimit(key=key, bound=bound, of_workloads=of_workloads, condition=condition):
            given = (key, bound, of_workloads, condition)
        case Gang(key=key, size=size, roles=roles, condition=condition):
            given = (key, size, *(value for role in roles for value in (role.number, role.test)), condition)
        case Preemption(condition=condition, evict=evict):
            given = (condition, evict)
    return tuple(value for value in given if value is not None)


def workload_values_of(rules: OfWorkloads) -> tuple[Typed, ...]:
    """Return the expressions of what only policies of workloads say."""
    levels = (level for divide in rules.divides for level in divide.levels)
    given = (
        *(
            part
            for each in rules.chooses
            for part in (each.fewest, each.most, each.least, each.most_places, each.most_each, each.condition)
        ),
        *(level.value for level in levels),
        *(part for each in rules.divides for part in (each.least, each.most, each.condition)),
        *(each.condition for each in rules.rebalances),
    )
    return tuple(dict.fromkeys(value for value in given if value is not None))


def queue_values_of(policy: CheckedPolicy) -> tuple[Typed, ...]:
    """Return the expressions of the queues and of `reclaim`, which say something of all pods."""
    given = (
        *(value for queue in policy.queues for value in (queue.pods, queue.key)),
        *(value for reclaim in policy.reclaims for value in (reclaim.condition, reclaim.evict)),
    )
    return tuple(value for value in given if value is not None)


def expressions_of(policy: CheckedPolicy) -> Iterator[Typed]:
    """Yield all expressions of a policy: pods, clauses, queues, orders of devices and domains, backfill, and moves."""
    if policy.governs is not None:
        yield policy.governs
    for clause in policy.clauses:
        yield from values_of(clause)
    yield from queue_values_of(policy)
    if policy.workloads is not None:
        yield from workload_values_of(policy.workloads)
    for value, _ in (*policy.device_keys, *policy.domain_keys):
        yield value
    if policy.backfill is not None:
        yield policy.backfill.lasts
        if policy.backfill.condition is not None:
            yield policy.backfill.condition
    for rebalance in policy.rebalances:
        if rebalance.condition is not None:
            yield rebalance.condition
