"""Authentication and authorization: tokens, certificates, roles; and the audit log."""

from __future__ import annotations

import gc
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from kube_policy_scheduler.embedded import EmbeddedCluster, User, service_account
from tests.embedded.rest import Answer, Client
from tests.fakes.secure_cluster import SecureCluster
from tests.patience import PATIENCE_SECONDS

ROBOT = service_account("kube-system", "robot")


@pytest.fixture
def cluster() -> Iterator[SecureCluster]:
    with SecureCluster(kubelets=None).in_thread() as running:
        yield running


class Asker:
    """Sends requests with a token, or a client certificate, or neither."""

    def __init__(self, cluster: SecureCluster, *, token: str = "", certificate: Path | None = None) -> None:
        authority = cluster.certificate_authority
        context = ssl.create_default_context(cadata=authority.decode())
        if certificate is not None:
            context.load_cert_chain(certificate)
        self._client = Client(cluster.url, context, {"Authorization": f"Bearer {token}"} if token else {})

    def send(self, method: str, path: str, body: Any = None) -> Answer:
        return self._client.send(method, path, body=body)


def allow(cluster: SecureCluster, user: User, namespace: str = "", **rule: list[str]) -> None:
    group = "rbac.authorization.k8s.io"
    kind = "Role" if namespace else "ClusterRole"
    meta = {"name": "granted"} | ({"namespace": namespace} if namespace else {})
    subject = {"kind": "User", "apiGroup": group, "name": user.name}
    cluster.load(
        [
            {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "rules": [{"apiGroups": [""], **rule}]},
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{kind}Binding",
                "metadata": meta,
                "roleRef": {"apiGroup": group, "kind": kind, "name": "granted"},
                "subjects": [subject],
            },
        ]
    )


def test_without_a_credential_there_is_no_access(cluster: SecureCluster) -> None:
    answer = Asker(cluster).send("GET", "/api/v1/pods")
    assert (answer.code, answer.body["reason"]) == (401, "Unauthorized")
    assert Asker(cluster, token="guessed").send("GET", "/api/v1/pods").code == 401


def test_what_no_role_allows_is_refused_in_the_words_people_know(cluster: SecureCluster) -> None:
    robot = Asker(cluster, token=cluster.tokens.issue(ROBOT))
    answer = robot.send("GET", "/api/v1/namespaces/default/pods")
    assert answer.code == 403
    assert answer.body["message"] == (
        'pods is forbidden: User "system:serviceaccount:kube-system:robot" cannot list resource "pods" in API group "" '
        'in the namespace "default"'
    )
    named = robot.send("POST", "/api/v1/namespaces/default/pods/p/binding", {})
    assert named.body["message"].startswith('pods "p" is forbidden: User "system:serviceaccount:kube-system:robot" ')
    assert 'cannot create resource "pods/binding"' in named.body["message"]
    assert robot.send("GET", "/api/v1/nodes").body["message"].endswith("at the cluster scope")


def test_a_role_allows_what_it_says_where_it_says_it(cluster: SecureCluster) -> None:
    robot = Asker(cluster, token=cluster.tokens.issue(ROBOT))
    allow(cluster, ROBOT, "default", resources=["pods"], verbs=["list"])
    assert robot.send("GET", "/api/v1/namespaces/default/pods").code == 200
    assert robot.send("GET", "/api/v1/namespaces/kube-system/pods").code == 403
    assert robot.send("GET", "/api/v1/pods").code == 403
    assert robot.send("GET", "/api/v1/namespaces/default/pods/p").code == 403


def test_a_resource_does_not_include_its_subresources(cluster: SecureCluster) -> None:
    robot = Asker(cluster, token=cluster.tokens.issue(ROBOT))
    allow(cluster, ROBOT, resources=["pods"], verbs=["*"])
    assert robot.send("POST", "/api/v1/namespaces/default/pods/p/binding", {}).code == 403
    assert robot.send("GET", "/api/v1/namespaces/default/pods/p").code == 404


def test_names_narrow_a_rule(cluster: SecureCluster) -> None:
    robot = Asker(cluster, token=cluster.tokens.issue(ROBOT))
    allow(cluster, ROBOT, resources=["configmaps"], verbs=["get"], resourceNames=["mine"])
    assert robot.send("GET", "/api/v1/namespaces/default/configmaps/mine").code == 404
    assert robot.send("GET", "/api/v1/namespaces/default/configmaps/other").code == 403


def test_a_field_selector_that_lets_one_name_pass_is_about_that_name(cluster: SecureCluster) -> None:
    robot = Asker(cluster, token=cluster.tokens.issue(ROBOT))
    allow(cluster, ROBOT, resources=["configmaps"], verbs=["list", "watch"], resourceNames=["mine"])
    path = "/api/v1/namespaces/default/configmaps"
    assert robot.send("GET", f"{path}?fieldSelector=metadata.name%3Dmine").code == 200
    assert robot.send("GET", f"{path}?fieldSelector=metadata.name%3Dother").code == 403
    assert robot.send("GET", f"{path}?fieldSelector=metadata.name%21%3Dmine").code == 403
    assert robot.send("GET", path).code == 403


def test_authenticated_users_may_use_discovery(cluster: SecureCluster) -> None:
    robot = Asker(cluster, token=cluster.tokens.issue(ROBOT))
    assert robot.send("GET", "/api/v1").code == 200
    assert robot.send("GET", "/version").code == 200


def test_access_reviews_agree_with_requests(cluster: SecureCluster) -> None:
    robot = Asker(cluster, token=cluster.tokens.issue(ROBOT))
    allow(cluster, ROBOT, resources=["pods"], verbs=["list"])
    review = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review["kind"] = "SelfSubjectAccessReview"  # type: ignore[assignment]
    assert robot.send("POST", path, review).body["status"] == {"allowed": True}
    review["spec"]["resourceAttributes"]["verb"] = "delete"
    assert robot.send("POST", path, review).body["status"] == {"allowed": False}


def test_a_client_certificate_authenticates_a_user(cluster: SecureCluster, tmp_path: Path) -> None:
    config = yaml.safe_load(cluster.kubeconfig(user=User("system:kube-scheduler"), certificate=True))
    user = config["users"][0]["user"]
    assert "token" not in user
    import base64

    pem = tmp_path / "client.pem"
    pem.write_bytes(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
    scheduler = Asker(cluster, certificate=pem)
    assert scheduler.send("GET", "/api/v1/nodes").code == 200
    assert "system:kube-scheduler" in scheduler.send("DELETE", "/api/v1/nodes/n").body["message"]


def test_a_revoked_token_is_worthless(cluster: SecureCluster) -> None:
    token = cluster.tokens.issue(ROBOT)
    robot = Asker(cluster, token=token)
    assert robot.send("GET", "/version").code == 200
    cluster.tokens.revoke(token)
    assert robot.send("GET", "/version").code == 401


def test_a_token_request_gives_a_token_of_the_service_account(cluster: SecureCluster) -> None:
    admin = Asker(cluster, token=yaml.safe_load(cluster.kubeconfig())["users"][0]["user"]["token"])
    admin.send("POST", "/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "robot"}})
    answer = admin.send("POST", "/api/v1/namespaces/kube-system/serviceaccounts/robot/token", {"spec": {}})
    robot = Asker(cluster, token=answer.body["status"]["token"])
    assert "kube-system:robot" in robot.send("GET", "/api/v1/pods").body["message"]


@pytest.mark.parametrize("handshake", [True, False], ids=["idle", "in the middle of the handshake"])
def test_connections_end_with_the_server_even_if_the_client_does_nothing(handshake: bool) -> None:
    with SecureCluster(kubelets=None).in_thread() as cluster:
        parts = urlsplit(cluster.url)
        connection = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS)
        context = ssl.create_default_context(cadata=cluster.certificate_authority.decode())
        if handshake:
            connection = context.wrap_socket(connection, server_hostname=parts.hostname)
            connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(8) == b"HTTP/1.1"
    with connection, suppress(ConnectionResetError):
        while connection.recv(4096):
            pass  # the rest of the answer
    gc.collect()  # an open connection would be reported here


def said_to(url: str, text: str) -> str:
    """Send a text to a server; return the first line of its answer."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as connection:
        connection.sendall(text.encode())
        return connection.makefile(encoding="latin-1").readline().strip()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", "200"),
        ("localhost", "200"),
        ("LOCALHOST.:80", "200"),
        ("demo.localhost:1", "200"),
        ("[::1]:8080", "200"),
        ("evil.example", "421"),
        ("evil.example:80", "421"),
        ("localhost.evil.example", "421"),
        ("127.0.0.1.evil.example", "421"),
        ("10.0.0.1", "421"),
    ],
)
def test_only_this_machine_is_meant(host: str, status: str) -> None:
    """A page in a browser may have its own name point to this machine, while `make demo` runs."""
    with EmbeddedCluster(kubelets=None, controllers=None).in_thread() as cluster:
        for path in ("/api/v1/nodes", "/version", "/readyz"):
            assert said_to(cluster.url, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").split()[1] == status
        post = f"POST /api/v1/nodes HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\n{{}}"
        assert (said_to(cluster.url, post).split()[1] == "421") == (status == "421")


def test_what_is_no_request_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(kubelets=None, controllers=None).in_thread() as cluster:
        for text in ("nothing\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"):
            assert said_to(cluster.url, text).split()[1] == "400"
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]
