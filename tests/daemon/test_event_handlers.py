"""Watch events in any order: the columns equal a recount, and every pod is in exactly one place."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.changes import Change, Deleted, Updated, Updates
from kube_policy_scheduler.cluster import node_info, objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.scheduling.event_handlers import EventHandlers
from kube_policy_scheduler.daemon.scheduling.live_algorithm import LiveAlgorithm
from kube_policy_scheduler.daemon.scheduling.schedule_one import PermitReports, waiting_pods
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.invariants import violations
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, SchedulingQueue
from tests.fakes.scheduler_context import context_of

OURS = "policy-scheduler"


def policies(serves: Callable[[PodInfo], bool]) -> Any:
    """Return policies that govern these pods, and have no gangs."""
    return SimpleNamespace(serves=serves, gang_requirements=lambda queued, frame: ())


class World:
    """Event handlers with everything around them, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cluster, self.queue = Cluster(), SchedulingQueue()
        self.served = {OURS}
        nobody: Any = None
        context = context_of(
            nobody,
            self.cluster,
            self.queue,
            clock=lambda: self.now,
            claims=SimpleNamespace(delivered=lambda claim, *, gone=False: None),
        )
        self.algorithm = algorithm = LiveAlgorithm(context)
        algorithm.policies = policies(lambda pod: pod.scheduler_name in self.served)
        self.event_handlers = EventHandlers(
            context, algorithm, waiting_pods(context, algorithm, PermitReports(context, algorithm))
        )

    def problems(self) -> list[str]:
        return violations(self.cluster, self.queue, self.cluster.assumed)


def node(name: str, *, cpu: str = "4") -> objects.Node:
    return msgspec.convert(
        {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}},
        objects.Node,
    )


def pod(name: str, *, on: str = "", scheduler: str = OURS, phase: str = "Pending", **changes: Any) -> objects.Pod:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name} | changes.get("metadata", {}),
            "spec": {
                "nodeName": on,
                "schedulerName": scheduler,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": changes.get("cpu", "1")}}}],
            },
            "status": {"phase": phase, "nominatedNodeName": changes.get("nominated", "")},
        },
        objects.Pod,
    )


def test_only_pods_of_our_scheduler_are_queued() -> None:
    world = World()
    world.event_handlers.pods_replaced([pod("a"), pod("b", scheduler="default-scheduler"), pod("c", on="n1")])

    assert [queued.pod.name for queued in world.queue] == ["a"]


def test_pods_bound_by_anyone_count_on_their_nodes_also_if_the_node_comes_later() -> None:
    world = World()
    world.event_handlers.pod_changed(pod("a", on="n1", scheduler="default-scheduler"))
    world.event_handlers.node_changed(node("n1"))

    assert world.cluster.nodes.requested("cpu").tolist() == [1000]


def test_a_pod_that_becomes_ready_wakes_those_that_wait_for_it_only_if_a_policy_asks() -> None:
    for reads in (False, True):
        world = World()
        world.algorithm.policies = policies(lambda pod: True)
        world.event_handlers.node_changed(node("n1"))
        world.event_handlers.pod_changed(pod("a", on="n1"))
        if reads:
            world.cluster.pod_states()  # as a policy does that is asked for the first time
        world.event_handlers.pod_changed(pod("b"))
        waiting = world.queue.pop(0.0)
        assert waiting is not None
        world.queue.rejected(waiting, frozenset({"x"}), 0.0, wakes={"x": frozenset({ClusterEvent.POD_STATE})})
        changed = pod("a", on="n1")
        changed.status.conditions = [objects.PodCondition(type="Ready", status="True")]

        world.event_handlers.pod_changed(pod("a", on="n1"))
        before = waiting.place
        world.event_handlers.pod_changed(changed)

        assert before is Place.UNSCHEDULABLE
        assert (waiting.place is not Place.UNSCHEDULABLE) is reads


def test_a_pod_that_turns_terminal_frees_its_room() -> None:
    world = World()
    world.event_handlers.node_changed(node("n1"))
    world.event_handlers.pod_changed(pod("a", on="n1"))
    world.event_handlers.pod_changed(pod("a", on="n1", phase="Succeeded"))

    assert world.cluster.nodes.requested("cpu").tolist() == [0]


def test_a_policy_set_that_serves_another_scheduler_takes_its_waiting_pods() -> None:
    world = World()
    world.event_handlers.pods_replaced([pod("a"), pod("b", scheduler="batch")])
    world.served = {"batch"}
    world.event_handlers.policies_changed()

    assert [queued.pod.name for queued in world.queue] == ["b"]


def test_a_relist_without_a_pod_means_that_it_is_gone() -> None:
    world = World()
    world.event_handlers.nodes_replaced([node("n1")])
    world.event_handlers.pods_replaced([pod("a", on="n1"), pod("b")])
    world.event_handlers.pods_replaced([pod("c")])

    assert world.cluster.pods == {}
    assert [queued.pod.name for queued in world.queue] == ["c"]


@pytest.mark.parametrize("how", ["list", "event"])
def test_a_node_that_was_deleted_and_created_again_unseen_is_another_one(how: str) -> None:
    world = World()
    first, second = node("n1"), node("n1", cpu="2")
    first.metadata.uid, second.metadata.uid = "first", "second"
    second.metadata.creation_timestamp = "2026-11-20T10:00:00Z"
    world.event_handlers.nodes_replaced([first, node("n2")])
    world.event_handlers.pods_replaced([pod("a", on="n1"), pod("waits", cpu="9")])
    waits = world.queue.pop(0.0)
    assert waits is not None
    new_nodes = {"NodeResourcesFit": frozenset({ClusterEvent.NODE_ADD})}
    world.queue.rejected(waits, frozenset(new_nodes), 0.0, wakes=new_nodes)
    mark, since = world.event_handlers.mark("n1"), world.cluster.ledger.epoch
    if how == "list":
        world.event_handlers.nodes_replaced([second, node("n2")])
    else:
        world.event_handlers.node_changed(second)

    assert world.problems() == []
    assert list(world.cluster.ledger.since(since) or ()) == [ClusterEvent.NODE_DELETE, ClusterEvent.NODE_ADD]
    assert world.event_handlers.mark("n1") != mark
    assert waits.place is not Place.UNSCHEDULABLE
    (there,) = [info for info in world.cluster.nodes.infos if info.name == "n1"]
    assert (there.node.metadata.uid, world.cluster.pods_on("n1").keys()) == ("second", {"a"})


@pytest.mark.parametrize("how", ["list", "event"])
def test_a_claim_that_was_deleted_and_created_again_unseen_is_another_one(how: str) -> None:
    world = World()
    delivered: list[tuple[str, bool]] = []
    world.event_handlers._claims = cast(
        Any,
        SimpleNamespace(delivered=lambda claim, *, gone=False: delivered.append((claim.metadata.uid, gone))),
    )

    def claim(uid: str, **status: Any) -> objects.ResourceClaim:
        metadata = {"name": "gpu", "namespace": "default", "uid": uid}
        return msgspec.convert({"metadata": metadata, "spec": {}, "status": status}, objects.ResourceClaim)

    allocated = {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "g"}]}}}
    world.event_handlers.claim_changed(claim("first", **allocated))
    again = claim("second")
    if how == "list":
        world.event_handlers.objects_replaced(objects.ResourceClaim, [again])
    else:
        world.event_handlers.claim_changed(again)

    assert delivered == [("first", False), ("first", True), ("second", False)]
    (known,) = world.cluster.all(objects.ResourceClaim)
    assert (known.metadata.uid, known.status.allocation) == ("second", None)


def test_a_pod_of_another_scheduler_that_is_gone_is_not_queued_by_policies_that_serve_that_one() -> None:
    world = World()
    world.event_handlers.pods_replaced([pod("a", scheduler="batch"), pod("b", scheduler="batch")])
    world.event_handlers.pods_replaced([pod("b", scheduler="batch")])  # a reflector that started over
    world.served = {OURS, "batch"}
    world.event_handlers.policies_changed()

    assert [queued.pod.name for queued in world.queue] == ["b"]


@given(st.data())
def test_after_any_events_the_columns_equal_a_recount(data: st.DataObject) -> None:
    world = World()
    handlers = world.event_handlers
    flying: list[Any] = []
    names = st.sampled_from([f"p{i}" for i in range(6)])
    nodes = st.sampled_from([f"n{i}" for i in range(4)])

    def a_pod() -> objects.Pod:
        phase = data.draw(st.sampled_from(["Pending", "Running", "Running", "Succeeded"]))
        return pod(
            data.draw(names),
            on=data.draw(st.one_of(st.just(""), nodes)),
            scheduler=data.draw(st.sampled_from([OURS, OURS, "other"])),
            phase=phase,
            cpu=data.draw(st.sampled_from(["1", "500m"])),
            metadata={"deletionTimestamp": "2026-11-21T10:00:00Z"} if data.draw(st.integers(0, 4)) == 0 else {},
        )

    def assume() -> None:
        queued = world.queue.pop(world.now)
        if queued is None:
            return
        if world.cluster.nodes.size and data.draw(st.booleans()):
            host = data.draw(st.sampled_from(world.cluster.nodes.names))
            world.cluster.assume(queued.pod, host, now=world.now)
            flying.append(queued)
        else:
            world.queue.rejected(queued, frozenset({"NodeResourcesFit"}), world.now, wakes=kubernetes_profile().wakes)

    def refused() -> None:
        if flying:
            queued = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
            world.cluster.forget(queued.pod.uid)
            world.queue.failed(queued, world.now)

    steps: dict[str, Callable[[], Any]] = {
        "pod": lambda: handlers.pod_changed(a_pod()),
        "pod deleted": lambda: handlers.pod_deleted(pod(data.draw(names))),
        "node": lambda: handlers.node_changed(node(data.draw(nodes), cpu=data.draw(st.sampled_from(["4", "8"])))),
        "node deleted": lambda: handlers.node_deleted(node(data.draw(nodes))),
        "relist": lambda: handlers.pods_replaced(list({p.metadata.uid: p for p in (a_pod(), a_pod())}.values())),
        "assume": assume,
        "refused": refused,
    }
    for _ in range(data.draw(st.integers(1, 40))):
        world.now += 1.0
        steps[data.draw(st.sampled_from(sorted(steps)))]()
        assert world.problems() == []
    places = world.queue.counts()
    assert sum(places.values()) == len(world.queue)
    assert places[Place.IN_FLIGHT] <= len(flying) + len(world.cluster.assumed)


_CHANGE = st.tuples(
    st.sampled_from("abcdefghijklmnopqrst"),
    st.sampled_from(("", "", "", "n1", "n2", "gone")),
    st.sampled_from((OURS, OURS, "default-scheduler")),
    st.sampled_from(("Pending", "Running", "Succeeded")),
    st.sampled_from(("1", "1", "8Ei", "not a quantity")),
    st.sampled_from(({}, {}, {"deletionTimestamp": "2026-11-21T10:00:00Z"})),
    st.sampled_from(("", "n1")),
    st.sampled_from((*[False] * 9, True)),
)


def _changes(steps: list[Any]) -> list[Change[objects.Pod]]:
    found: list[Change[objects.Pod]] = []
    for number, (name, on, scheduler, phase, cpu, metadata, nominated, is_deleted) in enumerate(steps):
        metadata = metadata | {"resourceVersion": str(number)}
        seen = pod(name, on=on, scheduler=scheduler, phase=phase, cpu=cpu, metadata=metadata, nominated=nominated)
        found.append(Deleted(seen) if is_deleted else Updated(seen))
    return found


@given(st.lists(st.lists(_CHANGE, min_size=8, max_size=30), min_size=1, max_size=3))
def test_changes_that_come_together_do_the_same_as_one_by_one(
    chunks: list[list[Any]],
) -> None:
    together, apart = World(), World()
    for world in (together, apart):
        for name in ("n1", "n2"):
            world.event_handlers.node_changed(node(name))
    for chunk in chunks:
        together.event_handlers.handler(objects.Pod).changed(_changes(chunk))
        for change in _changes(chunk):
            apart.event_handlers.handler(objects.Pod).changed([change])

        assert together.problems() == apart.problems() == []
        assert _counted(together) == _counted(apart)
    assert _popped(together) == _popped(apart)


_LISTED = st.tuples(
    st.sampled_from([f"p{number}" for number in range(60)]),
    st.sampled_from((*["n1", "n2"] * 20, "gone", "")),
    st.just(OURS),
    st.sampled_from((*["Running"] * 80, "Succeeded")),
    st.sampled_from((*["1", "2", "8Ei"] * 30, "not a quantity")),
    st.sampled_from(({}, {}, {"deletionTimestamp": "2026-11-21T10:00:00Z"})),
    st.sampled_from((*[""] * 80, "n1")),
    st.just(False),
)


def _as_columns(steps: list[Any]) -> objects.ListedPods:
    """Return the same pods as a list that was compared has them: alike are those that differ in name and node only."""
    likes: dict[Any, objects.PodLikeness] = {}
    found: list[objects.ListedPod] = []
    for change in _changes(steps):
        assert isinstance(change, Updated)
        seen = change.new
        node_name = seen.spec.node_name.encode().decode()  # each is a text of its own, as in a list
        own = seen.metadata.name, seen.metadata.uid, seen.metadata.resource_version, node_name
        blank = msgspec.convert(msgspec.to_builtins(seen), objects.Pod)
        blank.metadata.name = blank.metadata.uid = blank.metadata.resource_version = blank.spec.node_name = ""
        like = likes.setdefault(msgspec.json.encode(blank), objects.PodLikeness(seen))
        found.append(objects.ListedPod(like, *own, None, None))
    columns = [[getattr(pod, field) for pod in found] for field in objects.ListedPod.__struct_fields__]
    return objects.ListedPods(*columns)


@given(
    st.lists(st.lists(_LISTED, min_size=8, max_size=12, unique_by=lambda step: step[0]), min_size=1, max_size=3),
    st.lists(_LISTED.map(lambda step: (step[0], "", *step[2:])), max_size=9),
)
def test_pods_that_come_as_columns_do_the_same_as_one_by_one(chunks: list[list[Any]], before: list[Any]) -> None:
    together, apart = World(), World()
    for world in (together, apart):
        for name in ("n1", "n2"):
            world.event_handlers.node_changed(node(name))
        world.event_handlers.handler(objects.Pod).changed(_changes(before))
    for chunk in chunks:
        before_together, before_apart = _marks(together), _marks(apart)
        together.event_handlers.handler(objects.Pod).changed(Updates(_as_columns(chunk)))
        for change in _changes(chunk):
            apart.event_handlers.handler(objects.Pod).changed([change])

        assert together.problems() == apart.problems() == []
        assert _counted(together) == _counted(apart)
        assert _in_full(together) == _in_full(apart)
        assert all(info.node_name is intern(info.node_name) for info in together.cluster.pods.values())
        assert _marks(together).keys() == _marks(apart).keys() == {"n1", "n2"}
        assert _marked_since(together, before_together) == _marked_since(apart, before_apart)
    assert _popped(together) == _popped(apart)


def _marks(world: World) -> dict[str, int]:
    marks = {name: world.event_handlers.mark(name) for name in ("n1", "n2", "gone")}
    return {name: mark for name, mark in marks.items() if mark is not None}


def _marked_since(world: World, before: dict[str, int]) -> set[str]:
    return {name for name, mark in _marks(world).items() if mark != before[name]}


def _in_full(world: World) -> object:
    """Return what is known of each pod, in the order in which the pods are kept, and where it is counted."""
    cluster = world.cluster
    fields = [field for field in PodInfo.__struct_fields__ if field != "template"]
    infos = [{field: getattr(info, field) for field in fields} for info in cluster.pods.values()]
    on_node = [(name, list(there)) for name, there in cluster.on_node.items()]
    counted = [list(cluster.counters.pods_by_row(each).items()) for each in cluster.counters.placed_templates]
    return infos, on_node, counted, cluster.held_from(0, "cpu").tolist(), list(cluster.on_unknown_nodes)


def _popped(world: World) -> list[str]:
    """Return the waiting pods in the order in which they are decided."""
    return [queued.pod.uid for queued in iter(lambda: world.queue.pop(world.now), None)]


_NODE = st.tuples(
    st.sampled_from(("n1", "n2", "n3", "n4", "n5", "gone")),
    st.sampled_from(("4", "8Ei", "not a quantity")),
    st.fixed_dictionaries({}, optional={"zone": st.sampled_from("ab"), "disk": st.just("ssd")}),
    st.lists(st.tuples(st.sampled_from(("Ready", "DiskPressure")), st.sampled_from(("True", "False"))), max_size=2),
    st.dictionaries(st.sampled_from("xyz"), st.integers(1, 2), max_size=3),
    st.sampled_from((True, False, False)),
)


def _node_changes(steps: list[Any]) -> list[Change[objects.Node]]:
    found: list[Change[objects.Node]] = []
    for number, (name, cpu, labels, conditions, images, is_deleted) in enumerate(steps):
        seen = node(name, cpu=cpu)
        seen.metadata.labels, seen.metadata.resource_version = labels, str(number)
        seen.status.conditions = [objects.NodeCondition(type=kind, status=status) for kind, status in conditions]
        seen.status.images = [objects.ContainerImage(names=[each], size_bytes=size) for each, size in images.items()]
        seen.status.capacity = {"cpu": "4"} if labels else None
        found.append(Deleted(seen) if is_deleted else Updated(seen))
    return found


@given(st.lists(st.lists(_NODE, max_size=20), max_size=4), st.lists(_CHANGE, max_size=20))
def test_nodes_that_come_together_do_the_same_as_one_by_one(chunks: list[list[Any]], pods: list[Any]) -> None:
    together, apart = World(), World()
    for world in (together, apart):
        world.event_handlers.handler(objects.Pod).changed(_changes(pods))
    for chunk in chunks:
        together.event_handlers.handler(objects.Node).changed(_node_changes(chunk))
        for change in _node_changes(chunk):
            apart.event_handlers.handler(objects.Node).changed([change])
            for name in "xyz":
                apart.cluster.nodes.images.get(name)

        assert together.problems() == apart.problems() == []
        assert _counted(together) == _counted(apart)
        assert _described(together.cluster) == _described(apart.cluster) == _plainly(together.cluster)
        marked = [{n for n in apart.cluster.nodes.names if w.event_handlers.mark(n)} for w in (together, apart)]
        assert marked == [{*apart.cluster.nodes.names}] * 2


def _described(cluster: Cluster) -> dict[str, object]:
    nodes = cluster.nodes
    images = {name: nodes.images.get(name) for name in "xyz"}
    return {
        "nodes": [(info.name, info.row, info.conditions, info.allocatable) for info in nodes.infos],
        "labels": [(key, nodes.known_label(key)) for key in ("zone", "disk")],
        "images": {name: sorted(image.row_array().tolist()) for name, image in images.items() if image is not None},
        "cpu": nodes.allocatable("cpu").tolist(),
    }


def _plainly(cluster: Cluster) -> dict[str, object]:
    """Return the same, as each node says."""
    infos = [(info, info.node.metadata.labels or {}, info.node.status) for info in cluster.nodes.infos]
    rows: dict[str, list[int]] = {}
    for info in cluster.nodes.infos:
        for name in info.images:
            rows.setdefault(name, []).append(info.row)
    offered = [node_info.allocatable(info.node) for info, _, _ in infos]
    return {
        "nodes": [
            (info.node.metadata.name, row, {each.type: each.status for each in status.conditions or ()}, amounts)
            for row, ((info, _, status), amounts) in enumerate(zip(infos, offered, strict=True))
        ],
        "labels": [(key, key if any(key in labels for _, labels, _ in infos) else None) for key in ("zone", "disk")],
        "images": rows,
        "cpu": [amounts["cpu"] for amounts in offered],
    }


def test_a_node_among_others_wakes_the_pods_that_wait_for_it() -> None:
    world = World()
    world.event_handlers.pod_changed(pod("waits"))
    waiting = world.queue.pop(0.0)
    assert waiting is not None
    world.queue.rejected(waiting, frozenset({"x"}), 0.0, wakes={"x": frozenset({ClusterEvent.NODE_ADD})})

    before = waiting.place
    world.event_handlers.handler(objects.Node).changed([Updated(node(f"n{number}")) for number in range(10)])

    assert (before, waiting.place) == (Place.UNSCHEDULABLE, Place.BACKOFF)


def _counted(world: World) -> dict[str, object]:
    cluster = world.cluster
    return {
        "pods": {uid: (cluster.node_of(uid), info.demand.requests) for uid, info in cluster.pods.items()},
        "cpu": cluster.nodes.requested("cpu").tolist(),
        "pending": {queued.pod.uid: queued.place for queued in world.queue},
        "nominated": {node: sorted(pods) for node, pods in cluster.nominated.items()},
        "marked": [world.event_handlers.mark(name) is not None for name in ("n1", "n2")],
        "seen": world.event_handlers.pods_seen,
    }


def test_one_that_cannot_be_taken_in_for_a_reason_that_nobody_thought_of_does_not_keep_others_of_a_list_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    add, interpret = world.queue.add, world.cluster.nodes.interpret

    def broken_add(pod: Any, now: float) -> None:
        assert pod.name != "b"
        add(pod, now)

    def broken_interpret(node: objects.Node) -> Any:
        assert node.metadata.name != "n2"
        return interpret(node)

    monkeypatch.setattr(world.queue, "add", broken_add)
    monkeypatch.setattr(world.cluster.nodes, "interpret", broken_interpret)
    world.event_handlers.nodes_replaced([node(name) for name in ("n1", "n2", "n3")])
    world.event_handlers.pods_replaced([pod(name) for name in "abc"])

    assert sorted(world.cluster.nodes.names) == ["n1", "n3"]
    assert [queued.pod.name for queued in world.queue] == ["a", "c"]
    assert "cannot use node n2" in caplog.text
    assert "cannot use pod default/b" in caplog.text
