"""The ledger of changes: the one place that says that something changed, so that what was decided may be otherwise now.

The cluster's own methods note their events here, each once its change is complete. Readers keep a position and compare
it: remembered refusals hold as long as nothing was noted, and an attempt that ends without a node asks what came since
it began. Listeners hear at once of events that may help rejected pods. What is only tried out, and undone, is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kube_policy_scheduler.cluster.events import ClusterEvent
from kube_policy_scheduler.cluster.journal import Journal

MOST_KEPT = 4096
"""Events that are kept; who asks for older ones must expect any."""

Listener = Callable[[ClusterEvent], None]


class Ledger:
    """Events in order."""

    def __init__(self) -> None:
        self._events: Journal[ClusterEvent] = Journal(most=MOST_KEPT)
        self._listeners: list[Listener] = []
        self._silent = 0

    @property
    def epoch(self) -> int:
        """A number that grows with every event: while it stays the same, so does every decision but for time."""
        return self._events.end

    def note(self, event: ClusterEvent) -> None:
        """Note an event whose change is complete. In constant time, but for what the listeners do."""
        if self._silent:
            return
        self._events.note(event)
        if event is not ClusterEvent.TAKEN:
            for listener in self._listeners:
                listener(event)

    def since(self, epoch: int) -> Sequence[ClusterEvent] | None:
        """Return the events after an epoch, the oldest first; None if there are too many to know."""
        return self._events.since(epoch)

    def follow(self, listener: Listener) -> None:
        """Call a listener with every event that may help rejected pods, at once."""
        self._listeners.append(listener)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Note nothing while this lasts: at its end everything is as it was before."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1
