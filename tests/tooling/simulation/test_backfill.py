"""Backfill in virtual time: pods start before the first one that waits, if they do not delay it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.tooling.simulation.run import run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario
from tests.tooling.simulation.scenarios import node, pod, variant

MOST_BACKOFF_SECONDS = 10
GANG = "gang by pod.label.job size number(pod.label.size) if pod label job\n"
ORDER = "order by pod.queued strict\n"
BACKFILL = "backfill lasts duration(pod.annotation.runtime)\n"


def job(
    name: str, cpu: int = 4, *, at: float, lasts: float, says: float | None = -1, members: int = 1, priority: int = 0
) -> list[Arrival]:
    """Return the pods of a job. says: how long they say that they run, what they do by default; None: nothing."""
    labels = {"job": name, "size": str(members)} if members > 1 else {}
    made = pod(cpu=str(cpu), priority=priority)
    made.metadata.labels = labels
    if says is not None:
        made.metadata.annotations = {"runtime": f"{says if says >= 0 else lasts:g}s"}
    return [Arrival(at, name if members == 1 else f"{name}-{each}", made, lasts) for each in range(members)]


def starts(policy: str, nodes: Sequence[objects.Node], *jobs: list[Arrival], until: float = 1e9) -> dict[str, float]:
    """Return when each pod first was on a node; pods that never were are left out."""
    found: dict[str, float] = {}

    def watch(at: float, cluster: Any) -> None:
        for each in cluster.pods.values():
            found.setdefault(each.name, at)

    arrivals = sorted((each for pods in jobs for each in pods), key=lambda arrival: arrival.at)
    scenario = Scenario(list(nodes), arrivals)
    run(scenario, variant(policy), seed=0, stopwatch=lambda: 0.0, watch=watch)
    return {name: at for name, at in found.items() if at <= until}


TWO = [node("n1"), node("n2")]
RUNS = job("runs", at=0, lasts=600)
WIDE = job("wide", at=1, lasts=100, members=2)
CASES = {
    "a pod that ends in time passes": (TWO, [RUNS, WIDE, job("s", at=2, lasts=300)], {"wide-0": 600, "s": 2}),
    "one that ends at that very moment passes": (TWO, [RUNS, WIDE, job("s", at=2, lasts=598)], {"wide-0": 600, "s": 2}),
    "one that would delay the first waits": (TWO, [RUNS, WIDE, job("s", at=2, lasts=599)], {"wide-0": 600, "s": 700}),
    "a pod that does not say how long it runs never ends": (
        TWO,
        [RUNS, WIDE, job("s", at=2, lasts=5, says=None)],
        {"wide-0": 600, "s": 700},
    ),
    "a pod that leaves enough room beside the first one passes": (
        [node("n1", cpu="8")],
        [job("runs", 6, at=0, lasts=600), job("first", 6, at=1, lasts=100), job("s", 2, at=2, lasts=9000)],
        {"first": 600, "s": 2},
    ),
    "two such pods do not fit beside it": (
        [node("n1", cpu="8")],
        [
            job("runs", 4, at=0, lasts=600),
            job("first", 6, at=1, lasts=100),
            job("s", 2, at=2, lasts=9000),
            job("t", 2, at=3, lasts=9000),
        ],
        {"first": 600, "s": 2, "t": 700},
    ),
    "on other nodes a pod delays nobody": (
        [node("n1"), node("n2", cpu="2")],
        [RUNS, job("first", at=1, lasts=100), job("s", 2, at=2, lasts=9000)],
        {"first": 600, "s": 2},
    ),
    "room that others leave early is for the first one": (
        TWO,
        [job("runs", at=0, lasts=50, says=600), WIDE, job("s", at=2, lasts=40)],
        {"wide-0": 50, "s": 2},
    ),
    "a pod that is late is expected to run for a tenth more": (
        TWO,
        [job("runs", at=0, lasts=640, says=600), WIDE, job("s", at=630, lasts=59), job("t", at=631, lasts=61)],
        {"wide-0": 689, "s": 630, "t": 789},
    ),
    "a gang passes as a whole": (
        [node("n1"), node("n2"), node("n3")],
        [RUNS, job("wide", at=1, lasts=100, members=3), job("pair", at=2, lasts=300, members=2)],
        {"wide-0": 600, "pair-0": 2, "pair-1": 2},
    ),
    "the first of those that wait is the first by the order": (
        TWO,
        [RUNS, job("late", at=2, lasts=700, priority=1), WIDE],
        {"late": 2, "wide-0": 702},
    ),
}


@pytest.mark.parametrize(("nodes", "jobs", "wanted"), CASES.values(), ids=CASES)
def test_who_passes_the_first_one(
    nodes: list[objects.Node], jobs: list[list[Arrival]], wanted: dict[str, float]
) -> None:
    found = starts(GANG + ORDER.replace("pod.queued", "pod.priority desc, pod.queued") + BACKFILL, nodes, *jobs)
    assert {name: found.get(name) for name in wanted} == wanted


QUEUES = """queue a for pods where pod.label.queue == "a" {a}
queue b for pods where pod.label.queue == "b" {b}
"""


@pytest.mark.parametrize(
    ("first", "second", "at"),
    [
        ("", "min cpu 4", 2),  # it is guaranteed what the first one would borrow
        ("min cpu 8", "min cpu 4", 700),  # both are
        ("", "", 700),
        ("min cpu 8", "", 700),
    ],
)
def test_a_guaranteed_pod_does_not_wait_for_one_that_borrows(first: str, second: str, at: float) -> None:
    def of(queue: str, pods: list[Arrival]) -> list[Arrival]:
        for each in pods:
            each.pod.metadata.labels |= {"queue": queue}  # type: ignore[operator]
        return pods

    wide, small = of("a", job("wide", at=1, lasts=100, members=2)), of("b", job("s", at=2, lasts=9000))
    policy = QUEUES.format(a=first, b=second) + GANG + ORDER + BACKFILL
    assert starts(policy, TWO, RUNS, wide, small)["s"] == at


def test_quota_that_the_first_one_needs_is_not_used_up() -> None:
    queue = "queue all max cpu {}\n"
    runs, first = job("runs", 4, at=0, lasts=600), job("first", 6, at=1, lasts=100)
    small = job("s", 2, at=2, lasts=9000)
    for most, at in ((8, 2), (7, 700)):
        found = starts(queue.format(most) + ORDER + BACKFILL, [node("n1", cpu="64")], runs, first, small)
        assert (found["first"], found["s"]) == (600, at)


@pytest.mark.parametrize(("kept", "at"), [(4, 2), (5, 700)])
def test_what_a_queue_does_not_lend_is_not_taken_from_the_first_one(kept: int, at: float) -> None:
    """Of 16 cpu, queues may borrow 12 or 11; the first pod needs 10 of them."""
    policy = f'queue kept for pods where pod.label.queue == "kept" min cpu {kept} lend cpu 0\nqueue others\n'
    runs, first = job("runs", 8, at=0, lasts=600), job("first", 10, at=1, lasts=100)
    found = starts(policy + ORDER + BACKFILL, [node("n1", cpu="16")], runs, first, job("s", 2, at=2, lasts=9000))
    assert (found["first"], found["s"]) == (600, at)


@pytest.mark.parametrize(("outside", "kept", "at"), [("s", 4, 2), ("s", 5, 600), ("runs", 4, 2), ("runs", 5, 700)])
def test_pods_of_no_queue_leave_less_to_be_lent_to_the_first_one(outside: str, kept: int, at: float) -> None:
    """As above. What a pod of no queue uses nobody lends; when it ends, it can be lent again."""
    policy = (
        f'queue kept for pods where pod.label.queue == "kept" min cpu {kept} lend cpu 0\n'
        'queue others for pods where pod.label.queue == "others"\n'
    )
    jobs = [job("runs", 8, at=0, lasts=600), job("first", 10, at=1, lasts=100), job("s", 2, at=2, lasts=9000)]
    for each in itertools.chain(*jobs):
        if each.name != outside:
            each.pod.metadata.labels = {"queue": "others"}
    found = starts(policy + ORDER + BACKFILL, [node("n1", cpu="20")], *jobs, job("none", 4, at=0, lasts=9000))
    assert (found["first"], found["s"]) == (600, at)


@pytest.mark.parametrize(("most", "at"), [(16, 2), (9, 700)])
@pytest.mark.parametrize("other", [False, True])
def test_a_limit_that_the_first_one_needs_is_not_used_up(most: int, at: float, other: bool) -> None:
    """6 cpu are used, the first pod needs 8 and another one 2; a pod of another namespace does not count."""
    limit = f"limit sum(request.cpu) by pod.namespace to {most}\n"
    runs, first = job("runs", 6, at=0, lasts=600), job("first", 8, at=1, lasts=100)
    small = job("s", 2, at=2, lasts=9000)
    small[0].pod.metadata.namespace = "other" if other else "default"
    found = starts(limit + ORDER + BACKFILL, [node("n1", cpu="10"), node("n2", cpu="2")], runs, first, small)
    assert (found["first"], found["s"]) == (600, 2 if other else at)


def _anti(label: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": label}}, "topologyKey": "zone"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _spread(label: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": label}}
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [constraint]}


@pytest.mark.parametrize(
    ("of_first", "of_small"),
    [(_anti("small"), {}), ({}, _anti("first")), (_spread("small"), {}), ({}, {})],
    ids=["the first one keeps off", "the new one keeps off", "spread", "neither"],
)
def test_a_pod_does_not_start_where_it_would_keep_the_first_one_off(
    of_first: dict[str, Any], of_small: dict[str, Any]
) -> None:
    """The first pod is to get the large node of zone a; beside that, a small one is free in each zone."""
    nodes = [
        node("large", cpu="8", labels={"zone": "a"}),
        node("small-a", cpu="3", labels={"zone": "a"}),
        node("small-b", cpu="2", labels={"zone": "b"}),
    ]
    runs, first = job("runs", 8, at=0, lasts=600), job("first", 8, at=1, lasts=100)
    small = job("s", 2, at=2, lasts=9000)
    for (arrival,), label, more in ((first, "first", of_first), (small, "small", of_small)):
        arrival.pod.metadata.labels = {"app": label}
        arrival.pod.spec = msgspec.convert(msgspec.to_builtins(arrival.pod.spec) | more, objects.PodSpec)
    at: dict[str, tuple[float, str]] = {}

    def watch(now: float, cluster: Any) -> None:
        for each in cluster.pods.values():
            at.setdefault(each.name, (now, cluster.node_of(each.uid)))

    policy = variant("score node.free.cpu\n" + ORDER + BACKFILL)
    run(Scenario(nodes, [*runs, *first, *small]), policy, seed=0, stopwatch=lambda: 0.0, watch=watch)
    assert at["first"] == (600, "large")
    assert at["s"] == (2, "small-b" if of_first or of_small else "small-a")


@pytest.mark.parametrize("says", [1, 60, 3600])
def test_beside_pods_that_never_end_the_simulation_ends_after_few_looks(says: float) -> None:
    """They are late for ever, and each look puts the reservation off by a tenth of what they said."""
    moments: list[float] = []
    never = [Arrival(0, f"never-{each}", job("x", at=0, lasts=1, says=says)[0].pod, None) for each in range(2)]
    scenario = Scenario(TWO, [*never, *WIDE, *job("behind", at=2, lasts=9000)])

    run(
        scenario,
        variant(ORDER + BACKFILL + GANG),
        seed=0,
        stopwatch=lambda: 0.0,
        watch=lambda at, cluster: moments.append(at),
    )

    assert 2 < len(moments) < 3000


def test_without_backfill_nobody_passes() -> None:
    found = starts(GANG + ORDER, TWO, RUNS, WIDE, job("s", at=2, lasts=300))
    assert (found["wide-0"], found["s"]) == (600, 700)


def test_a_first_pod_that_the_condition_leaves_out_delays_nobody() -> None:
    small = job("s", at=2, lasts=599)
    for condition, at in (("pod label job", 700), ("not pod label job", 2)):
        policy = GANG + ORDER + BACKFILL.replace("lasts", f"if {condition} lasts")
        assert starts(policy, TWO, RUNS, WIDE, small)["s"] == at


def test_nobody_waits_for_a_pod_that_has_to_wait_longer_than_at_most() -> None:
    small = job("s", at=2, lasts=599)
    for most, at in (("11min", 700), ("9min", 2)):
        policy = GANG + ORDER + BACKFILL.replace("\n", f" at most {most}\n")
        assert starts(policy, TWO, RUNS, WIDE, small)["s"] == at


def test_nobody_waits_for_a_pod_that_fits_nowhere() -> None:
    giant = job("giant", 64, at=1, lasts=100)
    found = starts(ORDER + BACKFILL, TWO, giant, job("s", at=2, lasts=9000))
    assert found["s"] == 2
    assert "giant" not in found


@given(
    lasts=st.lists(st.integers(1, 30).map(lambda each: 60 * each), min_size=1, max_size=8),
    cpus=st.lists(st.integers(1, 4), min_size=8, max_size=8),
    width=st.integers(1, 3),
)
def test_the_first_pod_never_waits_longer_because_others_pass_it(lasts: list[int], cpus: list[int], width: int) -> None:
    """All say truly how long they run: the first one starts as early as if nobody had come after it.

    But for its backoff, which grows with each pod that ends and does not make enough room.
    """
    nodes = [node(f"n{number}") for number in range(3)]
    before = [job(f"r{number}", cpu, at=0, lasts=600 * cpu) for number, cpu in enumerate(cpus[:4])]
    first = job("first", at=1, lasts=50, members=width)
    after = [
        job(f"s{number}", cpu, at=2 + number, lasts=each)
        for number, (each, cpu) in enumerate(zip(lasts, cpus, strict=False))
    ]
    name = "first" if width == 1 else "first-0"
    alone = starts(GANG + ORDER + BACKFILL, nodes, *before, first)
    assume(all(alone.get(each.name) == 0 for [each] in before))  # else another one is the first that waits

    assert starts(GANG + ORDER + BACKFILL, nodes, *before, first, *after)[name] <= alone[name] + MOST_BACKOFF_SECONDS
