"""Pods that come and go, as people write them: short forms of policy tests with times, or Kubernetes objects.

A file with `pods` lists short forms, each with `at` (when it comes, from the beginning), `lasts` (how long it runs
once bound; without it, for ever), and `count` of them `every` so often. A file of Kubernetes objects has its pods come
at their creation, the first at once, and none leave.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.defaulting import AdmissionError
from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span
from kube_policy_scheduler.documents.codes import NOT_AN_OBJECT
from kube_policy_scheduler.documents.fixtures import FixtureObject, parse_objects
from kube_policy_scheduler.documents.schema import DocumentSchema
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_documents
from kube_policy_scheduler.quantities.quantity import QuantityError
from kube_policy_scheduler.times import parse_duration, unix_seconds
from kube_policy_scheduler.tooling.cluster_state import PriorityClasses, stored_object, stored_objects
from kube_policy_scheduler.tooling.short_forms import ShortFormError, pod_object
from kube_policy_scheduler.tooling.simulation.scenario import Arrival
from kube_policy_scheduler.tooling.tester.suite_file import schema_text

_MOST = 1_000_000
_TIMES = ("at", "lasts", "count", "every")


@cache
def _schema() -> DocumentSchema:
    """Return the schema of a stream: the short form of pods in policy tests, with times."""
    defs = json.loads(schema_text())["$defs"]
    pod = {key: value for key, value in defs["pod"]["properties"].items() if key != "from"}
    time = {"$ref": "#/$defs/duration"}
    count = {"type": "integer", "minimum": 1, "maximum": _MOST}
    pod |= {"at": time, "lasts": time, "every": time, "count": count}
    items = {
        "type": "object",
        "additionalProperties": False,
        "properties": pod,
        "dependentRequired": {"every": ["count"]},
    }
    properties = {"pods": {"type": "array", "minItems": 1, "items": items}}
    return DocumentSchema(
        {"type": "object", "additionalProperties": False, "required": ["pods"], "properties": properties, "$defs": defs}
    )


def parse_stream(source: Source, *, classes: PriorityClasses, scheduler: str) -> list[Arrival]:
    """Return the pods of a file in the order in which they come.

    Args:
        source: the file.
        classes: the priority classes of the cluster.
        scheduler: the scheduler name of pods that name none.

    Raises:
        DocumentError: it is neither form; all problems are reported.
    """
    documents = parse_documents(source)
    made: list[Arrival]
    if len(documents) == 1 and isinstance(documents[0].value, dict) and "kind" not in documents[0].value:
        made = _from_forms(documents[0], classes, scheduler)
    else:
        made = _from_objects([one for one in parse_objects(source) if one.kind == "Pod"], classes, scheduler)
        if not made:
            text = "expected `pods:`, a list of pods with times, or Kubernetes objects of which some are pods"
            raise DocumentError([NOT_AN_OBJECT.at(Span(source, 0, 0), text)])
    return sorted(made, key=lambda arrival: arrival.at)


def groups_in(source: Source, *, scheduler: str) -> list[Any]:
    """Return the PodGroups and composite groups of a file of Kubernetes objects; they are there from the beginning.

    Raises:
        DocumentError: a group cannot be read.
    """
    documents = parse_documents(source)
    if len(documents) == 1 and isinstance(documents[0].value, dict) and "kind" not in documents[0].value:
        return []
    kinds = ("PodGroup", "CompositePodGroup")
    return stored_objects([one for one in parse_objects(source) if one.kind in kinds], scheduler=scheduler)


def arrivals_of(pods: Sequence[objects.Pod]) -> list[Arrival]:
    """Return pods as they come: at their creation, the first at once."""
    created = [unix_seconds(pod.metadata.creation_timestamp) for pod in pods]
    first = min((at for at in created if at is not None), default=0.0)
    return [
        Arrival((at if at is not None else first) - first, f"{pod.metadata.namespace}.{pod.metadata.name}", pod)
        for pod, at in zip(pods, created, strict=True)
    ]


def _from_forms(document: Document, classes: PriorityClasses, scheduler: str) -> list[Arrival]:
    problems = list(_schema().check(document))
    if problems:
        raise DocumentError(problems)
    made: list[Arrival] = []
    for index, form in enumerate(document.value["pods"]):
        path = ("pods", index)
        try:
            value = pod_object({k: v for k, v in form.items() if k not in _TIMES}, name=f"pod-{index}", uid="pod")
        except ShortFormError as error:
            problems.append(FixtureObject({}, document, path).error((error.key,), str(error)))
            continue
        pod = _pod(FixtureObject(value, document, path), classes, scheduler, problems)
        if pod is not None:
            made.extend(_repeated(form, pod, index))
    if problems:
        raise DocumentError(problems)
    return made


def _repeated(form: Mapping[str, Any], pod: objects.Pod, index: int) -> Iterator[Arrival]:
    at, every = parse_duration(form.get("at", "0s")), parse_duration(form.get("every", "0s"))
    lasts = parse_duration(form["lasts"]) if "lasts" in form else None
    for number in range(form.get("count", 1)):
        yield Arrival(at + number * every, f"{index}.{pod.metadata.name}.{number}", pod, lasts)


def _from_objects(found: Sequence[FixtureObject], classes: PriorityClasses, scheduler: str) -> list[Arrival]:
    problems: list[Diagnostic] = []
    pods = []
    for one in found:
        spec = {key: value for key, value in (one.value.get("spec") or {}).items() if key != "nodeName"}
        unbound = FixtureObject({**one.value, "spec": spec, "status": {}}, one.document, one.path)
        pod = _pod(unbound, classes, scheduler, problems)
        if pod is not None:
            pods.append(pod)
    if problems:
        raise DocumentError(problems)
    return arrivals_of(pods)


def _pod(
    one: FixtureObject, classes: PriorityClasses, scheduler: str, problems: list[Diagnostic]
) -> objects.Pod | None:
    try:
        return stored_object(one, classes, scheduler=scheduler).convert(objects.Pod)
    except DocumentError as error:
        problems.extend(error.diagnostics)
    except (AdmissionError, QuantityError) as error:
        problems.append(one.error((), f"Pod {one.name}: {error}"))
    return None
