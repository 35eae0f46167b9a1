"""Going through a syntax tree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.lang import expressions, syntax
from kube_policy_scheduler.lang.tree import Tree, annotations_of

TREE_TYPES = frozenset(
    {
        *get_args(expressions.Expr),
        expressions.Named,
        syntax.Amount,
        syntax.OrderKey,
        syntax.PluginWeight,
        syntax.Role,
        syntax.SeriesKey,
        syntax.Target,
    }
)
_LEAVES = frozenset({"str", "str | None", "float", "bool", "tuple[str, ...]", "Span"})
"""Annotations of fields that hold no trees."""


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(name for name, annotation in annotations_of(kind).items() if annotation not in _LEAVES)


def children(tree: Any) -> list[Any]:
    """Return the tree nodes directly below one (an expression or a statement), in the order they were written."""
    found = []
    kind: Any = type(tree)
    for name in _names(kind):
        value = getattr(tree, name)
        if type(value) in TREE_TYPES:
            found.append(value)
        elif type(value) is tuple:
            found += [item for item in value if type(item) in TREE_TYPES]
    return found


def walk(tree: object) -> Iterator[Any]:
    """Yield the tree and everything below it, parents first."""
    stack = [tree]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


@cache
def _placed_fields(kind: type[Tree]) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a tree in order, with whether a place is in them."""
    without = _LEAVES - {"Span"}
    return tuple((name, annotation not in without) for name, annotation in annotations_of(kind).items())


def moved(tree: Any, source: Source, by: int) -> Any:
    """Return the same tree as one of another source that has its text so many characters later."""
    kind: Any = type(tree)
    if kind is Span:
        return Span(source, tree.start + by, tree.end + by)
    if kind is tuple:
        return tuple([moved(item, source, by) for item in tree])
    if not isinstance(tree, Tree):
        return tree
    fields = _placed_fields(kind)
    return kind(*[moved(getattr(tree, n), source, by) if has_place else getattr(tree, n) for n, has_place in fields])


def depth(tree: object) -> int:
    """Return how deep the tree is."""
    level, count = [tree], 0
    while level:
        level = [child for tree in level for child in children(tree)]
        count += 1
    return count
