"""A scheduler in virtual time with gangs of any size, and how much work they are to it, counted in calls."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.binding import Bound, Outcome
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from tests.fakes.scheduler_context import context_of
from tests.simulation.chaos import policies_of
from tests.simulation.virtual_time import run

GANG = "gang by pod.label.job size number(pod.label.size) within 60s if pod.label.job\n"
START = 1_800_000_000.0


class Told:
    """What was reported, by pod; also binds and evicts each pod on request."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.texts: dict[str, list[str]] = defaultdict(list)
        """By pod, every report."""
        self.has_evicted = asyncio.Event()
        self.given_back: list[str] = []
        """Names of pods that gave their places back."""
        self.has_given_back = asyncio.Event()

    def unschedulable(self, decision: Any) -> None:
        if "another of its pods" in decision.message:
            self.given_back.append(decision.pod.name)
            self.has_given_back.set()
        self._note("unschedulable", decision.pod, decision.message)

    def held(self, pod: Any, why: str) -> None:
        self._note("held", pod, why)

    def waiting(self, pod: Any, why: str) -> None:
        self._note("waiting", pod, why)

    def failed(self, pod: Any, why: str) -> None:
        raise AssertionError(why)

    def preempted(self, victim: Any, *, by: Any, node_name: str) -> None:
        self.times["preempted"] += 1
        self.has_evicted.set()

    def nominated(self, pod: Any, node_name: str) -> None:
        self.times["nominated"] += 1

    def bound(self, pod: Any, node_name: str, *, by_us: bool) -> None:
        self.times["bound"] += 1

    def _note(self, what: str, pod: Any, why: str) -> None:
        self.times[what] += 1
        self.texts[pod.name].append(why)

    def begin(self, **_: Any) -> bool:
        return False

    async def bind(self, *, node: str, **_: Any) -> Outcome:
        await asyncio.sleep(0)
        return Bound(node)

    async def try_evict(self, victim: Any) -> None:
        pass

    async def evict(self, victim: Any) -> None:
        await asyncio.sleep(0)


class GangStage:
    """A scheduler, its nodes, and pods that the watch brings; tick: seconds that a look at its stopwatch takes.

    more: of the context of the scheduler, such as `claims`.
    """

    def __init__(self, *, nodes: int, cpus: int, policy: str = GANG, tick: float = 1e-5, **more: Any) -> None:
        self.told = Told()
        told: Any = self.told
        steady, ticks = asyncio.get_running_loop().time, itertools.count()
        self.scheduler = Scheduler(
            context_of(
                told,
                observer=Observer(),
                clock=lambda: START + steady(),
                stopwatch=lambda: next(ticks) * tick,
                **more,
            )
        )
        self.scheduler.use_policies(policies_of(policy))
        for number in range(nodes):
            self.add_node(f"n{number}", cpus=cpus)
        self.pods: dict[str, objects.Pod] = {}
        """By name, the last that the watch has shown."""
        self._task = asyncio.create_task(self.scheduler.run())

    def add_node(self, name: str, *, cpus: int) -> None:
        """Let the watch show a node."""
        status = {"allocatable": {"cpu": str(cpus), "memory": "256Gi", "pods": "1000"}}
        node = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status}
        self.scheduler.event_handlers.node_changed(msgspec.convert(node, objects.Node))

    def pod(self, name: str, *, job: str = "", size: int = 0, priority: int = 0, node: str = "") -> None:
        """Let the watch show a pod that requests one core."""
        spec = {
            "schedulerName": "policy-scheduler",
            "priority": priority,
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        }
        labels = {"job": job, "size": str(size)} if job else {}
        metadata = objects.ObjectMeta(name=name, namespace="default", uid=name, labels=labels, resource_version="1")
        self.pods[name] = objects.Pod(metadata=metadata, spec=msgspec.convert(spec, objects.PodSpec))
        self.scheduler.event_handlers.pod_changed(self.pods[name])

    def delete(self, name: str) -> None:
        """Let the watch show that a pod is gone."""
        self.scheduler.event_handlers.pod_deleted(self.pods.pop(name))


def calls_of(story: Callable[[int], Awaitable[object]], size: int) -> int:
    """Return how many functions a story of a size calls, Python's own included."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    async def main() -> None:
        sys.setprofile(count)
        try:
            await story(size)
        finally:
            sys.setprofile(None)

    run(main())
    return calls
