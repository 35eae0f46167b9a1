"""The decision maker as a process, beside what the test does as Karmada's controller manager."""

from __future__ import annotations

import json
import signal
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.fleet.karmada.triggers import APPLIED
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.fakes.prometheus_server import PrometheusServer
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.front import Exchange, Fault, Front, Hold, LoseAnswer, Reply
from tests.integration.karmada import NAMESPACE, Karmada
from tests.integration.karmada_programs import karmada_scheduler
from tests.integration.objects import node
from tests.integration.permissions import granted_by, used
from tests.integration.process import SchedulerProcess

ROOT = Path(__file__).parents[2]


@pytest.fixture
def karmada(cluster: Cluster) -> Karmada:
    return Karmada(cluster.api)


class Fleet:
    """Makes processes of the decision maker."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self._folder, self._kubeconfig = folder, kubeconfig
        self.made: list[SchedulerProcess] = []

    def __call__(self, *arguments: str, kubeconfig: Path | None = None) -> SchedulerProcess:
        given = [f"--kubeconfig={kubeconfig or self._kubeconfig}", "--scheduler-name=fleet", "--log-format=json"]
        if not any("leader-election" in each for each in arguments):
            given.append("--no-leader-election")
        process = SchedulerProcess(
            self._folder / f"fleet-{len(self.made)}", arguments=(*given, *arguments), subcommand="fleet"
        )
        self.made.append(process)
        return process


@pytest.fixture
def fleet(cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:
    make = Fleet(tmp_path, cluster.kubeconfig(tmp_path / "kubeconfig"))
    yield make
    for process in make.made:
        process.kill()
        print(f"--- log of {process.log_file.parent.name}\n{process.log()[-8000:]}")


def three(karmada: Karmada) -> None:
    for name, cpu in (("a", 6), ("b", 12), ("c", 18)):
        karmada.add_cluster(name, cpu=cpu)


def writes(front: Front, resource: str = "resourcebindings") -> list[Exchange]:
    return [each for each in front.exchanges if each.verb == "patch" and each.resource.startswith(resource)]


def test_a_binding_is_written_once_and_its_status_once(
    karmada: Karmada, fleet: Fleet, front: Front, tmp_path: Path
) -> None:
    three(karmada)
    fleet(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    web = karmada.add_binding(replicas=12)
    found = karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    status = found["status"]
    assert (found["metadata"]["generation"], status["schedulerObservedGeneration"]) == (2, 2)
    assert status["lastScheduledTime"]
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Success")
    assert condition["message"] == "Binding has been scheduled successfully."
    assert json.loads(found["metadata"]["annotations"][APPLIED]) == DYNAMIC
    eventually(lambda: len(karmada.api.list("events", namespace=NAMESPACE)) == 2)
    told = {each["regarding"]["kind"]: each["note"] for each in karmada.api.list("events", namespace=NAMESPACE)}
    note = "Binding has been scheduled successfully. Result: {a:2, b:4, c:6}"
    assert told == {"ResourceBinding": note, "Deployment": note}
    mine = [each for each in writes(front) if each.name == web]
    assert [(each.resource, each.code) for each in mine] == [
        ("resourcebindings", 200),
        ("resourcebindings/status", 200),
    ]
    assert all(json.loads(each.body)["metadata"]["resourceVersion"] for each in mine)


def test_what_clusters_do_moves_no_divided_workload(karmada: Karmada, fleet: Fleet) -> None:
    three(karmada)
    fleet().start_ready()
    web = karmada.add_binding(replicas=12)
    placed = karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    karmada.set_cpu("a", 60)
    karmada.add_cluster("d", cpu=1000)
    karmada.set_cluster("b", {"metadata": {"labels": {"tier": "gold"}}, "spec": {"region": "eu"}})
    taint = {"key": "cluster.karmada.io/not-ready", "effect": "NoExecute"}
    karmada.set_cluster("c", {"spec": {"taints": [taint]}})
    later = karmada.add_binding("later", replicas=182)
    # it has room only once all of this is known; c takes nothing new
    karmada.wait_placed(later, {"a": 60, "b": 12, "d": 110})
    assert karmada.binding(web) == placed


def test_replicas_that_are_lost_or_wanted_are_placed_and_others_stay(karmada: Karmada, fleet: Fleet) -> None:
    three(karmada)
    fleet().start_ready()
    web = karmada.add_binding(replicas=12)
    karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    karmada.change(web, {"replicas": 18})
    karmada.wait_placed(web, {"a": 3, "b": 6, "c": 9})
    edited = [{"name": "a", "replicas": 9}, {"name": "b", "replicas": 9}]
    karmada.change(web, {"clusters": edited})
    karmada.wait_placed(web, {"a": 9, "b": 9})
    karmada.change(web, {"clusters": edited[:1]})
    karmada.wait_placed(web, {"a": 11, "b": 3, "c": 4})
    karmada.evict(web, "a")
    karmada.wait_placed(web, {"b": 7, "c": 11})
    karmada.unjoin("b")
    karmada.wait_placed(web, {"c": 18})


def test_a_duplicated_workload_follows_its_clusters(karmada: Karmada, fleet: Fleet) -> None:
    karmada.add_cluster("a", labels={"tier": "gold"})
    karmada.add_cluster("b")
    fleet().start_ready()
    gold = {"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "gold"}}}}
    web = karmada.add_binding(placement=DUPLICATED | gold)
    karmada.wait_placed(web, {"a": 3})
    karmada.set_cluster("b", {"metadata": {"labels": {"tier": "gold"}}})
    karmada.wait_placed(web, {"a": 3, "b": 3})
    karmada.set_cluster("a", {"metadata": {"labels": {"tier": "silver"}}})
    karmada.wait_placed(web, {"b": 3})
    karmada.set_cluster("b", {"metadata": {"labels": {"tier": "silver"}}})
    said = karmada.wait_reason(web, "NoClusterFit")
    assert said["message"] == (
        "0/2 clusters are available: 2 cluster(s) did not match the placement cluster affinity constraint."
    )
    assert karmada.targets(web) == {}


def test_a_workload_without_room_waits_for_the_status_of_clusters(karmada: Karmada, fleet: Fleet) -> None:
    karmada.add_cluster("a", cpu=3)
    fleet().start_ready()
    web = karmada.add_binding(replicas=5)
    said = karmada.wait_reason(web, "Unschedulable")
    assert said["message"].endswith("Clusters available replicas 3 are not enough to schedule.")
    assert "schedulerObservedGeneration" not in karmada.binding(web)["status"]
    karmada.set_cpu("a", 5)
    karmada.wait_placed(web, {"a": 5})


def test_a_quota_that_refuses_is_told_and_what_runs_stays(
    karmada: Karmada, fleet: Fleet, front: Front, tmp_path: Path
) -> None:
    three(karmada)
    is_full = True

    def plan(exchange: Exchange) -> Reply | None:
        is_placement = exchange.is_about("patch", "resourcebindings")
        return Reply(403, "QuotaExceeded", "the quota of shop is used up") if is_placement and is_full else None

    front.plan = plan
    process = fleet(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    web = karmada.add_binding(replicas=12, has={"a": 3})
    said = karmada.wait_reason(web, "QuotaExceeded")
    (logged,) = eventually(lambda: [json.loads(line) for line in refused(process)])
    assert (logged["reason"], logged["targets"]) == ("QuotaExceeded", {"a": 3})
    assert (said["status"], said["message"]) == ("False", "the quota of shop is used up")
    assert karmada.targets(web) == {"a": 3}
    is_full = False
    assert sum(eventually(lambda: karmada.scheduled(web)["status"] == "True" and karmada.targets(web)).values()) == 12


def refused(process: SchedulerProcess) -> list[str]:
    return process.get("/debug/decisions?outcome=refused")[1].splitlines()


def test_another_writer_is_never_overwritten(karmada: Karmada, fleet: Fleet, front: Front, tmp_path: Path) -> None:
    three(karmada)
    raced: list[str] = []

    def plan(exchange: Exchange) -> None:
        if exchange.is_about("patch", "resourcebindings") and not raced:
            raced.append(exchange.name)
            task = {"fromCluster": "c", "reason": "TaintUntolerated", "producer": "TaintManager"}
            karmada.change(exchange.name, {"gracefulEvictionTasks": [task]})

    front.plan = plan
    fleet(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    web = karmada.add_binding(replicas=12)
    karmada.wait_placed(web, {"a": 4, "b": 8})
    assert [each.code for each in writes(front) if each.resource == "resourcebindings"][:2] == [409, 200]


def test_one_that_was_killed_between_the_two_writes_goes_on(
    karmada: Karmada, fleet: Fleet, front: Front, tmp_path: Path
) -> None:
    three(karmada)
    front.plan = lambda exchange: Hold() if exchange.is_about("patch", "resourcebindings/status") else None
    killed = fleet(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    web = karmada.add_binding(replicas=12)
    eventually(lambda: front.asked("patch", "resourcebindings/status"))
    killed.kill()
    assert karmada.targets(web) == {"a": 2, "b": 4, "c": 6}
    assert karmada.scheduled(web) == {}
    karmada.set_cpu("a", 1000)
    fleet().start_ready()
    karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})


def test_only_the_leader_decides_and_the_next_one_follows(karmada: Karmada, fleet: Fleet) -> None:
    three(karmada)
    first = fleet("--leader-election").start_ready()
    second = fleet("--leader-election").start_serving()
    web = karmada.add_binding(replicas=12)
    karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    lease = karmada.api.get("leases", "policy-scheduler-fleet", namespace="karmada-system")
    assert lease["spec"]["holderIdentity"]
    first.signal(signal.SIGTERM)
    assert first.exit_code() == 0
    eventually(lambda: second.metrics()["policy_scheduler_fleet_leading"] == 1.0)
    karmada.change(web, {"replicas": 18})
    karmada.wait_placed(web, {"a": 3, "b": 6, "c": 9})
    assert second.metrics()["policy_scheduler_fleet_bindings"] == 1.0
    assert second.metrics()['policy_scheduler_fleet_decisions_total{reason="Success"}'] >= 1.0


def test_bindings_of_other_schedulers_and_suspended_ones_are_left_alone(karmada: Karmada, fleet: Fleet) -> None:
    three(karmada)
    fleet().start_ready()
    strangers = [
        karmada.add_binding("default", schedulerName="default-scheduler"),
        karmada.add_binding("suspended", suspension={"scheduling": True}),
        karmada.add_binding("unowned", meta={"labels": {}}),
    ]
    before = [karmada.binding(name) for name in strangers]
    karmada.add_cluster_binding("role", replicas=12)
    eventually(lambda: karmada.api.get("clusterresourcebindings", "role")["spec"]["clusters"])
    web = karmada.add_binding(replicas=12)
    karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    assert [karmada.binding(name) for name in strangers] == before
    karmada.change("suspended-deployment", {"suspension": None})
    karmada.wait_placed("suspended-deployment", {"a": 1, "b": 1, "c": 1})


def test_what_would_be_decided_can_be_asked(karmada: Karmada, fleet: Fleet) -> None:
    three(karmada)
    process = fleet().start_ready()
    web = karmada.add_binding(replicas=12)
    karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    karmada.set_cluster("a", {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}})

    def shown() -> Any:
        return json.loads(process.get(f"/debug/bindings?namespace={NAMESPACE}&name={web}")[1])

    assert shown()["targets"] == {"a": 2, "b": 4, "c": 6}
    assert shown()["clusters"]["b"] | {"room": 12, "room_by": "summary"} == shown()["clusters"]["b"]
    assert process.get("/debug/bindings?name=none")[0] == 404
    assert process.get("/debug/bindings?pod=none")[0] == 400


def test_decisions_are_logged(karmada: Karmada, fleet: Fleet, tmp_path: Path) -> None:
    three(karmada)
    head = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
    config = tmp_path / "config.yaml"
    config.write_text(f"{head}decisionLog: {{directory: {tmp_path}/log}}\n")
    process = fleet(f"--config={config}").start_ready()
    web = karmada.add_binding(replicas=12)
    placed = karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    huge = karmada.add_binding("huge", replicas=1200)
    karmada.wait_reason(huge, "Unschedulable")

    def logged(asked: str) -> list[Any]:
        return [json.loads(line) for line in process.get(f"/debug/decisions?{asked}")[1].splitlines()]

    (of_web,) = eventually(lambda: logged(f"workload={NAMESPACE}/web"))
    assert (of_web["outcome"], of_web["targets"]) == ("placed", {"a": 2, "b": 4, "c": 6})
    assert of_web["trigger"] == "the placement changed"
    assert of_web["generation"] == placed["metadata"]["generation"] - 1
    assert {each["cluster"]: each["roomBy"] for each in of_web["clusters"]} == dict.fromkeys("abc", "summary")
    (of_huge,) = eventually(lambda: logged("outcome=unplaced"))
    assert of_huge["message"].endswith("Clusters available replicas 36 are not enough to schedule.")
    status, page = process.get("/")
    assert status == 200
    assert all(text in page for text in ("a 2, b 4, c 6", "1 workload without a place", f"{NAMESPACE}/huge-deployment"))
    assert process.get("/debug/decisions?pod=web")[0] == 400
    assert process.get("/debug/decisions?outcome=lost")[0] == 400
    assert '"Placed workload","workload":"shop/web"' in process.log()
    assert process.terminate() == 0
    written = (tmp_path / "log/decisions.jsonl").read_text().splitlines()
    assert [json.loads(line)["workload"]["name"] for line in written] == ["web", "huge"]


def test_in_shadow_mode_it_compares_and_writes_nothing(
    cluster: Cluster, karmada: Karmada, fleet: Fleet, front: Front, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    manifests = list(yaml.safe_load_all((ROOT / "deploy/fleet/shadow/access.yaml").read_text()))
    for each in manifests:
        cluster.ensure(f"{each['kind'].lower()}s", each)
    token = cluster.token("karmada-system", "policy-scheduler-fleet-shadow")
    three(karmada)
    add_template(cluster, "web", app="web")
    policies.update({"fleet.policy": 'for workloads where true\nfilter cluster.name != "c"\ndivide evenly\n'})
    head = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
    config = tmp_path / "config.yaml"
    config.write_text(f"{head}shadow: {{schedulerNames: [fleet]}}\n")
    kubeconfig = front.kubeconfig(tmp_path / "front", user={"token": token})
    shadow = fleet(f"--config={config}", "--shadow", f"--policies={policies.path}", kubeconfig=kubeconfig)
    shadow.start_ready()
    other = fleet().start_ready()
    web = karmada.add_binding(replicas=12)
    placed = karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})

    def reported() -> Any:
        return json.loads(shadow.get("/debug/shadow")[1])

    eventually(lambda: reported()["workloads"] == 1)
    (last,) = reported()["last"]
    assert (last["verdict"], last["ours"], last["theirs"]) == ("rejected", {"a": 6, "b": 6}, {"a": 2, "b": 4, "c": 6})
    assert reported()["policies"]["fleet"]["verdicts"]["rejected"] == 1
    (logged,) = [json.loads(line) for line in shadow.get("/debug/decisions?outcome=shadow")[1].splitlines()]
    assert (logged["policy"], logged["verdict"]) == ("fleet", "rejected")
    metric = 'policy_scheduler_fleet_shadow_workloads_total{policy="fleet",verdict="rejected"}'
    assert shadow.metrics()[metric] == 1.0
    assert other.terminate() == 0
    assert shadow.terminate() == 0
    assert karmada.binding(web) == placed
    assert {each.verb for each in front.exchanges} <= {"get", "list", "watch"}
    assert {each.code for each in front.exchanges if each.code in (401, 403)} == set()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("mode: estimator\nestimator: {clusterName: a}\n", "expected mode scheduler or shadow, got estimator"),
        ("mode: shadow\nfleet: {engine: ocm}\n", "mode shadow is only for the engine karmada, got ocm"),
    ],
)
def test_a_mode_that_it_does_not_have_is_said_at_the_start(
    fleet: Fleet, tmp_path: Path, settings: str, problem: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n{settings}")
    process = fleet(f"--config={config}").start()
    assert process.exit_code() == 2
    assert problem in process.log()


@pytest.mark.parametrize(("flag", "problem"), [("--config=missing.yaml", "missing.yaml"), ("--http-address=x", "x")])
def test_what_cannot_be_used_is_said_at_the_start(fleet: Fleet, flag: str, problem: str) -> None:
    process = fleet(flag).start()
    assert process.exit_code() == 2
    assert problem in process.log()


def test_what_is_granted_is_what_is_used(
    cluster: Cluster, karmada: Karmada, fleet: Fleet, front: Front, tmp_path: Path
) -> None:
    manifests = list(yaml.safe_load_all((ROOT / "deploy/fleet/control-plane/access.yaml").read_text()))
    for each in manifests:
        cluster.ensure(f"{each['kind'].lower()}s", each)
    token = cluster.token("karmada-system", "policy-scheduler-fleet")
    three(karmada)
    process = fleet("--leader-election", kubeconfig=front.kubeconfig(tmp_path / "front", user={"token": token}))
    process.start_ready()
    karmada.add_cluster_binding("role", replicas=12)
    eventually(lambda: karmada.api.get("clusterresourcebindings", "role").get("status"))
    web = karmada.add_binding(replicas=12)
    karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    big = karmada.add_binding("big", replicas=1200)
    karmada.wait_reason(big, "Unschedulable")
    for number in range(2):  # the same again is counted up in its event
        karmada.change(big, {"replicas": 1201 + number})
        karmada.change(big, {"replicas": 1200})
    eventually(lambda: ("coordination.k8s.io", "leases", "update") in used(front))
    eventually(lambda: karmada.api.list("events", namespace=NAMESPACE))
    assert process.terminate() == 0
    granted = granted_by(manifests, account="policy-scheduler-fleet")
    assert {(each.resource, each.verb) for each in front.exchanges if each.code in (401, 403)} == set()
    assert used(front) - granted == set()
    optional = {("events.k8s.io", "events", "patch"), ("coordination.k8s.io", "leases", "watch")}
    # templates are read for policies alone
    assert {what for what in granted - used(front) - optional if what[2] != "get"} == set()


READER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "member-reader"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}],
}
"""What members allow by the token that Karmada has of them."""


def allow_reading(cluster: Cluster, karmada: Karmada) -> None:
    """Let the decision maker read Secrets, and have two of three clusters be this one: b with a token that is wrong."""
    cluster.ensure("namespaces", {"metadata": {"name": "karmada-cluster"}})
    for folder in ("control-plane", "members"):
        for each in yaml.safe_load_all((ROOT / f"deploy/fleet/{folder}/access.yaml").read_text()):
            cluster.ensure(f"{each['kind'].lower()}s", each)
    reader = cluster.token("default", "member-reader")
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "member-reader"}
    subject = {"kind": "ServiceAccount", "name": "member-reader", "namespace": "default"}
    cluster.ensure("clusterroles", READER)
    cluster.ensure(
        "clusterrolebindings", {"metadata": {"name": "member-reader"}, "roleRef": role, "subjects": [subject]}
    )
    cluster.add_nodes(node("n1", cpu="2"), node("n2", cpu="2"))
    three(karmada)
    assert cluster.endpoint.ca_file is not None
    for name, given in (("a", reader), ("b", "wrong")):
        text = {"token": given, "caBundle": cluster.endpoint.ca_file.read_text()}
        data = {key: b64encode(value.encode()).decode() for key, value in text.items()}
        thing = {"metadata": {"name": name, "namespace": "karmada-cluster"}, "type": "Opaque", "data": data}
        cluster.ensure("secrets", thing)
        where = {"namespace": "karmada-cluster", "name": name}
        karmada.set_cluster(name, {"spec": {"apiEndpoint": cluster.endpoint.url, "secretRef": where}})


def test_members_are_read_by_the_credentials_that_karmada_has_of_them(
    cluster: Cluster, karmada: Karmada, fleet: Fleet, front: Front, tmp_path: Path
) -> None:
    allow_reading(cluster, karmada)
    token = cluster.token("karmada-system", "policy-scheduler-fleet")
    head = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
    config = tmp_path / "config.yaml"
    config.write_text(f"{head}fleet: {{estimators: {{members: true, timeout: 30s}}}}\n")
    process = fleet(f"--config={config}", kubeconfig=front.kubeconfig(tmp_path / "front", user={"token": token}))
    process.start_ready()
    web = karmada.add_binding(replicas=12)
    eventually(lambda: karmada.binding(web)["spec"].get("clusters"))
    shown = json.loads(process.get(f"/debug/bindings?namespace={NAMESPACE}&name={web}")[1])
    rooms = {name: (each["room"], each["room_by"]) for name, each in shown["clusters"].items()}
    assert rooms == {"a": (4, "member"), "b": (12, "summary"), "c": (18, "summary")}
    unread = {
        name: process.metrics().get(f'policy_scheduler_fleet_member_unread{{cluster="{name}"}}') for name in "abc"
    }
    assert unread == {"a": 0.0, "b": 1.0, "c": 1.0}
    assert process.terminate() == 0
    assert {(each.resource, each.verb) for each in front.exchanges if each.code in (401, 403)} == set()


def test_policies_read_the_nodes_and_pods_of_members(
    cluster: Cluster, karmada: Karmada, fleet: Fleet, front: Front, tmp_path: Path
) -> None:
    allow_reading(cluster, karmada)
    token = cluster.token("karmada-system", "policy-scheduler-fleet")
    folder = ConfigMapVolume(tmp_path / "policies")
    folder.update({"own.policy": "for workloads where true\ndivide evenly\n"})
    process = fleet(f"--policies={folder.path}", kubeconfig=front.kubeconfig(tmp_path / "front", user={"token": token}))
    process.start_ready()
    api = karmada.add_binding("api", replicas=3)
    karmada.wait_placed(api, {"a": 1, "b": 1, "c": 1})
    assert "secrets" not in {each.resource for each in front.exchanges}, "nobody asks about members"
    count = "count(n in cluster.nodes where n.allocatable.cpu >= 2)"
    text = f"for workloads where true\nfilter {count} ?? 0 == 2 as two\ndivide evenly\n"
    folder.update({"own.policy": text})
    eventually(lambda: "secrets" in {each.resource for each in front.exchanges})
    web = karmada.add_binding(replicas=4)
    karmada.wait_placed(web, {"a": 4})
    shown = json.loads(process.get(f"/debug/bindings?namespace={NAMESPACE}&name={web}")[1])["clusters"]
    assert shown["a"]["read_at"] is not None
    assert [(shown[name]["read_at"], shown[name]["rejected_by"]) for name in "bc"] == [(None, "two")] * 2
    assert shown["b"]["unread"].startswith("401")
    assert shown["c"]["unread"] == "its Cluster has no spec.apiEndpoint; expected https://HOST:PORT"
    record = json.loads(process.get("/debug/decisions?workload=web&limit=1")[1])
    told = {each["cluster"]: (bool(each.get("readAt")), each.get("unread", "")[:3]) for each in record["clusters"]}
    assert told == {"a": (True, ""), "b": (False, "401"), "c": (False, "its")}
    assert 'policy_scheduler_fleet_member_age_seconds{cluster="a"}' in process.metrics()
    assert process.terminate() == 0
    assert {(each.resource, each.verb) for each in front.exchanges if each.code in (401, 403)} == set()


OWN_FIRST = """\
for workloads where workload.label.app == "web"
score 1000 if cluster.provider == "own"
score -(cluster.price ?? 9)
divide best first
"""

BACK_BY_TWO = """\
for workloads where true
score 100 if cluster.provider == "own"
divide best first
rebalance at most 2 rest 1s
"""


def test_policies_decide_and_are_taken_over_while_it_runs(
    cluster: Cluster, karmada: Karmada, fleet: Fleet, policies: ConfigMapVolume
) -> None:
    karmada.add_cluster("a", cpu=6, provider="own")
    karmada.add_cluster("b", cpu=12, provider="aws", annotations={"policy-scheduler/hourly-price": "5"})
    karmada.add_cluster("c", cpu=18, provider="gcp", annotations={"policy-scheduler/hourly-price": "4"})
    add_template(cluster, "web", app="web")
    add_template(cluster, "other", app="other")
    policies.update({"fleet.policy": OWN_FIRST})
    process = fleet(f"--policies={policies.path}").start_ready()
    web = karmada.add_binding(replicas=12)
    karmada.wait_placed(web, {"a": 6, "c": 6})
    other = karmada.add_binding("other", replicas=12)
    karmada.wait_placed(other, {"b": 6, "c": 6})  # what is decided counts: a is full
    bare = karmada.add_binding("bare", replicas=1, placement=DUPLICATED)
    karmada.wait_placed(bare, {"a": 1, "b": 1, "c": 1})
    (logged,) = [json.loads(line) for line in process.get("/debug/decisions?workload=bare")[1].splitlines()]
    assert 'deployments.apps "bare" not found' in logged["unread"]
    assert process.metrics()["policy_scheduler_fleet_unread_templates_total"] == 1.0
    policies.update({"fleet.policy": f"{OWN_FIRST}divide worst first\n"})
    eventually(lambda: "policies refused" in process.log())
    served = json.loads(process.get("/policies")[1])
    assert (served["generation"], served["accepted"], served["active"] == served["candidate"]) == (1, False, False)
    karmada.change(web, {"replicas": 14})
    karmada.wait_placed(web, {"a": 6, "c": 8})
    policies.update({"fleet.policy": OWN_FIRST.replace("best first", "evenly")})
    eventually(lambda: "generation 2" in process.log())
    karmada.change(web, {"replicas": 16})
    placed = karmada.wait_placed(web, {"a": 6, "b": 2, "c": 8})
    assert placed["status"]["schedulerObservedGeneration"] == placed["metadata"]["generation"]
    eventually(lambda: process.get("/readyz")[0] == 200)


def test_a_filter_of_a_policy_never_empties_what_runs(
    cluster: Cluster, karmada: Karmada, fleet: Fleet, policies: ConfigMapVolume
) -> None:
    three(karmada)
    add_template(cluster, "web", app="web")
    policies.update({"fleet.policy": 'for workloads where true\nfilter cluster.name == "a"\n'})
    process = fleet(f"--policies={policies.path}").start_ready()
    web = karmada.add_binding(replicas=3)
    karmada.wait_placed(web, {"a": 3})
    policies.update({"fleet.policy": 'for workloads where true\nfilter cluster.name == "none"\n'})
    eventually(lambda: "generation 2" in process.log())
    karmada.change(web, {"replicas": 4})
    said = karmada.wait_reason(web, "Unschedulable")
    assert said["status"] == "False"
    assert karmada.targets(web) == {"a": 3}


def test_replicas_go_back_at_the_pace_of_the_policy(
    cluster: Cluster, karmada: Karmada, fleet: Fleet, policies: ConfigMapVolume
) -> None:
    karmada.add_cluster("a", cpu=2, provider="own")
    karmada.add_cluster("c", cpu=18, provider="gcp")
    add_template(cluster, "web", app="web")
    policies.update({"fleet.policy": BACK_BY_TWO})
    fleet(f"--policies={policies.path}").start_ready()
    web = karmada.add_binding(replicas=5)
    karmada.wait_placed(web, {"a": 2, "c": 3})
    karmada.set_cpu("a", 50)
    seen: list[dict[str, int]] = []

    def goes_back() -> bool:
        targets = karmada.targets(web)
        if targets not in seen:
            seen.append(targets)
        # the test is the controller manager: each placement becomes healthy
        health = [{"clusterName": name, "health": "Healthy"} for name in targets]
        status = {"status": {"aggregatedStatus": health}}
        karmada.api.patch("resourcebindings", web, status, namespace=NAMESPACE, subresource="status")
        return targets == {"a": 5}

    eventually(goes_back)
    assert seen == [{"a": 2, "c": 3}, {"a": 4, "c": 1}, {"a": 5}]


def add_template(cluster: Cluster, name: str, **labels: str) -> None:
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}
    if any(each["metadata"]["name"] == name for each in cluster.api.list("deployments", namespace=NAMESPACE)):
        cluster.api.delete("deployments", name, namespace=NAMESPACE)
    cluster.api.create(
        "deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod},
        },
    )


def test_an_outage_and_lost_answers_lose_no_decision(
    karmada: Karmada, fleet: Fleet, front: Front, tmp_path: Path
) -> None:
    three(karmada)
    lost: list[str] = []

    def lose_first_answers(exchange: Exchange) -> Fault | None:
        if exchange.verb == "patch" and exchange.resource not in lost:
            lost.append(exchange.resource)
            return LoseAnswer()
        return None

    front.plan = lose_first_answers
    process = fleet(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    web = karmada.add_binding(replicas=12)
    placed = karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    assert placed["metadata"]["generation"] == 2, "what was written, though nobody heard of it, is not written again"
    assert set(lost) >= {"resourcebindings", "resourcebindings/status"}
    front.down()
    other = karmada.add_binding("other", replicas=12)
    karmada.change(web, {"replicas": 18})
    front.stay_away(1.0)
    front.up()
    karmada.wait_placed(other, {"a": 2, "b": 4, "c": 6})
    karmada.wait_placed(web, {"a": 3, "b": 6, "c": 9})
    assert process.is_alive


LEAST_LOADED = """\
for workloads where true
metric load = promql("cpu_ratio") every 1s stale after 1h by cluster
filter load ?? 1 < 0.8 else "busy"
score -100 * (load ?? 1)
divide best first
"""


@pytest.mark.needs("prometheus", "promtool")
def test_metrics_of_clusters_decide(
    cluster: Cluster, karmada: Karmada, fleet: Fleet, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    three(karmada)
    add_template(cluster, "web", app="web")
    (folder := tmp_path / "prometheus").mkdir()
    prometheus = PrometheusServer(folder)
    prometheus.backfill({"cpu_ratio": [({"cluster": "a"}, 0.9), ({"cluster": "b"}, 0.2), ({"cluster": "c"}, 0.5)]})
    prometheus.start()
    try:
        policies.update({"fleet.policy": LEAST_LOADED})
        process = fleet(f"--policies={policies.path}", f"--prometheus-url={prometheus.url}").start_ready()
        web = karmada.add_binding(replicas=14)
        karmada.wait_placed(web, {"b": 12, "c": 2})
        shown = json.loads(process.get(f"/debug/bindings?namespace={NAMESPACE}&name={web}")[1])
        assert shown["clusters"]["a"]["message"] == "busy"
    finally:
        prometheus.stop()


def test_shadow_mode_beside_karmada_scheduler(karmada: Karmada, fleet: Fleet, cluster: Cluster, tmp_path: Path) -> None:
    three(karmada)
    shadow = fleet("--shadow").start_ready()
    kubeconfig = cluster.kubeconfig(tmp_path / "karmada")
    with karmada_scheduler(kubeconfig, log=tmp_path / "karmada-scheduler.log"):
        names = [
            karmada.add_binding("web", replicas=12, schedulerName="default-scheduler"),
            karmada.add_binding("copies", replicas=2, placement=DUPLICATED, schedulerName="default-scheduler"),
            karmada.add_binding("huge", replicas=1200, schedulerName="default-scheduler"),
        ]

        def verdicts() -> list[tuple[str, str]]:
            last = json.loads(shadow.get("/debug/shadow")[1])["last"]
            return sorted({(each["workload"], each["verdict"]) for each in last})

        eventually(lambda: len(verdicts()) == len(names))
        assert verdicts() == [(f"{NAMESPACE}/{name}", "agreed") for name in ("copies", "huge", "web")]
        karmada.change(names[0], {"replicas": 18})
        eventually(lambda: karmada.targets(names[0]) == {"a": 3, "b": 6, "c": 9})
        eventually(lambda: json.loads(shadow.get("/debug/shadow")[1])["last"][0]["theirs"] == {"a": 3, "b": 6, "c": 9})
        report = json.loads(shadow.get("/debug/shadow")[1])
        assert report["verdicts"]["agreed"] == report["workloads"]
        assert shadow.terminate() == 0
