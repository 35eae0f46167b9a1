"""What is scheduled end to end: nodes and pods as scheduler_perf's, how many, and what must hold once all are bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.devices import PER_NODE, claim, device_class, resource_slice
from tests.benchmarks.manifests import HOSTNAME, Json, near, spread
from tests.benchmarks.manifests import node as scheduler_perf_node
from tests.benchmarks.manifests import pod as scheduler_perf_pod

SCHEDULER = "policy-scheduler"
NAMESPACE = "default"
ZONES = 3
RACK, RACKS = "topology.kubernetes.io/rack", 50
CPU_MILLIS, MEMORY_MIB, PODS = 4000, 32768, 110
POD_CPU_MILLIS, POD_MEMORY_MIB = 100, 500
MAX_SKEW = 5

Placement = Mapping[str, str]
"""The node of each pod, "" where it has none."""


def node(number: int) -> Json:
    """Return a node of scheduler_perf's size, in one of three zones and of 50 racks."""
    name = node_name(number)
    made = scheduler_perf_node(name, zone=zone_of(name), labels={RACK: rack_of(name)})
    del made["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Node"} | made


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:05d}"


def zone_of(name: str) -> str:
    """Return the zone of a node."""
    return f"zone-{int(name.rpartition('-')[2]) % ZONES}"


def rack_of(name: str) -> str:
    """Return the rack of a node."""
    return f"rack-{int(name.rpartition('-')[2]) % RACKS:02d}"


def pod(name: str, **spec: Any) -> Json:
    """Return a pod for us or for kube-scheduler, of scheduler_perf's size."""
    made = scheduler_perf_pod(name, namespace=NAMESPACE, labels={"color": "blue"}, schedulerName=SCHEDULER, **spec)
    del made["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Pod"} | made


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods of one kind, created before the scheduler is let go."""

    name: str
    pods: int
    spec: Mapping[str, Any]
    goal: float
    """How many times as fast as kube-scheduler."""
    problems: Callable[[Placement], Sequence[str]] = lambda placement: ()
    """What is wrong with where the pods are, beside nodes that hold more than they have."""
    claims: bool = False
    """Whether each node has devices, and each pod claims one."""
    gang: int = 0
    """Pods of one PodGroup each; 0: without PodGroups."""
    racks: bool = False
    """Whether each PodGroup must be in one rack."""

    def pod(self, number: int) -> Json:
        """Return one of its pods."""
        name = f"pod-{number:06d}"
        if self.gang:
            return pod(name, schedulingGroup={"podGroupName": f"gang-{number // self.gang:05d}"}, **self.spec)
        if not self.claims:
            return pod(name, **self.spec)
        made = pod(name, resourceClaims=[{"name": "gpus", "resourceClaimName": name}], **self.spec)
        made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
        return made

    def things(self, *, nodes: int, pods: int) -> Iterator[tuple[str, Json]]:
        """Yield what is there before its pods, by the path at which it is created.

        The claims are created as the controller of claims does for pods with a template, which does not run here.
        """
        for number in range(0, pods, self.gang or pods):
            if self.gang:
                group = _pod_group(f"gang-{number // self.gang:05d}", min(self.gang, pods - number), racks=self.racks)
                yield f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{NAMESPACE}/podgroups", group
        if not self.claims:
            return
        group = "/apis/resource.k8s.io/v1"
        yield f"{group}/deviceclasses", device_class()
        for number in range(nodes):
            yield f"{group}/resourceslices", resource_slice(node_name(number))
        for number in range(pods):
            yield f"{group}/namespaces/{NAMESPACE}/resourceclaims", claim(f"pod-{number:06d}", namespace=NAMESPACE)


def _pod_group(name: str, size: int, *, racks: bool) -> Json:
    spec: Json = {"schedulingPolicy": {"gang": {"minCount": size}}}
    if racks:
        spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
    kind = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup"}
    return kind | {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def overfull(placement: Placement) -> list[str]:
    """Return what is wrong in any workload: pods without a node, nodes that hold more than they have."""
    per_node = Counter(placement.values())
    unbound = per_node.pop("", 0)
    wrong = [f"{unbound} pods are not bound"] if unbound else []
    for name, number in per_node.items():
        taken = (number * POD_CPU_MILLIS, number * POD_MEMORY_MIB, number)
        if any(have > may for have, may in zip(taken, (CPU_MILLIS, MEMORY_MIB, PODS), strict=True)):
            wrong.append(f"{name} holds {number} pods")
    return wrong


def _uneven(placement: Placement) -> list[str]:
    per_zone = Counter(zone_of(name) for name in placement.values() if name)
    skew = max(per_zone.values()) - min(per_zone.values())
    return [f"zones hold {dict(per_zone)}, more than {MAX_SKEW} apart"] if skew > MAX_SKEW else []


def _together(placement: Placement) -> list[str]:
    return [
        f"{name} holds {number} pods" for name, number in Counter(placement.values()).items() if name and number > 1
    ]


def _eight_a_node(placement: Placement) -> list[str]:
    per_node = Counter(name for name in placement.values() if name)
    return [f"{name} holds {number} pods" for name, number in per_node.items() if number > PER_NODE]


def _scattered(placement: Placement) -> list[str]:
    racks: dict[int, set[str]] = {}
    for name, where in placement.items():
        if where:
            racks.setdefault(int(name.rpartition("-")[2]) // GANG, set()).add(rack_of(where))
    return [f"gang {number} is in {len(found)} racks" for number, found in racks.items() if len(found) > 1]


GANG = 4
"""Pods of a gang, as in scheduler_perf."""
WORKLOADS = (
    Workload("SchedulingBasic", 10_000, {}, 4.0),
    Workload(
        "TopologySpreading",
        3_000,
        {"topologySpreadConstraints": spread("blue", action="DoNotSchedule")},
        8.0,
        _uneven,
    ),
    Workload(
        "SchedulingPodAntiAffinity",
        2_000,
        {"affinity": near("blue", key=HOSTNAME, kind="podAntiAffinity")},
        8.0,
        _together,
    ),
    Workload(
        "SchedulingPreferredPodAffinity",
        2_000,
        {"affinity": near("blue", key=HOSTNAME, required=False)},
        6.0,
    ),
    Workload("SchedulingWithResourceClaimTemplate", 5_000, {}, 3.0, _eight_a_node, claims=True),
    Workload("GangScheduling", 3_000, {}, 2.0, gang=GANG),
    Workload("TopologyAwareGangScheduling", 3_000, {}, 2.0, _scattered, gang=GANG, racks=True),
)
