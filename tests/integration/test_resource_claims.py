"""Devices that pods claim, in a whole cluster: each is allocated once, before the binding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.devices import (
    DRIVER,
    claim,
    claim_pod,
    claim_template,
    controlled,
    device_class,
    extended_pod,
    free,
    resource_slice,
    settle_claims,
    taken,
)
from tests.integration.front import Exchange, Fault, Front, LoseAnswer
from tests.integration.kube_scheduler import kube_scheduler
from tests.integration.objects import OURS, Json, node, pod

FINALIZER = "resource.kubernetes.io/delete-protection"


@pytest.fixture(params=["ours", "kube-scheduler"])
def scheduled(
    request: pytest.FixtureRequest, cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> Iterator[str]:
    """The name of a scheduler that runs: ours, and the yardstick where there is a real control plane."""
    if request.param == "ours":
        scheduler().start_ready()
        yield OURS
        return
    with kube_scheduler(cluster.kubeconfig(tmp_path / "admin"), log=tmp_path / "kube-scheduler.log"):
        yield "default-scheduler"


def two_gpus(cluster: Cluster, *names: str) -> None:
    cluster.api.create("deviceclasses", device_class("gpu"))
    for name in names:
        cluster.add_nodes(node(name))
        cluster.api.create("resourceslices", resource_slice(name, devices=("gpu0", "gpu1")))


def test_each_device_is_allocated_once_and_again_after_it_was_given_back(cluster: Cluster, scheduled: str) -> None:
    two_gpus(cluster, "n1")
    for name in "abc":
        cluster.api.create("resourceclaims", claim(name))
        cluster.add_pods(claim_pod(name, scheduler=scheduled))
    eventually(lambda: len([n for n in cluster.placements().values() if n]) == 2)
    (waiting,) = [name for name, host in cluster.placements().items() if not host]
    eventually(lambda: "cannot allocate all claims" in cluster.condition(waiting).get("message", ""))
    first, second = sorted(set("abc") - {waiting})
    assert sorted(taken(cluster)) == [("n1", "gpu0"), ("n1", "gpu1")]
    kept = cluster.api.get("resourceclaims", first)
    assert FINALIZER in kept["metadata"]["finalizers"]
    uid = cluster.pod(first)["metadata"]["uid"]
    assert kept["status"]["reservedFor"] == [{"resource": "pods", "name": first, "uid": uid}]
    assert kept["status"]["allocation"]["devices"]["results"][0]["driver"] == DRIVER
    cluster.delete_pod(second)
    free(cluster, second)
    cluster.wait_bound(waiting)
    assert sorted(taken(cluster)) == [("n1", "gpu0"), ("n1", "gpu1")]


def test_a_pod_waits_for_its_claim_class_and_slice(cluster: Cluster, scheduled: str) -> None:
    cluster.add_nodes(node("n1"))
    cluster.add_pods(claim_pod("web", scheduler=scheduled))
    cluster.api.create("resourceclaims", claim("web"))
    eventually(lambda: "device class gpu does not exist" in cluster.condition("web").get("message", ""))
    cluster.api.create("deviceclasses", device_class("gpu"))
    eventually(lambda: "cannot allocate all claims" in cluster.condition("web").get("message", ""))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0",)))
    cluster.wait_bound("web")


def test_pods_share_a_claim(cluster: Cluster, scheduled: str) -> None:
    two_gpus(cluster, "n1", "n2")
    cluster.api.create("resourceclaims", claim("shared"))
    cluster.add_pods(*(claim_pod(name, claims=("shared",), scheduler=scheduled) for name in "abc"))
    placed = cluster.wait_bound("a", "b", "c")
    assert len(set(placed.values())) == 1
    users = cluster.api.get("resourceclaims", "shared")["status"]["reservedFor"]
    assert sorted(user["name"] for user in users) == ["a", "b", "c"]


def test_an_extended_resource_of_a_class_gets_a_claim_of_its_own(cluster: Cluster, scheduled: str) -> None:
    cluster.api.create("deviceclasses", device_class("gpu", extended="example.com/gpu"))
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0", "gpu1", "gpu2")))
    cluster.add_pods(extended_pod("web", "example.com/gpu", 2, scheduler=scheduled))
    cluster.wait_bound("web")
    told = cluster.pod("web")["status"]["extendedResourceClaimStatus"]
    made = cluster.api.get("resourceclaims", told["resourceClaimName"])
    assert made["metadata"]["ownerReferences"][0]["name"] == "web"
    assert len(made["status"]["allocation"]["devices"]["results"]) == 2
    assert told["requestMappings"] == [
        {"containerName": "main", "requestName": "container-0-request-1", "resourceName": "example.com/gpu"}
    ]
    cluster.add_pods(extended_pod("more", "example.com/gpu", 2, scheduler=scheduled))
    eventually(lambda: "cannot allocate all claims" in cluster.condition("more").get("message", ""))


def test_a_claim_whose_node_is_gone_is_allocated_elsewhere(cluster: Cluster, scheduled: str) -> None:
    two_gpus(cluster, "n1")
    cluster.api.create("resourceclaims", claim("web"))
    controlled(cluster, "web", node_name="gone", device="gpu0")
    cluster.add_pods(claim_pod("web", scheduler=scheduled))
    cluster.wait_bound("web")
    assert taken(cluster) == [("n1", "gpu0")]


def test_a_pod_is_bound_only_once_its_device_is_attached(cluster: Cluster, scheduled: str) -> None:
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"))
    attached: Json = {"bindsToNode": True, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    fabric = resource_slice("n1", devices=("gpu0",), more=attached)
    cluster.api.create("resourceslices", fabric)
    cluster.api.create("resourceclaims", claim("web"))
    cluster.add_pods(claim_pod("web", scheduler=scheduled))
    eventually(lambda: cluster.events("web", reason="BindingConditionsPending"))
    eventually(lambda: taken(cluster) == [("n1", "gpu0")])
    assert not cluster.placements()["web"]
    condition = {"type": "attached", "status": "True", "reason": "Done", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    known = {"driver": DRIVER, "pool": "n1", "device": "gpu0", "conditions": [condition]}
    cluster.api.patch("resourceclaims", "web", {"status": {"devices": [known]}}, subresource="status")
    cluster.wait_bound("web")


# --- ours alone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [("patch", "resourceclaims"), ("patch", "resourceclaims/status")], ids=lambda x: x[1])
def test_an_answer_that_is_lost_costs_no_device(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path, lost: tuple[str, str]
) -> None:
    faults: Counter[str] = Counter()

    def lose_each_once(exchange: Exchange) -> Fault | None:
        if exchange.is_about(*lost) and not faults[exchange.name]:
            faults[exchange.name] += 1
            return LoseAnswer()
        return None

    front.plan = lose_each_once
    two_gpus(cluster, "n1", "n2")
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    for name in "abcd":
        cluster.api.create("resourceclaims", claim(name))
        cluster.add_pods(claim_pod(name))
    cluster.wait_bound("a", "b", "c", "d")
    assert len(set(taken(cluster))) == 4
    assert set(faults) == set("abcd")


def test_a_scheduler_that_ended_in_between_is_gone_on_with(cluster: Cluster, scheduler: StartScheduler) -> None:
    two_gpus(cluster, "n1", "n2")
    cluster.api.create("resourceclaims", claim("web"))
    cluster.add_pods(claim_pod("web"))
    controlled(cluster, "web", node_name="n2", device="gpu1", user="web")
    scheduler().start_ready()
    assert cluster.wait_bound("web") == {"web": "n2"}
    assert taken(cluster) == [("n2", "gpu1")]


def test_a_pod_that_is_not_bound_after_all_gives_its_claim_back(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    two_gpus(cluster, "n1")
    cluster.api.create("resourceclaims", claim("shared"))
    deleted: list[str] = []

    def delete_before_the_binding(exchange: Exchange) -> Fault | None:
        if exchange.is_about("create", "pods/binding") and not deleted:
            deleted.append(exchange.name)
            cluster.delete_pod("web")
        return None

    front.plan = delete_before_the_binding
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(claim_pod("web", claims=("shared",)))
    eventually(lambda: deleted)
    eventually(lambda: not cluster.api.get("resourceclaims", "shared").get("status", {}).get("reservedFor"))
    cluster.add_pods(claim_pod("next", claims=("shared",)))
    cluster.wait_bound("next")


def test_parameters_for_a_driver_stay_as_they_are_byte_by_byte(cluster: Cluster, scheduled: str) -> None:
    """An API server compares them as stored, which JSON answers do not show: with spaces, and `<` as it is."""
    two_gpus(cluster, "n1")
    name = f"tuned-{scheduled}"
    wanted = claim(name)
    wanted["metadata"]["namespace"] = "tuned"
    parameters = {"apiVersion": "gpu.example.com/v1", "kind": "Settings", "text": "a < b & c", "z": 1, "a": [1, 2]}
    wanted["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    cluster.use_namespaces("tuned")
    cluster.api.create("resourceclaims", wanted)
    made = claim_pod(name, scheduler=scheduled)
    made["metadata"]["namespace"] = "tuned"
    cluster.add_pods(made)
    cluster.wait_bound(name)
    kept = cluster.api.get("resourceclaims", name, namespace="tuned")
    assert kept["metadata"]["finalizers"] == [FINALIZER]
    assert kept["spec"]["devices"]["config"][0]["opaque"]["parameters"] == parameters
    config = kept["status"]["allocation"]["devices"]["config"]
    assert config == [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}}]
    # it cannot be deleted with JSON patches, so that at least its device is free for the next test
    free(cluster, name, namespace="tuned")


@pytest.mark.parametrize("what", ["changed", "deleted"])
def test_a_claim_that_is_changed_or_deleted_meanwhile(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path, what: str
) -> None:
    two_gpus(cluster, "n1")
    cluster.api.create("resourceclaims", claim("web"))
    meanwhile: list[str] = []

    def change_before_the_status(exchange: Exchange) -> Fault | None:
        if exchange.is_about("patch", "resourceclaims/status") and not meanwhile:
            meanwhile.append(what)
            if what == "changed":
                cluster.api.patch("resourceclaims", "web", {"metadata": {"annotations": {"example.com/a": "b"}}})
            else:
                cluster.api.delete("resourceclaims", "web")
                cluster.api.patch("resourceclaims", "web", {"metadata": {"finalizers": None}})
        return None

    front.plan = change_before_the_status
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(claim_pod("web"))
    eventually(lambda: meanwhile)
    if what == "deleted":
        eventually(lambda: not cluster.api.list("resourceclaims"))
        assert not cluster.placements()["web"]
        cluster.api.create("resourceclaims", claim("web"))
    cluster.wait_bound("web")
    assert len(taken(cluster)) == 1


def test_of_two_schedulers_that_allocate_one_device_the_later_one_takes_it_back(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    two_gpus(cluster, "n1")
    cluster.api.create("resourceclaims", claim("theirs"))
    cluster.api.create("resourceclaims", claim("ours"))
    written: list[str] = []

    def allocate_first(exchange: Exchange) -> Fault | None:
        if exchange.is_about("patch", "resourceclaims/status") and exchange.name == "ours" and not written:
            written.append(exchange.name)
            controlled(cluster, "theirs", node_name="n1", device="gpu0")
        return None

    front.plan = allocate_first
    started = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(claim_pod("ours"))
    cluster.wait_bound("ours")
    assert sorted(taken(cluster)) == [("n1", "gpu0"), ("n1", "gpu1")]
    assert "was allocated to claim default/theirs at the same time" in started.log()


GANG = "filter node.ready\ngang by pod.label.job size 2 within 10s if pod.label.job\n"


def gang_pod(name: str, *, claims: tuple[str, ...] = ()) -> Json:
    made = claim_pod(name, claims=claims)
    made["metadata"]["labels"] = {"job": "train"}
    return made


def test_a_gang_gets_devices_for_all_or_for_none(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    policies.update({"default.policy": GANG})
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0",)))
    scheduler().start_ready()
    for name in ("a", "b", "single"):
        cluster.api.create("resourceclaims", claim(name))
    cluster.add_pods(gang_pod("a"), gang_pod("b"))
    eventually(lambda: any("cannot allocate" in cluster.condition(name).get("message", "") for name in "ab"))
    assert taken(cluster) == []
    cluster.add_pods(claim_pod("single"))
    cluster.wait_bound("single")  # the gang has given the device back
    assert not cluster.placements()["a"]
    assert not cluster.placements()["b"]
    cluster.api.patch("resourceslices", "n1-gpus", {"spec": resource_slice("n1", devices=("gpu0", "g1", "g2"))["spec"]})
    cluster.wait_bound("a", "b")
    assert sorted(taken(cluster)) == [("n1", "g1"), ("n1", "g2"), ("n1", "gpu0")]


def test_members_of_a_gang_share_a_claim_that_is_not_written_yet(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    policies.update({"default.policy": GANG})
    two_gpus(cluster, "n1", "n2")
    scheduler().start_ready()
    cluster.api.create("resourceclaims", claim("channel"))
    cluster.add_pods(gang_pod("a", claims=("channel",)), gang_pod("b", claims=("channel",)))
    placed = cluster.wait_bound("a", "b")
    assert len(set(placed.values())) == 1
    assert len(taken(cluster)) == 1
    users = cluster.api.get("resourceclaims", "channel")["status"]["reservedFor"]
    assert sorted(user["name"] for user in users) == ["a", "b"]


@pytest.mark.parametrize(
    ("slice_of", "said"),
    [
        ({"attributes": {"memory": {"string": "much"}}}, "cannot allocate all claims"),
        ({"attributes": {}}, "no such key: memory"),
    ],
    ids=["another type", "no such attribute"],
)
def test_a_selector_that_fails_for_a_device_is_the_pods_trouble_alone(
    cluster: Cluster, scheduled: str, slice_of: Json, said: str
) -> None:
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0",), more=slice_of))
    selector = f'device.attributes["{DRIVER}"].memory == "80"'
    cluster.api.create("resourceclaims", claim("bad", selector=selector))
    cluster.api.create("resourceclaims", claim("good"))
    cluster.add_pods(claim_pod("bad", scheduler=scheduled))
    eventually(lambda: said in cluster.condition("bad").get("message", ""))
    cluster.add_pods(claim_pod("good", scheduler=scheduled))
    cluster.wait_bound("good")
    assert not cluster.placements()["bad"]


def test_a_policy_selects_which_of_several_devices_a_pod_gets(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    policies.update({"default.policy": 'filter node.ready\ndevices by device_value("memory")\n'})
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"))
    published = resource_slice("n1", devices=("gpu0", "gpu1", "gpu2"))
    for device, memory in zip(published["spec"]["devices"], (80, 24, 40), strict=True):
        device["attributes"] = {"memory": {"int": memory}}
    cluster.api.create("resourceslices", published)
    scheduler().start_ready()
    for name, device in (("a", "gpu1"), ("b", "gpu2")):
        cluster.api.create("resourceclaims", claim(name))
        cluster.add_pods(claim_pod(name))
        cluster.wait_bound(name)
        kept = cluster.api.get("resourceclaims", name)
        assert [one["device"] for one in kept["status"]["allocation"]["devices"]["results"]] == [device]


@pytest.mark.controllers(devices=False)  # the test does what they do, also where there are none
def test_who_is_guaranteed_devices_gets_those_of_pods_that_borrow_them(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    gpus = "gpu.deviceclass.resource.k8s.io/devices"
    policies.update(
        {
            "a.policy": f"queue all max {gpus} 4\n"
            f'queue red of all for pods where pod.label.team == "red" min {gpus} 2\n'
            f'queue blue of all for pods where pod.label.team == "blue" min {gpus} 2\n'
            "order by queue.share, pod.queued\nreclaim\n"
        }
    )
    two_gpus(cluster, "n1", "n2")
    cluster.api.create("resourceclaimtemplates", claim_template("one", count=1))
    scheduler().start_ready()
    claims = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "one"}]}

    def add(team: str, number: int) -> None:
        cluster.add_pods(*(pod(f"{team}-{each}", labels={"team": team}, **claims) for each in range(number)))

    def running() -> Counter[str]:
        settle_claims(cluster)
        return Counter(name.partition("-")[0] for name, host in cluster.placements().items() if host)

    add("red", 4)
    eventually(lambda: running() == {"red": 4})
    add("blue", 3)
    eventually(lambda: running() == {"red": 2, "blue": 2})
    assert len(set(taken(cluster))) == 4
