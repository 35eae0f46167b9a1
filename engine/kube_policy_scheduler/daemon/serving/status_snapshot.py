"""What the status page shows, taken at one moment on the event loop: references and copies, in a few milliseconds.

Nothing here is put into words; that is done in a thread, from what was taken.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_overview import QuotaOverview, UnitCounts, overview
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts, Counts
from kube_policy_scheduler.daemon.observing.decision_entry import Entry
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.live_metrics import ExtenderState, RebalancingState, ShardState, SignalRow
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord
from kube_policy_scheduler.daemon.serving.device_uses import DeviceUses, device_uses
from kube_policy_scheduler.framework.groups.state import GangState
from kube_policy_scheduler.framework.preempt.standing import counted_units
from kube_policy_scheduler.framework.queue.scheduling_queue import COUNTED_AT_ONCE, Place, QueuedPod, SchedulingQueue
from kube_policy_scheduler.policy.detail import Plugin
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet

MOST_PENDING = 2_500
"""Pods that are looked at one by one: 5 ms. Of more, a sample."""
MOST_GANGS = 50
MOST_QUEUES = 100
"""Queues by a key; all that are declared are shown."""
RECENT_DECISIONS = 25
RECENT_RELOADS = 10
RESOURCES = ("cpu", "memory", "pods")


class NodeUse(msgspec.Struct, frozen=True):
    """One resource on all nodes."""

    resource: str
    requested: IntArray
    allocatable: IntArray


class Behind(msgspec.Struct, frozen=True):
    """The first pod of a strict order, and why it has no node."""

    key: str
    message: str


class PendingPod(msgspec.Struct, frozen=True):
    """One pod that waits."""

    key: str
    place: Place
    queued: float
    gated_because: str
    rejectors: frozenset[str]
    last: Entry | None
    behind: Behind | None = None
    """The first pod of its strict order, for which it waits."""
    waits_last: bool = False
    """Whether it waits behind all others, because its decisions took too long."""
    stands_for: float = 1.0
    """Pending pods of its namespace that it represents."""


class PluginCounts(msgspec.Struct, frozen=True):
    """One plugin of one policy and what it said."""

    policy: Policy
    plugin: Plugin
    counts: Counts


class Replica(msgspec.Struct, frozen=True):
    """What the process knows about itself."""

    version: str
    identity: str
    started: float
    """Unix seconds."""
    scheduler_names: Sequence[str]
    leading: bool
    leader: str
    """Identity in the Lease; "" where there is no election, or nothing is known yet."""
    elects: bool
    """Whether there may be other replicas."""
    reachable: bool
    server: str
    shard: ShardState | None = None
    """Its part of the work; None where one replica does it all."""
    problems: Sequence[str] = ()
    """Checks of readiness that fail."""
    mode: str = "scheduler"
    kernels: str = ""
    """Whether the compiled kernels are in use, or why not."""
    rebalancing: RebalancingState | None = None
    """None where no policy has a `rebalance`."""
    extenders: Sequence[ExtenderState] = ()
    wait_for_extenders: int = 0
    """Pods that extenders are still to be asked about."""
    kubernetes: str = ""
    """By the rules of which Kubernetes pods are decided, and who says so."""


class Snapshot(msgspec.Struct, frozen=True):
    """Everything that the page is made of."""

    at: float
    replica: Replica
    node_names: Sequence[str]
    uses: Sequence[NodeUse]
    unusable: BoolArray
    pods: int
    assumed: int
    places: Mapping[Place, int]
    """How many pods wait, by place."""
    pending: Sequence[PendingPod]
    """Those that were looked at."""
    gangs: Sequence[GangState]
    policies: PolicySet | None
    plugins: Sequence[PluginCounts]
    looked_at: int
    """Decisions that the counts come from."""
    hash: str
    generation: int
    reloads: Sequence[ReloadRecord]
    newest: Mapping[str, ReloadRecord]
    """The last of each owner; "": the administrator's."""
    decisions: Sequence[Entry]
    metrics: Sequence[SignalRow]
    decided: int
    """Decisions since the start."""
    shadow: Mapping[str, Any] | None = None
    devices: DeviceUses | None = None
    """None if drivers publish none."""
    queues: QuotaOverview = QuotaOverview()
    """Quotas with borrowing, and how many pods wait in each."""

    @property
    def is_sample(self) -> bool:
        """Whether some of the pods that wait were not looked at."""
        return any(pod.stands_for != 1 for pod in self.pending)


class PolicyStatus(Observer):
    """Keeps the last reloads, and which policies are in use."""

    def __init__(self) -> None:
        self.reloads: deque[ReloadRecord] = deque(maxlen=RECENT_RELOADS)
        self.newest: dict[str, ReloadRecord] = {}
        """By owner."""
        self.policies: PolicySet | None = None
        self.hash = ""
        self.generation = 0

    def on_reloaded(self, record: ReloadRecord) -> None:
        """Keep it."""
        self.reloads.appendleft(record)
        self.newest[record.owner] = record
        if not record.owner:
            self.generation = record.generation

    def use_policies(self, policies: PolicySet, *, hash: str) -> None:  # noqa: A002 - the record's word
        """Note the policies in use."""
        self.policies, self.hash = policies, hash


class SnapshotSources(msgspec.Struct, frozen=True):
    """Who is asked."""

    cluster: Cluster
    queue: SchedulingQueue
    gangs: Callable[[QueuedPod], Sequence[GangState]]
    """Returns the state of each gang of a pod."""
    assumed: Callable[[], int]
    log: DecisionLog
    counts: ClauseCounts
    policy_status: PolicyStatus
    metrics: Callable[[], Sequence[SignalRow]]
    replica: Callable[[], Replica]
    clock: Callable[[], float]
    shadow: Callable[[], Mapping[str, Any]] | None = None
    """What was compared so far, where another scheduler places the pods."""


def _behind(first: QueuedPod | None) -> Behind | None:
    return Behind(first.pod.key, first.rejected_for) if first is not None else None


class Look(msgspec.Struct, frozen=True):
    """What takes longer than a moment to find, and may be a moment old."""

    pending: Sequence[tuple[str, float]]
    """The uids of the pods to be shown, each with the number of pods that it represents. Namespaces take turns."""
    queues: QuotaOverview


def look(sources: SnapshotSources) -> Generator[None, None, Look]:
    """Look for what is to be shown, in steps; between two of them anything may happen."""
    pods = [queued.pod for queued in sources.queue]
    sampled = yield from _sampled(pods)
    usage = sources.cluster.quota_usage
    if usage is None:
        return Look(sampled, QuotaOverview())
    policies, units = sources.policy_status.policies, dict[str, UnitCounts]()
    if policies is not None and policies.queues is not None and policies.queues.tree is usage.tree:
        units = dict((yield from counted_units(sources.cluster, policies.queues, now=sources.clock())))
    return Look(sampled, (yield from overview(usage, pods, units=units, most=MOST_QUEUES)))


def _sampled(pods: Sequence[PodInfo]) -> Generator[None, None, list[tuple[str, float]]]:
    """Return a sample in which no namespace hides the pods of another: as many of each, if it has them."""
    by_namespace: dict[str, list[str]] = defaultdict(list)
    for number, pod in enumerate(pods):
        by_namespace[pod.namespace].append(pod.uid)
        if not number % COUNTED_AT_ONCE:
            yield
    left, parts = MOST_PENDING, []
    few_first = sorted(by_namespace.values(), key=len)[:MOST_PENDING]
    for number, uids in enumerate(few_first):
        taken = min(len(uids), left // (len(few_first) - number))
        left -= taken
        parts.append([(uids[at * len(uids) // taken], len(uids) / taken) for at in range(taken)])
    turns = zip_longest(*parts)
    return [found for turn in turns for found in turn if found is not None]


def take_snapshot(sources: SnapshotSources, found: Look | None = None) -> Snapshot:
    """Return the state of now. Call on the event loop.

    found: the result of `look`; None: look at once.
    """
    if found is None:
        found = now(look(sources))
    nodes = sources.cluster.nodes
    log, policy_status = sources.log, sources.policy_status
    ready = nodes.condition("Ready")
    entries = log.entries()
    known = ((sources.queue.get(uid), stands_for) for uid, stands_for in found.pending)
    looked_at = [(queued, stands_for) for queued, stands_for in known if queued is not None]
    blocked = sources.queue.blocked()
    return Snapshot(
        at=sources.clock(),
        replica=sources.replica(),
        node_names=nodes.names,
        uses=tuple(
            NodeUse(
                resource,
                (nodes.pod_count if resource == "pods" else nodes.requested(resource)).copy(),
                nodes.allocatable(resource).copy(),
            )
            for resource in RESOURCES
        ),
        unusable=nodes.unschedulable | ready.equal("False") | ready.equal("Unknown"),
        pods=len(sources.cluster.pods),
        assumed=sources.assumed(),
        pending=tuple(
            PendingPod(
                queued.pod.key,
                queued.place,
                queued.queued + sources.cluster.ahead,
                queued.gated_because,
                queued.rejectors,
                log.latest(queued.pod.uid),
                _behind(blocked.get(queued.pod.uid)),
                queued.waits_last,
                stands_for,
            )
            for queued, stands_for in looked_at
        ),
        places=sources.queue.counts(),
        gangs=_gangs((queued for queued, _ in looked_at), sources.gangs),
        policies=policy_status.policies,
        plugins=tuple(_plugins(policy_status.policies, sources.counts)),
        looked_at=sources.counts.decisions,
        hash=policy_status.hash,
        generation=policy_status.generation,
        reloads=tuple(policy_status.reloads),
        newest=dict(policy_status.newest),
        decisions=tuple(msgspec.structs.replace(entry) for entry in entries[: -RECENT_DECISIONS - 1 : -1]),
        metrics=tuple(sources.metrics()),
        decided=log.decided,
        shadow=sources.shadow() if sources.shadow is not None else None,
        devices=device_uses(sources.cluster),
        queues=found.queues,
    )


def _gangs(pods: Iterable[QueuedPod], gangs_of: Callable[[QueuedPod], Sequence[GangState]]) -> list[GangState]:
    """Return the gangs of some pods, in the order of the pods."""
    found: list[GangState] = []
    seen: set[Hashable] = set()
    for queued in pods:
        if len(found) >= MOST_GANGS:
            break
        if not seen.issuperset(queued.groups):
            seen.update(queued.groups)
            found += (gang for gang in gangs_of(queued) if gang not in found)
    return found


def _plugins(policies: PolicySet | None, counts: ClauseCounts) -> Sequence[PluginCounts]:
    if policies is None:
        return ()
    found = []
    for policy in policies.policies:
        plugins: list[Plugin] = [*policy.profile.filters, *(weighted.plugin for weighted in policy.profile.scores)]
        found += [PluginCounts(policy, plugin, counts.of(plugin)) for plugin in plugins]
    return found


def shares(use: NodeUse) -> FloatArray:
    """Return `float64[nodes]`: requested of allocatable; NaN where a node offers none."""
    offered = use.allocatable.astype(np.float64)
    result: FloatArray = np.divide(
        use.requested, offered, out=np.full(len(offered), np.nan), where=offered > 0, casting="unsafe"
    )
    return result
