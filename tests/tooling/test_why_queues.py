"""`why` shows how a pod's queue stands: what is guaranteed and used, who borrows, and whether `reclaim` helps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run

GPU = "nvidia.com/gpu"
POLICY = f"""queue company max {GPU} 8
queue research of company for pods where pod.namespace == "research" min {GPU} 4
queue production of company for pods where pod.namespace == "production" min {GPU} 4
reclaim after 30s
score 1
"""
CREATED = "2026-11-20T10:00:00Z"


def pod(name: str, namespace: str, gpus: int, *, node: str = "") -> dict[str, Any]:
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    spec = {"schedulerName": "policy-scheduler", "containers": [{"name": "c", "image": "i", "resources": resources}]}
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": CREATED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec | ({"nodeName": node} if node else {}),
    }


def why(
    folder: Path,
    name: str,
    *,
    seconds: int,
    capsys: pytest.CaptureFixture[str],
    form: str = "text",
    research: Sequence[int] = (2, 2, 2),
) -> str:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: "8"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    pods = [pod(f"r{number}", "research", gpus, node="n") for number, gpus in enumerate(research)]
    pods += [pod("p0", "production", 2, node="n"), pod("p1", "production", 2), pod("r9", "research", 1)]
    (folder / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *pods]}))
    (folder / "p.policy").write_text(POLICY)
    now = CREATED.replace("00Z", f"{seconds}Z")
    namespace = "production" if name.startswith("p") else "research"
    flags = ["--policies", str(folder / "p.policy"), "--cluster", str(folder / "c.json"), "--now", now]
    run(["why", name, "-n", namespace, *flags, "--format", form])
    return capsys.readouterr().out


def test_the_queue_its_guarantee_and_who_borrows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(why(tmp_path, "p1", seconds=10, capsys=capsys).split())
    assert (
        f"Queue production, below company: 2 {GPU} used, 4 guaranteed, at most 8, share 0, and this pod requests 2; "
        "borrowed by research (2)"
    ) in text
    assert "Reclaim: not before this pod has waited for 30s." in text


def test_a_queue_that_borrows_a_single_device_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(why(tmp_path, "p1", seconds=10, capsys=capsys, research=(2, 2, 1)).split())
    assert "borrowed by research (1)" in text


def test_who_would_be_evicted_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = why(tmp_path, "p1", seconds=40, capsys=capsys)
    assert "Reclaim would evict research/r2." in text
    assert "not before" not in text


def test_a_pod_above_the_guarantee_of_its_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = why(tmp_path, "r9", seconds=40, capsys=capsys)
    assert "share 0.25, and this pod requests 1\n" in text
    assert "would evict" not in text


def test_programs_get_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(why(tmp_path, "p1", seconds=40, capsys=capsys, form="json"))
    (standing,) = found["queues"]
    assert (standing["queue"], standing["used"], standing["guaranteed"], standing["most"]) == (
        "production",
        "2",
        "4",
        "8",
    )
    assert standing["borrowers"] == [["research", "2"]]
    assert (found["reclaims"], found["victims"]) == (True, ["research/r2"])


def test_what_is_short_and_by_what_the_pod_would_be_guaranteed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(why(tmp_path, "p1", seconds=10, capsys=capsys).split())
    assert f"It would be guaranteed by {GPU} in production: only what is guaranteed by the same resource" in text
    assert f"Short for it: {GPU}" in text
    borrows = " ".join(why(tmp_path, "r9", seconds=10, capsys=capsys).split())
    assert "It would be borrowed: pods that are guaranteed what it holds may take its place" in borrows
    running = " ".join(why(tmp_path, "p0", seconds=10, capsys=capsys).split())
    assert f"It is guaranteed by {GPU} in production" in running
