"""Outages of the API server and of the scheduler, also combined with other faults."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.faults.accounts import recovery, settled, sound, wait_all_bound
from tests.faults.plans import UNSETTLED
from tests.integration.cluster import Cluster, Real
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import CutStream, Drop, Exchange, ExpireStream, Fault, Front, LoseAnswer, Reply
from tests.integration.objects import node, pod

# the front now and then leaves a connection open that came while it closed; the scheduler is another process
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")


def test_a_scheduler_that_is_killed_again_and_again_leaves_no_pod_behind(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(*(node(f"n{i}", cpu="1") for i in range(12)))
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    names = [f"p{i}" for i in range(36)]
    for i, name in enumerate(names):
        cluster.add_pods(pod(name, cpu="300m"))
        if i in (11, 23):
            process.kill()
            process.start()
    with recovery("the scheduler was killed twice"):
        wait_all_bound(cluster, names)  # answers that a killed one waited for are not in the front's books
    sound(cluster, front)


def test_what_happened_while_the_api_server_was_away_is_caught_up_with(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n0", cpu="1"), node("n1", cpu="1"), node("gone", cpu="4"))
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(pod("before", cpu="900m", nodeSelector={"kubernetes.io/hostname": "n0"}))
    cluster.wait_bound("before")
    front.down()
    cluster.delete_pod("before")
    cluster.api.delete("nodes", "gone")
    cluster.add_pods(pod("theirs", cpu="900m", scheduler="another"))
    cluster.bind("theirs", "n1")
    cluster.add_pods(pod("ours", cpu="900m"), pod("waits", cpu="900m"))
    eventually(lambda: "cannot reach" in process.log())
    front.up()
    with recovery("the API server is back"):
        eventually(lambda: sorted(cluster.placements()[name] for name in ("ours", "waits")) == ["", "n0"])
    assert cluster.overcommitted() == []
    outages = [entry for entry in process.log_entries() if entry["message"].startswith("cannot reach ")]
    assert len(outages) == 1, "one line for one outage"
    assert "Traceback" not in process.log()


def test_an_api_server_that_comes_later_than_the_scheduler_is_waited_for(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("waits"))
    config = front.kubeconfig(tmp_path / "front")
    front.down()
    process = scheduler(kubeconfig=config).start_serving()
    eventually(lambda: "cannot reach" in process.log())
    code, text = process.get("/readyz")
    assert code == 500
    assert "the first lists are not complete" in text
    assert process.get("/livez")[0] == 200, "a restart would not help"
    front.up()
    with recovery("the API server is there at last"):
        cluster.wait_bound("waits")
    assert process.get("/readyz")[0] == 200
    assert "Traceback" not in process.log()


def test_an_api_server_that_is_restarted_in_the_middle_of_bindings(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    if not isinstance(cluster, Real):
        pytest.skip("needs KUBEBUILDER_ASSETS: the embedded API server is down and up again in the tests beside this")
    cluster.add_nodes(*(node(f"n{i}", cpu="4") for i in range(8)))
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    names = [f"p{i}" for i in range(200)]
    cluster.add_pods(*(pod(name) for name in names[:100]))
    cluster.restart()
    cluster.add_pods(*(pod(name) for name in names[100:]))
    settled(cluster, front, names, after="the API server was restarted", answers_may_be_lost=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_of_all_of_them_loses_nothing(
    seed: int, cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    """Every fifth request fails in some way, watches are cut all the time, and the API server goes away twice."""
    random = Random(seed)
    nodes, pods = 20, 150

    def storm(exchange: Exchange) -> Fault | None:
        if random.random() > 0.2:
            return None
        broken: list[Fault] = [Reply(code, reason) for code, reason in UNSETTLED.items() if code != 429]
        if exchange.verb == "watch":
            return random.choice([CutStream(after_lines=random.randrange(20)), ExpireStream(), Drop(), *broken])
        return random.choice([LoseAnswer(), Drop(), Reply(429, UNSETTLED[429], retry_after_seconds=1), *broken])

    cluster.add_nodes(*(node(f"n{i}", cpu="2", pods="10") for i in range(nodes)))
    front.plan = storm
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_serving()
    names = [f"p{i}" for i in range(pods)]
    for i, name in enumerate(names):
        cluster.add_pods(pod(name, cpu="230m"))  # eight to a node: 160 places
        if i % 10 == 0:
            front.cut_connections()
        if i in (50, 100):
            front.down()
        if i in (60, 110):
            front.up()
    deleted = random.sample(names, 20)
    for name in deleted:
        cluster.delete_pod(name)
    left = [name for name in names if name not in deleted]
    settled(cluster, front, left, after="a storm")
