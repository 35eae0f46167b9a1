"""What plugins read of metrics, from one decision to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Plugin


class MetricReadings:
    """What some plugins read of metrics on one node table; mostly it is the same for the next pod, and nobody asks."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        """Start without readings: the first look finds a change."""
        self._plugins = plugins
        self._states: list[object] | None = None
        self._signals: Signals | None = None
        self._identities = -1
        """The number of changes of the nodes' identities at the last look."""
        self._since, self._until = math.inf, -math.inf
        """Unix seconds of the last look, and until when it holds."""

    def have_changed(self, frame: Frame) -> bool:
        """Return whether metrics have other values than at the last look."""
        identities = frame.cluster.nodes.identity_changes.end
        is_same = frame.signals is self._signals and identities == self._identities
        if is_same and self._since <= frame.now < self._until:
            return False
        before, found = self._states, [plugin.readings(frame) for plugin in self._plugins]
        self._states = [state for each in found for state in each.states]
        self._signals, self._identities, self._since = frame.signals, identities, frame.now
        self._until = min((each.until for each in found), default=math.inf)
        return before is None or any(now is not then for now, then in zip(self._states, before, strict=True))
