"""A cluster, policies and the cycle; observers receive the decisions as from the scheduler."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.daemon.observing.observers import Decided, Observer
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.evaluate.extender_verdict import ExtenderVerdict
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.policy.policy_set import PolicySet, load

NOW = 1_800_000_000.0
Made = TypeVar("Made")


def policies(text: str) -> PolicySet:
    loaded = load([Source("web.policy", text)])
    assert loaded.policy_set is not None, loaded.diagnostics
    return loaded.policy_set


def reading(promql: str, values: dict[str, float], *, at: float = NOW) -> Reading:
    series = tuple(Series({"node": node}, value, at) for node, value in values.items())
    return Reading(promql, series, evaluated_at=at, fetched_at=at)


@dataclass
class Stage:
    """Decides pods one by one."""

    policy_set: PolicySet
    nodes: int = 4
    cpus: int = 4
    signals: Signals = Signals.EMPTY
    now: float = NOW
    cluster: Cluster = field(default_factory=Cluster)
    cycle: Cycle = field(default_factory=Cycle)
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        for number in range(self.nodes):
            self.cluster.set_node(
                msgspec.convert(
                    {
                        "metadata": {"name": f"n{number}", "labels": {"zone": f"z{number % 2}"}},
                        "status": {"allocatable": {"cpu": str(self.cpus), "memory": "16Gi", "pods": "110"}},
                    },
                    objects.Node,
                )
            )

    def pod(self, name: str = "", *, cpu: str = "1", tolerations: int = 0, **labels: str) -> PodInfo:
        number = next(self._numbers)
        spec: dict[str, Any] = {
            "schedulerName": "policy-scheduler",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            "tolerations": [{"operator": "Exists"}] * tolerations,
        }
        metadata = {"name": name or f"p{number}", "namespace": "shop", "uid": f"u{number}", "labels": labels}
        return self.cluster.templates.pod(msgspec.convert({"metadata": metadata, "spec": spec}, objects.Pod))

    def decide(
        self,
        pod: PodInfo,
        *observers: Observer,
        attempts: int = 1,
        waits: str = "",
        verdict: ExtenderVerdict | None = None,
    ) -> Decision:
        policy = self.policy_set.governing(pod)
        frame = Frame(pod, self.cluster, self.now, signals=self.signals)
        decision = Decision(pod, None, message="-")
        if policy is not None:
            decision = self.cycle.decide(frame, policy.profile, verdict=verdict)
        told = Decided(
            decision=decision,
            policy=policy.name if policy is not None else None,
            at=self.now,
            seconds=0.001,
            attempts=attempts,
            queued=self.now,
            waits=waits,
            frame=frame,
        )
        for observer in observers:
            observer.on_decided(told)
        if decision.host is not None:
            self.cluster.place(pod, decision.host)
        return decision


def finished(steps: Generator[None, None, Made]) -> Made:
    """Return what steps return at their end."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        made: Made = end.value
        return made
