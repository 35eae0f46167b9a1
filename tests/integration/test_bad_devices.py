"""Bad input about devices: the pod that asks for it is told, and nothing else stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.devices import DRIVER, claim, claim_pod, device_class, extended_pod, resource_slice, watch_line
from tests.integration.front import Exchange, Fault, Front, InjectLines, Reply
from tests.integration.objects import Json, node, pod

GROUP = "resource.k8s.io"


def refuse_claims(code: int, reason: str) -> object:
    def plan(exchange: Exchange) -> Fault | None:
        return Reply(code, reason, "not here") if exchange.group == GROUP else None

    return plan


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (403, "Forbidden")])
def test_without_the_version_of_the_api_pods_with_claims_are_told_and_others_go_on(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path, code: int, reason: str
) -> None:
    """A server that has v1beta1 alone answers 404 too."""
    front.plan = refuse_claims(code, reason)  # type: ignore[assignment]
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceclaims", claim("web"))
    started = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    template: Json = {"name": "t", "resourceClaimTemplateName": "t"}
    cluster.add_pods(claim_pod("web"), pod("templated", resourceClaims=[template]), pod("plain"))
    cluster.wait_bound("plain")
    for name in ("web", "templated"):
        eventually(lambda name=name: "1.34 or newer" in cluster.condition(name).get("message", ""))  # type: ignore[misc]
        assert reason in cluster.condition(name)["message"]
        assert not cluster.placements()[name]
    cluster.add_pods(extended_pod("extended", "example.com/gpu", 1))
    eventually(lambda: "Insufficient example.com/gpu" in cluster.condition("extended").get("message", ""))
    assert "Traceback" not in started.log()


def strange_slices() -> list[Json]:
    """Slices of `strange`, a node with nothing good, that no validation would let through."""
    many = {f"a{number}": {"string": "x" * 64} for number in range(5000)}
    devices: dict[str, list[Json]] = {
        "amounts": [{"name": "g", "capacity": {"memory": {"value": "80 gigabytes"}}}],
        "attributes": [{"name": "g", "attributes": many}],
        "unset": [{"name": "g", "attributes": {"memory": {}}}],
        "versions": [{"name": "g", "attributes": {"memory": {"version": "not.a.version"}}}],
        "collisions": [{"name": "g"}, {"name": "g"}],
        "counters": [{"name": "g", "consumesCounters": [{"counterSet": "none", "counters": {"c": {"value": "1"}}}]}],
        "absurd": [
            {"name": "g", "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "9" * 4000}}}]},
        ],
        "taints": [{"name": "g", "taints": [{"key": "", "effect": "Explode"}, {"key": "k", "effect": "NoSchedule"}]}],
        "types": [{"name": "g", "attributes": {"memory": {"int": "many"}}}],
        "nulls": [{"name": None, "capacity": None, "attributes": {"memory": None}}],
    }
    found = []
    for name, listed in devices.items():
        made = resource_slice("strange", devices=())
        made["metadata"]["name"] = f"strange-{name}"
        made["spec"]["pool"]["name"] = name
        made["spec"]["devices"] = listed
        if name == "absurd":
            made["spec"]["sharedCounters"] = [{"name": "s", "counters": {"c": {"value": "1e999999"}}}]
        found.append(made)
    return found


def test_garbage_in_slices_is_the_trouble_of_its_own_devices_alone(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    lines = tuple(watch_line(one) for one in strange_slices())

    def inject(exchange: Exchange) -> Fault | None:
        return InjectLines(lines) if exchange.is_about("watch", "resourceslices") else None

    front.plan = inject
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("good"), node("strange"))
    cluster.api.create("resourceslices", resource_slice("good", devices=("gpu0",)))
    started = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    eventually(lambda: "strange-nulls" in started.log())  # the last of them has come
    cluster.api.create("resourceclaims", claim("web", selector=f'device.attributes["{DRIVER}"].memory == 80'))
    cluster.add_pods(pod("plain"), claim_pod("web"))
    cluster.wait_bound("plain")
    # as with kube-scheduler, a selector without a result on any node ends the attempt, and the message says why
    eventually(lambda: "CEL runtime error" in cluster.condition("web").get("message", ""))
    cluster.api.create("resourceclaims", claim("any"))
    made = claim_pod("any")
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "good"}
    cluster.api.patch("nodes", "good", {"metadata": {"labels": {"kubernetes.io/hostname": "good"}}})
    cluster.add_pods(made)
    assert cluster.wait_bound("any") == {"any": "good"}
    assert "Traceback" not in started.log()


LONG = "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, "
LONG += "[1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, a+b+c+d+e+f > 0))))))"


@pytest.mark.parametrize(
    ("where", "selector", "said"),
    [
        ("claim", "device.driver ==", "CEL compile error: compilation failed"),
        ("class", "device.colour == 1", "undefined field 'colour'"),
        ("claim", "1 + 1", "must evaluate to bool"),
        ("class", " || ".join(["true"] * 3000), "longer than 10240 characters"),
        ("claim", LONG, "cost limit exceeded"),
        ("class", f'device.attributes["{DRIVER}"].none', "no such key: none"),
    ],
    ids=["syntax", "unknown field", "no bool", "too long", "too costly", "missing"],
)
def test_a_selector_that_has_no_result_is_the_trouble_of_its_pods(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path, where: str, selector: str, said: str
) -> None:
    """An API server refuses most of these; one of another version may not have."""
    bad_class = device_class("bad")
    bad_class["spec"]["selectors"] = [{"cel": {"expression": selector}}]
    bad = claim("bad", selector=selector if where == "claim" else "")
    if where == "class":
        bad["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "bad"
    lines = {"deviceclasses": (watch_line(bad_class),), "resourceclaims": (watch_line(bad),)}

    def inject(exchange: Exchange) -> Fault | None:
        return (
            InjectLines(lines[exchange.resource]) if exchange.verb == "watch" and exchange.resource in lines else None
        )

    front.plan = inject
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0", "gpu1")))
    started = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.api.create("resourceclaims", claim("good"))
    cluster.add_pods(claim_pod("bad"), pod("plain"), claim_pod("good"))
    cluster.wait_bound("plain", "good")
    what = "class bad" if where == "class" else "claim default/bad"
    eventually(
        lambda: said in (text := cluster.condition("bad").get("message", "")) and what in text,
        else_=lambda: cluster.condition("bad"),
    )
    assert "Traceback" not in started.log()
