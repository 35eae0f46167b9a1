"""Where deleted pods ran last, for pods that replace them. Learned from observed deletions, and bounded."""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.pods import PodInfo

_MOST_BYTES, _EACH_BYTES = 16 * 2**20, 512
"""Of all workloads and StatefulSet pods, and of one: a name, a node, and what finds them."""
_MOST_OF_NAMESPACE = 1 << 10
"""Of one namespace: a tenant whose pods come and go has others forgotten only with very many namespaces."""
_TEMPLATE_HASH = "pod-template-hash"
"""Label of a Deployment's pods: the end of their ReplicaSet's name, which changes with every rollout."""
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def workload(pod: PodInfo) -> str:
    """Return the name of what made a pod: its controller, for a ReplicaSet the Deployment; without one the pod."""
    controller = pod.template.controller
    if controller is None:
        return f"Pod/{pod.namespace}/{pod.name}"
    kind, name = controller.kind, controller.name
    ending = f"-{pod.template.labels.get(_TEMPLATE_HASH)}"
    if kind == "ReplicaSet" and name.endswith(ending) and len(name) > len(ending):
        kind, name = "Deployment", name.removesuffix(ending)
    return f"{kind}/{pod.namespace}/{name}"


def identity(pod: PodInfo) -> str:
    """Return what a pod and the one that follows it have in common.

    Pods of a StatefulSet keep their name, those of an indexed Job their index; of other workloads all pods are alike.
    """
    controller = pod.template.controller
    if controller is not None and controller.kind == "StatefulSet":
        return f"StatefulSet/{pod.namespace}/{controller.name}/{pod.name}"
    index = pod.labels.get(_COMPLETION_INDEX)
    return workload(pod) if index is None else f"{workload(pod)}/{index}"


class _OfNamespace(msgspec.Struct):
    """What is known of a namespace. Not `Measured`: that takes longer than to note one more."""

    nodes: KeptView[str, str]
    """By identity."""


class PreviousNodes:
    """The node where the last deleted pod of each identity ran."""

    def __init__(self) -> None:
        self._by_namespace: KeptView[str, _OfNamespace] = KeptView(
            KeptBytes(_MOST_BYTES),
            most=_MOST_BYTES // _EACH_BYTES,
            size_of=lambda _, known: _EACH_BYTES * (1 + len(known.nodes)),
        )

    def of(self, pod: PodInfo) -> str | None:
        """Return the name of the node where a pod like this one ran last; None if that is not known."""
        known = self._by_namespace.get(pod.namespace)
        return known.nodes.get(identity(pod)) if known is not None else None

    def note(self, pod: PodInfo, node_name: str) -> None:
        """Remember that a pod is gone from a node."""
        known = self._by_namespace.get(pod.namespace)
        if known is None:
            known = _OfNamespace(KeptView(most=_MOST_OF_NAMESPACE))
        known.nodes.set(identity(pod), node_name)
        self._by_namespace.set(pod.namespace, known)

    def forget(self, pod: PodInfo) -> None:
        """Forget where a pod like this one ran."""
        known = self._by_namespace.get(pod.namespace)
        if known is not None and known.nodes.pop(identity(pod)) is not None:
            self._by_namespace.measure(pod.namespace)
