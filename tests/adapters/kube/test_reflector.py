"""The reflector's handler has the true state in the end, no matter what the server and the network do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

import kube_policy_scheduler.adapters.kube.discovery
import kube_policy_scheduler.adapters.kube.pages
import kube_policy_scheduler.adapters.kube.reflector
from kube_policy_scheduler.adapters.kube.changes import Change, Deleted, Phase, Updated
from kube_policy_scheduler.adapters.kube.decoding import LineBuffer
from kube_policy_scheduler.adapters.kube.errors import MalformedAnswer
from kube_policy_scheduler.adapters.kube.reflector import (
    LIST_OBJECTS,
    SHORT_WATCH_SECONDS,
    FirstList,
    Patience,
    Reflector,
    Selector,
    wait_synced,
)
from kube_policy_scheduler.adapters.kube.resources import PODS, UNFINISHED_PODS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.process.backoff import Backoff
from kube_policy_scheduler.cluster.objects import Pod
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, pod, pod_list, until
from tests.patience import PATIENCE_SECONDS


class Mirror:
    """A handler that keeps the changes, and fails on impossible ones."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.log: list[str] = []
        self.batches: list[int] = []
        self.replacements = 0

    def replaced(self, objects: Sequence[Pod], /) -> None:
        self.pods = {pod.metadata.uid: pod for pod in objects}
        self.replacements += 1

    def changed(self, changes: Sequence[Change[Pod]], /) -> None:
        self.batches.append(len(changes))
        for change in changes:
            match change:
                case Updated(new=new):
                    sign = "~" if new.metadata.uid in self.pods else "+"
                    self.pods[new.metadata.uid] = new
                    self.log.append(f"{sign}{new.metadata.name}")
                case Deleted(last=last):
                    del self.pods[last.metadata.uid]
                    self.log.append(f"-{last.metadata.name}")

    @property
    def versions(self) -> dict[str, str]:
        return {pod.metadata.name: pod.metadata.resource_version for pod in self.pods.values()}


class Api:
    """Lists from `pods`; every watch is served by the next of `watches`, after the last one by silence.

    A request for the version alone gets `latest`, by default that of the list.
    """

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.version = "10"
        self.latest = ""
        self.lists = 0
        self.asked_how_new = 0
        self.holds_lists = False
        self.held: list[Peer] = []
        self.watched_from: list[str] = []
        self.watched_for: list[int] = []
        self.watches: list[Callable[[Peer], Awaitable[None] | None]] = []
        self.list_refusals: list[tuple[int, str]] = []

    def __call__(self, request: Request, peer: Peer) -> Awaitable[None] | None:
        if "watch" in request.query:
            self.watched_from.append(request.query["resourceVersion"])
            self.watched_for.append(int(request.query["timeoutSeconds"]))
            if self.watches:
                return self.watches.pop(0)(peer)
            peer.begin_stream()
            return None
        if request.query.get("limit") == "1":
            self.asked_how_new += 1
            peer.answer(200, pod_list(*self.pods[:1], version=self.latest or self.version))
            return None
        if self.list_refusals:
            peer.refuse(*self.list_refusals.pop(0))
            return None
        self.lists += 1
        if self.holds_lists:
            self.held.append(peer)
            return None
        peer.answer(200, pod_list(*self.pods, version=self.version))
        return None


@contextlib.asynccontextmanager
async def mirrored(
    api: Callable[[Request, Peer], Any], **options: Any
) -> AsyncIterator[tuple[Mirror, Reflector[Pod], ScriptedServer]]:
    mirror = Mirror()
    async with ScriptedServer(api) as server:
        transport = Transport(server.credentials())
        random = Random(1)
        options.setdefault("backoff", Backoff(initial_seconds=0.01, limit_seconds=0.05, random=random))
        given = {
            name: kind(**{field: options.pop(field) for field in kind.__struct_fields__ if field in options})
            for name, kind in (("selector", Selector), ("first_list", FirstList), ("patience", Patience))
        }
        reflector = Reflector(transport, PODS, mirror, random=random, **given, **options)
        task = asyncio.create_task(reflector.run())
        try:
            yield mirror, reflector, server
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await transport.close()


def serve(*events: tuple[str, Any], end: bool = False) -> Callable[[Peer], None]:
    def watch(peer: Peer) -> None:
        peer.begin_stream()
        for kind, obj in events:
            peer.event(kind, obj)
        if end:
            peer.end_stream()

    return watch


async def test_a_list_then_changes_in_order() -> None:
    api = Api()
    api.pods = [pod("a"), pod("b")]
    api.watches = [
        serve(
            ("MODIFIED", pod("a", resourceVersion="11")),
            ("DELETED", pod("b", resourceVersion="12")),
            ("ADDED", pod("c", resourceVersion="13")),
            ("ADDED", pod("b", uid="uid-b2", resourceVersion="14")),
        )
    ]
    async with mirrored(api) as (mirror, reflector, _):
        assert await wait_synced([reflector], timeout_seconds=PATIENCE_SECONDS) == []
        await until(lambda: len(mirror.log) == 4)
        assert mirror.log == ["~a", "-b", "+c", "+b"]
        assert mirror.replacements == 1
        assert reflector.status.phase is Phase.WATCHING
        assert api.watched_from == ["10"]


async def test_a_start_is_as_old_as_the_reflector_runs() -> None:
    began = asyncio.get_running_loop().time()
    async with mirrored(lambda _, peer: None) as (_, reflector, __):
        assert reflector.status.since is None
        await until(lambda: reflector.status.since is not None)
        assert reflector.status.since is not None
        assert reflector.late_since is not None
        assert began <= reflector.status.since <= asyncio.get_running_loop().time()
        assert reflector.late_since >= began


async def test_a_long_list_lets_others_have_a_turn() -> None:
    api = Api()
    api.pods = [pod(f"p{number}") for number in range(1200)]
    turns: list[int] = []

    async def look(mirror: Mirror) -> None:
        while True:
            turns.append(len(mirror.pods))
            await asyncio.sleep(0)

    async with mirrored(api) as (mirror, reflector, _):
        looking = asyncio.create_task(look(mirror))
        assert await wait_synced([reflector], timeout_seconds=PATIENCE_SECONDS) == []
        looking.cancel()
        assert len(mirror.pods) == 1200
        assert mirror.replacements == 1
    assert {500, 1000} <= set(turns), "handed over bit by bit"


async def test_a_second_list_lets_others_have_a_turn_and_loses_nothing() -> None:
    api = Api()
    api.pods = [pod(f"p{number}") for number in range(700)]
    api.watches = [lambda peer: peer.refuse(410, "Expired")]
    async with mirrored(api) as (mirror, reflector, _):
        assert await wait_synced([reflector], timeout_seconds=PATIENCE_SECONDS) == []
        api.pods = [pod(f"p{number}", resourceVersion="20") for number in range(100, 1900)]
        api.version = "20"
        await until(lambda: api.lists >= 2 and len(mirror.pods) == 1800)
        assert set(mirror.pods) == {f"uid-p{number}" for number in range(100, 1900)}
        assert mirror.replacements == 1


async def test_the_list_is_read_in_pages_with_the_selector() -> None:
    queries: list[dict[str, str]] = []

    def script(request: Request, peer: Peer) -> None:
        queries.append(request.query)
        if "watch" in request.query:
            peer.begin_stream()
        elif "continue" not in request.query:
            peer.answer(200, pod_list(pod("a"), continue_="page two&=", version="10"))
        else:
            peer.answer(200, pod_list(pod("b"), version="10"))

    async with mirrored(script, fields=UNFINISHED_PODS, labels="cell in (3, 4)") as (mirror, _, __):
        await until(lambda: len(queries) == 3)
        assert {query["labelSelector"] for query in queries} == {"cell in (3, 4)"}
        assert sorted(mirror.versions) == ["a", "b"]
        assert [query.get("continue") for query in queries] == [None, "page two&=", None]
        assert {query["fieldSelector"] for query in queries} == {UNFINISHED_PODS}
        assert queries[0]["limit"] == "500", "the first page shows how large objects are"
        assert queries[2]["allowWatchBookmarks"] == "true"
        assert 300 <= int(queries[2]["timeoutSeconds"]) <= 600


async def test_pages_of_large_objects_have_fewer() -> None:
    limits: list[int] = []
    large = [pod(f"p{number}", annotations={"a": "x" * 100_000}) for number in range(10)]

    def script(request: Request, peer: Peer) -> None:
        if "watch" in request.query:
            peer.begin_stream()
            return
        limits.append(int(request.query["limit"]))
        peer.answer(200, pod_list(*large, continue_="" if "continue" in request.query else "more"))

    async with mirrored(script) as (_, reflector, __):
        await reflector.synced.wait()

    assert limits[0] == 500
    assert 70 < limits[1] < 90, "8 MiB of 100 kB each"


async def test_a_list_is_read_before_there_are_handlers() -> None:
    asked: list[str | None] = []

    def script(request: Request, peer: Peer) -> None:
        if "watch" in request.query:
            asked.append("watch")
            peer.begin_stream()
            return
        asked.append(request.query.get("continue"))
        page = int(request.query.get("continue", "1"))
        peer.answer(200, pod_list(pod(f"p{page}"), continue_=str(page + 1) if page < 4 else "", version="10"))

    async with mirrored(script) as (_, reflector, __):
        await until(lambda: asked[-1:] == ["watch"])
        asked.clear()
        early, late = Reflector(reflector._transport, PODS, random=Random(1)), Mirror()
        running = asyncio.create_task(early.run())
        await until(lambda: asked == [None, "2", "3", "4"])
        assert not early.synced.is_set()
        early.attach(late)
        await early.synced.wait()
        assert sorted(late.versions) == ["p1", "p2", "p3", "p4"]
        assert late.replacements == 1
        running.cancel()


async def test_a_first_list_is_handed_over_after_the_one_that_it_waits_for() -> None:
    api, other = Api(), asyncio.Event()
    api.pods = [pod("a"), pod("b")]
    async with mirrored(api, after=other) as (mirror, reflector, _):
        await until(lambda: api.lists == 1)
        await asyncio.sleep(0.05)
        before = (mirror.replacements, reflector.synced.is_set())
        other.set()
        await reflector.synced.wait()

        assert before == (0, False)
        assert sorted(mirror.versions) == ["a", "b"]


async def test_a_continue_token_that_expired_restarts_the_list_in_one_piece() -> None:
    limits: list[str | None] = []

    def script(request: Request, peer: Peer) -> None:
        if "watch" in request.query:
            peer.begin_stream()
            return
        limits.append(request.query.get("limit"))
        if "continue" in request.query:
            peer.refuse(410, "Expired")
        elif "limit" in request.query:
            peer.answer(200, pod_list(pod("old"), continue_="x"))
        else:
            peer.answer(200, pod_list(pod("a"), pod("b")))

    async with mirrored(script) as (mirror, reflector, _):
        await reflector.synced.wait()
        assert sorted(mirror.versions) == ["a", "b"]
        assert limits == ["500", "2000", None]


async def test_a_watch_that_ends_resumes_where_it_stopped_bookmarks_included() -> None:
    api = Api()
    api.watches = [
        serve(("ADDED", pod("a", resourceVersion="11")), end=True),
        serve(("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "500"}}), end=True),
    ]
    async with mirrored(api) as (mirror, _, __):
        await until(lambda: len(api.watched_from) == 3)
        assert api.watched_from == ["10", "11", "500"]
        assert api.lists == 1
        assert mirror.log == ["+a"]


async def test_a_watch_cut_in_the_middle_of_a_line_loses_nothing() -> None:
    api = Api()
    line = msgspec.json.encode({"type": "ADDED", "object": pod("b", resourceVersion="12")}) + b"\n"

    def cut(peer: Peer) -> None:
        peer.begin_stream()
        peer.event("ADDED", pod("a", resourceVersion="11"))
        peer.chunk(line[: len(line) // 2])
        peer.close()

    api.watches = [cut, serve(("ADDED", pod("b", resourceVersion="12")))]
    async with mirrored(api) as (mirror, _, __):
        await until(lambda: mirror.log == ["+a", "+b"])
        assert api.watched_from == ["10", "11"]
        assert api.lists == 1


@pytest.mark.parametrize("size", [1, 13, 4096])
async def test_lines_may_come_in_pieces_of_any_size(size: int) -> None:
    api = Api()
    big = "x" * 50_000
    raw = b"".join(
        msgspec.json.encode(
            {"type": "ADDED", "object": pod(f"p{n}", resourceVersion=str(20 + n), annotations={"big": big[: n * 500]})}
        )
        + b"\n"
        for n in range(4)
    )

    async def pieces(peer: Peer) -> None:
        peer.begin_stream()
        for start in range(0, len(raw), size):
            peer.chunk(raw[start : start + size])
            if start % (size * 50) == 0:
                await asyncio.sleep(0)

    api.watches = [pieces]
    async with mirrored(api) as (mirror, _, __):
        await until(lambda: len(mirror.log) == 4)
        assert mirror.log == ["+p0", "+p1", "+p2", "+p3"]


async def test_many_events_of_one_read_are_delivered_in_one_batch() -> None:
    api = Api()

    def burst(peer: Peer) -> None:
        peer.begin_stream()
        lines = [{"type": "ADDED", "object": pod(f"p{n}", resourceVersion=str(20 + n))} for n in range(300)]
        peer.chunk(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    api.watches = [burst]
    async with mirrored(api) as (mirror, _, __):
        await until(lambda: len(mirror.pods) == 300)
        assert len(mirror.batches) <= 3


# --- 410 Gone -------------------------------------------------------------------------------------------

GONE = {"kind": "Status", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}


@pytest.mark.parametrize("form", ["answer", "event"])
async def test_after_gone_only_the_differences_are_delivered(form: str) -> None:
    api = Api()
    api.pods = [pod("same"), pod("changes"), pod("goes"), pod("again", uid="one")]

    def gone(peer: Peer) -> None:
        api.pods = [pod("same"), pod("changes", resourceVersion="9"), pod("comes"), pod("again", uid="two")]
        api.version = "99"
        if form == "answer":
            peer.refuse(410, "Expired")
        else:
            peer.begin_stream()
            peer.event("ERROR", GONE)

    api.watches = [gone]
    async with mirrored(api) as (mirror, _, __):
        await until(lambda: api.watched_from == ["10", "99"])
        assert mirror.log[0] == "~changes"
        assert sorted(mirror.log[1:3]) == ["-again", "-goes"]
        assert sorted(mirror.log[3:]) == ["+again", "+comes"]
        assert mirror.replacements == 1


async def test_a_list_that_is_read_again_is_handed_over_in_small_slices() -> None:
    api = Api()
    names = [f"pod-{number}" for number in range(5 * LIST_OBJECTS)]
    api.pods = [pod(name) for name in names[: 4 * LIST_OBJECTS]]

    def gone(peer: Peer) -> None:
        api.pods = [pod(name, resourceVersion="9") for name in names[LIST_OBJECTS:]]
        api.version = "99"
        peer.refuse(410, "Expired")

    api.watches = [gone]
    async with mirrored(api) as (mirror, _, __):
        await until(lambda: api.watched_from == ["10", "99"])
        assert len(mirror.log) == 5 * LIST_OBJECTS
        assert mirror.log.index(f"~{names[-LIST_OBJECTS - 1]}") < mirror.log.index(f"-{names[0]}")
        assert max(mirror.batches) <= LIST_OBJECTS


async def test_the_object_of_a_missed_deletion_has_its_identity() -> None:
    api = Api()
    api.pods = [pod("goes")]
    ends: list[Pod] = []

    def gone(peer: Peer) -> None:
        api.pods = []
        peer.refuse(410, "Expired")

    api.watches = [gone]
    async with mirrored(api) as (mirror, _, __):
        forward = mirror.changed

        def keep(changes: Sequence[Change[Pod]], /) -> None:
            ends.extend(change.last for change in changes if isinstance(change, Deleted))
            forward(changes)

        mirror.changed = keep  # type: ignore[method-assign]
        await until(lambda: bool(ends))
        meta = ends[0].metadata
        assert (meta.namespace, meta.name, meta.uid) == ("default", "goes", "uid-goes")


async def test_a_storm_of_gone_is_met_with_pauses_not_with_a_storm_of_lists() -> None:
    api = Api()
    api.watches = [lambda peer: peer.refuse(410, "Expired")] * 1000
    backoff = Backoff(initial_seconds=0.05, limit_seconds=0.2, random=Random(1))
    async with mirrored(api, backoff=backoff) as (_, __, ___):
        began = asyncio.get_running_loop().time()
        await until(lambda: api.lists >= 6)
        assert asyncio.get_running_loop().time() - began > 0.3


@pytest.mark.parametrize("form", ["answer", "event"])
async def test_while_the_list_is_read_again_the_view_is_not_current(form: str) -> None:
    api = Api()
    api.pods = [pod("a")]
    told = asyncio.Event()

    async def gone(peer: Peer) -> None:
        await told.wait()
        api.pods, api.version, api.holds_lists = [pod("a"), pod("b")], "99", True
        peer.event("ERROR", GONE)
        peer.end_stream()

    def begin(peer: Peer) -> Awaitable[None] | None:
        if form == "answer":  # an intermediary may do so
            api.pods, api.version, api.holds_lists = [pod("a"), pod("b")], "99", True
            peer.refuse(410, "Expired")
            return None
        peer.begin_stream()
        return gone(peer)

    api.watches = [begin]
    async with mirrored(api) as (mirror, reflector, _):
        await reflector.synced.wait()
        assert reflector.is_current
        told.set()
        await until(lambda: bool(api.held))
        assert reflector.status.phase is Phase.LISTING
        assert not reflector.is_current
        assert reflector.losses == 1
        api.holds_lists = False
        api.held[0].answer(200, pod_list(*api.pods, version=api.version))
        await until(lambda: reflector.is_current)
        assert sorted(mirror.versions) == ["a", "b"]


# --- is the view current? ---------------------------------------------------------------------------------

BOOKMARK_99 = ("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "99"}})


def cut(peer: Peer) -> None:
    peer.begin_stream()
    peer.abort()


async def test_a_watch_that_continues_after_a_cut_is_current_once_it_has_caught_up() -> None:
    api = Api()
    api.latest = "13"
    goes_on = asyncio.Event()

    async def slowly(peer: Peer) -> None:
        peer.begin_stream()
        peer.event("ADDED", pod("a", resourceVersion="12"))
        await goes_on.wait()
        peer.event("ADDED", pod("b", resourceVersion="13"))

    api.watches = [cut, slowly]
    async with mirrored(api) as (mirror, reflector, _):
        await until(lambda: mirror.log == ["+a"] and api.asked_how_new == 1)
        await asyncio.sleep(0.05)
        assert reflector.status.phase is Phase.CATCHING_UP
        assert not reflector.is_current
        goes_on.set()
        await until(lambda: reflector.is_current)
        assert mirror.log == ["+a", "+b"]
        assert api.lists == 1


async def test_a_silent_watch_is_reopened_with_a_short_timeout_to_get_a_bookmark() -> None:
    api = Api()
    api.latest = "99"
    api.watches = [cut, serve(), serve(BOOKMARK_99)]
    async with mirrored(api, few_objects=-1) as (_, reflector, __):
        await until(lambda: len(api.watched_from) == 3 and reflector.is_current)
        assert api.watched_for[2] == SHORT_WATCH_SECONDS
        assert min(api.watched_for[:2]) >= 300
        assert (reflector.position, api.lists, api.asked_how_new) == (99, 1, 1)


async def test_of_a_watch_of_few_objects_that_says_nothing_the_list_is_read_again() -> None:
    api = Api()
    api.latest = "99"
    api.pods = [pod("a"), pod("b")]

    def silent(peer: Peer) -> None:
        api.pods, api.version = [pod("a")], "99"
        peer.begin_stream()

    api.watches = [cut, silent]
    async with mirrored(api, few_objects=2) as (mirror, reflector, _):
        await until(lambda: api.lists == 2 and reflector.is_current)
        assert mirror.log == ["-b"]
        assert mirror.replacements == 1


@pytest.mark.parametrize("promised", [False, True])
async def test_a_first_list_that_takes_longer_than_a_gap_may_last_is_not_read_again_and_again(
    promised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time at which its watch is open it is too old, and on a busy API server the next one is, too.

    A watch that says nothing after that is believed, except by a caller that needs more certainty.
    """
    monkeypatch.setattr(kube_policy_scheduler.adapters.kube.reflector, "GAP_SECONDS", 0.05)
    api = Api()

    while_listed: list[Callable[[], None]] = []

    async def bookmark(peer: Peer) -> None:
        peer.begin_stream()
        await asyncio.sleep(0.1)
        peer.event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": api.version}})

    async def slowly(request: Request, peer: Peer) -> None:
        api.version = str(int(api.version) + 1)  # other objects change
        if request.query.get("timeoutSeconds") == str(SHORT_WATCH_SECONDS):
            api.watches = [bookmark]
        elif "watch" in request.query:
            api.watches = [serve(("ADDED", pod("meanwhile", resourceVersion="12")))]
        elif request.query["limit"] != "1":
            for call in while_listed:
                call()
            await asyncio.sleep(0.1)
        if (answering := api(request, peer)) is not None:
            await answering

    async with mirrored(slowly, few_objects=500) as (mirror, reflector, __):
        if promised:
            while_listed.append(reflector.prove)
        await until(lambda: reflector.is_current)
        assert mirror.log == ["+meanwhile"]
        assert api.lists == 1
        assert (SHORT_WATCH_SECONDS in api.watched_for) is promised


async def test_a_first_watch_that_failed_to_open_is_believed_as_one_that_did_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A silent watch brings no bookmark for a minute, and other objects change all the time."""
    monkeypatch.setattr(kube_policy_scheduler.adapters.kube.reflector, "GAP_SECONDS", 0.5)
    api = Api()
    api.watches = [lambda peer: peer.refuse(503, "ServiceUnavailable")] * 2

    async def slowly(request: Request, peer: Peer) -> None:
        api.latest = str(int(api.latest or api.version) + 1)
        if "watch" not in request.query and request.query["limit"] != "1":
            await asyncio.sleep(0.6)
        if (answering := api(request, peer)) is not None:
            await answering

    async with mirrored(slowly) as (_, reflector, __):
        await until(lambda: reflector.is_current)
        assert (api.lists, len(api.watched_from)) == (1, 3)
        assert SHORT_WATCH_SECONDS not in api.watched_for
        reflector.prove()
        assert not reflector.is_current, "a caller that needs certainty is not content with silence"


async def test_a_first_watch_is_not_believed_if_a_connection_was_cut_since_the_list() -> None:
    """During the outage others may have placed pods, and the server may be late to say so."""
    api = Api()

    def opens(peer: Peer) -> None:
        api.latest = api.version = "11"  # a watch from 10 says nothing of that, or late
        reflector.doubt()
        peer.begin_stream()

    api.watches = [opens]
    async with mirrored(api) as (_, reflector, __):
        await until(lambda: reflector.status.phase is Phase.WATCHING)  # until a watch opens, the list is good enough
        assert api.lists == 2


async def test_where_no_bookmark_comes_a_list_shows_what_there_is() -> None:
    api = Api()
    api.latest = "99"

    def last(peer: Peer) -> None:
        api.pods, api.version = [pod("a")], "99"
        serve(end=True)(peer)

    api.watches = [cut, serve(), serve(end=True), last]
    async with mirrored(api, few_objects=-1) as (mirror, reflector, _):
        await until(lambda: len(api.watched_from) >= 4 and reflector.is_current)
        assert (api.lists, sorted(mirror.versions)) == (2, ["a"])


async def test_versions_that_are_not_numbers_are_not_compared() -> None:
    api = Api()
    api.version = "x10"
    api.watches = [cut]
    async with mirrored(api) as (_, reflector, __):
        await until(lambda: api.lists == 2 and reflector.is_current)


async def test_a_watch_that_hangs_unnoticed_is_not_current_from_the_moment_on_in_which_a_proof_is_wanted() -> None:
    api = Api()
    api.watches = [serve(), serve(("ADDED", pod("missed", resourceVersion="11")))]
    async with mirrored(api, few_objects=-1) as (mirror, reflector, _):
        await until(lambda: len(api.watched_from) == 1 and reflector.is_current)
        api.latest = "11"
        wanted_at = asyncio.get_running_loop().time()
        reflector.prove()
        assert not reflector.is_current
        assert not reflector.keeps_promise
        await until(lambda: reflector.is_current)
        assert reflector.keeps_promise
        assert reflector.as_of >= wanted_at
        assert mirror.log == ["+missed"]
        assert (api.watched_from, api.lists) == (["10", "10"], 1)


async def test_a_view_that_is_up_to_date_is_proved_by_one_question() -> None:
    api = Api()
    async with mirrored(api) as (_, reflector, server):
        await until(lambda: reflector.status.phase is Phase.WATCHING)
        reflector.prove()
        await until(lambda: reflector.is_current)
        assert len(server.requests) == 3
        assert server.requests[2].query == {"limit": "1"}


@pytest.mark.parametrize("moment", ["before the list", "while it is listed", "question on its way", "after the answer"])
@pytest.mark.parametrize("seen", [9, 10])
async def test_a_version_that_somebody_vouches_for_proves_the_view_that_has_it_without_any_event(
    moment: str, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of the store is ahead of that of the pods, as a lease is written all the time; no bookmark comes."""
    asks = moment in ("question on its way", "after the answer")
    if asks:
        monkeypatch.setattr(kube_policy_scheduler.adapters.kube.reflector, "GAP_SECONDS", 0.05)
    monkeypatch.setattr(kube_policy_scheduler.adapters.kube.reflector, "QUIET_SECONDS", 30.0)
    monkeypatch.setattr(kube_policy_scheduler.adapters.kube.reflector, "FIRST_QUIET_SECONDS", 30.0)
    api = Api()
    api.pods, api.latest = [pod("a")], "11"
    came, goes_on = asyncio.Event(), asyncio.Event()

    async def slowly(request: Request, peer: Peer) -> None:
        is_question = request.query.get("limit") == "1"
        is_list = "watch" not in request.query and not is_question
        if (is_list and moment == "while it is listed") or (is_question and moment == "question on its way"):
            came.set()
            await goes_on.wait()
        elif is_list:
            await asyncio.sleep(0.1)
        if (answering := api(request, peer)) is not None:
            await answering

    async with mirrored(slowly) as (_, reflector, __):
        if moment == "after the answer":
            await until(lambda: reflector.status.phase is Phase.CATCHING_UP and api.asked_how_new == 1)
            await asyncio.sleep(0.05)
        elif moment != "before the list":
            await came.wait()
        reflector.prove(seen)
        goes_on.set()
        await until(lambda: reflector.is_current)
        await until(lambda: reflector.status.phase is Phase.WATCHING)
        assert reflector.keeps_promise
        assert (api.lists, len(api.watched_from)) == (1, 1)


async def test_what_a_caller_needs_may_be_as_of_a_moment_that_has_passed() -> None:
    api = Api()
    async with mirrored(api) as (_, reflector, __):
        await until(lambda: reflector.status.phase is Phase.WATCHING)
        ahead = asyncio.get_running_loop().time()
        reflector.prove()
        await until(lambda: reflector.is_current)
        reflector.prove(at=ahead)
        assert reflector.is_current, "it is proved as of then"
        assert api.asked_how_new == 1
        reflector.prove()
        assert not reflector.is_current
        await until(lambda: reflector.is_current and api.asked_how_new == 2)


@pytest.mark.parametrize("status", [403, 404, 410])
async def test_where_it_cannot_be_asked_how_new_the_collection_is_a_list_tells(status: int) -> None:
    api = Api()
    is_refused = True

    def script(request: Request, peer: Peer) -> Awaitable[None] | None:
        if is_refused and request.query.get("limit") == "1":
            peer.refuse(status, "No")
            return None
        return api(request, peer)

    async with mirrored(script) as (_, reflector, __):
        await until(lambda: reflector.status.phase is Phase.WATCHING)
        reflector.prove()
        await until(lambda: api.lists >= 2)
        await until(lambda: reflector.is_current)
        assert reflector.keeps_promise


async def test_a_question_that_takes_long_is_asked_with_more_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_policy_scheduler.adapters.kube.reflector, "QUESTION_TIMEOUT_SECONDS", 0.2)
    api, asked, patience = Api(), itertools.count(1), list[float]()
    request_of = Transport.request

    async def observed(self: Transport, verb: str, path: str, **given: Any) -> bytes:
        if "limit=1" in path.split("?")[-1].split("&"):
            patience.append(given["timeout_seconds"])
        return await request_of(self, verb, path, **given)

    async def script(request: Request, peer: Peer) -> None:
        if request.query.get("limit") == "1" and next(asked) < 3:
            await asyncio.Event().wait()
        if (answering := api(request, peer)) is not None:
            await answering

    monkeypatch.setattr(Transport, "request", observed)
    async with mirrored(script) as (_, reflector, __):
        await until(lambda: reflector.status.phase is Phase.WATCHING)
        reflector.prove()
        await until(lambda: reflector.is_current)
    assert patience[:3] == pytest.approx([0.2, 0.4, 0.8])


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_to_watches_and_whenever_it_is_proved_the_view_becomes_current(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bookmarks but of short watches, 410s, ends, cuts, refusals, slow lists; proofs at any moment.

    Once the server is well, a short while is enough, and nobody creates anything.
    """
    for name, seconds in {"GAP_SECONDS": 0.05, "QUIET_SECONDS": 0.03, "QUESTION_TIMEOUT_SECONDS": 0.1}.items():
        monkeypatch.setattr(kube_policy_scheduler.adapters.kube.reflector, name, seconds)
    random, api, is_well = Random(seed), Api(), False
    api.pods = [pod("a"), pod("b")]

    async def bookmark(peer: Peer) -> None:
        peer.begin_stream()
        await asyncio.sleep(0.01)
        peer.event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": api.version}})
        peer.end_stream()

    def change(peer: Peer) -> None:
        api.version = str(int(api.version) + 1)
        api.pods = [pod("a", resourceVersion=api.version), pod("b")]
        serve(("MODIFIED", api.pods[0]), end=random.random() < 0.3)(peer)

    faults: list[Callable[[Peer], Awaitable[None] | None]] = [
        cut,
        serve(),
        serve(end=True),
        change,
        lambda peer: peer.refuse(410, "Expired"),
        lambda peer: peer.refuse(503, "ServiceUnavailable"),
        serve(("ERROR", GONE)),
    ]

    async def script(request: Request, peer: Peer) -> None:
        if random.random() < 0.5:
            api.version = str(int(api.version) + 1)  # of the store: leases are written all the time
        if request.query.get("timeoutSeconds") == str(SHORT_WATCH_SECONDS):
            api.watches = [bookmark]
        elif not is_well and "watch" in request.query:
            api.watches = [random.choice(faults)]
        elif not is_well and random.random() < 0.3:
            peer.refuse(random.choice((429, 500, 503)), retry_after="0")
            return
        else:
            await asyncio.sleep(random.choice((0.0, 0.0, 0.08)))
        if (answering := api(request, peer)) is not None:
            await answering

    async with mirrored(script, few_objects=random.choice((-1, 500))) as (mirror, reflector, __):
        for _ in range(20):
            await asyncio.sleep(random.uniform(0.0, 0.05))
            match random.randrange(4):
                case 0:
                    reflector.prove()
                case 1:
                    reflector.doubt()
                case _:
                    reflector.prove(max(1, int(api.version) - random.randrange(4)))
        is_well = True
        await reflector.synced.wait()
        proved_at = asyncio.get_running_loop().time()
        reflector.prove(int(mirror.versions["a"]) if random.random() < 0.5 else None)
        await until(lambda: reflector.status.phase is Phase.WATCHING)
        assert (reflector.is_current, reflector.keeps_promise) == (True, True)
        assert reflector.as_of >= proved_at
        assert mirror.versions == {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in api.pods}


async def test_the_watch_after_a_first_list_can_be_put_off_until_somebody_needs_certainty() -> None:
    api = Api()
    api.pods = [pod("a")]
    api.watches = [serve(("ADDED", pod("b", resourceVersion="11")))]
    async with mirrored(api, watch_after_seconds=60.0) as (mirror, reflector, _):
        assert await wait_synced([reflector], timeout_seconds=PATIENCE_SECONDS) == []
        assert reflector.is_current
        assert not api.watched_from
        api.latest = "11"
        reflector.prove()
        assert not reflector.is_current
        await until(lambda: reflector.is_current)
        assert (mirror.log, api.watched_from, api.lists) == (["+b"], ["10"], 1)


async def test_a_question_that_fails_is_asked_again() -> None:
    api = Api()
    refusals = [503, 429]

    def script(request: Request, peer: Peer) -> Awaitable[None] | None:
        if request.query.get("limit") == "1" and refusals:
            peer.refuse(refusals.pop(), retry_after="0")
            return None
        return api(request, peer)

    async with mirrored(script) as (_, reflector, __):
        await until(lambda: reflector.status.phase is Phase.WATCHING)
        reflector.prove()
        await until(lambda: not refusals and reflector.is_current)


async def test_a_watch_that_ends_as_a_routine_stays_current() -> None:
    api = Api()
    seen: list[bool] = []
    api.watches = [serve(("ADDED", pod("a", resourceVersion="11")), end=True)]
    async with mirrored(api, watch_seconds=(0.1, 0.2)) as (_, reflector, __):
        await until(lambda: bool(seen.append(reflector.is_current)) or len(api.watched_from) == 2)
        await until(lambda: reflector.status.phase is Phase.WATCHING)
        assert all(seen[seen.index(True) :])
        assert (api.asked_how_new, reflector.losses) == (0, 0)


@pytest.mark.parametrize("optional", [False, True])
async def test_a_watch_that_ends_before_its_time_may_have_been_cut_off_before(optional: bool) -> None:
    api = Api()
    api.latest = "12"
    api.watches = [serve(("ADDED", pod("a", resourceVersion="11")), end=True)]
    async with mirrored(api, optional=optional) as (_, reflector, server):
        await until(lambda: len(api.watched_from) == 2)
        if optional:  # some intermediaries end what says nothing, and most kinds seldom say anything
            await until(lambda: reflector.status.phase is Phase.WATCHING)
            assert api.asked_how_new == 0
        else:
            await until(lambda: api.asked_how_new == 1)
            assert not reflector.is_current
            server.peers[-2].event("ADDED", pod("b", resourceVersion="12"))
            await until(lambda: reflector.is_current)


# --- what is broken in the data ---------------------------------------------------------------------------


def broken(name: str, **metadata: Any) -> dict[str, Any]:
    return {**pod(name, **metadata), "spec": {"containers": "none"}}


async def test_one_malformed_object_in_a_list_is_reported_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
    api.pods = [pod("a"), broken("bad"), pod("c")]
    reported: list[str] = []
    async with mirrored(api, on_malformed=lambda bad: reported.append(str(bad))) as (mirror, reflector, _):
        await reflector.synced.wait()
        assert sorted(mirror.versions) == ["a", "c"]
        assert len(reported) == 1
        assert reported[0].startswith("default/bad: Expected `array | null`, got `str`")
        assert "ignored a malformed object of pods: default/bad" in caplog.text


async def test_malformed_events_are_passed_over_and_the_object_known_before_stays() -> None:
    api = Api()
    api.pods = [pod("a"), pod("b")]
    api.watches = [
        serve(
            ("MODIFIED", broken("a", resourceVersion="11")),
            ("ADDED", broken("new", resourceVersion="12")),
            ("DELETED", broken("b", resourceVersion="13")),
            ("ADDED", pod("c", resourceVersion="14")),
            ("BOOKMARK", {"metadata": {"resourceVersion": "20"}, "spec": 7}),
            end=True,
        )
    ]
    async with mirrored(api) as (mirror, reflector, _):
        await until(lambda: len(api.watched_from) == 2)
        assert mirror.log == ["-b", "+c"]
        assert mirror.versions == {"a": "1", "c": "14"}
        assert reflector.counts.malformed == 3
        assert api.watched_from == ["10", "20"]


async def test_a_relist_does_not_take_a_malformed_object_for_deleted() -> None:
    api = Api()
    api.pods = [pod("a"), pod("b")]

    def gone(peer: Peer) -> None:
        api.pods = [broken("a", resourceVersion="7"), pod("b", resourceVersion="8")]
        peer.refuse(410, "Expired")

    api.watches = [gone]
    async with mirrored(api) as (mirror, _, __):
        await until(lambda: len(api.watched_from) == 2)
        assert mirror.log == ["~b"]
        assert mirror.versions == {"a": "1", "b": "8"}


async def test_a_line_that_is_not_an_event_leads_to_a_new_list() -> None:
    api = Api()
    api.pods = [pod("a")]

    def noise(peer: Peer) -> None:
        api.pods = [pod("a"), pod("b")]
        peer.begin_stream()
        peer.event("MODIFIED", pod("a", resourceVersion="11"))
        peer.chunk(b'{"type": "ADDED", "object": {"metadata"\n')

    api.watches = [noise]
    async with mirrored(api) as (mirror, _, __):
        await until(lambda: api.lists == 2 and len(api.watched_from) == 2)
        assert sorted(mirror.versions) == ["a", "b"]


async def test_a_handler_that_fails_gets_each_object_again(caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
    api.pods = [pod("a")]
    api.watches = [serve(("ADDED", pod("b", resourceVersion="11")))]
    async with mirrored(api) as (mirror, _, __):
        forward = mirror.changed

        def fail_once(changes: Sequence[Change[Pod]], /) -> None:
            mirror.changed = forward  # type: ignore[method-assign]
            api.pods.append(pod("b", resourceVersion="11"))
            raise ZeroDivisionError

        mirror.changed = fail_once  # type: ignore[method-assign]
        await until(lambda: sorted(mirror.versions) == ["a", "b"])
        assert (api.lists, mirror.replacements) == (2, 1)
        assert mirror.log[:2] == ["~a", "+b"], "also what has not changed"
        assert "unexpected error in the reflector of pods" in caplog.text


async def test_what_ended_while_the_handler_failed_is_gone_after_the_next_list() -> None:
    api = Api()
    api.pods = [pod("a"), pod("b"), pod("c")]

    def end_two(peer: Peer) -> None:
        api.pods = [pod("a")]
        peer.begin_stream()
        peer.event("DELETED", pod("b", resourceVersion="11"))

    api.watches = [end_two]
    async with mirrored(api) as (mirror, _, __):
        forward = mirror.changed

        def fail_once(changes: Sequence[Change[Pod]], /) -> None:
            mirror.changed = forward  # type: ignore[method-assign]
            raise ZeroDivisionError

        mirror.changed = fail_once  # type: ignore[method-assign]
        await until(lambda: list(mirror.versions) == ["a"])
        assert mirror.log == ["-b", "~a", "-c"]


async def test_after_an_internal_error_objects_are_handed_over_in_slices() -> None:
    api = Api()
    api.pods = [pod(f"pod-{number}") for number in range(4 * LIST_OBJECTS)]
    api.watches = [serve(("MODIFIED", pod("pod-0", resourceVersion="11")))]
    async with mirrored(api) as (mirror, _, __):
        forward = mirror.changed

        def fail_once(changes: Sequence[Change[Pod]], /) -> None:
            mirror.changed = forward  # type: ignore[method-assign]
            mirror.batches.clear()
            raise ZeroDivisionError

        mirror.changed = fail_once  # type: ignore[method-assign]
        await until(lambda: api.lists == 2 and sum(mirror.batches) == 4 * LIST_OBJECTS)
        assert mirror.replacements == 1
        assert max(mirror.batches) == LIST_OBJECTS


# --- what is broken in the network ------------------------------------------------------------------------


async def test_a_watch_that_falls_silent_is_reopened() -> None:
    api = Api()
    api.watches = [serve(("ADDED", pod("a", resourceVersion="11")))]
    async with mirrored(api, silence_seconds=0.05) as (_, __, ___):
        await until(lambda: len(api.watched_from) >= 3)
        assert api.watched_from[:2] == ["10", "11"]
        assert api.lists == 1


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_hot_loop() -> None:
    api = Api()
    api.watches = [serve(end=True)] * 1000
    backoff = Backoff(initial_seconds=0.05, limit_seconds=0.2, random=Random(1))
    async with mirrored(api, backoff=backoff) as (_, __, ___):
        began = asyncio.get_running_loop().time()
        await until(lambda: len(api.watched_from) >= 6)
        assert asyncio.get_running_loop().time() - began > 0.3


async def test_errors_of_the_list_are_met_with_growing_pauses_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kube_policy_scheduler")
    api = Api()
    api.pods = [pod("a")]
    api.list_refusals = [(500, "InternalError")] * 6
    async with mirrored(api) as (mirror, reflector, server):
        await reflector.synced.wait()
        assert sorted(mirror.versions) == ["a"]
        assert len([r for r in server.requests if "watch" not in r.query]) == 7
    assert [record.getMessage() for record in caplog.records] == ["pods: 500 InternalError: no"]


async def test_a_server_that_goes_and_comes_back_is_followed_with_one_line_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kube_policy_scheduler")
    api = Api()
    api.pods = [pod("a")]
    async with mirrored(api) as (mirror, reflector, server):
        await until(lambda: len(api.watched_from) == 1)
        await server.stop_listening()
        await until(lambda: reflector.status.phase is Phase.RETRYING)
        await asyncio.sleep(0.2)
        assert "cannot reach" in reflector.status.problem
        api.watches = [serve(("ADDED", pod("b", resourceVersion="11")))]
        await server.listen()
        await until(lambda: sorted(mirror.versions) == ["a", "b"] and reflector.is_current)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_when_the_server_is_back_backoff_ends_at_once() -> None:
    api = Api()
    backoff = Backoff(initial_seconds=60.0, limit_seconds=60.0, random=Random(1))
    async with mirrored(api, backoff=backoff) as (_, reflector, server):
        await until(lambda: len(api.watched_from) == 1)
        await server.stop_listening()
        await until(lambda: reflector.status.phase is Phase.RETRYING)
        other = Reflector(reflector._transport, PODS, Mirror(), random=Random(1))
        assert await other.step() > 0  # not reachable
        await server.listen()
        reaches_it = asyncio.create_task(other.step())
        await until(lambda: reflector.status.phase is Phase.WATCHING)
        reaches_it.cancel()
        await asyncio.gather(reaches_it, return_exceptions=True)


async def test_a_token_that_is_not_accepted_is_reported_once_for_all(caplog: pytest.LogCaptureFixture) -> None:
    def script(request: Request, peer: Peer) -> None:
        peer.refuse(401, "Unauthorized", "Unauthorized")

    async with mirrored(script) as (_, reflector, __):
        await until(lambda: "401 Unauthorized" in reflector.status.problem)
        await asyncio.sleep(0.1)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "rejected the credentials (a test)" in caplog.text


@pytest.mark.parametrize(("status", "phase"), [(404, Phase.ABSENT), (403, Phase.FORBIDDEN)])
async def test_an_optional_resource_that_is_not_there_counts_as_synced_and_empty(status: int, phase: Phase) -> None:
    api = Api()
    api.list_refusals = [(status, "NotThere")] * 100
    async with mirrored(api, optional=True) as (mirror, reflector, _):
        assert await wait_synced([reflector], timeout_seconds=PATIENCE_SECONDS) == []
        assert mirror.replacements == 1
        assert mirror.pods == {}
        assert reflector.status.phase is phase


FAULTY_ANSWERS: list[Callable[[Peer], None]] = [
    *(partial(Peer.refuse, status=status, reason="Refused") for status in (400, 405, 406, 410, 415, 500, 503)),
    lambda peer: peer.answer(200, b"<html>not found</html>"),
    lambda peer: peer.answer(200, {"items": 7}),
    lambda peer: peer.abort(),
    lambda peer: None,  # never
]


@pytest.mark.parametrize("asks", ["discovery", "the list", "both"])
@pytest.mark.parametrize("fault", FAULTY_ANSWERS)
async def test_something_optional_that_cannot_be_read_counts_as_absent_after_a_while_and_is_tried_again(
    fault: Callable[[Peer], None], asks: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once, with the reason."""
    monkeypatch.setattr(kube_policy_scheduler.adapters.kube.discovery, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(kube_policy_scheduler.adapters.kube.pages, "LIST_TIMEOUT_SECONDS", 0.1)
    caplog.set_level(logging.INFO, "kube_policy_scheduler")
    api, is_well = Api(), False
    api.pods = [pod("a")]
    groups: dict[str, Any] = {
        "/apis/g.k8s.io": {"versions": [{"version": "v1"}]},
        "/apis/g.k8s.io/v1": {"resources": [{"name": "pods"}]},
    }

    def script(request: Request, peer: Peer) -> Awaitable[None] | None:
        is_discovery = request.path in groups
        if not is_well and (asks == "both" or is_discovery == (asks == "discovery")):
            fault(peer)
            return None
        if is_discovery:
            peer.answer(200, groups[request.path])
            return None
        return api(request, peer)

    resource = msgspec.structs.replace(PODS, group="g.k8s.io", version_differs=True)
    mirror = Mirror()
    async with ScriptedServer(script) as server:
        transport, random = Transport(server.credentials()), Random(1)
        backoff = Backoff(initial_seconds=0.01, limit_seconds=0.05, random=random)
        reflector = Reflector(
            transport, resource, mirror, random=random, optional=True, patience=Patience(0.2, backoff=backoff)
        )
        running = asyncio.create_task(reflector.run())
        assert await wait_synced([reflector], timeout_seconds=PATIENCE_SECONDS) == []
        told = [record.__dict__["why"] for record in caplog.records if "going on without" in record.getMessage()]
        if told:  # discovery that says no is not needed where the list can be had
            assert (reflector.status.phase, reflector.is_current) == (Phase.ABSENT, True)
            assert reflector.status.problem == f"{resource}: {told[0]}"
            assert mirror.pods == {}
        else:
            assert asks == "discovery"
        is_well = True
        await until(lambda: sorted(mirror.versions) == ["a"] and reflector.status.phase is Phase.WATCHING)
        assert sum("going on without" in record.getMessage() for record in caplog.records) == len(told)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await transport.close()


async def test_something_that_everybody_needs_is_waited_for_whatever_the_answers() -> None:
    async with mirrored(lambda _, peer: peer.refuse(503, "ServiceUnavailable"), optional_seconds=0.05) as (_, pods, __):
        assert await wait_synced([pods], timeout_seconds=0.5) == [pods]
        assert pods.status.phase is not Phase.ABSENT


@pytest.mark.parametrize("status", [401, 429])
async def test_a_busy_server_does_not_make_anything_absent(status: int) -> None:
    def script(request: Request, peer: Peer) -> None:
        peer.refuse(status, "No")

    async with mirrored(script, optional=True, optional_seconds=0.05) as (_, pods, __):
        assert await wait_synced([pods], timeout_seconds=0.5) == [pods]


async def test_a_required_resource_that_is_forbidden_is_named_and_not_synced(caplog: pytest.LogCaptureFixture) -> None:
    message = 'pods is forbidden: User "x" cannot list resource "pods"'

    def script(request: Request, peer: Peer) -> None:
        peer.refuse(403, "Forbidden", message)

    async with mirrored(script) as (_, reflector, server):
        assert await wait_synced([reflector], timeout_seconds=0.3) == [reflector]
        assert reflector.status.phase is Phase.FORBIDDEN
        assert message in reflector.status.problem
        assert len(server.requests) == 1  # tried again, but slowly
    assert f"failed to list or watch pods: 403 Forbidden: {message}" in caplog.text


@pytest.mark.parametrize("status", [403, 404])
async def test_what_could_be_had_before_and_is_refused_for_a_moment_is_asked_for_again_soon(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kube_policy_scheduler")
    api = Api()
    api.watches = [cut, *[lambda peer: peer.refuse(status, "NotYet")] * 5]
    async with mirrored(api) as (_, reflector, __):
        await until(lambda: len(api.watched_from) == 7 and reflector.is_current)
        assert api.lists == 1
    assert [record.levelname for record in caplog.records] == ["INFO"]


async def test_retry_after_of_the_server_is_respected() -> None:
    times: list[float] = []

    def script(request: Request, peer: Peer) -> None:
        if "watch" in request.query:
            peer.begin_stream()
            return
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            peer.refuse(429, "TooManyRequests", retry_after="1")
        else:
            peer.answer(200, pod_list())

    async with mirrored(script) as (_, reflector, __):
        await reflector.synced.wait()
        assert times[1] - times[0] >= 1.0


# --- lines ------------------------------------------------------------------------------------------------


def test_a_line_without_end_is_refused_before_it_fills_memory() -> None:
    buffer = LineBuffer()
    megabyte = b"x" * (1 << 20)
    for _ in range(64):
        assert buffer.feed(megabyte) == b""
    with pytest.raises(MalformedAnswer, match="longer than 64 MiB"):
        buffer.feed(megabyte)
