"""The commands of deploy/README.md, run as they stand there against an API server."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, NAMESPACE
from tests.integration.cluster import Cluster
from tests.integration.conftest import cluster as cluster
from tests.integration.conftest import control_plane as control_plane
from tests.integration.control_plane import assets
from tests.integration.objects import node, pod

pytestmark = pytest.mark.needs("kubectl")
TEXT = (DEPLOY / "README.md").read_text()
ELSEWHERE = {
    "docker": "no engine here; test_manifests.py reads the Dockerfile",
    "kind": "no engine here; the overlay is applied by test_overlays.py",
    "curl": "tests of the port: tests/integration/test_secure_port.py, tests/daemon/test_status_page.py",
    "open": "a browser: tests/daemon/test_status_page.py",
    "kubectl -n policy-scheduler logs": "needs a kubelet",
    "kubectl -n policy-scheduler port-forward": "needs a kubelet",
    "kubectl -n policy-scheduler-shadow port-forward": "needs a kubelet",
    "kubectl -n policy-scheduler edit": "asks an editor",
    "policyctl rollout status --watch": "needs replicas: tests/integration/test_rollout.py",
    "kubectl apply -k deploy/overlays/": "each: test_overlays.py",
    "kubectl delete -k deploy/overlays/": "as `kubectl delete -k mine --ignore-not-found`, which is run here",
}


def commands() -> list[str]:
    """Return the commands of indented blocks, without comments, continued lines joined."""
    text = TEXT.replace("\\\n", " ")
    lines = re.findall(r"^    ((?:kubectl|policyctl|policy-scheduler|docker|kind|curl|open) .*)$", text, re.MULTILINE)
    return [re.sub(r"\s+", " ", line.partition("  #")[0].strip()) for line in lines]


def is_elsewhere(command: str) -> bool:
    return any(command.startswith(known if known.endswith("/") else f"{known} ") for known in ELSEWHERE) or (
        command in ELSEWHERE
    )


def mine(folder: Path) -> Path:
    """Make the folder that the page describes, beside a copy of deploy/."""
    shutil.copytree(DEPLOY, folder / "deploy")
    (block,) = re.findall(r"```yaml\n# mine/kustomization.yaml\n(.*?)```", TEXT, re.DOTALL)
    made = folder / "mine"
    made.mkdir()
    (made / "kustomization.yaml").write_text(block.replace("REGISTRY", "registry.example.com"))
    (made / "web.policy").write_text("filter node.ready and fits(cpu, mem)\nscore least_allocated(cpu, mem)\n")
    shutil.copy(DEPLOY / "base" / "config.yaml", made)
    return made


class Shell:
    """Runs commands in a folder, with a kubeconfig of the cluster's administrator."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(folder), "NO_PROXY": "*"}

    def run(self, command: str, *, code: int = 0) -> str:
        program, *arguments = shlex.split(command)
        modules = {"policyctl": "engine.cli", "policy-scheduler": "engine.daemon"}
        programs = assets()
        head = [sys.executable, "-m", modules[program]] if program in modules else [program]
        if program == "kubectl" and programs is not None:
            head = [str(programs / "kubectl")]
        environment = {**self._environment, "PYTHONPATH": str(DEPLOY.parent)}
        done = subprocess.run(
            [*head, *arguments], cwd=self._folder, capture_output=True, text=True, env=environment, timeout=60
        )
        assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


RUN = (
    "policyctl lint mine/",
    "policy-scheduler config mine/config.yaml",
    "policy-scheduler config --print-defaults",
    "kubectl apply -k mine",
    "kubectl -n policy-scheduler get pods -l app.kubernetes.io/name=policy-scheduler",
    "kubectl create --raw /api/v1/namespaces/policy-scheduler/pods/POD/binding -f binding.json",
    "kubectl describe pod POD",
    "kubectl create clusterrolebinding ops-see-scheduler --clusterrole=policy-scheduler-viewer --group=ops",
    "kubectl create clusterrolebinding prometheus-scrapes-scheduler --clusterrole=policy-scheduler-metrics"
    " --serviceaccount=monitoring:prometheus",
    "kubectl delete validatingwebhookconfiguration policy-scheduler-webhook",
    "kubectl delete -k mine --ignore-not-found",
)


def test_each_command_is_run_here_or_elsewhere() -> None:
    shown = commands()
    assert len(shown) > 15
    assert [command for command in shown if command not in RUN and not is_elsewhere(command)] == []
    assert [command for command in RUN if command not in shown] == []


def test_from_installation_to_removal(cluster: Cluster, tmp_path: Path) -> None:
    mine(tmp_path)
    shell = Shell(tmp_path, cluster.kubeconfig(tmp_path / "admin"))
    (binding,) = re.findall(r"```json\n(\{.*\"Binding\".*\})\n```", TEXT)
    cluster.add_nodes(node("n1"))
    said = {}
    for command in RUN[:4]:
        said[command] = shell.run(command)
    assert "leaderElection:" in said["policy-scheduler config --print-defaults"]
    found = yaml.safe_load(shell.run("kubectl get -k mine -o yaml"))["items"]
    images = {
        each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found if each["kind"] == "Deployment"
    }
    assert images == {"registry.example.com/kube-policy-scheduler:0.1.0"}

    # all replicas are gone, nobody places the next one: an administrator does
    cluster.ensure("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    lost = pod("lost", namespace=NAMESPACE)
    lost["metadata"]["labels"] = {"app.kubernetes.io/name": "policy-scheduler"}
    lost["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for each in lost["spec"]["containers"]:
        each["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    cluster.add_pods(lost)
    assert "lost" in shell.run(RUN[4])
    (tmp_path / "binding.json").write_text(binding.replace("POD", "lost").replace("NODE", "n1"))
    shell.run(RUN[5].replace("POD", "lost"))
    assert cluster.pod("lost", namespace=NAMESPACE)["spec"]["nodeName"] == "n1"
    assert "n1" in shell.run(RUN[6].replace("POD", f"lost -n {NAMESPACE}"))

    for command, done in zip(RUN[7:10], ("created", "created", "deleted"), strict=True):
        assert done in shell.run(command)
    if cluster.has_kubelets:  # without controllers, namespaces never go
        assert "deleted" in shell.run(RUN[10])
    for name in ("ops-see-scheduler", "prometheus-scrapes-scheduler"):
        shell.run(f"kubectl delete clusterrolebinding {name}")
