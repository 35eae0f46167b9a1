"""Close looks at decisions: what every filter and score said, for as many as a share of the time allows.

A look costs as much as several decisions; in a quiet cluster every decision gets one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.detail import Detail, look

MOST_CREDIT_SECONDS = 0.02
"""Saved up while nothing was decided: the first pods of a burst are looked at."""


class CloseLook:
    """Looks while there is time for it, and counts what it sees."""

    def __init__(
        self, *, share: float, best_nodes: int, stopwatch: Callable[[], float], counts: ClauseCounts | None
    ) -> None:
        """Make one.

        Args:
            share: of the time, at most; 0 to 1.
            best_nodes: how many nodes a look keeps.
            stopwatch: seconds, never going back.
            counts: receives what is seen.
        """
        self._share = share
        self._best_nodes = best_nodes
        self._stopwatch = stopwatch
        self._counts = counts
        self._credit = MOST_CREDIT_SECONDS if share else 0.0
        self._credit_at = stopwatch()

    def take(
        self,
        frame: Frame,
        profile: Profile,
        *,
        host: str | None,
        rows: IntArray | None = None,
        queries: Sequence[Query],
    ) -> Detail | None:
        """Return what all plugins say; None where there is no time. Arguments as of `policy.detail.look`."""
        began = self._stopwatch()
        self._credit = min(MOST_CREDIT_SECONDS, self._credit + (began - self._credit_at) * self._share)
        self._credit_at = began
        if self._credit <= 0:
            return None
        seen = look(
            frame,
            profile,
            host=host,
            rows=rows,
            queries=queries,
            limit=self._best_nodes,
            stopwatch=self._stopwatch,
        )
        if self._counts is not None:
            self._counts.add(seen.verdicts)
        self._credit -= self._stopwatch() - began
        return seen
