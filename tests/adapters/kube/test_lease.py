"""At most one leader writes, no matter what the API server does; and soon there is one again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.lease import HeldLease, LeaderElector, LeaseSettings
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, until

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Api:
    """One Lease with optimistic concurrency; `refuse` decides about faults per identity."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.silent = False
        self.failing = False
        self.refusals = 0
        """Of the next requests so many are refused."""
        self.may_watch = False
        self.watchers: list[Peer] = []

    def __call__(self, request: Request, peer: Peer) -> None:
        if self.silent:
            return
        if "watch" in request.query:
            self._watch(request, peer)
            return
        if self.failing or self.refusals:
            self.refusals = max(0, self.refusals - 1)
            peer.refuse(500, "InternalError")
            return
        match request.verb:
            case "GET" if self.lease is None:
                peer.refuse(404, "NotFound")
            case "GET":
                peer.answer(200, self.lease)
            case "POST" if self.lease is not None:
                peer.refuse(409, "AlreadyExists")
            case "PUT" if (
                self.lease is None
                or request.json["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]
            ):
                peer.refuse(409, "Conflict")
            case _:
                self.version += 1
                self.lease = request.json
                assert self.lease is not None
                self.lease["metadata"]["resourceVersion"] = str(self.version)
                peer.answer(200, self.lease)
                for watcher in self.watchers:
                    watcher.event("MODIFIED", self.lease)

    def _watch(self, request: Request, peer: Peer) -> None:
        if not self.may_watch:
            peer.refuse(403, "Forbidden")
            return
        assert request.query["fieldSelector"] == "metadata.name=policy-scheduler"
        peer.begin_stream()
        self.watchers.append(peer)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    @property
    def annotations(self) -> dict[str, str]:
        assert self.lease is not None
        return dict(self.lease["metadata"].get("annotations") or {})

    def delete(self) -> None:
        deleted, self.lease = self.lease, None
        for watcher in self.watchers:
            watcher.event("DELETED", deleted)


SHORT = {"lease_seconds": 1.0, "renew_deadline_seconds": 0.6}
"""For leads that are to be lost; a busy machine loses one now and then by itself."""


class Candidate:
    def __init__(self, server: ScriptedServer, identity: str, **times: float) -> None:
        self.changes: list[str] = []
        self.sees: dict[str, int] = {}
        seconds = {"lease_seconds": 30.0, "renew_deadline_seconds": 20.0, "retry_seconds": 0.1, **times}
        self.transport = Transport(server.credentials())
        self.held = HeldLease(renew_deadline_seconds=seconds["renew_deadline_seconds"])
        self.elector = LeaderElector(
            self.transport,
            LeaseSettings("kube-system", "policy-scheduler", identity, **seconds),
            held=self.held,
            random=Random(identity),
            on_started=lambda: self.changes.append("started"),
            on_stopped=lambda why: self.changes.append(why),
            vouch=lambda: self.sees,
        )
        self.task = asyncio.create_task(self.elector.run())

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@contextlib.asynccontextmanager
async def election() -> AsyncIterator[tuple[Api, ScriptedServer, list[Candidate]]]:
    api = Api()
    candidates: list[Candidate] = []
    async with ScriptedServer(api) as server:
        yield api, server, candidates
        api.silent = api.failing = False
        for candidate in candidates:
            await candidate.stop()
            await candidate.transport.close()


def leaders(candidates: list[Candidate]) -> int:
    return sum(candidate.held.is_valid for candidate in candidates)


async def test_the_first_creates_the_lease_and_leads() -> None:
    async with election() as (api, server, candidates):
        candidates.append(Candidate(server, "a"))
        await until(lambda: candidates[0].held.is_valid)
        assert (api.spec["holderIdentity"], api.spec["leaseTransitions"]) == ("a", 0)
        assert api.spec["leaseDurationSeconds"] == 30
        renewed = api.spec["renewTime"]
        await until(lambda: api.spec["renewTime"] != renewed)
        assert api.spec["acquireTime"] == renewed or api.spec["acquireTime"] < api.spec["renewTime"]
        assert server.requests[0].path == PATH + "/policy-scheduler"


async def test_of_many_exactly_one_leads_and_when_it_stops_another_follows_at_once() -> None:
    async with election() as (api, server, candidates):
        candidates += [Candidate(server, name) for name in "abcde"]
        await until(lambda: leaders(candidates) == 1)
        for _ in range(50):
            await asyncio.sleep(0.005)
            assert leaders(candidates) == 1
        first = next(candidate for candidate in candidates if candidate.held.is_valid)
        await first.stop()
        assert first.changes == ["started", "shutting down"]
        candidates.remove(first)
        await first.transport.close()
        await until(lambda: leaders(candidates) == 1, seconds=20.0)  # less than the 30 s of the lease
        assert api.spec["leaseTransitions"] == 1 or api.spec["leaseTransitions"] == 2


async def test_a_leader_that_ends_in_order_hands_its_progress_to_the_next() -> None:
    async with election() as (api, server, candidates):
        first = Candidate(server, "a")
        first.sees = {"pods": 120, "podgroups.scheduling.k8s.io": 98}
        candidates.append(first)
        await until(lambda: first.held.is_valid)
        assert first.elector.follows_nobody, "there was no Lease, and nobody who held it"
        await first.stop()
        assert api.annotations == {"policy-scheduler/view": "pods=120,podgroups.scheduling.k8s.io=98"}
        second = Candidate(server, "b")
        candidates.append(second)
        await until(lambda: second.held.is_valid)
        assert not second.elector.follows_nobody
        assert second.elector.vouched == first.sees
        assert api.annotations == {}, "of a leader that dies nobody knows how far it had seen"
        await second.stop()
        third = Candidate(server, "c")
        candidates.append(third)
        await until(lambda: third.held.is_valid)
        assert (third.elector.follows_nobody, third.elector.vouched) == (False, {})


async def test_nothing_is_known_of_a_leader_whose_lease_ran_out() -> None:
    async with election() as (api, server, candidates):
        api.lease = {
            "metadata": {
                "name": "policy-scheduler",
                "resourceVersion": "1",
                "annotations": {"policy-scheduler/view": "pods=9", "keep": "me"},
            },
            "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"},
        }
        candidates.append(Candidate(server, "a"))
        await until(lambda: candidates[0].held.is_valid)
        assert (candidates[0].elector.follows_nobody, candidates[0].elector.vouched) == (False, {})
        assert api.annotations == {"keep": "me"}


@pytest.mark.parametrize("text", ["", "pods", "pods=", "pods=x,nodes=²", "=,=", "pods=" + "9" * 5000])
async def test_foreign_values_in_the_lease_do_no_harm(text: str) -> None:
    async with election() as (api, server, candidates):
        api.lease = {
            "metadata": {
                "name": "policy-scheduler",
                "resourceVersion": "1",
                "annotations": {"policy-scheduler/view": text},
            },
            "spec": {"holderIdentity": ""},
        }
        candidates.append(Candidate(server, "a"))
        await until(lambda: candidates[0].held.is_valid)
        assert candidates[0].elector.vouched == {}


async def test_a_leader_that_vanishes_is_followed_only_after_its_lease() -> None:
    async with election() as (api, server, candidates):
        stale = "2020-01-01T00:00:00.000000Z"  # its clock is years behind: only change counts, not the time written
        api.lease = {
            "metadata": {"name": "policy-scheduler", "resourceVersion": "1", "labels": {"keep": "me"}},
            "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": stale, "leaseTransitions": 4},
        }
        loop = asyncio.get_running_loop()
        began = loop.time()
        candidates.append(Candidate(server, "a"))
        await until(lambda: candidates[0].held.is_valid)
        assert loop.time() - began >= 1.0
        assert api.spec["leaseTransitions"] == 5
        assert api.lease["metadata"]["labels"] == {"keep": "me"}


@pytest.mark.parametrize("fault", ["silent", "failing", "down"])
async def test_a_leader_that_cannot_renew_stops_before_its_lease_ends(fault: str) -> None:
    async with election() as (api, server, candidates):
        leader = Candidate(server, "a", lease_seconds=10.0, renew_deadline_seconds=0.6)
        candidates.append(leader)
        await until(lambda: leader.held.is_valid)
        loop = asyncio.get_running_loop()
        began = loop.time()
        if fault == "down":
            await server.stop_listening()
        else:
            setattr(api, fault, True)
        assert await leader.task == "the lease could not be renewed within 0.6 s"
        assert not leader.held.is_valid
        assert loop.time() - began < 10.0
        assert leader.changes == ["started", "the lease could not be renewed within 0.6 s"]
        if fault == "down":
            await server.listen()


async def test_the_fence_closes_in_time_even_if_the_loop_was_blocked() -> None:
    async with election() as (_, server, candidates):
        leader = Candidate(server, "a", **SHORT)
        candidates.append(leader)
        await until(lambda: leader.held.is_valid)
        import time

        time.sleep(0.7)  # noqa: ASYNC251 (nothing of ours can run meanwhile)
        assert not leader.held.is_valid


async def test_short_failures_do_not_cost_the_lead() -> None:
    async with election() as (api, server, candidates):
        leader = Candidate(server, "a", retry_seconds=0.02)
        candidates.append(leader)
        await until(lambda: leader.held.is_valid)
        for _ in range(4):
            api.refusals = 3
            await until(lambda: api.refusals == 0)
            renewed = api.version
            await until(lambda version=renewed: api.version > version)  # type: ignore[misc]
            assert leader.held.is_valid
        assert leader.changes == ["started"]


async def test_with_a_watch_a_released_lease_is_acquired_at_once() -> None:
    async with election() as (api, server, candidates):
        api.may_watch = True
        times = {"lease_seconds": 300.0, "renew_deadline_seconds": 200.0, "retry_seconds": 60.0}
        candidates.append(Candidate(server, "a", **times))
        await until(lambda: leaders(candidates) == 1)
        candidates.append(Candidate(server, "b", **times))
        await until(lambda: candidates[1].elector.leader == "a" and bool(api.watchers))
        await candidates[0].stop()
        await until(lambda: candidates[1].held.is_valid)  # less than the retry period
        asked = len(server.requests)
        await asyncio.sleep(0.1)
        assert len(server.requests) == asked, "a leader that need not renew asks nothing"


async def test_a_lease_that_runs_out_is_taken_then_and_not_at_the_next_turn() -> None:
    async with election() as (api, server, candidates):
        api.lease = {
            "metadata": {"name": "policy-scheduler", "resourceVersion": "1"},
            "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"},
        }
        candidates.append(Candidate(server, "a", lease_seconds=300.0, renew_deadline_seconds=200.0, retry_seconds=60.0))
        await until(lambda: candidates[0].held.is_valid)


async def test_requests_that_hang_do_not_keep_the_renewal_waiting() -> None:
    async with election() as (api, server, candidates):
        leader = Candidate(server, "a")
        candidates.append(leader)
        await until(lambda: leader.held.is_valid)
        serve = server.script
        assert serve is not None
        server.script = lambda request, peer: None if "hang" in request.path else serve(request, peer)
        hanging = [asyncio.create_task(leader.transport.request("POST", "/hang")) for _ in range(200)]
        await until(lambda: any("hang" in request.path for request in server.requests))
        renewed = api.version
        await until(lambda: api.version > renewed + 2)
        assert leader.held.is_valid
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


async def test_a_lease_taken_by_another_ends_the_lead() -> None:
    async with election() as (api, server, candidates):
        leader = Candidate(server, "a")
        candidates.append(leader)
        await until(lambda: leader.held.is_valid)
        api.spec["holderIdentity"] = "b"
        api.lease["metadata"]["resourceVersion"] = "999"  # type: ignore[index]
        assert await leader.task == "the lease is now held by b"


async def test_a_deleted_lease_is_created_again_by_its_leader() -> None:
    async with election() as (api, server, candidates):
        leader = Candidate(server, "a")
        candidates.append(leader)
        await until(lambda: leader.held.is_valid)
        api.lease = None
        await until(lambda: api.lease is not None)
        assert api.spec["holderIdentity"] == "a"
        assert leader.held.is_valid


async def test_a_lease_that_is_deleted_in_the_midst_leaves_one_leader() -> None:
    async with election() as (api, server, candidates):
        api.may_watch = True
        times = {"lease_seconds": 30.0, "renew_deadline_seconds": 20.0, "retry_seconds": 10.0}
        candidates.append(Candidate(server, "a", **times))
        await until(lambda: leaders(candidates) == 1)
        candidates += [Candidate(server, name, **times) for name in "bc"]
        await until(lambda: len(api.watchers) == 3 and all(c.elector.leader == "a" for c in candidates))
        for _ in range(3):
            api.delete()
            await until(lambda: api.lease is not None)  # at once, not at the next turn
            assert api.spec["holderIdentity"] == "a"
            assert leaders(candidates) == 1
            await asyncio.sleep(0.05)
        assert [candidate.changes for candidate in candidates] == [["started"], [], []]


async def test_a_lease_that_is_deleted_under_a_leader_that_hangs_is_taken_only_when_it_would_have_run_out() -> None:
    async with election() as (api, server, candidates):
        api.may_watch = True
        api.lease = {
            "metadata": {"name": "policy-scheduler", "resourceVersion": "1"},
            "spec": {"holderIdentity": "hangs", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"},
        }
        candidates.append(Candidate(server, "b", retry_seconds=0.05))
        await until(lambda: candidates[0].elector.leader == "hangs")
        began = asyncio.get_running_loop().time()
        api.delete()
        await until(lambda: candidates[0].held.is_valid)
        assert asyncio.get_running_loop().time() - began > 0.8
        assert not candidates[0].elector.follows_nobody


async def test_a_candidate_logs_the_holder_and_errors(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kube_policy_scheduler")
    async with election() as (api, server, candidates):
        api.lease = {
            "metadata": {"name": "policy-scheduler", "resourceVersion": "1"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 300},
        }
        script = server.script
        assert script is not None
        candidates.append(Candidate(server, "b", retry_seconds=0.02))
        elector = candidates[0].elector
        await until(lambda: elector.leader == "a")
        server.script = lambda request, peer: peer.refuse(403, "Forbidden", "leases is forbidden")
        await until(lambda: elector.trouble != "")
        assert elector.trouble == "403 Forbidden: leases is forbidden"
        await asyncio.sleep(0.2)
        server.script = script
        await until(lambda: elector.trouble == "")
    told = [each for each in caplog.records if "lease" in each.getMessage()]
    assert {each.lease for each in told} == {"kube-system/policy-scheduler"}  # type: ignore[attr-defined]
    assert [(each.getMessage(), getattr(each, "holder", ""), getattr(each, "why", "")) for each in told] == [
        ("standing by: another replica holds the lease", "a", ""),
        ("failed to acquire the lease; this replica schedules no pods", "", "403 Forbidden: leases is forbidden"),
        ("standing by: another replica holds the lease", "a", ""),
    ]


async def test_a_server_that_is_busy_for_a_moment_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async with election() as (api, server, candidates):
        api.refusals = 3
        candidates.append(Candidate(server, "a", retry_seconds=0.02))
        await until(lambda: candidates[0].held.is_valid)
    assert "cannot take" not in caplog.text


async def test_after_an_outage_there_is_one_leader_again() -> None:
    async with election() as (_, server, candidates):
        candidates += [Candidate(server, name, **SHORT) for name in "ab"]
        await until(lambda: leaders(candidates) == 1)
        standby = next(candidate for candidate in candidates if not candidate.held.is_valid)
        await server.stop_listening()
        await until(lambda: leaders(candidates) == 0)
        await asyncio.sleep(0.6)
        assert leaders(candidates) == 0
        await server.listen()
        await until(lambda: standby.held.is_valid)


def test_times_that_could_let_two_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="lease times must grow"):
        LeaseSettings("n", "x", "me", lease_seconds=10, renew_deadline_seconds=10, retry_seconds=2)
