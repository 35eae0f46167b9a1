"""The decisions about workloads that a fleet's daemon keeps."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from kube_policy_scheduler.adapters.files.rotating_file import FileError
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.fleet import workload_log
from kube_policy_scheduler.daemon.fleet.engine import FleetDecision
from kube_policy_scheduler.daemon.fleet.fleet_records import FleetRecords
from kube_policy_scheduler.daemon.fleet.workload_log import WorkloadLog
from kube_policy_scheduler.fleet.model import Outcome, Reason, Verdict
from kube_policy_scheduler.tooling.decision_record import decode_lines_as
from kube_policy_scheduler.tooling.workload_record import (
    MOST_CLUSTERS,
    RecordedCluster,
    RecordedWorkload,
    WorkloadOutcome,
    WorkloadRecord,
)


def record(
    name: str = "web", at: float = 0.0, outcome: WorkloadOutcome = WorkloadOutcome.UNPLACED, message: str = "no room"
) -> WorkloadRecord:
    workload = RecordedWorkload(kind="Deployment", name=name, namespace="shop")
    return WorkloadRecord(
        time=at, workload=workload, object=f"shop/{name}-deployment", outcome=outcome, message=message,
        targets={"a": 1} if outcome is WorkloadOutcome.PLACED else {},
    )  # fmt: skip


def selected(log: WorkloadLog, limit: int = 100, **wanted: str) -> list[WorkloadRecord]:
    steps = log.select(**wanted, limit=limit)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[WorkloadRecord] = end.value
            return found


def decision(outcome: Outcome, became: WorkloadOutcome = WorkloadOutcome.PLACED, **given: object) -> FleetDecision:
    return FleetDecision(
        key=("shop", "web-deployment"),
        generation=3,
        workload=RecordedWorkload(kind="Deployment", name="web", namespace="shop", replicas=4),
        outcome=outcome,
        became=became,
        **given,  # type: ignore[arg-type]  # of the fields by their names
    )


def test_what_says_the_same_again_is_counted_for_some_time() -> None:
    log = WorkloadLog(DecisionLogSettings(repeat_after=60.0))
    for at in (0.0, 10.0, 50.0):
        log.note(record(at=at))
    (kept,) = selected(log)
    assert (kept.repeats, kept.last, log.decided) == (2, 50.0, 3)
    log.note(record(at=61.0))
    log.note(record(at=62.0, message="another reason"))
    log.note(record(at=63.0, outcome=WorkloadOutcome.FAILED))
    assert [each.time for each in selected(log)] == [63.0, 62.0, 61.0, 0.0]


def test_each_placement_is_kept() -> None:
    log = WorkloadLog(DecisionLogSettings())
    for at in (0.0, 1.0):
        log.note(record(at=at, outcome=WorkloadOutcome.PLACED))
    assert len(selected(log)) == 2


def test_the_oldest_go_first_and_the_latest_of_an_object_is_found() -> None:
    log = WorkloadLog(DecisionLogSettings(kept=2))
    for at, name in enumerate(("a", "b", "c")):
        log.note(record(name, float(at)))
    assert [each.workload.name for each in log.newest(5)] == ["c", "b"]
    assert log.latest("shop/a-deployment") is None
    assert log.latest("shop/b-deployment") == record("b", 1.0)


def test_large_records_shorten_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_log, "MOST_BYTES", 5_000)
    log = WorkloadLog(DecisionLogSettings())
    for number in range(100):
        log.note(record(f"w{number}", message="m" * 1000))
    assert 1 <= len(selected(log)) <= 5


def test_what_is_said_of_clusters_counts_as_part_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_log, "MOST_BYTES", 200_000)
    log = WorkloadLog(DecisionLogSettings())
    clusters = tuple(RecordedCluster(f"c{number}", why="w" * 1000, rejected_by="r" * 1000) for number in range(20))
    for number in range(100):
        log.note(msgspec.structs.replace(record(f"w{number}"), clusters=clusters))
    assert 1 <= len(selected(log)) <= 5


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["b", "a"]),
        ({"workload": "a"}, ["a"]),
        ({"workload": "shop/a"}, ["a"]),
        ({"workload": "shop/a-deployment"}, ["a"]),
        ({"workload": "a-deployment"}, ["a"]),
        ({"cluster": "a"}, ["b"]),
        ({"outcome": "unplaced"}, ["a"]),
        ({"workload": "none"}, []),
    ],
)
def test_decisions_are_selected(wanted: dict[str, str], names: list[str]) -> None:
    log = WorkloadLog(DecisionLogSettings())
    log.note(record("a"))
    log.note(record("b", outcome=WorkloadOutcome.PLACED))
    assert [each.workload.name for each in selected(log, **wanted)] == names


def test_nothing_is_kept_where_none_is_asked_for() -> None:
    log = WorkloadLog(DecisionLogSettings(kept=0))
    log.note(record())
    assert (selected(log), log.decided) == ([], 1)


def test_a_record_names_the_clusters_with_replicas_the_best_others_and_counts_the_rest(tmp_path: Path) -> None:
    verdicts = {f"c{n:03}": Verdict(score=float(n)) for n in range(100)}
    verdicts |= {f"r{n:03}": Verdict("filter cluster.ready", "it is not ready") for n in range(300)}
    outcome = Outcome(Reason.SUCCESS, "done", {"c000": 3, "r001": 1}, verdicts=verdicts, policy="own-first")
    settings = DecisionLogSettings(directory=tmp_path)
    records = FleetRecords(settings, replica="r", clock=lambda: 7.0)
    records.note(decision(outcome, before={"gone": 4}, trigger="the placement changed"), 0.5)
    asyncio.run(records.file.close())
    with (tmp_path / "decisions.jsonl").open("rb") as file:
        (found,) = decode_lines_as(WorkloadRecord, file, name="decisions.jsonl")
    assert [found] == records.log.newest(1)
    assert (found.policy, found.generation, found.seconds, found.total) == ("own-first", 3, 0.5, 400)
    assert [each.cluster for each in found.clusters[:4]] == ["c000", "r001", "gone", "c099"]
    assert len(found.clusters) == 3 + MOST_CLUSTERS
    assert found.rejected == {"filter cluster.ready": 300}
    assert records.file.tallies() == {"written": 1, "dropped": 0}


def test_what_could_not_be_written_says_why() -> None:
    records = FleetRecords(DecisionLogSettings(), replica="r")
    outcome = Outcome(Reason.SUCCESS, "done", {"a": 1})
    records.note(decision(outcome, WorkloadOutcome.FAILED, problem="no answer"), 0.0)
    (found,) = records.log.newest(1)
    assert (found.outcome, found.message) == (WorkloadOutcome.FAILED, "no answer")


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write to"):
        FleetRecords(DecisionLogSettings(directory=tmp_path / "file"), replica="r")


@pytest.mark.parametrize(
    ("became", "level", "text"),
    [
        (WorkloadOutcome.PLACED, "INFO", "Placed workload"),
        (WorkloadOutcome.UNPLACED, "INFO", "Unable to place workload"),
        (WorkloadOutcome.REFUSED, "WARNING", "The API server refused the decision about a workload"),
        (WorkloadOutcome.FAILED, "WARNING", "Error writing the decision about a workload; retrying"),
    ],
)
def test_each_decision_has_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture, became: WorkloadOutcome, level: str, text: str
) -> None:
    caplog.set_level(logging.INFO)
    records = FleetRecords(DecisionLogSettings(), replica="r", clock=lambda: 7.0)
    for _ in range(2):
        records.note(decision(Outcome(Reason.UNSCHEDULABLE, "no room"), became), 0.0)
    lines = [(each.levelname, each.message) for each in caplog.records]
    assert lines == [(level, text)] * (2 if became is WorkloadOutcome.PLACED else 1)  # the same failure once
