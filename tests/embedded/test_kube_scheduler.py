"""The real kube-scheduler schedules on the embedded cluster, with no word of complaint.

It is the strictest client there is: protobuf bodies, watch lists, leases, events, bindings, status patches. Needs a
`kube-scheduler` in the folder KUBEBUILDER_ASSETS names.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.embedded import EmbeddedCluster
from tests.embedded.rest import Client
from tests.integration.control_plane import assets
from tests.patience import PATIENCE_SECONDS

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
_PROGRAM = (assets() or Path("absent")) / "kube-scheduler"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not _PROGRAM.is_file(), reason="KUBEBUILDER_ASSETS names no folder with kube-scheduler"),
]


def node(name: str, **labels: str) -> Json:
    capacity = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"capacity": capacity}}


def pod(name: str, cpu: str = "100m", **spec: Any) -> Json:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    cluster = EmbeddedCluster()
    cluster.load([node("a", disk="ssd"), node("b")])
    with cluster.in_thread():
        kubeconfig = tmp_path / "kubeconfig"
        cluster.kubeconfig(kubeconfig)
        log = tmp_path / "log"
        flags = [
            f"--{flag}={kubeconfig}" for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        ]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [_PROGRAM, *flags, "--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=true"],
                stdout=file,
                stderr=file,
                cwd=tmp_path,
            )
        try:
            yield Client(cluster.url)
            lines = log.read_text(encoding="utf-8").splitlines()
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)
    # about the empty manifest file of the command line it always complains
    assert [line for line in lines if line.startswith("E") and "manifest file" not in line] == []


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_real_scheduler_binds_explains_and_preempts(client: Client) -> None:
    def field(name: str, *path: str) -> Any:
        value = client.send("GET", f"{PODS}/{name}").body
        for key in path:
            value = (value or {}).get(key)
        return value

    client.send("POST", PODS, body=pod("plain"))
    client.send("POST", PODS, body=pod("choosy", nodeSelector={"disk": "ssd"}))
    client.send("POST", PODS, body=pod("huge", "64"))
    until(lambda: field("plain", "status", "phase") == "Running")
    until(lambda: field("choosy", "status", "phase") == "Running")
    assert field("choosy", "spec", "nodeName") == "a"
    until(lambda: field("huge", "status", "conditions"))
    condition = field("huge", "status", "conditions")[0]
    assert (condition["reason"], condition["status"]) == ("Unschedulable", "False")
    assert "Insufficient cpu" in condition["message"]

    def reasons() -> set[str]:
        events = client.send("GET", "/apis/events.k8s.io/v1/namespaces/default/events").body["items"]
        return {event["reason"] for event in events}

    until(lambda: {"Scheduled", "FailedScheduling"} <= reasons())
    client.send(
        "POST",
        PODS,
        body=pod("urgent", "1950m", priorityClassName="system-node-critical", nodeSelector={"disk": "ssd"}),
    )
    until(lambda: field("urgent", "status", "phase") == "Running")
    assert client.send("GET", f"{PODS}/choosy").code == 404
    lease = client.send("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler")
    assert lease.body["spec"]["holderIdentity"]
