"""kubectl works against the embedded API server as against a real one, validation included."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.embedded.conftest import Server
from tests.integration.control_plane import assets

pytestmark = pytest.mark.needs("kubectl")
_numbers = count()
_MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: applied, labels: {x: LABEL}}
spec: {containers: [{name: c, image: "x:1", resources: {requests: {cpu: 500m, memory: 64Mi}}}]}
"""


class Kubectl:
    """Runs kubectl in a namespace of its own."""

    def __init__(self, server: Server, home: Path) -> None:
        programs = assets()
        found = shutil.which("kubectl", path=str(programs)) if programs else None
        self._program = found or shutil.which("kubectl") or "kubectl"
        self._kubeconfig = server.kubeconfig
        self._home = home
        self.namespace = f"kubectl-{next(_numbers)}"
        self("create", "namespace", self.namespace)

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self._home), "PATH": os.environ["PATH"], "NO_PROXY": "127.0.0.1"}
        namespace = ["--namespace", self.namespace] if arguments[0] != "explain" else []
        return subprocess.run(
            [self._program, "--kubeconfig", str(self._kubeconfig), *namespace, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=45,
            env=environment,
            check=False,
        )

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def kubectl(server: Server, tmp_path: Path) -> Iterator[Kubectl]:
    made = Kubectl(server, tmp_path)
    yield made
    server.client.send("DELETE", f"/api/v1/namespaces/{made.namespace}/pods?gracePeriodSeconds=0")


def test_apply_creates_then_changes_then_finds_nothing_to_do(kubectl: Kubectl) -> None:
    first, second = _MANIFEST.replace("LABEL", "one"), _MANIFEST.replace("LABEL", "two")
    assert kubectl("apply", "-f", "-", stdin=first) == "pod/applied created\n"
    assert kubectl("apply", "-f", "-", stdin=second) == "pod/applied configured\n"
    assert kubectl("apply", "-f", "-", stdin=second) == "pod/applied unchanged\n"
    assert kubectl("get", "pod", "applied", "-o", "jsonpath={.metadata.labels.x}") == "two"


def test_apply_removes_what_the_next_manifest_no_longer_has(kubectl: Kubectl) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {clusterIP: None, selector: SELECTOR}\n"
    kubectl("apply", "-f", "-", stdin=service.replace("SELECTOR", "{a: b, c: d}"))
    kubectl("apply", "-f", "-", stdin=service.replace("SELECTOR", "{a: b}"))
    assert json.loads(kubectl("get", "service", "s", "-o", "json"))["spec"]["selector"] == {"a": "b"}


def test_server_side_apply_works(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=_MANIFEST.replace("LABEL", "one"))
    kubectl("apply", "--server-side", "-f", "-", stdin=_MANIFEST.replace("LABEL", "two"))
    assert kubectl("get", "pod", "applied", "-o", "jsonpath={.metadata.labels.x}") == "two"


def test_unknown_fields_are_refused_and_named(kubectl: Kubectl) -> None:
    done = kubectl.run(
        "create", "-f", "-", stdin=_MANIFEST.replace("cpu: 500m", "cpu: 500m, disk: 1").replace("image", "img")
    )
    assert done.returncode == 1
    # kubectl before 1.25 (Debian 12 has 1.20) checks by itself, from the OpenAPI document
    by_client = 'ValidationError(Pod.spec.containers[0]): unknown field "img"'
    by_server = 'strict decoding error: unknown field "spec.containers[0].img"'
    assert by_client in done.stderr or by_server in done.stderr


def test_a_manifest_that_breaks_the_rules_is_refused_with_the_reason(kubectl: Kubectl) -> None:
    done = kubectl.run("create", "-f", "-", stdin=_MANIFEST.replace("name: c,", "name: C_,"))
    assert done.returncode == 1
    assert "spec.containers[0].name: Invalid value" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["configmap", "c", "--from-literal=a=b"],
        ["deployment", "d", "--image=nginx", "--replicas=2"],
        ["job", "j", "--image=x"],
        ["quota", "q", "--hard=pods=1"],
        ["role", "r", "--verb=get", "--resource=pods"],
        ["rolebinding", "r", "--clusterrole=view", "--user=u"],
        ["secret", "generic", "s", "--from-literal=a=b"],
        ["serviceaccount", "s"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_create_has_its_short_forms(kubectl: Kubectl, arguments: list[str]) -> None:
    assert "created" in kubectl("create", *arguments)
    kind, name = arguments[0], next(item for item in reversed(arguments) if not item.startswith("--"))
    assert kubectl("get", kind, name, "-o", "name").strip().endswith(f"/{name}")


def test_what_kubectl_creates_is_complete(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=nginx", "--replicas=2", "--port=80")
    spec = json.loads(kubectl("get", "deployment", "d", "-o", "json"))["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert (spec["replicas"], spec["selector"]) == (2, {"matchLabels": {"app": "d"}})
    assert (container["name"], container["ports"]) == ("nginx", [{"containerPort": 80, "protocol": "TCP"}])


def test_get_shows_the_columns_people_know(kubectl: Kubectl) -> None:
    kubectl("run", "web", "--image=nginx")
    head, row = kubectl("get", "pods").splitlines()
    assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["web", "0/1", "Pending", "0"]
    assert kubectl("get", "pods", "-o", "wide").split()[:9][-3:] == ["NODE", "NOMINATED", "NODE"]


def test_labels_patches_and_annotations_change_objects(kubectl: Kubectl) -> None:
    kubectl("run", "web", "--image=nginx")
    kubectl("label", "pod", "web", "a=b")
    kubectl("annotate", "pod", "web", "c=d")
    kubectl("patch", "pod", "web", "-p", '{"metadata":{"labels":{"e":"f"}}}')
    kubectl("patch", "pod", "web", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/run"}]')
    meta = json.loads(kubectl("get", "pod", "web", "-o", "json"))["metadata"]
    assert meta["labels"] == {"a": "b", "e": "f"}
    assert meta["annotations"] == {"c": "d"}


def test_scale_and_set_image_change_deployments(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=nginx")
    kubectl("scale", "deployment", "d", "--replicas=4")
    kubectl("set", "image", "deployment/d", "nginx=nginx:2")
    spec = json.loads(kubectl("get", "deployment", "d", "-o", "json"))["spec"]
    assert spec["replicas"] == 4
    assert spec["template"]["spec"]["containers"][0]["image"] == "nginx:2"


def test_nodes_can_be_cordoned_tainted_and_described(kubectl: Kubectl) -> None:
    name = f"node-of-{kubectl.namespace}"
    kubectl("create", "-f", "-", stdin=f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n")
    kubectl("cordon", name)
    kubectl("taint", "node", name, "key=value:NoExecute")
    node = json.loads(kubectl("get", "node", name, "-o", "json"))
    assert node["spec"]["unschedulable"] is True
    assert {"key": "key", "value": "value", "effect": "NoExecute"} in node["spec"]["taints"]
    assert "Unschedulable:      true" in kubectl("describe", "node", name)
    kubectl("uncordon", name)
    kubectl("delete", "node", name)


def test_describe_pod_shows_its_events(kubectl: Kubectl) -> None:
    kubectl("run", "web", "--image=nginx")
    uid = kubectl("get", "pod", "web", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "web.1", "namespace": kubectl.namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "some-scheduler",
        "reportingInstance": "here",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "0/3 nodes are available",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": kubectl.namespace, "uid": uid},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    described = kubectl("describe", "pod", "web")
    assert "FailedScheduling" in described
    assert "some-scheduler" in described
    assert "0/3 nodes are available" in kubectl("get", "events", "--field-selector", "involvedObject.name=web")


def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl) -> None:
    kubectl("run", "web", "--image=nginx")
    assert 'pod "web"' in kubectl("delete", "pod", "web")
    assert kubectl.run("get", "pod", "web").returncode == 1


def test_dry_run_on_the_server_changes_nothing(kubectl: Kubectl) -> None:
    assert "(server dry run)" in kubectl("run", "web", "--image=nginx", "--dry-run=server")
    assert kubectl("get", "pods", "-o", "name") == ""


def test_questions_about_the_api_are_answered(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "pods " in kubectl("api-resources", "--api-group=")
    assert "resources" in kubectl("explain", "pod.spec.containers")
    assert "Server Version" in kubectl("version")


def test_a_watch_shows_changes_as_rows(kubectl: Kubectl) -> None:
    kubectl("run", "web", "--image=nginx")
    done = kubectl.run("get", "pods", "--watch", "--request-timeout=2s")
    assert done.stdout.splitlines()[1].startswith("web")
