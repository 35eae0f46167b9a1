"""The three measurements: pods that wait, bound as fast as can be; pods that come at a rate; a scheduler's start."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.benchmarks.end_to_end.api import Api, together
from tests.benchmarks.end_to_end.processes import KUBERNETES_SCORES, LEASES, Process, scene
from tests.benchmarks.end_to_end.stages import quantiles
from tests.benchmarks.end_to_end.workloads import WORKLOADS, Workload, overfull, pod

TIMEOUT_SECONDS = 300.0
WARM_UP_PODS = 20
"""Created one after the other before latency is measured: connections are open then, and caches warm."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """One workload under one scheduler."""

    scheduler: str
    workload: str
    nodes: int
    pods: int
    pods_per_second: float
    """From the first to the last binding, as seen by a watch of the API server."""
    cpu_millis_per_pod: float
    """The scheduler's, from being let go until the last pod's event is written."""
    rss_mb: float
    peak_rss_mb: float
    last_event_seconds: float
    """From the last binding to the last event."""
    events: int
    wrong: list[str]
    load_average: float
    """When the scheduler was let go."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Pods created at a rate, from just before the request that creates one until a watch shows it bound."""

    scheduler: str
    nodes: int
    pods_per_second: int
    created_per_second: float
    """What was reached: a busy machine does not keep up."""
    p50_millis: float
    p90_millis: float
    p99_millis: float
    max_millis: float
    bound: int
    stages: dict[str, list[float]] = field(default_factory=dict)
    """Where the time of ours goes: p50, p90 and p99 in ms from stage to stage."""
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Start:
    """From the start of the process until the first pod is seen to be bound."""

    scheduler: str
    nodes: int
    pods: int
    first_binding_seconds: float


async def throughput(
    kind: str,
    workload: Workload,
    *,
    nodes: int,
    pods: int,
    policy: str = KUBERNETES_SCORES,
    profile: Path | None = None,
) -> Throughput:
    """Create everything, let a scheduler fill its caches, start it, and wait until all is bound and reported."""
    async with scene() as seen:
        await together(seen.api.send("POST", *thing) for thing in workload.things(nodes=nodes, pods=pods))
        await seen.api.fill(nodes=nodes, pods=(workload.pod(number) for number in range(pods)))
        release = await seen.api.hold_lease(LEASES[kind])
        with seen.scheduler(kind, policy=policy, profile=profile, groups=bool(workload.gang)) as process:
            await process.idle()
            bound: dict[str, float] = {}
            watching = asyncio.Event()
            watch = seen.api.watch_bound(bound, expected=pods, timeout_seconds=TIMEOUT_SECONDS, watching=watching)
            all_bound = asyncio.create_task(watch)
            await watching.wait()
            load_average, cpu_before = os.getloadavg()[0], process.cpu_seconds
            await release()
            await all_bound
            events = await _all_told(seen.api, process, pods)
            events_at, cpu = time.monotonic(), process.cpu_seconds - cpu_before
            placement = await seen.api.placement()
            twice = await seen.api.devices_allocated_twice() if workload.claims else []
            first, last = min(bound.values(), default=0.0), max(bound.values(), default=0.0)
            return Throughput(
                scheduler=kind,
                workload=workload.name,
                nodes=nodes,
                pods=pods,
                pods_per_second=round(len(bound) / (last - first), 1) if last > first else 0.0,
                cpu_millis_per_pod=round(1000 * cpu / max(1, len(bound)), 3),
                rss_mb=round(process.rss_mb, 1),
                peak_rss_mb=round(process.peak_rss_mb, 1),
                last_event_seconds=round(events_at - last, 2),
                events=events,
                wrong=[
                    *overfull(placement),
                    *workload.problems(placement),
                    *twice,
                    *_missing_events(events, pods),
                    *_forbidden(process),
                ],
                load_average=round(load_average, 2),
            )


async def latency(kind: str, *, nodes: int, pods_per_second: int, seconds: float) -> Latency:
    """Create pods at a steady rate."""
    async with scene() as seen:
        await seen.api.fill(nodes=nodes, pods=())
        created: dict[str, float] = {}
        bound: dict[str, float] = {}
        stages = seen.directory / "stages.json"
        with seen.scheduler(kind, stages=stages) as process:
            await process.idle()
            total = int(pods_per_second * seconds)
            watching = asyncio.Event()
            patience = seconds + 60
            expected = total + WARM_UP_PODS
            watch = seen.api.watch_bound(bound, expected=expected, timeout_seconds=patience, watching=watching)
            all_bound = asyncio.create_task(watch)
            await watching.wait()
            for number in range(WARM_UP_PODS):
                await seen.api.create_pod(pod(f"warm-{number}"))
            await asyncio.sleep(1)
            async with asyncio.TaskGroup() as group:
                began = time.monotonic()
                for number in range(total):
                    await asyncio.sleep(max(0.0, began + number / pods_per_second - time.monotonic()))
                    name = f"pod-{number:06d}"
                    made = pod(name)
                    created[name] = time.monotonic()
                    group.create_task(seen.api.create_pod(made))
            await all_bound
        took = np.array([bound[name] - at for name, at in created.items() if name in bound]) * 1e3
        p50, p90, p99 = np.percentile(took, (50, 90, 99)) if len(took) else (np.nan,) * 3
        return Latency(
            scheduler=kind,
            nodes=nodes,
            pods_per_second=pods_per_second,
            created_per_second=round(total / (max(created.values()) - began + 1 / pods_per_second), 1),
            p50_millis=round(float(p50), 1),
            p90_millis=round(float(p90), 1),
            p99_millis=round(float(p99), 1),
            max_millis=round(float(took.max(initial=0.0)), 1),
            bound=len(bound),
            stages=quantiles(created, json.loads(stages.read_bytes()), bound) if stages.exists() else {},
            wrong=overfull(await seen.api.placement()),
        )


async def start(kind: str, *, nodes: int, pods: int) -> Start:
    """Start a scheduler where everything waits for it already."""
    async with scene() as seen:
        plain = WORKLOADS[0]
        await seen.api.fill(nodes=nodes, pods=(plain.pod(number) for number in range(pods)))
        bound: dict[str, float] = {}
        watching = asyncio.Event()
        watch = seen.api.watch_bound(bound, expected=1, timeout_seconds=TIMEOUT_SECONDS, watching=watching)
        first = asyncio.create_task(watch)
        await watching.wait()
        began = time.monotonic()
        with seen.scheduler(kind):
            await first
        return Start(kind, nodes, pods, round(min(bound.values(), default=float("nan")) - began, 2))


async def _all_told(api: Api, process: Process, pods: int) -> int:
    """Wait until every pod has its event, or the scheduler has ended; return how many there are."""
    events = 0
    for _ in range(600):
        events = await api.event_total()
        if events >= pods or not process.is_running:
            break
        await asyncio.sleep(0.2)
    return events


def _forbidden(process: Process) -> list[str]:
    """Return what the account of the scheduler may not do: it would have less to do than it should."""
    return [line for line in process.log.splitlines() if "forbidden" in line][:1]


def _missing_events(events: int, pods: int) -> list[str]:
    return [] if events >= pods else [f"{pods - events} pods have no event"]
