"""`policyctl why` of past decisions: reported from the record, or decided again over a cluster."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.pages.reports import recorded_page
from kube_policy_scheduler.tooling.cluster_state import UnknownPod
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome, Ranked, Reading, Reason, encode
from kube_policy_scheduler.tooling.short_forms import node_object
from kube_policy_scheduler.tooling.text_table import Terminal
from kube_policy_scheduler.tooling.why.past_decision import Recorded, data, lines, recorded_of

POD = objects.Pod(
    metadata=objects.ObjectMeta(name="web", namespace="shop", uid="u1"),
    spec=objects.PodSpec(
        scheduler_name="policy-scheduler",
        containers=[objects.Container(resources=objects.ResourceRequirements(requests={"cpu": "2"}))],
    ),
)


def record(outcome: Outcome, *, time: float = 0.0, name: str = "web", **given: Any) -> DecisionRecord:
    metadata = objects.ObjectMeta(name=name, namespace="shop", uid=f"u-{name}")
    return DecisionRecord(
        time=time, pod=objects.Pod(metadata=metadata, spec=POD.spec, status=POD.status), outcome=outcome, **given
    )


REFUSED = record(
    Outcome.UNSCHEDULABLE,
    time=100.0,
    policy="card",
    nodes=3,
    attempt=2,
    message="0/3 nodes are available: 2 Insufficient cpu, 1 too hot.",
    reasons=(
        Reason(text="Insufficient cpu", nodes=2, plugin="NodeResourcesFit"),
        Reason(text="hot", nodes=1, plugin="cool"),
    ),
    refused={"NodeResourcesFit": 3, "cool": 2, "TaintToleration": 1},
    metrics=(Reading(query="cpu_usage", age_seconds=12.5, missing=1), Reading(query="disk")),
)
PLACED = record(
    Outcome.ASSIGNED,
    time=200.0,
    node="a",
    nodes=3,
    feasible=2,
    score=12.0,
    top=(Ranked(node="a", total=12, scores={"x": 10, "y": 2}), Ranked(node="b", total=5, scores={"x": 5})),
)


def test_the_last_decision_counts_and_earlier_ones_are_listed() -> None:
    found = recorded_of([PLACED, REFUSED], "web")
    assert found.record is PLACED
    text = "\n".join(lines(found, to=Terminal()))
    assert "shop/web went to a: 2 of 3 nodes fitted" in text
    assert "It led b by 7: x +5, y +2." in text
    assert "Before that:\n  1970-01-01T00:01:40Z  fitted nowhere" in text


@pytest.mark.parametrize("told", [REFUSED, PLACED], ids=["refused", "placed"])
def test_what_people_read(told: DecisionRecord, snapshot: SnapshotAssertion) -> None:
    assert "\n".join(lines(Recorded(told), to=Terminal())) == snapshot


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_words(outcome: Outcome) -> None:
    text = "\n".join(lines(Recorded(record(outcome, node="a", message="why not")), to=Terminal(colour=True)))
    assert "shop/web" in text
    assert "None" not in text


def test_the_page_says_reasons_in_the_words_of_the_text() -> None:
    html = recorded_page(data(Recorded(REFUSED)))
    assert "too little free cpu" in html
    assert "Insufficient cpu</td>" not in html


def test_names_that_are_not_there_or_not_clear() -> None:
    with pytest.raises(UnknownPod, match="did you mean `web`"):
        recorded_of([REFUSED], "wep")
    other = record(Outcome.ASSIGNED)
    other.pod.metadata.namespace = "test"
    with pytest.raises(UnknownPod, match="shop/web, test/web"):
        recorded_of([REFUSED, other], "web")
    assert recorded_of([REFUSED, other], "web", namespace="test").record is other
    with pytest.raises(UnknownPod, match="there are no decisions"):
        recorded_of([], "web")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.jsonl").write_bytes(encode(REFUSED) + encode(PLACED) + encode(record(Outcome.HELD, name="held")))
    with gzip.open(tmp_path / "log.jsonl.gz", "wb") as packed:
        packed.write(encode(REFUSED))
    nodes = [node_object({"name": name, "cpu": cpu, "mem": "8Gi"}) for name, cpu in (("a", 4), ("b", 1))]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["web", "--record", "log.jsonl"], 0, "went to a"),
        (["web", "--record", "log.jsonl.gz"], 1, "fitted nowhere"),
        (["shop/held", "--record", "log.jsonl"], 1, "was held"),
        (["wep", "--record", "log.jsonl"], 2, "did you mean `web`"),
        (["web", "--record", "none.jsonl"], 2, "none.jsonl"),
        (["web", "--record", "c.json"], 2, "expected a decision record"),
        (["web", "--record", "log.jsonl", "--daemon", "http://127.0.0.1:1"], 2, "not both"),
        (["web", "--daemon", "http://127.0.0.1:1"], 2, "nobody answers"),
    ],
)
def test_the_command_reports(
    folder: Path, arguments: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["why", *arguments]) == code
    shown = capsys.readouterr()
    assert expected in shown.out + shown.err
    assert "Traceback" not in shown.err


def test_with_a_cluster_the_pod_is_decided_again_at_its_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "web", "--record", "log.jsonl", "--cluster", "c.json", "--format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["host"], found["fits"]) == ("a", 1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), "1.37.1"), (("--kubernetes", "1.36"), "1.36"), (("--kubernetes", "1.38"), "1.38")],
    ids=["the log's", "older", "newer"],
)
def test_the_pod_is_decided_again_by_the_rules_of_the_log(
    folder: Path, options: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "log.jsonl").write_bytes(encode(msgspec.structs.replace(PLACED, kubernetes="1.37.1")))
    assert run(["why", "web", "--record", "log.jsonl"]) == 0
    assert "attempt 1, Kubernetes 1.37.1" in capsys.readouterr().out
    again = ["why", "web", "--record", "log.jsonl", "--cluster", "c.json", "--format=json", *options]
    assert run(again) == 0
    assert json.loads(capsys.readouterr().out)["kubernetes"] == expected


def test_a_log_of_an_unreadable_version_is_decided_again_by_a_given_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "log.jsonl").write_bytes(encode(msgspec.structs.replace(PLACED, kubernetes="2.0")))
    again = ["why", "web", "--record", "log.jsonl", "--cluster", "c.json"]
    assert run(again) == 2
    assert "the decision about shop/web: expected a version of Kubernetes" in capsys.readouterr().err
    assert run([*again, "--kubernetes", "1.37"]) == 0


@pytest.mark.parametrize("name", ["web", "held"])
def test_the_page_is_made_of_any_record(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["why", name, "--record", "log.jsonl", "--html", "page.html"])
    text = (folder / "page.html").read_text()
    assert f"shop/{name}" in text
    assert "None" not in text
