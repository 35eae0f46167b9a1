"""The status page of a running scheduler: what is on it, and how it is written. Knows neither scheduler nor HTTP.

Works without scripts; with them it renews itself in place and names nodes under the pointer. Nothing on it changes
anything, and nothing is fetched but the page itself.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

from engine.pages.environment import page

Tone = Literal["good", "warn", "bad", "quiet"]
REFRESH_SECONDS = 5
MOST_COLUMNS = 100
_LEVELS = 10
_CELL = 10
_GAP = 1


@dataclass(frozen=True, slots=True)
class Use:
    """How much of one resource is taken, node by node."""

    name: str
    shares: Sequence[float]
    """`[nodes]`, in the order of the names; NaN where a node offers none."""
    total: str
    """In words: `1,204 of 4,000 cores`."""
    share: float
    """Of all nodes together."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """All nodes."""

    names: Sequence[str]
    uses: Sequence[Use]
    unusable: Sequence[int]
    """Positions of nodes that are cordoned or not ready."""


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
class ClauseNote:
    """What a clause said so far."""

    text: str
    tone: Tone = "quiet"
    share: float | None = None
    """Of the nodes refused, for a bar."""


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
class Verdict:
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
class Status:
    """Everything on the page."""

    at: float
    """Unix seconds."""
    title: str
    lead: str
    verdict: Verdict
    figures: Sequence[tuple[str, str]]
    nodes: Nodes
    pending: Sequence[PendingGroup]
    pending_left_out: int
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


@dataclass(frozen=True, slots=True)
class Cells:
    """One colour of a heat map: an SVG path over all its nodes."""

    level: str
    path: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A heat map, ready for the template."""

    name: str
    about: str
    width: int
    height: int
    cells: Sequence[Cells]


@dataclass(frozen=True, slots=True)
class Page:
    """A page and what a browser may do for it."""

    html: str
    content_security_policy: str


def render(status: Status) -> Page:
    """Return the page."""
    columns = _columns(len(status.nodes.names))
    html = page(
        "status.html",
        s=status,
        maps=[heat_map(use, status.nodes, columns=columns) for use in status.nodes.uses],
        fullest=fullest(status.nodes),
        data=_data(status.nodes, columns),
        refresh_seconds=REFRESH_SECONDS,
        ago=lambda at: ago(status.at - at),
        clock=lambda at: datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        duration=duration,
    )
    return Page(html, content_security_policy(html))


def content_security_policy(html: str) -> str:
    """Return the strictest policy under which a page works: its own styles and scripts by hash, nothing else."""

    def hashes(tag: str) -> str:
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        given = (base64.b64encode(sha256(text.encode()).digest()).decode() for text in found)
        return " ".join(f"'sha256-{each}'" for each in given) or "'none'"

    return (
        f"default-src 'none'; style-src {hashes('style')}; script-src {hashes('script')}; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def heat_map(use: Use, nodes: Nodes, *, columns: int) -> HeatMap:
    """Return the nodes as cells, in rows from the left; as many paths as there are colours, however many nodes."""
    unusable = set(nodes.unusable)
    paths: dict[str, list[str]] = {}
    side = _CELL - _GAP
    for at, share in enumerate(use.shares):
        if at in unusable:
            level = "off"
        elif share != share:
            level = "none"
        else:
            level = str(min(_LEVELS, max(0, int(share * _LEVELS + 1e-9))))
        row, column = divmod(at, columns)
        paths.setdefault(level, []).append(f"M{column * _CELL} {row * _CELL}h{side}v{side}h-{side}z")
    rows = -(-len(use.shares) // columns) if use.shares else 0
    about = f"{use.name}: {use.total}, {100 * use.share:.0f} %, on {len(nodes.names)} nodes"
    cells = [Cells(level, "".join(parts)) for level, parts in sorted(paths.items())]
    return HeatMap(use.name, about, columns * _CELL - _GAP, max(0, rows * _CELL - _GAP), cells)


def fullest(nodes: Nodes, limit: int = 10) -> list[tuple[str, list[float], bool]]:
    """Return the nodes with the largest shares: name, shares by resource, whether they take pods."""
    unusable = set(nodes.unusable)

    def most(at: int) -> float:
        return max((use.shares[at] for use in nodes.uses if use.shares[at] == use.shares[at]), default=0.0)

    order = sorted(range(len(nodes.names)), key=lambda at: (-most(at), nodes.names[at]))[:limit]
    return [(nodes.names[at], [use.shares[at] for use in nodes.uses], at not in unusable) for at in order]


def duration(seconds: float) -> str:
    """Return a time span with at most two units: `0.2 s`, `14 s`, `3 min`, `2 h 5 min`, `4 d 1 h`."""
    if 0 < seconds < 0.01:
        return f"{1000 * seconds:.2f} ms"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" if whole >= 600 or whole % 60 == 0 else f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ago(seconds: float) -> str:
    """Return how long ago something was: `now`, `14 s ago`."""
    return "now" if seconds < 1 else f"{duration(seconds)} ago"


def _columns(nodes: int) -> int:
    """Return a number of columns that makes a map about three times as wide as high."""
    return max(10, min(MOST_COLUMNS, round(math.sqrt(3 * nodes))))


def _data(nodes: Nodes, columns: int) -> str:
    """Return what the script tells under the pointer, safe inside a script element."""
    values = {
        "columns": columns,
        "names": list(nodes.names),
        "uses": [
            {"name": use.name, "shares": [round(100 * share) if share == share else None for share in use.shares]}
            for use in nodes.uses
        ],
        "off": list(nodes.unusable),
    }
    return json.dumps(values, separators=(",", ":")).replace("<", "\\u003c")
