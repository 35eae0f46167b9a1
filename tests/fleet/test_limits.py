"""How many replicas and workloads may be where: what is left by `limit`, and that it is never exceeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import HEALTHY, Fleet, Outcome, Placement, ReplicaScheduling, Workload
from kube_policy_scheduler.fleet.running import MOST_COUNTS, RunningWorkloads
from tests.fleet.fleets import CORE, NOW, cluster, policies, workload

CLUSTERS = (
    cluster("a", 6, price=3, region="eu"),
    cluster("b", 12, price=5, region="eu"),
    cluster("c", 18, price=4, region="us"),
)
FIRST = "score -(cluster.price ?? 9)\ndivide best first"
ONE_TEAM = {"team": "x"}
OTHERS = (
    workload(4, {"a": 1, "b": 3}, name="other", labels=ONE_TEAM),
    workload(2, {"c": 2}, name="another", labels={"team": "y"}),
)


def fleet(*others: Workload) -> Fleet:
    return Fleet(CLUSTERS, running=RunningWorkloads(others))


PLACED: dict[str, tuple[str, Workload, dict[str, int]]] = {
    "replicas in each cluster": ("limit sum(replicas) to 4 over cluster", workload(6), {"a": 3, "b": 1, "c": 2}),
    "of one key": (
        "limit sum(replicas) by workload.label.team to 4 over cluster", workload(8, labels=ONE_TEAM),
        {"a": 3, "b": 1, "c": 4},
    ),
    "in a region, where others have some": (
        "limit sum(replicas) by workload.label.team to 7 over region", workload(8, labels=ONE_TEAM), {"a": 3, "c": 5},
    ),
    "those without the key form a group": (
        "limit sum(replicas) by workload.label.team to 4 over cluster", workload(8), {"a": 4, "c": 4},
    ),
    "a resource": ("limit sum(request.cpu) to 5 over region", workload(4), {"a": 1, "c": 3}),
    "a resource that is not requested": ("limit sum(request.mem) to 1Gi", workload(8), {"a": 6, "c": 2}),
    "how many workloads": ("limit count() to 1 over cluster", workload(8), {}),
    "how many workloads in a region": ("limit count() to 1 over region", workload(8), {}),
    "how many of some workloads": (
        'limit count() to 1 over region of workloads where workload.label.team == "x"',
        workload(8, labels=ONE_TEAM), {"c": 8},
    ),
    "for some workloads": (
        "limit sum(replicas) to 1 if workload.priority < 5", workload(8, priority=7), {"a": 6, "c": 2},
    ),
    "those that do not count have no limit": (
        'limit sum(replicas) to 1 of workloads where workload.label.team == "x"', workload(8), {"a": 6, "c": 2},
    ),
    "what runs stays, and gets no more": (
        "limit sum(replicas) to 2 over cluster", workload(8, {"a": 5}), {},
    ),
    "what runs counts for itself": (
        "limit sum(replicas) by workload.name to 5 over cluster", workload(8, {"a": 5}), {"a": 5, "c": 3},
    ),
    "a larger workload shrinks as usual": (
        "limit sum(replicas) by workload.name to 2 over cluster", workload(8, {"a": 5, "c": 6}), {"a": 5, "c": 3},
    ),
    "afresh": (
        "limit sum(replicas) by workload.name to 4 over cluster", workload(8, {"a": 6, "b": 2}, fresh=True),
        {"a": 4, "c": 4},
    ),
    "a bound that the workload names": (
        "limit sum(replicas) by workload.name to number(workload.label.most) ?? 9 over cluster",
        workload(8, labels={"most": "4"}), {"a": 4, "c": 4},
    ),
    "a workload without pods has no replicas": (
        "limit sum(replicas) to 0", workload(0, requests=None), {"a": 0, "b": 0, "c": 0},
    ),
    "a workload without pods counts": (
        'limit count() to 1 over cluster of workloads where workload.label.team == "y"',
        workload(0, requests=None, labels={"team": "y"}), {"a": 0, "b": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACED)
def test_a_limit_counts_others_too(case: str) -> None:
    limit, asked, expected = PLACED[case]
    outcome = policies(f"{limit}\n{FIRST}").decide(asked, fleet(*OTHERS), Given(NOW))

    assert (outcome.targets if outcome.write else {}) == expected


def test_a_limit_of_many_bytes_is_kept_to_the_last_one() -> None:
    """In billionths, they have more digits than a floating-point number."""
    large = replace(CLUSTERS[0], allocatable={"cpu": 6 * CORE, "pods": 6 * CORE, "memory": 10**16 * CORE})
    for each, expected in ((2 * 10**14, {"a": 5}), (2 * 10**14 + 1, {})):
        asked = workload(5, requests={"memory": each * CORE})
        outcome = policies(f"limit sum(request.mem) to 1000T\n{FIRST}").decide(asked, Fleet((large,)), Given(NOW))
        assert (outcome.targets if outcome.write else {}) == expected


def test_what_a_limit_rejects_has_its_reason() -> None:
    text = f'limit count() to 1 over region as few else "one per region"\n{FIRST}'
    verdicts = policies(text).decide(workload(4), fleet(OTHERS[0]), Given(NOW)).verdicts

    assert {name: (each.rejected_by, each.message) for name, each in verdicts.items() if each.rejected_by} == {
        "a": ("few", "one per region"),
        "b": ("few", "one per region"),
    }


def test_the_message_names_the_limit_that_leaves_too_little() -> None:
    outcome = policies(f"limit sum(replicas) to 5 as small\n{FIRST}").decide(workload(6), fleet(), Given(NOW))

    assert outcome.message == "there is room for 5 of 6 replicas, by small"
    assert not outcome.write


@pytest.mark.parametrize(("bound", "expected"), [(3, {"a": 3, "c": 3}), (2, {})])
def test_copies_go_where_all_replicas_may_be(bound: int, expected: dict[str, int]) -> None:
    text = f"limit sum(replicas) by workload.name to {bound} over cluster\nscore -(cluster.price ?? 9)\n"
    text += "choose 2 clusters\ndivide copies"
    outcome = policies(text).decide(workload(3), fleet(*OTHERS), Given(NOW))

    assert (outcome.targets if outcome.write else {}) == expected


def test_the_placement_never_exceeds_a_limit() -> None:
    by_weight = Placement(scheduling=ReplicaScheduling("Divided", "Weighted"))
    outcome = policies("limit sum(replicas) to 5 over region as small").decide(
        workload(12, placement=by_weight), fleet(), Given(NOW)
    )

    assert not outcome.write
    assert "small" in outcome.message


def test_moves_never_exceed_a_limit_of_several_clusters() -> None:
    """Though the end keeps to it, a pass that only adds would not."""
    text = f"limit sum(replicas) to 4 over region\n{FIRST}\nrebalance at most 2 rest 1s"
    running = RunningWorkloads()
    asked = workload(6, {"b": 4, "c": 2})
    seen = []
    while (moved := policies(text).rebalance(asked, Fleet(CLUSTERS, running=running), Given(NOW))) is not None:
        asked = replace(asked, has=moved[0].targets, health=dict.fromkeys(moved[0].targets, HEALTHY))
        seen.append(dict(asked.has))
        assert asked.has.get("a", 0) + asked.has.get("b", 0) <= 4
    assert seen[-1] == {"a": 4, "c": 2}


def test_counts_that_nobody_asks_for_are_dropped() -> None:
    running = RunningWorkloads(OTHERS)
    clauses = [policies(f"limit sum(replicas) to {bound}\n{FIRST}") for bound in range(MOST_COUNTS + 5)]
    for each in clauses:
        each.decide(workload(1), Fleet(CLUSTERS, running=running), Given(NOW))
    assert clauses[0].decide(workload(6), Fleet(CLUSTERS, running=running), Given(NOW)).write is False


LIMITS = st.sampled_from(
    [
        ("limit sum(replicas) to 5 over cluster", "replicas", "cluster", 5),
        ("limit sum(replicas) to 9 over region", "replicas", "region", 9),
        ("limit sum(replicas) to 12", "replicas", "all", 12),
        ("limit sum(request.cpu) to 7 over region", "cpu", "region", 7),
        ("limit count() to 2 over cluster", "workloads", "cluster", 2),
        ("limit count() to 3 over region", "workloads", "region", 3),
    ]
)
DIVISIONS = st.sampled_from(
    [
        "divide evenly", "divide evenly partly", "divide best first partly", "divide by cluster.room at least 2 each",
        "divide over region evenly then best first partly", "choose 1 to 2 clusters\ndivide evenly partly",
        "keep nothing\ndivide evenly partly", "divide copies", "choose 2 clusters\ndivide copies", "",
        "score -(cluster.price ?? 9)\ndivide best first partly\nrebalance at most 2 rest 1s",
    ]
)  # fmt: skip
ASKED = st.tuples(st.integers(0, 12), st.integers(1, 2), st.booleans())
DOMAINS = {
    "cluster": {each.name: each.name for each in CLUSTERS},
    "region": {each.name: each.region for each in CLUSTERS},
    "all": {each.name: "" for each in CLUSTERS},
}


def used(what: str, over: str, running: Sequence[Workload]) -> dict[str, int]:
    """Return what a limit adds up, by domain; in cores, replicas or workloads."""
    found: dict[str, int] = dict.fromkeys(DOMAINS[over].values(), 0)
    for each in running:
        if what == "workloads":
            for domain in {DOMAINS[over][name] for name in each.has}:
                found[domain] += 1
            continue
        for name, count in each.has.items():
            cores = (each.requests or {}).get("cpu", 0) // CORE
            found[DOMAINS[over][name]] += count * (cores if what == "cpu" else 1)
    return found


@given(st.lists(LIMITS, min_size=1, max_size=3), DIVISIONS, st.lists(ASKED, max_size=6), st.data())
@settings(max_examples=150)
def test_no_limit_is_ever_exceeded(
    limits: Sequence[tuple[str, str, str, int]],
    division: str,
    asked: Sequence[tuple[int, int, bool]],
    data: st.DataObject,
) -> None:
    """Whatever is decided after whatever: what is above a limit was so before, and gets no more."""
    text = "\n".join([*dict.fromkeys(each[0] for each in limits), division])
    found, running = policies(text), RunningWorkloads()
    state: dict[str, Workload] = {}
    fleet = Fleet(CLUSTERS, running=running)
    for number, (replicas, cores, fresh) in enumerate(asked):
        name = data.draw(st.sampled_from([f"new-{number}", *state]))
        one = replace(
            state.get(name, workload(0, name=name)), replicas=replicas, requests={"cpu": cores * CORE}, fresh=fresh
        )
        state[name] = one
        running.put(one)
        for step in ("decide", "move"):
            before = {each[0]: used(*each[1:3], list(state.values())) for each in limits}
            outcome = answer(found, step, state[name], fleet)
            if outcome is None or not outcome.write:
                continue
            targets = outcome.targets
            state[name] = replace(state[name], has=targets, health=dict.fromkeys(targets, HEALTHY), fresh=False)
            running.put(state[name])
            for clause, what, over, bound in limits:
                after = used(what, over, list(state.values()))
                kept(clause, before[clause], after, bound)


def answer(found: object, step: str, asked: Workload, fleet: Fleet) -> Outcome | None:
    if step == "decide":
        return found.decide(asked, fleet, Given(NOW))  # type: ignore[attr-defined,no-any-return]
    moved = found.rebalance(asked, fleet, Given(NOW))  # type: ignore[attr-defined]
    return moved[0] if moved is not None else None


def kept(clause: str, before: Mapping[str, int], after: Mapping[str, int], bound: int) -> None:
    for domain, count in after.items():
        assert count <= max(bound, before[domain]), (clause, domain)
