"""What a case may want: nodes, reasons, numbers and texts, as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.patterns import compiled
from kube_policy_scheduler.wording import listed, plural, some

_MOST_NAMES = 12
"""Longer lists are cut."""
_TOLERANCE = re.compile(r"(?P<value>-?[0-9.]+) *(?:±|\+-) *(?P<tolerance>[0-9.]+)")
_COMPARISON = re.compile(r"(?P<operator>>=|<=|>|<|==)? *(?P<value>-?[0-9.]+)")
_EQUAL_WITHIN = 1e-9
"""Relative: totals are sums of floats."""
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": lambda got, limit: got >= limit,
    "<=": lambda got, limit: got <= limit,
    ">": lambda got, limit: got > limit,
    "<": lambda got, limit: got < limit,
    "==": lambda got, limit: abs(got - limit) <= _EQUAL_WITHIN * max(1.0, abs(limit)),
}


def is_pattern(text: str) -> bool:
    """Return whether a text is `/a regular expression/`."""
    return len(text) > 2 and text[0] == text[-1] == "/"


def says(wanted: str | None, texts: Iterable[str]) -> bool:
    """Return whether one of the texts is what is wanted; None wants nothing."""
    if wanted is None:
        return True
    if is_pattern(wanted):
        return any(compiled(wanted[1:-1]).search(text) for text in texts)
    return any(wanted in text for text in texts)


def number(value: float) -> str:
    """Return a number as people write it."""
    return f"{value:.10g}"


def names(several: Iterable[str]) -> str:
    """Return names in order."""
    return ", ".join(sorted(several)) or "none"


def difference(wanted: frozenset[str], got: frozenset[str]) -> tuple[str, str]:
    """Return two sets of names as expected and got; of large ones, what they do not have in common."""
    if max(len(wanted), len(got)) <= _MOST_NAMES:
        return names(wanted), names(got)
    missing, more = sorted(wanted - got), sorted(got - wanted)
    parts = [f"without {some(missing, limit=_MOST_NAMES)}"] if missing else []
    parts += [f"with {some(more, limit=_MOST_NAMES)}"] if more else []
    return plural(len(wanted), "name"), f"{plural(len(got), 'name')}, {listed(parts)}"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What `node: {zone: …}` may ask about a node."""

    name: str
    labels: Mapping[str, str]
    zone: str | None
    region: str | None
    ready: bool


@dataclass(frozen=True, slots=True)
class NodeMatch:
    """A set of nodes: by name, or by what holds for them."""

    text: str
    """As it was written, for people."""
    holds: Callable[[NodeFacts], bool]
    names: tuple[str, ...] = ()
    """The nodes, where they are named."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A rejection that is expected."""

    clause: str | None
    message: str | None
    """A part of a text, or `/a regular expression/`."""

    def __str__(self) -> str:
        parts = ((name, text) for name, text in (("clause", self.clause), ("message", self.message)) if text)
        return ", ".join(f"{name} {text}" for name, text in parts)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A number that is expected."""

    text: str
    holds: Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class YesOrReason:
    """Whether something is so, and a reason that is expected for it."""

    wanted: bool
    message: str | None
    """A part of the reason, or `/a regular expression/`."""


@dataclass(frozen=True, slots=True)
class MaxSkew:
    """By how much the pods of a case may differ between two domains."""

    by: str
    """zone, region, node, or a node label."""
    at_most: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What was expected and what came, each as people read it."""

    expected: str
    got: str
    value: float | None = None
    """What came, where `policyctl test --update` writes it; None where the expectation is a demand."""


def comparison(value: float | str) -> Comparison:
    """Return a number, `'>= 50'` or `'180 ± 0.5'` as a comparison."""
    if not isinstance(value, str):
        exactly = float(value)
        return Comparison(f"{exactly:.10g}", lambda got: _OPERATORS["=="](got, exactly))
    text = value
    tolerant = _TOLERANCE.fullmatch(text.strip())
    if tolerant is not None:
        middle, tolerance = float(tolerant["value"]), float(tolerant["tolerance"])
        return Comparison(text, lambda got: abs(got - middle) <= tolerance)
    plain = _COMPARISON.fullmatch(text.strip())
    assert plain is not None, f"the schema lets {text!r} through"
    holds, limit = _OPERATORS[plain["operator"] or "=="], float(plain["value"])
    return Comparison(text, lambda got: holds(got, limit))


def node_match(wanted: Mapping[str, Any]) -> NodeMatch:
    """Return a match of the nodes for which all of this holds: `zone`, `region`, `name`, `ready`, `labels`."""
    shown = ", ".join(f"{key} {_shown(item)}" for key, item in wanted.items())
    return NodeMatch(shown, lambda facts: _holds(wanted, facts))


def _holds(match: Mapping[str, Any], facts: NodeFacts) -> bool:
    return all(
        all(facts.labels.get(label) == text for label, text in value.items())
        if key == "labels"
        else getattr(facts, key) == value
        for key, value in match.items()
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={text}" for key, text in value.items())
    return {True: "true", False: "false"}.get(value, str(value))
