"""A decision that depends on queues, captured and decided again: its quota, its patience, also under pseudonyms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.tooling.snapshot.fields import recorded_objects
from tests.framework.worlds import make_node, make_pod

QUEUES = """queue research for pods where pod.namespace == "research" min cpu 8 max cpu 12
queue team by pod.label.team min cpu 8
reclaim after 30s evict where victim.label.kind != "important"
filter fits(cpu)
"""


def pod(name: str, namespace: str, cpu: str, *, on: str = "", day: int = 2, **labels: str) -> Any:
    made = make_pod(name, {"cpu": cpu, "labels": labels})
    made.metadata.namespace, made.metadata.uid = namespace, f"{namespace}-{name}"
    made.metadata.creation_timestamp = f"2026-01-0{day}T00:00:00Z"
    made.spec.scheduler_name, made.spec.node_name = "policy-scheduler", on
    made.status.phase = "Running" if on else "Pending"
    made.status.start_time = made.metadata.creation_timestamp if on else None
    return made


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    things = recorded_objects(
        [
            *(make_node(name, {"labels": {}, "cpu": "8"}) for name in ("n0", "n1")),
            pod("one", "research", "5", on="n0"),
            pod("two", "research", "6", on="n1", day=1, kind="important"),  # came first: what is borrowed is "one"
            pod("more", "research", "2"),
            pod("owner", "shop", "4", team="red"),
        ]
    )
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": things}))
    (tmp_path / "q.policy").write_text(QUEUES)
    return tmp_path


def captured(folder: Path, name: str, *more: str) -> dict[str, Any]:
    asked = ["capture", name, "--policies", "q.policy", "--cluster", "cluster.json", "--now", "2026-01-02T00:01:00Z"]
    assert run([*asked, "-o", "case.test.yaml", "--force", *more]) == 0
    assert run(["test", "case.test.yaml"]) == 0
    found: dict[str, Any] = yaml.safe_load((folder / "case.test.yaml").read_text())
    return found


@pytest.mark.parametrize("more", [(), ("--anonymise",)])
def test_a_pod_without_quota(world: Path, more: tuple[str, ...]) -> None:
    found = captured(world, "more", *more)
    assert found["cases"][0]["expect"]["unschedulable"] == {"clause": "QueueQuota"}
    assert len(found["pods"]) == 2, "both use the quota"


@pytest.mark.parametrize("more", [(), ("--anonymise",)])
def test_a_pod_that_gets_its_guarantee_back_after_its_patience(world: Path, more: tuple[str, ...]) -> None:
    found = captured(world, "owner", *more)
    (case,) = found["cases"]
    assert case["queued"] == "60.000s"
    assert case["expect"]["evicts"] == [next(pod["name"] for pod in found["pods"] if pod["cpu"] == "5")]
    hidden = "one" not in (world / "case.test.yaml").read_text().split("\n", 1)[1]
    assert hidden is bool(more)
    assert {pod["namespace"] for pod in found["pods"]} == {"research"}, "the policies name it"
