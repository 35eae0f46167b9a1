"""Runs the story of a fleet against a real scheduler process, and says whether it came true."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from kube_policy_scheduler.demo.fleet.manager import LOST, Manager, Seen
from kube_policy_scheduler.demo.fleet.screen import FleetScreen
from kube_policy_scheduler.demo.fleet.story import (
    CLUSTERS,
    NAMESPACE,
    STEPS,
    WORKLOADS,
    Decision,
    Step,
    problems,
    told,
)
from kube_policy_scheduler.demo.process import DemoFailed, SchedulerProcess
from kube_policy_scheduler.embedded import EmbeddedCluster, KubeletSettings

SCHEDULER = "policy-scheduler"
STEP_SECONDS = 60.0
"""What a step takes at most: each pass of a move rests some seconds."""
LOOK_SECONDS = 2.0
"""Between two steps on a terminal, for people to see what happened."""
START_SECONDS = 0.4
"""From the placement of a replica until it runs."""


class FleetDemo:
    """One run: the control plane, its clusters, the scheduler process, and what was decided."""

    def __init__(self, show: FleetScreen, directory: Path) -> None:
        self._show = show
        self._directory = directory
        self._policies = directory / "policies"
        self._seen = Seen()
        self._decisions: deque[Decision] = deque(maxlen=1000)
        """Since the step began."""
        self._stirred = asyncio.Event()
        self._process = SchedulerProcess(directory, show.say)

    async def run(self, *, stay: bool) -> None:
        """Play all steps; with `stay` keep everything up until cancelled.

        Raises:
            DemoFailed: a workload is not where the policies say, or moved faster than they allow.
        """
        self._policies.mkdir()
        async with contextlib.AsyncExitStack() as stack:
            self._show.say("starting a Karmada-shaped control plane and three embedded clusters")
            control = await stack.enter_async_context(EmbeddedCluster(kubelets=None, controllers=None))
            control.kubeconfig(kubeconfig := self._directory / "kubeconfig", namespace=NAMESPACE)
            members: dict[str, EmbeddedCluster] = {}
            for cluster in CLUSTERS:
                member = EmbeddedCluster(kubelets=KubeletSettings(start_seconds=START_SECONDS), controllers=None)
                members[cluster.name] = await stack.enter_async_context(member)
                member.kubeconfig(self._directory / f"{cluster.name}.kubeconfig", namespace=NAMESPACE)
            manager = Manager(control, members, seen=self._changed)
            for cluster in CLUSTERS:
                manager.join(cluster)
            self._write_policies(STEPS[0])
            arguments = ("fleet", "--kubeconfig", str(kubeconfig), "--policies", str(self._policies))
            await stack.enter_async_context(self._process.running(*arguments, "--scheduler-name", SCHEDULER))
            control.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
            for workload in WORKLOADS:
                manager.deploy(workload, scheduler=SCHEDULER)
            try:
                async with asyncio.TaskGroup() as tasks:
                    beside = [tasks.create_task(each) for each in (manager.run(), self._process.failed())]
                    await self._play_all(manager, kubeconfig, stay=stay)
                    for task in beside:
                        task.cancel()
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None

    async def _play_all(self, manager: Manager, kubeconfig: Path, *, stay: bool) -> None:
        for number, step in enumerate(STEPS, 1):
            self._show.say(f"step {number} of {len(STEPS)}: {step.title}", style="bold")
            await self._play(step, manager, first=number == 1)
            if stay:
                await asyncio.sleep(LOOK_SECONDS)
        pid = self._process.pid
        self._show.say(f"all replicas are in the expected clusters; the scheduler did not restart (pid {pid})")
        if stay:
            for line in self._advice(kubeconfig):
                self._show.keep(line)
            await asyncio.Event().wait()  # until somebody interrupts it

    async def _play(self, step: Step, manager: Manager, *, first: bool) -> None:
        self._decisions.clear()
        if step.policies:
            self._show.policy("\n".join(f"# {name}\n{text}" for name, text in step.policies.items()))
        if not first:
            self._write_policies(step)
        manager.lose(step.lost)
        await self._until(lambda: self._is_settled(step), lambda: self._unfinished(step))
        if found := problems(step, self._seen.placed, self._decisions):
            raise DemoFailed("; ".join(found))
        self._show.say("every replica runs where the policies say", style="green")

    def _is_settled(self, step: Step) -> bool:
        """Return whether everything runs where it should."""
        placed, running = self._seen.placed, self._seen.running
        return all(placed.get(name) == wanted == running.get(name) for name, wanted in step.targets.items())

    def _unfinished(self, step: Step) -> str:
        found = problems(step, self._seen.placed, self._decisions)
        found += [f"of {name}, {told(running)} run" for name, running in self._seen.running.items()]
        return f"after {STEP_SECONDS:.0f} s: {'; '.join(found)}; {self._process.log_tail()}"

    async def _until(self, done: Callable[[], bool], explain: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                while not done():
                    self._stirred.clear()
                    await self._stirred.wait()
        except TimeoutError:
            raise DemoFailed(explain()) from None

    def _changed(self, seen: Seen) -> None:
        """Take the current state of the fleet."""
        for workload, targets in seen.placed.items():
            before = self._seen.placed.get(workload, {})
            if before != targets:
                self._decisions.append(Decision(workload, before, targets))
        self._seen = seen
        self._show.show(seen)
        self._stirred.set()

    def _write_policies(self, step: Step) -> None:
        """Replace policy files, each in one step, as an editor or the kubelet does."""
        for name, text in step.policies.items():
            fresh = self._directory / "next.policy"
            fresh.write_text(text, encoding="utf-8")
            os.replace(fresh, self._policies / name)  # noqa: PTH105 - the atomic call, by its name

    def _advice(self, kubeconfig: Path) -> tuple[str, ...]:
        """Return what somebody at the terminal can do now."""
        return (
            f"in a second terminal:  export KUBECONFIG={kubeconfig}",
            f"  kubectl annotate cluster iowa {LOST}=true       # lose a cluster; {LOST}- brings it back",
            "  kubectl scale deployment web --replicas 12",
            "  kubectl get resourcebinding web-deployment -o yaml",
            f"  curl '{self._process.url}/debug/bindings?namespace={NAMESPACE}&name=web-deployment'",
            f"edit the policies in {self._policies}; what the scheduler says about them is in {self._process.log}",
            f"each cluster has a kubeconfig: {self._directory / (CLUSTERS[0].name + '.kubeconfig')}",
            "press Ctrl-C to stop everything",
        )
