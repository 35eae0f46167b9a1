"""Pods that are held: what is told about them is bounded, and that they found no room before lets none of them in."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.daemon.scheduling import gated_pods
from tests.daemon.gang_stage import GangStage
from tests.simulation.calm import Calm
from tests.simulation.calm import story as told_story
from tests.simulation.virtual_time import run

HELD = 'hold if pod.label.held == "yes" else "not today"\n'
MANY, IN_A_ROUND = 400, 50


class HeldStage(GangStage):
    """Notes the reports in their order."""

    def __init__(self) -> None:
        super().__init__(nodes=2, cpus=8, policy=HELD)
        self.order: list[tuple[str, str]] = []
        """What, and about the pod of which name."""
        for what in ("held", "bound"):
            setattr(self.told, what, self._noting(what, getattr(self.told, what)))

    def _noting(self, what: str, report: Any) -> Any:
        def noted(pod: Any, *rest: Any, **named: Any) -> None:
            self.order.append((what, pod.name))
            report(pod, *rest, **named)

        return noted

    def comes(self, namespace: str, name: str, *, held: bool) -> None:
        """Let the watch show a pod."""
        labels = {"held": "yes"} if held else {}
        body = {
            "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels},
            "spec": {
                "schedulerName": "policy-scheduler",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            },
        }
        self.scheduler.event_handlers.pod_changed(msgspec.convert(body, objects.Pod))


def test_many_held_pods_of_one_tenant_are_told_a_bounded_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated_pods, "FIRST_IN_A_ROUND", IN_A_ROUND)

    async def story() -> None:
        stage = HeldStage()
        for number in range(MANY):
            stage.comes("tenant", f"t{number}", held=True)
        for number in range(3):
            stage.comes("neighbour", f"held{number}", held=True)
        stage.comes("neighbour", "free", held=False)
        await asyncio.sleep(gated_pods.REPORT_AFTER_SECONDS - 1)
        assert stage.order == [("bound", "free")]
        before = 0
        while len(stage.order) <= MANY + 3:
            await asyncio.sleep(gated_pods.REPORT_AFTER_SECONDS)
            assert before < len(stage.order) <= before + IN_A_ROUND + 1
            before = len(stage.order)
        told = [name for what, name in stage.order if what == "held"]
        assert {"held0", "held1", "held2"} <= set(told[:6]), "the neighbour's take turns with the tenant's"
        assert set(Counter(told).values()) == {1}

    run(story())


@pytest.mark.parametrize("since", ["before its backoff ends", "long before"])
def test_a_pod_that_found_no_room_does_not_start_while_it_is_held_and_says_so(since: str) -> None:
    begins = 0 if since == "before its backoff ends" else 30

    async def tell(calm: Calm) -> None:
        calm.pod("p", millis=3000)
        await calm.after(begins + 0.5)
        assert "Insufficient cpu" in calm.told.why["p"]
        await asyncio.sleep(1.0)  # the pause has begun
        calm.server.set_node("n0", cpu=4, labels={})
        await asyncio.sleep(20)
        assert calm.on_nodes() == []
        assert calm.told.why["p"].startswith("a pause. Held by policy p")
        await calm.after(100)
        assert calm.on_nodes() == ["p"]

    told_story(f'hold if pod.waiting > {begins + 1}s and pod.waiting < 100s else "a pause"\n', tell, cpus=(2,))


def test_a_pod_that_gets_the_label_for_which_pods_are_held_while_it_is_in_backoff_is_held() -> None:
    async def story() -> None:
        stage = HeldStage()
        stage.comes("default", "p", held=False)
        queued = stage.scheduler.queue.get("p")
        assert queued is not None
        stage.scheduler.queue.take("p")
        stage.scheduler.queue.failed(queued, stage.scheduler.context.clock())
        stage.comes("default", "p", held=True)
        await asyncio.sleep(20)
        assert stage.order == [("held", "p")]

    run(story())
