"""`policyctl snapshot` of a cluster behind HTTP, with a real kubeconfig, and of a real Prometheus."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.documents.fixtures import read_objects
from kube_policy_scheduler.embedded import User
from tests.embedded.refusals import Refusals
from tests.fakes.prometheus_server import PrometheusServer
from tests.fakes.secure_cluster import SecureCluster
from tests.integration.objects import ZONE, node, pod

POLICY = 'score -promql("load") ?? 0\nscore 10 if node.label.disk == "ssd"\n'
SECRET = "correct-horse"
REFUSALS = Refusals()


@pytest.fixture(scope="module")
def cluster() -> Iterator[SecureCluster]:
    with SecureCluster(kubelets=None, controllers=None, intercept=REFUSALS).in_thread() as running:
        shape = {"memory": "64Gi", "pods": "200"}
        disks = ["ssd", "ssd", "ssd", "hdd", "hdd"]
        running.load(node(f"blade-{i}", labels={ZONE: "ab"[i % 2], "disk": disks[i]}, **shape) for i in range(5))
        running.load(pod(f"run-{i:04}", cpu="1m", nodeName=f"blade-{i % 5}") for i in range(520))
        waiting = pod("web-7f9", namespace="shop", cpu="3500m")
        waiting["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": SECRET}]
        waiting["spec"]["containers"][0]["command"] = ["serve", SECRET]
        waiting["metadata"]["annotations"] = {"note": SECRET}
        huge = pod("huge", namespace="shop", cpu="100")
        running.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}, waiting, huge])
        yield running


@pytest.fixture
def kubeconfig(cluster: SecureCluster, tmp_path: Path) -> str:
    path = tmp_path / "kubeconfig"
    cluster.kubeconfig(path)
    return str(path)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "a.policy"
    path.write_text(POLICY)
    return str(path)


def why(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["why", *arguments, "--format=json"]) in (0, 1)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("name", ["cluster.json.gz", "cluster.yaml"])
def test_why_says_of_a_snapshot_what_it_says_of_the_cluster(
    name: str, kubeconfig: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    assert run(["snapshot", "--kubeconfig", kubeconfig, "-o", str(file)]) == 0
    assert "5 nodes, 522 pods" in capsys.readouterr().err

    for asked in ("shop/web-7f9", "shop/huge", "default/run-0007"):
        live = why(capsys, asked, "--kubeconfig", kubeconfig, "--policies", policy)
        assert why(capsys, asked, "--cluster", str(file), "--policies", policy) == live


def test_no_secret_reaches_the_file(kubeconfig: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json.gz"
    assert run(["snapshot", "--kubeconfig", kubeconfig, "-o", str(file)]) == 0

    assert SECRET not in gzip.decompress(file.read_bytes()).decode()
    assert {one.value["kind"] for one in read_objects(file)} >= {"Node", "Pod", "Namespace", "PriorityClass"}


def test_names_are_hidden_and_what_the_policies_say_is_not(
    kubeconfig: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.json"
    arguments = ["snapshot", "--kubeconfig", kubeconfig, "--anonymise", "--policies", policy, "-o", str(file)]
    assert run(arguments) == 0
    text = file.read_text()

    assert not [name for name in ("blade", "shop", "web-7f9", "registry.example", "hdd") if name in text]
    disks = {one.value["metadata"]["labels"]["disk"] for one in read_objects(file) if one.value["kind"] == "Node"}
    assert "ssd" in disks
    assert len(disks) == 2
    (waiting,) = (
        one.value["metadata"]
        for one in read_objects(file)
        if one.value["kind"] == "Pod" and one.value["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "3500m"
    )
    capsys.readouterr()
    key = f"{waiting['namespace']}/{waiting['name']}"
    hidden = why(capsys, key, "--cluster", str(file), "--policies", policy)
    live = why(capsys, "shop/web-7f9", "--kubeconfig", kubeconfig, "--policies", policy)
    assert hidden["fits"] == live["fits"]


def test_the_same_cluster_gives_the_same_bytes_but_for_the_time(kubeconfig: str, tmp_path: Path) -> None:
    texts = []
    for name in ("one.json", "two.json"):
        file = tmp_path / name
        assert run(["snapshot", "--kubeconfig", kubeconfig, "--anonymise", "-o", str(file)]) == 0
        texts.append(file.read_text().split("\n", 1)[1])

    assert texts[0] == texts[1]


def test_a_list_whose_token_expired_starts_again(
    cluster: SecureCluster, kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    REFUSALS.add("list", "pods", code=410, skip=1)  # the second page
    file = tmp_path / "cluster.json"

    assert run(["snapshot", "--kubeconfig", kubeconfig, "-o", str(file)]) == 0

    REFUSALS.clear()
    names = [one.value["metadata"]["name"] for one in read_objects(file) if one.value["kind"] == "Pod"]
    assert len(names) == len(set(names)) == 522


def viewer(cluster: SecureCluster, path: Path, *resources: str) -> str:
    group, name = "rbac.authorization.k8s.io", path.name
    user = User(name)
    meta = {"metadata": {"name": name}}
    rule = {"apiGroups": ["*"], "resources": list(resources), "verbs": ["list"]}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    subject = {"kind": "User", "apiGroup": group, "name": name}
    cluster.load(
        [
            {"apiVersion": f"{group}/v1", "kind": "ClusterRole", **meta, "rules": [rule]},
            {"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", **meta, "roleRef": role, "subjects": [subject]},
        ]
    )
    cluster.kubeconfig(path, user=user)
    return str(path)


def test_a_kind_that_may_not_be_listed_is_named(
    cluster: SecureCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = viewer(cluster, tmp_path / "half", "nodes", "pods", "namespaces", "services")
    file = tmp_path / "cluster.json"

    assert run(["snapshot", "--kubeconfig", config, "-o", str(file)]) == 1

    printed = capsys.readouterr().err
    assert "not in the snapshot: csinodes.storage.k8s.io: 403 Forbidden" in printed
    missing = json.loads(file.read_text())["metadata"]["annotations"]["policyctl/missing"]
    assert "persistentvolumes" in missing
    assert "services" not in missing
    assert run(["snapshot", "--kubeconfig", config, "-o", str(file), "--allow-missing"]) == 0


def test_without_nodes_or_pods_nothing_is_written(
    cluster: SecureCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = viewer(cluster, tmp_path / "blind", "nodes")
    file = tmp_path / "cluster.json"

    assert run(["snapshot", "--kubeconfig", config, "-o", str(file), "--allow-missing"]) == 2

    assert "cannot read the cluster: 403 Forbidden" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.long
def test_metrics_go_with_the_snapshot(
    kubeconfig: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = PrometheusServer(folder)
    server.backfill({"load": [({"node": f"blade-{i}"}, 10.0 * i) for i in range(1, 4)]}, age_seconds=20)
    file = tmp_path / "cluster.json"
    with server:
        asked = ["snapshot", "--kubeconfig", kubeconfig, "--policies", policy, "-o", str(file)]
        assert run([*asked, "--prometheus-url", server.url]) == 0
        capsys.readouterr()
        live = ["shop/web-7f9", "--kubeconfig", kubeconfig, "--policies", policy]
        measured = why(capsys, *live, "--prometheus-url", server.url)
        offline = ["shop/web-7f9", "--cluster", str(file), "--policies", policy]
        recorded = why(capsys, *offline, "--metrics", str(tmp_path / "cluster.metrics.yaml"))

    assert recorded["host"] == measured["host"] == "blade-0"
    assert recorded["ranking"]["nodes"] == measured["ranking"]["nodes"]


def test_an_unreachable_prometheus_is_reported_and_the_metrics_are_absent(
    kubeconfig: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.json"
    asked = ["snapshot", "--kubeconfig", kubeconfig, "--policies", policy, "-o", str(file)]

    assert run([*asked, "--prometheus-url", "http://127.0.0.1:9"]) == 1

    assert "no value of load: cannot reach Prometheus" in capsys.readouterr().err
    assert "absent: [load]" in (tmp_path / "cluster.metrics.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--keep", "x"], "require --anonymise"),
        (["--prometheus-url", "http://x"], "requires --policies"),
        (["--metrics-output", "m.yaml"], "requires --prometheus-url"),
        (["--cluster", "c.yaml", "--context", "x"], "saved cluster"),
        (["--cluster", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["--anonymise", "--key-file", "nowhere"], "nowhere does not exist"),
        (["--kubeconfig", "nowhere"], "cannot read the cluster"),
    ],
)
def test_invalid_arguments_are_reported(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_folder_is_reported(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot", "--kubeconfig", kubeconfig, "-o", "nowhere/at/all.json"]) == 2
    assert "cannot write nowhere/at/all.json: no such file or directory" in capsys.readouterr().err


@pytest.mark.long
def test_a_reader_that_goes_away_ends_it_quietly(kubeconfig: str) -> None:
    command = f"{sys.executable} -m kube_policy_scheduler.cli snapshot --kubeconfig {kubeconfig} | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (141, "")
    assert done.stdout.startswith("{")
