"""Why the pods of a template fit on no node, kept from one pod to the next: only rows that changed are asked again.

Many pods of one template may have to evict others, one after the other, and each of them changes a node or two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis, DiagnosisBuilder
from kube_policy_scheduler.framework.evaluate.evaluation import PreFiltered, ask, diagnose, pre_filter
from kube_policy_scheduler.framework.evaluate.template_cache import TemplateCache, TemplateCaches
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.trials import LEFT_OUT, without_victims
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Code, Rejection

_REBUILD_SHARE = 8
"""With more than 1/8 of the rows changed, all are asked at once."""


class StandingRejections(Measured):
    """What rejects the pods of one template, row by row."""

    def __init__(self, frame: Frame, prepared: PreFiltered, cache: TemplateCache) -> None:
        """Ask about all rows.

        Args:
            frame: of a pod of the template, on all nodes.
            prepared: the result of PreFilter: filters whose results are kept.
            cache: of the template; its journal says which rows changed.
        """
        self.prepared = prepared
        self._size = frame.size
        self._position = cache.changes.end
        self._rejected = _Rows(diagnose(frame, prepared))
        self._is_potential = self._rejected.potential()
        self._without_victims = _Rows(without_victims(frame, prepared.active, left_out=~self._is_potential))
        self.potential: IntArray
        """The rows whose rejection preemption might lift, ascending."""
        self.hopeful: IntArray
        """Those of them that must be tried."""
        self._list_rows()

    def is_of_use(self) -> bool:
        """Return whether all that it follows is still there: the template alone."""
        return True

    def diagnosis(self) -> Diagnosis:
        """Return the verdicts on all nodes."""
        return self._rejected.diagnosis()

    def why_not(self) -> Counter[str]:
        """Return how many of the potential nodes are rejected for each reason even without all victims."""
        counts = self._without_victims.counts()
        counts.pop(LEFT_OUT, None)
        return counts

    def refresh(self, frame: Frame, cache: TemplateCache) -> bool:
        """Ask about rows that changed since the last time; return whether the rest still stands."""
        if self._size != frame.cluster.nodes.size:
            return False
        changed = cache.changes.since(self._position)
        if changed is None or len(changed) * _REBUILD_SHARE > self._size:
            return False
        if changed:
            rows = np.array(sorted({row for row in changed if row < self._size}), np.int64)
            some = frame.at(rows)
            builder = DiagnosisBuilder(len(rows))
            ask(builder, some, self.prepared.active)
            now = builder.build()
            potential = (now.first >= 0) & ~now.unresolvable
            left = without_victims(some, self.prepared.active, left_out=~potential)
            if not (self._rejected.update(rows, now) and self._without_victims.update(rows, left)):
                return False
            self._is_potential[rows] = potential
            self._list_rows()
        self._position = cache.changes.end
        return True

    def _list_rows(self) -> None:
        self.potential = self._is_potential.nonzero()[0]
        self.hopeful = (self._without_victims.first < 0).nonzero()[0]


class _Rows(Measured):
    """A diagnosis that is updated row by row."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.first: NDArray[np.int16] = diagnosis.first
        self._plugins = diagnosis.plugins
        self._rejections = list(diagnosis.rejections)
        self._counts = [int(np.count_nonzero(rejection.where)) for _, rejection in self._rejections]
        self._places = {_key(plugin, rejection): place for place, (plugin, rejection) in enumerate(self._rejections)}
        self._given = set(range(-1, len(self._rejections)))
        """The rejections of which somebody else has the column, by place; -1 for `first`."""

    def potential(self) -> BoolArray:
        """Return `bool[nodes]`: rejected, but not permanently."""
        found = self.first >= 0
        for _, rejection in self._rejections:
            if rejection.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                found &= ~rejection.where
        return found

    def update(self, rows: IntArray, now: Diagnosis) -> bool:
        """Take over a diagnosis of some rows; return False if it names what no row was rejected for before."""
        if len(self._places) != len(self._rejections):
            return False  # one plugin has one reason twice
        found = {_key(plugin, rejection): rejection.where for plugin, rejection in now.rejections}
        if not found.keys() <= self._places.keys() or len(found) != len(now.rejections):
            return False
        self._own(-1)
        self.first[rows] = now.first
        for key, place in self._places.items():
            before, after = self._rejections[place][1].where[rows], found.get(key)
            more = (0 if after is None else int(np.count_nonzero(after))) - int(np.count_nonzero(before))
            if after is None and not more:
                continue
            self._own(place)
            self._rejections[place][1].where[rows] = False if after is None else after
            self._counts[place] += more
        return True

    def _own(self, place: int) -> None:
        if place not in self._given:
            return
        self._given.remove(place)
        if place < 0:
            self.first = self.first.copy()
            return
        plugin, rejection = self._rejections[place]
        self._rejections[place] = plugin, Rejection(rejection.code, rejection.reason, rejection.where.copy())

    def counts(self) -> Counter[str]:
        """Return the number of nodes rejected for each reason."""
        found: Counter[str] = Counter()
        for (_, rejection), count in zip(self._rejections, self._counts, strict=True):
            if count:
                found[rejection.reason] += count
        return found

    def diagnosis(self) -> Diagnosis:
        """Return it as one of all rows that was made just now, all of which are rejected."""
        rejections = tuple(each for each, count in zip(self._rejections, self._counts, strict=True) if count)
        self._given = set(range(-1, len(self._rejections)))
        last = max((plugin for plugin, _ in rejections), default=-1)
        return Diagnosis(self._plugins[: last + 1], self.first, rejections)


def _key(plugin: int, rejection: Rejection) -> Hashable:
    return plugin, rejection.code, rejection.reason


def standing_rejections(
    frame: Frame, profile: Profile, cache: TemplateCache, *, caches: TemplateCaches
) -> StandingRejections | None:
    """Return why a pod fits nowhere; None if that does not follow from each node alone.

    Args:
        frame: of the pod.
        profile: the plugins.
        cache: of the template, as it is now.
        caches: of all templates; they keep the rejections along with the template.
    """
    if profile.narrowing or cache.rejected or not cache.is_kept or frame.cluster.nominated:
        return None
    live = cache.volume_filters if frame.pod.volumes else cache.live_filters
    asked = pre_filter(frame, live)
    if asked.active or asked.rejection is not None:
        return None
    key = StandingRejections, frame.template, profile
    known = caches.along.get((cache, key))
    if isinstance(known, StandingRejections) and known.refresh(frame, cache):
        return known
    prepared = pre_filter(frame, profile.filters)
    if prepared.rejection is not None or prepared.nodes is not None:
        return None
    standing = StandingRejections(frame, prepared, cache)
    if not (standing.diagnosis().first >= 0).all():
        return None
    caches.keep_along(cache, key, standing)
    return standing
