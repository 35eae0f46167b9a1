"""The decision maker beside Karmada's own scheduler: what one of them leaves alone, and that both decide the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.fleet.karmada.triggers import APPLIED, DEFAULT_SCHEDULER
from tests.fleet import random_placements
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.front import Front
from tests.integration.karmada import NAMESPACE, Karmada
from tests.integration.karmada_programs import karmada_scheduler, program
from tests.integration.objects import Json
from tests.integration.process import SchedulerProcess

ROUNDS, PER_ROUND = 10, 30
EVERYWHERE = DUPLICATED | {"clusterAffinity": None}
"""As a patch: no affinity any more."""
SERVES_ROLES = [
    {"groupVersion": "rbac.authorization.k8s.io/v1", "resources": [{"kind": "ClusterRole", "name": "clusterroles"}]}
]
OURS, THEIRS = "fleet", DEFAULT_SCHEDULER


@pytest.fixture(autouse=True)
def programs() -> None:
    """Skip the test before anything is started."""
    program("karmada-scheduler")


@pytest.fixture
def karmada(cluster: Cluster) -> Karmada:
    return Karmada(cluster.api)


@pytest.fixture
def theirs(cluster: Cluster, karmada: Karmada, front: Front, tmp_path: Path) -> Iterator[None]:
    """karmada-scheduler; what it sends passes the front."""
    with karmada_scheduler(front.kubeconfig(tmp_path / "theirs"), log=tmp_path / "karmada-scheduler.log"):
        yield


@pytest.fixture
def ours(cluster: Cluster, karmada: Karmada, theirs: None, tmp_path: Path) -> Iterator[SchedulerProcess]:
    """The decision maker beside it."""
    config = cluster.kubeconfig(tmp_path / "ours")
    arguments = (f"--kubeconfig={config}", f"--scheduler-name={OURS}", "--no-leader-election", "--log-format=json")
    process = SchedulerProcess(tmp_path / "fleet", arguments=arguments, subcommand="fleet")
    try:
        yield process.start_ready()
    finally:
        process.kill()
        print(process.log()[-8000:])


def three(karmada: Karmada) -> None:
    for name, cpu in (("a", 6), ("b", 12), ("c", 18)):
        karmada.add_cluster(name, cpu=cpu)


def told(karmada: Karmada, name: str) -> dict[str, Any]:
    """Return what a scheduler said about a binding, without times and generations."""
    found = karmada.binding(name)
    status, condition = found.get("status", {}), karmada.scheduled(name)
    return {
        "targets": karmada.targets(name),
        "applied": json.loads(found["metadata"].get("annotations", {}).get(APPLIED, "null")),
        "term": status.get("schedulerObservingAffinityName", ""),
        "is observed": status.get("schedulerObservedGeneration") == found["metadata"]["generation"],
        "was placed": "lastScheduledTime" in status,
        "condition": {key: condition.get(key) for key in ("status", "reason", "message")},
    }


def test_both_write_the_same(karmada: Karmada, ours: SchedulerProcess, front: Front) -> None:
    three(karmada)
    names = {who: karmada.add_binding(who, replicas=12, schedulerName=who) for who in (OURS, THEIRS)}
    for name in names.values():
        karmada.wait_placed(name, {"a": 2, "b": 4, "c": 6})
    assert told(karmada, names[OURS]) == told(karmada, names[THEIRS])

    def events(who: str) -> set[tuple[str, str, str, frozenset[str]]]:
        return {
            (
                each["regarding"]["kind"],
                each["type"],
                each["reason"],
                frozenset(each["note"].split("{")[1][:-1].split(", ")),
            )
            for each in karmada.api.list("events", namespace=NAMESPACE)
            if who in each["regarding"]["name"]
        }

    eventually(lambda: len(events(OURS)) == len(events(THEIRS)) == 2)
    assert events(OURS) == events(THEIRS)


def test_both_write_the_same_for_templates_without_a_namespace(
    karmada: Karmada, ours: SchedulerProcess, front: Front
) -> None:
    for name in "abc":
        karmada.add_cluster(name, apiEnablements=SERVES_ROLES)
    answers = {}
    for who in (OURS, THEIRS):
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": who, "uid": f"u-{who}"}
        spec = {"schedulerName": who, "replicas": 0, "resource": role, "replicaRequirements": None}
        only_two = DUPLICATED | {"clusterAffinity": {"clusterNames": ["a", "b"]}}
        karmada.add_cluster_binding(f"{who}-clusterrole", placement=only_two, **spec)
        karmada.wait_cluster_placed(f"{who}-clusterrole", {"a": 0, "b": 0})
        karmada.api.patch("clusterresourcebindings", f"{who}-clusterrole", {"spec": {"placement": EVERYWHERE}})
        found = karmada.wait_cluster_placed(f"{who}-clusterrole", {"a": 0, "b": 0, "c": 0})
        conditions = [{key: each[key] for key in ("type", "status", "reason", "message")} for each in
                      found["status"]["conditions"]]  # fmt: skip
        answers[who] = found["spec"]["clusters"], found["metadata"]["annotations"][APPLIED], conditions
    assert answers[OURS] == answers[THEIRS]
    sent = {each.name for each in front.exchanges if each.verb == "patch"}
    assert (f"{THEIRS}-clusterrole" in sent, f"{OURS}-clusterrole" in sent) == (True, False)


def test_each_leaves_the_bindings_of_the_other_alone(karmada: Karmada, ours: SchedulerProcess, front: Front) -> None:
    three(karmada)
    names = {who: karmada.add_binding(who, placement=DUPLICATED, schedulerName=who) for who in (OURS, THEIRS)}
    for name in names.values():
        karmada.wait_placed(name, dict.fromkeys("abc", 3))
    karmada.set_cluster("a", {"spec": {"region": "eu"}})
    karmada.unjoin("b")
    for name in names.values():
        karmada.wait_placed(name, {"a": 3, "c": 3})
        karmada.change(name, {"replicas": 5})
        karmada.wait_placed(name, {"a": 5, "c": 5})
    sent = {each.name for each in front.exchanges if each.verb == "patch"}
    assert (names[THEIRS] in sent, names[OURS] in sent) == (True, False)


@pytest.mark.parametrize(("first", "then"), [(OURS, THEIRS), (THEIRS, OURS)])
def test_a_workload_is_handed_over_and_stays_where_it_is(
    karmada: Karmada, ours: SchedulerProcess, first: str, then: str
) -> None:
    three(karmada)
    terms = [
        {"affinityName": name, "clusterNames": names} for name, names in (("one", ["x"]), ("all", ["a", "b", "c"]))
    ]
    placement = DYNAMIC | {"clusterAffinities": terms}
    web = karmada.add_binding(replicas=12, placement=placement, schedulerName=first)
    placed = karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    karmada.set_cpu("a", 100)
    karmada.change(web, {"schedulerName": then})
    now = karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
    assert now["status"] == placed["status"] | {"schedulerObservedGeneration": now["metadata"]["generation"]}
    karmada.change(web, {"replicas": 14})
    eventually(lambda: sum(karmada.targets(web).values()) == 14)
    assert karmada.targets(web)["a"] == 4


def ask(karmada: Karmada, name: str, wanted: Json, scheduler: str) -> None:
    """Have a scheduler decide a binding, once its status is as the question says."""
    meta = {"name": name, "labels": wanted["metadata"]["labels"], "annotations": wanted["metadata"]["annotations"]}
    spec = wanted["spec"] | {"schedulerName": scheduler, "suspension": {"scheduling": True}}
    karmada.api.create("resourcebindings", wanted | {"metadata": meta | {"namespace": NAMESPACE}, "spec": spec})
    if wanted["status"]:
        status = {"status": wanted["status"]}
        karmada.api.patch("resourcebindings", name, status, namespace=NAMESPACE, subresource="status")
    karmada.change(name, {"suspension": None})


def first_targets(front: Front, name: str, before: Json) -> dict[str, int]:
    """Return where karmada-scheduler put a workload at first: it often decides again, by what it wrote itself."""
    bodies = [
        json.loads(each.body)
        for each in front.exchanges
        if each.is_about("patch", "resourcebindings") and each.name == name
    ]
    spec = before["spec"] | (bodies[0].get("spec", {}) if bodies else {})
    return {each["name"]: each.get("replicas", 0) for each in spec.get("clusters") or ()}


@pytest.mark.parametrize("number", range(ROUNDS))
def test_both_decide_random_placements_alike(
    karmada: Karmada, ours: SchedulerProcess, front: Front, number: int
) -> None:
    clusters = random_placements.question(9_000 + number)["clusters"]
    for each in clusters:
        status = each.pop("status")
        karmada.api.create("clusters", each)
        karmada.api.patch("clusters", each["metadata"]["name"], {"status": status}, subresource="status")
    names = [each["metadata"]["name"] for each in clusters]
    asked: dict[str, Json] = {}
    for index in range(PER_ROUND):
        wanted = random_placements.binding(10_000 + number * PER_ROUND + index, names)
        targets = wanted["spec"].pop("clusters", ())
        # where a cluster is not known, ours waits for 5 min
        wanted["spec"]["clusters"] = [each for each in targets if each["name"] in names]
        asked[f"random-{index:02}"] = wanted
        for scheduler in (OURS, THEIRS):
            ask(karmada, f"random-{index:02}-{scheduler}", wanted, scheduler)
    differ = {}
    for name, wanted in asked.items():
        mine, other = f"{name}-{OURS}", f"{name}-{THEIRS}"
        eventually(lambda names=(mine, other): all(map(karmada.scheduled, names)), else_=ours.log)  # type: ignore[misc]
        answers = told(karmada, mine), told(karmada, other) | {"targets": first_targets(front, other, wanted)}
        if (condition := answers[0]["condition"])["reason"] == "NoClusterFit":
            # Karmada's filters run in a random order; a look later, it may say that there is nothing to decide
            condition["message"], answers[0]["is observed"] = (
                answers[1]["condition"]["message"],
                answers[1]["is observed"],
            )
        different = {key: [each[key] for each in answers] for key in answers[0] if answers[0][key] != answers[1][key]}
        if different:
            differ[name] = different
    assert differ == {}
