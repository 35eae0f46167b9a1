"""Every way to reach an API server that people's kubeconfigs and pods have."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import Json, node, pod

ACCOUNT = "tester"


def kubeconfig(cluster: Cluster, path: Path, user: Json) -> Path:
    """Write a kubeconfig with this user."""
    config = yaml.safe_load(cluster.kubeconfig(path).read_text())
    config["users"] = [{"name": "admin", "user": user}]
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def token(cluster: Cluster) -> str:
    """A token of a service account that may do everything."""
    cluster.ensure(
        "serviceaccounts",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "default"}},
    )
    cluster.ensure(
        "clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
        },
    )
    return cluster.token("default", ACCOUNT)


def plugin(path: Path, credential: Json) -> Json:
    """Make an exec plugin that counts its runs in a file beside it."""
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": credential,
    }
    path.write_text(
        f"#!{sys.executable}\n"
        f"open({str(path) + '.runs'!r}, 'a').write('x')\n"
        f"print(open({str(path) + '.json'!r}).read())\n"
    )
    path.with_name(path.name + ".json").write_text(json.dumps(answer))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(path),
            "interactiveMode": "Never",
        }
    }


def binds(cluster: Cluster, name: str = "web") -> None:
    cluster.add_pods(pod(name))
    cluster.wait_bound(name)


def test_a_token_in_the_kubeconfig(cluster: Cluster, scheduler: StartScheduler, token: str, tmp_path: Path) -> None:
    cluster.add_nodes(node("n1"))
    process = scheduler(kubeconfig=kubeconfig(cluster, tmp_path / "config", {"token": token})).start_ready()
    binds(cluster)
    assert token not in process.log()


def test_a_client_certificate(cluster: Cluster, scheduler: StartScheduler, tmp_path: Path) -> None:
    certificate, key = cluster.certificate("certified", group="system:masters")
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    cluster.add_nodes(node("n1"))
    scheduler(kubeconfig=kubeconfig(cluster, tmp_path / "config", user)).start_ready()
    binds(cluster)


def test_a_token_from_an_exec_plugin(cluster: Cluster, scheduler: StartScheduler, token: str, tmp_path: Path) -> None:
    user = plugin(tmp_path / "plugin", {"token": token})
    cluster.add_nodes(node("n1"))
    scheduler(kubeconfig=kubeconfig(cluster, tmp_path / "config", user)).start_ready()
    binds(cluster)
    assert (tmp_path / "plugin.runs").read_text() == "x", "one run for all requests"


def test_a_certificate_from_an_exec_plugin(cluster: Cluster, scheduler: StartScheduler, tmp_path: Path) -> None:
    certificate, key = cluster.certificate("plugged", group="system:masters")
    credential = {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}
    cluster.add_nodes(node("n1"))
    user = plugin(tmp_path / "plugin", credential)
    scheduler(kubeconfig=kubeconfig(cluster, tmp_path / "config", user)).start_ready()
    binds(cluster)


def test_an_exec_plugin_that_fails_is_named(cluster: Cluster, scheduler: StartScheduler, tmp_path: Path) -> None:
    path = tmp_path / "plugin"
    path.write_text("#!/bin/sh\necho 'please log in first' >&2\nexit 3\n")
    path.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}
    process = scheduler(kubeconfig=kubeconfig(cluster, tmp_path / "config", user)).start()
    assert process.exit_code() == 2
    assert str(path) in process.log()
    assert "please log in first" in process.log()
    assert "Traceback" not in process.log()


def test_a_token_that_is_not_known_is_said_clearly_and_one_that_is_ends_the_wait(
    cluster: Cluster, scheduler: StartScheduler, token: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("expired")
    cluster.add_nodes(node("n1"))
    config = kubeconfig(cluster, tmp_path / "config", {"tokenFile": str(tmp_path / "token")})
    process = scheduler(kubeconfig=config).start_serving()
    eventually(lambda: "rejected the credentials" in process.log())
    assert process.get("/readyz")[0] == 500
    (tmp_path / "token").write_text(token)
    eventually(lambda: process.get("/readyz")[0] == 200)
    binds(cluster)
    complaints = [entry for entry in process.log_entries() if entry["level"] == "error"]
    assert len(complaints) == 1, "one line, not one for each watch"


def test_the_service_account_of_a_pod(cluster: Cluster, scheduler: StartScheduler, token: str, tmp_path: Path) -> None:
    """As in a pod: environment variables and mounted files; only the folder of the files is another here."""
    mounted = tmp_path / "serviceaccount"
    mounted.mkdir()
    (mounted / "token").write_text(token)
    (mounted / "namespace").write_text("default")
    assert cluster.endpoint.ca_file is not None
    (mounted / "ca.crt").write_bytes(cluster.endpoint.ca_file.read_bytes())
    host, _, port = cluster.endpoint.url.removeprefix("https://").partition(":")
    moved = (
        f"import pathlib, sys; from kube_policy_scheduler.adapters.kube import credentials;"
        f"credentials.SERVICE_ACCOUNT = pathlib.Path({str(mounted)!r});"
        f"from kube_policy_scheduler.daemon.main import main; main()"
    )
    cluster.add_nodes(node("n1"))
    policies = f"--policies={tmp_path / 'policies'}"
    scheduler(
        policies,
        "--log-format=json",
        defaults=False,
        command=("-c", moved),
        environment={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port},
    ).start_ready()
    binds(cluster)
    assert cluster.api.get("leases", "policy-scheduler")["spec"]["holderIdentity"], "in the pod's own namespace"
