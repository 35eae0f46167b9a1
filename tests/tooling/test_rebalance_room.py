"""Room for pods that wait: few moves, each with a new place before anything is evicted."""

from __future__ import annotations

import json
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cli.exact import solver
from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.policy.answer import answer
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.tooling.capacity.seats import Seats, in_turn
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state
from kube_policy_scheduler.tooling.programs import Solver
from kube_policy_scheduler.tooling.rebalancing import cheapest
from kube_policy_scheduler.tooling.rebalancing.moves import MoveBudgets, replacement_of
from kube_policy_scheduler.tooling.rebalancing.plan import RebalanceOptions
from kube_policy_scheduler.tooling.rebalancing.room import (
    FITS,
    NO_SOLVER,
    NOT_PROVED,
    TOO_LARGE,
    NoRoom,
    RoomPlan,
    plan_room,
    room_for,
)
from tests.tooling.test_capacity import budget
from tests.tooling.worlds import ruleset, things_of

Json = dict[str, Any]
FITTING = "filter fits()\nscore most_allocated(cpu)\n"
PLENTY = MoveBudgets(100, 100, 100, 100)


def node(name: str, cpu: int = 4, **more: Any) -> Json:
    return {"name": name, "cpu": cpu, "mem": "64Gi", **more}


def on(name: str, cpu: Any, workload: str = "web", **more: Any) -> Json:
    return {"cpu": cpu, "node": name, "owner": f"ReplicaSet/{workload}", **more}


def waits(cpu: Any, **more: Any) -> Json:
    return {"cpu": cpu, "owner": "ReplicaSet/new", **more}


def world(nodes: list[Json], pods: list[Json], *more: Any) -> ClusterState:
    return cluster_state([*things_of(nodes, pods), *more])


def planned(
    there: ClusterState, policy: str = FITTING, budgets: MoveBudgets = PLENTY, solve: Solver | None = None
) -> RoomPlan:
    before = {uid: there.cluster.node_of(uid) for uid in there.cluster.pods}
    options = RebalanceOptions(ruleset("a", policy), None, 1000.0, budgets=budgets)
    found = plan_room(there, options, there.pending(), solve=solve)
    assert {uid: there.cluster.node_of(uid) for uid in there.cluster.pods} == before
    return found


def moves(found: RoomPlan) -> list[tuple[str, str, str]]:
    return [(move.pod.removeprefix("default/"), move.source, move.target) for move in found.moves]


def test_one_small_pod_moves_for_a_large_one() -> None:
    found = planned(world([node("a"), node("b")], [on("a", 1), on("b", 2), waits("3500m")]))
    assert moves(found) == [("p0", "a", "b")]
    assert [(seat.pod, seat.node, seat.moves) for seat in found.seats] == [("default/p2", "a", 1)]
    assert (found.at_least, found.search, found.not_exact) == (1, "greedy", "")


def test_where_there_is_room_nothing_moves() -> None:
    found = planned(world([node("a")], [waits(3)]))
    assert (moves(found), found.seats[0].why) == ([], FITS)


def test_the_node_is_taken_where_the_fewest_pods_must_move() -> None:
    pods = [*(on("a", 1) for _ in range(3)), on("b", 3), waits(4)]
    found = planned(world([node("a"), node("b"), node("c", 3)], pods))
    assert moves(found) == [("p3", "b", "c")]


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([on("a", 3), on("b", 4), waits(4)], NoRoom.NOWHERE),
        ([on("a", 1), on("b", 2), waits(5)], NoRoom.NO_NODE),
        ([{"cpu": 1, "node": "a"}, on("b", 2), waits(4)], NoRoom.NOWHERE),
    ],
)
def test_why_there_is_no_room(pods: list[Json], why: str) -> None:
    found = planned(world([node("a"), node("b")], pods))
    assert (moves(found), found.seats[0].node, found.seats[0].why) == ([], "", why)


def test_budgets_bound_what_moves() -> None:
    pods = [on("a", 1), on("a", 1)]
    there = world([node("a"), node("b"), node("c")], [*pods, on("b", 2), on("c", 2), waits(4)])
    assert len(planned(there).moves) == 1
    assert planned(there, budgets=MoveBudgets(0, 9, 9, 9)).seats[0].why == NoRoom.BUDGET
    two = world([node("a"), node("b"), node("c", 2)], [on("a", 1), on("b", 1), waits(4), waits(4, priority=-1)])
    assert [seat.moves for seat in planned(two).seats] == [1, 1]
    bounded = planned(two, budgets=MoveBudgets(1, 9, 9, 9))
    assert [(seat.moves, seat.why == NoRoom.BUDGET) for seat in bounded.seats] == [(1, False), (0, True)]
    protected = world([node("a"), node("b")], [on("a", 1, labels={"app": "x"}), on("b", 2), waits(4)])
    assert len(planned(protected).moves) == 1
    protected = world(
        [node("a"), node("b")], [on("a", 1, labels={"app": "x"}), on("b", 2), waits(4)], budget("x", 0, app="x")
    )
    assert planned(protected).moves == ()


def test_a_gang_gets_all_places_or_none() -> None:
    gang = FITTING + "gang by pod.label.job size 2 if pod.label.job\n"
    members = [waits(4, labels={"job": "j"}), waits(4, labels={"job": "j"})]
    pods = [on("a", 1), on("b", 1), *members]
    found = planned(world([node("a"), node("b"), node("c", 2)], pods), gang)
    assert moves(found) == [("p0", "a", "c"), ("p1", "b", "c")]
    assert found.placed == 2
    found = planned(world([node("a"), node("b"), node("c", 1)], pods), gang)
    assert (moves(found), found.placed) == ([], 0)


def test_room_for_a_pod_is_room_for_its_gang_and_takes_bounded_time() -> None:
    gang = FITTING + "gang by pod.label.job size 2 if pod.label.job\n"
    members = [waits(4, labels={"job": "j"}), waits(4, labels={"job": "j"}), waits(4, labels={"job": "other"})]
    there = world([node("a"), node("b"), node("c", 2)], [on("a", 1), on("b", 1), *members])
    options = RebalanceOptions(ruleset("a", gang), None, 1000.0, budgets=PLENTY)
    pods = there.pending()
    found = room_for(there, options, pods[0])
    assert found is not None
    assert (moves(found), found.placed) == ([("p0", "a", "c"), ("p1", "b", "c")], 2)
    assert room_for(there, options, pods[2]) is None  # the other member of its gang does not exist
    stopped = room_for(there, options, pods[0], stop=lambda: True)
    assert stopped is not None
    assert (stopped.complete, stopped.moves) == (False, ())


def test_the_bound_is_for_the_pods_that_get_a_place() -> None:
    """The greedy plan seats the large pod at two moves; the exact one seats the other, at one."""
    nodes = [node("n0", 6), *(node(f"n{at}", 2) for at in (1, 2, 3))]
    pods = [*(on("n0", "500m", f"w{at}") for at in range(3)), on("n0", "1500m", "w3"), waits("3500m"), waits(5)]
    exact = planned(world(nodes, pods), solve=solver())
    assert exact.placed == 1
    assert exact.at_least <= len(exact.moves)


@st.composite
def crowded(draw: st.DrawFn) -> tuple[list[Json], list[Json]]:
    nodes = [node(f"n{at}", draw(st.integers(2, 6))) for at in range(draw(st.integers(2, 4)))]
    free = [one["cpu"] * 2 for one in nodes]
    pods: list[Json] = []
    for at in range(draw(st.integers(1, 9))):
        where, halves = draw(st.integers(0, len(nodes) - 1)), draw(st.integers(1, 4))
        if free[where] >= halves:
            free[where] -= halves
            pods.append(on(f"n{where}", f"{halves * 500}m", f"w{at}", labels={"app": draw(st.sampled_from("ab"))}))
    pods += [waits(f"{draw(st.integers(2, 10)) * 500}m", labels={"app": "a"}) for _ in range(draw(st.integers(1, 2)))]
    return nodes, pods


@given(
    made=crowded(),
    policy=st.sampled_from(
        [
            FITTING,
            "filter fits()\nscore least_allocated(cpu)\n",
            "filter fits()\nlimit count() by pod.label.app to 2 over node\n",
        ]
    ),
)
def test_every_plan_holds_when_it_is_carried_out_and_needs_at_least_its_bound(
    made: tuple[list[Json], list[Json]], policy: str
) -> None:
    there = world(*made)
    found = planned(there, policy)
    cluster, rules = there.cluster, ruleset("a", policy)

    def host(pod: Any) -> str | None:
        governing = rules.rules(pod)
        assert governing is not None
        return answer(DecisionInputs(pod, cluster, governing, now=1000.0)).host

    assert found.at_least <= len(found.moves)
    pending = {pod.key: pod for pod in there.pending()}
    for seat in found.seats:
        victims = [move for move in found.moves if move.room_for == seat.pod]
        assert len(victims) == seat.moves
        for move in victims:
            replacement = replacement_of(cluster.pods[move.uid], 1000.0)
            where = host(replacement)
            assert where is not None
            assert where != move.source
            cluster.place(replacement, where)
        for move in victims:
            cluster.displace(move.uid)
        where = host(pending[seat.pod])
        assert bool(where) == bool(seat.node)
        if where:
            cluster.place(pending[seat.pod], where)


def test_the_exact_search_finds_what_the_greedy_one_misses() -> None:
    """The greedy search lets the largest pod stay, so that two small ones go."""
    nodes, pods = [node("a", 9), node("b", 4)], [on("a", 4, "x"), on("a", 2, "y"), on("a", 2, "z"), waits(5)]
    greedy, exact = planned(world(nodes, pods)), planned(world(nodes, pods), solve=solver())
    assert (len(greedy.moves), greedy.at_least, greedy.gap, greedy.not_exact) == (2, 1, 0.5, NO_SOLVER)
    assert (moves(exact), exact.search, exact.at_least, exact.gap) == ([("p0", "a", "b")], "exact", 1, 0)


def test_where_the_exact_plan_does_not_hold_the_greedy_one_is_the_answer() -> None:
    """The program knows nothing of the limit: two replacements together are one too many on their node."""
    policy = "filter fits()\nlimit count() by pod.label.app to 1 over node\nscore most_allocated(cpu)\n"
    nodes = [node("a", 9), node("b", 8)]
    pods = [on("a", 4, "x", labels={"app": "s"}), on("a", 4, "y", labels={"app": "s"}), waits(9)]
    found = planned(world(nodes, pods), policy, solve=solver())
    assert (found.placed, found.moves, found.not_exact) == (0, (), NOT_PROVED)


def test_a_cluster_that_is_too_large_is_searched_greedily(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cheapest, "MOST_VARIABLES", 3)
    nodes, pods = [node("a", 9), node("b", 4)], [on("a", 4, "x"), on("a", 2, "y"), on("a", 2, "z"), waits(5)]
    found = planned(world(nodes, pods), solve=solver())
    assert (len(found.moves), found.not_exact) == (2, TOO_LARGE)


@pytest.mark.long
def test_what_cannot_matter_keeps_no_large_cluster_from_the_exact_search() -> None:
    """300 workloads of three sizes and 600 nodes: a variable for each pair alone would be 540,000."""
    nodes = [node(f"a{at}", 9) for at in range(300)] + [node(f"b{at}") for at in range(300)]
    pods = [on(f"a{at}", cpu, f"w{at}-{cpu}-{each}") for at in range(300) for each, cpu in enumerate((4, 2, 2))]
    found = planned(world(nodes, [*pods, waits(5), waits(5)]), solve=solver())
    assert (len(found.moves), found.search, found.at_least, found.not_exact) == (2, "exact", 2, "")
    assert {move.target[0] for move in found.moves} == {"b"}


@given(made=crowded(), budgets=st.sampled_from([PLENTY, MoveBudgets(2, 1, 1, 2)]))
def test_no_choice_of_fewer_pods_than_the_bound_makes_room_for_these_pods(
    made: tuple[list[Json], list[Json]], budgets: MoveBudgets
) -> None:
    there = world(*made)
    found = planned(there, budgets=budgets, solve=solver())
    running = [pod for pod in there.cluster.pods.values() if there.cluster.node_of(pod.uid)]
    seats = Seats(there, ruleset("a", FITTING), now=1000.0)
    for few in chain.from_iterable(combinations(running, count) for count in range(min(3, found.at_least))):
        mark = seats.mark()
        arrived = [seats.seat(replacement_of(pod, 1000.0)).host for pod in few]
        for pod in few:
            seats.take_off(pod)
        placed = seats.seat_all(in_turn(there.pending())).placed
        seats.undo_to(mark)
        having = {pod.key for pod in there.pending() if pod.uid in placed}
        assert None in arrived or not found.having <= having  # the bound is for these pods


def test_a_pending_pod_that_is_not_asked_for_is_not_moved() -> None:
    there = world([node("a"), node("b", 3)], [waits(3, labels={"x": "1"}), waits(4)])
    options = RebalanceOptions(
        ruleset("a", "filter fits()\nscore least_allocated(cpu)\n"), None, 1000.0, budgets=PLENTY
    )
    for solve in (None, solver()):
        found = plan_room(there, options, [pod for pod in there.pending() if pod.key == "default/p1"], solve=solve)
        assert (found.moves, found.placed) == ((), 0)


@given(
    made=crowded(),
    policy=st.sampled_from(
        [
            FITTING,
            "filter fits()\nscore least_allocated(cpu)\n",
            "filter fits()\nlimit count() by pod.label.app to 2 over node\n",
        ]
    ),
    budgets=st.sampled_from([PLENTY, MoveBudgets(2, 1, 1, 2)]),
)
def test_the_exact_plan_never_costs_more_holds_and_its_bound_is_below_both(
    made: tuple[list[Json], list[Json]], policy: str, budgets: MoveBudgets
) -> None:
    there = world(*made)
    greedy, exact = planned(there, policy, budgets), planned(there, policy, budgets, solver())
    assert exact.order <= greedy.order
    assert exact.at_least <= len(exact.moves)
    if exact.having == greedy.having:
        assert greedy.at_least <= exact.at_least <= len(greedy.moves)
    if exact.search == "greedy":
        assert (exact.moves, exact.seats) == (greedy.moves, greedy.seats)
        return
    assert {move.room_for for move in exact.moves} <= {seat.pod for seat in exact.seats if seat.node}
    assert len(exact.moves) <= budgets.total
    seats = Seats(there, ruleset("a", policy), now=1000.0)
    for move in exact.moves:  # all replacements come while the old pods still count
        decision = seats.seat(replacement_of(there.cluster.pods[move.uid], 1000.0))
        assert decision.host not in (None, move.source)
    for move in exact.moves:
        seats.take_off(there.cluster.pods[move.uid])
    placed = seats.seat_all(in_turn(there.pending())).placed
    assert len(placed) >= exact.placed


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    things = things_of([node("a"), node("b")], [on("a", 1), on("b", 2), waits("3500m")])
    kinds = {objects.Node: "Node", objects.Pod: "Pod"}
    items = [{"apiVersion": "v1", "kind": kinds[type(one)], **msgspec.to_builtins(one)} for one in things]
    Path("c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    Path("a.policy").write_text(FITTING)
    asked = ["rebalance", "--policies", "a.policy", "--cluster", "c.json"]
    assert run([*asked, "--pending"]) == 1
    assert "1 of 1 pending pod gets a place if 1 pod moves" in capsys.readouterr().out
    assert run([*asked, "--for", "p2", "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(move["pod"], move["target"], move["roomFor"]) for move in told["moves"]] == [
        ("default/p0", "b", "default/p2")
    ]
    assert run([*asked, "--for", "p0"]) == 2
    assert run([*asked, "--for", "nobody"]) == 2
    assert run([*asked, "--for", "p2", "--most", "0"]) == 1


def test_a_gang_that_fits_as_a_whole_needs_no_moves() -> None:
    """One by one, the leader takes a node that a worker needs, so that others would have to move."""
    rule = 'gang by pod.label.job size 3 if pod.label.job\nscore 100 if node.name == "b1"\n'
    nodes = [node("b1", 3), node("b2", 3), node("b3", 2), node("c", 4)]
    members = [waits(cpu, labels={"job": "x"}) for cpu in (2, 3, 3)]
    found = planned(world(nodes, [on("c", 2), *members]), "filter fits()\n" + rule)
    assert (found.placed, moves(found)) == (3, [])
    assert sorted(seat.node for seat in found.seats) == ["b1", "b2", "b3"]
