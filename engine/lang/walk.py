"""Going through a syntax tree, without recursion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any, get_args

from engine.lang import expressions, syntax

TREE_TYPES = (*get_args(expressions.Expr), expressions.Named, syntax.OrderKey)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if not f.name.endswith("span"))


def children(tree: Any) -> Iterator[Any]:
    """Yield the tree nodes directly below one (an expression or a statement), in the order they were written."""
    kind: Any = type(tree)
    for name in _names(kind):
        value = getattr(tree, name)
        if isinstance(value, TREE_TYPES):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, TREE_TYPES))


def walk(tree: object) -> Iterator[Any]:
    """Yield the tree and everything below it, parents first."""
    stack = [tree]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(list(children(top))))


def depth(tree: object) -> int:
    """Return how deep the tree is."""
    level, count = [tree], 0
    while level:
        level = [child for tree in level for child in children(tree)]
        count += 1
    return count
