"""Queues with ever more units, ever more queues, and ever more gangs that wait: what a pod of a queue goes through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.growth.stage import NODES, Json, Meter, Stage, container

GANG = "gang by pod.label.job size 2 if pod.label.job\n"
DEPARTMENTS = 10
ROOM = NODES * 1_000_000
"""Of all nodes of a stage, in thousandths of a cpu."""


@dataclass(frozen=True)
class Scene:
    """A policy and pods that are there, of which there are so many."""

    name: str
    policy: Callable[[int], str]
    make: Callable[[Stage, int], None]
    millis: Callable[[int], int]
    """What the pods request that come then."""
    borrower: str = "b"
    """The queue of pods without a guarantee that come then."""


def _pod(stage: Stage, queue: str, millis: int, **labels: str) -> Any:
    body: Json = {
        "metadata": {"labels": {"q": queue, **labels}},
        "spec": {"containers": [container(cpu=f"{millis}m")]},
    }
    return stage.pod("tenant", body)


def _filled(stage: Stage, n: int) -> None:
    """Let n pods of a queue that is guaranteed nothing fill all nodes."""
    for number in range(n):
        stage.place(_pod(stage, "b", ROOM // n), number)


def _filled_by_all(stage: Stage, n: int) -> None:
    """Let a pod of each of n queues fill all nodes."""
    for number in range(n):
        stage.place(_pod(stage, f"b{number}", ROOM // n, d=f"d{number % DEPARTMENTS}"), number)


def _waiting_gangs(stage: Stage, n: int) -> None:
    """Let n gangs of two wait, each too large for what is left by one pod that fills all but one node."""
    for number in range(NODES):
        stage.place(_pod(stage, "b", 600_000), number)
    for number in range(n):
        for _ in range(2):
            stage.event_handlers.pod_changed(_pod(stage, "b", 500_000, job=f"g{number}"))
    stage.decide()


def _two_queues(n: int) -> str:
    return 'queue a for pods where pod.label.q == "a" min cpu 6000\nqueue b for pods where pod.label.q == "b"\n'


def _below_one(n: int) -> str:
    """Return two queues whose guarantee is that of the one above both: most borrowers are guaranteed there."""
    lines = ["queue p min cpu 6000", *(f'queue {name} of p for pods where pod.label.q == "{name}"' for name in "ab")]
    return "\n".join([*lines, ""])


def _tree(n: int) -> str:
    """Return a tree of three levels: one queue, ten below it, and below these one for each value of a label."""
    lines = ["queue top"]
    for group in range(DEPARTMENTS):
        lines.append(f'queue d{group} of top for pods where pod.label.d == "d{group}" min cpu 1')
        lines.append(f"queue t{group} of d{group} by pod.label.q")
    return "\n".join(['queue a for pods where pod.label.q == "a" min cpu 6000', *lines, ""])


SCENES = (
    Scene("units of a queue", lambda n: _two_queues(n) + "reclaim\n", _filled, lambda n: ROOM // n),
    Scene("units of a queue, fair", lambda n: _two_queues(n) + "reclaim fair\n", _filled, lambda n: ROOM // n),
    Scene("units below a guarantee", lambda n: _below_one(n) + "reclaim fair\n", _filled, lambda n: 8 * ROOM // n),
    Scene("queues of a tree", lambda n: _tree(n) + "reclaim\n", _filled_by_all, lambda n: ROOM // n, "b1"),
    Scene("queues of a tree, fair", lambda n: _tree(n) + "reclaim fair\n", _filled_by_all, lambda n: ROOM // n, "b1"),
    Scene("gangs that wait", lambda n: _two_queues(n) + GANG + "reclaim\n", _waiting_gangs, lambda n: 100_000),
)


async def beside(scene: Scene, n: int, meter: Meter) -> None:
    """Let pods with and without a guarantee come, be decided with and without evictions, and go."""
    stage = Stage(scene.policy(n))
    scene.make(stage, n)
    await stage.scheduler.drained()
    millis = scene.millis(n)

    async def comes(who: str, pod: Any) -> None:
        meter.step(f"{who} comes", lambda: (stage.event_handlers.pod_changed(pod), stage.move_pods()))
        meter.step(f"{who} is decided", stage.decide)
        await stage.scheduler.drained()

    for time in ("first", "second"):
        guaranteed = _pod(stage, "a", millis)
        await comes(f"{time} guaranteed pod", guaranteed)
        borrower = _pod(stage, scene.borrower, millis, d="d1")
        await comes(f"{time} borrower", borrower)
        gone = _pod(stage, "a", millis)
        stage.place(gone, 0)
        meter.step(f"{time} pod goes", lambda pod=gone: (stage.event_handlers.pod_deleted(pod), stage.move_pods()))
        meter.step(f"{time} time others are decided", stage.decide)
        await stage.scheduler.drained()


def measure(scene: Scene, n: int, meter: Meter) -> dict[str, float]:
    """Return what each step took with n things."""

    async def main() -> None:
        await beside(scene, n, meter)

    logging.disable()
    try:
        run: Coroutine[Any, Any, None] = main()
        asyncio.run(run)
    finally:
        logging.disable(logging.NOTSET)
    return meter.taken


PODS_A_NODE = 4


async def _gang_evicts(members: int, meter: Meter) -> None:
    gang = f"gang by pod.label.job size {members} if pod.label.job\nreclaim\n"
    stage = Stage(_two_queues(0).replace("6000", "1000000") + gang, nodes=2 * members)
    millis = ROOM // NODES
    for number in range(PODS_A_NODE * stage.nodes):
        stage.place(_pod(stage, "b", millis // PODS_A_NODE), number)
    for _ in range(members):
        stage.event_handlers.pod_changed(_pod(stage, "a", millis, job="j"))
    stage.move_pods()
    meter.step("gang is decided", stage.decide)
    await stage.scheduler.drained()


def measure_gang(members: int, meter: Meter) -> dict[str, float]:
    """Return what it takes to decide a gang, each of whose members takes a node from some borrowers."""
    logging.disable()
    try:
        asyncio.run(_gang_evicts(members, meter))
    finally:
        logging.disable(logging.NOTSET)
    return meter.taken
