"""Pods that are held: what is told about them is bounded, and that they found no room before lets none of them in."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.daemon.scheduling import gated_pods
from kube_policy_scheduler.framework.decide import gang_table
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


GANG = "gang by pod.label.job size number(pod.label.size) within 60s if pod.label.job\n"
LATER = GANG + 'hold if pod.label.held == "yes" and pod.waiting > 20s and pod.waiting < 100s else "a pause"\n'


@pytest.mark.parametrize("evicts", [False, True])
def test_a_gang_does_not_start_while_a_member_is_held_that_was_not_when_it_was_tried_last(
    evicts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room in the end, but the gang pauses after a plan that failed, and then one of its pods is woken."""
    monkeypatch.setattr(gang_table, "PAUSE_FACTOR", 1e9)

    async def tell(calm: Calm) -> None:
        for name, priority in (("low", 0), ("other", 1)) if evicts else ():
            calm.pod(name, priority=priority)
        await calm.after(1)
        for name, held in (("a", "no"), ("b", "yes")):
            calm.pod(name, priority=1, job="g", size="2", held=held)
        await calm.after(5)
        if evicts:
            calm.server.finish_pod("other")
        else:
            calm.server.set_node("n1", cpu=1, labels={})
        await calm.after(80)
        assert calm.on_nodes() == (["low"] if evicts else [])
        assert calm.told.why["b"].startswith("a pause. Held by policy p")
        assert "waiting for minCount pods from a gang" in calm.told.why["a"]
        await calm.after(60)
        assert calm.on_nodes() == ["a", "b"]

    told_story(LATER, tell, cpus=(2,) if evicts else (1,))


WINDOWS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), min_size=2, max_size=4)
"""By member: from when on it is held, in seconds, and for how long."""


@settings(max_examples=10, deadline=None)
@given(WINDOWS, st.integers(2, 4), st.lists(st.integers(1, 40), max_size=4), st.integers(0, 2))
def test_no_member_of_a_gang_starts_while_it_is_held_and_in_the_end_all_do(
    windows: list[tuple[int, int]], size: int, nodes_at: list[int], low: int
) -> None:
    text = "pod.waiting >= number(pod.label.since) * 1s and pod.waiting < number(pod.label.until) * 1s"
    policy = f'{GANG}hold if {text} if pod.label.since else "a pause"\n'
    began: dict[str, float] = {}

    async def tell(calm: Calm) -> None:
        for at in range(low):
            calm.pod(f"low{at}", millis=500)
        await calm.after(1)
        bind, clock = calm.server._bind, asyncio.get_running_loop().time

        def noting(pod: Any, node: str) -> None:
            began[pod["metadata"]["name"]] = clock() - since
            bind(pod, node)

        calm.server._bind = noting  # type: ignore[method-assign]
        since = clock()
        for at, (start, length) in enumerate(windows):
            held = {"since": str(start), "until": str(start + length)}
            calm.pod(f"g{at}", priority=1, job="g", size=str(min(size, len(windows))), **held)
        for number, at in enumerate(sorted(nodes_at)):
            await asyncio.sleep(max(0.0, since + at + 0.3 - clock()))
            calm.server.set_node(f"n{number + 1}", cpu=1, labels={})
        await calm.after(50)
        for number in range(4):
            calm.server.set_node(f"late{number}", cpu=1, labels={})
        await calm.after(90)
        assert began.keys() >= {f"g{at}" for at in range(len(windows))}
        for at, (start, length) in enumerate(windows):
            # the scheduler sees a pod somewhat later, and its binding arrives somewhat later
            assert not start + 0.4 < began[f"g{at}"] < start + length - 0.1, (at, began)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gang_table, "PAUSE_FACTOR", 1e9)
        patch.setattr(gang_table, "MOST_PAUSE_SECONDS", 7.0)
        told_story(policy, tell, cpus=(1,))


def test_a_gang_starts_without_a_member_that_is_held_if_it_can() -> None:
    async def tell(calm: Calm) -> None:
        for name, held in (("a", "no"), ("b", "yes"), ("c", "no")):
            calm.pod(name, job="g", size="2", held=held)
        await calm.after(5)
        calm.server.set_node("n1", cpu=1, labels={})
        await calm.after(85)
        assert calm.on_nodes() == ["a", "c"]
        calm.server.set_node("n2", cpu=1, labels={})
        await calm.after(60)
        assert calm.on_nodes() == ["a", "b", "c"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gang_table, "PAUSE_FACTOR", 1e9)
        told_story(LATER, tell, cpus=(1,))


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
