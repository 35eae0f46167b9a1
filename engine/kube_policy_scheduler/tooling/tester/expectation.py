"""What a case expects, as values. Knows no YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What `node: {zone: …}` may ask about a node."""

    name: str
    labels: Mapping[str, str]
    zone: str | None
    region: str | None
    ready: bool


@dataclass(frozen=True, slots=True)
class NodeMatch:
    """A set of nodes: by name, or by what holds for them."""

    text: str
    """As it was written, for people."""
    holds: Callable[[NodeFacts], bool]
    names: tuple[str, ...] = ()
    """The nodes, where they are named."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A refusal that is expected."""

    clause: str | None
    message: str | None
    """A part of a text, or `/a regular expression/`."""

    def __str__(self) -> str:
        parts = ((name, text) for name, text in (("clause", self.clause), ("message", self.message)) if text)
        return ", ".join(f"{name} {text}" for name, text in parts)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A number that is expected."""

    text: str
    holds: Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class GoesTo:
    """`node`, `node_in`: the pod goes to one of these."""

    match: NodeMatch


@dataclass(frozen=True, slots=True)
class NotOn:
    """`not_on`: the pod goes somewhere else."""

    match: NodeMatch


@dataclass(frozen=True, slots=True)
class Schedulable:
    """`schedulable`: the pod goes somewhere, or nowhere."""

    wanted: bool


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """`unschedulable`: the pod goes nowhere, for this reason."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Held:
    """`held`: the pod waits outside the active queue, or does not."""

    wanted: bool
    message: str | None
    """A part of the reason, or `/a regular expression/`."""


@dataclass(frozen=True, slots=True)
class Evicts:
    """`evicts`: exactly these pods would be evicted to make room."""

    pods: frozenset[str]


@dataclass(frozen=True, slots=True)
class Feasible:
    """`feasible`: exactly these nodes pass every filter."""

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Filtered:
    """`filtered`: this node does not pass, for this reason."""

    node: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Score:
    """`scores`: this node passes, with this total."""

    node: str
    wanted: Comparison


@dataclass(frozen=True, slots=True)
class Order:
    """`order`: these nodes pass, each with a higher total than the next."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Margin:
    """`margin`: by how much the winner's total exceeds the next."""

    wanted: Comparison


@dataclass(frozen=True, slots=True)
class Degraded:
    """`degraded`: exactly these queries lack a fresh value on some node."""

    queries: frozenset[str]


@dataclass(frozen=True, slots=True)
class Waits:
    """`waits`: the pod has a place but waits for its gang, or does not."""

    wanted: bool
    message: str | None
    """A part of the reason, or `/a regular expression/`."""


@dataclass(frozen=True, slots=True)
class Warnings:
    """`warnings`: exactly these, each by code or by a part of its text."""

    wanted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """`placed`: so many pods of the case have a place, in all or on one node."""

    node: str | None
    wanted: Comparison


@dataclass(frozen=True, slots=True)
class MaxSkew:
    """`max_skew`: the pods of the case differ by no more between two domains."""

    by: str
    """zone, region, node, or a node label."""
    at_most: int


@dataclass(frozen=True, slots=True)
class Turns:
    """`turns`: these pods of the queue are decided in this order."""

    pods: tuple[str, ...]


OfOne: TypeAlias = (
    GoesTo
    | NotOn
    | Schedulable
    | Unschedulable
    | Held
    | Waits
    | Evicts
    | Feasible
    | Filtered
    | Score
    | Order
    | Margin
    | Degraded
    | Warnings
)
"""What is expected of every decision of a case."""
OfAll: TypeAlias = Placed | MaxSkew
"""What is expected of all decisions of a case together."""
Expectation: TypeAlias = OfOne | OfAll | Turns
