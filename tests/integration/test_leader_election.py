"""Two replicas: one leads, the other is on standby; a leader that lost its lease writes nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import ALL_GOOD, StartScheduler
from tests.integration.front import Front, Reply
from tests.integration.objects import Json, node, pod
from tests.integration.process import SchedulerProcess

LEASE_SECONDS, RENEW_SECONDS = 20.0, 15.0
"""Room for a machine that does ten other things: who leads and is not run for so long steps down, as it should."""
CONFIG = f"""\
apiVersion: policy-scheduler/v1alpha1
kind: PolicySchedulerConfiguration
leaderElection:
  leaseName: elected
  leaseDuration: {LEASE_SECONDS:g}s
  renewDeadline: {RENEW_SECONDS:g}s
  retryPeriod: 300ms
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return f"--config={path}"


def lease(cluster: Cluster) -> Json:
    spec: Json = cluster.api.get("leases", "elected", namespace="kube-system")["spec"]
    return spec


def leads(process: SchedulerProcess) -> bool:
    return "became leader" in process.log()


def test_a_second_leader_outside_the_cluster_is_refused(
    cluster: Cluster, scheduler: StartScheduler, config: str, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(CONFIG + "  leaseNamespace: default\n")
    cluster.add_nodes(node("n1"))
    first = scheduler("--leader-election", f"--config={elsewhere}").start_ready()
    eventually(lambda: leads(first))
    holder = cluster.api.get("leases", "elected")["spec"]["holderIdentity"]
    for mistaken in ("--leader-election", "--no-leader-election", "--sharding"):
        second = scheduler(mistaken, config).start()
        assert second.exit_code() == 2
        (said,) = [entry["message"] for entry in second.log_entries() if entry["level"] == "error"]
        assert said.startswith(f"not starting: {holder} leads: it holds the lease elected of namespace default.")
        assert "set leaderElection.leaseNamespace to default" in said
    scheduler("--shadow", config).start_ready()
    first.kill()
    third = scheduler("--leader-election", config).start_ready()
    eventually(lambda: leads(third))  # the lease of one that died hinders nobody for longer than it lasts


def test_a_replica_without_access_to_the_lease_reports_it(
    cluster: Cluster, front: Front, scheduler: StartScheduler, config: str, tmp_path: Path
) -> None:
    front.plan = lambda exchange: (
        Reply(403, "Forbidden") if exchange.resource == "leases" and exchange.verb != "list" else None
    )
    process = scheduler("--leader-election", config, kubeconfig=front.kubeconfig(tmp_path / "front")).start_serving()
    eventually(lambda: "failed to acquire the lease" in process.log())
    code, said = process.get("/readyz?verbose")
    assert code == 500
    assert "[-]lease failed: failed to acquire the lease kube-system/elected: 403" in said
    metrics = process.metrics()
    assert metrics['policy_scheduler_lease_usable{name="elected"}'] == 0
    assert metrics['policy_scheduler_watch_late_seconds{resource="pods"}'] == 0
    assert metrics['policy_scheduler_watch_phase{phase="watching",resource="pods"}'] == 1

    front.plan = lambda exchange: None
    eventually(lambda: leads(process))
    eventually(lambda: "[+]lease ok: held by this replica" in process.get("/readyz?verbose")[1])
    second = scheduler("--leader-election", config).start_ready()
    eventually(lambda: "standing by" in second.log())
    (waits,) = [entry for entry in second.log_entries() if entry["message"].startswith("standing by")]
    assert waits["lease"] == "kube-system/elected"
    assert f"[+]lease ok: held by {waits['holder']}" in second.get("/readyz?verbose")[1]
    assert second.metrics()[f'policy_scheduler_lease_holder{{holder="{waits["holder"]}",name="elected"}}'] == 1


def test_when_the_leader_is_killed_the_other_takes_over(
    cluster: Cluster, scheduler: StartScheduler, config: str
) -> None:
    cluster.add_nodes(node("n1"))
    first = scheduler("--leader-election", config).start_ready()
    eventually(lambda: leads(first))
    second = scheduler("--leader-election", config).start_ready()
    cluster.add_pods(pod("a"))
    cluster.wait_bound("a")
    eventually(lambda: cluster.events("a", reason="Scheduled"))
    assert not leads(second)
    first.kill()
    cluster.add_pods(pod("b"))
    cluster.wait_bound("b")
    assert leads(second)
    assert lease(cluster)["leaseTransitions"] == 1
    assert len(cluster.events("a", reason="Scheduled")) == 1


def test_a_leader_that_ends_in_order_hands_over_at_once(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n1"))
    long = tmp_path / "long.yaml"
    times = {f"{LEASE_SECONDS:g}s": "300s", f"{RENEW_SECONDS:g}s": "200s", "300ms": "100s"}
    text = CONFIG
    for short, longer in times.items():
        text = text.replace(short, longer)
    long.write_text(text)  # neither the end of the lease nor a look in turn comes in time
    first, second = (scheduler("--leader-election", f"--config={long}") for _ in range(2))
    first.start_ready()
    eventually(lambda: leads(first))
    second.start_ready()
    assert first.terminate() == 0
    eventually(lambda: leads(second))
    cluster.add_pods(pod("a"))
    cluster.wait_bound("a")


def test_a_leader_that_was_stopped_writes_nothing_when_it_continues(
    cluster: Cluster, scheduler: StartScheduler, config: str, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n1"), node("n2"))
    with Front(cluster.endpoint) as seen:
        first = scheduler("--leader-election", config, kubeconfig=seen.kubeconfig(tmp_path / "seen")).start_ready()
        eventually(lambda: leads(first))
        second = scheduler("--leader-election", config).start_ready()
        first.signal(signal.SIGSTOP)
        eventually(lambda: leads(second))
        names = [f"p{i}" for i in range(10)]
        cluster.add_pods(*(pod(name) for name in names))
        cluster.wait_bound(*names)
        second.kill()  # else there would be nothing left to bind wrongly
        cluster.add_pods(*(pod(f"tempting{i}") for i in range(10)), *(pod(f"big{i}", cpu="99") for i in range(10)))
        first.signal(signal.SIGCONT)
        assert first.exit_code() == 1
        asked = {(exchange.verb, exchange.resource) for exchange in seen.exchanges}
        assert {what for what in asked if what[0] not in ("get", "list", "watch") and what[1] != "leases"} == set()
        assert "stopping: the lease" in first.log()
        assert "Traceback" not in first.log()
    left = [*(f"tempting{i}" for i in range(10)), *(f"big{i}" for i in range(10))]
    assert {cluster.placements()[name] for name in left} == {""}
    assert not any(cluster.condition(name) or cluster.events(name) for name in left)


def test_a_leader_that_loses_the_api_server_ends_and_says_so(
    cluster: Cluster, front: Front, scheduler: StartScheduler, config: str, tmp_path: Path
) -> None:
    process = scheduler("--leader-election", config, kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    eventually(lambda: leads(process))
    front.plan = lambda exchange: None
    front.down()
    assert process.exit_code() == 1
    assert f"stopping: the lease could not be renewed within {RENEW_SECONDS:g} s" in process.log()
    assert "Traceback" not in process.log()


def test_a_replica_without_policies_does_not_lead(
    cluster: Cluster, scheduler: StartScheduler, config: str, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n1"))
    empty = ConfigMapVolume(tmp_path / "empty")
    without = scheduler("--leader-election", config, f"--policies={empty.path}").start_serving()
    eventually(lambda: "there are no usable policies" in without.log())
    eventually(lambda: "caches are synced" in without.log())
    assert without.get("/readyz")[0] == 500
    leases = {each["metadata"]["name"] for each in cluster.api.list("leases", namespace="kube-system")}
    assert "elected" not in leases
    other = scheduler("--leader-election", config).start_ready()
    cluster.add_pods(pod("a"))
    cluster.wait_bound("a")
    assert leads(other)
    assert not leads(without)

    empty.update({"default.policy": ALL_GOOD})
    eventually(lambda: without.get("/readyz")[0] == 200)
    other.kill()
    cluster.add_pods(pod("b"))
    cluster.wait_bound("b")
    assert leads(without)
