"""`python -m tests.benchmarks.end_to_end.beside`: two schedulers on the same tight nodes, and what kubelets refuse.

Half of the pods are ours and half are kube-scheduler's; four fill a node. In the `backlog` there are as many pods as
places, and all wait when both schedulers, stopped until then, go on. In the `stream` 99 % of the places are taken, and
each second some pods end and as many come. `contended` is the worst case: all places are taken, pods of both wait, and
both hear of each free place at the same time.

A stand-in for the kubelets takes pods in the order in which the API server shows them, and fails those that their node
has no room for, as a kubelet does; another pod comes for each. Of two pods for the last place of a node, the one that
was bound second is refused. The result is refused pods per 1,000 bound, by who bound them. With `--shares` each
scheduler has half of the nodes, by a label.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.errors import Conflict, NotFound, UnknownOutcome
from tests.benchmarks.end_to_end.api import PODS, Api, together
from tests.benchmarks.end_to_end.processes import KUBERNETES_SCORES, end_in_order, scene, schedulers
from tests.benchmarks.end_to_end.workloads import CPU_MILLIS, SCHEDULER, node_name, pod
from tests.benchmarks.manifests import Json

NAMES = {"ours": SCHEDULER, "kube": "default-scheduler"}
PER_NODE = 4
TRIES = 5
"""How often a request is sent whose answer is lost."""
SHARE = ("example.com/scheduler", "policy-scheduler")
"""Label and value of the nodes that are ours, where nodes are shared out; kube-scheduler has the others."""
SHARE_POLICY = f"filter label {SHARE[0]}={SHARE[1]}\n"
PATIENCE_SECONDS = 120.0
ASKED = {"backlog": 1.0, "stream": 0.99, "contended": 1.2}
"""Pods there are at a time, per place on the nodes."""


@dataclass(slots=True)
class Kubelets:
    """Takes bound pods, or fails them; makes new ones, and ends old ones."""

    api: Api
    bound: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    running: dict[str, str] = field(default_factory=dict)
    """Node by pod, oldest first."""
    _held: Counter[str] = field(default_factory=Counter)
    _known: set[str] = field(default_factory=set)
    _made: int = 0
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def create(self, kind: str) -> None:
        """Create a pod for a scheduler."""
        self._made += 1
        wanted = pod(f"{kind}-{self._made:06d}")
        wanted["spec"]["schedulerName"] = NAMES[kind]
        wanted["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{CPU_MILLIS // PER_NODE}m"}}
        with contextlib.suppress(Conflict):  # the answer to the try before was lost
            await _surely(lambda: self.api.create_pod(wanted))

    async def replace(self, name: str) -> None:
        """Delete a pod at once, and create another one; its room is free when the API server shows that."""
        with contextlib.suppress(NotFound):  # the answer to the try before was lost
            await _surely(lambda: self.api.send("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0}))
        await self.create(name.partition("-")[0])

    async def run(self) -> None:
        """Watch for ever."""
        page = await self.api.get(PODS)
        for item in page["items"]:
            self._see("ADDED", item)
        version = page["metadata"]["resourceVersion"]
        while True:
            async for event in self.api.watch(f"{PODS}?watch=1&resourceVersion={version}"):
                version = event["object"]["metadata"]["resourceVersion"]
                self._see(event["type"], event["object"])

    def _see(self, what: str, seen: Json) -> None:
        name, host = seen["metadata"]["name"], seen["spec"].get("nodeName", "")
        if what == "DELETED":
            if (node := self.running.pop(name, None)) is not None:
                self._held[node] -= 1
        elif host and name not in self._known:
            self._known.add(name)
            kind = name.partition("-")[0]
            self.bound[kind] += 1
            if self._held[host] < PER_NODE:
                self._held[host] += 1
                self.running[name] = host
            else:
                self.refused[kind] += 1
                self._start(self._fail(name, kind))

    async def _fail(self, name: str, kind: str) -> None:
        status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
        path, merge = f"{PODS}/{name}/status", "application/merge-patch+json"
        await _surely(lambda: self.api.send("PATCH", path, {"status": status}, content_type=merge))
        await self.create(kind)

    async def stop(self, watch: asyncio.Task[None]) -> None:
        """End the watch, and what follows from it."""
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _surely(send: Callable[[], Awaitable[None]]) -> None:
    """Send a request again where its answer is lost."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(UnknownOutcome):
            return await send()
    return await send()


@dataclass(frozen=True, slots=True)
class Beside:
    """One run."""

    scenario: str
    nodes: int
    bound: dict[str, int]
    refused_per_thousand: dict[str, float]
    seconds: float
    load_average: float


async def measure(scenario: str, *, nodes: int, rate: float, seconds: float, shares: bool) -> Beside:
    """Let both schedulers at the same nodes."""
    chance = random.Random(1)
    async with scene() as there:
        kubelets = Kubelets(there.api)
        await there.api.fill(nodes=nodes, pods=())
        if shares:
            key, value = SHARE
            label, merge = {"metadata": {"labels": {key: value}}}, "application/merge-patch+json"
            paths = [f"/api/v1/nodes/{node_name(number)}" for number in range(0, nodes, 2)]
            await together(there.api.send("PATCH", path, label, content_type=merge) for path in paths)
        policy = KUBERNETES_SCORES + (SHARE_POLICY if shares else "")
        with (
            there.scheduler("ours", policy=policy, elects=False) as ours,
            there.scheduler("kube", serves=NAMES["kube"], avoids=SHARE if shares else None, elects=False) as kube,
        ):
            processes = (ours, kube)
            for process in processes:
                await process.idle()
            for process in processes:
                process.stop()
            asked = int(nodes * PER_NODE * ASKED[scenario])
            await together(kubelets.create(kind) for kind in islice(cycle(NAMES), asked))
            watch = asyncio.create_task(kubelets.run())
            await asyncio.sleep(1)
            began, load = time.monotonic(), os.getloadavg()[0]
            for process in processes:
                process.go_on()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while len(kubelets.running) < min(asked, nodes * PER_NODE):
                        assert not watch.done(), watch
                        await asyncio.sleep(0.05)
                if scenario != "backlog":
                    kubelets.bound.clear()
                    kubelets.refused.clear()
                    began = time.monotonic()
                    await _go_on(kubelets, rate=rate, seconds=seconds, chance=chance)
            finally:
                await kubelets.stop(watch)
        took = time.monotonic() - began
        refused = {kind: round(1000 * kubelets.refused[kind] / max(1, kubelets.bound[kind]), 1) for kind in NAMES}
        return Beside(scenario, nodes, dict(kubelets.bound), refused, round(took, 1), round(load, 1))


async def _go_on(kubelets: Kubelets, *, rate: float, seconds: float, chance: random.Random) -> None:
    """End pods at a rate, and let another one come for each."""
    began = time.monotonic()
    ended: set[str] = set()
    while (passed := time.monotonic() - began) < seconds:
        chosen: list[str] = []
        for number in range(len(ended), int(passed * rate)):
            kind = list(NAMES)[number % 2]
            names = [name for name in kubelets.running if name.startswith(kind) and name not in ended]
            chosen.append(chance.choice(names[: len(names) // 2]))  # of the older ones
            ended.add(chosen[-1])
        await together(kubelets.replace(name) for name in chosen)
        await asyncio.sleep(0.005)


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.end_to_end.beside",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scenario", action="append", choices=tuple(ASKED), help="default: all; may be repeated")
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--rate", type=float, default=20.0, help="pods that end each second, except in the backlog")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long pods come and go")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--shares", action="store_true", help="each scheduler has its own half of the nodes")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder for the JSON")
    given = parser.parse_args(arguments)
    if schedulers() != ["ours", "kube"]:
        parser.error("KUBEBUILDER_ASSETS must name a folder with kube-apiserver, etcd and kube-scheduler")
    found = []
    for scenario in given.scenario or ASKED:
        for _ in range(given.times):
            run = measure(scenario, nodes=given.nodes, rate=given.rate, seconds=given.seconds, shares=given.shares)
            found.append(asyncio.run(run))
            sys.stdout.write(f"{found[-1]}\n")
            sys.stdout.flush()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "beside.json").write_text(json.dumps(msgspec.to_builtins(found), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    end_in_order()
    sys.exit(main(sys.argv[1:]))
