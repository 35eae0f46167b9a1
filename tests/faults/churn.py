"""Thousands of pods are created and deleted through the daemon's core; measures the memory that it keeps.

`python -m tests.faults.churn --pods 200000` prints memory as it goes: informer, queue, decisions, bindings, decision
log, metrics and events are the real ones; the API server answers from memory.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.binding import Bound, Outcome
from kube_policy_scheduler.adapters.kube.errors import error_from_answer
from kube_policy_scheduler.adapters.kube.events import EventRecorder
from kube_policy_scheduler.adapters.kube.pod_group_status import PodGroupStatusWriter
from kube_policy_scheduler.adapters.kube.pod_status import PodStatusWriter
from kube_policy_scheduler.adapters.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.observers import Observers
from kube_policy_scheduler.daemon.observing.reporter import ApiReporter
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.invariants import violations
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from kube_policy_scheduler.policy.policy_set import load
from tests.fakes.scheduler_context import context_of

POLICY = """
gang by pod.label.job size 2 within 30s if pod.label.job
limit count() by pod.label.tenant to 500
spread by pod.label.app
score node.free.cpu
"""
NODES = 20
ALIVE = 300
"""Pods on nodes at the same time."""


class Answers:
    """An API server that takes every binding and event, and answers 404 for every pod."""

    is_reachable = may_begin = True

    def dedicated(self, **_: Any) -> Answers:
        return self

    async def request(self, verb: str, path: str, **_: Any) -> bytes:
        await asyncio.sleep(0)
        if "/pods/" in path:
            raise error_from_answer(404, b'{"message":"gone","reason":"NotFound","code":404}')
        return b"{}"

    def begin(self, request: Any = None, done: Any = None, *, node: str = "", **_: Any) -> bool:
        """Bind a pod, or send an event, without a task."""
        asyncio.get_running_loop().call_soon(done, Bound(node) if request is None else b"{}")
        return True

    async def bind(self, *, node: str, **_: Any) -> Outcome:
        await asyncio.sleep(0)
        return Bound(node)

    unfinished = 0


class Churn:
    """The core of a daemon, with pods that come and go."""

    def __init__(self) -> None:
        answers: Any = Answers()
        random = Random(1)
        self.metrics = SchedulerMetrics(version=lambda: "1")
        counts = ClauseCounts()
        self.log = DecisionLog(
            DecisionLogSettings(kept=2000, detail_share=0.02),
            seed=0,
            replica="r",
            stopwatch=time.perf_counter,
            counts=counts,
        )
        self.observers = Observers([self.metrics, self.log, _Placed(self)])
        self.events = EventRecorder(answers, controller="c", instance="i", random=random)
        self.statuses = PodStatusWriter(answers, random=random)
        self.cluster, self.queue = Cluster(), SchedulingQueue()
        groups = PodGroupStatusWriter(
            answers, POD_GROUPS, find=partial(self.cluster.get, objects.PodGroup), random=random
        )
        composites = PodGroupStatusWriter(
            answers, COMPOSITE_POD_GROUPS, find=partial(self.cluster.get, objects.CompositePodGroup), random=random
        )
        self.scheduler = Scheduler(
            context_of(
                answers,
                self.cluster,
                self.queue,
                cycle=Cycle(seed=0),
                reporter=ApiReporter(self.events, self.statuses, groups, composites, parents=lambda key: ()),
                observer=self.observers,
            )
        )
        found = load([Source("p.policy", POLICY)]).policy_set
        assert found is not None
        policies = LivePolicies(found, scheduler_names=found.default_schedulers)
        self.scheduler.use_policies(policies)
        self.log.use_policies(policies.policy_set, hash="h")
        for number in range(NODES):
            self.scheduler.event_handlers.node_changed(_node(f"n{number}"))
        self.bound: deque[objects.Pod] = deque()
        self.pending: dict[str, objects.Pod] = {}
        self._made = 0
        self._spec = msgspec.convert(
            {
                "schedulerName": "policy-scheduler",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
            },
            objects.PodSpec,
        )

    def placed(self, uid: str, node_name: str) -> None:
        """Show by the watch that a pod is bound."""
        pod = self.pending.pop(uid)
        spec = msgspec.structs.replace(pod.spec, node_name=node_name)
        seen = msgspec.structs.replace(pod, spec=spec)
        self.scheduler.event_handlers.pod_changed(seen)
        self.bound.append(seen)

    def create(self) -> None:
        """Let one more pod come: most can be placed, some never fit, some are held, some wait for a group."""
        self._made += 1
        number = self._made
        labels = {"app": f"app{number % 50}", "tenant": f"t{number // 1000}", "only": str(number)}
        spec = self._spec
        if number % 10 == 0:
            labels["job"] = f"job{number // 20}"
        if number % 17 == 0:
            spec = msgspec.structs.replace(spec, node_selector={"no": str(number)})
        if number % 23 == 0:
            spec = msgspec.structs.replace(spec, scheduling_gates=[objects.SchedulingGate(name=f"g{number}")])
        metadata = objects.ObjectMeta(
            name=f"pod-{number}",
            namespace=f"ns{number % 7}",
            uid=f"uid-{number}",
            labels=labels,
            resource_version=str(number),
        )
        pod = objects.Pod(metadata=metadata, spec=spec)
        self.pending[metadata.uid] = pod
        self.scheduler.event_handlers.pod_changed(pod)

    async def run(self, pods: int, *, told: Callable[[int], None], every: int) -> None:
        """Create so many, and delete each some time later."""
        tasks = [asyncio.create_task(work) for work in (self.scheduler.run(), self.events.run(), self.statuses.run())]
        try:
            while self._made < pods:
                for _ in range(50):
                    self.create()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                while len(self.bound) > ALIVE:
                    self.scheduler.event_handlers.pod_deleted(self.bound.popleft())
                while len(self.pending) > ALIVE:
                    uid = next(iter(self.pending))
                    self.scheduler.event_handlers.pod_deleted(self.pending.pop(uid))
                if self._made % every == 0:
                    told(self._made)
            for uid in list(self.pending):
                self.scheduler.event_handlers.pod_deleted(self.pending.pop(uid))
            await self.scheduler.drained()
            while self.bound:
                self.scheduler.event_handlers.pod_deleted(self.bound.popleft())
            assert await self.statuses.drain(timeout_seconds=60.0)
            assert await self.events.drain(timeout_seconds=60.0)
            assert all(not task.done() for task in tasks), [task.exception() for task in tasks if task.done()]
            assert violations(self.cluster, self.queue, self.scheduler.cluster.assumed) == []
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Placed:
    """Shows bindings to the informer, as the watch would."""

    def __init__(self, churn: Churn) -> None:
        self._churn = churn

    def __getattr__(self, name: str) -> Callable[[Any], None]:
        return lambda _: None

    def on_bound(self, bound: Any) -> None:
        if bound.pod.uid in self._churn.pending:
            self._churn.placed(bound.pod.uid, bound.node_name)


def _node(name: str) -> objects.Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
        },
        objects.Node,
    )


def sizes(churn: Churn) -> dict[str, int]:
    """Return how many things are kept, by where."""
    queue, handlers, counters = churn.queue, churn.scheduler.event_handlers, churn.cluster.counters
    kept: dict[str, Any] = {
        "pods": churn.cluster.pods,
        "placed on": churn.cluster._elsewhere,
        "pods on unknown nodes": churn.cluster.on_unknown_nodes,
        "templates": churn.cluster.templates._by_key,
        "recent templates": churn.cluster.templates._recent,
        "queue": queue,
        "active heaps": queue._active._ordered.tickets() if queue._active._ordered is not None else (),
        "slots": [entry for heap in queue._active._slots._heaps.values() for entry in heap],
        "fair shares": queue._active._slots._tags,
        "back-off heap": queue._backoff._heap,
        "held": list(queue.gated()),
        "untold": queue._unreported,
        "to be asked again": queue._ask_again,
        "groups": [uid for group in queue._groups for uid in group.pods],
        "waiting for": [uid for waiting in queue._unschedulable._by_event.values() for uid in waiting],
        "assumed": churn.cluster.assumed,
        "returns": handlers._returns,
        "foreign": handlers._foreign,
        "gangs planned": list(churn.scheduler.waiting_pods.gangs),
        "counters": counters._counters,
        "terms that came or went": counters._carried_changes._entries,
        "counted templates": counters._placed,
        "kept totals": counters._kept,
        "events": churn.events,
        "series": churn.events._series,
        "statuses": churn.statuses,
        "log": churn.log._entries,
        "log by pod": churn.log._latest,
        "profiles": churn.cluster.nodes._static,
        "samples": list(churn.metrics.registry.collect()),
    }
    return {name: len(things) for name, things in kept.items()}


def resident_mb() -> float:
    """Return the resident memory of this process."""
    gc.collect()
    import psutil  # type: ignore[import-untyped]

    return float(psutil.Process().memory_info().rss) / 1e6


def main(arguments: list[str]) -> int:
    """Print memory as pods come and go; return 1 where it grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.churn", description=__doc__)
    parser.add_argument("--pods", type=int, default=200_000)
    parser.add_argument("--most-growth-mb", type=float, default=10.0, help="from a quarter of the way to the end")
    given = parser.parse_args(arguments)
    logging.disable()
    every = max(given.pods // 20 // 50, 1) * 50
    seen: list[tuple[int, float]] = []
    churn_of: list[Churn] = []
    began = time.monotonic()

    def told(made: int) -> None:
        seen.append((made, resident_mb()))
        rows = ", ".join(f"{name} {number}" for name, number in sizes(churn_of[0]).items() if number)
        print(f"{made:>8,} pods, {seen[-1][1]:.1f} MB, {time.monotonic() - began:.0f} s: {rows}", flush=True)

    async def run() -> None:
        churn_of.append(Churn())
        await churn_of[0].run(given.pods, told=told, every=every)

    asyncio.run(run())
    grown = seen[-1][1] - seen[len(seen) // 4][1]
    print(f"grew by {grown:.1f} MB over the last three quarters")
    return 1 if grown > given.most_growth_mb else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
