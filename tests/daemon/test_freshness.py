"""After an outage decisions wait until nodes and pods are both watched again; but not forever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.changes import Phase, Status
from kube_policy_scheduler.adapters.kube.resources import NODES, PODS, STORAGE_CLASSES, Resource
from kube_policy_scheduler.daemon.watching.freshness import (
    NEWS_SECONDS,
    PATIENCE_SECONDS,
    READING_SECONDS,
    Freshness,
)
from tests.simulation.virtual_time import run


class Watch:
    """Replaces a reflector: callers read only its status."""

    def __init__(self, resource: Resource[Any], *, is_optional: bool = False) -> None:
        self.resource = resource
        self.is_optional = is_optional
        self.on_status: list[Callable[[], None]] = []
        self.status = Status(Phase.WATCHING)
        self.losses = 0
        self.late_since: float | None = None
        self.keeps_promise = True
        self.is_connecting = False
        """Whether the last watch has ended so lately that the view still counts as current."""

    @property
    def is_current(self) -> bool:
        return self.status.phase is Phase.WATCHING or self.is_connecting

    @property
    def status(self) -> Status:
        return self._status

    @status.setter
    def status(self, status: Status) -> None:
        self._status = status
        for tell in self.on_status:
            tell()

    def enters(self, phase: Phase, problem: str = "") -> None:
        self.losses += self.is_current
        self.status = Status(phase, problem, 1000.0)
        self.late_since = 1000.0

    def breaks(self) -> None:
        self.enters(Phase.RETRYING, "connection lost")

    def must_prove(self) -> None:
        self.breaks()
        self.keeps_promise = False

    def resumes(self) -> None:
        self.status = Status(Phase.WATCHING)
        self.late_since = None
        self.keeps_promise = True


class Scene:
    """Three watches, a server in reach or not, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.reachable = True
        self.nodes, self.pods, self.storage = Watch(NODES), Watch(PODS), Watch(STORAGE_CLASSES, is_optional=True)
        self.is_current = Freshness(
            [self.nodes, self.pods, self.storage], is_reachable=lambda: self.reachable, clock=lambda: self.now
        )

    def after(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_current()


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.getMessage(), getattr(record, "why", "")) for record in caplog.records]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_while_all_watches_run_the_view_is_current(scene: Scene) -> None:
    assert all(scene.after(seconds) for seconds in (0.0, 0.001, 3600.0))


@pytest.mark.parametrize("broken", ["nodes", "pods", "storage"])
@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.WATCHING}, key=lambda phase: phase.value))
def test_one_watch_that_is_not_current_is_enough_to_wait(scene: Scene, broken: str, phase: Phase) -> None:
    watch: Watch = getattr(scene, broken)
    watch.enters(phase)
    assert not scene.after(0.0)
    assert not scene.after(PATIENCE_SECONDS / 2)
    assert scene.is_current.losses == 1
    watch.resumes()
    assert scene.after(0.0)
    assert scene.is_current.losses == 1


def test_a_view_that_is_current_for_a_while_only_is_asked_again(scene: Scene) -> None:
    scene.storage.status, scene.storage.is_connecting = Status(Phase.CONNECTING), True
    assert scene.after(0.0)
    assert scene.after(1.0)
    scene.storage.is_connecting = False  # by time alone: nothing tells so
    assert not scene.after(1.0)


def test_a_view_that_was_lost_and_found_between_two_questions_was_lost(scene: Scene) -> None:
    assert scene.after(0.0)
    scene.pods.breaks()
    scene.pods.resumes()
    assert scene.is_current.losses == 1
    assert scene.after(0.0)
    assert scene.is_current.losses == 1


def test_while_the_server_is_out_of_reach_patience_has_no_end(scene: Scene) -> None:
    scene.nodes.breaks()
    scene.reachable = False
    assert not any(scene.after(60.0) for _ in range(10))
    scene.reachable = True
    assert not scene.after(PATIENCE_SECONDS / 2)


def test_a_watch_that_a_reachable_server_refuses_delays_only_for_a_while(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.nodes.breaks()
    assert not scene.after(0.0)
    with caplog.at_level(logging.INFO):
        assert not scene.is_current.is_stale
        assert scene.after(PATIENCE_SECONDS)
        assert scene.after(1.0)
        assert scene.is_current.is_stale
        assert scene.is_current.late_seconds == PATIENCE_SECONDS + 1.0
        scene.nodes.resumes()
        assert scene.after(1.0)
        assert not scene.is_current.is_stale
        assert scene.is_current.late_seconds == 0.0
    assert told(caplog) == [
        ("scheduling from a stale cache", "nodes retrying for 10 s (connection lost)"),
        ("the caches are current again after 12 s", ""),
    ]


@pytest.mark.parametrize("phase", [Phase.LISTING, Phase.CATCHING_UP])
def test_what_is_being_read_is_waited_for_longer(scene: Scene, phase: Phase, caplog: pytest.LogCaptureFixture) -> None:
    scene.pods.enters(phase)
    assert not scene.after(0.0)
    with caplog.at_level(logging.WARNING):
        assert not scene.after(2 * PATIENCE_SECONDS)
        assert not scene.after(READING_SECONDS - 3 * PATIENCE_SECONDS)
        assert scene.after(PATIENCE_SECONDS)
    assert told(caplog) == [
        ("not scheduling until the caches are current", f"pods {phase.value} for 20 s"),
        ("scheduling from a stale cache", f"pods {phase.value} for 60 s"),
    ]


def test_what_others_did_is_waited_for_without_end(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.pods.must_prove()
    scene.nodes.must_prove()
    with caplog.at_level(logging.WARNING):
        assert not any(scene.after(PATIENCE_SECONDS) for _ in range(10))
    assert told(caplog) == [
        (
            "not scheduling until the caches are current",
            "nodes retrying for 20 s (connection lost); pods retrying for 20 s (connection lost)",
        )
    ]
    scene.pods.resumes()
    assert not scene.after(0.0)
    scene.nodes.resumes()
    assert scene.after(0.0)


def test_an_optional_resource_delays_a_new_leader_only_for_a_while(scene: Scene) -> None:
    scene.storage.must_prove()
    scene.storage.enters(Phase.LISTING)
    assert not scene.after(0.0)
    assert not scene.after(PATIENCE_SECONDS / 2)
    assert scene.after(PATIENCE_SECONDS / 2)


def test_what_is_not_current_is_described(scene: Scene) -> None:
    assert scene.is_current.problems() == []
    scene.nodes.breaks()
    scene.storage.enters(Phase.LISTING)
    scene.now += 7.0
    assert scene.is_current.problems() == ["nodes retrying for 7 s (connection lost)", "storageclasses listing for 7 s"]


def test_time_with_data_does_not_count_as_time_without_a_watch(scene: Scene) -> None:
    scene.pods.enters(Phase.CATCHING_UP)
    assert not scene.after(0.0)
    assert not scene.after(2 * PATIENCE_SECONDS)
    scene.pods.breaks()
    assert not scene.after(0.0)
    assert not scene.after(PATIENCE_SECONDS / 2)
    assert scene.after(PATIENCE_SECONDS / 2)


def test_an_optional_resource_is_never_late(scene: Scene) -> None:
    scene.storage.breaks()
    scene.now += 60.0
    assert scene.is_current.late_seconds == 0.0
    assert scene.is_current.problems() == ["storageclasses retrying for 60 s (connection lost)"]


def test_for_how_long_something_has_lasted_that_has_not_begun_is_not_told(scene: Scene) -> None:
    """The clock is that of the machine since it started: 0 is no moment of the daemon."""
    scene.storage.status = Status(Phase.STARTING)
    assert scene.is_current.problems() == ["storageclasses starting"]


def test_who_waits_for_news_hears_of_a_status_at_once_and_else_after_a_while() -> None:
    async def main() -> None:
        scene, loop = Scene(), asyncio.get_running_loop()
        scene.nodes.breaks()
        waiting = [asyncio.create_task(scene.is_current.news()) for _ in range(3)]
        await asyncio.sleep(NEWS_SECONDS / 2)
        assert not any(task.done() for task in waiting)
        scene.nodes.resumes()
        await asyncio.gather(*waiting)
        assert loop.time() == NEWS_SECONDS / 2
        assert scene.is_current()
        await scene.is_current.news()  # nobody tells anything
        assert loop.time() == NEWS_SECONDS * 1.5

    run(main())


def test_who_gives_up_waiting_for_news_takes_none_from_others() -> None:
    async def main() -> None:
        scene = Scene()
        first, second = (asyncio.create_task(scene.is_current.news()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    run(main())
