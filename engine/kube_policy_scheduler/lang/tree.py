"""What all parts of a syntax tree have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from inspect import get_annotations
from operator import attrgetter
from typing import Any

import msgspec


class Tree(msgspec.Struct, frozen=True, eq=False):
    """A part of a syntax tree: what was written, frozen, with spans.

    Spans take no part in comparison: two trees are equal if their texts mean the same.
    """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and (meaning := _meaning(type(self)))(self) == meaning(other)

    def __hash__(self) -> int:
        return hash((type(self), _meaning(type(self))(self)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _meant(type(self)))
        return f"{type(self).__name__}({shown})"


@cache
def annotations_of(kind: type[Tree]) -> Mapping[str, str]:
    """Return the annotation of each field as it was written, in order."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= get_annotations(base)
    return {name: found[name] for name in kind.__struct_fields__}


@cache
def _meant(kind: type[Tree]) -> tuple[str, ...]:
    return tuple(name for name, annotation in annotations_of(kind).items() if annotation != "Span")


@cache
def _meaning(kind: type[Tree]) -> Callable[[Any], Hashable]:
    names = _meant(kind)
    return attrgetter(*names) if names else lambda tree: ()
