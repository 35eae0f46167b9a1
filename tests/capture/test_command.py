"""`policyctl capture` of a recorded decision."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from engine.cli.main import run
from engine.tooling.decision_record import DecisionRecord, Outcome, encode
from engine.tooling.snapshot.fields import recorded_objects
from tests.framework.worlds import make_node, make_pod


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    nodes = [make_node(f"n{i}", {"labels": {}, "cpu": str(4 + i)}) for i in range(3)]
    bound = make_pod("web", {"cpu": "1"})
    bound.spec.scheduler_name, bound.spec.node_name = "policy-scheduler", "n0"
    things = recorded_objects([*nodes, bound])
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": things}))
    (tmp_path / "a.policy").write_text("score node.free.cpu\n")
    return tmp_path


def log(folder: Path, node: str) -> None:
    pod = make_pod("web", {"cpu": "1"})
    pod.spec.scheduler_name = "policy-scheduler"
    record = DecisionRecord(time=1_800_000_000.5, pod=pod, outcome=Outcome.ASSIGNED, node=node, policy="a", seed=7)
    earlier = msgspec.structs.replace(record, time=1_700_000_000.0, node="elsewhere")
    (folder / "decisions.jsonl").write_bytes(encode(earlier) + encode(record))


def test_the_last_decision_of_the_log_is_frozen_with_its_clock(world: Path) -> None:
    log(world, "n2")

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "--log", "decisions.jsonl"]
    assert run(asked) == 0

    text = (world / "web.test.yaml").read_text()
    assert "now: '2027-01-15T08:00:00Z'" in text
    assert "node: n2" in text
    assert run(["test", "web.test.yaml"]) == 0


def test_a_cluster_that_is_not_the_one_of_the_decision_is_refused(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log(world, "n1")

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "--log", "decisions.jsonl"]
    assert run(asked) == 2

    assert "the log says that the pod went to n1, on this cluster it goes to n2" in capsys.readouterr().err
    assert not (world / "web.test.yaml").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "has no decision about `web`"), (b"{]\n", "decisions.jsonl:1"), (None, "cannot read decisions.jsonl")],
)
def test_a_log_that_is_none_is_said(
    world: Path, content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (world / "decisions.jsonl").write_bytes(content)

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "--log", "decisions.jsonl"]
    assert run(asked) == 2

    assert said in capsys.readouterr().err
