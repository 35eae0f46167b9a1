"""What a cluster's own admission refuses of the scheduler's writes; only a real API server asks anybody."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
    try:
        yield
    finally:
        cluster.api.delete("validatingwebhookconfigurations", "denies")


def dead_webhook(cluster: Cluster) -> AbstractContextManager[None]:
    return _webhook(cluster, {"url": "https://127.0.0.1:1/"})


@contextmanager
def _policy(cluster: Cluster, kind: str, plural: str, rules: Json, binding: Json) -> Iterator[None]:
    metadata = {"apiVersion": _VERSION, "metadata": {"name": "denies"}}
    policies, bindings = f"{plural}policies", f"{plural}policybindings"
    spec = {"matchConstraints": {"resourceRules": [_RULE]}, **rules}
    cluster.api.create(policies, {**metadata, "kind": f"{kind}Policy", "spec": spec})
    spec = {"policyName": "denies", **binding}
    cluster.api.create(bindings, {**metadata, "kind": f"{kind}PolicyBinding", "spec": spec})
    try:
        yield
    finally:
        cluster.api.delete(bindings, "denies")
        cluster.api.delete(policies, "denies")


def policy(cluster: Cluster) -> AbstractContextManager[None]:
    rules = {"validations": [{"expression": "false", "message": NO}]}
    binding = {"validationActions": ["Deny"]}
    return _policy(cluster, "ValidatingAdmission", "validatingadmission", rules, binding)


def mutating_policy(cluster: Cluster) -> AbstractContextManager[None]:
    """One that cannot be applied, which counts as a no."""
    try:
        cluster.api.list("mutatingadmissionpolicies")
    except ApiRefusal:
        pytest.skip("this API server has no MutatingAdmissionPolicies")
    patch = {"expression": '[JSONPatch{op: "remove", path: "/status/absent"}]'}
    rules = {"reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": patch}]}
    return _policy(cluster, "MutatingAdmission", "mutatingadmission", rules, {})


DENIERS: dict[str, tuple[Callable[[Cluster], AbstractContextManager[None]], str, str, bool]] = {
    # what it is, what the log says, what doctor calls it, whether the API server says no (or that it failed)
    "a webhook": (webhook, NO, "validating webhook w.test.example of denies", True),
    "a webhook that does not answer": (
        dead_webhook,
        'failed calling webhook "w.test.example"',
        "validating webhook w.test.example of denies",
        False,
    ),
    "a mutating policy": (mutating_policy, "denies", "mutating admission policy denies (binding denies)", True),
    "an admission policy": (policy, NO, "admission policy denies (binding denies)", True),
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
    with denies(cluster):
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
        assert (refusals >= 6) is refused
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
