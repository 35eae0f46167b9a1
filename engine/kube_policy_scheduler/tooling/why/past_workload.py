"""Reports a recorded decision about a workload of a fleet; nothing is decided here. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import closest, printable
from kube_policy_scheduler.times import rfc3339
from kube_policy_scheduler.tooling.fleet_state import UnknownWorkloadError
from kube_policy_scheduler.tooling.text_table import BOLD, DIM, GREEN, RED, Terminal
from kube_policy_scheduler.tooling.why.members import member_lines
from kube_policy_scheduler.tooling.workload_record import RecordedCluster, WorkloadOutcome, WorkloadRecord
from kube_policy_scheduler.wording import plural

_WORDS = {
    WorkloadOutcome.PLACED: "was placed",
    WorkloadOutcome.MOVED: "was moved",
    WorkloadOutcome.UNPLACED: "was not placed",
    WorkloadOutcome.REFUSED: "was decided, but the API server refused it",
    WorkloadOutcome.FAILED: "was decided, but could not be written",
}
_GOOD = (WorkloadOutcome.PLACED, WorkloadOutcome.MOVED)
_EARLIER = 5


@dataclass(frozen=True, slots=True)
class PastWorkload:
    """The last decision about one workload, and those before it."""

    record: WorkloadRecord
    earlier: tuple[WorkloadRecord, ...] = ()
    """Newest first."""

    @property
    def good(self) -> bool:
        """Return whether it got its clusters, from us or from another scheduler."""
        is_theirs = self.record.outcome is WorkloadOutcome.SHADOW and bool(self.record.theirs)
        return is_theirs or self.record.outcome in _GOOD


def past_workload(records: Sequence[WorkloadRecord], name: str, *, namespace: str | None = None) -> PastWorkload:
    """Return what a log says about a workload by `NAME`, `NAMESPACE/NAME`, or the same of the object that was decided.

    Raises:
        UnknownWorkloadError: there is no decision about it, or several workloads have that name.
    """
    wanted = f"{namespace}/{name}" if namespace and "/" not in name else name
    found = [each for each in records if wanted in each.names]
    objects = sorted({each.object for each in found})
    if not found:
        known = {each.key for each in records}
        meant = closest(wanted, known)
        there = f"there are decisions about {plural(len(known), 'workload')}" if known else "there are no decisions"
        advice = f"did you mean `{meant}`?" if meant else f"{there}; --karmada explains what would be decided now"
        raise UnknownWorkloadError(f"there is no decision about `{wanted}`: {advice}")
    if len(objects) > 1:
        listed = ", ".join(objects[:8])
        raise UnknownWorkloadError(f"several workloads are called `{name}`: {listed}; use one of these names")
    newest = sorted(found, key=lambda each: each.time)[::-1]
    return PastWorkload(newest[0], tuple(newest[1:]))


def headline(record: WorkloadRecord) -> str:
    """Return what was decided, in one line."""
    asked = record.workload
    wanted = f", {plural(asked.replicas, 'replica')}" if asked.replicas else ""
    by = f"policy {record.policy}" if record.policy is not None else "its Placement"
    return printable(f"{asked.kind} {record.key}{wanted}, {outcome_of(record)}, by {by}")


def outcome_of(record: WorkloadRecord) -> str:
    """Return what happened, in words."""
    if record.outcome is WorkloadOutcome.SHADOW:
        theirs = f"another scheduler decided {shares(record.theirs)}" if record.theirs else "it was not placed"
        return f"{theirs}; the policies would have decided {shares(record.targets)} ({record.verdict})"
    word = _WORDS[record.outcome]
    return f"{word}: {shares(record.targets)}" if record.outcome in _GOOD else word


def shares(targets: dict[str, int]) -> str:
    """Return replicas by cluster in words, such as `berlin 4, iowa 2`."""
    return ", ".join(f"{name} {count}" if count else name for name, count in sorted(targets.items())) or "nowhere"


def when(record: WorkloadRecord) -> str:
    """Return when it was decided, why then, and how often since."""
    repeats = (
        f", and {record.repeats} more times until {rfc3339(record.last)}" if record.repeats and record.last else ""
    )
    trigger = f", because {record.trigger}" if record.trigger else ""
    policies = f", policies {record.hash[:12]}" if record.hash else ""
    object_ = f"{record.object}, generation {record.generation}"
    return printable(f"decided {rfc3339(record.time)}{trigger}, attempt {record.attempt}{repeats}{policies}, {object_}")


def lines(found: PastWorkload, *, to: Terminal) -> Iterator[str]:
    """Return the record for people."""
    record = found.record
    yield to.paint(GREEN if found.good else RED, headline(record))
    yield to.paint(BOLD, printable(f"{record.reason}: {record.message}" if record.reason else record.message))
    yield to.paint(DIM, when(record))
    if record.unread:
        yield printable(f"The labels and annotations of the template were missing: {record.unread}")
    if record.clusters:
        yield ""
        rows = [("cluster", "why", "had", "got", "room", "score")]
        rows += [_row(each) for each in record.clusters]
        yield from to.table(rows, right_from=2)
        if (left := record.total - len(record.clusters)) > 0:
            yield to.paint(DIM, f"and {plural(left, 'other cluster')}")
    yield from member_lines(((each.cluster, each.read_at, each.unread) for each in record.clusters), now=record.time)
    if record.rejected:
        told = ", ".join(f"{rule} ({count})" for rule, count in record.rejected.items())
        yield printable(f"Clusters that each rule rejects: {told}.")
    if found.earlier:
        yield ""
        yield to.paint(BOLD, "Before that:")
        for each in found.earlier[:_EARLIER]:
            yield printable(f"  {rfc3339(each.time)}  {outcome_of(each)}")
        if len(found.earlier) > _EARLIER:
            yield to.paint(DIM, f"  and {plural(len(found.earlier) - _EARLIER, 'earlier decision')}")


def _row(each: RecordedCluster) -> tuple[str, str, str, str, str, str]:
    room = "" if each.room is None else f"{each.room} ({each.room_by or 'nobody counted'})"
    why = f"rejected by {each.rejected_by}: {each.why}" if each.rejected_by else each.why
    score = "" if each.score is None else f"{each.score:g}"
    return printable(each.cluster), printable(why), str(each.has), str(each.gets), room, score


def data(found: PastWorkload) -> dict[str, Any]:
    """Return the record as plain values: what people read, and all that was recorded."""
    return {
        "headline": headline(found.record),
        "when": when(found.record),
        "good": found.good,
        "record": msgspec.to_builtins(found.record),
        "earlier": [{"time": rfc3339(each.time), "outcome": outcome_of(each)} for each in found.earlier],
    }
