"""The status page of a fleet: what is on it, and how it is written. Knows neither fleet nor HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kube_policy_scheduler.pages.environment import page
from kube_policy_scheduler.pages.status import (
    REFRESH_SECONDS,
    Headline,
    MetricRow,
    Page,
    PolicyFile,
    Reload,
    Shadow,
    Tone,
    content_security_policy,
)
from kube_policy_scheduler.times import ago, date_and_time, duration


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """Workloads that have no place for one reason."""

    outcome: str
    why: str
    rejections: Sequence[tuple[str, int]]
    """Each rule with the clusters that it rejects."""
    clusters: int
    """That were looked at."""
    workloads: int
    examples: Sequence[str]
    oldest_seconds: float
    policy: str


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a resource."""

    text: str
    share: float | None
    """None: the cluster does not say."""


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A member cluster."""

    name: str
    state: str
    tone: Tone
    place: str
    """Provider and region."""
    uses: Sequence[Share]
    """In the order of `FleetStatus.resources`."""
    workloads: int
    replicas: int
    room: str
    """The last answer about its room: for which workload, who counted it, and when."""


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """What was said about a cluster in one decision."""

    name: str
    why: str
    has: int
    gets: int
    room: str
    score: str


@dataclass(frozen=True, slots=True)
class WorkloadDecision:
    """One decision and its explanation."""

    at: float
    workload: str
    outcome: str
    tone: Tone
    result: str
    why: str
    facts: Sequence[str]
    clusters: Sequence[ClusterVerdict]
    left_out: int
    rejections: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """Everything on the page."""

    at: float
    """Unix seconds."""
    title: str
    lead: str
    verdict: Headline
    figures: Sequence[tuple[str, str]]
    waiting: Sequence[WaitingGroup]
    waiting_left_out: int
    resources: Sequence[str]
    clusters: Sequence[ClusterRow]
    clusters_left_out: int
    policies: Sequence[PolicyFile]
    counted: str
    reloads: Sequence[Reload]
    decisions: Sequence[WorkloadDecision]
    metrics: Sequence[MetricRow]
    replica: Sequence[tuple[str, str]]
    shadow: Shadow | None = None
    """None if this replica decides, and does not only look on."""


def render(status: FleetStatus) -> Page:
    """Return the page."""
    html = page(
        "fleet_status.html",
        s=status,
        refresh_seconds=REFRESH_SECONDS,
        ago=lambda at: ago(status.at - at),
        clock=date_and_time,
        duration=duration,
    )
    return Page(html, content_security_policy(html))
