"""Policies of several owners in a running scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_policy_scheduler.cli.main import run
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import ZONE, Json, node, pod

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
    # a busy machine may take longer than the scheduler waits for owners
    eventually(lambda: process.policies()["owners"]["team-a"]["policies"])
    eventually(lambda: process.policies()["owners"]["team-b"]["problems"])
    cluster.add_pods(pod("one", namespace="team-a"), pod("two", namespace="team-b"), pod("three"))

    assert cluster.wait_bound("one", "two", "three") == {"one": "in-b", "two": "in-a", "three": "in-a"}
    owners = process.policies()["owners"]
    assert owners["team-a"]["policies"] == ["team-a/web"]
    assert "owner `team-b` may not use `preempt`" in owners["team-b"]["problems"][0]
    assert "policies of team-b refused" in process.get("/readyz?verbose")[1]


def test_a_team_writes_scheduling_policies_and_sees_how_they_fare(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    (tmp_path / "admin").mkdir()
    (tmp_path / "admin" / "default.policy").write_text(f"filter label {ZONE}=a\n")
    (tmp_path / "config.yaml").write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\npolicies:\n  owners:\n"
        "  - {name: shop, schedulingPolicies: team-a, namespaces: [team-a]}\n"
    )
    cluster.use_namespaces("team-a")
    cluster.add_nodes(node("in-a", labels={ZONE: "a"}), node("in-b", labels={ZONE: "b"}))
    cluster.add_scheduling_policies()
    cluster.api.create("schedulingpolicies", scheduling_policy("web", f"filter label {ZONE}=b\n"))
    process = scheduler(f"--config={tmp_path / 'config.yaml'}", f"--policies={tmp_path / 'admin'}").start_ready()

    def shown() -> tuple[str, str]:
        status = cluster.api.get("schedulingpolicies", "web", namespace="team-a").get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", ())}
        return tuple(conditions.get(kind, {}).get("status", "") for kind in ("Accepted", "Active"))  # type: ignore[return-value]

    eventually(lambda: shown() == ("True", "True"), else_=process.log)
    cluster.add_pods(pod("one", namespace="team-a"), pod("two"))
    assert cluster.wait_bound("one", "two") == {"one": "in-b", "two": "in-a"}

    cluster.api.patch("schedulingpolicies", "web", {"spec": {"policy": "priority 5\n"}}, namespace="team-a")
    eventually(lambda: shown() == ("False", "True"), else_=process.log)
    told = cluster.api.get("schedulingpolicies", "web", namespace="team-a")
    accepted = told["status"]["conditions"][0]
    assert accepted["reason"] == "Refused"
    assert "may use priorities up to 0" in accepted["message"]
    assert accepted["observedGeneration"] == told["metadata"]["generation"]
    cluster.add_pods(pod("three", namespace="team-a"))
    assert cluster.wait_bound("three") == {"three": "in-b"}

    cluster.api.delete("schedulingpolicies", "web", namespace="team-a")
    eventually(lambda: process.policies()["owners"]["shop"]["policies"] == [])
    cluster.add_pods(pod("four", namespace="team-a"))
    assert cluster.wait_bound("four") == {"four": "in-a"}


def test_a_restart_with_broken_scheduling_policies_starts_from_the_last_accepted_ones(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "admin").mkdir()
    (tmp_path / "admin" / "default.policy").write_text(f"filter label {ZONE}=a\n")
    (tmp_path / "config.yaml").write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\npolicies:\n  owners:\n"
        "  - {name: shop, schedulingPolicies: team-a, namespaces: [team-a]}\n"
        "leaderElection: {leaseNamespace: default}\n"
    )
    cluster.use_namespaces("team-a")
    cluster.add_nodes(node("in-a", labels={ZONE: "a"}), node("in-b", labels={ZONE: "b"}))
    cluster.add_scheduling_policies()
    cluster.api.create("schedulingpolicies", scheduling_policy("web", f"filter label {ZONE}=b\n"))
    process = scheduler(f"--config={tmp_path / 'config.yaml'}", f"--policies={tmp_path / 'admin'}").start_ready()
    where = ["--scheduling-policies=team-a", "--owner=shop", "--namespace=default"]
    where += ["--kubeconfig", str(cluster.kubeconfig(tmp_path / "admin.kubeconfig"))]

    def rollout(*arguments: str) -> str:
        assert run(["rollout", *arguments, *where]) == 0
        return capsys.readouterr().out

    eventually(lambda: cluster.api.get("controllerrevisions", "policy-owner.shop-1", namespace="default"))
    assert rollout("history").splitlines()[1].endswith("in the namespace")
    assert process.terminate() == 0
    cluster.api.patch("schedulingpolicies", "web", {"spec": {"policy": "priority 5\n"}}, namespace="team-a")
    cluster.api.create("schedulingpolicies", scheduling_policy("more", "score 1 if node.ready\n"))
    process.start_ready()

    def shown() -> tuple[str, str, str]:
        status = cluster.api.get("schedulingpolicies", "web", namespace="team-a").get("status", {})
        found = {each["type"]: each for each in status.get("conditions", ())}
        return found["Accepted"]["reason"], found["Active"]["status"], found["Active"]["reason"]

    eventually(lambda: shown() == ("Refused", "True", "Earlier"), else_=process.log)
    assert process.policies()["owners"]["shop"]["policies"] == ["shop/web"]
    cluster.add_pods(pod("one", namespace="team-a"))
    assert cluster.wait_bound("one") == {"one": "in-b"}
    why = ["why", "one", "-n", "team-a", "--policies", str(tmp_path / "admin"), *where[-2:]]
    run([*why, "--config", str(tmp_path / "config.yaml")])
    assert "the policies of owner shop may govern this pod, but are not on this machine" in capsys.readouterr().err

    said = rollout("undo")
    assert "more.policy is not in revision 1" in said
    assert "SchedulingPolicies of namespace team-a are restored to revision 1" in said
    eventually(lambda: process.policies()["owners"]["shop"]["accepted"], else_=process.log)
    (only,) = cluster.api.list("schedulingpolicies", namespace="team-a")
    assert only["spec"]["policy"] == f"filter label {ZONE}=b\n"


def scheduling_policy(name: str, text: str) -> Json:
    return {
        "apiVersion": "policy-scheduler.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"policy": text},
    }
