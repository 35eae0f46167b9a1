"""What a cluster's own admission refuses of the scheduler's writes; only a real API server asks anybody."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from kube_policy_scheduler.cli.main import run
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.api import ApiRefusal
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.control_plane import assets
from tests.integration.objects import Json, node, pod

_VERSION = "admissionregistration.k8s.io/v1"
_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
NO = "status of pods may not be changed"


class _Denies(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"uid": asked["request"]["uid"], "allowed": False, "status": {"message": NO}}
        body = json.dumps({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def webhook(cluster: Cluster) -> Iterator[None]:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Denies)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"https://127.0.0.1:{server.server_address[1]}/"
        with _webhook(cluster, {"url": url, "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode()}):
            yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _webhook(cluster: Cluster, client: Json) -> Iterator[None]:
    one = {"name": "w.test.example", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5}
    kind = {"apiVersion": _VERSION, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "denies"}}
    cluster.api.create(
        "validatingwebhookconfigurations", kind | {"webhooks": [one | {"clientConfig": client, "rules": [_RULE]}]}
    )
    yield
    cluster.api.delete("validatingwebhookconfigurations", "denies")


@contextmanager
def dead_webhook(cluster: Cluster) -> Iterator[None]:
    with _webhook(cluster, {"url": "https://127.0.0.1:1/"}):
        yield


@contextmanager
def policy(cluster: Cluster) -> Iterator[None]:
    kind = {"apiVersion": _VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "denies"}}
    rules = {"matchConstraints": {"resourceRules": [_RULE]}, "validations": [{"expression": "false", "message": NO}]}
    cluster.api.create("validatingadmissionpolicies", kind | {"spec": rules})
    kind = {"apiVersion": _VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "denies"}}
    spec = {"policyName": "denies", "validationActions": ["Deny"]}
    cluster.api.create("validatingadmissionpolicybindings", kind | {"spec": spec})
    yield
    cluster.api.delete("validatingadmissionpolicybindings", "denies")
    cluster.api.delete("validatingadmissionpolicies", "denies")


DENIERS: dict[str, tuple[Callable[[Cluster], object], str, str, int]] = {
    "a webhook": (webhook, NO, "validating webhook w.test.example of denies", 2),
    "a webhook that does not answer": (
        dead_webhook,
        'failed calling webhook "w.test.example"',
        "validating webhook w.test.example of denies",
        0,
    ),
    "an admission policy": (policy, NO, "admission policy denies (binding denies)", 2),
}


def is_refused(cluster: Cluster) -> bool:
    """Return whether admission has heard of it by now."""
    try:
        cluster.api.patch("pods", "probe", {"status": {"message": "x"}}, subresource="status")
    except ApiRefusal:
        return True
    return False


@pytest.mark.skipif(assets() is None, reason="only a real API server asks admission: KUBEBUILDER_ASSETS names none")
@pytest.mark.parametrize("denier", DENIERS)
def test_a_condition_that_admission_refuses_comes_once_it_is_allowed(
    denier: str,
    cluster: Cluster,
    scheduler: StartScheduler,
    policies: ConfigMapVolume,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    denies, why, name, refused = DENIERS[denier]
    cluster.add_pods(pod("probe", scheduler="another"))
    with denies(cluster):  # type: ignore[attr-defined]
        eventually(lambda: is_refused(cluster))
        process = scheduler().start_ready()
        cluster.add_pods(pod("one"), pod("two"))
        eventually(lambda: process.metrics().get('policy_scheduler_write_failing{kind="pod-status"}') == 2)
        eventually(lambda: process.metrics()['policy_scheduler_writes_total{kind="pod-status",result="retried"}'] >= 6)
        assert cluster.condition("one") == cluster.condition("two") == {}
        (told,) = [entry["message"] for entry in process.log_entries() if "pod status of" in entry["message"]]
        assert told.startswith(("pod status of default/one: ", "pod status of default/two: "))
        assert why in told
        refusals = process.metrics()['policy_scheduler_write_refusals_total{kind="pod-status"}']
        assert (refusals >= 6) is bool(refused)
        code = run(
            [
                "doctor",
                f"--policies={policies.path}",
                f"--kubeconfig={cluster.kubeconfig(tmp_path / 'admin')}",
                "--format=json",
            ]
        )
        findings = json.loads(capsys.readouterr().out)["findings"]
        (finding,) = [finding for finding in findings if finding["subject"] == name]
        assert (code, finding["status"]) == (1, "warning")
        assert "pods/status" in finding["text"]
    eventually(lambda: all(cluster.condition(name) for name in ("one", "two")), within=120)
    cluster.add_nodes(node("n1"))
    cluster.wait_bound("one", "two")
