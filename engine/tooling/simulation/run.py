"""One run: a scenario under one contender, decision by decision in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from engine.cluster import objects
from engine.cluster.pods import PodInfo
from engine.framework.cycle import Cycle, Decision
from engine.framework.events import ClusterEvent
from engine.framework.frame import Frame
from engine.framework.queue import Place, QueuedPod, SchedulingQueue
from engine.framework.refusal_memo import RefusalMemo
from engine.tooling.simulation.contender import Contender, Rules
from engine.tooling.simulation.measures import Measures, Sample, resources_of
from engine.tooling.simulation.scenario import Arrival, Scenario, amount_wanted
from engine.tooling.world import world

SAMPLES = 200
"""Moments looked at in a run, at most about twice as many."""
_HELD_EVERY_SECONDS = 60.0
_IDLE_HELD_EVERY_SECONDS = 900.0
"""How often held pods are looked at: while there are arrivals and departures to come, and after the last."""
_HELD_AT_MOST_SECONDS = 7 * 86400.0
"""How long after the last arrival and departure it is waited for pods that a policy holds."""
NO_POLICY = "no policy governs this pod"

Progress = Callable[[int], None]
"""Told now and then how many arrivals were dealt with."""
Stopwatch = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run."""

    contender: str
    seed: int
    resources: tuple[str, ...]
    """The main one first."""
    capacity: Mapping[str, float]
    samples: tuple[Sample, ...]
    marks: Mapping[float, float]
    """What was in use of the main resource, as a share, when so much of it (a share too) had been asked for."""
    arrived: int
    placed: int
    """Bindings; a pod that was evicted and placed again counts twice."""
    left: int
    """Pods that came to their end."""
    evicted: int
    unplaced: int
    """Dropped, or still waiting in the end."""
    reasons: Mapping[str, int]
    """Of those, how many for which reason."""
    wait_seconds: tuple[float, ...]
    """From arrival to binding, of every pod that was bound; empty where pods do not wait."""
    decisions: int
    seconds: float
    """How long the run itself took."""

    @property
    def last(self) -> Sample:
        """Return the last moment."""
        return self.samples[-1]

    def mean_used(self, resource: str) -> float:
        """Return the share in use over time, each moment weighed by how long it lasted."""
        if len(self.samples) < 2 or self.samples[-1].at <= self.samples[0].at:
            return self.last.used[resource]
        pairs = zip(self.samples, self.samples[1:], strict=False)
        total = sum(one.used[resource] * (other.at - one.at) for one, other in pairs)
        return total / (self.samples[-1].at - self.samples[0].at)


def run(
    scenario: Scenario,
    contender: Contender,
    *,
    seed: int,
    stopwatch: Stopwatch,
    progress: Progress = lambda done: None,
) -> Run:
    """Simulate a scenario under a contender.

    Args:
        scenario: what happens.
        contender: who decides.
        seed: breaks ties.
        stopwatch: seconds, for how long it took.
        progress: told how far it is.
    """
    return _Simulation(scenario, contender, seed=seed, stopwatch=stopwatch, progress=progress).run()


class _Simulation:
    def __init__(
        self, scenario: Scenario, contender: Contender, *, seed: int, stopwatch: Stopwatch, progress: Progress
    ) -> None:
        self._scenario, self._contender, self._seed = scenario, contender, seed
        self._stopwatch, self._progress = stopwatch, progress
        self._began = stopwatch()
        self._cluster = world(scenario.things).cluster
        self._rules = Rules(contender, preempts=not scenario.drops)
        self._cycle = Cycle(seed=seed)
        self._infos: dict[int, PodInfo] = {}
        resources = resources_of(self._cluster)
        for resource in resources:
            if resource.devices:
                self._cluster.devices.table(resource.name)
        if scenario.workload:
            counts = {self._info(pod).template: number for pod, number in scenario.workload}
            self._cluster.workload.declare(counts)
        self._measures = Measures(self._cluster, resources)
        self._samples: list[Sample] = []
        self._marks: dict[float, float] = {}
        self._wanted = 0.0
        self._arrived = self._placed = self._left = self._evicted = self._decisions = 0
        self._reasons: dict[str, int] = {}
        self._waits: list[float] = []
        self._refused = RefusalMemo()
        self._queue = SchedulingQueue(
            turn=lambda queued: self._rules.turn(queued, self._frame(queued.pod)),
            hold=lambda queued: self._rules.hold(queued, self._frame(queued.pod)),
        )
        self._now = scenario.starts_at
        self._departures: list[tuple[float, int, PodInfo]] = []
        self._tickets = count()
        self._lasts: dict[str, float | None] = {}

    def run(self) -> Run:
        if self._scenario.drops:
            self._one_by_one()
        else:
            self._through_the_queue()
        capacity = {resource.name: self._measures.capacity[resource.name] for resource in self._measures.resources}
        return Run(
            contender=self._contender.name,
            seed=self._seed,
            resources=tuple(capacity),
            capacity=capacity,
            samples=tuple(self._samples),
            marks=self._marks,
            arrived=self._arrived,
            placed=self._placed,
            left=self._left,
            evicted=self._evicted,
            unplaced=sum(self._reasons.values()),
            reasons=dict(sorted(self._reasons.items(), key=lambda item: (-item[1], item[0]))),
            wait_seconds=tuple(self._waits),
            decisions=self._decisions,
            seconds=self._stopwatch() - self._began,
        )

    # --- pods that are placed or dropped -----------------------------------------------------------------

    def _one_by_one(self) -> None:
        arrivals = self._scenario.arrivals
        every = max(1, len(arrivals) // SAMPLES)
        marks = [mark for mark in self._scenario.marks if self._measures.capacity[self._measures.main.name]]
        frame = None
        for place, arrival in enumerate(arrivals):
            pod = self._pod(arrival)
            self._came(pod)
            frame = self._frame(pod)
            decision = self._decide(frame)
            if decision.host is not None:
                self._cluster.place(pod, decision.host, devices=decision.devices)
                self._refused.clear()
                self._placed += 1
            else:
                self._refuse(decision)
            while marks and self._share_arrived() >= marks[0] - 1e-9:
                self._marks[marks.pop(0)] = self._measures.used(self._measures.main)
            if place % every == 0 or place == len(arrivals) - 1:
                self._sample(frame, at=float(place + 1))
                self._progress(place + 1)

    # --- pods that wait, and leave -----------------------------------------------------------------------

    def _through_the_queue(self) -> None:
        arrivals, start = self._scenario.arrivals, self._scenario.starts_at
        following, last_event = 0, start
        ends = [arrival.at + (arrival.lasts or 0.0) for arrival in arrivals]
        every = max(ends, default=0.0) / SAMPLES
        next_sample = start
        while True:
            times = [self._departures[0][0]] if self._departures else []
            if following < len(arrivals):
                times.append(start + arrivals[following].at)
            if times:
                last_event = max(last_event, min(times))
            due = self._queue.next_due()
            if due is not None:
                times.append(due)
            held = any(True for _ in self._queue.held())
            if held and self._now < last_event + _HELD_AT_MOST_SECONDS:
                times.append(self._now + (_HELD_EVERY_SECONDS if times else _IDLE_HELD_EVERY_SECONDS))
            if not times:
                break
            now = max(self._now, min(times))
            while next_sample < now:
                # what holds until now: the moment before anything happens
                self._sample_now(next_sample)
                next_sample = max(next_sample + every, now - every) if every else now
            self._now = now
            self._end_due()
            while following < len(arrivals) and start + arrivals[following].at <= now:
                arrival = arrivals[following]
                pod = self._pod(arrival)
                self._lasts[pod.uid] = arrival.lasts
                self._came(pod)
                self._queue.add(pod, now)
                following += 1
            if held:
                self._queue.recheck_held()
                self._queue.happened(ClusterEvent.CLOCK, now)
            self._decide_all()
            self._progress(following)
        self._sample_now(self._now)
        for queued in self._queue:
            reason = queued.held_because if queued.place is Place.HELD else queued.told
            self._reasons[reason or "not decided"] = self._reasons.get(reason or "not decided", 0) + 1

    def _end_due(self) -> None:
        while self._departures and self._departures[0][0] <= self._now:
            _, _, pod = heapq.heappop(self._departures)
            if self._cluster.pods.get(pod.uid) is pod:
                self._cluster.displace(pod.uid)
                self._left += 1
                self._happened(ClusterEvent.POD_DELETE)

    def _decide_all(self) -> None:
        while (queued := self._queue.pop(self._now)) is not None:
            frame = self._frame(queued.pod, queued)
            decision = self._decide(frame)
            if decision.host is not None:
                self._bind(queued, decision)
                continue
            found = decision.preemption
            if found is not None and found.victims and found.nominated_node:
                self._evict(queued, found.nominated_node, found.victims)
                continue
            queued.told = _reason(decision)
            profile = self._rules.profile(frame)
            rejectors = decision.rejectors if profile is not None else frozenset((NO_POLICY,))
            wakes = profile.wakes if profile is not None else {NO_POLICY: frozenset()}
            self._queue.rejected(queued, rejectors, self._now, wakes=wakes)

    def _bind(self, queued: QueuedPod, decision: Decision) -> None:
        pod = queued.pod
        assert decision.host is not None
        self._cluster.nominate(pod, "")
        self._cluster.place(pod, decision.host, devices=decision.devices)
        self._placed += 1
        self._waits.append(self._now - queued.queued)
        self._queue.done(pod.uid)
        lasts = self._lasts.get(pod.uid)
        if lasts is not None:
            heapq.heappush(self._departures, (self._now + lasts, next(self._tickets), pod))
        self._happened(ClusterEvent.POD_ADD)

    def _evict(self, queued: QueuedPod, node_name: str, victims: tuple[PodInfo, ...]) -> None:
        """Let victims go, and come again as their controllers would have it."""
        for victim in victims:
            self._cluster.displace(victim.uid)
            self._evicted += 1
            again = replace(victim, uid=f"{victim.uid}~", name=f"{victim.name}~", node_name="", nominated_node="")
            self._lasts[again.uid] = self._lasts.pop(victim.uid, None)
            self._queue.add(again, self._now)
        queued.pod = replace(queued.pod, nominated_node=node_name)
        self._cluster.nominate(queued.pod, node_name)
        self._happened(ClusterEvent.POD_DELETE)
        self._queue.activate(queued, self._now)

    def _happened(self, event: ClusterEvent) -> None:
        self._refused.clear()
        self._queue.happened(event, self._now)

    # --- what both have in common ------------------------------------------------------------------------

    def _decide(self, frame: Frame) -> Decision:
        profile = self._rules.profile(frame)
        if profile is None:
            return Decision(frame.pod, None, total=self._cluster.nodes.size, message=NO_POLICY)
        self._decisions += 1
        state = self._now if not profile.by_template else 0.0
        known = self._refused.get(frame.pod, profile, state)
        if known is not None:
            return known
        decision = self._cycle.decide(frame, profile)
        if decision.host is None:
            self._refused.note(decision, profile, state)
        return decision

    def _frame(self, pod: PodInfo, queued: QueuedPod | None = None) -> Frame:
        return Frame(
            pod,
            self._cluster,
            self._now,
            signals=self._contender.signals,
            queued=queued.queued if queued is not None else self._now,
            attempts=max(0, queued.attempts - 1) if queued is not None else 0,
        )

    def _refuse(self, decision: Decision) -> None:
        reason = _reason(decision)
        self._reasons[reason] = self._reasons.get(reason, 0) + 1

    def _came(self, pod: PodInfo) -> None:
        self._arrived += 1
        self._wanted += amount_wanted(pod.template.requests, self._measures.main)

    def _share_arrived(self) -> float:
        capacity = self._measures.capacity[self._measures.main.name]
        return self._wanted / capacity if capacity else 0.0

    def _info(self, pod: objects.Pod) -> PodInfo:
        info = self._infos.get(id(pod))
        if info is None:
            info = self._infos[id(pod)] = self._cluster.templates.pod(pod)
        return info

    def _pod(self, arrival: Arrival) -> PodInfo:
        info = self._info(arrival.pod)
        created = self._scenario.starts_at + arrival.at
        return replace(info, uid=f"{info.namespace}/{arrival.name}", name=arrival.name, created=created)

    def _sample_now(self, at: float) -> None:
        some = next(iter(self._infos.values()), None)
        self._sample(self._frame(some) if some is not None else None, at=at - self._scenario.starts_at)

    def _sample(self, frame: Frame | None, *, at: float) -> None:
        pending = sum(self._reasons.values()) if self._scenario.drops else len(self._queue)
        self._samples.append(self._measures.sample(frame, at=at, arrived=self._share_arrived(), pending=pending))


def _reason(decision: Decision) -> str:
    """Return what stood in the way, without numbers that differ from pod to pod."""
    if decision.diagnosis is None:
        return decision.message
    return ", ".join(sorted(name for name in decision.rejectors if name)) or decision.message
