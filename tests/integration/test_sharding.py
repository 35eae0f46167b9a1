"""Sharding: no pod is bound wrongly or twice, and pods of a dead replica do not wait long."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import Json, node, pod
from tests.integration.process import SchedulerProcess

LEASE_SECONDS, RENEW_SECONDS = 20.0, 15.0
"""Room for a machine that does ten other things: a replica that is not run for so long ends, as it should."""
CONFIG = """\
apiVersion: policy-scheduler/v1alpha1
kind: PolicySchedulerConfiguration
sharding:
  enabled: true
leaderElection:
  leaseName: shared
  leaseDuration: %gs
  renewDeadline: %gs
  retryPeriod: 300ms
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG % (LEASE_SECONDS, RENEW_SECONDS))
    return f"--config={path}"


@pytest.fixture
def long_config(tmp_path: Path) -> str:
    """With leases of which none runs out."""
    path = tmp_path / "long.yaml"
    path.write_text(CONFIG % (300.0, 200.0))
    return f"--config={path}"


def takes_part(process: SchedulerProcess) -> bool:
    return process.get("/readyz")[0] == 200


def replicas(scheduler: StartScheduler, config: str, number: int) -> list[SchedulerProcess]:
    found = [scheduler(config).start() for _ in range(number)]
    for each in found:
        each.wait_serving()
        eventually(lambda each=each: takes_part(each), else_=each.log)  # type: ignore[misc]
    eventually(lambda: all(members(each) == number for each in found))
    return found


def members(process: SchedulerProcess) -> int:
    told = [entry["members"] for entry in process.log_entries() if "members" in entry]
    return len(told[-1]) if told else 0


def bound_by(process: SchedulerProcess) -> set[str]:
    return {
        entry["pod"].split("/")[1]
        for entry in process.log_entries()
        if entry["message"] == "Successfully bound pod to node"
    }


def spread_over(pods: list[Json], spaces: list[str]) -> list[Json]:
    for number, each in enumerate(pods):
        each["metadata"]["namespace"] = spaces[number % len(spaces)]
    return pods


def sound(cluster: Cluster, processes: list[SchedulerProcess]) -> None:
    """See that nothing is wrong, and that each binding is one replica's."""
    assert cluster.overcommitted() == []
    assert cluster.refused_by_kubelets() == []
    shares = [bound_by(each) for each in processes]
    assert sum(map(len, shares)) == len(set().union(*shares)), "a pod was bound by two"
    for each in processes:
        assert "Traceback" not in each.log()


def test_three_replicas_fill_a_cluster_and_a_limit_to_the_brim_and_not_beyond(
    cluster: Cluster, scheduler: StartScheduler, long_config: str, policies: ConfigMapVolume
) -> None:
    policies.update(
        {
            "tenants.policy": "for pods where pod.label.tenant\nlimit count() by pod.label.tenant to 7\n",
            "zothers.policy": "filter fits(cpu)\n",
        }
    )
    cluster.add_nodes(*(node(f"n{i}", cpu="4") for i in range(6)))
    found = replicas(scheduler, long_config, 3)
    spaces = [f"team{i}" for i in range(6)]
    cluster.use_namespaces(*spaces)
    limited = [pod(f"t{i}", cpu="10m", labels={"tenant": "x"}) for i in range(20)]
    others = [pod(f"p{i}", cpu="900m") for i in range(30)]
    cluster.add_pods(*spread_over([*limited, *others], spaces))

    def bound(kind: str) -> int:
        return sum(bool(at) for name, at in cluster.placements().items() if name.startswith(kind))

    eventually(lambda: (bound("t"), bound("p")) == (7, 24), else_=cluster.placements)
    time.sleep(1.0)
    assert (bound("t"), bound("p")) == (7, 24)
    sound(cluster, found)
    assert sum(bool(bound_by(each)) for each in found) >= 2, "one replica did it all"
    nodes: list[set[str]] = []
    for each in found:
        nodes.append({e["node"] for e in each.log_entries() if e["message"] == "Successfully bound pod to node"})
    assert sum(map(len, nodes)) == len(set().union(*nodes)), "a node took pods of two replicas"


def test_when_a_replica_is_killed_the_others_take_its_part_over(
    cluster: Cluster, scheduler: StartScheduler, config: str
) -> None:
    cluster.add_nodes(*(node(f"n{i}", cpu="64") for i in range(6)))
    found = replicas(scheduler, config, 3)
    spaces = [f"team{i}" for i in range(12)]
    cluster.use_namespaces(*spaces)
    cluster.add_pods(*spread_over([pod(f"a{i}", cpu="100m") for i in range(24)], spaces))
    cluster.wait_bound()
    found[0].kill()
    cluster.add_pods(*spread_over([pod(f"b{i}", cpu="100m") for i in range(24)], spaces))
    cluster.wait_bound()
    eventually(lambda: all(members(each) == 2 for each in found[1:]))
    sound(cluster, found)
    leases = cluster.api.list("leases", namespace="kube-system")
    assert len([one for one in leases if one["metadata"]["name"].startswith("shared-shard-")]) == 2


def test_a_replica_that_comes_or_goes_in_the_middle_of_a_burst_does_no_harm(
    cluster: Cluster, scheduler: StartScheduler, long_config: str
) -> None:
    """Who ends in order is not waited for."""
    cluster.add_nodes(*(node(f"n{i}", cpu="8") for i in range(8)))
    spaces = [f"team{i}" for i in range(12)]
    cluster.use_namespaces(*spaces)
    found = replicas(scheduler, long_config, 2)
    third = scheduler(long_config).start()
    for batch in range(8):
        cluster.add_pods(*spread_over([pod(f"p{batch}-{i}", cpu="1") for i in range(9)], spaces))
        if batch == 4:
            assert found[1].terminate() == 0
    eventually(lambda: sum(bool(at) for at in cluster.placements().values()) == 64, else_=cluster.placements)
    sound(cluster, [*found, third])


def test_a_replica_that_was_stopped_binds_nothing_when_it_continues(
    cluster: Cluster, scheduler: StartScheduler, config: str
) -> None:
    cluster.add_nodes(*(node(f"n{i}", cpu="64") for i in range(6)))
    found = replicas(scheduler, config, 2)
    spaces = [f"team{i}" for i in range(12)]
    cluster.use_namespaces(*spaces)
    found[0].signal(signal.SIGSTOP)
    cluster.add_pods(*spread_over([pod(f"p{i}", cpu="100m") for i in range(24)], spaces))
    cluster.wait_bound()
    found[0].signal(signal.SIGCONT)
    assert found[0].exit_code() == 1
    assert "stopping: the lease" in found[0].log()
    assert bound_by(found[0]) == set()
    sound(cluster, found)
