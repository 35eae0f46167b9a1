"""Whether all replicas of a scheduler decide by the policies that were rolled out. Pure: knows no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kube_policy_scheduler.times import duration, short_duration
from kube_policy_scheduler.tooling.text_table import Terminal
from kube_policy_scheduler.wording import plural


class State(Enum):
    """Where one replica stands."""

    LIVE = "live"
    WAITS = "waits"
    """Its kubelet has not brought the policies yet, or it prepares them."""
    REFUSED = "refused"
    """It has them, and does not take them over."""
    SILENT = "silent"
    """It has not been heard of for long."""


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a replica said of itself."""

    name: str
    active: str
    """Hash of the policies that decide, "" for none."""
    since_seconds: float
    """For how long they have decided."""
    silent_seconds: float
    """Since it was last heard of."""
    candidate: str
    """Hash of the newest that came to it, "" where that could not be read."""
    result: str
    """`accepted`, `refused`, `unreadable`, `failed`, or "" before the first."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica, judged."""

    report: ReplicaReport
    state: State

    def text(self, *, mounted: bool) -> str:
        """Return what people read about it. mounted: whether the policies come as a volume, which a kubelet writes."""
        report = self.report
        match self.state:
            case State.LIVE:
                return "live"
            case State.WAITS:
                if not report.active:
                    return "has no policies yet"
                return "waits for its kubelet to bring it" if mounted else "does not use it yet"
            case State.REFUSED:
                return f"{report.result}: {report.problem or 'see its log'}"
            case State.SILENT:
                return f"no report for {duration(max(0.0, report.silent_seconds))}"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One policy set on its way to all replicas."""

    wanted: str
    """Its hash."""
    replicas: tuple[ReplicaState, ...]
    expected: int | None
    """The wanted number of replicas; None if unknown."""

    @property
    def live(self) -> int:
        """Return how many decide by it."""
        return sum(1 for each in self.replicas if each.state is State.LIVE)

    @property
    def total(self) -> int:
        """Return how many have to."""
        reporting = sum(1 for each in self.replicas if each.state is not State.SILENT)
        return max(reporting, self.expected or 0)

    @property
    def is_done(self) -> bool:
        """Return whether all do."""
        return 0 < self.live == self.total

    @property
    def is_refused(self) -> bool:
        """Return whether waiting cannot help: a replica has the policies and rejects them."""
        return any(each.state is State.REFUSED for each in self.replicas)


def judge(reports: Sequence[ReplicaReport], *, wanted: str, expected: int | None, stale_seconds: float) -> Rollout:
    """Return where a rollout stands.

    Args:
        reports: what the replicas said.
        wanted: the hash of the policies in the API server.
        expected: how many replicas there should be, None if that is not known.
        stale_seconds: a replica no report for longer does not count.
    """
    states = tuple(ReplicaState(each, _state(each, wanted, stale_seconds)) for each in reports)
    return Rollout(wanted, states, expected)


def _state(report: ReplicaReport, wanted: str, stale_seconds: float) -> State:
    if report.silent_seconds > stale_seconds:
        return State.SILENT
    if report.active == wanted and report.result != "unreadable":
        return State.LIVE
    if report.result == "unreadable" or (report.result in ("refused", "failed") and report.candidate == wanted):
        return State.REFUSED
    return State.WAITS


def lines(rollout: Rollout, *, where: str, to: Terminal, mounted: bool = True) -> Iterator[str]:
    """Yield a rollout as people read it.

    Args:
        rollout: as judged.
        where: names the ConfigMap, or what else contains the policies.
        to: the terminal.
        mounted: whether the policies come to the replicas as a volume.
    """
    yield f"policy set {rollout.wanted} in {where}"
    if rollout.replicas:
        rows = [
            (
                each.report.name,
                each.report.active or "none",
                each.report.active and short_duration(max(0, int(each.report.since_seconds))),
                each.text(mounted=mounted),
            )
            for each in rollout.replicas
        ]
        yield from to.table([("replica", "decides by", "for", "state"), *rows], right_from=4)
    yield verdict(rollout)


def verdict(rollout: Rollout) -> str:
    """Return a rollout in one line."""
    if not rollout.total:
        return "no replica has reported its policies"
    some = f"{rollout.live} of {plural(rollout.total, 'replica')} decide by it"
    reporting = sum(1 for each in rollout.replicas if each.state is not State.SILENT)
    missing = rollout.total - reporting
    return f"{some}; {missing} {'has' if missing == 1 else 'have'} not been heard of" if missing else some


def data(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout for programs."""
    return {
        "policySet": rollout.wanted,
        "done": rollout.is_done,
        "refused": rollout.is_refused,
        "live": rollout.live,
        "replicas": rollout.total,
        "states": [
            {
                "replica": each.report.name,
                "state": each.state.value,
                "active": each.report.active or None,
                "candidate": each.report.candidate or None,
                "result": each.report.result or None,
                "problem": each.report.problem or None,
                "activeSeconds": round(each.report.since_seconds, 1) if each.report.active else None,
                "silentSeconds": round(each.report.silent_seconds, 1),
            }
            for each in rollout.replicas
        ],
    }
