"""The static pod: valid, with the permissions of the Deployment for a user, and files where the pod mounts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.daemon.configuration.settings import load_settings
from tests.deploy.manifests import DEPLOY, built, only, pod_spec
from tests.deploy.test_manifests import VERSIONS, invalid
from tests.deploy.test_overlays import granted
from tests.integration.cluster import Cluster
from tests.integration.conftest import cluster as cluster
from tests.integration.conftest import control_plane as control_plane
from tests.integration.kubectl import kubectl

FOLDER = DEPLOY / "static-pod"
POD: dict[str, Any] = yaml.safe_load((FOLDER / "policy-scheduler.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_manifest(version: str) -> None:
    assert invalid([POD], version) == []


def test_the_pod_differs_from_that_of_the_deployment_only_in_what_a_static_pod_needs() -> None:
    ours, theirs = POD["spec"], pod_spec(only("Deployment"))
    (mine,), (other,) = ours["containers"], theirs["containers"]
    assert {key for key in mine.keys() | other.keys() if mine.get(key) != other.get(key)} == {
        "args", "ports", "startupProbe", "livenessProbe", "readinessProbe", "resources", "securityContext",
        "volumeMounts",
    }  # fmt: skip
    assert mine["securityContext"] == {**other["securityContext"], "runAsUser": 0}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert mine[probe]["httpGet"]["path"] == other[probe]["httpGet"]["path"]
        assert {key: mine[probe].get(key) for key in other[probe] if key != "httpGet"} == {
            key: value for key, value in other[probe].items() if key != "httpGet"
        }


def test_the_configuration_names_files_that_the_pod_mounts_and_the_port_of_its_probes() -> None:
    settings = load_settings(FOLDER / "config.yaml")
    (container,) = POD["spec"]["containers"]
    mounted = {Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    assert mounted == {Path(v["hostPath"]["path"]) for v in POD["spec"]["volumes"] if "hostPath" in v} | {Path("/tmp")}
    assert settings.kubernetes.kubeconfig in mounted
    assert settings.policies.path.parent in mounted
    assert container["args"] == [f"--config={settings.policies.path.parent}/config.yaml"]
    assert {container[probe]["httpGet"]["port"] for probe in container if probe.endswith("Probe")} == {
        settings.http.port
    }


@pytest.mark.needs("kubectl")
def test_the_user_gets_the_permissions_of_the_service_account_and_nothing_else_is_made() -> None:
    made = built(FOLDER)
    assert granted(made) == granted(built(DEPLOY / "base"))
    bound = [
        o for o in made if o["kind"].endswith("RoleBinding") and o["metadata"]["name"] != "policy-scheduler-viewer"
    ]
    user = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "policy-scheduler"}]
    assert all(o["subjects"] == user for o in bound)
    assert not [
        o for o in made if o["kind"] in ("Deployment", "Service", "NetworkPolicy", "ConfigMap", "ResourceQuota")
    ]
    for version in VERSIONS:
        assert invalid(made, version) == []


@pytest.mark.needs("kubectl")
def test_an_api_server_takes_the_permissions(cluster: Cluster, tmp_path: Path) -> None:
    said = kubectl(
        cluster.kubeconfig(tmp_path / "admin"), "apply", "--server-side", "--force-conflicts", "-k", str(FOLDER)
    )
    assert len(said.splitlines()) == len(built(FOLDER))
