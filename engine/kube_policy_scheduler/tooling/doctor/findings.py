"""What an examination finds, as values, as text and as JSON. "Could not check" is never a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.lang.environment import Pods
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.cluster_state import ClusterState
from kube_policy_scheduler.tooling.text_table import BOLD, GREEN, MAGENTA, RED, YELLOW, Terminal


class Status(Enum):
    """How one thing is."""

    OK = "ok"
    WARNING = "warning"
    """Probably not meant."""
    PROBLEM = "problem"
    """Surely not meant: something does not work."""
    UNCHECKED = "could-not-check"
    """Nobody knows."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """Which kind of thing: labels, metrics, filters, …"""
    subject: str
    """What was looked at, as the policies write it."""
    status: Status
    text: str
    place: str = ""
    """`FILE:LINE:COLUMN` where a policy says it."""
    advice: str = ""
    """What to do."""


@dataclass(frozen=True)
class Inspection:
    """What is examined."""

    state: ClusterState
    policy_set: PolicySet
    now: float
    """Unix seconds."""
    signals: Signals = Signals.EMPTY
    unanswered: Mapping[str, str] = field(default_factory=dict)
    """By query: why nobody knows its value."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By query: why Prometheus itself has no value for it."""
    measured: bool = False
    """Whether there are metrics at all."""
    live_metrics: bool = False
    """Whether they were asked just now, so that they tell of Prometheus' clock."""
    seed: int = 0
    counted: Pods | None = None
    """Of the environment that the policies were checked with; None: models are not looked at."""

    @cached_property
    def governed(self) -> dict[str, list[objects.Pod]]:
        """Return the unfinished pods by the name of the policy that governs them."""
        found: dict[str, list[objects.Pod]] = {policy.name: [] for policy in self.policy_set.policies}
        for pod in self.pods:
            governing = self.policy_set.governing(self.state.cluster.templates.pod(pod))
            if governing is not None:
                found[governing.name].append(pod)
        return found

    @cached_property
    def pods(self) -> list[objects.Pod]:
        """Return all pods that are not done, those that wait first, by name."""
        alive = [pod for pod in self.state.pods.values() if pod.status.phase not in ("Succeeded", "Failed")]
        return sorted(alive, key=lambda pod: (bool(pod.spec.node_name), pod.metadata.namespace, pod.metadata.name))

    def policy(self, name: str) -> Policy:
        """Return a policy by its name."""
        found = self.policy_set.named(name)
        assert found is not None
        return found


_MARKS = {Status.OK: "ok", Status.WARNING: "warning", Status.PROBLEM: "PROBLEM", Status.UNCHECKED: "could not check"}
_STYLES = {Status.OK: GREEN, Status.WARNING: YELLOW, Status.PROBLEM: RED, Status.UNCHECKED: MAGENTA}
_ORDER = (Status.PROBLEM, Status.WARNING, Status.UNCHECKED, Status.OK)


def lines(findings: Sequence[Finding], *, to: Terminal, quiet: bool = False) -> Iterator[str]:
    """Yield the findings kind by kind, the worst first; `quiet` leaves out what is well."""
    width = max(map(len, _MARKS.values()))
    for check in dict.fromkeys(one.check for one in findings):
        mine = [one for one in findings if one.check == check and not (quiet and one.status is Status.OK)]
        if not mine:
            continue
        yield to.paint(BOLD, check)
        for one in sorted(mine, key=lambda one: _ORDER.index(one.status)):
            place = f"  ({one.place})" if one.place and one.status is not Status.OK else ""
            mark = f"  {_MARKS[one.status]:<{width}}  "
            yield from to.item(mark, f"{one.subject}: {one.text}{place}", style=_STYLES[one.status])
            if one.advice:
                yield from to.item(" " * (len(mark) + 2), one.advice)
        yield ""
    yield summary(findings)


def summary(findings: Sequence[Finding]) -> str:
    """Return how many there are of each kind, in one line."""
    counts = Counter(one.status for one in findings)
    plural = {Status.PROBLEM: "problems", Status.WARNING: "warnings"}
    parts = [
        f"{counts[status]} {plural.get(status, _MARKS[status]) if counts[status] != 1 else _MARKS[status].lower()}"
        for status in _ORDER
    ]
    return ", ".join(parts)


def data(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings for programs."""
    counts = Counter(one.status for one in findings)
    return {
        "headline": summary(findings),
        "counts": {status.value: counts[status] for status in _ORDER},
        "findings": [
            {
                "check": one.check,
                "subject": one.subject,
                "status": one.status.value,
                "text": one.text,
                "place": one.place,
                "advice": one.advice,
            }
            for one in findings
        ],
    }
