"""Admission by quotas with borrowing: a pod stays within what its queue, and those above it, may use.

What is used stands in `cluster.quotas.quota_usage`. Here are the filter, its words, and who has precedence over whom.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.guarantees import Parts, lead, within
from kube_policy_scheduler.cluster.quotas.quota_usage import (
    CLUSTER_QUEUE,
    Amounts,
    AwaitedPods,
    Quota,
    QuotaRejection,
    QuotaTree,
    QuotaUsage,
)
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.plugin import SKIP, FilterPlugin, PreFilterResult, Reads
from kube_policy_scheduler.framework.queue.pods_over_quota import FREE_QUOTA, QuotaWait
from kube_policy_scheduler.framework.status import Code, Rejection, Status

QUOTA = "QueueQuota"
"""The name of the filter, and the rejector of pods that it rejects."""
RECLAIM = "QueueReclaim"
"""A rejector of pods that may have others evicted later: time helps them."""
_BINARY = (("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
GangsOf = Callable[[Frame], Sequence[GangRequirement]]


class ReclaimRule(msgspec.Struct, frozen=True, eq=False):
    """A `reclaim`."""

    text: str
    """As written, for messages."""
    fair: bool
    """Whether a queue that borrows may also evict, if its share is not above that of the other queue afterwards."""
    after_seconds: float
    """How long a pod waits before others are evicted for it."""
    rest_seconds: float = 0.0
    """Pods that started less than this ago are evicted only for what is guaranteed."""
    allows: Callable[[Frame], bool] | None = None
    """Whether the rule is for the pod; None: for any."""
    spares: Callable[[Frame, PodInfo], bool] | None = None
    """Whether a running pod must not be evicted for this one; None: any pod may be."""


class AboveMaxRule(msgspec.Struct, frozen=True, eq=False):
    """A `reclaim above max`: what uses more than the `max` of a queue is evicted, for no pod."""

    text: str
    """As written, for messages."""
    spares: Callable[[Frame, PodInfo], bool] | None = None
    """From a frame of the victim itself: whether it must not be evicted; None: any pod may be."""


class QuotaRules(msgspec.Struct, frozen=True, eq=False):
    """The queues of all policies together, and what is done for them; compared by identity."""

    tree: QuotaTree
    reclaims: tuple[ReclaimRule, ...] = ()
    """The first one that allows a pod applies to it."""
    above_max: tuple[AboveMaxRule, ...] = ()
    """A pod above the `max` of its queue may be evicted if one of them does not spare it."""
    gangs_of: GangsOf = lambda frame: ()
    """The gangs and PodGroups of a running pod."""
    are_in_no_gang: Callable[[PodInfo], bool] = lambda pod: False
    """Whether it is known that no pod of a pod's template is in any: then each is a unit."""

    def reclaim_of(self, frame: Frame) -> ReclaimRule | None:
        """Return the rule that applies to a pod."""
        return next((rule for rule in self.reclaims if rule.allows is None or rule.allows(frame)), None)


MORE_QUOTA = FREE_QUOTA | {
    ClusterEvent.NODE_ADD,
    ClusterEvent.NODE_ALLOCATABLE,
    ClusterEvent.NODE_TAINT,
    ClusterEvent.NODE_CONDITION,
}
"""Events after which a queue may use more: others use less, or nodes offer more."""


class QueueQuota(FilterPlugin):
    """Rejects a pod that its queue has no quota for. Assumed pods count, so Reserve has no part."""

    name = QUOTA
    reads = Reads.POD | Reads.CLOCK | Reads.ELSEWHERE
    events = MORE_QUOTA

    def __init__(self, tree: QuotaTree) -> None:
        self.tree = tree

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Reject the pod, or have nothing more to say."""
        usage = frame.cluster.track_usage(self.tree)
        queue = usage.quota_of(frame.template)
        if queue is None:
            return SKIP
        rejected = rejection(frame.cluster, usage, queue, frame.pod, usage.amounts(frame.pod), together=frame.together)
        if rejected is None:
            return SKIP
        helps = any_evictable(usage, queue, frame.pod.priority)
        code = Code.UNSCHEDULABLE if helps else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code, self.name, (quota_message(rejected),))

    def rejects_new_nodes(self, frame: Frame, together: int, awaiting: AwaitedPods | None) -> str | None:
        """Return why the pod would be rejected on any new node: its queue has no quota; see `new_nodes`."""
        usage = frame.cluster.track_usage(self.tree)
        queue = usage.quota_of(frame.template)
        if queue is None:
            return None
        counted = awaiting.by_queue(usage) if awaiting is not None else []
        with usage.counting(counted):
            found = usage.rejection(queue, usage.request_of_many(frame.pod, together))
        return quota_message(found) if found is not None and not found.is_of_nodes else None

    def leaving_key(self, pod: PodInfo) -> Hashable:
        """Return what a placed pod counts for, and where; pods that share a claim depend on each other."""
        tree = self.tree
        own = pod.uid if tree.classes and pod.template.spec.resource_claims else ""
        return tree.find(pod.template), tree.amounts(pod), pod.priority, own

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Let all nodes pass."""
        return np.ones(frame.size, np.bool_)

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return nothing: the pod was rejected as a whole, or not at all."""
        return []


def rejection(
    cluster: Cluster,
    usage: QuotaUsage,
    queue: Quota,
    pod: PodInfo,
    amounts: Amounts,
    *,
    gang: frozenset[str] = frozenset(),
    together: Parts = (),
) -> QuotaRejection | None:
    """Return why a request of a queue is not admitted; None: it is.

    What nominated pods need counts as used, for pods over which they have precedence.

    Args:
        cluster: with the pods.
        usage: of its queues.
        queue: of the request.
        pod: that asks, or a member of the gang that does.
        amounts: what is asked for.
        gang: the uids of all members, whose nominations do not count.
        together: what pods ask for at once, which have precedence together or not at all; empty: this one is alone.
    """
    if not cluster.nominated:
        return usage.rejection(queue, amounts)
    with usage.counting(nominated_before(cluster, usage, queue, pod, together or ((queue, amounts),), gang=gang)):
        return usage.rejection(queue, amounts)


def nominated_before(
    cluster: Cluster, usage: QuotaUsage, queue: Quota, pod: PodInfo, parts: Parts, *, gang: frozenset[str]
) -> list[tuple[Quota, Amounts]]:
    """Return what nominated pods need that have precedence over a request; arguments as for `rejection`."""
    with usage.without_promises((pod.uid, *gang)):
        return [
            (theirs, wanted)
            for uid, (theirs, wanted, other) in usage.nominated().items()
            if uid != pod.uid
            and uid not in cluster.pods
            and uid not in gang
            and not _takes(usage, (pod, queue, parts), (other, theirs, wanted))
        ]


def _takes(usage: QuotaUsage, one: tuple[PodInfo, Quota, Parts], nominated: tuple[PodInfo, Quota, Amounts]) -> bool:
    """Return whether a pod takes the room of a nominated one, instead of waiting or evicting elsewhere.

    A nominated pod that its queues may guarantee loses its room to no priority: it may become guaranteed, and a
    member of a gang that borrows as a whole looks like a pod that is guaranteed.
    """
    pod, queue, parts = one
    other, theirs, wanted = nominated
    mine, branch = usage.branch(queue, theirs)
    amounts = within(parts, mine[0]) if mine else ()
    if mine and _is_within(usage, mine[0], () if usage.is_promised(pod.uid) else amounts, of=amounts):
        return not any(_is_within(usage, each, (), of=wanted) for each in branch)
    if pod.priority <= other.priority or (queue is not theirs and usage.tree.shares_decide):
        return False
    by_place = dict(wanted)
    leads = ((each, lead(usage, each, wanted)) for each in theirs.path())
    return not any(found is not None and by_place[found] <= each.minimum[found] for each, found in leads)


def _is_within(usage: QuotaUsage, queue: Quota, more: Amounts, *, of: Amounts | None = None) -> bool:
    """Return whether what a queue will use stays within what is guaranteed to it, of the resource that leads a request.

    Args:
        usage: of the queue.
        queue: that guarantees it.
        more: what is requested beside what it will use.
        of: the request that counts already; None: `more`.
    """
    leads = lead(usage, queue, more if of is None else of)
    if leads is None:
        return False
    return queue.will(leads) + dict(more).get(leads, 0) <= queue.minimum[leads]


def parts_of(usage: QuotaUsage, pods: Iterable[PodInfo]) -> Parts:
    """Return what pods count for together, by queue; a claim that they share counts once in each."""
    by_queue: dict[Quota, list[PodInfo]] = {}
    for pod in pods:
        queue = usage.quota_of(pod.template)
        if queue is not None:
            by_queue.setdefault(queue, []).append(pod)
    return tuple((queue, usage.request(there)) for queue, there in by_queue.items())


def has_precedence(cluster: Cluster, other: PodInfo, pod: PodInfo, *, together: Parts = ()) -> bool | None:
    """Return whether a nominated pod keeps its node from another one, by their queues; None: their priorities say.

    together: what pods need at once, the other one among them; empty: it is alone. A gang takes room as what it is as a
    whole: each of its members alone may be within a guarantee that all of them exceed.
    """
    usage = cluster.quota_usage
    if usage is None:
        return None
    theirs, queue = usage.quota_of(other.template), usage.quota_of(pod.template)
    if theirs is None:
        return None
    promised = usage.promised_to(other.uid)
    wanted = promised[1] if promised is not None else usage.amounts(other)
    if queue is None:  # pods of no queue take what is borrowed alone
        is_guaranteed = any(_is_within(usage, each, (), of=wanted) for each in theirs.path())
        return other.priority >= pod.priority or is_guaranteed
    return not _takes(usage, (pod, queue, together or ((queue, usage.amounts(pod)),)), (other, theirs, wanted))


def comes_before(cluster: Cluster, other: PodInfo, pod: PodInfo, *, together: Parts = ()) -> bool:
    """Return whether a nominated pod keeps what it is to get from another one: as one with a node of its own would.

    together: as in `has_precedence`.
    """
    by_quota = has_precedence(cluster, other, pod, together=together)
    return other.priority >= pod.priority if by_quota is None else by_quota


def any_evictable(usage: QuotaUsage, queue: Quota, priority: int) -> bool:
    """Return whether a queue, or one that borrows, has a pod of lower priority."""
    if queue.members and min(queue.priorities) < priority:
        return True
    return usage.lowest_priority_of_borrowers() < priority


def quota_wait(cluster: Cluster, rules: QuotaRules, pod: PodInfo) -> QuotaWait | None:
    """Return what a pod waits for that only its queue rejected; None: something else may help it, too.

    Pods that may be evicted for it, and nominated pods that keep the quota, are something else.
    """
    usage = cluster.track_usage(rules.tree)
    queue = usage.quota_of(pod.template)
    if queue is None or any_evictable(usage, queue, pod.priority):
        return None
    amounts = usage.amounts(pod)
    found = usage.rejection(queue, amounts)
    if found is None:
        return None
    watched = found.at
    if rules.reclaims and watched != CLUSTER_QUEUE:
        *_, top = queue.path()
        watched = top.name
    return QuotaWait(usage, watched, queue.name, amounts, exact=not rules.reclaims)


def quota_message(rejected: QuotaRejection, *, gang: str = "") -> str:
    """Return why a request is not admitted, for people."""
    shown = [
        quantity(rejected.resource, each)
        for each in (rejected.used, rejected.requested, rejected.limit, rejected.short)
    ]
    used, requested, limit, short = shown
    where = (
        f"queue {rejected.queue}" if rejected.at == rejected.queue else f"queue {rejected.queue}, below {rejected.at},"
    )
    if rejected.is_of_nodes:
        where = f"queue {rejected.queue}"
        limits = f"the nodes have {limit}"
    else:
        limits = f"at most {limit}"
    kept = f", {quantity(rejected.resource, rejected.kept)} are kept for others" if rejected.kept else ""
    who = f"; borrowed by {_borrowers(rejected)}" if rejected.borrowers else ""
    asked = f"{gang} asks for {requested}" if gang else f"{requested} requested"
    return (
        f"{where} has no quota for {rejected.resource}: {used} used, {asked}, {limits}{kept}, so {short} too many{who}"
    )


def _borrowers(rejected: QuotaRejection) -> str:
    return ", ".join(f"{name} ({quantity(rejected.resource, amount)})" for name, amount in rejected.borrowers[:3])


def quantity(resource: str, amount: int) -> str:
    """Return an amount in column units as Kubernetes writes quantities, exactly."""
    if resource == "cpu":
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix, size in _BINARY:
            if amount and amount % size == 0:
                return f"{amount // size}{suffix}"
    return str(amount)
