"""Victims that are not bound yet keep their uid and return to the queue: nobody would create a bare pod again."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kube_policy_scheduler.daemon
from kube_policy_scheduler.framework.queue.pod_transitions import Standing
from kube_policy_scheduler.framework.queue.queued_pod import PodState
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod
from tests.simulation.calm import Calm, story
from tests.simulation.chaos import containers
from tests.simulation.network import OurFaultError

POLICY = "score node.free.cpu\n"
GANG = POLICY + "gang by pod.label.job size number(pod.label.size) within 60s if pod.label.job\n"
QUEUES = POLICY + 'queue a for pods where pod.label.queue == "a" min cpu 4\n'
QUEUES += 'queue b for pods where pod.label.queue == "b" min cpu 4\nreclaim\n'
SLOW = "20"
"""Seconds that the volume of a victim takes."""


def uids(calm: Calm) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in calm.server.pods.items()}


def queued(calm: Calm, name: str) -> QueuedPod:
    return next(each for each in calm.process.scheduler.queue if each.pod.name == name)


def state(calm: Calm, name: str) -> PodState:
    return queued(calm, name).state


async def comes_back(calm: Calm, *names: str, freed_by: Callable[[], None]) -> None:
    """See that victims are still what they were, and bind once there is room."""
    before = {name: uids(calm)[name] for name in names}
    assert set(before).isdisjoint(calm.on_nodes())
    freed_by()
    await calm.after(60.0)
    assert before.items() <= uids(calm).items()
    assert set(before) <= set(calm.on_nodes())
    assert calm.told.told["failed"] == len(names)


def test_a_binding_that_waits_for_a_volume_is_cancelled_and_its_pod_stays() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("low", millis=4000, provisioning=SLOW)
        await calm.after(3.0)
        assert state(calm, "low") is PodState.BINDING
        low = uids(calm)["low"]
        calm.pod("high", millis=4000, priority=10)
        await calm.after(5.0)
        assert calm.on_nodes() == ["high"]
        assert uids(calm)["low"] == low
        why = calm.told.failures["low"]
        assert why == "its binding to n0 was cancelled: its node is given to default/high"
        assert (calm.told.told["preempted"], calm.told.told["binding cancelled"]) == (1, 1)
        assert not calm.process.scheduler.cluster.is_going(queued(calm, "low").pod, calm.server.now())
        await comes_back(calm, "low", freed_by=lambda: calm.server.finish_pod("high"))

    story(POLICY, tell, cpus=(4,))


def test_a_pod_that_changes_while_it_is_being_bound_is_decided_by_its_new_labels_if_that_fails() -> None:
    """Nothing shows it again: no status can be written for a while."""

    async def tell(calm: Calm) -> None:
        for zone in "ab":
            calm.server.set_node(f"in-{zone}", cpu=4, labels={"zone": zone})
        calm.pod("low", zone="a", provisioning=SLOW)
        await calm.after(3.0)
        assert state(calm, "low") is PodState.BINDING
        calm.server.pods["low"]["metadata"]["labels"]["zone"] = "b"
        calm.server.touch_pod("low")
        calm.server.set_node("other", cpu=4, labels={"zone": "a"})
        await calm.after(3.0)
        calm.server.denials["low"] = 503
        calm.server.delete_node("in-a")
        await calm.after(30.0)
        del calm.server.denials["low"]
        await calm.after(60.0)
        assert calm.server.pods["low"]["spec"]["nodeName"] == "in-b"

    story("filter node.label.zone == pod.label.zone\n", tell, cpus=(4,))


@pytest.mark.parametrize(
    "limit", ["limit count() by pod.label.app to 1\n", "limit sum(request.cpu) by pod.label.app to 1\n"]
)
def test_what_a_limit_leaves_once_a_pod_has_given_way_is_kept_from_others_on_all_nodes(limit: str) -> None:
    """The one that took its place waits in backoff then; one that has waited longer is decided at once."""

    async def tell(calm: Calm) -> None:
        calm.pod("low", app="a", provisioning=SLOW)
        calm.pod("next", app="a", provisioning=SLOW)
        await calm.after(5.0)
        assert (state(calm, "low"), queued(calm, "next").place) == (PodState.BINDING, Place.UNSCHEDULABLE)
        calm.pod("high", priority=10, app="a")
        await calm.after(5.0)
        assert calm.on_nodes() == ["high"]
        assert (calm.told.told["preempted"], calm.told.told["binding cancelled"]) == (1, 1)
        calm.server.finish_pod("high")
        await calm.after(40.0)
        assert len({"low", "next"} & set(calm.on_nodes())) == 1

    story(POLICY + limit, tell, cpus=(4, 4))


def test_a_victim_that_is_bound_is_deleted_beside_one_that_is_not() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("bound", millis=2000)
        await calm.after(3.0)
        calm.pod("binding", millis=2000, provisioning=SLOW)
        await calm.after(3.0)
        calm.pod("high", millis=4000, priority=10)
        await calm.after(30.0)
        assert calm.on_nodes() == ["high"]
        assert "bound" not in calm.server.pods
        await comes_back(calm, "binding", freed_by=lambda: calm.server.finish_pod("high"))

    story(POLICY, tell, cpus=(4,))


def test_a_gang_takes_the_nodes_of_pods_that_are_being_bound() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("low0", millis=4000, provisioning=SLOW)
        calm.pod("low1", millis=4000, provisioning=SLOW)
        await calm.after(3.0)
        for number in range(2):
            calm.pod(f"high{number}", millis=4000, priority=10, job="j", size="2")
        await calm.after(10.0)
        assert calm.on_nodes() == ["high0", "high1"]
        assert calm.told.told["preempted"] == 2

        def freed() -> None:
            for number in range(2):
                calm.server.finish_pod(f"high{number}")

        await comes_back(calm, "low0", "low1", freed_by=freed)

    story(GANG, tell, cpus=(4, 4))


def test_a_gang_that_is_being_bound_gives_way_as_a_whole() -> None:
    """One of its members is bound, and is deleted; the others are not, and are not."""

    async def tell(calm: Calm) -> None:
        calm.pod("m0", millis=4000, job="j", size="3")
        calm.pod("m1", millis=4000, job="j", size="3", provisioning=SLOW)
        calm.pod("m2", millis=4000, job="j", size="3", provisioning=SLOW)
        await calm.after(3.0)
        assert calm.on_nodes() == ["m0"]
        calm.pod("high", millis=4000, priority=10)
        await calm.after(15.0)
        assert calm.on_nodes() == ["high"]
        assert sorted(calm.server.pods) == ["high", "m1", "m2"]

    story(GANG, tell, cpus=(4, 4, 4))


def test_a_gang_of_which_a_member_is_deleted_while_it_is_being_bound_does_not_bind_the_others() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("m0", millis=4000, job="j", size="2", provisioning=SLOW)
        calm.pod("m1", millis=4000, job="j", size="2", provisioning=SLOW)
        await calm.after(3.0)
        calm.server.delete_pod("m0")
        await calm.after(60.0)
        assert calm.on_nodes() == []
        assert "other members of its gang lost their nodes" in calm.told.failures["m1"]
        calm.pod("m2", millis=4000, job="j", size="2")
        await calm.after(60.0)
        assert calm.on_nodes() == ["m1", "m2"]

    story(GANG, tell, cpus=(4, 4))


@pytest.mark.parametrize("end", ["finished", "deleted"])
@pytest.mark.parametrize("meanwhile", ["nothing", "its node changes", "another gang breaks"])
def test_a_gang_that_has_started_is_complete_although_a_member_ends_before_the_last_is_bound(
    end: str, meanwhile: str
) -> None:
    """The last member of a short job would wait for ever for those that are done."""

    async def tell(calm: Calm) -> None:
        calm.pod("m0", millis=4000, job="j", size="2")
        calm.pod("m1", millis=4000, job="j", size="2", provisioning=SLOW)
        for name in ("x0", "x1"):
            calm.pod(name, millis=4000, job="x", size="2", provisioning=SLOW)
        await calm.after(3.0)
        assert calm.on_nodes() == ["m0"]
        calm.server.finish_pod("m0") if end == "finished" else calm.server.delete_pod("m0")
        if meanwhile == "its node changes":
            for name in calm.server.nodes:
                calm.server.set_node(name, cpu=4, labels={"new": "label"})
        elif meanwhile == "another gang breaks":
            calm.server.delete_pod("x0")
        await calm.after(30.0)
        assert "m1" in calm.on_nodes()
        assert "m1" not in calm.told.failures
        assert ("x1" in calm.on_nodes()) == (meanwhile != "another gang breaks")

    story(GANG, tell, cpus=(4, 4, 4, 4))


NEAR = GANG.replace("within 60s", "within 60s within one rack")


def racks(calm: Calm) -> set[str]:
    """Return the racks of all pods."""
    nodes = calm.server.nodes
    return {nodes[pod["spec"]["nodeName"]]["metadata"]["labels"]["rack"] for pod in calm.server.pods.values()}


def test_a_member_whose_node_comes_to_another_rack_does_not_bind_there_whatever_was_loaded_meanwhile() -> None:
    """A reload has the scheduler forget where gangs are."""

    async def tell(calm: Calm) -> None:
        for name in ("n0", "n1", "n2"):
            calm.server.set_node(name, cpu=4, labels={"rack": "r1"})
        await calm.after(1.0)
        calm.pod("m0", millis=4000, job="j", size="2", near="yes")
        calm.pod("m1", millis=4000, job="j", size="2", near="yes", provisioning=SLOW)
        await calm.after(3.0)
        assert calm.on_nodes() == ["m0"]
        calm.process.use_policies(calm.policies)
        calm.server.set_node(calm.node_of("m1"), cpu=4, labels={"rack": "r2"})
        await calm.after(60.0)
        assert calm.on_nodes() == ["m0", "m1"]
        assert len(racks(calm)) == 1

    story(NEAR, tell, cpus=())


def test_members_whose_node_was_gone_go_where_others_of_their_gang_were_placed_meanwhile() -> None:
    async def tell(calm: Calm) -> None:
        calm.server.set_node("n0", cpu=8, labels={"rack": "r1"})
        await calm.after(1.0)
        labels = {"job": "j", "size": "2", "near": "yes"}
        for name in ("m0", "m1"):
            calm.pod(name, millis=2000, **labels, provisioning=SLOW)
        await calm.after(3.0)
        calm.server.delete_node("n0")
        calm.server.set_node("n1", cpu=8, labels={"rack": "r2"})
        for name in ("m2", "m3"):
            calm.pod(name, millis=2000, **labels)
        await calm.after(5.0)
        assert calm.on_nodes() == ["m2", "m3"]
        calm.process.use_policies(calm.policies)
        calm.server.set_node("n0", cpu=8, labels={"rack": "r1"})
        await calm.after(60.0)
        assert calm.on_nodes() == ["m0", "m1", "m2", "m3"]
        assert racks(calm) == {"r2"}

    story(NEAR, tell, cpus=())


def test_a_gang_goes_where_others_have_placed_a_member_if_its_nodes_change_before_it_is_bound() -> None:
    async def tell(calm: Calm) -> None:
        for name, rack in {"n0": "r1", "n1": "r1", "n2": "r2"}.items():
            calm.server.set_node(name, cpu=8, labels={"rack": rack})
        await calm.after(1.0)
        labels = {"job": "j", "size": "2", "near": "yes"}
        calm.pod("m0", millis=3000, **labels, provisioning=SLOW)
        calm.pod("m1", millis=3000, **labels, provisioning=SLOW)
        await calm.after(3.0)
        here = {node for name in ("m0", "m1") if (node := calm.node_of(name)) is not None}
        there = "n0" if here == {"n2"} else "n2"
        calm.server.create_pod("m2", {"nodeName": there} | containers(1000), labels)
        for name in here:
            calm.server.set_node(name, cpu=9, labels={"rack": calm.server.nodes[name]["metadata"]["labels"]["rack"]})
        await calm.after(60.0)
        assert calm.on_nodes() == ["m0", "m1", "m2"]
        assert len(racks(calm)) == 1

    story(NEAR, tell, cpus=())


@pytest.mark.parametrize("how", ["refused", "no volume", "an error of ours"])
def test_a_gang_of_which_a_binding_fails_does_not_bind_those_that_are_not_sent(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(calm: Calm) -> None:
        if how == "refused":
            calm.server.denials["m0"] = 403
        else:
            provision = calm.told.bind

            async def fails(reservation: Any) -> str:
                await provision(reservation)
                if reservation.pod.name == "m0" and how == "an error of ours":
                    raise OurFaultError("foreseen by nobody")
                return "no space" if reservation.pod.name == "m0" else ""

            monkeypatch.setattr(calm.told, "bind", fails)
        calm.pod("m0", millis=4000, job="j", size="2", provisioning="1")
        calm.pod("m1", millis=4000, job="j", size="2", provisioning="4")
        await calm.after(4.8)
        assert calm.on_nodes() == []
        assert "other members of its gang lost their nodes" in calm.told.failures["m1"]
        calm.server.denials.clear()
        monkeypatch.undo()
        await calm.after(120.0)
        assert calm.on_nodes() == ["m0", "m1"]

    story(GANG, tell, cpus=(4, 4))


def test_a_queue_takes_back_what_is_lent_to_a_pod_that_is_being_bound() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(4):
            calm.pod(f"b{number}", millis=2000, queue="b", provisioning=SLOW)
        await calm.after(3.0)
        before = uids(calm)
        calm.pod("a", millis=4000, queue="a")
        await calm.after(10.0)
        assert calm.on_nodes() == ["a"]
        assert before.items() <= uids(calm).items()
        assert calm.told.told["preempted"] == 2

    story(QUEUES, tell, cpus=(8,))


@pytest.mark.parametrize("fault", ["time-out, done", "time-out, not done", "slow", "answer lost"])
def test_a_binding_that_was_sent_is_waited_for(fault: str) -> None:
    async def tell(calm: Calm) -> None:
        connection = calm.process.connection
        connection.plan = lambda verb, path: fault if verb == "POST" and "/low/" in path else ""
        calm.pod("low", millis=4000)
        await calm.after(0.6)
        if fault.startswith("time-out, not"):
            assert state(calm, "low") is PodState.SENT
        calm.pod("high", millis=4000, priority=10)
        await calm.after(20.0)
        connection.plan = lambda verb, path: ""
        await calm.after(120.0)
        assert calm.on_nodes() == ["high"]
        if "low" in calm.server.pods:
            assert calm.server.pods["low"]["metadata"]["uid"] not in calm.server.bound

    story(POLICY, tell, cpus=(4,))


def test_a_binding_in_doubt_is_not_sent_again_once_the_pod_no_longer_fits() -> None:
    async def tell(calm: Calm) -> None:
        connection, met = calm.process.connection, calm.server.met
        connection.plan = lambda verb, path: "request lost" if "/low" in path else ""
        calm.pod("low", millis=4000)
        while not met["binding in doubt for minutes"]:
            await calm.after(5.0)
        calm.server.set_node("n0", cpu=1, labels={})
        await calm.after(450.0)  # longer than it takes to give up two looks at what became of it
        connection.plan = lambda verb, path: ""
        await calm.after(60.0)
        assert calm.on_nodes() == []

    story(POLICY, tell, cpus=(4,))


def test_a_pod_that_nobody_may_delete_loses_its_node_nevertheless_while_it_is_being_bound() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("low", millis=4000, provisioning=SLOW)
        await calm.after(3.0)
        calm.server.denials["low"] = 500
        calm.pod("high", millis=4000, priority=10)
        await calm.after(10.0)
        assert calm.on_nodes() == ["high"]

    story(POLICY, tell, cpus=(4,))


def test_a_victim_that_is_deleted_while_its_binding_is_cancelled_is_gone() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("low", millis=4000, provisioning=SLOW)
        await calm.after(3.0)
        calm.pod("high", millis=4000, priority=10)
        calm.server.delete_pod("low")
        await calm.after(10.0)
        assert sorted(calm.server.pods) == ["high"]
        assert calm.on_nodes() == ["high"]
        assert [each.pod.name for each in calm.process.scheduler.queue] == []

    story(POLICY, tell, cpus=(4,))


@pytest.mark.parametrize("after_seconds", [0.0, 0.05, 0.15, 0.3, 1.0, 19.5, 20.0, 20.2])
def test_whenever_the_preemptor_comes_no_unbound_pod_is_deleted(after_seconds: float) -> None:
    """The model of the API server objects to each deletion of a pod that is not bound."""

    async def tell(calm: Calm) -> None:
        for number in range(4):
            calm.pod(f"low{number}", millis=1000, provisioning=SLOW if number % 2 else "0")
        await calm.after(after_seconds)
        calm.pod("high", millis=4000, priority=10)
        await calm.after(60.0)
        assert calm.on_nodes() == ["high"]
        assert {each.place for each in calm.process.scheduler.queue} <= {Place.UNSCHEDULABLE}

    story(POLICY, tell, cpus=(4,))


def test_pods_of_another_replica_are_never_deleted_before_they_are_bound() -> None:
    async def tell(calm: Calm) -> None:
        scheduler = calm.process.scheduler
        calm.pod("low", millis=4000, provisioning=SLOW)
        await calm.after(3.0)
        passed = queued(calm, "low")
        scheduler.queue.remove(passed.pod.uid)  # as if another replica was asked to bind it
        scheduler.event_handlers.passes.begin(passed.pod.uid)
        assert scheduler.evictions.standing(passed.pod.uid) is Standing.SENT
        scheduler.event_handlers.passes.drop(passed.pod.uid)

    story(POLICY, tell, cpus=(4,))


def _reads(path: Path, attribute: str) -> bool:
    tree = ast.parse(path.read_text())
    return any(isinstance(node, ast.Attribute) and node.attr == attribute for node in ast.walk(tree))


def test_only_one_module_of_the_daemon_can_delete_pods() -> None:
    (root,) = kube_policy_scheduler.daemon.__path__
    found = {path.name for path in Path(root).rglob("*.py") if _reads(path, "evictor")}
    assert found == {"evictions.py"}
    found = {path.name for path in Path(root).rglob("*.py") if _reads(path, "_evictor")}
    assert found == {"rebalancer.py"}, "it asks whether a pod is bound before it evicts"
