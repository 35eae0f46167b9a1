"""What writing about a pod needs to know of it: `cluster.pods.PodInfo` has all of it, and so has `PodNow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from kube_policy_scheduler.cluster.objects import Pod, PodCondition


class PodView(Protocol):
    """Identity and status of a pod as far as they are written."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Its UID."""

    @property
    def resource_version(self) -> str:
        """The version that was seen."""

    @property
    def generation(self) -> int:
        """`metadata.generation`, 0 if unknown."""

    @property
    def nominated_node(self) -> str:
        """`status.nominatedNodeName`."""

    @property
    def conditions(self) -> Sequence[PodCondition]:
        """`status.conditions`."""


class PodNow(msgspec.Struct, frozen=True):
    """A pod that was just read from the API server."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    nominated_node: str
    conditions: tuple[PodCondition, ...]


def view_of(pod: Pod) -> PodNow:
    """Return the view of a decoded pod."""
    meta, status = pod.metadata, pod.status
    return PodNow(
        meta.namespace,
        meta.name,
        meta.uid,
        meta.resource_version,
        meta.generation,
        status.nominated_node_name,
        tuple(status.conditions or ()),
    )
