"""What a fleet's daemon keeps for those who ask: its decisions, in memory and in files, and its policies."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kube_policy_scheduler.adapters.process.spare_time import SpareTime
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.fleet.engine import FleetDecision
from kube_policy_scheduler.daemon.fleet.workload_log import WorkloadLog
from kube_policy_scheduler.daemon.modes.shadow_report import ComparisonReport
from kube_policy_scheduler.daemon.observing.decision_file import DecisionFile
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord
from kube_policy_scheduler.policy.fleet_policies import NO_FLEET_POLICIES, FleetPolicies
from kube_policy_scheduler.tooling.decision_record import encode
from kube_policy_scheduler.tooling.why.past_workload import shares
from kube_policy_scheduler.tooling.workload_record import (
    WorkloadOutcome,
    WorkloadRecord,
    recorded_clusters,
    rejections,
)

logger = logging.getLogger(__name__)

RECENT_RELOADS = 10


class FleetRecords:
    """All that is kept from the first decision on."""

    def __init__(
        self,
        settings: DecisionLogSettings,
        *,
        replica: str,
        shadow: ComparisonReport | None = None,
        compared: Callable[[str, str, Iterable[str]], None] = lambda policy, verdict, clauses: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keep nothing yet.

        Args:
            settings: of the decision log.
            replica: identity of this decision maker.
            shadow: counts how decisions of another scheduler compare with ours; None: we decide.
            compared: called for each comparison, with the policy, the verdict, and the clauses that reject.
            clock: Unix seconds.

        Raises:
            FileError: the decision log cannot be written.
        """
        self.file = DecisionFile(settings)
        self.log = WorkloadLog(settings, hand_on=self._write)
        self.spare_time = SpareTime()
        self.policies: FleetPolicies = NO_FLEET_POLICIES
        """Those in force."""
        self.hash = ""
        self.generation = 0
        self.reloads: deque[ReloadRecord] = deque(maxlen=RECENT_RELOADS)
        """The newest first."""
        self.shadow = shadow
        self._compared = compared
        self._replica = replica
        self._clock = clock

    def use_policies(self, policies: FleetPolicies, record: ReloadRecord) -> None:
        """Note the policies that decide from now on."""
        self.policies, self.hash, self.generation = policies, record.hash or "", record.generation

    def reloaded(self, record: ReloadRecord) -> None:
        """Note what became of policies that came."""
        self.reloads.appendleft(record)

    def note(self, decision: FleetDecision, seconds: float) -> None:
        """Keep what became of a workload. seconds: that the decision took."""
        outcome, now = decision.outcome, self._clock()
        record = self._record(decision, seconds, now)
        _tell(record, is_new=self.log.note(record))
        if decision.compared is not None and self.shadow is not None:
            self._compared(outcome.policy or "", record.verdict, decision.clauses)
            self.shadow.count(outcome.policy or "", decision.compared, decision.clauses, _told(decision, now))

    def _record(self, decision: FleetDecision, seconds: float, now: float) -> WorkloadRecord:
        outcome = decision.outcome
        return WorkloadRecord(
            time=now,
            workload=decision.workload,
            object="/".join(filter(None, decision.key)),
            outcome=decision.became,
            generation=decision.generation,
            trigger=decision.trigger,
            reason=outcome.reason.value,
            message=decision.problem or outcome.message,
            policy=outcome.policy,
            hash=self.hash,
            unread=decision.unread,
            before=dict(decision.before),
            targets=dict(outcome.targets),
            theirs=dict(decision.theirs),
            verdict=decision.compared.value if decision.compared is not None else "",
            term=outcome.term or "",
            clusters=recorded_clusters(outcome, {**dict.fromkeys(decision.theirs, 0), **decision.before}),
            total=len(outcome.verdicts),
            rejected=rejections(outcome),
            attempt=decision.attempt,
            seconds=seconds,
            replica=self._replica,
        )

    def _write(self, record: WorkloadRecord, size: int) -> None:
        self.file.put(partial(encode, record), size=size)


def _tell(record: WorkloadRecord, *, is_new: bool) -> None:
    """Log what became of a workload; what says the same again is for those who look closely."""
    text, level = _LOGGED[record.outcome]
    fields = {
        "workload": record.key,
        "object": record.object,
        "clusters": shares(record.targets) if record.targets else "",
        "policy": record.policy,
        "verdict": record.verdict,
        "why": record.message if record.outcome not in _GOOD else "",
    }
    shown = {name: value for name, value in fields.items() if value}
    logger.log(level if is_new else logging.DEBUG, text, extra=shown)


_GOOD = (WorkloadOutcome.PLACED, WorkloadOutcome.MOVED)
_LOGGED = {
    WorkloadOutcome.PLACED: ("Placed workload", logging.INFO),
    WorkloadOutcome.MOVED: ("Moved replicas of workload", logging.INFO),
    WorkloadOutcome.UNPLACED: ("Unable to place workload", logging.INFO),
    WorkloadOutcome.REFUSED: ("The API server refused the decision about a workload", logging.WARNING),
    WorkloadOutcome.FAILED: ("Error writing the decision about a workload; retrying", logging.WARNING),
    WorkloadOutcome.SHADOW: ("Compared workload", logging.INFO),
}


def _told(decision: FleetDecision, now: float) -> dict[str, Any]:
    """Return a comparison as plain values, without what is empty."""
    assert decision.compared is not None
    values = {
        "time": now,
        "workload": decision.workload.key,
        "verdict": decision.compared.value,
        "policy": decision.outcome.policy,
        "ours": dict(decision.outcome.targets),
        "theirs": dict(decision.theirs),
        "why": decision.problem,
        "clauses": sorted(decision.clauses),
    }
    return {name: value for name, value in values.items() if value}
