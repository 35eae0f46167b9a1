"""Usage of queues is counted in steps before policies are used, and ends as if it had been counted at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from weakref import ref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.quotas import quota_usage
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaUsage
from tests.policy.queue_worlds import GPU, World

RULES = f"""\
queue all max {GPU} 100000
queue a of all for pods where pod.label.q == "a" min {GPU} 2000 max {GPU} 8000
queue team of all by pod.label.q min {GPU} 1000 lend {GPU} 500
order by queue.share, pod.queued
"""
CHANGES = st.lists(
    st.tuples(st.sampled_from(["come", "go", "move", "start", "try"]), st.integers(0, 19), st.sampled_from("ab")),
    max_size=12,
)


@pytest.fixture(autouse=True, scope="module")
def _small_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quota_usage, "COUNTED_AT_ONCE", 3)
        yield


def _change(world: World, what: str, number: int, queue: str) -> None:
    cluster, uid = world.cluster, f"p{number}"
    known = cluster.pods.get(uid)
    match what:
        case "come" if known is None:
            world.runs(queue, 1 + number % 3, priority=number % 2, name=uid)
        case "go":
            cluster.remove(uid)
        case "move" if known is not None:
            cluster.place(known, "n1")
        case "start" if known is not None:
            cluster.confirm(msgspec.structs.replace(known, started=float(number)), cluster.node_of(uid) or "")
        case "try" if known is not None:
            with cluster.dry_run():
                cluster.displace(uid)


@given(st.lists(st.sampled_from(["a", "b", "none"]), max_size=20), st.lists(CHANGES, max_size=8))
def test_it_is_as_if_it_had_been_counted_at_once(
    pods: Sequence[str], meanwhile: Sequence[list[tuple[str, int, str]]]
) -> None:
    world = World.of(RULES, 100, 100)
    for number, queue in enumerate(pods):
        world.runs(queue, 1 + number % 3, priority=number % 2, name=f"p{number}")
    assert world.rules.queues is not None
    tree, changes = world.rules.queues.tree, iter(meanwhile)
    for _ in world.cluster.usage_in_steps(tree):
        for change in next(changes, []):
            _change(world, *change)
    ready, plain = world.usage, QuotaUsage(tree, world.cluster.nodes)
    for pod in world.cluster.pods.values():
        plain.place(pod)

    def told(usage: QuotaUsage) -> object:
        return {
            queue.name: (queue.used, queue.direct, queue.inner, queue.charged, queue.priorities, queue.members)
            for queue in usage.queues()
        }

    assert told(ready) == told(plain)
    assert ready.top.charged == plain.top.charged
    for change in (change for changes in meanwhile for change in changes):
        _change(world, *change)
    assert world.usage is ready
    assert ready.miscounted(world.cluster.pods.values()) == []


def test_no_pod_is_counted_when_the_policies_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.of(RULES, 100, 100)
    world.runs("a", *(1,) * 10)
    assert world.rules.queues is not None
    steps = list(world.cluster.usage_in_steps(world.rules.queues.tree))
    monkeypatch.setattr(QuotaUsage, "place_many", lambda *_: pytest.fail("counted again"))

    assert len(steps) == 4
    assert world.used("a") == [10]
    assert list(world.cluster.usage_in_steps(world.rules.queues.tree)) == []


def test_others_that_are_used_meanwhile_end_it() -> None:
    world, others = World.of(RULES, 100, 100), World.of(RULES, 100).rules.queues
    world.runs("a", *(1,) * 10)
    assert world.rules.queues is not None
    assert others is not None
    steps = world.cluster.usage_in_steps(world.rules.queues.tree)
    next(steps)
    usage = world.cluster.track_usage(others.tree)

    assert list(steps) == []
    assert usage.miscounted(world.cluster.pods.values()) == []
    assert world.used("a") == [10]


def test_queues_that_others_replace_are_gone_without_garbage_collection() -> None:
    """The garbage collector does not look at what has been there for long, and each knows the pods that use it."""
    world, others = World.of(RULES, 100, 100), World.of(RULES, 100).rules.queues
    world.runs("a", 1, 2)
    world.runs("team-x", 1, name="other")
    assert others is not None
    queues = [ref(queue) for queue in (world.usage.top, *world.usage.queues())]
    gc.disable()
    try:
        world.cluster.track_usage(others.tree)
        left = [queue() for queue in queues]
    finally:
        gc.enable()

    assert left == [None] * len(queues)


def test_queues_that_no_rules_have_any_more_are_gone_without_garbage_collection() -> None:
    """Also those that were prepared."""
    world, others = World.of(RULES, 100, 100), World.of(RULES, 100).rules.queues
    world.runs("a", 1, 2)
    assert others is not None
    queues = [ref(queue) for queue in (world.usage.top, *world.usage.queues())]
    list(world.cluster.usage_in_steps(others.tree))
    to_come = world.cluster._usage_to_come
    assert to_come is not None
    queues += [ref(queue) for queue in (to_come.usage.top, *to_come.usage.queues())]
    del to_come
    gc.disable()
    try:
        world.cluster.forget_rules(has_queues=True)
        kept = [queue() is not None for queue in queues]
        world.cluster.forget_rules(has_queues=False)
        left = [queue() for queue in queues]
    finally:
        gc.enable()

    assert all(kept)
    assert left == [None] * len(queues)
    world.runs("a", 4, name="later")
    assert world.used("a") == [7]


@pytest.mark.parametrize("are_used", [True, False])
def test_queues_that_were_prepared_in_vain_are_gone_without_garbage_collection(are_used: bool) -> None:
    """Others are used, or prepared, before they are."""
    world, others = World.of(RULES, 100, 100), World.of(RULES, 100).rules.queues
    world.runs("a", 1, 2)
    assert world.rules.queues is not None
    assert others is not None
    list(world.cluster.usage_in_steps(world.rules.queues.tree))
    to_come = world.cluster._usage_to_come
    assert to_come is not None
    queues = [ref(queue) for queue in (to_come.usage.top, *to_come.usage.queues())]
    del to_come
    gc.disable()
    try:
        if are_used:
            world.cluster.track_usage(others.tree)
        else:
            list(world.cluster.usage_in_steps(others.tree))
        left = [queue() for queue in queues]
    finally:
        gc.enable()

    assert left == [None] * len(queues)
