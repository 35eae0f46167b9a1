"""Values of a policy's subexpressions, for people: what each part of a clause says about some nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.columns import MISSING, TRUE
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, Part
from kube_policy_scheduler.lang.environment import Texts
from kube_policy_scheduler.lang.types import BYTES, Kind, Shape
from kube_policy_scheduler.policy.metric_ages import metric_ages
from kube_policy_scheduler.times import duration

Value: TypeAlias = float | str | bool | list[Any] | None
"""None is missing."""

_MOST_WHOLE = 1e15
_AGE_SHOWN = 0.5  # seconds
_BINARY = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


@dataclass(frozen=True, slots=True)
class PartValues:
    """What one subexpression says about some nodes."""

    text: str
    place: str
    """`FILE:LINE:COLUMN`"""
    values: tuple[Value, ...]
    same: bool
    """Whether it is one value for the whole decision."""
    bytes: bool = False
    ages: tuple[float | None, ...] = ()
    """Of a metric that had an answer: how old each value is, seconds; None where there is none."""

    def texts(self) -> list[str]:
        """Return the values for people, of a metric each with its age."""
        texts = [shown(value, as_bytes=self.bytes) for value in self.values]
        if not self.ages:
            return texts
        pairs = zip(texts, self.ages, strict=True)
        return [text if age is None or age < _AGE_SHOWN else f"{text} ({duration(age)} old)" for text, age in pairs]


def part_values(parts: Iterable[Part], frame: Frame, positions: Sequence[int]) -> tuple[PartValues, ...]:
    """Return the values of subexpressions at positions of the frame's rows; parts written alike come once."""
    done: dict[str, PartValues] = {}
    for part in parts:
        if part.info.type.kind in (Kind.PODS, Kind.UNKNOWN):
            continue
        text = " ".join(part.span.text.split())
        if text in done:
            continue
        answer = part.evaluate(frame)
        values = tuple(_value(part, answer, position) for position in positions)
        unit = part.info.type
        done[text] = PartValues(
            text,
            str(part.span),
            values,
            part.info.shape is Shape.DECISION,
            unit.kind is Kind.NUMBER and unit.unit.same_dimension(BYTES),
            _ages(part, frame, positions),
        )
    return tuple(done.values())


def leaves(clause: CompiledClause, within: tuple[int, int]) -> list[Part]:
    """Return the innermost subexpressions inside a range of offsets: what the others are made of."""
    inside = [part for part in clause.parts() if within[0] <= part.span.start and part.span.end <= within[1]]
    spans = [(part.span.start, part.span.end) for part in inside]
    return [
        part
        for part, (start, end) in zip(inside, spans, strict=True)
        if not any(start <= a and b <= end and (a, b) != (start, end) for a, b in spans)
    ]


def _ages(part: Part, frame: Frame, positions: Sequence[int]) -> tuple[float | None, ...]:
    ages = metric_ages(part, frame)
    if ages is None:
        return ()
    return tuple(None if math.isnan(age) else age for age in (float(ages[position]) for position in positions))


def _value(part: Part, answer: Any, position: int) -> Value:
    kind = part.info.type.kind
    one = answer
    if isinstance(answer, Texts):
        code = int(answer.codes[position])
        return answer.values[code] if code >= 0 else None
    if isinstance(answer, np.ndarray) or (part.info.shape is Shape.NODE and isinstance(answer, list | tuple)):
        one = answer[position]
    if one is None or isinstance(one, str):
        return one
    if kind is Kind.LIST:
        return list(one)
    if kind is Kind.TRUTH:
        if part.info.maybe and not isinstance(one, bool | np.bool_):
            return None if one == MISSING else bool(one == TRUE)
        return bool(one)
    number = float(one)
    return None if math.isnan(number) else number


def shown(value: Value, *, as_bytes: bool = False) -> str:
    """Return a value for people."""
    match value:
        case None:
            return "missing"
        case bool():
            return "true" if value else "false"
        case float():
            if as_bytes:
                return amount_text("memory", int(value))
            # seconds since 1970 are whole numbers of ten digits
            return f"{value:.0f}" if value.is_integer() and abs(value) < _MOST_WHOLE else f"{value:.6g}"
        case str():
            return f'"{value}"'
        case _:
            return f"[{', '.join(shown(item) for item in value)}]"


def amount_text(resource: str, amount: int) -> str:
    """Return an amount in column units as Kubernetes writes quantities; bytes with three digits at most."""
    if resource == "cpu":
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix, size in _BINARY:
            if abs(amount) >= size:
                return f"{amount / size:.3g}{suffix}" if amount < 1000 * size else f"{amount // size}{suffix}"
    return str(amount)
