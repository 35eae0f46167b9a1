"""What a value of the language can be: kind, dimension, shape, missing or not, and what it depends on."""

from __future__ import annotations

from enum import Enum, Flag, auto
from typing import Any

import msgspec


class Unit(msgspec.Struct, frozen=True):
    """The dimension of a number, as powers of base units; all zero is a plain number."""

    cores: int = 0
    bytes: int = 0
    seconds: int = 0
    share: bool = False
    """A plain number from 0 to 1 by its nature, such as the quotient of two amounts; `80%` compares with it."""

    @property
    def plain(self) -> bool:
        """Return whether it has no dimension."""
        return not (self.cores or self.bytes or self.seconds)

    def same_dimension(self, other: Unit) -> bool:
        """Return whether values of the two can be added and compared."""
        return (self.cores, self.bytes, self.seconds) == (other.cores, other.bytes, other.seconds)

    def times(self, other: Unit, *, sign: int = 1) -> Unit:
        """Return the unit of a product (sign 1) or quotient (sign -1)."""
        cores = self.cores + sign * other.cores
        bytes_ = self.bytes + sign * other.bytes
        seconds = self.seconds + sign * other.seconds
        cancelled = sign < 0 and not self.plain and self.same_dimension(other)
        return Unit(cores, bytes_, seconds, share=cancelled or (sign > 0 and self.share and other.share))

    def __str__(self) -> str:
        names = {Unit(): "a plain number", SHARE: "a share", CORES: "cpu", BYTES: "bytes", SECONDS: "a duration"}
        if self in names:
            return names[self]
        pairs = (("cpu", self.cores), ("bytes", self.bytes), ("seconds", self.seconds))
        return " * ".join(f"{name}^{power}" if power != 1 else name for name, power in pairs if power)


PLAIN = Unit()
SHARE = Unit(share=True)
CORES = Unit(cores=1)
BYTES = Unit(bytes=1)
SECONDS = Unit(seconds=1)


class Kind(Enum):
    """The kinds of values, by the names that users see."""

    NUMBER = "number"
    TRUTH = "true or false"
    TEXT = "text"
    VERSION = "version"
    """At run time a text that can be read as one."""
    LIST = "list"
    PODS = "pods"
    UNKNOWN = "unknown"
    """Something that was already reported."""


class Type(msgspec.Struct, frozen=True):
    """Kind, and what the kind needs besides it."""

    kind: Kind
    unit: Unit = PLAIN
    """Of numbers."""
    item: Kind | None = None
    """Of lists; None for the empty one."""

    def __str__(self) -> str:
        match self.kind:
            case Kind.NUMBER:
                return str(self.unit)
            case Kind.LIST:
                return f"a list of {self.item.value}" if self.item else "an empty list"
            case Kind.TEXT:
                return "text"
            case Kind.VERSION:
                return "a version"
            case _:
                return str(self.kind.value)


NUMBER = Type(Kind.NUMBER)
TRUTH = Type(Kind.TRUTH)
TEXT = Type(Kind.TEXT)
TEXT_KINDS = frozenset({Kind.TEXT, Kind.VERSION})
"""Kinds whose values are texts, or dictionary-coded columns of them."""
PODS = Type(Kind.PODS)
UNKNOWN = Type(Kind.UNKNOWN)


def number(unit: Unit) -> Type:
    """Return the type of numbers with a unit."""
    return Type(Kind.NUMBER, unit)


class Shape(Enum):
    """How many values there are."""

    DECISION = "one per decision"
    NODE = "one per node"
    ITEM = "one per existing pod"
    """Inside `… for p in node.pods`, `… for n in cluster.nodes` (one per node there) and `evict where`."""


class Depends(Flag):
    """What a value follows from; what is not among it cannot change it."""

    NOTHING = 0
    TEMPLATE = auto()
    """The pod's template: labels, requests, priority, owner, …"""
    POD = auto()
    """The pod itself: its creation, its volumes."""
    OWN = auto()
    """What the pod says of itself besides its template, also while it runs: its name and annotations."""
    QUEUE = auto()
    """The pod's time in the queue: pods that run have none any more."""
    RUN = auto()
    """A pod that runs, as it is now: since when, and what protects it."""
    NODE = auto()
    """Static facts of each node: labels, taints, conditions, allocatable."""
    ROW = auto()
    """What changes when pods come to or leave that very node."""
    OFFER = auto()
    """What a node offers to pods (allocatable): not what they take of it."""
    NUMA = auto()
    """What the NUMA nodes of a node have free, as NodeResourceTopology objects report."""
    SIGNAL = auto()
    """A metric."""
    CLOCK = auto()
    CLUSTER = auto()
    """Pods on other nodes, or other nodes."""
    NODES = auto()
    """Static facts of other nodes."""
    IMAGES = auto()
    """How many nodes have each image of the pod."""
    FEASIBLE = auto()
    """Which nodes are looked at together: normalize, rank."""
    DEVICE = auto()
    """One of the devices of a node, of which `devices by` selects."""

    # as in `Flag`, but combinations that came before are looked up: checking a policy combines them at each value

    def __or__(self, other: Depends) -> Depends:
        known: Any = Depends._value2member_map_.get(self._value_ | other._value_)
        return known if known is not None else super().__or__(other)

    def __and__(self, other: Depends) -> Depends:
        known: Any = Depends._value2member_map_.get(self._value_ & other._value_)
        return known if known is not None else super().__and__(other)


class Literal(Enum):
    """A constant that takes the unit of what it meets, as far as its suffix lets it."""

    PLAIN = "plain"
    MILLI = "m"
    DECIMAL = "k M G T P E"
    PERCENT = "%"
    QUANTITY = "quantity"
    """Not a constant: the value of a text, such as 4Gi or 500m; its number is the same in cores, bytes and plain."""

    def fits(self, unit: Unit) -> bool:
        """Return whether the constant can be an amount in the unit."""
        match self:
            case Literal.PLAIN | Literal.MILLI:
                return unit.plain or unit.same_dimension(CORES)
            case Literal.DECIMAL | Literal.QUANTITY:
                return unit.plain or unit.same_dimension(BYTES) or unit.same_dimension(CORES)
            case Literal.PERCENT:
                return unit.share


class Info(msgspec.Struct, frozen=True):
    """Everything that is known of a value before there is one."""

    type: Type
    shape: Shape = Shape.DECISION
    maybe: bool = False
    """Whether it can be missing; of texts: absent."""
    depends: Depends = Depends.NOTHING
    low: float = -1e308
    """Of numbers: never below."""
    high: float = 1e308
    literal: Literal | None = None
    words: frozenset[str] | None = None
    """Of texts: what it can be; None: anything."""


CONDITION_WORDS = ("True", "False", "Unknown")
"""What the status of a condition can be. Where a truth value is required, it is whether the status is `True`."""


UNKNOWN_INFO = Info(UNKNOWN)

# --- resources -------------------------------------------------------------------------------------------

_RESOURCES = {
    "mem": "memory",
    "ephemeral_storage": "ephemeral-storage",
    "storage": "ephemeral-storage",
}
NATIVE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")
RESOURCE_WORDS = ("cpu", "mem", "memory", "ephemeral_storage", "pods")
"""Resources that are written without quotes."""


def resource_name(word: str) -> str:
    """Return Kubernetes' name of a resource as a policy writes it."""
    return _RESOURCES.get(word, word)


def resource_unit(resource: str) -> Unit:
    """Return the unit of amounts of a resource, by Kubernetes' name."""
    if resource == "cpu":
        return CORES
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return BYTES
    return PLAIN
