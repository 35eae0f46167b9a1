"""Where deleted pods ran last, for pods that replace them. Learned from observed deletions, and bounded."""

from __future__ import annotations

from collections import OrderedDict

from kube_policy_scheduler.cluster.pods import PodInfo

_MOST = 1 << 15
"""Workloads and StatefulSet pods remembered; a name and a node take some 300 bytes."""
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


class PreviousNodes:
    """The node where the last deleted pod of each identity ran."""

    def __init__(self) -> None:
        self._by_namespace: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()
        """Node by identity; the newest entry is last."""
        self._size = 0

    def of(self, pod: PodInfo) -> str | None:
        """Return the name of the node where a pod like this one ran last; None if that is not known."""
        known = self._by_namespace.get(pod.namespace)
        return known.get(identity(pod)) if known is not None else None

    def note(self, pod: PodInfo, node_name: str) -> None:
        """Remember that a pod is gone from a node."""
        known = self._by_namespace.setdefault(pod.namespace, OrderedDict())
        self._by_namespace.move_to_end(pod.namespace)
        key = identity(pod)
        self._size += key not in known
        known[key] = node_name
        known.move_to_end(key)
        if len(known) > _MOST_OF_NAMESPACE:
            self._forget_oldest(pod.namespace)
        elif self._size > _MOST:
            self._forget_oldest(next(iter(self._by_namespace)))

    def forget(self, pod: PodInfo) -> None:
        """Forget where a pod like this one ran."""
        known = self._by_namespace.get(pod.namespace)
        if known is not None and known.pop(identity(pod), None) is not None:
            self._size -= 1
            if not known:
                del self._by_namespace[pod.namespace]

    def _forget_oldest(self, namespace: str) -> None:
        known = self._by_namespace[namespace]
        known.popitem(last=False)
        self._size -= 1
        if not known:
            del self._by_namespace[namespace]
