"""The manifests would be admitted by a real cluster, fit together, and ask for no more than they need."""

from __future__ import annotations

import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from engine.daemon.settings import Settings, load_settings
from tests.deploy.manifests import BASE, DEPLOY, Json, kustomization, named, objects, only

VERSIONS = ("1.29", "1.33", "1.36")


def pod_spec() -> Json:
    spec: Json = only("Deployment")["spec"]["template"]["spec"]
    return spec


def container() -> Json:
    (found,) = pod_spec()["containers"]
    return dict(found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", objects(), ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_every_object_is_valid_by_the_schema_of_kubernetes(manifest: Json, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_schema_check_would_see_a_misspelt_field() -> None:
    broken = {**only("Deployment"), "spec": {**only("Deployment")["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_every_file_of_the_base_is_used() -> None:
    listed = {*kustomization()["resources"], "kustomization.yaml"}
    listed |= {file for generator in kustomization()["configMapGenerator"] for file in generator["files"]}
    assert listed == {str(path.relative_to(BASE)) for path in BASE.rglob("*") if path.is_file()}


@pytest.mark.needs("kubectl")
def test_kubectl_builds_the_base_to_the_same_objects() -> None:
    built = subprocess.run(["kubectl", "kustomize", str(BASE)], capture_output=True, text=True, check=True).stdout

    def key(o: Any) -> tuple[str, str]:
        return o["kind"], o["metadata"]["name"]

    found = sorted(yaml.safe_load_all(built), key=key)
    for made in found:
        made["metadata"].pop("creationTimestamp", None)
    assert found == sorted(objects(), key=key)


class TestThePod:
    """It meets the "restricted" Pod Security Standard, and the root of its file system cannot be written."""

    def test_runs_as_nobody_in_particular(self) -> None:
        context = pod_spec()["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] >= 10_000
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod_spec().keys()

    def test_cannot_gain_privileges(self) -> None:
        assert container()["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }

    def test_is_probed_on_a_port_that_it_has(self) -> None:
        ports = {port["name"] for port in container()["ports"]}
        for probe, path in {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}.items():
            assert container()[probe]["httpGet"]["path"] == path
            assert container()[probe]["httpGet"]["port"] in ports

    def test_mounts_directories_and_only_what_exists(self) -> None:
        volumes = {volume["name"]: volume for volume in pod_spec()["volumes"]}
        for mount in container()["volumeMounts"]:
            assert "subPath" not in mount, "a subPath mount never sees an edited ConfigMap"
            source = volumes[mount["name"]]
            if "configMap" in source:
                assert named("ConfigMap", source["configMap"]["name"])["data"]

    def test_asks_for_memory_with_a_limit_and_for_cpu_without(self) -> None:
        resources = container()["resources"]
        assert resources["requests"].keys() == {"cpu", "memory"}
        assert resources["limits"].keys() == {"memory"}, "a CPU limit only throttles"

    def test_is_not_scheduled_by_itself(self) -> None:
        assert pod_spec()["schedulerName"] == "default-scheduler"
        assert pod_spec()["priorityClassName"] == "system-cluster-critical"


def test_selectors_find_the_pods() -> None:
    labels = only("Deployment")["spec"]["template"]["metadata"]["labels"]
    wanted = [
        only("Deployment")["spec"]["selector"]["matchLabels"],
        only("Service")["spec"]["selector"],
        only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(constraint["labelSelector"]["matchLabels"] for constraint in pod_spec()["topologySpreadConstraints"]),
    ]
    for selector in wanted:
        assert selector.items() <= labels.items()


def test_an_upgrade_never_takes_the_last_replica() -> None:
    spec = only("Deployment")["spec"]
    assert spec["replicas"] > only("PodDisruptionBudget")["spec"]["minAvailable"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


class TestTheConfiguration:
    """config.yaml, and the places in the manifests that must agree with it."""

    @staticmethod
    def settings() -> Settings:
        return load_settings(BASE / "config.yaml")

    def test_is_where_the_command_line_says(self) -> None:
        mounts = {m["mountPath"]: m["name"] for m in container()["volumeMounts"]}
        (argument,) = container()["args"]
        folder, _, file = argument.removeprefix("--config=").rpartition("/")
        volume = next(v for v in pod_spec()["volumes"] if v["name"] == mounts[folder])
        assert file in named("ConfigMap", volume["configMap"]["name"])["data"]

    def test_names_the_folder_and_the_config_map_of_the_policies(self) -> None:
        policies = self.settings().policies
        mount = next(m for m in container()["volumeMounts"] if m["mountPath"] == str(policies.path))
        volume = next(v for v in pod_spec()["volumes"] if v["name"] == mount["name"])
        assert policies.config_map == f"{kustomization()['namespace']}/{volume['configMap']['name']}"

    def test_serves_probes_where_the_kubelet_looks(self) -> None:
        http = self.settings().http
        assert http.host == "0.0.0.0"
        assert [port["containerPort"] for port in container()["ports"]] == [http.port]
        assert [port["port"] for port in only("Service")["spec"]["ports"]] == [http.port]

    def test_takes_the_lease_that_the_role_allows(self) -> None:
        election = self.settings().leader_election
        allowed = [r for r in only("Role")["rules"] if "leases" in r["resources"] and "resourceNames" in r]
        assert [rule["resourceNames"] for rule in allowed] == [[election.lease_name]]
        assert election.lease_namespace is None, "the pod's own namespace, where the role is"


class TestTheImage:
    """deploy/Dockerfile."""

    @staticmethod
    def dockerfile() -> list[str]:
        return (DEPLOY / "Dockerfile").read_text().splitlines()

    def test_runs_as_the_user_of_the_deployment(self) -> None:
        context = pod_spec()["securityContext"]
        assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in self.dockerfile()

    def test_installs_exactly_the_lock(self) -> None:
        text = "\n".join(self.dockerfile())
        assert "--require-hashes -r requirements.lock" in text
        assert "--no-deps ." in text

    def test_is_given_every_file_that_it_copies(self) -> None:
        let_through = {
            line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
        }
        copied = {
            source
            for line in self.dockerfile()
            if line.startswith("COPY ") and "--from" not in line
            for source in line.split()[1:-1]
        }
        assert copied == let_through
        assert all((DEPLOY.parent / name).exists() for name in copied)
