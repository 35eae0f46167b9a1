"""Overload: the scheduler keeps deciding and answering, and its memory is bounded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from kube_policy_scheduler.embedded import EmbeddedCluster
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.faults.accounts import books_right
from tests.faults.conftest import Size
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import Json, node, pod
from tests.integration.process import SchedulerProcess

ROOM = 10
"""Pods that a node takes."""


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """A cluster without credentials, for many pods."""
    with EmbeddedCluster(history_limit=400_000).in_thread() as serving:
        yield serving


def nodes(number: int) -> list[Json]:
    return [node(f"n{i}", cpu="64", pods=str(ROOM)) for i in range(number)]


def bound(cluster: EmbeddedCluster) -> int:
    """Return how many pods have a node."""
    collection = cluster.api.store.collection("pods")
    return cluster.call(lambda: sum(b'"nodeName"' in entry.body for entry in collection.scan()))


def seconds_to_answer(process: SchedulerProcess, path: str) -> float:
    began = time.monotonic()
    code, text = process.get(path)
    assert code == 200, text
    return time.monotonic() - began


def resident_mb(process: SchedulerProcess) -> float:
    return float(psutil.Process(process.pid).memory_info().rss) / 1e6


@pytest.mark.timeout(900)
def test_many_more_pods_than_there_is_room_for(
    crowd: EmbeddedCluster, scheduler: StartScheduler, policies: ConfigMapVolume, size: Size[int], tmp_path: Path
) -> None:
    pods, room = size(5_000, 100_000), size(40, 200)
    crowd.load(nodes(room))
    crowd.load(
        pod(f"p{i}", cpu="10m", memory="1Mi", namespace=f"team{i % 20}", labels={"app": f"a{i % 100}"})
        for i in range(pods)
    )
    config = tmp_path / "crowd"
    crowd.kubeconfig(config)
    print(f"{pods:,} pods are there", flush=True)
    began = time.monotonic()
    process = scheduler(kubeconfig=config).start_ready()
    ready = time.monotonic() - began
    eventually(lambda: bound(crowd), within=60.0)
    first = time.monotonic() - began
    answers = []
    while (full := bound(crowd)) < room * ROOM:
        answers.append(max(seconds_to_answer(process, path) for path in ("/livez", "/metrics", "/")))
        print(f"{full} of {room * ROOM} places are taken after {time.monotonic() - began:.0f} s", flush=True)
        assert time.monotonic() - began < size(60, 600), f"{full} of {room * ROOM} are bound"
        time.sleep(0.5)
    filled = time.monotonic() - began
    # one that comes now, and for whom there is room, does not wait for all the others
    crowd.load([node("late", cpu="64", pods=str(ROOM), labels={"late": "yes"})])
    crowd.load([pod("late", cpu="10m", memory="1Mi", nodeSelector={"late": "yes"})])
    late_at = time.monotonic()
    eventually(lambda: bound(crowd) > room * ROOM, within=60.0)
    late = time.monotonic() - late_at
    for _ in range(3):
        answers.append(max(seconds_to_answer(process, path) for path in ("/livez", "/metrics", "/")))
    print(
        f"overload: {pods:,} pods for {room * ROOM:,} places: ready {ready:.1f} s, first bound {first:.1f} s, full"
        f" {filled:.1f} s, room made later used after {late:.2f} s, slowest answer {max(answers):.2f} s,"
        f" {resident_mb(process):.0f} MB"
    )
    assert resident_mb(process) < 200 + pods / 1000 * 12
    books_right(process)


@pytest.mark.timeout(300)
def test_a_flood_of_node_updates_while_pods_come(
    crowd: EmbeddedCluster, scheduler: StartScheduler, size: Size[int], tmp_path: Path
) -> None:
    per_second, seconds, machines = size(1_000, 5_000), size(4, 30), size(200, 1_000)
    crowd.load(nodes(machines))
    config = tmp_path / "crowd"
    crowd.kubeconfig(config)
    process = scheduler(kubeconfig=config).start_ready()
    with heartbeats(crowd, machines, per_second) as sent:
        waits = []
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            before, began = bound(crowd), time.monotonic()
            crowd.load([pod(f"p{number}", cpu="10m", memory="1Mi")])
            number += 1
            eventually(lambda before=before: bound(crowd) > before, within=30.0)  # type: ignore[misc]
            waits.append(time.monotonic() - began)
        rate = len(sent) * BATCH / seconds
    lag = time.monotonic()
    crowd.load([node("last", cpu="64", pods="10", labels={"last": "yes"})])
    crowd.load([pod("last", cpu="10m", memory="1Mi", nodeSelector={"last": "yes"})])
    eventually(lambda: bound(crowd) > number, within=30.0)
    print(
        f"flood: {rate:,.0f} node updates a second on {machines:,} nodes, {number} pods: created to bound"
        f" {median(waits) * 1000:.0f} ms median, {quantiles(waits, n=20)[-1] * 1000:.0f} ms p95, most"
        f" {max(waits) * 1000:.0f} ms; caught up {time.monotonic() - lag:.2f} s after it"
    )
    books_right(process)


BATCH = 50


@contextmanager
def heartbeats(cluster: EmbeddedCluster, machines: int, per_second: int) -> Iterator[list[float]]:
    """Have the nodes report their status, so many times a second; each batch is noted."""
    sent: list[float] = []
    going = True
    collection = cluster.api.store.collection("nodes")

    async def beat() -> None:
        loop = asyncio.get_running_loop()
        began, at = loop.time(), 0
        while going:
            for _ in range(BATCH):
                entry = collection.get(("", f"n{at % machines}"))
                assert entry is not None
                changed: dict[str, Any] = entry.decode()
                for condition in changed["status"].get("conditions", ()):
                    condition["lastHeartbeatTime"] = f"2026-11-21T10:{at // 60 % 60:02d}:{at % 60:02d}Z"
                collection.put(changed)
                at += 1
            sent.append(loop.time())
            await asyncio.sleep(max(0.0, began + at / per_second - loop.time()))

    holder: list[asyncio.Task[None]] = []
    cluster.call(lambda: holder.append(asyncio.ensure_future(beat())))
    try:
        yield sent
    finally:
        going = False
        eventually(lambda: holder[0].done())
        assert holder[0].exception() is None
