"""What every run has, whether pods wait or not: the cluster, who decides, and what is counted and measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.cycle import Cycle, Decision
from kube_policy_scheduler.framework.dynamic_resources.in_memory import take_claims, with_claims_like
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.queue import QueuedPod
from kube_policy_scheduler.framework.refusal_memo import RefusalMemo
from kube_policy_scheduler.tooling.cluster_state import world
from kube_policy_scheduler.tooling.simulation.contender import Contender, Rules
from kube_policy_scheduler.tooling.simulation.measures import Measures, Sample, resources_of
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario, amount_wanted

SAMPLES = 200
"""Moments looked at in a run, at most about twice as many."""
NO_POLICY = "no policy governs this pod"

Progress = Callable[[int], None]
"""Told now and then how many arrivals were dealt with."""


@dataclass(slots=True)
class Tally:
    """What was counted; the fields of `Run` say what they mean."""

    arrived: int = 0
    placed: int = 0
    left: int = 0
    evicted: int = 0
    decisions: int = 0
    wanted: float = 0.0
    """Of the main resource, by all that arrived."""
    reasons: dict[str, int] = field(default_factory=dict)
    wait_seconds: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    marks: dict[float, float] = field(default_factory=dict)

    def unplaced(self, reason: str) -> None:
        """Count a pod that found no place."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


class Stage:
    """A scenario's cluster under a contender. `now` is its virtual time, unix seconds."""

    def __init__(self, scenario: Scenario, contender: Contender, *, seed: int) -> None:
        self.scenario = scenario
        self.cluster = world(scenario.things).cluster
        self.rules = Rules(contender, preempts=not scenario.drops)
        self.now = scenario.starts_at
        self.tally = Tally()
        self._signals = contender.signals
        self._cycle = Cycle(seed=seed)
        self._refused = RefusalMemo()
        self._infos: dict[int, PodInfo] = {}
        resources = resources_of(self.cluster)
        for resource in resources:
            if resource.devices:
                self.cluster.devices.table(resource.name)
        if scenario.workload:
            counts = {self._info(pod).template: number for pod, number in scenario.workload}
            self.cluster.workload.declare(counts)
        self.measures = Measures(self.cluster, resources)

    def arrive(self, arrival: Arrival) -> PodInfo:
        """Return the pod that arrives, counted."""
        info = self._info(arrival.pod)
        created = self.scenario.starts_at + arrival.at
        pod = replace(info, uid=f"{info.namespace}/{arrival.name}", name=arrival.name, created=created)
        if info.template.spec.resource_claims:
            pod = with_claims_like(self.cluster, pod)
        self.tally.arrived += 1
        self.tally.wanted += amount_wanted(pod.template.requests, self.measures.main)
        return pod

    def share_arrived(self) -> float:
        """Return what has been asked for of the main resource, as a share of what there is."""
        capacity = self.measures.capacity[self.measures.main.name]
        return self.tally.wanted / capacity if capacity else 0.0

    def frame(self, pod: PodInfo, queued: QueuedPod | None = None) -> Frame:
        """Return what a decision about a pod rests on."""
        return Frame(
            pod,
            self.cluster,
            self.now,
            signals=self._signals,
            queued=queued.queued if queued is not None else self.now,
            attempts=max(0, queued.attempts - 1) if queued is not None else 0,
        )

    def decide(self, frame: Frame) -> Decision:
        """Decide about a pod; who was refused in a cluster that is still the same is refused again."""
        profile = self.rules.profile(frame)
        if profile is None:
            return Decision(frame.pod, None, total=self.cluster.nodes.size, message=NO_POLICY)
        self.tally.decisions += 1
        state = self.now if not profile.by_template else 0.0
        known = self._refused.get(frame.pod, profile, state)
        if known is not None:
            return known
        decision = self._cycle.decide(frame, profile)
        if decision.host is None:
            self._refused.note(decision, profile, state)
        return decision

    def place(self, decision: Decision) -> None:
        """Put a pod on the node that was found for it."""
        assert decision.host is not None
        take_claims(self.cluster, decision.pod, decision.host, now=self.now)
        self.cluster.place(decision.pod, decision.host, devices=decision.devices)
        self.tally.placed += 1
        self.changed()

    def changed(self) -> None:
        """Take note that the cluster is not the same any more."""
        self._refused.clear()

    def sample(self, frame: Frame | None, *, at: float, pending: int) -> None:
        """Look at the cluster."""
        arrived = self.share_arrived()
        self.tally.samples.append(self.measures.sample(frame, at=at, arrived=arrived, pending=pending))

    def any_frame(self) -> Frame | None:
        """Return the frame of some pod, for measures that need one; None before the first has come."""
        some = next(iter(self._infos.values()), None)
        return self.frame(some) if some is not None else None

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
