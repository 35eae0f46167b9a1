"""A CSV trace as a scenario: its rows as Kubernetes objects, and the lists that its authors' experiments make of it.

GPUs become `nvidia.com/gpu` and `nvidia.com/gpu-milli`, the model the label `nvidia.com/gpu.product`, accepted models
required node affinity: what a real cluster with shared GPUs would say, so that no rule knows of the trace.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.defaulting import BUILTIN_PRIORITY_CLASSES, default_object
from kube_policy_scheduler.cluster.devices.node_devices import SHARE_SUFFIX
from kube_policy_scheduler.documents.trace import WHOLE, PodKind, TraceNode, TracePod
from kube_policy_scheduler.tooling.short_forms import Json, node_object, pod_object
from kube_policy_scheduler.tooling.simulation.node_events import NodeAction, NodeEvent, NodeEvents
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario

GPU = "nvidia.com/gpu"
MODEL_LABEL = "nvidia.com/gpu.product"
_NODE_PODS = 1_000_000
"""Traces say nothing of how many pods a node takes."""


class TraceError(ValueError):
    """The lists are no experiment."""


def label_of(model: str) -> str:
    """Return a model as a label's value; one that cannot stand there is written otherwise, and stays different."""
    if re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", model):
        return model
    mark = hashlib.sha256(model.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', model)[:50].strip('-')}-{mark}".lstrip("-")


def node_of(row: TraceNode) -> objects.Node:
    """Return a node of the trace as a Kubernetes node."""
    form: Json = {
        "name": row.name,
        "cpu": f"{row.cpu_millis}m",
        "mem": f"{row.memory_mib}Mi",
        "pods": _NODE_PODS,
        "resources": {GPU: row.gpus, GPU + SHARE_SUFFIX: row.gpus * WHOLE} if row.gpus else {},
        "labels": {MODEL_LABEL: label_of(row.model)} if row.model and row.gpus else {},
    }
    return msgspec.convert(default_object(node_object(form), priority_classes={}), objects.Node, strict=True)


def pod_of(kind: PodKind) -> objects.Pod:
    """Return a pod of the trace as a Kubernetes pod."""
    wanted = {}
    if kind.gpus:
        shared = kind.share_millis < WHOLE
        wanted = {GPU + SHARE_SUFFIX: kind.gpu_millis} if shared else {GPU: kind.gpus}
    form: Json = {"cpu": f"{kind.cpu_millis}m", "mem": f"{kind.memory_mib}Mi", "resources": wanted}
    if kind.models:
        required = {
            "matchExpressions": [
                {"key": MODEL_LABEL, "operator": "In", "values": [label_of(model) for model in kind.models]}
            ]
        }
        selector = {"nodeSelectorTerms": [required]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
        form["spec"] = {"affinity": affinity}
    made = default_object(pod_object(form, name="pod", uid="pod"), priority_classes=BUILTIN_PRIORITY_CLASSES)
    return msgspec.convert(made, objects.Pod, strict=True)


def replayed(nodes: Sequence[TraceNode], pods: Sequence[TracePod], *, notes: Sequence[str] = ()) -> Scenario:
    """Return the trace as it went: pods come at their creation and stay as long as they did, those without times ever.

    Times begin at the first creation; a pod without one comes at once. Nodes come and go at their own times, and the
    pods of a node that is removed start again.
    """
    made = {kind: pod_of(kind) for kind in dict.fromkeys(pod.kind for pod in pods)}
    first = min((pod.created for pod in pods if pod.created is not None), default=0.0)
    arrivals = []
    for number, pod in enumerate(pods):
        at = pod.created - first if pod.created is not None else 0.0
        lasts = pod.deleted - pod.created if pod.deleted is not None and pod.created is not None else None
        arrivals.append(Arrival(at, f"{pod.name}-{number}", made[pod.kind], lasts))
    arrivals.sort(key=lambda arrival: arrival.at)
    counts = Counter(pod.kind for pod in pods)
    workload = tuple((made[kind], count) for kind, count in counts.items())
    events = []
    for row in nodes:
        if row.created is not None and row.created > first:
            events.append(NodeEvent(row.created - first, NodeAction.ADD, row.name, node_of(row)))
        if row.deleted is not None:
            events.append(NodeEvent(max(0.0, row.deleted - first), NodeAction.REMOVE, row.name))
    events.sort(key=lambda event: event.at)
    there = [node_of(row) for row in nodes if row.created is None or row.created <= first]
    # the pods of a trace have no controllers: they would be lost with their node
    changes = NodeEvents(tuple(events), bare_pods_return=True)
    return Scenario(there, arrivals, workload, notes=tuple(notes), node_events=changes)


class Experiment:
    """The experiment of "Beware of Fragmentation": pods come one after another, none leaves, none waits.

    The list is made as long as it takes: while it wants more than the given share of the cluster's GPUs, random pods
    are left out; while less, random pods of the list are added again. Then it is shuffled.
    """

    def __init__(
        self, nodes: Sequence[TraceNode], pods: Sequence[TracePod], *, until: float, notes: Sequence[str] = ()
    ) -> None:
        """Prepare the experiments of all seeds.

        Args:
            nodes: those that take part.
            pods: the list.
            until: share of the cluster's GPUs that is requested in the end.
            notes: what people should know about the lists.

        Raises:
            TraceError: there are no GPUs, or no pod wants any.
        """
        self._capacity = sum(node.gpus for node in nodes) * WHOLE
        if not self._capacity:
            raise TraceError("no node has GPUs: there are no shares to allocate; without --until, the list is replayed")
        self._kinds = [pod.kind for pod in pods]
        if not any(kind.gpu_millis for kind in self._kinds):
            raise TraceError("no pod of the list requests a GPU")
        made = {kind: pod_of(kind) for kind in dict.fromkeys(self._kinds)}
        self._made = [made[kind] for kind in self._kinds]
        self._until = until
        self._things = [node_of(node) for node in nodes]
        self._workload = tuple((made[kind], count) for kind, count in Counter(self._kinds).items())
        self._notes = tuple(notes)

    def scenario(self, seed: int) -> Scenario:
        """Return the list of one seed."""
        chance = np.random.Generator(np.random.PCG64(seed))
        wants = [kind.gpu_millis for kind in self._kinds]
        target = self._until * self._capacity
        total, kept = sum(wants), list(range(len(wants)))
        for leaving in chance.permutation(len(wants)):
            if total <= target:
                break
            kept[leaving] = -1
            total -= wants[leaving]
        chosen = [index for index in kept if index >= 0]
        while total < target:
            index = int(chance.integers(len(wants)))
            chosen.append(index)
            total += wants[index]
        order = chance.permutation(len(chosen))
        arrivals = [
            Arrival(float(place), f"pod-{place:06}", self._made[chosen[which]]) for place, which in enumerate(order)
        ]
        marks = tuple(sorted({min(1.0, self._until), self._until}))
        return Scenario(
            self._things, arrivals, self._workload, drops=True, until=self._until, marks=marks, notes=self._notes
        )
