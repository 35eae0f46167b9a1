"""Policies of several owners in a running scheduler."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import ZONE, node, pod

CONFIGURATION = """\
apiVersion: policy-scheduler/v1alpha1
kind: PolicySchedulerConfiguration
policies:
  path: admin
  owners:
  - {name: team-a, path: team-a, namespaces: [team-a]}
  - {name: team-b, path: team-b, namespaces: [team-b]}
"""


def test_each_team_places_its_own_pods_and_an_error_stays_with_its_team(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    for owner in ("admin", "team-a", "team-b"):
        (tmp_path / owner).mkdir()
    (tmp_path / "config.yaml").write_text(CONFIGURATION)
    (tmp_path / "admin" / "default.policy").write_text(f"filter label {ZONE}=a\n")
    (tmp_path / "team-a" / "web.policy").write_text(f"filter label {ZONE}=b\n")
    (tmp_path / "team-b" / "web.policy").write_text("preempt never\n")
    cluster.use_namespaces("team-a", "team-b")
    cluster.add_nodes(node("in-a", labels={ZONE: "a"}), node("in-b", labels={ZONE: "b"}))
    process = scheduler(f"--config={tmp_path / 'config.yaml'}", f"--policies={tmp_path / 'admin'}").start_ready()
    cluster.add_pods(pod("one", namespace="team-a"), pod("two", namespace="team-b"), pod("three"))

    eventually(lambda: process.policies()["owners"]["team-b"]["problems"])
    assert cluster.wait_bound("one", "two", "three") == {"one": "in-b", "two": "in-a", "three": "in-a"}
    owners = process.policies()["owners"]
    assert owners["team-a"]["policies"] == ["team-a/web"]
    assert "owner `team-b` may not use `preempt`" in owners["team-b"]["problems"][0]
    assert "policies of team-b refused" in process.get("/readyz?verbose")[1]
