"""`why` of the first pod of a strict order with `backfill`: which room is reserved for it, or why none is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.framework.backfill import reservation

POLICY = "order by pod.priority desc strict\nbackfill lasts duration(pod.label.runtime) at most 2h\n"
NOW = "2026-11-20T10:00:00Z"


def _pod(name: str, cpu: str, *, created: str, node: str = "", runtime: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "schedulerName": "policy-scheduler",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
    }
    metadata = {"name": name, "namespace": "default", "creationTimestamp": created}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | ({"labels": {"runtime": runtime}} if runtime else {}),
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": {"startTime": NOW} if node else {},
    }


def _why(folder: Path, name: str, capsys: pytest.CaptureFixture[str], *, runtime: str) -> str:
    amounts = {"cpu": "4", "memory": "64Gi", "pods": "110"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    early = "2026-11-20T09:00:00Z"
    pods = [_pod(f"runs-{number}", "1", created=early, node="n", runtime=runtime) for number in range(3)]
    pods += [_pod("first", "4", created=early), _pod("behind", "1", created="2026-11-20T09:30:00Z")]
    (folder / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *pods]}))
    (folder / "p.policy").write_text(POLICY)
    flags = ["--policies", str(folder / "p.policy"), "--cluster", str(folder / "c.json"), "--now", NOW]
    run(["why", name, "-n", "default", *flags])
    return " ".join(capsys.readouterr().out.split())


def test_the_first_pod_reads_when_and_where_it_has_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = "Room is reserved for it from 2026-11-20T11:00:00Z on n: pods behind it start only if they do not delay it"
    assert told in _why(tmp_path, "first", capsys, runtime="1h")
    assert "is reserved for it" not in _why(tmp_path, "behind", capsys, runtime="1h")


@pytest.mark.parametrize(
    ("most", "runtime", "why"),
    [(2, "1h", reservation.Unreserved.CUT), (4096, "3h", reservation.Unreserved.NEVER)],
    ids=["too many ends", "too late"],
)
def test_it_reads_why_nothing_is_reserved(
    most: int,
    runtime: str,
    why: reservation.Unreserved,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reservation, "MOST_ENDS", most)
    told = f"No room is reserved for it: {why.value}. Pods behind it may start before it"
    assert told in _why(tmp_path, "first", capsys, runtime=runtime)
