"""Gangs at full size: from the watch's events of their pods to the last binding."""

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
SIZES = ((1, 1_000), (3, 1_000), (750, 4))
"""Gangs, and the pods of each: the goal's, and those of scheduler_perf."""


def gang_row(gangs: int, size: int) -> str:
    """Return the name of the row of so many gangs."""
    return "gang" if (gangs, size) == SIZES[0] else f"gang {gangs}x{size}"


@dataclass(frozen=True)
class Gangs:
    """What some gangs of one size cost."""

    nodes: int
    gangs: int
    size: int
    """Pods of each gang."""
    cpu_seconds: float
    relative: float
    goal_seconds: float = 0.5
    """For one gang of 1,000."""
    before_seconds: float = 2.9

    @property
    def name(self) -> str:
        """Return which row it is."""
        return gang_row(self.gangs, self.size)

    @property
    def per_second(self) -> float:
        """Return pods per second of CPU time."""
        return self.gangs * self.size / self.cpu_seconds


async def measure_gangs(site: Site, reference: Reference, *, gangs: int = 1, size: int = 1_000) -> Gangs:
    """Let the watch show gangs, and wait until all of their pods are bound."""
    scheduler = site.scheduler
    scheduler.use_policies(policies_of(_POLICY))
    members = [_member(gang, number, size) for gang in range(gangs) for number in range(size)]
    bound_before = site.hands.bound_pods
    turn = reference.seconds()
    with quiet():
        running = asyncio.create_task(scheduler.run())
        began = time.process_time()
        for member in members:
            scheduler.event_handlers.pod_changed(member)
        while site.hands.bound_pods - bound_before < len(members):
            assert not running.done(), running.exception()
            await asyncio.sleep(0.001)
        spent = time.process_time() - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await scheduler.drained()
    for member in members:
        scheduler.event_handlers.pod_deleted(member)
    scheduler.use_policies(policies_of(KUBERNETES_RULES))
    return Gangs(site.nodes, gangs, size, spent, spent / ((turn + reference.seconds()) / 2))


def _member(gang: int, number: int, size: int) -> objects.Pod:
    labels = {"job": f"train-{gang}", "size": str(size)}
    manifest = pod(f"gang-{gang}-{number}", labels=labels, schedulerName="policy-scheduler")
    manifest["metadata"]["resourceVersion"] = "1"
    return msgspec.convert(manifest, objects.Pod)
