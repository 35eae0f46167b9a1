"""`policyctl why` about workloads, of a control plane and of a running scheduler, both behind HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.tooling.decision_record import encode
from kube_policy_scheduler.tooling.workload_record import RecordedWorkload, WorkloadOutcome, WorkloadRecord
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


class FleetDaemon(BaseHTTPRequestHandler):
    """Knows workloads, not pods."""

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        status = 400 if "pod" in asked else 200
        is_known = asked.get("workload", ["shop/web"]) == ["shop/web"]
        body = b"unknown parameter pod\n" if status == 400 else encode(RECORD) if is_known else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), FleetDaemon) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


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
