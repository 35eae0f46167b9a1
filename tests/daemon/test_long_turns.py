"""A pod whose decision takes too long: it is named, and after the second time it waits behind all others."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.adapters.process.turn_watch import LONG_SECONDS, LongTurn, TurnWatch
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod
from tests.fakes.scheduler_context import context_of
from tests.simulation.chaos import policies_of

POLICIES = [
    "score node.free.cpu\n",
    "order by pod.name\n",
    "order by pod.name strict\n",
    'gang by pod.label.job size 2 if pod.label.job == "x"\n',
]


class Stage:
    """A scheduler whose decisions cost what a test says; no pod fits anywhere."""

    def __init__(self, policy: str) -> None:
        self.cpu = self.now = 0.0
        self.costs: dict[str, float] = {}
        self.decided: list[str] = []
        self.turns: list[LongTurn[QueuedPod]] = []
        watch: TurnWatch[QueuedPod] = TurnWatch(cpu=lambda: self.cpu, steady=lambda: self.now)
        watch.arm()
        me: Any = self
        self.watch = watch
        self.scheduler = Scheduler(
            context_of(me, observer=Observer(), clock=lambda: 1.8e9 + self.now, turns=watch, stopwatch=lambda: self.cpu)
        )
        watch.on_long = self._long
        self.scheduler.use_policies(policies_of(policy))
        deciding: Any = self.scheduler.algorithm.deciding

        def costly(queued: QueuedPod, **more: Any) -> Any:
            self.decided.append(queued.pod.name)
            spent = self.costs.get(queued.pod.name, 0.0001)
            self.cpu += spent
            self.now += spent
            return deciding(queued, **more)

        self.scheduler.algorithm.deciding = costly  # type: ignore[method-assign]

    def _long(self, turn: LongTurn[QueuedPod]) -> None:
        self.turns.append(turn)
        if turn.thing is not None and turn.step_seconds >= LONG_SECONDS:
            self.scheduler.took_too_long(turn.thing)

    def unschedulable(self, decision: Any) -> None:
        pass

    def held(self, pod: Any, why: str) -> None:
        pass

    def pod(self, name: str, *, priority: int = 0, cpu: str = "1", version: int = 1) -> None:
        metadata = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": str(version)}
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "policy-scheduler", "priority": priority, "containers": [container]}
        self.scheduler.event_handlers.pod_changed(msgspec.convert({"metadata": metadata, "spec": spec}, objects.Pod))

    def round(self) -> list[str]:
        """Let an event help all pods, and time pass; return who is decided then, in their order."""
        self.now += 20.0
        self.decided.clear()
        self.scheduler.queue.move_on_event(ClusterEvent.TIMEOUT, self.scheduler.context.clock())
        for _ in range(50):
            self.watch.begin_turn()
            self.scheduler.keep_queue()
            self.scheduler.schedule_batch()
            self.watch.end_turn()
        assert self.scheduler.queue.misplaced() == []
        return list(self.decided)


@pytest.mark.parametrize("policy", POLICIES)
def test_after_two_long_turns_a_pod_waits_behind_all_others(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(policy)
    stage.costs["evil"] = 0.3
    stage.pod("evil", priority=100)
    for name in ("f", "g", "z"):
        stage.pod(name)
    rounds = [stage.round() for _ in range(4)]

    assert [turn.name for turn in stage.turns][:2] == ["shop/evil", "shop/evil"]
    assert rounds[-1][-1] == "evil"
    assert rounds[-1][:-1] == (["f"] if "strict" in policy else ["f", "g", "z"])
    said = [record for record in caplog.records if "waits behind all others" in record.getMessage()]
    assert [record.__dict__["pod"] for record in said] == ["shop/evil"]


def test_a_long_turn_names_the_pod(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    stage = Stage(POLICIES[0])
    stage.costs["evil"] = 0.3
    for name in ("a", "evil", "z"):
        stage.pod(name)
    stage.round()

    (record,) = [record for record in caplog.records if "took too long" in record.getMessage()]
    assert (record.__dict__["step"], record.__dict__["pod"]) == ("deciding", "shop/evil")
    assert record.__dict__["seconds"] == pytest.approx(0.3, abs=0.01)


def test_another_specification_begins_anew() -> None:
    stage = Stage(POLICIES[0])
    stage.costs["evil"] = 0.3
    stage.pod("evil", priority=100)
    stage.pod("a")
    for _ in range(2):
        stage.round()
    assert stage.round()[-1] == "evil"
    stage.costs.clear()
    stage.pod("evil", priority=100, cpu="2", version=2)

    assert stage.round()[0] == "evil"
    assert stage.scheduler.queue.waiting_last() == 0


def test_pods_that_are_quick_wait_behind_nobody() -> None:
    stage = Stage(POLICIES[0])
    for number in range(30):
        stage.pod(f"p{number}")
        stage.costs[f"p{number}"] = LONG_SECONDS * 0.9
    for _ in range(3):
        stage.round()

    assert stage.turns == []
    assert stage.scheduler.queue.waiting_last() == 0


def test_long_turns_are_counted_by_what_took_longest() -> None:
    metrics = SchedulerMetrics(version=lambda: "1")
    for step in ("deciding", "deciding", ""):
        metrics.turn_was_long(step)

    found = {
        step: metrics.registry.get_sample_value("policy_scheduler_long_turns_total", {"step": step})
        for step in ("deciding", "other")
    }
    assert found == {"deciding": 2.0, "other": 1.0}
