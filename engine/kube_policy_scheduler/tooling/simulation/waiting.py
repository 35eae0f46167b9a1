"""The way of a run in which pods wait in the scheduling queue, leave when their time is over, and may be evicted."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import count

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.cycle import Decision
from kube_policy_scheduler.framework.dynamic_resources.in_memory import give_claims_back, with_claims_like
from kube_policy_scheduler.framework.dynamic_resources.reservation import has_claims
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.queue import Place, QueuedPod, SchedulingQueue
from kube_policy_scheduler.tooling.simulation.stage import NO_POLICY, SAMPLES, Progress, Stage, reason

_HELD_EVERY_SECONDS = 60.0
_IDLE_HELD_EVERY_SECONDS = 900.0
"""How often held pods are looked at: while there are arrivals and departures to come, and after the last."""
_HELD_AT_MOST_SECONDS = 7 * 86400.0
"""How long after the last arrival and departure it is waited for pods that a policy holds."""


class Waiting:
    """A queue before a stage. Time goes from one moment at which something happens to the next."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._queue = SchedulingQueue(
            turn=lambda queued: stage.rules.turn(queued, stage.frame(queued.pod)),
            hold=lambda queued: stage.rules.hold(queued, stage.frame(queued.pod)),
        )
        self._departures: list[tuple[float, int, PodInfo]] = []
        self._tickets = count()
        self._lasts: dict[str, float | None] = {}

    def run(self, *, progress: Progress) -> None:
        """Go on until nothing will happen any more."""
        stage, queue = self._stage, self._queue
        arrivals, start = stage.scenario.arrivals, stage.scenario.starts_at
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
            due = queue.next_due()
            if due is not None:
                times.append(due)
            held = any(True for _ in queue.held())
            if held and stage.now < last_event + _HELD_AT_MOST_SECONDS:
                times.append(stage.now + (_HELD_EVERY_SECONDS if times else _IDLE_HELD_EVERY_SECONDS))
            if not times:
                break
            now = max(stage.now, min(times))
            while next_sample < now:
                # what holds until now: the moment before anything happens
                self._sample(next_sample)
                next_sample = max(next_sample + every, now - every) if every else now
            stage.now = now
            self._end_due()
            while following < len(arrivals) and start + arrivals[following].at <= now:
                arrival = arrivals[following]
                pod = stage.arrive(arrival)
                self._lasts[pod.uid] = arrival.lasts
                queue.add(pod, now)
                following += 1
            if held:
                queue.recheck_held()
                queue.happened(ClusterEvent.CLOCK, now)
            self._decide_all()
            progress(following)
        self._sample(stage.now)
        for queued in queue:
            why = queued.held_because if queued.place is Place.HELD else queued.told
            stage.tally.unplaced(why or "not decided")

    def _end_due(self) -> None:
        stage = self._stage
        while self._departures and self._departures[0][0] <= stage.now:
            _, _, pod = heapq.heappop(self._departures)
            if stage.cluster.pods.get(pod.uid) is pod:
                stage.cluster.displace(pod.uid)
                stage.tally.left += 1
                self._happened(ClusterEvent.POD_DELETE)
                if has_claims(pod.template, stage.cluster):
                    give_claims_back(stage.cluster, pod)
                    self._happened(ClusterEvent.RESOURCE_CLAIM)

    def _decide_all(self) -> None:
        stage, queue = self._stage, self._queue
        while (queued := queue.pop(stage.now)) is not None:
            frame = stage.frame(queued.pod, queued)
            decision = stage.decide(frame)
            if decision.host is not None:
                self._bind(queued, decision)
                continue
            found = decision.preemption
            if found is not None and found.victims and found.nominated_node:
                self._evict(queued, found.nominated_node, found.victims)
                continue
            queued.told = reason(decision)
            profile = stage.rules.profile(frame)
            rejectors = decision.rejectors if profile is not None else frozenset((NO_POLICY,))
            wakes = profile.wakes if profile is not None else {NO_POLICY: frozenset()}
            queue.rejected(queued, rejectors, stage.now, wakes=wakes)

    def _bind(self, queued: QueuedPod, decision: Decision) -> None:
        stage, pod = self._stage, queued.pod
        stage.cluster.nominate(pod, "")
        stage.place(decision)
        stage.tally.wait_seconds.append(stage.now - queued.queued)
        self._queue.done(pod.uid)
        lasts = self._lasts.get(pod.uid)
        if lasts is not None:
            heapq.heappush(self._departures, (stage.now + lasts, next(self._tickets), pod))
        self._happened(ClusterEvent.POD_ADD)

    def _evict(self, queued: QueuedPod, node_name: str, victims: tuple[PodInfo, ...]) -> None:
        """Let victims go, and come again as their controllers would have it."""
        stage = self._stage
        for victim in victims:
            stage.cluster.displace(victim.uid)
            stage.tally.evicted += 1
            again = replace(victim, uid=f"{victim.uid}~", name=f"{victim.name}~", node_name="", nominated_node="")
            if victim.template.spec.resource_claims:
                again = with_claims_like(stage.cluster, again)
                give_claims_back(stage.cluster, victim)
            self._lasts[again.uid] = self._lasts.pop(victim.uid, None)
            self._queue.add(again, stage.now)
        queued.pod = replace(queued.pod, nominated_node=node_name)
        stage.cluster.nominate(queued.pod, node_name)
        self._happened(ClusterEvent.POD_DELETE)
        self._queue.activate(queued, stage.now)

    def _happened(self, event: ClusterEvent) -> None:
        self._stage.changed()
        self._queue.happened(event, self._stage.now)

    def _sample(self, at: float) -> None:
        stage = self._stage
        stage.sample(stage.any_frame(), at=at - stage.scenario.starts_at, pending=len(self._queue))
