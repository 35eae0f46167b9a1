"""Which pending pods wait for which claim: what happens to it concerns them, and hardly anybody else."""

from __future__ import annotations

from collections.abc import Callable

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.object_store import key_of
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.dynamic_resources.pod_claims import claim_names


class Claimants:
    """Pending pods by the claims that they name. Who is gone is dropped when its claim is looked at."""

    def __init__(self, is_pending: Callable[[str], bool]) -> None:
        """is_pending: whether the pod with a uid still waits."""
        self._is_pending = is_pending
        self._by_claim: dict[str, dict[str, None]] = {}

    def add(self, pod: PodInfo) -> None:
        """Take note of a pod, or of its new state."""
        if pod.template.spec.resource_claims:
            for name in claim_names(pod):
                self._by_claim.setdefault(key_of(pod.namespace, name), {})[pod.uid] = None

    def of(self, key: str) -> list[str]:
        """Return the uids of the pods that name a claim, `namespace/name`."""
        uids = self._by_claim.get(key)
        if uids is None:
            return []
        found = [uid for uid in uids if self._is_pending(uid)]
        if not found:
            del self._by_claim[key]
        elif len(found) < len(uids):
            self._by_claim[key] = dict.fromkeys(found)
        return found


def is_freed(before: objects.ResourceClaim | None, after: objects.ResourceClaim) -> bool:
    """Return whether a change of a claim gave devices back."""
    if before is None or before.status.allocation is None:
        return False
    return after.status.allocation is None or before.metadata.uid != after.metadata.uid
