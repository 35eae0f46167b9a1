"""Everything that one tenant can write more of: in one pod, in many pods, in other objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.cluster import objects
from tests.growth.stage import Json, Stage, container

TENANT = "tenant"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

Body = Callable[[int], Json]


@dataclass(frozen=True)
class Axis:
    """One thing, of which there are so many."""

    name: str
    pod: Body | None = None
    """The tenant's pod with n of it; None: it is not in a pod."""
    world: Callable[[Stage, int], None] | None = None
    """Makes n of it."""


def _spec(**spec: Any) -> Json:
    return {"spec": spec}


def _meta(**metadata: Any) -> Json:
    return {"metadata": metadata}


def anything(number: int) -> Json:
    """Return a selector of nearly all pods, another one for each number."""
    return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"x{number}"]}]}


def term(number: int, key: str = HOST, *, everywhere: bool = True, selector: Json | None = None) -> Json:
    found: Json = {"labelSelector": selector or anything(number), "topologyKey": key}
    return found | ({"namespaceSelector": {}} if everywhere else {})


def required(kind: str, terms: list[Json]) -> Json:
    return _spec(affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def preferred(kind: str, terms: list[Json]) -> Json:
    weighted = [{"weight": 1 + n % 100, "podAffinityTerm": t} for n, t in enumerate(terms)]
    return _spec(affinity={kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}})


def node_terms(terms: list[Json]) -> Json:
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return _spec(affinity={"nodeAffinity": wanted})


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def _spread(number: int, key: str, selector: Json, when: str = "DoNotSchedule") -> Json:
    return {"maxSkew": 1000, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}


def _claim_volume(name: str) -> Json:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def _claims(stage: Stage, n: int, *, bound: bool, namespace: str = TENANT) -> None:
    stage.event_handlers.object_changed(
        stage.thing(
            objects.StorageClass,
            {"metadata": {"name": "late"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"},
        )
    )
    for number in range(n):
        name = f"claim{number}"
        stage.event_handlers.object_changed(
            stage.thing(objects.PersistentVolumeClaim, claim(name, namespace, bound=bound))
        )
        if bound:
            stage.event_handlers.object_changed(stage.thing(objects.PersistentVolume, volume(f"pv-{namespace}-{name}")))


def claim(name: str, namespace: str = TENANT, *, bound: bool) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": name,
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"} if bound else {},
        },
        "spec": {
            "storageClassName": "late",
            "volumeName": f"pv-{namespace}-{name}" if bound else "",
            "resources": {"requests": {"storage": "1Gi"}},
            "accessModes": ["ReadWriteOnce"],
        },
        "status": {"phase": "Bound" if bound else "Pending"},
    }


def volume(name: str) -> Json:
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
        },
        "status": {"phase": "Available"},
    }


def _local_volumes(stage: Stage, n: int) -> None:
    """Unbound volumes, one after another on each node."""
    _claims(stage, n, bound=False)
    for number in range(n):
        body = volume(f"local{number}")
        expression = {"key": HOST, "operator": "In", "values": [f"n{number % 12}"]}
        body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        stage.event_handlers.object_changed(stage.thing(objects.PersistentVolume, body))


def _shared_volumes(stage: Stage, n: int) -> None:
    _claims(stage, n, bound=False)
    for number in range(n):
        stage.event_handlers.object_changed(stage.thing(objects.PersistentVolume, volume(f"any{number}")))


def _placed(body: Body, *, namespace: Callable[[int], str] = lambda number: TENANT) -> Callable[[Stage, int], None]:
    def make(stage: Stage, n: int) -> None:
        for number in range(n):
            stage.place(stage.pod(namespace(number), body(number)), number)

    return make


def _pending(body: Body) -> Callable[[Stage, int], None]:
    def make(stage: Stage, n: int) -> None:
        for number in range(n):
            stage.event_handlers.pod_changed(stage.pod(TENANT, body(number)))
        for _ in range(n):
            stage.scheduler.schedule_batch()

    return make


def _decided(body: Body) -> Callable[[Stage, int], None]:
    """Pods that are decided, one after another, and are there."""

    def make(stage: Stage, n: int) -> None:
        for number in range(n):
            stage.run_pod(stage.pod(TENANT, body(number)))

    return make


def _passing(body: Body) -> Callable[[Stage, int], None]:
    """Pods that come, are decided and go, one after another."""

    def make(stage: Stage, n: int) -> None:
        for number in range(n):
            pod = stage.pod(TENANT, body(number))
            stage.run_pod(pod)
            stage.event_handlers.pod_deleted(pod)
            stage.move_pods()

    return make


def _things(kind: type, body: Body) -> Callable[[Stage, int], None]:
    def make(stage: Stage, n: int) -> None:
        for number in range(n):
            stage.event_handlers.object_changed(stage.thing(kind, body(number)))

    return make


def _huge(number: int) -> Json:
    return {"metadata": {"labels": {"own": str(number)}}, "spec": {"containers": [container(cpu="100000")]}}


def _on_unknown_nodes(stage: Stage, n: int) -> None:
    for number in range(n):
        pod = stage.pod(TENANT, _meta(labels={"own": str(number)}))
        stage.event_handlers.pod_changed(stage.on_node(pod, f"nowhere{number}"))


def _names(prefix: str) -> Callable[[int], list[str]]:
    return lambda n: [f"{prefix}{number}" for number in range(n)]


IN_A_POD = [
    Axis("labels", lambda n: _meta(labels={f"k{i}": "v" for i in range(n)})),
    Axis("annotations", lambda n: _meta(annotations={f"k{i}": "v" * 20 for i in range(n)})),
    Axis(
        "owners",
        lambda n: _meta(
            ownerReferences=[{"kind": "ReplicaSet", "name": f"r{i}", "apiVersion": "apps/v1"} for i in range(n)]
        ),
    ),
    Axis("tolerations", lambda n: _spec(tolerations=[{"key": f"k{i}", "operator": "Exists"} for i in range(n)])),
    Axis("node selectors", lambda n: _spec(nodeSelector={f"k{i}": "v" for i in range(n)})),
    Axis("node affinity terms", lambda n: node_terms([_expression(f"k{i}", "DoesNotExist") for i in range(n)])),
    Axis(
        "node affinity terms on one key", lambda n: node_terms([_expression(ZONE, "NotIn", f"v{i}") for i in range(n)])
    ),
    Axis("node affinity numbers", lambda n: node_terms([_expression(f"k{i}", "Gt", "1") for i in range(n)])),
    Axis("node affinity values", lambda n: node_terms([_expression(ZONE, "In", "a", *_names("v")(n))])),
    Axis(
        "node names",
        lambda n: node_terms(
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{i}"]}]} for i in range(n)]
        ),
    ),
    Axis(
        "preferred nodes",
        lambda n: _spec(
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": _expression(f"k{i}", "Exists")} for i in range(n)
                    ]
                }
            }
        ),
    ),
    Axis(
        "anti-affinity terms",
        lambda n: required(
            "podAntiAffinity", [term(i, ZONE, selector={"matchLabels": {"app": f"x{i}"}}) for i in range(n)]
        ),
    ),
    Axis(
        "anti-affinity terms that match all",
        lambda n: required("podAntiAffinity", [term(i, f"nowhere{i}") for i in range(n)]),
    ),
    Axis(
        "anti-affinity terms with namespaces",
        lambda n: required(
            "podAntiAffinity", [{"labelSelector": anything(0), "topologyKey": "nowhere", "namespaces": _names("ns")(n)}]
        ),
    ),
    Axis(
        "anti-affinity terms by namespace labels",
        lambda n: required(
            "podAntiAffinity",
            [term(i, HOST) | {"namespaceSelector": {"matchLabels": {"x": f"y{i}"}}} for i in range(n)],
        ),
    ),
    Axis("affinity terms", lambda n: required("podAffinity", [term(i, ZONE) for i in range(n)])),
    Axis("preferred affinity terms", lambda n: preferred("podAffinity", [term(i, ZONE) for i in range(n)])),
    Axis("preferred anti-affinity terms", lambda n: preferred("podAntiAffinity", [term(i, HOST) for i in range(n)])),
    Axis(
        "topology keys of preferred terms",
        lambda n: preferred("podAffinity", [term(i, f"nowhere{i}") for i in range(n)]),
    ),
    Axis(
        "values of a selector",
        lambda n: preferred("podAffinity", [term(0, ZONE, selector=_expression("app", "NotIn", *_names("v")(n)))]),
    ),
    Axis(
        "spread constraints",
        lambda n: _spec(
            topologySpreadConstraints=[_spread(i, f"k{i}", anything(i), "ScheduleAnyway") for i in range(n)]
        ),
    ),
    Axis(
        "hard spread constraints",
        lambda n: _spec(topologySpreadConstraints=[_spread(i, ZONE, anything(i)) for i in range(n)]),
    ),
    Axis("containers", lambda n: _spec(containers=[container(cpu="1m") for i in range(n)])),
    Axis(
        "init containers",
        lambda n: _spec(
            initContainers=[container(cpu="1m") | ({"restartPolicy": "Always"} if i % 2 else {}) for i in range(n)]
        ),
    ),
    Axis(
        "host ports", lambda n: _spec(containers=[container() | {"ports": [{"hostPort": 1000 + i} for i in range(n)]}])
    ),
    Axis(
        "host addresses",
        lambda n: _spec(
            containers=[
                container() | {"ports": [{"hostPort": 80, "hostIP": f"10.{i >> 8}.{i & 255}.1"} for i in range(n)]}
            ]
        ),
    ),
    Axis("images", lambda n: _spec(containers=[container(cpu="1m") | {"image": f"i{i}"} for i in range(n)])),
    Axis("resources", lambda n: _spec(containers=[container(**{f"x.io/r{i}": "1" for i in range(n)})])),
    Axis("device shares", lambda n: _spec(containers=[container(**{f"x.io/r{i}-milli": "1" for i in range(n)})])),
    Axis("overhead", lambda n: _spec(overhead={f"x.io/r{i}": "1" for i in range(n)})),
    Axis("scheduling gates", lambda n: _spec(schedulingGates=[{"name": f"g{i}"} for i in range(n)])),
    Axis(
        "resource claims",
        lambda n: _spec(resourceClaims=[{"name": f"c{i}", "resourceClaimName": "x"} for i in range(n)]),
    ),
    Axis(
        "inline disks",
        lambda n: _spec(volumes=[{"name": f"v{i}", "gcePersistentDisk": {"pdName": f"d{i}"}} for i in range(n)]),
    ),
    Axis(
        "one disk many times",
        lambda n: _spec(
            volumes=[{"name": f"v{i}", "gcePersistentDisk": {"pdName": "d", "readOnly": True}} for i in range(n)]
        ),
    ),
    Axis(
        "image volumes", lambda n: _spec(volumes=[{"name": f"v{i}", "image": {"reference": f"i{i}"}} for i in range(n)])
    ),
    Axis("claims that are missing", lambda n: _spec(volumes=[_claim_volume(f"none{i}") for i in range(n)])),
    Axis(
        "bound claims",
        lambda n: _spec(volumes=[_claim_volume(f"claim{i}") for i in range(n)]),
        lambda stage, n: _claims(stage, n, bound=True),
    ),
    Axis(
        "claims to provision",
        lambda n: _spec(volumes=[_claim_volume(f"claim{i}") for i in range(n)]),
        lambda stage, n: _claims(stage, n, bound=False),
    ),
    Axis(
        "claims to bind to local volumes",
        lambda n: _spec(volumes=[_claim_volume(f"claim{i}") for i in range(n // 12)]),
        _local_volumes,
    ),
    Axis(
        "claims to bind to volumes",
        lambda n: _spec(volumes=[_claim_volume(f"claim{i}") for i in range(n)]),
        _shared_volumes,
    ),
    Axis(
        "ephemeral volumes",
        lambda n: _spec(
            volumes=[{"name": f"v{i}", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}} for i in range(n)]
        ),
    ),
    Axis(
        "conditions",
        lambda n: {
            "status": {"conditions": [{"type": f"t{i}", "status": "True", "message": "m" * 50} for i in range(n)]}
        },
    ),
    Axis(
        "container statuses",
        lambda n: {
            "status": {"containerStatuses": [{"name": f"c{i}", "allocatedResources": {"cpu": "1"}} for i in range(n)]}
        },
    ),
]
"""Axes within one pod: what it costs the tenant itself is linear, and the neighbours nothing."""


def _own(number: int) -> Json:
    return _meta(labels={"own": str(number)})


def _with(number: int, body: Json) -> Json:
    return {**_own(number), **body}


MANY = [
    Axis("pods of one template", world=_placed(lambda i: {})),
    Axis("pods of a template each", world=_placed(_own)),
    Axis(
        "pods with an own anti-affinity",
        world=_placed(
            lambda i: _with(i, required("podAntiAffinity", [term(i, ZONE, selector={"matchLabels": {"app": f"x{i}"}})]))
        ),
    ),
    Axis(
        "pods with an anti-affinity to all",
        world=_placed(lambda i: _with(i, required("podAntiAffinity", [term(i, "nowhere")]))),
    ),
    Axis(
        "pods with preferences about all", world=_placed(lambda i: _with(i, preferred("podAffinity", [term(i, ZONE)])))
    ),
    Axis(
        "pods with an own required affinity, decided",
        world=_decided(lambda i: required("podAffinity", [term(i * 2 + j, ZONE) for j in range(2)])),
    ),
    Axis(
        "pods with an own required anti-affinity, decided",
        world=_decided(lambda i: required("podAntiAffinity", [term(i * 2 + j, f"nowhere{i}") for j in range(2)])),
    ),
    Axis(
        "pods with own preferences, decided",
        world=_decided(lambda i: preferred("podAffinity", [term(i * 2 + j, ZONE) for j in range(2)])),
    ),
    Axis(
        "pods with own spread selectors, decided",
        world=_decided(
            lambda i: _spec(topologySpreadConstraints=[_spread(j, ZONE, anything(i * 2 + j)) for j in range(2)])
        ),
    ),
    Axis(
        "pods with own soft spread selectors, decided",
        world=_decided(
            lambda i: _spec(
                topologySpreadConstraints=[_spread(j, ZONE, anything(i * 2 + j), "ScheduleAnyway") for j in range(2)]
            )
        ),
    ),
    Axis(
        "pods with an own required affinity that came and went",
        world=_passing(lambda i: required("podAffinity", [term(i * 2 + j, ZONE) for j in range(2)])),
    ),
    Axis(
        "pods with own spread selectors that came and went",
        world=_passing(
            lambda i: _spec(topologySpreadConstraints=[_spread(j, ZONE, anything(i * 2 + j)) for j in range(2)])
        ),
    ),
    Axis(
        "pods with a policy's value each that came and went", world=_passing(lambda i: _meta(labels={"app": f"x{i}"}))
    ),
    Axis("pods with a policy's value each, decided", world=_decided(lambda i: _meta(labels={"app": f"x{i}"}))),
    Axis(
        "pods with a gang each, decided",
        world=_decided(lambda i: _meta(labels={"job": f"j{i // 3}"})),
    ),
    Axis(
        "pods with a claim each that are missing",
        world=_decided(lambda i: _spec(resourceClaims=[{"name": "c", "resourceClaimName": f"none{i}"}])),
    ),
    Axis("pods with an own priority", world=_placed(lambda i: _with(i, _spec(priority=i)))),
    Axis("pods with an own request", world=_placed(lambda i: _spec(containers=[container(cpu=f"{i + 1}m")]))),
    Axis("pods with a namespace each", world=_placed(lambda i: {}, namespace=lambda i: f"tenant{i}")),
    Axis(
        "pods with an owner each",
        world=_placed(
            lambda i: _meta(ownerReferences=[{"kind": "Job", "name": f"j{i}", "uid": f"j{i}", "controller": True}])
        ),
    ),
    Axis(
        "pods with a host port each",
        world=_placed(lambda i: _with(i, _spec(containers=[container() | {"ports": [{"hostPort": i + 1}]}]))),
    ),
    Axis(
        "pods with an address each",
        world=_placed(
            lambda i: _with(
                i, _spec(containers=[container() | {"ports": [{"hostPort": 80, "hostIP": f"10.{i >> 8}.{i & 255}.1"}]}])
            )
        ),
    ),
    Axis(
        "pods with one disk",
        world=_placed(lambda i: _spec(volumes=[{"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}])),
    ),
    Axis("pods with a resource each", world=_placed(lambda i: _spec(containers=[container(**{f"x.io/r{i}": "1"})]))),
    Axis("pods on nodes that are not there", world=_on_unknown_nodes),
    Axis("pods that fit nowhere", world=_pending(_huge)),
    Axis(
        "pods of priority that fit nowhere",
        world=_pending(lambda i: {**_huge(i), "spec": _huge(i)["spec"] | {"priority": 5}}),
    ),
    Axis(
        "pods with a selector each that are pending",
        world=_pending(
            lambda i: {
                **_huge(i),
                "spec": _huge(i)["spec"]
                | {"topologySpreadConstraints": [_spread(i, ZONE, anything(i), "ScheduleAnyway")]},
            }
        ),
    ),
    Axis("pods that a policy holds", world=_pending(lambda i: _meta(labels={"own": str(i), "held": "yes"}))),
    Axis("pods with gates", world=_pending(lambda i: _spec(schedulingGates=[{"name": f"g{i}"}]))),
    Axis("pods that wait for their claim", world=_pending(lambda i: _spec(volumes=[_claim_volume(f"none{i}")]))),
    Axis("namespaces", world=_things(objects.Namespace, lambda i: _meta(name=f"ns{i}", labels={"a": str(i)}))),
    Axis(
        "services",
        world=_things(
            objects.Service,
            lambda i: {"metadata": {"name": f"s{i}", "namespace": TENANT}, "spec": {"selector": {"app": f"x{i}"}}},
        ),
    ),
    Axis(
        "disruption budgets",
        world=_things(
            objects.PodDisruptionBudget,
            lambda i: {"metadata": {"name": f"b{i}", "namespace": TENANT}, "spec": {"selector": anything(i)}},
        ),
    ),
    Axis("claims", world=lambda stage, n: _claims(stage, n, bound=False)),
    Axis("volumes", world=lambda stage, n: _claims(stage, n, bound=True)),
    Axis(
        "replica sets",
        world=_things(
            objects.ReplicaSet,
            lambda i: {"metadata": {"name": f"r{i}", "namespace": TENANT}, "spec": {"selector": anything(i)}},
        ),
    ),
    Axis(
        "pod groups",
        world=_things(objects.PodGroup, lambda i: {"metadata": {"name": f"g{i}", "namespace": TENANT, "uid": f"g{i}"}}),
    ),
    Axis(
        "coscheduling groups",
        world=_things(objects.CoschedulingPodGroup, lambda i: {"metadata": {"name": f"g{i}", "namespace": TENANT}}),
    ),
]
"""Axes of many objects."""
