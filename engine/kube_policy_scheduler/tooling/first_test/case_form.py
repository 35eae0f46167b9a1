"""An assignment to the short forms of a test file, and to the cluster, pod and metrics that a decision reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.quantities.quantity import amount
from kube_policy_scheduler.times import rfc3339, unix_seconds
from kube_policy_scheduler.tooling.cluster_state import cluster_state, stored_objects
from kube_policy_scheduler.tooling.first_test.search_space import (
    ABSENT,
    DEFAULT_NOW,
    NODES,
    SAME,
    ZONE,
    Assignment,
)
from kube_policy_scheduler.tooling.first_test.written_facts import write_fact
from kube_policy_scheduler.tooling.short_forms import (
    SHORT_RESOURCES,
    Json,
    node_object,
    pod_object,
    topology_object,
    volume_room_objects,
)

_OTHERS_MEASURE = 10.0
"""Of a metric on the nodes that do not vary."""
_DOMAINS = ("a", "a", "b")
_FULL = 0.99
"""Of a node's cpu that is taken where no room is left for the default request."""
_IMAGE_BYTES = 600_000_000
"""Large enough that having it counts for `image_locality`."""
_NUMA_NODES: Json = {
    "all": [{"cpu": 4, "mem": "16Gi"}],
    "half": [{"cpu": 2, "mem": "8Gi"}, {"cpu": 2, "mem": "8Gi"}],
    "little": [{"cpu": "50m", "mem": "64Mi"}],
}
"""What the NUMA nodes of the first node have available."""
_NOWHERE = parse_document(Source("", "{}"))


@dataclass(frozen=True, slots=True)
class CaseForm:
    """One case as it is written, without what is expected."""

    pod: Json
    nodes: tuple[Json, ...]
    pods: tuple[Json, ...] = ()
    metrics: Json = field(default_factory=dict)
    """By query: a value by node or by the value of a label, or one value."""
    now: str = DEFAULT_NOW
    queued_seconds: int = 0
    attempts: int = 0


def case_form(chosen: Assignment, *, topologies: frozenset[str]) -> CaseForm:
    """Return the case that an assignment is.

    Raises:
        ValueError: no such pod can be.
    """
    now = chosen.get(("now",), DEFAULT_NOW)
    nodes = tuple(_node(at, chosen, topologies, now) for at in range(len(NODES)))
    pod = _pod(chosen, "pod", now)
    return CaseForm(
        pod=pod,
        nodes=nodes,
        pods=tuple(_existing(chosen, nodes, now)),
        metrics=dict(_metrics(chosen, (pod, *nodes))),
        now=now,
        queued_seconds=int(chosen.get(("pod", "queued"), 0)),
        attempts=int(chosen.get(("pod", "attempts"), 0)),
    )


def inputs_of(form: CaseForm, policy: Policy, *, scheduler: str) -> DecisionInputs:
    """Return the inputs of the decision that a case asks for.

    Raises:
        DocumentError: an object cannot be made.
        ValueError: no such cluster or pod can be.
    """
    made = [node_object(node) for node in form.nodes]
    for existing in form.pods:
        count = existing.get("count")
        names = [existing["name"]] if count is None else [f"{existing['name']}-{number}" for number in range(count)]
        for name in names:
            pod = {key: value for key, value in existing.items() if key != "count"}
            made.append(pod_object({**pod, "name": name}, name=name, uid=name))
    made.append(pod_object(form.pod, name="pod", uid="pod"))
    things = stored_objects([FixtureObject(one, _NOWHERE, ()) for one in made], scheduler=scheduler)
    *placed, decided = things
    assert isinstance(decided, objects.Pod)
    topologies = [topology_object(node["name"], node["numa"]) for node in form.nodes if "numa" in node]
    cluster = cluster_state([*placed, *topologies]).cluster
    for node in form.nodes:
        for one in volume_room_objects(cluster, node["name"], node.get("volume_room", {})):
            cluster.set_object(one)
    now = unix_seconds(form.now) or 0.0
    readings = [
        Reading(
            promql,
            tuple(Series(query.labels_of(key), value, now) for key, value in given.items())
            if isinstance(given, dict)
            else (),
            evaluated_at=now,
            fetched_at=now,
            scalar=None if isinstance(given, dict) else given,
        )
        for promql, query in {query.promql: query for query in policy.queries}.items()
        for given in [form.metrics.get(promql, {})]
    ]
    rules, info = Rules(policy.profile, policy), cluster.templates.pod(decided)
    if "previous_node" in form.pod:
        cluster.previous_nodes.note(info, form.pod["previous_node"])
    queued = now - form.queued_seconds
    return DecisionInputs(
        info, cluster, rules, Signals.of(readings), now, queued=queued, attempts=form.attempts
    )  # fmt: skip


# --- nodes and pods --------------------------------------------------------------------------------------


def _node(at: int, chosen: Assignment, topologies: frozenset[str], now: str) -> Json:
    """Return a node; those after the first have the defaults."""
    form: Json = {"name": NODES[at], "cpu": 4, "mem": "16Gi"}
    labels: Json = {}
    for place, value in chosen.items():
        match place:
            case ("node", "label", key) if key in (ZONE, *topologies):
                _put(labels, key, value if at == 0 else _DOMAINS[at])
            case ("node", "label", key) if at == 0:
                _put(labels, key, value)
            case ("node", "annotation", key) if at == 0:
                _put(form.setdefault("annotations", {}), key, value)
            case ("node", "resource", resource) if resource.endswith("-milli"):
                whole = form.get("resources", {}).get(resource.removesuffix("-milli"))
                _put_amount(form, resource, None if whole is None else 1000 * whole)
            case ("node", "resource", resource) if at < 2 or resource in SHORT_RESOURCES:
                _put_amount(form, resource, value if at == 0 else 8 if resource not in SHORT_RESOURCES else None)
            case ("node", "ready" | "unschedulable" as key) if at == 0 and value is not (key == "ready"):
                form[key] = value
            case ("node", "condition", kind) if at == 0 and value is not ABSENT:
                ready = {"type": "Ready", "status": "True"}
                conditions = form.setdefault("status", {}).setdefault("conditions", [ready])
                conditions.append({"type": kind, "status": value})
            case ("node", "taint") if at == 0 and value is not ABSENT:
                form["taints"] = [value]
            case ("node", "image") if at == 0 and value is not ABSENT:
                names = list(dict.fromkeys((value, value.partition(":")[0])))
                form.setdefault("status", {})["images"] = [{"names": names, "sizeBytes": _IMAGE_BYTES}]
            case ("node", "price") if at == 0 and value is not ABSENT:
                form["price"] = value
            case ("node", "numa") if at == 0 and value is not ABSENT:
                form["numa"] = _NUMA_NODES[value]
            case ("node", "volume_room", storage_class) if at == 0 and value is not ABSENT:
                form.setdefault("volume_room", {})[storage_class] = value
            case ("node", "fact", *what) if at == 0 and value is not ABSENT:
                write_fact(form, "node", tuple(what), value, now=unix_seconds(now) or 0.0)
            case ("node", "age"):
                form["created"] = rfc3339((unix_seconds(now) or 0.0) - (value if at == 0 else 30 * 86400))
    if ZONE in labels:
        form["zone"] = labels.pop(ZONE)
    if labels:
        form["labels"] = labels
    if not form.get("annotations", True):
        del form["annotations"]
    return form


def _pod(chosen: Assignment, who: str, now: str) -> Json:
    """Return the pod that is decided ("pod"), or what the pods that are there have in common ("pods")."""
    form: Json = {}
    labels: Json = {}
    facts: dict[tuple[str, ...], Any] = {}
    for place, given in chosen.items():
        value = given
        if given is SAME:
            value = chosen.get(("pod", *place[1:]))
        if place[0] != who or value is ABSENT:
            continue
        match place[1:]:
            case ("label", key):
                labels[key] = value
            case ("annotation", key):
                form.setdefault("annotations", {})[key] = value
            case ("request", resource):
                _put_amount(form, resource, value)
            case ("owner",):
                form["owner"] = f"{value}/{chosen.get((who, 'owner name'), 'owner')}"
            case ("toleration",):
                form["tolerations"] = [value]
            case ("selector",):
                key, _, wanted = value.partition("=")
                form["node_selector"] = {key: wanted}
            case ("image" | "namespace" | "priority" as key,):
                if (key, value) not in (("namespace", "default"), ("priority", 0)):
                    form[key] = value
            case ("fact", *what):
                facts[tuple(what)] = value
    if labels:
        form["labels"] = labels
    for fact, value in facts.items():  # last: some follow from the requests
        write_fact(form, "pod", fact, value, now=unix_seconds(now) or 0.0)
    return form


def _existing(chosen: Assignment, nodes: tuple[Json, ...], now: str) -> list[Json]:
    """Return the pods that are there: those that clauses count, and some that only take room."""
    like = _pod(chosen, "pods", now)
    found: list[Json] = []
    count = chosen.get(("pods", "count"), 0)
    if count:
        where = NODES if chosen.get(("pods", "where")) == "all" else NODES[:1]
        found += [
            {"name": f"peer-{node}", "node": node, **({"count": count} if count > 1 else {}), **like} for node in where
        ]
    shares = [float(chosen.get(("node", "use"), 0.0)), 0.0, 0.0]
    if chosen.get(("all", "use")):
        shares = [max(share, _FULL) for share in shares]
    for node, share in zip(nodes, shares, strict=True):
        if share:
            labels = {"labels": like["labels"]} if "labels" in like else {}
            found.append({"name": f"busy-{node['name']}", "node": node["name"], **_taking(node, share), **labels})
    return found


def _taking(node: Json, share: float) -> Json:
    """Return requests that take a share of a node."""
    form: Json = {"cpu": f"{int(share * amount('cpu', node['cpu']))}m", "mem": _mebibytes(share, node)}
    for resource, total in node.get("resources", {}).items():
        form.setdefault("resources", {})[resource] = int(share * total)
    return form


def _mebibytes(share: float, node: Json) -> str:
    return f"{int(share * amount('memory', node['mem'])) >> 20}Mi"


def _metrics(chosen: Assignment, things: Iterable[Json]) -> Iterator[tuple[str, Json | float]]:
    """Yield what each query answers: one by a label for every text that the pod and the nodes have."""
    texts = {"default"}
    for thing in things:
        texts.update(thing.get("labels", {}).values(), thing.get("annotations", {}).values())
        texts.update(text for text in (thing.get("namespace"), thing.get("zone")) if text)
    for place, value in chosen.items():
        match place:
            case ("metric", promql):
                yield promql, _measures(value)
            case ("cluster metric", promql):
                yield promql, {} if value is None else value
            case ("value metric", promql):
                yield promql, {} if value is None else dict.fromkeys(sorted(texts), value)


def _measures(value: float | None) -> Json:
    measures: Json = dict.fromkeys(NODES[1:], _OTHERS_MEASURE)
    return measures if value is None else {NODES[0]: value, **measures}


def _put(into: Json, key: str, value: Any) -> None:
    if value is not ABSENT:
        into[key] = value


def _put_amount(form: Json, resource: str, value: str | int | None) -> None:
    if value is None:
        return
    if resource in SHORT_RESOURCES:
        form[SHORT_RESOURCES[resource]] = value
    elif resource != "pods":
        form.setdefault("resources", {})[resource] = value
