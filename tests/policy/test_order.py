"""The queue as `order by` says: keys that change as time passes, strict lines, and orders of some pods only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, SchedulingQueue, priority_sort
from kube_policy_scheduler.lines import MOST_SLOPES
from kube_policy_scheduler.policy.policy import Policy
from tests.lang.clusters import NOW, cluster, node, pod, policy

WAITED_LONG = 4_000


@dataclass
class Line:
    """A queue of pods that one policy orders, at a time that the test sets."""

    policy: Policy
    signals: Signals = Signals.EMPTY
    now: float = NOW
    cluster: object = field(default_factory=lambda: cluster(node("a")))

    def __post_init__(self) -> None:
        self.queue = SchedulingQueue(position=lambda queued: self.policy.position(queued, self.frame(queued)))

    def frame(self, queued: QueuedPod):  # type: ignore[no-untyped-def]
        return queued.frame(self.cluster, self.now, signals=self.signals)  # type: ignore[arg-type]

    def add(self, name: str, **more: object) -> None:
        self.queue.add(pod(self.cluster, name, **more), self.now)  # type: ignore[arg-type]

    def pop(self) -> str | None:
        queued = self.queue.pop(self.now)
        return None if queued is None else queued.pod.name

    def pop_all(self) -> list[str]:
        return list(iter(self.pop, None))  # type: ignore[arg-type]


# --- time ------------------------------------------------------------------------------------------------

KEYS = [
    "pod.priority + min(pod.waiting / 10min, 5) desc",
    "pod.waiting desc",
    "pod.waiting * pod.priority desc, pod.name",
    "floor(pod.waiting / 5min) desc, pod.priority desc",
    "max(10 - pod.waiting / 1min, pod.priority), pod.name desc",
    "if pod.waiting > 20min then 100 else pod.priority desc",
    "(if pod.waiting > 20min and pod.priority < 5 then pod.waiting / 1min else pod.priority) ?? 0 desc",
    "clamp(pod.priority - pod.waiting / 1min, -20, 20)",
    "abs(pod.waiting / 1min - 15)",
    "(now() - pod.created) / 1h - pod.waiting / 1min desc, pod.name",
    "number(pod.label.urgency) + pod.waiting / 1min desc, pod.name",
]


@pytest.mark.parametrize("keys", KEYS)
@given(
    arrivals=st.lists(
        st.tuples(st.integers(0, WAITED_LONG), st.integers(-3, 12), st.sampled_from([None, "1", "7", "x"])),
        min_size=2,
        max_size=12,
    ),
    steps=st.lists(st.integers(1, 900), min_size=12, max_size=12),
)
def test_each_pod_that_is_popped_is_the_first_of_a_plain_sort_at_that_time(
    keys: str, arrivals: Sequence[tuple[int, int, str | None]], steps: Sequence[int]
) -> None:
    line = Line(policy(f"order by {keys}"))
    (order,) = line.policy.orders
    for number, (at, priority, urgency) in enumerate(sorted(arrivals, key=lambda each: each[0])):
        line.now = NOW + at
        labels = {"urgency": urgency} if urgency is not None else {}
        line.add(f"p{number:02}", priority=priority, labels=labels)
    waiting = {queued.pod.name: queued for queued in line.queue}
    for step in steps[: len(arrivals)]:
        line.now += step
        keys_now = {name: (order.evaluate(line.frame(one)), *priority_sort(one)) for name, one in waiting.items()}
        expected, popped = min(keys_now, key=lambda name: keys_now[name]), line.pop() or ""
        assert popped == expected or _close(keys_now[popped][0], keys_now[expected][0])
        del waiting[popped]


def _close(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Return whether the first parts that differ are numbers that differ by rounding."""
    for a, b in zip(one, other, strict=True):
        if a != b:
            return isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
    return True


def test_what_does_not_change_evenly_is_looked_at_again_after_seconds() -> None:
    line = Line(policy("order by pod.priority + sqrt(pod.waiting / 1min) desc"))
    line.add("old", priority=0)
    line.now += 60
    line.add("new", priority=3)
    line.now += 17 * 60
    line.add("newest", priority=0)

    assert line.pop_all() == ["new", "old", "newest"]


def test_a_pod_that_waits_overtakes_one_of_higher_priority_until_the_cap() -> None:
    line = Line(policy("order by pod.priority + min(pod.waiting / 10min, 5) desc"))
    line.add("old", priority=0)
    line.now += 2_000
    line.add("important", priority=3)
    line.add("vital", priority=6)
    line.now += 1_500

    assert line.pop_all() == ["vital", "important", "old"]

    line = Line(policy("order by pod.priority + min(pod.waiting / 10min, 5) desc"))
    line.add("old", priority=0)
    line.now += 2_400
    line.add("important", priority=3)
    line.add("vital", priority=6)
    line.now += 60

    assert line.pop_all() == ["vital", "old", "important"]


def test_many_slopes_are_put_in_order_every_few_seconds() -> None:
    line = Line(policy("order by pod.waiting * number(pod.label.speed) desc"))
    for number in range(3 * MOST_SLOPES):
        line.add(f"p{number}", labels={"speed": str(number + 1)})
    line.now += 60

    assert line.pop_all() == [f"p{number}" for number in reversed(range(3 * MOST_SLOPES))]


def test_a_queue_that_is_never_popped_keeps_no_more_than_its_pods() -> None:
    line = Line(policy("order by floor(pod.waiting / 10s)"))
    for number in range(50):
        line.add(f"p{number}")
    for _ in range(500):
        line.now += 10
        line.queue.flush(line.now)

    entries = len(line.queue._active.tickets())
    assert entries < 1_000
    assert len(line.pop_all()) == 50


def test_the_queue_follows_a_metric_within_seconds() -> None:
    text = 'metric used = promql("used") by namespace as pod.namespace\norder by used'

    def used(**hours: float) -> Signals:
        series = tuple(Series({"namespace": name}, value, NOW) for name, value in hours.items())
        return Signals.of([Reading("used", series, NOW, NOW)])

    line = Line(policy(text), used(a=10, b=5))
    for number in range(2):
        for namespace in ("a", "b", "unknown"):
            line.add(f"{namespace}{number}", namespace=namespace)

    assert line.pop() == "b0"
    line.signals = used(a=1, b=5)
    line.now += 6
    assert line.pop_all() == ["a0", "a1", "b1", "unknown0", "unknown1"]


# --- strict ----------------------------------------------------------------------------------------------

STRICT = "order by pod.priority desc strict"


def rejected(line: Line) -> str:
    """Pop a pod, and let no node be found for it."""
    queued = line.queue.pop(line.now)
    assert queued is not None
    line.queue.rejected(queued, frozenset({"Fit"}), line.now)
    return queued.pod.name


@pytest.mark.parametrize(("text", "next_one"), [(STRICT, None), (STRICT.replace(" strict", ""), "second")])
def test_nothing_behind_the_head_is_tried_before_the_head(text: str, next_one: str | None) -> None:
    line = Line(policy(text))
    for name, priority in (("head", 5), ("second", 3), ("third", 1)):
        line.add(name, priority=priority)

    assert rejected(line) == "head"
    assert line.queue.has_active() is (next_one is not None)
    assert line.pop() == next_one


def test_pods_behind_a_rejected_head_know_for_whom_they_wait() -> None:
    line = Line(policy(STRICT))
    for name, priority in (("head", 5), ("second", 3), ("third", 1)):
        line.add(name, priority=priority)

    def waiting() -> dict[str, str]:
        pods = {queued.pod.uid: queued.pod.name for queued in line.queue}
        return {pods[uid]: first.pod.name for uid, first in line.queue.blocked().items()}

    assert waiting() == {}
    rejected(line)
    assert waiting() == {"second": "head", "third": "head"}
    line.add("first", priority=9)
    assert waiting() == {}, "the new pod is tried"
    rejected(line)
    assert waiting() == {"second": "first", "third": "first"}


def test_without_strict_no_pod_waits_for_another() -> None:
    line = Line(policy(STRICT.replace(" strict", "")))
    line.add("head", priority=5)
    line.add("second", priority=3)
    rejected(line)
    assert line.queue.blocked() == {}


def test_what_comes_before_the_head_is_tried() -> None:
    line = Line(policy(STRICT))
    line.add("head", priority=5)
    line.add("second", priority=3)
    rejected(line)
    line.add("first", priority=9)

    assert line.pop_all() == ["first"]


def test_the_line_moves_on_when_the_head_is_tried_again_or_deleted() -> None:
    line = Line(policy(STRICT))
    for name, priority in (("head", 5), ("second", 3), ("third", 1)):
        line.add(name, priority=priority)
    rejected(line)
    line.queue.move_on_event(next(iter(_events())), line.now)
    assert line.pop() is None
    line.now += 2

    assert line.pop_all() == ["head", "second", "third"]

    line = Line(policy(STRICT))
    line.add("head", priority=5, uid="head")
    line.add("second", priority=3)
    rejected(line)
    line.queue.remove("head")
    assert line.pop() == "second"


def _events():  # type: ignore[no-untyped-def]
    from kube_policy_scheduler.framework.events import ALWAYS

    return ALWAYS


def test_aging_moves_a_pod_past_a_head_that_blocks() -> None:
    line = Line(policy("order by pod.priority + min(pod.waiting / 10min, 20) desc strict as aging"))
    line.add("patient", priority=0)
    line.now += 6_000
    line.add("head", priority=30)
    assert rejected(line) == "head"
    line.now += 200

    assert line.pop() is None
    assert {queued.pod.name: queued.place for queued in line.queue} == {
        "patient": Place.ACTIVE,
        "head": Place.UNSCHEDULABLE,
    }


# --- if --------------------------------------------------------------------------------------------------


def test_the_first_order_whose_condition_holds_orders_a_pod() -> None:
    text = 'order by pod.name desc if pod.label.tier == "batch"\norder by pod.name\n'
    line = Line(policy(text))
    for name, tier in (("a", "batch"), ("b", "batch"), ("x", ""), ("y", "")):
        line.add(name, labels={"tier": tier})

    found = line.pop_all()

    assert [name for name in found if name in "ab"] == ["b", "a"]
    assert [name for name in found if name in "xy"] == ["x", "y"]


def test_pods_without_an_order_keep_that_of_kubernetes() -> None:
    line = Line(policy('order by pod.name desc if pod.label.tier == "batch"'))
    for name, priority in (("low", 1), ("high", 9), ("middle", 5)):
        line.add(name, priority=priority)

    assert line.pop_all() == ["high", "middle", "low"]


@pytest.mark.parametrize(("tier", "held"), [("batch", True), ("web", False)])
def test_hold_holds_where_both_conditions_are_true(tier: str, held: bool) -> None:
    nodes = cluster(node("a"))
    late = policy('hold if pod.waiting < 5min if pod.label.tier == "batch" else "wait"')
    queued = QueuedPod(pod(nodes, "p", labels={"tier": tier}), queued=NOW, timestamp=NOW)

    frame = queued.frame(nodes, NOW, signals=Signals.EMPTY)

    assert late.hold_reason(frame) == ("wait" if held else None)
