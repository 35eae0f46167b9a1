"""Which resources are watched, and which handlers get their changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from kube_policy_scheduler.adapters.kube.changes import Change, Deleted, Updates
from kube_policy_scheduler.adapters.kube.decoding import Malformed
from kube_policy_scheduler.adapters.kube.reflector import (
    EVERYTHING,
    FEW_OBJECTS,
    FirstList,
    Patience,
    Reflector,
    Selector,
)
from kube_policy_scheduler.adapters.kube.resources import NODES, PODS, UNFINISHED_PODS, WATCHED, Read, Resource
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster import objects

logger = logging.getLogger(__name__)

T = TypeVar("T")
WATCH_AFTER_SECONDS = 1.5
"""Watches of other things than nodes and pods begin this long after their first list: 20 connections can wait. A start
that takes longer opens them before its first binding, which takes 40 to 75 ms; later than this, a busy machine might
open one when its list no longer counts as current (`GAP_SECONDS`)."""
LISTS_AT_A_TIME = 4
"""Of all but nodes and pods: most are empty, and a handshake for each of 20 takes longer than the answers. With 4, a
start opens 8 connections for its lists instead of 12; one takes 3 ms of processor time on either side."""
ADDED_PATIENCE_SECONDS = 10.0
"""For so long a start waits for kinds that few clusters have, where the API server answers but cannot list them."""
_MANY = 8
"""Changes at once from which on it is faster to take them together."""


class Handler(msgspec.Struct, Generic[T], frozen=True):
    """Hands a reflector's changes on, one by one."""

    whole: Callable[[Sequence[T]], None]
    upsert: Callable[[T], None]
    deleted: Callable[[T], None]
    upsert_many: Callable[[Sequence[T]], None] | None = None
    """Takes several at once, in their order; None: one by one."""

    def replaced(self, objects: Sequence[T], /) -> None:
        """Take a whole list."""
        self.whole(objects)

    def changed(self, changes: Sequence[Change[T]], /) -> None:
        """Take changes in their order."""
        if self.upsert_many is not None and len(changes) >= _MANY:
            if isinstance(changes, Updates):
                self.upsert_many(changes.new)
                return
            together: list[T] = []
            for change in changes:
                if isinstance(change, Deleted):
                    if together:
                        self.upsert_many(together)
                        together = []
                    self.deleted(change.last)
                else:
                    together.append(change.new)
            if together:
                self.upsert_many(together)
            return
        for change in changes:
            if isinstance(change, Deleted):
                self.deleted(change.last)
            else:
                take_one(self.upsert, change.new)


def reflectors(
    transport: Transport,
    *,
    random: Random,
    on_malformed: Callable[[Malformed], None],
    resources: Sequence[Resource[Any]] = WATCHED,
    few_objects: int = FEW_OBJECTS,
    node_selector: str = "",
    pod_selector: str = "",
    compiled: bool = True,
) -> list[Reflector[Any]]:
    """Return one reflector per watched resource, in their order; `attach` gives them their handlers.

    The first pods are handed over when all nodes are known: pods of unknown nodes are counted one by one.

    resources: what is watched; nodes stand before pods.
    node_selector: labels of the nodes that are watched, "" for all; `pod_selector` is the same for pods.
    compiled: whether long lists of nodes and pods are read with a compiled loop, where numba is installed.
    """
    found: list[Reflector[Any]] = []
    permits = asyncio.Semaphore(LISTS_AT_A_TIME)
    selectors = {NODES: Selector(labels=node_selector), PODS: Selector(UNFINISHED_PODS, pod_selector)}
    usual = Patience(few_objects=few_objects)
    added = Patience(few_objects=few_objects, optional_seconds=ADDED_PATIENCE_SECONDS)
    for resource in resources:
        is_large = resource.read is Read.FIRST
        found.append(
            Reflector(
                transport,
                resource,
                selector=selectors.get(resource, EVERYTHING),
                optional=not is_large,
                first_list=FirstList(
                    after=found[0].synced if resource is PODS else None,
                    watch_after_seconds=0.0 if is_large else WATCH_AFTER_SECONDS,
                    compare=compiled and is_large,
                    permits=None if is_large else permits,
                ),
                patience=added if resource.read is Read.WHERE_SERVED else usual,
                random=random,
                on_malformed=on_malformed,
            )
        )
    return found


def attach(
    mirrors: Sequence[Reflector[Any]],
    handler: Callable[[type], Handler[Any]],
    on_unavailable: Callable[[type, str], None] = lambda kind, why: None,
) -> None:
    """Send what reflectors receive to the handler of each kind.

    on_unavailable: called with a kind and the reason why its objects cannot be read, "" once they can.
    """
    for mirror in mirrors:
        mirror.attach(handler(mirror.resource.type), partial(on_unavailable, mirror.resource.type))


def take_one(take: Callable[[T], None], thing: T) -> None:
    """Take an object; one that cannot be used is reported.

    That is the object's fault, not ours: all others still count. Any other error has the reflector start over.
    """
    try:
        take(thing)
    except ValueError as error:
        report_unusable(thing, error)


def report_unusable(thing: Any, error: Exception) -> None:
    """Say that an object is passed over; what was known of it before stays."""
    metadata = thing.metadata
    key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    internal = None if isinstance(error, ValueError) else error
    kind = "pod" if isinstance(thing, objects.ListedPod) else type(thing).__name__.lower()
    logger.error("cannot use %s %s, ignoring it: %s", kind, key, error, exc_info=internal)


def take_each(take: Callable[[T], None], things: Iterable[T]) -> None:
    """Take all objects that can be taken: one that cannot must not keep the others from being known."""
    for thing in things:
        try:
            take(thing)
        except Exception as error:
            report_unusable(thing, error)
