"""The admission webhook as a process, over HTTPS, called by a real API server if there is one."""

from __future__ import annotations

import base64
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
import yaml

from tests.deploy.manifests import DEPLOY, NAMESPACE, built, named
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.control_plane import assets
from tests.integration.front import Front
from tests.integration.kubectl import kubectl, run_kubectl
from tests.integration.permissions import granted_by, used
from tests.integration.test_permissions import secure_front as secure_front

pytestmark = pytest.mark.needs("kubectl")
OVERLAY = DEPLOY / "overlays" / "checked-policies"
NAME = "policy-scheduler-webhook"
BROKEN = "filter node.redy\nscore 2 * (100 - node.cpu)\n"


class WebhookProcess:
    """One `policy-scheduler webhook`."""

    def __init__(self, folder: Path, *arguments: str, kubeconfig: Path | None = None) -> None:
        folder.mkdir()
        self._address_file = folder / "address"
        self._log = folder / "log"
        command = [sys.executable, "-m", "kube_policy_scheduler.daemon", "webhook", "--address=127.0.0.1:0"]
        command += [f"--address-file={self._address_file}", *arguments]
        if kubeconfig is not None:
            command.append(f"--kubeconfig={kubeconfig}")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NO_PROXY": "*"})

    @property
    def url(self) -> str:
        eventually(self._address_file.exists, else_=self.log, within=30)
        return f"https://{self._address_file.read_text().strip()}/validate"

    def log(self) -> str:
        return self._log.read_text()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)


@pytest.fixture
def authority() -> trustme.CA:
    if assets() is None:
        pytest.skip("only a real API server asks webhooks: KUBEBUILDER_ASSETS names none")
    return trustme.CA()


@pytest.fixture
def webhook(authority: trustme.CA, tmp_path: Path) -> Iterator[WebhookProcess]:
    """With a certificate from files, as from cert-manager."""
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    process = WebhookProcess(tmp_path / "webhook", f"--certificate-file={certificate}", f"--key-file={key}")
    yield process
    assert process.end() == 0, process.log()


@pytest.fixture
def asked(cluster: Cluster, webhook: WebhookProcess, authority: trustme.CA, tmp_path: Path) -> Path:
    """A kubeconfig of a cluster whose API server asks the webhook, as in the manifests but for its address."""
    config = cluster.kubeconfig(tmp_path / "admin")
    configuration = named("ValidatingWebhookConfiguration", NAME, among=built(OVERLAY))
    (only,) = configuration["webhooks"]
    ca_bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    only["clientConfig"] = {"url": webhook.url, "caBundle": ca_bundle}
    cluster.ensure("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.api.create("validatingwebhookconfigurations", configuration)
    return config


def config_map(folder: Path, name: str = "policies", *, namespace: str = NAMESPACE, **data: str) -> str:
    """Write a ConfigMap with files; `default` is default.policy."""
    file = folder / f"{name}.yaml"
    files = {f"{key}.policy": text for key, text in data.items()}
    metadata = {"name": name, "namespace": namespace}
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files}))
    return str(file)


def apply_refused(config: Path, file: str) -> str:
    """Apply until the API server has heard of the webhook; return why not."""
    told: list[str] = []

    def refused() -> bool:
        done = run_kubectl(config, "apply", "-f", file)
        told[:] = [done.stderr]
        return done.returncode != 0

    eventually(refused)
    return told[0]


def test_kubectl_shows_the_diagnostics_of_a_broken_config_map(asked: Path, tmp_path: Path) -> None:
    said = apply_refused(asked, config_map(tmp_path, default=BROKEN))
    assert 'admission webhook "policies.policy-scheduler.dev" denied the request' in said
    assert "default.policy:1:13: error[" in said
    assert "1 | filter node.redy\n" in said
    assert "did you mean" in said
    assert said.count("default.policy:") >= 2


def test_valid_policies_pass_and_doubtful_ones_cause_warnings(asked: Path, tmp_path: Path) -> None:
    apply_refused(asked, config_map(tmp_path, default=BROKEN))
    done = run_kubectl(asked, "apply", "-f", config_map(tmp_path, default="filter node.ready\nscore 10\n"))
    assert done.returncode == 0, done.stderr
    assert "Warning: default.policy:2:7: warning[" in done.stderr
    # an update that breaks them is refused, and the good ones stay
    said = apply_refused(asked, config_map(tmp_path, default="filter node.ready and\n"))
    assert "error[" in said
    assert "filter node.ready\n" in kubectl(asked, "-n", NAMESPACE, "get", "configmap", "policies", "-o", "yaml")


def test_policies_of_one_config_map_are_checked_together(asked: Path, tmp_path: Path) -> None:
    twice = "policy same\nfilter node.ready\n"
    said = apply_refused(asked, config_map(tmp_path, one=twice, two=twice))
    assert "same" in said


def test_other_config_maps_are_ignored(asked: Path, tmp_path: Path) -> None:
    apply_refused(asked, config_map(tmp_path, default=BROKEN))
    kubectl(asked, "-n", NAMESPACE, "create", "configmap", "other", "--from-literal=a.yaml=filter node.redy")
    kubectl(asked, "apply", "-f", config_map(tmp_path, "elsewhere", namespace="default", default=BROKEN))
    kubectl(asked, "-n", NAMESPACE, "delete", "configmap", "other")


def test_files_that_are_not_text_and_the_last_one_taken_away(asked: Path, tmp_path: Path) -> None:
    apply_refused(asked, config_map(tmp_path, default=BROKEN))
    kubectl(asked, "apply", "-f", config_map(tmp_path, default="filter node.ready\n"))
    (tmp_path / "latin.policy").write_bytes(b"# caf\xe9\nfilter node.ready\n")
    create = ("-n", NAMESPACE, "create", "configmap", "binary", f"--from-file={tmp_path / 'latin.policy'}")
    assert "latin.policy:1: byte 0xe9 is not UTF-8" in run_kubectl(asked, *create).stderr
    assert "contains no .policy file" in apply_refused(asked, config_map(tmp_path))


def test_while_no_webhook_answers_only_policies_cannot_be_written(
    asked: Path, webhook: WebhookProcess, tmp_path: Path
) -> None:
    apply_refused(asked, config_map(tmp_path, default=BROKEN))
    webhook.end()
    good = config_map(tmp_path, default="filter node.ready\n")
    assert "failed calling webhook" in run_kubectl(asked, "apply", "-f", good).stderr
    kubectl(asked, "-n", NAMESPACE, "create", "configmap", "unrelated", "--from-literal=a=b")
    kubectl(asked, "-n", NAMESPACE, "delete", "configmap", "unrelated")
    kubectl(asked, "delete", "validatingwebhookconfiguration", NAME)  # the emergency of CHANGING-POLICIES.md
    eventually(lambda: run_kubectl(asked, "apply", "-f", good).returncode == 0)


def test_a_self_managed_certificate_is_made_trusted_and_shared(
    cluster: Cluster, secure_front: Front, tmp_path: Path
) -> None:
    """Under the webhook's own account, with nothing denied and nothing granted that is not used."""
    kubectl(cluster.kubeconfig(tmp_path / "admin"), "apply", "-k", str(OVERLAY))
    cluster.api.patch("secrets", f"{NAME}-tls", {"data": None}, namespace=NAMESPACE)
    token = cluster.token(NAMESPACE, NAME)
    config = secure_front.kubeconfig(tmp_path / "kubeconfig", user={"token": token})
    flags = ("--self-managed-certificate", f"--namespace={NAMESPACE}")
    processes = [WebhookProcess(tmp_path / f"replica-{n}", *flags, kubeconfig=config) for n in range(2)]
    try:
        urls = [process.url for process in processes]
        secret = cluster.api.get("secrets", f"{NAME}-tls", namespace=NAMESPACE)["data"]
        configuration = cluster.api.get("validatingwebhookconfigurations", NAME)
        assert [w["clientConfig"]["caBundle"] for w in configuration["webhooks"]] == [secret["ca.crt"]]
        served = {certificate_at(url) for url in urls}
        assert served == {base64.b64decode(secret["tls.crt"]).decode()}
    finally:
        codes = [process.end() for process in processes]
    assert codes == [0, 0]
    assert "PRIVATE KEY" not in "".join(process.log() for process in processes)
    assert {e.resource for e in secure_front.exchanges if e.code == 403} == set()
    assert used(secure_front) == granted_by(built(OVERLAY), account=NAME)


def certificate_at(url: str) -> str:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return ssl.get_server_certificate((parts.hostname, parts.port))
