"""What a change of policies does to the workloads of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.fleet.model import Fleet, Workload
from kube_policy_scheduler.policy.fleet_policies import NO_FLEET_POLICIES, FleetPolicies
from kube_policy_scheduler.tooling.fleet_state import BoundWorkload, FleetState
from kube_policy_scheduler.tooling.impact.fleet_replay import FleetReplay, moves_between, replay_fleet
from kube_policy_scheduler.tooling.impact.fleet_report import FleetImpact, because, data
from kube_policy_scheduler.tooling.impact.report import Limits
from tests.fleet.fleets import CORE, NOW, cluster, policies, workload

STAYS = "divide best first"
BY_PRICE = "score -(cluster.price ?? 9)\ndivide best first"
BACK = f"{BY_PRICE}\nrebalance at most 2 rest 10min"
CLUSTERS = (cluster("a", 6, price=3), cluster("b", 12, price=5), cluster("c", 18))


def fleet(*workloads: Workload, is_due: bool = False) -> FleetState:
    """Return a fleet whose clusters count what runs in them."""
    used = {each.name: sum(one.has.get(each.name, 0) for one in workloads) for each in CLUSTERS}
    clusters = tuple(
        cluster(
            each.name,
            each.allocatable["cpu"] // CORE,
            price=float(each.annotations.get("policy-scheduler/hourly-price", 0)) or None,
            allocated={"cpu": used[each.name] * CORE},
        )
        for each in CLUSTERS
    )
    return FleetState(Fleet(clusters), tuple(BoundWorkload(each, is_decided=True, is_due=is_due) for each in workloads))


def replay(
    state: FleetState, old: FleetPolicies | str, new: FleetPolicies | str, *, afresh: bool = False
) -> FleetReplay:
    sides = [policies(each) if isinstance(each, str) else each for each in (old, new)]
    return replay_fleet(state, *sides, now=NOW, signals=Signals.EMPTY, afresh=afresh)


def ends(found: FleetReplay) -> dict[str, Mapping[str, int]]:
    return {each.workload.name: each.new.outcome.targets for each in found.changes}


def test_what_runs_stays_unless_a_policy_moves_it() -> None:
    state = fleet(workload(5, {"c": 5}))
    assert replay(state, STAYS, BY_PRICE).changes == ()
    assert ends(replay(state, STAYS, BACK)) == {"web": {"a": 5}}
    assert ends(replay(state, STAYS, BY_PRICE, afresh=True)) == {"web": {"a": 5}}


def test_each_side_decides_in_the_order_of_its_policies() -> None:
    first, second = workload(15, name="a"), workload(15, name="b", priority=7)
    state = FleetState(
        Fleet(CLUSTERS[:2]), tuple(BoundWorkload(each, is_decided=True, is_due=True) for each in (first, second))
    )
    found = replay(state, STAYS, f"order by workload.name\n{STAYS}")
    assert {each.workload.name: each.kind for each in found.changes} == {"a": "gained", "b": "lost"}


def test_moves_take_as_many_passes_as_the_policy_says() -> None:
    (change,) = replay(fleet(workload(5, {"c": 5})), STAYS, BACK).changes
    assert (change.new.passes, change.old.passes, change.moved) == (3, 0, 5)


def test_what_one_workload_gets_the_next_does_not_get() -> None:
    state = fleet(workload(4, {"c": 4}, name="first", priority=9), workload(4, {"c": 4}, name="second"))
    assert ends(replay(state, STAYS, BACK)) == {"first": {"a": 4}, "second": {"a": 2, "b": 2}}


def test_what_a_workload_leaves_the_next_gets() -> None:
    first = workload(6, {"a": 6}, name="first", priority=9)
    state = fleet(first, workload(6, {"c": 6}, name="second"))
    away = 'filter cluster.name != "a" or workload.name != "first" also running\n'
    assert ends(replay(state, BY_PRICE, away + BACK, afresh=True)) == {"first": {"b": 6}, "second": {"a": 6}}


def test_replicas_that_were_just_decided_count_though_no_status_shows_them() -> None:
    burst = workload(4, {"a": 4}, name="burst", health={}, decided=NOW - 60, priority=-1)
    state = FleetState(
        Fleet(CLUSTERS),
        (
            BoundWorkload(burst, is_decided=True, is_due=False),
            BoundWorkload(workload(5, name="next"), is_decided=True, is_due=True),
        ),
    )
    assert ends(replay(state, NO_FLEET_POLICIES, BY_PRICE))["next"] == {"a": 2, "b": 3}


def test_a_workload_without_room_is_lost_and_one_that_gets_room_gained() -> None:
    state = fleet(workload(9), is_due=True)
    narrow = 'filter cluster.name == "a"\ndivide best first'
    assert [each.kind for each in replay(state, STAYS, narrow).changes] == ["lost"]
    assert [each.kind for each in replay(state, narrow, STAYS).changes] == ["gained"]
    assert replay(state, STAYS, narrow).new.short == 9


def test_prices_are_those_of_the_requested_cores() -> None:
    found = replay(fleet(workload(8), is_due=True), BY_PRICE, 'filter cluster.name != "b"\n' + BY_PRICE)
    assert (found.old.hourly, found.old.unpriced) == (6 * 3 + 2 * 5, 0)
    assert (found.new.hourly, found.new.unpriced) == (6 * 3, 2)


def test_a_workload_that_moves_in_a_circle_is_counted() -> None:
    # each cluster is better as long as it has nothing
    found = replay(fleet(workload(2, {"c": 2})), STAYS, "score -cluster.has\ndivide best first\nrebalance")
    assert (found.old.restless, found.new.restless) == (0, 1)


def test_workloads_of_no_policy_and_those_that_follow_others_stay() -> None:
    governed = workload(5, {"c": 5})
    other = workload(5, {"c": 5}, name="other")
    state = FleetState(
        Fleet(CLUSTERS),
        (
            BoundWorkload(governed, is_decided=True, is_due=False),
            BoundWorkload(other, is_decided=True, is_due=False),
            BoundWorkload(workload(5, name="follower"), is_decided=False, is_due=True),
        ),
    )
    found = replay(state, NO_FLEET_POLICIES, policies(BACK))
    assert found.decided == 2
    nobody = FleetPolicies()
    assert replay(state, nobody, nobody).decided == 0
    assert replay(state, nobody, nobody).left == 2


DEFAULT = Limits()


def impact(state: FleetState, old: str, new: str, limits: Limits = DEFAULT) -> FleetImpact:
    return FleetImpact("old", "new", replay(state, old, new), afresh=False, limits=limits)


@pytest.mark.parametrize(
    ("limits", "broken"),
    [
        (Limits(moved=4), ["5 replicas would move; the limit is 4"]),
        (Limits(moved=5), []),
        (Limits(moved_share=0.5), ["100.0 % of the replicas would move; the limit is 50 %"]),
    ],
)
def test_limits(limits: Limits, broken: list[str]) -> None:
    assert impact(fleet(workload(5, {"c": 5})), STAYS, BACK, limits).broken == broken


def test_workloads_without_room_break_the_limit() -> None:
    found = impact(fleet(workload(9), is_due=True), STAYS, 'filter cluster.name == "a"\ndivide best first')
    assert found.broken == ["1 workload would no longer have room; the limit is 0"]


def test_the_reason_names_the_filter_that_rejects_the_cluster_that_is_left() -> None:
    away = 'filter cluster.name != "c" also running else "not in c"\n' + BY_PRICE
    found: Any = data(impact(fleet(workload(5, {"c": 5}), is_due=True), BY_PRICE, away))
    (change,) = found["changes"]
    assert change["moves"] == [{"from": "c", "to": "a", "replicas": 5}]
    assert "c is rejected by" in change["because"]
    assert "not in c" in change["because"]
    assert because(impact(fleet(workload(5, {"c": 5}), is_due=True), BY_PRICE, away).changes[0]) == change["because"]


PLACEMENTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), max_size=6)


@given(PLACEMENTS, PLACEMENTS)
def test_moves_lead_from_the_old_placement_to_the_new(old: dict[str, int], new: dict[str, int]) -> None:
    counts, wanted = dict(old), dict(new)
    if not any((*old.values(), *new.values())):
        counts, wanted = dict.fromkeys(old, 1), dict.fromkeys(new, 1)
    moves = list(moves_between(old, new))
    for each in moves:
        assert each.replicas > 0
        assert each.source != each.target
        for name, sign in ((each.source, -1), (each.target, 1)):
            if name:
                counts[name] = counts.get(name, 0) + sign * each.replicas
    assert {name: n for name, n in counts.items() if n} == {name: n for name, n in wanted.items() if n}
    sources, targets = {each.source for each in moves}, {each.target for each in moves}
    assert not (sources & targets - {""}), "no cluster both loses and gets replicas"
    assert not ("" in sources and "" in targets)


@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=4))
def test_equal_policies_change_nothing(given_workloads: list[tuple[int, str, int]]) -> None:
    there = [
        workload(count, {name: count}, name=f"w{at}", priority=priority)
        for at, (count, name, priority) in enumerate(given_workloads)
    ]
    for text in (BACK, "divide evenly", "divide by cluster.room partly"):
        for afresh in (True, False):
            found = replay(fleet(*there, is_due=True), text, text, afresh=afresh)
            assert found.changes == ()
            assert found.old == found.new
