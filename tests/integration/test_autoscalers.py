"""Autoscalers add nodes for a pod if and only if new nodes would help it, by their own published conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import pytest

from tests.fakes.autoscalers import cluster_autoscaler_counts, karpenter_counts
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.devices import claim_template, device_class, resource_slice, settle_claims
from tests.integration.objects import Json, node, pod

HELPED = {
    "no room": "filter fits(cpu, mem)",
    "a label of nodes": "filter label disk=ssd",
    "a label or the pod": 'filter label disk=ssd or pod.name == "other"',
    "the load of nodes": "filter node.requested.cpu > 1",
    "the number of nodes": "require count(n in cluster.nodes) > 5",
    "a full domain": "limit count() by pod.label.case to 0 over zone",
    "a limit that says so": "limit count() by pod.label.case to 0 new nodes help",
    "a requirement that says so": 'require pod.label.tenant == "red" new nodes help',
}
NOT_HELPED = {
    "the pod": 'require pod.label.tenant == "red"',
    "the pod, in a filter": 'filter pod.label.tenant == "red"',
    "the pod, of two conditions": 'filter node.ready and pod.label.tenant == "red"',
    "a limit": "limit count() by pod.label.case to 0",
    "a limit, and no room": "limit count() by pod.label.case to 0\nfilter node.requested.cpu > 1",
    "the number of all pods": "require count(p in cluster.pods) > 100",
    "a metric of the cluster": 'metric price = promql("price") for cluster default 9\nrequire price < 3',
    "a metric without values": 'filter promql("load") ?? 100 < 80',
    "nodes that never come": "filter label disk=ssd new nodes never help",
    "a pod that is held": 'hold if pod.label.tenant != "red"',
}


def policies_of(cases: dict[str, str]) -> dict[str, str]:
    return {
        f"{_name(case)}.policy": f'for pods where pod.label.case == "{_name(case)}"\n{text}\n'
        for case, text in cases.items()
    }


def _name(case: str) -> str:
    return case.replace(",", "").replace(" ", "-")


def _have_conditions(cluster: Cluster, names: Sequence[str]) -> bool:
    return all(cluster.condition(name) for name in names)


def counted(pods: Iterable[Json]) -> set[str]:
    """Return the names of the pods that an autoscaler would add nodes for; both must agree."""
    found = list(pods)
    by_ca = {each["metadata"]["name"] for each in found if cluster_autoscaler_counts(each)}
    assert by_ca == {each["metadata"]["name"] for each in found if karpenter_counts(each)}
    return by_ca


def test_nodes_are_added_only_for_pods_that_they_would_help(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    assert not HELPED.keys() & NOT_HELPED.keys()
    policies.update(policies_of(HELPED | NOT_HELPED))
    zone = {"topology.kubernetes.io/zone": "a"}
    cluster.add_nodes(node("a", labels=zone), node("b", labels=zone))
    process = scheduler().start_ready()
    big = "64"
    for case in HELPED | NOT_HELPED:
        cpu = big if case == "no room" else "100m"
        cluster.add_pods(pod(_name(case), cpu=cpu, labels={"case": _name(case)}))
    cluster.add_pods(pod("nobodys", labels={"case": "none"}))
    held = {_name("a pod that is held")}
    names = {_name(case) for case in HELPED | NOT_HELPED} | {"nobodys"}

    eventually(lambda: all(cluster.condition(name) for name in names - held))

    assert counted(cluster.pods()) == {_name(case) for case in HELPED}
    condition = cluster.condition(_name("a limit"))
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingSkipped")
    assert condition["message"].endswith(
        "New nodes would not help: policy clause limit count() by pod.label.case to 0 rejects the pod on any node."
    )
    (event,) = cluster.events(_name("a limit"), reason="FailedScheduling")
    assert event["note"] == condition["message"]
    metrics = process.metrics()
    assert metrics['policy_scheduler_unschedulable_pods{new_nodes="help"}'] == len(HELPED)
    assert metrics['policy_scheduler_unschedulable_pods{new_nodes="do_not_help"}'] == len(NOT_HELPED)


def test_pods_of_one_limit_ask_for_as_many_nodes_as_it_leaves(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    policies.update({"a.policy": "limit sum(request.cpu) by pod.label.tenant to 25\n"})
    cluster.add_nodes(node("small", cpu="4"))
    scheduler().start_ready()
    names = [f"p{number}" for number in range(5)]
    cluster.add_pods(*(pod(name, cpu="10", labels={"tenant": "red"}) for name in names))

    eventually(partial(_have_conditions, cluster, names))
    asked = counted(cluster.pods())
    assert len(asked) == 2

    gone = min(asked)
    cluster.delete_pod(gone)
    eventually(lambda: len(counted(cluster.pods())) == 2)
    cluster.add_nodes(node("large-0", cpu="12"), node("large-1", cpu="12"))
    eventually(lambda: len([node for node in cluster.placements().values() if node]) == 2)
    eventually(lambda: not counted(cluster.pods()))


def test_a_gang_asks_for_nodes_as_a_whole_or_not_at_all(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    gang = "gang by pod.label.job size number(pod.label.size)\nlimit sum(request.cpu) by pod.label.tenant to 60\n"
    policies.update({"a.policy": gang})
    cluster.add_nodes(node("small", cpu="4"))
    scheduler().start_ready()
    sizes = {"fits": 4, "over": 3, "short": 3}
    for job, size in sizes.items():
        labels = {"job": job, "size": str(size), "tenant": "red"}
        there = size - 1 if job == "short" else size
        cluster.add_pods(*(pod(f"{job}-{number}", cpu="10", labels=labels) for number in range(there)))
        if job != "short":
            names = [f"{job}-{number}" for number in range(size)]
            eventually(partial(_have_conditions, cluster, names))

    assert counted(cluster.pods()) == {f"fits-{number}" for number in range(4)}
    assert cluster.condition("over-0")["reason"] == "SchedulingSkipped"


@pytest.mark.controllers(devices=False)  # the test does what they do, also where there are none
def test_gangs_without_devices_ask_for_nodes_as_far_as_their_queue_may_use_devices(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    gang = "gang by pod.label.job size number(pod.label.size) within one rack if pod.label.job is not missing\n"
    quota = "queue all max gpu.deviceclass.resource.k8s.io/devices 6\n"
    policies.update({"a.policy": gang, "b.policy": quota})
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.api.create("resourceclaimtemplates", claim_template("two", count=2))
    for rack in "ab":
        cluster.add_nodes(node(rack, labels={"rack": rack}))
        cluster.api.create("resourceslices", resource_slice(rack, devices=(f"{rack}0", f"{rack}1")))
    scheduler().start_ready()
    claims = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "two"}]}
    for job, size in {"fits": 2, "over": 4, "behind": 2}.items():
        labels = {"job": job, "size": str(size)}
        names = [f"{job}-{number}" for number in range(size)]
        cluster.add_pods(*(pod(name, labels=labels, **claims) for name in names))
        settle_claims(cluster)
        eventually(partial(_have_conditions, cluster, names))

    assert counted(cluster.pods()) == {"fits-0", "fits-1"}
    missing = "rack a lacks 2 devices of gpu: 4 requested by 2 pods, 2 free"
    assert missing in cluster.condition("fits-0")["message"]
    over = cluster.condition("over-0")
    assert over["reason"] == "SchedulingSkipped"
    assert "New nodes would not help" in over["message"]
    cluster.delete_pod("fits-0")
    cluster.delete_pod("fits-1")
    eventually(lambda: counted(cluster.pods()) == {"behind-0", "behind-1"})
