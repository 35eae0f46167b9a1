"""Pods that are alike: what each has of its own, and one pod for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from sys import intern
from typing import Any, overload

import msgspec

from kube_policy_scheduler.cluster.objects.pods import Pod


class PodLikeness:
    """What pods have in common: all but what a `ListedPod` has of its own, and names of volumes that nothing reads."""

    __slots__ = ("derived", "namespace", "pod")

    def __init__(self, pod: Pod) -> None:
        """pod: one of them."""
        self.pod = pod
        self.namespace = intern(pod.metadata.namespace)
        self.derived: tuple[object, Any] | None = None
        """What was derived from the pod, after who derived it."""


class ListedPod(msgspec.Struct, gc=False):
    """A pod of a list that is like an earlier one."""

    like: PodLikeness
    name: str
    uid: str
    resource_version: str
    node_name: str
    created: float | None
    """Unix seconds."""
    started: float | None
    restarts: int = 0
    """See `restarts_of`."""

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


class ListedPods(Sequence[ListedPod]):
    """Pods of a list, as columns: what is made of many is made column by column."""

    __slots__ = ("created", "likes", "names", "node_names", "resource_versions", "restarts", "started", "uids")

    def __init__(
        self,
        likes: list[PodLikeness],
        names: list[str],
        uids: list[str],
        resource_versions: list[str],
        node_names: list[str],
        created: list[float | None],
        started: list[float | None],
        restarts: list[int],
    ) -> None:
        """Make them; each list has the field of that name of `ListedPod` for each pod."""
        self.likes, self.names, self.uids, self.resource_versions = likes, names, uids, resource_versions
        self.node_names, self.created, self.started, self.restarts = node_names, created, started, restarts

    def columns(self) -> tuple[list[Any], ...]:
        """Return the columns in the order of the fields of `ListedPod`."""
        return (
            self.likes,
            self.names,
            self.uids,
            self.resource_versions,
            self.node_names,
            self.created,
            self.started,
            self.restarts,
        )

    def __len__(self) -> int:
        return len(self.likes)

    def __iter__(self) -> Iterator[ListedPod]:
        return map(ListedPod, *self.columns())

    @overload
    def __getitem__(self, place: int) -> ListedPod: ...

    @overload
    def __getitem__(self, place: slice) -> ListedPods: ...

    def __getitem__(self, place: int | slice) -> ListedPod | ListedPods:
        cut: list[Any] = [column[place] for column in self.columns()]
        return ListedPods(*cut) if isinstance(place, slice) else ListedPod(*cut)
