"""Pods that are like earlier ones of their list, as `ListedPod`. See `similar_items`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.item_scan import NUMBER, PLAIN
from kube_policy_scheduler.adapters.kube.similar_items import Model, Place, SimilarItems, merged
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.times import unix_seconds

_SLOTS: tuple[Place, ...] = (
    ("metadata", "name"),
    ("metadata", "uid"),
    ("metadata", "resource_version"),
    ("spec", "node_name"),
    ("metadata", "creation_timestamp"),
    ("status", "start_time"),
)
"""What each pod has of its own, in the order of the slots."""
_COUNTED = 3
"""Containers of a pod whose restarts may differ; pods with more are like those with as many restarts of the others."""
_COUNTS: tuple[Place, ...] = tuple(("status", "container_statuses", at, "restart_count") for at in range(_COUNTED))
_MOST_COUNT = 2**31 - 1
_MOST_TIMES = 1 << 16


class _Times(dict[str, float | None]):
    """Unix seconds by timestamp: pods share many."""

    def __missing__(self, text: str) -> float | None:
        if len(self) >= _MOST_TIMES:
            self.clear()
        self[text] = found = unix_seconds(text)
        return found


class SimilarPods(SimilarItems[objects.Pod]):
    """Decodes the pages of one list of pods."""

    slots = len(_SLOTS) + _COUNTED

    def __init__(self, decode: Callable[[bytes], objects.Pod], scan: Callable[..., tuple[int, int]]) -> None:
        """See `SimilarItems`."""
        super().__init__(decode, scan)
        self._likes: list[objects.PodLikeness] = []
        self._other_restarts: list[int] = []
        """By model: the restarts of containers that have no slot."""
        self._times = _Times()

    def strings(self, obj: objects.Pod) -> Iterator[tuple[Place, str]]:
        """See `SimilarItems`; nothing reads the name of a volume whose source nothing reads."""
        for section, field in _SLOTS:
            text = getattr(getattr(obj, section), field)
            if text is not None:
                yield (section, field), text
        for number, volume in enumerate(obj.spec.volumes or ()):
            if volume == objects.Volume(name=volume.name):
                yield ("spec", "volumes", number, "name"), volume.name

    def numbers(self, obj: objects.Pod) -> Iterator[tuple[Place, int]]:
        """See `SimilarItems`."""
        yield from zip(_COUNTS, _counts(obj), strict=False)

    def slots_of(self, model: Model[objects.Pod]) -> dict[Place, int] | None:
        """See `SimilarItems`."""
        slots: dict[Place, int] = {place: slot for slot, place in enumerate((*_SLOTS, *_COUNTS))}
        is_plain = all(hole.kind in (PLAIN, NUMBER) for hole in model.holes.values() if hole.place in slots)
        return slots if is_plain else None

    def constants_of(self, obj: objects.Pod) -> dict[int, str]:
        """See `SimilarItems`."""
        texts = [getattr(getattr(obj, section), field) or "" for section, field in _SLOTS]
        counts = [*map(str, _counts(obj)), *["0"] * _COUNTED][:_COUNTED]
        return dict(enumerate([*texts, *counts]))

    def added(self, model: Model[objects.Pod], slots: dict[Place, int]) -> None:
        """See `SimilarItems`."""
        self._likes.append(objects.PodLikeness(model.object))
        self._other_restarts.append(objects.restarts_of(model.object) - sum(_counts(model.object)))

    def made(
        self,
        numbers: list[int],
        columns: list[list[str]],
        lists: Iterable[bytes],
        decoded: Sequence[tuple[int, objects.Pod]],
    ) -> objects.ListedPods:
        """See `SimilarItems`; a pod that is like none is like itself."""
        names, uids, versions, nodes, created, started, *counts = columns
        times = self._times.__getitem__
        restarts: Iterable[int] = map(self._other_restarts.__getitem__, numbers)
        for texts in counts:
            if set(texts) != {"0"}:
                restarts = map(add, restarts, _numbers(texts))
        alike: tuple[list[Any], ...] = (
            list(map(self._likes.__getitem__, numbers)),
            names,
            uids,
            versions,
            nodes,
            list(map(times, created)),
            list(map(times, started)),
            list(restarts),
        )
        if not decoded:
            return objects.ListedPods(*alike)
        before, alone = [place for place, _ in decoded], zip(*[_alone(pod) for _, pod in decoded], strict=True)
        return objects.ListedPods(
            *[merged(column, zip(before, others, strict=True)) for column, others in zip(alike, alone, strict=True)]
        )


def _alone(pod: objects.Pod) -> tuple[Any, ...]:
    """Return the fields of a `ListedPod` for a pod that is like no other."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    times = unix_seconds(meta.creation_timestamp), unix_seconds(status.start_time)
    own = meta.name, meta.uid, meta.resource_version, spec.node_name, *times, objects.restarts_of(pod)
    return objects.PodLikeness(pod), *own


def _counts(pod: objects.Pod) -> list[int]:
    """Return the restarts of the first containers."""
    return [each.restart_count for each in (pod.status.container_statuses or ())[:_COUNTED]]


def _numbers(texts: list[str]) -> Iterable[int]:
    """Return numbers of restarts as the decoder does. Raises msgspec.DecodeError: one is too large."""
    of = {text: int(text) for text in set(texts)}  # most are 0
    if of and max(of.values()) > _MOST_COUNT:
        raise msgspec.DecodeError("a number of restarts is too large")
    return map(of.__getitem__, texts)
