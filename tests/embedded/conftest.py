"""The server contract tests talk to: a real one where KUBEBUILDER_ASSETS names its programs, or the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kube_policy_scheduler.embedded import EmbeddedCluster
from tests.embedded.cases import client_of
from tests.embedded.rest import Client
from tests.integration.control_plane import ControlPlane, assets


@dataclass(frozen=True, slots=True)
class Server:
    """An API server without kubelets and controllers, as its administrator reaches it."""

    client: Client
    kubeconfig: Path
    is_real: bool


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    programs = assets()
    kubeconfig = folder / "kubeconfig"
    if programs is None:
        with EmbeddedCluster(kubelets=None, controllers=None).in_thread() as cluster:
            cluster.kubeconfig(kubeconfig)
            yield Server(Client(cluster.url), kubeconfig, is_real=False)
    else:
        with ControlPlane(programs, folder / "plane") as plane:
            kubeconfig.write_text(_kubeconfig(plane), encoding="utf-8")
            yield Server(client_of(plane.endpoint), kubeconfig, is_real=True)


def _kubeconfig(plane: ControlPlane) -> str:
    endpoint = plane.endpoint
    return f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{endpoint.url}", certificate-authority: "{endpoint.ca_file}"}}}}]
users: [{{name: u, user: {{client-certificate: "{endpoint.certificate_file}", client-key: "{endpoint.key_file}"}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
