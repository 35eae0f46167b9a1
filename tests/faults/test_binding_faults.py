"""Answers to bindings that are refusals, late, lost or never come: each pod is bound once, and counted once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.faults.accounts import books_right, settled
from tests.faults.plans import UNSETTLED, for_each_pod_once
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import Drop, Exchange, Fault, Front, Hold, Late, LoseAnswer, Mute, Reply
from tests.integration.objects import node, pod

PODS = 24
BINDING_FAULTS: dict[str, Fault] = {
    "the API server asks for patience": Reply(429, UNSETTLED[429], retry_after_seconds=1),
    "the API server breaks": Reply(500, UNSETTLED[500]),
    "the API server is not available": Reply(503, UNSETTLED[503]),
    "the API server was too slow": Reply(504, UNSETTLED[504]),
    "an unexplained conflict": Reply(409, "Conflict"),
    "the connection breaks before the request arrives": Drop(),
    "the answer is lost": LoseAnswer(),
}


@pytest.mark.parametrize("fault", BINDING_FAULTS)
def test_bindings_survive(
    fault: str, cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(*(node(f"n{i}", cpu="1") for i in range(8)))
    front.plan = for_each_pod_once(BINDING_FAULTS[fault], "create", "pods/binding")
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    names = [f"p{i}" for i in range(PODS)]
    cluster.add_pods(*(pod(name, cpu="300m") for name in names))
    settled(cluster, front, names, after=fault)
    for name in names:
        eventually(lambda name=name: cluster.events(name, reason="Scheduled"))  # type: ignore[misc]


def test_a_pod_that_another_scheduler_binds_at_the_same_moment_stays_there(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n1", cpu="1"), node("n2", cpu="1", labels={"for": "ours"}))

    def theirs_first(exchange: Exchange) -> Fault | None:
        is_theirs = exchange.is_about("create", "pods/binding") and exchange.name == "contested"
        if is_theirs and not cluster.placements()["contested"]:
            cluster.bind("contested", "n1")
        return None

    front.plan = theirs_first
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(pod("contested", cpu="900m", nodeSelector=None))
    cluster.wait_bound("contested")
    cluster.add_pods(pod("next", cpu="900m"))
    assert cluster.wait_bound("contested", "next") == {"contested": "n1", "next": "n2"}
    assert cluster.overcommitted() == []


def test_a_recreated_pod_is_never_bound_by_the_decision_for_the_old_one(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("left", labels={"side": "left"}), node("right", labels={"side": "right"}))

    def replaced_meanwhile(exchange: Exchange) -> Fault | None:
        if exchange.is_about("create", "pods/binding") and not done:
            done.append(True)
            cluster.delete_pod("twice")
            cluster.add_pods(pod("twice", nodeSelector={"side": "right"}))
        return None

    done: list[bool] = []
    front.plan = replaced_meanwhile
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(pod("twice", nodeSelector={"side": "left"}))
    eventually(lambda: done)
    eventually(lambda: cluster.placements().get("twice") == "right")


IMPATIENT = """
from kube_policy_scheduler.adapters.kube.binding import Binder
from kube_policy_scheduler.daemon.main import main
Binder.__init__.__kwdefaults__["timeout_seconds"] = 1.0
main()
"""
"""The program, but for a second that it waits for an answer instead of fifteen."""


def test_answers_that_come_late_or_never_are_asked_after(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    random = Random(1)
    slow, silent = (f"p{i}" for i in range(0, PODS, 4)), (f"p{i}" for i in range(1, PODS, 4))
    late = (f"p{i}" for i in range(2, PODS, 4))
    faults: dict[str, Fault] = {
        **{name: Late(random.uniform(0.3, 0.8)) for name in slow},  # within its patience
        **{name: Mute() for name in silent},
        **{name: Late(random.uniform(1.0, 2.0)) for name in late},  # about when, or after, it is tried again
    }

    def plan(exchange: Exchange) -> Fault | None:
        return faults.pop(exchange.name, None) if exchange.is_about("create", "pods/binding") else None

    cluster.add_nodes(*(node(f"n{i}", cpu="1") for i in range(PODS // 3)))  # room for three each, and none to spare
    front.plan = plan
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front"), command=("-c", IMPATIENT)).start_ready()
    names = [f"p{i}" for i in range(PODS)]
    cluster.add_pods(*(pod(name, cpu="300m") for name in names), pod("no-room", cpu="300m"))
    settled(cluster, front, names, after="late and lost answers")
    assert faults == {}
    assert cluster.placements()["no-room"] == "", "there is room for it only where some is counted twice or never"
    books_right(process)


def test_bindings_that_hang_hold_up_no_other_pod(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    release = Hold()

    def plan(exchange: Exchange) -> Fault | None:
        return release if exchange.is_about("create", "pods/binding") and exchange.name.startswith("slow") else None

    front.plan = plan
    cluster.add_nodes(node("n0", cpu="2"))
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    slow, quick = [f"slow{i}" for i in range(10)], [f"quick{i}" for i in range(10)]
    cluster.add_pods(*(pod(name) for name in slow))
    eventually(lambda: len(front.asked("create", "pods/binding")) == len(slow))
    cluster.add_pods(*(pod(name) for name in quick), pod("too-much", cpu="100m"))
    cluster.wait_bound(*quick)
    assert all(not at for name, at in cluster.placements().items() if name in slow)
    # what is being bound counts: twenty pods of 100m fill the node, and there is no room for one more
    eventually(lambda: "1 Insufficient cpu" in cluster.condition("too-much").get("message", ""))
    release.until.set()
    settled(cluster, front, [*slow, *quick], after="answers that hung")
