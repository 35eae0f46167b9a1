"""Pods that stay where they are: what speaks against evicting them. Pure.

The rules are those that `kubectl drain`, Cluster Autoscaler, Karpenter and the descheduler follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.preempt.victims import Budgets, started
from kube_policy_scheduler.times import parse_duration
from kube_policy_scheduler.wording import listed

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

IN_PLACE = frozenset({SAFE_TO_EVICT, SAFE_LOCAL_VOLUMES, DO_NOT_DISRUPT, PREFER_NO_EVICTION, SCALE_DOWN_DISABLED})
"""Annotations that keep pods and nodes in place, or let them move, whatever their volumes are called."""

_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h)){1,4}")


class Staying:
    """Tells which pods must not be evicted, as a cluster stands."""

    def __init__(self, cluster: Cluster, *, now: float, local_storage: bool = True) -> None:
        """now: Unix seconds; local_storage: whether pods with local storage stay."""
        self._budgets = Budgets(cluster)
        self._now, self._local_storage = now, local_storage

    def reason(self, info: PodInfo) -> str:
        """Return why a pod must not be evicted; "" if nothing speaks against it.

        DaemonSet pods and static pods belong to their node: they are not asked about.
        """
        annotations = info.annotations
        safe = annotations.get(SAFE_TO_EVICT)
        if safe == "false":
            return f"annotation {SAFE_TO_EVICT}=false"
        if _holds(annotations.get(DO_NOT_DISRUPT), started(info, info.created), self._now):
            return f"annotation {DO_NOT_DISRUPT}={annotations[DO_NOT_DISRUPT]}"
        if PREFER_NO_EVICTION in annotations:
            return f"annotation {PREFER_NO_EVICTION}"
        if safe != "true":
            if info.template.controller is None:
                return "no controller creates it again"
            local = local_volumes(info) if self._local_storage else []
            if local:
                return f"local storage ({listed(local)})"
        return self._budget(info)

    def _budget(self, info: PodInfo) -> str:
        budgets = self._budgets.protecting(info)
        if len(budgets) > 1:
            return f"{len(budgets)} PodDisruptionBudgets match it, so the Eviction API refuses it"
        if self._budgets.forbid(info):
            return f"PodDisruptionBudget {budgets[0].metadata.name} allows no disruption"
        return ""


def node_reason(node: objects.Node) -> str:
    """Return why a node must stay; "" if nothing speaks against removing it."""
    annotations = node.metadata.annotations or {}
    if annotations.get(SCALE_DOWN_DISABLED) == "true":
        return f"annotation {SCALE_DOWN_DISABLED}=true on the node"
    if annotations.get(DO_NOT_DISRUPT) == "true":
        return f"annotation {DO_NOT_DISRUPT}=true on the node"
    return ""


def _holds(value: str | None, since: float, now: float) -> bool:
    """Return whether `do-not-disrupt` holds: `true`, or for a duration of Go since the pod started."""
    if value is None or _DURATION.fullmatch(value) is None:
        return value == "true"
    return now < since + parse_duration(value)


def local_volumes(pod: PodInfo) -> list[str]:
    """Return the volumes whose data is lost with the node, unless an annotation says that this does not matter."""
    safe = safe_volumes(pod.annotations)
    return [name for name in pod.local_volumes if name not in safe]


def safe_volumes(annotations: Mapping[str, str]) -> frozenset[str]:
    """Return the names of volumes whose data may be lost."""
    return frozenset(name.strip() for name in annotations.get(SAFE_LOCAL_VOLUMES, "").split(","))
