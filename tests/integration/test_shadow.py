"""A shadow beside another scheduler: its reports, and that it writes nothing to the API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import DEPLOY, built
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import Front
from tests.integration.kube_scheduler import kube_scheduler, program
from tests.integration.objects import node, pod
from tests.integration.permissions import granted_by, used
from tests.integration.process import SchedulerProcess

DEFAULT = "default-scheduler"
RULES = """
policy apps
filter fits(cpu, mem)
filter node.label.disk == "ssd"
score 10 if node.label.speed == "fast"
"""


def shown(process: SchedulerProcess) -> dict[str, Any]:
    """Return what /debug/shadow says."""
    code, text = process.get("/debug/shadow")
    assert code == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def three_nodes(cluster: Cluster) -> None:
    cluster.add_nodes(
        node("fast", labels={"disk": "ssd", "speed": "fast"}),
        node("slow", labels={"disk": "ssd"}),
        node("hdd", labels={"speed": "fast"}),
    )


@pytest.mark.needs("kubectl")
def test_it_compares_and_only_reads(
    cluster: Cluster, front: Front, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    policies.update({"default.policy": RULES})
    three_nodes(cluster)
    config = front.kubeconfig(tmp_path / "front")
    process = scheduler("--shadow", kubeconfig=config).start_ready()
    for name, to in (("good", "fast"), ("worse", "slow"), ("wrong", "hdd")):
        cluster.add_pods(pod(name, scheduler=DEFAULT))
        cluster.bind(name, to)
    cluster.add_pods(pod("leaves", scheduler=DEFAULT), pod("ours"), pod("big", scheduler=DEFAULT, cpu="64"))
    eventually(lambda: process.metrics().get('scheduler_pending_pods{queue="in flight"}') == 1)
    cluster.delete_pod("leaves")
    summary = eventually(lambda: shown(process) if shown(process)["pods"] == 4 else None)
    verdicts = {name: number for name, number in summary["verdicts"].items() if number}
    assert verdicts == {"agreed": 1, "differed": 1, "rejected": 1, "gone": 1}
    assert {each["pod"]: each.get("theirs") for each in summary["last"]} == {
        "default/good": "fast",
        "default/worse": "slow",
        "default/wrong": "hdd",
        "default/leaves": None,
    }
    assert process.metrics()['policy_scheduler_shadow_pods_total{policy="apps",verdict="rejected"}'] == 1
    records = [json.loads(line) for line in process.get("/debug/decisions?outcome=shadow")[1].splitlines()]
    assert {(r["pod"]["metadata"]["name"], r.get("node"), r.get("theirs")) for r in records} >= {
        ("worse", "fast", "slow"),
        ("wrong", "fast", "hdd"),
    }
    assert any(entry["message"] == "Compared pod" and entry["theirs"] == "hdd" for entry in process.log_entries())
    assert "Looks at what default-scheduler places" in process.get("/")[1]
    assert process.terminate() == 0

    assert {exchange.verb for exchange in front.exchanges} <= {"get", "list", "watch"}
    assert used(front) <= granted_by(built(DEPLOY / "overlays" / "shadow"), account="policy-scheduler")
    assert cluster.placements()["ours"] == "", "pods that ask for us are not a shadow's"
    assert cluster.condition("big") == {}


def test_beside_the_real_kube_scheduler_every_pod_is_compared(
    cluster: Cluster,
    scheduler: StartScheduler,
    policies: ConfigMapVolume,
    tmp_path: Path,
) -> None:
    program()
    policies.update({"default.policy": RULES})
    three_nodes(cluster)
    process = scheduler("--shadow").start_ready()
    config = cluster.kubeconfig(tmp_path / "kube-scheduler.kubeconfig")
    names = [f"p{number}" for number in range(60)]
    with kube_scheduler(config, log=tmp_path / "kube-scheduler.log"):
        cluster.add_pods(*(pod(name, scheduler=DEFAULT) for name in names))
        cluster.wait_bound(*names)
        summary = eventually(lambda: shown(process) if shown(process)["pods"] == len(names) else None)
    on = list(cluster.placements().values())
    assert summary["verdicts"]["agreed"] == on.count("fast")
    assert summary["verdicts"]["differed"] == on.count("slow")
    assert summary["verdicts"]["rejected"] == on.count("hdd") > 0
    assert len(summary["last"]) == len(names)
