"""The demo: runs the story against a real scheduler process and says whether it came true."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientError, ClientSession

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.demo.fleet.run import FleetDemo
from kube_policy_scheduler.demo.fleet.screen import screen as screen_of_fleet
from kube_policy_scheduler.demo.measurements import Measurements
from kube_policy_scheduler.demo.pods import Pods
from kube_policy_scheduler.demo.process import DemoFailed, SchedulerProcess
from kube_policy_scheduler.demo.screen import Screen, Teller, screen
from kube_policy_scheduler.demo.story import SCHEDULER, STEPS, Nodes, Step, devices_of, nodes_of
from kube_policy_scheduler.embedded import EmbeddedCluster, KubeletSettings
from kube_policy_scheduler.wording import plural

STEP_SECONDS = 20.0
POLICY_FILE = "demo.policy"
PROBLEMS_SHOWN = 5
EDITS_EVERY_SECONDS = 0.3


class Demo:
    """One run: the cluster, the measurements, the scheduler process, and what happened to every pod."""

    def __init__(self, nodes: Nodes, show: Screen, directory: Path) -> None:
        self._nodes = nodes
        self._show = show
        self._directory = directory
        self._policies = directory / "policies"
        self.kubeconfig = directory / "kubeconfig"
        self._placed: dict[str, str] = {}
        self._why: dict[str, str] = {}
        self._stirred = asyncio.Event()
        self._process = SchedulerProcess(directory, show.say)

    async def run(self, *, stay: bool) -> None:
        """Play all steps; with `stay` keep everything up until cancelled.

        Raises:
            DemoFailed: a pod is not where the policy says, or an edit did not take effect.
        """
        self._policies.mkdir()
        async with contextlib.AsyncExitStack() as stack:
            self._show.say("starting an embedded cluster of 36 nodes in 3 zones")
            cluster = await stack.enter_async_context(EmbeddedCluster(kubelets=KubeletSettings()))
            cluster.load([yaml.safe_load(_nodes_text()), *devices_of(self._nodes)])
            cluster.kubeconfig(self.kubeconfig)
            usage = {node.name: node.usage_percent for node in self._nodes.values() if node.ready}
            measurements = Measurements(usage, directory=self._directory)
            source = "a real Prometheus" if measurements.real else "a stand-in, because prometheus is not installed"
            self._show.say(f"starting {source} for cpu_usage")
            await stack.enter_async_context(measurements)
            self._write_policy(STEPS[0].policy)
            arguments = ("--kubeconfig", str(self.kubeconfig), "--policies", str(self._policies))
            about = ("--prometheus-url", measurements.url, "--scheduler-name", SCHEDULER)
            await stack.enter_async_context(self._process.running(*arguments, *about))
            self._show.say(f"its status page is {self._process.url}")
            pods = stack.enter_context(Pods(self.kubeconfig, self._changed))
            for number, step in enumerate(STEPS, 1):
                self._show.say(f"step {number} of {len(STEPS)}: {step.title}", style="bold")
                await self._play(step, pods, first=number == 1)
                self._process.require_alive()
            pid = self._process.pid
            self._show.say(f"all pods are on the expected nodes; the scheduler did not restart (pid {pid})")
            if stay:
                for line in self._advice():
                    self._show.keep(line)
                edits = asyncio.create_task(self._follow_edits())
                stack.callback(edits.cancel)
                await self._process.failed()

    def _advice(self) -> tuple[str, ...]:
        """Return what somebody at the terminal can do now."""
        asks_for_us = json.dumps({"spec": {"schedulerName": SCHEDULER}})
        return (
            f"status page:     {self._process.url}",
            f"in a second terminal:  export KUBECONFIG={self.kubeconfig}",
            "  kubectl get nodes,pods -o wide",
            "  kubectl get resourceslices,resourceclaims",
            f"  kubectl run mine --image=nginx --overrides='{asks_for_us}'",
            f"a pod without schedulerName: {SCHEDULER} stays pending: no other scheduler runs here",
            f"edit the policy: {self._policies / POLICY_FILE}",
            "press Ctrl-C to stop everything",
        )

    # --- pods, as the watch shows them ---------------------------------------------------------------

    def _changed(self, kind: str, pod: Mapping[str, Any]) -> None:
        """Take a change of a pod."""
        meta, node, status = pod["metadata"], pod["spec"].get("nodeName"), pod.get("status", {})
        name = meta["name"]
        if kind == "DELETED":
            self._placed.pop(name, None)
            self._show.removed(name)
            return
        if node and name not in self._placed:
            self._placed[name] = node
            self._show.placed(name, meta.get("labels", {}).get("tenant", ""), node)
        for condition in status.get("conditions", ()):
            why = condition.get("message", "")
            if condition["type"] == "PodScheduled" and condition["status"] == "False" and self._why.get(name) != why:
                self._why[name] = why
                self._show.pending(name, why)
        self._stirred.set()

    # --- steps ---------------------------------------------------------------------------------------

    async def _play(self, step: Step, pods: Pods, *, first: bool) -> None:
        self._show.policy(step.policy)
        if not first:
            self._write_policy(step.policy)
        await self._policy_settled(step)
        names = [pod["metadata"]["name"] for pod in step.pods]
        for pod in step.pods:
            await pods.create(pod)
        await self._until(
            lambda: (
                all(name in self._placed or name in step.pending for name in names)
                and all(part in self._why.get(name, "") for name, part in step.pending.items())
            ),
            lambda: self._unfinished(step, names),
        )
        problems = step.check({n: self._placed[n] for n in names if n in self._placed}, self._nodes)
        problems += [f"{name} is bound, expected to wait" for name in step.pending if name in self._placed]
        if problems:
            more = f" (and {len(problems) - PROBLEMS_SHOWN} more)" if len(problems) > PROBLEMS_SHOWN else ""
            raise DemoFailed("; ".join(problems[:PROBLEMS_SHOWN]) + more)
        waiting = f", {len(step.pending)} wait as expected" if step.pending else ""
        self._show.say(
            f"{plural(len(names) - len(step.pending), 'pod')} bound as the policy requires{waiting}", style="green"
        )

    def _unfinished(self, step: Step, names: list[str]) -> str:
        unbound = [name for name in names if name not in self._placed and name not in step.pending]
        reasons = {name: self._why.get(name, "nothing") for name in (*unbound[:3], *step.pending)}
        late = f"after {STEP_SECONDS:.0f} s {plural(len(unbound), 'pod')} not bound"
        return f"{late}; reasons given: {reasons}; {self._process.log_tail()}"

    async def _until(self, done: Callable[[], bool], explain: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                while not done():
                    self._stirred.clear()
                    await self._stirred.wait()
        except TimeoutError:
            raise DemoFailed(explain()) from None

    # --- the scheduler process -----------------------------------------------------------------------

    def _write_policy(self, text: str) -> None:
        """Replace the policy file in one step, as an editor or the kubelet does."""
        fresh = self._directory / "next.policy"
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, self._policies / POLICY_FILE)  # noqa: PTH105 - the atomic call, by its name

    async def _follow_edits(self) -> None:
        """Show the policy file and the scheduler's verdict whenever somebody changes it."""
        shown = STEPS[-1].policy
        while True:
            await asyncio.sleep(EDITS_EVERY_SECONDS)
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = (self._policies / POLICY_FILE).read_text(encoding="utf-8")
                if text != shown:
                    shown = text
                    self._show.policy(text)
                    self._show_status(await self._verdict(text))

    async def _policy_settled(self, step: Step) -> None:
        """Wait until the scheduler has accepted or rejected the file as it is now."""
        status = await self._verdict(step.policy)
        if status is None:
            raise DemoFailed(f"the scheduler did not load the edited policy; {self._process.log_tail()}")
        self._show_status(status)
        if status["accepted"] != step.accepted:
            verdict = "accepted" if status["accepted"] else "rejected"
            raise DemoFailed(f"the scheduler {verdict} a policy that it should not have: {status['problems']}")

    def _show_status(self, status: dict[str, Any] | None) -> None:
        if status is None:
            return
        for problem in status["problems"]:
            self._show.say(f"rejected: {problem.splitlines()[0]}", style="red")
        self._show.say(f"policy {status['active']} is in force, generation {status['generation']}")

    async def _verdict(self, text: str) -> dict[str, Any] | None:
        """Return what the scheduler says of a policy text once it has seen it, None if it does not."""
        wanted = PolicySources.of({POLICY_FILE: text}).hash
        status: dict[str, Any] = {}
        async with ClientSession() as session:
            for _ in range(int(STEP_SECONDS * 20)):
                try:
                    async with session.get(f"{self._process.url}/policies") as answer:
                        status = await answer.json()
                except ClientError:
                    status = {}
                if status.get("candidate") == wanted:
                    break
                await asyncio.sleep(0.05)
        return status if status.get("candidate") == wanted else None


def _nodes_text() -> str:
    return (files("kube_policy_scheduler.demo") / "nodes.yaml").read_text(encoding="utf-8")


async def _main(directory: Path, *, fleet: bool) -> int:
    nodes = nodes_of(yaml.safe_load(_nodes_text())["items"])
    task = asyncio.current_task()
    assert task is not None
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, task.cancel)
    ended = _INTERRUPTED

    def closed() -> None:
        nonlocal ended
        ended = _PIPE_CLOSED
        task.cancel()

    with contextlib.ExitStack() as stack:
        show: Teller
        demo: Demo | FleetDemo
        if fleet:
            show = fleet_screen = stack.enter_context(screen_of_fleet(closed=closed))
            demo = FleetDemo(fleet_screen, directory)
        else:
            show = node_screen = stack.enter_context(screen(nodes, closed=closed))
            demo = Demo(nodes, node_screen, directory)
        try:
            await demo.run(stay=sys.stdout.isatty())
        except DemoFailed as failure:
            show.say(f"FAILED: {failure}", style="bold red")
            return 1
        except asyncio.CancelledError:
            show.say("ended")
            return 0 if sys.stdout.isatty() else ended
        show.say("PASSED")
        return 0


_INTERRUPTED = 128 + signal.SIGINT
_PIPE_CLOSED = 128 + signal.SIGPIPE

_HELP = """\
Run a cluster and the scheduler on this machine, and watch policies place pods.

The demo starts an embedded cluster, Prometheus (or a stand-in, if Prometheus is not installed) and the scheduler. It
creates pods, and edits the policy while the scheduler runs. On a terminal the demo keeps running until you press
Ctrl-C, and prints the address of the status page and a kubeconfig. Without a terminal it ends after the last step.

With --fleet, it starts a control plane shaped like Karmada's, three embedded clusters and `policy-scheduler fleet`. A
region is lost, workloads move, the region comes back, and they return two replicas at a time.
"""
_EXIT_CODES = """\
The exit codes are: 0, everything is where the policies say; 1, a step failed; 2, unknown argument; 130, interrupted;
141, nobody reads the output any more.
"""


def main() -> None:
    """Run the demo; exit 0 if the story came true, 1 if not, 130 or 141 if it was ended early without a terminal."""
    parser = argparse.ArgumentParser(
        prog="python -m kube_policy_scheduler.demo",
        description=_HELP,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fleet", action="store_true", help="show policies over three clusters instead of over nodes")
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="policy-demo-") as directory:
        code = asyncio.run(_main(Path(directory), fleet=given.fleet))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not keep the folder from being removed
    sys.exit(code)


if __name__ == "__main__":
    main()
