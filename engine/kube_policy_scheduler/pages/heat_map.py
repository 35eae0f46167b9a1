"""A resource on all nodes as a map of coloured cells: however many nodes, as many paths as there are colours."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kube_policy_scheduler.wording import plural

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
    about = f"{use.name}: {use.total}, {100 * use.share:.0f} %, on {plural(len(nodes.names), 'node')}"
    cells = [Cells(level, "".join(parts)) for level, parts in sorted(paths.items())]
    return HeatMap(use.name, about, columns * _CELL - _GAP, max(0, rows * _CELL - _GAP), cells)


def fullest(nodes: Nodes, limit: int = 10) -> list[tuple[str, list[float], bool]]:
    """Return the nodes with the largest shares: name, shares by resource, whether they take pods."""
    unusable = set(nodes.unusable)

    def most(at: int) -> float:
        return max((use.shares[at] for use in nodes.uses if use.shares[at] == use.shares[at]), default=0.0)

    # a sort of all would keep other threads, such as the one that decides, from Python for 0.1 s at 130,000 nodes
    order = heapq.nsmallest(limit, range(len(nodes.names)), key=lambda at: (-most(at), nodes.names[at]))
    return [(nodes.names[at], [use.shares[at] for use in nodes.uses], at not in unusable) for at in order]


def columns_of(nodes: int) -> int:
    """Return a number of columns that makes a map about three times as wide as high."""
    return max(10, min(MOST_COLUMNS, round(math.sqrt(3 * nodes))))


def pointed_at(nodes: Nodes, columns: int) -> str:
    """Return what a script tells of the node under the pointer: JSON that is safe inside a script element."""
    values = {
        "columns": columns,
        "names": list(nodes.names),
        "uses": [
            {"name": use.name, "shares": [round(100 * share) if share == share else None for share in use.shares]}
            for use in nodes.uses
        ],
        "off": list(nodes.unusable),
    }
    # the library of Python would keep other threads waiting, ten times as long
    return msgspec.json.encode(values).decode().replace("<", "\\u003c")
