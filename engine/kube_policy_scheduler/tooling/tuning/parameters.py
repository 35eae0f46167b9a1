"""The numbers that a policy declares for tuning: `let w = 2 from 0.5 to 8`, and the policy with other numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.checking.inference import constant_of
from kube_policy_scheduler.lang.typed import Typed

MOST_PARAMETERS = 10
"""With more numbers than this, a search on a few traces finds what fits these traces only."""
DIGITS = 2
"""Significant digits of a tuned number."""
_WIDE = 4.0
"""From this ratio of its ends on, a range is searched on a logarithmic scale."""
_AT_BOUND = 0.02
"""A number is at an end of its range if it is nearer to it than this share of the range."""
_NUMBER = re.compile(r"(-?)([0-9.]+(?:[eE][+-]?[0-9]+)?)(\D*)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that may be changed."""

    name: str
    span: Span
    """Of the number in the policy."""
    unit: str
    """What stands behind the number: `%`, `Gi`, `s`."""
    today: float
    low: float
    high: float
    """The numbers as they are written, before their unit."""

    @property
    def logarithmic(self) -> bool:
        """Return whether its range is searched on a logarithmic scale."""
        return self.low > 0 and self.high / self.low >= _WIDE

    def rounded(self, value: float) -> float:
        """Return a value with as many digits as are written, inside the range; today's value stays as it is."""
        if value == self.today or not value:
            return value
        digits = DIGITS - 1 - math.floor(math.log10(abs(value)))
        return min(max(round(value, digits), self.low), self.high)

    def place(self, value: float) -> float:
        """Return where a value is in the range, from 0 to 1."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def bound(self, value: float) -> float | None:
        """Return the end of the range that a changed value is at; None for one inside the range."""
        if value == self.today:
            return None
        at = self.place(value)
        return self.low if at < _AT_BOUND else self.high if at > 1 - _AT_BOUND else None

    def text(self, value: float) -> str:
        """Return a value as policies write it."""
        return f"{value:.12g}{self.unit}"


@dataclass(frozen=True, slots=True)
class Declared:
    """What the policies declare."""

    parameters: tuple[Parameter, ...]
    unused: tuple[str, ...] = ()
    """Names with a range that no statement uses."""
    unlike: tuple[str, ...] = ()
    """Names whose number and range are not all written with the same unit, or not as plain numbers."""


def declared_in(policies: Sequence[CheckedPolicy]) -> Declared:
    """Return the numbers that policies declare with a range, each once, in the order of their files."""
    found: dict[tuple[str, int], Parameter] = {}
    unused: dict[str, None] = {}
    unlike: dict[str, None] = {}
    for policy in policies:
        for definition in policy.definitions.values():
            tree = definition.tree
            if not isinstance(tree, syntax.Let) or tree.low is None or tree.high is None:
                continue
            if not definition.used or definition.value is None:
                unused[tree.name] = None
                continue
            made = _parameter(tree, definition.value)
            if made is None:
                unlike[tree.name] = None
            else:
                found[tree.span.source.name, tree.span.start] = made
    return Declared(tuple(found[key] for key in sorted(found)), tuple(unused), tuple(unlike))


def _parameter(tree: syntax.Let, value: Typed) -> Parameter | None:
    assert tree.low is not None
    assert tree.high is not None
    parts = [_NUMBER.fullmatch(part.span.text.replace(" ", "")) for part in (tree.value, tree.low, tree.high)]
    if any(part is None for part in parts) or constant_of(value) is None:
        return None
    numbers = [(float(part[1] + part[2]), part[3]) for part in parts if part is not None]
    units = {unit for number, unit in numbers if number or unit}
    if len(units) > 1:
        return None
    today, low, high = (number for number, _ in numbers)
    return Parameter(tree.name, tree.value.span, next(iter(units), ""), today, low, high)


def with_values(
    sources: Sequence[Source], parameters: Sequence[Parameter], values: Mapping[str, float]
) -> tuple[Source, ...]:
    """Return the policies with other numbers; all else stays as it was written."""
    made = []
    for source in sources:
        text = source.text
        mine = [each for each in parameters if each.span.source.name == source.name]
        for each in sorted(mine, key=lambda one: -one.span.start):
            value = values.get(each.name, each.today)
            if value != each.today:
                text = text[: each.span.start] + each.text(value) + text[each.span.end :]
        made.append(Source(source.name, text) if text != source.text else source)
    return tuple(made)
