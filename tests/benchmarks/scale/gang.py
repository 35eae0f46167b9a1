"""A gang at full size: from the watch's events of its pods to the last binding."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import msgspec

from kube_policy_scheduler.cluster import objects
from tests.benchmarks.decisions import quiet
from tests.benchmarks.manifests import pod
from tests.benchmarks.reference import Reference
from tests.benchmarks.scale.site import KUBERNETES_RULES, Site
from tests.simulation.chaos import policies_of

_POLICY = "gang by pod.label.job size number(pod.label.size) within 600s if pod.label.job\n" + KUBERNETES_RULES


@dataclass(frozen=True)
class Gang:
    """What a gang cost."""

    nodes: int
    pods: int
    cpu_seconds: float
    relative: float
    goal_seconds: float = 0.5
    before_seconds: float = 2.9


async def measure_gang(site: Site, reference: Reference, *, pods: int = 1_000) -> Gang:
    """Let the watch show a gang, and wait until all of it is bound."""
    scheduler = site.scheduler
    scheduler.use_policies(policies_of(_POLICY))
    members = [_member(number, pods) for number in range(pods)]
    bound_before = site.hands.bound_pods
    turn = reference.seconds()
    with quiet():
        running = asyncio.create_task(scheduler.run())
        began = time.process_time()
        for member in members:
            scheduler.event_handlers.pod_changed(member)
        while site.hands.bound_pods - bound_before < pods:
            assert not running.done(), running.exception()
            await asyncio.sleep(0.001)
        spent = time.process_time() - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await scheduler.drained()
    for member in members:
        scheduler.event_handlers.pod_deleted(member)
    scheduler.use_policies(policies_of(KUBERNETES_RULES))
    return Gang(site.nodes, pods, spent, spent / ((turn + reference.seconds()) / 2))


def _member(number: int, size: int) -> objects.Pod:
    manifest = pod(f"gang-{number}", labels={"job": "train", "size": str(size)}, schedulerName="policy-scheduler")
    manifest["metadata"]["resourceVersion"] = "1"
    return msgspec.convert(manifest, objects.Pod)
