"""The status page of a running scheduler: what is on it, and how it is written. Knows neither scheduler nor HTTP.

Works without scripts; with them it renews itself in place and names nodes under the pointer. Nothing on it changes
anything, and nothing is fetched but the page itself.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from kube_policy_scheduler.pages.environment import page
from kube_policy_scheduler.pages.heat_map import Nodes, columns_of, fullest, heat_map, pointed_at
from kube_policy_scheduler.times import ago, date_and_time, duration

Tone = Literal["good", "warn", "bad", "quiet"]
REFRESH_SECONDS = 5


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """Pods that wait for one reason."""

    place: str
    why: str
    reasons: Sequence[tuple[str, int]]
    """Each reason with the nodes that it refuses."""
    pods: int
    examples: Sequence[str]
    oldest_seconds: float
    policy: str
    nodes: int = 0
    """Nodes in the cluster when it was decided."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods of which none binds before enough have a place."""

    name: str
    rule: str
    """The clause, or the PodGroup."""
    size: int
    placed: int
    """Members with a place, those that hold theirs for the others included."""
    holding: int
    pending: int
    missing: int
    left_seconds: float | None
    """Until places are given back; None where none is held."""
    domain: str = ""
    """The domain that its members share; "" if there is none."""


@dataclass(frozen=True, slots=True)
class ClauseNote:
    """What a clause said so far."""

    text: str
    tone: Tone = "quiet"
    share: float | None = None
    """Of the nodes rejected, for a bar."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a policy and what its clause said."""

    number: int
    text: str
    notes: Sequence[ClauseNote] = ()


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The text of one source."""

    name: str
    lines: Sequence[Line]
    about: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of Kubernetes and what it said so far."""

    name: str
    policy: str
    said: str


@dataclass(frozen=True, slots=True)
class Reload:
    """One policy set that came."""

    at: float
    result: str
    tone: Tone
    hash: str
    generation: int
    took_seconds: float
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class Ranking:
    """One of the best nodes of a decision, its scores in the order of `RecentDecision.clauses`."""

    node: str
    total: float
    scores: Sequence[float]


@dataclass(frozen=True, slots=True)
class RecentDecision:
    """One decision and its explanation."""

    at: float
    pod: str
    outcome: str
    tone: Tone
    node: str
    why: str
    policy: str
    facts: Sequence[str]
    clauses: Sequence[str]
    ranking: Sequence[Ranking]
    refused: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One query of the live policies."""

    query: str
    age_seconds: float | None
    series: int
    missing_nodes: int | None
    """Nodes without a value in the last decision that was looked at; None where none was."""
    fetch_seconds: float
    degraded: bool


@dataclass(frozen=True, slots=True)
class Headline:
    """Whether all is well, in one sentence."""

    tone: Tone
    text: str
    more: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ShadowRow:
    """What one policy would have done with the pods of another scheduler."""

    policy: str
    pods: Sequence[int]
    """In the order of `Shadow.verdicts`."""
    margin: str
    clauses: str
    """Those that refuse, in words."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """How another scheduler's placements compare with ours."""

    text: str
    verdicts: Sequence[str]
    rows: Sequence[ShadowRow]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """The devices of one driver on one node."""

    node: str
    driver: str
    devices: int
    used: int
    by: str
    """Who has some of them."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that pods claim."""

    text: str
    rows: Sequence[DeviceRow]
    left_out: int
    """Nodes that are not among the rows."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One resource of a queue of quotas."""

    name: str
    """With its depth as spaces; "" in the further rows of a queue."""
    resource: str
    guaranteed: str
    used: str
    will: str
    """What is used when the evictions under way are done."""
    borrowed: str
    guaranteed_units: str
    """Pods and gangs that are guaranteed by the resource in the queue."""
    borrowed_units: str
    """Those that borrow there, and hold some of it."""
    most: str
    share: str
    pods: str
    pending: str


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues."""

    rows: Sequence[QueueRow]
    left_out: int
    """Queues that are not among the rows."""


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """Moves of running pods."""

    text: str
    problem: str
    """Why nothing is moved any more; "" while moves land."""
    moves: Sequence[tuple[str, str, str, str]]
    """Of the last pass: pod, node, new node, and why."""
    outcomes: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Status:
    """Everything on the page."""

    at: float
    """Unix seconds."""
    title: str
    lead: str
    verdict: Headline
    figures: Sequence[tuple[str, str]]
    nodes: Nodes
    pending: Sequence[PendingGroup]
    pending_left_out: int
    pending_looked_at: int
    """The size of the sample from which the numbers of pending pods are estimated; 0: all were counted."""
    gangs: Sequence[Gang]
    policies: Sequence[PolicyFile]
    counted: str
    """Which decisions the counts beside the clauses come from."""
    rules: Sequence[Rule]
    reloads: Sequence[Reload]
    decisions: Sequence[RecentDecision]
    metrics: Sequence[MetricRow]
    replica: Sequence[tuple[str, str]]
    """Name and value of what there is to know about this process."""
    shadow: Shadow | None = None
    """None where pods are placed, not only looked at."""
    devices: Devices | None = None
    """None where drivers publish none."""
    queues: Queues | None = None
    """None where no policy declares any."""
    rebalancing: Rebalancing | None = None
    """None where no policy has a `rebalance`."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page and what a browser may do for it."""

    html: str
    content_security_policy: str


def render(status: Status) -> Page:
    """Return the page."""
    columns = columns_of(len(status.nodes.names))
    html = page(
        "status.html",
        s=status,
        maps=[heat_map(use, status.nodes, columns=columns) for use in status.nodes.uses],
        fullest=fullest(status.nodes),
        data=pointed_at(status.nodes, columns),
        refresh_seconds=REFRESH_SECONDS,
        ago=lambda at: ago(status.at - at),
        clock=date_and_time,
        duration=duration,
    )
    return Page(html, content_security_policy(html))


def content_security_policy(html: str) -> str:
    """Return the strictest policy under which a page works: its own styles and scripts by hash, nothing else."""

    def hashes(tag: str) -> str:
        found = re.findall(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", html, re.DOTALL)
        given = (base64.b64encode(sha256(text.encode()).digest()).decode() for text in found)
        return " ".join(f"'sha256-{each}'" for each in given) or "'none'"

    return (
        f"default-src 'none'; style-src {hashes('style')}; script-src {hashes('script')}; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
