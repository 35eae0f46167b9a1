"""Names that use themselves, found in the text alone: also where nothing uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_policy_scheduler.lang import expressions, syntax
from kube_policy_scheduler.lang.walk import walk

Named = syntax.Let | syntax.Def | syntax.Metric


def rings(trees: Mapping[str, Named]) -> Iterator[tuple[str, ...]]:
    """Yield names each of which uses the next one, and the last the first: each name in one ring at most.

    Takes time in proportion to the size of the trees.
    """
    uses = {name: _used(tree) & trees.keys() for name, tree in trees.items()}
    users: dict[str, list[str]] = {name: [] for name in trees}
    for name, used in uses.items():
        for each in used:
            users[each].append(name)
    left = dict.fromkeys(trees)
    _remove([name for name in trees if not uses[name]], uses, users, left)
    while left:
        ring = _ring(next(iter(left)), trees, uses)
        yield ring
        _remove(list(ring), uses, users, left)


def _remove(
    names: list[str], uses: Mapping[str, set[str]], users: Mapping[str, list[str]], left: dict[str, None]
) -> None:
    """Remove names, and all that then use none that is left."""
    while names:
        name = names.pop()
        if name not in left:
            continue
        del left[name]
        for user in users[name]:
            uses[user].discard(name)
            if not uses[user]:
                names.append(user)


def _ring(start: str, trees: Mapping[str, Named], uses: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Return a ring that one reaches from a name; every name uses one that is left."""
    path: dict[str, int] = {}
    order = {name: number for number, name in enumerate(trees)}
    name = start
    while name not in path:
        path[name] = len(path)
        name = min(uses[name], key=order.__getitem__)
    ring = list(path)[path[name] :]
    first = ring.index(min(ring, key=order.__getitem__))
    return (*ring[first:], *ring[:first])


def _used(tree: Named) -> set[str]:
    """Return the names that a definition uses, without its parameters and what aggregates go over."""
    if not isinstance(tree, syntax.Let | syntax.Def):
        return set()
    own = {each.name for each in tree.parameters} if isinstance(tree, syntax.Def) else set()
    found: set[str] = set()
    for part in walk(tree.value):
        match part:
            case expressions.Name(name=name):
                found.add(name)
            case expressions.Call(function=name):
                found.add(name)
            case expressions.Aggregate(variable=name):
                own.add(name)
            case _:
                pass
    return found - own
