"""`python -m tests.benchmarks.end_to_end.failover`: how long pods wait when a replica ends, is killed, or joins.

Pods come at a steady rate all the time. Told is how long the first pod waits that comes after a replica is gone and
that only another can bind: of two with leader election all, of three that share the work those of its units. The
lease's times are the defaults, 15, 10 and 2 s. A replica that joins is measured from its start as a process, and from
the end of its first lists, to its first binding.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.end_to_end.api import Api
from tests.benchmarks.end_to_end.processes import KUBERNETES_SCORES, end_in_order, scene
from tests.benchmarks.end_to_end.workloads import pod
from tests.children import child

Result = TypeVar("Result")

SHARING = "sharding: {enabled: true, unit: pod}\n"
RATE = 20.0
"""Pods a second."""
NODES = 100
PATIENCE_SECONDS = 60.0


@dataclass
class Replica:
    """One process, with its log."""

    process: subprocess.Popen[bytes]
    log: Path
    started: float

    def entries(self) -> list[dict[str, object]]:
        """Return what it has logged."""
        found = []
        for line in self.log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [entry for entry in found if isinstance(entry, dict)]

    def says(self, text: str) -> bool:
        """Return whether a text is in its log."""
        return text in self.log.read_text()


@dataclass
class Stage:
    """A cluster, replicas on it, and pods that keep coming."""

    api: Api
    kubeconfig: Path
    folder: Path
    sharing: bool
    replicas: list[Replica] = field(default_factory=list)
    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)

    def start(self, stack: contextlib.ExitStack) -> Replica:
        """Start one more replica."""
        policies, config = self.folder / "shared", self.folder / "config.yaml"
        policies.mkdir(exist_ok=True)
        (policies / "bench.policy").write_text(KUBERNETES_SCORES)
        kind = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
        config.write_text(kind + (SHARING if self.sharing else ""))
        log = self.folder / f"replica-{len(self.replicas)}.log"
        command = [sys.executable, "-m", "kube_policy_scheduler.daemon", f"--config={config}", f"--policies={policies}"]
        arguments = [f"--kubeconfig={self.kubeconfig}", "--http-address=127.0.0.1:0", "--log-format=json"]
        output = stack.enter_context(log.open("wb"))
        process = child([*command, *arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        stack.callback(process.wait, 30)
        stack.callback(process.kill)
        self.replicas.append(Replica(process, log, time.monotonic()))
        return self.replicas[-1]

    async def ready(self) -> None:
        """Wait until there is a leader and the others' caches are filled, or all share the work."""
        alive = [replica for replica in self.replicas if replica.process.poll() is None]

        def done() -> bool:
            if self.sharing:
                return all(r.says(f"shared by {len(alive)} replicas") and r.says('"takes part"') for r in alive)
            return all(r.says("caches are synced") for r in alive) and any(r.says("became leader") for r in alive)

        await _until(done, lambda: "\n".join(r.log.read_text()[-2000:] for r in alive))

    async def pods(self) -> None:
        """Create pods for ever."""
        number = 0
        while True:
            name = f"p{number:06d}"
            number += 1
            self.created[name] = time.monotonic()
            await self.api.create_pod(pod(name))
            await asyncio.sleep(1 / RATE)

    async def longest_wait(self, at: float) -> float:
        """Wait until every pod is bound that came within a second after a moment; return how long one of them waited.

        With leader election that is the first of them, with sharding the first that was the lost replica's.
        """

        def names() -> list[str]:
            return [name for name, came in self.created.items() if at < came <= at + 1.0]

        def waits() -> str:
            return f"not bound: {[name for name in names() if name not in self.bound]}"

        await _until(lambda: time.monotonic() > at + 1.0 and all(name in self.bound for name in names()), waits)
        return max(self.bound[name] - self.created[name] for name in names())


async def _until(condition: Callable[[], bool], told: Callable[[], str]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110 (conditions of any kind)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not in {PATIENCE_SECONDS:g} s: {told()}") from None


async def ends(stage: Stage, stack: contextlib.ExitStack, *, how: signal.Signals) -> float:
    """End the leader, or the first replica; return how many seconds a pod waited then."""
    for _ in range(3 if stage.sharing else 2):
        stage.start(stack)
        await stage.ready()
    await asyncio.sleep(3.0)
    stage.replicas[0].process.send_signal(how)
    return await stage.longest_wait(time.monotonic())


async def joins(stage: Stage, stack: contextlib.ExitStack) -> tuple[float, float]:
    """Add a third replica; return seconds until its first binding since its start, and since its lists."""
    for _ in range(2):
        stage.start(stack)
        await stage.ready()
    newcomer = stage.start(stack)
    synced: list[float] = []

    def works() -> bool:
        if not synced and newcomer.says("caches are synced"):
            synced.append(time.monotonic())
        return newcomer.says("Successfully bound")

    await _until(works, lambda: newcomer.log.read_text()[-2000:])
    now = time.monotonic()
    return now - newcomer.started, now - synced[0]


async def _staged(sharing: bool, act: Callable[[Stage, contextlib.ExitStack], Awaitable[Result]]) -> Result:
    async with scene() as there:
        await there.api.fill(nodes=NODES, pods=())
        with contextlib.ExitStack() as stack:
            stage = Stage(there.api, there.kubeconfig, there.directory, sharing)
            watching = asyncio.Event()
            watch = there.api.watch_bound(stage.bound, expected=10**9, timeout_seconds=600, watching=watching)
            tasks = [asyncio.create_task(watch)]
            await watching.wait()
            tasks.append(asyncio.create_task(stage.pods()))
            try:
                return await act(stage, stack)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.end_to_end.failover", description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="how often each is measured")
    given = parser.parse_args()
    for sharing, who in ((False, "leader"), (True, "one of three replicas")):
        for how, text in ((signal.SIGTERM, "ends in order"), (signal.SIGKILL, "is killed")):
            found = []
            for _ in range(given.times):
                found.append(asyncio.run(_staged(sharing, partial(ends, how=how))))
            _say(f"{who} {text}: longest wait of a pod that comes then {_seconds(found)}")
    joined = [asyncio.run(_staged(True, joins)) for _ in range(given.times)]
    since_start, since_lists = zip(*joined, strict=True)
    _say(f"a third replica joins: first binding {_seconds(since_start)} after its start as a process,")
    _say(f"  {_seconds(since_lists)} after its first lists")
    return 0


def _seconds(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in sorted(values)) + " s"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
