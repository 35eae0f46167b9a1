"""What kubelets, drivers, tenants and administrators can make happen at once, so many times, on many nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kube_policy_scheduler.cluster import objects
from tests.growth.axes import (
    HOST,
    TENANT,
    ZONE,
    Axis,
    anything,
    claim,
    node_terms,
    preferred,
    required,
    term,
    volume,
)
from tests.growth.stage import Json, Stage, container

World = Callable[[Stage, int], None]


def _node(
    stage: Stage, row: int, *, meta: Json | None = None, spec: Json | None = None, status: Json | None = None
) -> Any:
    name = f"n{row}"
    labels = {HOST: name, ZONE: "abc"[row % 3]}
    metadata = {"name": name, **(meta or {})}
    metadata["labels"] = labels | metadata.get("labels", {})
    allocatable = {"cpu": "1000", "memory": "4Ti", "pods": "10000"}
    body = {
        "metadata": metadata,
        "spec": spec or {},
        "status": {**(status or {}), "allocatable": allocatable | (status or {}).get("allocatable", {})},
    }
    return stage.thing(objects.Node, body)


def _one_node(**parts: Callable[[int], Json]) -> World:
    def make(stage: Stage, n: int) -> None:
        for row in range(3):
            stage.event_handlers.node_changed(_node(stage, row, **{part: body(n) for part, body in parts.items()}))

    return make


def _all_nodes(share: int = 64, **parts: Callable[[int, int], Json]) -> World:
    """Let each node have its part of n different things, `share` at most."""

    def make(stage: Stage, n: int) -> None:
        for row in range(stage.nodes):
            first, size = row * share, min(share, max(1, n // stage.nodes))
            body = {part: made(first, size) for part, made in parts.items()}
            stage.event_handlers.nodes_changed([_node(stage, row, **body)])

    return make


def _things(kind: type, body: Callable[[Stage, int], Json]) -> World:
    def make(stage: Stage, n: int) -> None:
        for number in range(n):
            stage.event_handlers.object_changed(stage.thing(kind, body(stage, number)))

    return make


def _many_drivers(stage: Stage, n: int) -> None:
    for row in range(3):
        drivers = [
            {"name": f"d{i}", "nodeID": "x", "topologyKeys": [f"t{i}"], "allocatable": {"count": 3}} for i in range(n)
        ]
        stage.event_handlers.object_changed(
            stage.thing(objects.CSINode, {"metadata": {"name": f"n{row}"}, "spec": {"drivers": drivers}})
        )


def _zones(stage: Stage, n: int) -> None:
    for row in range(3):
        zones = [
            {
                "name": f"node-{i}",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}],
            }
            for i in range(n)
        ]
        stage.event_handlers.object_changed(
            stage.thing(
                objects.NodeResourceTopology,
                {
                    "metadata": {"name": f"n{row}"},
                    "zones": zones,
                    "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
                },
            )
        )


def _pods(stage: Stage, n: int, body: Callable[[int], Json], namespace: str = TENANT, slices: int = 32) -> list[Any]:
    found = [stage.pod(namespace, body(i)) for i in range(n)]
    for start in range(0, n, slices):
        stage.event_handlers.pods_changed(found[start : start + slices])
    return found


def _placed(stage: Stage, n: int, body: Callable[[int], Json], namespace: str = TENANT) -> list[Any]:
    found = [stage.on_node(stage.pod(namespace, body(i)), f"n{i % stage.nodes}") for i in range(n)]
    for start in range(0, n, 32):
        stage.event_handlers.pods_changed(found[start : start + 32])
    return found


def _own(i: int) -> Json:
    return {"metadata": {"labels": {"own": str(i)}}}


def _by_namespace(i: int) -> Json:
    terms = [term(0, ZONE) | {"namespaceSelector": {"matchLabels": {"team": f"t{i}"}}}]
    return {**_own(i), **preferred("podAffinity", terms)}


def _namespace(stage: Stage, name: str, **labels: str) -> None:
    stage.event_handlers.object_changed(stage.thing(objects.Namespace, {"metadata": {"name": name, "labels": labels}}))


def _relabelled(stage: Stage, n: int) -> None:
    _namespace(stage, TENANT, team="t0")
    _placed(stage, n, _own)
    pods = [stage.pod("neighbour", _by_namespace(i)) for i in range(16)]
    for number, pod in enumerate(pods):
        stage.place(pod, number)
    _decide(stage, stage.pod("neighbour", _by_namespace(3)))
    _namespace(stage, TENANT, team="t3")
    _decide(stage, stage.pod("neighbour", _by_namespace(3)))


def _relabelled_terms(stage: Stage, n: int) -> None:
    _namespace(stage, TENANT, team="t0")
    _placed(stage, n, _by_namespace)
    _decide(stage, stage.pod(TENANT, _by_namespace(3)))
    _namespace(stage, TENANT, team="t3")
    _decide(stage, stage.pod(TENANT, _by_namespace(3)))


def _decide(stage: Stage, pod: Any) -> None:
    stage.event_handlers.pod_changed(pod)
    stage.decide()


def _gone(stage: Stage, n: int) -> None:
    for pod in _placed(stage, n, _own):
        stage.event_handlers.pod_deleted(pod)


def _relist_without(stage: Stage, n: int) -> None:
    _placed(stage, n, _own)
    stage.event_handlers.pods_replaced([])


def _big(i: int) -> Json:
    return {**_own(i), "spec": {"containers": [container(cpu="100000")]}}


def _waiting(stage: Stage, n: int) -> None:
    _pods(stage, n, _big)
    stage.decide()


def _nodes_change(stage: Stage, n: int) -> None:
    _waiting(stage, n)
    changed = [_node(stage, row, meta={"labels": {"fresh": "yes"}}) for row in range(stage.nodes)]
    for start in range(0, len(changed), 32):
        stage.event_handlers.nodes_changed(changed[start : start + 32])
    stage.decide()


def _group(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": TENANT, "uid": name}, "spec": spec}


def _member(group: Callable[[int], str], more: Callable[[int], Json] = _own) -> Callable[[int], Json]:
    def body(i: int) -> Json:
        found = more(i)
        return {**found, "spec": found.get("spec", {}) | {"schedulingGroup": {"podGroupName": group(i)}}}

    return body


def _released(stage: Stage, n: int) -> None:
    _pods(stage, n, _member(lambda i: "g"))
    stage.decide()
    gang = {"schedulingPolicy": {"gang": {"minCount": n}}}
    stage.event_handlers.object_changed(stage.thing(objects.PodGroup, _group("g", **gang)))
    while stage.scheduler.queue.has_to_ask():
        stage.turns.take("ask again", stage.scheduler.queue.ask_again)  # type: ignore[attr-defined]
    stage.decide()


def _released_apart(stage: Stage, n: int) -> None:
    _pods(stage, n, _member(lambda i: f"g{i}"))
    stage.decide()
    for i in range(n):
        stage.event_handlers.object_changed(
            stage.thing(objects.PodGroup, _group(f"g{i}", schedulingPolicy={"gang": {"minCount": 1}}))
        )
    stage.decide()


def _too_large_gang(stage: Stage, n: int) -> None:
    gang = {"schedulingPolicy": {"gang": {"minCount": n}}}
    stage.event_handlers.object_changed(stage.thing(objects.PodGroup, _group("g", **gang)))
    _pods(
        stage,
        n,
        _member(lambda i: "g", lambda i: {**_own(i), "spec": {"containers": [container(cpu="900")], "priority": 5}}),
    )
    stage.decide()


def _tree(stage: Stage, n: int) -> None:
    top = _group("top", schedulingPolicy={"gang": {"minGroupCount": n}})
    stage.event_handlers.object_changed(stage.thing(objects.CompositePodGroup, top))
    for i in range(n):
        spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "parentCompositePodGroupName": "top"}
        stage.event_handlers.object_changed(stage.thing(objects.PodGroup, _group(f"g{i}", **spec)))
    _pods(stage, n, _member(lambda i: f"g{i}"))
    stage.decide()


def _chain(stage: Stage, n: int) -> None:
    for i in range(n):
        parent = {"parentCompositePodGroupName": f"c{i - 1}"} if i else {}
        gang = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}
        stage.event_handlers.object_changed(stage.thing(objects.CompositePodGroup, _group(f"c{i}", **gang, **parent)))
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "parentCompositePodGroupName": f"c{n - 1}"}
    stage.event_handlers.object_changed(stage.thing(objects.PodGroup, _group("g", **spec)))
    _pods(stage, 4, _member(lambda i: "g"))
    stage.decide()


def _reload(stage: Stage, n: int) -> None:
    from tests.growth.stage import POLICY, _compiled

    _waiting(stage, n)
    policies = _compiled(POLICY + '\nscore 1 if pod.label.app == "x"\n')
    for _ in stage.scheduler.preparing(policies):
        pass
    stage.turns.take("use policies", lambda: stage.scheduler.use_policies(policies))  # type: ignore[attr-defined]
    stage.decide()


def _flush(stage: Stage, n: int) -> None:
    _waiting(stage, n)
    stage.now += 400
    stage.turns.take("keep queue", stage.scheduler.keep_queue)  # type: ignore[attr-defined]
    stage.decide()


def _nominated(stage: Stage, n: int) -> None:
    for i in range(n):
        pod = stage.pod(TENANT, {**_own(i), "spec": {"priority": 3000}, "status": {"nominatedNodeName": "n5"}})
        stage.scheduler.cluster.nominate(stage.scheduler.cluster.templates.pod(pod), "n5")


def _nominated_apart(stage: Stage, n: int) -> None:
    for i in range(n):
        body = {**_own(i), **required("podAntiAffinity", [term(i, HOST, selector={"matchLabels": {"own": f"{i}"}})])}
        body["spec"]["priority"] = 3000
        pod = stage.pod(TENANT, body)
        stage.scheduler.cluster.nominate(stage.scheduler.cluster.templates.pod(pod), f"n{i % stage.nodes}")


def _budgets(stage: Stage, n: int) -> None:
    for i in range(n):
        body = {"metadata": {"name": f"b{i}", "namespace": "neighbour"}, "spec": {"selector": anything(i)}}
        stage.event_handlers.object_changed(stage.thing(objects.PodDisruptionBudget, body))


def _large_budgets(stage: Stage, n: int) -> None:
    for i in range(8):
        selector = {
            "matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"x{i}-{k}"]} for k in range(n)]
        }
        body = {"metadata": {"name": f"b{i}", "namespace": "neighbour"}, "spec": {"selector": selector}}
        stage.event_handlers.object_changed(stage.thing(objects.PodDisruptionBudget, body))


def _full(body: Callable[[int], Json], priority: int = 0) -> World:
    """Fill one node after another with n pods that others may evict."""

    def make(stage: Stage, n: int) -> None:
        found = []
        for i in range(n):
            more = body(i)
            spec = {"containers": [container(cpu=f"{900_000 // max(1, n)}m")], "priority": priority} | more.get(
                "spec", {}
            )
            found.append(stage.on_node(stage.pod("neighbour", {**more, "spec": spec}), f"n{i % 8}"))
        for start in range(0, n, 32):
            stage.event_handlers.pods_changed(found[start : start + 32])

    return make


def _class(stage: Stage, **more: Any) -> None:
    body = {"metadata": {"name": "late"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer", **more}
    stage.event_handlers.object_changed(stage.thing(objects.StorageClass, body))


def _with_claim(*names: str) -> Json:
    return {"spec": {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]}}


def _matching_volumes(stage: Stage, n: int) -> None:
    _class(stage)
    stage.event_handlers.object_changed(stage.thing(objects.PersistentVolumeClaim, claim("c", bound=False)))
    for i in range(n):
        body = volume(f"v{i}")
        where = {"key": HOST, "operator": "In", "values": [f"n{i % stage.nodes}"]}
        body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
        stage.event_handlers.object_changed(stage.thing(objects.PersistentVolume, body))


def _large_affinity(bound: bool) -> World:
    def make(stage: Stage, n: int) -> None:
        _class(stage)
        stage.event_handlers.object_changed(stage.thing(objects.PersistentVolumeClaim, claim("c", bound=bound)))
        body = volume(f"pv-{TENANT}-c")
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["a", f"x{i}"]}]} for i in range(n)]
        body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        stage.event_handlers.object_changed(stage.thing(objects.PersistentVolume, body))

    return make


def _capacities(stage: Stage, n: int) -> None:
    _class(stage)
    stage.event_handlers.object_changed(
        stage.thing(objects.CSIDriver, {"metadata": {"name": "x"}, "spec": {"storageCapacity": True}})
    )
    stage.event_handlers.object_changed(stage.thing(objects.PersistentVolumeClaim, claim("c", bound=False)))
    for i in range(n):
        body = {
            "metadata": {"name": f"cap{i}", "namespace": "kube-system"},
            "storageClassName": "late",
            "capacity": "1Mi",
            "nodeTopology": {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["a", f"x{i}"]}]},
        }
        stage.event_handlers.object_changed(stage.thing(objects.CSIStorageCapacity, body))


def _topologies(stage: Stage, n: int) -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b", f"x{i}"]}]} for i in range(n)]
    _class(stage, allowedTopologies=terms)
    stage.event_handlers.object_changed(stage.thing(objects.PersistentVolumeClaim, claim("c", bound=False)))


def _selected(stage: Stage, n: int) -> None:
    """Let a claim with a selector of n requirements look for one of 500 volumes."""
    _class(stage)
    body = claim("c", bound=False)
    body["spec"]["selector"] = {
        "matchExpressions": [{"key": "k", "operator": "NotIn", "values": [f"x{i}"]} for i in range(n)]
    }
    stage.event_handlers.object_changed(stage.thing(objects.PersistentVolumeClaim, body))
    for i in range(500):
        stage.event_handlers.object_changed(stage.thing(objects.PersistentVolume, volume(f"v{i}")))


def _attachments(stage: Stage, n: int) -> None:
    for i in range(n):
        body = {
            "metadata": {"name": f"a{i}"},
            "spec": {
                "attacher": "csi.example.com",
                "nodeName": f"n{i % 3}",
                "source": {"persistentVolumeName": f"v{i}"},
            },
        }
        stage.event_handlers.object_changed(stage.thing(objects.VolumeAttachment, body))


def _node_goes(stage: Stage, n: int) -> None:
    pods = [stage.on_node(stage.pod(TENANT, _own(i)), "n0") for i in range(n)]
    for start in range(0, n, 32):
        stage.event_handlers.pods_changed(pods[start : start + 32])
    stage.event_handlers.node_deleted(stage.node(0))
    stage.event_handlers.node_changed(stage.node(0))


def _ordered(stage: Stage, n: int) -> None:
    from tests.growth.stage import POLICY, _compiled

    policies = _compiled(POLICY + "\norder by pod.priority desc, pod.waiting desc\n")
    stage.scheduler.use_policies(policies)
    _waiting(stage, n)
    stage.now += 400
    stage.turns.take("keep queue", stage.scheduler.keep_queue)  # type: ignore[attr-defined]
    stage.decide()


def _limits(stage: Stage, n: int) -> None:
    """Use n `limit` statements, beside pods of 2,000 templates; each pod has keys of its own."""
    from tests.growth.stage import POLICY, _compiled

    _placed(stage, 2_000, _own)
    lines = "\n".join(f"limit sum(request.cpu * {i + 1}) by pod.label.own to 1000000000" for i in range(min(n, 512)))
    policies = _compiled(POLICY + lines + "\n")
    for _ in stage.scheduler.preparing(policies):
        pass
    stage.turns.take("use policies", lambda: stage.scheduler.use_policies(policies))  # type: ignore[attr-defined]
    for i in range(3):
        _decide(stage, stage.pod(TENANT, _own(10_000 + i)))
    _placed(stage, 64, lambda i: _own(20_000 + i))


def _namespaces_relabelled(stage: Stage, n: int) -> None:
    for i in range(n):
        _namespace(stage, f"ns{i}", team=f"t{i % 16}")
    pods = [stage.pod("neighbour", _by_namespace(i)) for i in range(16)]
    for number, pod in enumerate(pods):
        stage.place(pod, number)
        stage.place(stage.pod(f"ns{number}", _own(number)), number)
    for i in range(n):
        _namespace(stage, f"ns{i}", team=f"t{i % 7}")
    _decide(stage, stage.pod("neighbour", _by_namespace(3)))


def _gang_with_terms(stage: Stage, n: int) -> None:
    """Let members of a gang each have 64 terms of their own."""
    gang = {"schedulingPolicy": {"gang": {"minCount": n}}}
    stage.event_handlers.object_changed(stage.thing(objects.PodGroup, _group("g", **gang)))

    def body(i: int) -> Json:
        return required(
            "podAntiAffinity", [term(64 * i + k, ZONE, selector={"matchLabels": {"x": f"{i}-{k}"}}) for k in range(64)]
        )

    _pods(stage, n, _member(lambda i: "g", body))
    stage.decide()


def _many_templates(stage: Stage, n: int) -> None:
    _placed(stage, 2_000, _own)


def _many_terms_each(i: int) -> Json:
    """Return a pod with 512 terms of its own."""
    return required("podAntiAffinity", [term(512 * i + k, f"nowhere{k}") for k in range(512)])


SCENES = [
    Axis(
        "anti-affinity terms beside many templates",
        lambda n: required("podAntiAffinity", [term(i, ZONE) for i in range(n)]),
        _many_templates,
    ),
    Axis(
        "preferred terms beside many templates",
        lambda n: preferred("podAffinity", [term(i, ZONE) for i in range(n)]),
        _many_templates,
    ),
    Axis("pods with many terms each", world=lambda stage, n: _placed(stage, n // 512, _many_terms_each) and None),
    Axis("labels of a node", world=_one_node(meta=lambda n: {"labels": {f"k{i}": "v" for i in range(n)}})),
    Axis(
        "annotations of a node", world=_one_node(meta=lambda n: {"annotations": {f"k{i}": "v" * 9 for i in range(n)}})
    ),
    Axis(
        "taints of a node",
        world=_one_node(spec=lambda n: {"taints": [{"key": f"k{i}", "effect": "NoSchedule"} for i in range(n)]}),
    ),
    Axis(
        "soft taints of a node",
        world=_one_node(spec=lambda n: {"taints": [{"key": f"k{i}", "effect": "PreferNoSchedule"} for i in range(n)]}),
    ),
    Axis(
        "images of a node",
        world=_one_node(status=lambda n: {"images": [{"names": [f"i{i}"], "sizeBytes": 5} for i in range(n)]}),
    ),
    Axis(
        "conditions of a node",
        world=_one_node(status=lambda n: {"conditions": [{"type": f"t{i}", "status": "True"} for i in range(n)]}),
    ),
    Axis(
        "resources of a node", world=_one_node(status=lambda n: {"allocatable": {f"x.io/r{i}": "1" for i in range(n)}})
    ),
    Axis("features of a node", world=_one_node(status=lambda n: {"declaredFeatures": [f"F{i}" for i in range(n)]})),
    Axis(
        "labels of all nodes",
        world=_all_nodes(meta=lambda first, n: {"labels": {f"k{first + i}": "v" for i in range(n)}}),
    ),
    Axis(
        "taints of all nodes",
        world=_all_nodes(
            spec=lambda first, n: {"taints": [{"key": f"k{first + i}", "effect": "PreferNoSchedule"} for i in range(n)]}
        ),
    ),
    Axis(
        "images of all nodes",
        world=_all_nodes(
            status=lambda first, n: {"images": [{"names": [f"i{first + i}"], "sizeBytes": 5} for i in range(n)]}
        ),
    ),
    Axis(
        "resources of all nodes",
        world=_all_nodes(status=lambda first, n: {"allocatable": {f"x.io/r{first + i}": "1" for i in range(n)}}),
    ),
    Axis("drivers of a node", world=_many_drivers),
    Axis("zones of a node", world=_zones),
    Axis("attachments of a node", world=_attachments),
    Axis("a namespace that is labelled anew", world=_relabelled),
    Axis("a namespace with terms that is labelled anew", world=_relabelled_terms),
    Axis("pods of a node that goes", world=_node_goes),
    Axis("pods that wait in an order of their own", world=_ordered),
    Axis("limits of a policy", world=_limits),
    Axis("namespaces whose labels change", world=_namespaces_relabelled),
    Axis("members of a gang with many terms each", world=_gang_with_terms),
    Axis("pods that go", world=_gone),
    Axis("pods that a list does not have", world=_relist_without),
    Axis("pods that wait while all nodes change", world=_nodes_change),
    Axis("members of a group that comes", world=_released),
    Axis("groups that come", world=_released_apart),
    Axis("members of a gang that fits nowhere", world=_too_large_gang),
    Axis("groups of a composite group", world=_tree),
    Axis("composite groups in each other", world=_chain),
    Axis("pods that wait while policies are replaced", world=_reload),
    Axis("pods that wait for five minutes", world=_flush),
    Axis("pods nominated to one node", world=_nominated),
    Axis("pods with terms nominated to nodes", world=_nominated_apart),
    Axis("budgets of the victims", world=_budgets),
    Axis("requirements of budgets", world=_large_budgets),
    Axis("victims of a node", world=_full(_own)),
    Axis("victims of a priority each", world=_full(lambda i: {**_own(i), "spec": {"priority": -i}})),
    Axis(
        "victims with terms",
        world=_full(
            lambda i: {
                **_own(i),
                **required("podAntiAffinity", [term(i, HOST, selector={"matchLabels": {"own": f"{i}"}})]),
            }
        ),
    ),
    Axis("volumes that match a claim", lambda n: _with_claim("c"), _matching_volumes),
    Axis("terms of a bound volume", lambda n: _with_claim("c"), _large_affinity(bound=True)),
    Axis("terms of an unbound volume", lambda n: _with_claim("c"), _large_affinity(bound=False)),
    Axis("capacities of a class", lambda n: _with_claim("c"), _capacities),
    Axis("topologies of a class", lambda n: _with_claim("c"), _topologies),
    Axis("requirements of a claim's selector", lambda n: _with_claim("c"), _selected),
    Axis(
        "different terms of node affinity",
        lambda n: node_terms(
            [{"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["a", f"v{i}"]}]} for i in range(n)]
        ),
    ),
    Axis(
        "requirements of a term of node affinity",
        lambda n: node_terms(
            [{"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": ["n1", f"v{i}"]} for i in range(n)]}]
        ),
    ),
    Axis(
        "different preferred nodes",
        lambda n: {
            "spec": {
                "affinity": {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 1,
                                "preference": {
                                    "matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["a", f"v{i}"]}]
                                },
                            }
                            for i in range(n)
                        ]
                    }
                }
            }
        },
    ),
    Axis(
        "requirements of a selector",
        lambda n: preferred(
            "podAffinity",
            [
                term(
                    0,
                    ZONE,
                    selector={
                        "matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"x{i}"]} for i in range(n)]
                    },
                )
            ],
        ),
    ),
]
