"""What is simulated: the cluster, what arrives, and the policies that are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaTree
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod, QueuePosition, gates, priority_position
from kube_policy_scheduler.framework.quota import QuotaRules
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.policy.pod_groups import is_in_group, pod_group_requirements
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import FrameOf, PolicySet
from kube_policy_scheduler.tooling.simulation.autoscaling import Autoscaling
from kube_policy_scheduler.tooling.simulation.metrics_over_time import MetricsOverTime, covers
from kube_policy_scheduler.tooling.simulation.node_events import NO_EVENTS, NodeEvents


@dataclass(frozen=True, slots=True)
class Arrival:
    """One pod that comes."""

    at: float
    """Seconds from the beginning."""
    name: str
    """Different for every pod of a scenario."""
    pod: objects.Pod
    """What it wants; many arrivals may share it. Its own name counts for nothing."""
    lasts: float | None = None
    """Seconds from its binding to its end; None: it stays."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster and a stream of pods."""

    things: Sequence[Any]
    """API objects as stored: nodes, pods that are bound, whatever else rules read."""
    arrivals: Sequence[Arrival]
    """In the order in which they come."""
    workload: Sequence[tuple[objects.Pod, int]] = ()
    """Which pods are to be expected, with how many of each; none: policies learn it from the pods that come."""
    drops: bool = False
    """Unschedulable pods are dropped, no pod ends, and time does not matter; otherwise they wait for room."""
    until: float | None = None
    """The share of the main resource whose arrival ends it, as far as the list was made for one."""
    marks: tuple[float, ...] = field(default=())
    """Shares of the main resource: results are reported for the moments at which this share was requested."""
    starts_at: float = 0.0
    """Unix seconds of the beginning, for policies that look at the clock."""
    stops_after: float | None = None
    """Seconds from the beginning after which nothing is decided any more; None: until nothing will happen."""
    notes: tuple[str, ...] = ()
    """What people should know about how it was read."""
    node_events: NodeEvents = NO_EVENTS
    """Nodes that come, go and change."""
    autoscaling: Autoscaling | None = None
    """Nodes that come because pods wait, and go when they are idle."""
    kubernetes: KubernetesRules = DEFAULT_RULES
    """By whose rules pods are decided."""

    @property
    def nodes_change(self) -> bool:
        """Return whether nodes come or go."""
        return self.autoscaling is not None or bool(self.node_events.events)

    def coming_nodes(self) -> Iterator[objects.Node]:
        """Yield one of each kind of node that may come."""
        yield from (event.node for event in self.node_events.events if event.node is not None)
        yield from (shape.node for shape in (self.autoscaling.shapes if self.autoscaling is not None else ()))


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that results cover."""

    name: str
    """Kubernetes' name."""
    devices: bool = False
    """Whether it comes in devices that may be shared."""
    device_class: str = ""
    """The DeviceClass whose devices pods claim; "" for a resource that pods request."""


def amount_wanted(requests: Mapping[str, int], resource: Resource) -> float:
    """Return what a pod with these requests wants, in column units; of devices that may be shared in devices."""
    whole = float(requests.get(resource.name, 0))
    return whole + requests.get(f"{resource.name}-milli", 0) / 1000 if resource.devices else whole


KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class PolicyVariant:
    """One of those that are compared."""

    name: str
    policy_set: PolicySet | None = None
    """None: Kubernetes' own rules."""
    signals: Signals = Signals.EMPTY
    """What metrics say all the time."""
    metrics: MetricsOverTime | None = None
    """What they say over time, in place of `signals`."""
    compared_by: QuotaTree | None = None
    """The queues by which a variant without queues is measured, to compare it with one that has some."""

    @property
    def tree(self) -> QuotaTree | None:
        """Return the queues of its policies; None: they have none."""
        rules = self.policy_set.queues if self.policy_set is not None else None
        return rules.tree if rules is not None else None

    @property
    def measured_by(self) -> QuotaTree | None:
        """Return the queues that results cover."""
        return self.tree or self.compared_by

    def notes(self, scenario: Scenario) -> tuple[str, ...]:
        """Return what people should know about how a simulation of a scenario does its policies."""
        if self.policy_set is None:
            return ()
        found = []
        if not scenario.drops:
            ends = scenario.starts_at + max((arrival.at for arrival in scenario.arrivals), default=0.0)
            missed = covers(self.metrics, begins=scenario.starts_at, ends=ends) if self.metrics is not None else ""
            return (f"{self.name}: {missed}",) if missed else ()
        gangs = sorted(policy.name for policy in self.policy_set.policies if policy.gangs)
        if gangs:
            found.append(f"{', '.join(gangs)}: no pod waits, so members of a `gang` are placed one by one")
        if self.metrics is not None and self.metrics.recorded:
            found.append(f"{self.name}: no time passes, so metrics are as they are at the beginning")
        return tuple(found)


class Rules:
    """A variant at work in one run."""

    def __init__(self, variant: PolicyVariant, *, preempts: bool) -> None:
        self._set = variant.policy_set
        self._served = self._set.schedulers if self._set is not None else frozenset[str]()
        self._for_others = _standing_in(self._set) if self._set is not None else None
        self._preempts = preempts
        self._plain = self._as_run(kubernetes_profile()) if self._set is None else None
        self._profiles: dict[Profile, Profile] = {}

    @property
    def queues(self) -> QuotaRules | None:
        """Return the queues, of all policies together; None: there are none."""
        return self._set.queues if self._set is not None else None

    def _as_run(self, profile: Profile) -> Profile:
        return profile if self._preempts else msgspec.structs.replace(profile, preempts=False)

    def _asked(self, pod: PodInfo) -> PolicySet | None:
        """Return the policies that are asked about a pod; None: Kubernetes' own rules are.

        A pod of a scheduler that none of the policies serves is taken for one of theirs: what is asked is what the
        policies would do with these pods, and most of them still name the scheduler that they have today.
        """
        return self._set if pod.scheduler_name in self._served else self._for_others

    def policy(self, pod: PodInfo) -> Policy | None:
        """Return the policy that governs a pod; None where none does, or Kubernetes' own rules decide."""
        asked = self._asked(pod)
        return asked.governing(pod) if asked is not None else None

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the plugins that decide about a pod; None where no policy governs it."""
        if self._plain is not None:
            return self._plain
        policy = self.policy(pod)
        if policy is None:
            return None
        known = self._profiles.get(policy.profile)
        if known is None:
            known = self._profiles[policy.profile] = self._as_run(policy.profile)
        return known

    def gang_requirements(self, queued: QueuedPod, frame: FrameOf) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind; Kubernetes' own rules know PodGroups only.

        Raises:
            MissingGroupError: a PodGroup is not there.
            ValueError: a size has no value, or a PodGroup asks for what is not done here.
        """
        asked = self._asked(queued.pod)
        if asked is not None:
            return asked.gang_requirements(queued, frame)
        return pod_group_requirements(frame(queued)) if is_in_group(queued.pod.template) else ()

    def hold(self, queued: QueuedPod, frame: FrameOf) -> str | None:
        """Return why the pod must wait outside the active queue, or None."""
        waits, asked = gates(queued), self._asked(queued.pod)
        held = asked.holding(queued, frame) if waits is None and asked is not None else None
        return held[1].reason if held is not None else waits

    def position(self, queued: QueuedPod, frame: FrameOf) -> QueuePosition:
        """Return the position of the pod in the queue: as its policy orders its pods, or as Kubernetes does."""
        asked = self._asked(queued.pod)
        return asked.position(queued, frame) if asked is not None else priority_position(queued)


def _standing_in(policy_set: PolicySet) -> PolicySet:
    """Return the policies as they govern pods of other schedulers: as those that name the default one, if they can."""
    served = policy_set.schedulers
    return policy_set.standing_in_as((policy_set.default_schedulers & served) or served)
