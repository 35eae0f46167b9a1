"""Which pending pods the autoscalers add nodes for: their own published conditions, as functions of the API's pod.

What comes afterwards is their simulation of Kubernetes' own rules, which knows no policies.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

Json = dict[str, Any]

EXPENDABLE_BELOW = -10
"""cluster-autoscaler's default for `--expendable-pods-priority-cutoff`."""


def cluster_autoscaler_counts(
    pod: Json, *, allowed_schedulers: Collection[str] = (), bypassed_schedulers: Collection[str] = ()
) -> bool:
    """Return whether cluster-autoscaler counts a pod as unschedulable.

    Args:
        pod: as the API server returns it.
        allowed_schedulers: `--allowed-scheduler-names`; empty: all.
        bypassed_schedulers: `--bypassed-scheduler-names`: pods of these need no condition.
    """
    spec, status, metadata = pod["spec"], pod.get("status", {}), pod["metadata"]
    scheduler = spec.get("schedulerName", "default-scheduler")
    if spec.get("nodeName") or metadata.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
        return False
    if allowed_schedulers and scheduler not in allowed_schedulers:
        return False
    if status.get("nominatedNodeName"):
        return False  # it counts as placed there
    if spec.get("priority", 0) < EXPENDABLE_BELOW or _owned_by(pod, "DaemonSet"):
        return False
    condition = _pod_scheduled(pod)
    if condition is None:
        return scheduler in bypassed_schedulers
    return condition["status"] == "False" and condition.get("reason") == "Unschedulable"


def karpenter_counts(pod: Json) -> bool:
    """Return whether Karpenter counts a pod as provisionable."""
    if pod["spec"].get("nodeName") or pod.get("status", {}).get("nominatedNodeName"):
        return False
    if _owned_by(pod, "DaemonSet") or _owned_by(pod, "Node"):
        return False
    condition = _pod_scheduled(pod)
    return condition is not None and condition.get("reason") == "Unschedulable"


def _pod_scheduled(pod: Json) -> Json | None:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), None)


def _owned_by(pod: Json, kind: str) -> bool:
    return any(owner["kind"] == kind for owner in pod["metadata"].get("ownerReferences") or ())
