"""What must be true of inputs when a condition holds: intervals, finite domains, presence. Contradictions are proofs.

`assume` follows a condition as far as it can and never guesses: None means that the condition can't hold, anything
else means that it was not shown to be impossible. A proof that takes more effort than it was given shows nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.typed import inner as _inner
from kube_policy_scheduler.lang.typed import key
from kube_policy_scheduler.lang.types import Kind

_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Range:
    """Between which numbers a value lies."""

    low: float
    high: float
    above_low: bool = False
    """Whether the low end itself is excluded."""
    below_high: bool = False

    @property
    def empty(self) -> bool:
        """Return whether no number is left."""
        return self.low > self.high or (self.low == self.high and (self.above_low or self.below_high))

    def at_least(self, low: float, *, strict: bool) -> Range:
        """Return what is left above a bound."""
        if low > self.low or (low == self.low and strict):
            return Range(low, self.high, strict, self.below_high)
        return self

    def at_most(self, high: float, *, strict: bool) -> Range:
        """Return what is left below a bound."""
        if high < self.high or (high == self.high and strict):
            return Range(self.low, high, self.above_low, strict)
        return self


@dataclass(frozen=True, slots=True)
class Words:
    """Which texts a value can be."""

    allowed: frozenset[str] | None = None
    """None: any."""
    excluded: frozenset[str] = frozenset()
    absent: bool = True
    """Whether it can be absent."""
    present: bool = True
    """Whether it can be there."""

    @property
    def empty(self) -> bool:
        """Return whether nothing is left."""
        return not self.absent and (not self.present or (self.allowed is not None and not self.allowed))

    def among(self, words: frozenset[str]) -> Words:
        """Return what is left where it is one of some texts."""
        left = (words if self.allowed is None else self.allowed & words) - self.excluded
        return Words(left, self.excluded, absent=False, present=self.present)

    def none_of(self, words: frozenset[str]) -> Words:
        """Return what is left where it is none of some texts (absent is none of them)."""
        allowed = None if self.allowed is None else self.allowed - words
        gone = allowed is not None and not allowed
        return Words(allowed, self.excluded | words, self.absent, self.present and not gone)


_COPIED = 64
"""Facts that are copied in the time that one expression takes."""


@dataclass(slots=True)
class Effort:
    """How many expressions may still be looked at, by all proofs that share it."""

    left: float = float("inf")

    @property
    def is_spent(self) -> bool:
        """Return whether what follows from now on shows nothing."""
        return self.left <= 0

    def spend(self, facts: Facts) -> bool:
        """Note one more expression, with facts that may be copied; return whether it may be looked at."""
        self.left -= 1 + (len(facts.ranges) + len(facts.words) + len(facts.truths)) / _COPIED
        return self.left > 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of expressions, by their structure."""

    ranges: Mapping[Hashable, Range] = field(default_factory=lambda: _NOTHING)
    words: Mapping[Hashable, Words] = field(default_factory=lambda: _NOTHING)
    truths: Mapping[Hashable, bool] = field(default_factory=lambda: _NOTHING)
    effort: Effort = field(default_factory=Effort, compare=False, repr=False)
    """Shared by all facts that follow from these."""

    def range_of(self, value: typed.Typed) -> Range:
        """Return between which numbers a value lies."""
        known = self.ranges.get(key(value))
        return known if known is not None else Range(value.info.low, value.info.high)

    def words_of(self, value: typed.Typed) -> Words:
        """Return which texts a value can be."""
        inner = _inner(value)
        if isinstance(inner, typed.Constant):
            return Words(frozenset({inner.value}), absent=False)
        known = self.words.get(key(value))
        return known if known is not None else Words(absent=value.info.maybe)

    def with_range(self, value: typed.Typed, known: Range) -> Facts | None:
        """Return the facts with a number narrowed; None where no number is left."""
        if known.empty:
            return None
        if isinstance(_inner(value), typed.Constant):
            return self
        return replace(self, ranges={**self.ranges, key(value): known})

    def with_words(self, value: typed.Typed, known: Words) -> Facts | None:
        """Return the facts with a text narrowed; None where no text is left."""
        return None if known.empty else replace(self, words={**self.words, key(value): known})

    def with_truth(self, value: typed.Typed, truth: bool) -> Facts | None:
        """Return the facts with a truth settled; None where it was settled the other way."""
        known = self.truths.get(key(value))
        if known is not None and known is not truth:
            return None
        return replace(self, truths={**self.truths, key(value): truth})


NO_FACTS = Facts()


def assume(value: typed.Typed, truth: bool, facts: Facts = NO_FACTS) -> Facts | None:
    """Return what is known where a condition is surely true (or surely false); None where it can't be."""
    if not facts.effort.spend(facts):
        return facts
    value = _inner(value)
    match value:
        case typed.Constant(value=constant):
            return facts if constant is truth else None
        case typed.Not(operand=operand):
            return assume(operand, not truth, facts)
        case typed.Logic(operator=operator, operands=operands):
            if (operator == "and") is truth:
                known: Facts | None = facts
                for _ in range(2 if truth else 1):  # what a later operand says can settle an earlier one
                    for operand in operands:
                        known = assume(operand, truth, known) if known is not None else None
                return known
            possible = [after for o in operands if (after := assume(o, truth, facts)) is not None]
            return None if not possible else possible[0] if len(possible) == 1 else facts
        case typed.Compare():
            return _compare(value, truth, facts)
        case typed.Same():
            return _same(value, truth, facts)
        case typed.Contained():
            return _contained(value, truth, facts)
        case typed.Missing(operand=operand, negated=negated):
            return _missing(operand, truth is not negated, facts)
        case _:
            return facts.with_truth(value, truth)


def holding(condition: typed.Typed | None, *, given: Facts = NO_FACTS) -> Facts | None:
    """Return what is known where a condition holds, no more than given where there is none; None: it can't hold."""
    return given if condition is None else assume(condition, True, given)


EFFORT, EFFORT_PER_STEP = 200, 5
"""Expressions that all proofs about one policy may look at, at 3 µs each: a floor, and more for what took more steps to
check. Policies that people write take 1 to 5 for each step."""


@lru_cache(maxsize=1)
def nothing_of(policy: CheckedPolicy) -> Facts:
    """Return no facts, with the effort that all proofs about a policy share."""
    return Facts(effort=Effort(EFFORT + EFFORT_PER_STEP * policy.steps))


@lru_cache(maxsize=1)
def known_of(policy: CheckedPolicy) -> Facts:
    """Return what is known of every pod that a policy governs."""
    nothing = nothing_of(policy)
    return holding(policy.governs, given=nothing) or nothing


_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def _compare(value: typed.Compare, truth: bool, facts: Facts) -> Facts | None:
    operator = value.operator if truth else _OPPOSITE[value.operator]
    if key(value.left) == key(value.right) and operator in ("<", ">", "!="):
        return None
    known = _narrow(value.left, operator, facts.range_of(value.right), facts)
    if known is None:
        return None
    return _narrow(value.right, _MIRRORED[operator], known.range_of(value.left), known)


def _narrow(value: typed.Typed, operator: str, other: Range, facts: Facts) -> Facts | None:
    """Return the facts where `value operator (something in other)` holds."""
    mine = facts.range_of(value)
    match operator:
        case "<" | "<=":
            left = mine.at_most(other.high, strict=operator == "<" or other.below_high)
        case ">" | ">=":
            left = mine.at_least(other.low, strict=operator == ">" or other.above_low)
        case "==":
            left = mine.at_least(other.low, strict=other.above_low).at_most(other.high, strict=other.below_high)
        case _:
            return None if mine.low == mine.high == other.low == other.high else facts
    return facts.with_range(value, left)


def _same(value: typed.Same, truth: bool, facts: Facts) -> Facts | None:
    equal = truth is not value.negated
    if value.left.info.type.kind is not Kind.TEXT:
        return _same_truth(value, equal, facts)
    if key(value.left) == key(value.right):
        if equal:
            return _missing(value.left, False, facts)
        return _missing(value.left, True, facts) if value.left.info.maybe else None
    known: Facts | None = facts
    for mine, other in ((value.left, value.right), (value.right, value.left)):
        if known is None or isinstance(_inner(mine), typed.Constant):
            continue
        theirs = known.words_of(other)
        if equal:
            words = known.words_of(mine)
            words = words.among(theirs.allowed) if theirs.allowed is not None else replace(words, absent=False)
            known = known.with_words(mine, words)
        elif theirs.allowed is not None and len(theirs.allowed) == 1 and not theirs.absent:
            known = known.with_words(mine, known.words_of(mine).none_of(theirs.allowed))
    constants = isinstance(_inner(value.left), typed.Constant) and isinstance(_inner(value.right), typed.Constant)
    if known is not None and constants:
        same = known.words_of(value.left).allowed == known.words_of(value.right).allowed
        return known if same is equal else None
    return known


def _same_truth(value: typed.Same, equal: bool, facts: Facts) -> Facts | None:
    for mine, other in ((value.left, value.right), (value.right, value.left)):
        constant = _inner(other)
        if isinstance(constant, typed.Constant):
            return assume(mine, constant.value is equal, facts)
    return facts


def _contained(value: typed.Contained, truth: bool, facts: Facts) -> Facts | None:
    inside = truth is not value.negated
    items = _inner(value.list)
    if not isinstance(items, typed.Constant):
        return facts.with_truth(value, truth)
    if value.item.info.type.kind is Kind.TEXT:
        words, mine = frozenset(items.value), facts.words_of(value.item)
        constant = _inner(value.item)
        if isinstance(constant, typed.Constant):
            return facts if (constant.value in words) is inside else None
        return facts.with_words(value.item, mine.among(words) if inside else mine.none_of(words))
    if not items.value:
        return None if inside else facts
    if inside:
        known = facts.range_of(value.item)
        known = known.at_least(min(items.value), strict=False).at_most(max(items.value), strict=False)
        return facts.with_range(value.item, known)
    return facts


def _missing(operand: typed.Typed, missing: bool, facts: Facts) -> Facts | None:
    """Return the facts where a value is missing, or is there."""
    if not operand.info.maybe:
        return None if missing else facts
    if operand.info.type.kind is Kind.TEXT:
        words = facts.words_of(operand)
        words = replace(words, present=False, allowed=frozenset()) if missing else replace(words, absent=False)
        if missing and not words.absent:
            return None
        return facts.with_words(operand, words)
    return facts


def never(*conditions: typed.Typed, given: Facts = NO_FACTS) -> bool:
    """Return whether it is proved that the conditions never hold together."""
    known: Facts | None = given
    for _ in range(min(2, len(conditions))):
        for condition in conditions:
            known = assume(condition, True, known) if known is not None else None
    return known is None


def always(condition: typed.Typed, given: Facts = NO_FACTS) -> bool:
    """Return whether it is proved that the condition always holds."""
    return not condition.info.maybe and assume(condition, False, given) is None
