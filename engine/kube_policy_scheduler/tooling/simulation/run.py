"""One scenario under one set of policies: pods arrive, wait or are dropped, and the cluster is measured."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.node_devices import SHARE_SUFFIX, WHOLE
from kube_policy_scheduler.cluster.events import node_events
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.prices import prices
from kube_policy_scheduler.cluster.quotas.returning_evictors import AGAIN
from kube_policy_scheduler.cluster.requests import is_extended
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.decide.algorithm import NO_POLICY, ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.device_columns import class_devices
from kube_policy_scheduler.framework.evaluate.nominations import nominate
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.groups.waiting_pods import NOTHING_WAKES, WaitingPods
from kube_policy_scheduler.framework.plugins.fragmentation import fragmentation
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.preempt.above_max import AboveMaxReclaim
from kube_policy_scheduler.framework.preempt.preemption import nomination_after
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, SchedulingQueue, gates
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims
from kube_policy_scheduler.framework.reserve.claims_in_memory import give_claims_back, take_claims, with_claims_like
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.cluster_state import cluster_state, is_of_node
from kube_policy_scheduler.tooling.cost import in_use
from kube_policy_scheduler.tooling.simulation.autoscaling import Autoscaler
from kube_policy_scheduler.tooling.simulation.disruption_budgets import DisruptionBudgets
from kube_policy_scheduler.tooling.simulation.metrics_over_time import Playback
from kube_policy_scheduler.tooling.simulation.node_events import NodeAction, NodeEvent, renamed
from kube_policy_scheduler.tooling.simulation.queue_shares import QueueMeasures, QueueRun
from kube_policy_scheduler.tooling.simulation.scenario import (
    Arrival,
    PolicyVariant,
    Resource,
    Rules,
    Scenario,
    amount_wanted,
)
from kube_policy_scheduler.tooling.simulation.stand_ins import StandIns

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    at: float
    """Seconds from the beginning."""
    arrived: float
    """Requests so far for the main resource, as a share of the capacity."""
    used: Mapping[str, float]
    """Use of each resource, as a share of the capacity."""
    spread: float
    """The standard deviation over the nodes of the share of the main resource that is in use."""
    fragmentation: float | None
    """The share of the free room on devices that a pod of the workload could not use; None without devices."""
    together: Mapping[str, int]
    """The most devices that are free on one node, by DeviceClass."""
    pending: int
    running: int
    price: float | None = None
    """What the nodes in use cost per hour, those with a price; None where no node has one."""
    nodes_in_use: float = 0.0
    """The share of the nodes with a pod that does not belong to the node."""
    nodes: int = 0
    """Nodes that are there."""
    upcoming: int = 0
    """Nodes that an autoscaler has ordered."""
    hourly: float = 0.0
    """What all nodes with a price cost per hour, with those that were ordered."""


class Measures:
    """Takes samples of one cluster."""

    def __init__(self, cluster: Cluster, resources: Sequence[Resource]) -> None:
        self._cluster = cluster
        self.resources = tuple(resources)
        self.capacity = {resource.name: float(self._offered(resource).sum()) for resource in resources}
        """The most that was there of each; `used` looks."""
        self.main = resources[0]

    def used(self, resource: Resource) -> float:
        """Return the share of a resource that is in use."""
        capacity = float(self._offered(resource).sum())
        self.capacity[resource.name] = max(self.capacity[resource.name], capacity)
        return float(self._used(resource).sum()) / capacity if capacity else 0.0

    def sample(
        self, frame: Frame | None, *, at: float, arrived: float, pending: int, upcoming: int = 0, hourly: float = 0.0
    ) -> Sample:
        """Return the moment; `frame` of any pod, where the devices are to be looked at."""
        offered, used = self._offered(self.main), self._used(self.main)
        having = offered > 0
        shares = used[having] / offered[having]
        in_use_now = in_use(self._cluster)
        return Sample(
            at=at,
            arrived=arrived,
            used={resource.name: self.used(resource) for resource in self.resources},
            spread=float(shares.std()) if len(shares) else 0.0,
            fragmentation=self._fragmentation(frame),
            together=self._together(),
            pending=pending,
            running=len(self._cluster.pods) - len(self._cluster.assumed),
            price=self._price(in_use_now),
            nodes_in_use=float(in_use_now.mean()) if in_use_now.size else 0.0,
            nodes=self._cluster.nodes.size,
            upcoming=upcoming,
            hourly=hourly,
        )

    def _price(self, in_use_now: BoolArray) -> float | None:
        each = prices(self._cluster.nodes)
        known = ~np.isnan(each)
        if not known.any():
            return None
        return float(each[known & in_use_now].sum())

    def _fragmentation(self, frame: Frame | None) -> float | None:
        if not self.main.devices or frame is None:
            return None
        free = float(self._cluster.devices.table(self.main.name).free.sum())
        lost = float(fragmentation(frame, self.main.name).before(slice(None)).sum())
        return lost / free if free else 0.0

    def _together(self) -> dict[str, int]:
        names = [resource.device_class for resource in self.resources if resource.device_class]
        return {name: int(class_devices(self._cluster, name).columns()[1].max(initial=0)) for name in names}

    def _offered(self, resource: Resource) -> FloatArray:
        if resource.device_class:
            return class_devices(self._cluster, resource.device_class).columns()[0].copy()
        if resource.devices:
            return self._cluster.devices.table(resource.name).count.astype(np.float64)
        return self._cluster.nodes.allocatable(resource.name).astype(np.float64)

    def _used(self, resource: Resource) -> FloatArray:
        if resource.device_class:
            count, free = class_devices(self._cluster, resource.device_class).columns()
            return count - free
        if resource.devices:
            table = self._cluster.devices.table(resource.name)
            result: FloatArray = table.count - table.free.sum(axis=1) / WHOLE
            return result
        return self._cluster.nodes.requested(resource.name).astype(np.float64)


def resources_of(cluster: Cluster, coming: Iterable[objects.Node] = ()) -> tuple[Resource, ...]:
    """Return the resources that results cover, the main resource first: GPUs if there are any.

    coming: nodes that may come.
    """
    new = {f"coming-{number}": node for number, node in enumerate(coming)}
    for name, node in new.items():
        cluster.set_node(renamed(node, name))
    try:
        return _resources_of(cluster)
    finally:
        for name in new:
            cluster.remove_node(name)


def _resources_of(cluster: Cluster) -> tuple[Resource, ...]:
    offered = [name for name in cluster.nodes.resources() if cluster.nodes.allocatable(name).any()]
    extended = [name for name in offered if is_extended(name) and not name.endswith(SHARE_SUFFIX)]
    found = [Resource(name, devices=name + SHARE_SUFFIX in offered) for name in extended]
    found.sort(key=lambda resource: (resource.name != GPU, not resource.devices, resource.name))
    names = sorted(one.metadata.name for one in cluster.all(objects.DeviceClass))
    claimed = [name for name in names if class_devices(cluster, name).columns()[0].any()][:_MOST_CLASSES]
    classes = [Resource(f"{name} devices", device_class=name) for name in claimed]
    return (*found, Resource("cpu"), Resource("memory"), *classes)


_MOST_CLASSES = 8
"""DeviceClasses that are measured, the first by name."""


GANG_TOO_SMALL = "gang: too few pods"
GANG_INCOMPLETE = "gang: not enough nodes for all that it needs"
BEHIND_ANOTHER = "strict order: the first pod has no node"
MOST_EVICTIONS_A_POD = 10
LEAST_BOUND = 1000
"""A run is given up if there are more evictions than so many for each pod, and than this, while no pod comes or ends
and no node changes: they would go on for ever."""
SAMPLES = 200
"""Moments looked at in a run, at most about twice as many."""

Progress = Callable[[int], None]
"""Told now and then how many arrivals were dealt with."""
Stop = Callable[[], bool]
"""Asked before each decision whether to end the run there."""


Placing = Callable[[Frame, str], None]
"""Called before a pod counts on the node that was found for it: the decision's inputs as they are then, the node."""


def never() -> bool:
    """Return that a run goes on to its end."""
    return False


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that had to leave."""

    victim: PodInfo
    by: PodInfo | None
    """The pod that gets the room, or a member of the gang that does; None: nobody, see `why`."""
    ran_on: str
    """Where the victim was."""
    ran_before: bool
    """Whether it was there at the beginning."""
    at: float
    """Unix seconds."""
    why: str = ""
    """Why it had to leave though nobody gets the room, for people."""


@dataclass(slots=True)
class Tally:
    """What was counted; the fields of `Run` say what they mean."""

    arrived: int = 0
    placed: int = 0
    left: int = 0
    evicted: int = 0
    given_back: int = 0
    restarted: int = 0
    lost: int = 0
    cost: float = 0.0
    wanted: float = 0.0
    """Of the main resource, by all that arrived."""
    reasons: dict[str, int] = field(default_factory=dict)
    wait_seconds: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    given_up_at: float | None = None
    cut_reclaims: int = 0
    cut_backfills: int = 0
    marks: dict[float, float] = field(default_factory=dict)

    def unplaced(self, reason: str) -> None:
        """Count a pod that found no place."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """A pod that counts on its node; it runs there at once, or waits for its gang."""

    queued: QueuedPod
    host: str
    requirements: tuple[GangRequirement, ...] = ()

    @property
    def has_devices(self) -> bool:
        """Return whether it may hold devices for its claims."""
        return bool(self.queued.pod.template.spec.resource_claims)

    def unreserve(self, cluster: Cluster) -> None:
        """Give the devices of its claims back."""
        give_claims_back(cluster, self.queued.pod, ends=False)

    def free_devices(self, cluster: Cluster) -> Callable[[], None]:
        """Free the devices of its claims, to try something; return what allocates them again."""
        return give_claims_back(cluster, self.queued.pod, ends=False)


class SimulatedAlgorithm(ScheduleAlgorithm):
    """Asks the cycle as the daemon does, by the rules of a variant."""

    def __init__(
        self, cluster: Cluster, clock: Callable[[], Steady], rules: Rules, signals: Signals, *, seed: int
    ) -> None:
        super().__init__(cluster, None, clock, seed=seed)
        self.signals = signals
        self.rules = rules

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the plugins that decide about a pod; None where no policy governs it."""
        return self.rules.profile(pod)

    def gang_requirements(self, queued: QueuedPod) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind."""
        return self.rules.gang_requirements(queued, self.frame)


class SimulatedCluster:
    """A scenario's cluster under a variant, with its pending pods. `now` is its virtual time: both clocks show it."""

    def __init__(self, scenario: Scenario, variant: PolicyVariant, *, seed: int) -> None:
        self.scenario = scenario
        self.cluster = cluster_state(scenario.things, scenario.kubernetes).cluster
        self.now = Steady(scenario.starts_at)
        self.tally = Tally()
        self.room_changed: Callable[[], None] = lambda: None
        """Called when nodes may have more room."""
        self.placing: Placing | None = None
        rules = Rules(variant, preempts=not scenario.drops)
        signals = variant.signals.held(at=scenario.starts_at)
        self.playback: Playback | None = None
        """The metrics that change; None: they do not."""
        if variant.metrics is not None and variant.policy_set is not None:
            self.playback = Playback(variant.metrics, variant.policy_set.queries)
            signals = self.playback.advance(scenario.starts_at) or Signals.EMPTY
        self.algorithm = SimulatedAlgorithm(self.cluster, self.clock, rules, signals, seed=seed)
        self.queue = SchedulingQueue()
        self.budgets = DisruptionBudgets(self.cluster)
        self._infos: dict[int, PodInfo] = {}
        resources = resources_of(self.cluster, scenario.coming_nodes())
        for resource in resources:
            if resource.devices:
                self.cluster.devices.table(resource.name)
        if scenario.workload:
            counts = {self._info(pod).template: number for pod, number in scenario.workload}
            self.cluster.workload.declare(counts)
        self.measures = Measures(self.cluster, resources)
        tree = variant.measured_by
        self.queues = QueueMeasures(self.cluster, tree, decides=tree is variant.tree) if tree is not None else None
        """What queues use; None: there are none."""
        self.upcoming = 0
        """Nodes that are ordered."""
        self.hourly = 0.0
        """What all nodes cost, with those that are ordered."""
        self.nodes_changed()
        self.cluster.ledger.follow(self._heard)
        self.queue.follow(self.cluster.ledger, self.clock)

    def nodes_changed(self, *, upcoming: int = 0, upcoming_hourly: float = 0.0) -> None:
        """Note that nodes came, went or were ordered."""
        self.upcoming = upcoming
        self.hourly = float(np.nansum(prices(self.cluster.nodes))) + upcoming_hourly

    def advance(self, now: float) -> None:
        """Let time pass."""
        self.tally.cost += self.hourly * (now - self.now) / 3600.0
        self.now = Steady(now)

    def clock(self) -> Steady:
        """Return the virtual time, unix seconds."""
        return self.now

    def _heard(self, event: ClusterEvent) -> None:
        if event in NodeResourcesFit.events:
            self.room_changed()

    def read_metrics(self) -> None:
        """Use what the metrics say now."""
        signals = self.playback.advance(self.now) if self.playback is not None else None
        if signals is not None:
            self.algorithm.signals = signals
            self.cluster.ledger.note(ClusterEvent.SIGNALS)

    def arrive(self, arrival: Arrival) -> PodInfo:
        """Return the pod that arrives, counted."""
        info = self._info(arrival.pod)
        created = self.scenario.starts_at + arrival.at
        pod = msgspec.structs.replace(info, uid=f"{info.namespace}/{arrival.name}", name=arrival.name, created=created)
        if info.template.spec.resource_claims:
            pod = with_claims_like(self.cluster, pod)
        self.tally.arrived += 1
        self.tally.wanted += amount_wanted(pod.template.requests, self.measures.main)
        return pod

    def share_arrived(self) -> float:
        """Return the requests so far for the main resource, as a share of the capacity."""
        capacity = self.measures.capacity[self.measures.main.name]
        return self.tally.wanted / capacity if capacity else 0.0

    def assume(
        self, queued: QueuedPod, decision: Decision, requirements: tuple[GangRequirement, ...] = ()
    ) -> AssumedPod:
        """Count a pod on the node that was found for it."""
        assert decision.host is not None
        pod, cluster = queued.pod, self.cluster
        if self.placing is not None:
            self.placing(self.algorithm.frame(queued), decision.host)
        take_claims(cluster, pod, decision.host, now=self.now, order=decision.device_order)
        cluster.assume(pod, decision.host, now=self.now, devices=decision.devices)
        return AssumedPod(queued, decision.host, requirements)

    def bind(self, assumed: AssumedPod) -> PodInfo:
        """Let an assumed pod run; return it as it runs."""
        pod = msgspec.structs.replace(assumed.queued.pod, started=self.now, ready=True, all_started=True)
        self.cluster.confirm(pod, assumed.host)
        self.tally.placed += 1
        return pod

    def sample(self, frame: Frame | None, *, at: float, pending: int) -> None:
        """Look at the cluster."""
        arrived = self.share_arrived()
        self.tally.samples.append(
            self.measures.sample(
                frame, at=at, arrived=arrived, pending=pending, upcoming=self.upcoming, hourly=self.hourly
            )
        )
        if self.queues is not None:
            self.queues.sample()

    def any_frame(self) -> Frame | None:
        """Return the frame of some pod, for measures that need one; None before the first has come."""
        some = next(iter(self._infos.values()), None)
        return self.algorithm.frame(QueuedPod(some, self.now, self.now)) if some is not None else None

    def _info(self, pod: objects.Pod) -> PodInfo:
        info = self._infos.get(id(pod))
        if info is None:
            info = self._infos[id(pod)] = self.cluster.templates.pod(pod)
        return info


def reason(decision: Decision) -> str:
    """Return what stood in the way, without numbers that differ from pod to pod."""
    if decision.diagnosis is None:
        return decision.message
    return ", ".join(sorted(name for name in decision.rejectors if name)) or decision.message


def place_or_drop(simulated: SimulatedCluster, *, progress: Progress, stop: Stop = never) -> None:
    """Deal with each arrival in turn."""
    arrivals, measures, tally = simulated.scenario.arrivals, simulated.measures, simulated.tally
    every = max(1, len(arrivals) // SAMPLES)
    marks = [mark for mark in simulated.scenario.marks if measures.capacity[measures.main.name]]
    for place, arrival in enumerate(arrivals):
        if stop():
            break
        queued = QueuedPod(simulated.arrive(arrival), simulated.now, simulated.now)
        frame = simulated.algorithm.frame(queued)
        held = simulated.algorithm.rules.hold(queued, simulated.algorithm.frame)
        if held is not None:
            tally.unplaced(held)
        elif (decision := simulated.algorithm.decide(queued)).host is not None:
            simulated.bind(simulated.assume(queued, decision))
        else:
            tally.unplaced(reason(decision))
        while marks and simulated.share_arrived() >= marks[0] - 1e-9:
            tally.marks[marks.pop(0)] = measures.used(measures.main)
        if place % every == 0 or place == len(arrivals) - 1:
            simulated.sample(frame, at=float(place + 1), pending=sum(tally.reasons.values()))
            progress(place + 1)


_LOOK_STEPS = (3600.0, 900.0, 300.0, 60.0, 30.0, 15.0, 10.0, 5.0)
"""Between two looks at a pod that waits for time to pass: the longest that is no more than a thirtieth of its wait."""
_LOOK_AT_MOST_SECONDS = 7 * 86400.0
"""How long after the last arrival, binding and departure it is waited for pods that wait for time to pass."""


def next_look(queued: float, now: float) -> float:
    """Return when to look again at a pod that waits for time to pass, unix seconds.

    The scheduler looks every 5 s. In virtual time that would be most of the work, so looks become rarer the longer the
    pod waits. They fall on round times, of its wait and of the day: those that policies name.
    """
    waited = now - queued
    step = next((step for step in _LOOK_STEPS if step <= waited / 30), _LOOK_STEPS[-1])
    return min(_next_multiple(step, queued, now), _next_multiple(max(step, 900.0), 0.0, now))


def _next_multiple(step: float, start: float, now: float) -> float:
    """Return the first moment after now that is so many steps from the start, whatever rounding does."""
    steps = (now - start) // step + 1
    while start + steps * step <= now:
        steps += 1
    return start + steps * step


class Waiting:
    """Pods that wait, in the queue or at Permit. Time goes from one moment at which something happens to the next."""

    def __init__(self, simulated: SimulatedCluster) -> None:
        self._simulated = simulated
        self._queue, self._algorithm = simulated.queue, simulated.algorithm
        self._above_max = AboveMaxReclaim(simulated.cluster)
        self._waiting_pods: WaitingPods[AssumedPod] = WaitingPods(
            simulated.cluster,
            simulated.queue,
            simulated.algorithm,
            observer=self,
            clock=simulated.clock,
        )
        rules, algorithm = simulated.algorithm.rules, simulated.algorithm
        algorithm.gangs.pauses = False  # in virtual time, a plan takes none
        self._queue.use(
            position=lambda queued: rules.position(queued, algorithm.frame),
            hold=self._hold,
            membership=self._waiting_pods.membership,
            placed=simulated.cluster.counters.group_size,
        )
        self._stand_ins = StandIns(
            self._queue,
            lambda queued: rules.position(queued, algorithm.frame),
            simulated.cluster,
            members=self._waiting_pods.members,
            each_reason=simulated.scenario.autoscaling is not None,
        )
        simulated.room_changed = lambda: self._stand_ins.room_changed(simulated.now)
        self._departures: list[tuple[float, int, PodInfo]] = []
        self._tickets = count()
        self._lasts: dict[str, float | None] = {}
        self._looks: list[tuple[float, str]] = []
        """When to look at which pods that wait for time to pass, the earliest first."""
        self._looked_for: set[str] = set()
        self._held_again: list[QueuedPod] = []
        """Those that were tried and then held, which nobody has seen to yet."""
        self._seen_epoch = 0
        """The epoch of the cluster at which held pods were asked about last."""
        self._last_event = simulated.now
        """When a pod came, was bound or left last."""
        self._evicted_since = 0
        """Pods that were evicted since a pod came or ended, or a node changed."""
        self._node_events = deque(simulated.scenario.node_events.events)
        self._autoscaler: Autoscaler | None = None
        if simulated.scenario.autoscaling is not None:
            self._autoscaler = Autoscaler(
                simulated.scenario.autoscaling,
                simulated.cluster,
                simulated.algorithm,
                members=lambda requirement: self._queue.group(requirement.group).values(),
                pending=self._queue.get,
            )

    def run(self, *, progress: Progress, stop: Stop = never, watch: Watch = lambda at, cluster: None) -> None:
        """Go on until nothing will happen any more."""
        simulated = self._simulated
        arrivals, start = simulated.scenario.arrivals, simulated.scenario.starts_at
        following = 0
        ends = [arrival.at + (arrival.lasts or 0.0) for arrival in arrivals]
        ends += [event.at for event in simulated.scenario.node_events.events]
        if self._autoscaler is not None:
            self._add_nodes(self._autoscaler.begin(simulated.now))
        every = max(ends, default=0.0) / SAMPLES
        next_sample = start
        stops_after = simulated.scenario.stops_after
        last = start + stops_after if stops_after is not None else math.inf
        while True:
            arrives = start + arrivals[following].at if following < len(arrivals) else None
            next_time = self._next_time(arrives)
            if next_time is None or next_time > last or stop():
                break
            if simulated.tally.given_up_at is not None:
                break
            now = Steady(max(simulated.now, next_time))
            while next_sample < now:
                # what holds until now: the moment before anything happens
                self._sample(next_sample)
                next_sample = max(next_sample + every, now - every) if every else now
            simulated.advance(now)
            simulated.read_metrics()
            self._end_due()
            self._change_nodes()
            while following < len(arrivals) and start + arrivals[following].at <= now:
                arrival = arrivals[following]
                pod = simulated.arrive(arrival)
                self._lasts[pod.uid] = arrival.lasts
                self._add(pod)
                self._last_event = now
                self._evicted_since = 0
                following += 1
            self._look()
            self._waiting_pods.expire(now)
            self._waiting_pods.backfill.look(now)
            for gang in self._waiting_pods.short.due(now):
                self._evict_each(gang.rest, by=None, why="its gang has lost pods")
            if (above := self._above_max.due(lambda: self._algorithm.rules.queues, now)) is not None:
                self._evict_each(above.pods, by=None, why=above.why)
            self._decide_all(stop)
            progress(following)
            watch(now - start, simulated.cluster)
        self._sample(simulated.now)
        simulated.tally.cut_backfills = self._waiting_pods.backfill.cut
        for queued in self._queue:
            simulated.tally.unplaced(self._why_pending(queued))

    def _next_time(self, arrives: float | None) -> float | None:
        """Return when something happens next; arrives: when the next pod comes."""
        now = self._simulated.now
        times = [self._departures[0][0] if self._departures else None, arrives, self._queue.next_due()]
        if now < self._last_event + _LOOK_AT_MOST_SECONDS:
            times.append(self._looks[0][0] if self._looks else None)
            # beside pods that never end, reservations would move for ever
            times.append(self._waiting_pods.backfill.next_due())
        times += self._waiting_pods.next_due(), self._waiting_pods.short.next_due()
        queues = self._algorithm.rules.queues
        if queues is not None and queues.above_max:
            times.append(self._above_max.next_due())
        if self._node_events:
            times.append(self._simulated.scenario.starts_at + self._node_events[0].at)
        if self._autoscaler is not None:
            times.append(self._autoscaler.next_due())
        if self._simulated.playback is not None and len(self._queue):
            times.append(self._simulated.playback.next_change())
        return min((at for at in times if at is not None), default=None)

    def _why_pending(self, queued: QueuedPod) -> str:
        """Return why a pod has no node in the end, without what differs from gang to gang."""
        if queued.place is Place.PERMIT:
            return GANG_INCOMPLETE
        if queued.place is not Place.GATED:
            behind = queued.pod.uid in self._queue.blocked()
            return BEHIND_ANOTHER if behind else self._stand_ins.first_of(queued).reported_reason or "not decided"
        return GANG_TOO_SMALL if self._queue.waits_for_members(queued) else queued.gated_because

    # --- places that waiting pods give back ----------------------------------------------------------

    def rejected(self, assumed: AssumedPod, why: str) -> None:
        """A waiting pod gave its place back."""
        self._simulated.tally.given_back += 1
        self._pods_changed(assumed.host)
        assumed.queued.reported_reason = GANG_INCOMPLETE

    def gang_rejected(self, group: Group, pods: int, why: str) -> None:
        """A gang gave back the places of this many of its pods."""

    def no_longer_fits(self, assumed: AssumedPod) -> None:
        """The node of a waiting pod changed: the pod is decided again."""

    def withdrawn(self, assumed: AssumedPod) -> None:
        """A waiting pod is decided again at once."""

    # --- nodes that come and go ----------------------------------------------------------------------

    def _change_nodes(self) -> None:
        """Do what the events say, and what the autoscaler does now."""
        simulated, autoscaler = self._simulated, self._autoscaler
        start = simulated.scenario.starts_at
        changed = False
        while self._node_events and start + self._node_events[0].at <= simulated.now:
            self._apply(self._node_events.popleft())
            changed = True
        if autoscaler is not None:
            changed |= self._add_nodes(autoscaler.ready(simulated.now))
            for name in autoscaler.idle(simulated.now):
                self._remove_node(name)
                changed = True
            before = autoscaler.upcoming
            autoscaler.scan(simulated.now)
            changed |= autoscaler.upcoming != before
        if changed:
            self._last_event = simulated.now
            self._evicted_since = 0
            self._count_nodes()

    def _count_nodes(self) -> None:
        autoscaler = self._autoscaler
        if autoscaler is None:
            self._simulated.nodes_changed()
        else:
            self._simulated.nodes_changed(upcoming=autoscaler.upcoming, upcoming_hourly=autoscaler.upcoming_hourly)

    def _apply(self, event: NodeEvent) -> None:
        """Do what an event says; a change of a node that is gone does nothing."""
        nodes = self._simulated.cluster.nodes
        if event.action is NodeAction.REMOVE:
            self._remove_node(event.name)
        elif event.node is not None:
            self._set_node(event.node)
        elif event.name in nodes.rows:
            self._set_node(event.applied(nodes.infos[nodes.rows[event.name]].node))

    def _add_nodes(self, new: Iterable[tuple[objects.Node, list[PodInfo]]]) -> bool:
        """Add nodes with the pods that start with them; return whether there are any."""
        found = False
        for node, own in new:
            found = True
            self._set_node(node)
            for pod in own:
                self._simulated.cluster.place(pod, node.metadata.name)
        if found:
            self._count_nodes()
        return found

    def _set_node(self, node: objects.Node) -> None:
        events = node_events(self._simulated.cluster.set_node(node))
        if events:
            self._waiting_pods.node_changed(node.metadata.name)

    def _remove_node(self, name: str) -> None:
        """Remove a node. Its pods start again if a controller creates them; pods of DaemonSets do not."""
        simulated, cluster = self._simulated, self._simulated.cluster
        if name not in cluster.nodes.rows:
            return
        running = [pod for pod in cluster.pods_on(name).values() if pod.uid not in cluster.assumed]
        members = [pod for pod in running if not is_of_node(pod)]
        returns_bare = simulated.scenario.node_events.bare_pods_return
        for pod in running:
            cluster.remove(pod.uid)
            if is_of_node(pod):
                continue
            if pod.template.controller is not None or returns_bare:
                simulated.tally.restarted += 1
                self._create_again(pod)
            else:
                simulated.tally.lost += 1
                self._lasts.pop(pod.uid, None)
                if pod.template.spec.resource_claims:
                    give_claims_back(cluster, pod)
        cluster.remove_node(name)
        self._waiting_pods.node_changed(name)
        for pod in members:
            self._waiting_pods.short.left(pod, simulated.now, is_loss=True)
        if self._autoscaler is not None:
            self._autoscaler.gone(name)

    def _pods_changed(self, node_name: str) -> None:
        if self._autoscaler is not None:
            self._autoscaler.look_at((node_name,), self._simulated.now)

    def _create_again(self, pod: PodInfo) -> None:
        """Let a pod that is gone start again, as its controller would create it."""
        cluster = self._simulated.cluster
        again = msgspec.structs.replace(
            pod,
            uid=f"{pod.uid}{AGAIN}",
            name=f"{pod.name}{AGAIN}",
            node_name="",
            nominated_node="",
            started=None,
            ready=False,
            all_started=False,
        )
        if pod.template.spec.resource_claims:
            again = with_claims_like(cluster, again)
            give_claims_back(cluster, pod)
        self._lasts[again.uid] = self._lasts.pop(pod.uid, None)
        self._simulated.budgets.disrupted(pod, again.uid)
        self._add(again)

    # --- what happens --------------------------------------------------------------------------------

    def _add(self, pod: PodInfo) -> None:
        if pod.nominated_node:
            self._simulated.cluster.nominate(pod, pod.nominated_node)
        self._queue.add(pod, self._simulated.now)
        queued = self._queue.get(pod.uid)
        assert queued is not None
        self._look_later(queued)

    def _look_later(self, queued: QueuedPod) -> None:
        """Look at a pod again when time has passed, if that may help it."""
        uid = queued.pod.uid
        if self._waits_for_time(queued) and uid not in self._looked_for:
            self._looked_for.add(uid)
            heapq.heappush(self._looks, (next_look(queued.queued, self._simulated.now), uid))

    def _waits_for_time(self, queued: QueuedPod) -> bool:
        """Return whether time alone may help a pod: a policy holds it, or reads the clock and rejected it."""
        if queued.place is Place.GATED:
            return gates(queued) is None and not self._queue.waits_for_members(queued)
        wakes = queued.wake_events
        return queued.place is Place.UNSCHEDULABLE and wakes is not None and ClusterEvent.CLOCK in wakes

    def _look(self) -> None:
        """Ask again about the pods for which it is time, and about all held ones where something happened."""
        queue, now = self._queue, self._simulated.now
        epoch = self._simulated.cluster.ledger.epoch
        if epoch > self._seen_epoch and self._looks:
            queue.recheck_gated()
        self._seen_epoch = epoch
        due = []
        while self._looks and self._looks[0][0] <= now:
            due.append(heapq.heappop(self._looks)[1])
        self._looked_for.difference_update(due)
        for uid in due:
            queue.wake(uid, ClusterEvent.CLOCK, now)
            queued = queue.get(uid)
            if queued is not None:
                self._look_later(queued)

    def _end_due(self) -> None:
        simulated = self._simulated
        while self._departures and self._departures[0][0] <= simulated.now:
            _, _, pod = heapq.heappop(self._departures)
            if simulated.cluster.pods.get(pod.uid) is pod:
                host = simulated.cluster.node_of(pod.uid) or ""
                simulated.cluster.remove(pod.uid)
                self._pods_changed(host)
                simulated.tally.left += 1
                self._last_event = simulated.now
                self._evicted_since = 0
                if has_claims(pod.template, simulated.cluster):
                    give_claims_back(simulated.cluster, pod)

    def _decide_all(self, stop: Stop) -> None:
        while not stop() and (queued := self._next()) is not None:
            self._schedule_one(queued)
            if self._simulated.tally.given_up_at is not None:
                return

    def _next(self) -> QueuedPod | None:
        while True:
            while self._queue.has_to_ask():
                self._queue.ask_again()
            queued = self._waiting_pods.next() or self._queue.pop(self._simulated.now)
            held, self._held_again = self._held_again, []
            for each in held:
                self._drop_nomination(each)
                self._settled(each)
                self._look_later(each)
            if queued is not None or not held:
                return queued

    def _hold(self, queued: QueuedPod) -> str | None:
        """Return why a pod must wait outside the active queue, or None."""
        why = self._algorithm.rules.hold(queued, self._algorithm.frame)
        if why is not None and queued.attempts and queued.place is not Place.GATED:
            self._held_again.append(queued)
        return why

    def _schedule_one(self, queued: QueuedPod) -> None:
        """Do what the scheduler's own scheduling cycle does for a pod, and bind at once."""
        waiting_pods, now = self._waiting_pods, self._simulated.now
        membership = waiting_pods.membership(queued)
        if membership.why is not None:
            self._drop_nomination(queued)
            self._settled(queued)
            self._queue.gate(queued, membership, now)
            self._look_later(queued)
            return
        requirements = membership.requirements
        decision, others = (
            waiting_pods.decide(queued, requirements) if requirements else (self._algorithm.decide(queued), ())
        )
        if decision.host is None:
            for member, rejection in others:
                self._handle_failure(member, requirements, rejection)
            self._handle_failure(queued, requirements, decision)
            return
        assumed = self._simulated.assume(queued, decision, requirements)
        self._queue.assumed(queued)
        self._settled(queued)
        for requirement in requirements:
            self._stand_ins.began(waiting_pods.members.siblings((requirement,)), now)
        self._pods_changed(assumed.host)
        for each in waiting_pods.arrive(assumed) if requirements else (assumed,):
            self._bind(each)

    def _handle_failure(self, queued: QueuedPod, requirements: tuple[GangRequirement, ...], decision: Decision) -> None:
        lacks_nodes = requirements and decision.diagnosis is None and NodeResourcesFit.name in decision.rejected_by
        queued.reported_reason = GANG_INCOMPLETE if lacks_nodes else reason(decision)
        self._simulated.tally.cut_reclaims += decision.reclaim is not None and decision.reclaim.is_cut
        found = decision.preemption
        if found is not None and found.victims and found.nominated_node:
            self._simulated.cluster.returning_evictors.note(
                queued.pod, found.victims, self._simulated.now, reclaims=found.reclaims, sharing=found.sharing
            )
            self._evict(queued, found.nominated_node, found.victims)
            return
        node_name = nomination_after(found, queued.pod, self._simulated.cluster)
        if node_name:  # another member of its gang evicts for all of them
            self._nominate(queued, node_name)
        elif node_name is not None:
            self._drop_nomination(queued)
        if self._autoscaler is not None:
            self._autoscaler.rejected(queued, requirements, decision, self._simulated.now)
        profile = self._algorithm.profile(queued.pod)
        if profile is None:
            self._queue.rejected(queued, frozenset((NO_POLICY,)), self._simulated.now, wakes=NOTHING_WAKES)
            return
        self._stand_ins.rejected(queued, requirements, profile, decision, self._simulated.now)
        self._look_later(queued)

    def _drop_nomination(self, queued: QueuedPod) -> None:
        """Keep no room for a pod that will not come to take it."""
        if queued.pod.nominated_node:
            nominate(self._simulated.cluster, queued, "")

    def _bind(self, assumed: AssumedPod) -> None:
        simulated, queued = self._simulated, assumed.queued
        pod = simulated.bind(assumed)
        simulated.tally.wait_seconds.append(simulated.now - queued.queued)
        if simulated.queues is not None:
            simulated.queues.bound(pod, simulated.now - queued.queued)
        self._last_event = simulated.now
        self._queue.done(pod.uid)
        simulated.budgets.ready(pod)
        lasts = self._lasts.get(pod.uid)
        if lasts is not None:
            heapq.heappush(self._departures, (simulated.now + lasts, next(self._tickets), pod))

    def _evict(self, queued: QueuedPod, node_name: str, victims: tuple[PodInfo, ...]) -> None:
        """Evict victims; they start again, as their controllers would create them."""
        waiting = self._waiting_pods.evict(victims, by=queued.pod)  # who does not run yet gives its place back
        self._evict_each([victim for victim in victims if victim.uid not in waiting], by=queued.pod)
        self._nominate(queued, node_name)
        self._queue.activate(queued, self._simulated.now)
        self._look_later(queued)

    def _evict_each(self, victims: Iterable[PodInfo], *, by: PodInfo | None, why: str = "") -> None:
        simulated = self._simulated
        for victim in victims:
            ran_on = simulated.cluster.node_of(victim.uid) or ""
            simulated.cluster.remove(victim.uid)
            simulated.tally.evicted += 1
            ran_before = victim.uid not in self._lasts
            simulated.tally.evictions.append(Eviction(victim, by, ran_on, ran_before, simulated.now, why))
            if simulated.queues is not None:
                simulated.queues.evicted(victim)
            self._create_again(victim)
            self._pods_changed(ran_on)
            self._evicted_since += 1
        pods = len(simulated.cluster.pods) + len(self._queue)
        if self._evicted_since > max(LEAST_BOUND, MOST_EVICTIONS_A_POD * pods) and simulated.tally.given_up_at is None:
            simulated.tally.given_up_at = simulated.now - simulated.scenario.starts_at

    def _settled(self, queued: QueuedPod) -> None:
        self._stand_ins.settled(queued, self._simulated.now)
        if self._autoscaler is not None:
            self._autoscaler.settled(queued.pod.uid)

    def _nominate(self, queued: QueuedPod, node_name: str) -> None:
        """Nominate a pod to a node."""
        self._settled(queued)
        together = self._algorithm.frame_with_gang(queued).together
        for other in nominate(self._simulated.cluster, queued, node_name, together=together):
            if (loser := self._queue.get(other.uid)) is not None:
                nominate(self._simulated.cluster, loser, "")

    def _sample(self, at: float) -> None:
        simulated = self._simulated
        simulated.sample(simulated.any_frame(), at=at - simulated.scenario.starts_at, pending=len(self._queue))


Stopwatch = Callable[[], float]
Watch = Callable[[float, Cluster], None]
"""Called after each moment at which something happened: seconds from the beginning, and the cluster as it is then."""


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one run."""

    variant: str
    seed: int
    resources: tuple[str, ...]
    """The main one first."""
    capacity: Mapping[str, float]
    samples: tuple[Sample, ...]
    marks: Mapping[float, float]
    """What was in use of the main resource, as a share, when so much of it (a share too) was requested."""
    arrived: int
    placed: int
    """Bindings; a pod that was evicted and placed again counts twice."""
    left: int
    """Pods that came to their end."""
    evicted: int
    given_back: int
    """Places that members of gangs gave back, because their gang was not complete in time, or for another gang."""
    unplaced: int
    """Dropped, or still waiting in the end."""
    reasons: Mapping[str, int]
    """Of those, how many for which reason."""
    wait_seconds: tuple[float, ...]
    """From arrival to binding, of every pod that was bound; empty where pods do not wait."""
    decisions: int
    seconds: float
    """How long the run itself took."""
    queues: QueueRun | None = None
    """What queues used; None: there are none."""
    nodes_change: bool = False
    """Whether nodes come and go: the price is then that of all nodes, and not of those in use."""
    restarted: int = 0
    """Pods whose node was removed, and that started again."""
    lost: int = 0
    """Pods whose node was removed, and that ended with it."""
    cost: float = 0.0
    """What all nodes with a price cost over the whole time, with those that were ordered."""
    given_up_at: float | None = None
    """Seconds from the beginning at which evictions went on without end, and the run was ended; None: it was not."""
    cut_reclaims: int = 0
    """How often `reclaim` tried so many pods that it tried no more, see `reclaim.MOST_DISPLACED`."""
    cut_backfills: int = 0
    """How often `backfill` reserved nothing, because it looks at so many ends only, see `reservation.MOST_ENDS`."""

    @property
    def last(self) -> Sample:
        """Return the last moment."""
        return self.samples[-1]

    def mean_used(self, resource: str) -> float:
        """Return the share in use over time, each moment weighed by how long it lasted."""
        return self.mean([sample.used[resource] for sample in self.samples])

    def mean_nodes_in_use(self) -> float:
        """Return the share of the nodes in use over time.

        Where nodes come and go, how many there are as a share of those at the beginning: an autoscaler keeps few idle.
        """
        if self.nodes_change:
            return self.mean_nodes() / max(1, self.samples[0].nodes)
        return self.mean([sample.nodes_in_use for sample in self.samples])

    def mean_nodes(self) -> float:
        """Return how many nodes there are over time."""
        return self.mean([float(sample.nodes) for sample in self.samples])

    def most_nodes(self) -> int:
        """Return how many nodes there are at most."""
        return max(sample.nodes for sample in self.samples)

    def mean_price(self) -> float | None:
        """Return what the nodes in use cost per hour over time; None where no node has a price.

        Where nodes come and go, that is what all nodes cost.
        """
        if self.nodes_change:
            hours = self.last.at / 3600.0
            return self.cost / hours if self.cost and hours else None
        each = [sample.price for sample in self.samples if sample.price is not None]
        return self.mean(each) if each and len(each) == len(self.samples) else None

    def mean(self, values: Sequence[float]) -> float:
        """Return the mean of a value per sample over time."""
        if len(self.samples) < 2 or self.samples[-1].at <= self.samples[0].at:
            return values[-1]
        times = [sample.at for sample in self.samples]
        total = sum(value * (then - now) for value, now, then in zip(values, times, times[1:], strict=False))
        return total / (times[-1] - times[0])


def run(
    scenario: Scenario,
    variant: PolicyVariant,
    *,
    seed: int,
    stopwatch: Stopwatch,
    progress: Progress = lambda done: None,
    stop: Stop = never,
    watch: Watch = lambda at, cluster: None,
    placing: Placing | None = None,
) -> Run:
    """Simulate a scenario under a variant.

    Args:
        scenario: what happens.
        variant: who decides.
        seed: breaks ties.
        stopwatch: seconds, for how long it took.
        progress: called with how far it is.
        stop: asked now and then whether to end it early.
        watch: looks at the cluster from moment to moment; not where pods are dropped.
        placing: looks at each decision that found a node.
    """
    began = stopwatch()
    simulated = SimulatedCluster(scenario, variant, seed=seed)
    simulated.placing = placing
    if scenario.drops:
        place_or_drop(simulated, progress=progress, stop=stop)
    else:
        Waiting(simulated).run(progress=progress, stop=stop, watch=watch)
    tally = simulated.tally
    capacity = {resource.name: simulated.measures.capacity[resource.name] for resource in simulated.measures.resources}
    return Run(
        variant=variant.name,
        seed=seed,
        resources=tuple(capacity),
        capacity=capacity,
        samples=tuple(tally.samples),
        marks=tally.marks,
        arrived=tally.arrived,
        placed=tally.placed,
        left=tally.left,
        evicted=tally.evicted,
        given_back=tally.given_back,
        unplaced=sum(tally.reasons.values()),
        reasons=dict(sorted(tally.reasons.items(), key=lambda item: (-item[1], item[0]))),
        wait_seconds=tuple(tally.wait_seconds),
        decisions=simulated.algorithm.decisions,
        seconds=stopwatch() - began,
        queues=simulated.queues.run() if simulated.queues is not None else None,
        nodes_change=scenario.nodes_change,
        restarted=tally.restarted,
        lost=tally.lost,
        cost=tally.cost,
        given_up_at=tally.given_up_at,
        cut_reclaims=tally.cut_reclaims,
        cut_backfills=tally.cut_backfills,
    )
