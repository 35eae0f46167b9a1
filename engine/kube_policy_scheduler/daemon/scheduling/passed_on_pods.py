"""Pods that were passed on and that another replica is to bind: which states of them are from before, which since.

The watch may show a pod as it was before it was passed on, and that it was given back before we have the answer to our
own write. Versions tell: the answer has that of the pod as passed on, and until it comes nothing is concluded.
"""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.resource_versions import version_number


class _Pass(msgspec.Struct):
    shown: PodInfo | None = None
    """The pod as passed on, once the watch has shown it so."""
    version: int = 0
    """Of the pod as passed on; 0 while the answer is outstanding."""
    early: PodInfo | None = None
    """What the watch has shown last while the answer was outstanding."""


class PassedOnPods:
    """What is known of each, by uid."""

    def __init__(self) -> None:
        self._passes: dict[str, _Pass] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._passes

    def begin(self, uid: str) -> None:
        """Note that a pod is being passed on."""
        self._passes[uid] = _Pass()

    def show(self, pod: PodInfo) -> None:
        """Note that the watch shows a pod as passed on."""
        self._passes.setdefault(pod.uid, _Pass()).shown = pod

    def is_shown(self, uid: str) -> bool:
        """Return whether the watch has shown that a pod was passed on."""
        return uid in self._passes and self._passes[uid].shown is not None

    def shown(self) -> list[PodInfo]:
        """Return the pods that the watch has shown as passed on."""
        return [each.shown for each in self._passes.values() if each.shown is not None]

    def is_since(self, pod: PodInfo) -> bool:
        """Return whether the watch shows the pod as it is since it was passed on; where nobody knows, it is kept."""
        known = self._passes[pod.uid]
        if known.shown is not None:
            return True
        if not known.version:
            known.early = pod
            return False
        return version_number(pod.resource_version) >= known.version

    def answered(self, uid: str, *, version: int) -> PodInfo | None:
        """Take the answer to our write; return what the watch has shown since, if it was here before the answer."""
        known = self._passes.get(uid)
        if known is None:
            return None
        known.version = max(version, 1)
        early, known.early = known.early, None
        return early if early is not None and version_number(early.resource_version) >= version else None

    def drop(self, uid: str) -> PodInfo | None:
        """Forget a pod; return what the watch has shown of it while the answer was outstanding."""
        known = self._passes.pop(uid, None)
        return known.early if known is not None else None
