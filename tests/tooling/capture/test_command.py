"""`policyctl capture` of a live cluster with a real Prometheus, and of a recorded decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.embedded import EmbeddedCluster
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome, encode
from kube_policy_scheduler.tooling.snapshot.fields import recorded_objects
from tests.fakes.prometheus_server import PrometheusServer
from tests.framework.worlds import make_node, make_pod
from tests.integration.objects import node, pod


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


def log(folder: Path, node: str, **more: Any) -> None:
    pod = make_pod("web", {"cpu": "1"})
    pod.spec.scheduler_name = "policy-scheduler"
    record = DecisionRecord(
        time=1_800_000_000.5, pod=pod, outcome=Outcome.ASSIGNED, node=node, policy="a", seed=7, **more
    )
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


def test_the_last_decision_of_the_log_is_frozen_with_its_kubernetes(world: Path) -> None:
    log(world, "n2", kubernetes="1.37.1")

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "--record", "decisions.jsonl"]
    assert run(asked) == 0

    assert "kubernetes: '1.37.1'" in (world / "web.test.yaml").read_text()
    assert run(["test", "web.test.yaml"]) == 0


def test_feature_gates_are_frozen_with_the_kubernetes(world: Path) -> None:
    log(world, "n2", kubernetes="1.37.1,VolumeLimitScaling=false")

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "--record", "decisions.jsonl"]
    assert run([*asked, "--feature-gates", "StorageCapacityScoring=false"]) == 0

    text = (world / "web.test.yaml").read_text()
    assert "kubernetes: '1.37.1'" in text
    assert "StorageCapacityScoring=false" in text
    assert "VolumeLimitScaling=false" in text
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
    [(b"", "decisions.jsonl is empty"), (b"{]\n", "decisions.jsonl:1"), (None, "decisions.jsonl does not exist")],
)
def test_a_file_that_is_not_a_log_is_reported(
    world: Path, content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (world / "decisions.jsonl").write_bytes(content)

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "--record", "decisions.jsonl"]
    assert run(asked) == 2

    assert said in capsys.readouterr().err


@pytest.mark.long
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


def web_pod(folder: Path, **short: object) -> None:
    """Put another cluster into the folder, in which `web` has no node yet."""
    nodes = [make_node(f"n{i}", {"labels": {}, "cpu": str(4 + i)}) for i in range(3)]
    waiting = make_pod("web", {"cpu": "1", **short})
    waiting.spec.scheduler_name = "policy-scheduler"
    waiting.metadata.owner_references = [objects.OwnerReference("ReplicaSet", "web-1", "u", "apps/v1", True)]
    things = recorded_objects([*nodes, waiting])
    (folder / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": things}))


@pytest.mark.parametrize(
    "chosen",
    [
        "pod label tier=web",
        "pod.label.tier",
        'pod.label.tier == "web" and pod.label.app in ["shop", "blog"]',
        'pod.namespace == "default" and pod label tier notin (db)',
        'pod.owner.kind == "ReplicaSet"',
        "pod.priority > 5",
        "canary of b for 100%",
        "canary of b for pods where pod label tier=web",
    ],
)
@pytest.mark.parametrize("hidden", [False, True])
def test_a_policy_that_chooses_its_pods_decides_in_the_test_too(world: Path, chosen: str, hidden: bool) -> None:
    web_pod(world, labels={"tier": "web", "app": "shop"}, priority=9)
    header = chosen if chosen.startswith("canary") else f"for pods where {chosen}"
    (world / "a.policy").write_text(f"{header}\nscore node.free.cpu\n")
    (world / "b.policy").write_text("score 0 - node.free.cpu\n")

    asked = ["capture", "web", "--policies", ".", "--cluster", "cluster.json", "-o", "web.test.yaml"]
    assert run([*asked, *(["--anonymise"] if hidden else [])]) == 0

    assert "margin: '1 ± 0.001'" in (world / "web.test.yaml").read_text()
    assert run(["test", "web.test.yaml"]) == 0


def test_a_policy_that_does_not_govern_the_pod_cannot_be_captured(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web_pod(world, labels={"tier": "db"})
    (world / "a.policy").write_text("for pods where pod label tier=web\nscore node.free.cpu\n")

    asked = ["capture", "web", "--policies", "a.policy", "--policy", "a", "--cluster", "cluster.json"]
    assert run(asked) == 2

    said = capsys.readouterr().err
    assert "policy `a` does not govern the pod: it is `for pods where pod label tier=web`" in said
    assert not (world / "web.test.yaml").exists()


def test_pseudonyms_under_which_no_policy_governs_the_pod_are_reported(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web_pod(world, labels={"tier": "web-frontend"})
    (world / "a.policy").write_text('for pods where startswith(pod.label.tier, "web")\nscore node.free.cpu\n')

    asked = ["capture", "web", "--policies", "a.policy", "--cluster", "cluster.json", "-o", "web.test.yaml"]
    assert run([*asked, "--anonymise"]) == 2
    said = capsys.readouterr().err
    assert "give --keep LABEL" in said

    assert run([*asked, "--anonymise", "--keep", "tier"]) == 0
    assert run(["test", "web.test.yaml"]) == 0
