"""What pods say of themselves besides their template, as far as policies read it of running pods.

Pods of one template differ in their names and annotations. Sets of pods follow from templates, so pods that differ in
something that policies read are seen as pods of different templates: equal but for what they say of themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from kube_policy_scheduler.cluster.pods import OwnWords, PodInfo, PodTemplate

_TEXT_BYTES = 64
"""Of a text or an entry of a mapping in memory, besides the text."""


class OwnFacts(msgspec.Struct, frozen=True):
    """What policies read of running pods besides their templates."""

    name: bool = False
    annotations: frozenset[str] = frozenset()
    """The keys."""

    def __bool__(self) -> bool:
        return self.name or bool(self.annotations)

    def __or__(self, other: OwnFacts) -> OwnFacts:
        return OwnFacts(self.name or other.name, self.annotations | other.annotations)

    def covers(self, other: OwnFacts) -> bool:
        """Return whether nothing else is read."""
        return self.name >= other.name and self.annotations >= other.annotations

    def of(self, pod: PodInfo) -> OwnWords | None:
        """Return what a pod says of itself; None: none of what is read."""
        there = self.annotations & pod.annotations.keys() if pod.annotations else frozenset()
        if not there and not self.name:
            return None
        annotations = {key: pod.annotations[key] for key in sorted(there)}
        return OwnWords(pod.name if self.name else "", MappingProxyType(annotations))

    def are_alike(self, one: PodInfo, other: PodInfo) -> bool:
        """Return whether two states of a pod say the same of it."""
        if one.annotations is other.annotations:
            return True
        return all(one.annotations.get(key) == other.annotations.get(key) for key in self.annotations)


NO_FACTS = OwnFacts()


class _Seen(NamedTuple):
    template: PodTemplate
    number: int
    """How often the pod is there: one that waits for new nodes may stand for several."""


class SeenPods:
    """Pods as those of the templates that policies see."""

    def __init__(self, facts: OwnFacts) -> None:
        self.facts = facts
        self._templates: WeakValueDictionary[tuple[PodTemplate, str, tuple[tuple[str, str], ...]], PodTemplate] = (
            WeakValueDictionary()
        )
        self._seen: dict[str, _Seen] = {}
        """By uid; pods that say nothing of themselves are not in it."""

    def enter(self, pod: PodInfo) -> PodInfo:
        """Return a pod that comes as it is seen."""
        words = self.facts.of(pod)
        if words is None:
            return pod
        before = self._seen.get(pod.uid)
        template = before.template if before is not None else self._template(pod.template, words)
        self._seen[pod.uid] = _Seen(template, before.number + 1 if before is not None else 1)
        return _seen_as(pod, template)

    def leave(self, pod: PodInfo) -> PodInfo:
        """Return a pod that goes as it was seen."""
        seen = self._seen.pop(pod.uid, None)
        if seen is None:
            return pod
        if seen.number > 1:
            self._seen[pod.uid] = _Seen(seen.template, seen.number - 1)
        return _seen_as(pod, seen.template)

    def now(self, pod: PodInfo) -> PodInfo:
        """Return a pod that is there as it is seen."""
        seen = self._seen.get(pod.uid)
        return pod if seen is None else _seen_as(pod, seen.template)

    def _template(self, template: PodTemplate, words: OwnWords) -> PodTemplate:
        key = template, words.name, tuple(words.annotations.items())
        found = self._templates.get(key)
        if found is None:
            found = self._templates[key] = PodTemplate(
                template.namespace,
                template.labels,
                template.spec,
                template.controller,
                template.demand,
                template.size + _size(words),
                template.shape,
                own=words,
            )
        return found


def _size(words: OwnWords) -> int:
    texts: Iterable[str] = (words.name, *words.annotations.keys(), *words.annotations.values())
    return sum(len(text) + _TEXT_BYTES for text in texts)


def _seen_as(pod: PodInfo, template: PodTemplate) -> PodInfo:
    seen = copy(pod)
    seen.template = template
    return seen
