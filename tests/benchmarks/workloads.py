"""The workloads: which nodes, which pods are there already, which pods are decided. Names are scheduler_perf's.

Counts are scheduler_perf's too, for 5,000 nodes, and scale with them. Where scheduler_perf has no such workload the
name is our own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.policy import Policy
from tests.benchmarks import devices, volumes
from tests.benchmarks.manifests import HOSTNAME, ZONE, Json, add_node, in_zones, near, node, pod, spread
from tests.benchmarks.policies import FOUR_LINES, policy_text, profile_of

NODES = 5_000
"""The number of nodes that counts are for."""
ZONES = ("moon-1", "moon-2", "moon-3")

MakeNode = Callable[[int], Json]
MakePod = Callable[[int], Json]


def _plain_node(number: int) -> Json:
    return node(f"node-{number}", zone=ZONES[number % 3])


def _plain_pod(number: int) -> Json:
    return pod(f"pod-{number}")


@dataclass(frozen=True)
class Workload:
    """What is scheduled, and what the cluster is like before."""

    name: str
    text: str
    measured: int
    """Pods decided, at 5,000 nodes."""
    make_pod: MakePod = _plain_pod
    placed: int = 0
    """Pods that are there before, at 5,000 nodes, one after the other on each node in turn."""
    make_placed: MakePod = _plain_pod
    make_node: MakeNode = _plain_node
    profile: Callable[[], Profile] = kubernetes_profile
    namespaces: tuple[str, ...] = ()
    prepare: Callable[[Cluster], None] = field(default=lambda cluster: None)
    claims: bool = False
    """Whether each node has devices, and each pod claims one."""
    make_objects: Callable[[PodInfo], tuple[Any, ...]] | None = None
    """Other objects that exist for each pod."""
    goal: int | None = None
    """Decisions per second to reach at 5,000 nodes, a quarter of it at 20,000."""
    preempts: bool = False
    fits: bool = True
    """Whether every pod finds a node."""
    metrics: bool = False
    """Whether the profile reads the metrics of `tests.benchmarks.policies`."""
    policy: Callable[[], Policy] | None = None
    """The policy whose profile is used instead of `profile`."""
    meanwhile: Callable[[Any, PodInfo], None] | None = None
    """What happens before each decision: takes the `Run` and the pod to decide."""
    finish: Callable[[Cluster, int], None] | None = None
    """Adds what follows from the nodes, when they are there; takes their number."""

    def scaled(self, count: int, nodes: int) -> int:
        """Return a count for 5,000 nodes as one for another number of nodes, at least 1 where there is any."""
        return max(1, count * nodes // NODES) if count else 0


def _color(color: str, **spec: Any) -> MakePod:
    return lambda number: pod(f"pod-{number}", labels={"color": color}, **spec)


def _in_namespaces(color: str, *, count: int, affinity: Json) -> MakePod:
    return lambda number: pod(
        f"pod-{number}", namespace=f"namespace-{number % count}", labels={"color": color}, affinity=affinity
    )


def _own_labels(number: int) -> Json:
    return pod(f"pod-{number}", labels={"app": "many", "apps.kubernetes.io/pod-index": str(number)})


def _own_requests(number: int) -> Json:
    return pod(
        f"pod-{number}",
        labels={"index": str(number)},
        cpu=f"{50 + number % 97}m",
        memory=f"{300 + number % 1009}Mi",
    )


def _own_everything(number: int) -> Json:
    """Requests, tolerations and node affinity of its own: no two pods can share anything."""
    return pod(
        f"pod-{number}",
        labels={"index": str(number)},
        cpu=f"{50 + number % 97}m",
        memory=f"{300 + number % 1009}Mi",
        tolerations=[{"key": f"own-{number}", "operator": "Exists"}],
        affinity={
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1 + number % 100,
                        "preference": {
                            "matchExpressions": [{"key": "pool", "operator": "NotIn", "values": [f"none-{number}"]}]
                        },
                    }
                ]
            }
        },
    )


def _tainted_node(number: int) -> Json:
    taints = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}] if number % 5 == 0 else []
    if number % 7 == 0:
        taints.append({"key": "old", "value": "", "effect": "PreferNoSchedule"})
    return node(f"node-{number}", zone=ZONES[number % 3], taints=taints, labels={"pool": f"pool-{number % 4}"})


def _tolerant(number: int) -> Json:
    prefers = {
        "weight": 10,
        "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["pool-1", "pool-2"]}]},
    }
    affinity = in_zones(*ZONES[:2])
    affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = [prefers]
    return pod(
        f"pod-{number}", affinity=affinity, tolerations=[{"key": "dedicated", "operator": "Equal", "value": "batch"}]
    )


def _pooled_node(number: int) -> Json:
    labels = {"pool": f"pool-{number % 4}", "disk": "ssd" if number % 2 else "hdd"}
    return node(f"node-{number}", zone=ZONES[number % 3], labels=labels)


def _tenant(number: int) -> Json:
    return pod(f"pod-{number}", labels={"tenant": f"tenant-{number % 10}"})


def _one_zone_node(number: int) -> Json:
    return node(f"node-{number}", zone="zone1")


def _one_large_node(number: int) -> Json:
    made = _plain_node(number)
    if number == 0:
        made["status"]["allocatable"] = {"cpu": "90000", "memory": "9000Gi", "pods": "90000"}
    return made


def _daemon(number: int) -> Json:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return pod(
        f"pod-{number}",
        cpu="1m",
        memory="1Mi",
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
    )


def _partly_tainted_node(number: int) -> Json:
    taints = [{"key": "foo", "value": "", "effect": "NoSchedule"}] if number % 5 == 4 else []
    return node(f"node-{number}", zone=ZONES[number % 3], taints=taints)


def _spread_over_untainted(number: int) -> Json:
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"foo": ""}},
    }
    return pod(f"pod-{number}", labels={"foo": ""}, topologySpreadConstraints=[constraint])


def _node_with_extended_resource(number: int) -> Json:
    made = _plain_node(number)
    for offered in ("capacity", "allocatable"):
        made["status"][offered] |= {_EXTENDED: "8"}
    return made


def _with_extended_resource(number: int) -> Json:
    made = pod(f"pod-{number}")
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"] |= {_EXTENDED: "1"}
    resources["limits"] = {_EXTENDED: "1"}
    return made


_EXTENDED = "foo.com/bar"


def _mixed(number: int) -> Json:
    """Five kinds of pods that are there before: plain, and with each kind of pod affinity."""
    kinds: tuple[MakePod, ...] = (
        _plain_pod,
        _color("blue", affinity=near("blue", key=ZONE)),
        _color("green", affinity=near("green", key=HOSTNAME, kind="podAntiAffinity")),
        _color("red", affinity=near("red", key=HOSTNAME, required=False)),
        _color("yellow", affinity=near("yellow", key=HOSTNAME, kind="podAntiAffinity", required=False)),
    )
    return kinds[number % 5](number)


def _service(cluster: Cluster) -> None:
    cluster.set_object(
        objects.Service(
            metadata=objects.ObjectMeta(name="service", namespace="measured"),
            spec=objects.ServiceSpec(selector={"color": "blue"}),
        )
    )


def _team_namespaces(cluster: Cluster) -> None:
    for number in range(100):
        cluster.set_object(
            objects.Namespace(metadata=objects.ObjectMeta(name=f"namespace-{number}", labels={"team": "devops"}))
        )


_DEVOPS: Json = {"namespaceSelector": {"matchLabels": {"team": "devops"}}}
_NS_ANTI = _in_namespaces("green", count=100, affinity=near("green", key=HOSTNAME, kind="podAntiAffinity", **_DEVOPS))


def _claiming(number: int) -> Json:
    return devices.claiming_pod(f"pod-{number}")


def _device_class(cluster: Cluster) -> None:
    cluster.set_object(msgspec.convert(devices.device_class(), objects.DeviceClass))


WORKLOADS: tuple[Workload, ...] = (
    Workload("SchedulingBasic", "plain pods of one template", 10_000, placed=1_000, goal=10_000),
    Workload(
        "OwnLabels", "every pod another template: labels of its own", 10_000, _own_labels, placed=1_000, goal=3_000
    ),
    Workload("OwnRequests", "… labels and requests of its own", 5_000, _own_requests, placed=1_000, goal=3_000),
    Workload(
        "OwnEverything",
        "… requests, tolerations and preferred nodes of its own",
        5_000,
        _own_everything,
        placed=1_000,
    ),
    Workload(
        "TopologySpreading",
        "zone spread, DoNotSchedule",
        5_000,
        _color("blue", topologySpreadConstraints=spread("blue", action="DoNotSchedule")),
        placed=5_000,
        goal=3_000,
    ),
    Workload(
        "PreferredTopologySpreading",
        "zone spread, ScheduleAnyway",
        5_000,
        _color("blue", topologySpreadConstraints=spread("blue", action="ScheduleAnyway")),
        placed=5_000,
        goal=3_000,
    ),
    Workload(
        "DefaultTopologySpreading",
        "the system's default constraints, by a service",
        10_000,
        _color("blue"),
        placed=5_000,
        prepare=_service,
        goal=3_000,
    ),
    Workload(
        "SchedulingPodAntiAffinity",
        "required anti-affinity by hostname",
        2_000,
        _color("green", affinity=near("green", key=HOSTNAME, kind="podAntiAffinity")),
        placed=1_000,
        make_placed=_color("green", affinity=near("green", key=HOSTNAME, kind="podAntiAffinity")),
        goal=3_000,
    ),
    Workload(
        "SchedulingPodMatchingAntiAffinity",
        "plain pods that placed pods' anti-affinity is about",
        4_000,
        _color("green"),
        placed=1_000,
        make_placed=_color("green", affinity=near("green", key=HOSTNAME, kind="podAntiAffinity")),
        goal=3_000,
    ),
    Workload(
        "SchedulingPodAffinity",
        "required affinity by zone, one zone",
        5_000,
        _color("blue", affinity=near("blue", key=ZONE)),
        placed=5_000,
        make_placed=_color("blue", affinity=near("blue", key=ZONE)),
        make_node=_one_zone_node,
        goal=3_000,
    ),
    Workload(
        "SchedulingPreferredPodAffinity",
        "preferred affinity by hostname",
        5_000,
        _color("red", affinity=near("red", key=HOSTNAME, required=False)),
        placed=5_000,
        make_placed=_color("red", affinity=near("red", key=HOSTNAME, required=False)),
        goal=3_000,
    ),
    Workload(
        "SchedulingPreferredPodAntiAffinity",
        "preferred anti-affinity by hostname",
        5_000,
        _color("yellow", affinity=near("yellow", key=HOSTNAME, kind="podAntiAffinity", required=False)),
        placed=5_000,
        make_placed=_color("yellow", affinity=near("yellow", key=HOSTNAME, kind="podAntiAffinity", required=False)),
        goal=3_000,
    ),
    Workload(
        "SchedulingRequiredPodAntiAffinityWithNSSelector",
        "required anti-affinity by hostname over 100 namespaces",
        2_000,
        _NS_ANTI,
        placed=2_000,
        make_placed=_NS_ANTI,
        prepare=_team_namespaces,
        goal=3_000,
    ),
    Workload(
        "SchedulingNodeAffinity",
        "required node affinity: zone In",
        10_000,
        lambda number: pod(f"pod-{number}", affinity=in_zones(*ZONES[:2])),
        placed=5_000,
        goal=3_000,
    ),
    Workload(
        "TaintsAndNodeAffinity",
        "hard and soft taints, required and preferred node affinity",
        10_000,
        _tolerant,
        placed=5_000,
        make_node=_tainted_node,
        goal=3_000,
    ),
    Workload(
        "MixedSchedulingBasePod", "plain pods among five kinds of others", 5_000, placed=10_000, make_placed=_mixed
    ),
    Workload("SchedulingDaemonset", "small pods that name their node", 30_000, _daemon, make_node=_one_large_node),
    Workload(
        "PolicyOfFourLines",
        "filter, two scores (one a metric) and spread by tenant",
        10_000,
        _tenant,
        placed=5_000,
        make_placed=_tenant,
        profile=lambda: profile_of(FOUR_LINES),
        metrics=True,
        goal=3_000,
    ),
    Workload(
        "PolicyOf20Clauses",
        "20 clauses, five metrics among them",
        10_000,
        _tenant,
        placed=5_000,
        make_placed=_tenant,
        make_node=_pooled_node,
        profile=lambda: profile_of(policy_text(20)),
        metrics=True,
        goal=2_000,
    ),
    Workload(
        "PreemptionBasic",
        "3 cpu pods evict three of four others",
        5_000,
        lambda number: pod(f"pod-{number}", cpu="3000m", priority=10),
        placed=20_000,
        make_placed=lambda number: pod(f"low-{number}", cpu="900m"),
        preempts=True,
    ),
    Workload(
        "SchedulingWithResourceClaimTemplate",
        "8 devices a node, a claim with a CEL selector for each pod",
        4_000,
        _claiming,
        placed=1_000,
        prepare=_device_class,
        claims=True,
        goal=2_000,
    ),
    Workload(
        "SchedulingWithNodeInclusionPolicy",
        "hostname spread, a fifth of the nodes tainted",
        2_000,
        _spread_over_untainted,
        make_node=_partly_tainted_node,
    ),
    Workload(
        "SchedulingInTreePVs",
        "a claim of its own, bound to a volume of an in-tree plugin",
        2_000,
        lambda number: volumes.using_pod(f"pod-{number}"),
        placed=1_000,
        make_placed=lambda number: volumes.using_pod(f"placed-{number}"),
        make_objects=lambda pod: volumes.claim_and_volume(pod.name, csi=False),
        finish=volumes.add_drivers,
    ),
    Workload(
        "SchedulingCSIPVs",
        "a claim of its own, bound to a volume of a CSI driver",
        2_000,
        lambda number: volumes.using_pod(f"pod-{number}"),
        placed=1_000,
        make_placed=lambda number: volumes.using_pod(f"placed-{number}"),
        make_objects=lambda pod: volumes.claim_and_volume(pod.name, csi=True),
        finish=volumes.add_drivers,
    ),
    Workload(
        "SchedulingWithExtendedResource",
        "one of eight extended resources of a node",
        4_000,
        _with_extended_resource,
        placed=1_000,
        make_placed=_with_extended_resource,
        make_node=_node_with_extended_resource,
    ),
    Workload(
        "Unschedulable",
        "9 cpu pods that fit nowhere",
        1_000,
        lambda number: pod(f"pod-{number}", cpu="9", priority=10),
        placed=5_000,
        fits=False,
    ),
)


def build(workload: Workload, *, nodes: int) -> Cluster:
    """Return a cluster of so many nodes with the workload's first pods in their places."""
    cluster = Cluster()
    workload.prepare(cluster)
    for number in range(nodes):
        add_node(cluster, workload.make_node(number))
        if workload.claims:
            cluster.set_object(msgspec.convert(devices.resource_slice(f"node-{number}"), objects.ResourceSlice))
    if workload.finish is not None:
        workload.finish(cluster, nodes)
    return cluster


def named(name: str) -> Workload:
    """Return a workload by its name."""
    return next(workload for workload in WORKLOADS if workload.name == name)
