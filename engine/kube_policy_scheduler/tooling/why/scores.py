"""Values of expressions on nodes, and why the chosen node ranks before the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.framework.evaluate.evaluation import Evaluation, score
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.lang.compiling.columns import MISSING, TRUE
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, Part
from kube_policy_scheduler.lang.environment import Lists, Texts
from kube_policy_scheduler.lang.types import BYTES, SECONDS, Info, Kind, Shape
from kube_policy_scheduler.policy.clauses import ScoreClause
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.policy.groupings import GroupingScore
from kube_policy_scheduler.policy.readings import metric_ages
from kube_policy_scheduler.times import duration, duration_text, rfc3339

Value: TypeAlias = float | str | bool | list[Any] | None
"""None is missing."""

_MOST_WHOLE = 1e15
_AGE_SHOWN = 0.5  # seconds
_TIMES = 1e9
"""Seconds: no pod waits for 30 years, so what is larger is a time since 1970."""
_BINARY = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


class PartValues(msgspec.Struct, frozen=True):
    """What one subexpression says about some nodes."""

    text: str
    place: str
    """`FILE:LINE:COLUMN`"""
    values: tuple[Value, ...]
    same: bool
    """Whether it is one value for the whole decision."""
    bytes: bool = False
    seconds: bool = False
    ages: tuple[float | None, ...] = ()
    """Of a metric that had an answer: how old each value is, seconds; None where there is none."""

    def texts(self) -> list[str]:
        """Return the values for people, of a metric each with its age."""
        texts = [shown(value, as_bytes=self.bytes, as_seconds=self.seconds) for value in self.values]
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
        values = tuple(value_at(answer, position, part.info) for position in positions)
        unit = part.info.type
        done[text] = PartValues(
            text,
            str(part.span),
            values,
            part.info.shape is Shape.DECISION,
            unit.kind is Kind.NUMBER and unit.unit.same_dimension(BYTES),
            unit.kind is Kind.NUMBER and unit.unit.same_dimension(SECONDS),
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


def value_at(answer: Any, position: int, info: Info) -> Value:
    """Return what an expression answers at one position of its rows; info: of the expression."""
    kind = info.type.kind
    one = answer
    if isinstance(answer, Texts):
        code = int(answer.codes[position])
        return answer.values[code] if code >= 0 else None
    if isinstance(answer, np.ndarray) or (info.shape is Shape.NODE and isinstance(answer, list | tuple | Lists)):
        one = answer[position]
    if one is None or isinstance(one, str):
        return one
    if kind is Kind.LIST:
        return list(one)
    if kind is Kind.TRUTH:
        if info.maybe and not isinstance(one, bool | np.bool_):
            return None if one == MISSING else bool(one == TRUE)
        return bool(one)
    number = float(one)
    return None if math.isnan(number) else number


def shown(value: Value, *, as_bytes: bool = False, as_seconds: bool = False) -> str:
    """Return a value for people. as_seconds: a duration, or a time since 1970."""
    match value:
        case None:
            return "missing"
        case bool():
            return "true" if value else "false"
        case float():
            if as_bytes:
                return amount_text("memory", int(value))
            if as_seconds and abs(value) < _MOST_WHOLE:
                return rfc3339(value) if value >= _TIMES else duration_text(round(value, 3))
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


class Term(msgspec.Struct, frozen=True):
    """One score, weighted, on the nodes of the ranking."""

    name: str
    """Kubernetes' name of the plugin, or the clause as written."""
    place: str
    """`FILE:LINE:COLUMN`, "" for Kubernetes' own."""
    weight: float
    scores: tuple[float, ...]
    low: float
    """The lowest score among all nodes that fit."""
    high: float
    parts: tuple[PartValues, ...] = ()


class Ranking(msgspec.Struct, frozen=True):
    """The best nodes, the chosen one first."""

    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    """Place of each among all that fit; equal totals have equal ranks."""
    totals: tuple[float, ...]
    terms: tuple[Term, ...]
    feasible: int
    ties: int
    """How many nodes have the chosen node's total."""
    margin: float | None
    """Between the chosen node's total and the best of those that fit and have another; None without one."""
    current: str | None = None
    """The node that the pod is on, where it fits there."""

    def advantage(self, at: int) -> list[tuple[str, float]]:
        """Return by how much the first node leads another by each score, the largest difference first."""
        found = [(term.name, term.scores[0] - term.scores[at]) for term in self.terms]
        return sorted(((n, d) for n, d in found if d), key=lambda item: (-abs(item[1]), item[0]))


def ranking(inputs: DecisionInputs, evaluation: Evaluation, *, host: str, current: str | None, limit: int) -> Ranking:
    """Return the `limit` best nodes with their scores, and the current one."""
    frame, feasible, totals = inputs.frame(), evaluation.feasible, evaluation.totals
    names = inputs.cluster.nodes.names
    chosen = [names[row] for row in feasible].index(host)
    order = sorted(range(len(feasible)), key=lambda at: (at != chosen, -totals[at], names[feasible[at]]))
    positions = order[:limit]
    here = next((at for at in order if names[feasible[at]] == current), None)
    if here is not None and here not in positions:
        positions.append(here)
    others = totals[totals != totals[chosen]]
    return Ranking(
        nodes=tuple(names[feasible[at]] for at in positions),
        ranks=tuple(int((totals > totals[at]).sum()) + 1 for at in positions),
        totals=tuple(float(totals[at]) for at in positions),
        terms=_terms(inputs, frame.at(feasible), feasible, positions),
        feasible=len(feasible),
        ties=int((totals == totals[chosen]).sum()),
        margin=float(totals[chosen] - others.max()) if len(others) else None,
        current=current if here is not None else None,
    )


def _terms(inputs: DecisionInputs, chosen: Frame, feasible: IntArray, positions: Sequence[int]) -> tuple[Term, ...]:
    terms: list[Term] = []
    for weighted in inputs.profile.scores:
        plugin = weighted.plugin
        # one at a time, as clauses may have one name
        (scores,) = score(chosen, Profile(plugin.name, scores=(weighted,)), feasible).values() or (None,)
        if scores is None:
            continue
        name, place = plugin.name, ""
        parts: tuple[PartValues, ...] = ()
        if isinstance(plugin, ScoreClause | GroupingScore):
            name, place = plugin.clause.text, str(plugin.clause.span)
            parts = part_values(plugin.clause.parts(), chosen, positions)
        if isinstance(plugin, GroupingScore):
            counts, _ = plugin.domain_counts(chosen)
            where = plugin.clause.topology or "node"
            values = tuple(float(counts[at]) for at in positions)
            parts = (*parts, PartValues(f"pods of the same key in the {where}", place, values, same=False))
        final = np.asarray(scores, np.float64)
        at = tuple(float(final[position]) for position in positions)
        terms.append(Term(name, place, weighted.weight, at, float(final.min()), float(final.max()), parts))
    return tuple(terms)
