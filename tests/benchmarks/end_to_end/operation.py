"""`python -m tests.benchmarks.end_to_end.operation`: what an operator waits and pays for when nothing much happens.

From the swap of the policy folder, as the kubelet makes it, to the first pod that is bound by the new policy; and the
CPU of a scheduler without pods to place, alone and while each node is updated every five minutes, as kubelets do it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from statistics import median

import msgspec

from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.benchmarks.end_to_end.api import PODS, Api
from tests.benchmarks.end_to_end.processes import Process, Scene, end_in_order, scene
from tests.benchmarks.end_to_end.workloads import ZONES, node_name, pod, zone_of
from tests.fakes.configmap_volume import ConfigMapVolume

PATIENCE_SECONDS = 60.0
HEARTBEAT_SECONDS = 300.0
"""How often a kubelet writes its node's status where nothing changes."""


async def swaps(*, nodes: int, times: int) -> list[float]:
    """Return how long each of some new policies took to decide, in seconds."""
    async with scene() as there:
        await there.api.fill(nodes=nodes, pods=())
        volume = ConfigMapVolume(there.directory / "policies")
        volume.update({"bench.policy": _only(0)})
        with there.scheduler("ours", policy=_only(0)) as process:
            await process.idle()
            bound: dict[str, float] = {}
            watching = asyncio.Event()
            watch = there.api.watch_bound(bound, expected=10**9, timeout_seconds=3600, watching=watching)
            task = asyncio.create_task(watch)
            await watching.wait()
            names = (f"pod-{number:06d}" for number in count())
            try:
                found = []
                for turn in range(1, times + 1):
                    at = time.monotonic()
                    volume.update({"bench.policy": _only(turn % ZONES)})
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        found.append(await _first_in(f"zone-{turn % ZONES}", there.api, bound, names=names) - at)
                    await asyncio.sleep(1.0)
                return found
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def _only(zone: int) -> str:
    return f"filter label topology.kubernetes.io/zone=zone-{zone}\n"


async def _first_in(zone: str, api: Api, bound: dict[str, float], *, names: Iterator[str]) -> float:
    """Create pods, one after the other, until one is bound in a zone; return when that was."""
    while True:
        name = next(names)
        await api.create_pod(pod(name))
        while name not in bound:  # noqa: ASYNC110 (a watch fills it)
            await asyncio.sleep(0.002)
        found = await api.get(f"{PODS}/{name}")
        if zone_of(found["spec"]["nodeName"]) == zone:
            return bound[name]


async def idle(*, nodes: int, seconds: float) -> tuple[float, float]:
    """Return the shares of a core that a scheduler takes: alone, and while nodes are updated."""
    async with scene() as there:
        await there.api.fill(nodes=nodes, pods=())
        with there.scheduler("ours") as process:
            await process.idle()
            alone = await _share(process, seconds)
            beating = asyncio.create_task(_beat(there, nodes))
            try:
                return alone, await _share(process, seconds)
            finally:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)


async def _share(process: Process, seconds: float) -> float:
    before, began = process.cpu_seconds, time.monotonic()
    await asyncio.sleep(seconds)
    return (process.cpu_seconds - before) / (time.monotonic() - began)


async def _beat(there: Scene, nodes: int) -> None:
    """Write the status of one node after the other, for ever."""
    transport = Transport(find_credentials(kubeconfig=str(there.kubeconfig), context=None), max_connections=2)
    try:
        for number in count():
            beat = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": beat}
            await transport.request(
                "PATCH",
                f"/api/v1/nodes/{node_name(number % nodes)}/status",
                body=msgspec.json.encode({"status": {"conditions": [condition]}}),
                content_type="application/strategic-merge-patch+json",
            )
            await asyncio.sleep(HEARTBEAT_SECONDS / nodes)
    finally:
        await transport.close()


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.end_to_end.operation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--times", type=int, default=20, help="how often the folder is swapped")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long an idle scheduler is looked at")
    given = parser.parse_args(arguments)
    took = asyncio.run(swaps(nodes=given.nodes, times=given.times))
    _say(f"folder swap to the first pod by the new policy: median {median(took):.2f} s, at most {max(took):.2f} s")
    alone, updated = asyncio.run(idle(nodes=given.nodes, seconds=given.seconds))
    rate = given.nodes / HEARTBEAT_SECONDS
    _say(f"idle: {100 * alone:.2f} % of a core, with {rate:.0f} node updates a second {100 * updated:.2f} %")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    end_in_order()
    sys.exit(main(sys.argv[1:]))
