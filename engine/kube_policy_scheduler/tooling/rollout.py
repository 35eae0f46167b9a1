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

    heard: ReplicaReport
    state: State

    @property
    def text(self) -> str:
        """Return what people read about it."""
        heard = self.heard
        match self.state:
            case State.LIVE:
                return "live"
            case State.WAITS:
                return "waits for its kubelet to bring it" if heard.active else "has no policies yet"
            case State.REFUSED:
                return f"{heard.result}: {heard.problem or 'see its log'}"
            case State.SILENT:
                return f"not heard of for {duration(max(0.0, heard.silent_seconds))}"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One policy set on its way to all replicas."""

    wanted: str
    """Its hash."""
    replicas: tuple[ReplicaState, ...]
    expected: int | None
    """How many replicas there should be; None where nobody knows."""

    @property
    def live(self) -> int:
        """Return how many decide by it."""
        return sum(1 for each in self.replicas if each.state is State.LIVE)

    @property
    def total(self) -> int:
        """Return how many have to."""
        heard = sum(1 for each in self.replicas if each.state is not State.SILENT)
        return max(heard, self.expected or 0)

    @property
    def is_done(self) -> bool:
        """Return whether all do."""
        return 0 < self.live == self.total

    @property
    def is_refused(self) -> bool:
        """Return whether waiting cannot help: somebody has it and does not take it."""
        return any(each.state is State.REFUSED for each in self.replicas)


def judge(heard: Sequence[ReplicaReport], *, wanted: str, expected: int | None, stale_seconds: float) -> Rollout:
    """Return where a rollout stands.

    Args:
        heard: what the replicas said.
        wanted: the hash of the policies in the API server.
        expected: how many replicas there should be, None if that is not known.
        stale_seconds: a replica not heard of for longer does not count.
    """
    states = tuple(ReplicaState(each, _state(each, wanted, stale_seconds)) for each in heard)
    return Rollout(wanted, states, expected)


def _state(heard: ReplicaReport, wanted: str, stale_seconds: float) -> State:
    if heard.silent_seconds > stale_seconds:
        return State.SILENT
    if heard.active == wanted and heard.result != "unreadable":
        return State.LIVE
    if heard.result == "unreadable" or (heard.result in ("refused", "failed") and heard.candidate == wanted):
        return State.REFUSED
    return State.WAITS


def lines(rollout: Rollout, *, where: str, to: Terminal) -> Iterator[str]:
    """Yield a rollout as people read it. where: names the ConfigMap."""
    yield f"policy set {rollout.wanted} in {where}"
    if rollout.replicas:
        rows = [
            (
                each.heard.name,
                each.heard.active or "none",
                each.heard.active and short_duration(max(0, int(each.heard.since_seconds))),
                each.text,
            )
            for each in rollout.replicas
        ]
        yield from to.table([("replica", "decides by", "for", "state"), *rows], right_from=4)
    yield verdict(rollout)


def verdict(rollout: Rollout) -> str:
    """Return a rollout in one line."""
    if not rollout.total:
        return "no replica has said what it decides by"
    some = f"{rollout.live} of {plural(rollout.total, 'replica')} decide by it"
    heard = sum(1 for each in rollout.replicas if each.state is not State.SILENT)
    missing = rollout.total - heard
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
                "replica": each.heard.name,
                "state": each.state.value,
                "active": each.heard.active or None,
                "candidate": each.heard.candidate or None,
                "result": each.heard.result or None,
                "problem": each.heard.problem or None,
                "activeSeconds": round(each.heard.since_seconds, 1) if each.heard.active else None,
                "silentSeconds": round(each.heard.silent_seconds, 1),
            }
            for each in rollout.replicas
        ],
    }
