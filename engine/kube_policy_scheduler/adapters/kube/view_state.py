"""What a reflector is doing, and whether its view is current: one table of what may follow what. Pure: no clock.

Whoever meets a condition does not also have to remember to enter the phase that follows from it. An open watch is
WATCHING exactly while the view is as new as it must be, and CATCHING_UP else; every method ends by looking at that, so
there is no way to change what is known of the view that leaves the phase behind.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType

from kube_policy_scheduler.adapters.kube.changes import Phase, Status
from kube_policy_scheduler.adapters.kube.recency import Recency


class Step(enum.Enum):
    """What a reflector begins, or what happens to it."""

    BEGIN = "begin"
    LIST = "list"
    LISTED = "listed"
    CONNECT = "connect"
    OPEN = "open"  # the watch
    CLOSE = "close"  # the watch, in order
    FAIL = "fail"
    MISS = "miss"  # the server does not have it
    FORBID = "forbid"


OPEN = frozenset({Phase.CATCHING_UP, Phase.WATCHING})
"""The phases of an open watch; which of the two it is follows from what is known of the view."""
_TRIED = frozenset(Phase) - {Phase.STARTING}

TABLE: Mapping[tuple[Phase, Step], Phase] = MappingProxyType(
    {
        (Phase.STARTING, Step.BEGIN): Phase.STARTING,
        **{(phase, Step.LIST): Phase.LISTING for phase in frozenset(Phase) - OPEN},
        (Phase.LISTING, Step.LISTED): Phase.CONNECTING,
        **{(phase, Step.CONNECT): Phase.CONNECTING for phase in (Phase.CONNECTING, Phase.RETRYING)},
        (Phase.CONNECTING, Step.OPEN): Phase.CATCHING_UP,
        **{(phase, Step.CLOSE): Phase.CONNECTING for phase in OPEN},
        **{(phase, Step.FAIL): Phase.RETRYING for phase in _TRIED},
        **{(phase, Step.MISS): Phase.ABSENT for phase in _TRIED},
        **{(phase, Step.FORBID): Phase.FORBIDDEN for phase in _TRIED},
    }
)
"""What follows a step in a phase. There is no other way from one phase to another, but for the two of an open watch."""


class ViewState:
    """Of one reflector. All times are the event loop's."""

    def __init__(self, on_status: Callable[[], None] = lambda: None) -> None:
        """on_status: called when the status is another."""
        self._on_status = on_status
        self.recency = Recency()
        """To be read; it is changed here only."""
        self._was_current = False
        self.status = Status(Phase.STARTING)
        self.losses = 0
        """How often the view has ceased to be current."""
        self.late_since: float | None = None
        """When the last time began in which it is not known to be current; None while it is, or before `BEGIN`."""

    @property
    def phase(self) -> Phase:
        """What is being done."""
        return self.status.phase

    def take(self, step: Step, now: float, *, problem: str = "", known: float | None = None, position: int = 0) -> None:
        """Take a step.

        Args:
            step: what begins, or has happened.
            now: the time.
            problem: why, where it is a failure; what was wrong stays so until a watch is open.
            known: everything that had happened by then is in the view.
            position: the version that the view has reached.

        Raises:
            ValueError: it cannot be taken in this phase.
        """
        phase = TABLE.get((self.phase, step))
        if phase is None:
            raise ValueError(f"a reflector that is {self.phase.value} cannot {step.value}")
        if known is not None:
            self.recency.known(known)
        self.recency.reach(position)
        if phase in (Phase.LISTING, Phase.CONNECTING):
            problem = self.status.problem
        self._settle(phase, now, problem)

    def reached(self, position: int, now: float) -> None:
        """Record the version of the last change that the handler has received."""
        if self.recency.target is not None:
            self.recency.reach(position)
            self._settle(self.phase, now)

    def answered(self, asked: float, version: int, *, position: int, now: float) -> None:
        """Note that the collection had this version at the earliest when it was asked for."""
        self.recency.aim(asked, version)
        self.reached(position, now)

    def believe(self, now: float) -> None:
        """Take the view to be as new as the answer to the last question."""
        self.recency.reach_target()
        self._settle(self.phase, now)

    def require(self, at: float, now: float) -> None:
        """Let the view count as current only where it has everything that had happened by then."""
        self.recency.require(at)
        self._settle(self.phase, now)

    def promise(self, at: float, now: float, *, version: int | None = None, position: int = 0) -> None:
        """The same, for a caller that needs it; version: one that shows it."""
        self.recency.promise(at)
        if version is not None:
            self.recency.aim(at, version)
            self.recency.reach(position)
        self._settle(self.phase, now)

    def _settle(self, phase: Phase, now: float, problem: str | None = None) -> None:
        """Enter the phase, or the other one of an open watch."""
        if phase in OPEN:
            phase = Phase.WATCHING if self.recency.is_met else Phase.CATCHING_UP
        is_current = phase is Phase.WATCHING or (phase is Phase.CONNECTING and self.recency.is_met)
        if self._was_current and not is_current:
            self.losses += 1
        self._was_current = is_current
        if phase is Phase.WATCHING:
            self.late_since = None
        elif self.late_since is None:
            self.late_since = now
        before = self.status
        since = before.since if phase is before.phase and before.since is not None else now
        status = Status(phase, before.problem if problem is None else problem, since)
        if status != before:
            self.status = status
            self._on_status()
