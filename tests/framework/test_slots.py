"""Slots between lines: whatever the orders of owners are, they move only their own pods.

The specification is the queue without any order: an order exchanges slots within its line, and those of others come as
they would without it.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.queue.scheduling_queue import (
    QueuedPod,
    QueuePosition,
    SchedulingQueue,
    priority_position,
)
from kube_policy_scheduler.framework.queue.slots import Lane
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import load
from tests.lang.clusters import NOW, cluster, node, pod

OWNERS = "abc"
ORDERS = [
    "",
    "order by pod.queued",
    "order by pod.queued desc",
    "order by pod.name",
    "order by pod.waiting * number(pod.label.speed) desc",
    "order by floor(pod.waiting / 3s), pod.name desc",
    "order by sqrt(pod.waiting / 1min)",
    'order by pod.name desc if pod.label.speed == "1"\norder by pod.name',
    "queue all by pod.label.speed\norder by queue.share, pod.name desc",
]

STRICT = "order by pod.name strict"


class Step(NamedTuple):
    """What happens."""

    what: str
    owner: str
    number: int


def policy_of(owner: str, text: str) -> Policy:
    loaded = load([Source(f"{owner}.policy", text)])
    assert loaded.policy_set is not None, loaded.diagnostics
    return loaded.policy_set.policies[0]


class Stage:
    """A queue in which each namespace is an owner with a policy of its own; attempts end as a test says."""

    def __init__(self, orders: dict[str, str]) -> None:
        self.now = NOW
        self.cluster = cluster(node("n"))
        self.policies = {owner: policy_of(owner, text) for owner, text in orders.items() if text}
        self.queue = SchedulingQueue(position=self._position)
        self.made = 0

    def _position(self, queued: QueuedPod) -> QueuePosition:
        found = self.policies.get(queued.pod.namespace)
        return priority_position(queued) if found is None else found.position(queued, self._frame(queued))

    def _frame(self, queued: QueuedPod) -> Any:
        return queued.frame(self.cluster, self.now, signals=Signals.EMPTY)

    def add(self, owner: str, number: int, *, priority: int = 0) -> PodInfo:
        self.made += 1
        labels = {"speed": str(number)}
        made = pod(self.cluster, f"p{number}-{self.made}", namespace=owner, priority=priority, labels=labels)
        self.queue.add(made, self.now)
        return made

    def retry(self, owner: str, number: int, *, priority: int = 0) -> None:
        """Let pods of an owner come, be rejected, and be awaited again."""
        made = [self.add(owner, each, priority=priority) for each in range(number)]
        for each in made:
            queued = self.queue.take(each.uid)
            assert queued is not None
            self.queue.rejected(queued, frozenset({"Fit"}), self.now)
        self.now += 20
        self.queue.move_on_event(ClusterEvent.NODE_ADD, self.now)

    def owners(self) -> list[str]:
        """Pop all pods; return whose they are."""
        found = []
        while (queued := self.queue.pop(self.now)) is not None:
            found.append(queued.pod.namespace)
            self.now += 0.01
        return found


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["add", "add", "retry", "pop", "delete", "update", "wait"]),
        st.sampled_from(OWNERS),
        st.integers(0, 4),
    ),
    max_size=25,
)
ANY_ORDERS = st.fixed_dictionaries({owner: st.sampled_from(ORDERS) for owner in OWNERS})


@given(ANY_ORDERS, STEPS)
def test_an_order_exchanges_only_the_slots_of_its_own_line(orders: dict[str, str], steps: list[Step]) -> None:
    """Owners are tried in the sequence in which they would be without any order."""
    stages = [Stage(orders), Stage({})]
    for step in steps:
        went: list[str] = []
        for stage in stages:
            stage.now += 0.25
            match step.what:
                case "add":
                    stage.add(step.owner, step.number)
                case "retry":
                    stage.retry(step.owner, step.number)
                case "pop":
                    queued = stage.queue.pop(stage.now)
                    went.append(queued.pod.namespace if queued is not None else "")
                    if queued is not None:
                        stage.queue.done(queued.pod.uid)
                case "wait":
                    stage.now += 7
                    stage.queue.flush(stage.now)
            assert stage.queue.misplaced() == []
        assert len(set(went)) <= 1

    assert stages[0].owners() == stages[1].owners()


@given(
    st.fixed_dictionaries({owner: st.sampled_from([*ORDERS, STRICT]) for owner in OWNERS}),
    STEPS,
    st.sampled_from(OWNERS),
    st.integers(0, 12),
)
@example(
    {"a": "", "b": "", "c": "order by pod.queued desc"},
    [
        Step("add", "a", 0),
        Step("add", "c", 0),
        Step("retry", "a", 1),
        Step("pop", "a", 0),
        Step("delete", "a", 0),
        Step("pop", "a", 0),
    ],
    "b",
    1,
)
def test_a_new_pod_waits_for_at_most_as_many_slots_of_retried_pods_as_of_new_ones(
    orders: dict[str, str], steps: list[Step], owner: str, flood: int
) -> None:
    """Whatever is ordered and retried, deleted and changed; and new pods go in the order in which they came."""
    stage = Stage(orders)
    for other in OWNERS:
        stage.retry(other, flood if other != owner else 0)
    for step in steps:
        stage.now += 0.25
        pods = [queued.pod for queued in stage.queue if queued.pod.namespace == step.owner]
        match step.what:
            case "add":
                stage.add(step.owner, step.number)
            case "retry":
                stage.retry(step.owner, step.number)
            case "pop" if (queued := stage.queue.pop(stage.now)) is not None:
                stage.queue.failed(queued, stage.now)
            case "delete" if pods:
                stage.queue.remove(pods[step.number % len(pods)].uid)
            case "update" if pods:
                changed = pods[step.number % len(pods)]
                labels = {"speed": str(step.number)}
                again = pod(stage.cluster, changed.name, namespace=step.owner, uid=changed.uid, labels=labels)
                stage.queue.add(again, stage.now)
        assert stage.queue.misplaced() == []
    stage.now += 0.25
    # a new pod may have gone with the slot of a retried one of its line: then that one has its slot
    slots = stage.queue._active._slots._held.values()
    first = len([slot for slot in slots if slot.lane is Lane.NEW and slot.holder.pod.namespace != owner])
    own = len([queued for queued in stage.queue if queued.pod.namespace == owner])
    stage.add(owner, 0)
    before = stage.owners()

    assert own or before.index(owner) <= 2 * first + 1


@pytest.mark.parametrize("order", ORDERS[1:])
@pytest.mark.parametrize("flood", [10, 1000])
def test_retried_pods_of_an_owner_with_an_order_let_the_new_pod_of_another_go_first(order: str, flood: int) -> None:
    stage = Stage({"a": order})
    stage.retry("a", flood)
    stage.add("b", 0)

    assert stage.owners().index("b") <= 1


@pytest.mark.parametrize("order", ORDERS[1:])
def test_retried_pods_of_two_owners_take_turns(order: str) -> None:
    stage = Stage({"a": order})
    for owner, number in (("a", 100), ("b", 3), ("c", 3)):
        stage.retry(owner, number)

    assert Counter(stage.owners()[:9]) == {"a": 3, "b": 3, "c": 3}


def test_an_owner_with_many_orders_gets_no_more_turns() -> None:
    many = "\n".join(f'order by pod.name if pod.label.speed == "{number}"' for number in range(50))
    stage = Stage({"a": many})
    stage.retry("a", 100)
    stage.retry("b", 3)

    assert Counter(stage.owners()[:6]) == {"a": 3, "b": 3}


def test_a_line_that_always_has_newer_pods_is_served_all_the_same() -> None:
    """The latest first: by the time of its first pod, it would always come after all others."""
    stage = Stage({"a": "order by pod.queued desc"})
    went: list[str] = []
    for number in range(100):
        stage.now += 1
        for owner in "ab":
            stage.add(owner, number % 5)
        queued = stage.queue.pop(stage.now)
        assert queued is not None
        went.append(queued.pod.namespace)

    assert Counter(went) == {"a": 50, "b": 50}


def test_priority_comes_before_turns() -> None:
    stage = Stage({"a": "order by pod.priority desc"})
    stage.retry("a", 5)
    stage.add("b", 0)
    stage.add("a", 0, priority=5)
    stage.add("c", 0, priority=9)

    assert stage.owners()[:4] == ["c", "a", "b", "a"]


@pytest.mark.parametrize("retried", [0, 1])
def test_attempts_of_another_priority_change_no_turns(retried: int) -> None:
    stage = Stage({})
    stage.retry("a", 3)
    stage.add("b", 0)
    stage.add("b", 0)
    stage.retry("c", retried, priority=9)

    assert [owner for owner in stage.owners() if owner != "c"] == ["b", "a", "b", "a", "a"]


def test_priorities_that_nobody_else_has_cost_the_pods_of_others_nothing() -> None:
    """Each pod has its own priority, from the highest to the lowest, in lines with and without an order."""

    def calls(number: int) -> int:
        stage, found = Stage({"a": "order by pod.priority desc", "c": "order by pod.name"}), 0
        for priority in range(number):
            for owner in OWNERS:
                stage.add(owner, 0, priority=priority)

        def count(*_: Any) -> None:
            nonlocal found
            found += 1

        sys.setprofile(count)
        try:
            owners = stage.owners()
        finally:
            sys.setprofile(None)
        assert len(owners) == 3 * number
        return found

    calls(8)
    assert calls(128) < 4.5 * calls(32)


def test_an_attempt_that_was_put_off_goes_on_before_the_pods_that_wait_with_it() -> None:
    stage = Stage({})
    stage.retry("a", 3)
    queued = stage.queue.pop(stage.now)
    assert queued is not None
    stage.queue.resume_attempt(queued, stage.now)

    assert stage.queue.pop(stage.now) is queued


# --- pods that take too long ------------------------------------------------------------------------------


def long_turn(stage: Stage, uid: str) -> bool:
    """Have a pod decided, out of slot, in a slot that is too long; return whether it waits behind all others."""
    queued = stage.queue.take(uid)
    assert queued is not None
    waits = stage.queue.took_too_long(queued, stage.now)
    stage.queue.activate(queued, stage.now)
    assert stage.queue.misplaced() == []
    return waits


@pytest.mark.parametrize("order", [*ORDERS, STRICT])
def test_a_pod_that_took_too_long_twice_waits_behind_all_others(order: str) -> None:
    """Also behind those of lower priority and of its own line, and before nobody in a strict order."""
    stage = Stage({"a": order})
    evil = stage.add("a", 0, priority=9)
    others = [stage.add("a", 1), stage.add("b", 0), stage.add("c", 0, priority=-5)]
    assert not long_turn(stage, evil.uid)
    assert long_turn(stage, evil.uid)
    stage.retry("b", 3)
    names = []
    while (queued := stage.queue.pop(stage.now)) is not None:
        names.append(queued.pod.uid)
        stage.queue.done(queued.pod.uid)

    assert names[-1] == evil.uid
    assert set(names) >= {pod.uid for pod in others}


def test_one_long_turn_may_have_another_cause() -> None:
    stage = Stage({})
    evil = stage.add("a", 0)
    stage.add("b", 0)
    long_turn(stage, evil.uid)
    stage.now += 3600
    assert not long_turn(stage, evil.uid), "an hour later"
    assert [queued.waits_last for queued in stage.queue] == [False, False]


def test_a_pod_that_waits_last_is_in_nobodys_way_in_a_strict_order() -> None:
    stage = Stage({"a": STRICT})
    evil, other = stage.add("a", 0), stage.add("a", 1)
    for _ in range(2):
        long_turn(stage, evil.uid)
    queued = stage.queue.take(evil.uid)
    assert queued is not None
    stage.queue.rejected(queued, frozenset({"Fit"}), stage.now)

    popped = stage.queue.pop(stage.now)
    assert popped is not None
    assert popped.pod.uid == other.uid


def test_a_pod_alone_puts_none_of_its_kind_last() -> None:
    stage = Stage({})
    evil, other = stage.add("a", 0), stage.add("a", 0)
    assert evil.template is other.template
    for _ in range(20):
        long_turn(stage, evil.uid)

    popped = stage.queue.pop(stage.now)
    assert popped is not None
    assert (popped.pod.uid, popped.waits_last) == (other.uid, False)


def test_another_specification_begins_anew() -> None:
    stage = Stage({})
    evil = stage.add("a", 0)
    for _ in range(2):
        long_turn(stage, evil.uid)
    other = stage.add("b", 0)
    stage.queue.add(pod(stage.cluster, evil.name, namespace="a", uid=evil.uid, cpu="1"), stage.now)

    queued = stage.queue.get(evil.uid)
    assert queued is not None
    assert not queued.waits_last
    assert stage.queue.misplaced() == []
    assert len([stage.queue.pop(stage.now), stage.queue.get(other.uid)]) == 2


def test_a_thousand_replicas_get_no_two_long_turns_each() -> None:
    stage = Stage({})
    made = [stage.add("a", 0) for _ in range(1000)]
    assert len({each.template for each in made}) == 1
    stage.add("b", 0)
    slots = 0
    for _ in range(2000):
        queued = stage.queue.pop(stage.now)
        if queued is None:
            continue
        if queued.pod.namespace == "b":
            break
        slots += 1
        stage.queue.took_too_long(queued, stage.now)
        stage.queue.rejected(queued, frozenset({"Fit"}), stage.now)

    assert slots == 4
    assert stage.queue.misplaced() == []


def test_replicas_wait_on_where_one_of_them_is_deleted() -> None:
    stage = Stage({})
    for each in [stage.add("a", 0) for _ in range(4)]:
        long_turn(stage, each.uid)
        stage.queue.remove(each.uid)
    stage.add("a", 0)
    other = stage.add("b", 0)

    popped = stage.queue.pop(stage.now)
    assert popped is not None
    assert popped.pod.uid == other.uid


def test_of_a_pod_that_comes_again_no_earlier_turns_are_counted() -> None:
    stage = Stage({})
    evil = stage.add("a", 0)
    assert not long_turn(stage, evil.uid)
    stage.queue.remove(evil.uid)
    stage.queue.add(evil, stage.now)
    assert not long_turn(stage, evil.uid)


def test_replicas_go_on_where_one_of_them_has_found_a_node() -> None:
    stage = Stage({})
    made = [stage.add("a", 0) for _ in range(10)]
    for each in made[:4]:
        long_turn(stage, each.uid)
    assert stage.queue.waiting_last() == 1, "the others learn of it when they are next"
    queued = stage.queue.take(made[0].uid)
    assert queued is not None
    stage.queue.done(queued.pod.uid)

    late = stage.queue.get(stage.add("a", 0).uid)
    assert late is not None
    assert not late.waits_last
