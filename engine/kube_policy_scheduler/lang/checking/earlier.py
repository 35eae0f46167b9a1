"""What the check before this one found of statements that did not change, moved to where these are now.

A check from the beginning is the specification: where anything is to be reported or a limit is near, it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from inspect import get_annotations
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang import checked, syntax, typed
from kube_policy_scheduler.lang.checked import Definition
from kube_policy_scheduler.lang.environment import Environment

MOST_CHARACTERS = 64 * 1024
"""Of the sources of a policy: what is kept of a statement refers to the text that it was checked in."""
MOST_NESTED = 8
"""Names that use names, far below the limit of a check."""


class NotKnown(Exception):
    """The check before does not help."""


class Work(msgspec.Struct):
    """What it takes to check a statement or a definition, without that of the definitions that it uses."""

    steps: int
    cost: int
    inputs: set[Any] = msgspec.field(default_factory=set)
    names: dict[str, None] = msgspec.field(default_factory=dict)
    """The definitions that it uses itself, in this order."""
    of_others: int = 0
    """Steps of these."""


class KnownTest(msgspec.Struct, frozen=True):
    """A checked `require`, `filter`, `hold` or `score`."""

    test: checked.Test
    text: str
    """What it is called if it has no name."""
    work: Work


class Known(msgspec.Struct, frozen=True):
    """What a check without diagnostics leaves for the next one."""

    environment: Environment
    definitions: Mapping[str, Definition]
    works: Mapping[str, Work]
    """Of those that have values, by name."""
    tests: Mapping[tuple[type, str], KnownTest]
    """By kind and text of the statement."""


class Earlier:
    """The check before, for one more check."""

    def __init__(self, known: Known, definitions: Mapping[str, Definition]) -> None:
        """Compare definitions.

        Args:
            known: what the check before left.
            definitions: of this check.

        Raises:
            NotKnown: other names are defined, so that any name may mean something else.
        """
        self._known, self._definitions = known, definitions
        kinds = {name: type(each.tree) for name, each in definitions.items()}
        if kinds != {name: type(each.tree) for name, each in known.definitions.items()}:
            raise NotKnown
        self._same: dict[str, bool] = {}

    def work_of(self, tree: syntax.Statement) -> Work | None:
        """Return what a test took that did not change, and uses nothing that did."""
        known = self._known.tests.get((type(tree), tree.span.text))
        return known.work if known is not None and all(map(self._is_same, known.work.names)) else None

    def work_of_name(self, name: str) -> Work | None:
        """Return what a definition took that did not change, and uses nothing that did."""
        return self._known.works.get(name) if self._is_same(name) else None

    def value(self, name: str) -> tuple[typed.Typed, int]:
        """Return the value of such a definition, once those that it uses have theirs, and its levels."""
        old, new = self._known.definitions[name], self._definitions[name]
        assert old.value is not None
        move = self._mover(self._known.works[name], old.tree.span, new.tree.span)
        return move.value(old.value), old.levels

    def test(self, tree: Any) -> tuple[checked.Test, str]:
        """Return such a test with the name of the one before, and what it is called if it has no name."""
        known = self._known.tests[type(tree), tree.span.text]
        test = known.test
        move = self._mover(known.work, test.tree.span, tree.span)
        value = move.value(test.value)
        condition = move.value(test.condition) if test.condition is not None else None
        return msgspec.structs.replace(test, tree=tree, value=value, condition=condition), known.text

    def _is_same(self, name: str) -> bool:
        found = self._same.get(name)
        if found is None:
            self._same[name] = False
            old, new = self._known.definitions[name], self._definitions[name]
            work = self._known.works.get(name)
            known = isinstance(old.tree, syntax.Def) or (
                old.value is not None and work is not None and all(map(self._is_same, work.names))
            )
            found = self._same[name] = known and old.tree.span.text == new.tree.span.text
        return found

    def _mover(self, work: Work, old: Span, new: Span) -> _Mover:
        pairs = [(self._known.definitions[name], self._definitions[name]) for name in work.names]
        values = {id(a.value): b.value for a, b in pairs if a.value is not None and b.value is not None}
        return _Mover([(old, new), *((a.tree.span, b.tree.span) for a, b in pairs)], values)


class _Mover:
    """Moves the values of one statement."""

    def __init__(self, places: list[tuple[Span, Span]], values: dict[int, typed.Typed]) -> None:
        """Set up.

        Args:
            places: where its text was and is, and those of the definitions that it uses.
            values: of these definitions as they are now, by the id of the former one, which lives as long.
        """
        self._places, self._values = places, values

    def value(self, value: typed.Typed) -> typed.Typed:
        """Return an equal value in the new place; a part that occurs twice remains one part."""
        found = self._values.get(id(value))
        if found is None:
            kind: Any = type(value)
            given = []
            for name, role in _roles(kind):
                part = getattr(value, name)
                if role == "Span":
                    part = self._span(part)
                elif role == "Typed" and part is not None:
                    part = self.value(part)
                elif role == "tuple":
                    part = tuple([self.value(each) for each in part])
                given.append(part)
            found = self._values[id(value)] = kind(*given)
        return found

    def _span(self, span: Span) -> Span:
        for old, new in self._places:
            if span.source is old.source and old.start <= span.start and span.end <= old.end:
                by = new.start - old.start
                return Span(new.source, span.start + by, span.end + by)
        raise NotKnown


_ROLES = {"Span": "Span", "Typed": "Typed", "Typed | None": "Typed", "tuple[Typed, ...]": "tuple"}


@cache
def _roles(kind: Any) -> tuple[tuple[str, str], ...]:
    annotations = get_annotations(kind)
    return tuple((name, _ROLES.get(annotations[name], "")) for name in kind.__struct_fields__)
