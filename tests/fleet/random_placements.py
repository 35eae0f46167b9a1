"""Random questions to a decision maker: a binding and its clusters, all of which Karmada's API server admits.

A seed gives the same question for ever. There are at most 12 clusters: karmada-scheduler sorts more of them in a way
that does not keep equal ones in order, so its own answer is not always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias, TypeVar

from kube_policy_scheduler.fleet.karmada.triggers import APPLIED

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

NAMES = ("a", "b", "c", "d", "m1", "m10", "m2", "one", "east", "west", "zulu", "k8s-b")
PROVIDERS, REGIONS, ZONES = ("own", "aws", "gcp"), ("eu", "us", "as", "af"), ("z1", "z2", "z3")
TIERS = ("gold", "silver")
KINDS = (("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job"))
TAINTS = (
    {"key": "gpu", "value": "h100", "effect": "NoSchedule"},
    {"key": "cluster.karmada.io/not-ready", "effect": "NoExecute"},
    {"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"},
    {"key": "old", "value": "1", "effect": "PreferNoSchedule"},
)
TOLERATIONS = (
    {"key": "gpu", "operator": "Exists"},
    {"key": "gpu", "operator": "Equal", "value": "h100", "effect": "NoSchedule"},
    {"key": "gpu", "operator": "Equal", "value": "a100"},
    {"operator": "Exists"},
    {"key": "cluster.karmada.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
)
CPUS = ("100m", "250m", "500m", "1", "1500m", "2", "0.3")
MEMORIES = ("128Mi", "1Gi", "1500M", "0", "100", "1.5Gi")


class _Dice:
    """Chance, by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def one_in(self, number: int) -> bool:
        return self._random.randrange(number) == 0

    def of(self, values: Sequence[T]) -> T:
        return values[self._random.randrange(len(values))]

    def to(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def some(self, values: Sequence[T], *, least: int = 0, most: int | None = None) -> list[T]:
        limit = len(values) if most is None else min(most, len(values))
        return self._random.sample(list(values), self.to(min(least, limit), limit))


def question(seed: int) -> Json:
    """Return a case without its answer, in the form of `policyctl conformance`."""
    dice = _Dice(seed)
    clusters = [_cluster(dice, name) for name in sorted(dice.some(NAMES, least=1))]
    names = [each["metadata"]["name"] for each in clusters]
    asked: Json = {"name": f"random-{seed:03}", "binding": _binding(dice, names), "clusters": clusters}
    if dice.one_in(12):
        asked["enableEmptyWorkloadPropagation"] = True
    if "components" in asked["binding"]["spec"]:
        asked["featureGates"] = {"MultiplePodTemplatesScheduling": dice.one_in(2)}
    return asked


def binding(seed: int, names: Sequence[str]) -> Json:
    """Return a binding to be placed in clusters of these names."""
    return _binding(_Dice(seed), names)


# --- clusters -----------------------------------------------------------------------------------------


def _cluster(dice: _Dice, name: str) -> Json:
    spec: Json = {"syncMode": dice.of(("Push", "Pull"))}
    if not dice.one_in(6):
        spec["provider"] = dice.of(PROVIDERS)
    if not dice.one_in(8):
        spec["region"] = dice.of(REGIONS)
    if not dice.one_in(4):
        spec["zones"] = sorted(dice.some(ZONES, least=1))
    if dice.one_in(4):
        spec["taints"] = [dict(each) for each in dice.some(TAINTS, least=1, most=2)]
    status: Json = {"apiEnablements": _apis(dice)}
    if not dice.one_in(15):
        status["resourceSummary"] = summary = _summary(dice)
        if dice.one_in(4):
            spec["resourceModels"], counts = _models(dice)
            if not dice.one_in(4):
                summary["allocatableModelings"] = counts
    labels = {"tier": dice.of(TIERS)} | ({"gpu": "h100"} if dice.one_in(3) else {})
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def _apis(dice: _Dice) -> list[Json]:
    served: dict[str, list[Json]] = {}
    for version, kind in (*KINDS, ("v1", "ConfigMap")):
        if not dice.one_in(15):
            served.setdefault(version, []).append({"kind": kind, "name": f"{kind.lower()}s"})
    return [{"groupVersion": version, "resources": kinds} for version, kinds in served.items()]


def _summary(dice: _Dice) -> Json:
    allocatable: Json = {"cpu": str(dice.to(0, 40)), "memory": dice.of(("8Gi", "64Gi", "0", "1T")), "pods": "110"}
    if dice.one_in(3):
        allocatable["nvidia.com/gpu"] = str(dice.to(0, 8))
    if dice.one_in(6):
        allocatable["pods"] = str(dice.to(0, 30))
    allocated = {"cpu": dice.of(("0", "500m", "3", "12")), "memory": dice.of(("0", "1Gi", "16Gi"))}
    summary: Json = {"allocatable": allocatable, "allocated": allocated | {"pods": str(dice.to(0, 40))}}
    if dice.one_in(4):
        summary["allocating"] = {"cpu": dice.of(("1", "2500m")), "pods": str(dice.to(0, 9))}
    return summary


def _models(dice: _Dice) -> tuple[list[Json], list[Json]]:
    """Return the grades of the nodes, each with the least of cpu and memory, and how many nodes each has."""
    bounds = ((0, 1, 0, 4), (1, 2, 4, 16), (2, 8, 16, 64), (8, 2**20, 64, 2**20))
    grades = [
        {
            "grade": grade,
            "ranges": [
                {"name": "cpu", "min": str(least_cpu), "max": str(most_cpu)},
                {"name": "memory", "min": f"{least_memory}Gi", "max": f"{most_memory}Gi"},
            ],
        }
        for grade, (least_cpu, most_cpu, least_memory, most_memory) in enumerate(bounds)
    ]
    return grades, [{"grade": grade, "count": dice.to(0, 5)} for grade in range(len(bounds))]


# --- bindings -----------------------------------------------------------------------------------------


def _binding(dice: _Dice, names: Sequence[str]) -> Json:
    version, kind = dice.of(KINDS)
    uid = dice.of(("", *(f"u-{number}" for number in range(8))))
    resource = {"apiVersion": version, "kind": kind, "namespace": "shop", "name": "web", "uid": uid}
    spec: Json = {"resource": resource, "replicas": dice.to(1, 40), "placement": _placement(dice, names)}
    if not dice.one_in(10):
        spec["replicaRequirements"] = {"resourceRequest": _requests(dice)}
    if dice.one_in(12):
        _without_pods(dice, spec)
    elif dice.one_in(12):
        _in_components(dice, spec)
    if dice.one_in(2):
        spec["clusters"] = [
            {"name": name, "replicas": dice.to(0 if dice.one_in(6) else 1, 12)}
            for name in sorted(dice.some((*names, "gone"), least=1, most=5))
        ]
    if dice.one_in(6):
        spec["gracefulEvictionTasks"] = [
            {"fromCluster": name, "reason": "TaintUntolerated", "producer": "TaintManager"}
            for name in dice.some(names, least=1, most=2)
        ]
    status: Json = {}
    if dice.one_in(6) and spec.get("replicas"):  # without replicas, Karmada's own sums overflow
        status["lastScheduledTime"] = "2026-11-01T00:00:00Z"
        spec["rescheduleTriggeredAt"] = dice.of(("2026-10-31T23:59:59Z", "2026-11-01T00:00:01Z"))
    terms = spec["placement"].get("clusterAffinities", ())
    if terms and dice.one_in(2):
        status["schedulerObservingAffinityName"] = dice.of((*(each["affinityName"] for each in terms), "none"))
    annotations = {APPLIED: "{}"} if dice.one_in(2) else {}
    labels = {"propagationpolicy.karmada.io/permanent-id": "p"}
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "shop", "labels": labels, "annotations": annotations},
        "spec": spec,
        "status": status,
    }


def _without_pods(dice: _Dice, spec: Json) -> None:
    if dice.one_in(2):  # scaled to nothing
        spec["replicas"] = 0
        return
    spec["resource"] |= {"apiVersion": "v1", "kind": "ConfigMap"}
    spec.pop("replicaRequirements", None)
    del spec["replicas"]


def _in_components(dice: _Dice, spec: Json) -> None:
    """Have the workload be of several kinds of pods, as a FlinkDeployment is."""
    del spec["replicas"]
    spec.pop("replicaRequirements", None)
    spec["components"] = [
        {
            "name": f"part-{number}",
            "replicas": dice.to(1, 6),
            "replicaRequirements": {"resourceRequest": _requests(dice)},
        }
        for number in range(dice.to(1, 3))
    ]
    if dice.one_in(2):  # all of it in one cluster
        spec["placement"]["spreadConstraints"] = [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]


def _requests(dice: _Dice) -> Json:
    found: Json = {}
    if not dice.one_in(6):
        found["cpu"] = dice.of(CPUS)
    if dice.one_in(2):
        found["memory"] = dice.of(MEMORIES)
    if dice.one_in(8):
        found["nvidia.com/gpu"] = dice.of(("1", "2"))
    return found


def _placement(dice: _Dice, names: Sequence[str]) -> Json:
    found: Json = {}
    if dice.one_in(4):
        found["clusterAffinities"] = [
            {"affinityName": f"term-{number}"} | _affinity(dice, names) | _overflow(dice, names)
            for number in range(dice.to(1, 3))
        ]
    elif dice.one_in(2):
        found["clusterAffinity"] = _affinity(dice, names)
    if dice.one_in(4):
        found["clusterTolerations"] = [dict(each) for each in dice.some(TOLERATIONS, least=1, most=2)]
    if dice.one_in(3):
        found["spreadConstraints"] = _spread(dice)
    if not dice.one_in(12):
        found["replicaScheduling"] = _scheduling(dice, names)
    return found


def _overflow(dice: _Dice, names: Sequence[str]) -> Json:
    if not dice.one_in(2):
        return {}
    further = [{"affinityName": f"more-{number}"} | _affinity(dice, names) for number in range(dice.to(1, 2))]
    return {"overflowAffinities": further}


def _affinity(dice: _Dice, names: Sequence[str]) -> Json:
    found: Json = {}
    if dice.one_in(3):
        found["clusterNames"] = sorted(dice.some((*names, "nobody"), least=1))
    if dice.one_in(6):
        found["exclude"] = sorted(dice.some(names, least=1, most=2))
    if dice.one_in(4):
        found["labelSelector"] = _selector(dice)
    if dice.one_in(4):
        found["fieldSelector"] = {"matchExpressions": [_field(dice) for _ in range(dice.to(1, 2))]}
    return found


def _selector(dice: _Dice) -> Json:
    if dice.one_in(2):
        return {"matchLabels": {"tier": dice.of(TIERS)}}
    expression = dice.of(
        (
            {"key": "gpu", "operator": "Exists"},
            {"key": "gpu", "operator": "DoesNotExist"},
            {"key": "tier", "operator": "In", "values": ["gold"]},
            {"key": "gpu", "operator": "NotIn", "values": ["h100"]},
        )
    )
    return {"matchExpressions": [expression]}


def _field(dice: _Dice) -> Json:
    key, values = dice.of((("provider", PROVIDERS), ("region", REGIONS), ("zone", ZONES)))
    return {"key": key, "operator": dice.of(("In", "NotIn")), "values": sorted(dice.some(values, least=1))}


def _spread(dice: _Dice) -> list[Json]:
    """Return spread constraints; a region always comes with clusters, as the admission webhook requires."""

    def groups(field: str) -> Json:
        least = dice.to(1, 3)
        return {"spreadByField": field, "minGroups": least, "maxGroups": least + dice.to(0, 2)}

    fields = dice.of((("cluster",), ("region", "cluster"), ("zone", "cluster"), ("provider", "cluster")))
    return [groups(field) for field in fields]


def _scheduling(dice: _Dice, names: Sequence[str]) -> Json:
    divided: Json = {"replicaSchedulingType": "Divided"}
    made: tuple[Callable[[], Json], ...] = (
        lambda: {"replicaSchedulingType": "Duplicated"},
        lambda: divided | {"replicaDivisionPreference": "Aggregated"},
        lambda: divided | {"replicaDivisionPreference": "Weighted"},
        lambda: (
            divided
            | {"replicaDivisionPreference": "Weighted", "weightPreference": {"dynamicWeight": "AvailableReplicas"}}
        ),
        lambda: (
            divided
            | {"replicaDivisionPreference": "Weighted", "weightPreference": {"staticWeightList": _weights(dice, names)}}
        ),
    )
    return dice.of(made)()


def _weights(dice: _Dice, names: Sequence[str]) -> list[Json]:
    return [{"targetCluster": _affinity(dice, names), "weight": dice.to(1, 5)} for _ in range(dice.to(1, 3))]
