"""From an edited ConfigMap to every replica, as `policyctl rollout status` follows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kube_policy_scheduler.cli.main import run
from tests.deploy.manifests import NAMESPACE
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import ALL_GOOD, StartScheduler
from tests.integration.objects import node, pod
from tests.integration.process import SchedulerProcess

BETTER = ALL_GOOD + "score most_allocated(cpu, mem)\n"
ONLY_GOOD = ALL_GOOD + 'filter node.name == "good"\n'
BROKEN = "filter node.redy\n"


class Stage:
    """Two replicas, the ConfigMap with their policies, and the kubelet that mounts it, which is the test."""

    def __init__(self, cluster: Cluster, kubeconfig: Path, replicas: list[SchedulerProcess]) -> None:
        self.cluster = cluster
        self.kubeconfig = kubeconfig
        self.replicas = replicas

    def edit(self, text: str) -> None:
        self.cluster.api.patch("configmaps", "policies", {"data": {"default.policy": text}}, namespace=NAMESPACE)

    def command(self, *arguments: str) -> list[str]:
        options = ["--kubeconfig", str(self.kubeconfig), "--deployment=none", *arguments]
        return [sys.executable, "-m", "kube_policy_scheduler.cli", "rollout", "status", *options]

    def data(self) -> dict[str, str]:
        found: dict[str, str] = self.cluster.api.get("configmaps", "policies", namespace=NAMESPACE)["data"]
        return found

    def status(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, env={**os.environ, "NO_PROXY": "*"}, timeout=60
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def stage(cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path) -> Stage:
    cluster.ensure("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policies", "namespace": NAMESPACE}}
    cluster.api.create("configmaps", {**config_map, "data": {"default.policy": ALL_GOOD}})
    config = tmp_path / "config.yaml"
    settings = {
        "apiVersion": "policy-scheduler/v1alpha1",
        "kind": "PolicySchedulerConfiguration",
        "policies": {"configMap": f"{NAMESPACE}/policies"},
        "leaderElection": {"leaseNamespace": NAMESPACE},
    }
    config.write_text(yaml.safe_dump(settings))
    kubeconfig = cluster.kubeconfig(tmp_path / "admin")
    arguments = (f"--config={config}", f"--kubeconfig={kubeconfig}", f"--policies={policies.path}")
    replicas = [scheduler(*arguments, defaults=False) for _ in range(2)]
    for replica in replicas:
        replica.start_serving()
    return Stage(cluster, kubeconfig, replicas)


def test_a_rollout_is_followed_from_the_edit_to_the_last_replica(stage: Stage, policies: ConfigMapVolume) -> None:
    eventually(lambda: stage.status()[0] == 0, within=30, else_=lambda: stage.status()[1])
    code, text = stage.status()
    assert "2 of 2 replicas decide by it" in text
    before = stage.replicas[0].policies()["active"]
    assert f"policy set {before} in configMap {NAMESPACE}/policies" in text

    stage.edit(BETTER)
    code, text = stage.status()
    assert (code, text.count("waits for its kubelet to bring it")) == (1, 2)
    watching = subprocess.Popen(
        stage.command("--watch", "--timeout=30s", "--format=json"),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    policies.update({"default.policy": BETTER})
    said, _ = watching.communicate(timeout=40)
    assert watching.returncode == 0
    found = json.loads(said)
    assert (found["done"], found["live"], found["replicas"]) == (True, 2, 2)
    assert found["policySet"] == stage.replicas[1].policies()["active"] != before

    stage.edit(BROKEN)
    policies.update({"default.policy": BROKEN})
    code, text = stage.status("--watch", "--timeout=30s")
    assert code == 1
    assert "refused: default.policy:1:13: error[P0102]: unknown field `redy` of a node" in text

    stage.edit(BETTER)  # taken back: nothing has to be brought
    policies.update({"default.policy": BETTER})
    assert stage.status("--watch", "--timeout=30s")[0] == 0
    assert stage.replicas[0].terminate() == 0
    assert "1 of 1 replica decide by it" in stage.status()[1], "who ends in order is not waited for"


def test_undo_goes_back_to_what_was_in_use_before(
    stage: Stage, policies: ConfigMapVolume, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--kubeconfig", str(stage.kubeconfig)]

    def rollout(*arguments: str, code: int = 0) -> str:
        assert run(["rollout", *arguments, *where]) == code
        return capsys.readouterr().out

    def kept(number: int) -> None:
        eventually(lambda: stage.cluster.api.get("controllerrevisions", f"policies-{number}", namespace=NAMESPACE))

    kept(1)
    stage.edit(BETTER)
    policies.update({"default.policy": BETTER})
    kept(2)
    assert rollout("history").splitlines()[2].endswith("in the ConfigMap")
    change = "--- default.policy\n+++ default.policy (revision 1)\n@@ -1,2 +1 @@\n"
    assert rollout("undo", "--dry-run").startswith(change)
    assert stage.data() == {"default.policy": BETTER}

    stage.edit(BROKEN)  # is never in use: back to what still decides
    assert "is restored to revision 2 " in rollout("undo")
    assert "is restored to revision 1 " in rollout("undo")
    assert stage.data() == {"default.policy": ALL_GOOD}
    policies.update({"default.policy": ALL_GOOD})
    kept(3)
    eventually(lambda: len(rollout("history").splitlines()) == 3)
    assert "revision 3 is already in the ConfigMap" in rollout("undo", "--to-revision=3", code=1)
    assert "revision 1 is not stored: the revisions are 2, 3" in rollout("undo", "--to-revision=1", code=1)
    assert "is restored to revision 2 " in rollout("undo", "--to-revision=2")


def test_a_restart_with_broken_policies_starts_from_the_last_accepted_ones(
    stage: Stage, policies: ConfigMapVolume
) -> None:
    cluster = stage.cluster
    cluster.add_nodes(node("good"), node("better"))
    eventually(lambda: cluster.api.get("controllerrevisions", "policies-1", namespace=NAMESPACE))
    stage.edit(ONLY_GOOD)
    policies.update({"default.policy": ONLY_GOOD})
    eventually(lambda: stage.status()[0] == 0, within=30, else_=lambda: stage.status()[1])
    eventually(lambda: cluster.api.get("controllerrevisions", "policies-2", namespace=NAMESPACE))
    first, second = stage.replicas
    good = first.policies()["active"]
    assert [replica.terminate() for replica in stage.replicas] == [0, 0]
    stage.edit(BROKEN)
    policies.update({"default.policy": BROKEN})

    first.start_ready()
    cluster.add_pods(pod("web"))
    assert cluster.wait_bound("web") == {"web": "good"}
    told = first.policies()
    origin = f"revision 2 of configMap {NAMESPACE}/policies"
    assert (told["active"], told["restored"], told["accepted"]) == (good, origin, False)
    assert told["candidate"] != good
    said = (
        f"policies restored from {origin} (hash {good}), the newest cannot be used: default.policy:1:13: error[P0102]"
    )
    code, text = first.get("/readyz?verbose")
    assert code == 200, "it does its work"
    assert f"[+]policies ok: {said}" in text
    assert f"ERROR   {said}" in first.log()
    (event,) = eventually(lambda: cluster.events("policies", reason="PoliciesRestored", namespace=NAMESPACE))
    assert event["type"] == "Warning"
    assert said in event["note"]
    metrics = first.metrics()
    assert metrics["policy_scheduler_policy_last_reload_successful"] == 0
    assert metrics['policy_scheduler_policy_reloads_total{result="restored"}'] == 1
    assert f"The newest policies cannot be used: {origin} is active since the start" in first.get("/status")[1]
    code, text = stage.status()
    assert code == 1
    assert "refused: default.policy:1:13: error[P0102]" in text

    second.start_ready()
    assert second.policies()["active"] == good
    stage.edit(BETTER)
    policies.update({"default.policy": BETTER})
    eventually(lambda: stage.status()[0] == 0, within=30, else_=lambda: stage.status()[1])
    assert "[+]policies ok\n" in first.get("/readyz?verbose")[1]


def test_without_stored_versions_there_is_no_rollback(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policies"}}
    cluster.api.create("configmaps", {**config_map, "data": {"default.policy": ALL_GOOD}})
    where = ["--config-map=default/policies", "--kubeconfig", str(cluster.kubeconfig(tmp_path / "admin"))]
    assert run(["rollout", "history", *where]) == 1
    assert run(["rollout", "undo", *where]) == 1
    assert capsys.readouterr().out == "no version of configMap default/policies is stored\nno other version is stored\n"
    assert run(["rollout", "undo", "--config-map=default/polices", *where[1:]]) == 2
    assert "ConfigMap default/polices: 404" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--config-map=policies",), "expected NAMESPACE/NAME"),
        (("--config-map=a/b",), "404"),
        (("--watch", "--timeout=5"), "expected a duration"),
        (("--context=none",), "none"),
    ],
)
def test_unknown_states_are_reported(cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    code, text = Stage(cluster, cluster.kubeconfig(tmp_path / "admin"), []).status(*arguments)
    assert code == 2
    assert said in text


def test_without_reports_the_rollout_is_not_complete(cluster: Cluster, tmp_path: Path) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policies"}}
    cluster.api.create("configmaps", {**config_map, "data": {"default.policy": ALL_GOOD}})
    stage = Stage(cluster, cluster.kubeconfig(tmp_path / "admin"), [])
    code, text = stage.status("--config-map=default/policies")
    assert code == 1
    assert "no replica has reported its policies" in text
    cluster.api.patch("configmaps", "policies", {"data": {"default.policy": None}})
    assert "contains no .policy file" in stage.status("--config-map=default/policies")[1]
