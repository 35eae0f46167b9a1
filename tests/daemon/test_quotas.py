"""`limit`: a burst never passes the line, also after a restart, and pods get in when there is room again."""

from __future__ import annotations

from tests.simulation.calm import Calm, story

QUOTA = "limit sum(request.cpu) by pod.label.tenant to 3 if pod.label.tenant\n"


def test_a_burst_never_passes_the_line_and_rejected_pods_get_in_when_others_end() -> None:
    async def tell(calm: Calm) -> None:
        calm.server.lag_seconds = 2.0  # decisions run far ahead of what the watch shows
        for number in range(8):
            calm.pod(f"x{number}", tenant="x")
            calm.pod(f"y{number}", tenant="y", millis=1500)
        calm.pod("free", millis=5000)
        await calm.after(8)
        assert sorted(name[0] for name in calm.on_nodes()) == ["f", "x", "x", "x", "y", "y"]
        first = next(name for name in calm.on_nodes() if name.startswith("x"))
        calm.server.finish_pod(first)
        await calm.after(15)
        assert sum(name.startswith("x") for name in calm.on_nodes()) == 3

    story(QUOTA, tell, cpus=(16, 16))


def test_a_new_scheduler_counts_what_the_one_before_it_placed() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(5):
            calm.pod(f"x{number}", tenant="x")
        await calm.after(0.7)  # in the middle of the first bindings
        calm.restart()
        await calm.after(10)
        assert len(calm.on_nodes()) == 3

    story(QUOTA, tell, cpus=(16,))


def test_pods_on_a_node_that_is_gone_count_until_they_are_gone_too() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(4):
            calm.pod(f"x{number}", tenant="x")
        await calm.after(3)
        calm.server.delete_node("n0" if calm.server.pods[calm.on_nodes()[0]]["spec"]["nodeName"] == "n0" else "n1")
        await calm.after(3)
        assert len(calm.on_nodes()) == 3
        await calm.after(40)  # what was on the node is collected
        assert len(calm.on_nodes()) in (1, 2, 3)
        assert all(calm.server.pods[name]["spec"]["nodeName"] in calm.server.nodes for name in calm.on_nodes())

    story(QUOTA + "pack by pod.label.tenant\n", tell, cpus=(16, 16))
