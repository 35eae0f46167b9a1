"""The port with TLS and tokens, as in every overlay: which clients have access, and the permissions for it."""

from __future__ import annotations

import base64
import json
import re
import signal
from pathlib import Path

import pytest
import requests
import yaml

from kube_policy_scheduler.tooling.decision_record import Outcome, decode_lines
from tests.deploy.manifests import DEPLOY
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.fakes.prometheus_server import PrometheusServer
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import Front
from tests.integration.kubectl import kubectl
from tests.integration.objects import node, pod
from tests.integration.process import SchedulerProcess
from tests.integration.test_permissions import ACCOUNT, HOME, secure_front, used

__all__ = ["secure_front"]

pytestmark = pytest.mark.needs("kubectl")
OPEN = ("/livez", "/readyz", "/healthz", "/livez/ping", "/readyz?verbose")
CLOSED = ("/metrics", "/", "/status", "/policies", "/configz", "/debug/decisions", "/debug/state")


get = SchedulerProcess.get_securely


@pytest.fixture
def secured(
    cluster: Cluster, secure_front: Front, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> SchedulerProcess:
    """The scheduler under the roles of deploy/base."""
    kubectl(cluster.kubeconfig(tmp_path / "admin"), "apply", "-k", str(DEPLOY / "base"))
    config = secure_front.kubeconfig(tmp_path / "kubeconfig", user={"token": cluster.token(HOME, ACCOUNT)})
    process = scheduler("--http-secure", kubeconfig=config).start_serving()
    eventually(lambda: get(process, "/readyz")[0] == 200, else_=process.log)
    return process


def account(cluster: Cluster, name: str, *, role: str) -> str:
    """Return a token of a new account that has a role."""
    group = "rbac.authorization.k8s.io"
    home = {"name": name, "namespace": "default"}
    cluster.ensure("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": home})
    cluster.ensure(
        "clusterrolebindings",
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", **home}],
        },
    )
    return cluster.token("default", name)


def test_without_permission_only_the_probes_answer(
    cluster: Cluster, secure_front: Front, secured: SchedulerProcess
) -> None:
    for path in OPEN:
        assert get(secured, path)[0] == 200, path
    for path in CLOSED:
        assert get(secured, path) == (401, "a bearer token is required\n")
        wrong = get(secured, path, authorization="Bearer guessed")
        assert wrong == (401, "the API server rejected this token\n")
    stranger = cluster.token("default", "default")
    assert get(secured, "/metrics", authorization=f"Bearer {stranger}") == (
        403,
        'user "system:serviceaccount:default:default" cannot get path "/metrics"\n',
    )
    token = account(cluster, "viewer", role="policy-scheduler-viewer")
    for path in CLOSED:
        assert get(secured, path, authorization=f"Bearer {token}")[0] == 200, path
    basic = base64.b64encode(f"me:{token}".encode()).decode()
    assert get(secured, "/status", authorization=f"Basic {basic}")[0] == 200, "as browsers ask for it"
    assert get(secured, "/nothing", authorization=f"Bearer {token}")[0] == 404

    prometheus = account(cluster, "prometheus", role="policy-scheduler-metrics")
    assert get(secured, "/metrics", authorization=f"Bearer {prometheus}")[0] == 200
    assert get(secured, "/debug/decisions", authorization=f"Bearer {prometheus}")[0] == 403
    before = len(secure_front.asked("create", "tokenreviews"))
    for _ in range(5):
        assert get(secured, "/metrics", authorization=f"Bearer {prometheus}")[0] == 200
        assert get(secured, "/metrics", authorization="Bearer another")[0] == 401
    assert len(secure_front.asked("create", "tokenreviews")) <= before + 2, "answers are kept for a short time"

    asked = used(secure_front)
    assert ("authentication.k8s.io", "tokenreviews", "create") in asked
    assert ("authorization.k8s.io", "subjectaccessreviews", "create") in asked
    refused = {(e.resource, e.verb) for e in secure_front.exchanges if e.code in (401, 403)}
    assert refused <= {("leases", "list")}, "leases of other namespaces are looked at only where a role allows it"
    for secret in ("guessed", stranger, token, prometheus, basic):
        assert secret not in secured.log()


@pytest.mark.needs("prometheus", "promtool")
def test_prometheus_scrapes_with_the_deployed_configuration(
    cluster: Cluster, secured: SchedulerProcess, tmp_path: Path
) -> None:
    monitoring = DEPLOY / "components" / "monitoring"
    (told,) = yaml.safe_load((monitoring / "service-monitor.yaml").read_text())["spec"]["endpoints"]
    binding = yaml.safe_load((monitoring / "cluster-role-binding.yaml").read_text())
    cluster.ensure("clusterrolebindings", binding)
    (who,) = binding["subjects"]
    cluster.ensure("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": who["namespace"]}})
    home = {"name": who["name"], "namespace": who["namespace"]}
    cluster.ensure("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": home})
    token = tmp_path / "token"  # mounted where told["bearerTokenFile"] says, in a pod
    token.write_text(cluster.token(who["namespace"], who["name"]))
    prometheus = PrometheusServer(tmp_path)
    prometheus.scrape(
        [secured.address],
        scheme=told["scheme"],
        authorization={"credentials_file": str(token)},
        tls_config={"insecure_skip_verify": told["tlsConfig"]["insecureSkipVerify"]},
    )
    with prometheus, requests.Session() as session:
        session.trust_env = False

        def value(query: str) -> str:
            answer = session.get(f"{prometheus.url}/api/v1/query", params={"query": query}, timeout=10).json()
            (series,) = answer["data"]["result"] or [{"value": (0, "nothing yet")}]
            return str(series["value"][1])

        eventually(lambda: (value("up"), value("policy_scheduler_build_info")) == ("1", "1"), else_=lambda: value("up"))


def test_decisions_can_be_asked_for_and_are_in_the_file(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\ndecisionLog: {directory: log}\n"
    )
    cluster.add_nodes(node("n1"), node("n2"))
    process = scheduler(f"--config={config}").start_ready()
    cluster.add_pods(pod("web"), pod("big", cpu="1000"))
    cluster.wait_bound("web")

    def asked(query: str) -> list[tuple[str, Outcome, str]]:
        code, text = process.get(f"/debug/decisions{query}")
        assert code == 200, text
        lines = [line.encode() + b"\n" for line in text.splitlines()]
        return [(r.key, r.outcome, r.node) for r in decode_lines(lines, name="answer")]

    eventually(lambda: len(asked("")) >= 2)
    (web,) = asked("?pod=default/web")
    assert web[:2] == ("default/web", Outcome.ASSIGNED)
    assert asked(f"?node={web[2]}") == [web]
    assert asked("?pod=big&limit=1") == [("default/big", Outcome.UNSCHEDULABLE, "")]
    assert asked("?pod=other") == []
    assert process.get("/debug/decisions?limit=many") == (400, "expected limit to be a number such as 100, got many\n")
    assert process.get("/debug/decisions?pods=x")[0] == 400
    assert process.get("/debug/decisions?outcome=eaten")[0] == 400
    state = json.loads(process.get("/debug/state?recount")[1])
    assert state["differences"] == []
    assert state["queue"]["unschedulable"] == 1
    assert state["pending"]["unschedulable"][0]["pod"] == "default/big"
    assert "unschedulable" in process.get("/status")[1]
    assert process.terminate() == 0
    with (tmp_path / "log" / "decisions.jsonl").open("rb") as file:
        assert {r.key for r in decode_lines(file, name="decisions.jsonl")} == {"default/web", "default/big"}


def test_sigusr2_writes_the_state(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(node("n1"))
    process = scheduler().start_ready()
    process.signal(signal.SIGUSR2)
    eventually(lambda: any("differences" in entry for entry in process.log_entries()))
    (state,) = [entry for entry in process.log_entries() if "differences" in entry]
    assert state["differences"] == []
    assert state["columns"]["nodes"] == 1


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("http: {tls: {certificateFile: gone.crt, keyFile: gone.key}}", "gone.crt does not exist"),
        ("http: {tls: {certificateFile: config.yaml, keyFile: config.yaml}}", "are not a certificate and its key"),
        ("decisionLog: {directory: config.yaml}", "cannot write to .*config.yaml/decisions.jsonl"),
    ],
)
def test_what_cannot_be_served_or_written_is_reported_at_the_start(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path, section: str, said: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n{section}\n")
    process = scheduler(f"--config={config}").start()
    assert process.exit_code() == 2
    assert "Traceback" not in process.log()
    assert re.search(said, process.log())
