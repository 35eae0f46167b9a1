"""The commands that operators' pages show, run unchanged against an API server; GETTING-STARTED.md is
typed in whole by tests/deploy/test_wheel.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.files.policy_sources import read_policies
from tests.cli.transcript import command
from tests.deploy.manifests import DEPLOY, NAMESPACE
from tests.integration.cluster import Cluster
from tests.integration.conftest import cluster as cluster
from tests.integration.conftest import control_plane as control_plane
from tests.integration.control_plane import assets
from tests.integration.objects import node, pod

pytestmark = pytest.mark.long

PAGES = {
    name: (DEPLOY / f"{name}.md").read_text()
    for name in (
        "README",
        "CHANGING-POLICIES",
        "EXTENDERS",
        "MAIN-SCHEDULER",
        "MIGRATION",
        "OBSERVABILITY",
        "OPERATIONS",
        "SHADOW",
        "TWO-SCHEDULERS",
    )
}
_PROGRAM = r"(?:kubectl|policyctl|policy-scheduler|docker|kind|curl|open|openssl|sha256sum|kill)"
_RUNNABLE = re.compile(r" (-|[A-Z]{3,}|\S*/)")
"""What an inline command has that is not only a name, such as `policyctl why`."""

ELSEWHERE = {
    "docker ": "no engine here; test_manifests.py reads the Dockerfile",
    "kind ": "no engine here; the overlay is applied by test_overlays.py",
    "open ": "a browser: tests/daemon/test_status_page.py",
    "curl ": "tests of the port: tests/integration/test_secure_port.py, test_shadow.py",
    "kill -USR2": "tests/integration/test_process.py",
    "kubectl apply -k deploy/overlays/": "each: test_overlays.py",
    "kubectl apply -k deploy/static-pod": "test_static_pod.py",
    "kubectl delete -k deploy/overlays/": "as `kubectl delete -k mine --ignore-not-found`, which is run here",
    "kubectl label node NODE ": "shares of nodes are measured: tests/benchmarks/end_to_end/beside.py",
    "kubectl taint node NODE ": "shares of nodes are measured: tests/benchmarks/end_to_end/beside.py",
    "kubectl -n policy-scheduler logs": "needs a kubelet",
    "kubectl -n policy-scheduler exec": "needs a kubelet",
    "kubectl -n policy-scheduler port-forward": "needs a kubelet",
    "kubectl -n policy-scheduler-shadow port-forward": "needs a kubelet",
    "kubectl -n policy-scheduler edit": "asks an editor",
    "kubectl -n policy-scheduler rollout": "needs replicas that are ready",
    "kubectl -n policy-scheduler get lease": "needs replicas: tests/integration/test_rollout.py",
    "policyctl rollout ": "needs replicas: tests/integration/test_rollout.py",
    "policyctl why POD --record FILE": "needs a decision log: tests/tooling/test_why_recorded.py",
    "policyctl conformance cases.jsonl": "needs recorded cases: tests/conformance",
    "policyctl doctor": "needs Prometheus: tests/cli/transcripts/doctor.txt",
    "policy-scheduler --policies ./policies --shadow": "runs for ever: tests/integration/test_shadow.py",
}

OPTIONS = ("kubectl apply -k", "policyctl why --daemon")
"""Named in a sentence, not to be typed."""


@dataclass(frozen=True)
class Step:
    """A command as a page shows it, and what to try it with."""

    shown: str
    given: tuple[tuple[str, str], ...] = ()
    """What stands for words in capitals."""
    says: str = ""
    code: int = 0


INSTALLING = (
    Step("policyctl lint mine/"),
    Step("policy-scheduler config mine/config.yaml"),
    Step("policy-scheduler --help"),
    Step("policy-scheduler config --print-defaults", says="leaderElection:"),
    Step("kubectl apply -k mine", says="deployment.apps/policy-scheduler"),
    Step("kubectl -n policy-scheduler get events"),
    Step("kubectl -n policy-scheduler get controllerrevisions"),
    Step("kubectl create clusterrolebinding ops-see-scheduler --clusterrole=policy-scheduler-viewer --group=ops"),
    Step(
        "kubectl create clusterrolebinding prometheus-scrapes-scheduler --clusterrole=policy-scheduler-metrics"
        " --serviceaccount=monitoring:prometheus"
    ),
    Step("kubectl delete validatingwebhookconfiguration policy-scheduler-webhook", says="deleted"),
)
LOOKING = (
    Step("kubectl get pod POD -o jsonpath='{.spec.schedulerName}'", (("POD", "waiting"),), "policy-scheduler"),
    Step("kubectl describe pod POD", (("POD", "waiting"),), "waiting"),
    Step("policyctl why POD -n NAMESPACE --policies policies/", (("POD", "waiting"), ("NAMESPACE", "default")), code=1),
    Step("policyctl capture POD --policies policies/", (("POD", "waiting"),), "waiting.test.yaml"),
    Step("policyctl snapshot -o cluster.json.gz"),
    Step("policyctl drift --policies policies/ --cluster cluster.json.gz"),
    Step(
        "policyctl impact OLD NEW --cluster FILE", (("OLD", "policies"), ("NEW", "mine"), ("FILE", "cluster.json.gz"))
    ),
)
LOST = (
    Step("kubectl -n policy-scheduler get pods", says="lost"),
    Step("kubectl -n policy-scheduler get pods -l app.kubernetes.io/name=policy-scheduler", says="lost"),
    Step("kubectl -n policy-scheduler get pods -l app.kubernetes.io/name=policy-scheduler-webhook"),
    Step(
        "kubectl create --raw /api/v1/namespaces/policy-scheduler/pods/POD/binding -f binding.json", (("POD", "lost"),)
    ),
)
APART = (
    Step("kubectl label node NODE example.com/scheduler=policy-scheduler", (("NODE", "n1"),), "labeled"),
    Step("kubectl taint node NODE example.com/scheduler=policy-scheduler:NoSchedule", (("NODE", "n1"),), "tainted"),
)
REMOVING = (Step("kubectl delete -k mine --ignore-not-found"),)
SIGNING = tuple(
    Step(shown)
    for shown in (
        "openssl genpkey -algorithm ed25519 -out key.pem",
        "openssl pkey -in key.pem -pubout -out public.pem",
        "sha256sum *.policy > SHA256SUMS",
        "openssl pkeyutl -sign -rawin -inkey key.pem -in SHA256SUMS | base64 > SHA256SUMS.sig",
        "sha256sum -c SHA256SUMS",
    )
)


def shown(text: str) -> set[str]:
    """Return the commands of indented blocks and those within lines, without comments, continued lines joined."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\\\n", " ")
    lines = re.findall(rf"^    ({_PROGRAM} .*)$", text, re.MULTILINE)
    lines += filter(_RUNNABLE.search, re.findall(rf"`({_PROGRAM} [^`]*)`", text))
    return {re.sub(r"\s+", " ", line.partition("  #")[0].strip()) for line in lines}


@pytest.mark.parametrize("page", PAGES)
def test_each_command_is_run_here_or_elsewhere(page: str) -> None:
    here = {step.shown for step in (*INSTALLING, *LOOKING, *LOST, *APART, *REMOVING, *SIGNING)}
    found = shown(PAGES[page])
    assert found
    unknown = [typed for typed in found - here if not typed.startswith(tuple(ELSEWHERE))]
    assert [typed for typed in unknown if typed not in OPTIONS] == []


def test_what_is_run_is_what_is_shown() -> None:
    found = set().union(*map(shown, PAGES.values()))
    assert {step.shown for step in (*INSTALLING, *LOOKING, *LOST, *APART, *REMOVING, *SIGNING)} <= found
    assert [known for known in ELSEWHERE if not any(typed.startswith(known) for typed in found)] == []


def mine(folder: Path) -> Path:
    """Make the folder that the page describes, beside a copy of deploy/."""
    shutil.copytree(DEPLOY, folder / "deploy")
    (block,) = re.findall(r"```yaml\n# mine/kustomization.yaml\n(.*?)```", PAGES["README"], re.DOTALL)
    made = folder / "mine"
    made.mkdir()
    (made / "kustomization.yaml").write_text(block.replace("REGISTRY", "registry.example.com"))
    (made / "web.policy").write_text("filter node.ready and fits(cpu, mem)\nscore least_allocated(cpu, mem)\n")
    shutil.copy(DEPLOY / "base" / "config.yaml", made)
    (folder / "policies").mkdir()
    shutil.copy(made / "web.policy", folder / "policies")
    return made


def play(*steps: Step) -> None:
    """Run each here, and hold what it says against what it has to."""
    for step in steps:
        typed = step.shown
        for word, value in step.given:
            typed = re.sub(rf"\b{word}\b", value, typed)
        assert step.says in shell(typed, code=step.code), typed


def shell(typed: str, *, code: int = 0) -> str:
    """Run a command as bash would; those of ours in this process, which is faster."""
    if typed.startswith("policyctl "):
        said, ended = command(typed, Path())
    else:
        programs = [str(each) for each in (assets(), Path(sys.executable).parent) if each is not None]
        path = os.pathsep.join([*programs, os.environ["PATH"]])
        bash = ["bash", "-euo", "pipefail", "-c", typed]
        done = subprocess.run(bash, capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=60)
        said, ended = done.stdout + done.stderr, done.returncode
    assert ended == code, f"{typed}: {said}"
    return said


@pytest.mark.needs("kubectl")
def test_from_installation_to_removal(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "HOME": tmp_path,
        "KUBECONFIG": cluster.kubeconfig(tmp_path / "admin"),
        "NO_PROXY": "*",
    }.items():
        monkeypatch.setenv(name, str(value))
    cluster.add_nodes(node("n1"))
    play(*INSTALLING)
    found = yaml.safe_load(shell("kubectl get -k mine -o yaml --ignore-not-found"))["items"]
    images = {
        each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found if each["kind"] == "Deployment"
    }
    assert images == {"registry.example.com/kube-policy-scheduler:0.1.0"}

    cluster.ensure("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    cluster.add_pods(pod("waiting", cpu="64"), pod("running", nodeName="n1"))
    play(*LOOKING)

    # all replicas are gone, nobody places the next one: an administrator does
    lost = pod("lost", namespace=NAMESPACE)
    lost["metadata"]["labels"] = {"app.kubernetes.io/name": "policy-scheduler"}
    lost["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for each in lost["spec"]["containers"]:
        each["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    cluster.add_pods(lost)
    (binding,) = re.findall(r"```json\n(\{.*\"Binding\".*\})\n```", PAGES["MAIN-SCHEDULER"])
    (tmp_path / "binding.json").write_text(binding.replace("POD", "lost").replace("NODE", "n1"))
    play(*LOST)
    assert cluster.pod("lost", namespace=NAMESPACE)["spec"]["nodeName"] == "n1"

    play(*APART)
    if cluster.has_kubelets:  # without controllers, namespaces never go
        play(*REMOVING)
    for name in ("ops-see-scheduler", "prometheus-scrapes-scheduler"):
        shell(f"kubectl delete clusterrolebinding {name}")


@pytest.mark.needs("openssl", "sha256sum")
def test_what_is_signed_as_shown_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("web.policy").write_text("filter node.ready\n")
    play(*SIGNING)
    found = read_policies(tmp_path, proof=PolicyProof(tmp_path / "public.pem"))
    assert [name for name, _ in found.files] == ["web.policy"]
