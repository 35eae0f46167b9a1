"""The dispatcher of MultiKueue as a process, beside what the test does as Kueue's manager."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kube_policy_scheduler.times import rfc3339
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.front import Exchange, Front
from tests.integration.multikueue import NAMESPACE, Kueue
from tests.integration.permissions import granted_by, used
from tests.integration.process import SchedulerProcess

ROOT = Path(__file__).parents[2]
ONE = """\
for workloads where workload.kind == "Job"
score 3 if cluster.label.tier == "tier-c"
score 2 if cluster.label.tier == "tier-a"
choose 1 to 1 clusters
"""


@pytest.fixture
def kueue(cluster: Cluster) -> Kueue:
    return Kueue(cluster)


class Dispatcher:
    """Makes processes of the dispatcher."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self._folder, self._kubeconfig = folder, kubeconfig
        self.made: list[SchedulerProcess] = []

    def __call__(self, *arguments: str, kubeconfig: Path | None = None) -> SchedulerProcess:
        given = [f"--kubeconfig={kubeconfig or self._kubeconfig}", "--for=multikueue", "--log-format=json"]
        if not any("leader-election" in each for each in arguments):
            given.append("--no-leader-election")
        folder = self._folder / f"dispatcher-{len(self.made)}"
        self.made.append(SchedulerProcess(folder, arguments=(*given, *arguments), subcommand="fleet"))
        return self.made[-1]


@pytest.fixture
def dispatcher(cluster: Cluster, tmp_path: Path) -> Iterator[Dispatcher]:
    make = Dispatcher(tmp_path, cluster.kubeconfig(tmp_path / "kubeconfig"))
    yield make
    for process in make.made:
        process.kill()
        print(f"--- log of {process.log_file.parent.name}\n{process.log()[-8000:]}")


def test_the_best_cluster_is_nominated_and_the_manager_goes_on(
    kueue: Kueue, dispatcher: Dispatcher, policies: ConfigMapVolume
) -> None:
    kueue.add_clusters("a", "b", "c")
    policies.update({"fleet.policy": ONE})
    process = dispatcher(f"--policies={policies.path}").start_ready()
    train = kueue.add(reserved_at=rfc3339(time.time()))
    before = kueue.status(train)
    after = kueue.wait_nominated(train, "c")
    assert {key: value for key, value in after.items() if key != "nominatedClusterNames"} == {
        key: value for key, value in before.items() if key != "nominatedClusterNames"
    }
    eventually(lambda: kueue.events(train) == [("Nominated", "nominated to c")])
    shown = json.loads(process.get(f"/debug/workloads?namespace={NAMESPACE}&name={train}")[1])
    assert (shown["nominate"], shown["clusters"]["c"]["score"]) == (["c"], 3.0)
    (logged,) = [json.loads(line) for line in process.get(f"/debug/decisions?workload={train}")[1].splitlines()]
    assert (logged["outcome"], list(logged["targets"]), logged["policy"]) == ("placed", ["c"], "fleet")
    status_code, page = process.get("/")
    assert (status_code, f"{NAMESPACE}/" in page) == (200, True)
    kueue.admit(train, "c")
    status = kueue.status(train)
    assert (status["clusterName"], status.get("nominatedClusterNames")) == ("c", None)
    eventually(lambda: process.metrics()["policy_scheduler_fleet_bindings"] == 0.0)
    assert process.get("/debug/workloads?name=none")[0] == 404


def test_a_cluster_that_is_lost_is_replaced_and_a_new_process_goes_on(
    kueue: Kueue, dispatcher: Dispatcher, policies: ConfigMapVolume
) -> None:
    kueue.add_clusters("a", "b", "c")
    policies.update({"fleet.policy": ONE})
    first = dispatcher(f"--policies={policies.path}").start_ready()
    train = kueue.add(reserved_at=rfc3339(time.time()))
    kueue.wait_nominated(train, "c")
    kueue.lose("c")
    kueue.wait_nominated(train, "a")
    first.kill()
    waited = kueue.add("waited", reserved_at=rfc3339(time.time() - 450))
    dispatcher(f"--policies={policies.path}").start_ready()
    # the second round, by the time of the reservation
    kueue.wait_nominated(waited, "a", "b")
    assert kueue.status(train)["nominatedClusterNames"] == ["a"]


def test_the_profile_of_a_cluster_decides_and_a_change_of_it_too(
    kueue: Kueue, dispatcher: Dispatcher, policies: ConfigMapVolume
) -> None:
    kueue.add_clusters("a", "b", "c")
    policies.update({"fleet.policy": f'{ONE}score 9 if cluster.label.power == "water"\nkeep nothing\n'})
    kueue.add_profile("b", power="water")
    dispatcher(f"--policies={policies.path}").start_ready()
    train = kueue.add(reserved_at=rfc3339(time.time()))
    kueue.wait_nominated(train, "b")
    kueue.add_profile("a", power="water")
    kueue.wait_nominated(train, "a")


def test_another_writer_is_never_overwritten(
    kueue: Kueue, dispatcher: Dispatcher, front: Front, tmp_path: Path, policies: ConfigMapVolume
) -> None:
    kueue.add_clusters("a", "b", "c")
    policies.update({"fleet.policy": ONE})
    raced: list[str] = []

    def plan(exchange: Exchange) -> None:
        if exchange.is_about("patch", "workloads/status") and not raced:
            raced.append(exchange.name)
            kueue.apply(exchange.name, kueue.status(exchange.name) | {"clusterName": "b"})

    front.plan = plan
    process = dispatcher(f"--policies={policies.path}", kubeconfig=front.kubeconfig(tmp_path / "front"))
    process.start_ready()
    train = kueue.add(reserved_at=rfc3339(time.time()))
    eventually(lambda: raced and process.metrics()["policy_scheduler_fleet_conflicts_total"] == 1.0)
    eventually(lambda: process.metrics()["policy_scheduler_fleet_bindings"] == 0.0)
    assert (kueue.status(train)["clusterName"], kueue.status(train).get("nominatedClusterNames")) == ("b", None)


def test_what_is_granted_is_what_is_used(
    cluster: Cluster, kueue: Kueue, dispatcher: Dispatcher, front: Front, tmp_path: Path, policies: ConfigMapVolume
) -> None:
    manifests = list(yaml.safe_load_all((ROOT / "deploy/fleet/multikueue/access.yaml").read_text()))
    for each in manifests:
        cluster.ensure(f"{each['kind'].lower()}s", each)
    token = cluster.token("kueue-system", "policy-scheduler-multikueue")
    kueue.add_clusters("a", "b", "c")
    policies.update({"fleet.policy": ONE})
    settings = tmp_path / "config.yaml"
    settings.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
        "fleet: {leaseName: policy-scheduler-multikueue}\n"
    )
    process = dispatcher(
        f"--config={settings}",
        "--leader-election",
        f"--policies={policies.path}",
        kubeconfig=front.kubeconfig(tmp_path / "front", user={"token": token}),
    ).start_ready()
    train = kueue.add(reserved_at=rfc3339(time.time()))
    kueue.wait_nominated(train, "c")
    eventually(lambda: kueue.events(train))
    eventually(lambda: ("coordination.k8s.io", "leases", "update") in used(front))
    assert process.terminate() == 0
    granted = granted_by(manifests, account="policy-scheduler-multikueue")
    assert {(each.resource, each.verb) for each in front.exchanges if each.code in (401, 403)} == set()
    assert used(front) - granted == set()
    optional = {("events.k8s.io", "events", "patch"), ("coordination.k8s.io", "leases", "watch")}
    assert granted - used(front) - optional == set()
