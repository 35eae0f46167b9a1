"""A deferred resize makes room in the daemon, if the settings allow it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.adapters.kube.binding import Bound, Outcome, Outdated
from kube_policy_scheduler.adapters.kube.errors import Unreachable
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from tests.fakes.scheduler_context import context_of
from tests.simulation.chaos import policies_of
from tests.simulation.virtual_time import run

START = 1_800_000_000.0


class Stage:
    """A scheduler in virtual time, and a node of 4 cores."""

    def __init__(self, *, enabled: bool = True, leading: bool = True) -> None:
        self.evicted: list[str] = []
        self.preempted_by: list[str] = []
        self.failures: list[str] = []
        self.fails = 0
        steady = asyncio.get_running_loop().time
        me: Any = self
        context = context_of(me, observer=Observer(), clock=lambda: START + steady(), preempts_for_resizes=enabled)
        self.scheduler = Scheduler(context, leading=leading)
        self.scheduler.use_policies(policies_of("use kubernetes scores\n"))
        status = {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}}
        node = {"metadata": {"name": "n"}, "status": status}
        self.scheduler.event_handlers.node_changed(msgspec.convert(node, objects.Node))
        self._task = asyncio.create_task(self.scheduler.run())

    def pod(
        self,
        name: str,
        cpu: str,
        *,
        priority: int = 0,
        wants: str = "",
        scheduler: str = "policy-scheduler",
        on: str = "n",
    ) -> None:
        resources = {"requests": {"cpu": cpu}}
        pod = {
            "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"},
            "spec": {
                "nodeName": on,
                "schedulerName": scheduler,
                "priority": priority,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": wants or cpu}}}],
            },
            "status": {
                "containerStatuses": [{"name": "c", "resources": resources, "allocatedResources": {"cpu": cpu}}],
                "conditions": ([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}] if wants else []),
            },
        }
        self.scheduler.event_handlers.pod_changed(msgspec.convert(pod, objects.Pod))

    def gone(self, name: str) -> None:
        pod = objects.Pod(metadata=objects.ObjectMeta(name=name, namespace="shop", uid=name))
        self.scheduler.event_handlers.pod_deleted(pod)

    async def evict(self, victim: Any) -> None:
        await asyncio.sleep(0.1)
        if self.fails:
            self.fails -= 1
            raise Unreachable("no connection")
        self.evicted.append(victim.name)
        self.gone(victim.name)

    def begin(self, **_: Any) -> bool:
        return False

    async def bind(self, *, still_holds: Callable[[], bool], **_: Any) -> Outcome:
        await asyncio.sleep(30.0)  # before it is sent
        return Bound("n") if still_holds() else Outdated()

    def failed(self, pod: Any, why: str) -> None:
        self.failures.append(why)

    def unschedulable(self, decision: Any) -> None:
        pass

    def preempted(self, victim: Any, *, by: Any, node_name: str) -> None:
        self.preempted_by.append(f"{victim.name} by {by.name} on {node_name}")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def story(tell: Any, **settings: Any) -> None:
    async def told() -> None:
        stage = Stage(**settings)
        try:
            await tell(stage)
        finally:
            await stage.close()

    run(told())


def test_the_least_important_pod_of_the_node_is_evicted_once() -> None:
    async def tell(stage: Stage) -> None:
        stage.pod("low", "1", priority=1)
        stage.pod("lower", "1")
        stage.pod("grows", "2", priority=10, wants="3")
        await asyncio.sleep(60.0)
        assert stage.evicted == ["lower"]
        assert stage.preempted_by == ["lower by grows on n"]
        assert stage.scheduler.deferred_resizes.evicted == 1

    story(tell)


def test_a_pod_that_is_being_bound_is_not_deleted_but_returns_to_the_queue() -> None:
    async def tell(stage: Stage) -> None:
        stage.pod("low", "2", on="")
        await asyncio.sleep(1.0)
        stage.pod("grows", "2", priority=10, wants="3")
        await asyncio.sleep(60.0)
        assert not stage.evicted
        assert stage.preempted_by == ["low by grows on n"]
        assert stage.failures == ["its binding to n was cancelled: its node is given to shop/grows"]
        assert [queued.pod.uid for queued in stage.scheduler.queue] == ["low"]

    story(tell)


def test_an_eviction_that_fails_is_tried_again() -> None:
    async def tell(stage: Stage) -> None:
        stage.fails = 2
        stage.pod("low", "2")
        stage.pod("grows", "2", priority=10, wants="3")
        await asyncio.sleep(60.0)
        assert stage.evicted == ["low"]

    story(tell)


def test_a_pod_that_was_resized_is_forgotten_and_one_that_grows_again_is_looked_at() -> None:
    async def tell(stage: Stage) -> None:
        stage.pod("low", "1")
        stage.pod("grows", "2", priority=10, wants="3")
        await asyncio.sleep(30.0)
        assert len(stage.scheduler.deferred_resizes) == 1
        stage.pod("grows", "3", priority=10)
        await asyncio.sleep(30.0)
        assert len(stage.scheduler.deferred_resizes) == 0
        assert not stage.evicted, "there was room"
        stage.pod("grows", "3", priority=10, wants="4")
        await asyncio.sleep(30.0)
        assert stage.evicted == ["low"]

    story(tell)


@pytest.mark.parametrize(
    ("settings", "scheduler"),
    [({"enabled": False}, "policy-scheduler"), ({"leading": False}, "policy-scheduler"), ({}, "another-scheduler")],
)
def test_nobody_is_evicted_without_the_setting_the_lead_or_for_pods_of_others(
    settings: dict[str, Any], scheduler: str
) -> None:
    async def tell(stage: Stage) -> None:
        stage.pod("low", "2")
        stage.pod("grows", "2", priority=10, wants="3", scheduler=scheduler)
        await asyncio.sleep(60.0)
        assert not stage.evicted

    story(tell, **settings)
