"""`policyctl impact`: who is evicted only under one of two sets of policies, and what other queues mean for pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.impact import evictions as evictions_module
from kube_policy_scheduler.tooling.impact.evictions import Evictions, evictions
from kube_policy_scheduler.tooling.impact.queue_changes import QueueChange, queue_changes
from kube_policy_scheduler.tooling.impact.replay import replay, steps_of
from kube_policy_scheduler.tooling.impact.report import Impact, Limits, data, figures, headline, lines, markdown
from kube_policy_scheduler.tooling.text_table import Terminal
from tests.tooling.worlds import ruleset, things_of

NODES = ({"name": "n", "cpu": 8, "mem": "64Gi"},)
FITS = "filter fits(cpu)\n"


def queues(a: int = 4, b: int = 4, *, reclaim: str = "reclaim after 30s") -> str:
    return f"""queue a for pods where pod.label.q == "a" min cpu {a}
queue b for pods where pod.label.q == "b" min cpu {b}
{reclaim}
{FITS}"""


def running(queue: str, number: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"{queue}{at}", "node": "n", "cpu": 1, "labels": {"q": queue}, **more} for at in range(number)]


def waiting(queue: str, number: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"new-{queue}{at}", "cpu": 1, "labels": {"q": queue}, **more} for at in range(number)]


def evicted(pods: Sequence[dict[str, Any]], old: str, new: str) -> Evictions:
    return evicted_of(things_of(NODES, pods), old, new)


def evicted_of(things: Sequence[Any], old: str, new: str) -> Evictions:
    sides = (ruleset("old", old), ruleset("new", new))
    steps = steps_of(cluster_state(things), sides, now=1000.0)
    return evictions(things, *sides, steps=steps, now=1000.0)


def changes(pods: Sequence[dict[str, Any]], old: str, new: str) -> list[QueueChange]:
    things = things_of(NODES, pods)
    trees = []
    for each in (old, new):
        found = ruleset("p", each).policy_set
        assert found is not None
        trees.append(found.queues.tree if found.queues is not None else None)
    return queue_changes(cluster_state(things).cluster, *trees, now=1000.0)


def test_a_pod_that_is_reclaimed_only_under_the_new_policies_is_named() -> None:
    found = evicted([*running("a", 8), *waiting("b")], FITS, queues())
    assert found.old == ()
    (pod,) = found.more
    assert (pod.queue, pod.by, pod.by_queue, pod.node, pod.after_seconds) == ("a", "default/new-b0", "b", "n", 30)
    assert pod.pod.startswith("default/a")
    assert found.fewer == ()


def test_a_pod_that_stays_under_the_new_policies_is_named() -> None:
    important = waiting("b", priority=10)
    found = evicted([*running("a", 8), *important], FITS, queues(a=8, b=0))
    assert (len(found.old), len(found.new), len(found.fewer)) == (1, 0, 1)


def test_queues_of_one_clause_are_told_apart_and_some_pods_have_none() -> None:
    teams = "queue team by pod.label.q min cpu 2\nreclaim after 30s\n" + FITS
    none = [{"name": "free", "node": "n", "cpu": 1}]
    found = evicted([*none, *running("a", 7), *waiting("b", 2)], FITS, teams)
    assert {(each.queue, each.by_queue) for each in found.more} == {("team/a", "team/b")}
    first = [{"name": "first", "cpu": 1, "priority": 9}]
    (gone,) = evicted([*none, *running("a", 7, priority=5), *first], FITS, teams).new
    assert (gone.pod, gone.queue, gone.by_queue) == ("default/free", "", "")


def test_who_gives_way_after_hours_of_patience_is_waited_for() -> None:
    found = evicted([*running("a", 8), *waiting("b")], FITS, queues(reclaim="reclaim after 3h"))
    assert [each.after_seconds for each in found.more] == [3 * 3600]


def test_of_very_many_pending_pods_some_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictions_module, "MOST_PENDING", 2)
    found = evicted([*running("a", 8), *waiting("b", 3)], FITS, queues())
    assert (found.pending, found.left, len(found.more)) == (2, 1, 2)


def test_room_that_was_kept_for_a_pending_pod_counts_as_free() -> None:
    """The pod is decided again; else it would take its room twice, and two pods would go for two."""
    things = things_of(NODES, [*running("a", 7), *waiting("b", 2)])
    for pod in things:
        if isinstance(pod, objects.Pod) and pod.metadata.name == "new-b1":
            pod.status = msgspec.structs.replace(pod.status, nominated_node_name="n")
    assert len(evicted_of(things, FITS, queues()).more) == 1


def test_the_same_policies_evict_the_same_pods() -> None:
    found = evicted([*running("a", 8), *waiting("b", 3)], queues(), queues())
    assert (len(found.old), len(found.new), found.more, found.fewer) == (3, 3, (), ())


def test_a_pod_that_started_in_the_meantime_does_not_count() -> None:
    pods = [*running("a", 6), *waiting("a", 2), *waiting("b", 4)]
    found = evicted(pods, FITS, queues())
    assert all(not each.pod.startswith("default/new") for each in found.new)


def test_without_pending_pods_nobody_is_evicted() -> None:
    found = evicted(running("a", 8), FITS, queues())
    assert (found.pending, found.new) == (0, ())


def test_pods_above_a_lower_max_are_evicted_for_nobody() -> None:
    def above(most: int) -> str:
        return f'queue a for pods where pod.label.q == "a" max cpu {most}\nreclaim above max\n{FITS}'

    found = evicted(running("a", 4), above(4), above(2))
    assert (found.pending, found.old) == (0, ())
    assert [(one.by, one.queue) for one in found.more] == [("", "a")] * 2
    assert "its `max` is 2" in found.more[0].why


def test_a_gang_is_evicted_as_a_whole() -> None:
    gang = "gang by pod.label.job size 4 if pod.label.job is not missing\n"
    job = [{**pod, "labels": {"q": "a", "job": "train"}} for pod in running("a", 4)]
    others = [{**pod, "name": f"other-{pod['name']}"} for pod in running("a", 4, priority=5)]
    found = evicted([*job, *others, *waiting("b")], FITS, queues() + gang)
    assert sorted(each.pod for each in found.more) == [f"default/a{at}" for at in range(4)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (queues(), queues(), []),
        (queues(a=8), queues(a=4), [("a", "guaranteed cpu", "8", "4", "2 pods over", 2)]),
        (queues(a=4), queues(a=8), [("a", "guaranteed cpu", "4", "8", "", 0)]),
        (
            queues(),
            queues().replace("min cpu 4", "min cpu 4 max cpu 5 weight 2", 1),
            [("a", "max cpu", "no limit", "5", "1 pod over", 1), ("a", "weight", "1", "2", "", 0)],
        ),
        (queues().replace("min cpu 4", "min cpu 4 max cpu 5", 1), queues(), [("a", "max cpu", "5", "no limit", "", 0)]),
        (
            queues(),
            queues().replace("min cpu 4", "min cpu 4, mem 6Gi max mem 7Gi", 1),
            [("a", "guaranteed memory", "0", "6Gi", "", 0), ("a", "max memory", "no limit", "7Gi", "", 0)],
        ),
        (
            queues().replace("min cpu 4", "min cpu 4, mem 6Gi max mem 7Gi", 1),
            queues(),
            [("a", "guaranteed memory", "6Gi", "0", "", 0), ("a", "max memory", "7Gi", "no limit", "", 0)],
        ),
        (queues(), queues().replace("min cpu 4", "min cpu 4 lend cpu 1", 1), [("a", "kept cpu", "0", "3", "", 0)]),
        (queues(), queues().replace('"a"', '"c"'), [("a", "pods", "6", "0", "", 0)]),
        (queues(), queues().replace("queue b", "queue c"), [
            ("b", "queue", "declared", "-", "", 0), ("c", "queue", "-", "declared", "", 0),
        ]),
        (FITS, queues(), [
            ("a", "queue", "-", "declared", "6 pods on nodes", 0), ("b", "queue", "-", "declared", "", 0),
        ]),
        (queues(), f"queue top\n{queues()}".replace("queue a", "queue a of top"), [
            ("a", "below", "-", "top", "", 0), ("top", "queue", "-", "declared", "6 pods on nodes", 0),
        ]),
    ],
)  # fmt: skip
def test_other_queues_are_listed_with_the_pods_that_are_over(
    old: str, new: str, expected: list[tuple[str, ...]]
) -> None:
    found = changes(running("a", 6), old, new)
    assert [(one.queue, one.what, one.old, one.new, one.text, one.pods) for one in found] == expected


def impact(pods: Sequence[dict[str, Any]], old: str, new: str, *, limits: Limits = Limits()) -> Impact:  # noqa: B008
    things = things_of(NODES, pods)
    sides = (ruleset("old", old), ruleset("new", new))
    steps = steps_of(cluster_state(things), sides, now=1000.0)
    done = replay(things, *sides, steps=steps)
    uids = [step.pod.metadata.uid for step in steps]
    before, after = (figures(side.cluster, uids) for side in (done.old, done.new))
    evictions_found = evictions(things, *sides, steps=steps, now=1000.0)
    return Impact("old", "new", done, before, after, limits, evictions=evictions_found,
                  queues=tuple(changes(pods, old, new)))  # fmt: skip


def test_the_report_says_who_is_evicted_for_whom_and_which_queues_change() -> None:
    found = impact([*running("a", 8), *waiting("b")], queues(a=8, b=0), queues(a=4), limits=Limits(evicted=0))
    text = "\n".join(lines(found, to=Terminal(width=120), most=20))

    assert "1 would be evicted" in headline(found)
    assert "Limit exceeded: 1 more pod would be evicted; the limit is 0" in text
    assert "4 pods over" in text
    assert "is evicted" in text
    assert "default/new-b0 (queue b)" in text
    assert data(found)["evictions"]["more"][0]["by"] == "default/new-b0"
    assert data(found)["queues"][0]["what"] == "guaranteed cpu"
    assert any("is evicted" in line for line in markdown(found))


def test_a_limit_that_is_kept_lets_the_change_pass() -> None:
    found = impact([*running("a", 8), *waiting("b")], queues(), queues(), limits=Limits(evicted=0))
    assert found.broken == []


@pytest.mark.parametrize(
    ("queue", "name", "shown"),
    [
        ('queue a for pods where pod.label.q == "a" max cpu 2', "a", "a"),
        ('queue top max cpu 2\nqueue a of top for pods where pod.label.q == "a"', "top", "a, below top,"),
    ],
)
def test_a_pod_over_the_quota_of_its_queue_is_said_to_be(queue: str, name: str, shown: str) -> None:
    sides = ruleset("old", FITS), ruleset("new", f"{queue}\n{FITS}")
    things = things_of(NODES, running("a", 3))
    steps = steps_of(cluster_state(things), sides, now=1000.0)
    found = replay(things, *sides, steps=steps)
    (change,) = [change for change in found.changes if not change.new.node]
    assert change.reason.clause == f"queue {name}"
    assert change.reason.place.endswith("1:1")
    assert change.reason.text == f"queue {shown} has no quota for cpu: 2 used, 1 requested, at most 2, so 1 too many"
