"""How each expectation is held against an outcome, and what is said where it does not hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

from engine.tooling.tester.expectation import (
    Degraded,
    Evicts,
    Expectation,
    Feasible,
    Filtered,
    GoesTo,
    Held,
    Margin,
    NodeFacts,
    NodeMatch,
    NotOn,
    Order,
    Reason,
    Schedulable,
    Score,
    Unschedulable,
)
from engine.tooling.tester.outcome import Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What was expected and what came, each as people read it."""

    expected: str
    got: str


def compare(
    expectation: Expectation,
    outcome: Outcome,
    *,
    facts: Mapping[str, NodeFacts],
    policy_clauses: frozenset[str],
    tie_ok: bool,
) -> Mismatch | None:
    """Return how the outcome differs from what is expected, None where it does not.

    Args:
        expectation: one of a case's expectations.
        outcome: what was decided.
        facts: every node, by name.
        policy_clauses: names of the filters that are the policy's own, not Kubernetes'.
        tie_ok: whether a tie-break may decide which node it is.
    """
    match expectation:
        case GoesTo(match=wanted) | NotOn(match=wanted):
            inside = isinstance(expectation, GoesTo)
            return _place(outcome, wanted, facts=facts, inside=inside, tie_ok=tie_ok)
        case Schedulable(wanted=wanted):
            text = {True: "schedulable", False: "unschedulable"}
            if (outcome.host is not None) is wanted:
                return None
            return Mismatch(text[wanted], went(outcome))
        case Unschedulable(reason=reason):
            return _unschedulable(outcome, reason, policy_clauses=policy_clauses)
        case Held(wanted=wanted, message=message):
            if (outcome.held is not None) is wanted and _says(message, [outcome.held or ""]):
                return None
            expected = message or "" if wanted else "not held"
            return Mismatch(f"held: {expected}" if wanted else expected, went(outcome))
        case Evicts(pods=pods):
            return None if outcome.victims == pods else Mismatch(_names(pods), _names(outcome.victims))
        case Feasible(nodes=nodes):
            if outcome.feasible == nodes:
                return None
            return Mismatch(_names(nodes), _names(outcome.feasible) + _why_not(outcome, nodes - outcome.feasible))
        case Filtered(node=node, reason=reason):
            return _filtered(outcome, node, reason)
        case Score(node=node, wanted=wanted):
            if node not in outcome.totals:
                return Mismatch(wanted.text, _why_not(outcome, {node}).removeprefix("; ") or f"{node} has no score")
            if wanted.holds(outcome.totals[node]):
                return None
            return Mismatch(wanted.text, number(outcome.totals[node]))
        case Order(nodes=order):
            return _order(outcome, order)
        case Margin(wanted=wanted):
            margin = _margin(outcome)
            if margin is None:
                return Mismatch(wanted.text, f"{went(outcome)}; there is no next node")
            return None if wanted.holds(margin) else Mismatch(wanted.text, number(margin))
        case Degraded(queries=queries):
            if outcome.degraded == queries:
                return None
            return Mismatch(_names(queries), _names(outcome.degraded))
        case _:
            assert_never(expectation)


def number(value: float) -> str:
    """Return a number as people write it."""
    return f"{value:.10g}"


def went(outcome: Outcome) -> str:
    """Return where the pod went and by how much, in one line."""
    if outcome.host is None:
        return f"unschedulable: {outcome.message}"
    ranked = sorted(outcome.totals.items(), key=lambda item: (-item[1], item[0]))
    text = f"{outcome.host} (score {number(outcome.totals[outcome.host])}"
    others = [item for item in ranked if item[0] != outcome.host]
    if others:
        text += f", next {others[0][0]} {number(others[0][1])}"
    return text + ")"


def _place(
    outcome: Outcome, wanted: NodeMatch, *, facts: Mapping[str, NodeFacts], inside: bool, tie_ok: bool
) -> Mismatch | None:
    expected = wanted.text if inside else f"not {wanted.text}"
    if outcome.host is None or wanted.holds(facts[outcome.host]) is not inside:
        return Mismatch(expected, went(outcome))
    astray = [name for name in outcome.tied if wanted.holds(facts[name]) is not inside]
    if astray and not tie_ok:
        among = ", ".join(outcome.tied)
        return Mismatch(
            expected,
            f"{outcome.host}, but only by tie-break among {among} (score {number(outcome.totals[outcome.host])} each);"
            " write `tie: ok` where that is meant",
        )
    return None


def _unschedulable(outcome: Outcome, reason: Reason, *, policy_clauses: frozenset[str]) -> Mismatch | None:
    if outcome.host is not None:
        return Mismatch(f"unschedulable: {reason}", went(outcome))
    if reason.clause is None:
        return None if _says(reason.message, [outcome.message]) else Mismatch(f"{reason}", outcome.message)
    verdict = outcome.verdict(reason.clause)
    decisive = verdict is not None and _decides(verdict, outcome, policy_clauses)
    if verdict is None or not decisive:
        return Mismatch(f"{reason}", f"unschedulable for another reason: {outcome.message}")
    texts = sorted({text for texts in verdict.refused.values() for text in texts})
    return None if _says(reason.message, texts) else Mismatch(f"{reason}", f"{verdict.clause}: {', '.join(texts)}")


def _decides(verdict: Verdict, outcome: Outcome, policy_clauses: frozenset[str]) -> bool:
    """Return whether the clause refuses every node, or one that all others of the policy let through."""
    if verdict.refused.keys() >= outcome.nodes:
        return True
    siblings = [part for part in outcome.conjuncts if verdict.within and part.within == verdict.within]
    clauses = [other for other in outcome.verdicts if other.clause in policy_clauses - {verdict.within}]
    others = {node for other in (*clauses, *siblings) if other.clause != verdict.clause for node in other.refused}
    return bool(verdict.refused.keys() - others)


def _filtered(outcome: Outcome, node: str, reason: Reason) -> Mismatch | None:
    refusing = [verdict for verdict in outcome.verdicts if node in verdict.refused]
    if reason.clause is not None:
        named = outcome.verdict(reason.clause)
        refusing_as_wanted = [] if named is None or node not in named.refused else [named]
    else:
        refusing_as_wanted = refusing
    if any(_says(reason.message, verdict.refused[node]) for verdict in refusing_as_wanted):
        return None
    got = "; ".join(outcome.refusals(node))
    return Mismatch(
        f"{node} filtered by {reason}", f"{node} filtered by {got}" if got else f"{node} passes every filter"
    )


def _order(outcome: Outcome, order: tuple[str, ...]) -> Mismatch | None:
    expected = " > ".join(order)
    absent = [name for name in order if name not in outcome.totals]
    if absent:
        return Mismatch(expected, _why_not(outcome, absent).removeprefix("; "))
    totals = [outcome.totals[name] for name in order]
    if all(left > right for left, right in pairwise(totals)):
        return None
    ranked = sorted(order, key=lambda name: (-outcome.totals[name], name))
    return Mismatch(expected, ", ".join(f"{name} {number(outcome.totals[name])}" for name in ranked))


def _margin(outcome: Outcome) -> float | None:
    ranked = sorted(outcome.totals.values(), reverse=True)
    return None if outcome.host is None or len(ranked) < 2 else ranked[0] - ranked[1]


def _says(wanted: str | None, texts: Iterable[str]) -> bool:
    if wanted is None:
        return True
    if len(wanted) > 2 and wanted[0] == wanted[-1] == "/":
        return any(re.search(wanted[1:-1], text) for text in texts)
    return any(wanted in text for text in texts)


def _why_not(outcome: Outcome, nodes: Iterable[str]) -> str:
    parts = [f"{node} filtered by {first}" for node in sorted(nodes) if (first := next(outcome.refusals(node), ""))]
    return f"; {'; '.join(parts)}" if parts else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
