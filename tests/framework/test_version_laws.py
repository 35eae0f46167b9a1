"""What differs between versions of Kubernetes, on random cases, against plain words: a law for each difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.devices.group_claims import user_of
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.preemption import EvictionRules
from kube_policy_scheduler.kubernetes_rules import Feature
from kube_policy_scheduler.policy.pod_groups import pod_group_requirements
from kube_policy_scheduler.tooling.conformance import Case, decide
from tests.cluster import test_requests
from tests.daemon import test_group_preemption
from tests.framework import test_device_search, test_placements
from tests.framework import test_device_versions as devices
from tests.framework import test_storage_scores as storage
from tests.framework.test_device_versions import (
    BAD,
    DRIVER,
    OWN,
    PARAMETERS,
    a_claim,
    a_slice,
    allocation,
    decided,
    request,
    taint_rule,
)
from tests.test_kubernetes_rules import rules_of

Json = dict[str, Any]
MIB = 2**20
MINORS = st.integers(34, 38)


def case(minor: int, *, nodes: Sequence[Json], pod: Json, pods: Sequence[Json] = (), **more: Any) -> Json:
    """Return what becomes of a pod, in the form of conformance cases."""
    content = {
        "nodes": list(nodes),
        "pods": list(pods),
        "pod": {"metadata": {"name": "p", "namespace": "default", "uid": "p", **pod.pop("metadata", {})}, "spec": pod},
        "namespaces": [{"metadata": {"name": "default"}}, {"metadata": {"name": "other"}}],
        **more,
    }
    return decide(Case("case", "laws", content, {}, rules_of(f"1.{minor}")))


def a_node(name: str, *, cpu: int = 8, labels: Json | None = None, images: Sequence[Json] = ()) -> Json:
    status = {"allocatable": {"cpu": str(cpu), "memory": "8Gi", "pods": "50"}, "images": list(images)}
    return {"metadata": {"name": name, "labels": labels or {}}, "status": status}


def running(name: str, *, node: str, namespace: str = "default", **more: Any) -> Json:
    """Return a pod on a node; more: of its metadata if it is `labels` or `deletionTimestamp`, else of its spec."""
    meta = {key: more.pop(key) for key in ("labels", "deletionTimestamp") if key in more}
    started = more.pop("started", 0)
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", **meta},
        "spec": {"nodeName": node, "containers": [container], **more},
        "status": {"phase": "Running", "startTime": f"2026-01-01T00:{started:02}:00Z"},
    }


# --- pods and volumes --------------------------------------------------------------------------------------


@given(MINORS, st.integers(1, 3), st.lists(st.integers(1, 4000), min_size=1, max_size=4), st.integers(1, 3), st.data())
def image_volumes_are_containers(
    minor: int, containers: int, sizes: list[int], nodes: int, data: st.DataObject
) -> None:
    """The size at which a score is full is 1000 MiB for each container, from 1.37 on also for each image volume."""
    names = [f"image{number}:1" for number in range(len(sizes))]
    on = {name: data.draw(st.sets(st.integers(0, nodes - 1), min_size=1)) for name in names}
    listed = [
        [
            {"names": [name], "sizeBytes": size * MIB}
            for name, size in zip(names, sizes, strict=True)
            if node in on[name]
        ]
        for node in range(nodes)
    ]
    volumes = [{"name": f"v{number}", "image": {"reference": name}} for number, name in enumerate(names)]
    got = case(
        minor,
        nodes=[a_node(f"n{number}", images=images) for number, images in enumerate(listed)],
        pod={"containers": [{"name": f"c{n}", "image": f"none{n}:1"} for n in range(containers)], "volumes": volumes},
    )
    most = 1000 * MIB * (containers + (len(sizes) if minor >= 37 else 0))
    for node in range(nodes):
        there = [(size, len(on[name])) for name, size in zip(names, sizes, strict=True) if node in on[name]]
        total = sum(min(int(size * MIB * (number / nodes)), most) for size, number in there)
        score = 100 * (min(max(total, 23 * MIB), most) - 23 * MIB) // (most - 23 * MIB)
        assert got["scores"][f"n{node}"]["ImageLocality"] == score


@given(MINORS, st.booleans(), st.lists(st.sampled_from([None, [], ["d"], ["e"], ["d", "e"]]), min_size=1, max_size=4))
def nodes_need_the_drivers_that_ask_for_it(minor: int, asks: bool, drivers: list[list[str] | None]) -> None:
    """From 1.37 on, a node without the CSI driver of a volume is rejected if the CSIDriver asks for that."""
    volume = {"metadata": {"name": "v"}, "spec": {"csi": {"driver": "d", "volumeHandle": "h"}, "capacity": {}}}
    claim = {
        "metadata": {"name": "c", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v"},
        "status": {"phase": "Bound"},
    }
    got = case(
        minor,
        nodes=[a_node(f"n{number}") for number in range(len(drivers))],
        pod={"containers": [{"name": "c"}], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        persistentVolumes=[volume],
        persistentVolumeClaims=[claim],
        csiDrivers=[{"metadata": {"name": "d"}, "spec": {"preventPodSchedulingIfMissing": asks}}],
        csiNodes=[
            {"metadata": {"name": f"n{number}"}, "spec": {"drivers": [{"name": name, "nodeID": "x"} for name in names]}}
            for number, names in enumerate(drivers)
            if names is not None
        ],
    )
    for number, names in enumerate(drivers):
        is_missing = minor >= 37 and asks and "d" not in (names or ())
        status = got["filters"][f"n{number}"]
        told = (status["code"], status["plugin"], status["reasons"])
        text = "d CSI driver is not installed on the node"
        assert told == (("Unschedulable", "NodeVolumeLimits", [text]) if is_missing else ("Success", "", []))


@given(MINORS, st.lists(st.integers(0, 4), min_size=2, max_size=4), st.integers(1, 3), st.integers(0, 2))
def empty_selectors_of_spread_constraints(minor: int, counts: list[int], skew: int, others: int) -> None:
    """A spread constraint with `{}` counts all pods of the namespace from 1.38 on; before, it counts none."""
    pods = [
        running(f"p{zone}-{number}", node=f"n{zone}") for zone, count in enumerate(counts) for number in range(count)
    ]
    pods += [running(f"o{number}", node="n0", namespace="other") for number in range(others)]
    pods.append(running("gone", node="n0", deletionTimestamp="2026-02-01T00:00:00Z"))
    constraint = {"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    got = case(
        minor,
        nodes=[a_node(f"n{zone}", labels={"zone": f"z{zone}"}) for zone in range(len(counts))],
        pods=pods,
        pod={"containers": [{"name": "c"}], "topologySpreadConstraints": [constraint]},
    )
    counted = counts if minor >= 38 else [0] * len(counts)
    allowed = [f"n{zone}" for zone, count in enumerate(counted) if count + 1 - min(counted) <= skew]
    assert [name for name, status in sorted(got["filters"].items()) if status["code"] == "Success"] == allowed


# --- preemption --------------------------------------------------------------------------------------------

low_pods = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=6)
"""Of each, whether it is in the namespace of the budget, whether it has labels, and its priority."""


def full_node(minor: int, low: list[tuple[bool, bool, int]], wanted: int, budgets: Sequence[Json] = ()) -> Json:
    """Return what becomes of a pod with priority 10 that wants so much of a node that is full of pods of 1 cpu."""
    pods = [
        running(
            f"p{number}",
            node="n",
            namespace="default" if is_here else "other",
            labels={"app": "x"} if has_labels else {},
            priority=priority,
            started=number,
        )
        for number, (is_here, has_labels, priority) in enumerate(low)
    ]
    container = {"name": "c", "resources": {"requests": {"cpu": str(wanted)}}}
    pod = {"containers": [container], "priority": 10}
    node = a_node("n", cpu=len(low))
    found: Json = case(minor, nodes=[node], pods=pods, pod=pod, podDisruptionBudgets=list(budgets))["preemption"]
    return found


@given(MINORS, low_pods, st.integers(0, 3), st.data())
def empty_selectors_of_budgets(
    minor: int, low: list[tuple[bool, bool, int]], allowed: int, data: st.DataObject
) -> None:
    """Pods are put back from most to least important, first those that a budget protects.

    A budget with `{}` protects all pods of its namespace beyond what it allows from 1.38 on; before, none.
    """
    wanted = data.draw(st.integers(1, len(low)))
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": allowed},
    }
    found = full_node(minor, low, wanted, [budget])
    by_importance = sorted(range(len(low)), key=lambda number: (-low[number][2], number))
    here = [number for number in by_importance if low[number][0]]
    protected = here[allowed:] if minor >= 38 else []
    order = [*protected, *(number for number in by_importance if number not in protected)]
    gone = order[len(low) - wanted :]
    names = {f"{'default' if low[number][0] else 'other'}/p{number}" for number in gone}
    assert set(found["victims"]) == names
    assert found["candidates"]["n"]["pdbViolations"] == len(set(gone) & set(protected))


@given(MINORS, low_pods, st.data())
def preemption_names_the_node(minor: int, low: list[tuple[bool, bool, int]], data: st.DataObject) -> None:
    """From 1.37 on, the message names the node and how many victims there are; before, nothing is added."""
    wanted = data.draw(st.integers(1, len(low)))
    found = full_node(minor, low, wanted)
    text = f"preemption: found a potential placement for pod on node n, preempting {wanted} victims"
    assert found["message"] == (text if minor >= 37 else "")


MODES: dict[str, tuple[Any, bool | None]] = {
    # what a group says, and whether it goes as a whole; None: its pods stay
    "nothing": (None, False),
    "Pod": ("Pod", False),
    "single": ({"single": {}}, False),
    "all": ({"all": {}}, True),
    "PodGroup": ("PodGroup", None),
    "later": ({"later": {}}, None),
}


@settings(max_examples=200, deadline=None)
@given(
    MINORS,
    st.lists(st.sampled_from(list(MODES)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 7)), min_size=1, max_size=8),
)
def groups_are_evicted_whole(minor: int, modes: list[str], pods: list[tuple[int, int]]) -> None:
    """From 1.37 on, of a group that is disrupted as a whole all pods go if all have a lower priority; before, none."""
    cluster = Cluster(rules_of(f"1.{minor}"))
    for name in "ab":
        cluster.set_node(msgspec.convert(a_node(name), objects.Node))
    for number, mode in enumerate(modes):
        spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": MODES[mode][0]}
        meta = {"name": f"g{number}", "namespace": "default"}
        cluster.set_object(msgspec.convert({"metadata": meta, "spec": spec}, objects.PodGroup))
    there = {}
    for number, (group, priority) in enumerate(pods):
        node = "ab"[number % 2]
        spec = {"schedulingGroup": {"podGroupName": f"g{group}"}, "priority": priority}
        there[number] = cluster.templates.pod(msgspec.convert(running(f"p{number}", node=node, **spec), objects.Pod))
        cluster.place(there[number], node)
    preemptor = {"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": {"priority": 5}}
    frame = Frame(cluster.templates.pod(msgspec.convert(preemptor, objects.Pod)), cluster, 0.0)
    rules = EvictionRules(frame, kubernetes_profile())
    for number, (group, priority) in enumerate(pods):
        is_whole = MODES[modes[group]][1] if group < len(modes) else None
        members = [other for other in range(len(pods)) if pods[other][0] == group] if is_whole else [number]
        may_go = priority < 5 and is_whole is not None and all(pods[other][1] < 5 for other in members)
        may_go = may_go and (minor >= 37 or not is_whole)
        assert rules.allow(there[number]) is may_go
        if may_go:
            (unit,) = rules.units([there[number]])
            assert {pod.name for pod in unit.pods} == {f"p{other}" for other in members}


GROUPED = ("", "single", "all")
"""How pods of a node are in a PodGroup: in none, one by one, or as a whole."""


@given(
    MINORS,
    st.lists(st.tuples(st.sampled_from(GROUPED), st.integers(1, 3), st.integers(0, 1)), min_size=1, max_size=5),
    st.integers(0, 3),
    st.data(),
)
def test_groups_come_back_before_other_pods(
    minor: int, units: list[tuple[str, int, int]], allowed: int, data: st.DataObject
) -> None:
    """From 1.37 on, of equal priority, groups before other pods, the larger ones first; before, who runs longer."""
    pods: list[Json] = []
    groups: list[Json] = []
    ranked: list[tuple[int, int, int, int, list[str]]] = []
    for at, (kind, number, priority) in enumerate(units):
        size = number if kind == "all" else 1
        names = [f"p{len(pods) + each}" for each in range(size)]
        if kind:
            spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {kind: {}}}
            groups.append({"metadata": {"name": f"g{at}", "namespace": "default"}, "spec": spec})
        group = {"schedulingGroup": {"podGroupName": f"g{at}"}} if kind else {}
        if kind != "all" or minor >= 37:
            by_kind = (not kind, -size) if minor >= 37 else (False, 0)
            ranked.append((-priority, *by_kind, len(pods), names))
        pods += [
            running(name, node="n", labels={"app": "safe"}, priority=priority, started=int(name[1:]), **group)
            for name in names
        ]
    wanted = data.draw(st.integers(1, len(pods)))
    spec = {"selector": {"matchLabels": {"app": "safe"}}}
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": spec,
        "status": {"disruptionsAllowed": allowed},
    }
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(wanted)}}}], "priority": 10}
    node = a_node("n", cpu=len(pods))

    found = case(minor, nodes=[node], pods=pods, pod=pod, podDisruptionBudgets=[budget], podGroups=groups)["preemption"]

    order = sorted(ranked)
    left, safe = sum(len(names) for *_, names in order) - wanted, allowed
    if left < 0:
        assert found["nominatedNode"] is None
        return
    protected = list[list[str]]()
    for *_, names in order:
        protected.append(names[max(0, safe) :])
        safe -= len(names)
    gone, violations = set[str](), 0
    for first in (True, False):
        for (*_, names), against in zip(order, protected, strict=True):
            if bool(against) is first and len(names) <= left:
                left -= len(names)
            elif bool(against) is first:
                gone.update(f"default/{name}" for name in names)
                violations += len(against)
    assert set(found["victims"]) == gone
    assert found["candidates"]["n"]["pdbViolations"] == violations


def is_held(minor: int, spec: Json, pod: Json, **gates: bool) -> bool:
    """Return whether a pod of a PodGroup with this spec is held."""
    cluster = Cluster(rules_of(f"1.{minor}", **gates))
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}} | spec
    meta = {"name": "g", "namespace": "default"}
    cluster.set_object(msgspec.convert({"metadata": meta, "spec": spec}, objects.PodGroup))
    own = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"schedulingGroup": {"podGroupName": "g"}} | pod}
    frame = Frame(cluster.templates.pod(msgspec.convert(own, objects.Pod)), cluster, 0.0)
    try:
        pod_group_requirements(frame)
    except ValueError:
        return True
    return False


@given(MINORS, st.none() | st.integers(-2, 2), st.integers(-2, 2), st.sampled_from([None, {"single": {}}]))
def pods_have_the_priority_of_their_group(minor: int, group: int | None, pod: int, mode: Json | None) -> None:
    """From 1.37 on, a pod with another priority than its group is held; before, the group's does not count."""
    spec = {"disruptionMode": mode} | ({} if group is None else {"priority": group})
    assert is_held(minor, spec, {"priority": pod}) is (minor >= 37 and group is not None and group != pod)


policies = st.sampled_from([None, "Never", "PreemptLowerPriority"])


@given(MINORS, st.booleans(), policies, policies)
def pods_have_the_preemption_policy_of_their_group(minor: int, is_on: bool, group: str | None, pod: str | None) -> None:
    """With the gate, a pod with another policy than its group is held; without, any pod of a group that has one."""
    gates = {Feature.POD_GROUP_PREEMPTION_POLICY.entry.name: is_on} if minor >= 37 else {}
    same = minor >= 37 and is_on and (pod or "PreemptLowerPriority") == group
    held = is_held(minor, {"preemptionPolicy": group}, {"preemptionPolicy": pod}, **gates)
    assert held is (group is not None and not same)


# --- devices -----------------------------------------------------------------------------------------------


@given(MINORS, st.integers(1, 4), st.data())
def parameters_are_written_once(minor: int, number: int, data: st.DataObject) -> None:
    """From 1.37 on once, without `requests` if it is for all of them; before, once for each request that it names."""
    names = [f"r{at}" for at in range(number)]
    named = data.draw(st.lists(st.sampled_from(names), unique=True))
    entry = PARAMETERS | ({"requests": named} if named else {})
    claim = a_claim(*(request(name) for name in names), config=[entry])
    found = decided(f"1.{minor}", [claim], [a_slice("s", [{"name": f"d{at}"} for at in range(number)])])
    written = [each.get("requests") for each in allocation(found)["config"]]
    if not named:
        assert written == [None]
    elif minor >= 37:
        assert written == [None if set(named) == set(names) else named]
    else:
        assert written == [named] * len(named)


@given(MINORS, st.lists(st.booleans(), min_size=1, max_size=5), st.integers(1, 3))
def errors_name_the_device(minor: int, has: list[bool], count: int) -> None:
    """The first device without the attribute ends the attempt, unless enough are found before; 1.37 names it."""
    devices = [{"name": f"d{at}", "attributes": {"numa": {"int": 1}} if one else {}} for at, one in enumerate(has)]
    expression = f'device.attributes["{DRIVER}"].numa == 1'
    claim = a_claim(request(count=count, selectors=[{"cel": {"expression": expression}}]))
    found = decided(f"1.{minor}", [claim], [a_slice("s", devices)])
    reached = next((at for at, one in enumerate(has) if not one), inf)
    if reached >= count:
        assert found["error"] is None
        assert (found["filters"]["n"]["code"] == "Success") is (len(has) >= count)
    else:
        (text,) = found["error"]
        on = f" on device {DRIVER}/n/d{reached}" if minor >= 37 else ""
        assert f"claim default/c: selector #0{on}: CEL runtime error: no such key: numa" in text
        assert text.endswith("for optional fields") is (minor >= 37)


@given(MINORS, st.integers(1, 4), st.sampled_from([None, {}]), st.sampled_from(["NoSchedule", "NoExecute", "None"]))
def rules_without_a_selector(minor: int, number: int, selector: Json | None, effect: str) -> None:
    """A rule without `deviceSelector` taints all devices in 1.37 and none later; with `{}`, all in both."""
    slices = [a_slice("s", [{"name": f"d{at}"} for at in range(number)])]
    rule = taint_rule(selector, effect=effect, key=BAD["key"])
    found = decided(f"1.{minor}", [a_claim(request(count=number))], slices, deviceTaintRules=[rule])
    is_tainted = effect != "None" and (minor == 37 or (minor > 37 and selector == {}))
    assert (found["filters"]["n"]["code"] == "Success") is not is_tainted


amounts = st.integers(1, 9)


@given(MINORS, st.dictionaries(st.sampled_from(["memory", OWN]), amounts, min_size=1), st.sampled_from(["memory", OWN]))
def capacities_have_two_names(minor: int, published: dict[str, int], wanted: str) -> None:
    """From 1.38 on, both names are of one capacity, and the qualified one counts; before, names are as published."""
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {name: {"value": str(value)} for name, value in published.items()},
    }
    for amount in (1, 5, 9):
        claim = a_claim(request(capacity={"requests": {wanted: str(amount)}}))
        found = decided(f"1.{minor}", [claim], [a_slice("s", [device])])
        there = published.get(OWN, published.get("memory", 0)) if minor >= 38 else published.get(wanted, 0)
        assert (found["filters"]["n"]["code"] == "Success") is (amount <= there)


@given(MINORS, st.lists(st.booleans(), min_size=1, max_size=4))
def broken_pools(minor: int, are_whole: list[bool]) -> None:
    """A request for all devices is refused on nodes with a broken pool from 1.38 on; before, such a node ends it."""
    slices = [
        a_slice(f"s{at}", [{"name": "d"}], node=f"n{at}", count=1 if is_whole else 2)
        for at, is_whole in enumerate(are_whole)
    ]
    found = decided(f"1.{minor}", [a_claim(request(allocationMode="All"))], slices)
    if minor < 38 and not all(are_whole):
        assert found["error"]
        assert found["hosts"] == []
        return
    assert found["error"] is None
    for at, is_whole in enumerate(are_whole):
        code = found["filters"][f"n{at}"]["code"]
        assert code == ("Success" if is_whole else "UnschedulableAndUnresolvable")


references = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"])},
    optional={"resourceClaimName": st.sampled_from(["c", "d"]), "resourceClaimTemplateName": st.just("t")},
)


@given(MINORS, st.booleans(), st.lists(references, max_size=3), references, st.sampled_from(["", "g", "h"]))
def claims_of_groups(minor: int, is_on: bool, shared: list[Json], own: Json, group: str) -> None:
    """A claim is reserved for the group if the gate is on and the group has the same one; else for the pod."""
    name = Feature.DRA_WORKLOAD_RESOURCE_CLAIMS.entry.name
    rules = rules_of(f"1.{minor}", **({name: is_on} if minor >= 36 else {}))
    cluster = Cluster(rules)
    meta = {"name": "g", "namespace": "default", "uid": "g-uid"}
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": shared}
    cluster.set_object(msgspec.convert({"metadata": meta, "spec": spec}, objects.PodGroup))
    claimed = own.get("resourceClaimName", "made")
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p-uid"},
        "spec": {"resourceClaims": [own]} | ({"schedulingGroup": {"podGroupName": group}} if group else {}),
        "status": {"resourceClaimStatuses": [{"name": own["name"], "resourceClaimName": "made"}]},
    }
    claim = {"metadata": {"name": claimed, "namespace": "default"}, "spec": {}}
    user = user_of(
        cluster.templates.pod(msgspec.convert(pod, objects.Pod)), msgspec.convert(claim, objects.ResourceClaim), cluster
    )
    is_shared = minor >= 36 and is_on and group == "g" and own in shared
    assert user.uid == ("g-uid" if is_shared else "p-uid")


# --- all of them -------------------------------------------------------------------------------------------

HERE: dict[Feature, Callable[..., None]] = {
    Feature.VOLUME_LIMIT_SCALING: nodes_need_the_drivers_that_ask_for_it,
    Feature.IMAGE_VOLUMES_ARE_CONTAINERS: image_volumes_are_containers,
    Feature.PREEMPTION_MESSAGE: preemption_names_the_node,
    Feature.EMPTY_SELECTOR_SPREADS: empty_selectors_of_spread_constraints,
    Feature.EMPTY_SELECTOR_PROTECTS: empty_selectors_of_budgets,
    Feature.POD_GROUPS_EVICTED_WHOLE: groups_are_evicted_whole,
    Feature.POD_GROUP_PRIORITY_COUNTS: pods_have_the_priority_of_their_group,
    Feature.POD_GROUP_PREEMPTION_POLICY: pods_have_the_preemption_policy_of_their_group,
    Feature.DEVICE_CONFIG_WRITTEN_ONCE: parameters_are_written_once,
    Feature.SELECTOR_ERRORS_NAME_DEVICES: errors_name_the_device,
    Feature.DRA_WORKLOAD_RESOURCE_CLAIMS: claims_of_groups,
    Feature.TAINT_RULES_NEED_SELECTORS: rules_without_a_selector,
    Feature.QUALIFIED_CAPACITY_NAMES: capacities_have_two_names,
    Feature.BROKEN_POOLS_REJECT_NODES: broken_pools,
}
ELSEWHERE: dict[Feature, Callable[..., None]] = {
    Feature.POD_REQUESTS_MAX_OF_SUMS: test_requests.test_since_1_37_a_resized_pod_counts_for_the_largest_of_three_sums,
    Feature.STORAGE_CAPACITY_SCORING: storage.test_nodes_score_by_what_new_volumes_would_use_of_the_room_of_their_class,
    Feature.WORKLOAD_AWARE_PREEMPTION: test_group_preemption.test_units_come_back_in_order_as_far_as_they_fit,
    Feature.TOPOLOGY_AWARE_WORKLOAD_SCHEDULING: test_placements.test_a_group_gets_the_rack_with_the_highest_score,
    Feature.PLACEMENTS_LIMITED: test_placements.test_the_share_falls_with_the_number_of_nodes,
    Feature.NOMINATED_PLACEMENT_FIRST: (
        test_placements.test_since_1_38_the_rack_to_which_most_pods_are_nominated_comes_first
    ),
    Feature.DRA_LIST_TYPE_ATTRIBUTES: test_device_search.test_it_finds_what_the_plain_search_finds,
    Feature.DRA_FRACTIONAL_CAPACITY_RANGE: devices.test_a_share_takes_the_least_allowed_amount_that_is_enough,
    Feature.DRA_DEVICE_TAINT_RULES: devices.test_rules_act_as_if_their_taints_stood_in_the_slices,
}
"""Laws that run in other files."""


@pytest.mark.parametrize("feature", HERE, ids=lambda feature: feature.entry.name)
def test_what_a_version_does_on_random_cases(feature: Feature) -> None:
    HERE[feature]()


@pytest.mark.parametrize("feature", Feature, ids=lambda feature: feature.entry.name)
def test_every_row_of_the_table_has_a_law(feature: Feature) -> None:
    assert (feature in HERE) is not (feature in ELSEWHERE)
