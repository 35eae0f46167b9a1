"""The first lists: while they go on nothing is collected, however long they take; without progress it is, again."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.changes import Phase, Status
from kube_policy_scheduler.adapters.kube.pool import DIALS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.watching.first_lists import PATIENCE_SECONDS, FirstLists
from kube_policy_scheduler.daemon.watching.resources import LISTS_AT_A_TIME, Handler, attach, reflectors
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, pod_list, until
from tests.simulation.virtual_time import run


class Listing:
    """What is asked of a reflector."""

    def __init__(self) -> None:
        self.resource = "pods"
        self.status = Status(Phase.LISTING)
        self.synced = asyncio.Event()


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    yield
    gc.enable()


def _collects(listed: list[int]) -> list[bool]:
    """Return whether the collector was on at the end of each wait, with so many objects listed by then."""
    found: list[bool] = []

    async def story() -> None:
        listing: Any = Listing()
        now = 0
        lists = FirstLists([listing], counts=lambda: {"pods": now})
        waiting = asyncio.create_task(lists.wait())
        for number in listed:
            now = number
            await asyncio.sleep(PATIENCE_SECONDS)
            found.append(gc.isenabled())
            assert lists.problem() is not None
        listing.synced.set()
        await waiting
        assert lists.problem() is None
        assert gc.isenabled()

    run(story())
    return found


def test_nothing_is_collected_while_objects_come() -> None:
    assert _collects([1_000, 2_000, 3_000, 4_000]) == [False] * 4


def test_where_no_more_objects_come_garbage_is_collected_again() -> None:
    assert _collects([1_000, 2_000, 2_000, 2_000, 2_000])[-1] is True


async def test_lists_of_few_objects_take_turns_and_hold_up_neither_nodes_nor_pods() -> None:
    waiting: list[Peer] = []
    listed: set[str] = set()
    at_once: list[int] = []
    asked_on: set[int] = set()
    nodes_and_pods = {"/api/v1/nodes", "/api/v1/pods"}

    def script(request: Request, peer: Peer) -> None:
        if "limit" not in request.query:
            peer.refuse(404)  # discovery, and watches
            return
        listed.add(request.path)
        asked_on.add(peer.number)
        if request.path in nodes_and_pods:
            peer.answer(200, pod_list())
        else:
            waiting.append(peer)
            at_once.append(len(waiting))

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials(), max_connections=64)
        mirrors = reflectors(transport, random=Random(0), on_malformed=lambda broken: None)
        attach(mirrors, lambda _: Handler(whole=_ignore, upsert=_ignore, deleted=_ignore))
        running = [asyncio.create_task(each.run()) for each in mirrors]
        await until(lambda: nodes_and_pods < listed and len(waiting) == LISTS_AT_A_TIME)
        while len(listed) < len([each for each in mirrors if not each.resource.version_differs]):
            await until(lambda: bool(waiting))
            waiting.pop().answer(200, pod_list())
        assert max(at_once) == LISTS_AT_A_TIME
        assert len(asked_on) <= LISTS_AT_A_TIME + len(nodes_and_pods) + DIALS
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await transport.close()


def _ignore(_: object) -> None:
    pass


async def test_what_a_cluster_does_not_serve_is_told_in_one_line_and_what_is_broken_with_its_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_policy_scheduler.daemon.watching.resources.ADDED_PATIENCE_SECONDS", 0.2)
    caplog.set_level(logging.INFO)

    def script(request: Request, peer: Peer) -> None:
        if "topology.node.k8s.io" in request.path:
            peer.refuse(503, "ServiceUnavailable", "error trying to reach service")
        elif "scheduling" in request.path:
            peer.refuse(404, "NotFound")
        elif "watch" in request.query:
            peer.begin_stream()
        else:
            peer.answer(200, pod_list())

    async with ScriptedServer(script) as server:
        transport = Transport(server.credentials(), max_connections=64)
        mirrors = reflectors(transport, random=Random(0), on_malformed=lambda broken: None)
        attach(mirrors, lambda _: Handler(whole=_ignore, upsert=_ignore, deleted=_ignore))
        lists = FirstLists(mirrors, counts=lambda: {})
        running = [asyncio.create_task(each.run()) for each in mirrors]
        await until(lambda: "topology.node.k8s.io: 503 ServiceUnavailable" in (lists.problem() or ""))
        await lists.wait()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await transport.close()
    told = [record for record in caplog.records if record.levelno >= logging.INFO]
    synced = told[-1]
    names = "podgroups.scheduling.k8s.io, compositepodgroups.scheduling.k8s.io, podgroups.scheduling.x-k8s.io"
    topologies = "noderesourcetopologies.topology.node.k8s.io"
    assert (synced.getMessage(), synced.__dict__["absent"]) == ("caches are synced", f"{names}, {topologies}")
    reason = "503 ServiceUnavailable: error trying to reach service"
    failed, given_up = told[:-1]
    assert failed.getMessage() == f"{topologies}: {reason}"
    assert given_up.getMessage() == "going on without an optional API; it is tried again"
    assert (given_up.__dict__["resource"], given_up.__dict__["why"]) == (topologies, reason)
