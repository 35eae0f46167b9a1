"""The ledger of changes: the one place that says that something changed, so that what was decided may be otherwise now.

The cluster's own methods note their events here, each once its change is complete. Readers keep a position and
compare it: remembered rejections hold as long as nothing was noted, and an attempt that ends without a node asks what
came since it began. Listeners hear at once of events that may help rejected pods, or at the end of many changes that
are made together. What is only tried out, and undone, is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kube_policy_scheduler.cluster.events import ClusterEvent
from kube_policy_scheduler.cluster.journal import Journal

LEAST_KEPT = 4096
"""Events that are kept; a reader that lags further behind must assume that anything happened."""

Listener = Callable[[ClusterEvent], None]


class Ledger:
    """Events in order."""

    def __init__(self) -> None:
        self._events: Journal[ClusterEvent] = Journal(most=2 * LEAST_KEPT)
        self._listeners: list[Listener] = []
        self._silent = 0
        self._held: dict[ClusterEvent, None] | None = None
        """What the listeners hear of at the end of `together`; None: they hear at once."""

    @property
    def epoch(self) -> int:
        """Return how many events there were: while it stays the same, so does every decision but for time."""
        return self._events.end

    def note(self, event: ClusterEvent) -> None:
        """Note an event whose change is complete. In constant time, but for what the listeners do."""
        if self._silent:
            return
        self._events.note(event)
        if event is ClusterEvent.TAKEN:
            return
        if self._held is not None:
            self._held[event] = None
            return
        for listener in self._listeners:
            listener(event)

    @property
    def is_silent(self) -> bool:
        """Return whether something is tried out that is undone at its end."""
        return self._silent > 0

    def since(self, epoch: int) -> Sequence[ClusterEvent] | None:
        """Return the events after an epoch, the oldest first; None if there are too many to know."""
        return self._events.since(epoch)

    def follow(self, listener: Listener) -> None:
        """Call a listener with every event that may help rejected pods, at once."""
        self._listeners.append(listener)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Have the listeners hear at the end, and once of each kind of event: for many changes at a time."""
        if self._held is not None:
            yield
            return
        self._held = {}
        try:
            yield
        finally:
            held, self._held = self._held, None
            for event in held:
                for listener in self._listeners:
                    listener(event)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Note nothing while this lasts: at its end everything is as it was before."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1
