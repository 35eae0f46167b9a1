"""The decision log: its contents and limits, and that details agree with the decision."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts
from kube_policy_scheduler.daemon.observing.close_look import MOST_CREDIT_SECONDS
from kube_policy_scheduler.daemon.observing.decision_entry import Entry, select_in_steps
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.observers import AttemptFailed, PodBound, PodHeld
from kube_policy_scheduler.tooling.decision_record import Outcome, decode, encode
from tests.daemon.deciding_stage import NOW, Stage, finished, policies, reading

WEB = """policy web
for pods where pod.label.app == "web"
filter promql("load") ?? 1 < 0.9 as not_too_busy
score 10 * (1 - promql("load")) as calm
score node.free.cpu as room
"""
LOADS = {"n0": 0.1, "n1": 0.5, "n2": 0.95}


def log(**changes: Any) -> DecisionLog:
    stopwatch = changes.pop("stopwatch", lambda: 0.0)
    hands = {name: changes.pop(name) for name in ("counts", "hand_on") if name in changes}
    settings = DecisionLogSettings(**{"kept": 100, "detail_share": 1.0, "best_nodes": 2} | changes)
    return DecisionLog(settings, seed=7, replica="host_1", kubernetes="1.37.1", stopwatch=stopwatch, **hands)


@pytest.fixture
def stage() -> Stage:
    return Stage(policies(WEB), signals=Signals.of([reading("load", LOADS, at=NOW - 12.0)]))


def used(stage: Stage, **changes: Any) -> DecisionLog:
    made = log(**changes)
    made.use_policies(stage.policy_set, hash="abc")
    return made


def test_a_decision_is_kept_with_everything_that_made_it(stage: Stage) -> None:
    kept = used(stage)
    decision = stage.decide(stage.pod("cart", app="web"), kept)
    record = decode(encode(kept.record(kept.entries()[0])))
    assert (record.key, record.outcome, record.node) == ("shop/cart", Outcome.ASSIGNED, "n0")
    assert (record.policy, record.hash, record.seed, record.replica) == ("web", "abc", 7, "host_1")
    assert (record.nodes, record.feasible, record.ties, record.attempt) == (4, 2, 1, 1)
    assert record.kubernetes == "1.37.1"
    assert record.score == decision.score
    assert record.detailed
    assert record.refused == {"not_too_busy": 2}, "one is too busy, one has no value"
    assert [ranked.node for ranked in record.top] == ["n0", "n1"]
    best, second = record.top
    assert best.total == pytest.approx(decision.score)
    assert best.scores == {"calm": pytest.approx(9.0), "room": pytest.approx(4.0)}
    assert second.scores["calm"] == pytest.approx(5.0)
    assert [(metric.query, metric.age_seconds, metric.missing) for metric in record.metrics] == [("load", 12.0, 1)]


def test_the_pod_of_a_record_can_be_decided_again_with_the_same_end(stage: Stage) -> None:
    kept = used(stage)
    first = stage.decide(stage.pod(app="web"), kept)
    record = kept.record(kept.entries()[0])
    again = Stage(stage.policy_set, signals=stage.signals, now=record.time)
    assert again.decide(again.cluster.templates.pod(decode(encode(record)).pod)).host == first.host


def test_a_refusal_says_how_many_nodes_were_refused_for_what(stage: Stage) -> None:
    kept = used(stage)
    stage.decide(stage.pod("big", cpu="64", app="web"), kept)
    record = kept.record(kept.entries()[0])
    assert (record.outcome, record.node) == (Outcome.UNSCHEDULABLE, "")
    assert record.message.startswith("0/4 nodes are available: 4 Insufficient cpu.")
    assert [(reason.plugin, reason.text, reason.nodes) for reason in record.reasons] == [
        ("NodeResourcesFit", "Insufficient cpu", 4)
    ]
    assert record.refused == {"NodeResourcesFit": 4, "not_too_busy": 2}


def test_a_pod_that_is_refused_as_a_whole_names_no_number_of_nodes() -> None:
    stage = Stage(policies("limit count() by pod.label.app to 0\n"))
    kept = used(stage)
    stage.decide(stage.pod(app="web"), kept)
    record = kept.record(kept.entries()[0])
    assert [reason.nodes for reason in record.reasons] == [0]
    assert list(record.refused.values()) == [4]


def test_a_pod_of_no_policy_is_kept_without_details(stage: Stage) -> None:
    kept = used(stage)
    stage.decide(stage.pod(app="other"), kept)
    record = kept.record(kept.entries()[0])
    assert (record.policy, record.outcome, record.detailed) == (None, Outcome.UNSCHEDULABLE, False)


def test_a_repeated_refusal_is_counted_and_not_kept_again(stage: Stage) -> None:
    handed: list[Entry] = []
    kept = used(stage, hand_on=handed.append)
    pod = stage.pod(cpu="64", app="web")
    for attempt in range(1, 6):
        stage.decide(pod, kept, attempts=attempt)
        stage.now += 60.0
    record = kept.record(kept.entries()[0])
    assert (len(kept.entries()), len(handed)) == (1, 1)
    assert (record.attempt, record.repeats, record.last) == (1, 4, NOW + 240.0)
    stage.decide(pod, kept, attempts=6)
    assert [kept.record(entry).attempt for entry in kept.entries()] == [1, 6], "five minutes are over"


@pytest.mark.parametrize("what", ["another reason", "other policies", "another pod"])
def test_what_is_new_about_a_refusal_is_kept(stage: Stage, what: str) -> None:
    kept = used(stage)
    pod = stage.pod(cpu="64", app="web")
    stage.decide(pod, kept)
    match what:
        case "another reason":
            stage.cluster.remove_node("n0")
        case "other policies":
            kept.use_policies(stage.policy_set, hash="def")
        case _:
            pod = stage.pod(cpu="64", app="web")
    stage.decide(pod, kept)
    assert len(kept.entries()) == 2


def test_large_pods_shorten_the_log_and_a_template_counts_once(stage: Stage) -> None:
    kept = used(stage)
    for number in range(12):  # 1 MB of YAML each, 12 MiB in memory
        stage.decide(stage.pod(tolerations=60_000, app="web", version=str(number // 3)), kept)
    assert len(kept.entries()) == 12, "pods of four templates"
    for number in range(4, 8):
        stage.decide(stage.pod(tolerations=60_000, app="web", version=str(number)), kept)
    assert [entry.pod.labels["version"] for entry in kept.entries()] == list("3334567")


def test_the_story_of_a_pod_is_kept(stage: Stage) -> None:
    kept = used(stage)
    pod = stage.pod("story", app="web")
    kept.on_held(PodHeld(pod=pod, why="too early", at=NOW, policy="web", attempts=0, queued=NOW))
    kept.on_held(PodHeld(pod=pod, why="too early", at=NOW + 1, policy="web", attempts=0, queued=NOW))
    decision = stage.decide(pod, kept, waits="for its group")
    assert decision.host is not None
    kept.on_failed(AttemptFailed(pod=pod, why=f"binding to {decision.host} was refused: no", at=NOW + 2, seconds=0.1))
    stage.cluster.displace(pod.uid)
    decision = stage.decide(pod, kept, attempts=2)
    assert decision.host is not None
    kept.on_bound(PodBound(pod=pod, node_name=decision.host, at=NOW + 3, seconds=0.25, attempts=2, queued=NOW))
    records = [kept.record(entry) for entry in kept.entries()]
    assert [(record.outcome.value, record.node) for record in records] == [
        ("held", ""),
        ("waiting", "n0"),
        ("bind-failed", "n0"),
        ("assigned", "n0"),
    ]
    assert records[2].message == "binding to n0 was refused: no"
    assert records[2].policy == "web"
    assert records[3].bound_seconds == 0.25


def test_a_failed_binding_names_the_policies_that_chose_its_node(stage: Stage) -> None:
    kept = used(stage)
    pod = stage.pod(app="web")
    decision = stage.decide(pod, kept)
    before = kept.entries()[-1].hash
    kept.use_policies(stage.policy_set, hash="others")
    why = f"{decision.host} changed before the binding was sent, and the pod no longer fits"
    kept.on_failed(AttemptFailed(pod=pod, why=why, at=NOW + 2, seconds=0.1))
    assert (kept.entries()[-1].hash, kept.entries()[-1].node) == (before, decision.host)
    kept.on_failed(AttemptFailed(pod=pod, why="internal error", at=NOW + 3, seconds=0.1))
    assert kept.entries()[-1].hash == "others", "it failed before it was decided again"


def test_the_oldest_go_first_and_no_more_is_kept_than_asked_for(stage: Stage) -> None:
    kept = used(stage, kept=3)
    for number in range(7):
        stage.decide(stage.pod(f"p{number}", cpu="64", app="web"), kept)
    assert [entry.pod.name for entry in kept.entries()] == ["p4", "p5", "p6"]
    assert len(kept._latest) == 3


def test_nothing_is_kept_where_none_is_asked_for_but_files_get_all(stage: Stage) -> None:
    handed: list[Entry] = []
    kept = used(stage, kept=0, hand_on=handed.append)
    stage.decide(stage.pod(app="web"), kept)
    assert (kept.entries(), len(handed)) == ([], 1)


def ticking(step: float) -> Callable[[], float]:
    now = 0.0

    def read() -> float:
        nonlocal now
        now += step
        return now

    return read


def test_close_looks_take_no_more_than_their_share(stage: Stage) -> None:
    clock = ticking(0.00005)
    looking = 0.0

    def read() -> float:
        nonlocal now
        now = clock()
        return now

    now = 0.0
    kept = used(stage, detail_share=0.1, stopwatch=read, kept=1000)
    for _ in range(1000):
        before = now
        stage.decide(stage.pod(cpu="64", app="web"), kept)
        looking += now - before if kept.entries()[-1].detail is not None else 0.0
        for _ in range(10):
            read()  # the scheduler does something else
    looked = [entry.detail is not None for entry in kept.entries()]
    assert all(looked[:5]), "the first of a burst are looked at"
    assert any(looked[500:])
    assert looking < 0.1 * now + 2 * MOST_CREDIT_SECONDS


def test_without_a_share_there_are_no_details(stage: Stage) -> None:
    kept = used(stage, detail_share=0.0, stopwatch=ticking(0.001))
    stage.decide(stage.pod(app="web"), kept)
    record = kept.record(kept.entries()[0])
    assert (record.detailed, record.top, record.refused) == (False, (), {})
    assert record.metrics[0].age_seconds == 12.0


def test_clauses_are_counted_by_result(stage: Stage) -> None:
    counts = ClauseCounts()
    kept = used(stage, counts=counts)
    for _ in range(3):
        stage.decide(stage.pod(app="web"), kept)
    profile = stage.policy_set.policies[0].profile
    busy = counts.of(next(plugin for plugin in profile.filters if plugin.name == "not_too_busy"))
    assert (busy.decisions, busy.asked, busy.rejected, busy.missing) == (3, 12, 6, 0)
    calm = counts.of(next(each.plugin for each in profile.scores if each.plugin.name == "calm"))
    assert (calm.decisions, calm.asked, calm.missing) == (3, 6, 0)
    assert [calm.low, calm.high] == pytest.approx([5.0, 9.0])
    counts.clear()
    assert counts.of(profile.filters[0]).asked == 0


@given(
    names=st.lists(st.sampled_from(["a", "b", "c"]), max_size=30),
    wanted=st.sampled_from(["", "a", "shop/a", "d"]),
    limit=st.integers(0, 10),
)
def test_the_newest_that_match_are_selected_in_their_order(names: list[str], wanted: str, limit: int) -> None:
    stage = Stage(policies(WEB), nodes=1)
    entries = [
        Entry(stage.pod(name), float(number), Outcome.ASSIGNED, "", node=f"n{number % 2}")
        for number, name in enumerate(names)
    ]
    found = finished(select_in_steps(entries, pod=wanted, limit=limit))[::-1]
    matching = [entry for entry in entries if not wanted or wanted.removeprefix("shop/") == entry.pod.name]
    assert found == matching[max(0, len(matching) - limit) :]
    assert all(entry.node == "n1" for entry in finished(select_in_steps(entries, node="n1", limit=100)))


def test_noting_a_decision_costs_little() -> None:
    """A guard against blow-ups: it takes about 3 µs; the goal is 20."""
    stage = Stage(policies(WEB))
    kept = used(stage, detail_share=0.0, kept=1000)
    pods = [stage.pod(cpu="64", app="web") for _ in range(2000)]
    profile = stage.policy_set.policies[0].profile
    from kube_policy_scheduler.daemon.observing.observers import Decided
    from kube_policy_scheduler.framework.frame import Frame

    frame = Frame(pods[0], stage.cluster, NOW)
    decision = stage.cycle.decide(frame, profile)
    began = time.process_time()
    for pod in pods:
        kept.on_decided(Decided(decision, "web", NOW, 0.001, 1, NOW, False, frame))
        decision = type(decision)(pod, None, diagnosis=decision.diagnosis, message=decision.message)
    assert (time.process_time() - began) / len(pods) < 1e-3
