"""Pods that are alike: what each has of its own, and one pod for the rest."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_policy_scheduler.cluster.objects.pods import Pod


class PodLikeness:
    """What pods have in common: all but what a `ListedPod` has of its own, and names of volumes that nothing reads."""

    __slots__ = ("derived", "namespace", "pod")

    def __init__(self, pod: Pod) -> None:
        """pod: one of them."""
        self.pod = pod
        self.namespace = pod.metadata.namespace
        self.derived: tuple[object, Any] | None = None
        """What was derived from the pod, after who derived it."""


class ListedPod(msgspec.Struct, gc=False):
    """A pod of a list that is like an earlier one."""

    like: PodLikeness
    name: str
    uid: str
    resource_version: str
    node_name: str
    """Interned: a node has many pods."""
    created: float | None
    """Unix seconds."""
    started: float | None

    @property
    def namespace(self) -> str:
        """Return its namespace."""
        return self.like.namespace

    @property
    def metadata(self) -> ListedPod:
        """Return what identifies it, as `Pod.metadata` does."""
        return self

    @property
    def spec(self) -> ListedPod:
        """Return where it is, as `Pod.spec` does."""
        return self
