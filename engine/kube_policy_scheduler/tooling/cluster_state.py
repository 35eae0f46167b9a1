"""A cluster made from recorded objects, as the API server would have stored them. Knows no files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.defaulting import BUILTIN_PRIORITY_CLASSES, AdmissionError, default_object
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span, closest
from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.fixtures import FixtureObject, parse_objects
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_documents
from kube_policy_scheduler.documents.yaml_nodes import Step
from kube_policy_scheduler.framework.reserve.claims_in_memory import give_claims_back, make_claims
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules, VersionError
from kube_policy_scheduler.policy.decision_inputs import unbound
from kube_policy_scheduler.quantities.quantity import QuantityError, nanos
from kube_policy_scheduler.times import unix_seconds
from kube_policy_scheduler.tooling.short_forms import ShortFormError, pod_object
from kube_policy_scheduler.tooling.undoable_cluster import UndoableCluster
from kube_policy_scheduler.wording import plural

_BY_NAME: Mapping[str, type] = {"Node": objects.Node, "Pod": objects.Pod}


class UnknownPod(ValueError):
    """There is no such pod, or there are several."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster with all its pods, also those that wait."""

    cluster: Cluster
    pods: Mapping[str, objects.Pod]
    """By `namespace/name`."""

    def find(self, name: str, *, namespace: str | None = None) -> objects.Pod:
        """Return a pod by its name, or by `namespace/name`.

        Raises:
            UnknownPod: none or several are of that name.
        """
        wanted = f"{namespace}/{name}" if namespace and "/" not in name else name
        if "/" in wanted:
            found = [key for key in self.pods if key == wanted]
        else:
            found = [key for key in self.pods if key.partition("/")[2] == wanted]
        if len(found) == 1:
            return self.pods[found[0]]
        if found:
            raise UnknownPod(f"several pods have the name `{name}`: {', '.join(sorted(found))}; specify --namespace")
        meant = closest(wanted, self.pods) or closest(wanted, (key.partition("/")[2] for key in self.pods))
        advice = f"did you mean `{meant}`?" if meant else f"the cluster has {plural(len(self.pods), 'pod')}"
        raise UnknownPod(f"there is no pod `{wanted}`: {advice}")

    def create(self, pod: objects.Pod) -> None:
        """Do for a pod from elsewhere what the cluster's controllers would: it gets the claims of its templates."""
        make_claims(self.cluster, pod)

    def pending(self) -> list[PodInfo]:
        """Return the pods without a node."""
        pods = (self.cluster.templates.pod(pod) for pod in self.pods.values() if not pod.spec.node_name)
        return [pod for pod in pods if not pod.terminal]

    def known(self, pod: objects.Pod) -> objects.Pod:
        """Return a pod that comes from elsewhere, such as a record, under the uid that it has here."""
        meta = pod.metadata
        here = self.pods.get(f"{meta.namespace}/{meta.name}")
        uid = here.metadata.uid if here is not None else meta.uid or f"{meta.namespace}/{meta.name}"
        return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, uid=uid))


def cluster_state(things: Iterable[Any], rules: KubernetesRules = DEFAULT_RULES) -> ClusterState:
    """Return the world that API objects make, in the order: other kinds, nodes, pods, what exporters say of those.

    rules: of the Kubernetes that it is of.
    """
    cluster = Cluster(rules)
    pods: dict[str, objects.Pod] = {}
    later: list[objects.Pod] = []
    nodes: list[objects.Node] = []
    topologies: list[objects.NodeResourceTopology] = []
    for thing in things:
        match thing:
            case objects.Node():
                nodes.append(thing)
            case objects.Pod():
                later.append(thing)
            case objects.NodeResourceTopology():
                topologies.append(thing)
            case _:
                cluster.set_object(thing)
    for node in nodes:
        cluster.set_node(node)
    for pod in later:
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        pod.metadata.uid = pod.metadata.uid or key
        pods[key] = pod
        make_claims(cluster, pod)
        info = cluster.templates.pod(pod)
        if info.terminal:
            continue
        if info.node_name:
            cluster.place(info, info.node_name)
        elif info.nominated_node:
            cluster.nominate(info, info.nominated_node)
    for topology in topologies:
        cluster.set_object(topology)
    return ClusterState(cluster, pods)


def stored_objects(found: Sequence[FixtureObject], *, scheduler: str) -> list[Any]:
    """Return recorded objects as the API server would store them; kinds that no rule reads are left out.

    Args:
        found: objects of fixture files.
        scheduler: the scheduler name of pods that name none.

    Raises:
        DocumentError: an object cannot be read; all problems are reported.
    """
    classes = priority_classes(found)
    done: list[Any] = []
    problems: list[Diagnostic] = []
    for one in found:
        kind = _BY_NAME.get(one.kind) or read_kind(one)
        if kind is None:
            continue
        try:
            done.append(stored_object(one, classes, scheduler=scheduler).convert(kind))
        except DocumentError as error:
            problems.extend(error.diagnostics)
        except (AdmissionError, QuantityError) as error:
            problems.append(one.error((), f"{one.kind} {one.name}: {error}"))
    if problems:
        raise DocumentError(problems)
    return done


def pod_in(source: Source) -> FixtureObject:
    """Return the pod of a file: a Pod as for `kubectl apply`, or the short form of policy tests.

    Raises:
        DocumentError: the file holds no pod, or several.
    """
    documents = parse_documents(source)
    if len(documents) == 1 and isinstance(documents[0].value, dict) and "kind" not in documents[0].value:
        try:
            made = pod_object(documents[0].value, name="pod", uid="pod")
        except ShortFormError as error:
            raise DocumentError([FixtureObject({}, documents[0], ()).error((error.key,), str(error))]) from error
        return FixtureObject(made, documents[0], ())
    found = [one for one in parse_objects(source) if one.kind == "Pod"]
    if len(found) != 1:
        message = f"expected one Pod, found {len(found)}" if documents else "the file is empty, expected one Pod"
        raise DocumentError([WRONG_VALUE.at(Span(source, 0, min(1, len(source.text))), message)])
    return found[0]


@contextmanager
def waiting(pod: objects.Pod, cluster: Cluster) -> Iterator[tuple[objects.Pod, str | None]]:
    """Take a bound pod off its node while it lasts; return it as it would wait, and the node it is on."""
    tried, known = UndoableCluster(cluster), cluster.pods.get(pod.metadata.uid)
    host = cluster.node_of(pod.metadata.uid) or pod.spec.node_name or None
    free = unbound(pod)
    with tried.trying():
        if known is not None:
            tried.take_off(known)
        else:
            tried.undo_by(give_claims_back(cluster, cluster.templates.pod(free), ends=False))
        yield free, host


def is_of_node(pod: PodInfo) -> bool:
    """Return whether a pod belongs to its node: of a daemon set, or started by the kubelet from a file."""
    controller = pod.template.controller
    return (controller is not None and controller.kind in ("DaemonSet", "Node")) or (
        "kubernetes.io/config.mirror" in pod.annotations
    )


# --- recorded objects as the API server would have stored them -------------------------------------------

READ_KINDS: tuple[type, ...] = (
    objects.Namespace,
    objects.Service,
    objects.ReplicationController,
    objects.ReplicaSet,
    objects.StatefulSet,
    objects.PodDisruptionBudget,
    objects.PriorityClass,
    objects.PersistentVolume,
    objects.PersistentVolumeClaim,
    objects.StorageClass,
    objects.CSINode,
    objects.CSIDriver,
    objects.CSIStorageCapacity,
    objects.VolumeAttachment,
    objects.DeviceClass,
    objects.ResourceSlice,
    objects.DeviceTaintRule,
    objects.ResourceClaim,
    objects.ResourceClaimTemplate,
    objects.PodGroup,
    objects.CompositePodGroup,
    objects.CoschedulingPodGroup,
    objects.NodeResourceTopology,
)
"""Kinds beside nodes and pods that some rule reads; all others in a recorded cluster mean nothing to a decision."""

TAKEN_AT = "policyctl/taken-at"
"""Annotation of the list that a snapshot is: when it was taken."""
KUBERNETES = "policyctl/kubernetes"
"""The same: the version of Kubernetes of the cluster."""

_BY_KIND: Mapping[str, type] = {kind.__name__: kind for kind in READ_KINDS}
_COSCHEDULING_GROUP = "scheduling.x-k8s.io/"

PriorityClasses = Mapping[str, Mapping[str, Any]]
_PRIORITY = ("priority", "priorityClassName", "preemptionPolicy")


def priority_classes(found: Iterable[FixtureObject]) -> PriorityClasses:
    """Return the priority classes among recorded objects, with those that every cluster has, by name."""
    return {**BUILTIN_PRIORITY_CLASSES, **{one.name: one.value for one in found if one.kind == "PriorityClass"}}


def read_kind(one: FixtureObject) -> type | None:
    """Return the struct of a recorded object, nodes and pods aside; None where no rule reads its kind."""
    if one.kind == "PodGroup" and str(one.value["apiVersion"]).startswith(_COSCHEDULING_GROUP):
        return objects.CoschedulingPodGroup
    return _BY_KIND.get(one.kind)


def stored_object(one: FixtureObject, classes: PriorityClasses, *, scheduler: str) -> FixtureObject:
    """Return an object as the API server would store it.

    Args:
        one: the object as it was recorded or written.
        classes: the priority classes that there are.
        scheduler: the scheduler name of pods that name none.

    Raises:
        AdmissionError: the API server would refuse it.
        QuantityError: a quantity cannot be read.
        DocumentError: a field has another type, or an amount is no quantity; it points there.
    """
    try:
        done = _stored(one, classes, scheduler=scheduler)
    except (AdmissionError, QuantityError):
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # from what is not of its field's type
        kind = _BY_NAME.get(one.kind) or read_kind(one)
        if kind is not None:
            one.convert(kind)  # says which
        problem = f"{one.kind} {one.name}: a field has another type than in Kubernetes: {error}"
        raise DocumentError([one.error((), problem)]) from error
    if problems := [one.error(path, f"{one.kind} {one.name}: {text}") for path, text in _bad_amounts(done.value)]:
        raise DocumentError(problems)
    return done


_RESOURCES = (("requests",), ("limits",))
_AMOUNTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Node": (("status", "allocatable"), ("status", "capacity")),
    "PersistentVolume": (("spec", "capacity"),),
    "PersistentVolumeClaim": (
        ("spec", "resources", "requests"),
        ("spec", "resources", "limits"),
        ("status", "capacity"),
    ),
    "CSIStorageCapacity": (("capacity",), ("maximumVolumeSize",)),
    "Pod": (
        ("spec", "overhead"),
        *(("spec", "resources", *last) for last in _RESOURCES),
        *(
            ("spec", containers, "*", "resources", *last)
            for containers in ("containers", "initContainers")
            for last in _RESOURCES
        ),
        ("spec", "volumes", "*", "ephemeral", "volumeClaimTemplate", "spec", "resources", "requests"),
        ("status", "containerStatuses", "*", "allocatedResources"),
        *(("status", "containerStatuses", "*", "resources", *last) for last in _RESOURCES),
    ),
    "NodeResourceTopology": tuple(
        ("zones", "*", "resources", "*", amount) for amount in ("capacity", "allocatable", "available")
    ),
}
"""Where objects hold quantities that are read only when something is computed of them; `*` is every item of a list."""


def _bad_amounts(value: Mapping[str, Any]) -> Iterator[tuple[tuple[Step, ...], str]]:
    """Yield where an object says no quantity, and what is wrong there; of what has another type the struct tells."""
    for path in _AMOUNTS.get(value["kind"], ()):
        for place, amounts in _found(value, path, ()):
            named = amounts.items() if type(amounts) is dict else ((None, amounts),)
            for name, amount in named:
                if isinstance(amount, str | int | float) and not isinstance(amount, bool):
                    try:
                        nanos(amount)
                    except QuantityError as error:
                        yield (place if name is None else (*place, name)), str(error)


def _found(value: Any, path: tuple[str, ...], at: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], Any]]:
    if not path:
        yield at, value
    elif path[0] == "*":
        for index, item in enumerate(value if type(value) is list else ()):
            yield from _found(item, path[1:], (*at, index))
    elif type(value) is dict and path[0] in value:
        yield from _found(value[path[0]], path[1:], (*at, path[0]))


def _stored(one: FixtureObject, classes: PriorityClasses, *, scheduler: str) -> FixtureObject:
    value = without_nulls(one.value)
    settled: dict[str, Any] = {}
    if one.kind == "Pod":
        spec = {"schedulerName": scheduler} | (value.get("spec") or {})
        # a pod that says its priority comes from a cluster, or from a test: admission was before
        if spec.get("priority") is not None:
            settled = {key: spec[key] for key in _PRIORITY if key in spec}
        value = {**value, "spec": {key: item for key, item in spec.items() if key not in settled}}
    done = default_object(value, priority_classes=classes)
    if settled:
        done["spec"] |= settled
    return FixtureObject(done, one.document, one.path)


def taken_at(found: Iterable[FixtureObject]) -> float | None:
    """Return when the newest snapshot among recorded clusters was taken, Unix seconds; None where none says it."""
    moments = (unix_seconds(text) for text in _annotations(found, TAKEN_AT))
    return max((moment for moment in moments if moment is not None), default=None)


def recorded_rules(found: Iterable[FixtureObject]) -> KubernetesRules | None:
    """Return the rules of the Kubernetes that snapshots among recorded clusters are of; None where none says it.

    Raises:
        VersionError: one says something else than a version, or two are of versions with different rules.
    """
    rules: KubernetesRules | None = None
    for text in _annotations(found, KUBERNETES):
        other = KubernetesRules.parse(text)
        if rules is not None and rules != other:
            raise VersionError(f"the clusters are of Kubernetes {rules} and {other}")
        rules = rules or other
    return rules


def _annotations(found: Iterable[FixtureObject], key: str) -> Iterator[str]:
    """Yield what the lists that recorded objects come from say in an annotation."""
    documents = {id(one.document): one.document for one in found}
    for document in documents.values():
        metadata = document.value.get("metadata") if isinstance(document.value, dict) else None
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        text = annotations.get(key) if isinstance(annotations, dict) else None
        if isinstance(text, str):
            yield text


def without_nulls(value: Any) -> Any:
    """Return an object without null members: an absent and a null field mean the same to the API."""
    if type(value) is dict:
        return {
            key: without_nulls(item) if type(item) in _COMPOSITE else item
            for key, item in value.items()
            if item is not None
        }
    if type(value) is list:
        return [without_nulls(item) if type(item) in _COMPOSITE else item for item in value]
    return value


_COMPOSITE = (dict, list)  # asked before the call: most values are texts, and there are millions of them
