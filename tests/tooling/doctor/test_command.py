"""`policyctl doctor` against a cluster behind HTTP with roles, and a real Prometheus."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.embedded import User
from tests.deploy.manifests import objects
from tests.embedded.refusals import Refusals
from tests.fakes.prometheus_server import PrometheusServer
from tests.fakes.secure_cluster import SecureCluster
from tests.integration.objects import ZONE, node, pod

ROBOT = User("system:serviceaccount:policy-scheduler:policy-scheduler")
POLICY = """\
filter node.label.disk == "ssd"
score -promql("node_load") ?? 0
score -promql("temperature") ?? 0
score -promql("twice") ?? 0
score -promql("nothing_at_all") ?? 0
score -promql("old") ?? 0
"""
REFUSALS = Refusals()


@pytest.fixture(scope="module")
def cluster() -> Iterator[SecureCluster]:
    with SecureCluster(kubelets=None, controllers=None, intercept=REFUSALS).in_thread() as running:
        running.load(node(f"n{i}", labels={ZONE: "ab"[i % 2], "disk": "ssd" if i else "hdd"}) for i in range(3))
        running.load([pod("web"), pod("other", scheduler="default-scheduler")])
        running.load(one for one in objects() if one["kind"] in ("ClusterRole", "ClusterRoleBinding"))
        yield running


@pytest.fixture
def kubeconfig(cluster: SecureCluster, tmp_path: Path) -> str:
    path = tmp_path / "kubeconfig"
    cluster.kubeconfig(path)
    return str(path)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "a.policy"
    path.write_text(POLICY)
    return str(path)


def examined(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int
) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Return status, text and advice by check and subject."""
    assert run(["doctor", *arguments, "--format=json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {(one["check"], one["subject"]): (one["status"], one["text"], one["advice"]) for one in found["findings"]}


@pytest.mark.long
def test_a_real_prometheus_is_queried_and_each_problem_is_reported(
    kubeconfig: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = PrometheusServer(folder)
    server.backfill(
        {
            "node_load": [({"node": f"n{i}"}, 1.0 + i) for i in range(3)],
            "temperature": [({"machine": f"n{i}"}, 50.0 + i) for i in range(3)],
            "twice": [({"node": f"n{i}", "core": core}, i + float(core)) for i in range(3) for core in "01"],
        },
        age_seconds=5,
    )
    server.backfill({"old": [({"node": f"n{i}"}, 1.0) for i in range(3)]}, age_seconds=100)
    with server:
        asked = ["--policies", policy, "--kubeconfig", kubeconfig, "--prometheus-url", server.url]
        found = examined(capsys, *asked, code=1)

    assert found["metrics", 'promql("node_load")'] == ("ok", "on 3 of 3 nodes", "")
    assert found["metrics", 'promql("temperature")'][0] == "problem"
    assert 'promql("temperature", by="machine")' in found["metrics", 'promql("temperature")'][2]
    assert "differ in `core`" in found["metrics", 'promql("twice")'][2]
    assert found["metrics", 'promql("nothing_at_all")'][:2] == ("problem", "Prometheus has no series for it now")
    assert found["metrics", 'promql("old")'][0] == "warning"
    assert found["clocks", "prometheus"][0] == "ok"
    assert found["clocks", "API server"] == ("ok", "its clock agrees with the local clock", "")
    assert found["permissions", "this account"][0] == "ok"


def test_the_deployed_role_is_enough_and_missing_permissions_are_reported(
    cluster: SecureCluster, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    robot = tmp_path / "robot"
    cluster.kubeconfig(robot, user=ROBOT)
    asked = ["--policies", policy, "--metrics", str(tmp_path / "none.yaml")]
    (tmp_path / "none.yaml").write_text("absent: [node_load, temperature, twice, nothing_at_all, old]\n")
    found = examined(capsys, *asked, "--kubeconfig", str(robot), code=1)
    assert found["permissions", "this account"][:2] == ("ok", "has all permissions that a scheduler needs")

    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["*"], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}
    meta = {"metadata": {"name": "viewer"}}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "viewer"}
    subject = {"kind": "User", "apiGroup": group, "name": "viewer"}
    cluster.load(
        [
            {"apiVersion": f"{group}/v1", "kind": "ClusterRole", **meta, "rules": [rule]},
            {"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", **meta, "roleRef": role, "subjects": [subject]},
        ]
    )
    cluster.kubeconfig(tmp_path / "viewer", user=User("viewer"))
    found = examined(capsys, *asked, "--kubeconfig", str(tmp_path / "viewer"), code=1)
    status, text, _ = found["permissions", "this account"]
    assert status == "problem"
    assert "create pods/binding" in text
    assert "list/watch nodes" not in text


def test_an_unreachable_server_does_not_pass(
    cluster: SecureCluster, kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "b.policy"
    policy.write_text("filter node.ready\nscore node.free.cpu\n")
    REFUSALS.add("create", "selfsubjectaccessreviews", times=math.inf)
    try:
        asked = ["--policies", str(policy), "--kubeconfig", kubeconfig]
        found = examined(capsys, *asked, code=1)  # all nodes are as free: that is a warning
        assert found["permissions", "this account"][0] == "could-not-check"
    finally:
        REFUSALS.clear()


def test_a_prometheus_that_is_away_is_could_not_check(
    kubeconfig: str, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--policies", policy, "--kubeconfig", kubeconfig, "--prometheus-url", "http://127.0.0.1:9"]
    found = examined(capsys, *asked, code=1)

    assert {found[key][0] for key in found if key[0] == "metrics"} == {"could-not-check"}
    assert found["clocks", "prometheus"][0] == "could-not-check"


@pytest.mark.parametrize("url", ["localhost:9090", "http://localhost:port", "http://localhost:99999", "http://[::1"])
def test_an_invalid_prometheus_url_is_a_usage_error(url: str, policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--policies", policy, "--prometheus-url", url]) == 2
    assert f"expected a URL such as http://127.0.0.1:9090, got '{url}'" in capsys.readouterr().err


def test_a_webhook_that_can_refuse_conditions_is_reported(
    cluster: SecureCluster, kubeconfig: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none.yaml").write_text("absent: [node_load, temperature, twice, nothing_at_all, old]\n")
    asked = ["--policies", policy, "--metrics", str(tmp_path / "none.yaml")]
    found = examined(capsys, *asked, "--kubeconfig", kubeconfig, code=1)
    assert found["admission", "pods/binding and pods/status"][0] == "ok"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/*"]}]
    client = {"url": "https://127.0.0.1:1"}
    webhook = {"name": "w.example", "rules": rules, "clientConfig": client, "sideEffects": "None"}
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    group = {"apiVersion": "admissionregistration.k8s.io/v1"}
    versions = {"admissionReviewVersions": ["v1"]}
    cluster.load(
        {**group, "kind": kind, "metadata": {"name": "strict"}, "webhooks": [webhook | versions]} for kind in kinds
    )
    found = examined(capsys, *asked, "--kubeconfig", kubeconfig, code=1)
    for kind in ("mutating", "validating"):
        status, text, advice = found["admission", f"{kind} webhook w.example of strict"]
        assert status == "warning"
        assert text.startswith("sees pods/status within 10 s")
        assert "exempt the service account" in advice
    cluster.kubeconfig(tmp_path / "viewer", user=User("viewer"))
    found = examined(capsys, *asked, "--kubeconfig", str(tmp_path / "viewer"), code=1)
    status, text, _ = found["admission", "pods/binding and pods/status"]
    assert status == "could-not-check"
    assert "mutatingwebhookconfigurations" in text
