"""After an outage nothing is decided before nodes and pods are both watched again; but not for ever."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from engine.adapters.kube.changes import Phase, Status
from engine.adapters.kube.reflector import Reflector
from engine.daemon.watching.freshness import PATIENCE_SECONDS, SETTLE_SECONDS, Freshness


class Watch:
    """Stands for a reflector: all that is asked of it is what it is doing."""

    def __init__(self) -> None:
        self.status = Status(Phase.WATCHING)
        self.owes = False

    def breaks(self) -> None:
        self.status = Status(Phase.RETRYING, "nodes: connection lost")

    def is_opened_anew(self) -> None:
        self.breaks()
        self.owes = True

    def resumes(self) -> None:
        self.status = Status(Phase.WATCHING)
        self.owes = False


class Scene:
    """Two watches, a server in reach or not, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.reachable = True
        self.nodes, self.pods = Watch(), Watch()
        self.is_current = Freshness(
            cast("list[Reflector[Any]]", [self.nodes, self.pods]),
            is_reachable=lambda: self.reachable,
            clock=lambda: self.now,
        )

    def after(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_current()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_while_all_watches_go_on_the_view_is_current(scene: Scene) -> None:
    assert all(scene.after(seconds) for seconds in (0.0, 0.001, 3600.0))


@pytest.mark.parametrize("broken", ["nodes", "pods"])
def test_one_broken_watch_is_enough_to_wait(scene: Scene, broken: str) -> None:
    getattr(scene, broken).breaks()
    assert not scene.after(0.0)
    assert not scene.after(PATIENCE_SECONDS / 2)


def test_what_happened_meanwhile_gets_a_moment_to_arrive(scene: Scene) -> None:
    scene.nodes.breaks()
    assert not scene.after(1.0)
    scene.nodes.resumes()
    assert not scene.after(1.0)
    assert not scene.after(SETTLE_SECONDS / 2)
    assert scene.after(2 * SETTLE_SECONDS)
    assert scene.after(0.0)


def test_a_watch_that_breaks_again_meanwhile_is_waited_for_anew(scene: Scene) -> None:
    scene.nodes.breaks()
    assert not scene.after(1.0)
    scene.nodes.resumes()
    assert not scene.after(0.0)
    scene.pods.breaks()
    assert not scene.after(SETTLE_SECONDS)
    scene.pods.resumes()
    assert not scene.after(0.0)
    assert scene.after(2 * SETTLE_SECONDS)


def test_while_the_server_is_out_of_reach_patience_has_no_end(scene: Scene) -> None:
    scene.nodes.breaks()
    scene.reachable = False
    assert not any(scene.after(60.0) for _ in range(10))


def test_a_watch_that_cannot_be_had_from_a_server_in_reach_holds_nothing_up_for_long(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.nodes.breaks()
    assert not scene.after(0.0)
    with caplog.at_level(logging.WARNING):
        assert scene.after(PATIENCE_SECONDS)
        assert scene.after(1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "no watch for 10 s, deciding by an old view: nodes: connection lost"
    ]


def test_what_others_did_is_waited_for_without_end(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.pods.is_opened_anew()
    with caplog.at_level(logging.WARNING):
        assert not any(scene.after(PATIENCE_SECONDS) for _ in range(10))
    assert [record.getMessage() for record in caplog.records] == [
        "no watch for 10 s, nothing is decided until it is known what others did: nodes: connection lost"
    ]
    scene.pods.resumes()
    assert not scene.after(0.0)
    assert scene.after(2 * SETTLE_SECONDS)
