"""The cluster of a case: recorded objects, nodes and pods from short forms, with the API server's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine.cluster import objects
from engine.cluster.cluster import Cluster
from engine.cluster.defaulting import BUILTIN_PRIORITY_CLASSES, AdmissionError, default_object
from engine.cluster.nodes import NodeInfo
from engine.cluster.pods import PodInfo
from engine.cluster.quantity import QuantityError
from engine.diagnostics import Diagnostic
from engine.documents.fixtures import FixtureObject
from engine.documents.yaml_document import DocumentError
from engine.lang.codes import Code
from engine.tooling.tester import codes
from engine.tooling.tester.expectation import NodeFacts
from engine.tooling.tester.short_forms import REGION, ZONE, Json, ShortFormError, node_object, pod_object
from engine.tooling.tester.suite import Case, Part, Suite, did_you_mean

_KINDS: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        objects.Namespace,
        objects.Service,
        objects.ReplicationController,
        objects.ReplicaSet,
        objects.StatefulSet,
        objects.PersistentVolumeClaim,
        objects.PersistentVolume,
        objects.StorageClass,
        objects.CSINode,
        objects.CSIDriver,
        objects.CSIStorageCapacity,
        objects.VolumeAttachment,
        objects.PriorityClass,
        objects.PodDisruptionBudget,
        objects.DeviceClass,
    )
}
"""Kinds beside nodes and pods that decisions read; all others in a recorded cluster mean nothing here."""
_PRIORITY = ("priority", "priorityClassName")


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster to decide in."""

    cluster: Cluster
    facts: Mapping[str, NodeFacts]
    """By name."""


class SceneBuilder:
    """Makes the scenes of one suite."""

    def __init__(self, suite: Suite, recorded: Sequence[FixtureObject], *, scheduler: str) -> None:
        """Take a suite and what its `cluster` files hold.

        Args:
            suite: the test file.
            recorded: the objects of its cluster files.
            scheduler: the scheduler name of pods that name none.
        """
        self._suite = suite
        self._recorded = recorded
        self._scheduler = scheduler
        classes = {one.name: one.value for one in recorded if one.kind == "PriorityClass"}
        self._classes = {**BUILTIN_PRIORITY_CLASSES, **classes}

    def scene(self, case: Case | None = None, *, reverse: bool = False) -> Scene:
        """Return the cluster of a case, or that of the file alone; `reverse` turns the order of nodes around.

        Raises:
            DocumentError: a node or a pod cannot be made; all problems are reported.
        """
        found: list[Diagnostic] = []
        cluster = Cluster()
        nodes = {one.name: one for one in self._recorded if one.kind == "Node"}
        for one in self._recorded:
            if (kind := _KINDS.get(one.kind)) is not None:
                with _reporting(found, one):
                    cluster.set_object(self._stored(one).convert(kind))
        for part in (*self._suite.nodes, *(case.nodes if case else ())):
            with self._reporting(found, part):
                node = self._node(part, nodes)
                nodes[node.name] = node
        for node in reversed(nodes.values()) if reverse else nodes.values():
            with _reporting(found, node):
                cluster.set_node(self._stored(node).convert(objects.Node))
        pods = [one for one in self._recorded if one.kind == "Pod"]
        for part in (*self._suite.pods, *(case.pods if case else ())):
            with self._reporting(found, part):
                pods.extend(self._placed(part, cluster))
        for one in pods:
            with _reporting(found, one):
                pod = self._pod(one, cluster)
                if pod.node_name and not pod.terminal:
                    cluster.place(pod, pod.node_name)
        if found:
            raise DocumentError(found)
        return Scene(cluster, {info.name: _facts(info) for info in cluster.nodes.infos})

    def pod(self, case: Case, cluster: Cluster) -> PodInfo:
        """Return the pod that a case decides.

        Raises:
            DocumentError: it cannot be made.
        """
        found: list[Diagnostic] = []
        with self._reporting(found, case.pod):
            made = pod_object(case.pod.value, name="pod", uid=case.name)
            return self._pod(FixtureObject(made, self._suite.document, case.pod.path), cluster)
        raise DocumentError(found)

    def _node(self, part: Part, nodes: Mapping[str, FixtureObject]) -> FixtureObject:
        name = part.value.get("name") or (part.value.get("metadata") or {}).get("name")
        if not name:
            raise DocumentError([self._error(part, (), "a node needs `name`")])
        under = nodes.get(name)
        made = node_object(part.value, over=under.value if under else None)
        return FixtureObject(made, self._suite.document, part.path)

    def _placed(self, part: Part, cluster: Cluster) -> list[FixtureObject]:
        form = part.value
        node = form.get("node") or (form.get("spec") or {}).get("nodeName")
        if not node:
            advice = "a pod that waits takes no part in a decision; the pod to decide stands in its case"
            raise DocumentError([self._error(part, (), "a pod in `pods` needs `node`, where it is", advice=advice)])
        if node not in cluster.nodes:
            advice = did_you_mean(node, cluster.nodes.names, none="the test has no nodes")
            problem = self._error(part, ("node",), f"unknown node `{node}`", code=codes.UNKNOWN_NODE, advice=advice)
            raise DocumentError([problem])
        count = form.get("count")
        base = form.get("name") or "-".join(str(step) for step in part.path)
        names = [f"{base}-{number}" for number in range(count)] if count else [base]
        made = (pod_object({**form, "name": name}, name=name, uid=f"{part.path}/{name}") for name in names)
        return [FixtureObject(one, self._suite.document, part.path) for one in made]

    def _pod(self, recorded: FixtureObject, cluster: Cluster) -> PodInfo:
        spec: Json = {"schedulerName": self._scheduler} | recorded.value.get("spec", {})
        named = FixtureObject({**recorded.value, "spec": spec}, recorded.document, recorded.path)
        pod = self._stored(named).convert(objects.Pod)
        pod.metadata.uid = pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"
        return cluster.templates.pod(pod)

    def _stored(self, recorded: FixtureObject) -> FixtureObject:
        """Return an object as the API server would store it."""
        value = _without_nulls(recorded.value)
        spec = value.get("spec") or {}
        # a pod that says its priority comes from a cluster, or from a test: admission was before
        settled = {key: spec[key] for key in _PRIORITY if key in spec} if spec.get("priority") is not None else {}
        if settled:
            value = {**value, "spec": {key: item for key, item in spec.items() if key not in _PRIORITY}}
        done = default_object(value, priority_classes=self._classes)
        if settled:
            done["spec"] |= settled
        return FixtureObject(done, recorded.document, recorded.path)

    def _error(
        self, part: Part, steps: tuple[str, ...], message: str, *, code: Code = codes.BAD_FIXTURE, advice: str = ""
    ) -> Diagnostic:
        return self._suite.document.error((*part.path, *steps), code, message=message, advice=advice)

    @contextmanager
    def _reporting(self, found: list[Diagnostic], part: Part) -> Iterator[None]:
        try:
            yield
        except ShortFormError as error:
            found.append(self._error(part, (error.key,), str(error)))
        except DocumentError as error:
            found.extend(error.diagnostics)
        except (AdmissionError, QuantityError) as error:
            found.append(self._error(part, (), str(error)))


@contextmanager
def _reporting(found: list[Diagnostic], recorded: FixtureObject) -> Iterator[None]:
    """Turn what a bad object raises into diagnostics that point at it."""
    try:
        yield
    except DocumentError as error:
        found.extend(error.diagnostics)
    except (AdmissionError, QuantityError) as error:
        found.append(recorded.error((), f"{recorded.kind} {recorded.name}: {error}"))


def _without_nulls(value: Any) -> Any:
    """Return an object without null members: an absent and a null field mean the same to the API."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _facts(info: NodeInfo) -> NodeFacts:
    labels = info.labels
    return NodeFacts(info.name, labels, labels.get(ZONE), labels.get(REGION), info.conditions.get("Ready") == "True")
