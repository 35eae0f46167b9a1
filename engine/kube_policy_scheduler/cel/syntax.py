"""Checked expressions as Google's checker writes them (`cel.expr.CheckedExpr`), read into nodes.

Only what an evaluator needs is read: of the protocol buffer's fields those of expressions, and the type of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack
from typing import Any, NamedTuple, TypeAlias

import msgspec

MOST_NESTED = 200
"""Levels of an expression; the checker itself allows about 32 of brackets, and long chains of `&&` nest too."""


class TooDeep(ValueError):
    """The expression has more levels than are read."""


class Constant(msgspec.Struct, frozen=True):
    """A literal."""

    value: int | float | str | bytes | bool | None
    unsigned: bool = False


class Ident(msgspec.Struct, frozen=True):
    """A variable; `device.driver` is one."""

    name: str


class Select(msgspec.Struct, frozen=True):
    """`operand.field`, or with `test` whether the field exists."""

    operand: Node
    field: str
    test: bool


class Call(msgspec.Struct, frozen=True):
    """A function, operator or method; the target of a method is the first argument."""

    function: str
    arguments: tuple[Node, ...]


class ListOf(msgspec.Struct, frozen=True):
    """A list literal; the elements at `optional` are left out if they are absent."""

    elements: tuple[Node, ...]
    optional: frozenset[int]


class MapOf(msgspec.Struct, frozen=True):
    """A map literal: key, value, and whether the entry is left out if its value is absent."""

    entries: tuple[tuple[Node, Node, bool], ...]


class Comprehension(msgspec.Struct, frozen=True):
    """What macros such as `all` and `cel.bind` become: a fold over a range."""

    variable: str
    second_variable: str
    over: Node
    accumulator: str
    start: Node
    condition: Node
    step: Node
    result: Node


Node: TypeAlias = Constant | Ident | Select | Call | ListOf | MapOf | Comprehension


class Mismatch(NamedTuple):
    """A member of a list or map literal of another type than those before it, which Kubernetes does not allow."""

    position: int
    """Character of the expression."""
    expected: str
    found: str


class CheckedExpression(msgspec.Struct, frozen=True):
    """An expression and the checker's results for it."""

    root: Node
    type_name: str
    """Such as `bool`, `any` or `string`."""
    mismatches: tuple[Mismatch, ...] = ()


def read(serialized: bytes) -> CheckedExpression:
    """Return the expression that `Expression.serialize()` holds.

    Raises:
        TooDeep: it is nested too deeply.
    """
    content = _one(_fields(serialized), 2)
    root: bytes = b""
    types: dict[int, bytes] = {}
    positions: dict[int, int] = {}
    for number, value in _fields(content):
        if number == 4:
            root = value
        elif number == 3:
            entry = dict(_fields(value))
            types[entry.get(1, 0)] = entry.get(2, b"")
        elif number == 5:
            entries = (dict(_fields(item)) for at, item in _fields(value) if at == 4)
            positions = {entry.get(1, 0): entry.get(2, 0) for entry in entries}
    reader = _Reader(types)
    node = reader.node(root, MOST_NESTED)
    mismatches = [Mismatch(positions.get(identity, 0), *names) for identity, names in reader.mismatches.items()]
    return CheckedExpression(node, reader.type_of(root), tuple(sorted(mismatches)))


class _Reader:
    def __init__(self, types: dict[int, bytes]) -> None:
        self._types = types
        self._formatting = 0
        self.mismatches: dict[int, tuple[str, str]] = {}
        """Members of literals that have another type than the first, by the number of their node."""

    def type_of(self, content: bytes) -> str:
        """Return the name of a node's type."""
        return _type_name(self._types.get(_identity(content), b""))

    def node(self, content: bytes, left: int) -> Node:
        """Return a node, with a limit on the levels below it."""
        if not left:
            raise TooDeep(f"the expression has more than {MOST_NESTED} levels")
        for number, value in _fields(content):
            match number:
                case 3:
                    return _constant(value)
                case 4:
                    return Ident(_text(_fields(value), 1))
                case 5:
                    parts = dict(_fields(value))
                    return Select(self.node(parts[1], left - 1), parts[2].decode(), bool(parts.get(3)))
                case 6:
                    return self._call(value, left - 1)
                case 7:
                    return self._list(value, left - 1)
                case 8:
                    return self._map(value, left - 1)
                case 9:
                    parts = dict(_fields(value))
                    return Comprehension(
                        variable=parts.get(1, b"").decode(),
                        second_variable=parts.get(8, b"").decode(),
                        over=self.node(parts[2], left - 1),
                        accumulator=parts.get(3, b"").decode(),
                        start=self.node(parts[4], left - 1),
                        condition=self.node(parts[5], left - 1),
                        step=self.node(parts[6], left - 1),
                        result=self.node(parts[7], left - 1),
                    )
        return Constant(None)

    def _call(self, content: bytes, left: int) -> Call:
        parts = list(_fields(content))
        function = _text(parts, 2)
        self._formatting += function == "format"  # its values may have any types
        target = [self.node(value, left) for number, value in parts if number == 1]
        arguments = [self.node(value, left) for number, value in parts if number == 3]
        self._formatting -= function == "format"
        return Call(function, (*target, *arguments))

    def _list(self, content: bytes, left: int) -> ListOf:
        items = [item for number, item in _fields(content) if number == 1]
        optional = {place for number, item in _fields(content) if number == 2 for place in _packed(item)}
        self._same_types([item for place, item in enumerate(items) if place not in optional])
        return ListOf(tuple(self.node(item, left) for item in items), frozenset(optional))

    def _map(self, content: bytes, left: int) -> MapOf:
        entries = [dict(_fields(item)) for number, item in _fields(content) if number == 2]
        entries = [entry for entry in entries if 3 in entry]
        self._same_types([entry[3] for entry in entries])
        self._same_types([entry[4] for entry in entries if not entry.get(5)])
        return MapOf(tuple((self.node(e[3], left), self.node(e[4], left), bool(e.get(5))) for e in entries))

    def _same_types(self, members: list[bytes]) -> None:
        """Note the first member that has another type than the first one."""
        if self._formatting or not members:
            return
        first = self.type_of(members[0])
        for member in members:
            if (name := self.type_of(member)) != first:
                self.mismatches[_identity(member)] = (first, name)
                return


def _identity(content: bytes) -> int:
    return int(next((value for number, value in _fields(content) if number == 2), 0))


def _constant(content: bytes) -> Constant:
    for number, value in _fields(content):
        match number:
            case 2:
                return Constant(bool(value))
            case 3:
                return Constant(value - 2**64 if value >= 2**63 else value)
            case 4:
                return Constant(value, unsigned=True)
            case 5:
                return Constant(float(unpack("<d", value)[0]))
            case 6:
                return Constant(value.decode())
            case 7:
                return Constant(bytes(value))
    return Constant(None)


_PRIMITIVES = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}


def _type_name(content: bytes) -> str:
    for number, value in _fields(content):
        match number:
            case 1:
                return "dyn"
            case 2:
                return "null_type"
            case 3:
                return _PRIMITIVES.get(value, "dyn")
            case 4:
                return f"wrapper({_PRIMITIVES.get(value, 'dyn')})"
            case 5:
                return {1: "any", 2: "timestamp", 3: "duration"}.get(value, "dyn")
            case 6:
                return f"list({_type_name(_one(_fields(value), 1))})"
            case 7:
                return f"map({_type_name(_one(_fields(value), 1))}, {_type_name(_one(_fields(value), 2))})"
            case 9:
                return str(value.decode())
            case 14:
                parts = list(_fields(value))
                inner = ", ".join(_type_name(part) for at, part in parts if at == 2)
                return f"{_text(parts, 1)}({inner})" if inner else _text(parts, 1)
            case 11:
                return f"type({_type_name(value)})"
    return "dyn"


# --- the wire format of protocol buffers ------------------------------------------------------------------


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Return numbers and values of a message's fields: int for varints, bytes for all others."""
    at, end = 0, len(content)
    while at < end:
        key, at = _varint(content, at)
        match key & 7:
            case 0:
                value, at = _varint(content, at)
                yield key >> 3, value
            case 1:
                yield key >> 3, content[at : at + 8]
                at += 8
            case 2:
                length, at = _varint(content, at)
                yield key >> 3, content[at : at + length]
                at += length
            case 5:
                yield key >> 3, content[at : at + 4]
                at += 4
            case _:
                raise ValueError("not a protocol buffer")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _packed(content: Any) -> Iterator[int]:
    if isinstance(content, int):
        yield content
        return
    at = 0
    while at < len(content):
        value, at = _varint(content, at)
        yield value


def _one(fields: Iterator[tuple[int, Any]], wanted: int) -> Any:
    return next((value for number, value in fields if number == wanted), b"")


def _text(fields: Any, wanted: int) -> str:
    return str(_one(iter(fields), wanted).decode())
