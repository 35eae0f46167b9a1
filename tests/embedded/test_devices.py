"""The controller of resource claims: what pods get of templates, and what becomes of claims without users."""

from __future__ import annotations

from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.resources import resource
from tests.embedded.test_controllers import Driver, Json, driver

__all__ = ["driver"]

DRA = "resource.k8s.io"
CLAIMS = f"{DRA}/resourceclaims"
SPEC: Json = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
FINALIZER = "resource.kubernetes.io/delete-protection"
ALLOCATION: Json = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "0"}]}}


def claiming(name: str, **reference: str) -> Json:
    containers = [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}]
    return {
        "metadata": {"name": name},
        "spec": {"containers": containers, "resourceClaims": [{"name": "gpu", **reference}]},
    }


def template(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}}


def allocate(driver: Driver, claim: str, *pods: str) -> None:
    found = driver.get(CLAIMS, claim)
    assert found is not None
    found["metadata"]["finalizers"] = [FINALIZER]
    users = [(driver.get("pods", name) or {})["metadata"] for name in pods]
    named = [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]} for meta in users]
    driver.cluster.api.store.collection(CLAIMS).put(
        found | {"status": {"allocation": ALLOCATION, "reservedFor": named}}
    )


def made_for(driver: Driver, pod: str) -> str:
    statuses = driver.status("pods", pod).get("resourceClaimStatuses") or [{}]
    return str(statuses[0].get("resourceClaimName", ""))


async def test_a_pod_gets_a_claim_of_its_own_also_if_the_template_comes_later(driver: Driver) -> None:
    driver.create("pods", claiming("web", resourceClaimTemplateName="gpu"))
    driver.create("resourceclaimtemplates", template("gpu"), DRA)
    await driver.until(lambda: made_for(driver, "web"))
    claim = driver.get(CLAIMS, made_for(driver, "web"))
    assert claim is not None
    assert claim["metadata"]["generateName"] == "web-gpu-"
    assert claim["metadata"]["labels"] == {"a": "b"}
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    owner = claim["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "web", True)
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


async def test_a_claim_of_a_template_goes_with_its_pod_and_its_devices_before_it(driver: Driver) -> None:
    driver.create("resourceclaimtemplates", template("gpu"), DRA)
    driver.create("pods", claiming("web", resourceClaimTemplateName="gpu"))
    await driver.until(lambda: made_for(driver, "web"))
    name = made_for(driver, "web")
    allocate(driver, name, "web")
    driver.delete("pods", "web")
    await driver.until(lambda: driver.get(CLAIMS, name) is None)


async def test_a_claim_that_pods_share_keeps_its_devices_until_the_last_one_is_done(driver: Driver) -> None:
    driver.create("resourceclaims", {"metadata": {"name": "shared"}, "spec": SPEC}, DRA)
    for name in ("a", "b"):
        driver.create("pods", claiming(name, resourceClaimName="shared"))
    allocate(driver, "shared", "a", "b")
    driver.delete("pods", "a")
    await driver.until(lambda: len(driver.status(CLAIMS, "shared")["reservedFor"]) == 1)
    assert driver.status(CLAIMS, "shared")["allocation"] == ALLOCATION
    finished = driver.get("pods", "b") or {}
    driver.cluster.api.store.collection("pods").put(finished | {"status": {"phase": "Succeeded"}})
    await driver.until(lambda: not driver.status(CLAIMS, "shared"))
    await driver.until(lambda: "finalizers" not in (driver.get(CLAIMS, "shared") or {"metadata": {}})["metadata"])


async def test_a_claim_whose_finalizer_was_just_added_keeps_it(driver: Driver) -> None:
    """As schedulers do right before they allocate."""
    driver.create("resourceclaims", {"metadata": {"name": "next"}, "spec": SPEC}, DRA)
    driver.patch("resourceclaims", "next", {"metadata": {"finalizers": [FINALIZER]}}, DRA)
    driver.create("resourceclaimtemplates", template("gpu"), DRA)
    driver.create("pods", claiming("web", resourceClaimTemplateName="gpu"))
    await driver.until(lambda: made_for(driver, "web"))
    assert (driver.get(CLAIMS, "next") or {})["metadata"]["finalizers"] == [FINALIZER]


GROUPS = "scheduling.k8s.io/podgroups"


def group_with(driver: Driver, **claim: str) -> None:
    """Create the PodGroup `train` with a claim."""
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [{"name": "gpu", **claim}]}
    target = Target("create", resource("podgroups", group="scheduling.k8s.io", version="v1alpha2"), "default", "", "")
    driver.cluster.api.create(target, {"metadata": {"name": "train"}, "spec": spec})


def member(name: str, **reference: str) -> Json:
    pod = claiming(name, **reference)
    pod["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    return pod


async def test_pods_of_a_group_get_one_claim_of_a_template_also_if_the_group_comes_later(driver: Driver) -> None:
    driver.create("resourceclaimtemplates", template("gpu"), DRA)
    for name in "ab":
        driver.create("pods", member(name, resourceClaimTemplateName="gpu"))
    group_with(driver, resourceClaimTemplateName="gpu")
    await driver.until(lambda: made_for(driver, "a") and made_for(driver, "b"))

    name = made_for(driver, "a")
    assert made_for(driver, "b") == name
    assert driver.status(GROUPS, "train")["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": name}]
    owner = (driver.get(CLAIMS, name) or {})["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("PodGroup", "train")


async def test_a_claim_that_is_reserved_for_a_group_keeps_its_devices_as_long_as_the_group_exists(
    driver: Driver,
) -> None:
    driver.create("resourceclaims", {"metadata": {"name": "shared"}, "spec": SPEC}, DRA)
    group_with(driver, resourceClaimName="shared")
    driver.create("pods", member("a", resourceClaimName="shared"))
    allocate(driver, "shared")
    claim, uid = driver.get(CLAIMS, "shared") or {}, (driver.get(GROUPS, "train") or {})["metadata"]["uid"]
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": uid}
    claim["status"]["reservedFor"] = [user]
    driver.cluster.api.store.collection(CLAIMS).put(claim)
    driver.delete("pods", "a")
    await driver.until(lambda: driver.get("pods", "a") is None)
    assert driver.status(CLAIMS, "shared")["reservedFor"] == [user]

    target = Target(
        "delete", resource("podgroups", group="scheduling.k8s.io", version="v1alpha2"), "default", "train", ""
    )
    driver.cluster.api.delete(target, {})
    await driver.until(lambda: not driver.status(CLAIMS, "shared"))
