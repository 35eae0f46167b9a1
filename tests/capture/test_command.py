"""`policyctl capture` of a live cluster with a real Prometheus, and of a recorded decision."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from engine.cli.main import run
from engine.embedded import EmbeddedCluster
from engine.tooling.decision_record import DecisionRecord, Outcome, encode
from engine.tooling.snapshot.fields import recorded_objects
from tests.framework.worlds import make_node, make_pod
from tests.integration.objects import node, pod
from tests.prometheus_server import PrometheusServer


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

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "--record", "decisions.jsonl"]
    assert run(asked) == 0

    text = (world / "web.test.yaml").read_text()
    assert "now: 2027-01-15T08:00:00Z" in text
    assert "node: n2" in text
    assert run(["test", "web.test.yaml"]) == 0


def test_a_cluster_that_is_not_the_one_of_the_decision_is_refused(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log(world, "n1")

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "--record", "decisions.jsonl"]
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

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "--record", "decisions.jsonl"]
    assert run(asked) == 2

    assert said in capsys.readouterr().err


def test_a_live_decision_is_frozen_with_its_metrics_and_hides_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "policies"},
        "data": {"a.policy": 'score 100 - promql("load") ?? 0\n'},
    }
    (tmp_path / "policies.yaml").write_text(json.dumps(config_map))
    (tmp_path / "prometheus").mkdir()
    server = PrometheusServer(tmp_path / "prometheus")
    server.backfill({"load": [({"instance": f"blade-{i}:9100"}, 90.0 - 10 * i) for i in range(8)]}, age_seconds=10)
    secret = pod("web", namespace="default", command=None)
    secret["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "correct-horse"}]
    with EmbeddedCluster(kubelets=None, controllers=None).in_thread() as cluster, server:
        cluster.load([*(node(f"blade-{i}") for i in range(8)), secret])
        cluster.kubeconfig(tmp_path / "kubeconfig")
        asked = ["--policies", "policies.yaml", "--kubeconfig", "kubeconfig", "--prometheus-url", server.url]
        assert run(["capture", "web", *asked]) == 0
        assert run(["capture", "web", *asked, "--anonymise"]) == 0

    for name, shown in (("web.test.yaml", True), ("captured.test.yaml", False)):
        text = (tmp_path / name).read_text()
        assert "correct-horse" not in text
        assert ("blade" in text) is shown
        assert "policy: 'policies.yaml#data/a.policy'" in text
        assert "margin: '10 ± 0.001'" in text
        assert run(["test", name]) == 0
