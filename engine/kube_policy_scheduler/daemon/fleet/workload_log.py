"""What was decided recently about workloads, and why: kept in memory, handed on for a file. Does no I/O itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

import msgspec

from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.tooling.workload_record import WorkloadOutcome, WorkloadRecord

MOST_BYTES = 64 * 2**20
"""Of what is kept: records of large fleets shorten the log."""
_RECORD_BYTES = 800
_CLUSTER_BYTES = 250
"""About what a record, and each cluster in it, take in memory beside their texts."""
_AT_ONCE = 200
"""Records that are looked at in one step."""


class LoggedDecision(msgspec.Struct, eq=False):
    """A record, and how often the same was decided since."""

    record: WorkloadRecord
    size: int
    repeats: int = 0
    last: float = 0.0

    def document(self) -> WorkloadRecord:
        """Return the record of now."""
        if not self.repeats:
            return self.record
        return msgspec.structs.replace(self.record, repeats=self.repeats, last=self.last)


class WorkloadLog:
    """The last decisions of this replica."""

    def __init__(
        self,
        settings: DecisionLogSettings,
        *,
        hand_on: Callable[[WorkloadRecord, int], object] = lambda record, size: None,
    ) -> None:
        """Make an empty log.

        Args:
            settings: how many are kept (fewer if they are large: `MOST_BYTES`), and for how long a failed decision that
                says the same again is only counted.
            hand_on: given every new record with the bytes that it takes; must return at once.
        """
        self._most = settings.kept
        self._repeat_seconds = settings.repeat_after
        self._hand_on = hand_on
        self._entries: deque[LoggedDecision] = deque()
        self._latest: dict[str, LoggedDecision] = {}
        """By object."""
        self._bytes = 0
        self.decided = 0
        """Decisions so far, repeated ones included."""

    def note(self, record: WorkloadRecord) -> bool:
        """Keep a decision, and return whether it says anything new: else it is counted with the one before."""
        self.decided += 1
        if self._is_repeated(record):
            return False
        parts = len(record.clusters) + (len(record.before) + len(record.targets) + len(record.theirs)) // 4
        of_clusters = sum(len(each.why) + len(each.rejected_by) + len(each.unread) for each in record.clusters)
        texts = of_clusters + sum(map(len, record.rejected))
        size = _RECORD_BYTES + _CLUSTER_BYTES * parts + len(record.message) + texts
        self._hand_on(record, size)
        if not self._most:
            return True
        entry = LoggedDecision(record, size)
        self._entries.append(entry)
        self._latest[record.object] = entry
        self._bytes += entry.size
        while len(self._entries) > self._most or (self._bytes > MOST_BYTES and len(self._entries) > 1):
            oldest = self._entries.popleft()
            self._bytes -= oldest.size
            if self._latest.get(oldest.record.object) is oldest:
                del self._latest[oldest.record.object]
        return True

    def _is_repeated(self, record: WorkloadRecord) -> bool:
        entry = self._latest.get(record.object)
        if entry is None or record.outcome in (WorkloadOutcome.PLACED, WorkloadOutcome.MOVED, WorkloadOutcome.SHADOW):
            return False
        last = entry.record
        if (last.outcome, last.reason, last.message, last.hash) != (
            record.outcome,
            record.reason,
            record.message,
            record.hash,
        ) or not 0 <= record.time - last.time < self._repeat_seconds:
            return False
        entry.repeats += 1
        entry.last = record.time
        return True

    # --- reading -------------------------------------------------------------------------------------

    def latest(self, name: str) -> WorkloadRecord | None:
        """Return the last decision about an object by `namespace/name`; None if none is kept."""
        entry = self._latest.get(name)
        return entry.document() if entry is not None else None

    def newest(self, count: int) -> list[WorkloadRecord]:
        """Return the newest decisions, the newest first."""
        entries = reversed(self._entries)
        return [entry.document() for entry, _ in zip(entries, range(count), strict=False)]

    def select(
        self, *, workload: str = "", cluster: str = "", outcome: str = "", limit: int
    ) -> Generator[None, None, list[WorkloadRecord]]:
        """Return the newest decisions that match, the newest first; yields now and then.

        Args:
            workload: its name or `namespace/name`, or that of the object that was decided; "" for any.
            cluster: that gets replicas, or loses them; "" for any.
            outcome: value of a `WorkloadOutcome`; "" for any.
            limit: how many at most.
        """
        found: list[WorkloadRecord] = []
        for at, entry in enumerate(reversed(list(self._entries))):
            if len(found) >= limit:
                break
            if at % _AT_ONCE == _AT_ONCE - 1:
                yield
            record = entry.record
            if (
                (not workload or workload in record.names)
                and (not outcome or outcome == record.outcome.value)
                and (not cluster or cluster in record.targets or cluster in record.before)
            ):
                found.append(entry.document())
        return found
