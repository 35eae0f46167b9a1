"""Values of CEL: Python's own where they mean the same, and a class for each other type.

An int is an int64, `Uint` a uint64, a float a double; str, bytes, bool and None are themselves, a list is a tuple and
a map a `Map`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from kube_policy_scheduler.quantities.exact_quantity import Quantity

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1
MAX_UINT: Final = 2**64 - 1


class CelError(Exception):
    """The error of an evaluation, in cel-go's words."""


class MissingKeyError(CelError):
    """A map does not have the key that is read."""


class CostLimitExceeded(Exception):
    """The evaluation exceeds its cost limit; nothing in an expression can catch it."""


NO_OVERLOAD = "no such overload"
COST_EXCEEDED = "operation cancelled: actual cost limit exceeded"


def no_overload() -> CelError:
    """Return the error of an operation that these types do not have."""
    return CelError(NO_OVERLOAD)


class Uint(int):
    """A uint64."""

    __slots__ = ()


class Duration(msgspec.Struct, frozen=True):
    """A span of time."""

    nanos: int


class Timestamp(msgspec.Struct, frozen=True):
    """A moment, in nanoseconds since 1970."""

    nanos: int


class TypeValue(msgspec.Struct, frozen=True):
    """A type as a value."""

    name: str


class Optional(msgspec.Struct, frozen=True):
    """An optional value that is present."""

    value: Any


class _None:
    __slots__ = ()


NONE: Final = _None()
"""The optional value that is absent."""


class Semver(msgspec.Struct, frozen=True):
    """A semantic version; comparisons ignore build metadata."""

    major: int
    minor: int
    patch: int
    pre: tuple[int | str, ...] = ()

    def compare(self, other: Semver) -> int:
        """Return -1, 0 or 1 for older, equal or newer (semver.org, rule 11)."""
        mine, theirs = (self.major, self.minor, self.patch), (other.major, other.minor, other.patch)
        if mine != theirs:
            return 1 if mine > theirs else -1
        if not self.pre or not other.pre:
            return bool(other.pre) - bool(self.pre)
        for left, right in zip(self.pre, other.pre, strict=False):
            if left != right:
                if isinstance(left, int) and isinstance(right, int):
                    return 1 if left > right else -1
                if isinstance(left, str) and isinstance(right, str):
                    return 1 if left.encode() > right.encode() else -1
                return -1 if isinstance(left, int) else 1
        return (len(self.pre) > len(other.pre)) - (len(self.pre) < len(other.pre))


class Map:
    """A map; numbers that are equal are one key, a bool is another than a number."""

    __slots__ = ("_entries", "default")

    def __init__(self, entries: dict[Any, tuple[Any, Any]], default: Any = None) -> None:
        self._entries = entries
        self.default = default
        """What reading an absent key gives; None: an error."""

    @classmethod
    def of_texts(cls, entries: dict[str, Any], default: Any = None) -> Map:
        """Return a map with texts as keys."""
        return cls({key: (key, value) for key, value in entries.items()}, default)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Any) -> bool:
        return map_key(key) in self._entries

    def __iter__(self) -> Iterator[Any]:
        """Return the keys."""
        return iter([key for key, _ in self._entries.values()])

    def find(self, key: Any) -> Any:
        """Return the value of a key, `ABSENT` if there is none."""
        found = self._entries.get(map_key(key))
        if found is not None:
            return found[1]
        return ABSENT if self.default is None else self.default

    def with_entry(self, key: Any, value: Any) -> Map:
        """Return a map with one entry more."""
        return Map({**self._entries, map_key(key): (key, value)})


ABSENT: Final = _None()
EMPTY_MAP: Final = Map({})


def map_key(key: Any) -> Any:
    """Return the lookup form of a key, equal for keys that are equal in CEL."""
    kind = type(key)
    if kind is str:
        return key
    if kind is bool:
        return (bool, key)
    if kind is int or kind is Uint:
        return int(key)
    if kind is float and key.is_integer():
        return int(key)
    return (kind, repr(key))


TYPE_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    tuple: "list",
    Map: "map",
    type(None): "null_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Optional: "optional_type",
    _None: "optional_type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
}


def type_name(value: Any) -> str:
    """Return the name of a value's type."""
    return TYPE_NAMES[type(value)]


_NUMBERS = (int, Uint, float)


def equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal; numbers of different types may be, other types never are.

    Raises:
        CelError: a quantity or version is compared with something else.
    """
    kind, other = type(left), type(right)
    if kind in _NUMBERS:
        return other in _NUMBERS and bool(left == right)
    if kind is not other:
        if kind is Quantity or kind is Semver:
            raise no_overload()
        return False
    if kind is tuple:
        return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
    if kind is Map:
        return len(left) == len(right) and all(
            (found := right.find(key)) is not ABSENT and equal(left.find(key), found) for key in left
        )
    if kind is Optional:
        return equal(left.value, right.value)
    if kind is Quantity or kind is Semver:
        return bool(left.compare(right) == 0)
    return bool(left == right)


_ORDERED = (str, bytes, bool)


def order(left: Any, right: Any) -> int:
    """Return -1, 0 or 1 for less, equal and greater.

    Raises:
        CelError: these two have no order.
    """
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if left != left or right != right:
            raise CelError("NaN values cannot be ordered")
        return int(left > right) - int(left < right)
    if kind is other:
        if kind is str:
            left, right = left.encode(), right.encode()
        if kind in _ORDERED:
            return int(left > right) - int(left < right)
        if kind is Duration or kind is Timestamp:
            return int(left.nanos > right.nanos) - int(left.nanos < right.nanos)
    raise no_overload()


def size_of(value: Any) -> int:
    """Return the size of a value in costs: its length, or 1 (`actualSize`)."""
    kind = type(value)
    if kind is str or kind is tuple or kind is bytes or kind is Map:
        return len(value)
    return size_of(value.value) if kind is Optional else 1


def as_text(value: Any) -> str:
    """Return a value as cel-go writes it into an error."""
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    return str(value)


Function = Callable[..., Any]
