"""scheduler_perf's SchedulingWhileGated: pods are bound to one node while thousands of gated pods wait."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from tests.benchmarks.decisions import Measurement, quiet
from tests.benchmarks.manifests import node, pod
from tests.benchmarks.reference import Reference
from tests.benchmarks.scale.site import KUBERNETES_RULES, Hands
from tests.fakes.scheduler_context import context_of
from tests.simulation.chaos import policies_of

NAME = "SchedulingWhileGated"
_GATED = 10_000


async def measure_gated(reference: Reference, *, gated: int = _GATED, pods: int = 2_000) -> Measurement:
    """Let the watch show pods beside gated ones, and wait until they are bound; p50 and p99 are not measured."""
    hands = Hands()
    parts: Any = hands
    scheduler = Scheduler(context_of(parts, observer=Observer()))
    scheduler.use_policies(policies_of(KUBERNETES_RULES))
    handlers = scheduler.event_handlers
    manifest = node("node-0")
    manifest["status"]["allocatable"] = {"cpu": "90000", "memory": "9000Gi", "pods": "90000"}
    handlers.node_changed(msgspec.convert(manifest, objects.Node))
    for number in range(gated):
        handlers.pod_changed(_pod(f"gated-{number}", schedulingGates=[{"name": "example.com/wait"}]))
    come = [_pod(f"pod-{number}") for number in range(pods)]
    turn = reference.seconds()
    with quiet():
        began = time.process_time()
        running = asyncio.create_task(scheduler.run())
        for one in come:
            handlers.pod_changed(one)
        while hands.bound_pods < pods:
            assert not running.done(), running.exception()
            await asyncio.sleep(0.001)
        spent = time.process_time() - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await scheduler.drained()
    turn = (turn + reference.seconds()) / 2
    return Measurement(NAME, 1, 0, pods, spent / pods * 1e6, 0.0, 0.0, spent / pods / turn)


def _pod(name: str, **spec: Any) -> objects.Pod:
    manifest = pod(name, cpu="1m", memory="1Mi", schedulerName="policy-scheduler", **spec)
    manifest["metadata"]["resourceVersion"] = "1"
    return msgspec.convert(manifest, objects.Pod)
