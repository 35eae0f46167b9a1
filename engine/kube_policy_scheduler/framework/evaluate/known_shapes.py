"""What templates have in common whose specs differ in requests alone: plugins are asked once, and not for each pod.

Where every pod has requests of its own, each is of another template. Most plugins do not look at requests: what they
returned for the last template of the shape is what they would return for this one, until a node or an image changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import ref

import msgspec

from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.pods import SharedMemo
from kube_policy_scheduler.cluster.requests import NATIVE
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Ready, Scope, ScorePlugin, Weighted
from kube_policy_scheduler.framework.profile import Profile

_MOST_SHAPES = 64


class LivePlugins(NamedTuple):
    """The plugins that run for each pod."""

    live_filters: tuple[FilterPlugin, ...]
    volume_filters: tuple[FilterPlugin, ...]
    live_scores: tuple[Weighted, ...]
    volume_scores: tuple[Weighted, ...]


class KnownShape(msgspec.Struct, frozen=True):
    """What is known of one shape under one profile. It is of templates that request native resources alone."""

    shape: SharedMemo
    profile: Profile
    nodes: NodeTable
    read: tuple[int, int]
    """The static changes, and those of images, up to which it is known."""
    filters: tuple[tuple[FilterPlugin, Ready | None], ...]
    """The results of PreFilter, without plugins that skip; None: the plugin must be asked, it looks at requests."""
    scores: tuple[tuple[ScorePlugin, float, Ready | None], ...]
    """The results of PreScore, without plugins that skip; None: the plugin must be asked."""
    live: LivePlugins
    answers: tuple[ref[Any], ...]
    """The kept answers of those that need not be asked. Something else keeps them, or they are gone."""
    rest: int
    """A hash of all this."""


class KnownShapes:
    """The shapes that were used most recently."""

    def __init__(self) -> None:
        self._by_id: KeptView[int, KnownShape] = KeptView(most=_MOST_SHAPES)
        self._asked: tuple[Profile | None, frozenset[object] | None] = None, None
        """The plugins of a profile that look at requests; None: others may look at more than shapes."""

    def of(self, frame: Frame, profile: Profile) -> KnownShape | None:
        """Return what is known about the template of a frame besides its requests; None: nothing."""
        template = frame.pod.template
        known = self._by_id.get(id(template.shape))
        if known is None or known.profile is not profile or not NATIVE.issuperset(template.demand.requests):
            return None
        nodes = frame.cluster.nodes
        if known.nodes is not nodes or known.read != (nodes.static_changes.end, nodes.image_changes.end):
            return None
        return known

    def are_of_use(self, frame: Frame, profile: Profile) -> bool:
        """Return whether to remember the results for the template of a frame: it is not the first one of its shape."""
        shape = frame.pod.template.shape
        if "known shapes" not in shape:  # many shapes come but once
            shape["known shapes"] = True
            return False
        return self._asked_of(profile) is not None and NATIVE.issuperset(frame.pod.template.demand.requests)

    def _asked_of(self, profile: Profile) -> frozenset[object] | None:
        if self._asked[0] is not profile:
            plugins: list[FilterPlugin | ScorePlugin] = [
                *profile.kept_filters,
                *(score.plugin for score in profile.kept_scores),
            ]
            asked = frozenset(plugin for plugin in plugins if not plugin.by_shape)
            known = all(plugin.scope is Scope.ROW for plugin in plugins if plugin in asked)
            self._asked = profile, asked if known else None
        return self._asked[1]

    def learn(
        self,
        frame: Frame,
        profile: Profile,
        *,
        results: Mapping[tuple[object, bool], Ready],
        by_requests: Collection[object],
        live: LivePlugins,
        answers: Sequence[object],
        rest: int,
    ) -> None:
        """Remember the results for a template.

        Args:
            frame: of the template.
            profile: the plugins.
            results: what PreFilter and PreScore returned, of plugins that did not skip, by `(plugin, is a score)`.
            by_requests: the plugins whose answers follow from requests.
            live: the plugins that run for each pod.
            answers: of all other plugins.
            rest: a hash of what these answers follow from.
        """
        asked = self._asked_of(profile)
        if asked is None or asked & {plugin for plugin, _ in results} != set(by_requests):
            return
        shape, nodes = frame.pod.template.shape, frame.cluster.nodes
        known_shape = KnownShape(
            shape,
            profile,
            nodes,
            (nodes.static_changes.end, nodes.image_changes.end),
            tuple(
                (p, None if p in asked else results[p, False])
                for p in profile.kept_filters
                if p in asked or (p, False) in results
            ),
            tuple(
                (s.plugin, s.weight, None if s.plugin in asked else results[s.plugin, True])
                for s in profile.kept_scores
                if s.plugin in asked or (s.plugin, True) in results
            ),
            live,
            tuple(map(ref, answers)),
            rest,
        )
        self._by_id.set(id(shape), known_shape)

    def clear(self) -> None:
        """Forget all of them."""
        self._by_id.clear()
        self._asked = None, None
