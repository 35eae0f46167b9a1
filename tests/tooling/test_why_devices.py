"""`policyctl why` about devices: the request that no device meets, what the nearest ones lack, what would help."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.policy.decision_inputs import KUBERNETES, DecisionInputs, Rules
from kube_policy_scheduler.tooling.why import devices
from kube_policy_scheduler.tooling.why.explain import Explanation, explain
from tests.policy.claimed_devices import FOUR, NOW, claiming, cluster_of, device, frame_of, place, profile_of
from tests.test_kubernetes_rules import rules_of

LARGE = 'device.capacity["gpu"].memory.compareTo(quantity("80Gi")) >= 0'
EIGHT = [device(f"g{at}", memory="40Gi" if at < 2 else "80Gi", numa=at % 2) for at in range(8)]
BROKEN = [{"key": "broken", "effect": "NoSchedule"}]


def selecting(expression: str) -> dict[str, Any]:
    return {"selectors": [{"cel": {"expression": expression}}]}


def ask(cluster: Cluster, rules: Rules = KUBERNETES, **claim: Any) -> Explanation:
    return explain(DecisionInputs.of(claiming(cluster, "p", **claim), cluster, rules, now=NOW))


def nearest(found: Explanation) -> tuple[str, ...]:
    assert found.fits == 0
    assert found.cause is not None
    return found.near[0].lacks


def test_the_selector_and_what_the_nearest_devices_have_are_named() -> None:
    cluster = cluster_of(EIGHT)
    for at in range(6):
        place(frame_of(cluster, f"used{at}", **selecting(LARGE)), profile_of(""))
    found = ask(cluster, **selecting(LARGE))
    assert nearest(found) == (
        "request r of claim p-r (1 device of class gpu): 6 of 8 are allocated,"
        f" 2 have memory 40Gi where the selector wants `{LARGE}`",
    )
    assert found.cause is not None
    assert found.cause.words == f"too few devices meet request r of claim p-r (1 device of class gpu) with `{LARGE}`"
    assert [(one.kind, one.text, one.node) for one in found.changes] == [
        ("claim", f"claim p-r: remove the selector `{LARGE}`", "n"),
        ("capacity", "add one more node like n, empty", "n-more"),
    ]


@pytest.mark.parametrize(
    ("there", "claim", "lacks", "change"),
    [
        (EIGHT, {"count": 5, "constraint": "gpu/numa"},
         "5 devices must have the same gpu/numa: of 8 that fit, at most 4 have one value",
         "claim p-r: request 4 devices in r, instead of 5"),
        (EIGHT, {"count": 2, "constraint": "gpu/rack"},
         "2 devices must have the same gpu/rack: of 8 that fit, at most 0 have one value; 8 do not have it",
         "claim p-r: remove the constraint on gpu/rack"),
        (FOUR, {"count": 9}, "request r of claim p-r (9 devices of class gpu): 4 fit",
         "claim p-r: request 4 devices in r, instead of 9"),
        ([device("t", taints=BROKEN)], {},
         "request r of claim p-r (1 device of class gpu): 1 has the taint broken:NoSchedule",
         "claim p-r: tolerate the device taint broken:NoSchedule"),
        ([], {}, "request r of claim p-r (1 device of class gpu): has no device of class gpu", None),
        (FOUR[2:3], selecting('device.attributes["gpu"].model == "h100"'),
         'request r of claim p-r (1 device of class gpu): for 1 the selector'
         ' `device.attributes["gpu"].model == "h100"` has no result: CEL runtime error: no such key: model', None),
        (FOUR[:2], selecting('device.attributes["gpu"].model == "h100"'),
         "request r of claim p-r (1 device of class gpu): 1 has model x and 1 has model z"
         ' where the selector wants `device.attributes["gpu"].model == "h100"`',
         'claim p-r: remove the selector `device.attributes["gpu"].model == "h100"`'),
    ],
)  # fmt: skip
def test_a_node_says_what_its_devices_lack(
    there: list[dict[str, Any]], claim: dict[str, Any], lacks: str, change: str | None
) -> None:
    found = ask(cluster_of(there), **claim)
    assert lacks in nearest(found)
    if change is not None:
        assert change in [one.text for one in found.changes]


def test_requests_that_only_together_lack_devices_are_told_so() -> None:
    cluster = cluster_of(FOUR)
    asking = claiming(cluster, "p", count=3)
    each = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3}
    both = [{"name": name, "exactly": each} for name in ("r", "s")]
    claim = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"devices": {"requests": both}}}
    cluster.set_object(msgspec.convert(claim, objects.ResourceClaim))
    asking.spec.resource_claims = [objects.PodResourceClaim(name="r", resource_claim_name="t")]
    found = explain(DecisionInputs.of(asking, cluster, KUBERNETES, now=NOW))
    said = "each request has enough devices alone, but they do not suffice for all requests together"
    assert nearest(found) == (said,)


def test_the_rule_that_taints_devices_is_named() -> None:
    cluster = cluster_of([device("t")], rules=rules_of("1.37"))
    spec = {"deviceSelector": {"pool": "n"}, "taint": {"key": "broken", "value": "fan", "effect": "NoExecute"}}
    rule = msgspec.convert({"metadata": {"name": "fans"}, "spec": spec}, objects.DeviceTaintRule)
    cluster.set_object(rule)
    found = ask(cluster)
    assert nearest(found) == (
        "request r of claim p-r (1 device of class gpu): 1 has the taint broken=fan:NoExecute of the DeviceTaintRule"
        " fans",
    )
    assert "claim p-r: tolerate the device taint broken=fan:NoExecute" in [one.text for one in found.changes]


def test_devices_with_fields_that_are_not_followed_are_named() -> None:
    found = ask(cluster_of([{**device("t"), "nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "1"}}}}]))
    assert nearest(found) == (
        "request r of claim p-r (1 device of class gpu): 1 uses nodeAllocatableResources (alpha, feature gate"
        " DRANodeAllocatableResources), which this scheduler does not follow",
    )


def test_the_node_whose_devices_come_closest_is_shown_first() -> None:
    cluster = cluster_of(FOUR)
    for name, count in (("a", 1), ("z", 3)):
        _more(cluster, name, count)
    assert [near.node for near in ask(cluster, count=5).near] == ["n", "z", "a"]


def _more(cluster: Cluster, name: str, count: int) -> None:
    status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
    cluster.set_node(msgspec.convert({"metadata": {"name": name}, "status": status}, objects.Node))
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu", "nodeName": name, "pool": pool, "devices": [{"name": f"d{at}"} for at in range(count)]}
    cluster.set_object(msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.ResourceSlice))


def test_of_very_many_devices_a_part_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(FOUR)
    for number in range(40):
        _more(cluster, f"m{number}", 2)
    frame = frame_of(cluster, "p", count=9)
    state = devices.claim_state(frame)
    assert state is not None
    assert len(devices.unmet_on_nodes(frame, state)) == 41
    monkeypatch.setattr(devices, "MOST_COMPARED", 20)
    assert len(devices.unmet_on_nodes(frame, state)) < 12


def test_the_cluster_is_as_before() -> None:
    cluster = cluster_of(EIGHT)
    asked = DecisionInputs.of(claiming(cluster, "p", count=9), cluster, KUBERNETES, now=NOW)
    before = list(cluster.resource_claims.all()), [one.slice for one in cluster.resource_slices], cluster.nodes.names
    explain(asked)
    after = list(cluster.resource_claims.all()), [one.slice for one in cluster.resource_slices], cluster.nodes.names
    assert before == after


def test_a_pod_that_fits_is_told_its_devices_and_why_these() -> None:
    assert ask(cluster_of(FOUR)).devices == (
        "request r of claim p-r gets a, first of 4 that fit in the order of pools, slices and devices",
    )
    rules = Rules(profile_of('devices by device_value("memory"), device_text("model")'))
    assert ask(cluster_of(FOUR), rules).devices == (
        "request r of claim p-r gets b, of 4 that fit by"
        ' `devices by device_value("memory"), device_text("model")`:'
        ' device_value("memory") is 24Gi and device_text("model") is z, 40Gi and y for d',
    )
    assert ask(cluster_of(FOUR), rules, count=4).devices == (
        "request r of claim p-r gets b, d, a, c, the only 4 that fit",
    )
