"""What is exported as it is at the moment of a scrape: lengths of queues, ages of readings. Asks; keeps nothing.

To add such a metric, add a line to `SCRAPE_METRICS`; if it needs a new fact, also a field to `LiveState`, which
`Daemon` fills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kube_policy_scheduler.adapters.kube.outbox import Backlog
from kube_policy_scheduler.adapters.process.loops import Loop
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.quotas.quota_overview import QuotaOverview, UnitCounts, overview
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaState
from kube_policy_scheduler.daemon.observing.queued_entities import QueuedEntities
from kube_policy_scheduler.framework.preempt.standing import counted_units
from kube_policy_scheduler.framework.queue.scheduling_queue import COUNTED_AT_ONCE, Place, SchedulingQueue, Standing
from kube_policy_scheduler.framework.quota import QuotaRules
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.tooling.rebalancing.moves import Move
from kube_policy_scheduler.wording import amount, one_line

_NOT_PLACED = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.IN_FLIGHT)
_REJECTED = (Place.UNSCHEDULABLE.value, Place.BACKOFF.value)
MAX_LABEL = 120
"""Characters of a query, a clause or a queue in a label: what people write can be of any length."""
_DIGITS = 8
"""Of the digest that tells apart what looks alike after it was cut."""


MAX_QUEUES = 1000
"""Queues by a key in metrics: there can be as many as the texts that people write into labels."""
MAX_REJECTORS = 1000
"""Plugins, by schedulerName, that pods are waiting for: an owner can name a clause otherwise with each change."""
OTHERS = "(others)"
KUBE_SCHEDULER = "kube-scheduler"
"""The `name` of its informers."""
_RESOURCE_VERSION_DIGITS = 15
"""Of a resource version: a float64 has no more."""


class SignalRow(msgspec.Struct, frozen=True):
    """One query of the live policies at the time of a scrape."""

    query: str
    """A metric's name where the policy gives one, else its PromQL."""
    age_seconds: float | None
    """None where there is no reading yet."""
    degraded: bool
    """It fails, or no value of it can be used."""
    series: int
    missing_nodes: int | None
    """Nodes without a value; None where it is no fault to have none."""
    fetch_seconds: float


class WatchRow(msgspec.Struct, frozen=True):
    """One watched resource at the time of a scrape."""

    resource: str
    phase: str
    """What is being done about it, such as `watching`, `listing`."""
    late_seconds: float
    """For how long what is known of it has not been known to be all there is; 0.0 while it is."""
    silent_seconds: float | None
    """Since anything was last heard of it; None where nothing ever was."""
    restarts: int
    """How often its watch restarted."""
    group: str = ""
    """Of the API; "" is the core group."""
    version: str = ""
    """Of the group."""
    name: str = ""
    """Of the resource, in the plural."""
    position: int = 0
    """The resource version up to which its objects are known; 0 before the first list."""


class ExtenderState(msgspec.Struct, frozen=True):
    """An HTTP extender that the scheduler asks."""

    name: str
    """Its URL."""
    ignorable: bool
    requests: int
    errors: int
    seconds: float
    """Of all requests."""
    problem: str
    """What went wrong with the last request; "" if nothing did."""


class ShardState(msgspec.Struct, frozen=True):
    """What a replica has of the work that several share."""

    identity: str
    members: tuple[str, ...]
    """Who shares it as far as this replica knows, itself included; empty before it has looked."""
    takes_part: bool
    """Whether it may decide; False while it waits for a hand-over."""
    waits_for: tuple[str, ...]
    """Whose hand-over it waits for."""
    nodes: int
    """Nodes that are its own."""
    pods: int
    """Pending pods that are its own."""
    passed_on: int
    """Pods passed on to the owners of other nodes, so far."""
    given_back: int
    """Pods given back to those who passed them on: by then the node did not take them."""
    failed: int
    """Pods that could not be passed on or given back: they changed meanwhile, or the API server refused."""


def described(shard: ShardState, *, nodes: int) -> list[tuple[str, str]]:
    """Return a part in words, by what they are about; nodes: how many there are in all."""
    others = [member for member in shard.members if member != shard.identity]
    found = [("shares the work with", ", ".join(others) or "nobody" if shard.members else "not known yet")]
    if shard.takes_part:
        found.append(("its own nodes", f"{amount(shard.nodes)} of {amount(nodes)}"))
    else:
        found.append(("waits for a hand-over by", ", ".join(shard.waits_for) or "others not known yet"))
    handed = (
        f"{amount(shard.passed_on)} passed on, {amount(shard.given_back)} given back, {amount(shard.failed)} failed"
    )
    return [*found, ("pods that changed hands", handed)]


class LeaseState(msgspec.Struct, frozen=True):
    """What a replica knows of the lease that one of several holds."""

    name: str
    """Of the lease."""
    leads: bool
    """Whether this replica holds it, and may act."""
    holder: str = ""
    """Identity in the lease, as last seen; empty if it has no holder, or was not seen yet."""
    trouble: str = ""
    """Why the lease cannot be read or written; empty where it can."""


class RebalancingState(msgspec.Struct, frozen=True):
    """Moves of pods: what the metrics and the status page show."""

    dry_run: bool
    stopped: str
    """Why nothing is moved any more; "" while moves land."""
    passes: int
    checked: int
    """Pods that the last pass looked at."""
    planned: tuple[Move, ...]
    """Moves of the last pass."""
    reserved: int
    """Replacements for which room is reserved."""
    outcomes: Mapping[str, int]


class PastUsageState(msgspec.Struct, frozen=True):
    """How it goes with the past usage of queues that outlives a replica: what the metrics and the probe show."""

    stored_at: float | None
    """Unix seconds of what this replica stored last; None: it has stored nothing."""
    left_out: int
    """Queues for which there was no room."""
    problem: str
    """Why it cannot be read or stored; "" where it can."""


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """What the metrics of a scrape are made of, as it is at that moment."""

    pending_pods: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By queue: active, backoff, unschedulable, gated, in flight and permit."""
    queued_entities: Mapping[tuple[str, str], int] = msgspec.field(default_factory=dict)
    """By queue and type: pods in no PodGroup, and groups."""
    cache_size: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By type: nodes, pods, assumed_pods."""
    devices: Mapping[str, int] = msgspec.field(default_factory=dict)
    """That pods can claim, by state: published, allocated; empty if drivers publish none."""
    unschedulable_pods: Mapping[tuple[str, str], int] = msgspec.field(default_factory=dict)
    """By (plugin, profile) that rejected them."""
    gangs_started: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Gangs that started in a domain, by topology."""
    gang_domains_left: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Domains that a gang left again, by topology."""
    placements: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By schedulerName: domains of PodGroups that are placed as by kube-scheduler, once for each attempt."""
    placement_evaluations: Mapping[tuple[str, str], int] = msgspec.field(default_factory=dict)
    """By result and schedulerName: those of them in which a group was tried."""
    gangs_without_domain: Mapping[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """By topology: pending gangs for which no domain has room, and the members for which their best one lacks it."""
    gangs_short: int = 0
    """Gangs that run with fewer pods than they need."""
    returning_evictors: int = 0
    """How often workloads evicted pods of other queues again after they had been evicted themselves."""
    above_max_evicted: int = 0
    """Pods that were evicted because their queue used more than its `max`."""
    gang_rest_evicted: int = 0
    """Pods of such gangs that were evicted."""
    new_nodes: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Unschedulable pods by whether new nodes would help them: help, do_not_help."""
    watches: Sequence[WatchRow] = ()
    oldest_pods: Mapping[str, float] = msgspec.field(default_factory=dict)
    """By state, in_flight, assumed or unschedulable: seconds for which the oldest pod has been in it."""
    longest_turn_seconds: float = 0.0
    """CPU time of the longest turn of the event loop that was too long, of the last ten minutes."""
    waiting_last: int = 0
    """Pods that wait behind all others."""
    backlogs: Mapping[str, Backlog] = msgspec.field(default_factory=dict)
    """What is still to be written to the API server in the background, by what it is."""
    loops: Sequence[Loop] = ()
    kernels: bool = False
    """Whether compiled kernels are in use."""
    kept_bytes: int = 0
    """Of results that are kept from one pod to the next."""
    max_kept_bytes: int = 0
    """The limit of these."""
    counter_bytes: int = 0
    """Of the counts and sums of pods on nodes."""
    max_counter_bytes: int = 0
    """The limit of these."""
    rebalancing: RebalancingState | None = None
    """None where no policy has a `rebalance`."""
    device_annotation_protected: bool | None = None
    """Whether nobody but the scheduler can write which devices a pod has; None where nobody has looked."""
    extension_failures: Mapping[tuple[str, str], int] = msgspec.field(default_factory=dict)
    """By function of an extension and reason, failed or unavailable: calls that gave no value."""
    decision_records: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Records for the files of the decision log since the start: written, dropped; empty without files."""
    signals: Sequence[SignalRow] = ()
    queues: Sequence[QuotaState] = ()
    """Quotas with borrowing: all that are declared, and at most `MAX_QUEUES` by a key."""
    queue_pending: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By queue: pods that wait, those of the queues below included."""
    past_usage: PastUsageState | None = None
    """None where no queue has a memory, or the mode places no pods."""
    queue_units: Mapping[str, UnitCounts] = msgspec.field(default_factory=dict)
    """By queue: pods and gangs that are guaranteed and borrowed there, those of the queues below included."""
    queue_refused: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By queue: those of the pods that wait that no node took at their last attempt."""
    queue_reclaimed: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By queue: pods of it that were evicted for other queues since the start."""
    queue_evicted: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    """By rule and queue: pods of it that were evicted since the start."""
    lease: LeaseState | None = None
    take_over_seconds: float | None = None
    """From becoming leader to the first decision; None while this replica does not lead."""
    undecided_seconds: float = 0.0
    """For how long nothing was decided although it leads and pods are active."""
    """None without leader election."""
    shard: ShardState | None = None
    """None where one replica does it all."""
    kubernetes: KubernetesRules = DEFAULT_RULES
    """By which pods are decided."""


class PendingCensus:
    """How many pods wait where, and why: counted in steps before a scrape, as there may be 100,000 of them."""

    def __init__(
        self,
        queue: SchedulingQueue,
        cluster: Cluster,
        *,
        rules: Callable[[], QuotaRules | None] = lambda: None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Count nothing yet.

        Args:
            queue: of the pods that wait.
            cluster: with the queues of quotas.
            rules: returns these queues; None: there are none, or their units are not counted.
            clock: the time, Unix seconds.
        """
        self._queue, self._cluster, self._rules, self._clock = queue, cluster, rules, clock
        self._standings: Mapping[Standing, int] = {}
        self.oldest_unschedulable: float | None = None
        """Unix seconds at which the oldest pod was first seen that no node took at its last attempt; None: no pod."""
        self.queues = QuotaOverview()
        """Quotas with borrowing, and how many pods wait in each."""
        self.entities: Mapping[tuple[str, str], int] = QueuedEntities(cluster).total()
        """How many pods in no PodGroup, and groups, wait: by queue and type."""

    def steps(self) -> Generator[None, None, None]:
        """Count for the scrape that follows; between two steps anything may happen."""
        self._standings = yield from self._queue.standings()
        pods, refused, oldest = [], set(), None
        entities = QueuedEntities(self._cluster)
        for number, queued in enumerate(list(self._queue)):
            pods.append(queued.pod)
            entities.add(queued)
            # whatever its place: an event moves it to its next attempt, and nothing has changed for it by then
            if queued.rejectors and queued.place in _NOT_PLACED:
                refused.add(queued.pod.uid)
                oldest = queued.queued if oldest is None else min(oldest, queued.queued)
            if not number % COUNTED_AT_ONCE:
                yield
        self.oldest_unschedulable, self.entities = oldest, entities.total()
        usage = self._cluster.quota_usage
        if usage is None:
            self.queues = QuotaOverview()
        else:
            rules, units = self._rules(), dict[str, UnitCounts]()
            if rules is not None and rules.tree is usage.tree:
                units = dict((yield from counted_units(self._cluster, rules, now=self._clock())))
            self.queues = yield from overview(usage, pods, rejected=refused, units=units, most=MAX_QUEUES)

    def places(self) -> dict[str, int]:
        """Return how many pods wait, by place."""
        places = {place.value: 0 for place in Place}
        for (place, _, _), number in self._standings.items():
            places[place] += number
        return places

    def rejections(self) -> Mapping[tuple[str, str], int]:
        """Return how many pods wait that a plugin rejected, by plugin and schedulerName; each counts for all of its."""
        rejections: Counter[tuple[str, str]] = Counter()
        for (place, plugins, scheduler_name), number in self._standings.items():
            if place in _REJECTED:
                for plugin in plugins:
                    rejections[label_value(plugin), scheduler_name] += number
        if len(rejections) <= MAX_REJECTORS:
            return rejections
        found = Counter(dict(rejections.most_common(MAX_REJECTORS)))
        for (plugin, scheduler_name), number in rejections.items():
            if (plugin, scheduler_name) not in found:
                found[OTHERS, scheduler_name] += number
        return found


Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""Values by the values of their labels."""


class ScrapeMetric(NamedTuple):
    """A metric that is read when a scrape comes."""

    kind: type[GaugeMetricFamily] | type[CounterMetricFamily]
    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[LiveState], Samples]


def _by_label(values: Mapping[str, float]) -> Samples:
    return (((label,), value) for label, value in values.items())


def _of_queues(live: LiveState, amounts: Callable[[QuotaState], Mapping[str, float]]) -> Samples:
    """Return amounts by queue and resource: in cores, bytes or numbers."""
    return (
        ((queue.name, resource), value / 1000 if resource == "cpu" else float(value))
        for queue in live.queues
        for resource, value in amounts(queue).items()
    )


def _units(live: LiveState, numbers: Callable[[UnitCounts], Mapping[str, int]]) -> Samples:
    """Return numbers of units by queue and resource, of those queues whose units were counted."""
    return (
        ((queue.name, resource), float(numbers(units).get(resource, 0)))
        for queue in live.queues
        if (units := live.queue_units.get(queue.name)) is not None
        for resource in queue.used
    )


def _of_signals(live: LiveState, value: Callable[[SignalRow], float | None]) -> Samples:
    """Return a value of each query that has it."""
    labels = series_labels(row.query for row in live.signals)
    return (((labels[row.query],), found) for row in live.signals if (found := value(row)) is not None)


SCRAPE_METRICS: tuple[ScrapeMetric, ...] = (
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_kubernetes_rules_info",
        "Always 1. `version` is the version of Kubernetes of the API server or of the configuration, `rules` the"
        " version whose rules apply. They differ if the scheduler does not know the rules of `version`.",
        ("version", "rules"),
        lambda live: [((str(live.kubernetes.version), str(live.kubernetes.followed)), 1.0)],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_used",
        "Amount of a resource that the pods of a queue use: cores, bytes, or a number.",
        ("queue", "resource"),
        lambda live: _of_queues(live, lambda queue: queue.used),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_will",
        "Amount of a resource that the pods of a queue use when the evictions under way are done.",
        ("queue", "resource"),
        lambda live: _of_queues(live, lambda queue: queue.will),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_guaranteed",
        "Amount of a resource that is guaranteed to a queue (`min`).",
        ("queue", "resource"),
        lambda live: _of_queues(live, lambda queue: queue.guaranteed),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_borrowed",
        "Amount of a resource that a queue will use above its guarantee when the evictions under way are done.",
        ("queue", "resource"),
        lambda live: _of_queues(live, lambda queue: queue.borrowed),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_guaranteed_units",
        "Number of pods and gangs that are guaranteed in a queue, those of the queues below it included, by the"
        " resource that guarantees them. Members of a gang beyond its size count one by one.",
        ("queue", "resource"),
        lambda live: _units(live, lambda units: units.guaranteed),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_borrowed_units",
        "Number of pods and gangs that borrow in a queue, those of the queues below it included, by resource that they"
        " hold. One that holds several resources counts for each.",
        ("queue", "resource"),
        lambda live: _units(live, lambda units: units.borrowed),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_share",
        "Dominant share of a queue: what it borrows, by what the nodes offer and by its weight.",
        ("queue",),
        lambda live: (((queue.name,), queue.share) for queue in live.queues if not queue.others),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_past_usage",
        "Amount of a resource that the fair order counts for the past usage of a queue (`remember`).",
        ("queue", "resource"),
        lambda live: _of_queues(live, lambda queue: queue.past),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_past_usage_stored_timestamp_seconds",
        "Time at which this replica last stored the past usage of queues; only of the replica that stores it.",
        (),
        lambda live: (
            [((), live.past_usage.stored_at)]
            if live.past_usage is not None and live.past_usage.stored_at is not None
            else ()
        ),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_past_usage_failing",
        "1 if the past usage of queues cannot be read or stored, else 0. If so, it is lost when the replica ends.",
        (),
        lambda live: [((), float(bool(live.past_usage.problem)))] if live.past_usage is not None else (),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_past_usage_left_out_queues",
        "Number of queues whose past usage was not stored: there is room for some thousands.",
        (),
        lambda live: [((), float(live.past_usage.left_out))] if live.past_usage is not None else (),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_gangs_started_in_domain",
        "Number of gangs that started in a topology domain, by the topology that was taken; any: on any nodes.",
        ("topology",),
        lambda live: _by_label(live.gangs_started),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_gang_domains_left",
        "Number of domains that a gang left because not all of its members fit there, though there was room by"
        " resources.",
        ("topology",),
        lambda live: _by_label(live.gang_domains_left),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_gangs_without_domain",
        "Number of pending gangs for which no domain has enough room, by the topology of their best domain.",
        ("topology",),
        lambda live: (((key,), gangs) for key, (gangs, _) in live.gangs_without_domain.items()),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_gang_members_missing",
        "Number of members for which the best domains of these gangs have no room.",
        ("topology",),
        lambda live: (((key,), missing) for key, (_, missing) in live.gangs_without_domain.items()),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_gangs_below_minimum",
        "Number of gangs that run with fewer pods than they need, because others were lost.",
        (),
        lambda live: (((), live.gangs_short),),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_gang_rest_evicted_pods",
        "Number of pods that were evicted because their gang had lost others for as long as `within` says.",
        (),
        lambda live: (((), live.gang_rest_evicted),),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_returning_evictors",
        "How often a workload evicted pods of other queues after its own pods had been evicted, for the second time or"
        " more within an hour. The rules of queues do not allow it: a value above 0 is a bug in the scheduler.",
        (),
        lambda live: (((), live.returning_evictors),),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_above_max_evicted_pods",
        "Number of pods that were evicted because their queue used more than its `max` (`reclaim above max`).",
        (),
        lambda live: (((), live.above_max_evicted),),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_pending_pods",
        "Number of pending pods of a queue of the policies, including those of the queues below it.",
        ("queue",),
        lambda live: _by_label(live.queue_pending),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_queue_unschedulable_pods",
        "Number of pending pods of a queue of the policies that no node took at their last attempt, including those of"
        " the queues below it.",
        ("queue",),
        lambda live: _by_label(live.queue_refused),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_queue_reclaimed_pods",
        "Number of pods of a queue that were evicted for pods of other queues.",
        ("queue",),
        lambda live: _by_label(live.queue_reclaimed),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_queue_evicted_pods",
        "Number of pods of a queue that were evicted, by rule: guarantee (`reclaim`), share (`reclaim fair`), priority"
        " (also of pods of the same queue), or max (`reclaim above max`).",
        ("queue", "rule"),
        lambda live: (
            ((queue, rule), pods) for rule, counts in live.queue_evicted.items() for queue, pods in counts.items()
        ),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "scheduler_pending_pods",
        "Number of pending pods, by queue.",
        ("queue",),
        lambda live: _by_label(live.pending_pods),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "scheduler_queued_entities",
        "Number of pods in no PodGroup, and of groups, by queue and type: pod, podgroup, compositepodgroup. A group"
        " counts once, where the pod of it waits that is tried first.",
        ("queue", "type"),
        lambda live: live.queued_entities.items(),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "scheduler_generated_placements",
        "Number of domains that PodGroups could be placed in, once for each attempt, if the gate"
        " TopologyAwareWorkloadScheduling is on.",
        ("profile",),
        lambda live: _by_label(live.placements),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "scheduler_placement_evaluations",
        "Number of these domains that were evaluated, by result: feasible, infeasible.",
        ("result", "profile"),
        lambda live: live.placement_evaluations.items(),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "scheduler_cache_size",
        "Number of nodes, pods and assumed pods in the scheduler cache.",
        ("type",),
        lambda live: _by_label(live.cache_size),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "scheduler_unschedulable_pods",
        "Number of unschedulable pods, by the plugin that rejected them. A pod counts once for each such plugin.",
        ("plugin", "profile"),
        lambda live: live.unschedulable_pods.items(),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_unschedulable_pods",
        "Number of unschedulable pods, by whether new nodes would help them: help, do_not_help. Autoscalers add nodes"
        " only for the first.",
        ("new_nodes",),
        lambda live: _by_label(live.new_nodes),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_watch_restarts",
        "Number of restarted watches. This includes the routine restarts: the API server ends each watch after "
        "some minutes.",
        ("resource",),
        lambda live: (((row.resource,), row.restarts) for row in live.watches),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_watch_phase",
        "1 for the current phase of the watch of a resource: starting, listing, connecting, catching up, "
        "watching, retrying, absent or forbidden.",
        ("resource", "phase"),
        lambda live: (((row.resource, row.phase), 1.0) for row in live.watches),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_watch_late_seconds",
        "Seconds since the cached objects of a resource were last known to be current; 0 while they are current.",
        ("resource",),
        lambda live: (((row.resource,), row.late_seconds) for row in live.watches),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_watch_silent_seconds",
        "Seconds since the API server last sent data about a resource. It normally sends some about once a minute.",
        ("resource",),
        lambda live: (((row.resource,), row.silent_seconds) for row in live.watches if row.silent_seconds is not None),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "informer_store_resource_version",
        "Resource version up to which the objects of a resource are known: its last 15 digits. The label `name` is"
        " `kube-scheduler`, so that the dashboards of kube-scheduler work.",
        ("name", "group", "version", "resource"),
        lambda live: (
            ((KUBE_SCHEDULER, row.group, row.version, row.name), float(row.position % 10**_RESOURCE_VERSION_DIGITS))
            for row in live.watches
            if row.position
        ),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_oldest_pod_seconds",
        "Seconds for which the oldest pod has been in a state: in flight (its binding or its preemption is under way),"
        " assumed (bound, but not yet confirmed by the watch), or unschedulable (no node took it at its last attempt);"
        " 0 if there is none.",
        ("state",),
        lambda live: _by_label(live.oldest_pods),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_longest_turn_seconds",
        "CPU seconds of the longest turn of the event loop in the last ten minutes; 0 if none took longer than 0.1.",
        (),
        lambda live: (((), live.longest_turn_seconds),),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_pods_waiting_last",
        "Number of pods that wait behind all others, because deciding them took too long more than once.",
        (),
        lambda live: (((), live.waiting_last),),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_write_backlog",
        "Number of events and conditions that wait to be written to the API server.",
        ("kind",),
        lambda live: (((kind,), backlog.items) for kind, backlog in live.backlogs.items()),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_write_failing",
        "Number of waiting events and conditions that failed at least once and are retried.",
        ("kind",),
        lambda live: (((kind,), backlog.failing) for kind, backlog in live.backlogs.items()),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_write_oldest_seconds",
        "Seconds that the oldest event or condition has waited.",
        ("kind",),
        lambda live: (((kind,), backlog.oldest_seconds) for kind, backlog in live.backlogs.items()),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_writes",
        "Number of events and conditions, by result: sent; merged with a newer one; retried; given up after refusals"
        " (refused); dropped because the queue was full; withheld because the replica no longer leads.",
        ("kind", "result"),
        lambda live: (
            ((kind, result), count)
            for kind, backlog in live.backlogs.items()
            for result, count in msgspec.structs.asdict(backlog.counts).items()
        ),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_write_refusals",
        "Number of times that the API server refused to write an event or condition: by an admission webhook or policy,"
        " for want of a permission, or as invalid. Each is retried.",
        ("kind",),
        lambda live: (((kind,), backlog.refusals) for kind, backlog in live.backlogs.items()),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_loop_up",
        "1 while a loop runs; 0 while it is broken.",
        ("loop",),
        lambda live: (((loop.name,), float(not loop.problem)) for loop in live.loops),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_loop_breaks",
        "Number of times that a loop broke.",
        ("loop",),
        lambda live: (((loop.name,), loop.breaks) for loop in live.loops),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_loop_idle_seconds",
        "Seconds since a loop last ran. A loop that waits for work can be idle for hours.",
        ("loop",),
        lambda live: (((loop.name,), loop.idle_seconds) for loop in live.loops),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_compiled_kernels",
        "1 if the scheduler uses compiled kernels for all nodes at once; 0 if it uses NumPy: numba is not installed"
        " or cannot be used, the setting is off, or the cluster is small.",
        (),
        lambda live: [((), float(live.kernels))],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_kept_results_bytes",
        "Memory of the results that are kept from one pod to the next. Near the limit, the least recently used are"
        " dropped and computed again.",
        (),
        lambda live: [((), float(live.kept_bytes))],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_kept_results_max_bytes",
        "Limit of `policy_scheduler_kept_results_bytes`: `scheduling.cacheMebibytes`, or by the number of nodes.",
        (),
        lambda live: [((), float(live.max_kept_bytes))],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_pod_counters_bytes",
        "Memory of the counts and sums of pods on nodes: one for each set of pods that rules and pods ask for. Near the"
        " limit, those that were not used recently are dropped and counted again.",
        (),
        lambda live: [((), float(live.counter_bytes))],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_pod_counters_max_bytes",
        "Limit of `policy_scheduler_pod_counters_bytes`, by the number of nodes.",
        (),
        lambda live: [((), float(live.max_counter_bytes))],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_rebalance_stopped",
        "1 if rebalancing stopped itself, because fewer than nine in ten replacements landed on the node of the plan;"
        " absent if no policy has a `rebalance`.",
        (),
        lambda live: [((), float(bool(live.rebalancing.stopped)))] if live.rebalancing is not None else [],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_rebalance_reserved_pods",
        "Number of replacements of moved pods for which room is reserved; absent if no policy has a `rebalance`.",
        (),
        lambda live: [((), float(live.rebalancing.reserved))] if live.rebalancing is not None else [],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_devices",
        "Number of devices that pods can claim: published by drivers, and allocated to claims, in memory or in their"
        " status.",
        ("state",),
        lambda live: _by_label(live.devices),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_device_annotation_protected",
        "1 if only the scheduler can write the devices annotation of pods; otherwise 0, and the scheduler ignores"
        " the annotation.",
        (),
        lambda live: [((), float(known))] if (known := live.device_annotation_protected) is not None else [],
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_extension_calls_without_value",
        "Number of calls of functions of extensions that gave no value, by function and reason: failed, unavailable.",
        ("function", "reason"),
        lambda live: live.extension_failures.items(),
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_decision_log_records",
        "Number of records for the files of the decision log, by result.",
        ("result",),
        lambda live: _by_label(live.decision_records),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_signal_age_seconds",
        "Age of the last result of a query in seconds; absent before the first result.",
        ("query",),
        lambda live: _of_signals(live, lambda row: row.age_seconds),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_signal_degraded",
        "1 if a query fails or matches no series, or if none of its values can be used: they are older than the"
        " policies allow, not finite, or of no node.",
        ("query",),
        lambda live: _of_signals(live, lambda row: float(row.degraded)),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_signal_series",
        "Number of series in the last result of a query.",
        ("query",),
        lambda live: _of_signals(live, lambda row: row.series),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_signal_missing_nodes",
        "Number of nodes without a value of the query now; absent if it asks for those that meet a condition.",
        ("query",),
        lambda live: _of_signals(live, lambda row: row.missing_nodes),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_signal_fetch_duration_seconds",
        "Duration of the last fetch of a query in seconds.",
        ("query",),
        lambda live: _of_signals(live, lambda row: row.fetch_seconds),
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_degraded",
        "1 if at least one query of the active policies is degraded.",
        (),
        lambda live: [((), float(any(row.degraded for row in live.signals)))],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "leader_election_master_status",
        "1 if this replica is the leader, otherwise 0.",
        ("name",),
        lambda live: [((live.lease.name,), float(live.lease.leads))] if live.lease else [],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_take_over_seconds",
        "Seconds from the moment when this replica became leader to its first decision, or until it had nothing to"
        " decide; while it has made none, the seconds so far. Without leader election, from the start of scheduling.",
        (),
        lambda live: [((), live.take_over_seconds)] if live.take_over_seconds is not None else [],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_undecided_seconds",
        "Seconds since the last decision while this replica leads and pods are ready to be decided; otherwise 0.",
        (),
        lambda live: [((), live.undecided_seconds)],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_lease_holder",
        "1 for the holder of the lease, as this replica sees it.",
        ("name", "holder"),
        lambda live: [((live.lease.name, live.lease.holder), 1.0)] if live.lease and live.lease.holder else [],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_lease_usable",
        "1 if this replica can read and write the lease, or has only just failed to; otherwise 0.",
        ("name",),
        lambda live: [((live.lease.name,), float(not live.lease.trouble))] if live.lease else [],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_shard_members",
        "Number of replicas that share the work, as this replica sees them.",
        (),
        lambda live: [((), len(live.shard.members))] if live.shard else [],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_shard_ready",
        "1 while this replica takes part in the sharing; 0 while it waits for a hand-over.",
        (),
        lambda live: [((), float(live.shard.takes_part))] if live.shard else [],
    ),
    ScrapeMetric(
        GaugeMetricFamily,
        "policy_scheduler_shard_nodes",
        "Number of nodes that belong to this replica.",
        (),
        lambda live: [((), live.shard.nodes)] if live.shard else [],
    ),
    ScrapeMetric(
        CounterMetricFamily,
        "policy_scheduler_shard_pods",
        "Number of pods that were handed to another replica, by result: passed_on, given_back, failed.",
        ("result",),
        lambda live: (
            (((result,), getattr(live.shard, result)) for result in ("passed_on", "given_back", "failed"))
            if live.shard
            else []
        ),
    ),
)
"""Every metric that is read at a scrape; those that count are in `metrics`."""


class LiveMetrics(Collector):
    """Exports the state of the moment of a scrape."""

    def __init__(self, state: Callable[[], LiveState]) -> None:
        """state: asked at each scrape; it must not block."""
        self._state = state

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry then does not call `collect` when it registers us."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the state of now; families without a sample where they do not apply."""
        live = _labelled(self._state())
        for kind, name, text, labels, read in SCRAPE_METRICS:
            family = kind(name, text, labels=labels)
            for values, value in read(live):
                family.add_metric(values, value)
            yield family


def _labelled(live: LiveState) -> LiveState:
    """Return a state with the queues by their labels."""
    labels = series_labels(
        (
            *(queue.name for queue in live.queues),
            *live.queue_units,
            *live.queue_pending,
            *live.queue_refused,
            *live.queue_reclaimed,
            *chain.from_iterable(live.queue_evicted.values()),
        )
    )
    return msgspec.structs.replace(
        live,
        queues=[msgspec.structs.replace(queue, name=labels[queue.name]) for queue in live.queues],
        queue_units={labels[name]: units for name, units in live.queue_units.items()},
        queue_pending={labels[name]: pods for name, pods in live.queue_pending.items()},
        queue_refused={labels[name]: pods for name, pods in live.queue_refused.items()},
        queue_reclaimed={labels[name]: pods for name, pods in live.queue_reclaimed.items()},
        queue_evicted={
            rule: {labels[name]: pods for name, pods in counts.items()} for rule, counts in live.queue_evicted.items()
        },
    )


def label_value(text: str) -> str:
    """Return a text as a label value: on one line, and cut where it is long."""
    return one_line(text, MAX_LABEL)


def series_labels(texts: Iterable[str]) -> dict[str, str]:
    """Return each text as a label value that no other of them has: Prometheus drops a series that is there twice.

    Of those that look alike once they are on one line, or cut, each ends with a digest of itself.
    """
    labels = {text: label_value(text) for text in texts}
    alike = Counter(labels.values())
    used = {label for text, label in labels.items() if label == text or alike[label] == 1}
    for text, label in sorted(labels.items()):
        attempt = 0
        while label != text and (label in used if attempt else alike[label] > 1):
            digest = sha256(f"{attempt}{text}".encode()).hexdigest()[:_DIGITS]
            label = labels[text] = f"{one_line(text, MAX_LABEL - _DIGITS - 1)}#{digest}"
            attempt += 1
        used.add(label)
    return labels
