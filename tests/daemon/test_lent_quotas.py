"""Quotas with borrowing, through the whole daemon: fair order, reclaim of pods and gangs, restarts."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.daemon.observing.live_metrics import PendingCensus
from tests.simulation.api_server import refusal
from tests.simulation.calm import Calm, story

QUEUES = """\
queue research for pods where pod.label.team == "research" min cpu 4
queue production for pods where pod.label.team == "production" min cpu 4
order by queue.share, pod.priority desc, pod.queued
reclaim after 10s
"""
GANG = "gang by pod.label.job size number(pod.label.size) ?? 1 within 60s if pod.label.job\n"
CAPPED = (
    'queue all max cpu 4\nqueue a of all for pods where pod.label.team == "a" min cpu 2\nqueue b of all min cpu 2\n'
)


def team(calm: Calm) -> dict[str, int]:
    """Return how many pods of each team have a node and are not being deleted."""
    found: dict[str, int] = {}
    for pod in calm.server.pods.values():
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
            name = pod["metadata"]["labels"]["team"]
            found[name] = found.get(name, 0) + 1
    return found


def several(calm: Calm, name: str, number: int, *, first: int = 0, **more: str) -> None:
    for at in range(first, first + number):
        calm.pod(f"{name}-{at}", team=name, **more)


def test_a_queue_borrows_and_gives_back_after_the_patience() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "research", 8)
        await calm.after(5)
        assert team(calm) == {"research": 8}
        several(calm, "production", 6)
        await calm.after(5)
        assert team(calm) == {"research": 8}, "not before the patience has passed"
        await calm.after(120)
        assert team(calm) == {"research": 4, "production": 4}
        assert calm.process.scheduler.queue_evictions.reclaimed == {"research": 4}
        assert calm.process.scheduler.queue_evictions.by_rule()["guarantee"] == {"research": 4}
        await calm.after(300)
        assert team(calm) == {"research": 4, "production": 4}

    story(QUEUES, tell, cpus=(4, 4))


def test_the_patience_counts_from_when_the_queue_could_guarantee_the_pod() -> None:
    """Production has its guarantee; a pod that waits for long already gets one's turn only after another has gone."""

    async def tell(calm: Calm) -> None:
        several(calm, "production", 4)
        several(calm, "research", 8, first=0)
        await calm.after(5)
        several(calm, "production", 1, first=4)
        await calm.after(60)
        assert team(calm) == {"production": 4, "research": 4}, "above its guarantee, it evicts nobody"
        calm.pod("research-first", team="research", priority=10)
        await calm.after(60)
        calm.server.delete_pod("production-0")
        await calm.after(8)
        assert team(calm) == {"production": 3, "research": 5}, "guaranteed since then, and not before the patience"
        await calm.after(30)
        assert team(calm) == {"production": 4, "research": 4}

    story(QUEUES.replace("queue.share, ", ""), tell, cpus=(4, 4))


def test_pods_that_are_alike_and_find_nobody_do_not_end_the_nominations_of_those_that_wait() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "research", 8)
        await calm.after(5)
        for at in range(6):
            calm.pod(f"production-{at}", team="production", millis=2000)
        await calm.after(300)
        assert team(calm) == {"research": 4, "production": 2}
        assert calm.process.scheduler.queue_evictions.reclaimed == {"research": 4}

    story(QUEUES.replace(" after 10s", ""), tell, cpus=(4, 4))


def test_pending_pods_are_counted_by_queue() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "a", 5)
        several(calm, "b", 3)
        await calm.after(20)
        scheduler = calm.process.scheduler
        census = PendingCensus(scheduler.queue, scheduler.cluster)
        assert list(census.steps())
        pending = census.queues.pending
        assert pending == {"all": 4, "a": 3, "b": 1} or pending == {"all": 4, "a": 1, "b": 3}

    story(CAPPED, tell, cpus=(8,))


def test_pods_are_served_fairly_whoever_comes_first() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "research", 20)
        several(calm, "production", 20)
        await calm.after(10)
        assert team(calm) == {"research": 6, "production": 6}

    story(QUEUES, tell, cpus=(6, 6))


def test_a_restart_in_the_middle_of_a_reclaim_evicts_nobody_twice() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "research", 8)
        await calm.after(5)
        several(calm, "production", 4)
        await calm.after(9)
        calm.restart()
        await calm.after(180)
        assert team(calm) == {"research": 4, "production": 4}

    story(QUEUES, tell, cpus=(4, 4))


def test_a_gang_evicts_for_all_of_its_members_or_for_none() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "research", 8)
        await calm.after(5)
        several(calm, "production", 4, job="p", size="4")
        await calm.after(180)
        assert team(calm) == {"research": 4, "production": 4}

    story(QUEUES + GANG, tell, cpus=(4, 4))


@pytest.mark.parametrize(("size", "running"), [(1, 0), (2, 0), (2, 2)], ids=["a pod", "a gang", "one more of a gang"])
def test_what_is_guaranteed_is_got_from_other_queues_before_pods_of_lower_priority_go(size: int, running: int) -> None:
    more = 1 if running else size

    async def tell(calm: Calm) -> None:
        def job(at: int) -> None:
            calm.pod(f"job-{at}", team="production", job="j", size=str(size), priority=10)

        calm.pod("production-0", team="production")
        for at in range(running):
            job(at)
        await calm.after(5)
        for at in range(7 - running):
            calm.pod(f"research-{at}", team="research", priority=5)
        await calm.after(5)
        for at in range(running, running + more):
            job(at)
        await calm.after(60)
        assert "production-0" in calm.on_nodes()
        assert team(calm) == {"production": 1 + running + more, "research": 7 - running - more}

    story(QUEUES.replace(" after 10s", "") + GANG, tell, cpus=(4, 4))


def test_no_pod_is_evicted_for_a_gang_that_is_larger_than_its_guarantee() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "research", 8)
        await calm.after(5)
        several(calm, "production", 5, job="p", size="5")
        await calm.after(180)
        assert team(calm) == {"research": 8}

    story(QUEUES + GANG, tell, cpus=(4, 4))


def test_gangs_are_evicted_as_a_whole() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "research", 4, job="r1", size="4")
        await calm.after(5)
        several(calm, "research", 4, first=4, job="r2", size="4")
        await calm.after(5)
        assert team(calm) == {"research": 8}
        several(calm, "production", 1)
        await calm.after(120)
        assert team(calm) == {"research": 4, "production": 1}
        left = {name for name in calm.on_nodes() if name.startswith("research")}
        assert left in ({f"research-{at}" for at in range(4)}, {f"research-{at}" for at in range(4, 8)})

    story(QUEUES + GANG, tell, cpus=(4, 4))


def test_a_gang_stays_whole_if_a_webhook_keeps_one_of_its_members() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "research", 8, job="r", size="8")
        await calm.after(5)
        calm.server.denials["research-3"] = 500
        several(calm, "production", 1)
        await calm.after(120)
        assert team(calm) == {"research": 8}
        calm.server.denials.clear()
        await calm.after(60)
        assert team(calm) == {"production": 1}

    story(QUEUES + GANG, tell, cpus=(4, 4))


def test_no_part_of_a_gang_stays_if_the_api_server_fails_between_two_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(calm: Calm) -> None:
        delete, failures = calm.server.delete_pod, iter(range(3))

        def fails(name: str) -> None:
            if name == "research-3" and next(failures, None) is not None:
                raise refusal(500, "etcd did not answer")
            delete(name)

        several(calm, "research", 8, job="r", size="8")
        await calm.after(5)
        monkeypatch.setattr(calm.server, "delete_pod", fails)
        several(calm, "production", 1)
        await calm.after(120)
        assert team(calm) == {"production": 1}

    story(QUEUES + GANG, tell, cpus=(4, 4))


def test_a_gang_is_charged_as_a_whole() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "a", 2)
        await calm.after(3)
        for at in range(3):
            calm.pod(f"gang-{at}", team="b", job="g", size="3")
        await calm.after(20)
        assert team(calm) == {"a": 2}
        assert calm.waiting() == [], "it holds no quota that others could use"
        assert "queue b, below all, has no quota for cpu: 2 used, the gang asks for 3" in calm.told.why["gang-0"]
        calm.server.finish_pod("a-0")
        await calm.after(20)
        assert team(calm) == {"a": 1, "b": 3}

    story(CAPPED + GANG, tell, cpus=(8,))


def test_a_freed_quota_wakes_those_who_wait_for_it() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "a", 6)
        await calm.after(5)
        assert team(calm) == {"a": 4}
        calm.server.finish_pod(next(name for name in calm.on_nodes()))
        await calm.after(15)
        assert team(calm) == {"a": 4}

    story(CAPPED, tell, cpus=(8,))


def attempts(calm: Calm, prefix: str) -> int:
    """Return how often pods were decided that still wait."""
    return sum(queued.attempts for queued in calm.process.scheduler.queue if queued.pod.name.startswith(prefix))


TWO_TREES = (
    'queue a for pods where pod.label.team == "a" max cpu 2\n'
    'queue both max cpu 4\nqueue b of both for pods where pod.label.team == "b" max cpu 2\nqueue c of both max cpu 3\n'
)


def test_pods_that_wait_for_their_queue_are_woken_by_its_tree_only() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "a", 4)
        several(calm, "b", 4)
        await calm.after(20)
        assert team(calm) == {"a": 2, "b": 2}
        before = attempts(calm, "a")
        for at in range(2):
            calm.server.finish_pod(f"b-{at}")
            await calm.after(15)
        assert team(calm) == {"a": 2, "b": 2}, "those of b are woken"
        assert attempts(calm, "a") == before, "those of a are not"
        calm.server.finish_pod("a-0")
        await calm.after(15)
        assert team(calm) == {"a": 2, "b": 2}

    story(TWO_TREES, tell, cpus=(16,))


def test_a_limit_above_wakes_pods_of_other_queues_below_it() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "c", 3)
        await calm.after(5)
        several(calm, "b", 2)
        await calm.after(15)
        assert team(calm) == {"c": 3, "b": 1}
        calm.server.finish_pod("c-0")
        await calm.after(15)
        assert team(calm) == {"c": 2, "b": 2}

    story(TWO_TREES, tell, cpus=(16,))


def test_pods_of_one_queue_come_within_a_guarantee_when_others_of_it_end() -> None:
    async def tell(calm: Calm) -> None:
        several(calm, "b", 2)
        several(calm, "a", 2)
        await calm.after(10)
        assert team(calm) == {"a": 2, "b": 2}
        calm.pod("late", team="a", millis=2000)
        await calm.after(20)
        calm.server.finish_pod("a-0")
        calm.server.finish_pod("a-1")
        await calm.after(30)
        assert "late" in calm.on_nodes()

    story(CAPPED + "reclaim\n", tell, cpus=(8,))


def test_a_gang_with_a_member_in_the_queue_that_asks_is_not_evicted_in_part() -> None:
    async def tell(calm: Calm) -> None:
        for team_, name in (("a", "mixed-0"), ("b", "mixed-1")):
            calm.pod(name, team=team_, job="mixed", size="2")
        several(calm, "b", 2)
        await calm.after(10)
        assert team(calm) == {"a": 1, "b": 3}
        calm.pod("asks", team="a", millis=2000)
        await calm.after(60)
        there = calm.on_nodes()
        assert ("mixed-0" in there) == ("mixed-1" in there), there
        calm.pod("asks-again", team="a")
        await calm.after(60)
        there = calm.on_nodes()
        assert ("mixed-0" in there) == ("mixed-1" in there), there

    story(
        'queue all max cpu 4\nqueue a of all for pods where pod.label.team == "a" min cpu 4\nqueue b of all\nreclaim\n'
        + GANG,
        tell,
        cpus=(4,),
    )


def test_two_nominated_pods_do_not_keep_the_same_quota_from_each_other() -> None:
    """Their victims are gone, and since they were nominated the quota or the nodes have become too small for both."""

    async def tell(calm: Calm) -> None:
        several(calm, "a", 2)
        for pod in calm.server.pods.values():
            pod["status"]["nominatedNodeName"] = "n0"
        await calm.after(30)
        assert team(calm) == {"a": 1}

    story('queue a for pods where pod.label.team == "a" max cpu 1\n', tell, cpus=(4,))
