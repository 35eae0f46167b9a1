"""Room that a nominated pod kept and gives back, in whatever way, helps those that wait for it: at once, and afresh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.scheduling.event_handlers import EventHandlers
from kube_policy_scheduler.daemon.scheduling.live_algorithm import LiveAlgorithm
from kube_policy_scheduler.daemon.scheduling.reservations import Reservation, Reservations
from kube_policy_scheduler.daemon.scheduling.schedule_one import PermitReports, waiting_pods
from kube_policy_scheduler.daemon.scheduling.sharding import Sharding
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.evaluate.nominations import nominate
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, SchedulingQueue
from kube_policy_scheduler.tooling.rebalancing.moves import Move
from tests.fakes.scheduler_context import context_of

OURS, OTHER_SCHEDULER = "policy-scheduler", "default-scheduler"
OWNERS = ("ours", "of another shard", "of another scheduler")


class World:
    """A replica that shares the cluster with another one, without a loop: a test says when a pod is decided."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cluster, self.queue = Cluster(), SchedulingQueue()
        self.sharding = Sharding("a")
        self.sharding.use(("a", "b"))
        nobody: Any = SimpleNamespace(nominated=lambda pod, node: None)
        self.context = context_of(
            nobody,
            self.cluster,
            self.queue,
            clock=lambda: self.now,
            sharding=self.sharding,
            claims=SimpleNamespace(delivered=lambda claim, *, gone=False: None),
        )
        self.served = {OURS}
        self.profile = kubernetes_profile()
        self.algorithm = self._algorithm()
        self.sharding.use_policies(cast(Any, self.algorithm.policies))
        self.handlers = EventHandlers(
            self.context,
            self.algorithm,
            waiting_pods(self.context, self.algorithm, PermitReports(self.context, self.algorithm)),
        )
        self.mine = [name for name in (f"n{number}" for number in range(50)) if self.sharding.owns_node(name)]
        names = [f"ns{number}" for number in range(50)]
        self.namespaces = {
            is_ours: next(ns for ns in names if self._is_ours(ns) is is_ours) for is_ours in (True, False)
        }

    def _algorithm(self) -> LiveAlgorithm:
        algorithm = LiveAlgorithm(self.context)
        algorithm.policies = cast(
            Any,
            SimpleNamespace(
                serves=lambda pod: pod.scheduler_name in self.served,
                unit=lambda pod, by_pod: f"namespace/{pod.namespace}",
                profile=lambda pod: self.profile,
                gang_requirements=lambda queued, frame: (),
            ),
        )
        return algorithm

    def _is_ours(self, namespace: str) -> bool:
        return self.sharding.owns_unit(self.cluster.templates.pod(pod("x", namespace)))

    def node(self, name: str, *, cpu: str = "4") -> None:
        self.handlers.node_changed(
            msgspec.convert(
                {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}},
                objects.Node,
            )
        )

    def decide_all(self) -> None:
        """Decide every active pod; who finds a node is assumed there."""
        while (queued := self.queue.pop(self.now)) is not None:
            decision = self.algorithm.decide(queued, preempts=False)
            if decision.host is None:
                self.queue.rejected(queued, decision.rejectors, self.now, wakes=self.profile.wakes)
            else:
                self.cluster.assume(queued.pod, decision.host, now=self.now)
                self.queue.done(queued.pod.uid)

    def afresh(self, queued: QueuedPod) -> str | None:
        """Return where a scheduler without any memory would place a pod."""
        return self._algorithm().decide(queued, preempts=False).host

    def forgotten(self) -> list[str]:
        """Return the pods that wait for an event although there is a node for them, or are refused from memory only."""
        found = []
        for queued in self.queue:
            host = self.afresh(queued)
            if host is not None and queued.place is Place.UNSCHEDULABLE:
                found.append(f"{queued.pod.key} waits, and {host} is free")
            if self.algorithm.decide(queued, preempts=False).host is None is not host:
                found.append(f"{queued.pod.key} is refused from memory, and {host} is free")
        return found


def pod(
    name: str,
    namespace: str,
    *,
    cpu: str = "1",
    priority: int = 0,
    nominated: str = "",
    on: str = "",
    phase: str = "Pending",
    scheduler: str = OURS,
    ends: bool = False,
) -> objects.Pod:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": name,
                "deletionTimestamp": "2026-01-01T00:00:00Z" if ends else None,
            },
            "spec": {
                "schedulerName": scheduler,
                "nodeName": on,
                "priority": priority,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            },
            "status": {"phase": phase, "nominatedNodeName": nominated},
        },
        objects.Pod,
    )


def _reload(world: World, high: Callable[..., objects.Pod]) -> None:
    world.served = {"another-name"}
    world.handlers.policies_changed()
    world.served = {OURS}
    world.handlers.policies_changed()


WAYS: Mapping[str, Callable[[World, Callable[..., objects.Pod]], None]] = {
    "deleted": lambda world, high: world.handlers.pod_deleted(high()),
    "terminating, as a real API server shows it first": lambda world, high: world.handlers.pod_changed(high(ends=True)),
    "terminating, in a batch": lambda world, high: world.handlers.pods_changed([high(ends=True)]),
    "failed": lambda world, high: world.handlers.pod_changed(high(phase="Failed")),
    "missing in a list": lambda world, high: world.handlers.pods_replaced(
        [pod(f"low{number}", world.namespaces[True]) for number in range(2)]
    ),
    "nomination cleared": lambda world, high: world.handlers.pod_changed(high(nominated="")),
    "nomination moved": lambda world, high: world.handlers.pod_changed(high(nominated=world.mine[1])),
    "bound elsewhere": lambda world, high: world.handlers.pod_changed(high(on=world.mine[1])),
    "bound there with less": lambda world, high: world.handlers.pod_changed(high(on=world.mine[0], cpu="1")),
    "requests less": lambda world, high: world.handlers.pod_changed(high(cpu="1")),
    "of lower priority": lambda world, high: world.handlers.pod_changed(high(priority=-1)),
}


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("way", WAYS)
def test_room_that_a_nominated_pod_gives_back_is_handed_on(way: str, owner: str) -> None:
    """One of the pods that wait is refused by a decision of its own, the other from memory."""
    world = World()
    target = world.mine[0]
    world.node(target)
    world.node(world.mine[1], cpu="100m")
    place = {
        "cpu": "4",
        "priority": 10,
        "nominated": target,
        "scheduler": OTHER_SCHEDULER if owner == "of another scheduler" else OURS,
    }

    def high(**changes: Any) -> objects.Pod:
        return pod("high", world.namespaces[owner == "ours"], **place | changes)

    world.handlers.pod_changed(high())
    if owner == "ours":  # it is in backoff, say
        queued = world.queue.pop(world.now)
        assert queued is not None
        world.queue.failed(queued, world.now)
        world.queue.take(queued.pod.uid)
    for number in range(2):
        world.handlers.pod_changed(pod(f"low{number}", world.namespaces[True]))
    waiting = [world.queue.get(f"low{number}") for number in range(2)]
    for queued in waiting:
        assert queued is not None
        world.queue.take(queued.pod.uid)
        decision = world.algorithm.decide(queued, preempts=False)
        if owner == "of another scheduler":
            assert decision.host == target, "nothing is kept for pods of others"
            world.queue.activate(queued, world.now)
        else:
            assert decision.host is None
            world.queue.rejected(queued, decision.rejectors, world.now, wakes=world.profile.wakes)
    WAYS[way](world, high)
    for queued in waiting:
        assert queued is not None
        assert queued.place is not Place.UNSCHEDULABLE
        assert world.algorithm.decide(queued, preempts=False).host == target


def test_rules_that_serve_the_pod_no_longer_keep_no_room_for_it() -> None:
    world = World()
    world.node(world.mine[0])
    for name, is_ours in (("own", True), ("foreign", False)):
        world.handlers.pod_changed(pod(name, world.namespaces[is_ours], cpu="2", priority=10, nominated=world.mine[0]))
    assert {uid for there in world.cluster.nominated.values() for uid in there} == {"own", "foreign"}
    world.served = {"another-name"}
    world.handlers.policies_changed()
    assert not world.cluster.nominated


def test_a_node_that_becomes_ours_keeps_room_for_who_is_nominated_there() -> None:
    world = World()
    theirs = next(name for name in (f"n{number}" for number in range(50)) if not world.sharding.owns_node(name))
    world.node(theirs)
    world.handlers.pod_changed(pod("high", world.namespaces[False], cpu="4", priority=10, nominated=theirs))
    assert not world.cluster.nominated
    world.sharding.use(("a",))
    world.handlers.policies_changed()
    assert list(world.cluster.nominated) == [theirs]


@pytest.mark.parametrize("settles", [False, True])
def test_room_of_a_replacement_that_does_not_come_to_take_it_is_handed_on(settles: bool) -> None:
    world = World()
    target = world.mine[0]
    world.node(target)
    stand_in = world.cluster.templates.pod(pod("stand-in", world.namespaces[True], cpu="4", priority=10))
    reservations = Reservations(world.context)
    reservation = Reservation(cast(Move, SimpleNamespace(target=target)), stand_in, stand_in, until=0.0)
    reservations.reserve(reservation)
    world.handlers.pod_changed(pod("low", world.namespaces[True]))
    world.decide_all()
    low = world.queue.get("low")
    assert low is not None
    assert low.place is Place.UNSCHEDULABLE
    if settles:
        reservation.claimed_by = "replacement"
        reservations.settle("replacement")
    else:
        reservations.release(reservation)
    assert low.place is not Place.UNSCHEDULABLE
    assert world.forgotten() == []


def test_nominations_that_change_nothing_wake_nobody() -> None:
    world = World()
    world.node(world.mine[0])

    def high(**changes: Any) -> objects.Pod:
        return pod("high", world.namespaces[True], **{"cpu": "4", "priority": 10, "nominated": world.mine[0]} | changes)

    world.handlers.pod_changed(high())
    before = world.cluster.ledger.epoch
    world.handlers.pod_changed(high())
    assert world.cluster.ledger.epoch == before
    queued = world.queue.pop(world.now)
    assert queued is not None
    heard = []
    world.cluster.ledger.follow(heard.append)
    world.cluster.assume(queued.pod, world.mine[0], now=world.now)
    assert heard == [], "it has the very room that it kept"
    assert not world.cluster.nominated


def test_what_is_only_tried_out_is_noted_nowhere() -> None:
    world = World()
    world.node(world.mine[0])
    world.handlers.pod_changed(pod("high", world.namespaces[True], cpu="4", priority=10))
    queued = world.queue.pop(world.now)
    assert queued is not None
    world.cluster.assume(queued.pod, world.mine[0], now=world.now)
    before = world.cluster.ledger.epoch
    assert world.algorithm.still_fits(queued, world.mine[0])
    with world.cluster.dry_run():
        world.cluster.displace("high")
    assert world.cluster.ledger.epoch == before


HAPPENINGS = (
    *("node", "node gone", "pod", "pod", "pod", "pod gone", "nominate"),
    *("list", "reload", "shards", "forget"),
)


@st.composite
def _steps(draw: st.DrawFn) -> tuple[Any, ...]:
    return (
        draw(st.sampled_from(HAPPENINGS)),
        draw(st.integers(0, 2)),
        draw(st.integers(0, 4)),
        draw(st.sampled_from(["1", "2", "4"])),
        draw(st.sampled_from([0, 10])),
        draw(st.sampled_from(["", "nominated", "nominated", "bound", "ends", "failed"])),
        draw(st.sampled_from(OWNERS)),
        draw(st.booleans()),
    )


@given(st.sampled_from(OWNERS[:2]), st.lists(_steps(), min_size=1, max_size=25))
def test_no_pod_waits_for_an_event_that_would_find_a_node_now(
    owner_of_first: str, steps: list[tuple[Any, ...]]
) -> None:
    """It begins where a nominated pod keeps the only node from one that waits."""
    world = World()
    first = world.namespaces[owner_of_first == "ours"]
    world.node(world.mine[0])
    world.handlers.pod_changed(pod("p0", first, cpu="4", priority=10, nominated=world.mine[0]))
    if (queued := world.queue.pop(world.now)) is not None:
        world.queue.failed(queued, world.now)
    world.handlers.pod_changed(pod("p1", world.namespaces[True]))
    if (queued := world.queue.take("p1")) is not None:
        decision = world.algorithm.decide(queued, preempts=False)
        world.queue.rejected(queued, decision.rejectors, world.now, wakes=world.profile.wakes)
    for what, node_number, number, cpu, priority, state, owner, decides in steps:
        name = world.mine[node_number]
        changed = pod(
            f"p{number}",
            world.namespaces[owner != "of another shard"],
            cpu=cpu,
            priority=priority,
            nominated=name if state == "nominated" else "",
            on=name if state == "bound" else "",
            phase="Failed" if state == "failed" else "Pending",
            ends=state == "ends",
            scheduler=OTHER_SCHEDULER if owner == "of another scheduler" else OURS,
        )
        match what:
            case "node":
                world.node(name, cpu=cpu)
            case "node gone":
                world.handlers.node_deleted(msgspec.convert({"metadata": {"name": name}}, objects.Node))
            case "pod":
                world.handlers.pod_changed(changed)
            case "pod gone":
                world.handlers.pod_deleted(changed)
            case "reload":
                world.served = {OURS, OTHER_SCHEDULER} if decides else {OURS}
                world.handlers.policies_changed()
            case "shards":
                world.sharding.use(("a", "b") if decides else ("a",))
                world.handlers.policies_changed()
            case "list":
                world.handlers.pods_replaced([changed])
            case "forget":
                for uid in list(world.cluster.assumed)[:1]:
                    world.handlers.take_back(uid)
            case "nominate":
                queued = world.queue.get(f"p{number}")
                if queued is not None:
                    nominate(world.cluster, queued, name if decides else "")
        assert world.forgotten() == []
        if decides:
            world.decide_all()
            assert world.forgotten() == []
