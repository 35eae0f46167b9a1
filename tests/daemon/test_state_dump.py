"""The state dump, for debugging."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_policy_scheduler.daemon.serving.state_dump import MOST_PODS, dump_in_steps
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from tests.daemon.deciding_stage import NOW, Stage, finished, policies


def stage() -> tuple[Stage, SchedulingQueue]:
    return Stage(policies("filter fits(cpu)\n")), SchedulingQueue()


def dumped(made: Stage, queue: SchedulingQueue, *, assumed: dict[str, str] | None = None) -> dict[str, Any]:
    steps = dump_in_steps(made.cluster, queue, assumed=assumed or {}, now=NOW, leading=True, recount=True)
    found: dict[str, Any] = msgspec.to_builtins(finished(steps))
    return found


def test_the_dump_has_places_assumed_pods_and_nominations() -> None:
    made, queue = stage()
    placed, waits, nominated = (made.pod(name) for name in ("placed", "waits", "nominated"))
    made.cluster.place(placed, "n0")
    made.cluster.nominate(nominated, "n1")
    queue.add(waits, NOW - 5)
    taken = queue.pop(NOW)
    assert taken is not None
    queue.rejected(taken, frozenset({"NodeResourcesFit"}), NOW, wakes=kubernetes_profile().wakes)
    state = dumped(made, queue, assumed={placed.uid: "n0"})
    assert state["assumed"] == {"shop/placed": "n0"}
    assert state["nominated"] == {"n1": ["shop/nominated"]}
    assert state["queue"]["unschedulable"] == 1
    (pending,) = state["pending"]["unschedulable"]
    assert pending["pod"] == "shop/waits"
    assert pending["queuedSeconds"] == 5.0
    assert pending["rejectors"] == ["NodeResourcesFit"]
    assert state["columns"]["requested"]["cpu"] == 1000
    assert state["differences"] == []


def test_a_recount_finds_what_is_wrong() -> None:
    made, queue = stage()
    pod = made.pod("placed")
    made.cluster.place(pod, "n0")
    made.cluster.nodes.requested("cpu")[made.cluster.nodes.rows["n0"]] += 7
    state = dumped(made, queue, assumed={pod.uid: "n3"})
    assert len(state["differences"]) == 2
    assert state["differences"][0] == "n0: requested cpu is 1007, the pods there request 1000"
    assert "is assumed on n3" in state["differences"][1]


def test_a_crowd_is_counted_and_not_listed() -> None:
    made, queue = stage()
    for _ in range(MOST_PODS + 5):
        queue.add(made.pod(), NOW)
    state = dumped(made, queue)
    assert state["queue"]["active"] == MOST_PODS + 5
    assert len(state["pending"]["active"]) == MOST_PODS


def test_a_recount_is_made_of_steps_between_which_anything_may_happen() -> None:
    made, queue = stage()
    for number in range(300):
        made.cluster.place(made.pod(f"placed{number}", cpu="1m"), f"n{number % 4}")
    for _ in range(300):
        queue.add(made.pod(), NOW)
    placed = list(made.cluster.pods)
    assumed: dict[str, str] = {}
    steps = dump_in_steps(made.cluster, queue, assumed=assumed, now=NOW, leading=True, recount=True)
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            state = end.value
            break
        taken += 1
        if placed and taken % 2:  # pods go, pods are decided, a node goes
            made.cluster.displace(placed.pop())
            queued = queue.pop(NOW)
            assert queued is not None
            assumed[queued.pod.uid] = "n0"
            made.cluster.place(queued.pod, "n0")
        if taken == 100:
            made.cluster.remove_node("n1")
    assert taken > 600
    assert state.differences == []
