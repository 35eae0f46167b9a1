"""The manifests would be admitted by a real cluster, fit together, and request no more than they need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from kube_policy_scheduler.daemon.configuration.settings import Settings, load_settings
from tests.deploy import manifests
from tests.deploy.manifests import BASE, DEPLOY, OVERLAYS, ROOT, Json, built, key, kustomization, named, objects, only

VERSIONS = ("1.30", "1.33", "1.36")
CLUSTER_WIDE = ("Namespace", "Cluster", "PriorityClass", "Validating")


def pod_spec() -> Json:
    return manifests.pod_spec(only("Deployment"))


def container() -> Json:
    (found,) = pod_spec()["containers"]
    return dict(found)


def invalid(found: list[Json], version: str) -> list[str]:
    problems = (_problem(json.dumps(manifest), version) for manifest in found)
    return [problem for problem in problems if problem]


@cache
def _problem(manifest: str, version: str) -> str:
    """Return why a manifest is not valid, or ""; most overlays have the same, and each takes a tenth of a second."""
    loaded = json.loads(manifest)
    try:
        kubernetes_validate.validate(loaded, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{key(loaded)}: {error.message}"
    return ""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_base_is_valid_by_the_schema_of_kubernetes(version: str) -> None:
    assert invalid(objects(), version) == []


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: str(path.name))
def test_every_overlay_is_valid_and_has_kinds_of_kubernetes_alone(overlay: Path) -> None:
    found = built(overlay)
    for version in VERSIONS:
        assert invalid(found, version) == []
    namespaces = {o["metadata"].get("namespace") for o in found if not o["kind"].startswith(CLUSTER_WIDE)}
    assert namespaces == {o["metadata"]["name"] for o in found if o["kind"] == "Namespace"}
    assert len(namespaces) == 1
    assert len({key(o) for o in found}) == len(found)


def test_the_schema_check_would_see_a_misspelt_field() -> None:
    broken = {**only("Deployment"), "spec": {**only("Deployment")["spec"], "replica": 2}}
    assert invalid([broken], VERSIONS[-1])


def test_every_file_of_the_base_is_used() -> None:
    listed = {*kustomization()["resources"], "kustomization.yaml"}
    listed |= {file for generator in kustomization()["configMapGenerator"] for file in generator["files"]}
    files = [path for path in BASE.rglob("*") if path.is_file()]
    assert listed == {str(path.relative_to(BASE)) for path in files if not path.name.endswith(".test.yaml")}


@pytest.mark.needs("kubectl")
def test_kubectl_builds_the_base_to_the_same_objects() -> None:
    assert sorted(built(BASE), key=key) == sorted(objects(), key=key)


class TestThePod:
    """It meets the "restricted" Pod Security Standard, and the root of its file system cannot be written."""

    def test_runs_as_an_unprivileged_user(self) -> None:
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
        assert int(resources["requests"]["cpu"].removesuffix("m")) >= 500, "a leader keeps its lease on a full node"

    def test_is_scheduled_by_the_default_scheduler(self) -> None:
        assert pod_spec()["schedulerName"] == "default-scheduler"
        assert pod_spec()["priorityClassName"] == "system-cluster-critical"


def test_selectors_find_the_pods() -> None:
    labels = only("Deployment")["spec"]["template"]["metadata"]["labels"]
    wanted = [
        only("Deployment")["spec"]["selector"]["matchLabels"],
        only("Service")["spec"]["selector"],
        only("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in wanted:
        assert selector.items() <= labels.items()


def test_an_upgrade_starts_the_new_replica_first() -> None:
    assert only("Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_the_quota_of_critical_pods_has_room_for_all_overlays() -> None:
    quota = only("ResourceQuota")["spec"]
    assert quota["scopeSelector"]["matchExpressions"][0]["values"] == [pod_spec()["priorityClassName"]]
    assert int(quota["hard"]["pods"]) >= 10


class TestTheNetworkPolicy:
    """It admits only Prometheus, and lets the pod connect only to what it needs."""

    def test_admits_only_prometheus(self) -> None:
        (rule,) = only("NetworkPolicy")["spec"]["ingress"]
        (who,) = rule["from"]
        assert who["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
        assert [port["port"] for port in rule["ports"]] == [port["name"] for port in container()["ports"]]

    def test_lets_out_to_what_the_configuration_names(self) -> None:
        spec = only("NetworkPolicy")["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        ports = {port["port"] for rule in spec["egress"] for port in rule["ports"]}
        component = yaml.safe_load((DEPLOY / "components/kube-prometheus/kustomization.yaml").read_text())
        (added,) = yaml.safe_load(component["patches"][0]["patch"])
        host = urlsplit(added["value"].removeprefix("--prometheus-url="))
        assert ports == {53, 443, 6443, host.port}
        (to,) = [rule["to"] for rule in spec["egress"] if rule["ports"][0]["port"] == host.port]
        assert to[0]["namespaceSelector"]["matchLabels"] == {
            "kubernetes.io/metadata.name": str(host.hostname).partition(".")[2]
        }


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

    def test_takes_the_leases_that_the_role_allows(self) -> None:
        election = self.settings().leader_election
        allowed = [
            rule
            for role in objects()
            if role["kind"] == "Role"
            for rule in role["rules"]
            if "leases" in rule["resources"] and "resourceNames" in rule
        ]
        names = sorted(rule["resourceNames"] for rule in allowed)
        assert names == [[f"{election.lease_name}{end}"] for end in ("", "-queues", "-status")]
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
        assert "--require-hashes --only-binary :all: -r requirements${EXTRAS:+-$EXTRAS}.lock" in text
        assert "--no-deps ." in text
        assert text.count("pip install") == 2
        assert not re.search(r"apt-get|gcc|curl|wget|ADD ", text), "no compiler, and nothing from anywhere else"

    @pytest.mark.parametrize(("extra", "package"), [("onnx", "onnxruntime"), ("fast", "numba"), ("fast", "zlib-ng")])
    def test_an_extra_adds_packages_and_changes_no_other(self, extra: str, package: str) -> None:
        locks = (ROOT / "requirements.lock", ROOT / f"requirements-{extra}.lock")
        plain, more = (
            {line.partition(" ")[0] for line in lock.read_text().splitlines() if line[:1].strip()} for lock in locks
        )
        assert plain < more
        assert {each.partition("==")[0] for each in more - plain} >= {package}
        ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        assert {f"!{lock.name}" for lock in locks} <= set(ignored), "the build can read them"

    def test_is_compiled_once_so_that_two_builds_are_the_same(self) -> None:
        text = "\n".join(self.dockerfile())
        assert text.count("pip install --no-compile ") == 2
        assert "compileall -q -j 0 --invalidation-mode unchecked-hash" in text

    @pytest.mark.long
    def test_works_without_what_it_leaves_out(self, tmp_path: Path) -> None:
        """The client of Kubernetes reads kubeconfigs, with their plugins, and nothing else."""
        assert "rm -rf /venv/lib/python3*/site-packages/kubernetes/aio" in "\n".join(self.dockerfile())
        version = "client.authentication.k8s.io/v1"
        given = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": "made"}})
        plugin = {"apiVersion": version, "command": "echo", "args": [given], "interactiveMode": "Never"}
        config = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "a", "user": {"exec": plugin}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        code = (
            "import sys; sys.modules['kubernetes.aio'] = None\n"
            "from kube_policy_scheduler.adapters.kube.kubeconfig import load_kubeconfig\n"
            "print(load_kubeconfig('kubeconfig', context=None).headers)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "Bearer made" in done.stdout, done.stderr

    def test_has_one_base_that_is_named_by_its_digest_and_can_be_another(self) -> None:
        lines = self.dockerfile()
        pinned, *stages = [line.split()[1] for line in lines if line.startswith("FROM ")]
        assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", pinned)
        assert f"FROM {pinned} AS pinned" in lines
        assert stages == ["${PYTHON_IMAGE}"] * 2
        assert "ARG PYTHON_IMAGE=pinned" in lines

    def test_ends_with_the_environment_alone_and_no_root(self) -> None:
        last = "\n".join(self.dockerfile()).rpartition("\nFROM ")[2].splitlines()[1:]
        assert [line.split()[0] for line in last] == ["COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT"]
        assert last[0] == "COPY --from=build /venv /venv"
        assert last[3].split()[1] in {str(port["containerPort"]) for port in container()["ports"]}

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
