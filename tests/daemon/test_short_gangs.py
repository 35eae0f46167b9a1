"""A gang that lost pods: its rest keeps its nodes for `within`, and is evicted if the gang is not complete by then."""

from __future__ import annotations

from tests.simulation.calm import Calm, story

GANG = "gang by pod.label.job size number(pod.label.size) within 60s if pod.label.job\n"


def gang(calm: Calm, *, members: int = 3) -> None:
    for number in range(members):
        calm.pod(f"a{number}", job="a", size="3", owner="a")


def states(calm: Calm) -> list[str]:
    waiting_pods = calm.process.scheduler.waiting_pods
    return [state.sentence() for queued in calm.process.scheduler.queue for state in waiting_pods.states(queued)]


def lose(calm: Calm, name: str) -> None:
    """Let a pod be deleted, with its replacement pending, while its node takes no more pods."""
    node = calm.server.pods[name]["spec"]["nodeName"]
    calm.server.set_node(node, cpu=1, labels={}, unschedulable=True)
    calm.server.evict_pod(name)


def test_the_rest_of_a_gang_is_evicted_if_lost_pods_find_no_node_in_time() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm)
        await calm.after(5)
        assert calm.on_nodes() == ["a0", "a1", "a2"]
        lose(calm, "a1")
        await calm.after(50)
        assert calm.on_nodes() == ["a0", "a2"], "they keep their nodes for a minute"
        (sentence,) = states(calm)
        assert "those that run are evicted at" in sentence
        await calm.after(30)
        assert calm.on_nodes() == []
        assert calm.told.told["rest of a gang evicted"] == 2
        assert calm.process.scheduler.short_gangs.evicted == 2
        assert calm.told.why["a0"].startswith("only 2 pods of its gang ran for 1 min, and it needs 3: gang")
        for name in ("b0", "b2"):  # as their controller does
            calm.pod(name, job="a", size="3")
        await calm.after(20)
        assert calm.on_nodes() == [], "there is room for two of the three"
        calm.server.set_node("more", cpu=1, labels={})
        await calm.after(20)
        assert len(calm.on_nodes()) == 3, "it starts as a whole"
        assert calm.told.told["rest of a gang evicted"] == 2

    story(GANG, tell, cpus=(1, 1, 1))


def test_a_gang_that_is_complete_again_in_time_goes_on() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm)
        await calm.after(5)
        lose(calm, "a1")
        await calm.after(40)
        calm.server.set_node("more", cpu=1, labels={})
        await calm.after(100)
        assert [name for name in calm.on_nodes() if name in ("a0", "a2")] == ["a0", "a2"]
        assert len(calm.on_nodes()) == 3
        assert len(calm.process.scheduler.waiting_pods.short) == 0

    story(GANG, tell, cpus=(1, 1, 1))


def test_pods_that_have_done_their_work_are_no_loss() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm)
        await calm.after(5)
        calm.server.finish_pod("a0")
        calm.server.finish_pod("a2")
        await calm.after(200)
        assert calm.on_nodes() == ["a1"]
        calm.server.finish_pod("a1")
        await calm.after(70)
        assert len(calm.process.scheduler.waiting_pods.short) == 0

    story(GANG, tell, cpus=(1, 1, 1))


def test_a_gang_with_pods_to_spare_may_lose_some() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, members=4)
        await calm.after(20)
        assert len(calm.on_nodes()) == 4
        lose(calm, "a3")
        await calm.after(100)
        assert len(calm.on_nodes()) == 3

    story(GANG, tell, cpus=(1, 1, 1, 1))


def test_after_a_restart_the_rest_is_evicted_if_a_pod_waits_to_complete_it() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm)
        await calm.after(5)
        lose(calm, "a1")
        await calm.after(30)
        calm.restart()
        await calm.after(40)
        assert calm.on_nodes() == ["a0", "a2"], "what was before the restart is not known"
        await calm.after(60)
        assert calm.on_nodes() == []

    story(GANG, tell, cpus=(1, 1, 1))
