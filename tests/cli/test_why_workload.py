"""`policyctl why` about workloads, of a control plane and of a running scheduler, both behind HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.tooling.decision_record import encode
from kube_policy_scheduler.tooling.workload_record import RecordedWorkload, WorkloadOutcome, WorkloadRecord
from tests.fakes.http_server import served
from tests.fakes.secure_cluster import SecureCluster
from tests.fleet.karmada.bindings import raw_binding, raw_cluster

RECORD = WorkloadRecord(
    time=1.8e9,
    workload=RecordedWorkload(kind="Deployment", name="web", namespace="shop", replicas=2),
    object="shop/web-deployment",
    outcome=WorkloadOutcome.PLACED,
    targets={"a": 2},
    policy="own-first",
)

POLICY = """\
for workloads where true
score 1 if cluster.name == "b"
divide best first
"""


def fleet_daemon(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
    """Answer as a daemon that knows workloads, not pods."""
    asked = parse_qs(urlsplit(request.path).query)
    if "pod" in asked:
        return 400, b"unknown parameter pod\n"
    return 200, encode(RECORD) if asked.get("workload", ["shop/web"]) == ["shop/web"] else b""


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    with served(fleet_daemon) as url:
        yield url


def test_the_last_decision_of_a_running_scheduler(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "shop/web", "--daemon", daemon, "--format=json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["headline"] == "Deployment shop/web, 2 replicas, was placed: a 2, by policy own-first"
    assert shown["record"]["targets"] == {"a": 2}


def test_a_workload_that_it_did_not_decide(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "shop/wep", "--daemon", daemon]) == 2
    assert "did you mean `shop/web`?" in capsys.readouterr().err


@pytest.fixture(scope="module")
def control() -> Iterator[Any]:
    with SecureCluster(kubelets=None, controllers=None).in_thread() as running:
        web = raw_binding("web", replicas=4, has={"a": 3})
        del web["metadata"]["resourceVersion"]
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
        running.load([*(raw_cluster(name) for name in ("a", "b")), namespace, web])
        yield running


def test_what_would_be_decided_in_a_control_plane(
    control: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config"
    control.kubeconfig(config)
    (tmp_path / "a.policy").write_text('for workloads where true\nscore 1 if cluster.name == "b"\ndivide best first\n')
    given = ["--policies", str(tmp_path / "a.policy"), "--kubeconfig", str(config), "--format=json"]
    assert run(["why", "shop/web", "--karmada", *given]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["policy"], shown["clusters"]) == ("a", {"a": 3, "b": 1})
    assert {each["cluster"]: each["roomBy"] for each in shown["verdicts"]} == {"a": "summary", "b": "summary"}


def saved(tmp_path: Path, **files: str) -> Path:
    """Write a fleet with a binding, but without clusters, and other files."""
    fleet = tmp_path / "fleet.json"
    fleet.write_text(json.dumps(raw_binding()))
    for name, text in files.items():
        (tmp_path / f"{name}.policy").write_text(text)
    return fleet


def test_policies_of_pods_alone_are_told_to_decide_no_workload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = saved(tmp_path, pods="for pods where true\nscore 1\n", workloads=POLICY)
    note = "none of the policies is of workloads, so the Placement alone decides"
    for name, told in (("pods", True), ("workloads", False)):
        assert run(["why", "shop/web", "--fleet", str(fleet), "--policies", str(tmp_path / f"{name}.policy")]) == 1
        assert (note in capsys.readouterr().err) is told
    assert run(["why", "shop/web", "--fleet", str(fleet)]) == 1
    assert note not in capsys.readouterr().err


def test_without_clusters_there_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "shop/web", "--fleet", str(saved(tmp_path))]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "Deployment shop/web, 3 replicas, by its Placement",
        "NoClusterFit: 0/0 clusters are available: no cluster exists.",
    ]


def test_a_change_is_compared_only_of_bindings_that_a_scheduler_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = saved(tmp_path, workloads=POLICY)
    follows = raw_binding()
    del follows["spec"]["placement"]
    fleet.write_text(json.dumps(follows))
    assert run(["impact", "karmada", str(tmp_path / "workloads.policy"), "--fleet", str(fleet)]) == 2
    assert "no scheduler decides any of them" in capsys.readouterr().err
