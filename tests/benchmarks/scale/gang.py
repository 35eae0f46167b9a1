"""Gangs at full size, and gangs in racks on 5,000 nodes: from the watch's events of their pods to the last binding."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from tests.benchmarks.decisions import Measurement, quiet
from tests.benchmarks.manifests import node, pod
from tests.benchmarks.reference import Reference
from tests.benchmarks.scale.site import KUBERNETES_RULES, Hands, Site
from tests.fakes.scheduler_context import context_of
from tests.simulation.chaos import policies_of

_GANG = "gang by pod.label.job size number(pod.label.size) within 600s"
_POLICY = f"{_GANG} if pod.label.job\n{KUBERNETES_RULES}"
_IN_RACKS = f"{_GANG} within one rack if pod.label.job\n{KUBERNETES_RULES}"
RACK_SIZES = ((750, 4), (3, 1_000))
"""Gangs in one rack each, and the pods of each."""
RACK_NODES, RACKS = 5_000, 50
RACK_PODS_PER_SECOND = 1_500.0
"""The goal, per second of CPU time."""
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
    turn = reference.seconds()
    members, spent = await _bound(scheduler, site.hands, gangs=gangs, size=size)
    for member in members:
        scheduler.event_handlers.pod_deleted(member)
    scheduler.use_policies(policies_of(KUBERNETES_RULES))
    return Gangs(site.nodes, gangs, size, spent, spent / ((turn + reference.seconds()) / 2))


async def measure_gangs_in_racks(
    reference: Reference, *, gangs: int, size: int, nodes: int = RACK_NODES, racks: int = RACKS
) -> Measurement:
    """Measure gangs that each must be in one rack, on nodes without other pods; p50 and p99 are not measured."""
    hands = Hands()
    parts: Any = hands
    scheduler = Scheduler(context_of(parts, observer=Observer()))
    scheduler.use_policies(policies_of(_IN_RACKS))
    for number in range(nodes):
        made = node(f"node-{number}", zone=f"zone-{number % 3}", labels={"rack": f"rack-{number % racks}"})
        scheduler.event_handlers.node_changed(msgspec.convert(made, objects.Node))
    turn = reference.seconds()
    _, spent = await _bound(scheduler, hands, gangs=gangs, size=size)
    pods, turn = gangs * size, (turn + reference.seconds()) / 2
    return Measurement(racks_row(gangs, size), nodes, 0, pods, spent / pods * 1e6, 0.0, 0.0, spent / pods / turn)


def racks_row(gangs: int, size: int) -> str:
    """Return the name of the row of so many gangs in racks."""
    return f"gangs in racks {gangs}x{size}"


async def _bound(scheduler: Scheduler, hands: Hands, *, gangs: int, size: int) -> tuple[list[objects.Pod], float]:
    """Let the watch show gangs; return their pods once all are bound, and the seconds of CPU time that it took."""
    members = [_member(gang, number, size) for gang in range(gangs) for number in range(size)]
    bound_before = hands.bound_pods
    with quiet():
        running = asyncio.create_task(scheduler.run())
        began = time.process_time()
        for member in members:
            scheduler.event_handlers.pod_changed(member)
        while hands.bound_pods - bound_before < len(members):
            assert not running.done(), running.exception()
            await asyncio.sleep(0.001)
        spent = time.process_time() - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await scheduler.drained()
    return members, spent


def _member(gang: int, number: int, size: int) -> objects.Pod:
    labels = {"job": f"train-{gang}", "size": str(size)}
    manifest = pod(f"gang-{gang}-{number}", labels=labels, schedulerName="policy-scheduler")
    manifest["metadata"]["resourceVersion"] = "1"
    return msgspec.convert(manifest, objects.Pod)
