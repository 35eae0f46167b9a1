"""Which resources are watched, and whom their changes go to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from kube_policy_scheduler.adapters.kube import resources
from kube_policy_scheduler.adapters.kube.changes import Change, Deleted
from kube_policy_scheduler.adapters.kube.decoding import Malformed
from kube_policy_scheduler.adapters.kube.discovery import served
from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.reflector import FEW_OBJECTS, Reflector
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.watching.unusable import report_unusable

if TYPE_CHECKING:
    from kube_policy_scheduler.daemon.watching.informer import Informer

T = TypeVar("T")

OTHERS: tuple[resources.Resource[Any], ...] = (
    *resources.READ_BY_RULES,
    resources.POD_GROUPS,
    resources.COSCHEDULING_POD_GROUPS,
)
"""Beside nodes and pods; a cluster without one of them (404, 403) has no such objects."""


VERSIONS_DIFFER: tuple[resources.Resource[Any], ...] = (resources.POD_GROUPS,)
"""Kinds that are alpha: each Kubernetes may serve them in another version."""
PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Handler(Generic[T]):
    """Hands a reflector's changes on, one by one."""

    whole: Callable[[Sequence[T]], None]
    upsert: Callable[[T], None]
    deleted: Callable[[T], None]

    def replaced(self, objects: Sequence[T], /) -> None:
        self.whole(objects)

    def changed(self, changes: Sequence[Change[T]], /) -> None:
        for change in changes:
            if isinstance(change, Deleted):
                self.deleted(change.last)
                continue
            try:
                self.upsert(change.new)
            except ValueError as error:
                # the object's fault, not ours: all others still count; any other error has the reflector start over
                report_unusable(change.new, error)


async def run(reflector: Reflector[Any], *, transport: Transport) -> NoReturn:
    """Mirror a resource for ever, in a version that is served where that differs between clusters."""
    while reflector.resource in VERSIONS_DIFFER:
        try:
            reflector.resource = await served(transport, reflector.resource)
            break
        except KubeError:  # the other reflectors tell
            await transport.pause(PAUSE_SECONDS)
    await reflector.run()


def reflectors(
    transport: Transport,
    *,
    random: Random,
    on_malformed: Callable[[Malformed], None],
    few_objects: int = FEW_OBJECTS,
) -> list[Reflector[Any]]:
    """Return one reflector per watched resource, nodes and pods first; `attach` says whom they tell."""
    make = partial(Reflector, transport, random=random, on_malformed=on_malformed, few_objects=few_objects)
    return [
        make(resources.NODES),
        make(resources.PODS, field_selector=resources.UNFINISHED_PODS),
        *(make(resource, optional=True) for resource in OTHERS),
    ]


def attach(mirrors: Sequence[Reflector[Any]], informer: Informer) -> None:
    """Let an informer be told what reflectors see."""
    for mirror in mirrors:
        mirror.attach(_handler(mirror.resource.type, informer))


def _handler(kind: type, informer: Informer) -> _Handler[Any]:
    if kind is resources.NODES.type:
        return _Handler(informer.nodes_replaced, informer.node_changed, informer.node_deleted)
    if kind is resources.PODS.type:
        return _Handler(informer.pods_replaced, informer.pod_changed, informer.pod_deleted)
    return _Handler(partial(informer.objects_replaced, kind), informer.object_changed, informer.object_deleted)
