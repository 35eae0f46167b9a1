"""The queue: order, back-off, wake-ups, and that every pending pod is in exactly one place."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.ledger import Ledger
from kube_policy_scheduler.cluster.pods import PodInfo, Templates
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.queue import scheduling_queue
from kube_policy_scheduler.framework.queue.backfill_rule import BackfillRule
from kube_policy_scheduler.framework.queue.scheduling_queue import (
    MOVED_AT_ONCE,
    NO_GROUPS,
    Membership,
    Place,
    PositionOf,
    QueuedPod,
    QueuePosition,
    SchedulingQueue,
    priority_position,
    priority_sort,
)

FIT = frozenset({"NodeResourcesFit"})
WAKES = kubernetes_profile().wakes


def make_pod(
    name: str, *, priority: int = 0, gates: tuple[str, ...] = (), templates: Templates | None = None
) -> PodInfo:
    return (templates or Templates()).pod(
        objects.Pod(
            metadata=objects.ObjectMeta(name=name, namespace="default", uid=name),
            spec=objects.PodSpec(
                priority=priority, scheduling_gates=[objects.SchedulingGate(name=g) for g in gates] or None
            ),
        )
    )


def popped(queue: SchedulingQueue, now: float) -> list[str]:
    names = []
    while (queued := queue.pop(now)) is not None:
        names.append(queued.pod.name)
    return names


def test_higher_priority_goes_first_then_the_longest_wait() -> None:
    queue = SchedulingQueue()
    for at, (name, priority) in enumerate([("a", 0), ("b", 5), ("c", 5), ("d", 1)]):
        queue.add(make_pod(name, priority=priority), float(at))

    assert popped(queue, 10.0) == ["b", "c", "d", "a"]


def test_a_rejected_pod_waits_for_an_event_that_its_rejector_cares_for() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.rejected(queued, FIT, 0.0, wakes=WAKES)

    assert queue.move_on_event(ClusterEvent.NODE_TAINT, 20.0) == 0
    assert queue.pop(20.0) is None
    assert queue.move_on_event(ClusterEvent.POD_DELETE, 20.0) == 1
    assert queue.pop(20.0) is queued


def test_an_event_during_the_attempt_is_not_missed() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.move_on_event(ClusterEvent.POD_DELETE, 0.0)
    queue.rejected(queued, FIT, 0.0, wakes=WAKES)

    assert queued.place is Place.BACKOFF


@pytest.mark.parametrize(
    ("before", "own", "after", "retries"),
    [
        (None, ClusterEvent.POD_DELETE, None, False),
        (ClusterEvent.POD_DELETE, ClusterEvent.POD_DELETE, None, True),
        (ClusterEvent.NODE_ADD, None, None, True),
        (None, ClusterEvent.POD_DELETE, ClusterEvent.POD_DELETE, True),
    ],
)
def test_of_the_events_during_its_attempt_a_pod_passes_over_those_of_its_own_changes(
    before: ClusterEvent | None, own: ClusterEvent | None, after: ClusterEvent | None, retries: bool
) -> None:
    queue, ledger = SchedulingQueue(), Ledger()
    queue.follow(ledger, lambda: 0.0)
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    if before is not None:
        ledger.note(before)
    for _ in range(2):
        with queue.own_change(queued):
            if own is not None:
                ledger.note(own)
    if after is not None:
        ledger.note(after)
    queue.rejected(queued, FIT, 0.0, wakes=WAKES)

    assert (queued.place is Place.BACKOFF) == retries


def test_an_attempt_that_is_not_finished_keeps_its_turn_and_counts_once() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queue.add(make_pod("b"), 1.0)
    queued = queue.pop(1.0)
    assert queued is not None
    queue.resume_attempt(queued, 2.0)
    queue.add(make_pod("urgent", priority=1), 3.0)

    assert popped(queue, 3.0) == ["urgent", "a", "b"]
    assert (queued.attempts, queued.timestamp) == (1, 0.0)


def test_a_deleted_pod_does_not_go_on_with_its_attempt() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.remove("a")
    queue.resume_attempt(queued, 0.0)

    assert queue.pop(0.0) is None
    assert queue.misplaced() == []


def test_backoff_doubles_up_to_ten_seconds() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    now, waits = 0.0, []
    assert queue.next_due() is None
    for _ in range(6):
        queued = queue.pop(now)
        assert queued is not None
        queue.failed(queued, now)
        due = queue.next_due()
        assert due is not None
        waits.append(due - now)
        assert queue.pop(due - 0.01) is None
        now = due

    assert waits == [1, 2, 4, 8, 10, 10]


def test_a_pod_that_changes_during_its_attempt_is_tried_again_as_it_is_now() -> None:
    """Its victims are being evicted, say, and somebody gives it a toleration."""
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.add(msgspec.structs.replace(queued.pod, resource_version="2"), 0.5)
    queue.rejected(queued, FIT, 1.0, wakes=WAKES)
    assert queued.place is Place.UNSCHEDULABLE, "nothing that counts has changed"
    queue.move_on_event(ClusterEvent.POD_DELETE, 100.0)
    assert queue.pop(100.0) is queued
    queue.add(msgspec.structs.replace(queued.pod, annotations={"a": "b"}), 100.5)
    queue.rejected(queued, FIT, 101.0, wakes=WAKES)
    assert queued.place is Place.BACKOFF


def test_an_idle_queue_does_not_make_a_woken_pod_sit_out_its_backoff() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.rejected(queued, FIT, 0.0, wakes=WAKES)
    queue.move_on_event(ClusterEvent.POD_DELETE, 0.1)

    assert queued.place is Place.BACKOFF
    assert queue.pop(0.1) is queued


def test_a_gated_pod_is_held_until_its_gates_are_gone() -> None:
    queue, templates = SchedulingQueue(), Templates()
    queue.add(make_pod("a", gates=("g1", "g2"), templates=templates), 0.0)

    held = queue.get("a")
    assert held is not None
    assert (held.place, held.gated_because) == (Place.GATED, "waiting for scheduling gates: [g1 g2]")
    assert queue.pop(0.0) is None

    queue.add(make_pod("a", templates=templates), 1.0)
    assert popped(queue, 1.0) == ["a"]


def test_a_pod_that_no_event_concerned_is_tried_again_after_five_minutes() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.rejected(queued, FIT, 0.0, wakes=WAKES)

    assert queue.flush_leftovers(300.0) == 0
    assert queue.flush_leftovers(301.0) == 1
    assert queue.pop(301.0) is queued


def test_a_pod_removed_in_flight_does_not_come_back() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.remove("a")
    queue.rejected(queued, FIT, 0.0, wakes=WAKES)

    assert len(queue) == 0
    assert queue.pop(100.0) is None


def test_a_pod_comes_back_as_it_was_shown_last_while_it_was_assumed_or_after() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.assumed(queued)
    queue.show(make_pod("a", priority=1))
    queue.add(make_pod("a", priority=2), 1.0)  # it gave its place back, and its attempt has not ended yet
    queue.failed(queued, 2.0)
    assert queued.pod.priority == 2

    assert queue.pop(10.0) is queued
    queue.assumed(queued)
    queue.show(make_pod("a", priority=3))
    assert queued.pod.priority == 2, "until then it counts on its node as it was"
    queue.failed(queued, 11.0)
    assert queued.pod.priority == 3


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "pop", "reject", "fail", "event", "flush"]), st.integers(0, 4))
    )
)
def test_every_pending_pod_is_in_exactly_one_place(steps: list[tuple[str, int]]) -> None:
    queue, templates, now = SchedulingQueue(), Templates(), 0.0
    expected: set[str] = set()
    flying = []
    for step, number in steps:
        now += 0.7
        name = f"p{number}"
        match step:
            case "add":
                queue.add(make_pod(name, templates=templates), now)
                expected.add(name)
            case "remove":
                queue.remove(name)
                expected.discard(name)
            case "pop":
                if (queued := queue.pop(now)) is not None:
                    assert queued.pod.uid in expected
                    flying.append(queued)
            case "reject" | "fail":
                if flying:
                    queued = flying.pop()
                    queue.rejected(queued, FIT, now, wakes=WAKES) if step == "reject" else queue.failed(queued, now)
            case "event":
                queue.move_on_event(ClusterEvent.POD_DELETE, now)
            case "flush":
                queue.flush_leftovers(now)
        assert {queued.pod.uid for queued in queue} == expected
        assert sum(queue.counts().values()) == len(expected)

    # Whatever happened: once the attempts are over and time has passed, every pod can be had again, once.
    for queued in flying:
        queue.failed(queued, now)
    queue.flush_leftovers(now + 1000)
    queue.move_on_event(ClusterEvent.TIMEOUT, now + 1000)
    assert sorted(popped(queue, now + 2000)) == sorted(expected)


def test_new_rules_order_and_hold_the_pods_that_wait_already() -> None:
    queue = SchedulingQueue()
    for at, name in enumerate("abcd"):
        queue.add(make_pod(name), float(at))
    queue.use(
        position=lambda queued: QueuePosition("latest first", ((-queued.timestamp,),)),
        hold=lambda queued: "not now" if queued.pod.name == "c" else None,
    )

    assert popped(queue, 10.0) == ["d", "b", "a"]

    queue.use(position=priority_position, hold=lambda queued: None)
    assert popped(queue, 10.0) == ["c"]


def test_lines_of_different_orders_compete_by_priority_and_exchange_only_their_own_turns() -> None:
    """Line a has the first turn and the third, since its pods came so; its order says which pod uses which."""
    queue = SchedulingQueue(position=lambda queued: QueuePosition(queued.pod.name[0], queued.pod.name))
    for at, (name, priority) in enumerate([("a2", 0), ("b1", 0), ("a1", 0), ("b2", 9)]):
        queue.add(make_pod(name, priority=priority), float(at))

    assert popped(queue, 10.0) == ["a1", "b1", "b2", "a2"]


def flood(queue: SchedulingQueue, templates: Templates, *, pods: int) -> None:
    """Have a tenant's pods rejected once, and woken again together."""
    for number in range(pods):
        queue.add(make_pod(f"flood{number}", templates=templates), 0.0)
    while (queued := queue.pop(1.0)) is not None:
        queue.rejected(queued, FIT, 1.0, wakes=WAKES)
    queue.move_on_event(ClusterEvent.POD_DELETE, 100.0)


def ordered(line: str) -> Callable[[QueuedPod], QueuePosition]:
    """Return what puts the pods of a flood into a line with an order of its own, the last one first."""

    def position(queued: QueuedPod) -> QueuePosition:
        number = queued.pod.name.removeprefix("flood")
        return QueuePosition(line, ((-int(number),),)) if number != queued.pod.name else priority_position(queued)

    return position


def of_tenant(name: str) -> PodInfo:
    return Templates().pod(objects.Pod(metadata=objects.ObjectMeta(name=name, namespace="other", uid=name)))


@pytest.mark.parametrize("position", [priority_position, ordered("team-a/x")], ids=["", "order by"])
def test_a_flood_of_ten_thousand_rejected_pods_does_not_delay_another_tenants_new_pod(position: PositionOf) -> None:
    queue, templates = SchedulingQueue(position=position), Templates()
    flood(queue, templates, pods=10_000)
    queue.add(of_tenant("new"), 101.0)

    assert "new" in popped(queue, 101.0)[:2]


@pytest.mark.parametrize("position", [priority_position, ordered("team-a/x")], ids=["", "order by"])
def test_a_flood_does_not_delay_another_tenants_rejected_pod_either(position: PositionOf) -> None:
    queue, templates = SchedulingQueue(position=position), Templates()
    flood(queue, templates, pods=10_000)
    queue.add(of_tenant("again"), 101.0)
    for _ in range(2):
        queued = queue.pop(101.0)
        assert queued is not None
        if queued.pod.name == "again":
            queue.rejected(queued, FIT, 101.0, wakes=WAKES)
    queue.move_on_event(ClusterEvent.POD_DELETE, 120.0)

    assert "again" in popped(queue, 120.0)[:3]


@pytest.mark.parametrize("position", [priority_position, ordered("team-a/x")], ids=["", "order by"])
def test_the_flood_gets_its_slots_as_well(position: PositionOf) -> None:
    queue, templates = SchedulingQueue(position=position), Templates()
    flood(queue, templates, pods=10)
    for number in range(10):
        queue.add(make_pod(f"new{number}", templates=templates), 101.0)
    names = popped(queue, 101.0)

    assert sum(name.startswith("flood") for name in names[:10]) == 5


def test_a_pod_waits_for_the_events_that_its_clause_depends_on() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.rejected(queued, frozenset({"busy"}), 0.0, wakes={"busy": frozenset({ClusterEvent.SIGNALS})})

    assert queue.move_on_event(ClusterEvent.NODE_LABEL, 20.0) == 0
    assert queue.move_on_event(ClusterEvent.SIGNALS, 20.0) == 1


def test_other_policies_wake_every_rejected_pod() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.rejected(queued, frozenset({"never"}), 0.0, wakes={"never": frozenset()})

    assert queue.move_on_event(ClusterEvent.POD_DELETE, 20.0) == 0
    assert queue.move_on_event(ClusterEvent.POLICY, 20.0) == 1


def test_a_held_pod_for_which_room_is_kept_again_is_looked_at_again() -> None:
    """The API server may still show a nomination that was dropped since."""
    queue = SchedulingQueue(hold=lambda queued: "not now")
    pod = make_pod("a")
    queue.add(pod, 0.0)
    (queued,) = queue.newly_gated(since=0.0)
    queue.mark_reported(queued)
    queue.add(pod, 1.0)
    assert queue.newly_gated(since=1.0) == []
    queue.add(msgspec.structs.replace(pod, nominated_node="n1"), 2.0)
    assert queue.newly_gated(since=2.0) == [queued]
    queue.mark_reported(queued)
    assert queue.newly_gated(since=2.0) == []


def test_a_rejected_pod_that_is_held_by_now_is_not_tried_again_until_it_is_free() -> None:
    is_day = False
    queue = SchedulingQueue(hold=lambda queued: "waits for the night" if is_day and queued.pod.name != "c" else None)
    for name in "abc":
        queue.add(make_pod(name), 0.0)
    a, b, c = (queue.pop(0.0), queue.pop(0.0), queue.pop(0.0))
    assert a is not None
    assert b is not None
    assert c is not None
    queue.rejected(a, FIT, 0.0, wakes=WAKES)
    queue.failed(b, 0.0)
    queue.returned(c, 0.0)
    is_day = True
    queue.move_on_event(ClusterEvent.POD_DELETE, 0.5)
    assert a.place is Place.BACKOFF
    assert popped(queue, 0.6) == [], "the last pod serves its time"
    assert popped(queue, 1.0) == ["c"]
    assert {a.place, b.place} == {Place.GATED}
    assert a.gated_because == b.gated_because == "waits for the night"
    assert {queued.pod.name for queued in queue.newly_gated(since=1.0)} == {"a", "b"}, "to be told"

    is_day = False
    queue.recheck_gated()
    assert sorted(popped(queue, 20.0)) == ["a", "b"]
    queue.rejected(a, FIT, 20.0, wakes=WAKES)
    is_day = True
    queue.move_on_event(ClusterEvent.POD_DELETE, 500.0)
    assert a.place is Place.GATED, "its backoff is over, so it is woken at once"
    assert queue.misplaced() == []


def test_a_pod_that_was_active_for_hours_is_held_if_it_is_to_be_held_by_now() -> None:
    is_day = False
    queue = SchedulingQueue(
        hold=lambda queued: "waits for the night" if is_day else None,
        position=lambda queued: QueuePosition("by name", ((), queued.pod.name), strict=True),
    )
    for name in "ab":
        queue.add(make_pod(name), 0.0)
    first = queue.pop(0.0)
    assert first is not None
    queue.rejected(first, FIT, 0.0, wakes=WAKES)
    assert popped(queue, 1.0) == [], "b is active, and waits behind a"
    is_day = True
    queue.done(first.pod.uid)
    assert popped(queue, 7200.0) == []
    behind = queue.get("b")
    assert behind is not None
    assert (behind.place, behind.gated_because) == (Place.GATED, "waits for the night")
    assert queue.misplaced() == []
    is_day = False
    queue.recheck_gated()
    assert popped(queue, 7201.0) == ["b"]


def test_a_pod_that_is_gone_is_not_woken_by_what_it_leaves_to_others() -> None:
    """Others may start now that did not, lest they delay it; it would have been moved while it was being removed."""
    ledger = Ledger()
    rule = BackfillRule("backfill", lasts=lambda frame: 60.0, most_seconds=3600.0)
    queue = SchedulingQueue(
        position=lambda queued: QueuePosition("o", ((), queued.pod.name), strict=True, backfill=rule)
    )
    queue.follow(ledger, lambda: 500.0)
    for name in "ab":
        queue.add(make_pod(name), 0.0)
        queued = queue.pop(0.0)
        assert queued is not None
        queue.rejected(queued, FIT, 0.0, wakes={"NodeResourcesFit": frozenset({ClusterEvent.RESERVATION})})
    queue.remove("a")
    assert queue.misplaced() == []
    assert popped(queue, 500.0) == ["b"]


def test_a_pod_that_leaves_its_order_lets_those_start_that_would_have_delayed_it() -> None:
    rule = BackfillRule("backfill", lasts=lambda frame: 60.0, most_seconds=3600.0)

    def position(queued: QueuedPod) -> QueuePosition:
        if "strict" in queued.pod.annotations:
            return QueuePosition("o", ((), queued.pod.name), strict=True, backfill=rule)
        return priority_position(queued)

    queue, templates = SchedulingQueue(position=position), Templates()
    queue.follow(Ledger(), lambda: 500.0)
    a, b = (msgspec.structs.replace(make_pod(name, templates=templates), annotations={"strict": ""}) for name in "ab")
    queue.add(a, 0.0)
    first = queue.pop(0.0)
    assert first is not None
    queue.returned(first, 0.0)
    queue.add(b, 0.0)
    behind = queue.pop(0.0)
    assert behind is not None
    queue.rejected(behind, FIT, 0.0, wakes={"NodeResourcesFit": frozenset({ClusterEvent.RESERVATION})})
    assert behind.place is Place.UNSCHEDULABLE
    queue.add(msgspec.structs.replace(a, annotations={}), 0.5)
    assert behind.place is Place.ACTIVE


def test_a_pod_is_told_how_often_it_was_tried_before_whether_it_is_being_tried_or_not() -> None:
    queue, cluster = SchedulingQueue(), Cluster()
    queue.add(make_pod("a"), 0.0)
    told = []

    def tell(queued: QueuedPod) -> None:
        told.append(queued.frame(cluster, 0.0, signals=Signals()).attempts)

    for attempt in range(3):
        queued = queue.pop(100.0 * attempt)
        assert queued is not None
        tell(queued)
        queue.rejected(queued, FIT, 100.0 * attempt, wakes=WAKES)
        tell(queued)
        queue.move_on_event(ClusterEvent.POD_DELETE, 100.0 * attempt + 50.0)
    assert told == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("what", ["enters", "leaves in backoff", "leaves during an attempt"])
def test_a_strict_line_waits_for_a_pod_that_changes_only_while_it_is_in_it(what: str) -> None:
    def position(queued: QueuedPod) -> QueuePosition:
        is_in_line = "strict" in queued.pod.annotations
        return (
            QueuePosition("line", ((), *priority_sort(queued)), strict=True)
            if is_in_line
            else priority_position(queued)
        )

    def show(name: str, *, strict: bool, at: float) -> QueuedPod:
        pod = msgspec.structs.replace(make_pod(name, templates=templates), annotations={"strict": ""} if strict else {})
        queue.add(pod, at)
        queued = queue.get(name)
        assert queued is not None
        return queued

    queue, templates = SchedulingQueue(position=position), Templates()
    first = show("first", strict=what != "enters", at=0.0)
    assert queue.pop(0.0) is first
    queue.returned(first, 0.0)
    show("behind", strict=True, at=0.5)
    if what == "leaves during an attempt":
        assert queue.take("first") is first
    show("first", strict=what == "enters", at=0.6)
    if what == "leaves during an attempt":
        queue.returned(first, 0.7)
    assert popped(queue, 0.8) == ([] if what == "enters" else ["behind"])
    assert "first" in popped(queue, 10.0)


@pytest.mark.parametrize("place", ["backoff", "unschedulable", "active", "in flight", "waiting at permit"])
def test_a_pod_that_changes_its_group_completes_the_other_one_wherever_it_is(place: str) -> None:
    templates = Templates()

    def of(queued: QueuedPod) -> Membership:
        name = queued.pod.labels.get("job", "")
        if not name:
            return NO_GROUPS
        group = Group("gang", "default", "policy-scheduler", name)
        requirement = GangRequirement(group, 2, 60.0, lambda template: group, "gang")
        number = queue.without_place(group) + (group not in queued.groups)
        if number < 2:
            return Membership((group,), (requirement,), why="too few", waits_for=group, missing_members=requirement)
        return Membership((group,), (requirement,))

    def labelled(name: str, **labels: str) -> PodInfo:
        metadata = objects.ObjectMeta(name=name, namespace="default", uid=name, labels=labels)
        return templates.pod(objects.Pod(metadata=metadata, spec=objects.PodSpec()))

    queue = SchedulingQueue()
    queue.use(position=priority_position, hold=lambda queued: None, membership=of)
    queue.add(labelled("x"), 0.0)
    queued = queue.get("x")
    assert queued is not None
    if place != "active":
        queue.pop(0.0)
    if place == "backoff":
        queue.failed(queued, 0.0)
    elif place == "unschedulable":
        queue.rejected(queued, FIT, 0.0, wakes=WAKES)
    elif place == "waiting at permit":
        queue.wait(queued)
    queue.add(labelled("y", job="b"), 0.0)
    (other,) = queue.gated()

    queue.add(labelled("x", job="b"), 0.1)
    if place == "waiting at permit":
        queue.resume(queued)
    if queued.place is Place.IN_FLIGHT:
        queue.failed(queued, 0.2)
    assert other.place is Place.ACTIVE
    assert sorted(queue.group(Group("gang", "default", "policy-scheduler", "b"))) == ["x", "y"]
    assert sorted(popped(queue, 20.0)) == ["x", "y"]
    assert queue.misplaced() == []


@given(
    st.lists(st.sampled_from(["NodeResourcesFit", "NodeAffinity", "TaintToleration"]), min_size=1, max_size=60),
    st.lists(
        st.one_of(
            st.sampled_from([ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.POLICY]), st.integers(0, 59)
        ),
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_moving_in_steps_ends_as_moving_at_once_does(
    rejectors: list[str], happens: list[ClusterEvent | int], seconds: int
) -> None:
    """An int is the end of a pod with this number."""
    at_once, in_steps = SchedulingQueue(), SchedulingQueue()
    for queue in (at_once, in_steps):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduling_queue, "MOVED_AT_ONCE", 4 if queue is in_steps else MOVED_AT_ONCE)
            for number in range(len(rejectors)):
                queue.add(make_pod(f"pod-{number}", priority=number % 3), 0.0)
            while (queued := queue.pop(0.0)) is not None:
                rejector = rejectors[int(queued.pod.name.removeprefix("pod-"))]
                queue.rejected(queued, frozenset({rejector}), 0.0, wakes=WAKES)
            for what in happens:
                if isinstance(what, int):
                    queue.remove(f"pod-{what}")
                else:
                    queue.move_on_event(what, float(seconds))
                assert queue.misplaced() == []
                assert [each.impossible for each in queue if each.impossible] == []
            while queue.move_some(20.0):
                assert queue.misplaced() == []

    assert at_once.counts() == in_steps.counts()
    assert popped(at_once, 20.0) == popped(in_steps, 20.0)


def test_no_step_moves_very_many_pods() -> None:
    queue = SchedulingQueue()
    for number in range(3 * MOVED_AT_ONCE):
        queue.add(make_pod(f"pod-{number}"), 0.0)
    while (queued := queue.pop(0.0)) is not None:
        queue.rejected(queued, FIT, 0.0, wakes=WAKES)

    assert queue.move_on_event(ClusterEvent.POD_DELETE, 0.5) == 3 * MOVED_AT_ONCE
    assert queue.counts()[Place.BACKOFF] == 0
    queue.move_some(0.5)
    assert queue.counts()[Place.BACKOFF] == MOVED_AT_ONCE
    while queue.move_some(0.5):
        pass
    queue.move_some(30.0)  # whose back-off is over

    assert (queue.counts()[Place.ACTIVE], queue.counts()[Place.BACKOFF]) == (MOVED_AT_ONCE, 2 * MOVED_AT_ONCE)


@given(
    st.lists(st.sampled_from(["active", "backoff", "unschedulable", "held", "gone"]), min_size=1, max_size=40),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["end", "come", "update", "wake"])), max_size=6),
)
def test_sorting_by_new_rules_in_steps_ends_as_at_once_does(
    places: list[str], parity: int, meanwhile: list[tuple[int, str]]
) -> None:
    """New rules order by name, the other way round, and hold every fifth pod, say; pods come and end before the pop."""

    def position(queued: QueuedPod) -> QueuePosition:
        return QueuePosition("names", ((-int(queued.pod.name.removeprefix("pod-")),), queued.pod.uid))

    def hold(queued: QueuedPod) -> str | None:
        return None if int(queued.pod.name.removeprefix("pod-")) % 5 else "every fifth"

    def old_hold(queued: QueuedPod) -> str | None:
        return "held" if int(queued.pod.name.removeprefix("pod-")) in held else None

    held = {number for number, place in enumerate(places) if place == "held"}
    at_once, in_steps = SchedulingQueue(hold=old_hold), SchedulingQueue(hold=old_hold)
    for queue in (at_once, in_steps):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduling_queue, "MOVED_AT_ONCE", parity if queue is in_steps else MOVED_AT_ONCE)
            for number, place in enumerate(places):
                queue.add(make_pod(f"pod-{number}"), 0.0)
                if place in ("backoff", "unschedulable") and (queued := queue.pop(0.0)) is not None:
                    queue.rejected(queued, FIT, 0.0, wakes=WAKES)
                    if place == "backoff":
                        queue.wake(queued.pod.uid, ClusterEvent.POD_DELETE, 0.1)
                if place == "gone":
                    queue.remove(f"pod-{number}")
            queue.use(position=position, hold=hold)
            for number, what in meanwhile:
                match what:
                    case "end":
                        queue.remove(f"pod-{number}")
                    case "come":
                        queue.add(make_pod(f"pod-{number + 100}"), 1.0)
                    case "update" if queue.get(f"pod-{number}") is not None:
                        queue.add(make_pod(f"pod-{number}", priority=3), 1.0)
                    case "wake":
                        queue.wake(f"pod-{number}", ClusterEvent.POD_DELETE, 1.0)
                queue.move_some(0.0)
            while queue.move_some(30.0):
                assert queue.misplaced() == []

    assert in_steps.misplaced() == []
    assert at_once.counts() == in_steps.counts()
    assert popped(at_once, 30.0) == popped(in_steps, 30.0)


@pytest.mark.parametrize("what", ["is gone", "is being tried", "has changed, and is to be held"])
def test_new_rules_leave_a_pod_alone_that_was_served_before_its_turn_to_be_sorted(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling_queue, "MOVED_AT_ONCE", 1)
    is_night, queue, group = False, SchedulingQueue(), Group("gang", "default", "policy-scheduler", "job")
    for name in "ab":
        queue.add(make_pod(name), 0.0)
    queue.use(
        position=priority_position,
        hold=lambda queued: "by day only" if is_night and queued.pod.name == "b" else None,
        membership=lambda queued: Membership((group,)),
    )
    if what == "is gone":
        queue.remove("b")
    elif what == "is being tried":
        assert queue.take("b") is not None
    else:
        queue.add(make_pod("b", priority=1), 0.0)
        is_night = True
    while queue.move_some(0.0):
        pass
    assert queue.misplaced() == []
    assert list(queue.group(group)) == (["a"] if what == "is gone" else ["a", "b"])
    monkeypatch.undo()
    assert popped(queue, 0.0) == ["a"]


@pytest.mark.parametrize("place", [Place.BACKOFF, Place.UNSCHEDULABLE])
def test_by_new_rules_a_strict_line_waits_for_a_pod_that_waited_for_its_next_attempt_before(place: Place) -> None:
    queue = SchedulingQueue()
    for name in "ab":
        queue.add(make_pod(name), 0.0)
    first = queue.pop(0.0)
    assert first is not None
    if place is Place.BACKOFF:
        queue.returned(first, 0.0)
    else:
        queue.rejected(first, FIT, 0.0, wakes=WAKES)
    assert first.place is place
    queue.use(
        position=lambda queued: QueuePosition("by name", ((), queued.pod.name), strict=True), hold=lambda queued: None
    )
    assert popped(queue, 0.5) == []
    queue.move_on_event(ClusterEvent.POD_DELETE, 20.0)
    assert popped(queue, 20.0) == ["a", "b"]


def test_by_new_rules_a_pod_that_is_gated_for_a_reason_of_its_own_is_in_no_group() -> None:
    queue, group = SchedulingQueue(), Group("gang", "default", "policy-scheduler", "job")
    queue.add(make_pod("a"), 0.0)
    queue.add(make_pod("b", gates=("quota",)), 0.0)
    queue.use(position=priority_position, hold=lambda queued: None, membership=lambda queued: Membership((group,)))
    assert list(queue.group(group)) == ["a"]


def test_new_rules_for_very_many_pods_are_left_to_steps() -> None:
    queue = SchedulingQueue()
    for number in range(3 * MOVED_AT_ONCE):
        queue.add(make_pod(f"pod-{number}"), 0.0)
    asked: list[str] = []

    def position(queued: QueuedPod) -> QueuePosition:
        asked.append(queued.pod.name)
        return priority_position(queued)

    queue.use(position=position, hold=lambda queued: None)
    steps = [len(asked)]
    while queue.move_some(0.0):
        steps.append(len(asked) - sum(steps))

    assert max(steps) == MOVED_AT_ONCE
    assert asked == [f"pod-{number}" for number in range(3 * MOVED_AT_ONCE)]
    assert len(popped(queue, 0.0)) == 3 * MOVED_AT_ONCE


@pytest.mark.parametrize(("pods", "is_left"), [(MOVED_AT_ONCE, False), (MOVED_AT_ONCE + 1, True)])
def test_what_one_step_can_do_is_not_left_to_others(pods: int, is_left: bool) -> None:
    queue = SchedulingQueue()
    for number in range(pods):
        queue.add(make_pod(f"pod-{number}"), 0.0)
    queue.use(position=priority_position, hold=lambda queued: None)
    assert queue.has_to_move(0.0) == is_left
    while (queued := queue.pop(0.0)) is not None:
        queue.rejected(queued, FIT, 0.0, wakes=WAKES)
    queue.move_on_event(ClusterEvent.POD_DELETE, 0.5)
    assert queue.has_to_move(0.5) == is_left
    while queue.move_some(0.5):
        pass
    assert not queue.has_to_move(0.9)
    assert queue.has_to_move(1.0), "their back-off ends"


@pytest.mark.parametrize(("held", "pops"), [(1, 1), (MOVED_AT_ONCE - 1, 1), (MOVED_AT_ONCE, 2)])
def test_a_pod_behind_those_that_are_held_by_now_is_popped_once_few_enough_are_left(held: int, pops: int) -> None:
    is_day = False
    queue = SchedulingQueue(hold=lambda queued: "for the night" if is_day and queued.pod.priority else None)
    for number in range(held):
        queue.add(make_pod(f"pod-{number}", priority=1), 0.0)
    queue.add(make_pod("free"), 0.0)
    is_day = True
    found = [queue.pop(1.0) for _ in range(pops)]
    assert [each.pod.name for each in found if each is not None] == ["free"]
    assert found[-1] is not None


def test_no_pod_is_popped_before_all_are_sorted_by_new_rules() -> None:
    queue = SchedulingQueue()
    for number in range(3 * MOVED_AT_ONCE):
        queue.add(make_pod(f"pod-{number}", priority=number), 0.0)
    queue.use(position=priority_position, hold=lambda queued: None)
    first = queue.pop(0.0)
    assert first is not None
    assert first.pod.priority == 3 * MOVED_AT_ONCE - 1


def test_where_pods_are_left_to_be_sorted_some_of_them_may_be_active() -> None:
    queue = SchedulingQueue()
    for number in range(2 * MOVED_AT_ONCE):
        queue.add(make_pod(f"pod-{number}", priority=number), 0.0)
    queue.use(position=priority_position, hold=lambda queued: None if queued.pod.priority else "held")
    assert queue.has_active()
    assert len(popped(queue, 0.0)) == 2 * MOVED_AT_ONCE - 1
    assert not queue.has_active()


@pytest.mark.parametrize("then", ["is rejected", "loses its node"])
def test_a_pod_that_failed_with_an_error_is_not_taken_out_of_order_before_its_next_attempt(then: str) -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.failed(queued, 0.0)
    assert queue.take("a") is None
    assert queue.pop(10.0) is queued
    if then == "is rejected":
        queue.rejected(queued, FIT, 10.0, wakes=WAKES)
    else:
        queue.returned(queued, 10.0)
    assert queue.take("a") is queued


def test_a_pod_that_served_its_time_need_not_do_so_after_its_next_attempt() -> None:
    queue = SchedulingQueue()
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.returned(queued, 0.0)
    assert queue.pop(0.9) is None
    assert queue.pop(1.0) is queued
    queue.rejected(queued, FIT, 1.0, wakes=WAKES)
    queue.move_on_event(ClusterEvent.POD_DELETE, 1.1)
    assert queued.place is Place.BACKOFF
    assert queue.pop(1.1) is queued


def test_a_member_that_waits_on_a_node_has_a_place_in_whatever_group_it_is() -> None:
    groups = [Group("gang", "default", "policy-scheduler", name) for name in "ab"]
    queue = SchedulingQueue()
    queue.use(position=priority_position, hold=lambda queued: None, membership=lambda queued: Membership((groups[0],)))
    for name in "xy":
        queue.add(make_pod(name), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    assert queue.without_place(groups[0]) == 2
    queue.wait(queued)
    assert queue.without_place(groups[0]) == 1
    queue.use(position=priority_position, hold=lambda queued: None, membership=lambda queued: Membership((groups[1],)))
    assert [queue.without_place(group) for group in groups] == [0, 1]
    queue.returned(queued, 0.0)
    assert queue.without_place(groups[1]) == 2
    assert queue.misplaced() == []


@pytest.mark.parametrize("place", [Place.ACTIVE, Place.UNSCHEDULABLE, Place.BACKOFF, Place.IN_FLIGHT, Place.PERMIT])
def test_the_version_of_a_group_tells_that_a_member_has_changed_wherever_it_is(place: Place) -> None:
    group, templates, queue = Group("gang", "default", "policy-scheduler", "g"), Templates(), SchedulingQueue()
    queue.use(position=priority_position, hold=lambda queued: None, membership=lambda queued: Membership((group,)))
    pod = make_pod("a", templates=templates)
    queue.add(pod, 0.0)
    queued = queue.get("a") if place is Place.ACTIVE else queue.pop(0.0)
    assert queued is not None
    if place is Place.UNSCHEDULABLE:
        queue.rejected(queued, FIT, 0.0, wakes=WAKES)
    elif place is Place.BACKOFF:
        queue.returned(queued, 0.0)
    elif place is Place.PERMIT:
        queue.wait(queued)
    assert queued.place is place
    before = queue.group_version(group)
    queue.add(msgspec.structs.replace(pod, resource_version="2"), 0.1)
    assert queue.group_version(group) == before, "the same as far as a scheduler reads it"
    queue.add(msgspec.structs.replace(pod, annotations={"runtime": "1h"}), 0.2)
    assert queue.group_version(group) != before


def test_a_group_may_be_tried_again_once_an_error_of_a_member_is_over() -> None:
    """Its plan did without the member."""
    group, queue = Group("gang", "default", "policy-scheduler", "g"), SchedulingQueue()
    queue.use(position=priority_position, hold=lambda queued: None, membership=lambda queued: Membership((group,)))
    queue.add(make_pod("a"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    versions = [queue.group_version(group)]
    queue.failed(queued, 0.0)
    versions.append(queue.group_version(group))
    assert queue.pop(10.0) is queued
    versions.append(queue.group_version(group))
    assert len(set(versions)) == 3


@pytest.mark.parametrize(("behind", "order"), [(False, ["a", "b"]), (True, ["b", "a"])])
def test_an_attempt_that_goes_on_behind_others_comes_after_those_of_its_priority(
    behind: bool, order: list[str]
) -> None:
    queue = SchedulingQueue()
    for at, name in enumerate("ab"):
        queue.add(make_pod(name), float(at))
    queued = queue.pop(2.0)
    assert queued is not None
    queue.resume_attempt(queued, 2.0, behind=behind)
    assert popped(queue, 2.0) == order
