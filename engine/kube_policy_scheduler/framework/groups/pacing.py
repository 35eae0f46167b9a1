"""When a gang that does not fit is tried again as a whole. Knows gangs and times, not pods.

To try a gang is to decide all of its members. So it is not tried again while nothing has changed, and after a try
that failed it pauses for twenty times as long as the try took, and all others for five times as long: however large
gangs are, and however many, tries that fail take a sixth of the time at most.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from itertools import count

import msgspec

from kube_policy_scheduler.framework.permit import Group
from kube_policy_scheduler.times import Steady

PAUSE_FACTOR = 20.0
OTHERS_FACTOR = 5.0
MOST_PAUSE_SECONDS = 60.0
MOST_DOUBLINGS = 4
"""The pause doubles with every further try that fails, so often."""
MOST_RESTS = 4
"""After this many time-outs a gang's rests grow no longer: 2^4 times as long as it holds places."""
KEPT_WITHOUT_PODS = 1000
"""Gangs without pending pods of which it is kept what happened to them: those that come again soon."""


class _Record(msgspec.Struct):
    touched: float
    state: Hashable = None
    """Of everything, when the gang was last tried and did not fit."""
    spent: float = 0.0
    """Seconds that the try under way has taken so far."""
    tried_again_at: float = 0.0
    failures: int = 0
    verdict: str = ""
    """What the last try that failed came to, for people."""
    rests_until: float = 0.0
    timeouts: int = 0
    wanted_at: float | None = None
    """When it is to be tried again though no event says so; None: never."""


class GangPacing:
    """What happened to gangs so far."""

    def __init__(self, *, in_use: Callable[[Group], bool]) -> None:
        """in_use: whether a gang has pending pods; of others a limited number is kept."""
        self._in_use = in_use
        self._records: dict[Group, _Record] = {}
        self._wanted: list[tuple[float, int, Group]] = []
        """A heap; an entry is stale where its gang is wanted at another time, or not at all."""
        self._numbers = count()
        self._free_at = 0.0
        """Until when no gang is tried."""
        self._clean_at = 2 * KEPT_WITHOUT_PODS

    def __len__(self) -> int:
        return len(self._records)

    # --- tries ---------------------------------------------------------------------------------------

    def may_try(self, group: Group, state: Hashable, now: Steady) -> bool:
        """Return whether a gang may be tried now; where it must pause first, `due` names it afterwards.

        state: of all that a decision may depend on.
        """
        record = self._records.get(group)
        if record is not None and record.state == state:
            return False
        again_at = max(self._free_at, record.tried_again_at if record is not None else 0.0)
        if again_at > now:
            self._want(group, self._record(group, now), again_at)
            return False
        return True

    def went_on(self, group: Group, now: Steady, *, seconds: float) -> None:
        """Note that a try, which is not at its end, took so many seconds more."""
        self._record(group, now).spent += seconds

    def failed(self, group: Group, state: Hashable, now: Steady, *, seconds: float, verdict: str) -> None:
        """Note that a gang was tried, at the end for so many seconds, and does not fit."""
        record, end = self._record(group, now), now + seconds
        seconds, record.spent = seconds + record.spent, 0.0
        pause = seconds * PAUSE_FACTOR * 2.0 ** min(record.failures, MOST_DOUBLINGS)
        record.state, record.tried_again_at, record.verdict = state, end + min(pause, MOST_PAUSE_SECONDS), verdict
        record.failures += 1
        self._free_at = end + min(seconds * OTHERS_FACTOR, MOST_PAUSE_SECONDS)

    def verdict(self, group: Group) -> str:
        """Return what the last try that failed came to; "" where there was none."""
        record = self._records.get(group)
        return record.verdict if record is not None else ""

    def succeeded(self, group: Group) -> None:
        """Note that a gang fits: what failed before says nothing any more."""
        record = self._records.get(group)
        if record is not None:
            record.state, record.tried_again_at, record.failures, record.verdict = None, 0.0, 0, ""
            record.spent = 0.0
            record.rests_until, record.wanted_at = 0.0, None

    def complete(self, group: Group) -> None:
        """Forget a gang that has started."""
        self._records.pop(group, None)

    # --- rests ---------------------------------------------------------------------------------------

    def rest(self, group: Group, now: Steady, *, held_seconds: float) -> None:
        """Let a gang rest that held places without use: for twice as long, and longer each time."""
        record = self._record(group, now)
        record.timeouts += 1
        record.rests_until = now + held_seconds * 2.0 ** min(record.timeouts, MOST_RESTS)

    def rests(self, group: Group, now: Steady) -> bool:
        """Return whether a gang must hold no places now."""
        record = self._records.get(group)
        return record is not None and record.rests_until > now

    def look_again(self, group: Group, now: Steady, *, after_seconds: float) -> None:
        """Have `due` name a gang that rests once more: at the end of its rest, or earlier after so many seconds."""
        record = self._record(group, now)
        self._want(group, record, min(record.rests_until, max(record.tried_again_at, now + after_seconds)))

    def look_at(self, group: Group, at: float) -> None:
        """Have `due` name a gang at a time, unless it is to be named anyway."""
        record = self._record(group, Steady(at))
        if record.wanted_at is None:
            self._want(group, record, at)

    # --- time ----------------------------------------------------------------------------------------

    def due(self, now: Steady) -> Group | None:
        """Return a gang that is to be tried again now, and was not returned for the same reason before; None: none."""
        at = self.next_due()
        if at is None or at > now:
            return None
        group = heapq.heappop(self._wanted)[2]
        self._records[group].wanted_at = None
        return group

    def next_due(self) -> float | None:
        """Return when the next gang is to be tried again."""
        heap = self._wanted
        while heap and not self._is_wanted(heap[0]):
            heapq.heappop(heap)
        return max(heap[0][0], self._free_at) if heap else None

    # --- records -------------------------------------------------------------------------------------

    def _record(self, group: Group, now: Steady) -> _Record:
        record = self._records.get(group)
        if record is None:
            if len(self._records) >= self._clean_at:
                self._clean()
            record = self._records[group] = _Record(now)
        record.touched = now
        return record

    def _clean(self) -> None:
        unused = [(record.touched, group) for group, record in self._records.items() if not self._in_use(group)]
        unused.sort(key=lambda each: each[0])
        for _, group in unused[:-KEPT_WITHOUT_PODS]:
            del self._records[group]
        self._clean_at = 2 * len(self._records) + KEPT_WITHOUT_PODS

    def _want(self, group: Group, record: _Record, at: float) -> None:
        if record.wanted_at is None or at < record.wanted_at:
            record.wanted_at = at
            heapq.heappush(self._wanted, (at, next(self._numbers), group))

    def _is_wanted(self, entry: tuple[float, int, Group]) -> bool:
        record = self._records.get(entry[2])
        return record is not None and record.wanted_at == entry[0]
