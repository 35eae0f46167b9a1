"""What is kept for a template goes soon after its last pod, and not before; see also `tests/growth`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.affinity import PodTerm
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.counter_kinds import Counter, counter_bytes
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.selectors import EVERYTHING, Expression, Selector
from kube_policy_scheduler.cluster.templates_in_use import MOST_IDLE
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue


class World:
    """A cluster with a node and a queue."""

    def __init__(self) -> None:
        self.cluster, self.queue = Cluster(), SchedulingQueue()
        self.queue.hold_templates(self.cluster.templates_in_use)
        self.cluster.set_node(objects.Node(metadata=objects.ObjectMeta(name="n")))

    def pod(self, number: int, *, text: str = "") -> PodInfo:
        body: dict[str, Any] = {
            "metadata": {"name": f"p{number}", "uid": f"p{number}", "namespace": "red", "labels": {"own": str(number)}},
            "spec": {"containers": [{"name": "c", "image": text}]},
        }
        return self.cluster.templates.pod(msgspec.convert(body, objects.Pod))

    def asks(self, pod: PodInfo, number: int) -> Counter:
        """Return the counter that a pod asks for."""
        selector = Selector((Expression("x", "NotIn", frozenset((str(number),))),))
        pods = PodTerm(frozenset(), selector, EVERYTHING)
        return self.cluster.counters.counter(pods, terminating=True, asks=pod.template)

    def others_pass(self, number: int, *, text: str = "") -> None:
        """Let pods come, ask, run and go."""
        for other in range(1000, 1000 + number):
            pod = self.pod(other, text=text)
            self.queue.add(pod, 0.0)
            self.asks(pod, other)
            self.cluster.counters.make_room()
            self.cluster.place(pod, "n")
            self.queue.done(pod.uid)
            self.cluster.remove(pod.uid)

    def kept(self) -> list[Counter]:
        return list(self.cluster.counters._counters.values())


@pytest.fixture
def world() -> World:
    return World()


def test_a_counter_is_kept_for_a_pod_that_waits_and_for_one_on_a_node(world: World) -> None:
    waits, runs = world.pod(0), world.pod(1)
    world.queue.add(waits, 0.0)
    world.cluster.place(runs, "n")
    both = [world.asks(waits, 0), world.asks(runs, 1)]
    world.others_pass(3 * MOST_IDLE)
    assert [counter.live for counter in both] == [True, True]
    assert [world.asks(waits, 0), world.asks(runs, 1)] == both
    assert both[0].total == 1


@pytest.mark.parametrize("end", ["deleted while it waits", "deleted from its node", "updated"])
def test_a_counter_goes_soon_after_the_last_pod(world: World, end: str) -> None:
    pod = world.pod(0)
    world.queue.add(pod, 0.0)
    counter = world.asks(pod, 0)
    match end:
        case "deleted while it waits":
            world.queue.remove(pod.uid)
        case "deleted from its node":
            world.cluster.place(pod, "n")
            world.queue.done(pod.uid)
            world.cluster.remove(pod.uid)
        case _:
            world.queue.add(msgspec.structs.replace(world.pod(1), uid=pod.uid), 0.0)
    assert counter.live
    world.others_pass(MOST_IDLE)
    assert not counter.live
    assert len(world.kept()) <= MOST_IDLE


def test_counters_go_where_pods_come_and_go_that_never_have_a_node(world: World) -> None:
    for number in range(3 * MOST_IDLE):
        pod = world.pod(number)
        world.queue.add(pod, 0.0)
        world.asks(pod, number)
        world.queue.remove(pod.uid)
    assert len(world.kept()) <= MOST_IDLE


def test_a_workload_whose_only_pod_is_replaced_finds_its_counter_again(world: World) -> None:
    counter = world.asks(world.pod(0), 0)
    for _ in range(3 * MOST_IDLE):
        pod = world.pod(0)
        world.queue.add(pod, 0.0)
        assert world.asks(pod, 0) is counter
        world.cluster.place(pod, "n")
        world.queue.done(pod.uid)
        world.cluster.remove(pod.uid)
        world.others_pass(1)
    assert counter.live


def test_a_counter_that_several_templates_ask_for_goes_with_the_last(world: World) -> None:
    first, second = world.pod(0), world.pod(1)
    world.cluster.place(first, "n")
    world.cluster.place(second, "n")
    counter = world.asks(first, 7)
    assert world.asks(second, 7) is counter
    world.cluster.remove(first.uid)
    world.others_pass(2 * MOST_IDLE)
    assert counter.live
    world.cluster.remove(second.uid)
    world.others_pass(2 * MOST_IDLE)
    assert not counter.live


def test_templates_that_are_large_are_let_go_earlier(world: World) -> None:
    pod = world.pod(0)
    counter = world.asks(pod, 0)
    world.others_pass(6, text="x" * 50_000)
    assert not counter.live


def test_a_rehearsal_lets_nothing_go(world: World) -> None:
    pods = [world.pod(number) for number in range(3 * MOST_IDLE)]
    for pod in pods:
        world.cluster.place(pod, "n")
    kept = [world.asks(pod, number) for number, pod in enumerate(pods)]
    with world.cluster.dry_run():
        for pod in pods:
            world.cluster.displace(pod.uid)
    world.cluster.counters.make_room()
    assert all(counter.live for counter in kept)


def test_a_counter_that_nobody_in_particular_asked_for_stays_until_other_rules_hold(world: World) -> None:
    counter = world.cluster.counters.counter(PodTerm(frozenset({"red"}), EVERYTHING), terminating=True)
    world.asks(world.pod(0), 0)
    world.others_pass(3 * MOST_IDLE)
    assert counter.live


def test_what_templates_list_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """Each of many templates may be in the set of each of many counters."""
    pods = [world.pod(number) for number in range(60)]
    for pod in pods:
        world.cluster.place(pod, "n")
    kept = [world.asks(pod, number) for number, pod in enumerate(pods)]
    assert world.cluster.counters.bytes > sum(map(counter_bytes, kept))
    monkeypatch.setattr(world.cluster.counters, "max_bytes", 4096)
    world.cluster.counters.make_room()
    for pod in pods:
        world.cluster.remove(pod.uid)
        world.cluster.place(pod, "n")
        assert world.cluster.counters.bytes - sum(map(counter_bytes, world.kept())) <= 4096 // 4 + 60 * 8
    assert world.asks(pods[0], 0).total == 60


def test_an_ended_counter_keeps_nothing(world: World) -> None:
    counter = world.asks(world.pod(0), 0)
    world.cluster.place(world.pod(1), "n")
    counter.per_node()
    world.others_pass(MOST_IDLE)
    assert (counter.live, counter.total, counter.version) == (False, 0, counter.version)
    new = Cluster().counters.counter(PodTerm(frozenset(), None), terminating=True)
    assert counter_bytes(counter) <= counter_bytes(new)


def test_what_is_kept_for_a_template_goes_once_nobody_used_it_for_a_while(world: World) -> None:
    idle, runs, comes_back = world.pod(0), world.pod(1), world.pod(2)
    for pod in (idle, runs, comes_back):
        world.cluster.place(pod, "n")
    counters = [world.asks(pod, number) for number, pod in enumerate((idle, runs, comes_back))]
    for pod in (idle, comes_back):
        world.cluster.remove(pod.uid)
    world.cluster.forget_long_unused()
    assert [counter.live for counter in counters] == [True, True, True], "they had pods just now"
    world.cluster.place(comes_back, "n")
    world.cluster.remove(comes_back.uid)
    world.cluster.forget_long_unused()
    assert [counter.live for counter in counters] == [False, True, True]
    world.cluster.forget_long_unused()
    assert [counter.live for counter in counters] == [False, True, False]


def test_a_template_is_known_for_a_while_after_its_last_pod(world: World) -> None:
    first = world.pod(0).template
    for number in range(1, 300):
        world.pod(number)
    world.cluster.forget_long_unused()
    assert world.pod(0).template is first
    known = len(world.cluster.templates)
    waits = world.pod(1)
    world.queue.add(waits, 0.0)
    del first
    world.cluster.forget_long_unused()
    assert known == 300
    assert len(world.cluster.templates) == 2, "the one that was asked for again, and that of a pod"
    for _ in range(3):
        world.cluster.forget_long_unused()
    assert len(world.cluster.templates) == 1
    assert world.pod(1).template is waits.template
