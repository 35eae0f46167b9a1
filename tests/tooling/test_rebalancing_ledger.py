"""What continuous rebalancing remembers, and when it stops itself."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.tooling.rebalancing.ledger import Ledger, MoveOutcome, decode_ledger, encode_ledger
from kube_policy_scheduler.tooling.rebalancing.moves import Move


def move(workload: str = "w", source: str = "a", uid: str = "u") -> Move:
    return Move("n/p", uid, workload, source, "b", 1, "p", False, 20.0, "c", "p:1:1")


@pytest.mark.parametrize(("hits", "misses", "stops"), [(9, 1, False), (8, 2, True), (18, 2, False), (17, 3, True)])
def test_it_stops_when_fewer_than_nine_in_ten_land(hits: int, misses: int, stops: bool) -> None:
    ledger = Ledger(per_hour=100)
    for _ in range(hits):
        ledger.note(move(), MoveOutcome.LANDED, 0.0)
    for _ in range(misses):
        ledger.note(move(), MoveOutcome.ELSEWHERE, 0.0)
    assert bool(ledger.stopped) == stops
    assert (ledger.allowed(0.0) == 0) == stops
    ledger.resume()
    assert ledger.allowed(0.0) == 100


def test_of_few_outcomes_nothing_is_concluded() -> None:
    ledger = Ledger(per_hour=100)
    for _ in range(9):
        ledger.note(move(), MoveOutcome.PENDING, 0.0)
    assert ledger.stopped == ""


def test_the_budget_of_an_hour_comes_back() -> None:
    ledger = Ledger(per_hour=3)
    for at in (0.0, 10.0, 20.0):
        ledger.note(move(), MoveOutcome.EVICTED, at)
    assert [ledger.allowed(at) for at in (30.0, 3599.0, 3600.0, 3615.0, 9999.0)] == [0, 0, 1, 2, 3]


def test_a_workload_rests_and_longer_after_a_miss() -> None:
    ledger = Ledger(per_hour=9)
    ledger.note(move(), MoveOutcome.EVICTED, 100.0, rest_seconds=60.0)
    assert (ledger.keeps("w", "x", 159.0), ledger.keeps("w", "x", 160.0)) == (True, False)
    assert not ledger.keeps("other", "x", 101.0)
    ledger.note(move(), MoveOutcome.ELSEWHERE, 200.0)
    assert (ledger.keeps("w", "x", 3799.0), ledger.keeps("w", "x", 3800.0)) == (True, False)


def test_nodes_that_were_left_are_remembered_for_a_day() -> None:
    ledger = Ledger(per_hour=9)
    ledger.note(move(source="a"), MoveOutcome.EVICTED, 0.0)
    ledger.note(move(source="c"), MoveOutcome.EVICTED, 3600.0)
    assert ledger.left(3700.0) == {"w": frozenset({"a", "c"})}
    assert ledger.left(24 * 3600.0)["w"] == {"c"}


def test_a_pod_that_cannot_be_evicted_is_not_asked_about_again() -> None:
    ledger = Ledger(per_hour=9)
    ledger.note(move(uid="u1"), MoveOutcome.NEVER, 0.0)
    assert ledger.keeps("w", "u1", 10.0**9)
    assert not ledger.keeps("w", "u2", 0.0)


def test_what_is_remembered_is_bounded() -> None:
    ledger = Ledger(per_hour=10**6)
    for at in range(12_000):
        ledger.note(move(f"w{at}", uid=f"u{at}"), MoveOutcome.EVICTED, 0.0)
        ledger.note(move(f"w{at}", uid=f"u{at}"), MoveOutcome.NEVER, 0.0)
    for at in range(200):
        ledger.note(move("w11999", f"n{at}"), MoveOutcome.EVICTED, 0.0)
    left = ledger.left(1.0)
    assert len(left) == 10_000
    assert left["w11999"] == {f"n{at}" for at in range(136, 200)}


def test_a_kept_ledger_goes_on_where_it_was_by_another_clock() -> None:
    ledger = Ledger(per_hour=3)
    ledger.note(move("w", "a"), MoveOutcome.EVICTED, 100.0, rest_seconds=500.0)
    ledger.note(move("v", "b"), MoveOutcome.EVICTED, 150.0)
    ledger.note(move("v", "b"), MoveOutcome.LANDED, 160.0)
    kept = decode_ledger(encode_ledger(ledger.kept(200.0, unix=1_800_000_200.0, policies="p")))

    again = Ledger(per_hour=3)
    for _ in range(2):  # what is read twice counts once
        again.recall(kept, 20.0, unix=1_800_000_220.0, policies="p")
    assert again.kept(20.0, unix=1_800_000_220.0, policies="p") == kept
    assert again.allowed(20.0) == 1
    assert [again.keeps("w", "u", at) for at in (20.0, 399.0, 401.0)] == [True, True, False]
    assert again.left(20.0) == {"w": frozenset("a"), "v": frozenset("b")}
    assert again.allowed(20.0 + 3600.0) == 3


def test_what_stopped_it_stops_it_after_a_restart_under_the_same_policies_only() -> None:
    ledger = Ledger(per_hour=100)
    for _ in range(10):
        ledger.note(move(), MoveOutcome.ELSEWHERE, 0.0)
    kept = ledger.kept(0.0, unix=1e9, policies="p")
    for policies in ("p", "other"):
        again = Ledger(per_hour=100)
        again.recall(kept, 0.0, unix=1e9, policies=policies)
        assert again.stopped == (ledger.stopped if policies == "p" else "")


def test_a_text_is_bounded_and_keeps_what_moved_last() -> None:
    ledger = Ledger(per_hour=10_000)
    for number in range(3000):
        ledger.note(move(f"namespace/workload-{number}", f"node-{number}"), MoveOutcome.EVICTED, float(number))
    text = encode_ledger(ledger.kept(3000.0, unix=1e9, policies="p"), most_bytes=50_000)
    assert 40_000 < len(text) <= 50_000
    names = list(decode_ledger(text).workloads)
    assert names[-1] == "namespace/workload-2999"
    assert "namespace/workload-0" not in names


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"policies":"","evicted":[-1],"hits":[],"workloads":{}}',
        '{"policies":"","evicted":[],"hits":[],"workloads":{"w":{"rests_until":1e999,"left":{}}}}',
        '{"policies":"","evicted":[],"hits":[' + ",".join(["true"] * 21) + '],"workloads":{}}',
    ],
)  # fmt: skip
def test_a_text_that_is_no_ledger_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_ledger(text)
