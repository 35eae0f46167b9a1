"""Past usage of queues outlives a scheduler that dies, one that ends in order, and a change of the leader."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

from kube_policy_scheduler.adapters.kube.past_usage_lease import ANNOTATION, decode_past_usage
from kube_policy_scheduler.cluster.quotas.past_usage import PastUsage
from kube_policy_scheduler.daemon.scheduling.past_usage import STORE_SECONDS
from tests.simulation.api_server import ApiServer, refusal
from tests.simulation.calm import Calm, story
from tests.simulation.chaos import containers, policies_of
from tests.simulation.replica import ELECTED, PAST_USAGE, Replica
from tests.simulation.virtual_time import run

QUEUES = """\
queue all max cpu 2 remember 2h
queue a of all for pods where pod.label.team == "a"
queue b of all for pods where pod.label.team == "b"
order by queue.share, pod.queued
"""
FORGETFUL = QUEUES.replace(" remember 2h", "")
NAMED = "filter true\n"


def stored(server: ApiServer) -> PastUsage | None:
    lease = server.leases.get(PAST_USAGE)
    return decode_past_usage(lease["metadata"]["annotations"][ANNOTATION]) if lease is not None else None


def cores(server: ApiServer, name: str) -> float:
    past = stored(server)
    return past.queues.get(name, (0.0,))[0] / 1000 if past is not None else 0.0


async def worked(calm: Calm, team: str, *, seconds: float) -> None:
    """Let two pods of a team run for a time, and end."""
    for number in range(2):
        calm.pod(f"{team}-{number}", team=team)
    await calm.after(seconds)
    for number in range(2):
        calm.server.finish_pod(f"{team}-{number}")
    await calm.after(1)


async def first_of(calm: Calm, *teams: str) -> str:
    """Return the team whose pod is first, of one pod each that wait for the same room."""
    calm.pod("blocks", millis=2000, team="nobody")
    await calm.after(5)
    for team in teams:
        calm.pod(f"next-{team}", millis=2000, team=team)
    await calm.after(5)
    calm.server.finish_pod("blocks")
    await calm.after(60)
    there = [name for name in calm.on_nodes() if name.startswith("next-")]
    assert len(there) == 1
    return there[0].removeprefix("next-")


@pytest.mark.parametrize("remembers", [True, False])
def test_the_order_is_the_same_after_a_restart_although_the_pods_have_ended(remembers: bool) -> None:
    async def tell(calm: Calm) -> None:
        await worked(calm, "a", seconds=3600)
        await calm.after(STORE_SECONDS + 5)
        calm.restart()
        await calm.after(10)
        assert await first_of(calm, "a", "b") == ("b" if remembers else "a")

    story(QUEUES if remembers else FORGETFUL, tell, cpus=(2,))


def test_policies_that_change_forget_nothing() -> None:
    async def tell(calm: Calm) -> None:
        await worked(calm, "a", seconds=3600)
        for text in (QUEUES + "filter true\n", FORGETFUL, "", QUEUES):
            calm.process.use_policies(calm.policies_of(text + NAMED))
            calm.pod("any", team="b")
            await calm.after(10)
            assert (calm.process.scheduler.cluster.quota_usage is not None) == bool(text)
            calm.server.finish_pod("any")
            await calm.after(1)
        assert await first_of(calm, "a", "b") == "b"

    story(QUEUES, tell, cpus=(2,))


def test_queues_that_go_while_their_past_usage_is_read_are_counted_no_longer() -> None:
    """Who is nominated had precedence by queues of which no policy knew, and whom it evicted came back: for ever."""

    async def tell(calm: Calm) -> None:
        answer, read = calm.server.answer, 0

        def swaps(verb: str, path: str, body: bytes) -> bytes:
            nonlocal read
            if PAST_USAGE in path:
                read += 1
                calm.process.use_policies(calm.policies_of(NAMED))
            return answer(verb, path, body)

        calm.server.answer = swaps  # type: ignore[method-assign]
        await calm.after(60)
        assert read == 1
        assert calm.process.scheduler.cluster.quota_usage is None

    story(QUEUES, tell, cpus=(2,))


def test_without_a_memory_nothing_is_read_or_written() -> None:
    async def tell(calm: Calm) -> None:
        await worked(calm, "a", seconds=STORE_SECONDS * 2)
        assert calm.server.leases == {}
        assert calm.process.past_usage.state() is None

    story(FORGETFUL, tell, cpus=(2,))


def test_it_is_stored_once_in_a_while_whatever_happens_meanwhile() -> None:
    async def tell(calm: Calm) -> None:
        writes = 0

        def plan(verb: str, path: str) -> str:
            nonlocal writes
            writes += verb in ("PUT", "POST") and "leases" in path
            return ""

        calm.process.connection.plan = plan
        for number in range(20):
            calm.pod(f"p{number}", team="a")
            await calm.after(STORE_SECONDS / 10)
            calm.server.finish_pod(f"p{number}")
        assert writes == 2 or writes == 3

    story(QUEUES, tell, cpus=(2,))


def test_what_is_refused_is_reported_and_tried_again() -> None:
    async def tell(calm: Calm) -> None:
        answer, allowed = calm.server.answer, False

        def guarded(verb: str, path: str, body: bytes) -> bytes:
            if (PAST_USAGE in path or (verb == "POST" and b'"Lease"' in body)) and not allowed:
                raise refusal(403, "leases are forbidden")
            return answer(verb, path, body)

        calm.server.answer = guarded  # type: ignore[method-assign]
        await worked(calm, "a", seconds=60)
        state = calm.process.past_usage.state()
        assert state is not None
        assert "leases are forbidden" in state.problem
        assert state.stored_at is None
        allowed = True
        await calm.after(30)
        state = calm.process.past_usage.state()
        assert state is not None
        assert state.problem == ""
        assert state.stored_at is not None

    story(QUEUES, tell, cpus=(2,))


def test_what_somebody_else_wrote_into_the_lease_is_written_over() -> None:
    async def tell(calm: Calm) -> None:
        await worked(calm, "a", seconds=60)
        calm.server.leases[PAST_USAGE]["metadata"]["annotations"] = {ANNOTATION: json.dumps({"at": "noon"})}
        calm.restart()
        await worked(calm, "b", seconds=600)
        assert stored(calm.server) is not None

    story(QUEUES, tell, cpus=(2,))


@pytest.mark.parametrize("leaves", [True, False])
def test_a_standby_takes_over_what_was_used_before_it_began(leaves: bool) -> None:
    async def main() -> None:
        server = ApiServer(Random(1))
        server.set_node("n0", cpu=4, labels={})
        policies = policies_of(QUEUES)
        first = Replica(server, policies, name="r1", seed=1, election=ELECTED)
        server.create_pod("p", containers(2000), {"team": "a"})
        await asyncio.sleep(3600)
        server.finish_pod("p")
        await asyncio.sleep(STORE_SECONDS + 5)
        before = cores(server, "a")
        assert before > 0.4
        second = Replica(server, policies, name="r2", seed=2, election=ELECTED)
        await asyncio.sleep(60)
        if leaves:
            await first.leave()
        else:
            first.kill()
        await asyncio.sleep(STORE_SECONDS + 60)
        assert server.leases[PAST_USAGE]["spec"]["holderIdentity"] == "r2"
        assert before * 0.8 < cores(server, "a") < before
        assert not server.violations
        second.kill()

    run(main())


def test_a_leader_that_was_stopped_writes_nothing_over_what_the_next_one_stored() -> None:
    async def main() -> None:
        server = ApiServer(Random(1))
        server.set_node("n0", cpu=4, labels={})
        policies = policies_of(QUEUES)
        first = Replica(server, policies, name="r1", seed=1, election=ELECTED)
        await asyncio.sleep(STORE_SECONDS)
        second = Replica(server, policies, name="r2", seed=2, election=ELECTED)
        await asyncio.sleep(60)
        first.machine.stop()
        await asyncio.sleep(60)
        assert second.fence.allows()
        server.create_pod("p", containers(2000), {"team": "a"})
        await asyncio.sleep(3600)
        server.finish_pod("p")
        await asyncio.sleep(STORE_SECONDS + 5)
        used = cores(server, "a")
        assert used > 0.4
        second.kill()
        first.machine.go_on()
        await asyncio.sleep(30)
        first.kill()
        assert cores(server, "a") > 0.9 * used, "it saw nothing of that pod"
        third = Replica(server, policies, name="r3", seed=3, election=ELECTED)
        await asyncio.sleep(STORE_SECONDS + 60)
        assert server.leases[PAST_USAGE]["spec"]["holderIdentity"] == "r3"
        assert cores(server, "a") > 0.8 * used
        third.kill()

    run(main())


@pytest.mark.parametrize("amid", [False, True])
def test_what_a_standby_read_by_a_wrong_clock_it_reads_again_when_the_clock_is_set_right(amid: bool) -> None:
    """amid: it is set while the answer is on its way."""

    async def main() -> None:
        server = ApiServer(Random(1))
        server.set_node("n0", cpu=4, labels={})
        policies = policies_of(QUEUES)
        first = Replica(server, policies, name="r1", seed=1, election=ELECTED)
        server.create_pod("p", containers(2000), {"team": "a"})
        await asyncio.sleep(3600)
        server.finish_pod("p")
        await asyncio.sleep(STORE_SECONDS + 60)
        before = cores(server, "a")
        assert before > 0.4
        server.clock_ahead = 20 * 3600.0
        second = Replica(server, policies, name="r2", seed=2, election=ELECTED)
        answer, read = server.answer, 0

        def set_right(verb: str, path: str, body: bytes) -> bytes:
            nonlocal read
            found = answer(verb, path, body)
            if amid and not read and second.scheduler.algorithm.policies is not None and PAST_USAGE in path:
                read, server.clock_ahead = 1, 0.0
                second.scheduler.context.clock()  # tells that it was set
            return found

        server.answer = set_right  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert read == amid
        first.kill()
        server.clock_ahead = 0.0
        await asyncio.sleep(60)
        assert server.leases[PAST_USAGE]["spec"]["holderIdentity"] == "r2"
        assert before * 0.9 < cores(server, "a") < before
        assert not server.violations
        second.kill()

    run(main())
